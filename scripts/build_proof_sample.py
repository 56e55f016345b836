"""Build the sample of questions that `ctx1 proof` runs on. The result is in context_agent/cli/proof_data.

    python scripts/build_proof_sample.py --data FOLDER [--seed 0]

FOLDER has musique/, 2wiki/ and hotpotqa/. The questions are drawn from their dev questions, and from the test questions
of five corpora of benchmarks/data/bank-test. Only the seed decides which questions are drawn, never a result.

The small corpora are copied completely. A corpus of encyclopedia articles is reduced, but its figures must stay close
to those of the whole corpus. So these passages are kept: the gold documents, the best passages of BM25 and of dense
search for each question, and every passage that the agent saw.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Document

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "context_agent/cli/proof_data"
BANK = ROOT / "benchmarks/data/bank-test"
OWN_SETS = ("bakery-machines", "farm-advice", "observatory-log", "sustainability", "theatre-group")
OWN_QUESTIONS, PUBLIC_QUESTIONS = 8, 12
DEPTH = 10
"""The number of passages that each retriever adds for a question."""
WIKIPEDIA = "passages from Wikipedia, CC BY-SA 4.0"
PUBLIC_SETS = {
    "2wiki": ("questions over two to four Wikipedia articles", "2WikiMultiHopQA", "Apache-2.0"),
    "hotpotqa": ("questions over two Wikipedia articles", "HotpotQA", "CC BY-SA 4.0"),
    "musique": ("questions over two to four Wikipedia articles", "MuSiQue", "CC BY 4.0"),
}

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a JSONL file, which may be compressed with gzip."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


def drawn(rows: Iterable[Row], number: int, draw: random.Random) -> list[Row]:
    """Return random questions that have gold documents, in the order of the file."""
    candidates = [row for row in rows if row["gold"]]
    chosen = {row["id"] for row in draw.sample(candidates, number)}
    fields = ("id", "question", "answer", "gold", "type")
    return [{key: row[key] for key in fields if row.get(key)} for row in candidates if row["id"] in chosen]


def reduced(rows: Sequence[Row], questions: Sequence[Row]) -> list[Row]:
    """Return the passages that searches for these questions find, in the order of the corpus."""
    corpus = MemoryCorpus((Document(row["id"], row["text"], row["title"]) for row in rows), embedder="static")
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
    kept: set[str] = set()
    agents = [SearchAgent(corpus, BridgePolicy().with_effort(effort)) for effort in ("fast", "careful")]
    for question in questions:
        kept.update(question["gold"])
        for retriever in corpus.retrievers:
            kept.update(owner[chunk_id] for chunk_id, _ in retriever.search(question["question"], DEPTH))
        for agent in agents:
            for trajectory in agent.search(question["question"]).trajectories:
                kept.update(trajectory.encountered)
    return [row for row in rows if row["id"] in kept]


def write(name: str, passages: Sequence[Row], questions: Sequence[Row], about: Mapping[str, str]) -> None:
    """Write a set in the native format of benchmarks, with its source and license."""
    folder = TARGET / name
    folder.mkdir(parents=True)
    text = "".join(json.dumps({key: row[key] for key in ("id", "title", "text")}) + "\n" for row in passages)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in questions)
    (folder / "queries.test.jsonl").write_text(lines, encoding="utf-8")
    (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {len(questions)} questions, {len(passages):,} passages", flush=True)


def _about(name: str, about: str, source: str, terms: str) -> dict[str, str]:
    return {"name": name, "about": about, "source": source, "license": terms}


def main() -> int:
    """Replace the bundled sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with musique/, 2wiki/ and hotpotqa/")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shutil.rmtree(TARGET, ignore_errors=True)
    for name, (about, source, terms) in PUBLIC_SETS.items():
        draw = random.Random(f"{options.seed}/{name}")
        questions = drawn(read_rows(options.data / name / "queries.dev.jsonl"), PUBLIC_QUESTIONS, draw)
        passages = reduced(read_rows(options.data / name / "corpus.jsonl.gz"), questions)
        write(name, passages, questions, _about(source, about, source, f"{terms}; {WIKIPEDIA}"))
    for name in OWN_SETS:
        draw = random.Random(f"{options.seed}/{name}")
        about = json.loads((BANK / name / "about.json").read_text(encoding="utf-8"))
        questions = drawn(read_rows(BANK / name / "questions.jsonl"), OWN_QUESTIONS, draw)
        described = _about(name.replace("-", " "), about["domain"], "written for this project", about["license"])
        write(name, read_rows(BANK / name / "corpus.jsonl.gz"), questions, described)
    return 0


if __name__ == "__main__":
    sys.exit(main())
