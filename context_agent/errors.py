"""All exceptions that this package raises on purpose.

    ContextAgentError
    ├── ConfigError            an option, a config file or a budget that cannot work
    │   └── UnknownEmbedderError   a collection of another program whose embedder is unknown or may not be used
    ├── MissingExtraError      an optional dependency is missing or of a wrong version; names the extra
    ├── DataError              a source, a question file or a trajectory that cannot be read
    │   ├── TrajectoryError    a trajectory that is cut, has another schema, or does not replay
    │   ├── DivergenceError    a training loss, a gradient or weights that are not finite
    │   └── FeedbackLimitError a judgment that is too large, or a log of judgments that is full
    ├── CorpusError            a corpus or index that cannot be used
    │   ├── CorpusNotFoundError    no such folder, collection or document
    │   ├── CorpusEmptyError       nothing to search in
    │   ├── CorpusCorruptError     the index on disk is damaged or half-written
    │   ├── CorpusLockedError      another process is writing
    │   ├── DimensionError         vectors of another size than the collection's
    │   └── PatternError           a regular expression that the engine refuses
    ├── EmbedderError          an embedding model or endpoint failed
    ├── RerankerError          a reranking model or endpoint failed
    ├── ServerError            a model or search server that refused a request or did not answer
    ├── PolicyError            a policy that cannot continue (a server down, weights missing)
    ├── BudgetError            a question or an edit that the token budget cannot hold
    └── EpisodeError           an episode used in a way it does not allow (stepped after its end)

A model's mistake inside an episode is never an exception. It becomes a tool result that the model reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

_DOUBLE_STOP = re.compile(r"(?<=[\w)\]}>'\"`%»”’])([.?!])\.(?=\s|$)|(?<!\.)\.(?=\)\.(?:\s|$))")
_OS_NUMBER = re.compile(r"^\[Errno \d{1,9}\] | \(os error \d{1,9}\)")
_SENTENCE_END = re.compile(r"(?<=[\w)\]'\"`])\. (?=[A-Z])")


def single_stops(text: str) -> str:
    """Return the text without a full stop after another mark, or at the end of parentheses before a full stop.

    A message that ends with a full stop may be a part of another message, as in `f"{error}. Pass --model."`.
    """
    return _DOUBLE_STOP.sub(r"\1", text)


def joined_reasons(texts: Iterable[str], remedy: str) -> tuple[str, str]:
    """Return the first sentences of several messages as one text, and the remedy for all of them.

    If their other sentences are the same, these are the remedy. Otherwise it is `remedy`.
    """
    parts = [_SENTENCE_END.split(text, maxsplit=1) for text in texts]
    remedies = {part[1] for part in parts if len(part) == 2}
    return "; ".join(part[0].removesuffix(".") for part in parts), remedies.pop() if len(remedies) == 1 else remedy


def reason_of(error: BaseException, *, inside: Path | None = None) -> str:
    """Return why an operation failed, without the number that the operating system or a library in Rust gives.

    With `inside`, the reason also names the file in this folder.
    """
    if not isinstance(error, OSError) or not error.strerror:
        text = f"{error} is missing" if isinstance(error, KeyError) and error.args else str(error)
        return _OS_NUMBER.sub("", text) or type(error).__name__
    if inside is None or not error.filename:
        return error.strerror
    file = Path(os.fsdecode(error.filename))
    return f"{file.relative_to(inside) if file.is_relative_to(inside) else file}: {error.strerror}"


class ContextAgentError(Exception):
    """Base of all errors of this package. Catch it to catch whatever the package raises on purpose."""

    def __init__(self, message: object = "") -> None:
        super().__init__(single_stops(str(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the values from which pickle restores the error in another process.

        They include its message, but no arguments of its class.
        """
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[ContextAgentError], arguments: tuple[Any, ...]) -> ContextAgentError:
    return kind.__new__(kind, *arguments)


class ConfigError(ContextAgentError):
    """An option, a config file or a combination of them cannot work."""


class UnknownEmbedderError(ConfigError):
    """The embedder of another program's collection is unknown, or this package may not use it."""


class MissingExtraError(ContextAgentError):
    """An optional dependency is missing, or the `installed` version is not the `required` one."""

    def __init__(self, package: str, extra: str, installed: str = "", required: str = "") -> None:
        wrong = (
            f"{package} {installed} is installed, but {required} is needed"
            if installed
            else f"{package} is not installed"
        )
        super().__init__(f'{wrong}. Run `pip install "context-agent[{extra}]"`.')


class DataError(ContextAgentError):
    """A source, a question file or a trajectory cannot be read."""


class TrajectoryError(DataError):
    """A trajectory is cut, has another schema, or does not replay."""


class DivergenceError(DataError):
    """Training diverged: a loss, a gradient or the weights are not finite."""


class FeedbackLimitError(DataError):
    """A judgment is too large, or a log of judgments is full."""


class CorpusError(ContextAgentError):
    """A corpus cannot be used."""


class CorpusNotFoundError(CorpusError):
    """The folder, collection or document does not exist."""


class CorpusEmptyError(CorpusError):
    """The corpus has nothing to search in."""


class CorpusCorruptError(CorpusError):
    """The index on disk is damaged or half-written."""

    @classmethod
    def of(cls, file: Path, error: BaseException) -> Self:
        """Return the error for a damaged file or folder of a snapshot.

        `error` is the error that a library raised for it.
        """
        return cls(
            f"{file} is damaged ({str(error)[:200]}). Delete the folder {file.parent}. It is made again from the "
            "collection when the index is next opened."
        )

    @classmethod
    @contextmanager
    def reading(cls, folder: Path) -> Iterator[None]:
        """Convert the errors of a library that reads damaged files of a snapshot in the block into this error.

        Tantivy panics on some damaged files, and Python receives the panic as a `BaseException`.
        """
        try:
            yield
        except (ContextAgentError, MemoryError):
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise cls.of(folder, error) from error


class CorpusLockedError(CorpusError):
    """Another process is writing to the same folder."""


class DimensionError(CorpusError):
    """Vectors have another size than the collection's."""


class PatternError(CorpusError):
    """The linear-time engine refuses a regular expression."""


class EmbedderError(ContextAgentError):
    """An embedding model or endpoint failed."""


class RerankerError(ContextAgentError):
    """A reranking model or endpoint failed."""


class ServerError(ContextAgentError):
    """A model or search server that refused a request or did not answer."""


class PolicyError(ContextAgentError):
    """A policy cannot continue."""


class BudgetError(ContextAgentError):
    """The token budget cannot hold a question or an edit."""


class EpisodeError(ContextAgentError):
    """An episode was used in a way that it does not allow."""
