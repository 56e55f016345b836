"""Trains the embedded policy's networks on a corpus and questions with gold documents. numpy alone, no GPU.

1. Episodes are run on every question, through the same harness that serves. In the first round the policy at hand
   explores (a rule of thumb where it has no weights); in later rounds each question is explored by networks that were
   trained without it.
2. Five-fold cross-validation trains on four parts and ranks the fifth's candidates anew: the figures reported.
3. The networks that are written learn from all of it. The second one learns from scores that the first gave to
   questions it was not trained on, as it will have to.

    ctx1 train bridge CORPUS questions.jsonl --out weights.safetensors
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import numpy as np

from context_agent.errors import DataError
from context_agent.eval.statistics import Figure
from context_agent.harness.episode import Episode
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy, Effort, Scorer
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.judgement import Judgement
from context_agent.policies.bridge.passage import Floats
from context_agent.policies.bridge.scorer import INPUTS, Network
from context_agent.pruning.budget import Budget
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.listwise import Group, Recipe, fit

FOLDS = 5
ROUNDS = 2
CUTOFF = 5
"""Recall is reported at this rank."""
LEAST_QUESTIONS = 20
"""Fewer questions with gold teach nothing that would hold."""
COSINES = ("cosine_z", "cosine_gap", "rest_cosine", "rest_cosine_z")
"""Inputs that are missing where the corpus has no useful vectors."""
EXPANSION_RECIPE = Recipe(hidden=(32,), members=2, epochs=15, cross_entropy=0.5, blackout=0.05)

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass(frozen=True)
class Source:
    """Questions on one corpus. `weight` is the whole source's, however many questions it has."""

    name: str
    corpus: Corpus
    questions: Sequence[Question]
    weight: float = 1.0


@dataclass
class Experience:
    """One episode: what was seen, which of it is gold, and which lookups found something."""

    source: str
    fold: int
    gold: int
    documents: list[str]
    labels: Floats
    judgement: Judgement
    direct: Floats
    lookups: Floats
    found: Floats
    weight: float = 1.0
    first: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    """Scores by a first network that did not learn from this question."""

    def second(self) -> Floats:
        """The second network's inputs."""
        return self.judgement.in_company(self.direct, self.first)

    def recall(self, scores: Floats, cutoff: int = CUTOFF) -> float:
        """Share of the gold documents among the first `cutoff` documents by score."""
        order = np.argsort(-scores, kind="stable")
        best = list(dict.fromkeys(self.documents[row] for row in order))[:cutoff]
        gold = {self.documents[row] for row in np.flatnonzero(self.labels)}
        return len(gold & set(best)) / self.gold


@dataclass(frozen=True)
class Trained:
    """The networks, and by source the recall@5 of cross-validation and the share of gold that was ever seen."""

    scorer: Scorer
    recall: Mapping[str, Figure]
    seen: Mapping[str, Figure]

    def notes(self) -> dict[str, str]:
        """What the weights' file says of its making."""
        figures = {name: [round(part, 4) for part in (f.mean, f.low, f.high)] for name, f in self.recall.items()}
        return {"cross_validated_recall_at_5": json.dumps(figures)}


