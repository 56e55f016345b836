"""Episodes as OpenTelemetry spans, named by the GenAI conventions. Needs the extra `otel`.

    agent = SearchAgent(corpus, observers=[Tracing()])

    invoke_agent context-agent              the episode, below the span of its caller
    ├── chat gpt-oss-20b                    one answer of the policy; `decide` for a policy without a language model
    ├── execute_tool search_corpus          one call
    │   └── retrieval chroma:notes@…        the search of the corpus for that call
    └── …                                   on the episode, an event for each edit with its cost

Texts (question, queries, passages, replies) are recorded only on request. Attributes that the conventions do not define
begin with `ctx1.`. If a span is not recorded, it costs almost nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from context_agent._support.extras import extra
from context_agent.harness.episode import Listener, StopReason
from context_agent.harness.tools import EDITS
from context_agent.harness.trajectory import Header
from context_agent.policies.tokens.recorded_calls import SAMPLED_KEY
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    Role,
    ToolResult,
    TurnClosed,
    View,
)
from context_agent.types import Action, ToolCall
from context_agent.version import __version__

with extra("otel"):
    from opentelemetry import context as contexts
    from opentelemetry.propagate import extract
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider, get_tracer, set_span_in_context


CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable of the conventions that turns the recording of texts on."""
CAPTURE_VALUES = ("span_only", "span_and_event", "true")
SEARCH_TOOLS = ("search_corpus", "grep_corpus")
"""Tools whose calls search the corpus."""
BETWEEN_TURNS = (StopReason.TURNS, StopReason.TOKENS, StopReason.WINDOW)
"""Stop reasons that end an episode between two turns, before the policy is called again."""
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application. It is called with scope, receive and send."""
_CHAT_POLICY = re.compile(r"^(chat|anthropic)@([^+]+)")
_PROVIDER_NAMES = {"chat": "openai", "anthropic": "anthropic"}
"""The names of the conventions for a kind of API."""


class Tracing:
    """An observer of a `SearchAgent` that creates spans. One object can serve many agents, threads and tasks.

    Example:
        ```python
        agent = SearchAgent(corpus, observers=[Tracing()])
        ```
    """

    def __init__(
        self, *, content: bool | None = None, name: str = "context-agent", provider: TracerProvider | None = None
    ) -> None:
        """Make an observer that creates spans with a tracer of the provider.

        Args:
            content: True if texts are recorded. None reads the environment variable `CAPTURE_VARIABLE`.
            name: The agent's name in the spans.
            provider: The provider of tracers. Defaults to the provider of the process.
        """
        self.content = (
            os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in CAPTURE_VALUES if content is None else content
        )
        self.name = name
        self._tracer = get_tracer("context_agent", __version__, provider)

    def __call__(self, header: Header) -> Listener:
        """Return the listener that creates the spans of one episode."""
        return _Episode(self._tracer, header, self.name, content=self.content)


def with_remote_traces(app: AsgiApp) -> AsgiApp:
    """Wrap an ASGI application in a layer that continues the trace that a client names in `traceparent`, and return it.

    Use it for a server without other instrumentation. The request itself gets no span.
    """

    async def traced(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        token = contexts.attach(extract(headers))
        try:
            await app(scope, receive, send)
        finally:
            contexts.detach(token)

    return traced


class _Episode:
    """The spans of one episode.

    The open spans are the current spans of the asyncio task that runs the episode. The spans of its calls are therefore
    nested in them.
    """

    def __init__(self, tracer: Tracer, header: Header, name: str, *, content: bool) -> None:
        self._tracer, self._header, self._name, self._content = tracer, header, name, content
        self._open: list[tuple[Span, Any]] = []
        """The open spans, the episode's first. Each has the token that removes it from the context."""
        self._deciding = False
        self._turn_start = 0
        """The time when the calls of the turn started, in nanoseconds since the epoch."""
        self._calls: tuple[ToolCall, ...] = ()
        self._counts = dict.fromkeys(("pruned.chunks", "restored.chunks", "freed.tokens", "recomputed.tokens"), 0)
        self._usage: dict[str, int] = {}

    def __call__(self, event: Event, view: View) -> None:
        match event:
            case PromptShown():
                self._start_episode(event)
                self._start_answer()
            case ActionTaken():
                self._end_answer(event)
            case EditApplied():
                self._add_edit(event, view)
            case ToolResult():
                self._add_call(event)
            case TurnClosed():
                self._start_answer()
            case EpisodeEnded():
                self._end_episode(event)

    def _start_episode(self, event: PromptShown) -> None:
        header = self._header
        span = self._enter(
            f"invoke_agent {self._name}",
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._name,
                "gen_ai.agent.version": header.version,
                "gen_ai.data_source.id": header.corpus,
                "gen_ai.request.seed": header.seed,
                "ctx1.episode.id": header.id,
                "ctx1.policy": header.policy,
                "ctx1.profile": header.profile.name,
                "ctx1.window.tokens": header.budget.window,
            },
        )
        if header.question_id is not None:
            span.set_attribute("ctx1.question.id", header.question_id)
        if self._content:
            prompts = [segment.text for segment in event.segments if segment.role is Role.PROMPT]
            span.set_attribute("gen_ai.system_instructions", as_json([text_part(text) for text in prompts]))
            span.set_attribute(
                "gen_ai.input.messages", as_json([{"role": "user", "parts": [text_part(header.question)]}])
            )

    def _start_answer(self) -> None:
        """Start the span of the policy's next answer."""
        policy = self._header.policy
        chat = _CHAT_POLICY.match(policy)
        if chat:
            kind, model = chat.groups()
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _PROVIDER_NAMES[kind],
                "gen_ai.request.model": model,
            }
            self._enter(f"chat {model}", SpanKind.CLIENT, attributes)
        elif policy.startswith("tokens:"):
            self._enter("text_completion", SpanKind.CLIENT, {"gen_ai.operation.name": "text_completion"})
        else:
            self._enter("decide", SpanKind.INTERNAL, {})
        self._deciding = True

    def _end_answer(self, event: ActionTaken) -> None:
        span = self._leave()
        self._deciding = False
        attributes = {"ctx1.turn": event.turn, "ctx1.action.tokens": event.tokens, **self._reported(event.action)}
        if self._content:
            attributes["gen_ai.output.messages"] = as_json([message_of(event.action)])
        span.set_attributes(attributes)
        span.end()
        self._turn_start = time.time_ns()
        # Results have the numbers of the unwrapped calls, so ids are known only if no call is a wrapper.
        has_wrapper = any(call.name == "multi_tool_use" for call in event.action.calls)
        self._calls = () if has_wrapper else event.action.calls

    def _reported(self, action: Action) -> dict[str, Any]:
        """Return the facts that the model server reported, and add its counts to the episode's usage."""
        usage, rest = reported(action.extra)
        for name, count in usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        return {**usage, **rest}

    def _add_edit(self, event: EditApplied, view: View) -> None:
        edit, cost = event.edit, event.cost
        counts = {
            "pruned.chunks": len(edit.pruned),
            "restored.chunks": len(edit.restored),
            "freed.tokens": cost.freed,
            "recomputed.tokens": cost.recomputed,
        }
        for name, count in counts.items():
            self._counts[name] += count
        attributes: dict[str, Any] = {f"ctx1.{name}": count for name, count in counts.items()}
        if edit.replaced:
            attributes["ctx1.summarized.chunks"] = len(edit.replaced)
        if self._content:
            blocks = view.by_key()
            attributes["ctx1.pruned.ids"] = [blocks[key].id for key in edit.pruned]
            attributes["ctx1.restored.ids"] = [blocks[key].id for key in edit.restored]
        self._open[0][0].add_event("ctx1.edit", {"ctx1.turn": event.turn, **attributes})

    def _add_call(self, event: ToolResult) -> None:
        """Add the span of one call. The calls of a turn run at the same time, so each starts with the turn."""
        end_time = self._turn_start + int(event.seconds * 1e9)
        span = self._tracer.start_span(
            f"execute_tool {event.name}",
            kind=SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.type": "function" if event.name in EDITS else "datastore",
                "ctx1.turn": event.turn,
                "ctx1.result.chunks": sum(isinstance(segment, Block) for segment in event.segments),
                "ctx1.result.tokens": sum(segment.tokens for segment in event.segments),
            },
            start_time=self._turn_start,
        )
        if 0 <= event.call < len(self._calls) and self._calls[event.call].id:
            span.set_attribute("gen_ai.tool.call.id", self._calls[event.call].id)
        if self._content:
            span.set_attribute("gen_ai.tool.call.arguments", as_json(event.arguments))
            span.set_attribute("gen_ai.tool.call.result", "".join(segment.text for segment in event.segments))
        if event.mistake is not None:
            span.set_attribute("error.type", event.mistake)
            span.set_status(StatusCode.ERROR)
        elif event.name in SEARCH_TOOLS:
            self._add_retrieval(event, span, end_time)
        span.end(end_time)

    def _add_retrieval(self, event: ToolResult, tool: Span, end_time: int) -> None:
        corpus = self._header.corpus
        span = self._tracer.start_span(
            f"retrieval {corpus}",
            context=set_span_in_context(tool),
            kind=SpanKind.CLIENT,
            attributes={"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": corpus},
            start_time=self._turn_start,
        )
        if event.arguments.get("limit") is not None:
            span.set_attribute("gen_ai.request.top_k", event.arguments["limit"])
        if self._content:
            blocks = [block for block in event.segments if isinstance(block, Block)]
            documents = as_json([{"id": block.id, "score": block.hit.score} for block in blocks])
            query = event.arguments.get("query") or event.arguments.get("pattern", "")
            span.set_attributes({"gen_ai.retrieval.query.text": query, "gen_ai.retrieval.documents": documents})
        span.end(end_time)

    def _end_episode(self, event: EpisodeEnded) -> None:
        # The agent ends an episode inside the `except` block that caught its failure.
        error = sys.exception()
        is_failure = error is not None and event.stop_reason in (
            StopReason.POLICY_ERROR,
            StopReason.CORPUS_ERROR,
            StopReason.CANCELLED,
        )
        if self._deciding:
            self._end_unanswered(event, error if is_failure else None)
        if not self._open:
            return
        span = self._leave()
        span.set_attributes(
            {
                **self._usage,
                "ctx1.stop_reason": event.stop_reason,
                "ctx1.turns": event.turns,
                "ctx1.tokens": event.tokens,
                "ctx1.mistakes": event.mistakes,
                "ctx1.documents": len(event.documents),
                **{f"ctx1.{name}": count for name, count in self._counts.items()},
            }
        )
        if event.confidence is not None:
            span.set_attribute("ctx1.confidence", event.confidence)
        if self._content:
            ranking = as_json([{"id": document.id, "score": document.score} for document in event.documents])
            message = {"role": "assistant", "parts": [text_part(ranking)], "finish_reason": "stop"}
            span.set_attribute("gen_ai.output.messages", as_json([message]))
        if is_failure:
            _fail(span, error)
        span.end()

    def _end_unanswered(self, event: EpisodeEnded, error: BaseException | None) -> None:
        """End the span of an answer that the episode did not wait for. If the policy was not called, drop the span."""
        span = self._leave()
        if event.stop_reason in BETWEEN_TURNS:
            return
        span.set_attribute("ctx1.stop_reason", event.stop_reason)
        if error is not None:
            _fail(span, error)
        elif event.stop_reason == StopReason.TIME:
            span.set_attribute("error.type", "timeout")
            span.set_status(StatusCode.ERROR)
        span.end()

    def _enter(self, name: str, kind: SpanKind, attributes: Mapping[str, Any]) -> Span:
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        self._open.append((span, contexts.attach(set_span_in_context(span))))
        return span

    def _leave(self) -> Span:
        span, token = self._open.pop()
        contexts.detach(token)
        return span


