"""Verdicts as a term of a step: who has it, who has not, and when a run stops for want of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.question_files import Question
from context_agent.errors import ConfigError, PolicyError
from context_agent.train.environment import ToyEnvironment, WordRenderer
from context_agent.train.judge.judge import (
    CAPPED,
    FAILED,
    JudgeConfig,
    JudgedRanking,
    JudgePool,
    JudgeVerdict,
    refuse_judge_alone,
    scores_by_group,
)
from context_agent.train.rewards import RewardConfig

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.rl.loop import ReinforcementLoop
from tests.train.judge.judges import judge, scored, serving
from tests.train.rl.loops import rollout_loop
from tests.train.rl.test_rollouts import SMALL, agent

WEIGHED = RewardConfig(judge=1.0)


class Fixed:
    """A judge that says what it is told to say of each question, by what was handed back."""

    def __init__(self, say: Any, **settings: Any) -> None:
        self.settings = JudgeConfig(model="fixed", max_calls=1, **settings)
        self.seen: list[JudgedRanking] = []
        self._say = say

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        self.seen += rankings
        return [self._say(one) for one in rankings]

    def metrics(self) -> dict[str, float]:
        return {"judge/calls": float(len(self.seen))}


def by_length(one: JudgedRanking) -> JudgeVerdict:
    return JudgeVerdict(1.0 if one.documents else 0.0, asked=bool(one.documents))


def absent(reason: str = FAILED) -> Any:
    return lambda one: JudgeVerdict(None, absent=reason, detail="said so")


def stripped(questions: Sequence[Question]) -> list[Question]:
    """The questions without gold and answer."""
    return [replace(one, gold=(), facts=(), answer="") for one in questions]


def rollouts(
    small: ToyEnvironment, words: WordRenderer, questions: Sequence[Question], bench: JudgePool | None, **how: Any
) -> ReinforcementLoop:
    return rollout_loop(agent(small, words), questions, SMALL, rewards=how.pop("rewards", WEIGHED), judge=bench, **how)


def test_questions_without_gold_are_refused_without_a_judge(small: ToyEnvironment, words: WordRenderer) -> None:
    with pytest.raises(ConfigError, match="have no gold"):
        rollouts(small, words, stripped(small.questions["train"]), None)


def test_a_question_without_gold_is_learned_from_by_its_verdicts(small: ToyEnvironment, words: WordRenderer) -> None:
    fixed = Fixed(by_length)
    made = rollouts(small, words, stripped(small.questions["train"]), JudgePool(fixed)).collect(0)
    assert len(made.episodes) == len(fixed.seen) == 24
    judged = {one.outcome.judged for one in made.episodes}
    assert judged == {0.0, 1.0}
    for one in made.episodes:
        assert not one.outcome.golden
        assert one.reward.terms["judge"] == one.outcome.judged
        if one.outcome.ending == "finished":
            assert one.reward.total == pytest.approx(max(one.outcome.judged or 0, 0.001), abs=0.2)
    assert made.rows
    assert "recall" not in made.metrics
    assert made.metrics["judge/score"] == made.metrics["term/judge"]
    assert (made.metrics["judge/wanted"], made.metrics["judge/absent"], made.metrics["episodes_unjudged"]) == (24, 0, 0)


def test_by_default_gold_is_asked_where_there_is_some(small: ToyEnvironment, words: WordRenderer) -> None:
    given = small.questions["train"]
    mixed = [*given[:10], *stripped(given[10:20])]
    fixed = Fixed(by_length)
    made = rollouts(small, words, mixed, JudgePool(fixed)).collect(0)
    bare = {one.question for one in mixed[10:]}
    assert {one.question for one in fixed.seen} <= bare
    assert {one.outcome.judged is None for one in made.episodes if one.outcome.golden} == {True}
    everyone = Fixed(by_length, questions="all")
    rollouts(small, words, mixed, JudgePool(everyone)).collect(0)
    assert len(everyone.seen) == 24


def test_the_other_terms_stay_when_the_judge_is_down(small: ToyEnvironment, words: WordRenderer) -> None:
    told: list[str] = []
    bench = JudgePool(Fixed(absent(), questions="all"), told.append)
    made = rollouts(small, words, small.questions["train"], bench).collect(0)
    plain = rollouts(small, words, small.questions["train"], None, rewards=RewardConfig()).collect(0)
    assert made.rows == plain.rows
    assert (made.metrics["judge/absent"], made.metrics["term/judge"]) == (24, 0)
    assert told == [
        "24 of 24 episodes have no verdict of the judge: 24 judge failed (said so). They keep their other terms"
    ]


def test_a_question_with_one_verdict_missing_has_the_term_for_none_of_its_episodes() -> None:
    given = [JudgeVerdict(0.2), JudgeVerdict(None, absent="x"), JudgeVerdict(0.4), None, JudgeVerdict(0.0, asked=False)]
    assert scores_by_group(["a", "a", "b", "c", "b"], given) == [None, None, 0.4, None, 0.0]


def test_a_judge_that_stays_down_ends_the_run(small: ToyEnvironment, words: WordRenderer) -> None:
    bench = JudgePool(Fixed(absent(), questions="all", max_failed_steps=2), lambda _: None)
    made = rollouts(small, words, small.questions["train"], bench)
    made.collect(0)
    with pytest.raises(PolicyError, match="in 2 steps in a row"):
        made.collect(1)


def test_a_step_that_was_answered_begins_the_count_anew(small: ToyEnvironment, words: WordRenderer) -> None:
    fixed = Fixed(absent(), questions="all", max_failed_steps=2)
    made = rollouts(small, words, small.questions["train"], JudgePool(fixed, lambda _: None))
    made.collect(0)
    fixed._say = by_length
    made.collect(1)
    fixed._say = absent()
    made.collect(2)


def test_past_the_cap_training_goes_on_without_the_term(small: ToyEnvironment, words: WordRenderer) -> None:
    bench = JudgePool(Fixed(absent(CAPPED), questions="all", max_failed_steps=1), lambda _: None)
    made = rollouts(small, words, small.questions["train"], bench)
    for step in range(3):
        assert made.collect(step).metrics["judge/absent"] == 24
    bare = rollouts(small, words, stripped(small.questions["train"]), bench)
    with pytest.raises(PolicyError, match=r"none of its questions has gold, and 24 of 24 .* cap reached"):
        bare.collect(0)


def test_what_nothing_but_the_judge_could_reward_is_refused(small: ToyEnvironment) -> None:
    settings = JudgeConfig(model="m", max_calls=1)
    bare = stripped(small.questions["train"])
    with pytest.raises(ConfigError, match="the judge would be the only reward"):
        refuse_judge_alone(settings, bare)
    refuse_judge_alone(replace(settings, alone=True), bare)
    refuse_judge_alone(settings, [*bare, small.questions["train"][0]])
    refuse_judge_alone(settings, [*bare, Question("q", "What?", answer="Leeds")])


def test_a_resumed_run_has_the_same_verdicts_without_the_judge(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    questions = stripped(small.questions["train"])
    with serving("yes") as url, judge(url, tmp_path) as asked:
        first = rollouts(small, words, questions, JudgePool(asked)).collect(1)
    with judge("http://127.0.0.1:9/v1", tmp_path) as asked:
        again = rollouts(small, words, questions, JudgePool(asked)).collect(1)
    assert again.rows == first.rows
    assert again.metrics["judge/score"] == first.metrics["judge/score"]


def test_a_judge_that_always_says_yes_shows_in_the_metrics(
    small: ToyEnvironment, words: WordRenderer, tmp_path: Path
) -> None:
    from context_agent.policies.chat.scripted_server import ScriptedServer

    with ScriptedServer([scored(3)] * 200) as server, judge(server.url, tmp_path) as asked:
        made = rollouts(small, words, stripped(small.questions["train"]), JudgePool(asked)).collect(0)
    assert made.metrics["judge/yes"] == 1.0
    assert made.metrics["judge/calls"] == len(server.chat_bodies())
