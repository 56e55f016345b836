"""Training rows, built from the calls of an episode. This module does not import torch.

A row is one sequence for one forward pass. Calls share a row while each prompt extends the call before it. If an edit
changed the prompt, a new row begins. `loss_mask` marks the sampled ids. Each sampled id is marked in exactly one row.
The ids before it in that row are those that the model saw when it sampled the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from context_agent.errors import TrajectoryError
from context_agent.harness.action_text import ranking_of
from context_agent.harness.tools import flatten_calls
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.prompt import Prompt, TokenRenderer
from context_agent.policies.tokens.recorded_calls import TokenCall, WholeCall, calls, expand
from context_agent.policies.tokens.routed_experts import Experts, pack
from context_agent.pruning.view import ActionTaken
from context_agent.types import Action


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One training sequence. The three lists have the same length.

    Attributes:
        input_ids: The token ids.
        loss_mask: 1 for a sampled id, otherwise 0.
        logprobs: The sampler's natural log-probability of each sampled id, otherwise 0.0.
        episode_id: The episode. Its rows share one advantage.
        group_id: The question. Its episodes form one group.
        policy_version: The oldest version of the weights that sampled ids of the row. This is usually the version of
            the first sampled id. If a run goes back to its checkpoint during the episode, it can be the version of a
            later id.
        experts: The experts that the sampler routed all ids but the last to, packed (`tokens.routed_experts`). Empty if
            they were not recorded.
    """

    input_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    episode_id: str
    group_id: str
    policy_version: str = ""
    experts: str = ""

    @property
    def trained(self) -> int:
        """Number of ids that are trained."""
        return sum(self.loss_mask)


