"""Tools that the provider runs: their results are inside the calls, and are pruned if a client may change them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from context_agent.pruning import ContextPruner, messages
from context_agent.tokens import CharCounter
from tests.support.client_types import check
from tests.support.long_conversation import ALWAYS, FILM, TASK, noises

LONG_TEXT = f"{noises(10, 8)}\n\n{FILM}\n\n{noises(40, 8)}"
"""A result with the passage that the task needs."""
OTHER = noises(80, 12)
RECORDS = json.dumps([{"id": row, "text": text} for row, text in enumerate(LONG_TEXT.split("\n\n"))])
SAID = {"type": "text", "text": "I looked it up."}
QUESTION = {"role": "user", "content": TASK}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": "x1", "status": "completed", **fields}


def result(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "tool_use_id": "s1", "content": content, **fields}


def fetched(source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    document = {"type": "document", "source": source, **fields}
    return result(
        "web_fetch_tool_result", {"type": "web_fetch_result", "url": "https://a.example", "content": document}
    )


def executed(kind: str, **fields: Any) -> dict[str, Any]:
    content = {"type": f"{kind}_result", "stderr": "", "return_code": 0, "content": [], **fields}
    return result(f"{kind}_tool_result", content)


PLAIN = {"type": "text", "media_type": "text/plain", "data": LONG_TEXT}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x" * 900}
MCP = {"name": "find", "arguments": '{"film": "Polar Light"}', "server_label": "films"}
CODE = {"code": "print(read())", "container_id": "c"}
BLOCKS = {"type": "content", "content": [{"type": "text", "text": LONG_TEXT}]}
SOURCES = [{"type": "url", "url": f"https://{number}.example"} for number in range(99)]
ITEMS = {
    "mcp_call": item("mcp_call", **MCP, output=LONG_TEXT),
    "mcp_call in JSON": item("mcp_call", **MCP, output=RECORDS),
    "file_search_call": item(
        "file_search_call",
        queries=["director"],
        results=[{"file_id": name, "filename": name, "score": 0.5, "text": text} for name, text in
                 (("a", OTHER), ("b", LONG_TEXT))],
    ),
    "code_interpreter_call": item(
        "code_interpreter_call", **CODE, outputs=[{"type": "image", "url": "u"}, {"type": "logs", "logs": LONG_TEXT}]
    ),
}  # fmt: skip
PARTS = {
    "web_fetch": fetched(PLAIN),
    "web_fetch in blocks": fetched(BLOCKS),
    "code_execution": executed("code_execution", stdout=LONG_TEXT, stderr=OTHER),
    "bash_code_execution": executed("bash_code_execution", stdout=OTHER, stderr=LONG_TEXT),
    "text_editor_code_execution": result(
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_view_result", "content": LONG_TEXT, "file_type": "text"},
    ),
    "mcp": result("mcp_tool_result", LONG_TEXT, is_error=False),
    "mcp in blocks": result("mcp_tool_result", [{"type": "text", "text": LONG_TEXT}], is_error=False),
}
LEFT_ITEMS = {
    "web_search_call": item(
        "web_search_call",
        action={"type": "search", "query": "q", "sources": SOURCES},
    ),
    "image_generation_call": item("image_generation_call", result="iVBORw0K" * 900),
    "no output yet": item("mcp_call", **MCP, output=None),
    "no outputs": item("code_interpreter_call", **CODE, outputs=None),
    "no results": item("file_search_call", queries=["q"], results=None),
    "a program": item("program", call_id="p", code="await find()", fingerprint="f" * 99),
    "a program's result": item("program_output", call_id="p", result=LONG_TEXT),
    "an answer of the user": {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    "found tools": item("tool_search_output", execution="server", tools=[]),
    "tools of the client": {"type": "additional_tools", "role": "developer", "tools": []},
    "other settings": {"type": "configuration_update", "reasoning": {"effort": "low"}},
}  # fmt: skip
LEFT_PARTS = {
    "web_search": result(
        "web_search_tool_result",
        [{"type": "web_search_result", "title": "t", "url": "u", "encrypted_content": LONG_TEXT}],
    ),
    "encrypted code_execution": result(
        "code_execution_tool_result",
        {"type": "encrypted_code_execution_result", "encrypted_stdout": LONG_TEXT, "stderr": OTHER, "return_code": 1,
         "content": []},
    ),
    "a page for a program": fetched(PLAIN) | {"caller": {"type": "code_execution_20260120", "tool_id": "s0"}},
    "a PDF": fetched(PDF),
    "a cited document": fetched(PLAIN, citations={"enabled": True}),
    "a picture": result(
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_view_result", "content": "iVBORw0K" * 900, "file_type": "image"},
    ),
    "a failed fetch": result(
        "web_fetch_tool_result", {"type": "web_fetch_tool_result_error", "error_code": "url_too_long"}
    ),
}  # fmt: skip


def of_items(*items: dict[str, Any]) -> list[Any]:
    said = {"type": "message", "role": "assistant", "content": "I looked it up."}
    return [QUESTION, *items, said, QUESTION]


def of_parts(*parts: dict[str, Any], arguments: dict[str, Any] | None = None) -> list[Any]:
    given = arguments or {"query": "director"}
    calls = [
        {"type": "mcp_tool_use", "id": "s1", "name": "find", "server_name": "films", "input": given}
        if part["type"] == "mcp_tool_result"
        else {
            "type": "server_tool_use",
            "id": "s1",
            "name": part["type"].removesuffix("_tool_result"),
            "input": arguments or {},
        }
        for part in parts
    ]
    both = [part for pair in zip(calls, parts, strict=True) for part in pair]
    said = {"role": "assistant", "content": [SAID]}
    return [QUESTION, {"role": "assistant", "content": [*both, SAID]}, QUESTION, said, QUESTION]


def of_gemini(*parts: dict[str, Any], snake: bool = False) -> list[Any]:
    code = {"executable_code" if snake else "executableCode": {"language": "PYTHON", "code": "print(read())"}}
    user, said = {"role": "user", "parts": [{"text": TASK}]}, {"role": "model", "parts": [{"text": "I looked it up."}]}
    return [user, {"role": "model", "parts": [code, *parts, {"text": "Done."}]}, user, said, user]


def of_bedrock(text: str) -> list[Any]:
    use = {
        "toolUse": {"toolUseId": "s1", "name": "grounding", "type": "server_tool_use", "input": {"query": "director"}}
    }
    answer = {"toolResult": {"toolUseId": "s1", "type": "grounding_result", "content": [{"text": text}]}}
    user, said = (
        {"role": "user", "content": [{"text": TASK}]},
        {"role": "assistant", "content": [{"text": "I looked."}]},
    )
    return [user, {"role": "assistant", "content": [use, answer, {"text": "Done."}]}, user, said, user]


OUTPUT = {"outcome": "OUTCOME_OK", "output": LONG_TEXT}
PRUNED = (
    {f"responses: {name}": of_items(it) for name, it in ITEMS.items()}
    | {f"anthropic: {name}": of_parts(it) for name, it in PARTS.items()}
    | {
        "responses: all": of_items(*ITEMS.values()),
        "anthropic: all": of_parts(*PARTS.values()),
        "gemini": of_gemini({"codeExecutionResult": OUTPUT}),
        "gemini in snake case": of_gemini({"code_execution_result": OUTPUT}, snake=True),
        "bedrock": of_bedrock(LONG_TEXT),
    }
)
LEFT = (
    {f"responses: {name}": of_items(it) for name, it in LEFT_ITEMS.items()}
    | {f"anthropic: {name}": of_parts(it) for name, it in LEFT_PARTS.items()}
    | {"gemini, signed": of_gemini({"codeExecutionResult": OUTPUT, "thoughtSignature": "c2ln"})}
)


def pruner(budget: int = 300) -> ContextPruner:
    return ContextPruner(budget, effort="fast", prices=ALWAYS, counter=CharCounter())


def everything(report: Any) -> list[str]:
    return [removed.id for removed in report.removed]


@pytest.mark.parametrize("name", PRUNED)
def test_results_inside_their_calls_are_pruned_and_come_back(name: str) -> None:
    before = copy.deepcopy(PRUNED[name])
    keeper = pruner()
    check(name, before)
    pruned = keeper.prune(PRUNED[name])
    assert PRUNED[name] == before, "changed in place"
    assert pruned.report.outcome == "pruned"
    assert pruned.report.kind == name.partition(":")[0].split()[0]
    assert pruned.report.warnings == ()
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in str(pruned.messages), "the passage that the task needs"
    check(name, pruned.messages)
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.prune(before).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


@pytest.mark.parametrize("name", PRUNED)
def test_if_nothing_fits_the_calls_are_still_valid(name: str) -> None:
    keeper = pruner(1)
    pruned = keeper.prune(PRUNED[name])
    check(name, pruned.messages)
    assert "Ana Berg" not in str(pruned.messages)
    assert keeper.restore(pruned.messages, everything(pruned.report)) == PRUNED[name]


def test_an_output_in_json_stays_json() -> None:
    pruned = pruner().prune(PRUNED["responses: mcp_call in JSON"]).messages[1]["output"]
    assert len(json.loads(pruned)) < len(json.loads(RECORDS))


@pytest.mark.parametrize("name", LEFT)
def test_what_a_client_may_not_change_stays(name: str) -> None:
    check(name, LEFT[name])
    pruned = pruner(1).prune(LEFT[name])
    assert pruned.messages == LEFT[name]
    assert pruned.report.tokens_before < 10
    assert pruned.report.warnings == ()


def test_signed_arguments_of_a_call_stay() -> None:
    def history(**signature: str) -> list[Any]:
        call = {"functionCall": {"name": "write", "args": {"text": LONG_TEXT}}, **signature}
        answer = {"role": "user", "parts": [{"functionResponse": {"name": "write", "response": {"done": True}}}]}
        user, *_, said, _ = of_gemini()
        return [user, {"role": "model", "parts": [call]}, answer, said, user]

    unsigned = history()
    assert pruner(1).prune(unsigned).messages[1] != unsigned[1]
    signed = history(thoughtSignature="c2ln")
    assert pruner(1).prune(signed).messages[:2] == signed[:2]


def test_results_of_earlier_calls_in_a_row_are_not_the_last_turn() -> None:
    """No message of a user or of a client's tool is between them."""
    calls = [item("mcp_call", **MCP, output=noises(20 * number, 4)) for number in range(6)]
    transcript = messages.Transcript([QUESTION, *calls])
    assert transcript.last_turn == len(calls), "the last call alone"
    assert messages.Transcript([QUESTION, *calls, {"role": "assistant", "content": "Done."}]).last_turn == 7
    pruned = pruner(250).prune([QUESTION, *calls]).messages
    assert pruned[-1] == calls[-1]
    assert pruned[1] != calls[0]


