"""Demonstrations in the groups of reinforcement learning: an expert's episodes beside those of the policy.

A group whose episodes all fail has equal rewards and teaches nothing. A demonstration of its question, rewarded by the
same code, is its better episode. It counts in the group's mean, as in LUFFY (arXiv 2504.14945), unless
`rollouts.baseline_members` is `sampled`.

No sampler's probability exists for its tokens. LUFFY sets it to 1, so that the ratio is the policy's own probability p:
the replies that the policy does not know yet, which it should learn, count least, and have to be weighed up again. Here
the denominator is p itself, so the ratio is 1, and a demonstration's tokens have the loss -A log p for an advantage A
above 0, and none for one below: self-imitation learning (arXiv 1806.05635), with the group's mean as the value.

The bias: this is not the gradient of the policy's expected reward. It is imitation, weighted by how much better the
expert is than the group. It vanishes as the policy comes to earn the same reward. A demonstration that counts in the
mean raises it, and so lowers the advantages of the sampled episodes, also in groups that would have taught without it.
With `sampled` the episodes of the policy are compared with each other alone.
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
from context_agent.train.outcome import is_aborted
from context_agent.train.rl.rollouts import PlayedEpisodes, RolloutRequest, group_of, is_complete
from context_agent.train.rl.scoring import ScoredEpisode
from context_agent.train.rows import TrainingRow, demonstrated_rows
from context_agent.types import Question


class Demonstrations:
    """The demonstrations of a run's questions, which take the place of sampled episodes in their groups."""

    def __init__(self, files: Mapping[str, Sequence[Path]], renderer: TokenRenderer, config: RolloutConfig) -> None:
        """`files` are whole trajectories by question id; a group takes the first `config.demonstrations` of them."""
        self._renderer, self._config = renderer, config
        self._files = {question: paths[: config.demonstrations] for question, paths in files.items()}

    def count(self, question: Question) -> int:
        """Return how many episodes of the question's group are demonstrations."""
        return len(self._files.get(question.id, ()))

    def join(self, played: PlayedEpisodes) -> PlayedEpisodes:
        """Return the played episodes with the demonstrations of their groups, and the number of groups that have none.

        A group of which no sampled episode was completed gets none: there is nothing to compare it with. Raises
        `TrajectoryError` for a file that is no longer readable.
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
        """Return the rows that teach the model the demonstration's actions."""
        return demonstrated_rows(episode.trajectory, self._renderer, group_id=episode.question.id)

    def _episodes(self, group: str, question: Question) -> list[tuple[RolloutRequest, Trajectory]]:
        """Return the group's demonstrations under the ids of the rollouts that they replace: its last."""
        episodes = []
        for number, path in enumerate(self._files.get(question.id, ()), self._config.rollouts - self.count(question)):
            request = RolloutRequest(question, 0, f"{group}-{number:03d}", demonstrated=True)
            trajectory = read(path)
            episodes.append((request, replace(trajectory, header=replace(trajectory.header, id=request.episode))))
        return episodes


def open_demonstrations(
    run: RunConfig, renderer: TokenRenderer, questions: Sequence[Question], note: Notify
) -> Demonstrations:
    """Return the run's demonstrations.

    An unreadable, cut or aborted trajectory is reported and skipped; one of another question is counted. Raises
    `DataError` for one of another profile or tokenizer or of a larger window, and if no question has any.
    """
    files: dict[str, list[Path]] = {}
    texts = {question.id: question.question for question in questions}
    unmatched = 0
    for path in stored_trajectories(run.data):
        if (header := _whole_header(path, note)) is None:
            continue
        question = header.question_id or ""
        # Ids of two sets of questions may collide.
        if texts.get(question) != header.question:
            unmatched += 1
            continue
        _check_header(header, path, run, renderer)
        files.setdefault(question, []).append(path)
    if not files:
        raise DataError(
            f"no trajectory of data.trajectories demonstrates a question of this run; {unmatched} are of other "
            f"questions: make some with `ctx1 synth trajectories`, or set rollouts.demonstrations to 0"
        )
    note(f"{len(files):,} of {len(texts):,} questions have demonstrations; {unmatched:,} trajectories are of others")
    return Demonstrations(files, renderer, run.rollouts)


def _whole_header(path: Path, note: Notify) -> Header | None:
    """Return the header of a trajectory that can be rewarded; None, with a message, for any other."""
    try:
        trajectory = read(path)
        trajectory.verify()
    except TrajectoryError as error:
        note(f"skipped: {error}")
        return None
    if is_aborted(trajectory):
        note(f"skipped: {path} has no end that can be rewarded")
        return None
    return trajectory.header


def _check_header(header: Header, path: Path, run: RunConfig, renderer: TokenRenderer) -> None:
    """Raise `DataError` for an episode of a harness that the run's episodes do not have."""
    profile, window = episode_profile(run).name, run.episodes.window
    differences = [
        (header.profile.name != profile, f"profile {header.profile.name!r} instead of {profile!r}"),
        (header.counter != renderer.counter_name, f"tokenizer {header.counter!r} instead of {renderer.counter_name!r}"),
        (header.budget.window > window, f"a window of {header.budget.window:,} tokens instead of at most {window:,}"),
    ]
    if wrong := [text for differs, text in differences if differs]:
        raise DataError(
            f"the demonstration {path} was played with {', '.join(wrong)}: make demonstrations with the settings of "
            f"this run (`ctx1 synth trajectories`), or set rollouts.demonstrations to 0"
        )
