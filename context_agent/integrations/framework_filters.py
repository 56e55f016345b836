"""Metadata filters of LlamaIndex and Haystack, written in Chroma's syntax.

Chroma has neither negation nor a test for a missing key. If a document lacks the key, it matches neither a comparison
by order nor the opposite comparison. Such a comparison therefore cannot be negated. `$eq` and `$ne`, `$in` and `$nin`
are exact negations of each other. If Chroma cannot express a filter, `ConfigError` is raised. No filter is ever
weakened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as brief
from typing import Any

from context_agent.errors import ConfigError
from context_agent.retrieval.filters import MAX_DEPTH, Where

CHROMA_OPERATORS = {
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
"""Chroma's operators by those of LlamaIndex and Haystack. Only `nin` and `not in` differ between the two."""
_NEGATED_OPERATORS = {"$eq": "$ne", "$ne": "$eq", "$in": "$nin", "$nin": "$in"}


def all_of(*filters: Where | None) -> Where | None:
    """Return a filter that requires all of the filters. If all of them are empty, return None."""
    return _junction("$and", filters)


def from_haystack(filters: Mapping[str, Any] | None) -> Where | None:
    """Translate a filter of Haystack.

    Args:
        filters: A comparison, or a combination of conditions by AND, OR or NOT. A field is `meta.KEY` or `KEY`.

    Raises:
        ConfigError: If Chroma cannot express the filter.
    """
    return _haystack(filters, MAX_DEPTH, negated=False) if filters else None


def from_llamaindex(filters: Any) -> Where | None:
    """Translate LlamaIndex's `MetadataFilters`, which may be nested. NOT requires that none of its filters matches.

    Raises:
        ConfigError: If Chroma cannot express the filter.
    """
    return None if filters is None else _llamaindex(filters, MAX_DEPTH, negated=False)


def _haystack(filters: Mapping[str, Any], levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    if not isinstance(filters, Mapping):
        raise ConfigError(f"a condition of a Haystack filter must be a mapping; got {brief(filters)}")
    if "field" in filters:
        if missing := {"operator", "value"} - filters.keys():
            raise ConfigError(
                f"the filter {brief(dict(filters))} has no {' and no '.join(sorted(missing))}. Add what is missing."
            )
        if not isinstance(filters["field"], str) or not isinstance(filters["operator"], str):
            raise ConfigError(f"field and operator of a Haystack filter must be text; got {brief(dict(filters))}")
        return _comparison(_metadata_key(filters["field"]), filters["operator"], filters["value"], negated)
    operator, conditions = filters.get("operator"), filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, list | tuple) or not conditions:
        raise ConfigError(
            "a Haystack filter must have field, operator and value, or operator (AND, OR, NOT) and conditions; got "
            f"{brief(dict(filters))}"
        )
    inner = negated != (operator == "NOT")
    parts = [_haystack(condition, levels - 1, negated=inner) for condition in conditions]
    return _junction("$or" if (operator == "OR") != inner else "$and", parts)


def _metadata_key(field: str) -> str:
    if field in ("id", "content", "score", "embedding"):
        raise ConfigError(f"only metadata can be filtered, not {field!r}. Use a field such as meta.year.")
    return field.removeprefix("meta.")


def _llamaindex(filters: Any, levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    condition = _text(filters.condition or "and")
    inner = negated != (condition == "not")
    parts = [
        _llamaindex(part, levels - 1, negated=inner)
        if hasattr(part, "filters")
        else _comparison(part.key, _text(part.operator), part.value, inner)
        for part in filters.filters
    ]
    # By De Morgan, "none of them" is "all of them negated".
    is_or = condition in ("or", "not")
    return _junction("$or" if is_or != inner else "$and", parts)


def _comparison(key: str, operator: str, value: Any, negated: bool) -> Where:
    if operator not in CHROMA_OPERATORS:
        raise ConfigError(
            f"Chroma has no filter {operator!r}, which {key!r} uses. Choose from {', '.join(CHROMA_OPERATORS)}."
        )
    name = CHROMA_OPERATORS[operator]
    if negated:
        if name not in _NEGATED_OPERATORS:
            raise ConfigError(
                f"Chroma cannot negate {key} {operator} {brief(value)}. Write the opposite comparison instead."
            )
        name = _NEGATED_OPERATORS[name]
    takes_list = name in ("$in", "$nin")
    if not isinstance(value, list | tuple | set if takes_list else str | int | float):
        raise ConfigError(
            f"{key} {operator} must have {'a list' if takes_list else 'text or a number'}; got {brief(value)}"
        )
    return {key: {name: sorted(value, key=str) if isinstance(value, set) else list(value) if takes_list else value}}


def _junction(operator: str, parts: Sequence[Where | None]) -> Where | None:
    filters = [part for part in parts if part]
    return {operator: filters} if len(filters) > 1 else filters[0] if filters else None


def _check_levels(levels: int) -> None:
    if levels < 1:
        raise ConfigError(f"the metadata filter has more than {MAX_DEPTH} levels. Flatten nested AND and OR.")


def _text(member: Any) -> str:
    """Return the value of an enumeration member. If it is a text, return the text itself."""
    return str(getattr(member, "value", member))
