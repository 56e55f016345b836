"""The learned part of the embedded policy. Small networks, computed with numpy, score the candidates.

Weights and the scaling of inputs are stored as safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.atomic_files import replacing
from context_agent._support.onnx import PairModel
from context_agent._support.small_files import parse_json, read_bytes
from context_agent._support.weight_files import weight_file
from context_agent.errors import ConfigError, reason_of
from context_agent.policies.bridge.candidates import Floats, Notes
from context_agent.policies.bridge.features import (
    DIRECT,
    TEXT_FEATURES,
    TextFeatures,
    direct_features,
    relevance_guess,
)
from context_agent.policies.bridge.links import EXPANSION, LINKS, Links
from context_agent.policies.bridge.ranking import (
    RANKING,
    Judgments,
    Trees,
    asked_order,
    compared_rows,
    identifier_odds,
    late_scores,
    ranking_features,
    with_late_interaction,
)
from context_agent.policies.bridge.reader import READINGS, Readings, read_odds, reading_features
from context_agent.policies.bridge.score_calibration import (
    EVIDENCE,
    STOPPING,
    Evidence,
    ScoreCalibration,
    sigmoid,
    stopping_features,
)
from context_agent.retrieval.corpus import Corpus


def document_rows(notes: Notes, scores: Floats) -> list[int]:
    """Return the row of each document's best candidate, best first."""
    best: dict[str, int] = {}
    for row in np.argsort(-scores, kind="stable"):
        best.setdefault(notes.candidates[int(row)].document_id, int(row))
    return list(best.values())


MAX_WEIGHTS_BYTES = 64_000_000
"""The largest file of weights that is read."""
FORMAT = 2
"""The version of the features.

It grows when the meaning of a feature changes. Weights of another format are refused.
"""
SHIPPED = "weights.safetensors"
HEAD = "reader.head"
"""The tensor that corrects the reader."""
MOST_OPEN = 0.2
"""The share of a question with names that the best passage may leave open if more searches are to be spared."""
RANKER = "ranker"
"""The trees of the final ranking. Weights without them rank by the networks."""
CLIP = 4.0
"""Scaled inputs are clipped to this many spreads from the mean."""

READING = "reading"
"""The network that combines the scores with the reader's."""
INPUTS: Mapping[str, tuple[str, ...]] = {
    "first": DIRECT,
    "second": DIRECT + LINKS,
    READING: READINGS,
    "expansion": EXPANSION,
}
"""The networks and their inputs: candidates alone, with their links, with what the reader says, and promising names."""
CALIBRATED = "evidence"
"""The metadata key with the features of the calibration. A file without a calibration does not have it."""
FEATURES: Mapping[str, str] = {
    "inputs": json.dumps(INPUTS),
    CALIBRATED: json.dumps(EVIDENCE),
    RANKER: json.dumps(RANKING),
}
"""The features of the networks, the calibration and the ranker, as a file's metadata states them.

A file without a ranker does not state the ranker's features.
"""


@dataclass(frozen=True)
class Scaling:
    """The mean and spread of each input, and which inputs may be missing. All arrays have shape (n_inputs,).

    A missing input counts as average. Each input that may be missing has a flag, which is set if it is missing.
    """

    mean: Floats
    spread: Floats
    optional: Floats

    @classmethod
    def of(cls, rows: Floats, optional: Floats) -> Scaling:
        """Return the scaling for training rows of shape (n_rows, n_inputs). Missing values are NaN.

        `optional` marks further inputs that may be missing.
        """
        present = np.isfinite(rows)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.where(present, rows, 0).sum(axis=0) / count
        variance = (np.where(present, rows - mean, 0) ** 2).sum(axis=0) / count
        missing = np.maximum(optional, (~present).any(axis=0))
        return cls(*(np.asarray(part, dtype=np.float32) for part in (mean, np.sqrt(variance) + 1e-3, missing)))

    def __call__(self, rows: Floats) -> Floats:
        """Return the scaled rows, shape (n_rows, n_inputs + n_flags)."""
        scaled = np.nan_to_num(np.clip((rows - self.mean) / self.spread, -CLIP, CLIP))
        flags = np.isnan(rows[:, self.optional > 0])
        return np.concatenate([scaled, flags], axis=1).astype(np.float32)


