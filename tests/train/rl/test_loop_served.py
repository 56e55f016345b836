"""Runs whose episodes are sampled through `/v1/completions`: what the server is asked, and the versions that it loads.

The server is a stand-in that speaks vLLM's interface, with a tiny model behind it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.worker_pool import ThisMachine, WorkerPool
from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import Sample, SampleRequest
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.testing import tiny_runs
from context_agent.train.agents import build_agent
from context_agent.train.toy.environment import make_environment
from tests.support.adapter_server import AdapterServer, Fault, serving
from tests.support.fork_servers import MODELS
from tests.support.forked_workers import fork_workers

pytest.importorskip("trl")


@pytest.fixture(scope="module")
def base_server(student: Path) -> Iterator[AdapterServer]:
    with serving(student) as server:
        yield server


@pytest.fixture
def server(base_server: AdapterServer) -> AdapterServer:
    base_server.reset()
    return base_server


def served_run(student: Path, out: Path, server: AdapterServer, **changes: Any) -> Any:
    tables = {
        "model": {"lora": {"rank": 4}},
        "engine": {"kind": "vllm", "base_url": server.url, "timeout": 60.0},
        "rollouts": {"steps": 3, "groups": 3},
        "evaluation": {"every": 3},
    }
    return tiny_runs.rewards(student, out, **tiny_runs.merged(tables, changes))


def updates_of(adapters: Iterable[str]) -> list[int]:
    """The updates in the names of one process's adapters, each once."""
    names = dict.fromkeys(adapters)
    assert len({name.rpartition("-")[0] for name in names}) == 1
    return [int(name.rpartition("-")[2]) for name in names]


@pytest.mark.slow
def test_each_step_is_sampled_by_the_weights_it_begins_with(
    student: Path, tmp_path: Path, server: AdapterServer
) -> None:
    from context_agent.train import reinforcement

    reinforcement.train(served_run(student, tmp_path, server), note=lambda _: None)
    assert updates_of(server.asked) == [0, 2, 4, 6]
    assert updates_of(server.loaded) == [6]
    assert updates_of(server.scored) == [0, 2, 4, 6]
    lines = tiny_runs.timeless(tmp_path)
    assert [line["step"] for line in lines] == list(range(7))
    assert all(line["episodes_aborted"] == 0 for line in lines if "episodes_aborted" in line)
    fresh = [line for line in lines if "sampler/logp_difference_mean" in line]
    assert [line["step"] for line in fresh] == [1, 3, 5], "the first update of each step has rows of the newest weights"
    assert max(line["sampler/logp_difference_max"] for line in fresh) < 1e-4
    assert max(abs(line["sampler/ratio_mean"] - 1) for line in fresh) < 1e-4
    canaries = [line["sampler/canary_difference"] for line in lines if "sampler/canary_difference" in line]
    assert len(canaries) == 4
    assert max(canaries) < 1e-4
    assert max(line.get("grad_norm", 0) for line in lines) > 0
    assert lines[-1]["dev/greedy/aborted"] == 0
    assert (tmp_path / "final" / "adapter_model.safetensors").is_file()


