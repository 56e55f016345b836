"""Saved sessions of coding agents: what the events of each have beside calls and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from context_agent.pruning import ContextPruner
from context_agent.pruning.bundles import find_conversation
from context_agent.pruning.messages import Transcript
from context_agent.tokens import CharCounter
from tests.support.conversations import rendered
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import FILM, LONG, TASK, conversation, noises, pruner
from tests.support.provider_cases import ALWAYS


def codex_events(*outputs: str) -> list[dict[str, Any]]:
    """The events of a run of `codex exec --json`, each command with its start and its end."""
    events: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}]
    for number, output in enumerate(outputs):
        item = {"id": f"item_{number}", "type": "command_execution", "command": f"cat notes{number}.txt"}
        started = {**item, "aggregated_output": "", "exit_code": None, "status": "in_progress"}
        ended = {**item, "aggregated_output": output, "exit_code": 0, "status": "completed"}
        events += [{"type": "item.started", "item": started}, {"type": "item.completed", "item": ended}]
    said = {"id": "last", "type": "agent_message", "text": "I look further."}
    return [*events, {"type": "item.completed", "item": said}, {"type": "turn.completed", "usage": {"input_tokens": 9}}]


def test_the_output_of_a_command_of_codex_exec_is_pruned_and_comes_back() -> None:
    outputs = (noises(0, 6), f"{noises(10, 3)}\n\n{FILM}\n\n{noises(20, 3)}", noises(30, 6), "done")
    events = codex_events(*outputs)
    keeper = ContextPruner(300, effort="fast", prices=ALWAYS, counter=CharCounter())
    pruned = keeper.prune(events, task=TASK)
    texts = [event["item"].get("aggregated_output") for event in pruned.messages if event["type"] == "item.completed"]
    assert pruned.report.warnings == ()
    assert "Ana Berg" in texts[1]
    assert "pruned" in texts[0]
    assert [event["type"] for event in pruned.messages] == [event["type"] for event in events]
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == events


def test_a_failed_command_of_codex_exec_is_an_error_and_tells_what_was_asked() -> None:
    item = {"id": "a", "type": "command_execution", "command": "make docs", "aggregated_output": "no rule"}
    (result,) = Transcript([{"type": "item.completed", "item": {**item, "status": "failed"}}]).results
    assert result.is_error
    assert "make docs" in result.asked
    call = {"id": "b", "type": "mcp_tool_call", "tool": "find", "arguments": {"q": "x"}, "result": None}
    event = {"type": "item.completed", "item": {**call, "error": {"message": "timed out"}, "status": "failed"}}
    (result,) = Transcript([event]).results
    assert (result.text, result.is_error) == ("timed out", True)


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"type": "command_execution"},
        {"type": "command_execution", "command": ["a"], "aggregated_output": {"code": 1}},
        {"type": "mcp_tool_call", "result": "text", "error": "text", "arguments": None},
        {"type": "todo_list", "items": "x"},
        {"type": "file_change", "changes": [None, {"path": "a.py"}]},
        {"type": "error", "message": "lost"},
        {"type": "new_kind", "payload": [1]},
    ],
)
def test_an_odd_item_of_codex_exec_passes_unchanged(item: dict[str, Any]) -> None:
    events = [{"type": "item.completed", "item": item}, *codex_events(noises(0, 8), noises(9, 8), "done")]
    pruned = ContextPruner(300, effort="fast", prices=ALWAYS, counter=CharCounter()).prune(events, task=TASK)
    assert pruned.messages[0] == events[0]
    assert pruned.report.outcome == "pruned"


@pytest.mark.parametrize(
    "entry",
    [
        [{"content": {"Prompt": {"prompt": 3}}}, {"Response": "x"}],
        {"user": {"content": {"ToolUseResults": {"tool_use_results": [None, {"content": "x"}]}}}, "assistant": 4},
        {"user": {"content": {"CancelledToolUses": {}}}, "assistant": {"ToolUse": {"tool_uses": {"id": "a"}}}},
        {"kind": "ToolResults", "data": {"content": [{"kind": "toolResult", "data": []}, None]}},
        {"kind": "AssistantMessage", "data": {"content": [{"kind": "thinking", "data": {"text": "hm"}}]}},
    ],
)
def test_an_odd_entry_of_kiro_passes_unchanged(entry: Any) -> None:
    assert ContextPruner(10, effort="fast").prune([entry]).messages == [entry]


def test_a_saved_conversation_of_kiro_keeps_its_other_fields() -> None:
    outputs = [noises(0, 6), f"{noises(10, 3)}\n\n{FILM}\n\n{noises(20, 3)}", noises(30, 6), "done"]
    entries: list[Any] = []
    held: dict[str, Any] = {"Prompt": {"prompt": TASK}}
    for number, output in enumerate(outputs):
        use = {"id": f"t{number}", "name": "fs_read", "args": {"path": f"{number}.txt"}}
        entries.append([{"content": held}, {"ToolUse": {"content": "", "tool_uses": [use]}}])
        result = {"tool_use_id": f"t{number}", "content": [{"Text": output}], "status": "Success"}
        held = {"ToolUseResults": {"tool_use_results": [result]}}
    entries.append([{"content": held}, {"Response": {"content": "I look further."}}])
    saved = {"conversation_id": "c", "history": entries, "transcript": ["> text"], "valid_history_range": [0, 5]}
    bundle = find_conversation(saved)
    assert bundle is not None
    pruned = ContextPruner(300, effort="fast", prices=ALWAYS, counter=CharCounter()).prune(bundle.messages)
    changed = bundle.with_messages(pruned.messages)
    assert pruned.report.warnings == ()
    assert "Ana Berg" in json.dumps(changed)
    assert pruned.report.tokens_after <= 300 < pruned.report.tokens_before
    assert {name: value for name, value in changed.items() if name != "history"} == {
        name: value for name, value in saved.items() if name != "history"
    }


def test_an_exported_chat_of_vs_code_with_one_request_is_a_conversation() -> None:
    """All rounds of an agent may answer one request of the user."""
    saved = {"responderUsername": "GitHub Copilot", "requests": FRAMEWORKS["vs code"](LONG)}
    assert len(saved["requests"]) == 1
    bundle = find_conversation(saved)
    assert bundle is not None
    pruned = ContextPruner(300, effort="fast", prices=ALWAYS, counter=CharCounter()).prune(bundle.messages)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert bundle.with_messages(pruned.messages)["responderUsername"] == "GitHub Copilot"


@pytest.mark.parametrize(("name", "key"), [("claude.ai", "chat_messages"), ("autogen task", "messages")])
def test_a_chat_in_an_export_is_found(name: str, key: str) -> None:
    chat = {"uuid": "c", "name": "Films", key: FRAMEWORKS[name](conversation(noises(0, 6), FILM, "done"))}
    for saved in (chat, [chat]):
        bundle = find_conversation(saved)
        assert bundle is not None
        assert bundle.path[-1] == key
        assert Transcript(bundle.messages).task == TASK


def test_the_words_of_a_chat_of_claude_ai_without_parts_are_in_its_text() -> None:
    message = {"uuid": "m", "sender": "human", "text": TASK, "content": [], "attachments": []}
    assert Transcript([message]).task == TASK


def compacted(kind: str) -> list[Any]:
    """A saved session whose first results were replaced with a summary. Its last results are long, too."""
    early, late = conversation(noises(0, 6), noises(30, 6)), conversation(noises(50, 6), FILM, "done")
    if kind == "goose":
        hidden = [message | {"metadata": {"agentVisible": False}} for message in FRAMEWORKS["goose"](early)]
        return [*hidden, *FRAMEWORKS["goose"](late)]
    if kind == "zed":
        return [*FRAMEWORKS["zed"](early), {"Compaction": {"Summary": "They searched."}}, *FRAMEWORKS["zed"](late)]
    if kind == "codex":
        note = {"type": "compacted", "payload": {"message": "They searched.", "replacement_history": []}}
        return [*FRAMEWORKS["codex"](early), note, *FRAMEWORKS["codex"](late)]
    subtype = "chat_compression" if kind == "qwen code" else "compact_boundary"
    boundary = {"type": "system", "subtype": subtype, "content": "Conversation compacted"}
    first, last = ([{"type": m["role"], "message": m} for m in rendered("anthropic", part)] for part in (early, late))
    return [*first, boundary, *last]


@pytest.mark.parametrize("kind", ["claude code", "qwen code", "codex", "goose", "zed"])
def test_results_before_a_compaction_stay_and_do_not_count(kind: str) -> None:
    """The model does not see them any more, so removing them would free nothing."""
    messages = compacted(kind)
    texts = [result.text for result in Transcript(messages).results]
    assert texts == [noises(50, 6), FILM, "done"]
    pruned = ContextPruner(100, effort="fast", prices=ALWAYS, counter=CharCounter()).prune(messages)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert noises(30, 6) in [value for value in walked(pruned.messages) if isinstance(value, str)]


def walked(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from walked(item)


@pytest.mark.parametrize(
    "message",
    [
        {"Agent": {"content": [None, {"ToolUse": {"id": "a", "input": 3}}, {"Text": 4}], "tool_results": [1]}},
        {"Agent": {"content": "x", "tool_results": {"a": {"content": [{"Image": {"source": "iVBORw0KGgo="}}, 3]}}}},
        {"User": {"content": {"Text": "x"}}},
        {"Compaction": {"ProviderNative": {"data": "x"}}},
        {"role": "user", "segments": [3], "tool_uses": [None], "tool_results": [{"content": None}]},
    ],
)
def test_an_odd_message_of_zed_passes_unchanged(message: Any) -> None:
    assert ContextPruner(10, effort="fast").prune([message, "Resume"]).messages == [message, "Resume"]


def test_a_signed_call_of_zed_keeps_its_arguments() -> None:
    use = {"id": "a", "name": "write", "input": {"text": noises(0, 12)}}
    messages = [
        {"User": {"content": [{"Text": TASK}]}},
        {"Agent": {"content": [{"ToolUse": use | {"thought_signature": "c2ln"}}], "tool_results": {}}},
        *FRAMEWORKS["zed"](conversation("done", user="")),
    ]
    assert ContextPruner(10, effort="fast", prices=ALWAYS).prune(messages).messages[1] == messages[1]
    messages[1] = {"Agent": {"content": [{"ToolUse": use}], "tool_results": {}}}
    assert ContextPruner(10, effort="fast", prices=ALWAYS).prune(messages).messages[1] != messages[1]


def test_the_hits_of_a_search_in_a_chat_of_claude_ai_are_pruned() -> None:
    hit = {"type": "knowledge", "title": "t", "url": "u", "text": noises(0, 12), "is_citable": True, "links": None}
    messages = FRAMEWORKS["claude.ai"](conversation("done", FILM, "done"))
    found = next(part for message in messages for part in message["content"] if part["type"] == "tool_result")
    found["content"] = [hit]
    pruned = ContextPruner(100, effort="fast", prices=ALWAYS).prune(messages)
    assert pruned.report.warnings == ()
    assert pruned.report.tokens_after <= 100 < pruned.report.tokens_before


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"toolCallRounds": [None, {"toolCalls": [None, {"id": "a"}]}], "toolCallResults": {"a": None}},
        {"toolCallRounds": [{"toolCalls": [{"id": "a"}]}], "toolCallResults": {"a": {"content": [{"value": 3}, None]}}},
        {"toolCallRounds": [{"toolCalls": [{"id": "a"}]}], "toolCallResults": ["a"]},
        {
            "toolCallRounds": [{"toolCalls": [{"id": "a"}]}],
            "toolCallResults": {"a": {"content": [{"value": {"node": 1}}]}},
        },
    ],
)
def test_an_odd_request_of_vs_code_passes_unchanged(metadata: Any) -> None:
    request = {"requestId": "r", "message": {"text": TASK}, "result": {"metadata": metadata}}
    assert ContextPruner(10, effort="fast").prune([request]).messages == [request]


def test_a_summary_and_an_approval_of_letta_are_read() -> None:
    messages = FRAMEWORKS["letta"](conversation(noises(0, 6), noises(10, 6), "done"))
    approval = {"message_type": "approval_response_message", "approve": True, "approval_request_id": "m"}
    messages.insert(1, approval)
    assert pruner().prune(messages).report.outcome == "pruned"
    summary = {"message_type": "summary_message", "summary": "The agent searched."}
    pruned = pruner().prune([*messages, summary])
    assert (pruned.report.tokens_original, pruned.report.warnings) == (0, ())


def test_an_older_copy_of_a_result_of_letta_may_differ() -> None:
    messages = FRAMEWORKS["letta"](conversation(noises(0, 6), "done"))
    old = next(message for message in messages if message["message_type"] == "tool_return_message")
    old["tool_returns"] = [{"status": "success", "tool_return": old["tool_return"], "tool_call_id": "c0"}]
    old["tool_return"] = "short"
    pruned = pruner(100).prune(messages).messages[messages.index(old)]
    assert pruned["tool_return"] == "short"
    assert "pruned" in pruned["tool_returns"][0]["tool_return"]
