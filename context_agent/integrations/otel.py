"""OpenTelemetry: what an episode did as spans, named by the GenAI conventions. Needs the extra `otel`.

    agent = SearchAgent(corpus, observers=[Tracing()])

    invoke_agent context-agent              the episode, below whatever span its caller is in
    ├── chat gpt-oss-20b                    one answer of the policy; `decide` where no language model is asked
    ├── execute_tool search_corpus          one call
    │   └── retrieval chroma:notes@…        what the corpus did for it
    └── …                                   and on the episode an event for each edit, with its bill

Texts (question, queries, passages, replies) are recorded only where that is asked for. Attributes that the conventions
have no name for begin with `ctx1.`. A tracer that does not record costs next to nothing; without one there is no cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from context_agent._support.extras import extra
from context_agent.errors import ConfigError
from context_agent.harness.episode import Listener, StopReason
from context_agent.harness.tools import EDITS
from context_agent.harness.trajectory import Header
from context_agent.policies.tokens.prompt import KEY as SAMPLED
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
    from opentelemetry import trace
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as ExportingProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
        SpanExporter,
    )
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider, get_tracer, set_span_in_context

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The conventions' variable. Spans get content for `span_only`, `span_and_event` and the older `true`."""
CAPTURING = ("span_only", "span_and_event", "true")
SEARCHES = ("search_corpus", "grep_corpus")
"""Tools whose calls are retrievals."""
UNANSWERED = (StopReason.TURNS, StopReason.TOKENS, StopReason.WINDOW)
"""Stop reasons that strike between turns: the policy was not asked again."""
ASGI = Callable[[Any, Any, Any], Awaitable[None]]
"""An application: takes scope, receive and send."""
_CHAT = re.compile(r"^chat@([^+]+)")
GROUP = "opentelemetry_traces_exporter"
"""The entry points by which packages offer exporters."""
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


class Tracing:
    """An observer of a `SearchAgent` that makes spans. One may serve many agents, threads and tasks."""

    def __init__(
        self, *, content: bool | None = None, name: str = "context-agent", provider: TracerProvider | None = None
    ) -> None:
        """`content=None` leaves it to the conventions' environment variable; `name` is the agent's in the spans.

        `provider` defaults to the process's own.
        """
        self.content = os.environ.get(CAPTURE, "").strip().lower() in CAPTURING if content is None else content
        self.name = name
        self._tracer = get_tracer("context_agent", __version__, provider)

    def __call__(self, header: Header) -> Listener:
        """The listener that makes one episode's spans."""
        return _Episode(self._tracer, header, self.name, content=self.content)


