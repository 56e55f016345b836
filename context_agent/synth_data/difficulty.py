"""The difficulty of a task: the mean of the known parts, each between 0 (easy) and 1 (hard).

Difficulty orders tasks for a curriculum. It is not a probability. The parts are:

- `hops`: 0 for one hop, and 1 for four or more.
- `rivals`: the cosine of the question with the nearest wrong document, minus its cosine with the farthest gold
  document. The range from -0.5 to 0.5 is mapped to 0 to 1. Wrong documents are the distractors, and the other hits of a
  search for the question.
- `misses`: the share of the gold that the attempts missed. This part needs pass@N.
- `turns`: the attempts' mean number of turns, divided by twelve. This part needs pass@N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.attempts import ATTEMPTS_LABEL
from context_agent.synth_data.task import Task

Level = Literal["easy", "medium", "hard"]


DIFFICULTY_LABEL = "difficulty"


RIVAL_HITS = 10
"""The number of hits of the question that are examined for wrong documents."""


MANY_TURNS = 12
"""The smallest number of turns for which the part `turns` is 1."""


EASY_BELOW, HARD_FROM = 0.35, 0.55
"""The limits of the levels. A task is easy below the first score, and hard from the second score on."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The score of a task, and its parts by name."""

    score: float
    parts: dict[str, float]

    @property
    def level(self) -> Level:
        """The score as a level: easy, medium or hard."""
        return "easy" if self.score < EASY_BELOW else "hard" if self.score >= HARD_FROM else "medium"

    def to_json(self) -> dict[str, Any]:
        """Return the difficulty as a task's label."""
        parts = {name: round(value, 4) for name, value in self.parts.items()}
        return {"score": round(self.score, 4), "level": self.level, **parts}


def estimate_difficulty(task: Task, corpus: Corpus) -> Difficulty:
    """Return the difficulty of a task in a corpus."""
    parts = {"hops": _clipped((max(1, task.hops or len(task.gold)) - 1) / 3)}
    margin = rival_margin(task, corpus)
    if margin is not None:
        parts["rivals"] = _clipped(margin + 0.5)
    passes = task.labels.get(ATTEMPTS_LABEL)
    if isinstance(passes, dict) and passes.get("recalls"):
        parts["misses"] = 1 - float(np.mean(passes["recalls"]))
        parts["turns"] = _clipped(float(np.mean(passes["turns"])) / MANY_TURNS)
    return Difficulty(float(np.mean(list(parts.values()))), parts)


def label_difficulty(task: Task, corpus: Corpus) -> Task:
    """Return the task with its difficulty in its labels."""
    return replace(task, labels={**task.labels, DIFFICULTY_LABEL: estimate_difficulty(task, corpus).to_json()})


def rival_margin(task: Task, corpus: Corpus) -> float | None:
    """Return how much closer to the question the nearest wrong document is than the farthest gold document.

    The result is a difference of two cosines. If the corpus has no gold of the task, no wrong document, or no
    similarities, return None.
    """
    right = task.documents
    hits = corpus.search(task.question, k=RIVAL_HITS)
    wrong = {*task.distractors, *(hit.chunk.document_id for hit in hits)} - right
    gold = _cosines(task.question, task.gold, corpus)
    rivals = _cosines(task.question, sorted(wrong), corpus)
    return max(rivals) - min(gold) if gold and rivals else None


def _cosines(question: str, documents: Sequence[str], corpus: Corpus) -> list[float]:
    """Return the cosine of the question with the nearest chunk of each document."""
    best = []
    for document in documents:
        chunks = corpus.read(document)
        cosines = corpus.similarity(question, [chunk.id for chunk in chunks]) if chunks else np.zeros(0)
        defined = cosines[~np.isnan(cosines)]
        if len(defined):
            best.append(float(defined.max()))
    return best


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))
