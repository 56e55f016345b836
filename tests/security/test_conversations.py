"""What a stranger's tool results cost: time linear in their size, and memory that is counted as it is."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from context_agent.cli.prune_options import PruneOptions
from context_agent.integrations import conversation_pruners
from context_agent.integrations.conversation_pruners import DAY, ConversationPruners
from context_agent.integrations.server.pruned_bodies import BodyPruner
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.blocks import MOST_SHORT, SMALL, Passage
from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.messages import Transcript
from context_agent.pruning.pairing import paired
from context_agent.pruning.passages import cut
from context_agent.pruning.protection import OwnWords
from context_agent.pruning.relevance import QUESTION_CHARACTERS, Goal, by_reading
from context_agent.pruning.stubs import looks_like_stub
from context_agent.pruning.units import units
from context_agent.pruning.word_pieces import pieces_of
from context_agent.tokens import CharCounter
from context_agent.web.conversation import SHOWN_CALLS, model_calls
from tests.support.bounded import LIMIT, bounded
from tests.support.growth import MOST_GROWTH, growth
from tests.support.hostile_texts import TEXTS, repeated

ALWAYS = Prices(cached=1.0)


def conversation(*results: str, user: str = "Where is the port of Orm?", call: str = "c") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": user}]
    for number, text in enumerate(results):
        function = {"name": "search", "arguments": "{}"}
        calls = [{"id": f"{call}{number}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"{call}{number}", "content": text})
    return messages


def pruner(budget: int = 300, strategy: Any = "age", **options: Any) -> ContextPruner:
    return ContextPruner(budget, **{"strategy": strategy, "prices": ALWAYS, "counter": CharCounter()} | options)


@pytest.mark.parametrize("name", TEXTS)
def test_a_result_is_cut_in_linear_time(name: str) -> None:
    assert growth(cut, TEXTS[name], 12_000) < MOST_GROWTH


PRUNED = ("tags between blank lines", "headings", "hits", "base64", "empty lists", "a result, then both", "members")


@pytest.mark.parametrize("name", PRUNED)
def test_a_result_is_pruned_in_linear_time(name: str) -> None:
    def prune(text: str) -> object:
        return pruner(strategy="reader", effort="fast").prune(conversation(text, "done"))

    assert growth(prune, TEXTS[name], 12_000) < MOST_GROWTH


def test_the_proxy_prunes_a_fetched_page_in_linear_time() -> None:
    def send(text: str) -> None:
        body = json.dumps({"messages": conversation(text, "done")}).encode()
        pruners = ConversationPruners(lambda: pruner(effort="fast", strategy="reader"))
        assert "outcome" in BodyPruner(pruners, 32_000_000).prune(body, "messages", b"").counts

    assert growth(send, TEXTS["tags between blank lines"], 25_000) < MOST_GROWTH


def test_short_passages_are_bounded_in_number() -> None:
    for name in ("headings", "hits"):
        text = TEXTS[name](100_000)
        assert len(cut(text)) <= MOST_SHORT + len(text) // SMALL


def test_ids_to_restore_are_looked_up_in_linear_time() -> None:
    """Every request and every id that was removed grow together."""
    text = "\n\n".join(f"Paragraph {number}: {'rain and wind ' * 8}" for number in range(400))

    def restore(count: int) -> None:
        keeper = pruner()
        removed = keeper.prune(conversation(*[text] * (count // 100), "done"))
        assert removed.report.removed
        # None of these ids exists, and no two of them touch.
        ids = ", ".join(f"p{10**6 + 2 * number}" for number in range(20 * count))
        messages = [*removed.messages, {"role": "user", "content": f"restore: {ids}"}]
        assert keeper.prune(messages).report.restored == ()

    assert growth(restore, lambda size: size, 200) < MOST_GROWTH


def test_new_ids_avoid_requested_ones_in_linear_time() -> None:
    def prune(size: int) -> None:
        text = "\n\n".join(f"Paragraph {number}: {'rain and wind ' * 8}" for number in range(size))
        ids = ", ".join(f"p{2 * number}" for number in range(1, 4 * size))
        removed = pruner().prune(conversation(text, "done", user=f"restore: {ids}")).report.removed
        assert {int(passage.id[1:]) % 2 for passage in removed} == {1}

    assert growth(prune, lambda size: size, 400) < MOST_GROWTH


def test_stubs_that_cost_more_than_estimated_take_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each removal frees what its stub takes: without a bound on the rounds there is one for each passage."""

    class StubsAreLong(CharCounter):
        def count(self, text: str) -> int:
            return text.count("x") + 60 * text.count("pruned")

    def scores(passages: Any, task: str) -> list[float]:
        return [float(number % 2) * 10 + number / 10_000 for number in range(len(passages))]

    rounds = []
    from context_agent.pruning import fitting as module

    select = module.select
    monkeypatch.setattr(module, "select", lambda *args, **options: rounds.append(1) or select(*args, **options))
    text = "\n\n".join(f"{number:06} {'x' * 60} {'y' * 60}" for number in range(400))
    keeper = pruner(60 * 400 - 1, strategy=scores, counter=StubsAreLong())
    keeper.prune(conversation(text, "done"))
    assert 2 < len(rounds) < 20


