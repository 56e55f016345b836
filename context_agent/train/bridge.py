"""Trains the embedded policy's networks on a corpus and questions with gold documents. Needs only numpy, no GPU.

1. Episodes are played on every question in the production harness. The given policy plays the first round (rules of
   thumb if it has no weights); in later rounds, a question is played by networks that were not trained on it.
2. Five-fold cross-validation trains on four parts and ranks the candidates of the fifth; its recall is reported.
3. The saved networks are trained on all parts. The second network learns from scores that the first gave to questions
   it was not trained on, as in production, and the one that combines its scores with the reader's in the same way.
4. The reader stays as it ships, except for a linear correction of its log-odds (`fit_head`) if that lowers the
   cross-validated loss.

The networks are small; `train.listwise` fits them.

    ctx1 train bridge CORPUS questions.jsonl --out weights.safetensors
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import PairModel, shipped_reader
from context_agent.errors import DataError
from context_agent.eval.statistics import Figure
from context_agent.harness.episode import Episode
from context_agent.harness.profile import Renderer, default
from context_agent.policies.bridge import BridgePolicy, Effort, Scorer
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.networks import INPUTS, READING, Network, RelevanceJudgement
from context_agent.policies.bridge.policy import BridgeActor
from context_agent.policies.bridge.reader import Readings, read_odds, reading_features
from context_agent.pruning.budget import Budget
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.listwise import FitRecipe, ListwiseGroup, fit
from context_agent.types import Question

FOLDS = 5
ROUNDS = 2
CUTOFF = 5
"""Recall is reported at this rank."""
MIN_QUESTIONS = 60
"""Networks that learn from fewer questions with gold do not hold on others."""
COSINES = ("cosine_z", "cosine_gap", "clause_cosine", "clause_cosine_gap", "rest_cosine", "rest_cosine_z")
"""Inputs that are missing where the corpus has no useful vectors."""
READING_LAYERS = (24, 12)
HEAD_PENALTIES = (math.inf, 300.0, 30.0)
"""Penalties of the reader's correction to choose from; infinity leaves the reader as it is."""
NEWTON_STEPS = 8
EXPANSION_RECIPE = FitRecipe(hidden=(32,), members=2, epochs=15, cross_entropy=0.5, blackout=0.05)

OnBridgeProgress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass(frozen=True)
class BridgeSource:
    """Questions on one corpus. `weight` is the whole source's, however many questions it has."""

    name: str
    corpus: Corpus
    questions: Sequence[Question]
    weight: float = 1.0


@dataclass
class BridgeEpisode:
    """One episode: what was seen, which of it is gold, and which lookups found something."""

    source: str
    fold: int
    gold: int
    documents: list[str]
    labels: Floats
    judgement: RelevanceJudgement
    direct: Floats
    lookups: Floats
    found: Floats
    weight: float = 1.0
    first: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    """Scores by a first network that did not learn from this question."""
    odds: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    """Log-odds by a second network that did not learn from this question."""
    rows: Floats = field(default_factory=lambda: np.zeros((0, 1), dtype=np.float32))
    """What the reader returned, shape (n, width); NaN for candidates that were not read."""

    def second(self) -> Floats:
        """Return the second network's inputs."""
        return self.judgement.second_inputs(self.direct, self.first)

    def read(self, model: PairModel, odds: Floats) -> None:
        """Lets the reader read the best candidates by `odds`, shape (n,)."""
        readings = Readings(self.judgement.notes, model)
        readings.update(odds)
        self.odds, self.rows = odds, readings.rows()

    def reading(self, head: Floats | None) -> Floats:
        """Return the inputs of the network that combines the scores with the reader's."""
        return reading_features(self.judgement.notes, self.odds, read_odds(self.rows, head))

    def recall(self, scores: Floats, cutoff: int = CUTOFF) -> float:
        """Share of the gold documents among the first `cutoff` documents by score."""
        order = np.argsort(-scores, kind="stable")
        best = list(dict.fromkeys(self.documents[row] for row in order))[:cutoff]
        gold = {self.documents[row] for row in np.flatnonzero(self.labels)}
        return len(gold & set(best)) / self.gold