def continued(app: ASGI) -> ASGI:
    """An ASGI application in which a trace that the client's headers name (`traceparent`) goes on.

    For a server that nothing else instruments: no span is made of the request itself.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        token = contexts.attach(extract(headers))
        try:
            await app(scope, receive, send)
        finally:
            contexts.detach(token)

    return answer


class _Episode:
    """The spans of one episode. The open ones are current in the episode's task, so that calls out nest below them."""

    def __init__(self, tracer: Tracer, header: Header, name: str, *, content: bool) -> None:
        self._tracer, self._header, self._name, self._content = tracer, header, name, content
        self._open: list[tuple[Span, Any]] = []
        """Open spans, the episode's first, each with the token that takes it out of the context."""
        self._deciding = False
        self._acted = 0
        self._calls: tuple[ToolCall, ...] = ()
        self._counts = dict.fromkeys(("pruned.chunks", "restored.chunks", "freed.tokens", "recomputed.tokens"), 0)
        self._usage: dict[str, int] = {}

    def __call__(self, event: Event, view: View) -> None:
        match event:
            case PromptShown():
                self._begin(event)
                self._ask()
            case ActionTaken():
                self._answered(event)
            case EditApplied():
                self._edited(event, view)
            case ToolResult():
                self._returned(event)
            case TurnClosed():
                self._ask()
            case EpisodeEnded():
                self._end(event)

    def _begin(self, event: PromptShown) -> None:
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
            prompts = [one.text for one in event.segments if one.role is Role.PROMPT]
            span.set_attribute("gen_ai.system_instructions", as_json([text_part(text) for text in prompts]))
            span.set_attribute(
                "gen_ai.input.messages", as_json([{"role": "user", "parts": [text_part(header.question)]}])
            )

    def _ask(self) -> None:
        """Opens the span of the policy's next answer."""
        policy = self._header.policy
        chat = _CHAT.match(policy)
        if chat:
            model = chat.group(1)
            named = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",  # the API's flavour: the conventions ask for no more
                "gen_ai.request.model": model,
            }
            self._enter(f"chat {model}", SpanKind.CLIENT, named)
        elif policy.startswith("tokens:"):
            self._enter("text_completion", SpanKind.CLIENT, {"gen_ai.operation.name": "text_completion"})
        else:
            self._enter("decide", SpanKind.INTERNAL, {})
        self._deciding = True

    def _answered(self, event: ActionTaken) -> None:
        span = self._leave()
        self._deciding = False
        told = {"ctx1.turn": event.turn, "ctx1.action.tokens": event.tokens, **self._told(event.action)}
        if self._content:
            told["gen_ai.output.messages"] = as_json([message_of(event.action)])
        span.set_attributes(told)
        span.end()
        self._acted = time.time_ns()
        # Results are numbered as the calls are once wrapped ones are taken apart; ids are told where there are none.
        wrapped = any(call.name == "multi_tool_use" for call in event.action.calls)
        self._calls = () if wrapped else event.action.calls

    def _told(self, action: Action) -> dict[str, Any]:
        """What the model server said about its answer, in the conventions' names; adds to the episode's usage."""
        usage, rest = reported(action.extra)
        for name, count in usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        return {**usage, **rest}

    def _edited(self, event: EditApplied, view: View) -> None:
        edit, cost = event.edit, event.cost
        bill = {
            "pruned.chunks": len(edit.pruned),
            "restored.chunks": len(edit.restored),
            "freed.tokens": cost.freed,
            "recomputed.tokens": cost.recomputed,
        }
        for name, count in bill.items():
            self._counts[name] += count
        told: dict[str, Any] = {"ctx1.turn": event.turn, **{f"ctx1.{name}": count for name, count in bill.items()}}
        if edit.replaced:
            told["ctx1.summarised.chunks"] = len(edit.replaced)
        if self._content:
            ids = {key: one.id for key, one in view.by_key().items()}
            told["ctx1.pruned.ids"] = [ids[key] for key in edit.pruned]
            told["ctx1.restored.ids"] = [ids[key] for key in edit.restored]
        self._episode.add_event("ctx1.edit", told)

    def _returned(self, event: ToolResult) -> None:
        """One call. The calls of a turn run at the same time: each begins with the turn and takes its own time."""
        ended = self._acted + int(event.seconds * 1e9)
        span = self._tracer.start_span(
            f"execute_tool {event.name}",
            kind=SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.type": "function" if event.name in EDITS else "datastore",
                "ctx1.turn": event.turn,
                "ctx1.result.chunks": sum(isinstance(one, Block) for one in event.segments),
                "ctx1.result.tokens": sum(one.tokens for one in event.segments),
            },
            start_time=self._acted,
        )
        if 0 <= event.call < len(self._calls) and self._calls[event.call].id:
            span.set_attribute("gen_ai.tool.call.id", self._calls[event.call].id)
        if self._content:
            span.set_attribute("gen_ai.tool.call.arguments", as_json(event.arguments))
            span.set_attribute("gen_ai.tool.call.result", "".join(one.text for one in event.segments))
        if event.mistake is not None:
            span.set_attribute("error.type", event.mistake)
            span.set_status(StatusCode.ERROR)
        elif event.name in SEARCHES:
            self._retrieved(event, span, ended)
        span.end(ended)

    def _retrieved(self, event: ToolResult, tool: Span, ended: int) -> None:
        corpus = self._header.corpus
        span = self._tracer.start_span(
            f"retrieval {corpus}",
            context=set_span_in_context(tool),
            kind=SpanKind.CLIENT,
            attributes={"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": corpus},
            start_time=self._acted,
        )
        if event.arguments.get("limit") is not None:
            span.set_attribute("gen_ai.request.top_k", event.arguments["limit"])
        if self._content:
            shown = [{"id": one.id, "score": one.hit.score} for one in event.segments if isinstance(one, Block)]
            query = event.arguments.get("query") or event.arguments.get("pattern", "")
            span.set_attributes({"gen_ai.retrieval.query.text": query, "gen_ai.retrieval.documents": as_json(shown)})
        span.end(ended)

    def _end(self, event: EpisodeEnded) -> None:
        # The agent tells an episode of a failure from within the `except` that caught it.
        error = sys.exception()
        failed = error is not None and event.stop_reason in (
            StopReason.POLICY_ERROR,
            StopReason.CORPUS_ERROR,
            StopReason.CANCELLED,
        )
        if self._deciding:
            self._unanswered(event, error if failed else None)
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
        if self._content:
            ranked = [{"id": one.id, "score": one.score} for one in event.documents]
            message = {"role": "assistant", "parts": [text_part(as_json(ranked))], "finish_reason": "stop"}
            span.set_attribute("gen_ai.output.messages", as_json([message]))
        if failed:
            _fail(span, error)
        span.end()

    def _unanswered(self, event: EpisodeEnded, error: BaseException | None) -> None:
        """The policy was being asked when the episode ended; or it would have been, and that is no span."""
        span = self._leave()
        if event.stop_reason in UNANSWERED:
            return
        span.set_attribute("ctx1.stop_reason", event.stop_reason)
        if error is not None:
            _fail(span, error)
        elif event.stop_reason == StopReason.TIME:
            span.set_attribute("error.type", "timeout")
            span.set_status(StatusCode.ERROR)
        span.end()

    @property
    def _episode(self) -> Span:
        return self._open[0][0]

    def _enter(self, name: str, kind: SpanKind, attributes: Mapping[str, Any]) -> Span:
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        self._open.append((span, contexts.attach(set_span_in_context(span))))
        return span

    def _leave(self) -> Span:
        span, token = self._open.pop()
        contexts.detach(token)
        return span


