"""Demonstrations among sampled episodes.

1. A group whose sampled episodes all fail still teaches; the metrics of sampled episodes leave demonstrations out.
2. A demonstration below the mean of its group teaches nothing.
3. Demonstrations that do not fit the run are refused; unreadable ones are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import SearchAgent
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, SampleRequest
from context_agent.policies.tokens.trained import PolicyDescription
from context_agent.testing import tiny_runs
from context_agent.train.advantages import BaselineMembers
from context_agent.train.batches import WeightedRow
from context_agent.train.config import RolloutConfig
from context_agent.train.curriculum import Curriculum
from context_agent.train.run_file import parse_run
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.word_prompts import WordRenderer, words_profile
from context_agent.types import Question
from tests.support.expert import demonstrate
from tests.support.rollout_loops import rollout_loop

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.batches import StepRows, fresh_rows
from context_agent.train.rl.demonstrations import Demonstrations, open_demonstrations
from context_agent.train.rl.loop import ReinforcementLoop
from context_agent.train.rl.rollouts import Rollouts, step_questions

MIXED = RolloutConfig(steps=4, groups=4, rollouts=3, demonstrations=1, substeps=2, concurrency=4, save_every=0)


def rank_nobody(request: SampleRequest, words: WordRenderer) -> Sequence[int]:
    """Rank a document that does not exist."""
    return (*words.encode("rank nobody"), *words.stop)


def mixed_loop(
    small: ToyEnvironment,
    words: WordRenderer,
    demonstrations: Demonstrations,
    *,
    reply: Callable[[SampleRequest, WordRenderer], Sequence[int]] = rank_nobody,
    config: RolloutConfig = MIXED,
    **options: Any,
) -> ReinforcementLoop:
    engine = FakeEngine(lambda request: reply(request, words), version="0")
    agent = SearchAgent(small.corpus, TokenPolicy(engine, words), profile=words_profile(), budget=512)
    questions = small.questions["train"]
    rollouts = Rollouts(
        agent, questions, config, demonstration_count=demonstrations and demonstrations.count, **options
    )
    loop = rollout_loop(agent, questions, config, rollouts=rollouts)
    return replace(loop, demonstrations=demonstrations)


def make_run(folder: str | Path, **rollouts: Any) -> Any:
    plain = tiny_runs.merged(tiny_runs.TINY, {"model": {"name": "student"}, "data": {"trajectories": str(folder)}})
    return parse_run(tiny_runs.merged(plain, {"rollouts": {"rollouts": 3, "demonstrations": 1, **rollouts}}))


def load_demonstrations(
    small: ToyEnvironment, words: WordRenderer, folder: str | Path, **rollouts: Any
) -> tuple[Any, list[str]]:
    notes: list[str] = []
    settings = make_run(folder, **rollouts)
    return open_demonstrations(settings, words, small.questions["train"], notes.append), notes


def step_0_questions(small: ToyEnvironment) -> list[Question]:
    return step_questions(0, small.questions["train"], Curriculum(), MIXED)


@pytest.fixture(scope="module")
def shown(small: ToyEnvironment, words: WordRenderer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A demonstration of three of the four questions of step 0."""
    return demonstrate(small, words, step_0_questions(small)[:3], tmp_path_factory.mktemp("lessons"))


