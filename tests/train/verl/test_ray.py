"""One machine of a cluster, without its GPUs: verl's worker, queue, buffer and advantages, with stand-ins for servers.

The episodes are played by verl's own `AgentLoopWorkerTQ` in a Ray actor, go through its TransferQueue and its replay
buffer, and its V1 trainer's method computes their advantages. Needs verl, and no GPU.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: docs/verl.md")
pytest.importorskip("transfer_queue")

import numpy as np

from context_agent.train.advantages import Scored, advantages
from context_agent.train.config import Run
from tests.train.verl import parts

ROOT = Path(__file__).parents[3]
PATIENCE = 400
GROUPS, EACH = 4, 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=True)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    return parts.prepared(place)


def batch_of(config: Any, run: Run, step: int) -> Any:
    """A step's prompts, as `PPOTrainer._next_train_batch` puts them together."""
    from transformers import AutoTokenizer
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    tokenizer = AutoTokenizer.from_pretrained(run.model.name)
    dataset = RLHFDataset(list(config.data.train_files), tokenizer, config.data)
    lines = collate_fn([dataset[(step - 1) * GROUPS + place] for place in range(GROUPS)])
    lines["uid"] = np.array([f"uid{place}" for place in range(GROUPS)], dtype=object)
    batch = tu.get_tensordict(lines)
    tu.assign_non_tensor_data(batch, "global_steps", step)
    return batch


def buffer(config: Any) -> Any:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    return ReplayBuffer(
        trainer_mode="sync",
        trainer_config=config.trainer.v1.sync,
        max_off_policy_threshold=config.trainer.v1.sampler.max_off_policy_threshold,
        max_off_policy_strategy="drop",
        sampler_kwargs=config.trainer.v1.sampler.sampler_kwargs,
        poll_interval=0.5,
    )


def test_a_step_of_verl_s_has_our_rows_and_our_advantages(cluster: None, place: Path, run: Run) -> None:
    import ray
    import transfer_queue as tq
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    config = parts.composed(place / "verl", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1")
    config.transfer_queue.enable = True
    tq.init(config.transfer_queue)
    try:
        manager = AgentLoopManagerTQ.create(config=config, llm_client=parts.Client(run, steps=1))
        prompts = batch_of(config, run, step=1)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": 1}] * GROUPS
        tq.kv_batch_put(keys=list(prompts["uid"]), partition_id="train", tags=tags)
        manager.generate_sequences(prompts)
        begun, stored = time.monotonic(), buffer(config)
        while time.monotonic() - begun < PATIENCE:
            stored._sync_metadata_from_transfer_queue()
            assert not stored.failure_keys["train"]
            if len(stored.finished_keys["train"]) == GROUPS:
                break
            time.sleep(0.5)
        batch, _ = stored.sample(global_steps=1, partition_id="train", batch_size=GROUPS)
        PPOTrainerSync._compute_old_log_prob(SimpleNamespace(config=config), batch, {})  # type: ignore[arg-type]
        batch = PPOTrainerSync._compute_advantage(SimpleNamespace(config=config), batch, {})  # type: ignore[arg-type]
        fields = ["advantages", "response_mask", "rm_scores", "extra_fields", "old_log_probs", "rollout_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
        check(batch.keys, data)
    finally:
        tq.close()
        for worker in getattr(manager, "agent_loop_workers", ()):
            ray.kill(worker)


def check(keys: list[str], data: Any) -> None:
    told = [getattr(one, "data", one) for one in data["extra_fields"].tolist()]
    episodes: dict[str, tuple[str, float]] = {}
    rows: dict[str, int] = defaultdict(int)
    for key, one, scores in zip(keys, told, data["rm_scores"], strict=True):
        uid, session, _ = key.split("_")
        episodes[f"{uid}_{session}"] = (uid, float(scores.sum()))
        rows[f"{uid}_{session}"] += 1
        assert int(one["episode"].split("-")[2]) == int(session)
    assert len(episodes) == GROUPS * EACH
    # Some episodes were edited, and some were not.
    assert {1, 2} <= set(rows.values())
    found = advantages([Scored(episode, group, reward) for episode, (group, reward) in episodes.items()])
    assert found.by_episode
    for key, values, mask in zip(keys, data["advantages"], data["response_mask"], strict=True):
        wanted = found.by_episode.get(key.rsplit("_", 1)[0], 0.0)
        assert np.allclose(values.numpy(), wanted * mask.numpy(), atol=1e-6)
    for old, sampled in zip(data["old_log_probs"], data["rollout_log_probs"], strict=True):
        assert old.tolist() == sampled.tolist()
