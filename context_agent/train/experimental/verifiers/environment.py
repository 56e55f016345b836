"""This harness as an environment of verifiers: its tasks, its rollouts and its rewards.

A run file, as `ctx1 train rl` reads it, names the questions, the index, the episode's settings and the rewards.
`SearchTaskset` has a task for each question. `SearchHarness` plays the episode in this process. Every call of the model
goes through verifiers' own server, which records it. `SearchTask` rewards the trajectory. An edit of the context
becomes a new path in verifiers' trace. prime-rl trains on this path as on any other. The module is written for
verifiers 0.4.0.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from context_agent._support.credentials import lent_key
from context_agent._support.question_files import question_of
from context_agent._support.small_files import parse_json
from context_agent.errors import ConfigError, MissingExtraError
from context_agent.eval.gold import gold_of, has_gold
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.chat import ChatPolicy
from context_agent.retrieval.corpus import Corpus
from context_agent.train.agents import agent_of
from context_agent.train.config import RunConfig
from context_agent.train.data import open_data
from context_agent.train.experimental.verifiers.traces import PLUGIN, RECORD, record_of, task_fields, trajectory_of
from context_agent.train.outcome import is_aborted, measure_outcome
from context_agent.train.rewards import compute_reward
from context_agent.train.rl.rollouts import RolloutRequest, play_episode
from context_agent.train.rl.scoring import ScoredEpisode, episode_metrics
from context_agent.train.run_file import read_run
from context_agent.types import Question

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise MissingExtraError(error.name or "verifiers", "verifiers") from None


LONGEST_REPLY_SECONDS = 3600.0
"""Seconds after which a call fails whose server is gone. verifiers has its own timeouts for rollouts."""


class SearchTasksetConfig(vf.TasksetConfig):  # type: ignore[misc, unused-ignore]  # Any where verifiers is not installed
    """The configuration of a taskset.

    Attributes:
        run: The path of a run file.
        split: The split of the run's questions that becomes tasks.
    """

    run: str = ""
    split: Literal["train", "dev"] = "train"


class SearchData(vf.TaskData):  # type: ignore[misc, unused-ignore]
    """The data of a task.

    Attributes:
        run: The path of the run file, which names the corpus.
        question: The question as JSON.
    """

    run: str
    question: str


class SearchTask(vf.Task[SearchData, vf.State, vf.TaskConfig]):  # type: ignore[misc, unused-ignore]
    """A question with its rewards."""

    @property
    def key(self) -> str:
        """Id of the question. The questions of a run have different ids."""
        return str(self.data.id)

    @vf.reward  # type: ignore[untyped-decorator, unused-ignore]
    async def episode(self, trace: vf.Trace) -> float:
        """Return the reward of `ctx1 train rl` at the end of its curriculum.

        If verifiers stopped the episode, return the reward of an episode that a limit ended.
        """
        scored = _scored(self.data, trace)
        return _opened(self.data.run)[0].rewards.truncated if scored is None else scored.reward.total

    @vf.metric  # type: ignore[untyped-decorator, unused-ignore]
    async def measures(self, trace: vf.Trace) -> dict[str, float]:
        """Return the terms of the reward, and recall, pruning, turns and calls."""
        scored = _scored(self.data, trace)
        return {} if scored is None else episode_metrics([scored]) | dict(scored.reward.terms)


class SearchTaskset(vf.Taskset[SearchTask, SearchTasksetConfig]):  # type: ignore[misc, unused-ignore]
    """The questions of a run file that have gold."""

    def load(self) -> Iterable[SearchTask]:
        """Yield a task for each question.

        Yields:
            The tasks.

        Raises:
            ConfigError: If no run file is set, or verifiers cannot carry out the run.
        """
        if not self.config.run:
            raise ConfigError("the taskset needs a run file. Set env.taskset.run to its path.")
        path = str(Path(self.config.run).resolve())
        _, _, questions = _opened(path)
        for question in questions[self.config.split]:
            row = json.dumps(asdict(question), ensure_ascii=False)
            yield SearchTask(SearchData(**task_fields(question), run=path, question=row), self.config.task)


class SearchHarnessConfig(vf.HarnessConfig):  # type: ignore[misc, unused-ignore]
    """The configuration of the harness.

    Attributes:
        id: The id of the environment.
        tools: The form in which the model calls tools: natively, or as text.
    """

    id: str = PLUGIN
    tools: Literal["native", "text"] = "native"


class SearchHarness(vf.Harness[SearchHarnessConfig]):  # type: ignore[misc, unused-ignore]
    """A harness that plays an episode in this process. The run file sets the profile, the window and the limits."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # noqa: PLR0917 - verifiers passes them by position
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: SearchData,
    ) -> vf.ProgramResult:
        """Play the episode, and store its trajectory in the trace's `info`.

        If a server or the corpus ends the episode, the program's result is a failure.
        """
        run, corpus, _ = _opened(data.run)
        with lent_key(secret) as variable:
            policy = ChatPolicy(
                ctx.model,
                base_url=endpoint,
                api_key_env=variable,
                max_tokens=run.engine.max_tokens,
                tools=self.config.tools,
                seeded=False,
                timeout=LONGEST_REPLY_SECONDS,
                deadline=None,
            )
            with agent_of(run, corpus, policy) as agent:
                result = await play_episode(agent, RolloutRequest(_question(data), run.seed, trace.id))
            await policy.aclose()
        if not isinstance(result, Trajectory):
            return vf.ProgramResult(1, "", str(result))
        trace.info[RECORD] = record_of(result)
        if is_aborted(result):
            return vf.ProgramResult(1, "", (result.end and result.end.error) or "the episode was aborted")
        return vf.ProgramResult(0, "", "")


