"""Rollouts of a step: which episodes a step asks for, how they are played, and how they are scored.

The questions of a step and the seeds of its episodes depend on the settings and the step alone. A run that was
interrupted therefore samples what it would have sampled, as far as the sampling engine is deterministic.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Protocol, TypeGuard

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, ContextAgentError, DataError, PolicyError
from context_agent.eval.gold import Gold, gold_of
from context_agent.harness.tools import SPAWN
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.policies.tokens.engines import BatchingEngine, Finish
from context_agent.policies.tokens.prompt import calls
from context_agent.pruning.budget import Budget
from context_agent.retrieval.corpus import Corpus
from context_agent.train.advantages import EpisodeAdvantages
from context_agent.train.curriculum import Curriculum, RolloutConfig, draw_questions
from context_agent.train.judge.judge import JudgePool, JudgeTerms, has_gold
from context_agent.train.parl import ParlConfig, delegation_metrics, delegation_of, with_parl
from context_agent.train.rewards import (
    EpisodeOutcome,
    EpisodeRewardTerms,
    RewardConfig,
    compute_reward,
    is_aborted,
    measure_outcome,
)
from context_agent.train.rows import WeightedRow, trained_tokens
from context_agent.types import Question

SEED_STRIDE = 1_000_003
"""Distance between the seeds of two steps: no two steps share one."""
DEV_METRICS = (
    *("reward", "recall", "precision", "trajectory_recall", "prune_accuracy"),
    *("pruned", "pruning", "finished", "turns", "searches"),
    *("spawning", "searchers", "searchers_finished", "critical_steps"),
)
SAVED_DEV_EPISODES = 4
"""Trajectories saved of each evaluation and temperature, for `ctx1 view`."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """An episode to play: its question, its sampling seed, and the id of its trajectory.

    - `demonstrated`: an expert has played it, and the policy does not.
    - `budget`: the window; None for the agent's.
    """

    question: Question
    seed: int
    episode: str
    demonstrated: bool = False
    budget: Budget | None = None


EpisodeResult = Trajectory | ContextAgentError
"""The trajectory of an episode, or the error that kept it from starting."""


@dataclass(frozen=True, slots=True)
class PlayedEpisodes:
    """The requested episodes of a step with their results, in the same order. `metrics` are about the playing."""

    requests: Sequence[RolloutRequest]
    results: Sequence[EpisodeResult]
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


def played_together(first: PlayedEpisodes, second: PlayedEpisodes) -> PlayedEpisodes:
    """Both sets of episodes as one."""
    return PlayedEpisodes(
        [*first.requests, *second.requests],
        [*first.results, *second.results],
        first.seconds + second.seconds,
        {**second.metrics, **first.metrics},
    )


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """An episode with its outcome and its reward. `demonstrated`: an expert played it, not the policy."""

    question: Question
    trajectory: Trajectory
    outcome: EpisodeOutcome
    reward: EpisodeRewardTerms
    demonstrated: bool = False

    @property
    def id(self) -> str:
        """The id of the trajectory."""
        return self.trajectory.header.id


class RolloutSource(Protocol):
    """Where the episodes of a step come from: played on request (`Rollouts`), or ahead of time (`AsyncRollouts`)."""

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return the episodes that a step asks for on this rank."""

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return the episodes of `count` further questions of a step, after `first` earlier ones; fewer if none are
        left.
        """

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Return the episodes that the step trains on; blocks until they are there."""

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return what is known of an update's rows."""

    def checkpointed(self) -> None:
        """Called when a checkpoint is written: what no kept checkpoint needs may be dropped."""


def group_of(episode: str) -> str:
    """Return the group in an episode's id: the episodes of one question in one step."""
    return episode.rpartition("-")[0]


