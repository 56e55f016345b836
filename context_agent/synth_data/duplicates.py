"""Near-duplicate tasks: the same gold documents, asked for in nearly the same words.

Likeness is the Jaccard index of the questions' character n-grams, exact and not estimated. Only tasks of one gold set
are compared, so that a template's questions about different documents stay; within a set the prefix filter (Chaudhuri,
Ganti and Kaushik 2006) leaves few pairs to compare. A question that another task asks word for word is a duplicate
whatever its gold: the two cannot both be right.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_agent.errors import ConfigError
from context_agent.eval.gold import normalised
from context_agent.synth_data.task import Task

LIKENESS = 0.7
"""Jaccard index from which two questions about the same documents are one."""
SHINGLE = 4
"""Characters of an n-gram."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A task that repeats an earlier one, with the id of that one and their likeness, 0 to 1."""

    task: Task
    of: str
    likeness: float

    @property
    def reason(self) -> str:
        """Why it is dropped, in words."""
        return f"asks what {self.of} asks (likeness {self.likeness:.2f})"


def duplicates(tasks: Sequence[Task], *, likeness: float = LIKENESS) -> list[Duplicate]:
    """The tasks that repeat an earlier one that is kept, in order. A task without gold is compared word for word alone.

    Raises `ConfigError` for a likeness outside (0, 1].
    """
    if not 0 < likeness <= 1:
        raise ConfigError(f"likeness must be above 0 and at most 1; got {likeness}")
    shingled = [shingles(task.question) for task in tasks]
    ranks = _by_rarity(shingled)
    asked: dict[str, str] = {}
    blocks: dict[frozenset[str], _Block] = defaultdict(lambda: _Block(likeness))
    found = []
    for task, grams in zip(tasks, shingled, strict=True):
        text = folded(task.question)
        if text in asked:
            found.append(Duplicate(task, asked[text], 1.0))
            continue
        asked[text] = task.id
        if not task.gold:
            continue
        block = blocks[frozenset(task.gold)]
        ordered = sorted(grams, key=ranks.__getitem__)
        nearest = block.nearest(grams, ordered)
        if nearest is not None:
            found.append(Duplicate(task, *nearest))
            del asked[text]
            continue
        block.add(task.id, grams, ordered)
    return found


def folded(text: str) -> str:
    """The text's words as `normalised` has them; a text of signs alone as it stands."""
    return normalised(text) or text.strip()


def shingles(text: str) -> frozenset[str]:
    """The text's n-grams, spaces at both ends included; never empty."""
    padded = f" {folded(text)} "
    return frozenset(padded[at : at + SHINGLE] for at in range(max(1, len(padded) - SHINGLE + 1)))


class _Block:
    """Questions about the same documents, found again by the rare n-grams that likeness makes two of them share."""

    def __init__(self, likeness: float) -> None:
        self._likeness = likeness
        self._members: list[tuple[str, frozenset[str]]] = []
        self._postings: dict[str, list[int]] = defaultdict(list)

    def nearest(self, grams: frozenset[str], ordered: Sequence[str]) -> tuple[str, float] | None:
        """The id and likeness of the likest member, the earliest of equals; None where none is like enough."""
        rows = sorted({row for gram in self._prefix(ordered) for row in self._postings.get(gram, ())})
        scored = ((self._members[row][0], _jaccard(grams, self._members[row][1])) for row in rows)
        return max((one for one in scored if one[1] >= self._likeness), key=lambda one: one[1], default=None)

    def add(self, name: str, grams: frozenset[str], ordered: Sequence[str]) -> None:
        for gram in self._prefix(ordered):
            self._postings[gram].append(len(self._members))
        self._members.append((name, grams))

    def _prefix(self, ordered: Sequence[str]) -> Sequence[str]:
        """Of sets at least this alike, the prefixes share an n-gram: |x| - ceil(likeness * |x|) + 1 rarest ones."""
        # A hair less than the exact product: rounding up must not shorten the prefix.
        return ordered[: len(ordered) - math.ceil(self._likeness * len(ordered) - 1e-9) + 1]


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def _by_rarity(shingled: Iterable[frozenset[str]]) -> dict[str, int]:
    """A rank for each n-gram, the rarest first, equals by spelling: one order for all sets."""
    counts = Counter(gram for grams in shingled for gram in grams)
    return {gram: rank for rank, (gram, _) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0])))}
