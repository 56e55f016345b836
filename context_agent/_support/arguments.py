"""Checks of the arguments that a Python caller passes. They name the argument, its value, and what to pass instead."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as brief
from typing import Any, TypeVar

from context_agent.errors import ConfigError

T = TypeVar("T")


def whole_number(value: object, name: str, *, least: int | None = None) -> int:
    """Return a whole number as an `int`. A number of numpy counts as well, but True and False do not.

    Raises:
        ConfigError: If the value is anything else, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise ConfigError(f"`{name}` must be a whole number{bound}; got {_described(value)}")
    return int(value)


def real_number(value: object, name: str) -> float:
    """Return a whole number as an `int`, and another number as a `float`. Numbers of numpy count as well.

    Raises:
        ConfigError: If the value is anything else, NaN, or too large for a float.
    """
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        raise ConfigError(f"`{name}` must fit into a float; got {_described(value)}") from None
    if math.isnan(number):
        raise ConfigError(f"`{name}` must be a number; got {_described(value)}")
    return int(value) if isinstance(value, Integral) else number


def folder_path(value: object, name: str) -> Path:
    """Return a path from text or a path object.

    Raises:
        ConfigError: If the value is neither, or if it has a null character.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError(f"`{name}` must be a path, as text or as a pathlib.Path; got {_described(value)}")
    return Path(text)


def require_utf8(path: Path) -> Path:
    """Return a path that the libraries of an index can open.

    Raises:
        ConfigError: If the path has bytes that are not UTF-8. Chroma and tantivy take paths as text.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the path {str(path)!a} has bytes that are not UTF-8, so it cannot be the folder of an index. Rename the "
            "folder, or pass another one."
        ) from None
    return path


def require_members(value: object, name: str, members: Iterable[str], expected: str) -> None:
    """Raise `ConfigError` if an object lacks one of the members, or if it is a class instead of an object."""
    lacking = [member for member in members if not _has(value, member)]
    if isinstance(value, type):
        raise ConfigError(f"`{name}` must be {expected}; got the class {value.__name__}. Pass an object of it.")
    if lacking:
        raise ConfigError(f"`{name}` must be {expected}; got {_described(value)}, which has no {lacking[0]!r}")


def _has(value: object, member: str) -> bool:
    # `hasattr` reads a property, which may call a model. It is needed only for an object with `__getattr__`.
    return inspect.getattr_static(value, member, None) is not None or hasattr(value, member)


def require_type(value: object, name: str, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise `ConfigError` if the value has none of the types."""
    if not isinstance(value, kinds):
        raise ConfigError(f"`{name}` must be {expected}; got {_described(value)}")


def require_callable(value: object, name: str) -> None:
    """Raise `ConfigError` if the value cannot be called."""
    if not callable(value):
        raise ConfigError(f"`{name}` must be a function; got {_described(value)}")


def items_of(values: Iterable[T], name: str, expected: str) -> Iterable[T]:
    """Return the values, which may be any iterable.

    Raises:
        ConfigError: If the value cannot be iterated, or if it is text or bytes.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigError(f"`{name}` must be {expected}; got {_described(values)}")
    return values


def _described(value: Any) -> str:
    return f"{brief(value)} ({type(value).__name__})"
