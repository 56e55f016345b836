"""Checks of a model server. They say whether the server can be used for searches, and how to fix each problem.

    for check in inspect_server("http://localhost:8000/v1", "openai/gpt-oss-20b"):
        print(check.status, check.name, check.detail, check.fix)

Each check is one or two small requests. One exception is `probe`. If the server does not report the length of its
context, `probe` sends a prompt as long as the window. A host bills such a prompt, and a server with little memory may
crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from context_agent._support.http_client import API_KEY_ENV, Endpoint, Events, Refusal, policy_address
from context_agent.budget import WINDOW
from context_agent.errors import ServerError, single_stops
from context_agent.harness.action_text import compact
from context_agent.policies.chat.refusals import (
    SERVE_TOOLS,
    context_message,
    rejected_key_message,
    unknown_model_message,
)
from context_agent.policies.chat.replies import MOST_TOKENS, Reply, listed_models, read_reply

LENGTH_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Fields in which servers report a model's context: vLLM and SGLang, OpenRouter and Ollama, Groq, LM Studio, llama.cpp.
"""
PROBED_SHARE = 0.9
"""The share of the window that a probe fills with words of about one token each. It never exceeds the window."""
TOOL = {
    "type": "function",
    "function": {
        "name": "search_corpus",
        "description": "Search the corpus.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
TOOL_PROMPT = 'Call the tool search_corpus with the query "bridges". Do not answer in words.'


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """A finding about the server. If the status is not `ok`, `fix` says how to fix the problem."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


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
    """Check the server, and return the findings in order. If a finding makes further checks pointless, it is the last.

    Do not call this function inside a running event loop.

    Args:
        model: The model to check. Defaults to the first model that the server lists.
        tokens: If true, also check the features that `TokenPolicy` needs.

    Raises:
        ConfigError: If the URL is not valid.
    """
    endpoint = Endpoint(policy_address(base_url), api_key_env=api_key_env, timeout=timeout, retries=1)

    async def gather() -> list[ServerCheck]:
        return [check async for check in _checks(endpoint, model, window, tokens, probe)]

    return asyncio.run(gather())


async def _checks(
    endpoint: Endpoint, model: str | None, window: int, tokens: bool, probe: bool
) -> AsyncIterator[ServerCheck]:
    server, models = await _reach(endpoint)
    yield server
    if server.status == "fail":
        return
    model = model or next(iter(models), "")
    if not model:
        yield ServerCheck("model", "fail", "no model is given, and the server lists none", "name one with --model")
        return
    tools = await _tools(endpoint, model)
    yield _model(model, list(models), answers=tools.status != "fail")
    yield tools
    if tools.status != "fail":
        yield await _context(endpoint, model, models.get(model, {}), window, probe)
    if tokens:
        yield await _token_ids(endpoint, model)


async def _reach(endpoint: Endpoint) -> tuple[ServerCheck, dict[str, Mapping[str, Any]]]:
    """Check that the server answers. Return the finding, and the server's models by id."""
    started = time.perf_counter()
    check = partial(ServerCheck, "server")
    try:
        models = listed_models(await endpoint.get("/models"))
    except Refusal as refusal:
        if refusal.status in (401, 403):
            return check("fail", rejected_key_message(refusal, endpoint.api_key_env), "set the key"), {}
        detail = f"{endpoint.base_url} does not list its models: {refusal.message}"
        return check("warn", detail, "check the path, as most addresses end in /v1"), {}
    except ServerError as error:
        fix = "read its log if it runs, or name another with --base-url"
        return check("fail", str(error), fix), {}
    milliseconds = (time.perf_counter() - started) * 1000
    return check("ok", f"{endpoint.base_url} answers in {milliseconds:.0f} ms, {len(models)} models"), models


def _model(model: str, models: list[str], *, answers: bool) -> ServerCheck:
    if model in models:
        return ServerCheck("model", "ok", model)
    if not models and answers:
        return ServerCheck("model", "ok", f"{model} (the server lists no models)")
    detail, fix = unknown_model_message(model, models), "use a name that the server lists"
    return (
        ServerCheck("model", "warn", single_stops(f"{detail}. The server answered anyway."), fix)
        if answers
        else _fail("model", detail, fix)
    )


async def _tools(endpoint: Endpoint, model: str) -> ServerCheck:
    """Check that the model calls a tool on request, and that the server reads the call."""
    body = {"messages": [{"role": "user", "content": TOOL_PROMPT}], "max_tokens": 512, "tools": [TOOL]}
    started = time.perf_counter()
    try:
        reply = await _reply(endpoint, model, body)
    except Refusal as refusal:
        try:
            await _reply(endpoint, model, {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16})
        except ServerError:
            return _fail("chat", str(refusal), "see the server's log")
        return ServerCheck(
            "tools",
            "warn",
            f"the server refused a request with tools, but answered without them ({refusal.message})",
            SERVE_TOOLS,
        )
    except ServerError as error:
        return _fail("chat", str(error), "see the server's log, and raise the timeout if the server is slow")
    seconds = f"in {time.perf_counter() - started:.1f} s"
    source = f"; reasoning in {reply.reasoning_field!r}" if reply.reasoning_field else ""
    if not reply.calls:
        text = reply.text[:80] or ("only reasoning" if reply.reasoning else "nothing")
        return ServerCheck("tools", "warn", f"no tool call {seconds}; the model replied: {text}{source}", SERVE_TOOLS)
    name, arguments = reply.calls[0].name, reply.calls[0].arguments
    if isinstance(arguments, str):
        return ServerCheck("tools", "warn", f"called {name} {arguments[:80]} {seconds}{source}", SERVE_TOOLS)
    return ServerCheck("tools", "ok", f"called {name} {compact(arguments)[:80]} {seconds}{source}")


async def _context(endpoint: Endpoint, model: str, row: Mapping[str, Any], window: int, probe: bool) -> ServerCheck:
    """Check that the window fits in the server's context.

    The server reports the length, or a prompt of that length is sent.
    """
    length = _reported_length(row) or await _length_elsewhere(endpoint, model)
    if length is None and probe:
        return await _probe(endpoint, model, window)
    if length is None:
        detail = f"the server does not report its length; the window is {window:,}"
        return ServerCheck("context", "warn", detail, "--probe-context sends one prompt of that length")
    if length >= window:
        return ServerCheck("context", "ok", f"{length:,} tokens for a window of {window:,}")
    fix = f"--window {length}, or serve the model with a longer context"
    return _fail("context", f"{length:,} tokens, fewer than the window of {window:,}", fix)


def _reported_length(row: Mapping[str, Any]) -> int | None:
    meta = row.get("meta")
    sections = (row, meta if isinstance(meta, dict) else {})
    lengths = (section.get(name) for section in sections for name in LENGTH_FIELDS)
    return next((length for length in lengths if type(length) is int and 0 < length <= MOST_TOKENS), None)


async def _length_elsewhere(endpoint: Endpoint, model: str) -> int | None:
    """Return the length of the context that other addresses of the server report.

    llama.cpp reports the server's length at `/props`. Ollama reports a loaded model's length at `/api/ps`.
    """
    quick = Endpoint(endpoint.base_url, api_key_env=endpoint.api_key_env, timeout=10.0, retries=0)
    for path in ("//props", "//api/ps"):
        try:
            body = await quick.get(path)
        except ServerError:
            continue
        models = body.get("models")
        rows = [row for row in models if isinstance(row, dict)] if isinstance(models, list) else []
        sections = [body.get("default_generation_settings"), *(row for row in rows if row.get("name") == model)]
        for section in sections:
            if isinstance(section, dict) and (length := _reported_length(section)):
                return length
    return None


async def _probe(endpoint: Endpoint, model: str, window: int) -> ServerCheck:
    words = int(window * PROBED_SHARE)
    check = partial(ServerCheck, "context")
    try:
        reply = await _reply(
            endpoint, model, {"messages": [{"role": "user", "content": "a " * words}], "max_tokens": 1}
        )
    except Refusal as refusal:
        return check("fail", context_message(refusal, window), "a smaller --window, or a longer context")
    except ServerError as error:
        return check("warn", f"not reported, and a prompt of {words:,} words failed: {error}", "try a smaller --window")
    counted = reply.usage.get("prompt_tokens")
    if counted is None:
        return check("warn", f"accepted a prompt of {words:,} words, but reported no token count")
    if counted < words * 0.9:
        fix = f"--window {counted}, or serve a longer context (Ollama: num_ctx; it cuts prompts without an error)"
        return check("fail", f"a prompt of {words:,} words was cut to {counted:,} tokens", fix)
    return check("ok", f"accepted a prompt of {counted:,} tokens for a window of {window:,}")


async def _token_ids(endpoint: Endpoint, model: str) -> ServerCheck:
    """Check that `/completions` accepts token ids, and returns ids and log-probabilities."""
    body = {"model": model, "prompt": [1, 2, 3], "max_tokens": 1, "logprobs": 1, "return_token_ids": True}
    fix = "the token policy needs vLLM 0.10.2 or later, or the transformers engine; the chat policy does not"
    try:
        choice = await endpoint.post("/completions", body, _first_choice)
    except ServerError as error:
        return _fail("token ids", str(error), fix)
    logprobs = choice.get("logprobs")
    has_logprobs = isinstance(logprobs, dict) and bool(logprobs.get("token_logprobs"))
    present = {"ids": bool(choice.get("token_ids")), "logprobs": has_logprobs}
    if missing := [name for name, exists in present.items() if not exists]:
        return _fail("token ids", f"/completions returned no {' and no '.join(missing)}", fix)
    return ServerCheck("token ids", "ok", "/completions accepts ids, and returns ids and logprobs")


def _fail(name: str, detail: str, fix: str) -> ServerCheck:
    return ServerCheck(name, "fail", detail, fix)


async def _reply(endpoint: Endpoint, model: str, fields: Mapping[str, Any]) -> Reply:
    body = {"model": model, **fields}
    return await endpoint.post("/chat/completions", body, partial(read_reply, request=body))


def _first_choice(events: Events) -> Mapping[str, Any]:
    choices = events[0].get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    return choice if isinstance(choice, dict) else {}
