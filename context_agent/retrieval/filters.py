"""Metadata filters in Chroma's syntax: checked, and evaluated in Python.

A chunk without the key passes only `$ne`, `$nin` and `$not_contains`. A number never equals a string or a boolean. Only
`$contains` matches a list, by a value of the same type. Two things differ from Chroma. Chroma truncates a number before
it compares it with a stored integer, so there `{"$eq": 1.5}` matches 1. Here it does not. And here, `$contains` also
matches a list that a loader stored as JSON.

`check_where` limits every filter, no matter what evaluates it: this module, Chroma's SQLite or a Chroma server.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from reprlib import repr as brief
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import parse_json
from context_agent._support.validation import is_number
from context_agent.errors import ConfigError

Where = dict[str, Any]
"""A metadata filter in Chroma's syntax, such as `{"year": {"$gte": 2020}}`."""
Predicate = Callable[[Mapping[str, Any]], bool]
Column = tuple[NDArray[np.int32], Sequence[Any]]
"""The values of a metadata key in all rows.

The array has the position of each row's value in the list of values. For a row without the key, it is -1.
"""
MAX_CONDITIONS = 200
"""The maximum number of comparisons in a filter. SQLite, which Chroma uses, refuses 1,000 and crashes on 12,000."""
MAX_DEPTH = 16
"""The maximum number of levels of nested objects and lists in a filter."""
MAX_VALUES = 10_000
"""The maximum number of values in all lists of a filter, such as that of `$in`. SQLite takes at most 32,766 in a query.
"""
MAX_TEXT = 4_096
"""The maximum length of a metadata key or of a string value, in characters."""
_ORDER_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_NEGATED_OPERATORS = {"$ne": "$eq", "$nin": "$in", "$not_contains": "$contains"}
_SCALAR_TYPES = (str, int, float)
T = TypeVar("T")
_CACHED_FILTERS = 16


def check_where(where: object) -> None:
    """If a filter is beyond the limits, or has a number that no store can hold, raise `ConfigError`.

    The check is not recursive, and it is linear in the size of the filter up to the first limit. So it is safe even for
    a hostile value.
    """
    conditions = operators = values = 0
    pending: list[tuple[object, int]] = [(where, 1)]
    while pending:
        value, depth = pending.pop()
        if not isinstance(value, Mapping | list | tuple | set):
            _check_scalar(value)
            continue
        if depth > MAX_DEPTH:
            raise ConfigError(f"the metadata filter has more than {MAX_DEPTH} levels. Flatten nested $and and $or.")
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise ConfigError(f"the keys of a metadata filter must be strings; got {brief(value)}")
            keys = sum(key.startswith("$") for key in value)
            operators, conditions = operators + keys, conditions + (len(value) - keys or not value)
            pending += ((key, depth) for key in value)
        else:
            values += sum(not isinstance(part, Mapping) for part in value)
        # A well-formed filter of n conditions has fewer than 2n operators.
        if conditions > MAX_CONDITIONS or operators > 2 * MAX_CONDITIONS:
            raise ConfigError(
                f"the metadata filter has more than {MAX_CONDITIONS} conditions. Use fewer, or $in with a list."
            )
        if values > MAX_VALUES:
            raise ConfigError(
                f"the metadata filter lists more than {MAX_VALUES:,} values. Split it into several searches."
            )
        parts: Iterable[object] = value.values() if isinstance(value, Mapping) else value
        pending += ((part, depth + 1) for part in parts)


def plain_where(where: Where) -> Where:
    """Return a filter as plain data: numbers of numpy become those of Python, and tuples become lists.

    Raises:
        ConfigError: If the filter is beyond the limits of `check_where`, or has a value that no filter can have.
    """
    check_where(where)
    plain: Where = json.loads(_filter_json(where))
    return plain


def _filter_json(where: object) -> str:
    def plain(value: object) -> Any:
        if isinstance(value, np.generic) and isinstance(item := value.item(), bool | int | float | str):
            return item
        raise ConfigError(
            f"a metadata filter may have only strings, numbers, booleans and lists of them; got {brief(value)} "
            f"({type(value).__name__}). Convert it. For dates, compare `day`, such as 20251031."
        )

    return json.dumps(where, sort_keys=True, default=plain)


def _check_scalar(value: object) -> None:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ConfigError(f"the metadata filter has a string of {len(value):,} characters. Use at most {MAX_TEXT:,}.")
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise ConfigError("the metadata filter has a number that is not finite, which no store can hold. Remove it.")
    if isinstance(value, int | np.integer) and not -(2**63) <= int(value) < 2**63:
        raise ConfigError(
            "the metadata filter has an integer of more than 64 bits, which no store can hold. Remove it."
        )


def compile_where(where: Where) -> Predicate:
    """Return a test of one chunk's metadata.

    Raises:
        ConfigError: If an operator is unknown, or the filter is malformed or beyond the limits of `check_where`.
    """
    return _compiled(plain_where(where))


