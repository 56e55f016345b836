"""Rollouts in the background, without a model.

1. A step has the groups that the synchronous loop would play, while later steps are already being played.
2. Sampling never runs further ahead than allowed, and no row exceeds the bound on staleness.
3. A parked episode resumes where it stopped, and each call keeps the version that sampled it.
4. An error that ends the thread also ends the trainer's wait, with the reason.
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
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, Sample, SampleRequest
from context_agent.policies.tokens.policy import SEEDS
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.train.config import RolloutConfig
from context_agent.train.curriculum import Curriculum
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.word_prompts import WordRenderer, words_profile

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.experimental.async_rollouts.background import BackgroundRollouts
from context_agent.train.experimental.async_rollouts.pausable_engine import LocalWorker, PausableEngine, RunningEpisode
from context_agent.train.experimental.async_rollouts.rollout_log import RolloutLog
from context_agent.train.experimental.async_rollouts.source import AsyncLimits, AsyncRollouts
from context_agent.train.rl.demonstrations import Demonstrations
from context_agent.train.rl.loop import ReinforcementLoop, RolloutStep
from context_agent.train.rl.rollouts import SEED_STRIDE, RolloutRequest, Rollouts, group_of, step_questions
from context_agent.train.rows import sampled_rows
from tests.support.expert import demonstrate
from tests.support.rollout_loops import rollout_loop

SMALL = RolloutConfig(steps=6, groups=4, rollouts=3, substeps=1, concurrency=4, save_every=0)


class Timed(FakeEngine):
    """An engine whose reply to a request takes `seconds(request)`."""

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
    """Uses a source of rollouts as a trainer does, without a model."""

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
        previous_step = self.loop.step
        rows = self.loop.rows(number)
        self.metrics.append(self.source.update_metrics(rows, number))
        if self.loop.step is not None and self.loop.step is not previous_step:
            self.steps.append(self.loop.step)
        time.sleep(seconds)
        return rows


def replies(small: ToyEnvironment, words: WordRenderer) -> Callable[[SampleRequest], Sequence[int]]:
    """Replies that search twice, then rank what was searched for or nothing, depending on the seed."""
    titles = sorted((title.lower() for title in small.titles.values()), key=len, reverse=True)

    def reply(request: SampleRequest) -> Sequence[int]:
        prompt = words.decode(request.prompt)
        assert request.seed is not None
        title = next(title for title in titles if title in prompt)
        if prompt.count("<go>") > 2:
            return (*words.encode(f"rank {title}" if request.seed % 2 else "rank nobody"), *words.stop)
        return (*words.encode(f"search {title}"), *words.stop)

    return reply


@pytest.fixture
def looped(small: ToyEnvironment, words: WordRenderer, tmp_path: Path) -> Any:
    """Open a loop whose buffer is in a folder; opened again, it resumes from that buffer."""

    @contextmanager
    def open_loop(
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
        messages = notes if notes is not None else []
        engine = Timed(played or replies(small, words), seconds)
        pausable = PausableEngine(engine)
        with ExitStack() as stack:
            journal = stack.enter_context(RolloutLog(tmp_path / "buffer", settings={}, substeps=1, update=update))
            agent = SearchAgent(small.corpus, TokenPolicy(pausable, words), profile=words_profile(), budget=512)
            background = stack.enter_context(
                BackgroundRollouts(LocalWorker(agent, pausable), journal, SMALL.concurrency, messages.append)
            )
            metrics: list[dict[str, float]] = []
            steps: list[RolloutStep] = []
            questions = small.questions["train"]
            source = AsyncRollouts(
                Rollouts(agent, questions, SMALL, **rollout_options(demonstrations)),
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

    return open_loop


def rollout_options(demonstrations: Demonstrations | None) -> dict[str, Any]:
    return {} if demonstrations is None else {"demonstration_count": demonstrations.count}


def sampled_ids(step: RolloutStep) -> dict[str, list[tuple[int, ...]]]:
    return {episode.id: [call.output for call in calls(episode.trajectory)] for episode in step.episodes}


def test_a_step_is_what_the_synchronous_loop_would_ask(small: ToyEnvironment, words: WordRenderer, looped: Any) -> None:
    agent = SearchAgent(
        small.corpus, TokenPolicy(Timed(replies(small, words)), words), profile=words_profile(), budget=512
    )
    expected_steps: list[Any] = []
    synchronous = rollout_loop(agent, small.questions["train"], SMALL)
    with looped() as loop:
        for number in range(SMALL.steps):
            rows, expected_rows = loop.update(number), synchronous.rows(number)
            expected_steps.append(synchronous.step)
            assert [(i.row.input_ids, i.advantage) for i in rows] == [
                (i.row.input_ids, i.advantage) for i in expected_rows
            ]
    assert [sampled_ids(step) for step in loop.steps] == [sampled_ids(step) for step in expected_steps]


def test_demonstrations_join_the_groups_that_are_ready(
    small: ToyEnvironment, words: WordRenderer, looped: Any, tmp_path: Path
) -> None:
    questions = small.questions["train"]
    first = step_questions(0, questions, Curriculum(), SMALL)[:2]
    demonstrate(small, words, first, tmp_path)
    files = {read(path).header.question_id or "": [path] for path in (tmp_path / "kept").glob("*.jsonl")}
    demonstrations = Demonstrations(files, words, replace(SMALL, demonstrations=1), turns=4)
    agent = SearchAgent(
        small.corpus, TokenPolicy(Timed(replies(small, words)), words), profile=words_profile(), budget=512
    )
    rollouts = Rollouts(agent, questions, SMALL, **rollout_options(demonstrations))
    synchronous = replace(rollout_loop(agent, questions, SMALL, rollouts=rollouts), demonstrations=demonstrations)
    with looped(demonstrations=demonstrations) as loop:
        rows = loop.update(0)
    assert list(rows) == list(synchronous.rows(0))
    demonstrated = [item for item in rows if item.demonstrated]
    assert demonstrated
    assert loop.metrics[0]["staleness/0"] == len(rows) - len(demonstrated)


def test_later_steps_are_played_while_the_trainer_is_at_work_and_no_further_than_they_may(looped: Any) -> None:
    with looped(ahead=2) as loop:
        loop.update(0)
        wait_until(lambda: len(loop.engine.requests) == 3 * 12 * 3)
        time.sleep(0.1)
        assert len(loop.engine.requests) == 3 * 12 * 3, "steps 0, 1 and 2, and nothing of step 3"
        for number in range(1, SMALL.steps):
            rows = loop.update(number)
            assert all(number - int(item.row.policy_version) <= 2 for item in rows)
    assert max(line.get("staleness/max", 0) for line in loop.metrics) == 2
    assert len(loop.engine.requests) == SMALL.steps * 12 * 3


def test_the_metrics_of_each_update(looped: Any) -> None:
    with looped(lambda _: 0.03) as loop:
        for number in range(3):
            rows = loop.update(number)
            line = loop.metrics[-1]
            counts = [line[name] for name in line if name.removeprefix("staleness/").isdecimal()]
            assert sum(counts) == len(rows)
        metrics = loop.steps[-1].metrics
        assert {"trainer_waited_seconds", "sampler_waited_seconds", "episodes_mixed", "groups_left"} <= set(metrics)
        assert sum(line["episodes_paused"] for line in loop.metrics) > 0


def test_an_episode_that_spans_new_weights_keeps_the_version_of_each_call(looped: Any) -> None:
    with looped(lambda _: 0.03) as loop:
        for number in range(SMALL.steps):
            loop.update(number)
    histories = [
        [call.version for call in calls(episode.trajectory)] for step in loop.steps for episode in step.episodes
    ]
    mixed = [history for history in histories if len(set(history)) > 1]
    assert mixed
    assert all(history == sorted(history, key=int) for history in histories)
    for step in loop.steps:
        for episode in step.episodes:
            row = sampled_rows(episode.trajectory)[0]
            episode_calls = list(calls(episode.trajectory))
            assert row.policy_version == episode_calls[0].version
            assert [value for value, on in zip(row.logprobs, row.loss_mask, strict=True) if on] == [
                value for call in episode_calls for value in call.logprobs
            ], "the ratio is to what each token was sampled with, whichever version that was"


def test_a_step_goes_on_without_its_last_groups_and_a_later_one_takes_them(looped: Any) -> None:
    """The third group of each step is slow. It is left for later, unless its rows would then be too old."""
    slow_seeds = {seed for number in range(6) for turn in range(3) for seed in request_seeds(number, range(2, 3), turn)}
    with looped(lambda request: 0.15 if request.seed in slow_seeds else 0.0, quota=0.7, bound=2) as loop:
        ages = [number - int(item.row.policy_version) for number in range(SMALL.steps) for item in loop.update(number)]
    episode_ids = [episode_id for step in loop.steps for episode_id in sampled_ids(step)]
    assert len(episode_ids) == len(set(episode_ids)) == SMALL.steps * 12, "each once, none left over"
    late_ids = [
        episode_id for step in loop.steps for episode_id in sampled_ids(step) if int(episode_id[:5]) < step.number
    ]
    assert late_ids
    assert max(step.metrics["groups_left"] for step in loop.steps) >= 1
    assert max(ages) <= 2


def request_seeds(step: int, groups: range, turn: int) -> set[int]:
    """The seeds of the requests that the episodes of those groups make at that turn."""
    first_seeds = [(step + 1) * SEED_STRIDE + group * SMALL.rollouts for group in groups]
    return {(seed + rollout) * 1_000_003 % SEEDS + turn for seed in first_seeds for rollout in range(SMALL.rollouts)}


def stop_in_step_1(looped: Any) -> Timed:
    """Close a loop when the first group of step 1 is done and four more episodes have made one call.

    Returns the engine.
    """
    stuck_seeds = request_seeds(1, range(1, 4), 1)
    with looped(lambda request: 3600.0 if request.seed in stuck_seeds else 0.0) as loop:
        loop.update(0)
        loop.push(1, drain=False)
        wait_until(lambda: len(loop.engine.samples) == 36 + 9 + 4)
    engine: Timed = loop.engine
    return engine


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_finished_and_parked_episodes_are_not_sampled_again(looped: Any) -> None:
    """The run resumes from the checkpoint before step 1."""
    first_engine = stop_in_step_1(looped)
    with looped(update=1) as resumed:
        parked = dict(resumed.journal.paused)
        assert len(parked) == 4
        assert {episode_id for episode_id in resumed.journal.finished if episode_id.startswith("00001-0000")} != set()
        resumed.update(1)
    step = resumed.steps[0]
    for episode_id, recorded_calls in parked.items():
        assert sampled_ids(step)[episode_id][0] == recorded_calls[0].sample.ids
    step_1_seeds = {seed for turn in range(3) for seed in request_seeds(1, range(4), turn)}
    sampled_seeds = [sample.seed for engine in (first_engine, resumed.engine) for sample in engine.requests]
    assert sorted(seed for seed in sampled_seeds if seed in step_1_seeds) == sorted(step_1_seeds), "each call once"
    for episode in step.episodes:
        episode.trajectory.verify()


def test_groups_that_an_interrupted_run_left_wait_for_the_first_weights(
    looped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler in its own process has no model before then."""
    slow_seeds = {seed for turn in range(3) for seed in request_seeds(0, range(2, 3), turn)}
    with looped(lambda request: 3600.0 if request.seed in slow_seeds else 0.0, quota=0.7) as loop:
        loop.update(0)
    play, played_groups = LocalWorker.play, list[str]()

    def record_and_play(self: LocalWorker, request: RolloutRequest, running: RunningEpisode) -> Any:
        played_groups.append(group_of(request.episode))
        return play(self, request, running)

    monkeypatch.setattr(LocalWorker, "play", record_and_play)
    with looped(update=1) as resumed:
        left_groups = set(resumed.journal.left)
        assert left_groups
        time.sleep(0.2)
        assert not played_groups
        resumed.update(1)
    assert left_groups <= set(played_groups)
    assert left_groups <= {group_of(episode) for episode in sampled_ids(resumed.steps[0])}


