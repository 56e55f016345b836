"""The refusals of model servers: what they mean, and what a user can do about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_agent._support.credentials import read_key
from context_agent._support.http_client import Refusal
from context_agent._support.suggest import closest, listed
from context_agent.policies.chat.replies import LENGTH_FIELDS, REASONING_FIELDS

OPTIONAL_FIELDS = ("seed", "stream_options", *REASONING_FIELDS)
"""Fields that the policy adds by itself and may therefore omit. A field that the user set is never omitted."""
MAX_COMPLETION_TOKENS = LENGTH_FIELDS[1]
"""The name of `max_tokens` for some hosted models."""
_CONTEXT = re.compile(
    r"context.{0,3}(?:length|size|window)|maximum model length|max_model_len|too many tokens|prompt is too long"
    r"|longer than the (?:maximum|model)|exceeds? context limit|max_tokens' or 'max_completion_tokens' is too large",
    re.I,
)
_LENGTH = re.compile(
    r"(?:(?:context|model).{0,3}(?:length|size|window)|n_ctx|max_model_len)\\?[\"']?"
    r"(?: is| of| limit|:|=|\s|\()*+(?P<n>\d[\d,]{2,9})"
    # Anthropic writes: prompt is too long, N tokens > N maximum.
    r"|(?:too long|context limit): .{0,40}> (?P<most>\d[\d,]{2,9})",
    re.I,
)

LEAST_OUTPUT_LIMIT = 64
"""Minimum number in a refusal that can be the length of a reply. A smaller one bounds another setting."""
_OUTPUT = re.compile(r"max_(?:completion_|output_)?tokens|(?:completion|output|max|maximum) tokens", re.I)
"""Words by which a refusal is about the length of a reply."""
_MOST = re.compile(
    r"(?:at most|(?:less|lower) than(?: or equal to)?|<=|>|limit of|\[\d{1,4},) ?[`'\"]?(?P<n>\d[\d,]{0,9})", re.I
)
"""The largest number that a refusal allows, as in `must be less than or equal to 8192` or `the range is [1, 8192]`."""
_NO_TOOLS = re.compile(
    r"\btools?\b.{0,80}\b(?:requires? --|support)|\bsupport.{0,40}\b(?:tools?|functions?)\b"
    r"|\bfunction call.{0,40}support",
    re.I,
)
SERVE_TOOLS = (
    "serve with tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser …; llama.cpp: --jinja), "
    "or use the text protocol (--tools text)"
)


def field_to_omit(refusal: Refusal, omitted: frozenset[str]) -> str | None:
    """Return the field to omit from now on. It is a field that the server refused and the user did not set."""
    if refusal.status not in (400, 422) or is_context_overflow(refusal):
        return None
    message = refusal.message
    if MAX_COMPLETION_TOKENS in message and "max_tokens" not in omitted:
        return "max_tokens"
    refused = (name for name in OPTIONAL_FIELDS if re.search(rf"\b{name}\b", message))
    return next((name for name in refused if name not in omitted), None)


def output_limit(refusal: Refusal, requested: int) -> int | None:
    """Return the maximum number of tokens that the model writes in one reply, if the refused request allowed more."""
    if refusal.status not in (400, 422) or _LENGTH.search(refusal.message) or not _OUTPUT.search(refusal.message):
        return None
    limits = (int(match["n"].replace(",", "")) for match in _MOST.finditer(refusal.message))
    return next((limit for limit in limits if LEAST_OUTPUT_LIMIT <= limit < requested), None)


def refuses_tools(refusal: Refusal) -> bool:
    """Return True if the server or the model cannot take a request with tools."""
    return refusal.status in (400, 404, 422, 500) and _NO_TOOLS.search(refusal.message) is not None


def exceeds_rate(refusal: Refusal) -> bool:
    """Return True if a single request may use more tokens than the account has per minute."""
    words = refusal.message.lower()
    return refusal.status in (413, 429) and "request too large" in words and "tokens per min" in words


def is_context_overflow(refusal: Refusal) -> bool:
    """Return True if the request was longer than the model's context."""
    return refusal.status in (400, 413, 422, 500) and _CONTEXT.search(refusal.message) is not None


def context_message(refusal: Refusal, window: int | None) -> str:
    """Return a message for a server with a smaller context than the budget's window. It says what to do.

    If `window` is None, the request has no budget. Its passages then determine its length, so the message says to pass
    fewer of them.
    """
    if window is None:
        return (
            "the model's context on this server is too short for the passages. Pass fewer with --k, or serve the "
            f"model with a longer context. The server said: {refusal.message}"
        )
    match = _LENGTH.search(refusal.message)
    length = int((match["n"] or match["most"]).replace(",", "")) if match else 0
    lower = f"--window {length * 9 // 10}" if length > 0 else f"a --window below {window}"
    return (
        f"the model's context on this server is too short for a window of {window:,} tokens. "
        f"Search with {lower}, or serve the model with a longer context. The server said: {refusal.message}"
    )


def is_unknown_model(refusal: Refusal) -> bool:
    """Return True if the server may lack the model, or the address is wrong."""
    about = re.search(
        r"\bmodel\b.*\b(?:not|no|unknown|invalid|doesn't)\b|\b(?:no|unknown|invalid)\b.*\bmodel\b",
        refusal.message[:1_000],
        re.I,
    )
    return refusal.status == 404 or (refusal.status in (400, 403, 422) and about is not None)


def unknown_model_message(model: str, models: Sequence[str]) -> str:
    """Return a message for a server that lacks the model. It lists the models that the server has."""
    if model in models:
        return f"the server lists the model {model!r} but refused it"
    if not models:
        return f"the server does not have the model {model!r}, and lists none"
    similar = closest(model, models, cutoff=0.4)
    hint = f". Did you mean {similar!r}?" if similar else ""
    return f"the server does not have the model {model!r}. It has {listed(models)}{hint}"


def rejected_key_message(refusal: Refusal, variable: str | None) -> str:
    """Return a message for a server that rejected the key. It says where the key comes from."""
    if variable is None:
        source = "no key was sent, because api_key_env is None"
    elif read_key(variable):
        source = f"the key comes from the environment variable {variable}; name another with --api-key-env"
    else:
        source = f"the environment variable {variable} is not set; set it, or name another with --api-key-env"
    return f"the server does not accept the key ({source}): HTTP {refusal.status}, {refusal.message}"
