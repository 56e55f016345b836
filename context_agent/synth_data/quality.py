"""The quality stage: drops tasks that are not worth training on, and labels the others with their difficulty.

A task is dropped if the index lacks its gold, if it is a near-duplicate of an earlier task, or, with pass@N, if it is
always or never solved. The stage is resumable, see `stages`.

**Near-duplicates** have the same gold documents and nearly the same question. Similarity is the exact Jaccard index of
the questions' character n-grams. Only tasks with the same gold are compared, so questions of a template about different
documents stay; the prefix filter (Chaudhuri, Ganti and Kaushik 2006) leaves few pairs to compare. Two tasks with the
same question are duplicates whatever their gold: they cannot both be right.

**Difficulty** is the mean of the known parts, each between 0 (easy) and 1. It orders tasks for a curriculum; it is not
a probability.

- `hops`: 0 for one hop, 1 for four and more.
- `rivals`: the cosine with the question of the nearest wrong document minus that of the farthest gold document; 0 for
  -0.5 and below, 1 for 0.5 and above. Wrong documents are the distractors and the hits of a search for the question.
- `misses`: the share of the gold that the attempts missed; `turns`: their mean number of turns, relative to twelve.
  Both need pass@N.

**pass@N** is how many of N attempts find a task's gold. A task that is always or never solved teaches a policy nothing.
An attempt is a search by the same policy with other settings. What varies between the N attempts must make a
difference:

- `seed`: seeds 0 to N-1, for a policy that samples (a language model with a temperature).
- `effort`: from one search up to the policy's own number of searches, for the embedded policy, which is deterministic.
  Always solved then means solved by one search; never solved means not solved by all its searches.
- `window`: windows halved N-1 times, for any policy.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from context_agent.agent import SearchAgent, SearchResult
from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import Gold, gold_of, missing_gold
from context_agent.harness.episode import DEFAULT_K, Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.policies.bridge import BridgePolicy
from context_agent.pruning.budget import WINDOW
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.stages import (
    DroppedRow,
    KeptRows,
    ProgressCallback,
    RowOutcome,
    StagePool,
    StageReport,
    off_loop,
    row_function,
    run_stage,
)
from context_agent.synth_data.task import Task, encode_row, question_key, task_of

Vary = Literal["seed", "effort", "window"]
Extreme = Literal["always", "never"]
SMALLEST_WINDOW = 2048
"""Windows are not halved below this number of tokens."""
ATTEMPTS_LABEL = "passes"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The label of the settings, and the agent that searches with them."""

    label: str
    agent: SearchAgent


@dataclass(frozen=True, slots=True)
class AttemptResults:
    """The recall and the turns of each attempt at a task, in order of the attempts."""

    recalls: tuple[float, ...]
    turns: tuple[int, ...]

    def solved(self, threshold: float) -> int:
        """Return how many attempts reached this recall."""
        return sum(recall >= threshold for recall in self.recalls)