def step_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions of a step, in order."""
    admitted = curriculum.admitted(questions, step / config.steps)
    return draw_questions(admitted, config.groups, seed=config.seed, step=step)


def further_questions(
    step: int, questions: Sequence[Question], curriculum: Curriculum, config: RolloutConfig
) -> list[Question]:
    """Return the questions that may take the place of those of a step, in the order in which they do."""
    drawn = {question.id for question in step_questions(step, questions, curriculum, config)}
    others = [q for q in curriculum.admitted(questions, step / config.steps) if q.id not in drawn]
    return random.Random(f"{config.seed}:{step}:refill").sample(others, len(others))


def episode_request(
    question: Question, config: RolloutConfig, step: int, group: int, rollout: int, *, budget: Budget | None = None
) -> RolloutRequest:
    """Return the request of one rollout of the question in group `group` of a step; its seed and its id are unique."""
    seed = (config.seed + step + 1) * SEED_STRIDE + group * config.rollouts + rollout
    return RolloutRequest(question, seed, f"{step:05d}-{group:04d}-{rollout:03d}", budget=budget)


async def play_episodes(
    agent: SearchAgent, requests: Sequence[RolloutRequest], concurrency: int
) -> list[EpisodeResult]:
    """Return the results of the requests, in order; at most `concurrency` episodes run at a time.

    An episode that fails before it starts has its error as its result and stops no other. An engine that batches is
    told how many episodes are running, so that batches do not depend on timing.
    """
    waiting = iter(enumerate(requests))
    results: dict[int, EpisodeResult] = {}

    async def work() -> None:
        try:
            for index, request in waiting:
                results[index] = await play_episode(agent, request)
        finally:
            _expect(agent, -1)

    workers = min(concurrency, len(requests))
    _expect(agent, workers)
    await asyncio.gather(*(work() for _ in range(workers)))
    return [results[index] for index in range(len(requests))]


async def play_episode(agent: SearchAgent, request: RolloutRequest) -> EpisodeResult:
    """Return the result of one episode; its trajectory has the request's id. Raises only `ConfigError`."""
    question = request.question
    try:
        result = await agent.asearch(
            question.question, question_id=question.id, seed=request.seed, budget=request.budget
        )
    except ConfigError:
        raise
    except ContextAgentError as error:
        return error
    trajectory = result.trajectories[0]
    return replace(trajectory, header=replace(trajectory.header, id=request.episode))


def is_complete(result: EpisodeResult) -> TypeGuard[Trajectory]:
    """Return whether an episode was ended by its policy or a limit, so that it can be rewarded."""
    return isinstance(result, Trajectory) and not is_aborted(result)


