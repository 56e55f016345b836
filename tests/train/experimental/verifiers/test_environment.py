"""The environment in verifiers' own evaluator, with a scripted model. Needs verifiers: scripts/test --verifiers."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers has an environment of its own: docs/integrations/verifiers.md")

import verifiers.v1 as vf
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from context_agent._support.question_files import question_of
from context_agent.errors import ConfigError, DataError
from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, fails, says
from context_agent.train.experimental.verifiers.environment import load_environment
from context_agent.train.experimental.verifiers.trace_rows import read_traces
from context_agent.train.experimental.verifiers.traces import PLUGIN, trace_of, trajectory_of
from context_agent.train.rewards import RewardConfig

RUN = """
out = "out"
[model]
name = "scripted"
renderer = "words"
[data.world]
entities = 120
tasks = 300
[episodes]
window = 8192
turns = 6
"""
SHOWN = re.compile(r"^(\S+) : ", re.M)
"""A chunk's header in the words profile."""
PLUGINS = Path(__file__).parents[4] / "examples" / "verifiers"


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(PLUGINS))
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    yield path
    sys.modules.pop(PLUGIN.replace("-", "_"), None)


def play(body: Mapping[str, Any]) -> ScriptedAnswer:
    """Search for the question, prune what came last, and rank the rest."""
    replies = [message for message in body["messages"] if message["role"] == "assistant"]
    if not replies:
        question = next(message["content"] for message in body["messages"] if message["role"] == "user")
        return says(calls=[("search_corpus", {"query": question})], reasoning="Search.")
    shown = [item for message in body["messages"] for item in SHOWN.findall(str(message.get("content")))]
    if len(replies) == 1:
        return says(calls=[("prune_chunks", {"chunk_ids": [shown[-1]]})])
    return says("".join(f"<Document id={item}></Document>" for item in shown))


def evaluated(server: ScriptedServer, run: Path, **changes: Any) -> list[Any]:
    """Episodes as `vf-eval` plays them; nothing leaves this machine."""
    config = EvalConfig.model_validate(
        {
            "env": {
                "taskset": {"id": PLUGIN, "run": str(run)},
                "agent": {"runtime": {"type": "subprocess"}, **changes},
            },
            "model": "scripted",
            "client": {"type": "eval", "base_url": server.url, "api_key_var": "CTX1_TEST_NO_KEY"},
            "select": {"limit": 2},
            "num_rollouts": 2,
            "push": False,
            "rich": None,
            "output_dir": str(run.parent),
            "run": {"name": "test"},
        }
    )
    return asyncio.run(run_eval(config))


def test_their_evaluator_plays_rewards_and_records_our_episodes(run_file: Path) -> None:
    with ScriptedServer([play] * 12) as server:
        episodes = evaluated(server, run_file)
    traces = [trace for episode in episodes for trace in episode.traces]
    assert [trace.errors for trace in traces] == [[]] * 4
    assert all(episode.ok for episode in episodes)
    for trace in traces:
        trajectory = trajectory_of({"id": trace.id, "info": trace.info})
        assert trajectory is not None
        assert trajectory.end is not None
        assert trajectory.end.stop_reason == "finished"
        assert (trace.num_turns, trajectory.end.turns) == (3, 2)  # the last reply calls no tool
        assert trace.num_branches == 2  # before the prune, and after it
        assert trace.metrics["turns"] == 2
        assert trace.reward == pytest.approx(trace.metrics["reward"])
    assert {trace.metrics["pruned"] for trace in traces} == {1.0}
    (folder,) = run_file.parent.glob("test")
    saved = vf.WireTrace.model_validate_json(traces[0].model_dump_json())
    assert saved.reward == traces[0].reward
    assert len((folder / "traces.jsonl").read_text().splitlines()) == 4


def test_a_server_that_fails_is_an_error_of_the_rollout(run_file: Path) -> None:
    with ScriptedServer([fails(400, "no")] * 40) as server:
        episodes = evaluated(server, run_file)
    assert not any(episode.ok for episode in episodes)
    assert all(episode.traces[0].errors for episode in episodes)


def test_a_rollout_that_verifiers_stops_is_rewarded_as_cut(run_file: Path) -> None:
    with ScriptedServer([play] * 12) as server:
        episodes = evaluated(server, run_file, max_turns=1)
    assert {episode.traces[0].stop_condition for episode in episodes} == {"max_turns"}
    assert {episode.traces[0].reward for episode in episodes} == {RewardConfig().truncated}


def test_our_trajectories_are_their_traces(run_file: Path, tmp_path: Path) -> None:
    with ScriptedServer([play] * 12) as server:
        (episode, *_) = evaluated(server, run_file)
    recorded = episode.traces[0]
    trajectory = trajectory_of({"id": recorded.id, "info": recorded.info})
    assert trajectory is not None
    task = next(task for task in load_environment(run_file).taskset if task.data.id == recorded.task.data.id)
    question = question_of(json.loads(task.data.question), 0, "the task")
    trace = vf.WireTrace.model_validate(trace_of(trajectory, question))
    assert [branch.messages[0].role for branch in trace.branches] == ["user", "user"]
    assert trace.num_turns == recorded.num_turns
    calls = [[call.name for call in message.tool_calls or ()] for message in trace.assistant_messages]
    assert calls == [[call.name for call in message.tool_calls or ()] for message in recorded.assistant_messages]
    with pytest.raises(DataError, match=r"client\.type train"):
        list(read_traces(run_file.parent / "test"))


def test_a_run_that_cannot_be_carried_out_is_refused(run_file: Path) -> None:
    environment = load_environment(run_file, split="dev", max_turns=3)
    assert isinstance(environment, vf.Env)
    assert environment.config.agent.max_turns == 3
    run_file.with_name("judged.toml").write_text(RUN + "[rewards]\ngamma = 0.9\n")
    with pytest.raises(ConfigError, match=r"Remove rewards\.gamma"):
        list(load_environment(run_file.with_name("judged.toml")).taskset)
    with pytest.raises(ConfigError, match="needs a run file"):
        list(load_environment("").taskset)