def test_words_of_a_call_that_the_provider_runs_are_the_agents() -> None:
    """They say what the agent looks for. The sources of a search are not its words."""
    search = LEFT_ITEMS["web_search_call"]
    steps = messages.Transcript([QUESTION, *ITEMS.values(), search]).steps(3)
    assert steps[0] == "web_search_call q"
    assert "print(read())" in steps[1]
    assert "director" in steps[2]


@pytest.mark.parametrize(
    "failed",
    [
        item("mcp_call", **MCP, output=f"It broke. {LONG_TEXT}", error="timeout"),
        item("code_interpreter_call", **CODE, outputs=[{"type": "logs", "logs": LONG_TEXT}]) | {"status": "failed"},
        result("mcp_tool_result", LONG_TEXT, is_error=True),
    ],
)
def test_a_failed_call_is_an_error(failed: dict[str, Any]) -> None:
    history = of_parts(failed) if "tool_use_id" in failed else of_items(failed)
    assert [it.is_error for it in messages.Transcript(history).results] == [True]


@pytest.mark.parametrize("outcome", ["OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"])
@pytest.mark.parametrize("field", ["codeExecutionResult", "code_execution_result"])
def test_code_of_gemini_that_failed_is_an_error(outcome: str, field: str) -> None:
    history = of_gemini({field: {"outcome": outcome, "output": OTHER}}, {field: OUTPUT})
    assert [it.is_error for it in messages.Transcript(history).results] == [True, False]


