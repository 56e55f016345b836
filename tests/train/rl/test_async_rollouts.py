"""Rollouts in the background, without a model.

1. A step is made of the groups that the synchronous loop would ask, while later ones are played.
2. Sampling never runs further ahead than it may, and no row passes the bound on staleness.
3. An episode that is parked goes on from where it was, and each call keeps the version that sampled it.
4. What ends the thread ends the trainer's wait, with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import SearchAgent
from context_agent._support import journal as journal_module
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens import SEEDS, TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, Sample, SampleRequest
from context_agent.policies.tokens.prompt import calls
from context_agent.train.curriculum import Curriculum, RolloutConfig
from context_agent.train.environment import ToyEnvironment, WordRenderer, words_profile

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.rl.async_rollouts import AsyncLimits, AsyncRollouts, BackgroundRollouts
from context_agent.train.rl.demonstrations import Demonstrations
from context_agent.train.rl.loop import ReinforcementLoop, RolloutStep
from context_agent.train.rl.rollout_log import RolloutLog
from context_agent.train.rl.rollout_workers import LocalWorker, PausableEngine, RunningEpisode
from context_agent.train.rl.rollouts import SEED_STRIDE, RolloutRequest, Rollouts, group_of, step_questions
from context_agent.train.rows import sampled_rows
from tests.train.rl.expert import demonstrate
from tests.train.rl.loops import rollout_loop

SMALL = RolloutConfig(steps=6, groups=4, rollouts=3, substeps=1, concurrency=4, save_every=0)


class Timed(FakeEngine):
    """Plays by the seed; a reply takes as long as `seconds` says of its request."""

    def __init__(self, replies: Any, seconds: Callable[[SampleRequest], float] = lambda _: 0.0) -> None:
        super().__init__(replies, version="0")
        self.seconds = seconds
        self.at_work = 0

    async def generate(self, request: SampleRequest) -> Sample:
        self.at_work += 1
        try:
            await asyncio.sleep(self.seconds(request))
            return await super().generate(request)
        finally:
            self.at_work -= 1


@dataclass
class Loop:
    """What a trainer does with a source, without a model."""

    loop: ReinforcementLoop
    source: AsyncRollouts
    background: BackgroundRollouts
    engine: Timed
    journal: RolloutLog
    metrics: list[dict[str, float]]
    steps: list[RolloutStep]

    def push(self, update: int, *, drain: bool = True) -> None:
        with self.background.between_turns(drain=drain):
            if drain:
                assert self.engine.at_work == 0, "a server takes the last weights off"
            self.engine.version = str(update)

    def update(self, number: int, seconds: float = 0.0) -> Any:
        self.push(number)
        before = self.loop.step
        rows = self.loop.rows(number)
        self.metrics.append(self.source.update_metrics(rows, number))
        if self.loop.step is not None and self.loop.step is not before:
            self.steps.append(self.loop.step)
        time.sleep(seconds)
        return rows


def replies(small: ToyEnvironment, words: WordRenderer) -> Callable[[SampleRequest], Sequence[int]]:
    """Searches twice and ranks what it searched for, or nothing, by the seed."""
    titles = sorted((title.lower() for title in small.titles.values()), key=len, reverse=True)

    def reply(request: SampleRequest) -> Sequence[int]:
        spelled = words.decode(request.prompt)
        assert request.seed is not None
        title = next(title for title in titles if title in spelled)
        if spelled.count("<go>") > 2:
            return (*words.encode(f"rank {title}" if request.seed % 2 else "rank nobody"), *words.stop)
        return (*words.encode(f"search {title}"), *words.stop)

    return reply


@pytest.fixture
def looped(small: ToyEnvironment, words: WordRenderer, tmp_path: Path) -> Any:
    """A loop over a buffer in a folder; opened again it goes on from there."""

    @contextmanager
    def opening(
        seconds: Callable[[SampleRequest], float] = lambda _: 0.0,
        *,
        update: int = 0,
        ahead: int = 1,
        quota: float = 1.0,
        bound: int = 8,
        played: Any = None,
        notes: list[str] | None = None,
        demonstrations: Demonstrations | None = None,
    ) -> Iterator[Loop]:
        told = notes if notes is not None else []
        engine = Timed(played or replies(small, words), seconds)
        turnstile = PausableEngine(engine)
        with ExitStack() as stack:
            journal = stack.enter_context(RolloutLog(tmp_path / "buffer", settings={}, substeps=1, update=update))
            agent = SearchAgent(small.corpus, TokenPolicy(turnstile, words), profile=words_profile(), budget=512)
            background = stack.enter_context(
                BackgroundRollouts(LocalWorker(agent, turnstile), journal, SMALL.concurrency, told.append)
            )
            metrics: list[dict[str, float]] = []
            steps: list[RolloutStep] = []
            questions = small.questions["train"]
            source = AsyncRollouts(
                Rollouts(agent, questions, SMALL, **counted(demonstrations)),
                SMALL,
                background=background,
                log=journal,
                limits=AsyncLimits(ahead, quota, bound),
            )
            yield Loop(
                replace(rollout_loop(agent, questions, SMALL, rollouts=source), demonstrations=demonstrations),
                source,
                background,
                engine,
                journal,
                metrics,
                steps,
            )

    return opening


def counted(demonstrations: Demonstrations | None) -> dict[str, Any]:
    return {} if demonstrations is None else {"demonstration_count": demonstrations.count}


def sampled(step: RolloutStep) -> dict[str, list[tuple[int, ...]]]:
    return {one.id: [call.output for call in calls(one.trajectory)] for one in step.episodes}


def test_a_step_is_what_the_synchronous_loop_would_ask(small: ToyEnvironment, words: WordRenderer, looped: Any) -> None:
    agent = SearchAgent(
        small.corpus, TokenPolicy(Timed(replies(small, words)), words), profile=words_profile(), budget=512
    )
    reports: list[Any] = []
    plain = rollout_loop(agent, small.questions["train"], SMALL)
    with looped() as loop:
        for number in range(SMALL.steps):
            mine, theirs = loop.update(number), plain.rows(number)
            reports.append(plain.step)
            assert [(i.row.input_ids, i.advantage) for i in mine] == [(i.row.input_ids, i.advantage) for i in theirs]
    assert [sampled(one) for one in loop.steps] == [sampled(one) for one in reports]


def test_demonstrations_join_the_groups_that_are_ready(
    small: ToyEnvironment, words: WordRenderer, looped: Any, tmp_path: Path
) -> None:
    questions = small.questions["train"]
    first = step_questions(0, questions, Curriculum(), SMALL)[:2]
    demonstrate(small, words, first, tmp_path)
    files = {read(path).header.question_id or "": [path] for path in (tmp_path / "kept").glob("*.jsonl")}
    demonstrations = Demonstrations(files, words, replace(SMALL, demonstrations=1))
    agent = SearchAgent(
        small.corpus, TokenPolicy(Timed(replies(small, words)), words), profile=words_profile(), budget=512
    )
    rollouts = Rollouts(agent, questions, SMALL, **counted(demonstrations))
    plain = replace(rollout_loop(agent, questions, SMALL, rollouts=rollouts), demonstrations=demonstrations)
    with looped(demonstrations=demonstrations) as loop:
        rows = loop.update(0)
    assert list(rows) == list(plain.rows(0))
    taught = [item for item in rows if item.demonstrated]
    assert taught
    assert loop.metrics[0]["staleness/0"] == len(rows) - len(taught)


def test_later_steps_are_played_while_the_trainer_is_at_work_and_no_further_than_they_may(looped: Any) -> None:
    with looped(ahead=2) as loop:
        loop.update(0)
        until(lambda: len(loop.engine.requests) == 3 * 12 * 3)
        time.sleep(0.1)
        assert len(loop.engine.requests) == 3 * 12 * 3, "steps 0, 1 and 2, and nothing of step 3"
        for number in range(1, SMALL.steps):
            rows = loop.update(number)
            assert all(number - int(item.row.policy_version) <= 2 for item in rows)
    assert max(line.get("staleness/max", 0) for line in loop.metrics) == 2
    assert len(loop.engine.requests) == SMALL.steps * 12 * 3


def test_what_is_told_of_each_update(looped: Any) -> None:
    with looped(lambda _: 0.03) as loop:
        for number in range(3):
            rows = loop.update(number)
            line = loop.metrics[-1]
            counts = [line[name] for name in line if name.removeprefix("staleness/").isdecimal()]
            assert sum(counts) == len(rows)
        metrics = loop.steps[-1].metrics
        assert {"trainer_waited_seconds", "sampler_waited_seconds", "episodes_mixed", "groups_left"} <= set(metrics)
        assert sum(line["episodes_paused"] for line in loop.metrics) > 0


def test_an_episode_over_new_weights_keeps_the_version_of_each_call(looped: Any) -> None:
    with looped(lambda _: 0.03) as loop:
        for number in range(SMALL.steps):
            loop.update(number)
    versions = [[call.version for call in calls(one.trajectory)] for step in loop.steps for one in step.episodes]
    mixed = [one for one in versions if len(set(one)) > 1]
    assert mixed
    assert all(one == sorted(one, key=int) for one in versions)
    for step in loop.steps:
        for one in step.episodes:
            row = sampled_rows(one.trajectory)[0]
            made = list(calls(one.trajectory))
            assert row.policy_version == made[0].version
            assert [value for value, on in zip(row.logprobs, row.loss_mask, strict=True) if on] == [
                value for call in made for value in call.logprobs
            ], "the ratio is to what each token was sampled with, whichever version that was"


def test_a_step_goes_on_without_its_last_groups_and_a_later_one_takes_them(looped: Any) -> None:
    """The third group of each step is slow: it is left, unless its rows would then be too old."""
    slow = {seed for number in range(6) for turn in range(3) for seed in seeds(number, range(2, 3), turn)}
    with looped(lambda request: 0.15 if request.seed in slow else 0.0, quota=0.7, bound=2) as loop:
        stale = [number - int(item.row.policy_version) for number in range(SMALL.steps) for item in loop.update(number)]
    taken = [name for step in loop.steps for name in sampled(step)]
    assert len(taken) == len(set(taken)) == SMALL.steps * 12, "each once, none left over"
    late = [name for step in loop.steps for name in sampled(step) if int(name[:5]) < step.number]
    assert late
    assert max(step.metrics["groups_left"] for step in loop.steps) >= 1
    assert max(stale) <= 2


def seeds(step: int, groups: range, turn: int) -> set[int]:
    """What the requests of those groups' episodes are sampled with at that turn."""
    first = [(step + 1) * SEED_STRIDE + group * SMALL.rollouts for group in groups]
    return {(seed + rollout) * 1_000_003 % SEEDS + turn for seed in first for rollout in range(SMALL.rollouts)}


