"""A corpus of 100,000 chunks of real text, for the benchmarks of indexing and search.

    python benchmarks/corpus100k.py [--data FOLDER] [--count N] [--out FILE.jsonl.gz]

The sets in `--data` (default: the environment's CTX1_DATA, else ../shared/data) hold about 36,000 paragraphs.
They are augmented by **shift and shuffle**: round r gives every paragraph a variant whose sentences stand in another
order, whose numbers of two to four digits are each increased by r, and whose title says `(variant r)`; ids get the
suffix `-vR`. Rounds follow one another until there are enough. It is seeded: the same sets give the same corpus.

A variant has the length, the vocabulary and the punctuation of its paragraph, so postings, vectors and patterns behave
as on real text of that size; but near-duplicates are denser than in a real corpus, and recall on it means nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import statistics
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from context_agent.types import Document

SETS = ("2wiki", "hotpotqa", "musique")
COUNT = 100_000
_NUMBER = re.compile(r"\b\d{2,4}\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def data_folder(folder_name: str | None) -> Path:
    """Return the folder of the sets; ends the program with a message when they are not there."""
    folder = Path(folder_name or os.environ.get("CTX1_DATA", Path(__file__).parents[2] / "shared" / "data"))
    missing = [name for name in SETS if not (folder / name / "corpus.jsonl.gz").exists()]
    if missing:
        sys.exit(f"no data for {', '.join(missing)} in {folder}: name the folder by --data or CTX1_DATA")
    return folder


def paragraphs(folder: Path) -> list[Document]:
    """Return all sets one after another, ids prefixed by the set's name."""
    documents = []
    for name in SETS:
        with gzip.open(folder / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = map(json.loads, lines)
            documents += [Document(f"{name}-{row['id']}", row["text"], row["title"]) for row in rows]
    return documents


def corpus(folder: Path, size: int = COUNT) -> Iterator[Document]:
    """Return the first `size` documents: the real ones, then their variants, one round after another."""
    return islice(_rounds(paragraphs(folder)), size)


def questions(folder: Path) -> list[str]:
    """Return the dev questions of all sets, in turn, so that the first ones are of every set."""
    columns = []
    for name in SETS:
        with (folder / name / "queries.dev.jsonl").open(encoding="utf-8") as lines:
            columns.append([json.loads(line)["question"] for line in lines])
    return [question for row in zip(*columns, strict=False) for question in row]


def _rounds(real: list[Document]) -> Iterator[Document]:
    yield from real
    for number in count(1):
        draw = random.Random(number)
        yield from (_variant(document, number, draw) for document in real)


def _variant(document: Document, number: int, draw: random.Random) -> Document:
    sentences = _SENTENCE.split(document.text)
    draw.shuffle(sentences)
    text = _NUMBER.sub(lambda match: str(int(match.group()) + number), " ".join(sentences))
    return Document(f"{document.id}-v{number}", text, f"{document.title} (variant {number})")


def main() -> None:
    """Writes the corpus, or prints what it is like."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    documents = list(corpus(data_folder(options.data), options.count))
    if options.out:
        with gzip.open(options.out, "wt", encoding="utf-8") as file:
            for document in documents:
                file.write(
                    json.dumps({"id": document.id, "title": document.title, "text": document.text}, ensure_ascii=False)
                    + "\n"
                )
    lengths = [len(document.text) for document in documents]
    print(
        f"{len(documents):,} documents, {statistics.mean(lengths):.0f} characters on average, {sum(lengths):,} in all"
    )


if __name__ == "__main__":
    main()
