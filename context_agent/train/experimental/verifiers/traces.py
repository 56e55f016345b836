"""Traces in the format of verifiers, made from trajectories. This module does not import verifiers.

A trace is a graph of messages. A node has a message, the token ids that it adds to the conversation, and which of them
were sampled. A path from a root to a leaf contains the text that the model received and wrote. An edit of the context
changes a message, so the conversation continues on another path.

verifiers writes `traces.jsonl` with one episode per line, together with its traces. Log-probabilities in it have four
decimal places. The module is written for verifiers 0.4.0, schema version 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from context_agent._support.private_files import open_private
from context_agent.errors import TrajectoryError
from context_agent.harness.tools import schemas
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import from_lines, to_lines
from context_agent.policies.chat.messages import Message, assistant, messages, with_ids
from context_agent.policies.tokens.recorded_calls import WholeCall, calls, expand
from context_agent.pruning.view import ActionTaken
from context_agent.train.outcome import is_aborted
from context_agent.train.rewards import EpisodeRewardTerms
from context_agent.types import Question

TRACE_VERSION = 1
"""Schema version of traces in verifiers 0.4."""


TRACES_FILE = "traces.jsonl"


RECORD = "context_agent"
"""Key of a trace's `info` under which the lines of the trajectory's file are stored."""


PLUGIN = "context-agent-search"
"""Id of the environment for verifiers (examples/verifiers)."""


Node = dict[str, Any]


def trace_of(trajectory: Trajectory, question: Question, reward: EpisodeRewardTerms | None = None) -> dict[str, Any]:
    """Return an episode as a trace in plain data.

    If a token policy played the episode, the nodes have token ids. Otherwise they have only messages.

    Args:
        trajectory: The episode.
        question: Its question.
        reward: Its reward, if it was rewarded.

    Returns:
        The trace.
    """
    header, end = trajectory.header, trajectory.end
    data = {**task_fields(question), "question": asdict(question)}
    rewards = {} if reward is None else {"episode": {"score": reward.total, "weight": 1.0}}
    return {
        "version": TRACE_VERSION,
        "id": header.id,
        "task": {"type": "SearchTask", "data": data, "key": question.id},
        "agent": {"config": {"model": header.policy, "harness": {"id": PLUGIN}, "runtime": {"type": "subprocess"}}},
        "tools": [dict(schema) for schema in schemas(header.profile)],
        "nodes": _nodes(trajectory),
        "rewards": rewards,
        "metrics": {} if reward is None else dict(reward.terms),
        "info": {RECORD: record_of(trajectory)},
        "is_completed": end is not None,
        "ok": not is_aborted(trajectory),
        "stop_condition": end.stop_reason if end else None,
    }


def task_fields(question: Question) -> dict[str, Any]:
    """Return the fields of a task that verifiers defines."""
    return {"id": question.id, "prompt": question.question}


def record_of(trajectory: Trajectory) -> list[Any]:
    """Return the trajectory as plain data for a trace's `info`."""
    return [json.loads(line) for line in to_lines(trajectory)]


def write_traces(traces: Iterable[Mapping[str, Any]], folder: str | Path) -> Path:
    """Write a folder that verifiers reads as the results of a run, with one episode per trace."""
    path = Path(folder) / TRACES_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_private(path, "w", encoding="utf-8", newline="\n") as file:
        for trace in traces:
            episode = {"id": trace["id"], "task": trace["task"], "ok": trace["ok"], "traces": [trace]}
            file.write(json.dumps(episode) + "\n")
    return path


def _nodes(trajectory: Trajectory) -> list[Node]:
    """Return the nodes of a trace. Calls that continue each other form one chain."""
    actions = [event.action for event in trajectory.events if isinstance(event, ActionTaken)]
    whole = _whole_calls(trajectory, len(actions))
    nodes: list[Node] = []
    before: list[Message] = []
    for view, action, call in zip(trajectory.views(), actions, whole, strict=False):
        conversation = messages(view, trajectory.header.profile)
        # The conversation's first new message is the reply, which already has a node.
        continues = bool(nodes) and (call.extends if call else conversation[: len(before)] == before)
        for message in conversation[len(before) + 1 :] if continues else conversation:
            nodes.append(_node(message, len(nodes) - 1 if continues or message is not conversation[0] else None))
        reply = assistant(action, with_ids(action, view.turn), action.text)
        sampled = _node(reply, len(nodes) - 1) | {"sampled": True}
        if action.reasoning:
            sampled["message"]["reasoning_content"] = action.reasoning
        if call is not None:
            size = sum(len(nodes[index]["token_ids"]) for index in path_to(nodes, len(nodes) - 1))
            nodes[-1] |= _tokens(call.prompt[size:], sampled=False)
            sampled |= _tokens(call.call.output, sampled=True) | {"logprobs": list(call.call.logprobs)}
        nodes.append(sampled)
        before = conversation
    return nodes


def _whole_calls(trajectory: Trajectory, count: int) -> Sequence[WholeCall | None]:
    try:
        return list(expand(calls(trajectory)))
    except TrajectoryError:  # another kind of policy
        return [None] * count


def _node(message: Message, parent: int | None) -> Node:
    fields: dict[str, Any] = {name: message[name] for name in ("role", "content", "tool_call_id") if name in message}
    if message.get("tool_calls"):
        fields["tool_calls"] = [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
    return {"parent": parent, "message": fields, "token_ids": [], "mask": [], "logprobs": []}


def _tokens(ids: Sequence[int], *, sampled: bool) -> Node:
    return {"token_ids": list(ids), "mask": [sampled] * len(ids)}


def trajectory_of(trace: Mapping[str, Any]) -> Trajectory | None:
    """Return the trajectory in a trace of this harness. If another agent played the trace, return None.

    Raises:
        TrajectoryError: If the trajectory is damaged.
    """
    record = trace.get("info", {}).get(RECORD)
    return None if record is None else from_lines(f"trace {trace['id']}", [json.dumps(line) for line in record])


def path_to(nodes: Sequence[Node], leaf: int) -> list[int]:
    """Return the nodes from the root to the leaf. Parents have lower indices than their children, so the walk ends."""
    path = [leaf]
    while (parent := nodes[path[-1]].get("parent")) is not None:
        if not 0 <= parent < path[-1]:
            raise IndexError(f"node {path[-1]} has the parent {parent}, which is not an earlier node of the trace")
        path.append(parent)
    return path[::-1]
