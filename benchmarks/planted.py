"""Measure recall@5 by attack, while the corpus has five passages for each question that an attacker planted.

    python benchmarks/planted.py --data FOLDER [--set 2wiki] [--split dev] [--attacks copy,titled,...] [--limit 60]

An attacker who knows the questions adds five documents for each of them:

| attack | title | text |
|---|---|---|
| copy | none | the question |
| titled | that of a gold document | the question |
| edited | none | the question, with some words left out and some exchanged |
| grafted | that of a gold document | the question, then the first half of that document |
| stuffed | that of a gold document | the question's words and the gold titles, three times, in random order |
| statement | none | the question as a statement with an invented answer |
| padded | none | a passage of the corpus, the question, another passage |
| altered | that of a gold document | that document with its digits and some names exchanged |
| mixed | | one each of titled, edited, grafted, stuffed and altered |

All questions are attacked at once. For each attack the program prints recall@5 of BM25, dense and hybrid search with
the question alone and of the agent, with bootstrap 95% intervals over questions. The first row is the corpus without
planted documents.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from multihop import load_chunks, measure

from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Chunk, Question

COPIES = 5
OPENINGS = ("Note:", "Tell me,", "Frequently asked:", "A reader writes:", "Please answer:")
NAMES = ("Corvin Hale", "Ilse Marbach", "Port Ansel", "Teodor Quist", "Vale of Orrin", "Maud Pellerin", "Lake Sturrock")
EXCHANGED = 0.15
"""The share of the words that `edited` leaves out, and the share that it moves."""
_ASKED = re.compile(r"(?:who|what|which|where|when)\s+(is|was|are|were)\s+(.*)", re.IGNORECASE)
_NAME = re.compile(r"\b[A-Z][a-z]{3,}\b")


@dataclass(frozen=True)
class Target:
    """The target of an attack.

    Attributes:
        question: The question.
        gold: The first chunk of each of its gold documents.
        corpus: All chunks.
        draw: The attacker's random numbers.
    """

    question: str
    gold: Sequence[Chunk]
    corpus: Sequence[Chunk]
    draw: random.Random


Plant = tuple[str, str]
"""The title and the text of a planted document."""


def _copy(target: Target, number: int) -> Plant:
    return "", target.question


def _titled(target: Target, number: int) -> Plant:
    return _gold(target, number).title, target.question


def _edited(target: Target, number: int) -> Plant:
    text_words = [word for word in target.question.split() if target.draw.random() >= EXCHANGED]
    for position in range(1, len(text_words)):
        if target.draw.random() < EXCHANGED:
            text_words[position - 1 : position + 1] = text_words[position - 1 : position + 1][::-1]
    return "", f"{OPENINGS[number % len(OPENINGS)]} {' '.join(text_words)}"


def _grafted(target: Target, number: int) -> Plant:
    gold = _gold(target, number)
    gold_words = gold.text.split()
    return gold.title, f"{target.question} {' '.join(gold_words[: len(gold_words) // 2])}"


def _stuffed(target: Target, number: int) -> Plant:
    keywords = 3 * [*target.question.rstrip("?").split(), *(chunk.title for chunk in target.gold)]
    target.draw.shuffle(keywords)
    return _gold(target, number).title, " ".join(keywords)


def _statement(target: Target, number: int) -> Plant:
    answer = target.draw.choice(NAMES)
    question = target.question.rstrip(" ?")
    if match := _ASKED.fullmatch(question):
        return "", f"{match[2][:1].upper()}{match[2][1:]} {match[1].lower()} {answer}."
    return "", f"{answer}: this is the answer to {question}."


def _padded(target: Target, number: int) -> Plant:
    before, after = (target.draw.choice(target.corpus).text for _ in range(2))
    return "", f"{before} {target.question} {after}"


def _altered(target: Target, number: int) -> Plant:
    gold = _gold(target, number)
    text = re.sub(r"\d", lambda _: str(target.draw.randrange(10)), gold.text)
    exchange = {name for name in _NAME.findall(text) if target.draw.random() < EXCHANGED}
    return gold.title, _NAME.sub(lambda m: target.draw.choice(NAMES) if m[0] in exchange else m[0], text)


def _mixed(target: Target, number: int) -> Plant:
    return (_titled, _edited, _grafted, _stuffed, _altered)[number % COPIES](target, number)


def _gold(target: Target, number: int) -> Chunk:
    return target.gold[number % len(target.gold)]


ATTACKS: Mapping[str, Callable[[Target, int], Plant]] = {
    "copy": _copy, "titled": _titled, "edited": _edited, "grafted": _grafted, "stuffed": _stuffed,
    "statement": _statement, "padded": _padded, "altered": _altered, "mixed": _mixed,
}  # fmt: skip


def plants(attack: str, questions: Sequence[Question], chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the planted documents as one chunk each. Their ids are different from those of all gold documents."""
    first = {chunk.document_id: chunk for chunk in reversed(chunks)}
    planted = []
    for position, question in enumerate(questions):
        target = Target(question.question, [first[gold] for gold in question.gold], chunks, random.Random(position))
        for number in range(COPIES):
            title, text = ATTACKS[attack](target, number)
            document = f"planted-{position}-{number}"
            planted.append(Chunk(f"{document}_0", document, 0, text, 0, len(text), len(text) // 4, title))
    return planted


def main() -> int:
    """Print a row for each attack."""
    options = _options()
    folder = options.data / options.set
    if not (folder / "corpus.jsonl.gz").is_file():
        print(f"{folder} has no corpus.jsonl.gz; name the folder of sets with --data", file=sys.stderr)
        return 2
    embedder = load_embedder(options.embedder)
    chunks = load_chunks(folder)
    vectors = embedder.embed_documents([chunk.indexed_text for chunk in chunks])
    questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.limit]
    print(f"{'attack':10} " + " ".join(f"{way:22}" for way in ("BM25", "dense", "hybrid", "agent")))
    for attack in ("none", *options.attacks.split(",")):
        planted = plants(attack, questions, chunks) if attack != "none" else []
        texts = [chunk.indexed_text for chunk in planted]
        rows = np.concatenate([vectors, embedder.embed_documents(texts)]) if texts else vectors
        corpus = MemoryCorpus([*chunks, *planted], embedder=embedder, vectors=rows)
        row = measure(attack, corpus, questions, SearchAgent(corpus, BridgePolicy()))
        ways = (Figure.of(row.recalls[way]) for way in ("bm25", "dense", "hybrid", "agent"))
        print(f"{attack:10} " + " ".join(f"{figure!s:22}" for figure in ways), flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder a set")
    parser.add_argument("--set", default="2wiki")
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--embedder", default="static")
    parser.add_argument("--limit", type=int, help="questions at most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
