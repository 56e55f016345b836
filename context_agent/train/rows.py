"""Training rows, built from the calls of an episode. No torch.

A row is one sequence for one forward pass. Calls share a row while each prompt extends the call before it; a prompt
that an edit changed starts a new row. `loss_mask` marks the sampled ids. Each sampled id is in the mask of exactly one
row, at the position where the model sampled it, behind the very ids that it was sampled on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.prompt import Prompt, TokenCall, TokenRenderer, WholeCall, calls, expand
from context_agent.policies.tokens.routed_experts import Experts, pack
from context_agent.pruning.view import ActionTaken


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One sequence. The three lists are of equal length.

    `loss_mask` is 1 where the id was sampled, else 0. `logprobs` is the sampler's natural logarithm there, else 0.0.
    `episode_id` ties the rows of an episode, which share its advantage; `group_id` the episodes of one question.
    `policy_version` is the oldest in it: that of its first sampled id, unless an episode that newer weights began went
    on under older ones, as it may where a run goes back to its checkpoint. `experts` are those that the sampler routed
    the ids to, all but the last, if they are recorded; packed (`tokens.routed_experts`).
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
        """How many of its ids are trained."""
        return sum(self.loss_mask)


@dataclass(slots=True)
class _GrowingRow:
    """A row that may still grow."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: str = ""
    experts: Experts | None = None

    def add(self, call: WholeCall) -> None:
        """Append what the call's prompt has beyond the row, then its output."""
        fresh = call.prompt[len(self.ids) :]
        output = call.call.output
        self.version = _older_version(self.version, call.call.version)
        self.ids += [*fresh, *output]
        self.mask += [0] * len(fresh) + [1] * len(output)
        self.logprobs += [*(0.0 for _ in fresh), *call.call.logprobs]
        self.experts = call.experts

    def row(self, episode_id: str, group_id: str) -> TrainingRow:
        """Return the row as it is now."""
        return TrainingRow(self.ids, self.mask, self.logprobs, episode_id, group_id, self.version, pack(self.experts))


def _older_version(first: str, second: str) -> str:
    """Return the lower of two numbers of updates; the first where they are no such numbers."""
    numbers = first.isdecimal() and second.isdecimal()
    return min(first, second, key=int) if numbers else first


def rows_of_calls(token_calls: Iterable[TokenCall], *, episode_id: str, group_id: str) -> Iterator[TrainingRow]:
    """Yield the rows of an episode's calls, in order. Raises `TrajectoryError` for calls that do not fit together."""
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
    """Return the rows of an episode that a token policy played. The group defaults to the question's id, else the
    question.

    Raises `TrajectoryError` for an episode of another policy; use `demonstrated_rows` for those.
    """
    return list(
        rows_of_calls(calls(trajectory), episode_id=trajectory.header.id, group_id=_group_id(trajectory, group_id))
    )


def demonstrated_rows(
    trajectory: Trajectory, renderer: TokenRenderer, *, group_id: str | None = None
) -> list[TrainingRow]:
    """Return rows that teach a model the actions of any policy's episode, as if the model had sampled them.

    The prompts are what the model would have been sent for the episode's views; log-probabilities are 0. The same
    row building as for sampled episodes, so supervised and reinforced training see the same sequences.
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
        prompt.sampled(view, reply)
        yield TokenCall(prefix, new, reply, (0.0,) * len(reply), version=trajectory.header.policy)


def decay_weights(rows: Sequence[TrainingRow], gamma: float) -> list[list[float]]:
    """Return what each id of an episode's rows is weighed with: `gamma**(T - i)` for the ids sampled at step i of T,
    else 0.

    The rows are an episode's, in order; a step is a stretch of sampled ids. Empty lists for a gamma of 1.
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