@dataclass(frozen=True, slots=True)
class PassAtN:
    """N attempts at each task.

    An attempt solves the task if the recall of its top `k` documents reaches the threshold.
    """

    attempts: tuple[Attempt, ...]
    vary: Vary
    k: int = DEFAULT_K
    threshold: float = 1.0
    drop: frozenset[Extreme] = frozenset({"always", "never"})

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"the recall threshold must be above 0 and at most 1; got {self.threshold}")

    async def run(self, task: Task) -> AttemptResults:
        """Runs the attempts one after another. Raises what a search raises, and `PolicyError` for a failed search."""
        gold = gold_of(task.as_question, self.attempts[0].agent.corpus)
        results = []
        for attempt in self.attempts:
            result = await attempt.agent.asearch(task.question, k=self.k, question_id=task.id)
            if result.error is not None:
                raise PolicyError(f"{attempt.label}: {result.error}")
            results.append(result)
        return AttemptResults(
            tuple(_recall(gold, result) for result in results), tuple(result.turns for result in results)
        )

    def extreme(self, passes: AttemptResults) -> Extreme | None:
        """Return whether the task is always or never solved and should be dropped for it; None to keep it."""
        solved = passes.solved(self.threshold)
        kind: Extreme | None = "never" if not solved else "always" if solved == len(self.attempts) else None
        return kind if kind in self.drop else None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the results depend on, as plain data."""
        first = self.attempts[0].agent
        return {
            "policy": first.policy.name,
            "profile": first.profile.name,
            "window": first.budget.window,
            "rollouts": first.rollouts,
            "vary": self.vary,
            "attempts": [attempt.label for attempt in self.attempts],
            "k": self.k,
            "threshold": self.threshold,
            "drop": sorted(self.drop),
        }

    def label(self, task: Task, passes: AttemptResults) -> Task:
        """Return the task with what the attempts came to among its labels."""
        label = {
            "policy": self.attempts[0].agent.policy.name,
            "vary": self.vary,
            "attempts": [attempt.label for attempt in self.attempts],
            "recalls": [round(recall, 4) for recall in passes.recalls],
            "turns": list(passes.turns),
            "solved": passes.solved(self.threshold),
            "of": len(self.attempts),
            "k": self.k,
            "threshold": self.threshold,
        }
        return replace(task, labels={**task.labels, ATTEMPTS_LABEL: label})

    def describe(self, passes: AttemptResults) -> str:
        """Return the recall of each attempt, in words."""
        pairs = zip(self.attempts, passes.recalls, strict=True)
        return ", ".join(f"{attempt.label}: recall {recall:.2f}" for attempt, recall in pairs)

    def close(self) -> None:
        """Closes the agents."""
        for attempt in self.attempts:
            attempt.agent.close()


def build_attempts(
    corpus: Corpus,
    policy: Policy,
    count: int,
    vary: Vary,
    *,
    window: int = WINDOW,
    profile: Profile | str | None = None,
    limits: Limits | None = None,
    rollouts: int = 1,
    trajectories: Path | None = None,
) -> tuple[Attempt, ...]:
    """`count` attempts that differ in what `vary` names; the other arguments are those of `SearchAgent`.

    Raises `ConfigError` if the attempts would repeat the same search.
    """
    if count < 1:
        raise ConfigError(f"passes must be at least 1; got {count}")
    settings_of = {"seed": _seeds, "effort": _efforts, "window": _windows}[vary]
    return tuple(
        Attempt(
            label,
            SearchAgent(
                corpus,
                decides,
                profile=profile,
                budget=tokens,
                limits=limits,
                rollouts=rollouts,
                seed=seed * rollouts,
                trajectories=trajectories,
            ),
        )
        for label, decides, seed, tokens in settings_of(policy, count, window)
    )


def default_vary(policy: Policy) -> Vary:
    """Return what makes attempts of this policy differ: effort for the embedded policy, else the seed."""
    return "effort" if isinstance(policy, BridgePolicy) else "seed"


def _recall(gold: Gold, result: SearchResult) -> float:
    """Return the share of the gold in the result, 0 for a task without gold."""
    needs = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in result.documents]
    return len(frozenset[int]().union(*needs)) / gold.needs if gold.needs else 0.0


AttemptSetting = tuple[str, Policy, int, int]
"""Label, policy, seed and window of an attempt."""


def _seeds(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    if count > 1 and isinstance(policy, BridgePolicy):
        raise ConfigError(
            "the bridge policy is deterministic and ignores the seed: vary its effort or the window (--vary)"
        )
    return [(f"seed {seed}", policy, seed, window) for seed in range(count)]


def _efforts(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    if not isinstance(policy, BridgePolicy):
        raise ConfigError(f"{policy.name} has no effort to vary: vary the seed or the window (--vary)")
    return [
        (f"searches {searches}", _with_fewer_searches(policy, searches), 0, window)
        for searches in _search_counts(policy.effort.searches, count)
    ]


def _with_fewer_searches(policy: BridgePolicy, searches: int) -> BridgePolicy:
    """Return the policy with a smaller number of searches."""
    effort = replace(policy.effort, searches=searches)
    return BridgePolicy(policy.scorer, effort=effort, untrained=policy.scorer is None)


def _search_counts(most: int, count: int) -> Sequence[int]:
    """`count` numbers of searches up to `most`, in a geometric progression."""
    rungs = [round(most ** (at / (count - 1))) for at in range(count)] if count > 1 else [most]
    if len(set(rungs)) < count:
        raise ConfigError(f"{count} attempts cannot differ within {most} searches: use fewer passes")
    return rungs


def _windows(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    sizes = [window >> at for at in range(count)]
    if sizes[-1] < SMALLEST_WINDOW:
        raise ConfigError(
            f"a window of {window:,} halved {count - 1} times is {sizes[-1]:,} tokens, below {SMALLEST_WINDOW:,}: "
            "use fewer passes or a larger window"
        )
    return [(f"window {size}", policy, 0, size) for size in sizes]


LIKENESS = 0.7
"""Jaccard index from which two questions about the same documents are near-duplicates."""
SHINGLE = 4
"""Characters of an n-gram."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A task that repeats an earlier one, with that task's id and their similarity, 0 to 1."""

    task: Task
    of: str
    likeness: float

    @property
    def reason(self) -> str:
        """Why the task is dropped."""
        return f"asks what {self.of} asks (likeness {self.likeness:.2f})"


