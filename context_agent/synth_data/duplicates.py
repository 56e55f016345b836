"""Near-duplicates among tasks: the same gold documents and nearly the same question.

The similarity is the exact Jaccard index of the questions' character n-grams. Only tasks with the same gold are
compared, so questions from one template about different documents stay. The prefix filter (Chaudhuri, Ganti and Kaushik
2006) leaves few pairs to compare. Two tasks with the same question are duplicates whatever their gold, because they
cannot both be right.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_agent.errors import ConfigError
from context_agent.eval.gold import question_key
from context_agent.synth_data.task import Task

MIN_SIMILARITY = 0.7
"""The smallest Jaccard index for which two questions about the same documents are near-duplicates."""
SHINGLE = 4
"""The length of an n-gram, in characters."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A task that repeats an earlier one.

    Attributes:
        task: The later task.
        of: The id of the earlier task.
        similarity: The similarity of their questions, from 0 to 1.
    """

    task: Task
    of: str
    similarity: float

    @property
    def reason(self) -> str:
        """The reason why the task is dropped, in words."""
        return f"asks the same as {self.of} (similarity {self.similarity:.2f})"


def find_duplicates(tasks: Sequence[Task], *, min_similarity: float = MIN_SIMILARITY) -> list[Duplicate]:
    """Return the tasks that repeat an earlier, kept task, in order.

    A task without gold is a duplicate only if its question is the same word for word.

    Args:
        tasks: The tasks.
        min_similarity: The smallest similarity for which two tasks are duplicates.

    Raises:
        ConfigError: If `min_similarity` is not above 0 and at most 1.
    """
    if not 0 < min_similarity <= 1:
        raise ConfigError(f"`min_similarity` must be above 0 and at most 1; got {min_similarity}")
    # A task that shares its gold with no other is compared with none, so its n-grams are not needed.
    sharing = Counter(frozenset(task.gold) for task in tasks)
    ranks = _by_rarity(shingles(task.question) for task in tasks if sharing[frozenset(task.gold)] > 1)
    first_ids: dict[str, str] = {}
    blocks: dict[frozenset[str], _QuestionIndex] = defaultdict(lambda: _QuestionIndex(min_similarity))
    repeated = []
    for task in tasks:
        text, gold = question_key(task.question), frozenset(task.gold)
        if text in first_ids:
            repeated.append(Duplicate(task, first_ids[text], 1.0))
            continue
        first_ids[text] = task.id
        if not gold or sharing[gold] == 1:
            continue
        block, grams = blocks[gold], shingles(task.question)
        ordered = sorted(grams, key=ranks.__getitem__)
        nearest = block.nearest(grams, ordered)
        if nearest is not None:
            repeated.append(Duplicate(task, *nearest))
            del first_ids[text]
            continue
        block.add(task.id, grams, ordered)
    return repeated


def shingles(text: str) -> frozenset[str]:
    """Return the n-grams of the text, which is padded with a space at both ends. The result is never empty."""
    padded = f" {question_key(text)} "
    return frozenset(padded[at : at + SHINGLE] for at in range(max(1, len(padded) - SHINGLE + 1)))


class _QuestionIndex:
    """An index of questions about the same documents.

    Similar questions share one of the rare n-grams that are its keys.
    """

    def __init__(self, min_similarity: float) -> None:
        self._min_similarity = min_similarity
        self._members: list[tuple[str, frozenset[str]]] = []
        self._postings: dict[str, list[int]] = defaultdict(list)

    def nearest(self, grams: frozenset[str], ordered: Sequence[str]) -> tuple[str, float] | None:
        """Return the id and similarity of the most similar question.

        If several are equally similar, return the earliest. If no question is similar enough, return None.
        """
        rows = sorted({row for gram in self._prefix(ordered) for row in self._postings.get(gram, ())})
        scored = ((self._members[row][0], _jaccard(grams, self._members[row][1])) for row in rows)
        return max(
            (candidate for candidate in scored if candidate[1] >= self._min_similarity),
            key=lambda candidate: candidate[1],
            default=None,
        )

    def add(self, name: str, grams: frozenset[str], ordered: Sequence[str]) -> None:
        for gram in self._prefix(ordered):
            self._postings[gram].append(len(self._members))
        self._members.append((name, grams))

    def _prefix(self, ordered: Sequence[str]) -> Sequence[str]:
        """Return the prefix: the rarest `n - ceil(min_similarity * n) + 1` of the question's `n` n-grams.

        Two similar sets share an n-gram in their prefixes.
        """
        # Slightly less than the exact product, so that a rounding error cannot shorten the prefix.
        return ordered[: len(ordered) - math.ceil(self._min_similarity * len(ordered) - 1e-9) + 1]


def _jaccard(grams_a: frozenset[str], grams_b: frozenset[str]) -> float:
    shared = len(grams_a & grams_b)
    return shared / (len(grams_a) + len(grams_b) - shared)


def _by_rarity(shingled: Iterable[frozenset[str]]) -> dict[str, int]:
    """Return a rank for each n-gram, the rarest first. Equally rare n-grams are in alphabetical order.

    All sets must use the same order, or the prefix filter would miss pairs.
    """
    counts = Counter(gram for grams in shingled for gram in grams)
    return {gram: rank for rank, (gram, _) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0])))}