def test_worker_processes_play_the_same_episodes_with_the_newest_weights(
    student: Path, tmp_path: Path, server: AdapterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train.models import load_renderer
    from context_agent.train.rl.rollout_pool import RolloutSetup, play_in_pool
    from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
    from context_agent.train.rl.samplers import served_engine

    run = served_run(student, tmp_path, server)
    assert run.data.world is not None
    world, engine = make_environment(run.data.world), served_engine(run)
    questions = world.questions["train"][:6]
    requests = [RolloutRequest(question, seed, f"00000-0000-{seed:03d}") for seed, question in enumerate(questions)]
    server.serve("policy-0")
    server.serve("policy-2")
    engine.model, engine.version = "policy-0", "0"
    with build_agent(run, world.corpus, engine, load_renderer(run)[1], temperature=1.0) as agent:
        local = asyncio.run(play_episodes(agent, requests, 4))
    fork_workers(monkeypatch, MODELS)
    with WorkerPool(RolloutSetup(run), ThisMachine(), processes=2, concurrency=4) as pool:
        pooled = play_in_pool(pool, engine, requests)
        engine.model, engine.version = "policy-2", "2"
        server.asked.clear()
        play_in_pool(pool, engine, requests[:2])
    assert set(server.asked) == {"policy-2"}
    assert all(map(is_complete, pooled))
    assert [episode.without_timestamps() for episode in pooled if isinstance(episode, Trajectory)] == [
        episode.without_timestamps() for episode in local if isinstance(episode, Trajectory)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": {"kind": "transformers"}}, 'Set engine.kind = "vllm"'),
        ({"async_rollouts": {"max_steps_ahead": 1}}, r"cannot be combined with \[async_rollouts\]"),
    ],
)
def test_episodes_that_need_the_trainer_s_process_are_refused_to_others(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    from context_agent.train.rl.rollout_pool import RolloutSetup

    run = tiny_runs.rewards(tmp_path, tmp_path, **tiny_runs.merged({"engine": {"kind": "vllm"}}, changes))
    with pytest.raises(ConfigError, match=message):
        RolloutSetup(run).check()


def test_a_server_that_takes_no_weights_stops_the_run_which_then_goes_on(
    student: Path, tmp_path: Path, server: AdapterServer
) -> None:
    from context_agent.train import reinforcement

    run = served_run(student, tmp_path, server)
    server.refused = "-4"
    with pytest.raises(PolicyError, match=r"load_lora_adapter of policy-\w+-4: .*HTTP 500.*update 4 is saved"):
        reinforcement.train(run, note=lambda _: None)
    server.refused = ""
    server.serve(f"{next(iter(server.loaded)).removesuffix('-2')}-4")  # a killed process may leave it
    result = reinforcement.train(run, resume=True, note=lambda _: None)
    assert (result.first_update, result.updates) == (4, 6)
    assert [line["step"] for line in tiny_runs.timeless(tmp_path)] == list(range(7))


def test_a_server_samples_during_updates_and_is_never_asked_for_weights_that_it_lacks(
    student: Path, tmp_path: Path, server: AdapterServer
) -> None:
    """Calls wait while one adapter replaces the other, so none is lost."""
    from context_agent.train import reinforcement

    reinforcement.train(
        served_run(student, tmp_path, server, async_rollouts={"max_steps_ahead": 1}), note=lambda _: None
    )
    lines = tiny_runs.timeless(tmp_path)
    assert [line["step"] for line in lines] == list(range(7))
    assert all(line["episodes_aborted"] == 0 for line in lines if "episodes_aborted" in line)
    assert 0 < max(line.get("staleness/max", 0) for line in lines) <= 3
    assert all(line.get("rows_stale", 0) == 0 for line in lines)
    assert updates_of(server.loaded) == [6]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.FROZEN, r"nearest to those of update 0, so it did not load the newer weights"),
        (Fault.SWAPPED, r"nearest to those of update 0, so it did not load the newer weights"),
        (Fault.HALF, r"the sampler does not have the weights of update [12]\. .* of the change"),
    ],
)
@pytest.mark.parametrize(
    "rollouts",
    [
        {"rollouts": {"steps": 8, "substeps": 2}},
        {"rollouts": {"steps": 8, "substeps": 1}, "async_rollouts": {"max_steps_ahead": 1}},
    ],
)
def test_a_server_with_other_weights_than_it_was_sent_stops_the_run_within_two_updates(
    fault: Fault, reason: str, rollouts: dict[str, Any], student: Path, server: AdapterServer
) -> None:
    """The adapters are accepted, so only what the server makes of them shows the fault, also below any bound."""
    from context_agent.train import reinforcement

    server.fault = fault
    with tempfile.TemporaryDirectory() as out:
        run = served_run(student, Path(out), server, loss={"mismatch": 10.0}, evaluation={"every": 0}, **rollouts)
        with pytest.raises(PolicyError, match=reason) as stopped:
            reinforcement.train(run, note=lambda _: None)
        assert "Fix the cause" in str(stopped.value)
        assert len(tiny_runs.timeless(out)) <= 2


def test_log_probabilities_of_another_temperature_stop_the_run(
    student: Path, tmp_path: Path, server: AdapterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that reports them before temperature, vLLM's default."""
    from context_agent.train import reinforcement

    sample = dataclasses.replace
    generate = TransformersEngine.generate

    async def generate_at_1(self: TransformersEngine, request: SampleRequest) -> Sample:
        drawn = await generate(self, request)
        scored = await self.score([*request.prompt, *drawn.ids])
        return sample(drawn, logprobs=scored.logprobs[-len(drawn.ids) :])

    one_step = {"rollouts": {"steps": 1}, "evaluation": {"every": 0}}
    run = served_run(student, tmp_path, server, engine={"temperature": 0.5}, **one_step)
    reinforcement.train(dataclasses.replace(run, out=str(tmp_path / "right")), note=lambda _: None)
    monkeypatch.setattr(TransformersEngine, "generate", generate_at_1)
    with pytest.raises(PolicyError, match=r"in update 0, the log-probabilities of .*processed_logprobs"):
        reinforcement.train(dataclasses.replace(run, out=str(tmp_path / "wrong")), note=lambda _: None)
