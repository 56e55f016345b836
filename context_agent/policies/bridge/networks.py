"""The weights of the embedded policy: small networks, which numpy computes, and the file that has them.

A file of safetensors has the weights, the scaling of the inputs, the calibration of the scores, the correction of the
reader and the trees of the final ranking.
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
from context_agent._support.small_files import parse_json, read_bytes
from context_agent._support.weight_files import weight_file
from context_agent.errors import ConfigError, reason_of
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import EXPANSION, LINK_FEATURES
from context_agent.policies.bridge.ranking import RANKING, Trees
from context_agent.policies.bridge.reader import READINGS
from context_agent.policies.bridge.score_calibration import EVIDENCE, STOPPING, ScoreCalibration, sigmoid

MAX_WEIGHTS_BYTES = 64_000_000
"""The largest file of weights that is read."""
FEATURES_VERSION = 2
"""The version of the features.

It grows when the meaning of a feature changes. Weights of another format are refused.
"""
SHIPPED_WEIGHTS = "weights.safetensors"
HEAD = "reader.head"
"""The tensor that corrects the reader."""
RANKER = "ranker"
"""The trees of the final ranking. Weights without them rank by the networks."""
CLIP = 4.0
"""Scaled inputs are clipped to this many spreads from the mean."""

READING = "reading"
"""The network that combines the scores with the reader's."""
INPUTS: Mapping[str, tuple[str, ...]] = {
    "first": DIRECT,
    "second": DIRECT + LINK_FEATURES,
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
        path = files("context_agent.policies.bridge") / SHIPPED_WEIGHTS
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
        if (
            notes.get("format") != str(FEATURES_VERSION)
            or "inputs" not in stored
            or not stored.items() <= FEATURES.items()
        ):
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
        metadata = {**(notes or {}), "format": str(FEATURES_VERSION), "inputs": FEATURES["inputs"]}
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
