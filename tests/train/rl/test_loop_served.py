"""Runs whose episodes are sampled through `/v1/completions`: what the server is asked, and the versions that it loads.

The server is a stand-in that speaks vLLM's interface and plays by the seed; no model is behind it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.worker_pool import ThisMachine, WorkerPool
from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.train.config import DataConfig
from context_agent.train.data import build_agent, environment_of, environment_texts
from context_agent.train.environment import WordRenderer, WorldConfig
from tests.train import runs

pytest.importorskip("trl")


class Server(ThreadingHTTPServer):
    """Loads adapters by name, and answers for those alone; `gone` names one that it refuses to load."""

    def __init__(self, words: WordRenderer, titles: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.words, self.titles, self.gone = words, titles, ""
        self.loaded: set[str] = set()
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path:
            case "/v1/load_lora_adapter" if body["lora_name"] == self.server.gone:
                self._answer(500, {"error": "no room for adapters"})
            case "/v1/load_lora_adapter":
                assert (Path(body["lora_path"]) / "adapter_model.safetensors").is_file()
                self.server.loaded.add(body["lora_name"])
                self._answer(200, {})
            case "/v1/unload_lora_adapter":
                self.server.loaded.discard(body["lora_name"])
                self._answer(200, {})
            case _:
                self._complete(body)

    def _complete(self, body: dict[str, Any]) -> None:
        if body["model"] not in self.server.loaded:
            self._answer(404, {"error": f"no model {body['model']}"})
            return
        self.server.asked.append(body["model"])
        ids = self._reply(body)[: body["max_tokens"]]
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": [-2.0] * len(ids)}, "finish_reason": "stop"}
        self._answer(200, {"choices": [choice]})

    def _reply(self, body: dict[str, Any]) -> list[int]:
        """Searches for what the question names, in some episodes, and ranks it."""
        words = self.server.words
        prompt = words.decode(body["prompt"])
        title = next(title for title in self.server.titles if title in prompt)
        text = f"rank {title}" if prompt.count("<go>") > 1 else f"search {title}" if body["seed"] % 3 else "rank no"
        return [*words.encode(text), *words.stop]

    def _answer(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    world = environment_of(DataConfig(world=WorldConfig(**runs.WORLD)))
    assert world is not None
    titles = sorted((title.lower() for title in world.titles.values()), key=len, reverse=True)
    http_server = Server(WordRenderer(environment_texts(world)), titles)
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    yield http_server
    http_server.shutdown()


def served_run(student: Path, out: Path, server: Server, **changes: Any) -> Any:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    return runs.rewards(
        student,
        out,
        model={"lora": {"rank": 4}},
        engine={"kind": "vllm", "base_url": url, "timeout": 20.0},
        rollouts={"steps": 3, "groups": 3},
        evaluation={"every": 3},
        **changes,
    )


def test_each_step_is_sampled_by_the_weights_it_begins_with(student: Path, tmp_path: Path, server: Server) -> None:
    from context_agent.train.rl import loop

    server.asked.clear()
    loop.train(served_run(student, tmp_path, server), note=lambda _: None)
    assert list(dict.fromkeys(server.asked)) == ["policy-0", "policy-2", "policy-4", "policy-6"]
    assert server.loaded == {"policy-6"}
    lines = runs.timeless(tmp_path)
    assert [line["step"] for line in lines] == list(range(7))
    assert all(line["episodes_aborted"] == 0 for line in lines if "episodes_aborted" in line)
    assert max(line.get("grad_norm", 0) for line in lines) > 0
    assert lines[-1]["dev/greedy/aborted"] == 0
    assert (tmp_path / "final" / "adapter_model.safetensors").is_file()


def test_worker_processes_play_the_same_episodes_with_the_newest_weights(tmp_path: Path, server: Server) -> None:
    from context_agent.train.rl.rollout_workers import RolloutSetup, play_in_pool
    from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
    from context_agent.train.rl.weight_sync import served_engine

    run = served_run(tmp_path / "model", tmp_path, server)
    world, engine = environment_of(run.data), served_engine(run)
    assert world is not None
    questions = world.questions["train"][:6]
    requests = [RolloutRequest(question, seed, f"00000-0000-{seed:03d}") for seed, question in enumerate(questions)]
    server.loaded |= {"policy-0", "policy-2"}
    engine.model, engine.version = "policy-0", "0"
    with build_agent(run, world.corpus, engine, server.words, temperature=1.0) as agent:
        local = asyncio.run(play_episodes(agent, requests, 4))
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
    server.loaded.clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": {"kind": "transformers"}}, 'set engine.kind = "vllm"'),
        ({"async_rollouts": {"ahead": 1}}, r"exclude \[async_rollouts\]"),
    ],
)
def test_episodes_that_need_the_trainer_s_process_are_refused_to_others(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    from context_agent.train.rl.rollout_workers import RolloutSetup

    run = runs.rewards(tmp_path, tmp_path, **runs.merged({"engine": {"kind": "vllm"}}, changes))
    with pytest.raises(ConfigError, match=message):
        RolloutSetup(run).check()


def test_a_server_that_takes_no_weights_stops_the_run_which_then_goes_on(
    student: Path, tmp_path: Path, server: Server
) -> None:
    from context_agent.train.rl import loop

    run = served_run(student, tmp_path, server)
    server.gone = "policy-4"
    with pytest.raises(PolicyError, match=r"load_lora_adapter of policy-4: .*HTTP 500.*state of update 4 is saved"):
        loop.train(run, note=lambda _: None)
    server.gone = ""
    result = loop.train(run, resume=True, note=lambda _: None)
    assert (result.first_update, result.updates) == (4, 6)
    assert [line["step"] for line in runs.timeless(tmp_path)] == list(range(7))


def test_a_server_samples_during_updates_and_is_never_asked_for_weights_that_it_lacks(
    student: Path, tmp_path: Path, server: Server
) -> None:
    """Calls wait while one adapter replaces the other, so none is lost."""
    from context_agent.train.rl import loop

    server.asked.clear()
    loop.train(served_run(student, tmp_path, server, async_rollouts={"ahead": 1}), note=lambda _: None)
    lines = runs.timeless(tmp_path)
    assert [line["step"] for line in lines] == list(range(7))
    assert all(line["episodes_aborted"] == 0 for line in lines if "episodes_aborted" in line)
    assert 0 < max(line.get("staleness/max", 0) for line in lines) <= 3
    assert all(line.get("rows_stale", 0) == 0 for line in lines)
    assert server.loaded == {"policy-6"}