@pytest.mark.parametrize("kind", ["code_execution", "bash_code_execution"])
def test_a_program_of_anthropic_that_failed_is_an_error(kind: str) -> None:
    history = of_parts(executed(kind, stdout=OTHER, return_code=1), executed(kind, stdout=OTHER))
    assert [it.is_error for it in messages.Transcript(history).results if it.text] == [True, False]


@pytest.mark.parametrize(
    ("fields", "failed"),
    [
        ({}, False),
        ({"outcome": {"type": "exit", "exit_code": 0}}, False),
        ({"outcome": {"type": "exit", "exit_code": 2}}, True),
        ({"outcome": {"type": "timeout"}}, True),
    ],
)
def test_a_command_of_a_shell_that_failed_is_an_error(fields: dict[str, Any], failed: bool) -> None:
    call = item("shell_call", call_id="c", action={"commands": ["ls"]})
    output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": OTHER, **fields}]}
    assert [it.is_error for it in messages.Transcript(of_items(call, output)).results] == [failed]


def test_a_command_of_a_shell_that_prints_nothing_causes_no_warning() -> None:
    call = item("shell_call", call_id="c", action={"commands": ["true"]})
    silent = {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    output = {"type": "shell_call_output", "call_id": "c", "output": [silent]}
    assert messages.Transcript(of_items(call, output)).notices == ()


def test_a_patch_that_failed_is_an_error() -> None:
    call = item("apply_patch_call", call_id="d", operation={"type": "delete_file", "path": "a.txt"})
    output = {"type": "apply_patch_call_output", "call_id": "d", "status": "failed", "output": OTHER}
    assert [it.is_error for it in messages.Transcript(of_items(call, output)).results] == [True]


@pytest.mark.parametrize("name", PRUNED)
def test_a_result_belongs_to_its_call_and_is_no_error(name: str) -> None:
    results = messages.Transcript(PRUNED[name]).results
    call_id = {"responses": "x1", "anthropic": "s1", "bedrock": "s1"}.get(name.partition(":")[0], "code")
    assert {(it.call_id, it.is_error) for it in results} == {(call_id, False)}


def test_a_call_and_its_broken_pair_stay_apart() -> None:
    """A result without a call does not take the results inside other calls with it."""
    wrong = {"type": "tool_result", "tool_use_id": "nobody", "content": OTHER}
    history = of_parts(PARTS["mcp"])
    history[1] = {**history[1], "content": [*history[1]["content"], wrong]}
    transcript = messages.Transcript(history)
    assert [it.text for it in transcript.results] == [LONG_TEXT]
    assert len(transcript.faults) == 1


def test_tools_that_the_client_runs_have_results_of_their_own() -> None:
    """The outputs of parallel calls come in another order."""
    calls = [
        item("local_shell_call", call_id="a", action={"type": "exec", "command": ["sh", LONG_TEXT], "env": {}}),
        item("local_shell_call", call_id="b", action={"type": "exec", "command": ["sh", OTHER], "env": {}}),
        item("shell_call", call_id="c", action={"commands": ["ls", OTHER]}),
        item("apply_patch_call", call_id="d", operation={"type": "create_file", "path": "a.txt", "diff": OTHER}),
    ]
    stream = {"stdout": LONG_TEXT, "stderr": OTHER, "outcome": {"type": "exit", "exit_code": 1}}
    outputs = [
        {"type": "apply_patch_call_output", "call_id": "d", "status": "completed", "output": OTHER},
        {"type": "shell_call_output", "call_id": "c", "output": [stream]},
        {"type": "local_shell_call_output", "id": "b", "output": OTHER},
        {"type": "local_shell_call_output", "id": "a", "output": LONG_TEXT},
    ]
    history = of_items(*calls, *outputs)
    keeper = pruner()
    pruned = keeper.prune(history)
    check("responses", history)
    check("responses", pruned.messages)
    assert {text.call_id for text in messages.Transcript(history).results} == {"a", "b", "c", "d"}
    assert pruned.report.warnings == ()
    assert all(new != old for new, old in zip(pruned.messages[1:9], history[1:9], strict=True)), "each is shortened"
    assert [it.get("call_id", it.get("id")) for it in pruned.messages[1:9]] == ["a", "b", "c", "d", "d", "c", "b", "a"]
    assert keeper.restore(pruned.messages, everything(pruned.report)) == history


PROGRAM = {"type": "code_execution_20250825", "tool_id": "s1"}


def called(caller: dict[str, Any] | None) -> dict[str, list[Any]]:
    """A call with a large argument and a large result, by the model itself or by its program."""
    fields = {} if caller is None else {"caller": caller}
    use = {"type": "tool_use", "id": "t", "name": "find", "input": {"text": OTHER}, **fields}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": RECORDS}
    code = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "await find()"}}
    done = [executed("code_execution", stdout="4 films"), SAID]
    call = {"type": "function_call", "call_id": "t", "name": "find", "arguments": json.dumps({"text": OTHER}), **fields}
    return {
        "anthropic": [
            QUESTION,
            {"role": "assistant", "content": [code, use]},
            {"role": "user", "content": [answer]},
            {"role": "assistant", "content": done},
            QUESTION,
        ],
        "responses": of_items(call, {"type": "function_call_output", "call_id": "t", "output": RECORDS}),
    }


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
def test_the_results_of_a_programs_calls_stay(kind: str) -> None:
    """The program computes with them, and the model does not see them."""
    history = called(PROGRAM if kind == "anthropic" else {"type": "program", "caller_id": "p"})[kind]
    check(kind, history)
    for part in (history, history[:3]):
        pruned = pruner().prune(part)
        assert pruned.messages == part
        assert pruned.report.warnings == ()
        assert pruned.report.tokens_before < len(RECORDS)
    for caller in (None, {"type": "direct"}):
        own = called(caller)[kind]
        changed = pruner().prune(own).messages
        assert changed[1] != own[1]
        assert changed[2] != own[2]