def find_duplicates(tasks: Sequence[Task], *, likeness: float = LIKENESS) -> list[Duplicate]:
    """Return the tasks that repeat an earlier, kept task, in order. A task without gold is only compared word for word.

    Raises `ConfigError` for a likeness outside (0, 1].
    """
    if not 0 < likeness <= 1:
        raise ConfigError(f"likeness must be above 0 and at most 1; got {likeness}")
    shingled = [shingles(task.question) for task in tasks]
    ranks = _by_rarity(shingled)
    first_ids: dict[str, str] = {}
    blocks: dict[frozenset[str], _QuestionIndex] = defaultdict(lambda: _QuestionIndex(likeness))
    repeated = []
    for task, grams in zip(tasks, shingled, strict=True):
        text = question_key(task.question)
        if text in first_ids:
            repeated.append(Duplicate(task, first_ids[text], 1.0))
            continue
        first_ids[text] = task.id
        if not task.gold:
            continue
        block = blocks[frozenset(task.gold)]
        ordered = sorted(grams, key=ranks.__getitem__)
        nearest = block.nearest(grams, ordered)
        if nearest is not None:
            repeated.append(Duplicate(task, *nearest))
            del first_ids[text]
            continue
        block.add(task.id, grams, ordered)
    return repeated


def shingles(text: str) -> frozenset[str]:
    """Return the n-grams of the text, padded with a space at both ends; never empty."""
    padded = f" {question_key(text)} "
    return frozenset(padded[at : at + SHINGLE] for at in range(max(1, len(padded) - SHINGLE + 1)))


class _QuestionIndex:
    """Questions about the same documents, indexed by the rare n-grams that similar questions must share."""

    def __init__(self, likeness: float) -> None:
        self._likeness = likeness
        self._members: list[tuple[str, frozenset[str]]] = []
        self._postings: dict[str, list[int]] = defaultdict(list)

    def nearest(self, grams: frozenset[str], ordered: Sequence[str]) -> tuple[str, float] | None:
        """Return the id and similarity of the most similar question, the earliest of equals.

        None if none is similar enough.
        """
        rows = sorted({row for gram in self._prefix(ordered) for row in self._postings.get(gram, ())})
        scored = ((self._members[row][0], _jaccard(grams, self._members[row][1])) for row in rows)
        return max(
            (candidate for candidate in scored if candidate[1] >= self._likeness),
            key=lambda candidate: candidate[1],
            default=None,
        )

    def add(self, name: str, grams: frozenset[str], ordered: Sequence[str]) -> None:
        for gram in self._prefix(ordered):
            self._postings[gram].append(len(self._members))
        self._members.append((name, grams))

    def _prefix(self, ordered: Sequence[str]) -> Sequence[str]:
        """Return the |x| - ceil(likeness * |x|) + 1 rarest n-grams: similar sets share an n-gram in their prefixes."""
        # A hair less than the exact product: rounding up must not shorten the prefix.
        return ordered[: len(ordered) - math.ceil(self._likeness * len(ordered) - 1e-9) + 1]


def _jaccard(grams_a: frozenset[str], grams_b: frozenset[str]) -> float:
    shared = len(grams_a & grams_b)
    return shared / (len(grams_a) + len(grams_b) - shared)


def _by_rarity(shingled: Iterable[frozenset[str]]) -> dict[str, int]:
    """Return a rank for each n-gram, the rarest first, equals in alphabetical order: one order for all sets."""
    counts = Counter(gram for grams in shingled for gram in grams)
    return {gram: rank for rank, (gram, _) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0])))}


