"""Training rows: each sampled id trained once, on exactly the ids it was sampled on."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent import Action, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, View
from context_agent.errors import TrajectoryError
from context_agent.harness.profile import context_1, default, summary
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.recorded_calls import TokenCall, expand
from context_agent.testing.actions import prune, search, summarize
from context_agent.testing.token_episodes import QUESTION, Played, play, rank_view, small_corpus
from context_agent.train.rows import TrainingRow, decay_weights, demonstrated_rows, rows_of_calls, sampled_rows

RENDERER = HarmonyRenderer()


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return small_corpus()


@pytest.fixture(scope="module", params=range(28))
def played(request: pytest.FixtureRequest, corpus: MemoryCorpus) -> Played:
    seed: int = request.param
    profile = summary() if seed >= 20 else context_1() if seed % 3 else default()
    return play(corpus, HarmonyRenderer(parallel=seed % 2 == 0), seed, profile=profile)


def rows_of(played: Played) -> list[TrainingRow]:
    return sampled_rows(played.result.trajectories[0])


def test_tokens_trained_are_tokens_sampled(played: Played) -> None:
    trained = [t for row in rows_of(played) for t, keep in zip(row.input_ids, row.loss_mask, strict=True) if keep]
    assert trained == [token for sample in played.engine.samples for token in sample.ids]


def test_each_sampled_token_stands_behind_the_prompt_it_was_sampled_on(played: Played) -> None:
    calls = iter(zip(played.engine.requests, played.engine.samples, strict=True))
    for row in rows_of(played):
        end = 0
        while end < len(row.input_ids):
            request, sample = next(calls)
            end = len(request.prompt) + len(sample.ids)
            assert tuple(row.input_ids[:end]) == request.prompt + sample.ids
            assert row.loss_mask[len(request.prompt) : end] == [1] * len(sample.ids)
            assert tuple(row.logprobs[len(request.prompt) : end]) == sample.logprobs
    assert next(calls, None) is None


def test_a_row_ends_where_an_edit_broke_the_prefix(played: Played) -> None:
    views = played.views
    edits = sum(1 for before, after in itertools.pairwise(views) if before.hidden != after.hidden and before.blocks)
    assert len(rows_of(played)) <= edits + 1
    assert len(rows_of(played)) >= 1


def test_a_summary_is_trained_as_it_was_sampled_and_read_as_content(corpus: MemoryCorpus) -> None:
    words = "Six tails, says the comet of 1744."

    def turn(view: View, _: random.Random) -> Action:
        if not view.turn:
            return search("comets and operas", "rivers")
        return summarize(words, *(block.id for block in view.blocks[:4])) if view.turn == 1 else search("engines")

    episode = play(corpus, RENDERER, 1, profile=summary(), turns=3, choose=turn)
    (block,) = episode.views[-1].summaries
    first, second = rows_of(episode)
    parts = [[RENDERER.decode(ids) for ids in split(row)] for row in (first, second)]
    trained, read = zip(*parts, strict=True)
    assert trained[0].count(words) == 1, "the call that wrote it, once"
    assert words not in trained[1]
    assert block.text in read[1], "its block stands in the prompts behind the edit"
    assert words in read[1].replace(block.text, ""), "and so does the call, as every action does"
    assert words not in read[0]
    replaced = [pruned_block.text for pruned_block in episode.views[-1].pruned]
    assert len(replaced) == 4
    assert all(text in read[0] and text not in read[1] for text in replaced)


def split(row: TrainingRow) -> tuple[list[int], list[int]]:
    """(trained ids, the others)."""
    pairs = list(zip(row.input_ids, row.loss_mask, strict=True))
    return [token for token, keep in pairs if keep], [token for token, keep in pairs if not keep]


def test_logprobs_are_zero_where_nothing_is_trained(played: Played) -> None:
    for row in rows_of(played):
        assert all(keep or logprob == 0.0 for keep, logprob in zip(row.loss_mask, row.logprobs, strict=True))
        assert row.policy_version == "fake-0"
        assert row.group_id == QUESTION
        assert row.episode_id == played.result.trajectories[0].header.id


call_specs = st.lists(
    st.tuples(
        st.floats(0, 1), st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(10, 19), min_size=1, max_size=5)
    ),
    min_size=1,
    max_size=8,
)


@given(call_specs)
@settings(max_examples=300, deadline=None)
def test_any_calls_make_rows_that_train_each_id_once(specs: list[tuple[float, list[int], list[int]]]) -> None:
    calls: list[TokenCall] = []
    length = 0
    for share, new, output in specs:
        kept = int(share * length) if share < 0.7 else length
        calls.append(
            TokenCall(kept, tuple(new), tuple(output), tuple(-0.1 * t for t in output), version=str(len(calls)))
        )
        length = kept + len(new) + len(output)
    rows = list(rows_of_calls(calls, episode_id="e", group_id="g"))
    trained = [(t, p) for r in rows for t, k, p in zip(r.input_ids, r.loss_mask, r.logprobs, strict=True) if k]
    assert trained == [pair for call in calls for pair in zip(call.output, call.logprobs, strict=True)]
    wholes = [whole.prompt + whole.call.output for whole in expand(calls)]
    for row in rows:
        assert tuple(row.input_ids) in wholes
    assert sum(row.trained for row in rows) == sum(len(call.output) for call in calls)
    assert len(rows) == 1 + sum(not whole.extends for whole in list(expand(calls))[1:])


class Spoiling(HarmonyRenderer):
    """A renderer that writes another action in place of a call of grep or of a ranking."""

    def __init__(self, replaced: str, other: Action) -> None:
        super().__init__()
        self._replaced, self._other = replaced, other

    def reply(self, action: Action) -> tuple[int, ...]:
        name = action.calls[0].name if action.calls else "ranking"
        return super().reply(self._other if name == self._replaced else action)


GREP = Action((ToolCall("grep_corpus", {"pattern": "tail"}),))


@pytest.mark.parametrize(
    ("replaced", "other", "turn"),
    [
        ("grep_corpus", Action(text="nothing"), 1),
        ("grep_corpus", search("tail"), 1),
        ("grep_corpus", Action((ToolCall("grep_corpus", "{"),)), 1),
        ("ranking", Action(text="nothing"), 2),
        ("ranking", GREP, 2),
    ],
)
def test_an_action_that_a_format_cannot_express_is_not_taught(
    replaced: str, other: Action, turn: int, corpus: MemoryCorpus
) -> None:
    steps = [search("comets"), GREP, rank_view]
    (trajectory,) = SearchAgent(corpus, ScriptedPolicy(steps)).search(QUESTION).trajectories  # type: ignore[arg-type]
    assert demonstrated_rows(trajectory, RENDERER)
    with pytest.raises(TrajectoryError, match=rf"turn {turn} of .* cannot be written in the format 'harmony'"):
        demonstrated_rows(trajectory, Spoiling(replaced, other))


def test_a_teacher_s_episode_becomes_rows_of_the_same_making(corpus: MemoryCorpus) -> None:
    steps = [
        search("comets and operas", "rivers"),
        lambda view: prune(*(block.id for block in view.blocks[:2])),
        search("engines"),
        rank_view,
    ]
    result = SearchAgent(corpus, ScriptedPolicy(steps)).search(QUESTION)  # type: ignore[arg-type]
    (trajectory,) = result.trajectories
    rows = demonstrated_rows(trajectory, RENDERER, group_id="g")
    assert len(rows) == 2, "the prune began a new row"
    assert {row.group_id for row in rows} == {"g"}
    assert {row.group_id for row in demonstrated_rows(trajectory, RENDERER)} == {QUESTION}
    assert not any(logprob for row in rows for logprob in row.logprobs)
    assert {row.policy_version for row in rows} == {trajectory.header.policy}
    texts = [RENDERER.decode([t for t, k in zip(row.input_ids, row.loss_mask, strict=True) if k]) for row in rows]
    assert "multi_tool_use <|constrain|>json<|message|>" in texts[0]
    assert texts[1].count("<|channel|>final<|message|><Document id=") == 1
    assert texts[1].endswith("<|return|>")
    whole = RENDERER.decode(rows[1].input_ids)
    assert whole.startswith("<|start|>system<|message|>")
    assert not any(block.text in whole for block in trajectory_pruned(trajectory))


def trajectory_pruned(trajectory: object) -> tuple[object, ...]:
    *_, final = trajectory.views()  # type: ignore[attr-defined]
    return tuple(final.pruned)


def test_an_episode_of_another_policy_has_no_sampled_tokens(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank_view])).search(QUESTION)
    with pytest.raises(TrajectoryError, match="not played by a token policy"):
        sampled_rows(result.trajectories[0])


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"sampled": {"kept": 0}}, "cannot read"),
        ({"sampled": {"kept": 0, "new": [1], "output": [2], "logprobs": []}}, "1 sampled tokens and 0"),
        ({"sampled": {"kept": 0, "new": 5, "output": [2], "logprobs": [0.0]}}, "cannot read"),
    ],
)
def test_a_broken_record_is_named(extra: dict[str, object], words: str) -> None:
    with pytest.raises(TrajectoryError, match=words):
        TokenCall.from_extra(extra)


def test_a_record_that_keeps_more_than_there_was_is_refused() -> None:
    with pytest.raises(TrajectoryError, match="reuses 3 of only 0 ids"):
        list(rows_of_calls([TokenCall(3, (1,), (2,), (-0.1,))], episode_id="e", group_id="g"))


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        (("4", "9"), "4"),
        (("9", "10"), "9"),
        (("7", "4"), "4"),
        (("a", "b"), "a"),
        (("10", "a"), "10"),
        (("04", "4"), "04"),
        (("9" * 18, "1"), "1"),
        (("9" * 19, "1"), "9" * 19),
        (("9" * 5_000, "1"), "9" * 5_000),
    ],
)
def test_a_row_is_as_old_as_the_oldest_version_in_it(versions: tuple[str, str], oldest: str) -> None:
    first = TokenCall(0, (1, 2), (3,), (-0.5,), version=versions[0])
    then = TokenCall(3, (4,), (5, 6), (-0.25, -0.125), version=versions[1])
    (row,) = rows_of_calls([first, then], episode_id="e", group_id="g")
    assert row.policy_version == oldest
    assert row.logprobs == [0.0, 0.0, -0.5, 0.0, -0.25, -0.125]


def test_weights_decay_by_step_over_all_rows_of_an_episode() -> None:
    """Three steps: two in the first row, one in the second. Prompts weigh nothing."""
    calls = [
        TokenCall(0, (1, 2), (3, 4), (-0.5, -0.5)),
        TokenCall(4, (5,), (6,), (-0.5,)),
        TokenCall(1, (7, 8), (9, 9), (-0.5, -0.5)),
    ]
    rows = list(rows_of_calls(calls, episode_id="e", group_id="g"))
    assert decay_weights(rows, 0.5) == [[0, 0, 0.25, 0.25, 0, 0.5], [0, 0, 0, 1, 1]]
    assert decay_weights(rows, 1) == [[], []]