def test_a_group_whose_sampled_episodes_all_fail_still_teaches(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    demonstrations, notes = load_demonstrations(small, words, shown)
    total = len(small.questions["train"])
    assert notes == [f"3 of {total} questions have demonstrations. 0 trajectories are of other questions."]
    step = mixed_loop(small, words, demonstrations).collect(0)
    sizes = Counter(episode.question.id for episode in step.episodes)
    assert list(sizes.values()) == [3] * 4, "a demonstration takes the place of a sampled episode"
    assert {item.row.group_id for item in step.rows} == {question.id for question in step_0_questions(small)[:3]}
    metrics = step.metrics
    assert metrics["groups_equal"] == metrics["demonstrations/groups_without"] == 1
    assert metrics["demonstrations/episodes"] == metrics["demonstrations/trained"] == 3
    refilled = mixed_loop(small, words, demonstrations, config=replace(MIXED, refill=2)).collect(0)
    groups = {episode.question.id for episode in refilled.episodes}
    assert len(groups) > 4
    assert refilled.metrics["demonstrations/groups_without"] == len(groups) - 3
    assert metrics["demonstrations/recall"] == 1.0
    assert metrics["demonstrations/reward"] > metrics["reward"]
    assert metrics["recall"] == 0.0
    assert metrics["episodes_trained"] == 2 * 3
    demonstrated = [item for item in step.rows if item.demonstrated]
    assert metrics["demonstrations/tokens"] == sum(item.row.trained for item in demonstrated) > 0
    assert metrics["tokens_trained"] == sum(item.row.trained for item in step.rows) - metrics["demonstrations/tokens"]
    assert all(item.advantage > 0 for item in demonstrated)
    assert metrics["demonstrations/advantage_share"] == 1.0, "no sampled episode is better than its group"
    queries = [len(episode.outcome.queries) for episode in step.episodes if episode.demonstrated]
    assert metrics["demonstrations/searches"] == sum(queries) / 3 > 0
    assert all(item.advantage < 0 for item in step.rows if not item.demonstrated)


def test_a_demonstrated_row_teaches_the_expert_s_replies(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    demonstrations, _ = load_demonstrations(small, words, shown)
    step = mixed_loop(small, words, demonstrations).collect(0)
    rows = [item.row for item in step.rows if item.demonstrated]
    texts = [
        words.decode([token for token, on in zip(row.input_ids, row.loss_mask, strict=True) if on]) for row in rows
    ]
    assert any("search" in text for text in texts)
    assert any("rank" in text for text in texts)
    assert {row.episode_id[-3:] for row in rows} == {"002"}, "the rollout that it replaces"


def test_the_turns_of_a_demonstration_count_against_the_limit_of_the_run(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    """The expert may have had more turns. Its reward would then lose less for each turn than those of its group."""
    recorded = [read(path) for path in Path(shown).rglob("*.jsonl")]
    assert all(trajectory.header.limits.get("turns") != tiny_runs.TINY["episodes"]["turns"] for trajectory in recorded)
    demonstrations, _ = load_demonstrations(small, words, shown)
    step = mixed_loop(small, words, demonstrations).collect(0)
    played = [episode.trajectory for episode in step.episodes if episode.demonstrated]
    assert {trajectory.header.limits["turns"] for trajectory in played} == {tiny_runs.TINY["episodes"]["turns"]}
    for episode in step.episodes:
        if episode.demonstrated:
            end = episode.trajectory.end
            assert end is not None
            shares = min(1, episode.trajectory.critical_steps / 4) + min(1, end.tokens / 512)
            assert episode.outcome.spent == pytest.approx(shares / 2)


def test_a_demonstration_below_the_mean_of_its_group_teaches_nothing(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    """The policy that demonstrates fails; the one that is trained ranks what the question names."""
    failure = TokenPolicy(FakeEngine(lambda request: rank_nobody(request, words)), words)
    with SearchAgent(small.corpus, failure, profile=words_profile(), budget=512, trajectories=tmp_path) as agent:
        for question in step_0_questions(small):
            agent.search(question.question, question_id=question.id)
    demonstrations, _ = load_demonstrations(small, words, tmp_path)
    titles = sorted((title.lower() for title in small.titles.values()), key=len, reverse=True)

    def search_and_rank(request: SampleRequest, words: WordRenderer) -> Sequence[int]:
        prompt = words.decode(request.prompt)
        title = next(title for title in titles if title in prompt)
        verb = "rank" if prompt.count("<go>") > 1 else "search"
        return (*words.encode(f"{verb} {title}"), *words.stop)

    step = mixed_loop(small, words, demonstrations, reply=search_and_rank).collect(0)
    rewards = {(episode.question.id, episode.demonstrated): episode.reward.total for episode in step.episodes}
    worse_questions = {
        question_id for question_id, _ in rewards if rewards.get((question_id, True), 9.0) < rewards[question_id, False]
    }
    assert worse_questions
    assert {item.row.group_id for item in step.rows} >= worse_questions, "the sampled episodes of the group are trained"
    assert not any(item.demonstrated and item.row.group_id in worse_questions for item in step.rows)
    assert step.metrics["demonstrations/advantage_share"] < 1


def test_a_demonstration_outside_the_mean_leaves_the_sampled_episodes_among_themselves(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    """All sampled episodes fail alike: with the mean over them alone they are not trained on."""
    demonstrations, _ = load_demonstrations(small, words, shown)
    config = replace(MIXED, baseline_members=BaselineMembers.SAMPLED)
    step = mixed_loop(small, words, demonstrations, config=config).collect(0)
    assert {item.demonstrated for item in step.rows} == {True}
    assert step.metrics["demonstrations/trained"] == 3
    assert step.metrics["episodes_trained"] == 0


def test_without_the_setting_nothing_changes(small: ToyEnvironment, words: WordRenderer) -> None:
    config = replace(MIXED, demonstrations=0)
    step = mixed_loop(small, words, None, config=config).collect(0)
    assert len(step.episodes) == 12
    assert not any(name.startswith("demonstrations/") for name in step.metrics)


def test_a_group_never_has_more_demonstrations_than_its_question(
    small: ToyEnvironment, words: WordRenderer, shown: str, tmp_path: Path
) -> None:
    """The first of two folders takes precedence."""
    questions = step_0_questions(small)
    second = demonstrate(small, words, questions[:1], tmp_path, window=1_024)
    settings = make_run(shown, demonstrations=2)
    data, episodes = (second, shown), replace(settings.episodes, window=1_024)
    settings = replace(settings, data=replace(settings.data, trajectories=data), episodes=episodes)
    demonstrations = open_demonstrations(settings, words, questions, lambda _: None)
    assert [demonstrations.count(question) for question in questions] == [2, 1, 1, 0]
    single = replace(settings, rollouts=replace(settings.rollouts, demonstrations=1))
    demonstrations = open_demonstrations(single, words, questions[:1], lambda _: None)
    step = mixed_loop(small, words, demonstrations).collect(0)
    (episode,) = (episode for episode in step.episodes if episode.demonstrated)
    assert episode.trajectory.header.budget.window == 1_024


def test_ranks_share_the_groups_with_their_demonstrations(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    demonstrations, _ = load_demonstrations(small, words, shown)
    whole = mixed_loop(small, words, demonstrations).collect(0).rows
    parts = [
        row for rank in range(2) for row in mixed_loop(small, words, demonstrations, rank=rank, ranks=2).collect(0).rows
    ]
    assert sorted(map(repr, parts)) == sorted(map(repr, whole))


def test_the_rows_of_a_half_used_step_are_kept_with_their_demonstrations(
    small: ToyEnvironment, words: WordRenderer, shown: str, tmp_path: Path
) -> None:
    demonstrations, _ = load_demonstrations(small, words, shown)
    loop = mixed_loop(small, words, demonstrations)
    loop.rows(0)
    loop.save(tmp_path, 1)
    step_rows = StepRows.load(tmp_path, 0)
    assert any(row.demonstrated for rows in step_rows.substeps for row in rows)
    assert step_rows.substeps[1] == loop.rows(1)


def test_a_demonstration_has_no_age_and_hides_no_engine_that_is_stuck(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    demonstrations, _ = load_demonstrations(small, words, shown)
    rows = mixed_loop(small, words, demonstrations).collect(0).rows
    demonstrated: list[WeightedRow] = [row for row in rows if row.demonstrated]
    assert fresh_rows(rows, 8, 8) == list(rows)
    assert fresh_rows(demonstrated, 9, 8) == demonstrated
    with pytest.raises(
        PolicyError,
        match=rf"all {len(rows) - len(demonstrated)} rows of update 9 are more than 8 updates old, up to 9",
    ):
        fresh_rows(rows, 9, 8)


def test_an_engine_that_is_gone_ends_the_step_all_the_same(
    small: ToyEnvironment, words: WordRenderer, shown: str
) -> None:
    demonstrations, _ = load_demonstrations(small, words, shown)

    def fail(request: SampleRequest, words: WordRenderer) -> Sequence[int]:
        raise PolicyError("no such server")

    with pytest.raises(PolicyError, match=r"none of the \d+ episodes of step 0 could be completed \(no such server"):
        mixed_loop(small, words, demonstrations, reply=fail).collect(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profile": "lean"}, "profile 'lean' instead of 'words'"),
        ({"counter": "o200k_harmony"}, "tokenizer 'o200k_harmony' instead of 'words:"),
        ({"window": 1_024}, "a window of 1,024 tokens instead of at most 512"),
    ],
)
def test_demonstrations_of_another_harness_are_refused(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    folder = demonstrate(small, words, small.questions["train"][:1], tmp_path, **settings)
    with pytest.raises(DataError, match=f"{message}.*ctx1 synth trajectories"):
        load_demonstrations(small, words, folder)


def test_demonstrations_of_other_questions_are_counted_and_refused_if_there_are_no_others(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    first, second = small.questions["train"][:2]
    folder = demonstrate(small, words, [first, second], tmp_path)
    # Another set of questions may use the same ids.
    questions = [replace(first, question="another question"), second]
    notes: list[str] = []
    demonstrations = open_demonstrations(make_run(folder), words, questions, notes.append)
    assert [demonstrations.count(question) for question in questions] == [0, 1]
    assert notes == ["1 of 2 questions have demonstrations. 1 trajectories are of other questions."]
    with pytest.raises(DataError, match=r"demonstrates a question of this run, and 2 are of other questions"):
        open_demonstrations(make_run(folder), words, [Question("x", "who?")], notes.append)


def test_broken_and_incomplete_trajectories_are_skipped(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    questions = small.questions["train"][:3]
    folder = demonstrate(small, words, questions, tmp_path)
    first, second, _ = sorted((tmp_path / "kept").glob("*.jsonl"))
    first.write_text("{")
    second.write_text("\n".join(second.read_text().splitlines()[:-1]) + "\n")
    demonstrations, notes = load_demonstrations(small, words, folder)
    assert sum(demonstrations.count(question) for question in questions) == 1
    assert [f"skipped: {first}" in notes[0], f"skipped: {second} has no end" in notes[1]] == [True, True]
    assert read(second).end is None


def test_settings_that_cannot_work(small: ToyEnvironment, words: WordRenderer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollouts\.demonstrations = 1 .* Set data\.trajectories"):
        parse_run(tiny_runs.merged(tiny_runs.TINY, {"model": {"name": "student"}, "rollouts": {"demonstrations": 1}}))
    for wrong in (-1, 3):
        with pytest.raises(ConfigError, match=rf"below rollouts\.rollouts = 3, .*got {wrong}"):
            make_run(tmp_path, demonstrations=wrong)
    with pytest.raises(DataError, match="contains no trajectory"):
        load_demonstrations(small, words, tmp_path)


def test_demonstrations_for_a_model_also_teach_the_model_that_was_trained_from_it(
    small: ToyEnvironment, words: WordRenderer, shown: str, tmp_path: Path
) -> None:
    """`--from` a run that trained all weights makes its folder the name of the tokenizer."""
    (tmp_path / "config.json").write_text("{}")
    PolicyDescription(base=words.counter_name, renderer="words").save(tmp_path)
    trained = copy(words)
    trained.counter_name = str(tmp_path)
    demonstrations = open_demonstrations(make_run(shown), trained, small.questions["train"], lambda _: None)
    assert sum(map(demonstrations.count, small.questions["train"])) == 3
