"""The learned judge: a small network that computes the score of a passage from its features, and its shipped weights.

The network was trained on labeled results of tools (`scripts/build_pruner.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from context_agent.errors import ConfigError, reason_of
from context_agent.pruning.features import FEATURES

JUDGE_FORMAT = "ctx1-judge-1"
SHIPPED_JUDGE = "judge.safetensors"
MAX_FILE_BYTES = 1_000_000
MOST_DEVIATIONS = 4.0
"""The largest distance of an input from its mean, in standard deviations. Larger distances are clipped."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class JudgeNetwork:
    """A network with one hidden layer of rectified units.

    Each input is standardized, and a missing one is 0. A flag for each input in `optional` follows the inputs. It is 1
    if the input is missing.

    Attributes:
        mean: The mean of each input, shape (n_inputs,).
        spread: The standard deviation of each input, shape (n_inputs,).
        optional: The indices of the inputs that may be missing, shape (n_optional,).
        hidden: The weights of the hidden layer, shape (n_inputs + n_optional, n_hidden).
        hidden_bias: The biases of the hidden layer, shape (n_hidden,).
        output: The weights of the output, shape (n_hidden,).
    """

    mean: Floats
    spread: Floats
    optional: NDArray[np.int64]
    hidden: Floats
    hidden_bias: Floats
    output: Floats

    def __call__(self, rows: Floats) -> NDArray[np.float64]:
        """Return the score of each row, shape (n_rows,). The rows have shape (n_rows, n_inputs)."""
        inputs = np.clip((rows - self.mean) / self.spread, -MOST_DEVIATIONS, MOST_DEVIATIONS)
        inputs = np.concatenate([np.nan_to_num(inputs), np.isnan(rows[:, self.optional])], axis=1)
        layer = np.maximum(inputs.astype(np.float64) @ self.hidden.astype(np.float64) + self.hidden_bias, 0.0)
        return np.asarray(layer @ self.output.astype(np.float64))

    @classmethod
    def load(cls, file: Path) -> JudgeNetwork:
        """Return the network in a safetensors file.

        Raises:
            ConfigError: If the file cannot be read, is not a network for today's features, or has numbers that are not
                finite.
        """
        remedy = "Reinstall context-agent."
        try:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise ConfigError(f"{file} is too large for a judge. {remedy}")
            with safe_open(file, framework="numpy") as opened:
                metadata = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in cls.__slots__}
            floats = {name: np.asarray(it, np.float32) for name, it in tensors.items() if name != "optional"}
            network = cls(optional=np.asarray(tensors["optional"], np.int64), **floats)
        except OSError as error:
            raise ConfigError(f"cannot read the judge {file} ({reason_of(error)}). {remedy}") from error
        except (SafetensorError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} is not a judge ({error}). {remedy}") from error
        if metadata.get("format") != JUDGE_FORMAT or metadata.get("features") != " ".join(FEATURES):
            raise ConfigError(f"{file} was made for other features. {remedy}")
        if problem := network._problem():
            raise ConfigError(f"{file} has a damaged judge ({problem}). {remedy}")
        return network

    def _problem(self) -> str:
        """Return what is wrong with the shapes or the numbers. If nothing is, return an empty string."""
        n_inputs, n_hidden = len(FEATURES), self.output.shape[0] if self.output.ndim else 0
        shapes: dict[str, tuple[int, ...]] = {
            "mean": (n_inputs,),
            "spread": (n_inputs,),
            "hidden_bias": (n_hidden,),
            "output": (n_hidden,),
            "hidden": (n_inputs + self.optional.size, n_hidden),
        }
        for name, shape in shapes.items():
            values = getattr(self, name)
            if values.shape != shape or not n_hidden:
                return f"the shape of {name} is {values.shape}"
            if not np.isfinite(values).all():
                return f"{name} has numbers that are not finite"
        if self.optional.ndim != 1:
            return f"the shape of optional is {self.optional.shape}"
        if not ((self.optional >= 0) & (self.optional < n_inputs)).all():
            return "optional has a number that is not the index of an input"
        return "" if (self.spread > 0).all() else "a spread is not positive"

    def to_bytes(self) -> bytes:
        """Return the contents of a file that `load` can read."""
        # safetensors writes arrays in the order of their memory, so arrays in column order would come back scrambled.
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in self.__slots__}
        return save(tensors, {"format": JUDGE_FORMAT, "features": " ".join(FEATURES)})


@cache
def shipped_network() -> JudgeNetwork:
    """Return the judge that ships with the package."""
    return JudgeNetwork.load(Path(__file__).with_name(SHIPPED_JUDGE))