def test_frameworks_say_that_a_program_made_a_call() -> None:
    """LangChain says it in the content, and the Vercel AI SDK with the call."""
    caller: dict[str, Any] = {"caller": PROGRAM}
    call = {"name": "find", "args": {"text": OTHER}, "id": "t", "type": "tool_call"}
    use = {"type": "tool_use", "id": "t", "name": "find", "input": {"text": OTHER}}
    part = {"type": "tool-call", "toolCallId": "t", "toolName": "find", "input": {"text": OTHER}}
    output = {
        "type": "tool-result",
        "toolCallId": "t",
        "toolName": "find",
        "output": {"type": "text", "value": RECORDS},
    }
    shown = {
        "type": "tool-find",
        "toolCallId": "t",
        "state": "output-available",
        "input": {"a": OTHER},
        "output": RECORDS,
    }
    answer = {"type": "tool", "content": RECORDS, "tool_call_id": "t"}
    options = {"anthropic": caller}
    said = {"role": "assistant", "content": "Done."}
    histories: dict[str, tuple[list[Any], list[Any]]] = {
        "langchain": (
            [{"type": "ai", "content": [use], "tool_calls": [call]}, answer],
            [{"type": "ai", "content": [use | caller], "tool_calls": [call]}, answer],
        ),
        "langchain, version 1": (
            [{"type": "ai", "content": [call], "tool_calls": [call]}, answer],
            [{"type": "ai", "content": [call | {"extras": caller}], "tool_calls": [call]}, answer],
        ),
        "vercel": (
            [{"role": "assistant", "content": [part]}, {"role": "tool", "content": [output]}],
            [
                {"role": "assistant", "content": [part | {"providerOptions": options}]},
                {"role": "tool", "content": [output]},
            ],
        ),
        "vercel, shown": (
            [{"role": "assistant", "parts": [shown]}],
            [{"role": "assistant", "parts": [shown | {"callProviderMetadata": options}]}],
        ),
    }
    for name, (own, programmed) in histories.items():
        user = {"type": "human", "content": TASK} if name.startswith("langchain") else QUESTION
        end = {"type": "ai", "content": "Done."} if name.startswith("langchain") else said
        assert pruner().prune([user, *own, end, user]).messages[1:3] != [user, *own, end, user][1:3], name
        pruned = pruner().prune([user, *programmed, end, user])
        assert pruned.messages == [user, *programmed, end, user], name
        assert pruned.report.tokens_before == 0, name
        assert pruned.report.warnings == (), name