Layers = tuple[tuple[Floats, Floats], ...]
"""The weights (inputs, outputs) and biases (outputs,) of each layer, with ReLU between layers."""


@dataclass(frozen=True)
class Network:
    """The mean logit of several small networks over the same inputs."""

    scaling: Scaling
    members: tuple[Layers, ...]

    def __call__(self, rows: Floats) -> Floats:
        """Return a probability for each row, shape (n_rows,). The rows have shape (n_rows, n_inputs)."""
        return sigmoid(self.logits(rows))

    def logits(self, rows: Floats) -> Floats:
        """Return the log-odds for each row, shape (n_rows,). The rows have shape (n_rows, n_inputs)."""
        inputs = self.scaling(rows)
        return np.asarray(np.mean([forward(layers, inputs) for layers in self.members], axis=0))


def forward(layers: Layers, inputs: Floats) -> Floats:
    """Return the logits of one network, shape (n_rows,), for inputs of shape (n_rows, n_inputs)."""
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight + bias, 0)
    weight, bias = layers[-1]
    return np.asarray((hidden @ weight + bias)[:, 0])


@dataclass(frozen=True)
class Scorer:
    """The networks by name (see `INPUTS`), a digest of their weights, and the calibration of their scores.

    Training adds the other parts later, so each of them may be None. `calibration` turns the scores into probabilities.
    Without it, the scores are used unchanged, and the confidence is unknown. `head` corrects the reader's log-odds. It
    has a weight for each column of the reader's rows, and a constant, shape (width + 1,). `ranker` makes the final
    ranking. Without it, the networks make it.
    """

    networks: Mapping[str, Network]
    digest: str
    calibration: ScoreCalibration | None = None
    head: Floats | None = None
    ranker: Trees | None = None

    @classmethod
    def of(
        cls,
        networks: Mapping[str, Network],
        calibration: ScoreCalibration | None = None,
        head: Floats | None = None,
        ranker: Trees | None = None,
    ) -> Scorer:
        """Return the scorer of newly trained networks."""
        digest = _digest(_tensors(networks, calibration, head), ranker)
        return cls(networks, digest, calibration, head, ranker)

    @classmethod
    def shipped(cls) -> Scorer:
        """Return the weights that ship with the package."""
        path = files("context_agent.policies.bridge") / SHIPPED
        return cls.parse(path.read_bytes(), str(path))

    @classmethod
    def load(cls, path: str | Path) -> Scorer:
        """Read the weights from a file, and return them.

        If the file cannot be read, or its weights were trained on other features, raise `ConfigError`.
        """
        try:
            return cls.parse(read_bytes(path, MAX_WEIGHTS_BYTES), str(path))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot read the weights {path} ({reason_of(error)}). Pass a file of `ctx1 train bridge`."
            ) from error

    @classmethod
    def parse(cls, data: bytes, origin: str) -> Scorer:
        """Read the weights from the bytes of a safetensors file. Errors name the file as `origin`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(data)
            notes = _metadata(data)
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{origin} has no weights of a bridge policy ({error}). Pass a file of `ctx1 train bridge`."
            ) from error
        stored = {name: notes[name] for name in FEATURES if name in notes}
        if notes.get("format") != str(FORMAT) or "inputs" not in stored or not stored.items() <= FEATURES.items():
            raise ConfigError(f"{origin} was trained on other features. Train it again with `ctx1 train bridge`.")
        trees = {
            name.removeprefix(f"{RANKER}."): tensors.pop(name) for name in list(tensors) if name.startswith(RANKER)
        }
        tensors = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
        try:
            _check_finite(tensors)
            networks = {name: _network(tensors, name, len(inputs)) for name, inputs in INPUTS.items()}
            calibration = _calibration(tensors) if CALIBRATED in stored else None
            ranker = Trees.of(trees, len(RANKING)) if RANKER in stored else None
        except (KeyError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"{origin} lacks weights, or has damaged ones ({error}). Train it again with `ctx1 train bridge`."
            ) from error
        return cls(networks, _digest(tensors, ranker), calibration, tensors.get(HEAD), ranker)

    def save(self, path: str | Path, notes: Mapping[str, str] | None = None) -> None:
        """Write the weights with `notes` as metadata. The networks' weights are written in half precision.

        The file is replaced atomically.
        """
        metadata = {**(notes or {}), "format": str(FORMAT), "inputs": FEATURES["inputs"]}
        if self.calibration is not None:
            metadata[CALIBRATED] = FEATURES[CALIBRATED]
        tensors = _tensors(self.networks, self.calibration, self.head)
        # safetensors writes the memory as it lies, so arrays in column order would come back scrambled.
        stored: dict[str, NDArray[Any]] = {name: tensor.astype(np.float16, "C") for name, tensor in tensors.items()}
        if self.ranker is not None:
            metadata[RANKER] = FEATURES[RANKER]
            stored |= {f"{RANKER}.{name}": tensor for name, tensor in self.ranker.tensors().items()}
        with replacing(Path(path), shared=True) as file:
            file.write(weight_file(stored, metadata))


def _metadata(data: bytes) -> dict[str, str]:
    size = int.from_bytes(data[:8], "little")
    return dict(parse_json(data[8 : 8 + size]).get("__metadata__") or {})


def _check_finite(tensors: Mapping[str, Floats]) -> None:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ValueError(f"{name} has numbers that are not finite")


def _calibration(tensors: Mapping[str, Floats]) -> ScoreCalibration:
    """Return the calibration. If tensors are missing or do not fit, raise `KeyError` or `ValueError`."""
    evidence, relevance = tensors["calibration.evidence"], tensors["calibration.relevance"]
    stopping = tensors.get("calibration.stopping")
    if evidence.shape != (2, 1 + len(EVIDENCE)) or relevance.shape != (3,):
        raise ValueError("the calibration has the wrong number of features")
    if stopping is not None and stopping.shape != (2, 1 + len(STOPPING)):
        raise ValueError("the decision to stop has the wrong number of features")
    return ScoreCalibration(evidence, relevance, stopping)


def _tensors(
    networks: Mapping[str, Network], calibration: ScoreCalibration | None = None, head: Floats | None = None
) -> dict[str, Floats]:
    tensors: dict[str, Floats] = {} if head is None else {HEAD: head}
    if calibration is not None:
        tensors |= {"calibration.evidence": calibration.evidence, "calibration.relevance": calibration.relevance}
        if calibration.stopping is not None:
            tensors["calibration.stopping"] = calibration.stopping
    for name, network in networks.items():
        scaling = network.scaling
        tensors |= {
            f"{name}.mean": scaling.mean,
            f"{name}.spread": scaling.spread,
            f"{name}.optional": scaling.optional,
        }
        for member, layers in enumerate(network.members):
            for depth, (weight, bias) in enumerate(layers):
                tensors[f"{name}.{member}.{depth}.weight"] = weight
                tensors[f"{name}.{member}.{depth}.bias"] = bias
    return tensors


def _network(tensors: Mapping[str, Floats], name: str, inputs: int) -> Network:
    """Return the network with this name. If tensors are missing or do not fit, raise `KeyError` or `ValueError`."""
    scaling = Scaling(*(tensors[f"{name}.{part}"] for part in ("mean", "spread", "optional")))
    members: list[Layers] = []
    while f"{name}.{len(members)}.0.weight" in tensors:
        layers: list[tuple[Floats, Floats]] = []
        while (weight := tensors.get(f"{name}.{len(members)}.{len(layers)}.weight")) is not None:
            layers.append((weight, tensors[f"{name}.{len(members)}.{len(layers)}.bias"]))
        members.append(tuple(layers))
    _check_shapes(name, inputs, scaling, members)
    return Network(scaling, tuple(members))


def _check_shapes(name: str, inputs: int, scaling: Scaling, members: Sequence[Layers]) -> None:
    parts = (scaling.mean, scaling.spread, scaling.optional)
    if not members or any(part.shape != (inputs,) for part in parts):
        raise ValueError(f"the network {name!r} must have members with {inputs} inputs")
    if not (scaling.spread > 0).all():
        raise ValueError(f"a spread of the network {name!r} is not positive")
    for layers in members:
        width = inputs + int(np.count_nonzero(scaling.optional > 0))
        for weight, bias in layers:
            if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
                raise ValueError(f"a layer of the network {name!r} does not fit the output of the layer before")
            width = weight.shape[1]
        if not width:
            raise ValueError(f"the network {name!r} has no output")


def _digest(tensors: Mapping[str, Floats], ranker: Trees | None = None) -> str:
    digest = blake2b(digest_size=4)
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].astype(np.float16).tobytes())
    for name, tensor in sorted(ranker.tensors().items()) if ranker else ():
        digest.update(name.encode() + tensor.tobytes())
    return digest.hexdigest()


class Cosines:
    """The similarities between queries and candidates.

    The corpus computes each similarity once. If the corpus has no useful vectors, the similarities are NaN.
    """

    def __init__(self, notes: Notes, corpus: Corpus) -> None:
        self._notes = notes
        self._corpus = corpus
        self._trusted = _dense_weight(corpus) > 0
        self._by_query: dict[str, Floats] = {}

    def of(self, query: str) -> Floats:
        """Return the query's cosine with each candidate, shape (n_candidates,)."""
        cosines = self._by_query.get(query, np.zeros(0, dtype=np.float32))
        fresh = [candidate.id for candidate in self._notes.candidates[len(cosines) :]]
        if fresh:
            new = self._corpus.similarity(query, fresh) if self._trusted else np.full(len(fresh), np.nan)
            cosines = self._by_query[query] = np.concatenate([cosines, new.astype(np.float32)])
        return cosines

    def rest(self, parents: Sequence[int]) -> Floats:
        """Return the cosine of each parent's query with each candidate, shape (n_parents, n_candidates).

        The query is the parent's title and the terms that it leaves open.
        """
        notes = self._notes
        passages = [notes.candidates[row].passage for row in parents]
        return np.stack([self.of(f"{passage.bare} {notes.question.rest(passage)}") for passage in passages])


