"""verl's advantage, group filter and loss, configured from a run, equal this project's. Needs verl, and no GPU."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: docs/verl.md")
pytest.importorskip("transfer_queue")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.train.advantages import EpisodeReward, group_advantages

TOLERANCE = 1e-6


class Batch:
    """The batch of which verl's trainer computes advantages: a line for each row, keyed `{uid}_{session}_{row}`."""

    def __init__(self, episodes: Sequence[tuple[str, int, float, int]], seed: int) -> None:
        """An episode is its question, its session, its reward and how many rows it has."""
        from verl.protocol import DataProto

        rng = random.Random(seed)
        lines = [(q, s, reward, row) for q, s, reward, rows in episodes for row in range(rows)]
        rng.shuffle(lines)
        self.keys = [f"{question}_{session}_{row}" for question, session, _, row in lines]
        self.mask = torch.tensor([[1, *(rng.randrange(2) for _ in range(5))] for _ in lines])
        scores = torch.zeros(self.mask.shape)
        scores[:, -1] = torch.tensor([reward for _, _, reward, _ in lines])
        self.data = DataProto.from_dict(
            tensors={"response_mask": self.mask, "token_level_rewards": scores},
            non_tensors={"uid": np.array([question for question, *_ in lines], dtype=object)},
        )

    def advantages(self, estimator: str) -> Any:
        """Shape (rows, tokens)."""
        from verl.trainer.config import AlgoConfig
        from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

        data = compute_advantage_for_multi_trajectories(
            self.data,
            batch_keys=self.keys,
            adv_estimator=estimator,
            norm_adv_by_std_in_grpo=False,
            config=AlgoConfig(adv_estimator=estimator),
        )
        return data.batch["advantages"]


def project_advantages(episodes: Sequence[tuple[str, int, float, int]]) -> dict[str, float]:
    return dict(group_advantages([EpisodeReward(f"{q}_{s}", q, reward) for q, s, reward, _ in episodes]).by_episode)


@st.composite
def episode_lists(draw: st.DrawFn) -> list[tuple[str, int, float, int]]:
    episodes = []
    for group in range(draw(st.integers(1, 4))):
        for session in range(draw(st.integers(2, 6))):
            reward = draw(st.sampled_from([-0.5, 0.001, 0.25, 0.6, 1.0, 1.7, 2.0]))
            episodes.append((f"q{group}", session, reward, draw(st.integers(1, 5))))
    return episodes


@settings(deadline=None, max_examples=60)
@given(episode_lists(), st.integers(0, 99))
def test_the_advantage_is_over_episodes_and_all_rows_of_one_have_it(
    episodes: list[tuple[str, int, float, int]], seed: int
) -> None:
    batch = Batch(episodes, seed)
    actual, expected = batch.advantages("grpo"), project_advantages(episodes)
    for key, mask, values in zip(batch.keys, batch.mask, actual, strict=True):
        # This project drops groups of equal rewards; verl gives their episodes an advantage of 0.
        advantage = expected.get(key.rsplit("_", 1)[0], 0.0)
        assert torch.allclose(values, advantage * mask, atol=TOLERANCE)


def test_an_estimator_that_is_registered_gets_rows_without_their_episodes() -> None:
    from verl.trainer.ppo.core_algos import register_adv_est

    arguments: dict[str, Any] = {}

    @register_adv_est("seen_by_a_test")
    def estimator(token_level_rewards: Any, response_mask: Any, **options: Any) -> tuple[Any, Any]:
        arguments.update(options, rows=len(response_mask))
        return response_mask, response_mask

    Batch([("q", 0, 1.0, 5), ("q", 1, 0.0, 1)], 0).advantages("seen_by_a_test")
    assert arguments["rows"] == 6
    assert set(arguments) == {"rows", "index", "config"}
    assert set(arguments["index"]) == {"q"}


def test_rows_counted_one_by_one_would_distort_the_mean() -> None:
    """Why the estimator is `grpo`: `rloo` and others compare rows, so an episode that edits often weighs more."""
    batch = Batch([("q", 0, 1.0, 5), ("q", 1, 0.0, 1)], 0)
    right, wrong = batch.advantages("grpo"), batch.advantages("rloo")
    assert float(right.max()) == pytest.approx(0.5)
    assert float(wrong.max()) != pytest.approx(0.5, abs=0.1)


