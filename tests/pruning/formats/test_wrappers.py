"""Objects around a message, and messages that are passed through with a warning."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.pruning.formats.recognition import read_content
from context_agent.pruning.messages import Transcript
from tests.support.conversations import rendered
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import LONG, TASK, noises, pruner


def test_the_records_of_claude_code_are_pruned() -> None:
    messages = [{"type": "message", **m} if m["role"] == "assistant" else m for m in rendered("anthropic", LONG)]
    records = [{"type": m["role"], "uuid": "1", "message": m} for m in messages]
    others: list[Any] = [{"type": name, "uuid": "1"} for name in ("summary", "file-history-snapshot", "progress")]
    others.append({"type": "api-request-blob", "sessionId": "s", "message": messages[2]})
    records = [others[0], *(record for item in records for record in (item, *others[1:]))]
    keeper = pruner()
    pruned = keeper.prune(records)
    assert (pruned.report.kind, pruned.report.outcome, pruned.report.warnings) == ("anthropic", "pruned", ())
    assert pruned.messages[-4:] == records[-4:]
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == records


def test_what_older_sessions_and_streams_of_coding_agents_note_is_no_message() -> None:
    messages = rendered("anthropic", LONG)
    notes = (
        {"type": "system", "subtype": "init", "tools": []},
        {"type": "system", "subtype": "turn_duration", "content": "2 s"},
        {"type": "attachment", "attachment": {"type": "tools"}},
        {"type": "stream_event", "event": {}},
        {"type": "result", "subtype": "success", "result": "Done."},
        {"type": "session", "cwd": "/"},
        {"id": "7", "timestamp": "2025", "instructions": None},
        {"record_type": "state"},
        {"type": "session_start", "title": "Find the film."},
        {"type": "todo_state", "todos": {}},
        {"role": "_checkpoint", "id": 0},
        {"role": "_usage", "token_count": 9},
        {"working_dir": "/", "description": "Find the film.", "message_count": 9},
    )
    records = [*notes[:1], *({"type": m["role"], "message": m} for m in messages), *notes[1:]]
    pruned = pruner().prune(records)
    assert (pruned.report.kind, pruned.report.outcome, pruned.report.warnings) == ("anthropic", "pruned", ())
    assert Transcript([{"type": "system", "content": "Be brief."}]).contents[0].role == "system"


@pytest.mark.parametrize("as_object", [False, True])
def test_an_event_of_google_adk_without_a_content_is_no_message(as_object: bool) -> None:
    """It changes the state, or says that the model failed. The whole session was passed through."""
    field = "invocation_id" if as_object else "invocationId"
    events = [{**event, field: "e"} for event in FRAMEWORKS["google adk"](LONG)]
    events.insert(2, {"author": "agent", field: "e", "actions": {"stateDelta": {"film": 1}}})
    events.insert(5, {"author": "agent", field: "e", "content": None, "errorCode": "SAFETY"})
    messages = [SimpleNamespace(**event) for event in events] if as_object else events
    assert read_content({"role": "assistant", "content": None, field: "e"}, 0).role == "assistant"
    pruned = pruner().prune(messages)
    assert (pruned.report.kind, pruned.report.outcome, pruned.report.warnings) == ("gemini", "pruned", ())


def test_contents_of_gemini_may_have_no_role() -> None:
    """The API takes them for contents of the user. The whole conversation was passed through."""
    messages = rendered("gemini", LONG)
    bare = [{"parts": it["parts"]} if it["role"] == "user" else it for it in messages]
    assert pruner().prune(bare).report == pruner().prune(messages).report
    assert read_content({"parts": [{"functionCall": {"name": "a"}}]}, 0).role == "assistant"
    assert read_content({"parts": [{"name": "a"}, 7]}, 0).role == ""


def test_a_message_inside_an_object_without_a_type_is_pruned() -> None:
    """Continue and Strands save messages so, and OpenInference's traces have them."""
    for rows in (
        [{"message": message, "message_id": 1} for message in rendered("anthropic", LONG)],
        [{"message": message, "contextItems": []} for message in rendered("openai", LONG)],
    ):
        keeper = pruner()
        pruned = keeper.prune(rows)
        assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
        assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == rows


