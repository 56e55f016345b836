"""OpenTelemetry: the spans of an episode, their attributes and their parents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from mcp import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from context_agent import Action, Limits, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, View
from context_agent.errors import CorpusError, EmbedderError, PolicyError
from context_agent.integrations.mcp.server import make_server
from context_agent.integrations.otel import CAPTURE_VARIABLE, Tracing, with_remote_traces
from context_agent.integrations.server.app import application
from context_agent.policies import load_policy
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.pruning.view import EditApplied
from context_agent.testing.actions import call, prune, rank_all, restore, search, summarize
from tests.support.held_policy import HeldPolicy

STEPS: list[Any] = [
    search("comets and gardens", "bridges", limit=3),
    lambda view: prune(view.blocks[0].id, view.blocks[1].id),
    lambda view: restore(view.pruned[0].id),
    call("grep_corpus", pattern="(unclosed"),
    rank_all,
]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Collect finished spans, in the order in which they end."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def find_spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith(name)]


def attrs(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def tree(exporter: InMemorySpanExporter) -> list[tuple[str, str | None]]:
    """The name of every span and of its parent, in the order in which the spans began."""
    spans = sorted(exporter.get_finished_spans(), key=lambda span: (span.start_time, span.name))
    names = {span.context.span_id: span.name for span in spans if span.context}
    return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in spans]


def test_the_spans_of_an_episode(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    policy = ScriptedPolicy(STEPS)
    with SearchAgent(corpus, policy, observers=[Tracing(provider=provider)], seed=7) as agent:
        result = agent.search("What of comets?", question_id="q1")
    root, retrieval = "invoke_agent context-agent", f"retrieval {corpus.name}"
    search_spans = [("execute_tool search_corpus", root), (retrieval, "execute_tool search_corpus")]
    edit_spans = [("execute_tool prune_chunks", root), ("execute_tool restore_chunks", root)]
    assert sorted(tree(exporter), key=str) == sorted(
        [(root, None), *[("decide", root)] * 5, *search_spans * 2, *edit_spans, ("execute_tool grep_corpus", root)],
        key=str,
    )
    (episode,) = find_spans(exporter, root)
    assert episode.kind is SpanKind.INTERNAL
    assert episode.status.status_code is StatusCode.UNSET
    attributes = attrs(episode)
    header = result.trajectories[0].header
    assert (
        attributes
        | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "context-agent",
            "gen_ai.data_source.id": corpus.name,
            "gen_ai.request.seed": 7,
            "ctx1.episode.id": header.id,
            "ctx1.question.id": "q1",
            "ctx1.policy": "scripted",
            "ctx1.profile": "default",
            "ctx1.window.tokens": 32_768,
            "ctx1.stop_reason": "finished",
            "ctx1.turns": result.turns,
            "ctx1.tokens": result.tokens,
            "ctx1.mistakes": 1,
            "ctx1.documents": len(result.documents),
            "ctx1.pruned.chunks": 2,
            "ctx1.restored.chunks": 1,
        }
        == attributes
    )
    search_span = find_spans(exporter, "execute_tool search_corpus")[0]
    assert attrs(search_span) | {"gen_ai.tool.type": "datastore", "ctx1.turn": 0, "ctx1.result.chunks": 3} == attrs(
        search_span
    )
    assert attrs(find_spans(exporter, "retrieval")[0])["gen_ai.request.top_k"] == 3


def test_an_edit_is_an_event_with_its_bill(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with SearchAgent(corpus, ScriptedPolicy(STEPS), observers=[Tracing(provider=provider)]) as agent:
        result = agent.search("What of comets?")
    edits = [event for event in result.trajectories[0].events if isinstance(event, EditApplied)]
    (episode,) = find_spans(exporter, "invoke_agent")
    assert [event.name for event in episode.events] == ["ctx1.edit", "ctx1.edit"]
    for event, edit in zip(episode.events, edits, strict=True):
        assert dict(event.attributes or {}) == {
            "ctx1.turn": edit.turn,
            "ctx1.pruned.chunks": len(edit.edit.pruned),
            "ctx1.restored.chunks": len(edit.edit.restored),
            "ctx1.freed.tokens": edit.cost.freed,
            "ctx1.recomputed.tokens": edit.cost.recomputed,
        }
    assert edits[0].cost.recomputed > 0
    assert attrs(episode)["ctx1.freed.tokens"] == sum(edit.cost.freed for edit in edits)


def test_a_summary_is_told_with_its_edit(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    steps = [search("comets"), lambda view: summarize("Comets.", *(block.id for block in view.blocks[:3]))]
    steps += [prune("summary:1"), search("rivers")]
    policy, tracing = ScriptedPolicy(steps), Tracing(provider=provider, content=True)
    with SearchAgent(corpus, policy, profile="summary", observers=[tracing]) as agent:
        agent.search("What of comets?")
    (episode,) = find_spans(exporter, "invoke_agent")
    first, second = (dict(event.attributes or {}) for event in episode.events)
    assert (first["ctx1.summarized.chunks"], first["ctx1.pruned.chunks"]) == (3, 0)
    assert second["ctx1.pruned.ids"] == ("summary:1",)


def test_a_policy_s_mistake_fails_its_call_alone(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with SearchAgent(corpus, ScriptedPolicy(STEPS), observers=[Tracing(provider=provider)]) as agent:
        agent.search("What of comets?")
    (grep,) = find_spans(exporter, "execute_tool grep_corpus")
    assert grep.status.status_code is StatusCode.ERROR
    assert attrs(grep)["error.type"] == "bad_pattern"
    failed = [span.name for span in exporter.get_finished_spans() if span.status.status_code is StatusCode.ERROR]
    assert failed == [grep.name]


@pytest.mark.parametrize(
    ("content", "variable", "captured"),
    [
        (None, "", False),
        (None, "SPAN_ONLY", True),
        (None, "true", True),
        (None, "EVENT_ONLY", False),
        (True, "", True),
        (False, "span_only", False),
    ],
)
def test_texts_are_recorded_only_where_that_is_asked_for(
    *,
    content: bool | None,
    variable: str,
    captured: bool,
    corpus: MemoryCorpus,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, variable)
    steps = [search("a telltale query"), call("grep_corpus", pattern="SENTINEL-0003"), rank_all]
    with SearchAgent(corpus, ScriptedPolicy(steps), observers=[Tracing(content=content, provider=provider)]) as agent:
        result = agent.search("A telltale question?", k=50)
    span_json = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert ("telltale" in span_json) is captured
    assert ("SENTINEL" in span_json) is captured
    if captured:
        (episode,) = find_spans(exporter, "invoke_agent")
        (user_message,) = json.loads(attrs(episode)["gen_ai.input.messages"])
        assert user_message == {"role": "user", "parts": [{"type": "text", "content": "A telltale question?"}]}
        (message,) = json.loads(attrs(episode)["gen_ai.output.messages"])
        ranked = json.loads(message["parts"][0]["content"])
        assert [item["id"] for item in ranked] == [item.id for item in result.documents]
        (_, grep) = find_spans(exporter, "retrieval")
        assert attrs(grep)["gen_ai.retrieval.query.text"] == "SENTINEL-0003"
        assert [item["id"] for item in json.loads(attrs(grep)["gen_ai.retrieval.documents"])] == ["d3_0"]


def test_the_caller_s_span_encloses_the_episode_and_the_episode_what_it_calls(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("a web framework")

    def search_over_http(view: View) -> Action:
        with tracer.start_as_current_span("HTTP POST"):
            return search("comets")

    async def request(agent: SearchAgent) -> None:
        with tracer.start_as_current_span("POST /ask"):
            await agent.asearch("What of comets?")
            agent.search("What of comets?")  # in a thread of its own
            async for _ in agent.stream("What of comets?"):
                pass
        assert not trace.get_current_span().get_span_context().is_valid, "nothing is left behind"

    with SearchAgent(corpus, ScriptedPolicy([search_over_http]), observers=[Tracing(provider=provider)]) as agent:
        asyncio.run(request(agent))
    spans = tree(exporter)
    assert spans.count(("invoke_agent context-agent", "POST /ask")) == 3
    assert spans.count(("HTTP POST", "decide")) == 3
    assert len({span.context.trace_id for span in exporter.get_finished_spans() if span.context}) == 1


async def test_a_trace_that_comes_over_http_goes_on(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with SearchAgent(corpus, ScriptedPolicy([search("comets")]), observers=[Tracing(provider=provider)]) as agent:
        app = with_remote_traces(application(agent))
        for headers, parent in (
            ({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, 0xB7AD6B7169203331),
            ({"traceparent": "garbage"}, None),
            ({}, None),
        ):
            exporter.clear()
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
                response = await client.post("/v1/retrieve", json={"question": "What of comets?"}, headers=headers)
            assert response.status_code == 200
            (episode,) = find_spans(exporter, "invoke_agent")
            assert (episode.parent.span_id if episode.parent else None) == parent


async def test_a_trace_that_comes_over_mcp_goes_on(corpus: MemoryCorpus, exporter: InMemorySpanExporter) -> None:
    """The SDK makes its spans with the process's own provider. If none is set, the client's trace still continues."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with SearchAgent(corpus, ScriptedPolicy([search("comets")]), observers=[Tracing(provider=provider)]) as agent:
        async with Client(make_server(agent)) as client:
            with provider.get_tracer("a client").start_as_current_span("ask") as client_span:
                await client.call_tool("retrieve", {"question": "What of comets?"})
    (episode,) = find_spans(exporter, "invoke_agent")
    assert episode.context
    assert episode.context.trace_id == client_span.get_span_context().trace_id


