"""Verdicts as a term of the reward: which episodes have it, and when missing verdicts stop a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, PolicyError
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.judge import CAPPED, FAILED, JudgedRanking, JudgeVerdict
from context_agent.train.experimental.judge.pool import JudgePool, refuse_judge_alone, scores_by_group
from context_agent.train.rewards import RewardConfig
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.word_prompts import WordRenderer
from context_agent.types import Question

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.rl.loop import ReinforcementLoop
from tests.support.judges import judge, scored, serving
from tests.support.rollout_loops import SMALL, agent, rollout_loop

WEIGHED = RewardConfig(judge=1.0)


class FakeJudge:
    """A judge whose verdict on a ranking is what the function `say` returns."""

    def __init__(self, say: Any, **settings: Any) -> None:
        self.settings = JudgeConfig(model="fixed", max_calls=1, **settings)
        self.seen: list[JudgedRanking] = []
        self._say = say

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        self.seen += rankings
        return [self._say(ranking) for ranking in rankings]

    def metrics(self) -> dict[str, float]:
        return {"judge/calls": float(len(self.seen))}


def judge_nonempty(ranking: JudgedRanking) -> JudgeVerdict:
    return JudgeVerdict(1.0 if ranking.documents else 0.0, asked=bool(ranking.documents))


def no_verdict(reason: str = FAILED) -> Any:
    return lambda ranking: JudgeVerdict(None, absent=reason, detail="said so")


def without_gold(questions: Sequence[Question]) -> list[Question]:
    """The questions without their gold and answers."""
    return [replace(question, gold=(), facts=(), answer="") for question in questions]


def make_loop(
    small: ToyEnvironment, words: WordRenderer, questions: Sequence[Question], pool: JudgePool | None, **options: Any
) -> ReinforcementLoop:
    return rollout_loop(
        agent(small, words), questions, SMALL, rewards=options.pop("rewards", WEIGHED), judge=pool, **options
    )


def test_questions_without_gold_are_refused_without_a_judge(small: ToyEnvironment, words: WordRenderer) -> None:
    with pytest.raises(ConfigError, match="have no gold"):
        make_loop(small, words, without_gold(small.questions["train"]), None)


def test_a_question_without_gold_is_learned_from_by_its_verdicts(small: ToyEnvironment, words: WordRenderer) -> None:
    fake_judge = FakeJudge(judge_nonempty)
    step = make_loop(small, words, without_gold(small.questions["train"]), JudgePool(fake_judge)).collect(0)
    assert len(step.episodes) == len(fake_judge.seen) == 24
    scores = {episode.outcome.judged for episode in step.episodes}
    assert scores == {0.0, 1.0}
    for episode in step.episodes:
        assert not episode.outcome.has_gold
        assert episode.reward.terms["judge"] == episode.outcome.judged
        if episode.outcome.ending == "finished":
            assert episode.reward.total == pytest.approx(max(episode.outcome.judged or 0, 0.001), abs=0.2)
    assert step.rows
    assert "recall" not in step.metrics
    assert step.metrics["judge/score"] == step.metrics["term/judge"]
    assert (step.metrics["judge/wanted"], step.metrics["judge/absent"], step.metrics["episodes_unjudged"]) == (24, 0, 0)


def test_by_default_gold_is_asked_where_there_is_some(small: ToyEnvironment, words: WordRenderer) -> None:
    questions = small.questions["train"]
    mixed = [*questions[:10], *without_gold(questions[10:20])]
    fake_judge = FakeJudge(judge_nonempty)
    step = make_loop(small, words, mixed, JudgePool(fake_judge)).collect(0)
    texts_without_gold = {question.question for question in mixed[10:]}
    judged_texts = {ranking.question for ranking in fake_judge.seen}
    assert judged_texts
    assert judged_texts <= texts_without_gold
    assert {episode.outcome.judged is None for episode in step.episodes if episode.outcome.has_gold} == {True}
    judge_of_all = FakeJudge(judge_nonempty, questions="all")
    make_loop(small, words, mixed, JudgePool(judge_of_all)).collect(0)
    assert len(judge_of_all.seen) == 24


def test_the_other_terms_stay_when_the_judge_is_down(small: ToyEnvironment, words: WordRenderer) -> None:
    messages: list[str] = []
    pool = JudgePool(FakeJudge(no_verdict(), questions="all"), messages.append)
    step = make_loop(small, words, small.questions["train"], pool).collect(0)
    step_without_judge = make_loop(small, words, small.questions["train"], None, rewards=RewardConfig()).collect(0)
    assert step.rows == step_without_judge.rows
    assert (step.metrics["judge/absent"], step.metrics["term/judge"]) == (24, 0)
    assert len(messages) == 1
    assert messages[0].startswith("24 of 24 episodes have no verdict of the judge (24 × judge failed: said so). ")
    assert "other terms" in messages[0]


def test_a_question_with_one_verdict_missing_has_the_term_for_none_of_its_episodes() -> None:
    verdicts = [
        JudgeVerdict(0.2),
        JudgeVerdict(None, absent="x"),
        JudgeVerdict(0.4),
        None,
        JudgeVerdict(0.0, asked=False),
    ]
    assert scores_by_group(["a", "a", "b", "c", "b"], verdicts) == [None, None, 0.4, None, 0.0]


def test_a_judge_that_stays_down_ends_the_run(small: ToyEnvironment, words: WordRenderer) -> None:
    pool = JudgePool(FakeJudge(no_verdict(), questions="all", max_failed_steps=2), lambda _: None)
    loop = make_loop(small, words, small.questions["train"], pool)
    loop.collect(0)
    with pytest.raises(PolicyError, match="in 2 steps in a row"):
        loop.collect(1)


def test_a_step_that_was_answered_begins_the_count_anew(small: ToyEnvironment, words: WordRenderer) -> None:
    fake_judge = FakeJudge(no_verdict(), questions="all", max_failed_steps=2)
    loop = make_loop(small, words, small.questions["train"], JudgePool(fake_judge, lambda _: None))
    loop.collect(0)
    fake_judge._say = judge_nonempty
    loop.collect(1)
    fake_judge._say = no_verdict()
    loop.collect(2)


def test_past_the_cap_training_goes_on_without_the_term(small: ToyEnvironment, words: WordRenderer) -> None:
    pool = JudgePool(FakeJudge(no_verdict(CAPPED), questions="all", max_failed_steps=1), lambda _: None)
    loop = make_loop(small, words, small.questions["train"], pool)
    for step in range(3):
        assert loop.collect(step).metrics["judge/absent"] == 24
    loop_without_gold = make_loop(small, words, without_gold(small.questions["train"]), pool)
    with pytest.raises(PolicyError, match=r"no question of step 0 has gold, and 24 of 24 .* cap reached"):
        loop_without_gold.collect(0)


def test_what_nothing_but_the_judge_could_reward_is_refused(small: ToyEnvironment) -> None:
    settings = JudgeConfig(model="m", max_calls=1)
    questions = without_gold(small.questions["train"])
    with pytest.raises(ConfigError, match="the judge would be the only reward"):
        refuse_judge_alone(settings, questions)
    refuse_judge_alone(replace(settings, alone=True), questions)
    refuse_judge_alone(settings, [*questions, small.questions["train"][0]])
    refuse_judge_alone(settings, [*questions, Question("q", "What?", answer="Leeds")])


def test_a_resumed_run_has_the_same_verdicts_without_the_judge(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    questions = without_gold(small.questions["train"])
    with serving("yes") as url, judge(url, tmp_path) as ranking_judge:
        first_step = make_loop(small, words, questions, JudgePool(ranking_judge)).collect(1)
    with judge("http://127.0.0.1:9/v1", tmp_path) as ranking_judge:
        resumed_step = make_loop(small, words, questions, JudgePool(ranking_judge)).collect(1)
    assert resumed_step.rows == first_step.rows
    assert resumed_step.metrics["judge/score"] == first_step.metrics["judge/score"]


def test_a_judge_that_always_says_yes_shows_in_the_metrics(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    from context_agent.policies.chat.scripted_server import ScriptedServer

    with ScriptedServer([scored(3)] * 200) as server, judge(server.url, tmp_path) as ranking_judge:
        step = make_loop(small, words, without_gold(small.questions["train"]), JudgePool(ranking_judge)).collect(0)
    assert step.metrics["judge/yes"] == 1.0
    assert step.metrics["judge/calls"] == len(server.chat_bodies())