def test_an_observation_of_swe_agent_is_a_result_as_a_whole() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK, "message_type": "observation"}]
    for n in range(4):
        call = {"role": "assistant", "content": "I look.\n```\ncat film\n```", "message_type": "action"}
        result = {"role": "user", "content": f"{noises(10 * n, 6)}\nbash-$", "message_type": "observation"}
        messages += [call, result]
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert Transcript(messages).task == TASK
    assert pruned.report.outcome == "pruned"
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_an_event_of_openhands_without_an_observation_waits_for_none() -> None:
    events = [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "Be brief."}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": TASK}},
        {"id": 2, "source": "agent", "action": "change_agent_state", "args": {"agent_state": "running"}},
        {"id": 3, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {}},
        {"id": 4, "source": "agent", "action": "finish", "args": {"final_thought": "Found."}},
        {"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "x", "value": 1},
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": "Be brief."}},
    ]
    transcript = Transcript(events)
    roles = [content.role for content in transcript.contents]
    assert roles == ["system", "user", "unknown", "unknown", "assistant", "unknown", "system"]
    assert (transcript.notices, transcript.task) == ((), TASK)


def test_the_messages_of_a2a_are_read() -> None:
    parts = [{"kind": "text", "text": "It rains."}, {"kind": "data", "data": {"rain": 1}}]
    messages = [
        {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": TASK}]},
        {"kind": "message", "role": "agent", "parts": parts},
        {"role": "ROLE_AGENT", "parts": [{"text": "It rains."}]},
    ]
    transcript = Transcript(messages)
    assert [content.role for content in transcript.contents] == ["user", "assistant", "assistant"]
    assert transcript.notices == ()


def test_the_messages_that_langchain_saves_in_a_store_are_pruned() -> None:
    core = pytest.importorskip("langchain_core.messages")
    rows = core.messages_to_dict(rendered("langchain", LONG))
    keeper = pruner()
    pruned = keeper.prune(rows)
    assert (pruned.report.kind, pruned.report.outcome) == ("langchain", "pruned")
    core.messages_from_dict(pruned.messages)
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == rows


def langchain_writes(written: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Any]:
    """Return saved messages of LangChain with five written files. The calls are also items of the Responses API."""
    rows: list[Any] = [{"type": "human", "data": {"content": TASK}}]
    for number in range(5):
        name, arguments = f"c{number}", {"path": "a.md", "content": noises(10 * number, 12)}
        item = {"id": f"i{number}", "call_id": name, "name": "write", **written(arguments)}
        calls = [{"type": "tool_call", "id": name, "name": "write", "args": arguments}]
        content = [{"type": "reasoning", "summary": []}, {"type": "web_search_call", "id": "w"}, item]
        rows.append({"type": "ai", "data": {"content": content, "tool_calls": calls}})
        rows.append({"type": "tool", "data": {"content": "done", "tool_call_id": name}})
    return rows


def test_the_arguments_that_langchain_sends_are_shortened_with_those_of_its_calls() -> None:
    rows = langchain_writes(lambda arguments: {"type": "function_call", "arguments": json.dumps(arguments, indent=1)})
    keeper = pruner()
    pruned = keeper.prune(rows)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert len(str(pruned.messages)) < len(str(rows)) / 2
    for message in pruned.messages[1::2]:
        call, item = message["data"]["tool_calls"][0], message["data"]["content"][-1]
        assert json.loads(item["arguments"]) == call["args"]
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == rows


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "custom_tool_call", "input": "{"},
        *({"type": "function_call", "arguments": text} for text in ("{", "[" * 100_000, '{"path": "b.md"}')),
    ],
)
def test_arguments_stay_if_langchain_sends_others(sent: dict[str, Any]) -> None:
    report = pruner().prune(langchain_writes(lambda _: sent)).report
    assert (report.outcome, report.warnings) == ("within budget", ())


