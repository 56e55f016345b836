"""The MCP server in memory: the descriptions of its tools, their answers, and errors."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, TextContent

from context_agent import Action, Document, EngineCorpus, MemoryCorpus, ScriptedPolicy, SearchAgent, View
from context_agent.cli.prune_options import PruneOptions
from context_agent.errors import CorpusError, PolicyError
from context_agent.integrations.mcp.results import MAX_READ_TOKENS, joined_text, read_result
from context_agent.integrations.mcp.server import SharedToken, make_server, server_on
from context_agent.integrations.mcp.tools import Tools
from context_agent.integrations.server.live_index import LiveIndex
from context_agent.integrations.server.schema import PruneRequest
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.pruning import ContextPruner
from context_agent.testing.actions import search
from context_agent.types import Chunk
from tests.support.conversations import rendered
from tests.support.film_question import QUESTION, TEXTS
from tests.support.growth import MOST_GROWTH, growth
from tests.support.held_policy import HeldPolicy
from tests.support.long_conversation import LONG

MODES = ("auto", "legacy")
"""The protocol's current form, and the older one with a handshake."""


def make_service(agent: SearchAgent, **settings: Any) -> Service:
    """A service for an agent."""
    return Service(LiveIndex(agent), Settings(**settings))


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def ask(agent: SearchAgent, tool: str, mode: str = "auto", **arguments: Any) -> CallToolResult:
    async with Client(make_server(agent), mode=mode) as client:
        return await client.call_tool(tool, arguments)


