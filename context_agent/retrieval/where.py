"""Chroma's metadata filters, evaluated in Python for corpora that have no store to do it.

Follows Chroma: a chunk without the key fails every comparison but `$ne` and `$nin`, and values of different types are
never equal (`1` is not `1.0`, nor `True`).

`check_where` bounds every filter, whatever evaluates it: this module, Chroma's SQLite or a Chroma server.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from reprlib import repr as brief
from typing import Any

from context_agent.errors import ConfigError
from context_agent.retrieval.protocol import Where

Predicate = Callable[[Mapping[str, Any]], bool]

MAX_CONDITIONS = 200
"""Comparisons in a filter. SQLite, which Chroma queries, refuses 1,000 and crashes on 12,000 of them."""
MAX_DEPTH = 16
"""Nested objects and lists in a filter."""
MAX_VALUES = 10_000
"""Values in all lists of a filter, e.g. of `$in`. SQLite takes at most 32,766 in a query."""
MAX_TEXT = 4_096
"""Characters of a metadata key or of a text value."""


def check_where(where: object) -> None:
    """Raises `ConfigError` for a filter beyond the limits above, or with a number that no store can hold.

    Linear in the size of the filter up to the first limit, and not recursive: safe for any value, also a hostile one.
    """
    conditions = operators = values = 0
    pending: list[tuple[object, int]] = [(where, 1)]
    while pending:
        value, depth = pending.pop()
        if not isinstance(value, Mapping | list | tuple | set):
            _check_scalar(value)
            continue
        if depth > MAX_DEPTH:
            raise ConfigError(f"the metadata filter has more than {MAX_DEPTH} levels: flatten nested $and and $or")
        if isinstance(value, Mapping):
            keys = sum(str(key).startswith("$") for key in value)
            operators, conditions = operators + keys, conditions + (len(value) - keys or not value)
            pending += ((key, depth) for key in value)
        else:
            values += sum(not isinstance(part, Mapping) for part in value)
        # A well-formed filter of n conditions has fewer than 2n operators.
        if conditions > MAX_CONDITIONS or operators > 2 * MAX_CONDITIONS:
            raise ConfigError(
                f"the metadata filter has more than {MAX_CONDITIONS} conditions: use fewer, or $in with a list"
            )
        if values > MAX_VALUES:
            raise ConfigError(f"the metadata filter lists more than {MAX_VALUES:,} values: use several searches")
        parts: Iterable[object] = value.values() if isinstance(value, Mapping) else value
        pending += ((part, depth + 1) for part in parts)


def _check_scalar(value: object) -> None:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ConfigError(f"the metadata filter has a text of {len(value):,} characters: use at most {MAX_TEXT:,}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError("the metadata filter has a number that is not finite: no store holds one")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError("the metadata filter has a whole number of more than 64 bits: no store holds one")


def compile_where(where: Where) -> Predicate:
    """A test of one chunk's metadata.

    Raises `ConfigError` for an unknown operator, a malformed filter, or one beyond the limits of `check_where`.
    """
    check_where(where)
    return _compiled(where)


def _compiled(where: object) -> Predicate:
    if not isinstance(where, Mapping) or len(where) != 1 or not all(isinstance(key, str) for key in where):
        raise ConfigError(f"a metadata filter has exactly one key, join several by $and: got {brief(where)}")
    ((key, condition),) = where.items()
    if key in ("$and", "$or"):
        return _junction(key, condition)
    if key.startswith("$"):
        raise ConfigError(f"unknown operator {key!r} in a metadata filter: use $and, $or or a metadata key")
    if not isinstance(condition, Mapping):
        condition = {"$eq": condition}
    if len(condition) != 1:
        raise ConfigError(f"metadata key {key!r} needs exactly one operator: got {brief(condition)}")
    ((name, value),) = condition.items()
    return _comparison(key, name, value)


def _junction(name: str, parts: Any) -> Predicate:
    if not isinstance(parts, list) or len(parts) < 2:
        raise ConfigError(f"{name} takes a list of at least two filters: got {brief(parts)}")
    tests = [_compiled(part) for part in parts]
    join = all if name == "$and" else any
    return lambda metadata: join(test(metadata) for test in tests)


def _comparison(key: str, name: str, value: Any) -> Predicate:
    if name in ("$in", "$nin"):
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{name} takes a list with at least one value: got {brief(value)}")
        listed, negated = {(type(item), item) for item in value if isinstance(item, _SCALAR)}, name == "$nin"
        return lambda metadata: negated != (key in metadata and _is_listed(metadata[key], listed))
    if name == "$eq":
        return lambda metadata: key in metadata and _same(metadata[key], value)
    if name == "$ne":
        return lambda metadata: key not in metadata or not _same(metadata[key], value)
    if name not in _ORDER:
        known = ", ".join(("$eq", "$ne", "$in", "$nin", *_ORDER))
        raise ConfigError(f"unknown operator {name!r} in a metadata filter: use one of {known}")
    if not _is_number(value):
        raise ConfigError(f"{name} compares numbers: got {brief(value)}")
    compare = _ORDER[name]
    return lambda metadata: _is_number(metadata.get(key)) and compare(metadata[key], value)


_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_SCALAR = (str, int, float, type(None))


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _is_listed(value: Any, listed: AbstractSet[tuple[type, Any]]) -> bool:
    return isinstance(value, _SCALAR) and (type(value), value) in listed


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
