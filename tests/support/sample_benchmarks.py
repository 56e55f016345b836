"""Small sets of rows written by hand in the published formats; every name in them is invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PEOPLE = {
    "Ada Quill": "Ada Quill painted the Brasko murals. She was taught by Tor Lindqvist.",
    "Tor Lindqvist": "Tor Lindqvist was born in Vellmar and taught in Brasko.",
    "Vellmar": "Vellmar is a town on the river Osk.",
    "Osk": "The Osk is a river that freezes every winter.",
}
QUESTION = "Where was the teacher of Ada Quill born?"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSONL, or as one JSON list, depending on the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(lines if path.suffix == ".jsonl" else json.dumps(rows), encoding="utf-8")
    return path


def native_folder(folder: Path, count: int = 4, *, name: str = "world") -> Path:
    """Return a folder in the native format: the people above, and `count` questions a split."""
    path = folder / name
    write(
        path / "corpus.jsonl", [{"id": title.lower(), "title": title, "text": text} for title, text in PEOPLE.items()]
    )
    titles = list(PEOPLE)
    for split in ("train", "dev"):
        rows = [
            {
                "id": f"{split}-{number}",
                "question": f"What does the {split} say of {titles[number % 4]}, part {number}?",
                "answer": "Vellmar",
                "gold": [titles[number % 4].lower(), titles[(number + 1) % 4].lower()],
                "type": ("bridge", "compare")[number % 2],
                "hops": 2,
            }
            for number in range(count)
        ]
        write(path / f"queries.{split}.jsonl", rows)
    return path


def hotpot_row(*, columns: bool = False) -> dict[str, Any]:
    """Return a HotpotQA row: pairs as in the published file, columns as in the hub's edition."""
    context = [[title, [text]] for title, text in PEOPLE.items()]
    facts = [["Ada Quill", 0], ["Tor Lindqvist", 0], ["Ada Quill", 1]]
    row: dict[str, Any] = {"question": QUESTION, "answer": "Vellmar", "type": "bridge", "level": "hard"}
    if columns:
        row |= {
            "id": "h1",
            "context": {"title": [title for title, _ in context], "sentences": [text for _, text in context]},
            "supporting_facts": {
                "title": [title for title, _ in facts],
                "sent_id": [sentence for _, sentence in facts],
            },
        }
        return row
    return {**row, "_id": "h1", "context": context, "supporting_facts": facts}


def musique_row() -> dict[str, Any]:
    """Return a MuSiQue row whose gold is in another order than its paragraphs."""
    return {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": index, "title": title, "paragraph_text": text, "is_supporting": index < 2}
            for index, (title, text) in enumerate(PEOPLE.items())
        ],
        "question": QUESTION,
        "question_decomposition": [
            {"id": 1, "question": "who taught?", "answer": "Tor", "paragraph_support_idx": 1},
            {"id": 2, "question": "where born?", "answer": "Vellmar", "paragraph_support_idx": 0},
        ],
        "answer": "Vellmar",
        "answer_aliases": [],
        "answerable": True,
    }
