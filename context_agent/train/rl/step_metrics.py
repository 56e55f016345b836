"""The metrics of a step's episodes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

from context_agent.harness.tools import SPAWN
from context_agent.policies.tokens.engines import Finish
from context_agent.policies.tokens.prompt import calls
from context_agent.train.advantages import EpisodeAdvantages
from context_agent.train.batches import WeightedRow, trained_tokens
from context_agent.train.parl import delegation_metrics
from context_agent.train.rl.rollouts import PlayedEpisodes
from context_agent.train.rl.scoring import ScoredEpisode, ScoredEpisodes


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