def test_a_message_of_many_results_is_rewritten_in_linear_time() -> None:
    def messages(count: int) -> list[dict[str, Any]]:
        uses = [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}} for n in range(count)]
        results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "x"} for n in range(count)]
        return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]

    def rewrite(messages: list[dict[str, Any]]) -> None:
        transcript = Transcript(messages)
        changed = transcript.rewritten((result, result.path, "y") for result in transcript.results)
        assert all(part["content"] == "y" for part in changed[1]["content"])
        assert messages[1]["content"][0]["content"] == "x"

    assert growth(rewrite, messages, 1_500) < MOST_GROWTH


def calls_and_results(call_id: Any, result_id: Any) -> Callable[[int], list[MessageContent]]:
    """Return a function that makes one turn of many calls. The arguments give the ids of the nth call and result."""

    def contents(count: int) -> list[MessageContent]:
        calls = tuple(Call(call_id(n), "look") for n in range(count))
        results = [MessageContent("tool", answers=(Call(result_id(n)),)) for n in range(count)]
        return [MessageContent("assistant", calls=calls), *results]

    return contents


PAIRINGS = {
    "without ids": (lambda n: "", lambda n: ""),
    "with one id": (lambda n: "a", lambda n: "a"),
    "with the tool's name as the id": (lambda n: "", lambda n: "look"),
    "with results out of order": (lambda n: f"a{n}", lambda n: f"a{(7 * n + 3) % 16_001}"),
    "with other ids": (lambda n: f"a{n}", lambda n: f"b{n}"),
}


@pytest.mark.parametrize("name", PAIRINGS)
def test_calls_and_results_are_paired_in_linear_time(name: str) -> None:
    def pair(contents: list[MessageContent]) -> None:
        paired(contents, len(contents), range(len(contents)))

    assert growth(pair, calls_and_results(*PAIRINGS[name]), 4_000) < MOST_GROWTH


@pytest.mark.parametrize("as_text", [False, True])
def test_the_arguments_of_many_calls_are_replaced_in_linear_time(as_text: bool) -> None:
    def message(count: int) -> MessageContent:
        texts = [f"{number} {'rain and wind ' * 80}" for number in range(count)]
        uses = [
            {"type": "tool_use", "id": f"c{n}", "name": "f", "input": text if as_text else {"text": text}}
            for n, text in enumerate(texts)
        ]
        done = [{"type": "tool_result", "tool_use_id": f"c{number}", "content": "done"} for number in range(count)]
        return Transcript([{"role": "assistant", "content": uses}, {"role": "user", "content": done}]).contents[0]

    def replace(content: MessageContent) -> None:
        assert content.arguments
        assert content.text_with(lambda argument: "x") == "\n".join(["f x"] * len(content.arguments))

    assert growth(replace, message, 1_500) < MOST_GROWTH


def test_a_stub_that_is_repeated_does_not_restore_a_long_result_many_times() -> None:
    keeper = pruner()
    text = "\n\n".join(f"Paragraph {number}: {'rain and wind ' * 8}" for number in range(50))
    pruned = keeper.prune(conversation(text, "done"))
    ids = [passage.id for passage in pruned.report.removed]
    restored = keeper.restore([*pruned.messages, *[pruned.messages[2]] * 1_000], ids)
    assert restored[2]["content"] == text
    assert [message["content"] for message in restored[5:]] == [pruned.messages[2]["content"]] * 1_000


def test_own_words_are_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.pruning.protection.OWN_CHARACTERS", 100)
    early, late = "alpha/one.py " * 3, "beta/two.py " * 9
    own = OwnWords(Transcript([{"role": "user", "content": early}, {"role": "assistant", "content": late}]))
    assert "beta/two.py" in own._first
    assert "alpha/one.py" not in own._first