class RelevanceJudgment:
    """The scoring of candidates.

    The first network scores each candidate alone. The second also uses the links to the best candidates. Then the
    reader's judgment is combined with these scores.
    """

    def __init__(self, notes: Notes, corpus: Corpus, scorer: Scorer | None, reader: PairModel) -> None:
        self.notes = notes
        self._scorer = scorer
        self._calibration, self._head, self._ranker = (
            (scorer.calibration, scorer.head, scorer.ranker) if scorer else (None, None, None)
        )
        self._readings = Readings(notes, reader)
        self._text = TextFeatures(notes)
        self._links = Links(notes)
        self._cosines = Cosines(notes, corpus)
        self.corpus_size = corpus.count()
        """The number of chunks in the corpus, for the calibration."""
        self.rows: Floats = np.zeros((0, len(INPUTS["second"])), dtype=np.float32)
        """The second network's inputs at the last scoring."""
        self._odds = np.zeros(0, dtype=np.float32)
        """The second network's log-odds, shape (n,)."""
        self._late = np.zeros(0, dtype=np.float32)
        """Late interaction in the final ranking, shape (n,). From a scoring to the next final ranking, empty."""

    def scores(self) -> Floats:
        """Return the probability that each candidate belongs to the answer, shape (n_candidates,)."""
        if not len(self.notes):
            return np.zeros(0, dtype=np.float32)
        if self._scorer is None:
            return self._guess()
        self._late = self._late[:0]
        networks = self._scorer.networks
        first_inputs = self.first_inputs()
        self.rows = self.second_inputs(first_inputs, networks["first"](first_inputs))
        self._odds = networks["second"].logits(self.rows)
        return self._combined(networks)

    def read(self, scores: Floats) -> Floats:
        """Let the reader read the best candidates, and return the new scores, shape (n_candidates,).

        `scores` are the current scores of the same candidates. If there are no weights, they are returned unchanged.
        """
        if self._scorer is None or not len(scores):
            return scores
        if len(self._odds) < len(scores):
            self.scores()
        self._readings.update(scores)
        return self._combined(self._scorer.networks)

    def read_alone(self) -> None:
        """Let the reader read candidates with the question alone, without evidence.

        It reads the candidates that the networks rank best, and the candidates that the search found first.
        """
        if self._scorer is not None:
            self._readings.read_alone(asked_order(self.notes, self._odds))

    def combined_scores(self) -> Floats:
        """Return the networks' scores after the last scoring or reading, shape (n_candidates,)."""
        networks = self._scorer.networks if self._scorer else {}
        return self._combined(networks) if networks else self._guess()

    def coverage(self) -> Floats:
        """Return how well each candidate covers each term of the question, shape (n_candidates, n_terms)."""
        return self._text.rows()[1]

    def ranking_scores(self, scores: Floats, compared: int) -> Floats:
        """Return the scores of the final ranking, given the scores of the same candidates.

        If there is no ranker, the scores do not change. The trees rank the candidates without late interaction first,
        and again with that of the `compared` best candidates.
        """
        if self._ranker is None or not len(scores):
            return scores
        inputs, added = self.ranking_inputs(), identifier_odds(self.notes)
        self._late = late_scores(self.notes, compared_rows(self._ranker(inputs) + added, compared))
        return sigmoid(self._ranker(with_late_interaction(inputs, self._late)) + added)

    def late_interaction(self, scores: Floats, compared: int) -> Floats:
        """Return the late interaction of the `compared` best candidates with the question, shape (n_candidates,).

        The other candidates have NaN, unless the final ranking compared them.
        """
        late = self._late if len(self._late) else np.full(len(scores), np.nan, dtype=np.float32)
        rows = compared_rows(scores, compared)
        return np.fmax(late, late_scores(self.notes, rows[np.isnan(late[rows])]))

    def suffices(self) -> float:
        """Return the probability that more searches would not improve the final ranking. If it is unknown, return 0."""
        calibration, ranker = self._calibration, self._ranker
        if calibration is None or calibration.stopping is None or ranker is None or not len(self._odds):
            return 0.0
        rows = self.ranking_inputs()
        scores = sigmoid(ranker(rows) + identifier_odds(self.notes))
        question = self.notes.question
        named = float(question.weight[question.in_name].sum())
        # Another passage often says what the question says beside its names and the best passage does not.
        open_share = 1 - float(self.coverage()[int(scores.argmax())] @ question.weight)
        if named > 0 and open_share > MOST_OPEN:
            return 0.0
        best = scores[document_rows(self.notes, scores)]
        return calibration.suffices(stopping_features(rows, best.tolist(), named))

    def ranking_inputs(self, *, read: bool = True) -> Floats:
        """Return the ranker's inputs after the last scoring, shape (n_candidates, len(RANKING)).

        If `read` is false, the reader's inputs are left out.
        """
        combined = said = alone = np.full(len(self._odds), np.nan, dtype=np.float32)
        if read and self._readings and self._scorer is not None:
            combined = self._scorer.networks[READING].logits(self.reading_inputs(self._odds))
        if read:
            said, alone = self._read_odds(), self._alone_odds()
        judgments = Judgments(self._odds, combined, said, alone)
        cosines = self._cosines.of(self.notes.question.text)
        return ranking_features(self.notes, self.rows, cosines, judgments, corpus_size=self.corpus_size)

    def _combined(self, networks: Mapping[str, Network]) -> Floats:
        """Return the scores, shape (n_candidates,).

        They combine the second network's log-odds with the reader's judgment.
        """
        return networks[READING](self.reading_inputs(self._odds)) if self._readings else sigmoid(self._odds)

    def reading_inputs(self, odds: Floats) -> Floats:
        """Return the inputs of the network `READING`, shape (n_candidates, len(READINGS)).

        They depend on the second network's log-odds.
        """
        return reading_features(self.notes, odds, self._read_odds())

    def evidence(self, scores: Floats, *, read: bool = True) -> Floats:
        """Return the features of the evidence from the candidates' scores. There must be at least one candidate.

        If `read` is false, return the features as in an episode without the reader.
        """
        unknown = np.full(len(scores), np.nan, dtype=np.float32)
        # The reader does not know that two notations are one date or code.
        renoted = identifier_odds(self.notes, only_renoted=True)
        heard = np.fmax(self._read_odds(), self._alone_odds()) + renoted if read else unknown
        late = self._late if len(self._late) else unknown
        text, coverage = self._text.rows()
        cosines, words = self._cosines.of(self.notes.question.text), text[:, TEXT_FEATURES.index("bm25")]
        question = self.notes.question
        size = self.corpus_size
        return Evidence(
            question.weight, question.in_name, coverage, scores, cosines, words, late, heard, size
        ).features()

    def unread_scores(self) -> Floats:
        """Return the scores of the last scoring without the reader, shape (n_candidates,).

        Late interaction counts if the final ranking used it.
        """
        if self._ranker is None:
            return sigmoid(self._odds)
        inputs = self.ranking_inputs(read=False)
        return sigmoid(self._ranker(with_late_interaction(inputs, self._late) if len(self._late) else inputs))

    def _read_odds(self) -> Floats:
        """Return the reader's log-odds, shape (n_candidates,). A candidate that the reader did not read has NaN."""
        return read_odds(self._readings.rows(), self._head)

    def _alone_odds(self) -> Floats:
        """Return the reader's log-odds with the question alone, shape (n_candidates,).

        A candidate that the reader did not read has NaN.
        """
        return read_odds(self._readings.rows_alone(), self._head)

    def calibrated(self, scores: Floats) -> tuple[float | None, Floats]:
        """Return the confidence that the corpus answers the question.

        Also return each candidate's probability, shape (n_candidates,).

        If there is no calibration, return None and the unchanged scores.
        """
        if self._calibration is None:
            return None, scores
        confidence = self._calibration.confidence(self.evidence(scores)) if len(scores) else 0.0
        return confidence, self._calibration.probabilities(scores, confidence)

    def _guess(self) -> Floats:
        """Return scores by a rule of thumb.

        A candidate is as good as its words, or nearly as good as the candidates that link to it.
        """
        text, coverage = self._text.rows()
        guess = relevance_guess(text, self._cosines.of(self.notes.question.text))
        links = self._links.features(guess, coverage, self._cosines.rest)
        return np.maximum(guess, np.minimum(0.85, links[:, LINKS.index("link_score")]))

    def first_inputs(self) -> Floats:
        """Return the first network's inputs, shape (n_candidates, len(DIRECT))."""
        text, _ = self._text.rows()
        question = self.notes.question
        clause_cosines = np.stack([self._cosines.of(clause) for clause in question.clauses], axis=1)
        return direct_features(self.notes, text, self._cosines.of(question.text), self._text.clauses(), clause_cosines)

    def second_inputs(self, first_inputs: Floats, scores: Floats) -> Floats:
        """Return the second network's inputs, shape (n_candidates, len(DIRECT + LINKS)).

        They depend on the first network's scores.
        """
        _, coverage = self._text.rows()
        return np.concatenate([first_inputs, self._links.features(scores, coverage, self._cosines.rest)], axis=1)


def _dense_weight(corpus: Corpus) -> float:
    """Return the weight of the corpus's vectors by the corpus's calibration. If it has no calibration, return 1."""
    weights = getattr(getattr(corpus, "calibration", None), "weights", {})
    return float(weights.get("dense", 1.0))