def test_the_one_episode_left_of_a_group_is_compared_with_nothing() -> None:
    """A difference that remains: this project drops such a group; verl's advantage is the reward itself."""
    episodes = [("q", 0, 0.7, 2)]
    assert project_advantages(episodes) == {}
    assert float(Batch(episodes, 0).advantages("grpo").max()) == pytest.approx(0.7)


def evicted_groups(groups: dict[str, list[list[float]]]) -> set[str]:
    """The groups that verl's buffer drops as equal, given the token scores of each row."""
    import transfer_queue
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    scores = {
        f"{uid}_0_{row}": torch.tensor(token_scores)
        for uid, rows in groups.items()
        for row, token_scores in enumerate(rows)
    }
    buffer = ReplayBuffer.__new__(ReplayBuffer)
    buffer.filter_groups_metric = "reward"
    buffer.finished_keys = defaultdict(set, train=set(groups))
    buffer.partitions = defaultdict(dict, train={key: {} for key in scores})
    buffer._dapo_classification_cache = defaultdict(dict)

    def kv_batch_get(keys: list[str], **_: Any) -> dict[str, Any]:
        return {"rm_scores": [scores[key] for key in keys]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer_queue, "kv_batch_get", kv_batch_get)
        evicted_keys, _ = buffer._dapo_filtered_keys("train")
    return set(evicted_keys)


def test_equal_groups_are_evicted_by_the_reward_of_their_rows() -> None:
    equal = [[0.0, 0.6], [0.6], [0.0, 0.0, 0.6]]
    assert evicted_groups({"equal": equal, "unequal": [[0.6], [0.0, 0.5]]}) == {"equal"}


def test_a_group_that_ended_well_without_rows_would_stop_verl() -> None:
    """Why the loop raises when an episode fails, instead of returning no rows."""
    with pytest.raises(RuntimeError, match="missing DAPO metric"):
        evicted_groups({"empty": [], "other": [[0.6]]})


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_verl_s_cispo_is_ours(seed: int) -> None:
    """On the same rows: -(1/N) sum mask * stop_grad(min(ratio, 5)) * A * log p, by log-probabilities."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    rng = torch.Generator().manual_seed(seed)
    mask = (torch.rand(7, 40, generator=rng) < 0.4).long()
    mask[:, 0] = 1
    old_logprobs = -3 - 4 * torch.rand(7, 40, generator=rng)
    advantage = (torch.rand(7, 1, generator=rng) - 0.5) * mask
    new_logprobs = (old_logprobs + 3 * torch.randn(7, 40, generator=rng)).requires_grad_()
    ratio = torch.exp(new_logprobs - old_logprobs)
    assert bool((ratio[mask == 1] > 5).any())
    tokens = int(mask.sum())
    expected_loss = -(ratio.clamp(max=5.0).detach() * advantage * new_logprobs * mask).sum() / tokens
    (expected,) = torch.autograd.grad(expected_loss, new_logprobs)

    config = FSDPActorConfig(
        strategy="fsdp",
        rollout_n=4,
        use_dynamic_bsz=True,
        clip_ratio_low=1.0,
        clip_ratio_high=4.0,
        policy_loss=PolicyLossConfig(loss_mode="cispo"),
    )
    config.global_batch_info.update(dp_size=1, batch_num_tokens=tokens, global_batch_size=7, loss_scale_factor=None)
    loss, _ = get_policy_loss_fn("cispo")(
        old_log_prob=old_logprobs,
        log_prob=new_logprobs,
        advantages=advantage,
        response_mask=mask.bool(),
        loss_agg_mode="token-mean",
        config=config,
    )
    (actual,) = torch.autograd.grad(loss, new_logprobs)
    assert float(expected.abs().max()) > 1e-3
    assert float((actual - expected).abs().max()) <= TOLERANCE
    assert float(loss.detach()) == pytest.approx(float(expected_loss.detach()), abs=TOLERANCE)