@dataclass(frozen=True)
class TrainedBridge:
    """The networks, and by source the recall@5 of cross-validation and the share of gold that was ever seen.

    `unread` is the recall@5 without the reader. `folds` has for each fold a policy that learned nothing from its
    questions.
    """

    scorer: Scorer
    recall: Mapping[str, Figure]
    unread: Mapping[str, Figure]
    seen: Mapping[str, Figure]
    folds: Mapping[int, BridgePolicy] = field(default_factory=dict)
    kept: bool = False
    """Whether the networks are those of the fallback."""

    def mean_recall(self) -> float:
        """Return the mean over the sources."""
        return float(np.mean([figure.mean for figure in self.recall.values()]))

    def notes(self) -> dict[str, str]:
        """Return what the weights' file says of its making."""
        figures = {name: [round(part, 4) for part in (f.mean, f.low, f.high)] for name, f in self.recall.items()}
        return {"cross_validated_recall_at_5": json.dumps(figures)}


def train(
    sources: Sequence[BridgeSource],
    *,
    policy: BridgePolicy | None = None,
    effort: Effort | None = None,
    windows: Sequence[int] = (0,),
    rounds: int = ROUNDS,
    recipe: FitRecipe | None = None,
    seed: int = 0,
    readers: Mapping[int, PairModel] | None = None,
    fallback: Scorer | None = None,
    report: OnBridgeProgress | None = None,
) -> TrainedBridge:
    """Trains on the sources. `policy` explores in the first round; `windows` are budgets to run each question under.

    A window of 0 is the default one. `readers` has for each fold a reader that was not trained on its questions; by
    default the shipped one reads all. The networks of `fallback` are kept if there are fewer than `MIN_QUESTIONS`
    questions, or if they rank these better than the new ones rank questions that they did not learn from. Raises
    `DataError` if no question names gold, or if there are too few and no fallback.
    """
    sources = [check_source(source) for source in sources]
    recipe, report = recipe or FitRecipe(), report or _no_progress
    policy = policy or BridgePolicy(effort=effort)
    # Exploring needs no reader, which would take most of the time.
    effort = replace(effort or policy.effort, readings=0)
    explorers = dict.fromkeys(range(FOLDS), BridgePolicy(policy.scorer, effort=effort, untrained=policy.scorer is None))
    if (count := sum(len(source.questions) for source in sources)) < MIN_QUESTIONS:
        if fallback is None:
            raise DataError(f"{count} questions name gold documents; training needs at least {MIN_QUESTIONS}")
        experiences = collect(sources, explorers, windows, partial(report, "episodes"))
        return _keep(fallback, experiences, partial(report, "reading"))
    for turn in range(1, rounds + 1):
        experiences = collect(sources, explorers, windows, partial(report, f"round {turn}: episodes"))
        learn = _NetworkTrainer(experiences, recipe, seed, partial(report, f"round {turn}: networks"))
        folds = learn.folds()
        explorers = {
            fold: BridgePolicy(Scorer.of(networks), effort=effort, remembered=None) for fold, networks in folds.items()
        }
    _read(experiences, folds, readers or {}, partial(report, "reading"))
    head, heads = _heads(experiences, head_penalty(experiences))
    reading = _fit_reading(experiences, head, recipe, seed)
    by_fold = {
        fold: _fit_reading([e for e in experiences if e.fold != fold], heads[fold], replace(recipe, members=1), seed)
        for fold in range(FOLDS)
    }
    recall = _by_source(experiences, lambda e: e.recall(by_fold[e.fold](e.reading(heads[e.fold]))))
    unread = _by_source(experiences, lambda e: e.recall(e.odds))
    seen = _by_source(experiences, lambda e: e.recall(e.labels, len(e.labels)))
    policies = {
        fold: BridgePolicy(
            Scorer.of({**folds[fold], READING: by_fold[fold]}, head=heads[fold]),
            reader=(readers or {}).get(fold),
            remembered=None,
        )
        for fold in range(FOLDS)
    }
    scorer = Scorer.of(learn.final() | {READING: reading}, head=head)
    trained = TrainedBridge(scorer, recall, unread, seen, policies)
    if fallback is None:
        return trained
    kept = _keep(fallback, experiences, partial(report, "reading with the present weights"))
    return max(trained, kept, key=TrainedBridge.mean_recall)


