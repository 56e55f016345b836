"""Workers on a real Ray cluster of two nodes of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray has an environment of its own: scripts/test --ray")

import ray
from ray.cluster_utils import Cluster

from context_agent._support import ray_machines
from context_agent._support.ray_machines import RayMachines
from context_agent._support.worker_pool import WorkerPool
from context_agent.errors import ConfigError
from context_agent.eval.evaluation import EvalOptions, evaluate
from context_agent.eval.systems import find_systems
from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, PipelinePlan, make_tasks, stages_folder
from context_agent.synth_data.stages import StageWorker
from context_agent.testing.writer_process import remote_workshop, serving, workshop
from tests.support import faulty_policies
from tests.support.evaluation_runs import OPTIONS, SYSTEMS, Benchmarks, summary_text, timeless, with_questions


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head and a second node, with one processor each."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    nodes.shutdown()


@pytest.fixture
def machines(cluster: Any) -> Iterator[RayMachines]:
    connection = RayMachines(cluster.address)
    yield connection
    connection.close()


def test_the_results_are_those_of_one_process(machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path) -> None:
    assert machines.cores == 2
    runs = {
        name: evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path / name, concurrency=2, **options)
        for name, options in (("here", {"processes": 1}), ("ray", {"machines": machines}))
    }
    assert timeless(runs["here"]) == timeless(runs["ray"])
    assert summary_text(tmp_path / "here") == summary_text(tmp_path / "ray")


def test_a_node_that_dies_loses_nothing_and_no_answer_is_computed_again(
    cluster: Any, machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path
) -> None:
    (node,) = cluster.worker_nodes
    kills = []

    def kill(done: int, total: int) -> None:
        if done >= 4 and not kills:
            kills.append(done)
            cluster.remove_node(node, allow_graceful=False)

    many_questions = with_questions(benchmarks, *map(str, range(24)))
    records = evaluate(
        many_questions,
        find_systems(["agent"]),
        EvalOptions(faulty_policies.slow, windows=(2048,)),
        folder=tmp_path,
        concurrency=2,
        machines=machines,
        progress=kill,
    )
    assert kills
    assert [record.error for record in records] == [None] * 24
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 24


def test_a_node_that_dies_while_tasks_are_written_changes_nothing_and_has_nothing_paid_twice(
    cluster: Any, machines: RayMachines, tmp_path: Path
) -> None:
    (node,) = cluster.worker_nodes
    plan, kills = PipelinePlan(count=100, hops=(1, 2)), []
    local_out, ray_out = tmp_path / "here.jsonl", tmp_path / "spread.jsonl"

    def watch(stage: str) -> Callable[[int, int | None], None]:
        def advance(done: int, total: int | None) -> None:
            if stage == "write" and done >= 2 and not kills:
                kills.append(done)
                cluster.remove_node(node, allow_graceful=False)

        return advance

    (tmp_path / "spread").mkdir()
    with (
        serving(tmp_path / "spread") as server,
        workshop(server.url, stages_folder(ray_out) / REPLIES_FILE) as context,
        WorkerPool(
            StageWorker(partial(remote_workshop, server.url)),
            machines,
            processes=2,
            concurrency=2,
            answer=context.model.answer,
        ) as pool,
    ):
        asyncio.run(make_tasks(context, plan, ray_out, pool=pool, watch=watch))
        assert set(server.fates("answered").values()) == {1}
    with serving(tmp_path) as server, workshop(server.url, stages_folder(local_out) / REPLIES_FILE) as context:
        asyncio.run(make_tasks(context, plan, local_out))
    assert kills
    assert ray_out.read_bytes() == local_out.read_bytes()


def test_relative_paths_are_those_of_the_current_folder(
    machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = replace(OPTIONS, save=Path("saved"))
    records = evaluate(benchmarks, SYSTEMS, options, folder=Path("run"), concurrency=2, machines=machines)
    saved_paths = [tmp_path / "run" / name for record in records for name in record.trajectories]
    assert saved_paths
    assert all(path.is_file() for path in saved_paths)


def test_an_error_of_a_worker_ends_the_run(machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no weights here"):
        evaluate(
            [replace(benchmarks[0], open=faulty_policies.broken)], SYSTEMS, OPTIONS, folder=tmp_path, machines=machines
        )


def test_a_machine_with_another_version_is_refused(
    machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_machines, "__version__", "99.0")
    with pytest.raises(
        ConfigError, match=r"must have context-agent 99\.0; got .* Install context-agent 99\.0 on every"
    ):
        evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path, machines=machines)


def test_full_machines_are_said(machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path) -> None:
    holders = [ray.util.placement_group([{"CPU": 1}]) for _ in range(2)]
    ray.get([holder.ready() for holder in holders])
    with pytest.raises(ConfigError, match="no machine has a free processor"):
        evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path, machines=machines)


def listening_ports() -> set[int]:
    """The TCP ports on which this process, not one of Ray's, listens."""
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            inodes.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_a_run_opens_no_port_that_a_stranger_could_block(
    machines: RayMachines, benchmarks: Benchmarks, tmp_path: Path
) -> None:
    before, during = listening_ports(), []
    # Ray's own driver has ports. Strangers who connect to them and say nothing delay nobody.
    strangers = [socket.create_connection(("127.0.0.1", port)) for port in sorted(before) for _ in range(4)]

    def look(done: int, total: int) -> None:
        during.append(listening_ports() - before)

    records = evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path, concurrency=2, machines=machines, progress=look)
    assert [record.error for record in records] == [None] * len(records)
    assert during
    assert set().union(*during) == set()
    for stranger in strangers:
        stranger.close()


def test_no_cluster_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that Ray starts by default has no token, and listens on every network of the machine."""
    started: list[str | None] = []

    def refuse(address: str | None, **_: object) -> None:
        started.append(address)
        raise ConnectionError("Could not find any running Ray instance")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ConfigError, match="Start one with `RAY_AUTH_MODE=token ray start --head`"):
        RayMachines()
    assert started == ["auto"]


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot use the Ray cluster 'localhost:1'"):
        RayMachines("localhost:1")