def test_what_a_summary_replaced_stays_and_does_not_count() -> None:
    def turn(name: str, text: str) -> list[Any]:
        use = {"type": "tool_use", "id": name, "name": "find", "input": {"text": OTHER}}
        answer = {"type": "tool_result", "tool_use_id": name, "content": text}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]

    def history(summary: str | None) -> list[Any]:
        block = {"type": "compaction", "content": summary}
        compacted = {"role": "assistant", "content": [block, SAID]}
        return [QUESTION, *turn("a", LONG_TEXT), compacted, QUESTION, *turn("b", OTHER), *turn("c", "done")]

    before = history("So far: nothing was found.")
    check("anthropic", before)
    keeper = pruner()
    pruned = keeper.prune(before)
    assert pruned.messages[:4] == before[:4]
    assert pruned.messages[6] != before[6]
    assert pruned.report.tokens_before == pruner().prune(before[4:]).report.tokens_before
    assert pruned.report.warnings == ()
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before
    failed = history(None)
    assert pruner().prune(failed).messages[2] != failed[2], "the compaction failed, so the model sees everything"


@pytest.mark.parametrize(
    "kind", ["fallback", "mcp_tool_listing", "tool_addition", "tool_removal", "reference", "non_standard"]
)
def test_blocks_without_a_result_cause_no_warning(kind: str) -> None:
    history = [QUESTION, {"role": "assistant", "content": [{"type": kind}, SAID]}, QUESTION]
    assert pruner().prune(history).report.warnings == ()


