"""The agent loop in verl's own classes: an episode's rows are its outputs. Needs verl, and no GPU."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: docs/verl.md")
pytest.importorskip("transfer_queue")

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.train.agents import build_agent
from context_agent.train.config import RunConfig
from context_agent.train.experimental.verl.folder import VerlQuestion
from context_agent.train.models import load_renderer
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import compute_reward
from context_agent.train.rl.rollouts import episode_request, play_episodes
from context_agent.train.rows import TrainingRow, sampled_rows
from context_agent.train.toy.environment import make_environment
from context_agent.types import Question
from tests.support import verl_parts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="module")
def run(place: Path) -> RunConfig:
    return verl_parts.prepared(place)


@pytest.fixture(scope="module")
def lines(place: Path, run: RunConfig) -> list[dict[str, Any]]:
    from pyarrow import parquet

    return list(parquet.read_table(place / "verl" / "train.parquet").to_pylist())


@pytest.fixture
def config(place: Path, run: RunConfig) -> Any:
    return verl_parts.composed(place / "verl")


def make_loop(config: Any, client: Any) -> Any:
    """An agent loop as `AgentLoopWorker` makes it, from the file that `ctx1 train verl` wrote."""
    import hydra
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    (loop_config,) = OmegaConf.load(config.actor_rollout_ref.rollout.agent.agent_loop_config_path)
    return hydra.utils.instantiate(
        config=loop_config,
        trainer_config=DictConfigWrap(config=config),
        server_manager=client,
        tokenizer=AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path),
        processor=None,
        hf_model_type="gpt_oss",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )


SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


async def loop_outputs(config: Any, client: Any, line: dict[str, Any], session: int = 0, step: int = 1) -> list[Any]:
    agent_loop = make_loop(config, client)
    rollout_fields = {"uid": "u", "session_id": session, "global_steps": step, "raw_prompt": line["prompt"], "index": 0}
    return list(await agent_loop.run(dict(SAMPLING), **{**line, **rollout_fields}))


async def play_without_verl(run: RunConfig, line: dict[str, Any], session: int) -> tuple[Question, Trajectory]:
    """The same episode without verl: what `ctx1 train rl` plays."""
    from context_agent.policies.tokens.engines import FakeEngine

    assert run.data.world is not None
    world = make_environment(run.data.world)
    question_row = VerlQuestion.of(line)
    step, group = divmod(question_row.index, run.rollouts.groups)
    _, renderer = load_renderer(run)
    engine = FakeEngine(verl_parts.played_by_seed(run), version="0")
    with build_agent(run, world.corpus, engine, renderer, temperature=1.0) as agent:
        request = episode_request(question_row.question, run.drawing, step, group, session)
        (trajectory,) = await play_episodes(agent, [request], 1)
    assert isinstance(trajectory, Trajectory)
    return question_row.question, trajectory


def as_row(output: Any, row: TrainingRow) -> tuple[list[int], list[int], list[float]]:
    """The output as a training row, whose prompt has no loss and no log-probabilities."""
    head = len(output.prompt_ids)
    assert row.loss_mask[:head] == [0] * head
    return (
        [*output.prompt_ids, *output.response_ids],
        [*[0] * head, *output.response_mask],
        [*[0.0] * head, *output.response_logprobs],
    )


async def test_outputs_are_the_rows_of_the_same_episode_without_verl(
    config: Any, run: RunConfig, lines: list[dict[str, Any]]
) -> None:
    row_counts = []
    for line in lines[:6]:
        for session in range(4):
            question, trajectory = await play_without_verl(run, line, session)
            rows = sampled_rows(trajectory, group_id=question.id)
            outputs = await loop_outputs(config, verl_parts.Client(run), line, session)
            assert len(outputs) == len(rows)
            for output, row in zip(outputs, rows, strict=True):
                assert as_row(output, row) == (row.input_ids, row.loss_mask, row.logprobs)
                assert (output.extra_fields["episode"], output.extra_fields["group"]) == (row.episode_id, row.group_id)
                assert output.response_mask[0] == 1
            sampled = sum(len(call.output) for call in calls(trajectory))
            assert sum(sum(output.response_mask) for output in outputs) == sampled
            row_counts.append(len(rows))
    # Some episodes were edited, and some were not.
    assert {1, 2} <= set(row_counts)


async def test_every_row_carries_the_episode_s_reward_at_that_point_of_the_curriculum(
    config: Any, run: RunConfig, lines: list[dict[str, Any]]
) -> None:
    distinct_rewards = set()
    for line in lines:
        question, trajectory = await play_without_verl(run, line, session=2)
        rewards_by_step = []
        for step in (1, 2, 3):
            settings = run.curriculum.rewards(run.rewards, (step - 1) / run.rollouts.steps)
            outputs = await loop_outputs(config, verl_parts.Client(run), line, 2, step)
            assert {output.reward_score for output in outputs} == {
                compute_reward(measure_outcome(trajectory, question), settings).total
            }
            assert {output.extra_fields["reward_extra_info"]["reward"] for output in outputs} == {
                outputs[0].reward_score
            }
            rewards_by_step.append(outputs[0].reward_score)
        distinct_rewards.add(len(set(rewards_by_step)))
    # Where precision and recall differ, beta counts.
    assert 3 in distinct_rewards


async def test_what_the_v1_trainer_reads_is_there(config: Any, run: RunConfig, lines: list[dict[str, Any]]) -> None:
    outputs = await loop_outputs(config, verl_parts.Client(run, steps=5), lines[1], session=2)
    for output in outputs:
        fields = output.as_dict()
        assert {"prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "num_turns"} <= set(fields)
        assert float(fields["rm_scores"].sum()) == pytest.approx(output.reward_score)
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (5, 5)
    later_outputs = await loop_outputs(config, verl_parts.Client(run), lines[1], session=2, step=7)
    assert all(output.extra_fields["min_global_steps"] is not None for output in later_outputs)


async def test_routing_goes_with_the_row_it_is_of(config: Any, run: RunConfig, lines: list[dict[str, Any]]) -> None:
    outputs = await loop_outputs(config, verl_parts.Client(run, experts=True), lines[1], session=2)
    assert len(outputs) > 1
    for output in outputs:
        length = len(output.prompt_ids) + len(output.response_ids)
        assert len(output.routed_experts) == length
        assert tuple(output.as_dict()["routed_experts"].shape) == (length, 1, 1)


async def test_an_episode_keeps_to_one_server(config: Any, run: RunConfig, lines: list[dict[str, Any]]) -> None:
    client = verl_parts.Client(run)
    await loop_outputs(config, client, lines[1], session=2)
    await loop_outputs(config, client, lines[1], session=3)
    assert len({call["request"] for call in client.sent}) == 2


async def test_an_episode_that_a_server_ended_fails(config: Any, run: RunConfig, lines: list[dict[str, Any]]) -> None:
    with pytest.raises(PolicyError, match=r"episode 00000-0001-002 was aborted.*the server died"):
        await loop_outputs(config, verl_parts.Client(run, dead=2), lines[1], session=2)


async def test_many_episodes_share_a_process(config: Any, run: RunConfig, lines: list[dict[str, Any]]) -> None:
    client = verl_parts.Client(run)
    concurrent = await asyncio.gather(*(loop_outputs(config, client, lines[0], session) for session in range(16)))
    alone = [await loop_outputs(config, verl_parts.Client(run), lines[0], session) for session in range(16)]
    assert [[output.response_ids for output in outputs] for outputs in concurrent] == [
        [output.response_ids for output in outputs] for outputs in alone
    ]


async def test_some_trajectories_are_kept_to_be_looked_at(
    config: Any, run: RunConfig, lines: list[dict[str, Any]]
) -> None:
    await loop_outputs(config, verl_parts.Client(run), lines[0], session=1, step=2)
    folder = Path(run.out) / "trajectories" / "step-00001"
    assert read(folder / "00000-0000-001.jsonl").header.question == VerlQuestion.of(lines[0]).question.question


async def test_a_line_of_another_file_is_refused(config: Any, run: RunConfig) -> None:
    with pytest.raises(DataError, match="ctx1 train verl"):
        await make_loop(config, verl_parts.Client(run)).run(dict(SAMPLING), extra_info={"index": 3})


def test_a_configuration_that_learns_something_else_is_refused(place: Path, run: RunConfig) -> None:
    from hydra.errors import InstantiationException

    config = verl_parts.composed(place / "verl", "algorithm.norm_adv_by_std_in_grpo=True")
    with pytest.raises(
        InstantiationException, match="norm_adv_by_std_in_grpo is True, and the run requires False"
    ) as raised:
        make_loop(config, verl_parts.Client(run))
    assert isinstance(raised.value.__cause__, ConfigError)