def _keep(fallback: Scorer, episodes: Sequence[BridgeEpisode], progress: Callable[[float], None]) -> TrainedBridge:
    """Return the networks of `fallback` with the reader adapted to these episodes."""
    networks = fallback.networks
    for episode in episodes:
        episode.first = networks["first"](episode.direct)
    _read(episodes, dict.fromkeys(range(FOLDS), networks), {}, progress)
    head, heads = _heads(episodes, head_penalty(episodes) if READING in networks else math.inf)
    measured = _by_source(
        episodes, lambda e: e.recall(networks[READING](e.reading(heads[e.fold])) if READING in networks else e.odds)
    )
    unread = _by_source(episodes, lambda e: e.recall(e.odds))
    seen = _by_source(episodes, lambda e: e.recall(e.labels, len(e.labels)))
    scorer = Scorer.of(networks, head=head, ranker=fallback.ranker)
    return TrainedBridge(scorer, measured, unread, seen, dict.fromkeys(range(FOLDS), BridgePolicy(scorer)), kept=True)


def _read(
    episodes: Sequence[BridgeEpisode],
    folds: Mapping[int, Mapping[str, Network]],
    readers: Mapping[int, PairModel],
    progress: Callable[[float], None],
) -> None:
    """Gives every episode scores of networks, and rows of a reader, that did not learn from its question."""
    for done, episode in enumerate(episodes, start=1):
        odds = folds[episode.fold]["second"].logits(episode.second())
        episode.read(readers.get(episode.fold) or shipped_reader(), odds)
        progress(done / len(episodes))


def _fit_reading(episodes: Sequence[BridgeEpisode], head: Floats | None, recipe: FitRecipe, seed: int) -> Network:
    groups = [ListwiseGroup(episode.reading(head), episode.labels, episode.weight) for episode in episodes]
    return fit(groups, replace(recipe, hidden=READING_LAYERS), seed=seed)


def head_penalty(episodes: Sequence[BridgeEpisode]) -> float:
    """Return the penalty of the reader's correction with the lowest cross-validated loss; infinity for no
    correction.
    """
    rows, labels, fold = _rows_read(episodes)
    losses = {penalty: _held_out_loss(rows, labels, fold, penalty) for penalty in HEAD_PENALTIES}
    return min(losses, key=losses.__getitem__)


def _heads(episodes: Sequence[BridgeEpisode], penalty: float) -> tuple[Floats | None, dict[int, Floats | None]]:
    """Return the correction that all episodes give, and for each fold the one that the others give."""
    rows, labels, fold = _rows_read(episodes)
    by_fold = {part: fit_head(rows[fold != part], labels[fold != part], penalty) for part in range(FOLDS)}
    return fit_head(rows, labels, penalty), by_fold