def test_deeply_nested_documents_end() -> None:
    source: dict[str, Any] = PLAIN
    for _ in range(3_000):
        source = {"type": "content", "content": [{"type": "document", "source": source}]}
    history = of_parts(fetched(source))
    assert pruner(1).prune(history).messages[:2] == history[:2]


def test_objects_of_the_client_are_pruned() -> None:
    openai = pytest.importorskip("openai.types.responses")
    call = openai.ResponseCodeInterpreterToolCall.model_validate(ITEMS["code_interpreter_call"])
    keeper, history = pruner(), [QUESTION, call, {"role": "assistant", "content": "Done."}]
    pruned = keeper.prune(history)
    assert type(pruned.messages[1]) is type(call)
    assert len(pruned.messages[1].outputs[1].logs) < 0.6 * len(LONG_TEXT)
    assert call.outputs[1].logs == LONG_TEXT
    assert keeper.restore(pruned.messages, everything(pruned.report)) == history


def test_server_tools_in_langchain_messages_are_pruned() -> None:
    core = pytest.importorskip("langchain_core.messages")
    parts = [
        {"type": "code_interpreter_call", **ITEMS["code_interpreter_call"]},
        {"type": "server_tool_call", "id": "a", "name": "run", "args": {"code": "x"}},
        {"type": "server_tool_result", "tool_call_id": "a", "status": "success", "output": OTHER},
        PARTS["web_fetch"],
        SAID,
    ]
    history = [core.HumanMessage(TASK), core.AIMessage(parts), core.HumanMessage(TASK), core.AIMessage("Done.")]
    keeper = pruner()
    pruned = keeper.prune(history)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert pruned.report.kind == "langchain"
    assert {it.call_id for it in messages.Transcript(history).results} == {"x1", "a", "s1"}
    assert pruned.report.tokens_after <= 300
    assert keeper.restore(pruned.messages, everything(pruned.report)) == history


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "title": "Films", "source": PLAIN},
        {"type": "search_result", "title": "Films", "source": "films.txt", "content": BLOCKS["content"]},
    ],
)
def test_a_document_in_a_result_is_pruned_unless_it_may_be_cited(part: dict[str, Any]) -> None:
    """A citation of a search result repeats its whole text."""

    def history(**fields: Any) -> list[Any]:
        content = [{**part, **fields}]
        use = {"type": "tool_use", "id": "t", "name": "find", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": "t", "content": content}
        said = {"role": "assistant", "content": [SAID]}
        return [
            QUESTION,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [answer]},
            said,
            QUESTION,
        ]

    keeper = pruner()
    pruned = keeper.prune(history())
    check("anthropic", pruned.messages)
    assert pruned.report.tokens_after <= 300
    assert keeper.restore(pruned.messages, everything(pruned.report)) == history()
    cited = history(citations={"enabled": True})
    assert pruner(1).prune(cited).messages == cited


