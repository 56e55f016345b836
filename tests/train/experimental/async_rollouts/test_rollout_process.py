"""Episodes in a separate process: the same as in this one, under new weights, and when that process dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.recorded_calls import calls

torch = pytest.importorskip("torch", reason="needs the train extra (torch)")
pytest.importorskip("trl", reason="needs the train extra (trl)")

from context_agent._support.child_process import ParentPipe, Request  # noqa: E402
from context_agent._support.suggest import flat_settings  # noqa: E402
from context_agent.policies.tokens.engines.transformers import TransformersEngine  # noqa: E402
from context_agent.testing import tiny_runs  # noqa: E402
from context_agent.train.agents import build_agent  # noqa: E402
from context_agent.train.config import RunConfig  # noqa: E402
from context_agent.train.experimental.async_rollouts import rollout_process  # noqa: E402
from context_agent.train.experimental.async_rollouts.pausable_engine import (  # noqa: E402
    LocalWorker,
    PausableEngine,
    RolloutWorker,
    RunningEpisode,
)
from context_agent.train.experimental.async_rollouts.rollout_process import RolloutProcess  # noqa: E402
from context_agent.train.models import load_model  # noqa: E402
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest  # noqa: E402
from context_agent.train.toy.environment import make_environment  # noqa: E402
from tests.support.fork_servers import MODELS  # noqa: E402
from tests.support.forked_programs import PATIENCE, ForkedProgram, run_path  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return tiny_runs.demonstrations(tmp_path_factory.mktemp("apart"))


@pytest.fixture(scope="module")
def asks(run: RunConfig) -> list[RolloutRequest]:
    assert run.data.world is not None
    world = make_environment(run.data.world)
    return [
        RolloutRequest(question, 7 + index, f"00000-0000-{index:03d}")
        for index, question in enumerate(world.questions["train"][:3])
    ]


@pytest.fixture(scope="module")
def apart(run: RunConfig, forked: ForkServerContext) -> Iterator[RolloutProcess]:
    player, model = RolloutProcess(run), load_model(run).model.eval()
    player._context = forked
    player.load_model(model, range(len(list(model.parameters()))))
    yield player
    player.close()
    player.close()


def scaled_model(run: RunConfig) -> Any:
    """A model with other weights."""
    model = load_model(run).model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    return model


def play_locally(run: RunConfig, model: Any, asks: list[RolloutRequest]) -> list[tuple[EpisodeResult, RunningEpisode]]:
    assert run.data.world is not None
    world = make_environment(run.data.world)
    engine = TransformersEngine(model, max_batch=run.engine.batch, version="0")
    pausable = PausableEngine(engine)
    with build_agent(run, world.corpus, pausable, load_model(run).renderer, temperature=1.0) as agent:
        try:
            return asyncio.run(play_all(LocalWorker(agent, pausable), asks))
        finally:
            engine.close()


async def play_all(
    player: RolloutWorker, asks: list[RolloutRequest], recordings: Any = ()
) -> list[tuple[EpisodeResult, RunningEpisode]]:
    running = [RunningEpisode(recorded) for recorded in recordings or [()] * len(asks)]
    player.resume()
    results = await asyncio.gather(*map(player.play, asks, running))
    return list(zip(results, running, strict=True))


def sampled_ids(episode: EpisodeResult) -> list[tuple[int, ...]]:
    assert isinstance(episode, Trajectory)
    return [call.output for call in calls(episode)]


def test_it_plays_what_this_process_would_play(
    run: RunConfig, asks: list[RolloutRequest], apart: RolloutProcess
) -> None:
    """Episodes are those of this process, parked ones resume, and new weights sample from the next call on."""

    async def play_across_update() -> tuple[
        list[tuple[EpisodeResult, RunningEpisode]],
        list[tuple[EpisodeResult, RunningEpisode]],
        list[tuple[EpisodeResult, RunningEpisode]],
    ]:
        whole = await play_all(apart, asks)
        await apart.pause()
        waiting = asyncio.create_task(play_paused(apart, asks[0]))
        await asyncio.sleep(0.3)
        assert not waiting.done(), "no call goes through"
        apart.put(scaled_model(run), "1")
        apart.resume()
        newer = [await waiting]
        parked = await play_all(apart, asks[1:], [running.calls[:1] for _, running in whole[1:]])
        return whole, newer, parked

    whole, newer, parked = asyncio.run(play_across_update())
    expected = play_locally(run, load_model(run).model.eval(), asks)
    assert [sampled_ids(episode) for episode, _ in whole] == [sampled_ids(episode) for episode, _ in expected]
    for episode, running in whole:
        assert [call.sample.ids for call in running.calls] == sampled_ids(episode)
        assert {call.sample.version for call in running.calls} == {"0"}
    assert {call.sample.version for _, running in newer for call in running.calls} == {"1"}
    ((fresh, _),) = play_locally(run, scaled_model(run), asks[:1])
    assert [sampled_ids(episode) for episode, _ in newer] == [sampled_ids(fresh)]
    for (episode, running), (before, _) in zip(parked, whole[1:], strict=True):
        assert sampled_ids(episode)[:1] == sampled_ids(before)[:1]
        assert [call.sample.version for call in running.calls] == ["0"] + ["1"] * (len(running.calls) - 1)


async def play_paused(player: RolloutWorker, request: RolloutRequest) -> tuple[EpisodeResult, RunningEpisode]:
    running = RunningEpisode()
    return await player.play(request, running), running


def test_whoever_waits_for_a_process_that_dies_gets_an_error(
    run: RunConfig, asks: list[RolloutRequest], forked: ForkServerContext
) -> None:
    player, model = RolloutProcess(run), load_model(run).model
    player._context = forked
    with pytest.raises(PolicyError, match="has no model"):
        player.put(model, "1")
    player.load_model(model, [0])

    async def kill_while_waiting() -> None:
        # The process is paused, so the episode waits.
        waiting = asyncio.create_task(player.play(asks[0], RunningEpisode()))
        await asyncio.sleep(0.3)
        assert player._staged is not None
        assert player._staged.lock.acquire()
        put_task = asyncio.create_task(asyncio.to_thread(player.put, model, "1"))
        await asyncio.sleep(0.2)
        assert player._child is not None
        os.kill(player._child.process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(PolicyError, match=r"has ended \(SIGKILL"):
            await waiting
        with pytest.raises(PolicyError, match="has ended"):
            await put_task
        with pytest.raises(PolicyError, match="has ended"):
            await player.play(asks[0], RunningEpisode())

    asyncio.run(kill_while_waiting())
    player.close()


def test_a_model_that_cannot_be_sent_is_refused(run: RunConfig) -> None:
    model = load_model(run).model
    model.forward = lambda *args, **kwargs: None
    with pytest.raises(ConfigError, match="To sample in a thread"):
        RolloutProcess(run).load_model(model)


@pytest.mark.parametrize(
    ("error", "expected", "reason"),
    [
        (ConfigError("no corpus here"), ConfigError, "no corpus here"),
        (OSError("disk full"), PolicyError, "cannot start.*disk full"),
    ],
)
def test_what_a_process_cannot_open_is_the_error_of_its_start(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception], reason: str
) -> None:
    def refuse(*_: Any) -> None:
        raise error

    def serve_here(target: Any, arguments: tuple[Any, ...], **_: Any) -> tuple[Any, Any]:
        pipe, child_end = Pipe()
        target(*arguments, ParentPipe(child_end))
        return None, pipe

    monkeypatch.setattr(rollout_process, "_open_worker", refuse)
    monkeypatch.setattr(rollout_process, "start_process", serve_here)
    with pytest.raises(expected, match=reason):
        RolloutProcess(run).load_model(load_model(run).model)


def test_an_answer_that_cannot_be_sent_is_an_error() -> None:
    class Unsendable:
        async def score(self, ids: Any) -> Any:
            return lambda: ids

    pipe, child_end = Pipe()
    worker: Any = Unsendable()
    asyncio.run(rollout_process._answer(worker, ParentPipe(child_end), Request(3, rollout_process.ScoreIds((1,)))))
    reply = pipe.recv()
    assert (reply.number, type(reply.error)) == (3, PolicyError)
    assert "in the rollout process" in str(reply.error)


TRAINER = """
import asyncio, multiprocessing, os, signal, sys, tempfile
from context_agent.train import run_file
from context_agent.train.models import load_model
from context_agent.train.experimental.async_rollouts import rollout_process
from context_agent.train.experimental.async_rollouts.rollout_process import RolloutProcess
from context_agent.train.experimental.async_rollouts.pausable_engine import RunningEpisode
from context_agent.train.rl.rollouts import RolloutRequest
from context_agent.train.toy.environment import make_environment

