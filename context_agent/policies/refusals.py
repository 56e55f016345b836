"""What a chat server's refusal means, and what to do about it: a field to leave out, or words that help."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from context_agent._support.credentials import read_key
from context_agent._support.http import Refusal
from context_agent.policies.replies import LENGTH_FIELDS, REASONING_FIELDS

UNASKED = ("seed", "stream_options", *REASONING_FIELDS)
"""Fields that the policy adds of its own accord, so it may leave them out; what a user set is never dropped."""
RENAMED = LENGTH_FIELDS[1]
"""What some hosted models call `max_tokens`."""

_CONTEXT = re.compile(
    r"context.{0,3}(?:length|size|window)|maximum model length|max_model_len|too many tokens|prompt is too long"
    r"|longer than the (?:maximum|model)|max_tokens' or 'max_completion_tokens' is too large",
    re.I,
)
_LENGTH = re.compile(
    r"(?:(?:context|model).{0,3}(?:length|size|window)|n_ctx|max_model_len)\\?[\"']?"
    r"(?: is| of| limit|:|=|\s|\()*(?P<n>\d[\d,]{2,9})",
    re.I,
)


def to_leave_out(refusal: Refusal, left_out: frozenset[str]) -> str | None:
    """The field to send no more, where that is what the server did not like and the user did not ask for it."""
    if refusal.status not in (400, 422) or is_context(refusal):
        return None
    message = refusal.message
    if RENAMED in message and "max_tokens" not in left_out:
        return "max_tokens"
    named = (name for name in UNASKED if re.search(rf"\b{name}\b", message))
    return next((name for name in named if name not in left_out), None)


def is_context(refusal: Refusal) -> bool:
    """Whether the request was longer than the model's context."""
    return refusal.status in (400, 413, 422, 500) and _CONTEXT.search(refusal.message) is not None


def context_words(refusal: Refusal, window: int) -> str:
    """That the server's context is smaller than the budget's window, and what to do about it."""
    found = _LENGTH.search(refusal.message)
    length = int(found["n"].replace(",", "")) if found else 0
    lower = f"--window {length * 9 // 10}" if length > 0 else f"a --window below {window}"
    return (
        f"the model's context on this server is too short for a window of {window:,} tokens; "
        f"search with {lower}, or serve the model with a longer context. The server said: {refusal.message}"
    )


def is_unknown_model(refusal: Refusal) -> bool:
    """Whether the server may not have the model (or not this address)."""
    about = re.search(
        r"\bmodel\b.*\b(?:not|no|unknown|invalid|doesn't)\b|\b(?:no|unknown|invalid)\b.*\bmodel\b",
        refusal.message,
        re.I,
    )
    return refusal.status == 404 or (refusal.status in (400, 403, 422) and about is not None)


def model_words(model: str, known: Sequence[str]) -> str:
    """That the server lacks the model, and which it has."""
    if model in known:
        return f"the server lists the model {model!r}, and refused it all the same"
    if not known:
        return f"the server does not have the model {model!r}, and lists none"
    near = difflib.get_close_matches(model, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"the server does not have the model {model!r}. It has: {', '.join(known[:20])}{more}{hint}"


def key_words(refusal: Refusal, variable: str | None) -> str:
    """That the server wants another key, and where it is read from."""
    if variable is None:
        source = "none was sent, because api_key_env is None"
    elif read_key(variable):
        source = f"it comes from the environment variable {variable}; name another with --api-key-env"
    else:
        source = f"it is read from the environment variable {variable}, which is not set; --api-key-env names another"
    return f"the server does not accept the key ({source}): HTTP {refusal.status}, {refusal.message}"


def listed_models(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The rows of a `/models` answer, by the model's id."""
    rows = body.get("data")
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {row["id"]: row for row in found if isinstance(row.get("id"), str)}