@pytest.mark.parametrize("kind", ["browser_state", "custom", "file-reference", "non_standard"])
def test_known_parts_beside_the_text_of_a_result_cause_no_warning(kind: str) -> None:
    use = {"type": "tool_use", "id": "t", "name": "open", "input": {}}
    texts = [{"type": "text", "text": LONG_TEXT}, {"type": "text-plain", "text": OTHER, "mime_type": "text/plain"}]
    answer = {"type": "tool_result", "tool_use_id": "t", "content": [*texts, {"type": kind, "tabs": []}]}
    history = [
        QUESTION,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [answer]},
        {"role": "assistant", "content": [SAID]},
    ]
    pruned = pruner().prune(history)
    assert pruned.report.warnings == ()
    contents = pruned.messages[2]["content"][0]["content"]
    assert [part["text"] != old["text"] for part, old in zip(contents, texts, strict=False)] == [True, True]
    assert contents[2] == answer["content"][2]


@pytest.mark.parametrize(
    "history",
    [
        of_items(item("mcp_call", **MCP | {"arguments": json.dumps({"path": "a.txt", "text": OTHER})}, output="ok")),
        of_items(item("code_interpreter_call", code=OTHER, container_id="c", outputs=[{"type": "logs", "logs": "ok"}])),
        of_parts(executed("bash_code_execution", stdout="ok"), arguments={"command": OTHER, "restart": False}),
        of_parts(result("mcp_tool_result", "ok", is_error=False), arguments={"path": "a.txt", "text": OTHER}),
    ],
)
def test_large_arguments_of_a_call_that_the_provider_runs_are_shortened(history: list[Any]) -> None:
    """An agent writes whole files through an MCP server or in the provider's sandbox."""
    name = "responses:" if "type" in history[1] else "anthropic:"
    check(name, history)
    keeper = pruner()
    pruned = keeper.prune(history)
    assert pruned.report.tokens_before > 300 >= pruned.report.tokens_after
    assert pruned.report.warnings == ()
    check(name, pruned.messages)
    assert keeper.prune(history).messages == keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == history


def test_arguments_of_a_program_and_of_a_call_that_waits_stay() -> None:
    """If a turn pauses, its message ends with a call that the provider has yet to run."""
    history = of_parts(executed("bash_code_execution", stdout="ok"), arguments={"command": OTHER})
    paused = [QUESTION, {"role": "assistant", "content": history[1]["content"][:1]}]
    assert pruner(1).prune(paused).messages == paused
    history[1]["content"][0]["caller"] = {"type": "code_execution_20260120", "tool_id": "s0"}
    assert pruner(1).prune(history).messages == history


def test_what_a_call_that_the_provider_runs_asked_for_belongs_to_its_result() -> None:
    history = of_parts(executed("bash_code_execution", stdout=OTHER), arguments={"command": "cat notes.txt"})
    assert [it.asked for it in messages.Transcript(history).results if it.text] == ["cat notes.txt"]
