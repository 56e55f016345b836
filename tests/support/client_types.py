"""A check of conversations with the types of the providers' own clients."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest


@cache
def _client_type(kind: str) -> Any:
    """The type of a conversation in the provider's own client. If the client is not installed, it is None."""
    pydantic = pytest.importorskip("pydantic")
    try:
        if kind == "responses":
            from openai.types.responses import ResponseInputItemParam as Item
        elif kind == "anthropic":
            from anthropic.types.beta import BetaMessageParam as Item
        else:
            return None
    except ImportError:
        return None
    return pydantic.TypeAdapter(list[Item])


def _exhaust(value: Any) -> None:
    """Read what pydantic validates only when it is read."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str | bytes | int | float | type(None)):
        for inner in value:
            _exhaust(inner)


def check(name: str, conversation: list[Any]) -> None:
    """Raise an error if the provider's own client refuses the conversation."""
    if (adapter := _client_type(name.partition(":")[0])) is not None:
        _exhaust(adapter.validate_python(conversation))
