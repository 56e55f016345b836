"""What the pruner remembers of tool results: how many bytes, and which record belongs to which result."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from sys import getsizeof
from typing import Any

import pytest

from context_agent._support.cancellation import WorkCancelled, cancelled_if
from context_agent.pruning.blocks import Item, Passage
from context_agent.pruning.contents import ResultText
from context_agent.pruning.pruned_results import DIGEST_BYTES, MIN_COVERED, PrunedResults, ResultRecord, digest
from context_agent.tokens import CharCounter, RepeatCounter
from tests.support.conversations import rendered
from tests.support.growth import MOST_GROWTH, growth
from tests.support.long_conversation import LONG, pruner

LONG_NAME = "A heading of many words that names the part below it and all that this part has to say, "


def result(text: str, number: int = 0, **options: Any) -> ResultText:
    place: dict[str, Any] = {"message": number, "path": ("content",), "call_id": f"c{number}"}
    return ResultText(text=text, **place | options)


def paragraphs(count: int, words: int = 20) -> str:
    return "\n\n".join(f"Part {number}.{f' rain and wind {number}' * words}" for number in range(count))


def record(text: str, **options: Any) -> ResultRecord:
    return ResultRecord(result(text, **options), CharCounter())


def ids(record: ResultRecord) -> dict[int, str]:
    """An id for each passage."""
    return {index: f"p{1_000 + index}" for index in range(len(record.passages))}


# The bytes


def held(value: object, seen: set[int]) -> int:
    """The bytes of a value and of all that it refers to, but classes and the token counter."""
    if id(value) in seen or value is None or isinstance(value, type | CharCounter):
        return 0
    seen.add(id(value))
    return getsizeof(value) + sum(held(part, seen) for part in gc.get_referents(value))


def _results(*results: ResultText) -> Callable[[PrunedResults], list[ResultRecord]]:
    """A use that begins to remember these results."""
    return lambda memory: memory.records(results, b"opening")


def _read(text: str) -> Callable[[PrunedResults], list[ResultRecord]]:
    def use(memory: PrunedResults) -> list[ResultRecord]:
        (record,) = memory.records([result(text)], b"opening")
        assert record.passages
        return [record]

    return use


def _removed(memory: PrunedResults) -> list[ResultRecord]:
    (record,) = memory.records([result(paragraphs(130, 3))], b"opening")
    record.ids = ids(record)
    return [record]


def _restored(memory: PrunedResults) -> list[ResultRecord]:
    (record,) = _removed(memory)
    record.restore(set(record.ids.values()), n_messages=5)
    return [record]


def _returned(memory: PrunedResults) -> list[ResultRecord]:
    (record,) = _removed(memory)
    names = record.ids
    for first in range(60):
        memory.returned(record.source, record, {index: name for index, name in names.items() if index >= first})
    return [record]


def _counted(memory: PrunedResults) -> list[ResultRecord]:
    for number in range(500):
        memory.tokens("x" * (1_000 + 4 * number))
    return []


IMAGES = [result(f"digest {n}", n, form="image", part={"source": {"data": b"x" * (9_000 + n)}}) for n in range(20)]
USES = {
    "small results": _results(
        *(result(f"Result {number} says that it rained on that day in all ports.", number) for number in range(300))
    ),
    "images": _results(*IMAGES),
    "long call ids": _results(*(result(paragraphs(1), number, call_id=f"c{number}" * 1_000) for number in range(30))),
    "passages": _read(paragraphs(300)),
    "headings": _read("\n\n".join(f"# {LONG_NAME}{number}\n\nIt rained on day {number}.\n\n" for number in range(300))),
    "one heading": _read(f"# {LONG_NAME}\n\n{paragraphs(300, 6)}"),
    "removed passages": _removed,
    "restored passages": _restored,
    "returned texts": _returned,
    "counted texts": _counted,
}


@pytest.mark.parametrize("name", USES)
def test_the_bytes_are_those_of_all_that_is_remembered(name: str) -> None:
    memory = PrunedResults(CharCounter())
    records = USES[name](memory)
    for _ in range(2):
        memory.count_memory(records)
        assert memory.memory == pytest.approx(held(memory, set()), rel=0.11), name


def test_the_bytes_of_a_pruner_are_those_of_its_last_prune_or_restore() -> None:
    keeper, messages = pruner(strategy="age"), rendered("openai", LONG)
    pruned = keeper.prune(messages)
    assert keeper.memory == pytest.approx(held(keeper._results, set()), rel=0.11)
    before = keeper.memory
    keeper.restore(pruned.messages, [item.id for item in pruned.report.removed])
    assert keeper.memory < before, "what is restored needs no ids"


def test_the_bytes_of_records_that_were_used_before_can_be_counted_again() -> None:
    memory = PrunedResults(CharCounter())
    (early,) = memory.records([result(paragraphs(4))], b"opening")
    memory.records([result(paragraphs(3), 1)], b"opening")
    before, _ = memory.memory, early.passages
    memory.count_memory([early])
    assert memory.memory - before == early.memory


def test_a_key_takes_the_bytes_that_are_counted_for_it() -> None:
    assert getsizeof(digest("a text \ud800")) == DIGEST_BYTES


# The passages


def test_a_text_that_must_stay_json_has_no_passages_if_it_is_none() -> None:
    assert not record(paragraphs(4), form="value").passages
    assert len(record(paragraphs(4)).passages) == 4


def test_the_labels_of_passages_begin_with_what_the_call_asked_for() -> None:
    labels = [passage.label for passage in record(f"# Rain\n\n{paragraphs(8)}", asked="a.txt").passages]
    assert set(labels) == {"a.txt Rain"}
    assert all(label is labels[0] for label in labels)
    assert {passage.label for passage in record(paragraphs(2), asked="a.txt").passages} == {"a.txt"}


def test_a_small_budget_cuts_smaller_passages() -> None:
    small = ResultRecord(result(paragraphs(12, 60)), CharCounter(), budget=100)
    assert len(small.passages) > len(record(paragraphs(12, 60)).passages)


@pytest.mark.parametrize(
    "text", [json.dumps({"a": '"rain"\n' * 90, "b": "rain " * 200}), f"\x1b[31m{'rain ' * 30}\x1b[0m\n"]
)
def test_a_passage_has_the_tokens_of_its_content_or_with_escape_sequences_of_what_is_written(text: str) -> None:
    for passage in (passages := record(text).passages):
        counted = text[passage.start : passage.end] if "\x1b" in text else passage.text
        assert passage.tokens == CharCounter().count(counted)
    assert any(passage.text != text[passage.start : passage.end] for passage in passages)


def test_cutting_and_counting_can_be_cancelled() -> None:
    with cancelled_if(lambda: True):
        with pytest.raises(WorkCancelled):
            assert record(paragraphs(4)).passages
        with pytest.raises(WorkCancelled):
            PrunedResults(CharCounter()).tokens("rain")


def test_the_counted_lines_are_forgotten_with_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[RepeatCounter] = []

    def forget(counter: RepeatCounter) -> None:
        forgotten.append(counter)

    monkeypatch.setattr(RepeatCounter, "forget", forget)
    PrunedResults(counter := RepeatCounter()).count_memory()
    PrunedResults(CharCounter()).count_memory()
    assert forgotten == [counter]


# What a stub may replace


SETTINGS = {f"setting_{number}": f"value {number}" for number in range(8)}
FRAMED = json.dumps(SETTINGS | {"text": "It rained. " * 60}, indent=30)
"""JSON whose settings and spaces are a third of it. They stay as the frame of its text."""


def test_one_stub_replaces_a_text_that_is_nearly_all_passages() -> None:
    assert record(paragraphs(4)).frame_can_go
    framed = record(FRAMED)
    assert len(framed.passages) == 1
    assert not framed.frame_can_go
    assert not record("").frame_can_go
    assert not record(paragraphs(4), is_argument=True).frame_can_go
    rows = json.dumps([{"title": f"T{number}", "text": "rain " * 40} for number in range(5)])
    assert record(rows).frame_can_go
    for form in ("json", "value"):
        assert not record(rows, form=form).frame_can_go, "what must stay JSON keeps its frame"
        assert not record(rows, form=form, is_argument=True).frame_can_go


@pytest.mark.parametrize(("share", "can_go"), [(MIN_COVERED - 0.01, False), (MIN_COVERED + 0.01, True)])
def test_an_item_covers_its_part_of_the_text_only_once(share: float, can_go: bool) -> None:
    section = Item(0, round(1_000 * share), 1, "text")
    passages = [Passage("x" * 20, start, start + 20, items=(section,)) for start in range(0, 600, 20)]
    assert ResultRecord(result("x" * 1_000), CharCounter(), _passages=passages).frame_can_go is can_go


def test_a_short_text_replaces_a_result_without_remaining_passages() -> None:
    pruned = record(paragraphs(4))
    pruned.short = "[p1-p4 pruned]"
    assert pruned.without(ids(pruned)) == pruned.short
    assert "Part 3" in pruned.without({0: "p1"})
    pruned.short = ""
    assert pruned.without(ids(pruned)).startswith("[4 passages pruned, ")


def test_the_headings_of_sections_are_no_part_of_the_frame() -> None:
    """They are removed with the last passage of their section."""
    sections = "\n\n".join(f"## {2 * LONG_NAME}{name}\n\n" + paragraphs(6, words=3) for name in "abcd")
    pruned = record(sections)
    passages = pruned.passages
    assert sum(it.end - it.start for it in passages) < MIN_COVERED * len(sections)
    assert pruned.frame_can_go
    assert not pruned.frame.strip()
    framed = record(FRAMED)
    assert json.loads(framed.frame) == SETTINGS | {"text": ""}


def test_what_replaces_json_is_json() -> None:
    assert json.loads(record('[{"text": "rain"}, {"text": "wind"}]').shortened("[p1 pruned]")) == "[p1 pruned]"
    assert json.loads(record(json.dumps([paragraphs(4)])).shortened("[p1 pruned]")) == "[p1 pruned]"


@pytest.mark.parametrize(
    "text",
    [
        paragraphs(4),
        "name,port,region\n" + "queue,5672,eu\n" * 9,
        "| name | port |\n|---|---|\n" + "| queue | 5672 |\n" * 9,
        f"<rows>{'<row><name>queue</name><port>5672</port></row>' * 9}</rows>",
    ],
)
def test_what_replaces_other_texts_has_no_quotation_marks(text: str) -> None:
    assert record(text).shortened("[p1 pruned]") == "[p1 pruned]"


def test_a_stub_counts_its_passages_and_a_brief_one_does_not() -> None:
    pruned = record(paragraphs(4))
    tokens = pruned.passages[0].tokens
    assert pruned.without({0: "p1"}).startswith(f"[1 passage pruned, {tokens} tokens; restore: p1]")
    assert pruned.without({0: "p1", 1: "p2"}).startswith("[2 passages pruned, ")
    assert pruned.without({0: "p1"}, is_brief=True).startswith("[p1 pruned]")
    pruned.is_brief = True
    assert pruned.without({0: "p1"}).startswith("[p1 pruned]")


@pytest.mark.parametrize("text_type", ["input_text", ""])
def test_a_text_part_replaces_an_image_and_the_image_comes_back(text_type: str) -> None:
    """Bedrock's parts have no type."""
    image = {"image": {"source": {"bytes": b"..."}}}
    seen = record("digest", form="image", part=image, tokens=900, text_type=text_type, path=("content", 1))
    stub = "[1 passage pruned, 900 tokens; restore: p1]"
    assert seen.without({0: "p1"}) == stub
    part = {"type": text_type, "text": stub} if text_type else {"text": stub}
    assert seen.value(seen.source, stub) == (("content", 1), part)
    pruned = result(stub, path=("content", 1, "text"))
    assert seen.value(pruned, "digest") == (("content", 1), image)
    assert seen.value(pruned, stub) == (("content", 1), part)


