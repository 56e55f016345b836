"""Generate sets for training whose documents use codes and whose questions use names.

    python benchmarks/coded_sets.py --out FOLDER

Each set has reports of one kind, such as airports by month. The title of a report is a code and a period, such as `LHR
May`. The reports never spell the name, and their wording is nearly the same for all codes. The questions use the name
and other words than the reports. A third of the questions ask for one period, the others for all periods. Codes and
names are facts that people know. The reports are invented, and no figure in them is real.

`scripts/build_ranker.py collect --data FOLDER` reads the folder. No code, name or subject of `coded_releases` is here,
because that set is for choosing between trained weights. The kinds are in `data/coded-sets.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from context_agent.types import Document


class Subject(NamedTuple):
    """A section of every report: its heading, the template of its text, and the question about it."""

    heading: str
    text: str
    question: str


class Kind(NamedTuple):
    """A kind of reports: its codes with their names, its periods, and its subjects."""

    codes: dict[str, str]
    periods: list[str]
    subjects: list[Subject]


def kinds() -> dict[str, Kind]:
    """Return the kinds by the names of their sets."""
    read = json.loads((Path(__file__).parent / "data" / "coded-sets.json").read_text(encoding="utf-8"))
    return {
        name: Kind(kind["codes"], kind["periods"], [Subject(**subject) for subject in kind["subjects"]])
        for name, kind in read.items()
    }


def documents(kind: Kind, seed: str) -> Iterator[Document]:
    """Yield a report for each code, period and subject."""
    draw = random.Random(seed)
    for code in kind.codes:
        for period in kind.periods:
            for number, subject in enumerate(kind.subjects):
                filled = subject.text.format(n=draw.randint(20, 90), m=draw.randint(2, 19))
                title = f"{code} {period} {subject.heading}" if number % 2 else f"{code} {period}"
                yield Document(
                    f"{code}-{period}-{number}", filled if number % 2 else f"{subject.heading}. {filled}", title
                )


def questions(kind: Kind, seed: str) -> Iterator[dict[str, Any]]:
    """Yield the questions about each code and subject. Every third one asks for one period."""
    draw = random.Random(seed)
    pairs = [(code, number) for code in kind.codes for number in range(len(kind.subjects))]
    for place, (code, number) in enumerate(pairs):
        asked = kind.subjects[number].question.format(name=kind.codes[code])
        periods = [draw.choice(kind.periods)] if place % 3 == 0 else list(kind.periods)
        question = f"{periods[0]}: {asked}" if len(periods) == 1 else asked
        gold = [f"{code}-{period}-{number}" for period in periods]
        yield {"id": f"{code}-{number}", "question": question, "gold": gold, "type": "codes", "split": "train"}


def main() -> None:
    """Write each set as a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the sets")
    out: Path = parser.parse_args().out
    for name, kind in kinds().items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
            for item in documents(kind, name):
                file.write(json.dumps({"id": item.id, "title": item.title, "text": item.text}) + "\n")
        rows = list(questions(kind, name))
        (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        print(f"{name}: {len(rows)} questions")


if __name__ == "__main__":
    main()