def _compiled(where: object) -> Predicate:
    if not isinstance(where, Mapping) or len(where) != 1:
        raise ConfigError(f"a metadata filter must have exactly one key; got {brief(where)}. Join filters with $and.")
    ((key, condition),) = where.items()
    if key in ("$and", "$or"):
        return _junction(key, condition)
    if key.startswith("$"):
        raise ConfigError(f"unknown operator {key!r} in a metadata filter. Use $and, $or or a metadata key.")
    if key == "#document":
        raise ConfigError("a metadata filter cannot search texts. Use grep instead.")
    if not isinstance(condition, Mapping):
        condition = {"$eq": condition}
    if len(condition) != 1:
        raise ConfigError(f"metadata key {key!r} must have exactly one operator; got {brief(condition)}")
    ((name, value),) = condition.items()
    return _comparison(key, name, value)


def _junction(name: str, parts: Any) -> Predicate:
    if not isinstance(parts, list) or len(parts) < 2:
        raise ConfigError(f"{name} must have a list of at least two filters; got {brief(parts)}")
    tests = [_compiled(part) for part in parts]
    join = all if name == "$and" else any
    return lambda metadata: join(test(metadata) for test in tests)


def matching_rows(where: Where, column: Callable[[str], Column]) -> NDArray[np.bool_]:
    """Return which rows of a table a filter admits, shape (rows,). Each distinct value of a key is tested once.

    Raises:
        ConfigError: If the filter is malformed, as in `compile_where`.
    """
    compile_where(where)
    return _mask(where, column)


def _mask(where: Where, column: Callable[[str], Column]) -> NDArray[np.bool_]:
    ((key, condition),) = where.items()
    if key in ("$and", "$or"):
        join = np.logical_and if key == "$and" else np.logical_or
        return np.asarray(join.reduce([_mask(part, column) for part in condition]))
    test, (positions, values) = _compiled(where), column(key)
    # The last entry, at position -1, is for rows without the key.
    passing = np.array([*(test({key: value}) for value in values), test({})])
    return np.asarray(passing[positions])


def _comparison(key: str, name: str, value: Any) -> Predicate:
    if name in _NEGATED_OPERATORS:
        positive = _comparison(key, _NEGATED_OPERATORS[name], value)
        return lambda metadata: not positive(metadata)
    if name == "$in":
        listed = _listed(value)
        return lambda metadata: key in metadata and _identity(metadata[key]) in listed
    if name in _ORDER_OPERATORS:
        if not is_number(value):
            raise ConfigError(
                f"{name} must compare with a number; got {brief(value)}. Write numbers without quotes. For dates, "
                "compare `day`, such as 20251031."
            )
        compare = _ORDER_OPERATORS[name]
        return lambda metadata: is_number(metadata.get(key)) and compare(metadata[key], value)
    if name not in ("$eq", "$contains"):
        operators = ", ".join(("$eq", "$in", "$contains", *_NEGATED_OPERATORS, *_ORDER_OPERATORS))
        raise ConfigError(f"unknown operator {name!r} in a metadata filter. Use one of {operators}.")
    if not isinstance(value, _SCALAR_TYPES):
        raise ConfigError(f"{name} must have a string, a number or a boolean; got {brief(value)}")
    if name == "$eq":
        target = _identity(value)
        return lambda metadata: key in metadata and _identity(metadata[key]) == target
    return lambda metadata: _contains(metadata.get(key), value)


def _listed(values: Any) -> AbstractSet[tuple[str, Any]]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"$in and $nin must have a list of at least one value; got {brief(values)}")
    if not isinstance(values[0], _SCALAR_TYPES) or any(type(value) is not type(values[0]) for value in values):
        raise ConfigError(
            "$in and $nin must have a list of only strings, only whole numbers, only fractions or only booleans; got "
            f"{brief(values)}"
        )
    return {_identity(value) for value in values}


def _identity(value: Any) -> tuple[str, Any]:
    """Return a key that is equal for equal values. 1 and 1.0 are equal, and a list equals only itself."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value).__name__, value if isinstance(value, _SCALAR_TYPES) else id(value)
    return "number", value


def _contains(values: Any, value: Any) -> bool:
    if isinstance(values, str) and values.startswith("["):  # Loaders store a list, such as tags, as JSON.
        try:
            values = parse_json(values)
        except ValueError:
            return False
    return isinstance(values, list | tuple) and any(type(item) is type(value) and item == value for item in values)


def cached_by_filter(function: Callable[[Where], T]) -> Callable[[Where], T]:
    """Return the function with a cache of its latest results, by the filter's JSON.

    If the filter is beyond the limits of `check_where`, the returned function raises `ConfigError`.
    """

    @lru_cache(maxsize=_CACHED_FILTERS)
    def cached(where: str) -> T:
        return function(json.loads(where))

    def checked(where: Where) -> T:
        check_where(where)
        return cached(_filter_json(where))

    return checked