def test_what_was_restored_in_two_steps_is_restored() -> None:
    pruned = record(paragraphs(4))
    pruned.ids = ids(pruned)
    first = pruned.restore({"p1000"}, n_messages=3)
    second = pruned.restore({"p1000", "p1002"}, n_messages=7)
    assert (first, second) == ([pruned.passages[0]], [pruned.passages[2]])
    assert pruned.restored == {0: 3, 2: 7}
    assert pruned.ids == {1: "p1001", 3: "p1003"}
    pruned.remove({2: "p1004"})
    assert pruned.restored == {0: 3}
    assert pruned.ids == {1: "p1001", 2: "p1004", 3: "p1003"}


# Which record belongs to a result


@pytest.mark.parametrize("originals_only", [False, True])
def test_a_returned_text_is_found_unless_the_conversation_comes_with_originals(originals_only: bool) -> None:
    memory = PrunedResults(CharCounter(), originals_only=originals_only)
    assert memory.last_id == 0
    (own,) = memory.records([result(paragraphs(4))], b"opening")
    assert own.source.call_id == ""
    own.remove({0: "p1"})
    stub = result(memory.returned(result(paragraphs(4)), own))
    assert memory.removed(stub) == ((None, {}) if originals_only else (own, {0: "p1"}))
    whole = result(memory.returned(result(paragraphs(4)), own, {}))
    assert memory.removed(whole) == (None, {})