def test_what_a_worker_thread_calls_lies_below_the_episode(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    class Remote:
        blocking = True

        def __getattr__(self, name: str) -> Any:
            return getattr(corpus, name)

        def search(self, query: str, **options: Any) -> Any:
            with provider.get_tracer("chroma").start_as_current_span("embed"):
                return corpus.search(query, **options)

    policy = ScriptedPolicy([search("comets", "bridges")])
    with SearchAgent(Remote(), policy, observers=[Tracing(provider=provider)]) as agent:
        agent.search("What of comets?")
    assert tree(exporter).count(("embed", "invoke_agent context-agent")) == 2


def test_two_episodes_at_once_do_not_mix(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    policy = ScriptedPolicy([search("comets"), search("bridges"), lambda view: prune(view.blocks[0].id)], delay=0.005)

    async def search_all(agent: SearchAgent) -> None:
        await asyncio.gather(*(agent.asearch(f"Question {n}?", question_id=f"q{n}") for n in range(4)))

    with SearchAgent(corpus, policy, observers=[Tracing(provider=provider)]) as agent:
        asyncio.run(search_all(agent))
    spans = exporter.get_finished_spans()
    episodes = find_spans(exporter, "invoke_agent")
    assert sorted(attrs(span)["ctx1.question.id"] for span in episodes) == ["q0", "q1", "q2", "q3"]
    for episode in episodes:
        assert episode.context
        children = [span for span in spans if span.parent and span.parent.span_id == episode.context.span_id]
        assert sorted(span.name for span in children) == sorted(
            ["decide"] * 4 + ["execute_tool search_corpus"] * 2 + ["execute_tool prune_chunks"]
        )
        assert {span.context.trace_id for span in children if span.context} == {episode.context.trace_id}
        assert len(episode.events) == 1


def test_rollouts_are_episodes_side_by_side(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    policy = ScriptedPolicy([search("comets")])
    with SearchAgent(corpus, policy, rollouts=3, observers=[Tracing(provider=provider)]) as agent:
        agent.search("What of comets?")
    assert sorted(attrs(span)["gen_ai.request.seed"] for span in find_spans(exporter, "invoke_agent")) == [0, 1, 2]


def raises(error: Exception) -> Callable[[View], Action]:
    def step(view: View) -> Action:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PolicyError("the server is down"), "policy_error"), (EmbedderError("no vectors"), "corpus_error")],
)
def test_a_failure_is_recorded_where_it_happened_and_on_the_episode(
    error: Exception,
    reason: str,
    corpus: MemoryCorpus,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
) -> None:
    with (
        SearchAgent(corpus, ScriptedPolicy([raises(error)]), observers=[Tracing(provider=provider)]) as agent,
        pytest.raises(type(error)),
    ):
        agent.search("What of comets?")
    decide, episode = exporter.get_finished_spans()
    assert (decide.name, episode.name) == ("decide", "invoke_agent context-agent")
    for span in (decide, episode):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == str(error)
        assert attrs(span)["error.type"] == type(error).__name__
        assert attrs(span)["ctx1.stop_reason"] == reason
        assert [event.name for event in span.events] == ["exception"]


