"""Budget tiers, edits and control strategies as pure functions."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.budget import Budget, Tier
from context_agent.errors import ConfigError
from context_agent.policies.controlled import strategy
from context_agent.pruning.view import (
    Block,
    Edit,
    Editable,
    EditCost,
    Role,
    Selection,
    Source,
    Summary,
    Text,
    ToolResult,
    View,
    fold,
    named_id,
)
from context_agent.types import Chunk, Hit


def block(key: int, *, tokens: int = 100, turn: int = 0, chunk_id: str = "") -> Block:
    chunk = Chunk(chunk_id or f"d{key}_0", f"d{key}", 0, f"text {key}", 0, 6, tokens - 10)
    return Block(key, f"# {key}\n", f"text {key}", tokens, turn, 0, Source.SEARCH, Hit(chunk, 1.0, key + 1))


def add_result(current: View, *segments: Text | Block) -> View:
    return fold(current, ToolResult(0, 0, "search_corpus", {}, segments))


def view(count: int = 5) -> View:
    text = Text(Role.QUESTION, "why?\n", 10, turn=-1)
    return add_result(View("why?", Budget(2048)), text, *(block(key) for key in range(count)))


def prunable(current: View, *chunk_ids: str) -> Selection:
    selection, _ = current.select(chunk_ids, None)
    return selection


def keys_of(blocks: Iterable[Editable]) -> tuple[int, ...]:
    return tuple(block.key for block in blocks)


def test_tiers_follow_the_thresholds() -> None:
    budget = Budget(32_768)
    assert [budget.tier(tokens) for tokens in (0, 16_383, 16_384, 24_575, 24_576, 32_768)] == [
        Tier.OPEN,
        Tier.OPEN,
        Tier.SOFT,
        Tier.SOFT,
        Tier.HARD,
        Tier.HARD,
    ]


def test_a_call_gets_an_eighth_of_the_window_or_what_is_left_before_the_cutoff() -> None:
    rooms = [View("", Budget(32_768), tokens=tokens).call_room() for tokens in (0, 24_000, 30_000)]
    assert rooms == [4_096, 576, 0]
    rooms = [View("", Budget(32_768), tokens=tokens).call_room(3) for tokens in (0, 20_000, 30_000)]
    assert rooms == [12_288, 4_576, 0], "a call in place of three may say as much as they"


def test_append_counts_and_indexes() -> None:
    current = view()
    assert current.tokens == 510
    assert current.shows("d3_0")
    assert not current.shows("d9_0")
    assert len(current.by_id()["d3_0"]) == 1
    assert all(shown.complete for shown in current.blocks)
    assert [segment.call for segment in current.segments] == [-1, 0, 0, 0, 0, 0]


def test_prune_and_restore_are_inverse() -> None:
    before = view()
    selection = prunable(before, "d1_0", "d3_0", "d1_0", "d8_0")
    assert [b.key for b in selection.blocks] == [1, 3]
    assert selection.unknown == ("d8_0",)
    after = before.apply(Edit(pruned=keys_of(selection.blocks)))
    assert after.tokens == 310
    assert prunable(after, "d1_0").unchanged == ("d1_0",)
    restored = keys_of(after.select_hidden(["d1_0", "d3_0"]).blocks)
    assert after.apply(Edit(restored=restored)) == before


def test_two_edits_that_undo_each_other_combine_to_none() -> None:
    before = view()
    prune, restore = Edit(pruned=(1, 3)), Edit(restored=(1, 3))
    assert before.combine(prune, restore) == Edit()
    assert before.combine(prune, Edit(pruned=(2,), restored=(1,))) == Edit(pruned=(2, 3))
    assert before.apply(prune).combine(Edit(restored=(1,)), Edit(restored=(3,))) == Edit(restored=(1, 3))


@given(st.lists(st.tuples(st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)))))
def test_a_combined_edit_leads_where_its_parts_lead(steps: list[tuple[set[int], set[int], set[int]]]) -> None:
    before = after = view().apply(Edit(pruned=(0, 2)))
    net = Edit()
    for prune, restore, protect in steps:
        restored = {key for key in restore if key in after.hidden}
        pruned = {key for key in prune if key not in after.hidden} - restored
        protected = {key for key in protect if key not in pruned} - after.protected
        part = Edit(tuple(sorted(pruned)), tuple(sorted(restored)), protected=tuple(sorted(protected)))
        net, after = before.combine(net, part), after.apply(part)
    assert before.apply(net) == after


def test_a_chunk_shown_twice_comes_back_once_and_last() -> None:
    current = add_result(view(2), block(7, chunk_id="d1_0"))
    hidden = current.apply(Edit(pruned=keys_of(prunable(current, "d1_0").blocks)))
    assert [b.key for b in hidden.pruned] == [1, 7]
    assert [b.key for b in hidden.select_hidden(["d1_0"]).blocks] == [7]


def test_the_bill_starts_at_the_first_edited_block() -> None:
    before = view()
    prune = Edit(pruned=keys_of(prunable(before, "d1_0", "d3_0").blocks))
    after = before.apply(prune)
    assert before.cost(prune) == EditCost(freed=200, recomputed=200)
    assert after.cost(Edit(restored=prune.pruned)) == EditCost(freed=-200, recomputed=400)
    assert before.cost(Edit()) == EditCost(freed=0, recomputed=0)


def test_a_new_summary_is_in_no_cache_though_all_that_it_replaces_is_hidden() -> None:
    hidden = view().apply(Edit(pruned=(1,)))
    summary = Summary(5, "s1", "# s1\n", "text 1", 30, 0, 0, of=(1,))
    assert hidden.cost(Edit(summaries=(summary,))) == EditCost(freed=-30, recomputed=30)


@pytest.mark.parametrize("key", [5, 6])
def test_a_summary_replaces_only_what_stands_before_it(key: int) -> None:
    """Otherwise summaries in a damaged record could stand for each other."""
    summaries = tuple(Summary(number, f"s{number}", "# s\n", "text", 3, 0, 0, of=(key,)) for number in (5, 6))
    with pytest.raises(KeyError):
        view().apply(Edit(summaries=summaries))


def test_a_view_knows_what_the_latest_edit_changed() -> None:
    before = view()
    after = before.apply(Edit(pruned=(1, 3)))
    assert (before.changed, after.changed) == (frozenset(), {1, 3})
    assert after.apply(Edit(pruned=(2,), restored=(3,))).changed == {2, 3}
    assert after.apply(Edit(protected=(0,))).changed == {1, 3}, "nothing was hidden or restored since"


def test_a_label_may_stand_behind_a_title_unless_the_whole_is_an_id() -> None:
    assert named_id("comets #3", {"d1"}) == "#3"
    assert named_id("comets #3", {"comets #3"}) == "comets #3"
    assert named_id("comets", {"d1"}) == "comets"
    assert named_id("R&amp;D.md", {"R&D.md"}) == "R&D.md"
    assert named_id("R&amp;D.md", {"R&amp;D.md", "R&D.md"}) == "R&amp;D.md"
    assert named_id("a.md/", {"a.md"}) == "a.md"
    assert named_id("a.md /", {"a.md"}) == "a.md"
    assert named_id("https://a.example/", {"https://a.example/"}) == "https://a.example/"


def test_oldest_and_random_free_what_is_needed() -> None:
    current = view()
    assert strategy("oldest")(current, 150) == ("d0_0", "d1_0")
    ids = strategy("random", seed=3)(current, 250)
    assert len(ids) == 3
    assert ids == strategy("random", seed=3)(current, 250)
    assert strategy("none")(current, 500) == ()


def test_the_oracle_keeps_gold_alone() -> None:
    assert strategy("oracle", gold={"d2", "d4_0"})(view(), 0) == ("d0_0", "d1_0", "d3_0")


def test_an_unknown_strategy_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="none, oldest, random, oracle"):
        strategy("newest")


def test_the_reserve_decides_how_small_a_window_may_be() -> None:
    with pytest.raises(ConfigError, match="at least 512"):
        Budget(511)
    small = Budget(100, per_call=40, reserve=8)
    assert (small.hard, View("", small, tokens=80).result_room) == (75, 14)
    assert [View("", small, tokens=tokens).max_output for tokens in (80, 91, 92, 100)] == [12, 1, 0, 0]
    assert View("", Budget(512, reserve=64)).result_room == 512 - 48
    with pytest.raises(ConfigError, match="at least 64"):
        Budget(63, reserve=8)
    with pytest.raises(ConfigError, match="at least 1 token"):
        Budget(512, reserve=0)