async def test_the_tools_say_what_they_are(agent: SearchAgent) -> None:
    async with Client(make_server(agent)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert client.server_info.name == "context-agent"
    assert list(tools) == ["retrieve", "search", "grep", "read", "prune"]
    for tool in tools.values():
        assert tool.annotations
        assert tool.annotations.read_only_hint
        assert not tool.annotations.destructive_hint
        assert tool.title
        assert tool.description
        assert "  " not in tool.description
        assert "context" not in tool.input_schema["properties"]
        for schema in tool.input_schema["properties"].values():
            assert schema["description"]
    assert tools["retrieve"].input_schema["required"] == ["question"]
    assert tools["retrieve"].input_schema["properties"]["k"]["maximum"] == 50


@pytest.mark.parametrize("mode", MODES)
async def test_retrieve_answers_with_documents(agent: SearchAgent, mode: str) -> None:
    answer = await ask(agent, "retrieve", mode, question=QUESTION, k=2, detail="full")
    data = answer.structured_content
    assert data
    assert [item["id"] for item in data["documents"]] == ["d0", "d1"]
    document = data["documents"][0]
    assert (document["title"], document["metadata"]) == ("Rope", {"year": 1948})
    assert document["passages"][0] == {
        "id": "d0_0",
        "text": TEXTS["Rope"][0],
        "score": document["passages"][0]["score"],
    }
    assert data["complete"]
    assert data["turns"] > 0
    assert text(answer).startswith(f"[1] Rope (id: d0_0)\n{TEXTS['Rope'][0]}\n\n[2] Alfred Hitchcock (id: d1_0)")


@pytest.mark.parametrize("mode", MODES)
async def test_a_result_has_data_only_if_the_call_asks_for_it(agent: SearchAgent, mode: str) -> None:
    """Clients such as Claude Code, Codex and pydantic-ai give a model nothing but the data if there are any."""
    calls: dict[str, dict[str, Any]] = {
        "retrieve": {"question": QUESTION},
        "search": {"query": "Rope", "where": {"year": 1948}},
        "grep": {"pattern": "."},
        "read": {"document_id": "d0_0"},
    }
    async with Client(make_server(agent), mode=mode) as client:
        # A tool with an output schema must return data.
        assert [tool.name for tool in (await client.list_tools()).tools if tool.output_schema] == ["prune"]
        for name, arguments in calls.items():
            default, brief = [await client.call_tool(name, {**arguments, **more}) for more in ({}, {"detail": "brief"})]
            full = await client.call_tool(name, {**arguments, "detail": "full"})
            assert (default.structured_content, brief.structured_content) == (None, None)
            assert text(default) == text(brief) == text(full)
            for told in (text(default), str(full.structured_content)):
                assert TEXTS["Rope"][0] in told
        conversation = {"messages": rendered("anthropic", LONG), "budget": 300, "effort": "fast"}
        answer = await client.call_tool("prune", conversation)
        assert answer.structured_content
        assert answer.structured_content["messages"]


async def test_a_recorded_search_is_named_by_its_id_never_by_its_path(agent: SearchAgent) -> None:
    answer = await ask(agent, "retrieve", question=QUESTION, detail="full")
    assert answer.structured_content
    assert agent.trajectories
    assert (agent.trajectories / f"{answer.structured_content['trajectory']}.jsonl").exists()
    assert str(agent.trajectories) not in answer.model_dump_json()
    (served_line,) = (agent.trajectories / "served.jsonl").read_text().splitlines()
    assert json.loads(served_line)["request"] == answer.structured_content["request_id"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_conversation_is_pruned_and_restored(agent: SearchAgent, mode: str) -> None:
    messages, options = rendered("openai", LONG), {"budget": 300, "effort": "fast"}
    async with Client(make_server(agent), mode=mode) as client:
        result = await client.call_tool("prune", {"messages": messages, **options})
        assert result.structured_content
        report = result.structured_content["report"]
        assert text(result).startswith(f"pruned: {report['tokens_after']} of {report['tokens_before']} tokens")
        assert "Ana Berg was its director" in str(result.structured_content["messages"])
        ids = [passage["id"] for passage in report["removed"]]
        restore_arguments = {"messages": result.structured_content["messages"], "restore": ids, **options}
        restoration = await client.call_tool("prune", restore_arguments)
        assert restoration.structured_content == {"messages": messages, "report": None}
        unknown_result = await client.call_tool("prune", {**restore_arguments, "restore": ["p999"]})
        assert unknown_result.is_error
        assert "p999" in text(unknown_result)
        orphan_result = await client.call_tool("prune", {"messages": messages[-1:], **options})
        assert text(orphan_result).startswith("within budget: ")
        assert "result without a call" in text(orphan_result)


async def test_progress_comes_turn_by_turn(films: MemoryCorpus) -> None:
    messages: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append((progress, message))

    policy = ScriptedPolicy([search("Rope", limit=1), search("bread", limit=1)])
    with SearchAgent(films, policy) as agent:
        for mode in MODES:
            messages.clear()
            async with Client(make_server(agent), mode=mode) as client:
                await client.call_tool("retrieve", {"question": QUESTION}, progress_callback=note)
            assert [progress for progress, _ in messages] == [1, 2], mode
            assert messages[1][1]
            assert messages[1][1].startswith("turn 2: search_corpus; 2 passages in view, ")


async def test_the_single_steps(agent: SearchAgent) -> None:
    search_result = (await ask(agent, "search", query="flour and salt", k=1, detail="full")).structured_content
    assert search_result
    assert [item["document_id"] for item in search_result["passages"]] == ["d2"]
    grep_result = (await ask(agent, "grep", pattern="(?i)florence|1948", detail="full")).structured_content
    assert grep_result
    assert [item["id"] for item in grep_result["passages"]] == ["d0_0", "d4_0"]
    filter_arguments = {"pattern": "(?i)florence|1948", "where": {"year": 1948}, "detail": "full"}
    filtered_result = (await ask(agent, "grep", **filter_arguments)).structured_content
    assert filtered_result
    assert [item["id"] for item in filtered_result["passages"]] == ["d0_0"]
    empty_result = await ask(agent, "grep", pattern="zebra", detail="full")
    assert (text(empty_result), empty_result.structured_content) == ("Nothing was found.", {"passages": []})


async def test_a_long_document_is_read_in_parts(tmp_path: Path) -> None:
    source = " ".join(f"Sentence {number} of the long document." for number in range(3_000))
    with SearchAgent(MemoryCorpus([Document("long", source, "Long")], chunk_size=256, overlap=32)) as agent:
        parts, first_chunk = [], 0
        while first_chunk is not None:
            answer = await ask(agent, "read", document_id="long", first_chunk=first_chunk, detail="full")
            part = answer.structured_content
            assert part
            parts.append(part)
            first_chunk = part["next_chunk"]
        assert len(parts) > 2
        assert f"continue with first_chunk={parts[1]['first_chunk']}" not in text(answer)
        assert sum(part["text"].count("Sentence 1500 of") for part in parts) >= 1
        chunks = agent.corpus.read("long")
        assert joined_text(chunks).split() == source.split()
        spans = [part["first_chunk"] for part in parts]
        assert spans == sorted(set(spans))
        assert all(
            sum(chunk.tokens for chunk in chunks[start:end]) <= MAX_READ_TOKENS
            for start, end in itertools.pairwise(spans)
        )


def test_a_part_of_many_small_chunks_is_made_in_linear_time() -> None:
    def chunks(count: int) -> list[Chunk]:
        return [Chunk(f"c{n}", "d", n, "word", 5 * n, 5 * n + 4, 1) for n in range(count)]

    assert growth(lambda part: read_result(part, 0), chunks, MAX_READ_TOKENS // 4) < MOST_GROWTH


@pytest.mark.parametrize(
    ("tokens", "next_chunk"), [([1, MAX_READ_TOKENS], 1), ([MAX_READ_TOKENS, 1], 1), ([9_000], None)]
)
def test_a_part_ends_before_the_chunk_that_does_not_fit(tokens: list[int], next_chunk: int | None) -> None:
    chunks = [Chunk(f"c{n}", "d", n, "word", 5 * n, 5 * n + 4, count) for n, count in enumerate(tokens)]
    data = read_result(chunks, 0, "full").structured_content
    assert data
    assert data["next_chunk"] == next_chunk


def test_chunks_without_offsets_are_joined_line_by_line() -> None:
    chunks = [Chunk(f"c{n}", "d", n, word, 0, len(word), 1) for n, word in enumerate(("one", "two"))]
    assert joined_text(chunks) == "one\ntwo"


async def test_documents_are_resources(agent: SearchAgent) -> None:
    async with Client(make_server(agent)) as client:
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "ctx1://document/{+document_id}"
        (content,) = (await client.read_resource("ctx1://document/d0")).contents
        assert content.model_dump()["text"] == TEXTS["Rope"][0]
        with pytest.raises(MCPError, match="there is no document"):
            await client.read_resource("ctx1://document/../../etc/passwd")


@pytest.mark.parametrize("uri", ["my%20notes/1%25.md?q#part", "my%2520notes%2F1%2525.md%3Fq%23part"])
async def test_the_id_of_a_resource_may_have_percent_encoded_characters(uri: str) -> None:
    """The ids of files have them. The first form is what the template expands to."""
    corpus = MemoryCorpus([Document("my%20notes/1%25.md?q#part", "Rope is a film."), Document("50%", "Half.")])
    async with Client(make_server(SearchAgent(corpus, ScriptedPolicy([])))) as client:
        (content,) = (await client.read_resource(f"ctx1://document/{uri}")).contents
        assert content.model_dump()["text"] == "Rope is a film."
        (content,) = (await client.read_resource("ctx1://document/50%")).contents
        assert content.model_dump()["text"] == "Half."
        with pytest.raises(MCPError, match=r"there is no document 'my%20film\.md'"):
            await client.read_resource("ctx1://document/my%20film.md")
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("file:///etc/passwd%00")


async def test_a_resource_that_cannot_be_read_now_says_why(
    films: MemoryCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(document_id: str) -> list[Chunk]:
        raise CorpusError("/srv/index is gone")

    with SearchAgent(films, ScriptedPolicy([])) as agent:
        service = make_service(agent, concurrency=1, queue=0)
        async with Client(server_on(service)) as client:
            ticket = service.enter()
            with pytest.raises(MCPError, match="1 running, 0 waiting"):
                await client.read_resource("ctx1://document/d0")
            ticket.leave()
            monkeypatch.setattr(films, "read", read)
            with pytest.raises(MCPError, match="the index could not be searched"):
                await client.read_resource("ctx1://document/d0")
            assert service.admission.running == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("retrieve", {"question": "  "}, "the question is empty. Say in words what to look for"),
        ("retrieve", {"question": ""}, "at least 1 character"),
        ("retrieve", {"question": QUESTION, "k": 0}, "greater than or equal to 1"),
        ("retrieve", {"question": QUESTION, "where": {"year": {"$near": 1}}}, "$near"),
        (
            "retrieve",
            {},
            "retrieve: question: Field required. The arguments of retrieve are question, k, where",
        ),
        ("read", {"id": "d0"}, "document_id: Field required. The arguments of read are document_id, first_chunk"),
        ("search", {"query": "\n"}, "the query is empty"),
        ("search", {"query": "Rope", "where": {"$and": [{"year": 1}]}}, "filter"),
        ("grep", {"pattern": "(unclosed"}, "missing )"),
        ("grep", {"pattern": "(?<=a)b"}, "(?<"),
        ("grep", {"pattern": "a", "where": {"a": 1, "b": 2}}, "filter"),
        ("read", {"document_id": "d99"}, "there is no document 'd99'. Use an id from another tool's result"),
        ("read", {"document_id": "d0", "first_chunk": 7}, "first_chunk must be at most 0"),
    ],
)
async def test_a_mistake_says_how_to_mend_it(
    agent: SearchAgent, tool: str, arguments: dict[str, Any], told: str
) -> None:
    answer = await ask(agent, tool, **arguments)
    assert answer.is_error
    assert told in text(answer)
    assert "Traceback" not in text(answer)
    assert "pydantic" not in text(answer)
    assert str(Path.cwd()) not in text(answer)


async def test_a_question_that_the_budget_cannot_hold(films: MemoryCorpus) -> None:
    with SearchAgent(films, budget=4_096) as agent:
        answer = await ask(agent, "retrieve", question="long " * 3_000)
    assert answer.is_error
    assert "more than the soft threshold of 2,048 in a window of 4,096" in text(answer)


async def test_an_unknown_tool(agent: SearchAgent) -> None:
    answer = await ask(agent, "prune")
    assert answer.is_error
    assert "prune" in text(answer)


def failing_step(error: Exception) -> Callable[[View], Action]:
    def step(view: View) -> Action:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PolicyError("http://secret:1/v1 refused the key sk-1"), "the policy failed"),
        (CorpusError("/srv/index is gone"), "the index could not be searched"),
        (RuntimeError("/srv/code.py:3"), "Error executing tool retrieve"),
    ],
)
async def test_a_failure_inside_is_told_by_its_kind_alone(films: MemoryCorpus, error: Exception, told: str) -> None:
    with SearchAgent(films, ScriptedPolicy([failing_step(error)])) as agent:
        answer = await ask(agent, "retrieve", question=QUESTION)
    assert answer.is_error
    assert told in text(answer)
    for secret in ("/srv", "secret", "sk-1"):
        assert secret not in answer.model_dump_json()