def stopped_in_step_1(looped: Any) -> Timed:
    """Closed when the first group of step 1 is done and four more episodes have made one call; the engine."""
    stuck = seeds(1, range(1, 4), 1)
    with looped(lambda request: 3600.0 if request.seed in stuck else 0.0) as loop:
        loop.update(0)
        loop.push(1, drain=False)
        until(lambda: len(loop.engine.samples) == 36 + 9 + 4)
    engine: Timed = loop.engine
    return engine


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_finished_and_parked_episodes_are_not_sampled_again(looped: Any) -> None:
    """Gone on from the checkpoint before step 1."""
    before = stopped_in_step_1(looped)
    with looped(update=1) as again:
        halves = dict(again.journal.paused)
        assert len(halves) == 4
        assert {name for name in again.journal.finished if name.startswith("00001-0000")} != set()
        again.update(1)
    step = again.steps[0]
    for name, half in halves.items():
        assert sampled(step)[name][0] == half[0].sample.ids
    of_step_1 = {seed for turn in range(3) for seed in seeds(1, range(4), turn)}
    made = [sample.seed for engine in (before, again.engine) for sample in engine.requests]
    assert sorted(seed for seed in made if seed in of_step_1) == sorted(of_step_1), "each call once"
    for one in step.episodes:
        one.trajectory.verify()