def _rows_read(episodes: Sequence[BridgeEpisode]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the reader's rows, shape (n, width), their labels and their folds, both of shape (n,)."""
    read = [np.isfinite(episode.rows[:, 0]) for episode in episodes]
    rows = np.concatenate([episode.rows[mask] for episode, mask in zip(episodes, read, strict=True)])
    labels = np.concatenate([episode.labels[mask] for episode, mask in zip(episodes, read, strict=True)])
    fold = np.repeat([episode.fold for episode in episodes], [int(mask.sum()) for mask in read])
    return rows, labels, fold


def _held_out_loss(rows: Floats, labels: Floats, fold: NDArray[np.int64], penalty: float) -> float:
    total = 0.0
    for part in range(FOLDS):
        odds = read_odds(rows[fold == part], fit_head(rows[fold != part], labels[fold != part], penalty))
        total += float(np.logaddexp(0, np.where(labels[fold == part] > 0, -odds, odds)).sum())
    return total


def fit_head(rows: Floats, labels: Floats, penalty: float) -> Floats | None:
    """Ridge logistic regression on the reader's rows, shape (n, width), beside its own log-odds: shape (width + 1,).

    Newton's method; the penalty is on the squared weights, not on the constant. None for an infinite penalty.
    """
    if math.isinf(penalty):
        return None
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1).astype(np.float64)
    weights = np.zeros(inputs.shape[1])
    ridge = np.diag(np.append(np.full(rows.shape[1], penalty), 1e-3))
    for _ in range(NEWTON_STEPS):
        odds = np.clip(rows[:, 0] + inputs @ weights, -30, 30)
        probability = 1 / (1 + np.exp(-odds))
        slope = inputs.T @ (probability - labels) + ridge @ weights
        curvature = (inputs * (probability * (1 - probability))[:, None]).T @ inputs + ridge
        weights -= np.linalg.solve(curvature, slope)
    return weights.astype(np.float32)


def collect(
    sources: Sequence[BridgeSource],
    explorers: Mapping[int, BridgePolicy],
    windows: Sequence[int],
    progress: Callable[[float], None],
) -> list[BridgeEpisode]:
    """One experience for each source, question and window; `explorers` by fold."""
    episodes: list[BridgeEpisode] = []
    total = sum(len(source.questions) for source in sources) * len(windows)
    renderer = Renderer(default(), HarmonyCounter())
    done = 0
    for source in sources:
        share = source.weight / (len(source.questions) * len(windows))
        for question in source.questions:
            explorer = explorers[fold_of(question.id)]
            for window in windows:
                budget = Budget(window) if window else Budget()
                episode = asyncio.run(_play_episode(source, question, explorer, budget, renderer))
                if episode is not None:
                    episodes.append(replace(episode, weight=share))
                done += 1
                progress(done / total)
    scale = len(episodes) / sum(episode.weight for episode in episodes) if episodes else 1.0
    return [replace(episode, weight=episode.weight * scale) for episode in episodes]


def fold_of(question_id: str) -> int:
    """Return the part of the cross-validation that a question belongs to: the same whatever the order of the file."""
    return crc32(question_id.encode()) % FOLDS


async def _play_episode(
    source: BridgeSource, question: Question, policy: BridgePolicy, budget: Budget, renderer: Renderer
) -> BridgeEpisode | None:
    """Runs an episode to its end; None where it saw nothing."""
    actor = await play(question.question, source.corpus, policy, budget, renderer)
    if not len(actor.notes):
        return None
    gold = set(question.gold)
    documents = [candidate.document_id for candidate in actor.notes.candidates]
    return BridgeEpisode(
        source=source.name,
        fold=fold_of(question.id),
        gold=len(gold),
        documents=documents,
        labels=np.array([document in gold for document in documents], dtype=np.float32),
        judgement=actor.judgement,
        direct=actor.judgement.first_inputs(),
        lookups=np.array([row for _, row in actor.lookups], dtype=np.float32).reshape(-1, len(INPUTS["expansion"])),
        found=_lookup_labels(actor, gold),
    )


async def play(question: str, corpus: Corpus, policy: BridgePolicy, budget: Budget, renderer: Renderer) -> BridgeActor:
    """Return the actor of an episode after its end."""
    actor = policy.open(question, corpus, profile=renderer.profile)
    episode = Episode(question, corpus, budget=budget, renderer=renderer, instructions="")
    view = episode.open()
    while not episode.done:
        view = await episode.step(await actor.act(view))
    return actor