def _fail(span: Span, error: BaseException | None) -> None:
    """Marks the span as failed; a caller who gave up is no failure."""
    if isinstance(error, asyncio.CancelledError):
        span.set_attribute("error.type", "cancelled")
        return
    assert error is not None
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR, str(error))


def reported(extra: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Token counts, and the rest of what an action's `extra` holds from a chat server or a token engine."""
    if isinstance(usage := extra.get("usage"), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cached_tokens"),
            "gen_ai.usage.reasoning.output_tokens": usage.get("reasoning_tokens"),
        }
        rest = {"gen_ai.response.model": extra.get("model")}
        finish = extra.get("finish_reason")
    elif isinstance(sampled := extra.get(SAMPLED), Mapping):
        counts = {
            "gen_ai.usage.input_tokens": sampled["kept"] + len(sampled["new"]),
            "gen_ai.usage.output_tokens": len(sampled["output"]),
            "gen_ai.usage.cache_read.input_tokens": sampled["cached"],
        }
        rest = {"gen_ai.response.model": sampled["version"]}
        finish = sampled["finish"]
    else:
        return {}, {}
    told: dict[str, Any] = {name: value for name, value in rest.items() if value}
    if finish:
        told["gen_ai.response.finish_reasons"] = [finish]
    return {name: count for name, count in counts.items() if count is not None}, told


def message_of(action: Action) -> dict[str, Any]:
    """The action as an output message of the conventions."""
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
    """A text in a message."""
    return {"type": "text", "content": text}


def as_json(value: Any) -> str:
    """As a span's attribute holds what has structure."""
    return json.dumps(value, ensure_ascii=False, default=str)


@contextmanager
def exporting() -> Iterator[None]:
    """Spans of this process are exported as the environment says; what waits is sent when the block ends.

    A provider that was set before, as by `opentelemetry-instrument`, is left as it is. Raises `ConfigError` for an
    exporter that is not installed.
    """
    if isinstance(trace.get_tracer_provider(), ExportingProvider):
        yield
        return
    provider = ExportingProvider(resource=_resource(), shutdown_on_exit=False)
    try:
        for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
            if name.strip() == "console":
                # Not stdout, which belongs to a command's data and to MCP's messages.
                provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
            elif name.strip() not in ("", "none"):
                provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
        trace.set_tracer_provider(provider)
        yield
    finally:
        provider.shutdown()


def _resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "ctx1", "service.version": __version__})


def _exporter(name: str) -> SpanExporter:
    offered = {one.name: one for one in entry_points(group=GROUP)}
    found = _otlp(offered) if name == "otlp" else offered.get(name)
    if found is None:
        known = ", ".join(sorted({"console", "none", *offered}))
        raise ConfigError(f"OTEL_TRACES_EXPORTER={name}: no such exporter is installed here; there are {known}")
    made: Any = found.load()
    exporter: SpanExporter = made()
    return exporter


def _otlp(offered: dict[str, EntryPoint]) -> EntryPoint | None:
    """OTLP by the protocol that the environment names, else by the one that is installed."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    if protocol is None:
        return next((offered[one] for one in OTLP.values() if one in offered), None)
    if protocol not in OTLP:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: give one of {', '.join(OTLP)}")
    if OTLP[protocol] not in offered:
        package = f"opentelemetry-exporter-{OTLP[protocol].replace('_', '-')}"
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} needs {package}: pip install {package}")
    return offered[OTLP[protocol]]
