"""The scores of a step's episodes by gold, by a judge, or by both, and means over the episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Protocol

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.eval.gold import Gold, gold_of, has_gold
from context_agent.harness.tools import SPAWN
from context_agent.harness.trajectory import Trajectory
from context_agent.retrieval.corpus import Corpus
from context_agent.train.config import ParlConfig
from context_agent.train.curriculum import Curriculum
from context_agent.train.outcome import EpisodeOutcome, measure_outcome
from context_agent.train.parl import delegation_metrics, delegation_of, with_parl
from context_agent.train.rewards import EpisodeRewardTerms, RewardConfig, compute_reward
from context_agent.train.rl.rollouts import EpisodeResult, PlayedEpisodes, RolloutRequest, is_complete
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """An episode with its outcome and its reward.

    Attributes:
        question: The question.
        trajectory: The record of the episode.
        outcome: The measures of the episode.
        reward: The reward with its terms.
        demonstrated: True if an expert played the episode instead of the policy.
    """

    question: Question
    trajectory: Trajectory
    outcome: EpisodeOutcome
    reward: EpisodeRewardTerms
    demonstrated: bool = False

    @property
    def id(self) -> str:
        """Id of the trajectory."""
        return self.trajectory.header.id


@dataclass(frozen=True, slots=True)
class ScoredEpisodes:
    """The episodes of a step that can be trained on.

    Attributes:
        episodes: The episodes.
        metrics: Metrics of the judge, and of the episodes that cannot be trained on.
    """

    episodes: tuple[ScoredEpisode, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """The judge's terms for the episodes of a step.

    Attributes:
        scores: The term of each episode. If the episode has no verdict, it is None.
        metrics: The metrics of the judge.
        why: The reasons for absent verdicts, with the first detail. Empty if no verdict is absent.
    """

    scores: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    why: str = ""


class EpisodeJudge(Protocol):
    """A judge of the rankings of complete episodes (`experimental.judge`)."""

    def judged(self, episodes: Sequence[tuple[Question, Trajectory]]) -> JudgeTerms:
        """Return the judge's terms for the episodes."""


class EpisodeScorer:
    """A scorer that rewards episodes by their gold, by a judge, or by both."""

    def __init__(
        self,
        corpus: Corpus,
        questions: Sequence[Question],
        rewards: RewardConfig | None = None,
        *,
        parl: ParlConfig | None = None,
        curriculum: Curriculum | None = None,
        judge: EpisodeJudge | None = None,
    ) -> None:
        """Set up the scorer.

        Args:
            corpus: The corpus, in which gold is looked up.
            questions: The questions of the run. Without a judge, each must have gold.
            rewards: The reward settings.
            parl: The settings of the reward for sub-agents.
            curriculum: The curriculum, which changes the reward settings during training.
            judge: The judge.

        Raises:
            ConfigError: If there are no questions, or a question can be scored neither by gold nor by a judge.
        """
        without_gold = [question.id for question in questions if not has_gold(question)]
        if (without_gold and judge is None) or not questions:
            raise ConfigError(
                f"{len(without_gold)} of {len(questions)} questions have no gold, for example {without_gold[:3]}. Add "
                "gold to data.questions, or set a judge in [judge]."
            )
        self._corpus, self._judge = corpus, judge
        self._rewards, self._parl = rewards or RewardConfig(), parl or ParlConfig()
        self._curriculum = curriculum or Curriculum()
        self._gold: dict[str, Gold] = {}

    def score(self, step: int, played: PlayedEpisodes, progress: float) -> ScoredEpisodes:
        """Reward the episodes of a step. Aborted episodes are dropped.

        Args:
            step: The step.
            played: The played episodes.
            progress: The share of training that is done, in [0, 1].

        Returns:
            The episodes that can be trained on.

        Raises:
            PolicyError: If none of the sampled episodes can be rewarded.
            DataError: If a reward is not finite.
        """
        pairs = zip(played.requests, played.results, strict=True)
        complete = [(request, result) for request, result in pairs if is_complete(result)]
        if not complete:
            reason = _first_error(played.results)
            raise PolicyError(
                f"none of the {len(played.requests)} episodes of step {step} could be completed{reason}. Check the "
                "corpus and the engine."
            )
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
            raise PolicyError(
                f"no question of step {step} has gold, and {judged.why}. Add gold to data.questions, or check the "
                "judge's server."
            )
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
            raise DataError(f"episode {trajectory.header.id} of question {question.id}: {error}") from error
        if self._parl.on:
            reward = with_parl(reward, outcome, delegation_of(trajectory), self._parl.at(progress))
        return ScoredEpisode(question, trajectory, outcome, reward, request.demonstrated)


def _first_error(results: Sequence[EpisodeResult]) -> str:
    """Return the first error that ended an episode, in parentheses. If there is none, return an empty string."""
    errors = (result.end and result.end.error if isinstance(result, Trajectory) else str(result) for result in results)
    error = next((error for error in errors if error), None)
    return f" ({error.rstrip('.')})" if error else ""


def episode_metrics(episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
    """Return means over episodes: the reward and each of its terms, recall, pruning, turns and calls.

    Recall and precision are means over the episodes of questions with gold. If no question has gold, they are absent.
    If the episodes could start sub-agents, the metrics include `delegation_metrics`.

    Args:
        episodes: The episodes. There must be at least one.

    Returns:
        The metrics by name.
    """
    outcomes = [episode.outcome for episode in episodes]
    with_gold = [outcome for outcome in outcomes if outcome.has_gold]
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