def _fail(span: Span, error: BaseException | None) -> None:
    """Mark the span as failed. A cancellation by the caller is recorded, but is not a failure."""
    if isinstance(error, asyncio.CancelledError):
        span.set_attribute("error.type", "cancelled")
        return
    assert error is not None
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR, str(error))


def reported(extra: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the facts that a chat server or a token engine reported in an action's `extra`.

    They have the names of the conventions.

    Returns:
        The counts of tokens, and the other attributes.
    """
    if isinstance(usage := extra.get("usage"), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cached_tokens"),
            "gen_ai.usage.reasoning.output_tokens": usage.get("reasoning_tokens"),
        }
        rest = {"gen_ai.response.model": extra.get("model")}
        finish = extra.get("finish_reason")
    elif isinstance(sampled := extra.get(SAMPLED_KEY), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": sampled["kept"] + len(sampled["new"]),
            "gen_ai.usage.output_tokens": len(sampled["output"]),
            "gen_ai.usage.cache_read.input_tokens": sampled["cached"],
        }
        rest = {"gen_ai.response.model": sampled["version"]}
        finish = sampled["finish"]
    else:
        return {}, {}
    attributes: dict[str, Any] = {name: value for name, value in rest.items() if value}
    if finish:
        attributes["gen_ai.response.finish_reasons"] = [finish]
    return {name: count for name, count in counts.items() if count is not None}, attributes


def message_of(action: Action) -> dict[str, Any]:
    """Return the action as an output message of the conventions."""
    parts: list[dict[str, Any]] = []
    if action.reasoning:
        parts.append({"type": "reasoning", "content": action.reasoning})
    if action.text:
        parts.append(text_part(action.text))
    parts += [
        {"type": "tool_call", "id": call.id or None, "name": call.name, "arguments": call.arguments}
        for call in action.calls
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": "tool_call" if action.calls else "stop"}


def text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a message."""
    return {"type": "text", "content": text}


def as_json(value: Any) -> str:
    """Return structured data as the value of a span's attribute."""
    return json.dumps(value, ensure_ascii=False, default=str)
