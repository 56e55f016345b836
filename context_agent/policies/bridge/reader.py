"""The reader: a small cross-encoder that says how likely a passage belongs to the evidence for a question.

A passage of a second hop is relevant because of what the first one says, not because of the question. So the reader
sees, next to the question, the title and the most fitting sentence of the best passages found so far.

The model that ships is all-MiniLM-L6-v2 (Apache-2.0), trained on questions with gold documents and the wrong candidates
that the policy collected for them, and quantized to int8 (`scripts/build_reader.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.pruning import relevance
from context_agent.pruning.relevance import EVIDENCE

READ = 24
"""Candidates that are read, the best by score."""
READINGS = (
    "odds", "score_rank", "gap", "read", "read_gap", "read_z", "read_rank", "read_sum", "compares", "terms", "entities",
)  # fmt: skip
"""Names of the inputs of the network that combines the scores with the reader's, in order."""


def premise(question: AnalyzedQuestion, evidence: Sequence[AnalyzedPassage]) -> str:
    """The first text of the reader's input, from the question and the best other passages."""
    return relevance.premise(
        question.text, ((passage.bare, fitting_sentence(question, passage)) for passage in evidence)
    )


def fitting_sentence(question: AnalyzedQuestion, passage: AnalyzedPassage) -> str:
    """The sentence that covers most of the question's weight, the first of equal ones."""
    covered = _covered(question, passage)
    return passage.sentence_texts[covered.index(max(covered))] if covered else ""


def excerpt(question: AnalyzedQuestion, passage: AnalyzedPassage) -> str:
    """The second text of the reader's input: the passage, shortened to what covers most of the question's weight."""
    covered = _covered(question, passage)
    return relevance.excerpt(passage.heading, passage.text, passage.sentence_texts, covered)


def _covered(question: AnalyzedQuestion, passage: AnalyzedPassage) -> list[float]:
    """The weight of the question's terms that each sentence has."""
    weights = list(zip(question.keys, question.weight.tolist(), strict=True))
    return [sum(weight for key, weight in weights if key in sentence) for sentence in passage.sentences]


class Readings:
    """The reader's rows for the candidates of one episode. A candidate is read again if the evidence changes."""

    def __init__(self, notes: Notes, model: PairModel) -> None:
        self._notes, self._model = notes, model
        self._by_input: dict[tuple[int, tuple[int, ...]], Floats] = {}
        self._latest: dict[int, Floats] = {}

    def __bool__(self) -> bool:
        """Whether anything was read."""
        return bool(self._latest)

    def update(self, scores: Floats) -> None:
        """Reads the best candidates by score, shape (n,), each with the best others as evidence."""
        order = np.argsort(-scores, kind="stable").tolist()
        inputs = {row: (row, self._evidence(row, order)) for row in order[:READ]}
        fresh = [key for key in inputs.values() if key not in self._by_input]
        self._by_input.update(zip(fresh, self._model.encode_pairs([self._pair(*key) for key in fresh]), strict=True))
        self._latest |= {row: self._by_input[key] for row, key in inputs.items()}

    def rows(self) -> Floats:
        """The latest row of each candidate, shape (n, 1 + width); NaN for those that were not read."""
        rows = np.full((len(self._notes), self._model.width), np.nan, dtype=np.float32)
        for row, values in self._latest.items():
            rows[row] = values
        return rows

    def _evidence(self, candidate: int, order: Sequence[int]) -> tuple[int, ...]:
        """The best candidates of other documents, one of each."""
        candidates = self._notes.candidates
        own = candidates[candidate].document_id
        chosen: dict[str, int] = {}
        for row in order:
            if (document := candidates[row].document_id) != own:
                chosen.setdefault(document, row)
            if len(chosen) == EVIDENCE:
                break
        return tuple(chosen.values())

    def _pair(self, candidate: int, evidence: Sequence[int]) -> tuple[str, str]:
        question, candidates = self._notes.question, self._notes.candidates
        found = [candidates[row].passage for row in evidence]
        return premise(question, found), excerpt(question, candidates[candidate].passage)


def read_odds(rows: Floats, head: Floats | None = None) -> Floats:
    """The reader's log-odds, shape (n,), from its rows, shape (n, width); `head`, shape (width + 1,), corrects them."""
    return rows[:, 0] if head is None else rows[:, 0] + rows @ head[:-1] + head[-1]


def reading_features(notes: Notes, odds: Floats, read: Floats) -> Floats:
    """The inputs of the combining network, shape (n, len(READINGS)); both log-odds have shape (n,), `read` with NaN."""
    n = len(odds)
    best, spread = (float(np.nanmax(read)), float(np.nanstd(read)) + 1e-3) if np.isfinite(read).any() else (0.0, 1.0)
    mean = float(np.nanmean(read)) if np.isfinite(read).any() else 0.0
    compares, *_, terms, entities = notes.question.cues
    columns = {
        "odds": odds,
        "score_rank": np.log1p(_ranks(odds)),
        "gap": odds - odds.max(),
        "read": read,
        "read_gap": read - best,
        "read_z": (read - mean) / spread,
        "read_rank": np.where(np.isfinite(read), np.log1p(_ranks(np.nan_to_num(read, nan=-99.0))), np.nan),
        "read_sum": np.full(n, np.nansum(1 / (1 + np.exp(-read)))),
        "compares": np.full(n, compares),
        "terms": np.full(n, terms),
        "entities": np.full(n, entities),
    }
    return np.stack([columns[name] for name in READINGS], axis=1).astype(np.float32)


def _ranks(values: Floats) -> Floats:
    ranks = np.empty(len(values), dtype=np.float32)
    ranks[np.argsort(-values, kind="stable")] = np.arange(len(values))
    return ranks