class Rollouts:
    """Plays the episodes of a step when they are asked for: a synchronous `RolloutSource`, one for each rank."""

    def __init__(
        self,
        agent: SearchAgent,
        questions: Sequence[Question],
        config: RolloutConfig,
        *,
        curriculum: Curriculum | None = None,
        demonstration_count: Callable[[Question], int] = lambda _: 0,
        budget_of: Callable[[int], Budget | None] = lambda _: None,
        rank: int = 0,
        ranks: int = 1,
        play: Callable[[Sequence[RolloutRequest]], list[EpisodeResult]] | None = None,
    ) -> None:
        """The agent's policy must record its token calls, as `TokenPolicy` does.

        `play` plays requests elsewhere than in this process. `demonstration_count` says how many episodes of a
        question's group are demonstrations, which are not played. `budget_of` says in which window the episodes of a
        group are played, None for the agent's. Each rank plays every `ranks`-th group, so an advantage never needs
        another rank. Raises `ConfigError` for an agent that runs several episodes a question, and for a step with fewer
        groups than ranks.
        """
        if agent.rollouts != 1:
            raise ConfigError(f"training plays one episode per request; the agent has rollouts={agent.rollouts}: use 1")
        if config.groups < ranks:
            raise ConfigError(
                f"rollouts.groups = {config.groups} cannot be shared by {ranks} ranks: use at least {ranks} groups"
            )
        self._agent, self._questions, self._config = agent, list(questions), config
        self._curriculum, self._demonstration_count = curriculum or Curriculum(), demonstration_count
        self._rank, self._ranks = rank, ranks
        self._budget_of = budget_of
        self._play = play or self._play_here

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return every rollout of this rank's questions of the step that is to be sampled."""
        questions = step_questions(step, self._questions, self._curriculum, self._config)
        groups = range(self._rank, len(questions), self._ranks)
        return [request for group in groups for request in self._group(step, group, questions[group])]

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return every rollout of further questions of this rank, whose groups are numbered after those of the step."""
        others = further_questions(step, self._questions, self._curriculum, self._config)
        places = range(self._rank + first * self._ranks, len(others), self._ranks)[:count]
        groups = self._config.groups
        return [request for place in places for request in self._group(step, groups + place, others[place])]

    def _group(self, step: int, group: int, question: Question) -> list[RolloutRequest]:
        budget = self._budget_of(group)
        return [
            episode_request(question, self._config, step, group, rollout, budget=budget)
            for rollout in range(self._config.rollouts - self._demonstration_count(question))
        ]

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Plays the requests, concurrently."""
        started = time.perf_counter()
        results = self._play(requests)
        return PlayedEpisodes(requests, results, time.perf_counter() - started)

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Nothing beyond what the loop measures."""
        return {}

    def checkpointed(self) -> None:
        """Nothing to drop."""

    def _play_here(self, requests: Sequence[RolloutRequest]) -> list[EpisodeResult]:
        return asyncio.run(play_episodes(self._agent, requests, self._config.concurrency))


@dataclass(frozen=True, slots=True)
class ScoredEpisodes:
    """The episodes of a step that can be trained on. `metrics` are about those that cannot, and about the judge."""

    episodes: tuple[ScoredEpisode, ...]
    metrics: Mapping[str, float]


class EpisodeScorer:
    """Rewards episodes by their gold, by a judge, or both."""

    def __init__(
        self,
        corpus: Corpus,
        questions: Sequence[Question],
        rewards: RewardConfig | None = None,
        *,
        parl: ParlConfig | None = None,
        curriculum: Curriculum | None = None,
        judge: JudgePool | None = None,
    ) -> None:
        """Without a judge every question needs gold. Raises `ConfigError` for questions that nothing can score."""
        without_gold = [question.id for question in questions if not has_gold(question)]
        if (without_gold and judge is None) or not questions:
            raise ConfigError(
                f"{len(without_gold)} of {len(questions)} questions have no gold, for example {without_gold[:3]}: add "
                f"gold to data.questions, or a judge ([judge])"
            )
        self._corpus, self._judge = corpus, judge
        self._rewards, self._parl = rewards or RewardConfig(), parl or ParlConfig()
        self._curriculum = curriculum or Curriculum()
        self._gold: dict[str, Gold] = {}

    def score(self, step: int, played: PlayedEpisodes, progress: float) -> ScoredEpisodes:
        """Rewards the episodes of a step; `progress` is the share of training that is done.

        Aborted episodes are dropped. Raises `PolicyError` if none of the step's episodes can be rewarded.
        """
        pairs = zip(played.requests, played.results, strict=True)
        complete = [(request, result) for request, result in pairs if is_complete(result)]
        if not complete:
            reason = _first_error(played.results)
            raise PolicyError(f"step {step}: none of its {len(played.requests)} episodes could be completed{reason}")
        judged = (
            JudgeTerms((None,) * len(complete))
            if self._judge is None
            else self._judge.judged([(request.question, result) for request, result in complete])
        )
        rewards = self._curriculum.rewards(self._rewards, progress)
        scored = tuple(
            self._score_episode(request, trajectory, rewards, verdict, progress)
            for (request, trajectory), verdict in zip(complete, judged.scores, strict=True)
            if has_gold(request.question) or verdict is not None
        )
        if all(episode.demonstrated for episode in scored):
            raise PolicyError(f"step {step}: none of its questions has gold, and {judged.why}")
        metrics = {"episodes_aborted": float(len(played.requests) - len(complete)), "beta": rewards.beta}
        if self._judge is not None:
            metrics |= {**judged.metrics, "episodes_unjudged": float(len(complete) - len(scored))}
        return ScoredEpisodes(scored, metrics)

    def _score_episode(
        self,
        request: RolloutRequest,
        trajectory: Trajectory,
        rewards: RewardConfig,
        verdict: float | None,
        progress: float,
    ) -> ScoredEpisode:
        question = request.question
        if question.id not in self._gold:
            self._gold[question.id] = gold_of(question, self._corpus)
        outcome = measure_outcome(trajectory, question, self._gold[question.id], judged=verdict)
        try:
            reward = compute_reward(outcome, rewards)
        except DataError as error:
            raise DataError(f"episode {trajectory.header.id}, question {question.id}: {error}") from error
        if self._parl.on:
            reward = with_parl(reward, outcome, delegation_of(trajectory), self._parl.at(progress))
        return ScoredEpisode(question, trajectory, outcome, reward, request.demonstrated)


def episode_metrics(episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
    """Means over episodes: the reward and each of its terms, recall, pruning, turns and calls.

    Recall and precision are means over the episodes whose question has gold, and absent if none has. Metrics of
    sub-agents (`delegation_metrics`) are present if the episodes could start some.
    """
    outcomes = [episode.outcome for episode in episodes]
    with_gold = [outcome for outcome in outcomes if outcome.golden]
    totals = [episode.reward.total for episode in episodes]
    metrics = {
        "reward": fmean(totals),
        "reward_deviation": pstdev(totals),
        "answered": fmean(float(bool(outcome.answered)) for outcome in outcomes),
        "finished": fmean(float(outcome.ending == "finished") for outcome in outcomes),
        "turns": fmean(outcome.turns for outcome in outcomes),
        "calls": fmean(sum(outcome.calls) for outcome in outcomes),
        "searches": fmean(len(outcome.queries) for outcome in outcomes),
        "pruned": fmean(outcome.pruned for outcome in outcomes),
        "pruning": fmean(float(outcome.pruned > 0) for outcome in outcomes),
        "mistakes": fmean(outcome.mistakes for outcome in outcomes),
    }
    if any(SPAWN in episode.trajectory.header.profile.tools for episode in episodes):
        metrics |= delegation_metrics([episode.trajectory for episode in episodes])
    if with_gold:
        metrics["recall"] = fmean(outcome.recall for outcome in with_gold)
        metrics["precision"] = fmean(outcome.precision for outcome in with_gold)
        metrics["trajectory_recall"] = fmean(outcome.seen for outcome in with_gold)
    if pruned := sum(outcome.pruned for outcome in with_gold):
        metrics["prune_accuracy"] = 1 - sum(outcome.pruned_gold for outcome in with_gold) / pruned
    terms = episodes[0].reward.terms
    return metrics | {f"term/{name}": fmean(episode.reward.terms[name] for episode in episodes) for name in terms}


def demonstration_metrics(
    episodes: Sequence[ScoredEpisode], advantages: EpisodeAdvantages, rows: Sequence[WeightedRow]
) -> dict[str, float]:
    """Return how many demonstrations the groups of a step have and how many are trained on, with the mean of their
    rewards.

    Empty if there is none.
    """
    demonstrations = [episode for episode in episodes if episode.demonstrated]
    if not demonstrations:
        return {}
    demonstration_rows = [item for item in rows if item.demonstrated]
    return {
        "demonstrations/episodes": float(len(demonstrations)),
        "demonstrations/trained": float(sum(episode.id in advantages.by_episode for episode in demonstrations)),
        "demonstrations/rows": float(len(demonstration_rows)),
        "demonstrations/tokens": float(trained_tokens(demonstration_rows)),
        "demonstrations/reward": fmean(episode.reward.total for episode in demonstrations),
        "demonstrations/recall": fmean(episode.outcome.recall for episode in demonstrations),
    }


def step_metrics(
    played: PlayedEpisodes, scored: ScoredEpisodes, advantages: EpisodeAdvantages, rows: Sequence[WeightedRow]
) -> dict[str, float]:
    """Metrics of a step, by name: those of the sampled episodes, and some of the demonstrations by other names."""
    episodes = [episode for episode in scored.episodes if not episode.demonstrated]
    sampled_rows = [item for item in rows if not item.demonstrated]
    sampled_calls = [call for episode in episodes for call in calls(episode.trajectory)]
    sampled = sum(len(call.output) for call in sampled_calls)
    counts = {
        "groups_equal": len(advantages.equal),
        "episodes_trained": sum(episode.id in advantages.by_episode for episode in episodes),
        "rows": len(sampled_rows),
        "replies_truncated": sum(call.finish == Finish.LENGTH for call in sampled_calls),
        "tokens_sampled": sampled,
        "tokens_trained": trained_tokens(sampled_rows),
    }
    return {
        **episode_metrics(episodes),
        **demonstration_metrics(scored.episodes, advantages, rows),
        **{name: float(count) for name, count in counts.items()},
        **scored.metrics,
        "rollout_seconds": played.seconds,
        "sampled_per_second": sampled / max(played.seconds, 1e-9),
        **played.metrics,
    }


def temperature_name(temperature: float) -> str:
    """Return the name of a temperature in metrics: `greedy` or, for example, `t1`."""
    return "greedy" if temperature == 0 else f"t{temperature:g}"


def dev_metric(temperature: float, name: str) -> str:
    """Return the name under which a metric of an evaluation is logged."""
    return f"dev/{temperature_name(temperature)}/{name}"


class DevEvaluator:
    """Plays the dev questions with the same seeds each time, by one agent for each temperature."""

    def __init__(
        self,
        agents: Mapping[float, SearchAgent],
        questions: Sequence[Question],
        *,
        rewards: RewardConfig,
        concurrency: int,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`rewards` are those at the end of training, so that the figures of different steps compare."""
        self._agents, self._questions, self._rewards = agents, list(questions), rewards
        self._concurrency, self._seed, self._folder = concurrency, seed, folder

    def evaluate(self, update: int) -> dict[str, float]:
        """`dev/greedy/recall` and so on: means over episodes. `aborted` counts aborted episodes."""
        metrics: dict[str, float] = {}
        for temperature, agent in self._agents.items():
            measured = self._evaluate_agent(agent, update, temperature_name(temperature))
            metrics |= {dev_metric(temperature, key): value for key, value in measured.items()}
        return metrics

    def _evaluate_agent(self, agent: SearchAgent, update: int, name: str) -> dict[str, float]:
        requests = [
            RolloutRequest(question, self._seed + index, f"{name}-{question.id}")
            for index, question in enumerate(self._questions)
        ]
        results = asyncio.run(play_episodes(agent, requests, self._concurrency))
        scored = []
        for request, result in zip(requests, results, strict=True):
            if is_complete(result):
                outcome = measure_outcome(result, request.question, gold_of(request.question, agent.corpus))
                reward = compute_reward(outcome, self._rewards)
                scored.append(ScoredEpisode(request.question, result, outcome, reward))
        self._save(scored, update)
        means = episode_metrics(scored) if scored else {}
        selected = {key: means[key] for key in DEV_METRICS if key in means}
        return selected | {"aborted": float(len(requests) - len(scored))}

    def _save(self, episodes: Sequence[ScoredEpisode], update: int) -> None:
        if self._folder is None:
            return
        for episode in episodes[:SAVED_DEV_EPISODES]:
            name = episode.trajectory.header.id.replace("/", "_")
            write(episode.trajectory, self._folder / f"dev-{update:05d}" / f"{name}.jsonl")


def _expect(agent: SearchAgent, episodes: int) -> None:
    engine = getattr(agent.policy, "engine", None)
    if isinstance(engine, BatchingEngine):
        engine.expect(episodes)


def _first_error(results: Sequence[EpisodeResult]) -> str:
    """Return the first error that ended an episode, in parentheses."""
    errors = (result.end and result.end.error if isinstance(result, Trajectory) else str(result) for result in results)
    error = next((error for error in errors if error), None)
    return f" ({error})" if error else ""
