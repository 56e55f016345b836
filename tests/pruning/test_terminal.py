"""Colors of a terminal hide neither the structure of a result nor its words."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from context_agent.pruning import ContextPruner
from context_agent.pruning.gaps import without
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import cut
from context_agent.pruning.terminal import PlainText, without_escapes
from context_agent.tokens import HarmonyCounter

RED, GREEN, CYAN, END = "\x1b[31m", "\x1b[1;38;5;40m", "\x1b[36m", "\x1b[m"
LINK = "\x1b]8;;https://example.com/a\x1b\\"


def hunk(first: int) -> str:
    context = "\n".join(f" value_{number} = {number}" for number in range(first, first + 20))
    return f"@@ -{first},21 +{first},21 @@ def part():\n-old_{first} = 1\n+new_{first} = 2\n{context}"


PLAIN_DIFF = "\n".join(
    f"diff --git a/{name}.py b/{name}.py\nindex 92baa625..ac394c3d 100644\n--- a/{name}.py\n+++ b/{name}.py\n"
    f"{hunk(10)}\n{hunk(80)}"
    for name in ("first", "second", "third")
)


def colored(text: str) -> str:
    """The text as Git colors it."""
    text = re.sub(r"^(-.*)$", rf"{RED}\1{END}", text, flags=re.M)
    text = re.sub(r"^(\+)(.*)$", rf"{GREEN}\1{END}{GREEN}\2{END}", text, flags=re.M)
    return re.sub(r"^(@@.*@@)( .*)$", rf"{CYAN}\1{END}\2{END}", text, flags=re.M)


def test_a_colored_diff_has_the_passages_of_the_plain_one() -> None:
    text = colored(PLAIN_DIFF)
    passages = cut(text)
    assert [(it.text, it.label) for it in passages] == [(it.text, it.label) for it in cut(PLAIN_DIFF)]
    assert [without_escapes(text[it.start : it.end]) for it in passages] == [it.text for it in passages]


def test_the_headers_of_a_colored_diff_go_with_the_last_of_their_lines() -> None:
    text = colored(PLAIN_DIFF)
    passages = cut(text)
    kept = without(text, passages, [row for row, it in enumerate(passages) if "new_80" not in it.text], lambda _: "-")
    assert without_escapes(kept).count("+++ ") == len(passages) // 2
    assert without(text, passages, range(len(passages)), lambda _: "-") == "-"
    rest = without(text, passages, range(len(passages) - 1), lambda _: "-")
    assert without_escapes(rest).startswith("-\ndiff --git a/third.py b/third.py\nindex")


def test_a_text_of_sequences_alone_is_one_passage() -> None:
    text = f"{RED}{END}" * 9
    assert [(it.text, it.start, it.end, it.binary) for it in cut(text)] == [(text, 0, len(text), True)]


def test_passages_of_a_colored_text_do_not_overlap_and_cover_it() -> None:
    text = f"{RED}## One{END}\n\n{'alpha beta ' * 80}{END}\n{RED}\n## Two{END}\n\n{'gamma ' * 90}{LINK}link{END}"
    passages = cut(text)
    assert len(passages) > 1
    assert all(first.end <= second.start for first, second in pairwise(passages))
    assert (passages[0].start, passages[-1].end) == (0, len(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        f"{RED}a{END}",
        f"a{RED}{GREEN}b",
        "\x1b",
        "\x1b\x1b[31m[31mx",
        f"{LINK}a\x1b]8;;\x07",
        "\x1b(Bx\x1b7",
    ],
)
def test_every_span_leads_back(text: str) -> None:
    plain = PlainText(text)
    assert plain.text == without_escapes(text)
    for start in range(len(plain.text)):
        for end in range(start + 1, len(plain.text) + 1):
            first, last = plain.span(start, end)
            assert without_escapes(text[first:last]) == plain.text[start:end]


def test_the_last_sequences_of_a_line_are_in_its_span() -> None:
    plain = PlainText(f"{RED}one{END}\n{RED}two{END} three")
    assert plain.span(0, 3) == (0, len(f"{RED}one{END}"))
    assert PlainText(f"one{END}\r\n").span(0, 3) == (0, len(f"one{END}"))
    assert plain.span(4, 7) == (len(f"{RED}one{END}\n"), len(f"{RED}one{END}\n{RED}two"))


def pruned(result: str, budget: int) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Why does the ferry to Brasko stop at noon?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Why does the ferry to Brasko stop at noon?"},
    ]
    pruner = ContextPruner(budget, effort="fast")
    answer = pruner.prune(messages)
    assert answer.report.outcome == "pruned"
    assert answer.report.tokens_after == HarmonyCounter().count(answer.messages[2]["content"]) <= budget
    assert pruner.restore(answer.messages, [it.id for it in answer.report.removed]) == messages
    return str(answer.messages[2]["content"])


@pytest.mark.parametrize("is_json", [False, True])
def test_a_color_hides_no_word(is_json: bool) -> None:
    lines = [f"Entry {number} says that the weather in the north is {'calm ' * 20}." for number in range(40)]
    lines[23] = (
        f"{RED}Ferry{END} to {RED}Brasko{END} stops at {GREEN}noon{END} because of the {RED}tide{END}, {'as ' * 20}."
    )
    text = "\n\n".join(lines)
    kept = pruned(json.dumps({"stdout": text, "code": 0}) if is_json else text, 400)
    assert "Brasko" in kept
    if is_json:
        assert "Brasko" in json.loads(kept)["stdout"]


def test_a_colored_error_is_an_error() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"{RED}error{END}: no such file"},
    ]
    assert [it.is_error for it in Transcript(messages).results] == [True]


BARS = {
    "bar": "loading it{0}: {1:>3}%|{2:<20}| {1}/100",
    "numbers": "{1:>3}%|{2:<20}| {1}/100 [00:{1:02}<00:10]",
    "erased": "\x1b[2K  {1} MB of file {0} {2}",
    "spaces": "Receiving objects: {1}% ({1}/100)\r          ",
}


@pytest.mark.parametrize("bar", BARS)
def test_the_overwritten_states_of_progress_bars_are_passages_of_their_own(bar: str) -> None:
    def states(number: int) -> list[str]:
        return [BARS[bar].format(number, share, "#" * (share // 5)) for share in range(0, 101, 5)]

    text = "\n".join("\r".join(states(number)) + f"\r\nsaved it{number} as {number * 77}" for number in range(9))
    passages = cut(text)
    hidden = [row for row, passage in enumerate(passages) if passage.binary]
    assert len(hidden) == 9
    assert all(first.end <= second.start for first, second in pairwise(passages))
    for it in passages:
        written = text[it.start : it.end]
        assert it.text == (written if it.binary else PlainText(written).text)
    kept = without(text, passages, hidden, lambda _: "-")
    assert len(kept) < len(text) / 4
    assert all(f"-{states(number)[-1].strip()}" in kept.replace("- ", "-") for number in range(9))
    assert all(f"saved it{number} as {number * 77}" in kept for number in range(9))


@pytest.mark.parametrize(
    "line", ["It rained in {0} in week {1}, and ships stayed in {2}.", "{1},{1},{1}", "{0}\r\n{1}\r\n{2}"]
)
def test_other_carriage_returns_hide_nothing(line: str) -> None:
    words = "port harbor quay dock pier mole wharf basin berth slip".split()
    lines = [line.format(word, number, word[::-1]) for number, word in enumerate(words * 3)]
    assert PlainText("\r".join(lines)).text == "\r".join(lines)