async def test_what_was_found_before_a_failure_is_handed_back(films: MemoryCorpus) -> None:
    policy = ScriptedPolicy([search("Rope", limit=1), failing_step(PolicyError("http://secret:1 is down"))])
    with SearchAgent(films, policy) as agent:
        answer = await ask(agent, "retrieve", question=QUESTION, detail="full")
    data = answer.structured_content
    assert data
    assert [item["id"] for item in data["documents"]] == ["d0"]
    assert (data["complete"], data["error"]) == (False, "the policy failed")
    assert text(answer).endswith("(The search was cut short: the policy failed.)")
    assert "secret" not in answer.model_dump_json()


@pytest.fixture
async def slow(films: MemoryCorpus) -> AsyncIterator[tuple[Service, SearchAgent]]:
    """A service with one slot and no queue, whose policy takes its time."""
    with SearchAgent(films, ScriptedPolicy([search("Rope")], delay=30)) as agent:
        yield make_service(agent, concurrency=1, queue=0), agent


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_is_given_up_ends_the_search_and_frees_its_slot(
    slow: tuple[Service, SearchAgent], mode: str
) -> None:
    service, _ = slow
    async with Client(server_on(service), mode=mode) as client:
        call_task = asyncio.create_task(client.call_tool("retrieve", {"question": QUESTION}))
        await wait_until(lambda: service.admission.running == 1)
        refusal = await client.call_tool("retrieve", {"question": QUESTION})
        assert refusal.is_error
        assert "1 running, 0 waiting). Try again in" in text(refusal)
        call_task.cancel()
        await asyncio.gather(call_task, return_exceptions=True)
        await wait_until(lambda: service.admission.running == 0)
        assert not (await client.call_tool("read", {"document_id": "d0"})).is_error


