"""The episodes from which the embedded policy learns: the passages that they saw, with labels for gold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent.budget import Budget
from context_agent.errors import DataError
from context_agent.harness.episode import Episode
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.networks import INPUTS
from context_agent.policies.bridge.reader import Readings, read_odds, reading_features
from context_agent.policies.bridge.relevance import RelevanceJudgment
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Question

FOLDS = 5
"""Number of parts of the cross-validation."""


CUTOFF = 5
"""Rank at which recall is reported."""


OnBridgeProgress = Callable[[str, float], None]
"""A callback that receives the name of the current work and the share of it that is done."""


@dataclass(frozen=True)
class BridgeSource:
    """Questions on one corpus.

    Attributes:
        name: The name of the source.
        corpus: The corpus.
        questions: The questions.
        weight: Weight of the whole source. It does not depend on the number of questions.
    """

    name: str
    corpus: Corpus
    questions: Sequence[Question]
    weight: float = 1.0


@dataclass
class BridgeEpisode:
    """One episode with its labels. Shapes use `n` for the number of candidates.

    Attributes:
        source: The name of the source.
        fold: The part of the cross-validation that its question belongs to.
        gold: Number of gold documents of its question.
        documents: The document of each candidate passage.
        labels: 1 for a candidate of a gold document, otherwise 0, shape (n,).
        judgment: The policy's judgment of the candidates.
        direct: Inputs of the first network, shape (n, inputs).
        lookups: Inputs of the expansion network for each lookup, shape (lookups, inputs).
        found: 1 for a lookup that found gold, otherwise 0, shape (lookups,).
        weight: Weight of the episode.
        first: Scores from a first network that did not learn from this question, shape (n,).
        odds: Log-odds from a second network that did not learn from this question, shape (n,).
        rows: The reader's output, shape (n, width). NaN for candidates that were not read.
    """

    source: str
    fold: int
    gold: int
    documents: list[str]
    labels: Floats
    judgment: RelevanceJudgment
    direct: Floats
    lookups: Floats
    found: Floats
    weight: float = 1.0
    first: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    odds: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    rows: Floats = field(default_factory=lambda: np.zeros((0, 1), dtype=np.float32))

    def second(self) -> Floats:
        """Return the inputs of the second network."""
        return self.judgment.second_inputs(self.direct, self.first)

    def read(self, model: PairModel, odds: Floats) -> None:
        """Let the reader read the candidates with the highest `odds`, shape (n_candidates,)."""
        readings = Readings(self.judgment.notes, model)
        readings.update(odds)
        self.odds, self.rows = odds, readings.rows()

    def reading(self, head: Floats | None) -> Floats:
        """Return the inputs of the network that combines the second network's scores with the reader's scores.

        `head` corrects the reader's log-odds.
        """
        return reading_features(self.judgment.notes, self.odds, read_odds(self.rows, head))

    def recall(self, scores: Floats, cutoff: int = CUTOFF) -> float:
        """Return the share of the gold documents among the `cutoff` documents with the highest scores."""
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
    """Play every question of every source in each window.

    Args:
        sources: The sources.
        explorers: The policy that plays the questions of each fold.
        windows: The window sizes to play each question in, in tokens. 0 means the default size.
        progress: A function that receives the share of the episodes that are done.

    Returns:
        The episodes that saw at least one passage. The mean of their weights is 1.
    """
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
    """Return the part of the cross-validation that a question belongs to. It depends only on the question's id."""
    return crc32(question_id.encode(errors="surrogatepass")) % FOLDS


async def _play_episode(
    source: BridgeSource, question: Question, policy: BridgePolicy, budget: Budget, renderer: Renderer
) -> BridgeEpisode | None:
    """Play an episode to its end. If it saw no passage, return None."""
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
        judgment=actor.judgment,
        direct=actor.judgment.first_inputs(),
        lookups=np.array([row for _, row in actor.lookups], dtype=np.float32).reshape(-1, len(INPUTS["expansion"])),
        found=_lookup_labels(actor, gold),
    )


async def play(question: str, corpus: Corpus, policy: BridgePolicy, budget: Budget, renderer: Renderer) -> BridgeActor:
    """Play an episode to its end.

    Args:
        question: The text of the question.
        corpus: The corpus.
        policy: The policy.
        budget: The token budget.
        renderer: The renderer of the harness.

    Returns:
        The actor of the episode, with everything that it saw.
    """
    actor = policy.open(question, corpus, profile=renderer.profile)
    episode = Episode(question, corpus, budget=budget, renderer=renderer, instructions="")
    view = episode.open()
    while not episode.done:
        view = await episode.step(await actor.act(view))
    return actor


def _lookup_labels(actor: BridgeActor, gold: set[str]) -> Floats:
    """Return a label for each lookup: 1 if it found gold, otherwise 0."""
    labels = np.zeros(len(actor.lookups), dtype=np.float32)
    for candidate in actor.notes.candidates:
        if candidate.lookup >= 0 and candidate.document_id in gold:
            labels[candidate.lookup] = 1
    return labels


def check_source(source: BridgeSource) -> BridgeSource:
    """Return the source with only the questions that name gold.

    Args:
        source: The source.

    Returns:
        A changed copy.

    Raises:
        DataError: If no question names gold, if a question is empty, or if the corpus has no gold document of some
            question.
    """
    with_gold = [question for question in source.questions if question.gold]
    if not with_gold:
        if not source.questions:
            raise DataError(
                f"the file of questions about {source.name} is empty. Write questions with `gold`, or make some with "
                "`ctx1 synth tasks`. If that command finds too few links, pass it --model."
            )
        raise DataError(
            f"none of the {len(source.questions)} questions about {source.name} has gold. Add `gold`, the ids of the "
            "documents that answer it."
        )
    for question in with_gold:
        if not question.question.strip():
            raise DataError(
                f"the question {question.id!r} about {source.name} is empty. Write its text, or remove the question."
            )
        if not any(source.corpus.read(document) for document in question.gold):
            raise DataError(
                f"the corpus of {source.name} has none of the gold documents {list(question.gold)} of question "
                f"{question.id!r}. Index them, or remove the question."
            )
    return replace(source, questions=with_gold)
