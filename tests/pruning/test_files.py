"""PDFs and other files in tool results: how they count, and which of them go."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from context_agent.pruning import ContextPruner, messages
from context_agent.pruning.files import MAX_PAGES, PAGE_BYTES, PAGE_TOKENS, file_tokens
from tests.support.client_types import check
from tests.support.long_conversation import ALWAYS, TASK, noises

FOR_THE_WEB = b"%PDF-1.5\n1 0 obj\n<</Linearized 1/L 54567/O 14/E 51427/N 12/T 54270>>\nendobj\n"
"""The start of a PDF of twelve pages that are compressed."""


def pdf(pages: int, name: str = "") -> bytes:
    objects = b"".join(b"%d 0 obj << /Type /Page /Parent 1 0 R >> endobj\n" % number for number in range(pages))
    return b"%PDF-1.4\n%" + name.encode() + b"\n1 0 obj << /Type /Pages /Kids [] >> endobj\n" + objects


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(1), 1),
        (pdf(30), 30),
        (FOR_THE_WEB + bytes(9 * PAGE_BYTES), 12),
        (b"%PDF-1.5\n" + bytes(3 * PAGE_BYTES), 3),
        (pdf(0) + b"/Type/Page " * 2 * MAX_PAGES, MAX_PAGES),
        (b"PK\x03\x04" + bytes(2 * PAGE_BYTES), 2),
        (b"PK\x03\x04", 1),
    ],
)
def test_the_pages_of_a_file_count(data: bytes, pages: int) -> None:
    for given in (data, in_base64(data), f"data:application/pdf;base64,{in_base64(data)}"):
        assert file_tokens(given, "application/pdf") == pages * PAGE_TOKENS


@pytest.mark.parametrize("data", ["https://example.com/a.pdf", "file_011CNha8iCJcU1wXNR6q4V8w", "\u00e9", "A", "", b""])
def test_a_file_of_unknown_size_counts_a_page(data: str | bytes) -> None:
    assert file_tokens(data, "") == PAGE_TOKENS


def test_a_file_of_text_counts_its_bytes() -> None:
    data = in_base64(b"a,b\n" * 500)
    assert file_tokens(data, "text/csv") == file_tokens(f"data:text/csv;base64,{data}", "") == 500


def anthropic(number: int, data: str) -> list[Any]:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    content = [{"type": "text", "text": "Read."}, {"type": "document", "title": f"Report {number}", "source": source}]
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": content}]},
    ]


def responses(number: int, data: str) -> list[Any]:
    part = {"type": "input_file", "filename": f"{number}.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    return [
        {"type": "function_call", "call_id": f"t{number}", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"t{number}", "output": [part]},
    ]


def bedrock(number: int, data: str) -> list[Any]:
    part = {"document": {"format": "pdf", "name": f"{number}", "source": {"bytes": data}}}
    result = {"toolResult": {"toolUseId": f"t{number}", "content": [{"text": "Read."}, part]}}
    return [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": f"t{number}", "name": "read", "input": {}}}]},
        {"role": "user", "content": [result]},
    ]


def in_chat(part: Callable[[str], dict[str, Any]]) -> Callable[[int, str], list[Any]]:
    def read(number: int, data: str) -> list[Any]:
        call = {"id": f"t{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"t{number}", "content": [part(data)]},
        ]

    return read


FORMATS: dict[str, Callable[[int, str], list[Any]]] = {
    "anthropic": anthropic,
    "responses": responses,
    "bedrock": bedrock,
    "langchain": in_chat(lambda data: {"type": "file", "mime_type": "application/pdf", "base64": data}),
    "mcp": in_chat(lambda data: {"type": "resource", "resource": {"uri": "file:///a.pdf", "blob": data}}),
}
QUESTIONS = {name: [{"text": TASK}] if name == "bedrock" else TASK for name in FORMATS}


def reading(kind: str, *pages: int) -> list[Any]:
    """Return a conversation of an agent that read a PDF in each step."""
    question = {"role": "user", "content": QUESTIONS[kind]}
    steps = [FORMATS[kind](number, in_base64(pdf(count, str(number)))) for number, count in enumerate(pages)]
    return [question, *(message for step in steps for message in step)]


def pruner(budget: int) -> ContextPruner:
    return ContextPruner(budget, effort="fast", prices=ALWAYS)


@pytest.mark.parametrize("kind", FORMATS)
def test_old_files_give_way_to_a_stub_and_the_newest_stays(kind: str) -> None:
    conversation = reading(kind, 3, 4, 5, 6)
    before = copy.deepcopy(conversation)
    check(kind, conversation)
    keeper = pruner(8_000)
    pruned = keeper.prune(conversation)
    assert conversation == before
    assert pruned.report.tokens_before // PAGE_TOKENS == 3 + 4 + 5 + 6
    assert pruned.report.warnings == ()
    check(kind, pruned.messages)
    text = json.dumps(pruned.messages)
    assert [in_base64(pdf(3 + number, str(number))) in text for number in range(4)] == [False, False, False, True]
    assert "1 passage pruned, 6,000 tokens" in text
    assert keeper.prune(conversation).messages == pruned.messages
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == before


def test_the_newest_file_leaves_half_of_the_budget_to_other_results() -> None:
    """A file of 100 pages is larger than any budget. It must not remove all other results."""
    old, *_ = in_chat(lambda data: {"type": "text", "text": data})(9, noises(0, 30)), None
    conversation = [*reading("mcp", 100), *old, {"role": "assistant", "content": "I go on."}]
    pruned = pruner(1_000).prune([*conversation, {"role": "user", "content": TASK}])
    assert pruned.messages[2] == conversation[2]
    assert 250 < pruned.report.tokens_after - 100 * PAGE_TOKENS <= 500
    assert pruned.report.outcome == "pruned"


def test_all_files_of_the_last_turn_stay() -> None:
    parts = [anthropic(number, in_base64(pdf(9, str(number)))) for number in range(3)]
    together = [
        {"role": role, "content": [part for step in parts for part in step[row]["content"]]}
        for row, role in enumerate(("assistant", "user"))
    ]
    conversation = [{"role": "user", "content": TASK}, *together]
    assert pruner(2_000).prune(conversation).messages == conversation
    later = [*conversation, {"role": "assistant", "content": "Done."}, {"role": "user", "content": TASK}]
    kept = [part["content"][1]["type"] for part in pruner(2_000).prune(later).messages[2]["content"]]
    assert kept == ["text", "text", "document"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "source": {"type": "base64", "data": in_base64(pdf(3))}, "citations": {"enabled": True}},
        {"type": "file", "mime_type": "audio/wav", "data": "AAAA"},
        {"type": "document", "document": {"id": "a"}},
        {"type": "file", "file": None},
    ],
)
def test_files_that_cannot_be_replaced_do_not_count(part: dict[str, Any]) -> None:
    conversation = [{"role": "user", "content": TASK}, *in_chat(lambda _: part)(0, "")]
    assert messages.Transcript(conversation).results == ()
    assert pruner(1).prune(conversation).messages == conversation


def test_an_image_in_a_part_for_files_is_an_image() -> None:
    part = {"type": "media", "mime_type": "image/png", "data": "AAAA"}
    (result,) = messages.Transcript([{"role": "user", "content": TASK}, *in_chat(lambda _: part)(0, "")]).results
    assert result.form == "image"