def test_an_image_has_its_own_tokens_and_its_stub_is_found_in_its_text() -> None:
    memory = PrunedResults(CharCounter())
    image = result("digest", form="image", part={"data": "x"}, tokens=900)
    (own,) = memory.records([image], b"opening")
    assert [memory.tokens(text, own) for text in ("digest", "other")] == [900, 2]
    assert memory.tokens("digest") == memory.tokens("digest", record("digest")) == 2
    text = memory.returned(image, own, {0: "p1"})
    assert memory.removed(result(text, path=("content", "text"))) == (own, {0: "p1"})
    assert memory.removed(result(text)) == (None, {})


def test_calls_with_one_id_and_equal_results_have_records_of_their_own() -> None:
    memory = PrunedResults(CharCounter())
    same = [result(paragraphs(4), number, call_id="c") for number in range(2)]
    first, second = memory.records(same, b"opening")
    assert first is not second
    assert memory.records(same, b"opening") == [first, second]
    stub = result(memory.returned(same[0], first, {0: "p1"}), 1, call_id="c")
    # The client has moved the results: the stub tells whose record the other one is not.
    assert memory.find([same[0], stub], b"opening") == [(same[0], second, {}), (stub, first, {0: "p1"})]
    third = result(paragraphs(4), 2, call_id="c")
    assert [found for _, found, _ in memory.find([*same, third], b"opening")] == [first, second, None]


