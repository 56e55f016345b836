"""Training rows made from verifiers' traces, which any agent may have played. This module does not import verifiers.

A path from a root to a leaf becomes one training row. verifiers calls it a sample. If paths share nodes, the sampled
ids of these nodes are trained once, in the first path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any

from context_agent._support.question_files import read_rows
from context_agent._support.validation import is_number
from context_agent.errors import DataError, single_stops
from context_agent.harness.trajectory import Trajectory
from context_agent.train.experimental.verifiers.traces import TRACES_FILE, Node, path_to, trajectory_of
from context_agent.train.rows import TrainingRow

MAX_TOKEN_ID = 2**31 - 1
"""The largest token id. Files of rows store ids in 32 bits."""


@dataclass(frozen=True, slots=True)
class RecordedRollout:
    """A trace as training data.

    Attributes:
        id: The id of the trace.
        group_id: The task. Its rollouts form one group.
        reward: The weighted sum of the trace's rewards.
        rows: The training rows.
        trajectory: The trajectory. None if another agent played the trace.
    """

    id: str
    group_id: str
    reward: float
    rows: tuple[TrainingRow, ...]
    trajectory: Trajectory | None = None


def read_traces(source: str | Path) -> Iterator[RecordedRollout]:
    """Yield the rollouts in a file `traces.jsonl`. Any agent may have played them.

    Traces without a sampled message, and traces that verifiers marked as failed, are left out.

    Args:
        source: The file, or the folder that contains it.

    Yields:
        The rollouts.

    Raises:
        DataError: If the file cannot be read, a line is not an episode, or a trace cannot be trained on.
    """
    path = Path(source)
    path = path / TRACES_FILE if path.is_dir() else path
    for row in read_rows(path):
        if row.problem:
            raise DataError(single_stops(f"{row.problem}. Pass the output folder of a verifiers run."))
        try:
            version = _version(row.value)
            completed = [trace for trace in row.value["traces"] if trace["ok"]]
            sampled = [trace for trace in completed if any(node.get("sampled") for node in trace["nodes"])]
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{row.location}: the line is not an episode of verifiers 0.4 ({error!r}). Pass the output folder of "
                "a verifiers run."
            ) from None
        yield from (rollout_of(trace, version=version) for trace in sampled)


def rollout_of(trace: Mapping[str, Any], *, version: str = "") -> RecordedRollout:
    """Convert a trace to training rows, one for each path with new sampled ids.

    Args:
        trace: The trace as plain data.
        version: The version of the weights that sampled it.

    Returns:
        The rollout.

    Raises:
        DataError: If the trace is not in the format of verifiers 0.4, or lacks log-probabilities.
    """
    try:
        group = str(trace["task"].get("key") or trace["task"].get("hash") or trace["task"]["data"]["id"])
        rows = tuple(_rows(trace, group, version))
        reward = sum(item["score"] * item.get("weight", 1.0) for item in trace.get("rewards", {}).values() if item)
        if not isfinite(reward):
            raise DataError(f"trace {trace['id']} has the reward {reward}. Sample it again.")
        return RecordedRollout(str(trace["id"]), group, reward, rows, trajectory_of(trace))
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(
            f"trace {trace.get('id')} does not have the format of verifiers 0.4 ({error!r}). Sample it with that "
            "version."
        ) from None


def _rows(trace: Mapping[str, Any], group: str, version: str) -> Iterator[TrainingRow]:
    nodes = trace["nodes"]
    trained: set[int] = set()
    for leaf in _leaves(nodes):
        path = path_to(nodes, leaf)
        fresh = {index for index in path if nodes[index].get("sampled")} - trained
        if not fresh:
            continue
        trained |= fresh
        ids = [token for index in path for token in nodes[index]["token_ids"]]
        mask = [int(flag and index in fresh) for index in path for flag in nodes[index]["mask"]]
        logprobs = [value for index in path for value in _logprobs(trace["id"], index, nodes[index], index in fresh)]
        if len(ids) != len(mask):
            raise DataError(
                f"trace {trace['id']} is damaged, because it has {len(ids)} token ids and {len(mask)} entries in "
                "their masks. Sample it again."
            )
        if not all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in ids):
            raise DataError(f"trace {trace['id']} has a token id that is not a whole number from 0. Sample it again.")
        if not all(is_number(value) and isfinite(value) for value in logprobs):
            raise DataError(f"trace {trace['id']} has a log-probability that is not a finite number. Sample it again.")
        yield TrainingRow(ids, mask, logprobs, str(trace["id"]), group, version)


def _logprobs(trace: str, index: int, node: Node, fresh: bool) -> list[float]:
    """Return a log-probability for each id of a node. If an id is not trained, it is 0."""
    mask, values = node["mask"], node.get("logprobs") or []
    if not fresh:
        return [0.0] * len(mask)
    if not any(mask) or len(values) != sum(map(bool, mask)):
        raise DataError(
            f"message {index} of trace {trace} has {sum(map(bool, mask))} sampled ids and {len(values)} "
            "log-probabilities. Only the client of type train records both, so sample with --client.type train."
        )
    counts = accumulate(map(bool, mask))
    return [values[count - 1] if flag else 0.0 for flag, count in zip(mask, counts, strict=True)]


def _leaves(nodes: Sequence[Node]) -> Iterator[int]:
    """Return the ends of the paths that verifiers trains on. Abandoned attempts to compact the context are left out."""
    parents = {node.get("parent") for node in nodes}
    links = [(index, link["type"], link["node"]) for index, node in enumerate(nodes) for link in _links(node)]
    accepted = {node for _, kind, node in links if kind == "compaction"}
    attempts = {index for index, kind, _ in links if kind == "compaction_attempt"}
    return (index for index in range(len(nodes)) if index not in parents and index not in attempts - accepted)


def _links(node: Node) -> Sequence[Mapping[str, Any]]:
    return node.get("semantic_parents") or ()


def _version(episode: Mapping[str, Any]) -> str:
    """Return the oldest version of the weights that sampled the episode. If none is recorded, return an empty
    string.
    """
    policy = ((episode.get("run") or {}).get("work") or {}).get("policy") or {}
    return str(policy.get("start", ""))
