"""A step by verl's own worker and trainer, in one process, with a table as the queue and stand-ins as servers.

`AgentLoopWorkerTQ` plays the episodes, four of each question, as in a Ray actor, and the V1 trainer's own method makes
advantages of their rows. Needs verl, and no GPU.

More cannot run without a GPU, by the source of verl 0.9.1: Ray must offer as many GPUs or NPUs as
`trainer.n_gpus_per_node`, at least one (`ResourcePoolManager`); the platform without an accelerator is `nvidia`;
training engines are registered for `cuda` and `npu`; samplers are vLLM, SGLang and TensorRT-LLM. Each has a registry:
a platform with Gloo and a sampler in Python could go further.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: docs/verl.md")
pytest.importorskip("transfer_queue")

import torch
import transfer_queue

from context_agent.train.advantages import EpisodeReward, group_advantages
from tests.support import verl_parts

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


class Queue:
    """Stands in for TransferQueue's storage: keeps the values of each key."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        from verl.trainer.ppo.v1 import agent_loop_tq

        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}
        self.status: dict[str, str] = {}
        self.made: Any = None
        patch.setattr(agent_loop_tq, "list_of_dict_to_tensordict", lambda rows: rows)
        for name in ("async_kv_put", "async_kv_batch_put", "kv_batch_get", "kv_batch_put"):
            patch.setattr(transfer_queue, name, getattr(self, name))
        patch.setattr(transfer_queue, "init", lambda *_: None)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.status[key] = tag["status"]

    async def async_kv_batch_put(
        self, keys: list[str], fields: list[dict[str, Any]], tags: list[dict[str, Any]], partition_id: str
    ) -> None:
        self.rows |= dict(zip(keys, fields, strict=True))
        self.tags |= dict(zip(keys, tags, strict=True))

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        stored_fields = [name for name in select_fields if name in self.rows[keys[0]]]
        return list_of_dict_to_tensordict([{name: self.rows[key][name] for name in stored_fields} for key in keys])

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> None:
        self.made = fields


async def play(config: Any, lines: list[dict[str, Any]], client: verl_parts.Client) -> None:
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, client)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    prompts = [
        {**line, "uid": f"uid{index}", "global_steps": 1, "raw_prompt": line["prompt"], "index": index}
        for index, line in enumerate(lines)
    ]
    await asyncio.gather(*(worker._run_prompt(prompt, SAMPLING, trajectory) for prompt in prompts))


async def test_a_step_of_verl_s_has_the_advantages_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import parquet
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    run = verl_parts.prepared(tmp_path)
    config = verl_parts.composed(tmp_path / "verl")
    queue = Queue(monkeypatch)
    lines = parquet.read_table(tmp_path / "verl" / "train.parquet").to_pylist()[:4]
    await play(config, lines, verl_parts.Client(run, steps=1))
    assert set(queue.status.values()) == {"finished"}
    assert all((tag["min_global_steps"], tag["max_global_steps"]) == (1, 1) for tag in queue.tags.values())

    keys = list(queue.rows)
    rewards: dict[str, float] = {}
    row_counts: dict[str, int] = defaultdict(int)
    for key in keys:
        rewards[key.rsplit("_", 1)[0]] = float(queue.rows[key]["rm_scores"].sum())
        row_counts[key.rsplit("_", 1)[0]] += 1
    assert len(rewards) == 16
    assert {1, 2} <= set(row_counts.values())

    PPOTrainerSync._compute_advantage(SimpleNamespace(config=config), _Batch(keys), {})  # type: ignore[arg-type]
    advantages = group_advantages(
        [EpisodeReward(episode_id, episode_id.split("_")[0], reward) for episode_id, reward in rewards.items()]
    )
    assert advantages.by_episode
    for key, values in zip(keys, queue.made["advantages"].unbind(), strict=True):
        mask = queue.rows[key]["response_mask"]
        expected = advantages.by_episode.get(key.rsplit("_", 1)[0], 0.0) * mask
        assert torch.allclose(values, expected.float(), atol=1e-6)


async def test_a_question_with_an_episode_that_failed_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    run = verl_parts.prepared(tmp_path)
    queue = Queue(monkeypatch)
    lines = parquet.read_table(tmp_path / "verl" / "train.parquet").to_pylist()[:2]
    await play(verl_parts.composed(tmp_path / "verl"), lines, verl_parts.Client(run, dead=9))
    assert "failure" in queue.status.values()


class _Batch:
    """The part of TransferQueue's `KVBatchMeta` that the trainer reads."""

    partition_id = "train"

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)