def test_a_parked_episode_whose_prompts_have_changed_starts_again(looped: Any) -> None:
    stop_in_step_1(looped)
    notes: list[str] = []
    with looped(update=1, notes=notes) as resumed:
        for episode_id, recorded_calls in resumed.journal.paused.items():
            resumed.journal.paused[episode_id] = tuple(replace(call, prompt="another") for call in recorded_calls)
        resumed.update(1)
    assert sum("starts again" in note for note in notes) == 4
    assert len(resumed.steps[0].episodes) == 12


def test_an_engine_that_fails_now_and_then_spoils_only_those_episodes(
    small: ToyEnvironment, words: WordRenderer, looped: Any
) -> None:
    reply = replies(small, words)

    def fail_sometimes(request: SampleRequest) -> Sequence[int]:
        assert request.seed is not None
        if request.seed % 7 == 0:
            raise PolicyError("the server hung up")
        return reply(request)

    with looped(played=fail_sometimes) as loop:
        loop.update(0)
    assert 0 < loop.steps[0].metrics["episodes_aborted"] < 12
    with looped(played=reply) as resumed:
        resumed.update(0)
    assert resumed.steps[0].metrics["episodes_aborted"] == 0, "what the world spoilt is not in the buffer"


def test_an_engine_that_is_gone_ends_the_step_with_an_error_and_the_step_is_not_consumed(
    small: ToyEnvironment, words: WordRenderer, looped: Any
) -> None:
    def fail(request: SampleRequest) -> Sequence[int]:
        raise PolicyError("no such server")

    with (
        looped(played=fail) as loop,
        pytest.raises(PolicyError, match=r"none of the 12 episodes of step 0 .*no such server"),
    ):
        loop.update(0)
    with looped() as resumed:
        resumed.update(0)
    assert len(resumed.steps[0].episodes) == 12


def test_a_full_disk_ends_the_wait_with_the_reason(looped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with looped() as loop:
        loop.push(0)

        def write_to_full_disk(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal_module, "_write", write_to_full_disk)
        with pytest.raises(DataError, match=r"cannot write to .*buffer .No space left on device"):
            loop.loop.rows(0)


def test_a_config_error_ends_the_wait_too(looped: Any) -> None:
    def fail(request: SampleRequest) -> Sequence[int]:
        raise ConfigError("no such setting")

    with looped(played=fail) as loop, pytest.raises(ConfigError, match="no such setting"):
        loop.update(0)


def test_nothing_is_sampled_before_the_first_weights_arrive(looped: Any) -> None:
    with looped() as loop:
        loop.background.offer(loop.source._rollouts.draw(5))
        time.sleep(0.1)
        assert loop.engine.requests == []