@pytest.mark.filterwarnings("error")
def test_the_objects_of_frameworks_are_pruned() -> None:
    types = pytest.importorskip("llama_index.core.base.llms.types")
    haystack = pytest.importorskip("haystack.dataclasses")
    texts = [noises(10 * n, 6) for n in range(4)]
    blocks: list[Any] = [types.ChatMessage(role="user", content="Find the film of the year.")]
    messages: list[Any] = [haystack.ChatMessage.from_user("Find the film of the year.")]
    for n, text in enumerate(texts):
        block = types.ToolCallBlock(tool_call_id=f"c{n}", tool_name="search", tool_kwargs={"q": "x"})
        blocks.append(types.ChatMessage(role="assistant", blocks=[block]))
        blocks.append(types.ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": f"c{n}"}))
        call = haystack.ToolCall("search", {"q": "x"}, id=f"c{n}")
        messages.append(haystack.ChatMessage.from_assistant(tool_calls=[call]))
        messages.append(haystack.ChatMessage.from_tool(text, origin=call))
    for conversation in (blocks, messages):
        keeper = pruner()
        pruned = keeper.prune(conversation)
        assert pruned.report.outcome == "pruned"
        assert [type(m) for m in pruned.messages] == [type(m) for m in conversation]
        assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == conversation


def test_the_objects_of_harmony_are_pruned() -> None:
    harmony = pytest.importorskip("openai_harmony")
    messages = [harmony.Message.from_role_and_content(harmony.Role.USER, "Find the film of the year.")]
    for n in range(4):
        call = harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, "{}")
        messages.append(call.with_channel("commentary").with_recipient("functions.search"))
        author = harmony.Author.new(harmony.Role.TOOL, "functions.search")
        messages.append(harmony.Message.from_author_and_content(author, noises(10 * n, 6)).with_channel("commentary"))
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_a_result_that_is_no_json_is_named() -> None:
    class Film:
        pass

    call = {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c", "args": None}
    part = {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "content": Film()}
    messages = [{"kind": "response", "parts": [call]}, {"kind": "request", "parts": [part]}]
    (warning,) = pruner().prune(messages).report.warnings
    assert warning.startswith("message 1 has a part of unknown type 'Film', which stays as it is. ")


def test_the_texts_beside_files_in_a_result_are_pruned() -> None:
    class Picture:
        pass

    call = {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c", "args": None}
    part = {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "content": [noises(0, 9), Picture()]}
    said = {"kind": "response", "parts": [{"part_kind": "text", "content": "I look further."}]}
    messages = [{"kind": "response", "parts": [call]}, {"kind": "request", "parts": [part]}, said]
    pruned = pruner().prune(messages)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert pruned.messages[1]["parts"][0]["content"][1] is part["content"][1]


def test_the_text_of_a_result_of_the_agent_framework_and_its_items_change_together() -> None:
    """Some of its clients send the text to the model, and others send the items."""
    messages = FRAMEWORKS["agent framework"](LONG)
    keeper = pruner()
    pruned = keeper.prune(messages)
    results = [part for message in pruned.messages for part in message["contents"] if "result" in part]
    assert [part["items"][0]["text"] for part in results] == [part["result"] for part in results]
    several = copy.deepcopy(messages)
    several[3]["contents"][0]["items"] *= 2
    left = pruner().prune(several)
    assert left.messages[3] == several[3]
    assert len(left.report.warnings) == 1
    assert "several texts" in left.report.warnings[0]


@pytest.mark.parametrize("part", [{"type": "image-data"}, {"type": "media"}, {"type": "image-url", "url": "https://a"}])
def test_old_images_in_results_of_the_vercel_sdk_give_way(part: dict[str, str]) -> None:
    messages: list[Any] = [{"role": "user", "content": "Book a flight to Bergen."}]
    for n in range(4):
        call = {"type": "tool-call", "toolCallId": f"c{n}", "toolName": "screen", "input": {}}
        image = {"data": f"iVBORw0KGgo{n}", "mediaType": "image/png", **part}
        output = {"type": "content", "value": [{"type": "text", "text": f"Screen {n}."}, image]}
        result = {"type": "tool-result", "toolCallId": f"c{n}", "toolName": "screen", "output": output}
        messages += [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    keeper = pruner(2_500)
    pruned = keeper.prune(messages)
    assert pruned.report.warnings == ()
    first, last = (pruned.messages[n]["content"][0]["output"]["value"][1] for n in (2, 8))
    assert first["type"] == "text"
    assert last["type"] == part["type"]
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_fields_that_a_framework_also_has_do_not_hide_the_content() -> None:
    messages = [{"kind": "request", **message} for message in rendered("openai", LONG)]
    pruned = pruner().prune(messages)
    assert (pruned.report.kind, pruned.report.outcome) == ("openai", "pruned")
    (warning,) = pruner().prune([{"role": "USER", "content": "x"}] * 3).report.warnings
    assert warning.startswith("message 0, like 2 more, is of unknown type 'USER'")


def test_an_approval_is_no_result() -> None:
    call = {"type": "tool-call", "toolCallId": "c", "toolName": "pay", "input": {}}
    request = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}
    answer = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
    result = {"type": "tool-result", "toolCallId": "c", "toolName": "pay", "output": {"type": "text", "value": "ok"}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [call, request]},
        {"role": "tool", "content": [answer]},
        {"role": "tool", "content": [result]},
    ]
    assert pruner().prune(messages).report.warnings == ()


def test_the_results_of_a_tool_of_the_provider_stay() -> None:
    """Their texts may be encrypted or signed."""
    tool = {"type": "tool-call", "toolCallId": "c", "toolName": "web", "input": {"q": "x"}, "providerExecuted": True}
    output = {"type": "json", "value": {"text": noises(0, 20)}}
    result = {"type": "tool-result", "toolCallId": "c", "toolName": "web", "output": output}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [tool, result]}]
    pruned = pruner().prune([*messages, {"role": "user", "content": "Go on."}])
    assert pruned.messages[:2] == messages
    assert pruned.report.warnings == ()


