"""verl's `AgentLoop`, which plays an episode with the production `SearchAgent` and returns one output per row.

verl makes a loop for every rollout of a question and calls `run`. The episode samples through verl's servers and is
rewarded as in `ctx1 train rl`. Every row carries that reward. verl's V1 trainer takes the last row's reward as the
episode's reward, and compares episodes. `settings` explains why the result equals this project's advantage.

A row's prompt is everything before its first sampled token. Its response is the rest, with the tokens of tools masked.
The module is written for verl 0.9.1. docs/verl.md lists the configurations that were run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, ContextAgentError, MissingExtraError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.train.agents import build_agent
from context_agent.train.config import SAVED_QUESTIONS
from context_agent.train.experimental.verl.folder import VerlQuestion
from context_agent.train.experimental.verl.settings import disagreements
from context_agent.train.experimental.verl.worker import VerlEngine, WorkerContext, worker_context
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import compute_reward
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, episode_request, is_complete, play_episodes
from context_agent.train.rl.scoring import ScoredEpisode, episode_metrics
from context_agent.train.rows import TrainingRow, sampled_rows

try:
    from omegaconf import DictConfig, OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
except ImportError as error:
    raise MissingExtraError(error.name or "verl", "verl") from None


class SearchLoop(AgentLoopBase):  # type: ignore[misc, unused-ignore]  # Any where verl is not installed
    """The loop of one rollout of one question."""

    def __init__(self, *arguments: Any, run: DictConfig, **options: Any) -> None:
        """Open the run in this worker.

        Args:
            arguments: The arguments of verl's `AgentLoopBase`.
            run: The run's settings, as `ctx1 train verl` wrote them to `agent_loop.yaml`.
            options: The options of verl's `AgentLoopBase`.

        Raises:
            ConfigError: If verl's configuration differs from the run file in a setting that affects the result.
        """
        super().__init__(*arguments, **options)
        plain = OmegaConf.to_container(run, resolve=True)
        assert isinstance(plain, dict)
        self.stage: WorkerContext = worker_context({str(key): value for key, value in plain.items()})
        wrong = disagreements(self.stage.run, self.config)
        if wrong:
            raise ConfigError(
                f"verl's configuration differs from the run: {'; '.join(wrong)}. Use the files that `ctx1 train verl` "
                "wrote."
            )

    async def run(  # type: ignore[override, unused-ignore]  # the V1 trainer takes a list as well
        self, sampling_params: dict[str, Any], **row: Any
    ) -> list[AgentLoopOutput]:
        """Play the episode and return its rows.

        If this method raises `PolicyError`, verl counts the question's group as failed and draws another. If a group
        had no row and had not failed, verl would stop.

        Args:
            sampling_params: The sampling parameters of verl.
            row: A row of the file that `ctx1 train verl` wrote, with the fields that verl adds.

        Returns:
            One output for each row of the episode.

        Raises:
            DataError: If the row comes from another file, or the reward is not a number.
            PolicyError: If a server or the corpus ended the episode, or it sampled nothing.
        """
        question_row, session, step = (
            VerlQuestion.of(row),
            int(row.get("session_id", 0)),
            int(row.get("global_steps", 0)),
        )
        ask = self._ask(question_row, session, step)
        engine = VerlEngine(
            self.server_manager,
            sampling_params,
            request=f"{row.get('uid', '')}-{ask.episode}",
            name=f"verl:{self.stage.run.model.name}",
            seeded=bool(self.rollout_config.get("full_determinism", False)),
        )
        started = time.perf_counter()
        ended = await self._play(engine, ask, sampling_params)
        if not is_complete(ended):
            raise PolicyError(f"episode {ask.episode} was aborted{_error_suffix(ended)}")
        episode = self._rewarded(question_row, ended, step)
        self._save(question_row, episode, step)
        timing = AgentLoopMetrics(
            generate_sequences=engine.seconds, tool_calls=max(0.0, time.perf_counter() - started - engine.seconds)
        )
        versions = engine.versions or [step]
        extra = {
            "episode": ask.episode,
            "group": question_row.question.id,
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
            "reward_extra_info": _episode_measures(episode),
        }
        row_outputs = outputs(episode, engine, timing, extra)
        if not row_outputs:
            raise PolicyError(
                f"episode {ask.episode} sampled nothing, because its window has no room. Use a larger window."
            )
        return row_outputs

    def _ask(self, question_row: VerlQuestion, session: int, step: int) -> RolloutRequest:
        settings = self.stage.run.drawing
        number, group = divmod(question_row.index, settings.groups)
        budget = self.stage.run.episodes.training_budget(group)
        ask = episode_request(question_row.question, settings, number, group, session, budget=budget)
        return RolloutRequest(ask.question, ask.seed, f"dev-{step:05d}-{ask.episode}") if question_row.dev else ask

    async def _play(self, engine: VerlEngine, ask: RolloutRequest, sampling: Mapping[str, Any]) -> EpisodeResult:
        stage = self.stage
        temperature, top_p = float(sampling["temperature"]), float(sampling["top_p"])
        with build_agent(
            stage.run, stage.corpus, engine, stage.renderer, temperature=temperature, top_p=top_p
        ) as agent:
            return (await play_episodes(agent, [ask], 1))[0]

    def _rewarded(self, question_row: VerlQuestion, trajectory: Trajectory, step: int) -> ScoredEpisode:
        """Return the episode with its reward at this point of training. Dev questions always use the reward at the
        end.
        """
        run = self.stage.run
        progress = 1.0 if question_row.dev else min(1.0, max(0, step - 1) / run.rollouts.steps)
        measured = measure_outcome(trajectory, question_row.question, self.stage.gold(question_row.question))
        earned = compute_reward(measured, run.curriculum.rewards(run.rewards, progress))
        return ScoredEpisode(question_row.question, trajectory, measured, earned)

    def _save(self, question_row: VerlQuestion, episode: ScoredEpisode, step: int) -> None:
        """Save some trajectories for `ctx1 view`, as `ctx1 train rl` does."""
        run = self.stage.run
        number = max(0, step - 1)
        every, is_saved = run.rollouts.save_every, question_row.index % run.rollouts.groups < SAVED_QUESTIONS
        if every and is_saved and not question_row.dev and number % every == 0:
            folder = Path(run.out) / "trajectories" / f"step-{number:05d}"
            write(episode.trajectory, folder / f"{episode.trajectory.header.id}.jsonl")


def outputs(
    episode: ScoredEpisode, engine: VerlEngine, timing: AgentLoopMetrics, extra: Mapping[str, Any]
) -> list[AgentLoopOutput]:
    """Return an output for each of the episode's rows. All have the same reward, timing and extra fields."""
    rows = sampled_rows(episode.trajectory, group_id=episode.question.id)
    return [_output(row, episode, engine.experts(row.input_ids), timing, extra) for row in rows]


def _output(
    row: TrainingRow, episode: ScoredEpisode, experts: Any, timing: AgentLoopMetrics, extra: Mapping[str, Any]
) -> AgentLoopOutput:
    first = row.loss_mask.index(1)
    return AgentLoopOutput(
        prompt_ids=row.input_ids[:first],
        response_ids=row.input_ids[first:],
        response_mask=row.loss_mask[first:],
        response_logprobs=row.logprobs[first:],
        routed_experts=experts,
        reward_score=episode.reward.total,
        num_turns=episode.outcome.turns,
        metrics=timing,
        extra_fields=dict(extra),
    )


def _episode_measures(episode: ScoredEpisode) -> dict[str, float]:
    """Return the episode's measures under names that every episode has, because verl makes a column of each."""
    return {"prune_accuracy": 1.0, **episode_metrics([episode])}


def _error_suffix(ended: EpisodeResult) -> str:
    if isinstance(ended, ContextAgentError):
        return f": {ended}"
    return f": {ended.end.error}" if ended.end is not None and ended.end.error else ""
