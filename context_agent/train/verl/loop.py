"""verl's `AgentLoop` that plays an episode by the production `SearchAgent` and returns its rows, each an output.

verl makes a loop for every rollout of a question and calls `run`. The episode samples through verl's servers, is
rewarded as in `ctx1 train rl`, and every row of it carries that reward; verl's V1 trainer takes the last row's for the
episode's and compares episodes (`settings` says why that is this project's advantage).

A row's prompt is what stands before its first sampled id, and its response all that follows, ids of tools masked.
Written against verl 0.9.1; docs/verl.md says what of it has been run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, ContextAgentError, MissingExtraError, PolicyError
from context_agent.train.data import agent_of
from context_agent.train.rewards import outcome, reward
from context_agent.train.rl.rollouts import Ask, Ended, Played, ask_of, measures, played, whole
from context_agent.train.rows import Row, rows_of
from context_agent.train.verl.dataset import Asked
from context_agent.train.verl.settings import disagreements
from context_agent.train.verl.worker import ClientEngine, Stage, stage
from context_agent.trajectory import Trajectory
from context_agent.trajectory_file import write

try:
    from omegaconf import DictConfig, OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
except ImportError as error:
    raise MissingExtraError(error.name or "verl", "verl") from None


class SearchLoop(AgentLoopBase):  # type: ignore[misc, unused-ignore]  # Any where verl is not installed
    """One rollout of one question."""

    def __init__(self, *given: Any, run: DictConfig, **named: Any) -> None:
        """`run` is the run's settings, as `ctx1 train verl` wrote them into `agent_loop.yaml`.

        Raises `ConfigError` where verl's configuration would have something else learned than the run says.
        """
        super().__init__(*given, **named)
        plain = OmegaConf.to_container(run, resolve=True)
        assert isinstance(plain, dict)
        self.stage: Stage = stage({str(key): value for key, value in plain.items()})
        wrong = disagreements(self.stage.run, self.config)
        if wrong:
            raise ConfigError(f"verl is configured otherwise than the run: {'; '.join(wrong)}")

    async def run(  # type: ignore[override, unused-ignore]  # the V1 trainer takes a list as well
        self, sampling_params: dict[str, Any], **row: Any
    ) -> list[AgentLoopOutput]:
        """Plays the episode and returns its rows.

        `row` is a line of the file that `ctx1 train verl` wrote, with what verl adds to it. Raises `DataError` for
        another line and for a reward that is no number, and `PolicyError` where a server or the corpus ended the
        episode: verl then counts the question's group as failed, and asks another. A group without any row that did
        not fail would stop it.
        """
        asked, session, step = Asked.of(row), int(row.get("session_id", 0)), int(row.get("global_steps", 0))
        ask = self._ask(asked, session, step)
        engine = ClientEngine(
            self.server_manager,
            sampling_params,
            request=f"{row.get('uid', '')}-{ask.episode}",
            name=f"verl:{self.stage.run.model.name}",
            seeded=bool(self.rollout_config.get("full_determinism", False)),
        )
        begun = time.perf_counter()
        ended = await self._play(engine, ask, sampling_params)
        if not whole(ended):
            raise PolicyError(f"episode {ask.episode} was ended by something other than its policy{_why(ended)}")
        one = self._rewarded(asked, ended, step)
        self._save(asked, one, step)
        timing = AgentLoopMetrics(
            generate_sequences=engine.seconds, tool_calls=max(0.0, time.perf_counter() - begun - engine.seconds)
        )
        versions = engine.versions or [step]
        told = {
            "episode": ask.episode,
            "group": asked.question.id,
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
            "reward_extra_info": _told(one),
        }
        made = outputs(one, engine, timing, told)
        if not made:
            raise PolicyError(f"episode {ask.episode} sampled nothing: its window has no room for a reply")
        return made

    def _ask(self, asked: Asked, session: int, step: int) -> Ask:
        settings = self.stage.run.drawing
        number, group = divmod(asked.index, settings.groups)
        ask = ask_of(asked.question, settings, number, group, session)
        return Ask(ask.question, ask.seed, f"dev-{step:05d}-{ask.episode}") if asked.dev else ask

    async def _play(self, engine: ClientEngine, ask: Ask, sampling: Mapping[str, Any]) -> Ended:
        stage = self.stage
        temperature, top_p = float(sampling["temperature"]), float(sampling["top_p"])
        with agent_of(stage.run, stage.corpus, engine, stage.renderer, temperature=temperature, top_p=top_p) as agent:
            return (await played(agent, [ask], 1))[0]

    def _rewarded(self, asked: Asked, trajectory: Trajectory, step: int) -> Played:
        """By the point of training that the step is at; what is evaluated, always by the last one's reward."""
        run = self.stage.run
        progress = 1.0 if asked.dev else min(1.0, max(0, step - 1) / run.rollouts.steps)
        measured = outcome(trajectory, asked.question, self.stage.gold(asked.question))
        found = reward(measured, run.curriculum.rewards(run.rewards, progress))
        return Played(asked.question, trajectory, measured, found)

    def _save(self, asked: Asked, one: Played, step: int) -> None:
        """Keeps some trajectories for `ctx1 view`, as `ctx1 train rl` does."""
        run = self.stage.run
        number = max(0, step - 1)
        every, shown = run.rollouts.save_every, asked.index % run.rollouts.groups < run.rollouts.save_groups
        if every and shown and not asked.dev and number % every == 0:
            folder = Path(run.out) / "trajectories" / f"step-{number:05d}"
            write(one.trajectory, folder / f"{one.trajectory.header.id}.jsonl")


def outputs(
    one: Played, engine: ClientEngine, timing: AgentLoopMetrics, told: Mapping[str, Any]
) -> list[AgentLoopOutput]:
    """An output for each of the episode's rows. All carry the reward, the timing, and what is told of the episode."""
    made = rows_of(one.trajectory, group_id=one.question.id)
    return [_output(row, one, engine.experts(row.input_ids), timing, told) for row in made]


def _output(row: Row, one: Played, experts: Any, timing: AgentLoopMetrics, told: Mapping[str, Any]) -> AgentLoopOutput:
    first = row.loss_mask.index(1)
    return AgentLoopOutput(
        prompt_ids=row.input_ids[:first],
        response_ids=row.input_ids[first:],
        response_mask=row.loss_mask[first:],
        response_logprobs=row.logprobs[first:],
        routed_experts=experts,
        reward_score=one.reward.total,
        num_turns=one.outcome.turns,
        metrics=timing,
        extra_fields=dict(told),
    )


def _told(one: Played) -> dict[str, float]:
    """The episode's measures under names that every episode has: verl makes a column of each."""
    return {"prune_accuracy": 1.0, **measures([one])}


def _why(ended: Ended) -> str:
    if isinstance(ended, ContextAgentError):
        return f": {ended}"
    return f": {ended.end.error}" if ended.end is not None and ended.end.error else ""