@dataclass(slots=True)
class _GrowingRow:
    """A row to which further calls may be added."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: str = ""
    experts: Experts | None = None

    def add(self, call: WholeCall) -> None:
        """Append the part of the call's prompt that the row lacks, then the call's output."""
        fresh = call.prompt[len(self.ids) :]
        output = call.call.output
        self.version = _older_version(self.version, call.call.version)
        self.ids += [*fresh, *output]
        self.mask += [0] * len(fresh) + [1] * len(output)
        self.logprobs += [*(0.0 for _ in fresh), *call.call.logprobs]
        self.experts = call.experts

    def row(self, episode_id: str, group_id: str) -> TrainingRow:
        """Return the row in its present state."""
        return TrainingRow(self.ids, self.mask, self.logprobs, episode_id, group_id, self.version, pack(self.experts))


_MOST_DIGITS = 18
"""A version with more digits is not an update number. Python refuses to read numbers of more than 4,300 digits."""


def update_number(version: str) -> int | None:
    """Return the update number in a policy version. If the version is not a number, return None."""
    return int(version) if version.isdecimal() and len(version) <= _MOST_DIGITS else None


def _older_version(first: str, second: str) -> str:
    """Return the lower of two update numbers. If either is not a number, return the first."""
    number, other = update_number(first), update_number(second)
    return second if number is not None and other is not None and other < number else first


def rows_of_calls(token_calls: Iterable[TokenCall], *, episode_id: str, group_id: str) -> Iterator[TrainingRow]:
    """Yield the rows of an episode's calls, in order.

    Args:
        token_calls: The calls of the episode.
        episode_id: The id of the episode.
        group_id: The id of its group.

    Yields:
        A row for each sequence of calls that extend each other.

    Raises:
        TrajectoryError: If a call does not continue the calls before it.
    """
    row: _GrowingRow | None = None
    for call in expand(token_calls):
        if row is None or not call.extends:
            if row is not None:
                yield row.row(episode_id, group_id)
            row = _GrowingRow(version=call.call.version)
        row.add(call)
    if row is not None:
        yield row.row(episode_id, group_id)


def sampled_rows(trajectory: Trajectory, *, group_id: str | None = None) -> list[TrainingRow]:
    """Return the rows of an episode that a token policy played.

    Args:
        trajectory: The episode.
        group_id: The group. Defaults to the id of the question, or to the question itself if it has no id.

    Returns:
        The rows, in order.

    Raises:
        TrajectoryError: If another kind of policy played the episode. Use `demonstrated_rows` for such episodes.
    """
    return list(
        rows_of_calls(calls(trajectory), episode_id=trajectory.header.id, group_id=_group_id(trajectory, group_id))
    )


def demonstrated_rows(
    trajectory: Trajectory, renderer: TokenRenderer, *, group_id: str | None = None
) -> list[TrainingRow]:
    """Return rows that teach a model the actions of an episode, as if the model had sampled them.

    The prompts are those that the model would have received for the episode's views. All log-probabilities are 0.
    Sampled episodes use the same code, so supervised training and reinforcement learning see the same sequences.

    Args:
        trajectory: The episode of any policy.
        renderer: The renderer of the model that learns.
        group_id: The group. Defaults to the id of the question, or to the question itself if it has no id.

    Returns:
        The rows, in order.

    Raises:
        TrajectoryError: If the renderer has no form for an action, so that the model would learn another action.
    """
    token_calls = _demonstrated(trajectory, renderer)
    return list(rows_of_calls(token_calls, episode_id=trajectory.header.id, group_id=_group_id(trajectory, group_id)))


def _demonstrated(trajectory: Trajectory, renderer: TokenRenderer) -> Iterator[TokenCall]:
    prompt = Prompt(renderer, trajectory.header.profile)
    actions = (event for event in trajectory.events if isinstance(event, ActionTaken))
    for view, event in zip(trajectory.views(), actions, strict=False):
        ids = prompt.show(view)
        prefix, new = prompt.reused, tuple(ids[prompt.reused :])
        reply = prompt.reply_for(event.action)
        if not _is_read_back(event.action, renderer.parse(reply), trajectory.header.profile.tools):
            raise TrajectoryError(
                f"turn {event.turn} of {trajectory.header.id} cannot be written in the format {renderer.name!r}, which "
                "would be read as another action. Train with another model.renderer."
            )
        prompt.sampled(view, reply)
        yield TokenCall(prefix, new, reply, (0.0,) * len(reply), version=trajectory.header.policy)


def _is_read_back(action: Action, read: Action, tools: Sequence[str]) -> bool:
    """Return True if an action, as it was read from its reply, has the same calls, or ranks as many documents."""
    if not action.calls:
        return not read.calls and len(ranking_of(read)) == len(ranking_of(action))
    calls, read_calls = flatten_calls(action.calls, tools), flatten_calls(read.calls, tools)
    # Formats may leave out optional arguments and blanks.
    return [(call.name, type(call.arguments)) for call in calls] == [
        (call.name, type(call.arguments)) for call in read_calls
    ]


def decay_weights(rows: Sequence[TrainingRow], gamma: float) -> list[list[float]]:
    """Return the weight of each id in an episode's rows: `gamma**(T - i)` for ids sampled at step i of T, otherwise 0.

    A step is a run of consecutive sampled ids.

    Args:
        rows: All rows of one episode, in order.
        gamma: The decay for each step, in (0, 1].

    Returns:
        One list of weights for each row. If `gamma` is 1, the lists are empty.
    """
    if gamma == 1:
        return [[] for _ in rows]
    steps = 0
    steps_by_row = []
    for row in rows:
        row_steps = []
        for before, now in pairwise([0, *row.loss_mask]):
            steps += now > before
            row_steps.append(steps)
        steps_by_row.append(row_steps)
    return [
        [gamma ** (steps - step) * sampled for step, sampled in zip(row_steps, row.loss_mask, strict=True)]
        for row_steps, row in zip(steps_by_row, rows, strict=True)
    ]


def _group_id(trajectory: Trajectory, group_id: str | None) -> str:
    return group_id or trajectory.header.question_id or trajectory.header.question