def test_what_opencode_does_not_send_stays() -> None:
    """OpenCode sends no result that it compacted, and the user wrote no synthetic text."""
    messages = FRAMEWORKS["opencode"](LONG)
    for message in messages[1:]:
        for part in message["parts"]:
            if part["type"] == "tool":
                part["state"]["time"]["compacted"] = 3
    pruned = pruner().prune(messages)
    assert pruned.report.tokens_before == 0
    assert pruned.messages == messages
    assert Transcript(messages).task == TASK


def test_a_signed_call_of_goose_and_its_resource_are_read() -> None:
    arguments = {"text": noises(0, 40)}
    call = {"type": "toolRequest", "id": "c", "thoughtSignature": "x", "toolCall": {"value": {"arguments": arguments}}}
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": noises(10, 20)}}
    link = {"type": "resource_link", "uri": "file:///b"}
    result = {"type": "toolResponse", "id": "c", "toolResult": {"status": "success", "value": [resource, link]}}
    confirmation = {"type": "toolConfirmationRequest", "id": "c", "toolName": "write"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": TASK}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [confirmation]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.warnings == ()
    assert pruned.messages[:3] == messages[:3]
    assert pruned.messages[3] != messages[3]
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


SIGNATURE = {"google": {"thoughtSignature": "x"}}


def _call_of_chat(arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "write", "arguments": json.dumps(arguments)}
    call = {
        "id": "c",
        "type": "function",
        "function": function,
        "extra_content": {"google": {"thought_signature": "x"}},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _call_of_pydantic_ai(arguments: dict[str, Any]) -> dict[str, Any]:
    details = {"thought_signature": "x"}
    part = {"part_kind": "tool-call", "tool_call_id": "c", "tool_name": "w", "args": arguments}
    return {"kind": "response", "parts": [{**part, "provider_details": details}]}


def _call_of_vercel(arguments: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "tool-call", "toolCallId": "c", "toolName": "write", "input": arguments}
    return {"role": "assistant", "content": [{**part, "providerOptions": SIGNATURE}]}


def _call_of_vercel_ui(arguments: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "tool-write", "toolCallId": "c", "state": "output-available", "input": arguments, "output": "ok"}
    return {"role": "assistant", "parts": [{**part, "callProviderMetadata": SIGNATURE}]}


@pytest.mark.parametrize("call", [_call_of_chat, _call_of_pydantic_ai, _call_of_vercel, _call_of_vercel_ui])
def test_the_arguments_of_a_signed_call_stay_and_are_words_of_the_agent(call: Any) -> None:
    content = read_content(call({"text": noises(0, 40)}), 0)
    assert content.arguments == ()
    assert "The weather of region 0 brings rain" in content.text


def test_results_that_gemini_cli_repeats_are_read() -> None:
    fields = {"id": "m", "timestamp": "2026-01-01T00:00:00Z"}
    response = {"functionResponse": {"id": "c", "name": "read", "response": {"output": noises(0, 20)}}}
    call = {"id": "c", "name": "read", "args": {}, "status": "success", "result": noises(0, 20)}
    messages = [
        {**fields, "type": "user", "content": TASK},
        {**fields, "type": "gemini", "content": ["I read."], "toolCalls": [call]},
        {**fields, "type": "user", "content": [response, {"inlineData": {"data": "x"}}]},
        {**fields, "type": "gemini", "content": "Done."},
    ]
    assert Transcript(messages).task == TASK
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.warnings == ()
    assert pruned.messages[1]["toolCalls"][0]["result"] != call["result"]
    assert pruned.messages[2]["content"][0] != response
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_the_history_of_cline_is_one_of_anthropic() -> None:
    messages = [{**message, "ts": 1, "modelInfo": {}} for message in rendered("anthropic", LONG)]
    pruned = pruner().prune(messages)
    assert (pruned.report.kind, pruned.report.outcome, pruned.report.warnings) == ("anthropic", "pruned", ())


def test_the_texts_of_semantic_kernel_that_a_tool_of_mcp_returns_are_pruned() -> None:
    messages = FRAMEWORKS["semantic-kernel"](LONG)
    for message in messages:
        for item in message["items"]:
            if item["content_type"] == "function_result":
                item["result"] = [SimpleNamespace(content_type="text", text=item["result"])]
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert pruned.report.tokens_after <= 300
    results = [item["result"] for message in pruned.messages for item in message["items"] if "result" in item]
    assert all(isinstance(text, SimpleNamespace) for (text,) in results)
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


AI: dict[str, Any] = {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": {}, "id": "c"}]}
ANSWER: dict[str, Any] = {"type": "tool", "content": noises(0, 6), "tool_call_id": "c"}
HUMAN: dict[str, Any] = {"type": "human", "content": TASK}


@pytest.mark.parametrize(
    ("event", "roles"),
    [
        ({"agent": {"messages": [AI]}, "tools": {"messages": [ANSWER]}, "log": None}, ["assistant", "tool"]),
        ({"agent": {"messages": AI, "steps": 3}}, ["assistant"]),
        ({"human": {"messages": [HUMAN]}}, ["user"]),
        ({"agent": None}, ["unknown"]),
        ({"__interrupt__": [{"value": "Continue?"}]}, ["unknown"]),
        ({"trim": {"messages": [{"type": "remove", "id": "m"}, HUMAN]}}, ["unknown", "user"]),
        ({"thread": {"messages": [HUMAN, AI]}}, [""]),
        ({"request": {"messages": [AI, ANSWER]}}, [""]),
        ({"agent": {"messages": [{"role": "assistant", "content": "x"}]}}, [""]),
        ({"agent": {"messages": []}}, ["unknown"]),
    ],
)
def test_the_messages_of_an_update_of_langgraph(event: Any, roles: list[str]) -> None:
    """A list that begins with the user and goes on is a conversation by itself, such as one of several in a log."""
    content = read_content(event, 0)
    assert [content.role, *(later.role for later in content.later)] == roles


def test_updates_of_langgraph_may_have_its_objects_and_remove_all_messages() -> None:
    core = pytest.importorskip("langchain_core.messages")
    updates = [{name: {"messages": [message]}} for message in rendered("langchain", LONG) for name in ("node",)]
    keeper = pruner()
    pruned = keeper.prune(updates)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == updates
    removal = core.RemoveMessage(id="__remove_all__").model_dump()
    assert pruner().prune([*updates, {"trim": {"messages": [removal, HUMAN]}}]).report.tokens_original == 0


def test_a_spoken_question_of_the_realtime_api_is_the_task() -> None:
    spoken = {"type": "message", "role": "user", "content": [{"type": "input_audio", "transcript": None}]}
    heard = {"type": "conversation.item.input_audio_transcription.completed", "event_id": "e", "transcript": TASK}
    events = [
        {"type": "session.update", "session": {}},
        {"type": "conversation.item.added", "event_id": "e", "item": spoken},
        heard,
        {"type": "error", "event_id": "e", "error": {}},
    ]
    transcript = Transcript(events)
    assert (transcript.task, transcript.notices) == (TASK, ())
    streamed = {"type": "response.done", "sequence_number": 3, "response": {"output": []}}
    assert read_content(streamed, 0).unknown == ("response.done",)


def test_a_message_of_the_environment_is_a_result_if_it_follows_the_agent() -> None:
    messages = [{"role": "environment", "content": TASK}, {"role": "assistant", "content": "click[Films]"}]
    messages += [{"role": "environment", "content": noises(0, 6)}, {"role": "assistant", "content": "Done."}]
    assert [content.role for content in Transcript(messages).contents] == ["user", "assistant", "tool", "assistant"]
    assert Transcript(messages).task == TASK
    assert read_content({"role": "environment", "content": "x", "tool_call_id": "c"}, 0).answers[0].id == "c"


def test_objects_and_texts_in_one_result_are_pruned() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    parts = [{"type": "text", "text": "Found:"}, *({"title": f"Item {n}", "body": noises(n, 1)} for n in range(9)), 7]
    messages = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": parts},
        {"role": "assistant", "content": "Done."},
    ]
    keeper = pruner(200)
    pruned = keeper.prune(messages)
    (warning,) = pruned.report.warnings
    assert warning.startswith("message 2 has a part of unknown type ''")
    assert pruned.report.tokens_after <= 200 < pruned.report.tokens_before
    assert all(part.keys() == {"title", "body"} for part in pruned.messages[2]["content"][1:-1])
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_a_plan_and_an_error_of_smolagents_are_read() -> None:
    steps = [
        {"plan": "I will search.", "model_output_message": {}, "timing": {}},
        {"observations": None, "model_output": "x", "error": {"type": "E", "message": "no film"}, "tool_calls": None},
    ]
    plan, failed = Transcript(steps).contents
    assert (plan.role, plan.text) == ("assistant", "I will search.")
    assert [(text.path, text.is_error) for text in failed.results] == [(("error", "message"), True)]


def test_a_trajectory_of_dspy_by_itself_is_pruned() -> None:
    (message,) = FRAMEWORKS["dspy"](LONG)
    for messages in ([message["trajectory"]], [message | {"answer": "In Bergen."}]):
        keeper = pruner()
        pruned = keeper.prune(messages)
        assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
        assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages
    assert read_content(messages[0], 0).later[-1].text == "In Bergen."


def test_an_event_inside_events_passes_unchanged() -> None:
    event: dict[str, Any] = {"type": "response.done", "event_id": "e", "response": {"output": [AI]}}
    for _ in range(2_000):
        event = {"type": "response.done", "event_id": "e", "response": {"output": [event]}}
    assert read_content(event, 0).role == "unknown"