def test_the_models_get_a_bounded_part_of_a_task() -> None:
    seen: list[tuple[str, str]] = []

    class Model:
        width = 1

        def encode_pairs(self, pairs: Any) -> Any:
            import numpy as np

            seen.extend(pairs)
            return np.zeros((len(pairs), 1), dtype=np.float32)

    passages = cut("\n\n".join(f"Paragraph {number}: {'rain and wind ' * 8}" for number in range(9)))
    by_reading(passages, Goal("x" * 1_000_000), model=Model())
    assert seen
    assert max(len(first) for first, _ in seen) < 2 * QUESTION_CHARACTERS


def test_the_lines_of_a_long_task_are_joined_in_linear_time() -> None:
    def join(text: str) -> list[str]:
        return units(Passage(text, 0, len(text)))

    assert growth(join, lambda length: repeated("ab cd ef\n", length), 400_000) < MOST_GROWTH


def test_the_vectors_of_a_long_text_are_not_in_memory_at_once() -> None:
    pieces_of([Passage("rain", 0, 0)])
    tracemalloc.start()
    try:
        (long,) = pieces_of([Passage("x1 " * 100_000, 0, 0)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(long.ids) >= 100_000
    assert peak < 150_000_000


@pytest.mark.parametrize("text", ["- " * 30_000, "- a\n" * 15_000, "".join(f"k{n}:\n" for n in range(9_000))])
def test_an_outline_takes_bounded_memory(text: str) -> None:
    cut("- a\n" * 1_000)
    tracemalloc.start()
    try:
        cut(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 90 * len(text)


@pytest.mark.parametrize("depth", [300, 450, 590])
def test_a_short_result_that_is_nested_deeply_is_cut(depth: int) -> None:
    text = '{"a":' + "[" * depth + "1" + "]" * depth + "}"
    assert [passage.text for passage in cut(text)] == [text]
    assert len(cut(text, as_json=True)) == 1


@pytest.mark.parametrize("depth", [500, 5_000, 50_000])
def test_what_is_nested_deeply_is_passed_through(depth: int) -> None:
    arguments: Any = 1
    content: Any = "text"
    for _ in range(depth):
        arguments = {"a": arguments}
        content = [{"type": "search_result", "content": content}]
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
    ]
    assert pruner().prune(messages).messages[2] is messages[2]


def test_an_error_that_is_null_is_no_error() -> None:
    (null,) = Transcript(conversation('{"error": null, "rows": [1]}')).results
    (text,) = Transcript(conversation('{ "error" : "no such table"}')).results
    assert (null.is_error, text.is_error) == (False, True)


def remembered(use: Callable[[ConversationPruners], None]) -> ConversationPruners:
    """Return pruners after their use."""
    pruners = ConversationPruners(pruner)
    use(pruners)
    return pruners


def used_and_counted(name: str) -> tuple[int, int]:
    """Return the bytes that pruners take after a use, and those that they count."""
    remembered(SCENARIOS[name])
    gc.collect()
    tracemalloc.start()
    pruners = remembered(SCENARIOS[name])
    gc.collect()
    return tracemalloc.get_traced_memory()[0], pruners.memory


def _paragraphs(count: int, word: str = "rain") -> str:
    return "\n\n".join(f"Paragraph {number}: {f'{word}{number} ' * 20}" for number in range(count))


def _tiny_results(pruners: ConversationPruners) -> None:
    for number in range(250):
        pruners.prune(conversation(f"r{number}", call=f"c{number}-"))


def _long_call_ids(pruners: ConversationPruners) -> None:
    for number in range(100):
        pruners.prune(conversation(f"r{number}", call=f"c{number}" * 5_000))


def _many_conversations(pruners: ConversationPruners) -> None:
    for number in range(150):
        pruners.prune(conversation("ok", user=f"Question {number}?"))


def _restored_one_by_one(pruners: ConversationPruners) -> None:
    pruned = pruners.prune(conversation(_paragraphs(300), "done"))
    messages = pruned.messages
    for passage in pruned.report.removed[:100]:
        messages = pruners.restore(messages, [passage.id])


def _growing(pruners: ConversationPruners) -> None:
    texts: list[str] = []
    for number in range(12):
        texts.append(_paragraphs(20, f"w{number}"))
        pruners.prune(conversation(*texts, "done"))


def _result(make: Callable[[], str]) -> Callable[[ConversationPruners], None]:
    """A use with one long result, which is made anew, as a request brings it."""
    return lambda pruners: (pruners.prune(conversation(make(), "done")), None)[1]


SCENARIOS: dict[str, Callable[[ConversationPruners], None]] = {
    "tiny results": _tiny_results,
    "long call ids": _long_call_ids,
    "many conversations": _many_conversations,
    "restored one by one": _restored_one_by_one,
    "growing": _growing,
    "a long result": _result(lambda: _paragraphs(700)),
    "tiny passages": _result(lambda: repeated("# a\n\n", 20_000)),
    "wide characters": _result(lambda: _paragraphs(500, "漢👍")),
    "JSON": _result(lambda: json.dumps([{"title": f"T{n}", "text": _paragraphs(3, f"w{n}")} for n in range(200)])),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_conversation_costs_is_counted(name: str) -> None:
    """The bound in bytes is true within a factor of 1.5."""
    used, counted = bounded(used_and_counted, name).require(memory=LIMIT).value
    assert used / 1.5 <= counted <= used * 1.5


def test_conversations_beyond_the_bound_are_forgotten() -> None:
    bound = 300_000
    pruners = ConversationPruners(pruner, memory=bound)
    for number in range(700):
        pruners.prune(conversation(f"r{number}", call=f"c{number}-", user=f"Question {number % 7}?"))
        assert pruners.memory <= bound


def test_of_a_long_conversation_the_latest_calls_are_viewed() -> None:
    messages = conversation(*["rain"] * (SHOWN_CALLS + 50), "done")
    calls = model_calls(messages, pruner())
    assert len(calls) == SHOWN_CALLS
    assert calls[-1].messages == len(messages)


def test_no_request_holds_a_conversation_for_more_than_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(conversation_pruners.time, "monotonic", lambda: now)
    pruners = ConversationPruners()
    bodies = BodyPruner(pruners, 1_000_000)

    def request(question: str, **fields: object) -> bytes:
        return json.dumps({"messages": [{"role": "user", "content": question}], **fields}).encode()

    bodies.prune(request("One?", prompt_cache_options={"ttl": "999h"}), "messages", b"")
    now = DAY
    bodies.prune(request("Two?"), "messages", b"")
    assert len(pruners) == 2
    now = DAY + 1
    bodies.prune(request("Two?"), "messages", b"")
    assert len(pruners) == 1


SECRET = "\n\n".join(f"Paragraph {number} of Ann's secret: {'rain and wind ' * 20}" for number in range(6))


def greeting(result: str, more: str) -> list[dict[str, Any]]:
    """Return a conversation without call ids, which begins like many others."""
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read", "arguments": {}}}]},
        {"role": "tool", "content": result},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": more},
    ]


def test_a_result_that_imitates_a_stub_restores_nothing_of_another_user() -> None:
    """Both conversations begin alike, and their callers have the same key."""
    pruning = PruneOptions(budget=50, strategy="age", cached_price=1.0)
    bodies = BodyPruner(ConversationPruners(pruning.open), 32_000_000)

    def send(result: str, more: str) -> list[dict[str, Any]]:
        body = json.dumps({"messages": greeting(result, more)}).encode()
        return json.loads(bodies.prune(body, "messages", b"key").body)["messages"]

    stub = send(SECRET, "go on")[2]["content"]
    assert looks_like_stub(stub)
    assert "secret" not in json.dumps(send(stub, "restore: p1-p9"))
    # Ann's own request still restores her text.
    assert send(SECRET, "restore: p1-p9")[2]["content"] == SECRET


def test_frameworks_that_share_a_filter_restore_nothing_of_another_user() -> None:
    pruners = ConversationPruners.of(50, strategy="age", prices=ALWAYS)
    stub = pruners.prune(greeting(SECRET, "go on")).messages[2]["content"]
    assert looks_like_stub(stub)
    assert "secret" not in json.dumps(pruners.prune(greeting(stub, "restore: p1-p9")).messages)
    assert pruners.prune(greeting(SECRET, "restore: p1-p9")).messages[2]["content"] == SECRET


def test_what_comes_whole_takes_no_memory_for_returned_texts() -> None:
    messages = conversation(*[SECRET] * 40, "done")
    pruners = [pruner(originals_only=originals_only) for originals_only in (True, False)]
    whole, shortened = (it.prune(messages) for it in pruners)
    assert whole.messages == shortened.messages
    assert pruners[0].memory < pruners[1].memory


@pytest.mark.parametrize("row", ["a,b,c", "| a | b |"])
def test_lines_that_say_that_rows_are_missing_do_not_fill_the_budget(row: str) -> None:
    lines = f"... [200 lines omitted] ...\n{row}\n" * 1_000
    head = f"{row}\n" if "," in row else f"{row}\n|---|---|\n{row}\n"
    report = ContextPruner(500, strategy="bm25").prune(greeting(head + lines, "go on")).report
    assert report.outcome == "pruned"