async def dies(player, ask):
    player._staged.lock.acquire()
    player.resume()
    playing = asyncio.create_task(player.play(ask, RunningEpisode()))
    await asyncio.sleep(0.5)
    print(playing.done(), player._child.process.pid, *os.listdir(tempfile.tempdir), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    tempfile.tempdir = sys.argv[2]
    rollout_process.get_context = lambda _: multiprocessing.get_context("forkserver")
    run = run_file.read_run(sys.argv[1])
    world = make_environment(run.data.world)
    player = RolloutProcess(run)
    player.load_model(load_model(run).model.eval(), [0])
    asyncio.run(dies(player, RolloutRequest(world.questions["train"][0], 7, "00000-0000-000")))
"""


def test_it_ends_with_its_trainer_even_where_that_died_with_the_lock(run: RunConfig, tmp_path: Path) -> None:
    program, file = tmp_path / "trainer.py", tmp_path / "run.toml"
    program.write_text(TRAINER)
    lines = [f"{key} = {json.dumps(value)}" for key, value in flat_settings(run.plain()) if value is not None]
    file.write_text("\n".join(lines))
    (temporary := tmp_path / "temporary").mkdir()
    completed = ForkedProgram(run_path, str(program), (str(file), str(temporary)), MODELS).completed()
    assert completed.returncode == -signal.SIGKILL, completed.stderr
    played, sampler, weights = completed.stdout.split()
    assert played == "False", "the batch waits for the lock"
    deadline = time.monotonic() + PATIENCE
    while Path("/proc", sampler).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert weights.startswith("ctx1-weights-")
    assert not [*temporary.iterdir()], "nobody else deletes the weights of a trainer that was killed"
