"""The reader, a small cross-encoder. It estimates how likely a passage belongs to the evidence for a question.

A passage of a second hop is relevant because of the first passage, not because of the question. Therefore the reader
sees the title and one sentence of the best passages so far, in addition to the question.

The shipped model is all-MiniLM-L6-v2 (Apache-2.0). It was trained on questions with gold documents, and on the wrong
candidates that the policy collected for these questions. Its weights are quantized to int8 (`scripts/build_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent._support.token_table import load_weights
from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.pruning import reading
from context_agent.pruning.reading import EVIDENCE

READ = 20
"""How many candidates are read: those with the highest scores."""
READ_ALONE = 12
"""Number of candidates that are read with the question alone."""
MEANING, NAMING = 0.5, 0.5
"""The weights of a sentence's meaning and of naming the candidate. Its share of the question's weight has weight 1."""
READINGS = (
    "odds", "score_rank", "gap", "read", "read_gap", "read_z", "read_rank", "read_sum", "compares", "terms", "entities",
)  # fmt: skip
"""Names of the inputs of the network that combines the scores with the reader's, in order."""


class ReaderInput:
    """The pairs of texts that the reader sees for one question. Each sentence is compared with the question once.

    Two numbers decide how well a sentence fits the question. One is the weight of the question's terms in it. The other
    is the cosine of summed word vectors, which finds answers in other words than those of the question.
    """

    def __init__(self, question: AnalyzedQuestion) -> None:
        self._question = question
        self._fits: dict[AnalyzedPassage, list[float]] = {}

    def premise(self, evidence: Iterable[AnalyzedPassage], candidate: AnalyzedPassage) -> str:
        """Return the first text of a pair.

        It is the question, followed by one sentence from each of the best other passages.

        A sentence that names the candidate is preferred, because it says how the two passages belong together.
        """
        lines = ((passage.bare, self._fitting_sentence(passage, candidate)) for passage in islice(evidence, EVIDENCE))
        return reading.premise(self._question.text, lines)

    def excerpt(self, passage: AnalyzedPassage) -> str:
        """Return the second text of a pair.

        It is the candidate, shortened to the sentences that fit the question best.
        """
        long = len(passage.text.split()) > reading.EXCERPT_WORDS
        fits = self._fit(passage) if long else ()
        return reading.excerpt(passage.heading, passage.text, passage.sentence_texts, fits)

    def _fitting_sentence(self, passage: AnalyzedPassage, candidate: AnalyzedPassage) -> str:
        """Return the sentence that fits best. If several fit equally well, return the first."""
        fits = self._fit(passage)
        if candidate.bare_keys and not candidate.bare_keys <= self._question.key_set:
            named = (candidate.bare_keys <= sentence for sentence in passage.sentences)
            fits = [fit + NAMING * names for fit, names in zip(fits, named, strict=True)]
        return passage.sentence_texts[fits.index(max(fits))] if fits else ""

    def _fit(self, passage: AnalyzedPassage) -> list[float]:
        """Return how well each sentence fits the question."""
        if (fits := self._fits.get(passage)) is None:
            question = self._question
            weights = list(zip(question.keys, question.weight.tolist(), strict=True))
            covered = [sum(weight for key, weight in weights if key in sentence) for sentence in passage.sentences]
            rows = load_weights().sums([question.text, *passage.sentence_texts])
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
            meaning = (rows[1:] @ rows[0]).tolist()
            fits = self._fits[passage] = [c + MEANING * m for c, m in zip(covered, meaning, strict=True)]
        return fits


class Readings:
    """The reader's rows for the candidates of one episode.

    If the evidence for a candidate changes, the reader reads it again.
    """

    def __init__(self, notes: Notes, model: PairModel) -> None:
        self._notes, self._model = notes, model
        self._input = ReaderInput(notes.question)
        self._by_input: dict[tuple[int, tuple[int, ...]], Floats] = {}
        self._latest: dict[int, Floats] = {}
        self._alone: dict[int, Floats] = {}

    def __bool__(self) -> bool:
        """Return True if at least one candidate was read."""
        return bool(self._latest)

    def update(self, scores: Floats) -> None:
        """Read the candidates with the best scores.

        The best other candidates are the evidence. `scores` has shape (n_candidates,).
        """
        order = np.argsort(-scores, kind="stable").tolist()
        inputs = {row: (row, self._evidence(row, order)) for row in order[:READ]}
        self._read(inputs.values())
        self._latest |= {row: self._by_input[key] for row, key in inputs.items()}

    def read_alone(self, scores: Floats) -> None:
        """Read the candidates with the best scores, with the question alone. `scores` has shape (n_candidates,)."""
        inputs = {row: (row, ()) for row in np.argsort(-scores, kind="stable")[:READ_ALONE].tolist()}
        self._read(inputs.values())
        self._alone |= {row: self._by_input[key] for row, key in inputs.items()}

    def rows(self) -> Floats:
        """Return the latest row of each candidate, shape (n_candidates, width).

        Candidates that were not read have NaN.
        """
        return self._rows(self._latest)

    def rows_alone(self) -> Floats:
        """Return each candidate's row from reading with the question alone, shape (n_candidates, width).

        Candidates that were not read have NaN.
        """
        return self._rows(self._alone)

    def _read(self, inputs: Iterable[tuple[int, tuple[int, ...]]]) -> None:
        fresh = [key for key in inputs if key not in self._by_input]
        self._by_input.update(zip(fresh, self._model.encode_pairs([self._pair(*key) for key in fresh]), strict=True))

    def _rows(self, by_row: Mapping[int, Floats]) -> Floats:
        rows = np.full((len(self._notes), self._model.width), np.nan, dtype=np.float32)
        for row, values in by_row.items():
            rows[row] = values
        return rows

    def _evidence(self, candidate: int, order: Sequence[int]) -> tuple[int, ...]:
        """Return the best candidate of each of the first `EVIDENCE` other documents."""
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
        passage, *others = (self._notes.candidates[row].passage for row in (candidate, *evidence))
        return self._input.premise(others, passage), self._input.excerpt(passage)


def read_odds(rows: Floats, head: Floats | None = None) -> Floats:
    """Return the reader's log-odds, shape (n_rows,), from its rows, shape (n_rows, width).

    `head`, shape (width + 1,), corrects the log-odds.
    """
    return rows[:, 0] if head is None else rows[:, 0] + rows @ head[:-1] + head[-1]


def reading_features(notes: Notes, odds: Floats, read: Floats) -> Floats:
    """Return the inputs of the combining network, shape (n_candidates, len(READINGS)).

    Both log-odds have shape (n_candidates,). A candidate that was not read has NaN in `read`.
    """
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