Level = Literal["easy", "medium", "hard"]
DIFFICULTY_LABEL = "difficulty"
RIVAL_HITS = 10
"""Hits of the question that are examined for wrong documents."""
MANY_TURNS = 12
"""Turns from which the part `turns` is 1."""
EASY_BELOW, HARD_FROM = 0.35, 0.55
"""A task is easy below the first score, and hard from the second on."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The score and its parts by name."""

    score: float
    parts: dict[str, float]

    @property
    def level(self) -> Level:
        """The score as easy, medium or hard."""
        return "easy" if self.score < EASY_BELOW else "hard" if self.score >= HARD_FROM else "medium"

    def to_json(self) -> dict[str, Any]:
        """Return the task's label."""
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
    """Return the task with its difficulty as a label."""
    return replace(task, labels={**task.labels, DIFFICULTY_LABEL: estimate_difficulty(task, corpus).to_json()})


def rival_margin(task: Task, corpus: Corpus) -> float | None:
    """Return the cosine with the question of the nearest wrong document minus that of the farthest gold document.

    None if the corpus has no gold of the task or no wrong document, or cannot compute similarities.
    """
    right = task.documents
    hits = corpus.search(task.question, k=RIVAL_HITS)
    wrong = {*task.distractors, *(hit.chunk.document_id for hit in hits)} - right
    gold = _cosines(task.question, task.gold, corpus)
    rivals = _cosines(task.question, sorted(wrong), corpus)
    return max(rivals) - min(gold) if gold and rivals else None


def _cosines(question: str, documents: Sequence[str], corpus: Corpus) -> list[float]:
    """For each document in the corpus the cosine of its nearest chunk."""
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


STAGE = "filter"
NO_GOLD, MISSING, REPEATED = "no gold", "gold not in the index", "near-duplicate"


async def filter_tasks(
    tasks: Sequence[Task],
    corpus: Corpus,
    out: Path,
    *,
    pass_at_n: PassAtN | None = None,
    likeness: float | None = LIKENESS,
    concurrency: int = 8,
    pool: StagePool | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """Writes the tasks that stay to `out`; see `stages.run_stage` for the files beside it and the errors.

    With a `pool`, its processes do the work; their context is a `TaskFilter`. `likeness=None` keeps near-duplicates. A
    task with a failed attempt is dropped as failed and tried again by the next run. A task is also processed again if
    it becomes a near-duplicate, or ceases to be one, because other tasks changed.
    """
    duplicates = [] if likeness is None else find_duplicates(tasks, likeness=likeness)
    repeated = {duplicate.task.id: duplicate.reason for duplicate in duplicates}
    sieve = TaskFilter(corpus, pass_at_n)

    async def work(row: Mapping[str, Any]) -> RowOutcome:
        function = partial(TaskFilter.work, repeated=repeated.get(row["id"], ""))
        return await row_function(function, sieve, pool)(row)

    settings = {
        "corpus": corpus.name,
        "likeness": likeness,
        "passes": None if pass_at_n is None else pass_at_n.settings,
    }
    rows = [json.loads(encode_row(task.to_json())) for task in tasks]
    return await run_stage(
        STAGE,
        rows,
        work,
        out,
        concurrency=concurrency if pool is None else pool.capacity,
        settings=settings,
        depends_on=lambda row: repeated.get(row["id"], ""),
        advance=advance,
    )


class TaskFilter:
    """Filters and labels tasks one by one."""

    def __init__(self, corpus: Corpus, pass_at_n: PassAtN | None) -> None:
        self._corpus, self._pass_at_n = corpus, pass_at_n

    async def work(self, row: Mapping[str, Any], repeated: str) -> RowOutcome:
        """Return the labeled task of a row, or why it is dropped; `repeated` says which task it repeats, empty for
        none.
        """
        task = task_of(row, f"task {row['id']!r}")
        if not task.gold and not task.facts:
            return DroppedRow(NO_GOLD)
        if missing := await off_loop(self._corpus, lambda: missing_gold(self._corpus, [task.as_question])):
            return DroppedRow(MISSING, ", ".join(missing.ids))
        if repeated:
            return DroppedRow(REPEATED, repeated)
        if self._pass_at_n is not None:
            passes = await self._pass_at_n.run(task)
            if kind := self._pass_at_n.extreme(passes):
                return DroppedRow(f"{kind} solved", self._pass_at_n.describe(passes))
            task = self._pass_at_n.label(task, passes)
        labelled = await off_loop(self._corpus, lambda: label_difficulty(task, self._corpus))
        return KeptRows((labelled.to_json(),))