def test_a_corpus_that_fails_in_the_middle(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    class FailingCorpus:
        def __getattr__(self, name: str) -> Any:
            return getattr(corpus, name)

        def grep(self, pattern: str, **options: Any) -> Any:
            raise CorpusError("the index is gone")

    policy = ScriptedPolicy([search("comets"), call("grep_corpus", pattern="comets")])
    with SearchAgent(FailingCorpus(), policy, observers=[Tracing(provider=provider)]) as agent:
        assert agent.search("What of comets?").documents
    (episode,) = find_spans(exporter, "invoke_agent")
    assert attrs(episode)["error.type"] == "CorpusError"
    assert attrs(episode)["ctx1.documents"] > 0
    assert len(find_spans(exporter, "decide")) == 2, "both answers were given"


def test_a_caller_who_gives_up_is_no_failure(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def cancel_search(agent: SearchAgent) -> None:
        task = asyncio.create_task(agent.asearch("What of comets?"))
        assert await asyncio.to_thread(policy.waits.wait, 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    policy = HeldPolicy(at=0)
    with SearchAgent(corpus, policy, observers=[Tracing(provider=provider)]) as agent:
        asyncio.run(cancel_search(agent))
    for span in exporter.get_finished_spans():
        assert span.status.status_code is StatusCode.UNSET
        assert attrs(span)["ctx1.stop_reason"] == "cancelled"
        assert attrs(span)["error.type"] == "cancelled"
    assert len(exporter.get_finished_spans()) == 2


def test_limits_are_no_failures_and_a_decision_cut_short_is_one(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    observers = [Tracing(provider=provider)]
    with SearchAgent(corpus, ScriptedPolicy([search("a")] * 9), limits=Limits(turns=2), observers=observers) as agent:
        agent.search("What of comets?")
    assert len(find_spans(exporter, "decide")) == 2, "no third answer was asked for"
    exporter.clear()
    slow_policy = ScriptedPolicy([search("comets")], delay=5)
    with SearchAgent(corpus, slow_policy, limits=Limits(seconds=0.3), observers=observers) as agent:
        agent.search("What of comets?")
    decide, episode = exporter.get_finished_spans()
    assert attrs(decide)["error.type"] == "timeout"
    assert attrs(episode)["ctx1.stop_reason"] == "time"
    assert episode.status.status_code is StatusCode.UNSET


def test_a_chat_model_s_answers_are_chat_spans_with_its_usage(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 512}}
    replies = [
        says(calls=[("search_corpus", {"query": "comets", "limit": 1})], usage=usage),
        says("<Document id=d5></Document>", usage=usage),
    ]
    with ScriptedServer(replies, models=["tiny"]) as server:
        policy = load_policy("chat", model="tiny", base_url=server.url)
        with SearchAgent(corpus, policy, observers=[Tracing(content=True, provider=provider)]) as agent:
            agent.search("What of comets?")
    chats = find_spans(exporter, "chat tiny")
    assert [chat.kind for chat in chats] == [SpanKind.CLIENT] * 2
    attributes = attrs(chats[0])
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["gen_ai.usage.input_tokens"] == 900
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 512
    (message,) = json.loads(attributes["gen_ai.output.messages"])
    assert message["finish_reason"] == "tool_call"
    assert message["parts"][0]["name"] == "search_corpus"
    (tool,) = find_spans(exporter, "execute_tool search_corpus")
    assert attrs(tool)["gen_ai.tool.call.id"] == message["parts"][0]["id"]
    (episode,) = find_spans(exporter, "invoke_agent")
    assert attrs(episode)["gen_ai.usage.input_tokens"] == 1800
    assert attrs(episode)["gen_ai.usage.output_tokens"] == 40


def test_wrapped_calls_have_no_ids_of_their_own(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    inner_calls = [{"tool_name": "search_corpus", "parameters": {"query": word}} for word in ("comets", "bridges")]
    wrapper = Action(calls=(ToolCall("multi_tool_use", {"tool_calls": inner_calls}, id="c1"),))
    with SearchAgent(corpus, ScriptedPolicy([wrapper]), observers=[Tracing(provider=provider)]) as agent:
        agent.search("What of comets?")
    tool_spans = find_spans(exporter, "execute_tool search_corpus")
    assert len(tool_spans) == 2
    assert not any("gen_ai.tool.call.id" in attrs(span) for span in tool_spans)


def test_every_gen_ai_name_is_one_of_the_conventions(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with SearchAgent(corpus, ScriptedPolicy(STEPS), observers=[Tracing(content=True, provider=provider)]) as agent:
        agent.search("What of comets?")
    convention_names = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    attribute_names = {name for span in exporter.get_finished_spans() for name in attrs(span)}
    assert {name for name in attribute_names if name.startswith("gen_ai.")} <= convention_names
    assert {name for name in attribute_names if not name.startswith(("gen_ai.", "ctx1."))} <= {"error.type"}


@pytest.mark.parametrize(("name", "api"), [("chat@tiny", "openai"), ("anthropic@tiny", "anthropic")])
def test_the_span_of_an_answer_names_the_api_of_its_model(
    corpus: MemoryCorpus, provider: TracerProvider, exporter: InMemorySpanExporter, name: str, api: str
) -> None:
    class NamedPolicy(ScriptedPolicy):
        name: str

    policy = NamedPolicy(STEPS)
    policy.name = name
    with SearchAgent(corpus, policy, observers=[Tracing(provider=provider)]) as agent:
        agent.search("What of comets?")
    assert {attrs(span)["gen_ai.provider.name"] for span in find_spans(exporter, "chat tiny")} == {api}
