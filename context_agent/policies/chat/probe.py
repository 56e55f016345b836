"""Is a model server fit to search with? Asks it, and says what was seen and how to mend what is not right.

    for check in inspect_server("http://localhost:8000/v1", "openai/gpt-oss-20b"):
        print(check.status, check.name, check.seen, check.mend)

Each check is one or two small requests. Only with `probe` is a server that does not tell its context's length sent a
prompt as long as the window: hosts bill it, and a server short of memory may die of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from context_agent._support.http import API_KEY_ENV, Endpoint, Events, Refusal, policy_address
from context_agent.errors import PolicyError
from context_agent.harness.profile import compact
from context_agent.policies.chat.replies import (
    MOST_TOKENS,
    Reply,
    context_message,
    listed_models,
    read_reply,
    rejected_key_message,
    unknown_model_message,
)
from context_agent.pruning.budget import WINDOW

Status = Literal["ok", "warn", "fail"]
LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Where servers tell a model's context: vLLM and SGLang, OpenRouter and Ollama, Groq, LM Studio, llama.cpp."""
PROBED_SHARE = 0.9
"""Of the window, in filler words: about a token each, and never more than the window."""
TOOL = {
    "type": "function",
    "function": {
        "name": "search_corpus",
        "description": "Search the corpus.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
ASK = 'Call the tool search_corpus with the query "bridges". Do not answer in words.'
SERVE_TOOLS = (
    "serve with tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser …; llama.cpp: --jinja), "
    "or use the text protocol (--tools text)"
)
TRY_LENGTH = "--probe-context tries it with one prompt of that length"


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """One finding: what was seen, and how to mend it where it is not ok."""

    name: str
    status: Status
    seen: str
    mend: str = ""


def inspect_server(
    base_url: str,
    model: str | None = None,
    *,
    api_key_env: str | None = API_KEY_ENV,
    window: int = WINDOW,
    tokens: bool = False,
    probe: bool = False,
    timeout: float = 120.0,
) -> list[ServerCheck]:
    """The findings, in order; the first that makes the rest pointless is the last. Raises `ConfigError` for a bad URL.

    Without a model the server's first is taken. `tokens` also checks what `TokenPolicy` needs. Not for use inside a
    running event loop.
    """
    endpoint = Endpoint(policy_address(base_url), api_key_env=api_key_env, timeout=timeout, retries=1)

    async def gather() -> list[ServerCheck]:
        return [check async for check in _checks(endpoint, model, window, tokens, probe)]

    return asyncio.run(gather())


async def _checks(
    endpoint: Endpoint, model: str | None, window: int, tokens: bool, probe: bool
) -> AsyncIterator[ServerCheck]:
    reached, rows = await _reach(endpoint)
    yield reached
    if reached.status == "fail":
        return
    named = model or next(iter(rows), "")
    if not named:
        yield ServerCheck("model", "fail", "none named, and the server lists none", "name one with --model")
        return
    tools = await _tools(endpoint, named)
    yield _present(named, list(rows), tools)
    yield tools
    if tools.status != "fail":
        yield await _context(endpoint, named, rows.get(named, {}), window, probe)
    if tokens:
        yield await _token_ids(endpoint, named)


async def _reach(endpoint: Endpoint) -> tuple[ServerCheck, dict[str, Mapping[str, Any]]]:
    """Whether it answers, and its models by id."""
    started = time.perf_counter()
    try:
        body = await endpoint.get("/models")
    except Refusal as refusal:
        if refusal.status in (401, 403):
            return ServerCheck("server", "fail", rejected_key_message(refusal, endpoint.api_key_env), "set the key"), {}
        mend = "a wrong path? most addresses end in /v1"
        return ServerCheck(
            "server", "warn", f"{endpoint.base_url} does not list its models: {refusal.message}", mend
        ), {}
    except PolicyError as error:
        return ServerCheck("server", "fail", str(error), "start the server, or name another with --base-url"), {}
    rows = listed_models(body)
    seconds = time.perf_counter() - started
    return ServerCheck(
        "server", "ok", f"{endpoint.base_url} answers in {seconds * 1000:.0f} ms, {len(rows)} models"
    ), rows


def _present(model: str, known: list[str], tools: ServerCheck) -> ServerCheck:
    if model in known:
        return ServerCheck("model", "ok", model)
    if not known and tools.status != "fail":
        return ServerCheck("model", "ok", f"{model} (the server lists no models)")
    words = unknown_model_message(model, known)
    mend = "name it as the server lists it"
    if tools.status != "fail":
        return ServerCheck("model", "warn", f"{words}; it answered all the same", mend)
    return ServerCheck("model", "fail", words, mend)


async def _tools(endpoint: Endpoint, model: str) -> ServerCheck:
    """Whether the model calls a tool when told to, and the server understands the call."""
    body = {"model": model, "messages": [{"role": "user", "content": ASK}], "max_tokens": 512, "tools": [TOOL]}
    started = time.perf_counter()
    try:
        reply = await endpoint.post("/chat/completions", body, partial(read_reply, request=body))
    except Refusal as refusal:
        plain = await _plain_reply(endpoint, model)
        if plain is None:
            return ServerCheck("chat", "fail", str(refusal), "see the server's log")
        return ServerCheck("tools", "warn", f"refused with tools, answers without: {refusal.message}", SERVE_TOOLS)
    except PolicyError as error:
        return ServerCheck("chat", "fail", str(error), "see the server's log; a slow one wants a longer timeout")
    seconds = f"in {time.perf_counter() - started:.1f} s"
    return _judged(reply, seconds)


def _judged(reply: Reply, seconds: str) -> ServerCheck:
    thoughts = f"; reasoning in {reply.reasoning_field!r}" if reply.reasoning_field else ""
    if reply.calls:
        call = reply.calls[0]
        raw = isinstance(call.arguments, str)
        said = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
        status: Status = "warn" if raw else "ok"
        return ServerCheck(
            "tools", status, f"called {call.name} {said[:80]} {seconds}{thoughts}", SERVE_TOOLS if raw else ""
        )
    said = reply.text[:80] or ("only reasoning" if reply.reasoning else "nothing")
    return ServerCheck("tools", "warn", f"no tool call {seconds}; the model said: {said}{thoughts}", SERVE_TOOLS)


async def _plain_reply(endpoint: Endpoint, model: str) -> Reply | None:
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
    try:
        return await endpoint.post("/chat/completions", body, partial(read_reply, request=body))
    except PolicyError:
        return None


async def _context(endpoint: Endpoint, model: str, row: Mapping[str, Any], window: int, probe: bool) -> ServerCheck:
    """Whether the served context holds the window: as the server tells it, else by a prompt of that length."""
    length = _told(row) or await _told_elsewhere(endpoint, model)
    if length is None and not probe:
        return ServerCheck(
            "context", "warn", f"the server does not tell its length; the window is {window:,}", TRY_LENGTH
        )
    if length is None:
        return await _probe(endpoint, model, window)
    if length >= window:
        return ServerCheck("context", "ok", f"{length:,} tokens for a window of {window:,}")
    mend = f"--window {length}, or serve the model with a longer context"
    return ServerCheck("context", "fail", f"{length:,} tokens, fewer than the window of {window:,}", mend)


def _told(row: Mapping[str, Any]) -> int | None:
    meta = row.get("meta")
    sections = (row, meta if isinstance(meta, dict) else {})
    lengths = (section.get(name) for section in sections for name in LENGTHS)
    return next((length for length in lengths if type(length) is int and 0 < length <= MOST_TOKENS), None)


async def _told_elsewhere(endpoint: Endpoint, model: str) -> int | None:
    """llama.cpp tells the context that it was started with at `/props`, Ollama that of a loaded model at `/api/ps`."""
    quick = Endpoint(endpoint.base_url, api_key_env=endpoint.api_key_env, timeout=10.0, retries=0)
    for path in ("//props", "//api/ps"):
        try:
            body = await quick.get(path)
        except PolicyError:
            continue
        settings = body.get("default_generation_settings")
        models = body.get("models")
        rows = [row for row in models if isinstance(row, dict)] if isinstance(models, list) else []
        for section in (settings, *(row for row in rows if row.get("name") == model)):
            if isinstance(section, dict) and (length := _told(section)):
                return length
    return None


async def _probe(endpoint: Endpoint, model: str, window: int) -> ServerCheck:
    words = int(window * PROBED_SHARE)
    body = {"model": model, "messages": [{"role": "user", "content": "a " * words}], "max_tokens": 1}
    try:
        reply = await endpoint.post("/chat/completions", body, partial(read_reply, request=body))
    except Refusal as refusal:
        return ServerCheck(
            "context", "fail", context_message(refusal, window), "a smaller --window, or a longer context"
        )
    except PolicyError as error:
        return ServerCheck(
            "context", "warn", f"not told, and a prompt of {words:,} words gave: {error}", "try a smaller --window"
        )
    counted = reply.usage.get("prompt_tokens")
    if counted is None:
        return ServerCheck("context", "warn", f"took a prompt of {words:,} words, and counted no tokens", "")
    if counted < words * 0.9:
        mend = f"--window {counted}, or serve a longer context (Ollama: num_ctx; it cuts prompts and says nothing)"
        return ServerCheck("context", "fail", f"a prompt of {words:,} words was cut to {counted:,} tokens", mend)
    return ServerCheck("context", "ok", f"took a prompt of {counted:,} tokens for a window of {window:,}")


async def _token_ids(endpoint: Endpoint, model: str) -> ServerCheck:
    """Whether `/completions` takes token ids and gives back ids and log-probabilities."""
    body = {"model": model, "prompt": [1, 2, 3], "max_tokens": 1, "logprobs": 1, "return_token_ids": True}
    mend = "the token path needs vLLM 0.10.2 or later, or the transformers engine; the chat policy does without"
    try:
        choice = await endpoint.post("/completions", body, _first_choice)
    except PolicyError as error:
        return ServerCheck("token ids", "fail", str(error), mend)
    logprobs = choice.get("logprobs")
    has_logprobs = isinstance(logprobs, dict) and bool(logprobs.get("token_logprobs"))
    missing = [
        name for name, there in (("ids", bool(choice.get("token_ids"))), ("logprobs", has_logprobs)) if not there
    ]
    if missing:
        return ServerCheck("token ids", "fail", f"/completions returned no {' and no '.join(missing)}", mend)
    return ServerCheck("token ids", "ok", "/completions takes ids, and returns ids and logprobs")


def _first_choice(events: Events) -> Mapping[str, Any]:
    choices = events[0].get("choices")
    found = choices[0] if isinstance(choices, list) and choices else {}
    return found if isinstance(found, dict) else {}
