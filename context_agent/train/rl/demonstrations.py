"""Demonstrations in reinforcement learning: a group contains episodes of an expert as well as of the policy.

If all episodes of a group fail, their rewards are equal and the group teaches nothing. A demonstration of its question,
rewarded by the same code, adds a better episode. It counts in the group's mean, as in LUFFY (arXiv 2504.14945), unless
`rollouts.baseline_members` is `sampled`.

No sampler has a probability for the tokens of a demonstration. LUFFY sets it to 1, so the ratio is the policy's own
probability p. Replies that the policy does not know yet, which it should learn, then count least. Here the denominator
is p itself, so the ratio is 1. If the advantage A is positive, the loss of each token is -A log p. If it is negative,
there is no loss. This is self-imitation learning (arXiv 1806.05635) with the group's mean as the value.

This gradient is biased. It is not the gradient of the policy's expected reward, but imitation of the expert, weighted
by the expert's advantage over the group. When the policy earns the same reward as the expert, the bias vanishes. If a
demonstration counts in the mean, it raises the mean and lowers the advantages of sampled episodes. This happens even in
groups that would teach something without a demonstration. With `sampled`, the policy's episodes are compared only with
each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from context_agent.errors import DataError, TrajectoryError
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.train.agents import episode_profile
from context_agent.train.config import Notify, RolloutConfig, RunConfig
from context_agent.train.lessons import stored_trajectories
from context_agent.train.lineage import base_model_name, tokenizer_names
from context_agent.train.outcome import is_aborted
from context_agent.train.rl.rollouts import PlayedEpisodes, RolloutRequest, group_of, is_complete
from context_agent.train.rl.scoring import ScoredEpisode
from context_agent.train.row_files import RowDigest
from context_agent.train.rows import TrainingRow, demonstrated_rows
from context_agent.types import Question


class Demonstrations:
    """The demonstrations of a run's questions. They replace sampled episodes in their groups."""

    def __init__(
        self, files: Mapping[str, Sequence[Path]], renderer: TokenRenderer, config: RolloutConfig, *, turns: int
    ) -> None:
        """Choose the demonstrations of each question.

        Args:
            files: Complete trajectories by question id. A group takes the first `config.demonstrations` of them.
            renderer: The renderer of the model that learns.
            config: The rollout settings.
            turns: The turn limit of the run. The reward compares the turns of a demonstration with it, as it does for
                the sampled episodes of the group.
        """
        self._renderer, self._config, self._turns = renderer, config, turns
        self._files = {question: paths[: config.demonstrations] for question, paths in files.items()}
        self.digest = ""
        """A digest of the rows of all demonstrations, if `open_demonstrations` found them."""

    def count(self, question: Question) -> int:
        """Return the number of demonstrations in the question's group."""
        return len(self._files.get(question.id, ()))

    def join(self, played: PlayedEpisodes) -> PlayedEpisodes:
        """Add the demonstrations of the played groups.

        If no sampled episode of a group was completed, the group gets no demonstrations, because there is no episode to
        compare them with.

        Args:
            played: The played episodes of a step.

        Returns:
            The episodes with the demonstrations, and a metric that counts the groups without any.

        Raises:
            TrajectoryError: If a file is no longer readable.
        """
        pairs = zip(played.requests, played.results, strict=True)
        groups = {group_of(request.episode): request.question for request, result in pairs if is_complete(result)}
        additions = [pair for group, question in groups.items() for pair in self._episodes(group, question)]
        without = sum(not self.count(question) for question in groups.values())
        return replace(
            played,
            requests=[*played.requests, *(request for request, _ in additions)],
            results=[*played.results, *(trajectory for _, trajectory in additions)],
            metrics={**played.metrics, "demonstrations/groups_without": float(without)},
        )

    def rows(self, episode: ScoredEpisode) -> list[TrainingRow]:
        """Return the rows that teach the model the actions of a demonstration."""
        return demonstrated_rows(episode.trajectory, self._renderer, group_id=episode.question.id)

    def _episodes(self, group: str, question: Question) -> list[tuple[RolloutRequest, Trajectory]]:
        """Return the group's demonstrations. They replace the last rollouts of the group and have their ids."""
        episodes = []
        for number, path in enumerate(self._files.get(question.id, ()), self._config.rollouts - self.count(question)):
            request = RolloutRequest(question, 0, f"{group}-{number:03d}", demonstrated=True)
            trajectory = read(path)
            limits = {**trajectory.header.limits, "turns": self._turns}
            header = replace(trajectory.header, id=request.episode, limits=limits)
            episodes.append((request, replace(trajectory, header=header)))
        return episodes


