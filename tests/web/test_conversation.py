"""The page of a pruned conversation in a real Chromium: what was pruned, when, why, and at what cost."""

from __future__ import annotations

from context_agent.pruning.report import PruneReport, RemovedPassage
from context_agent.web.conversation import ModelCall, conversation_page, model_calls
from tests.support.conversations import Call, Turn, rendered
from tests.support.long_conversation import LONG, TASK, noises, pruner, search
from tests.support.text_agents import react_prompt


def test_the_page_shows_each_call_and_what_went_before_it(browser, tmp_path):
    hostile = "<script>document.title = 'x'</script> It is fine."
    turns = [*LONG, search(8, hostile), Turn("", "restore: p1", (Call("c9", {}, ("fine",)),))]
    messages = rendered("anthropic", turns)
    calls = model_calls(messages, pruner())
    roles = [message["role"] for message in messages]
    turns_begin = [n for n, role in enumerate(roles) if role == "assistant" and roles[n - 1] == "user"]
    assert [call.messages for call in calls] == [*turns_begin, len(messages)]
    path = tmp_path / "conversation.html"
    path.write_text(conversation_page(messages, calls, "Pruning: a <b>"), encoding="utf-8")
    browser.open(path, ready="document.readyState === 'complete'")
    assert browser.texts("h1") == ["Pruning: a <b>"]
    assert len(browser.texts("tr")) == 1 + len(calls)
    (report, *_) = [call.report for call in calls if call.report.outcome == "pruned"]
    row = browser.texts("tr.pruned")[0]
    for number in (report.tokens_before, report.tokens_after, report.freed, report.cached_lost):
        assert f"{number:,}" in row
    passage = report.removed[0]
    (passage_text,) = browser.texts(f"#m{passage.message} li[data-id={passage.id}]")
    assert f"{passage.tokens} tokens" in passage_text
    assert "less relevant than what stays" in passage_text
    assert passage.preview in passage_text
    assert "restored before call" in passage_text
    assert browser.complaints() == []


def test_a_passage_that_is_removed_again_is_not_restored_before_that():
    messages = [{"role": "user", "content": "What is it?"}]
    passage = RemovedPassage("p1", 0, "c1", 10, 0.1, "less relevant than what stays", "It is a mill.")
    reports = [
        PruneReport("pruned", "openai", "bm25", removed=(passage,)),
        PruneReport("within budget", "openai", "bm25", restored=("p1",)),
        PruneReport("pruned", "openai", "bm25", removed=(passage,)),
    ]
    page = conversation_page(messages, [ModelCall(1, report) for report in reports], "t")
    assert "p1 before call 1, restored before call 2: " in page
    assert "p1 before call 3: " in page


def test_a_conversation_without_calls_or_with_problems_has_a_page():
    assert "0 calls" in conversation_page([], model_calls([], pruner()), "t")
    orphan = [{"role": "tool", "tool_call_id": "x", "content": "<i>"}]
    page = conversation_page(orphan, model_calls(orphan, pruner()), "t")
    assert "result without a call" in page
    assert "&lt;i&gt;" in page


def test_a_message_with_several_turns_has_one_article():
    messages = [{"role": "user", "content": react_prompt(TASK, [noises(0, 20), "done"])}]
    calls = model_calls(messages, pruner())
    assert [call.messages for call in calls] == [1]
    page = conversation_page(messages, calls, "t")
    assert page.count("<article") == 1
    assert page.count("data-id=") == len(calls[0].report.removed) > 0
    assert "Item 19 ends with a calm week" in page