def train(
    sources: Sequence[Source],
    *,
    policy: BridgePolicy | None = None,
    effort: Effort | None = None,
    windows: Sequence[int] = (0,),
    rounds: int = ROUNDS,
    recipe: Recipe | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Trained:
    """Trains on the sources. `policy` explores in the first round; `windows` are budgets to run each question under.

    A window of 0 is the default one. Raises `DataError` where too few questions name gold documents of their corpus.
    """
    sources = [checked(source) for source in sources]
    recipe, report = recipe or Recipe(), report or _silent
    explorers = dict.fromkeys(range(FOLDS), policy or BridgePolicy(effort=effort))
    for turn in range(1, rounds + 1):
        experiences = collect(sources, explorers, windows, partial(report, f"round {turn}: episodes"))
        learn = _Learner(experiences, recipe, seed, partial(report, f"round {turn}: networks"))
        folds = learn.folds()
        explorers = {
            fold: BridgePolicy(Scorer.of(networks), effort=effort, remembered=None) for fold, networks in folds.items()
        }
    recall = _by_source(experiences, lambda e: e.recall(folds[e.fold]["second"](e.second())))
    seen = _by_source(experiences, lambda e: e.recall(e.labels, len(e.labels)))
    return Trained(Scorer.of(learn.final()), recall, seen)


def collect(
    sources: Sequence[Source],
    explorers: Mapping[int, BridgePolicy],
    windows: Sequence[int],
    progress: Callable[[float], None],
) -> list[Experience]:
    """One experience for each source, question and window; `explorers` by fold."""
    found: list[Experience] = []
    total = sum(len(source.questions) for source in sources) * len(windows)
    renderer = Renderer(default(), HarmonyCounter())
    done = 0
    for source in sources:
        share = source.weight / (len(source.questions) * len(windows))
        for question in source.questions:
            explorer = explorers[fold_of(question.id)]
            for window in windows:
                budget = Budget(window) if window else Budget()
                one = asyncio.run(_experience(source, question, explorer, budget, renderer))
                if one is not None:
                    found.append(replace(one, weight=share))
                done += 1
                progress(done / total)
    scale = len(found) / sum(one.weight for one in found) if found else 1.0
    return [replace(one, weight=one.weight * scale) for one in found]


def fold_of(question_id: str) -> int:
    """The part of the cross-validation that a question belongs to: the same whatever the order of the file."""
    return crc32(question_id.encode()) % FOLDS


async def _experience(
    source: Source, question: Question, policy: BridgePolicy, budget: Budget, renderer: Renderer
) -> Experience | None:
    """Runs an episode to its end; None where it saw nothing."""
    actor = policy.open(question.question, source.corpus, profile=renderer.profile)
    episode = Episode(question.question, source.corpus, budget=budget, renderer=renderer, instructions="")
    view = episode.open()
    while not episode.done:
        view = await episode.step(await actor.act(view))
    if not len(actor.notes):
        return None
    gold = set(question.gold)
    documents = [candidate.document_id for candidate in actor.notes.candidates]
    return Experience(
        source=source.name,
        fold=fold_of(question.id),
        gold=len(gold),
        documents=documents,
        labels=np.array([document in gold for document in documents], dtype=np.float32),
        judgement=actor.judgement,
        direct=actor.judgement.direct(),
        lookups=np.array([row for _, row in actor.made], dtype=np.float32).reshape(-1, len(INPUTS["expansion"])),
        found=_found(actor, gold),
    )


def _found(actor: BridgeActor, gold: set[str]) -> Floats:
    """Which of the lookups brought up gold."""
    labels = np.zeros(len(actor.made), dtype=np.float32)
    for candidate in actor.notes.candidates:
        if candidate.lookup >= 0 and candidate.document_id in gold:
            labels[candidate.lookup] = 1
    return labels


class _Learner:
    """Fits the networks to a round's experiences. Construction gives every experience its first scores."""

    def __init__(
        self, experiences: Sequence[Experience], recipe: Recipe, seed: int, progress: Callable[[float], None]
    ) -> None:
        self._all, self._recipe, self._seed = experiences, recipe, seed
        self._quick = replace(recipe, members=1)
        self._progress = progress
        self._made = 0
        self._first: dict[int, Network] = {}
        for fold in range(FOLDS):
            self._first[fold] = self._fit_first([one for one in experiences if one.fold != fold])
            for one in experiences:
                if one.fold == fold:
                    one.first = self._first[fold](one.direct)
        self._groups = {id(one): Group(one.second(), one.labels, one.weight) for one in experiences}

    def folds(self) -> dict[int, dict[str, Network]]:
        """For each fold the networks that did not learn from it, one member each: for measuring and exploring."""
        found = {}
        for fold in range(FOLDS):
            others = [one for one in self._all if one.fold != fold]
            networks = {"first": self._first[fold], "second": self._fit_second(others, self._quick)}
            found[fold] = {**networks, "expansion": self._fit_expansion(others)}
        return found

    def final(self) -> dict[str, Network]:
        """The networks that learned from everything."""
        first, second = self._fit_first(self._all), self._fit_second(self._all, self._recipe)
        return {"first": first, "second": second, "expansion": self._fit_expansion(self._all)}

    def _fit_first(self, some: Sequence[Experience]) -> Network:
        optional = [DIRECT.index(name) for name in COSINES if name in DIRECT]
        groups = [Group(one.direct, one.labels, one.weight) for one in some]
        return self._done(fit(groups, self._quick, optional=optional, seed=self._seed))

    def _fit_second(self, some: Sequence[Experience], recipe: Recipe) -> Network:
        optional = [INPUTS["second"].index(name) for name in COSINES]
        return self._done(fit([self._groups[id(one)] for one in some], recipe, optional=optional, seed=self._seed))

    def _fit_expansion(self, some: Sequence[Experience]) -> Network:
        return self._done(
            fit([Group(one.lookups, one.found, one.weight) for one in some], EXPANSION_RECIPE, seed=self._seed)
        )

    def _done(self, network: Network) -> Network:
        self._made += 1
        self._progress(min(1.0, self._made / (3 * FOLDS)))
        return network


def _by_source(experiences: Iterable[Experience], measure: Callable[[Experience], float]) -> dict[str, Figure]:
    values: dict[str, list[float]] = {}
    for one in experiences:
        values.setdefault(one.source, []).append(measure(one))
    return {name: Figure.of(found) for name, found in values.items()}


def checked(source: Source) -> Source:
    """The source's questions that name gold. Raises `DataError` where the corpus does not hold it, or for too few."""
    kept = [question for question in source.questions if question.gold]
    if len(kept) < LEAST_QUESTIONS:
        raise DataError(
            f"{source.name}: {len(kept)} of {len(source.questions)} questions name gold documents; training needs "
            f"{LEAST_QUESTIONS} at least"
        )
    for question in kept:
        if not any(source.corpus.read(document) for document in question.gold):
            raise DataError(f"{source.name}: question {question.id!r}: the corpus holds none of {list(question.gold)}")
    return replace(source, questions=kept)


def _silent(what: str, share: float) -> None:
    """Reports nothing."""