def open_demonstrations(
    run: RunConfig, renderer: TokenRenderer, questions: Sequence[Question], note: Notify
) -> Demonstrations:
    """Find the demonstrations of a run's questions.

    A trajectory that is unreadable, cut or aborted, or that the renderer cannot write, is reported and skipped.
    Trajectories of other questions are counted.

    Args:
        run: The run.
        renderer: The renderer of the model that learns.
        questions: The questions of the run.
        note: A function that receives messages for the user.

    Returns:
        The demonstrations.

    Raises:
        DataError: If no question has a demonstration, or one has another profile, another tokenizer or a larger window
            than the run.
    """
    files: dict[str, list[Path]] = {}
    digest = RowDigest()
    tokenizers = tokenizer_names(renderer.counter_name)
    texts = {question.id: question.question for question in questions}
    unmatched = 0
    for path in stored_trajectories(run.data):
        if (trajectory := _whole_trajectory(path, note)) is None:
            continue
        header = trajectory.header
        question = header.question_id or ""
        # Two sets of questions may use the same ids.
        if texts.get(question) != header.question:
            unmatched += 1
            continue
        _check_header(header, path, run, tokenizers)
        try:
            rows = demonstrated_rows(trajectory, renderer, group_id=question)
        except TrajectoryError as error:
            note(f"skipped: {error}")
            continue
        paths = files.setdefault(question, [])
        paths.append(path)
        if len(paths) <= run.rollouts.demonstrations:
            digest.add(rows)
    if not files:
        raise DataError(
            f"no trajectory of data.trajectories demonstrates a question of this run, and {unmatched} are of other "
            "questions. Make some with `ctx1 synth trajectories`, or set rollouts.demonstrations to 0."
        )
    note(
        f"{len(files):,} of {len(texts):,} questions have demonstrations. {unmatched:,} trajectories are of other "
        "questions."
    )
    demonstrations = Demonstrations(files, renderer, run.rollouts, turns=run.episodes.turns)
    demonstrations.digest = digest.hex()
    return demonstrations


def _whole_trajectory(path: Path, note: Notify) -> Trajectory | None:
    """Return a trajectory that can be rewarded. Report any other trajectory and return None."""
    try:
        trajectory = read(path)
        trajectory.verify()
    except TrajectoryError as error:
        note(f"skipped: {error}")
        return None
    if is_aborted(trajectory):
        note(f"skipped: {path} has no end that can be rewarded")
        return None
    return trajectory


def _check_header(header: Header, path: Path, run: RunConfig, tokenizers: Sequence[str]) -> None:
    """Raise `DataError` if the episode does not fit the run.

    It must have the run's profile, one of the names of the run's tokenizer, and a window no larger than the run's.
    """
    profile, window = episode_profile(run).name, run.episodes.window
    differences = [
        (header.profile.name != profile, f"the profile {header.profile.name!r} instead of {profile!r}"),
        (
            base_model_name(header.counter) not in tokenizers,
            f"the tokenizer {header.counter!r} instead of {' or '.join(map(repr, tokenizers))}",
        ),
        (header.budget.window > window, f"a window of {header.budget.window:,} tokens instead of at most {window:,}"),
    ]
    if wrong := [text for differs, text in differences if differs]:
        raise DataError(
            f"the demonstration {path} was played with {', '.join(wrong)}. Make demonstrations with the settings of "
            "this run (`ctx1 synth trajectories`), or set rollouts.demonstrations to 0."
        )
