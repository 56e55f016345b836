"""The training of the embedded policy's networks on a corpus and on questions with gold documents. It needs no GPU.

1. Episodes are played on every question in the production harness. The given policy plays the first round. Without
   weights it follows rules of thumb. In later rounds, a question is played by networks that were not trained on it.
2. In five-fold cross-validation, networks learn from four parts of the questions and rank the candidates of the fifth
   part. The recall of these rankings is reported.
3. The saved networks are trained on all parts. The second network learns from scores of a first network that was not
   trained on the same question, as in production. The network that combines the second network's scores with the
   reader's learns in the same way.
4. If a linear correction of the reader's log-odds (`reader_head`) lowers the cross-validated loss, it is applied.
   Otherwise the reader stays as it ships.

The networks are small, and `bridge.listwise` fits them:

    ctx1 train bridge CORPUS questions.jsonl --out weights.safetensors
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import DataError
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy, Effort, Scorer
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.networks import INPUTS, READING, Network
from context_agent.train.bridge.episodes import (
    FOLDS,
    BridgeEpisode,
    BridgeSource,
    OnBridgeProgress,
    check_source,
    collect,
)
from context_agent.train.bridge.listwise import FitRecipe, ListwiseGroup, fit
from context_agent.train.bridge.reader_head import fit_heads, head_penalty

ROUNDS = 2
"""Number of rounds of episodes and training."""


MIN_QUESTIONS = 60
"""Smallest number of questions with gold. Networks that learn from fewer do not generalize to other questions."""


COSINES = ("cosine_z", "cosine_gap", "clause_cosine", "clause_cosine_gap", "rest_cosine", "rest_cosine_z")
"""Inputs that are missing if the corpus has no useful vectors."""


READING_LAYERS = (24, 12)


EXPANSION_RECIPE = FitRecipe(hidden=(32,), members=2, epochs=15, cross_entropy=0.5, input_dropout=0.05)


@dataclass(frozen=True)
class TrainedBridge:
    """The trained networks and their cross-validated measures.

    Attributes:
        scorer: The networks.
        recall: Recall at `CUTOFF` by source, cross-validated.
        unread: Recall at `CUTOFF` by source, cross-validated, without the reader.
        seen: Share of the gold documents that occurred in the episodes, by source.
        folds: For each fold, a policy that did not learn from the fold's questions.
        kept: True if the networks are those of the fallback.
        before: Recall at `CUTOFF` by source, with the fallback and the reader as they were. Empty without a fallback.
    """

    scorer: Scorer
    recall: Mapping[str, Figure]
    unread: Mapping[str, Figure]
    seen: Mapping[str, Figure]
    folds: Mapping[int, BridgePolicy] = field(default_factory=dict)
    kept: bool = False
    before: Mapping[str, Figure] = field(default_factory=dict)

    def mean_recall(self) -> float:
        """Return the mean recall over the sources."""
        return float(np.mean([figure.mean for figure in self.recall.values()]))

    def notes(self) -> dict[str, str]:
        """Return the metadata for the file of weights: the cross-validated recall by source."""
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
    """Train the networks of the embedded policy.

    If there are fewer than `MIN_QUESTIONS` questions, the networks of `fallback` are kept. They are also kept if their
    recall is higher than the cross-validated recall of the new networks.

    Args:
        sources: The sources.
        policy: The policy that explores in the first round. By default it follows rules of thumb.
        effort: The effort of the exploring policies. Defaults to that of `policy`.
        windows: Sizes of the window, in tokens, in which each question is played. 0 means the default.
        rounds: Number of rounds of episodes and training.
        recipe: The hyperparameters of the networks.
        seed: The seed of training.
        readers: For each fold, a reader that was not trained on the fold's questions. By default, the shipped reader is
            used for all folds.
        fallback: The networks to keep if their recall is higher than the recall of the new networks.
        report: A function that receives the progress.

    Returns:
        The networks and their measures.

    Raises:
        DataError: If no question names gold, a corpus has none of a question's gold, or there are too few questions and
            no fallback.
    """
    sources = [check_source(source) for source in sources]
    recipe, report = recipe or FitRecipe(), report or _no_progress
    policy = policy or BridgePolicy(effort=effort)
    # Exploration uses no reader, because reading would take most of the time. Nobody sees its rankings, so it compares
    # as few candidates as possible for them.
    effort = replace(effort or policy.effort, readings=0, compared=1)
    explorers = dict.fromkeys(range(FOLDS), BridgePolicy(policy.scorer, effort=effort, untrained=policy.scorer is None))
    if (count := sum(len(source.questions) for source in sources)) < MIN_QUESTIONS:
        if fallback is None:
            raise DataError(
                f"training needs at least {MIN_QUESTIONS} questions that name gold documents; got {count}. Add more."
            )
        experiences = collect(sources, explorers, windows, partial(report, "playing episodes"))
        return _keep(fallback, experiences, partial(report, "reading passages"))
    for turn in range(1, rounds + 1):
        experiences = collect(sources, explorers, windows, partial(report, f"round {turn}: playing episodes"))
        learn = _NetworkTrainer(experiences, recipe, seed, partial(report, f"round {turn}: training networks"))
        folds = learn.folds()
        explorers = {
            fold: BridgePolicy(Scorer.of(networks), effort=effort, remembered=None) for fold, networks in folds.items()
        }
    _read(experiences, folds, readers or {}, partial(report, "reading passages"))
    head, heads = fit_heads(experiences, head_penalty(experiences))
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
    kept = _keep(fallback, experiences, partial(report, "reading passages with the current weights"))
    return replace(max(trained, kept, key=TrainedBridge.mean_recall), before=kept.before)


def _keep(fallback: Scorer, episodes: Sequence[BridgeEpisode], progress: Callable[[float], None]) -> TrainedBridge:
    """Return the networks of `fallback` with the reader adapted to these episodes."""
    networks = fallback.networks
    for episode in episodes:
        episode.first = networks["first"](episode.direct)
    _read(episodes, dict.fromkeys(range(FOLDS), networks), {}, progress)
    before = _by_source(episodes, lambda e: e.recall(networks[READING](e.reading(fallback.head))))
    head, heads = fit_heads(episodes, head_penalty(episodes))
    measured = _by_source(episodes, lambda e: e.recall(networks[READING](e.reading(heads[e.fold]))))
    unread = _by_source(episodes, lambda e: e.recall(e.odds))
    seen = _by_source(episodes, lambda e: e.recall(e.labels, len(e.labels)))
    scorer = Scorer.of(networks, head=head, ranker=fallback.ranker)
    folds = dict.fromkeys(range(FOLDS), BridgePolicy(scorer))
    return TrainedBridge(scorer, measured, unread, seen, folds, kept=True, before=before)


def _read(
    episodes: Sequence[BridgeEpisode],
    folds: Mapping[int, Mapping[str, Network]],
    readers: Mapping[int, PairModel],
    progress: Callable[[float], None],
) -> None:
    """Score and read each episode's candidates, with networks and a reader that did not learn from its question."""
    for done, episode in enumerate(episodes, start=1):
        odds = folds[episode.fold]["second"].logits(episode.second())
        episode.read(readers.get(episode.fold) or shipped_reader(), odds)
        progress(done / len(episodes))


def _fit_reading(episodes: Sequence[BridgeEpisode], head: Floats | None, recipe: FitRecipe, seed: int) -> Network:
    groups = [ListwiseGroup(episode.reading(head), episode.labels, episode.weight) for episode in episodes]
    return fit(groups, replace(recipe, hidden=READING_LAYERS), seed=seed)


class _NetworkTrainer:
    """A trainer of the networks on one round of episodes.

    The constructor trains the first network of each fold and uses it to score the fold's episodes.
    """

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
        """Return for each fold the networks that did not learn from it. Each network has one member.

        These networks play the next round of episodes and measure the recall.
        """
        by_fold = {}
        for fold in range(FOLDS):
            training = [episode for episode in self._all if episode.fold != fold]
            networks = {"first": self._first[fold], "second": self._fit_second(training, self._quick)}
            by_fold[fold] = {**networks, "expansion": self._fit_expansion(training)}
        return by_fold

    def final(self) -> dict[str, Network]:
        """Return the networks that learned from all episodes."""
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


def _no_progress(what: str, share: float) -> None:
    """Do nothing with the progress."""
