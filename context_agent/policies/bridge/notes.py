"""What the embedded policy remembers of an episode: the chunks it saw, how it came by them, and rare words' weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from context_agent.policies.bridge.passage import Floats, Passage, Question, take_apart
from context_agent.retrieval.protocol import Corpus


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk seen in the episode. `hop` counts the names followed to it; `lookup` numbers the one that found it.

    A chunk that no lookup found has hop 0 and lookup -1.
    """

    id: str
    document_id: str
    passage: Passage
    tokens: int
    hop: int
    lookup: int = -1


class WordWeights:
    """Inverse document frequency in one corpus, ln(1 + (N - df + 0.5) / (df + 0.5)) as BM25 has it; remembered."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._count = corpus.count()
        self._known: dict[str, float] = {}

    def __call__(self, words: Sequence[str]) -> Floats:
        """The weight of each word, shape (n,)."""
        self.learn(words)
        return np.array([self._known[word] for word in words], dtype=np.float32)

    def learn(self, words: Sequence[str]) -> dict[str, float]:
        """All weights known by now, those of `words` among them."""
        if fresh := [word for word in dict.fromkeys(words) if word not in self._known]:
            frequency = np.minimum(self._corpus.document_frequency(fresh), self._count)
            weight = np.log1p((self._count - frequency + 0.5) / (frequency + 0.5))
            self._known.update(zip(fresh, weight.tolist(), strict=True))
        return self._known


@dataclass
class Notes:
    """The candidates of one episode in the order seen; `rows` gives a chunk's place among them."""

    question: Question
    weights: WordWeights
    candidates: list[Candidate] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, question: str, weights: WordWeights) -> Notes:
        """Empty notes on a question."""
        return cls(take_apart(question, weights), weights)

    def add(self, candidate: Candidate) -> None:
        """Appends a candidate whose chunk is new."""
        self.rows[candidate.id] = len(self.candidates)
        self.candidates.append(candidate)

    def __len__(self) -> int:
        return len(self.candidates)
