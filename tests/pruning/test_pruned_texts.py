"""The texts that remain without the removed passages: their stubs, and the tokens that they take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import pytest

from context_agent.pruning.contents import Path, ResultText
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage
from context_agent.pruning.pruned_results import PrunedResults, ResultRecord
from context_agent.pruning.pruned_texts import PrunedTexts
from context_agent.pruning.selection import FULL_STUBS
from context_agent.tokens import CharCounter
from tests.support.conversations import Call, Turn, rendered

LAST_TURN = 3
DIALOG = Transcript([{"role": role, "content": "Yes."} for role in ("user", "assistant") * 2])
HEAD = "Found:\n"
A, B = "a" * 40, "b" * 40
GONE = {"short": "[p9 pruned]"}
"""The state of a result that was removed as a whole with a brief stub."""


def record(
    *ids: str | None, message: int = 1, path: Path = ("content",), head: str = "", form: Any = "text", **state: Any
) -> ResultRecord:
    """A result with a passage of ten letters, which are as many tokens, for each id. None is no id: it stays."""
    text, passages = head, list[Passage]()
    for letter in ascii_lowercase[: len(ids)]:
        passages.append(Passage(letter * 40, len(text), len(text) + 40, form=form, tokens=10))
        text += letter * 40 + "\n\n"
    removed = {index: name for index, name in enumerate(ids) if name}
    return ResultRecord(
        ResultText(message, path, "c", text.strip()), CharCounter(), ids=removed, _passages=passages, **state
    )


def texts_of(*records: ResultRecord, transcript: Transcript = DIALOG) -> PrunedTexts:
    return PrunedTexts(transcript, [item.source for item in records], records, PrunedResults(CharCounter()))


def test_the_texts_lack_what_was_removed_before_and_what_is_removed_now() -> None:
    first, second = record("p1", None, None), record(None, None)
    third = record(None)
    texts = texts_of(first, second, third).without({0: {2: "p4"}, 1: {0: "p5"}}, {1: "brief"})
    stubs = "[1 passage pruned, 10 tokens; restore: p1]", "[1 passage pruned, 10 tokens; restore: p4]"
    assert texts == [f"{stubs[0]}\n\n{B}\n\n{stubs[1]}", "brief", A]


@pytest.mark.parametrize(
    ("records", "ids", "texts"),
    [
        ([record(None, None)], {}, {}),
        ([record(None, None)], {0: {0: "p1"}}, {0: f"[p1 pruned]\n\n{B}"}),
        ([record(None, "p1")], {0: {0: "p2"}}, {0: "[p1-p2 pruned]"}),
        ([record("p1", None)], {}, {0: f"[p1 pruned]\n\n{B}"}),
        ([record("p1", None, is_brief=True)], {}, {}),
        ([record("p1", None, None, is_brief=True)], {0: {1: "p2"}}, {0: f"[p1-p2 pruned]\n\n{'c' * 40}"}),
        ([record("p1", None, message=LAST_TURN), record("p2", message=LAST_TURN + 1)], {}, {}),
        ([record("p1", head=HEAD)], {}, {0: "[p1 pruned]"}),
        ([record("p1", head=3 * HEAD)], {}, {0: f"{3 * HEAD}[p1 pruned]"}),  # too much for one stub
        ([record("p1", form="value")], {}, {0: '"[p1 pruned]"'}),
        (
            [record("p1", "p2"), record("p3", form="value"), record("p4")],
            {},
            {0: "[3 results pruned, 40 tokens; restore: p1-p4]", 1: '"p3"', 2: "p4"},
        ),
        ([record("p1"), record(None), record("p2")], {}, {0: "[p1 pruned]", 2: "[p2 pruned]"}),
        (
            [record("p1"), record("p2", None), record("p3")],
            {},
            {0: "[p1 pruned]", 1: f"[p2 pruned]\n\n{B}", 2: "[p3 pruned]"},
        ),
        ([record("p1", message=LAST_TURN), record("p2")], {}, {1: "[p2 pruned]"}),
        ([record("p9", **GONE)], {}, {}),
        ([record("p9", **GONE), record("p1")], {}, {1: "p1"}),
        (
            [record("p9", **GONE), record("p1"), record("p2")],
            {},
            {1: "[2 results pruned, 20 tokens; restore: p1-p2]", 2: "p2"},
        ),
        ([record("p9", **GONE), record(None), record("p1")], {}, {2: "[p1 pruned]"}),
        ([record("p1"), record("p9", **GONE)], {}, {0: "[p1 pruned]"}),  # the last result is not before the first
        ([record("p1"), record("p9", **GONE), record("p2")], {}, {0: "[p1 pruned]", 2: "p2"}),
        (
            [record("p9", **GONE), record("p1"), record(None), record("p2")],
            {},
            {1: "p1", 3: "[p2 pruned]"},
        ),
    ],
)  # fmt: skip
def test_brief_stubs_name_the_ids_alone_and_the_first_of_neighbors_names_them_all(
    records: Sequence[ResultRecord], ids: Mapping[int, Mapping[int, str]], texts: Mapping[int, str]
) -> None:
    assert texts_of(*records).with_brief_stubs(ids) == texts


def test_the_frames_are_those_of_older_results_that_can_be_removed_as_a_whole() -> None:
    heads = [(HEAD, 1), (HEAD, LAST_TURN), (3 * HEAD, 1), ("", LAST_TURN - 1)]
    texts = texts_of(*(record(None, head=head, message=message) for head, message in heads))
    assert texts.frames() == {0: CharCounter().count(HEAD), 3: 0}


@pytest.mark.parametrize(
    ("removed", "ids", "stubs", "gone"),
    [
        ((None, None, None), {}, 0, 0),
        (("p1", None, None), {}, 1, 0),
        (("p1", "p2", None), {}, 1, 0),
        (("p1", None, None), {0: {2: "p2"}}, 2, 0),
        (("p1", None, None), {1: {0: "p2"}}, 1, 0),
        (("p1", "p2", "p3"), {}, 0, 7),
        (("p1", None, "p3"), {0: {1: "p2"}}, 0, 7),
    ],
)
def test_the_overhead_is_the_stubs_and_the_texts_of_results_that_are_gone(
    removed: tuple[str | None, ...], ids: Mapping[int, Mapping[int, str]], stubs: int, gone: int
) -> None:
    texts = texts_of(record(*removed))
    assert texts.overhead(["x" * 28], ids) == stubs * FULL_STUBS.stub + gone
    both = texts_of(record(*removed), record("p8", None), record("p9"))
    assert both.overhead(["x" * 28, "y", "z" * 12], ids) == (stubs + 1) * FULL_STUBS.stub + gone + 3


def test_the_size_of_an_image_is_known() -> None:
    image = record("p1")
    image.source = ResultText(1, (), "c", "digest", form="image", tokens=85)
    texts = texts_of(image, record(None))
    assert texts.sizes(["digest", "x" * 12]) == [85, 3]
    assert texts.total(["digest", "x" * 12]) == 88


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, 0),
        ({3: 4}, 0),  # the last turn was never in the cache
        ({2: 36}, 2 + 3),
        ({2: 4}, 10 + 3),
        ({1: 36}, 2 + 11 + 3),
        ({1: 36, 2: 8}, 2 + 11 + 3),
        ({0: 0}, 11 + 3 + 11 + 11 + 3),
    ],
)
def test_the_cache_is_lost_from_the_first_change_to_the_last_turn(changed: Mapping[int, int], lost: int) -> None:
    """Each message has an own text of three tokens, which follows its results. Two results are in the second."""
    words = "Yes, go on."
    dialog = Transcript([{"role": role, "content": words} for role in ("user", "assistant") * 2])
    records = [record(None, message=message, path=(number,)) for number, message in enumerate((1, 2, 2, 3))]
    sent = ["a" * 41] * 4
    after = ["a" * changed.get(row, 41) + "x" * (41 - changed.get(row, 41)) for row in range(4)]
    assert texts_of(*records, transcript=dialog).cached_lost(sent, after) == lost


def test_large_arguments_that_are_pruned_are_counted_once() -> None:
    """Arguments that are no text of their own are counted with the message that has them."""
    turns = [
        Turn("Go.", "", (Call("c0", {"q": "r" * 80}, ("one",)), Call("c1", {"q": "s" * 40}, ("two",)))),
        Turn("", "On."),
    ]
    transcript = Transcript(rendered("openai", turns))
    large, small, one, two = transcript.texts
    counted = [ResultRecord(item, CharCounter()) for item in (large, one, two)]
    texts = texts_of(*counted, transcript=transcript)
    sent = [large.text, "one", "two"]
    words = transcript.contents[2].text
    assert json.loads(small.text) == {"q": "s" * 40}
    assert large.text in words
    assert small.text in words
    rest = CharCounter().count(words.replace(large.text, ""))
    assert texts.cached_lost(sent, ["x" * len(large.text), "one", "two"]) == CharCounter().count(large.text) + rest + 2