def _lookup_labels(actor: BridgeActor, gold: set[str]) -> Floats:
    """Return which of the lookups brought up gold."""
    labels = np.zeros(len(actor.lookups), dtype=np.float32)
    for candidate in actor.notes.candidates:
        if candidate.lookup >= 0 and candidate.document_id in gold:
            labels[candidate.lookup] = 1
    return labels


class _NetworkTrainer:
    """Fits the networks to a round's experiences. Construction gives every experience its first scores."""

    def __init__(
        self, experiences: Sequence[BridgeEpisode], recipe: FitRecipe, seed: int, progress: Callable[[float], None]
    ) -> None:
        self._all, self._recipe, self._seed = experiences, recipe, seed
        self._quick = replace(recipe, members=1)
        self._progress = progress
        self._made = 0
        self._first: dict[int, Network] = {}
        for fold in range(FOLDS):
            self._first[fold] = self._fit_first([experience for experience in experiences if experience.fold != fold])
            for experience in experiences:
                if experience.fold == fold:
                    experience.first = self._first[fold](experience.direct)
        self._groups = {
            id(experience): ListwiseGroup(experience.second(), experience.labels, experience.weight)
            for experience in experiences
        }

    def folds(self) -> dict[int, dict[str, Network]]:
        """For each fold the networks that did not learn from it, one member each: for measuring and exploring."""
        by_fold = {}
        for fold in range(FOLDS):
            training = [episode for episode in self._all if episode.fold != fold]
            networks = {"first": self._first[fold], "second": self._fit_second(training, self._quick)}
            by_fold[fold] = {**networks, "expansion": self._fit_expansion(training)}
        return by_fold

    def final(self) -> dict[str, Network]:
        """Return the networks that learned from everything."""
        first, second = self._fit_first(self._all), self._fit_second(self._all, self._recipe)
        return {"first": first, "second": second, "expansion": self._fit_expansion(self._all)}

    def _fit_first(self, some: Sequence[BridgeEpisode]) -> Network:
        optional = [DIRECT.index(name) for name in COSINES if name in DIRECT]
        groups = [ListwiseGroup(episode.direct, episode.labels, episode.weight) for episode in some]
        return self._done(fit(groups, self._quick, optional=optional, seed=self._seed))

    def _fit_second(self, some: Sequence[BridgeEpisode], recipe: FitRecipe) -> Network:
        optional = [INPUTS["second"].index(name) for name in COSINES]
        return self._done(
            fit([self._groups[id(episode)] for episode in some], recipe, optional=optional, seed=self._seed)
        )

    def _fit_expansion(self, some: Sequence[BridgeEpisode]) -> Network:
        return self._done(
            fit(
                [ListwiseGroup(episode.lookups, episode.found, episode.weight) for episode in some],
                EXPANSION_RECIPE,
                seed=self._seed,
            )
        )

    def _done(self, network: Network) -> Network:
        self._made += 1
        self._progress(min(1.0, self._made / (3 * FOLDS)))
        return network


def _by_source(experiences: Iterable[BridgeEpisode], measure: Callable[[BridgeEpisode], float]) -> dict[str, Figure]:
    values: dict[str, list[float]] = {}
    for experience in experiences:
        values.setdefault(experience.source, []).append(measure(experience))
    return {name: Figure.of(measured) for name, measured in values.items()}


def check_source(source: BridgeSource) -> BridgeSource:
    """Return the source's questions that name gold. Raises `DataError` if none does, or if the corpus does not hold
    it.
    """
    with_gold = [question for question in source.questions if question.gold]
    if not with_gold:
        raise DataError(f"{source.name}: none of {len(source.questions)} questions names gold documents: add `gold`")
    for question in with_gold:
        if not any(source.corpus.read(document) for document in question.gold):
            raise DataError(f"{source.name}: question {question.id!r}: the corpus holds none of {list(question.gold)}")
    return replace(source, questions=with_gold)


def _no_progress(what: str, share: float) -> None:
    """Reports nothing."""
