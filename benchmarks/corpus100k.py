"""Make a corpus of 100,000 chunks of real text, for the benchmarks of indexing and search.

    python benchmarks/corpus100k.py [--data FOLDER] [--count N] [--out FILE.jsonl.gz]

The sets in `--data` have about 36,000 paragraphs. The default folder is `CTX1_DATA` in the environment, or else
../shared/data. The paragraphs are augmented by **shift and shuffle**. Each round makes a variant of every paragraph:

- the sentences are in another order;
- numbers of two to four digits are increased by the number of the round, r;
- the title ends with `(variant r)`, and the id ends with `-vr`.

Rounds are added until there are enough paragraphs. The random numbers are seeded, so the same sets always give the same
corpus.

A variant has the length, the vocabulary and the punctuation of its paragraph. So postings, vectors and patterns behave
as they do on real text of that size. But the corpus has more near-duplicates than a real one, so recall on it means
nothing.
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
    """Return the folder of the sets. If sets are missing, end the program with a message."""
    folder = Path(folder_name or os.environ.get("CTX1_DATA", Path(__file__).parents[2] / "shared" / "data"))
    missing = [name for name in SETS if not (folder / name / "corpus.jsonl.gz").exists()]
    if missing:
        sys.exit(f"no data for {', '.join(missing)} in {folder}: name the folder by --data or CTX1_DATA")
    return folder


def paragraphs(folder: Path) -> list[Document]:
    """Return the paragraphs of all sets, one set after another. Ids start with the name of the set."""
    documents = []
    for name in SETS:
        with gzip.open(folder / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = map(json.loads, lines)
            documents += [Document(f"{name}-{row['id']}", row["text"], row["title"]) for row in rows]
    return documents


def corpus(folder: Path, size: int = COUNT) -> Iterator[Document]:
    """Return the first `size` documents. The real ones come first, then their variants, round by round."""
    return islice(_rounds(paragraphs(folder)), size)


def questions(folder: Path) -> list[str]:
    """Return the dev questions of all sets. The sets alternate, so the first questions cover every set."""
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
    """Write the corpus if an output file is given, and print its size."""
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
