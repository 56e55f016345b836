"""The frameworks' metadata filters in Chroma's syntax. What Chroma cannot say raises `ConfigError`, never less.

Chroma has no negation and no test for a missing key. A comparison by order fails on a missing key, and so does its
opposite, so that one cannot be negated; `$eq` and `$ne`, `$in` and `$nin` are each other's exact negations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as brief
from typing import Any

from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import MAX_DEPTH, Where

OPERATORS = {
    "==": "$eq",
    "!=": "$ne",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
    "in": "$in",
    "nin": "$nin",
    "not in": "$nin",
}
"""LlamaIndex's and Haystack's operators; they differ in one."""
_NEGATED = {"$eq": "$ne", "$ne": "$eq", "$in": "$nin", "$nin": "$in"}


def joined(*filters: Where | None) -> Where | None:
    """A filter that all of the given ones let through; None where none is given."""
    return _junction("$and", [one for one in filters if one])


def from_haystack(filters: Mapping[str, Any] | None) -> Where | None:
    """Haystack's filter, a comparison or AND, OR and NOT over conditions; fields are `meta.KEY`, or `KEY`."""
    return _haystack(filters, MAX_DEPTH, negated=False) if filters else None


def from_llamaindex(filters: Any) -> Where | None:
    """LlamaIndex's `MetadataFilters`, nested ones included. NOT means that none of its filters holds."""
    return None if filters is None else _llamaindex(filters, MAX_DEPTH, negated=False)


def _check_levels(levels: int) -> None:
    if levels < 1:
        raise ConfigError(f"the metadata filter has more than {MAX_DEPTH} levels: flatten nested AND and OR")


def _haystack(filters: Mapping[str, Any], levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    if "field" in filters:
        if missing := {"operator", "value"} - filters.keys():
            raise ConfigError(f"the filter {brief(dict(filters))} has no {' and no '.join(sorted(missing))}")
        return _comparison(_field(filters["field"]), filters["operator"], filters["value"], negated)
    operator, conditions = filters.get("operator"), filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, Sequence) or not conditions:
        raise ConfigError(
            f"a Haystack filter has field, operator and value, or operator (AND, OR, NOT) and conditions: got "
            f"{brief(dict(filters))}"
        )
    inner = negated != (operator == "NOT")
    parts = [_haystack(condition, levels - 1, negated=inner) for condition in conditions]
    return _junction("$or" if (operator == "OR") != inner else "$and", [one for one in parts if one])


def _field(name: str) -> str:
    if name in ("id", "content", "score", "embedding"):
        raise ConfigError(f"only metadata can be filtered, not {name!r}: name a field like meta.year")
    return name.removeprefix("meta.")


def _llamaindex(filters: Any, levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    condition = _value(filters.condition or "and")
    inner = negated != (condition == "not")
    parts = [
        _llamaindex(one, levels - 1, negated=inner)
        if hasattr(one, "filters")
        else _comparison(one.key, _value(one.operator), one.value, inner)
        for one in filters.filters
    ]
    # None of them: each negated, all of these.
    either = condition in ("or", "not")
    return _junction("$or" if either != inner else "$and", [one for one in parts if one])


def _comparison(key: str, operator: str, value: Any, negated: bool) -> Where:
    if operator not in OPERATORS:
        raise ConfigError(f"Chroma has no filter {operator!r} (on {key!r}): use one of {', '.join(OPERATORS)}")
    name = OPERATORS[operator]
    if negated:
        if name not in _NEGATED:
            raise ConfigError(
                f"Chroma cannot negate {key} {operator} {brief(value)}: write the opposite comparison instead"
            )
        name = _NEGATED[name]
    listed = name in ("$in", "$nin")
    if not isinstance(value, list | tuple | set if listed else str | int | float):
        raise ConfigError(f"{key} {operator} takes {'a list' if listed else 'text or a number'}: got {brief(value)}")
    return {key: {name: sorted(value, key=str) if isinstance(value, set) else list(value) if listed else value}}


def _junction(operator: str, parts: list[Where]) -> Where | None:
    return {operator: parts} if len(parts) > 1 else parts[0] if parts else None


def _value(member: Any) -> str:
    """The text of an enumeration's member, or the text itself."""
    return str(getattr(member, "value", member))
