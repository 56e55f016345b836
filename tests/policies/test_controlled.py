"""Control strategies in place of a policy's own pruning.

Summaries without a language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from context_agent import Action, Budget, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, Trajectory, View
from context_agent.policies.controlled import (
    LONGEST_SENTENCE,
    ControlledPolicy,
    extract,
    none,
    prune_by,
    strategy,
    summarize_oldest,
    summarize_prunes,
)
from context_agent.policies.scripted import Step
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    Edit,
    EditApplied,
    Role,
    Source,
    Summary,
    Text,
    ToolResult,
    fold,
)
from context_agent.testing.actions import prune, search
from context_agent.types import Chunk, Hit

QUERIES = ["comets", "rivers", "operas", "engines", "gardens", "painters", "bridges"]


def greedy(view: View) -> Action:
    """Keep searching, and prune everything that was found."""
    query = QUERIES[view.turn % 7]
    drop = ToolCall("prune_chunks", {"chunk_ids": [block.id for block in view.blocks]})
    return Action(calls=(drop, *search(query, limit=6).calls) if view.blocks else search(query, limit=6).calls)


def run(corpus: MemoryCorpus, name: str, **options: object) -> tuple[View, int]:
    inner = ScriptedPolicy([greedy] * 6, instructed=False)
    policy = ControlledPolicy(inner, prune_by(strategy(name, **options)), name)  # type: ignore[arg-type]
    result = SearchAgent(corpus, policy, budget=Budget(2048)).search("comets?")
    *_, view = result.trajectories[0].views()
    return view, sum(isinstance(event, EditApplied) for event in result.trajectories[0].events)


def test_none_never_prunes(corpus: MemoryCorpus) -> None:
    view, edits = run(corpus, "none")
    assert edits == 0
    assert not view.hidden


def test_oldest_prunes_the_oldest_past_the_soft_threshold(corpus: MemoryCorpus) -> None:
    view, edits = run(corpus, "oldest")
    assert edits > 0
    hidden = [block.key for block in view.pruned]
    assert hidden == list(range(len(hidden)))


def test_random_is_the_same_for_the_same_seed(corpus: MemoryCorpus) -> None:
    assert run(corpus, "random", seed=5)[0].hidden == run(corpus, "random", seed=5)[0].hidden


def test_the_oracle_keeps_the_gold(corpus: MemoryCorpus) -> None:
    unpruned, _ = run(corpus, "none")
    gold = {unpruned.blocks[0].document_id}
    view, _ = run(corpus, "oracle", gold=gold)
    assert not {block.document_id for block in view.pruned} & gold
    assert view.pruned


def test_an_action_of_edits_alone_ends_with_a_ranking(corpus: MemoryCorpus) -> None:
    inner = ScriptedPolicy([search("comets"), lambda view: replace(prune(view.blocks[0].id), tokens=9)])
    result = SearchAgent(corpus, ControlledPolicy(inner, prune_by(none), "none")).search("comets?")
    assert result.stop_reason == "finished"
    assert result.documents
    *_, last = (event for event in result.trajectories[0].events if isinstance(event, ActionTaken))
    assert last.tokens == 9, "what was sampled"


def test_what_was_sampled_stays_as_long_as_it_was(corpus: MemoryCorpus) -> None:
    sampled = replace(greedy(View("q", Budget(2048))), tokens=17)
    inner = ScriptedPolicy([sampled, lambda view: replace(greedy(view), tokens=23)])
    result = SearchAgent(corpus, ControlledPolicy(inner, prune_by(none), "none"), budget=Budget(2048)).search("q")
    events = [event for event in result.trajectories[0].events if isinstance(event, ActionTaken)]
    assert [event.tokens for event in events[:2]] == [17, 23]
    assert [call.name for call in events[1].action.calls] == ["search_corpus"], "the prune is left out"


def run_with_summaries(corpus: MemoryCorpus, *, own: bool, steps: Sequence[Step] = ()) -> Trajectory:
    inner = ScriptedPolicy(steps or [greedy] * 6, instructed=False)
    policy = ControlledPolicy(inner, summarize_oldest if own else summarize_prunes, "summary")
    return SearchAgent(corpus, policy, budget=Budget(2048), profile="summary").search("comets?").trajectories[0]


def test_summaries_take_the_place_of_pruning(corpus: MemoryCorpus) -> None:
    trajectory = run_with_summaries(corpus, own=False)
    *_, view = trajectory.views()
    edits = [event.edit for event in trajectory.events if isinstance(event, EditApplied)]
    assert view.summaries
    assert all(edit.summaries and not edit.pruned for edit in edits)
    assert all(event.mistake is None for event in trajectory.events if isinstance(event, ToolResult))
    assert {block.document_id for block in view.citable_blocks} == set(trajectory.encountered), "nothing is lost"


def test_a_prune_by_label_is_summarized_too() -> None:
    current = view(*(block(key, f"Comet {key}. {FILLER}") for key in range(3)))
    for arguments in ({"chunk_ids": ["Comet #1"]}, {"all_but": ["#0", "Comet #2"]}, '{"chunk_ids": ["d1_0"]}'):
        action = summarize_prunes(current, Action(calls=(ToolCall("prune_chunks", arguments),)))
        assert [call.arguments for call in action.calls] == [{"chunk_ids": ["d1_0"], "summary": "Comet 1."}]


@pytest.mark.parametrize("arguments", [{"chunk_ids": 5}, {"chunk_ids": [["d0_0"]]}, {}, [1], "5", "{"])
def test_an_invalid_prune_is_left_to_the_harness(arguments: Any) -> None:
    call = ToolCall("prune_chunks", arguments)
    assert summarize_prunes(view(block(0, FILLER)), Action(calls=(call,))).calls == (call,)


def test_own_edits_stay_and_the_summary_waits_for_a_turn_without_any(corpus: MemoryCorpus) -> None:
    edits = [event.edit for event in run_with_summaries(corpus, own=True).events if isinstance(event, EditApplied)]
    assert edits
    assert not any(edit.summaries for edit in edits), "it prunes in every turn"
    idle = run_with_summaries(corpus, own=True, steps=[search(query, limit=6) for query in QUERIES])
    assert any(edit.summaries for edit in (event.edit for event in idle.events if isinstance(event, EditApplied)))


def test_the_label_is_in_the_name() -> None:
    assert ControlledPolicy(ScriptedPolicy([]), prune_by(none), "no-prune").name == "scripted+no-prune"


QUESTION = "Which comet had six tails?"


def block(key: int, body: str, *, title: str = "", tokens: int = 0) -> Block:
    chunk = Chunk(f"d{key}_0", f"d{key}", 0, body, 0, len(body), len(body) // 4, title)
    token_count = tokens or 12 + len(body) // 4
    return Block(key, f"# DOCUMENT ID: d{key}_0\n", body, token_count, 0, 0, Source.SEARCH, Hit(chunk, 1.0, key + 1))


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
    current = view(*(block(key, f"Comet {key}. {FILLER}") for key in range(3)))
    replacement = extract(current, 10_000, {"d2_0", "d0_0", "elsewhere"})
    assert replacement is not None
    assert replacement.ids == ("d0_0", "d2_0")
    assert extract(current, 10_000, frozenset()) is None


def test_what_is_short_and_what_is_kept_stays() -> None:
    short, long = block(0, "A comet."), block(1, f"Comet. {FILLER}")
    assert extract(view(short), 500) is None
    current = view(short, long)
    replacement = extract(current, 500)
    assert replacement is not None
    assert replacement.ids == ("d1_0",)
    assert extract(current.apply(Edit(protected=(long.key,))), 500) is None


def test_a_long_sentence_is_cut_at_a_word_and_nothing_in_it_cites_an_id() -> None:
    replacement = extract(view(block(0, "the [[comet]] had " * 200)), 10)
    assert replacement is not None
    assert len(replacement.summary) <= LONGEST_SENTENCE
    assert replacement.summary.endswith((" had", " the", " [comet]"))
    assert "[[" not in replacement.summary


def test_an_earlier_summary_comes_down_to_its_closest_line() -> None:
    current = view(block(0, FILLER))
    lines = ["It rained a lot in the towns along the river.", "The comet had six tails.", *["Nothing was seen."] * 9]
    body = "\n".join(lines)
    summary = Summary(1, "summary:1", "# SUMMARY ID: summary:1, d0_0\n", body, 12 + len(body) // 4, 0, 0, (0,))
    replacement = extract(current.apply(Edit(replaced=(0,), summaries=(summary,))), 500)
    assert replacement is not None
    assert replacement.ids == ("summary:1",)
    assert replacement.summary == "The comet had six tails."