def load_environment(run: str | Path, *, split: Literal["train", "dev"] = "train", **agent: Any) -> vf.Env:
    """Load the environment of a run file.

    The plugin in examples/verifiers must be on the import path, because verifiers finds environments by the name of a
    module.

    Args:
        run: The path of the run file.
        split: The questions that become tasks.
        agent: Fields of verifiers' `AgentConfig`, such as `max_turns`.

    Returns:
        The environment.
    """
    seat = {"runtime": {"type": "subprocess"}, **agent, "harness": {"id": PLUGIN, **agent.get("harness", {})}}
    taskset = SearchTasksetConfig(id=PLUGIN, run=str(run), split=split)
    return vf.load_environment(vf.SingleAgentEnvConfig(taskset=taskset, agent=seat))


def _question(data: SearchData) -> Question:
    return question_of(parse_json(data.question), 0, f"task {data.id}")


def _scored(data: SearchData, trace: vf.Trace) -> ScoredEpisode | None:
    """Return the episode with its reward. If it was not played to its end, return None."""
    trajectory = trajectory_of({"id": trace.id, "info": trace.info})
    if trajectory is None or is_aborted(trajectory):
        return None
    run, corpus, _ = _opened(data.run)
    question = _question(data)
    outcome = measure_outcome(trajectory, question, gold_of(question, corpus))
    return ScoredEpisode(
        question, trajectory, outcome, compute_reward(outcome, run.curriculum.rewards(run.rewards, 1.0))
    )


@lru_cache(maxsize=1)
def _opened(path: str) -> tuple[RunConfig, Corpus, dict[str, list[Question]]]:
    """Return a run, its corpus and its questions. A process opens them once and closes them at exit."""
    run = read_run(path)
    _refuse_unsupported(run)
    stack = ExitStack()
    atexit.register(stack.close)
    material = stack.enter_context(open_data(run.data, print))
    questions = {"train": material.questions, "dev": material.dev}
    rewarded = {split: list(filter(has_gold, part)) for split, part in questions.items()}
    return run, material.corpus, rewarded


def _refuse_unsupported(run: RunConfig) -> None:
    """Raise `ConfigError` if the reward of a single trace cannot express a setting of the run."""
    lacking = {
        "rewards.judge": run.rewards.judge != 0,
        "rewards.gamma": run.rewards.gamma != 1,
        "[parl]": run.parl.on,
        "episodes.searchers": run.episodes.searchers is not None,
    }
    if wrong := [name for name, unsupported in lacking.items() if unsupported]:
        raise ConfigError(f"verifiers rewards an episode by gold alone. Remove {', '.join(wrong)} from the run file.")


__all__ = ["SearchHarness", "SearchTaskset", "load_environment"]
