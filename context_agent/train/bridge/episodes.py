"""The episodes that the embedded policy learns from: what was seen, and which of it is gold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent.errors import DataError
from context_agent.harness.episode import Episode
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.networks import INPUTS, RelevanceJudgement
from context_agent.policies.bridge.reader import Readings, read_odds, reading_features
from context_agent.pruning.budget import Budget
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Question

FOLDS = 5


CUTOFF = 5
"""Recall is reported at this rank."""


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
        """Let the reader read the best candidates by `odds`, shape (n,)."""
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


def collect(
    sources: Sequence[BridgeSource],
    explorers: Mapping[int, BridgePolicy],
    windows: Sequence[int],
    progress: Callable[[float], None],
) -> list[BridgeEpisode]:
    """Play every question of every source in each window. `explorers` has a policy for each fold."""
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
    """Play an episode to its end. Return None if it saw nothing."""
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


def check_source(source: BridgeSource) -> BridgeSource:
    """Return the source's questions that name gold. Raises `DataError` if none does, or if the corpus does not hold
    it.
    """
    with_gold = [question for question in source.questions if question.gold]
    if not with_gold:
        if not source.questions:
            raise DataError(f"there is no question about {source.name}: write some, or run `ctx1 synth tasks`")
        raise DataError(
            f"none of the {len(source.questions)} questions about {source.name} has gold: add `gold`, the ids of the "
            "documents that answer it"
        )
    for question in with_gold:
        if not any(source.corpus.read(document) for document in question.gold):
            raise DataError(f"{source.name}: question {question.id!r}: the corpus holds none of {list(question.gold)}")
    return replace(source, questions=with_gold)