def test_of_a_result_and_its_own_stub_the_earlier_has_the_record() -> None:
    memory = PrunedResults(CharCounter())
    original = result(paragraphs(4))
    (own,) = memory.records([original], b"opening")
    stub = result(memory.returned(original, own, {0: "p1"}), call_id="c0")
    assert memory.find([original, stub], b"opening") == [(original, own, {}), (stub, None, {})]
    assert memory.find([stub, original], b"opening") == [(stub, own, {0: "p1"}), (original, None, {})]
    assert memory.find([original], b"another opening") == [(original, None, {})]


@pytest.mark.parametrize("call_id", ["", "search", "functions.search:0"])
def test_a_removal_in_one_conversation_leaves_another_with_an_equal_result_alone(call_id: str) -> None:
    """Conversations that run at the same time can begin alike, for example as samples of one task."""
    memory = PrunedResults(CharCounter())
    texts = (paragraphs(4), paragraphs(2), paragraphs(3))
    shared, mine, other = (result(text, number, call_id=call_id) for number, text in enumerate(texts))
    first, later = memory.records([shared, mine], b"opening")
    assert memory.records([shared, other], b"opening")[0] is first
    first.remove({0: "p1"}, later.key)
    second, own = memory.records([shared, other], b"opening")
    assert second.ids == {}
    second.remove({1: "p2"}, own.key)
    assert memory.records([shared, mine], b"opening")[0] is first
    assert memory.records([shared, other], b"opening")[0] is second
    assert memory.find([shared], b"opening") == [(shared, None, {})]


def test_a_removal_is_known_by_the_result_before_it_also_if_that_one_is_pruned() -> None:
    memory = PrunedResults(CharCounter())
    results = [result(paragraphs(count), number) for number, count in enumerate((4, 3))]
    first, later = memory.records(results, b"opening")
    first.remove({0: "p1"}, later.key)
    stub = result(memory.returned(results[1], later, {0: "p2"}), 1)
    assert memory.find([results[0], stub], b"opening") == [(results[0], first, {}), (stub, later, {0: "p2"})]


def test_equal_results_without_ids_are_found_in_linear_time() -> None:
    def filled(count: int) -> tuple[PrunedResults, list[ResultText]]:
        results = [result("ok", number, call_id="search") for number in range(count)]
        kept = PrunedResults(CharCounter())
        kept.records(results, b"")
        return kept, results

    assert growth(lambda it: it[0].find(it[1], b""), filled, 2_000) <= MOST_GROWTH
    kept, results = filled(5)
    records = [found for _, found, _ in kept.find(results, b"")]
    assert len({id(found) for found in records}) == 5
    assert records == [found for _, found, _ in kept.find(results, b"")]


# Smaller passages


def test_a_text_is_cut_into_smaller_passages_only_once_and_before_any_is_removed() -> None:
    own = record(paragraphs(12, 60))
    before = list(own.passages)
    assert own.settle(is_fine=True)
    assert len(own.passages) > len(before)
    assert not own.settle(is_fine=True)

    kept = record(paragraphs(12, 60))
    assert not kept.settle(is_fine=False)
    assert not kept.settle(is_fine=True)

    pruned = record(paragraphs(12, 60))
    pruned.remove({0: "p1000"})
    assert not pruned.settle(is_fine=True)
    pruned.restore({"p1000"}, n_messages=3)
    assert not pruned.settle(is_fine=True)
    assert kept.passages == pruned.passages == before


def test_passages_with_other_borders_are_others_even_if_there_are_as_many() -> None:
    own = record(json.dumps({"note": " ".join(f"w{number}" for number in range(85))}))
    (before,) = own.passages
    assert own.settle(is_fine=True)
    (after,) = own.passages
    assert before.end - before.start > after.end - after.start
