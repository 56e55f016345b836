"""Summaries without a language model."""

from __future__ import annotations

from context_agent.pruning.budget import Budget
from context_agent.pruning.strategies import LONGEST_SENTENCE, extract
from context_agent.pruning.view import Block, Edit, Role, Source, Summary, Text, ToolResult, View, fold
from context_agent.types import Chunk, Hit

QUESTION = "Which comet had six tails?"


def block(key: int, body: str, *, title: str = "", tokens: int = 0) -> Block:
    chunk = Chunk(f"d{key}_0", f"d{key}", 0, body, 0, len(body), len(body) // 4, title)
    made = tokens or 12 + len(body) // 4
    return Block(key, f"# DOCUMENT ID: d{key}_0\n", body, made, 0, 0, Source.SEARCH, Hit(chunk, 1.0, key + 1))


def view(*blocks: Block) -> View:
    text = Text(Role.QUESTION, f"{QUESTION}\n", 10, turn=-1)
    return fold(View(QUESTION, Budget(2048)), ToolResult(0, 0, "search_corpus", {}, (text, *blocks)))


FILLER = "It was seen by many people in the towns along the river that year. " * 8


def test_the_sentence_that_shares_most_with_the_question_stands_for_a_block() -> None:
    body = f"{FILLER}The comet of 1744 had six tails! Another comet had none. {FILLER}"
    replacement = extract(view(block(0, body, title="Great  Comet")), 10)
    assert replacement is not None
    assert replacement.ids == ("d0_0",)
    assert replacement.summary == "Great Comet: The comet of 1744 had six tails!"


def test_of_equals_the_first_is_taken_and_a_title_is_not_said_twice() -> None:
    replacement = extract(view(block(0, f"Halley is round. {FILLER}", title="Halley")), 10)
    assert replacement is not None
    assert replacement.summary == "Halley is round."


def test_the_oldest_go_until_what_is_needed_is_free() -> None:
    blocks = [block(key, f"Comet {key}. {FILLER}") for key in range(4)]
    replacement = extract(view(*blocks), blocks[0].tokens + 1)
    assert replacement is not None
    assert replacement.ids == ("d0_0", "d1_0")
    assert replacement.summary.splitlines() == ["Comet 0.", "Comet 1."]
    assert extract(view(*blocks), 0) is None


def test_only_what_may_go_goes() -> None:
    seen = view(*(block(key, f"Comet {key}. {FILLER}") for key in range(3)))
    replacement = extract(seen, 10_000, {"d2_0", "d0_0", "elsewhere"})
    assert replacement is not None
    assert replacement.ids == ("d0_0", "d2_0")
    assert extract(seen, 10_000, frozenset()) is None


def test_what_is_short_and_what_is_kept_stays() -> None:
    short, long = block(0, "A comet."), block(1, f"Comet. {FILLER}")
    assert extract(view(short), 500) is None
    seen = view(short, long)
    replacement = extract(seen, 500)
    assert replacement is not None
    assert replacement.ids == ("d1_0",)
    assert extract(seen.apply(Edit(protected=(long.key,))), 500) is None


def test_a_long_sentence_is_cut_at_a_word_and_nothing_in_it_cites_an_id() -> None:
    replacement = extract(view(block(0, "the [[comet]] had " * 200)), 10)
    assert replacement is not None
    assert len(replacement.summary) <= LONGEST_SENTENCE
    assert replacement.summary.endswith((" had", " the", " [comet]"))
    assert "[[" not in replacement.summary


def test_an_earlier_summary_comes_down_to_its_closest_line() -> None:
    seen = view(block(0, FILLER))
    lines = ["It rained a lot in the towns along the river.", "The comet had six tails.", *["Nothing was seen."] * 9]
    body = "\n".join(lines)
    summary = Summary(1, "summary:1", "# SUMMARY ID: summary:1, d0_0\n", body, 12 + len(body) // 4, 0, 0, (0,))
    replacement = extract(seen.apply(Edit(replaced=(0,), summaries=(summary,))), 500)
    assert replacement is not None
    assert replacement.ids == ("summary:1",)
    assert replacement.summary == "The comet had six tails."
