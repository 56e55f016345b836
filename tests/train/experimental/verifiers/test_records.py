"""Traces of verifiers, to and from trajectories and rows; verifiers itself is not needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import Action, Document, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, Trajectory
from context_agent.errors import DataError, TrajectoryError
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.experimental.verifiers.trace_rows import read_traces, rollout_of
from context_agent.train.experimental.verifiers.traces import trace_of, write_traces
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import compute_reward
from context_agent.train.rows import sampled_rows
from context_agent.types import Question

QUESTION = Question("q1", "Which comet is named?", gold=("d1",))
ACTIONS = (
    Action((ToolCall("search_corpus", {"query": "comets"}),), reasoning="Search."),
    Action((ToolCall("prune_chunks", {"chunk_ids": ["d0_0"]}), ToolCall("search_corpus", {"query": "stars"}))),
    Action((ToolCall("search_corpus", {"query": "moons"}),)),
    Action(text="<Document id=d1><Justification>names it</Justification></Document>"),
)


def played(policy: Any) -> Trajectory:
    documents = [Document(f"d{number}", f"Comet number {number} is a comet of the sky.") for number in range(4)]
    with SearchAgent(MemoryCorpus(documents, embedder=HashEmbedder()), policy) as agent:
        return agent.search(QUESTION.question, question_id=QUESTION.id).trajectories[0]


@pytest.fixture(scope="module")
def sampled() -> Trajectory:
    """An episode of a token policy with a prune, so of two rows."""
    renderer = HarmonyRenderer(parallel=True)
    return played(TokenPolicy(FakeEngine([renderer.reply(action) for action in ACTIONS]), renderer))


def test_a_trace_holds_the_rows_and_the_trajectory_of_its_episode(sampled: Trajectory, tmp_path: Path) -> None:
    reward = compute_reward(measure_outcome(sampled, QUESTION))
    trace = trace_of(sampled, QUESTION, reward)
    write_traces([trace], tmp_path)
    (rollout,) = read_traces(tmp_path)
    # The version of the weights is a trainer's, which records it for an episode.
    rows = [replace(row, policy_version="") for row in sampled_rows(sampled)]
    assert len(rows) == 2
    assert list(rollout.rows) == rows
    assert (rollout.id, rollout.group_id, rollout.reward) == (sampled.header.id, "q1", pytest.approx(reward.total))
    assert rollout.trajectory == sampled


def test_its_messages_are_those_of_the_conversation(sampled: Trajectory) -> None:
    nodes = trace_of(sampled, QUESTION)["nodes"]
    replies = [node["message"] for node in nodes if node.get("sampled")]
    assert [call["name"] for message in replies for call in message.get("tool_calls", ())] == [
        "search_corpus",
        "prune_chunks",
        "search_corpus",
        "search_corpus",
    ]
    assert replies[0]["reasoning_content"] == "Search."
    roots = [index for index, node in enumerate(nodes) if node["parent"] is None]
    assert [nodes[root]["message"]["role"] for root in roots] == ["system", "system"]
    for node in nodes:
        if node["message"]["role"] == "tool":
            path = [node]
            while path[-1]["parent"] is not None:
                path.append(nodes[path[-1]["parent"]])
            ids = [call["id"] for item in path for call in item["message"].get("tool_calls", ())]
            assert node["message"]["tool_call_id"] in ids


def test_other_policies_leave_messages_without_tokens() -> None:
    trace = trace_of(played(ScriptedPolicy(ACTIONS)), QUESTION)
    assert sum(bool(node.get("sampled")) for node in trace["nodes"]) == 4
    assert sum(node["parent"] is None for node in trace["nodes"]) == 2
    with pytest.raises(DataError, match=r"--client\.type train"):
        rollout_of(trace)


def foreign(**changes: Any) -> dict[str, Any]:
    """The trace of another agent: two replies, then another reply to the first message."""

    def node(parent: int | None, role: str, ids: list[int], sampled: bool = False) -> dict[str, Any]:
        values = {"logprobs": [-0.5] * len(ids), "sampled": True} if sampled else {}
        message = {"role": role, "content": "x"}
        return {"parent": parent, "message": message, "token_ids": ids, "mask": [sampled] * len(ids), **values}

    nodes = [
        node(None, "user", [1, 2]),
        node(0, "assistant", [3], sampled=True),
        node(1, "user", [4]),
        node(2, "assistant", [5, 6], sampled=True),
        node(1, "tool", [7]),
        node(4, "assistant", [8], sampled=True),
    ]
    trace = {"id": "t", "ok": True, "task": {"key": "k", "data": {}}, "nodes": nodes}
    return {**trace, "rewards": {"a": {"score": 0.5, "weight": 2.0}, "b": None}, **changes}


def test_any_agent_s_trace_is_a_row_for_each_path_with_each_sampled_id_once() -> None:
    rollout = rollout_of(foreign(), version="7")
    assert [(row.input_ids, row.loss_mask) for row in rollout.rows] == [
        ([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1]),
        ([1, 2, 3, 7, 8], [0, 0, 0, 0, 1]),
    ]
    assert rollout.rows[0].logprobs == [0, 0, -0.5, 0, -0.5, -0.5]
    assert (rollout.reward, rollout.group_id, rollout.rows[0].policy_version, rollout.trajectory) == (1, "k", "7", None)


def test_a_message_may_have_characters_that_python_counts_as_line_ends(tmp_path: Path) -> None:
    trace = foreign()
    trace["nodes"][0]["message"]["content"] = "one\u2028two\x85three"
    lines = [json.dumps({"traces": [trace]}, ensure_ascii=False)] * 2
    (tmp_path / "traces.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert len(list(read_traces(tmp_path))) == 2


def test_an_attempt_to_compact_that_was_given_up_is_no_row() -> None:
    trace = foreign()
    trace["nodes"][3]["semantic_parents"] = [{"node": 1, "type": "compaction_attempt"}]
    assert [row.input_ids for row in rollout_of(trace).rows] == [[1, 2, 3, 7, 8]]
    trace["nodes"][5]["semantic_parents"] = [{"node": 3, "type": "compaction"}]
    assert len(rollout_of(trace).rows) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": [{"parent": 3, "message": {}, "token_ids": [], "mask": [], "sampled": True}]}, "has the parent 3"),
        ({"nodes": [{"sampled": True}]}, "does not have the format"),
        ({"nodes": [{"token_ids": [1, 2], "mask": [True], "logprobs": [0.0], "sampled": True}]}, "2 token ids and 1"),
        ({"task": {}}, "does not have the format"),
        ({"info": None}, "does not have the format"),
        ({"rewards": {"a": {"score": "high", "weight": 1}}}, "does not have the format"),
    ],
)
def test_what_is_no_trace_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rollout_of(foreign(**change))


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("token_ids", [3.5], "token id"),
        ("token_ids", [-1], "token id"),
        ("token_ids", [2**31], "token id"),
        ("token_ids", "3", "token id"),
        ("logprobs", [None], "log-probability"),
        ("logprobs", [float("nan")], "log-probability"),
        ("logprobs", ["-0.5"], "log-probability"),
    ],
)
def test_values_that_no_model_sampled_are_refused(field: str, values: Any, message: str) -> None:
    trace = foreign()
    trace["nodes"][1][field] = values
    with pytest.raises(DataError, match=f"trace t has a {message} that is not"):
        rollout_of(trace)
    with pytest.raises(DataError, match="trace t has the reward nan"):
        rollout_of(foreign(rewards={"a": {"score": float("nan")}}))
    assert [row.episode_id for row in rollout_of(foreign(id=7)).rows] == ["7", "7"]


def test_files_that_hold_no_episodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"traces.jsonl cannot be read"):
        list(read_traces(tmp_path))
    lines = [json.dumps({"traces": [foreign()], "run": "first"}), json.dumps({"traces": [{"ok": True}]}), "[1]"]
    for line in (*(line.encode() for line in lines), b'{"traces": "\xe9"}'):
        (tmp_path / "traces.jsonl").write_bytes(line)
        with pytest.raises(DataError, match="Pass the output folder of a verifiers run"):
            list(read_traces(tmp_path))
    (tmp_path / "traces.jsonl").write_text('{"traces": []}\n{"nothing": 1}\n')
    with pytest.raises(DataError, match=r"traces.jsonl:2: the line is not an episode"):
        list(read_traces(tmp_path))
    broken = foreign(info={"context_agent": [{"kind": "header"}]})
    (tmp_path / "traces.jsonl").write_text(json.dumps({"traces": [broken, foreign(ok=False)]}))
    with pytest.raises(TrajectoryError, match="trace t"):
        list(read_traces(tmp_path))
