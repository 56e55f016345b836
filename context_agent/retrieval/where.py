"""Chroma's metadata filters, evaluated in Python for corpora that have no store to do it.

Follows Chroma: a chunk without the key fails every comparison but `$ne` and `$nin`, and values of different types are
never equal (`1` is not `1.0`, nor `True`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from context_agent.errors import ConfigError
from context_agent.retrieval.protocol import Where

Predicate = Callable[[Mapping[str, Any]], bool]


def compile_where(where: Where) -> Predicate:
    """A test of one chunk's metadata. Raises `ConfigError` for an unknown operator or a malformed filter."""
    if len(where) != 1:
        raise ConfigError(f"a metadata filter has exactly one key, join several by $and: got {where!r}")
    ((key, condition),) = where.items()
    if key in ("$and", "$or"):
        return _junction(key, condition)
    if key.startswith("$"):
        raise ConfigError(f"unknown operator {key!r} in a metadata filter: use $and, $or or a metadata key")
    if not isinstance(condition, Mapping):
        condition = {"$eq": condition}
    if len(condition) != 1:
        raise ConfigError(f"metadata key {key!r} needs exactly one operator: got {condition!r}")
    ((name, value),) = condition.items()
    return _comparison(key, name, value)


def _junction(name: str, parts: Any) -> Predicate:
    if not isinstance(parts, list) or len(parts) < 2:
        raise ConfigError(f"{name} takes a list of at least two filters: got {parts!r}")
    tests = [compile_where(part) for part in parts]
    join = all if name == "$and" else any
    return lambda metadata: join(test(metadata) for test in tests)


def _comparison(key: str, name: str, value: Any) -> Predicate:
    if name in ("$in", "$nin"):
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{name} takes a list with at least one value: got {value!r}")
        wanted, negated = value, name == "$nin"
        return lambda metadata: negated != (key in metadata and any(_same(metadata[key], one) for one in wanted))
    if name == "$eq":
        return lambda metadata: key in metadata and _same(metadata[key], value)
    if name == "$ne":
        return lambda metadata: key not in metadata or not _same(metadata[key], value)
    if name not in _ORDER:
        known = ", ".join(("$eq", "$ne", "$in", "$nin", *_ORDER))
        raise ConfigError(f"unknown operator {name!r} in a metadata filter: use one of {known}")
    if not _is_number(value):
        raise ConfigError(f"{name} compares numbers: got {value!r}")
    compare = _ORDER[name]
    return lambda metadata: _is_number(metadata.get(key)) and compare(metadata[key], value)


_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