async def test_a_deadline_hands_back_what_there_is(films: MemoryCorpus) -> None:
    with SearchAgent(films, HeldPolicy([search("Rope", limit=1)], at=1)) as agent:
        async with Client(make_server(agent, Settings(deadline=0.6))) as client:
            data = (await client.call_tool("retrieve", {"question": QUESTION, "detail": "full"})).structured_content
    assert data
    assert (data["stop_reason"], data["complete"]) == ("time", False)
    assert [item["id"] for item in data["documents"]] == ["d0"]


async def test_many_calls_at_once_keep_to_the_slots(films: MemoryCorpus) -> None:
    most = 0

    def record_running(view: View) -> Action:
        nonlocal most
        most = max(most, service.admission.running)
        return search("Rope", limit=1)

    with SearchAgent(films, ScriptedPolicy([record_running], delay=0.02)) as agent:
        service = make_service(agent, concurrency=2)
        async with Client(server_on(service)) as client:
            calls = [client.call_tool("retrieve", {"question": QUESTION, "detail": "full"}) for _ in range(10)]
            answers = await asyncio.gather(*calls)
    assert not any(answer.is_error for answer in answers)
    assert most == 2
    assert len({(answer.structured_content or {})["request_id"] for answer in answers}) == 10


def test_the_default_effort_of_pruning_is_the_same_everywhere() -> None:
    efforts = [inspect.signature(call).parameters["effort"].default for call in (ContextPruner, Tools.prune)]
    assert {*efforts, PruneOptions().effort, PruneRequest(messages=[]).effort} == {"thorough"}


def test_a_passage_of_an_engine_loses_no_text_behind_a_longer_one() -> None:
    """The offsets of its chunks count from its own start."""
    counts = {"long": 400, "own": 300}
    passages = [" ".join(f"{word}{number}." for number in range(count)) for word, count in counts.items()]
    corpus = EngineCorpus(lambda query: [{"id": "d", "text": f"\n {text}"} for text in passages])
    corpus.search("own")
    chunks = corpus.read("d")
    assert len(chunks) > 3
    assert joined_text(chunks).split() == " ".join(passages).split()


@pytest.mark.parametrize(("token", "sent"), [("secret", "secret"), ("schlüssel", "schlÃ¼ssel"), ("a\udcff", "a\xff")])
async def test_a_token_may_have_any_bytes(token: str, sent: str) -> None:
    """Python reads an environment variable with surrogate escapes, and the SDK reads a header as Latin-1."""
    verifier = SharedToken(token)
    assert await verifier.verify_token(sent) is not None
    assert await verifier.verify_token(f"{sent}x") is None