def test_groups_that_an_interrupted_run_left_wait_for_the_first_weights(
    looped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler in a process of its own has no model before."""
    slow = {seed for turn in range(3) for seed in seeds(0, range(2, 3), turn)}
    with looped(lambda request: 3600.0 if request.seed in slow else 0.0, quota=0.7) as loop:
        loop.update(0)
    play, played = LocalWorker.play, list[str]()

    def recorded(self: LocalWorker, request: RolloutRequest, running: RunningEpisode) -> Any:
        played.append(group_of(request.episode))
        return play(self, request, running)

    monkeypatch.setattr(LocalWorker, "play", recorded)
    with looped(update=1) as again:
        left = set(again.journal.left)
        assert left
        time.sleep(0.2)
        assert not played
        again.update(1)
    assert left <= set(played)
    assert left <= {group_of(episode) for episode in sampled(again.steps[0])}


def test_a_parked_episode_whose_prompts_are_others_now_begins_anew(looped: Any) -> None:
    stopped_in_step_1(looped)
    notes: list[str] = []
    with looped(update=1, notes=notes) as again:
        for name, half in again.journal.paused.items():
            again.journal.paused[name] = tuple(replace(call, prompt="another") for call in half)
        again.update(1)
    assert sum("starts again" in note for note in notes) == 4
    assert len(again.steps[0].episodes) == 12


def test_an_engine_that_fails_now_and_then_spoils_only_those_episodes(
    small: ToyEnvironment, words: WordRenderer, looped: Any
) -> None:
    good = replies(small, words)

    def flaky(request: SampleRequest) -> Sequence[int]:
        assert request.seed is not None
        if request.seed % 7 == 0:
            raise PolicyError("the server hung up")
        return good(request)

    with looped(played=flaky) as loop:
        loop.update(0)
    assert 0 < loop.steps[0].metrics["episodes_aborted"] < 12
    with looped(played=good) as again:
        again.update(0)
    assert again.steps[0].metrics["episodes_aborted"] == 0, "what the world spoilt is not in the buffer"


def test_an_engine_that_is_gone_ends_the_step_with_a_word_and_the_step_is_not_consumed(
    small: ToyEnvironment, words: WordRenderer, looped: Any
) -> None:
    def gone(request: SampleRequest) -> Sequence[int]:
        raise PolicyError("no such server")

    with looped(played=gone) as loop, pytest.raises(PolicyError, match=r"step 0: none of its 12 .*no such server"):
        loop.update(0)
    with looped() as again:
        again.update(0)
    assert len(again.steps[0].episodes) == 12


def test_a_full_disk_ends_the_wait_with_the_reason(looped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with looped() as loop:
        loop.push(0)

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal_module, "_write", full)
        with pytest.raises(DataError, match=r"cannot write to .*buffer: No space left on device"):
            loop.loop.rows(0)


def test_what_is_misconfigured_ends_the_wait_too(looped: Any) -> None:
    def broken(request: SampleRequest) -> Sequence[int]:
        raise ConfigError("no such setting")

    with looped(played=broken) as loop, pytest.raises(ConfigError, match="no such setting"):
        loop.update(0)


def test_nothing_is_sampled_before_the_first_weights_have_come(looped: Any) -> None:
    with looped() as loop:
        loop.background.offer(loop.source._rollouts.draw(5))
        time.sleep(0.1)
        assert loop.engine.requests == []
