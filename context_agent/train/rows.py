"""Training rows from the calls of an episode. No torch.

A row is one sequence for one forward pass. Calls share a row while each prompt goes on from the call before it; a
prompt that an edit changed starts a new row. `loss_mask` marks the sampled ids. Each sampled id is in the mask of
exactly one row, at the place where the model sampled it, behind the very ids that it was sampled on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path

from context_agent._support.files import open_private, private_folder
from context_agent.errors import DataError
from context_agent.harness.profile import Profile
from context_agent.harness.trajectory import ActionTaken, Trajectory
from context_agent.policies.prompt import Prompt
from context_agent.policies.renderers.protocol import TokenRenderer
from context_agent.policies.token_calls import TokenCall, WholeCall, calls, expand


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence. The three lists are of equal length.

    `loss_mask` is 1 where the id was sampled, else 0. `logprobs` is the sampler's natural logarithm there, else 0.0.
    `episode_id` ties the rows of an episode, which share its advantage; `group_id` the episodes of one question.
    `policy_version` is the oldest in it: that of its first sampled id, unless an episode that newer weights began went
    on under older ones, as it may where a run goes back to its checkpoint.
    """

    input_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    episode_id: str
    group_id: str
    policy_version: str = ""

    @property
    def trained(self) -> int:
        """How many of its ids are trained."""
        return sum(self.loss_mask)

    @property
    def completion_mask(self) -> list[int]:
        """`loss_mask` by the name that supervised trainers know it by."""
        return self.loss_mask


@dataclass(slots=True)
class _Open:
    """A row that may still grow."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: str = ""

    def add(self, whole: WholeCall) -> None:
        """Appends what the call's prompt has beyond the row, then its output."""
        fresh = whole.prompt[len(self.ids) :]
        output = whole.call.output
        self.version = _older(self.version, whole.call.version)
        self.ids += [*fresh, *output]
        self.mask += [0] * len(fresh) + [1] * len(output)
        self.logprobs += [*(0.0 for _ in fresh), *whole.call.logprobs]


def _older(one: str, other: str) -> str:
    """The lower of two numbers of updates; the first where they are no such numbers."""
    numbers = one.isdecimal() and other.isdecimal()
    return min(one, other, key=int) if numbers else one


def rows(made: Iterable[TokenCall], *, episode_id: str, group_id: str) -> Iterator[Row]:
    """The rows of an episode's calls, in order. Raises `TrajectoryError` for calls that do not fit together."""
    row: _Open | None = None
    for whole in expand(made):
        if row is None or not whole.extends:
            if row is not None:
                yield Row(row.ids, row.mask, row.logprobs, episode_id, group_id, row.version)
            row = _Open(version=whole.call.version)
        row.add(whole)
    if row is not None:
        yield Row(row.ids, row.mask, row.logprobs, episode_id, group_id, row.version)


def rows_of(trajectory: Trajectory, *, group_id: str | None = None) -> list[Row]:
    """The rows of an episode that a token policy played. The group defaults to the question's id, else the question.

    Raises `TrajectoryError` for an episode of another policy: `taught` makes rows of those.
    """
    return list(rows(calls(trajectory), episode_id=trajectory.header.id, group_id=_group(trajectory, group_id)))


def taught(trajectory: Trajectory, renderer: TokenRenderer, *, group_id: str | None = None) -> list[Row]:
    """Rows that teach a model the actions of any policy's episode, as if the model had sampled them.

    The prompts are what the model would have been sent for the episode's views; log-probabilities are 0. The same
    row building as for sampled episodes, so supervised and reinforced training see the same sequences.
    """
    made = _demonstrated(trajectory, renderer)
    return list(rows(made, episode_id=trajectory.header.id, group_id=_group(trajectory, group_id)))


def _demonstrated(trajectory: Trajectory, renderer: TokenRenderer) -> Iterator[TokenCall]:
    prompt = Prompt(renderer, Profile.from_json(trajectory.header.profile))
    actions = (event for event in trajectory.events if isinstance(event, ActionTaken))
    for view, event in zip(trajectory.views(), actions, strict=False):
        ids = prompt.show(view)
        kept, new = prompt.kept, tuple(ids[prompt.kept :])
        reply = prompt.taught(event.action)
        prompt.sampled(view, reply)
        yield TokenCall(kept, new, reply, (0.0,) * len(reply), version=trajectory.header.policy)


def decay(made: Sequence[Row], gamma: float) -> list[list[float]]:
    """What each id of an episode's rows is weighed with: `gamma**(T - i)` for the ids sampled at step i of T, else 0.

    The rows are an episode's, in order; a step is a stretch of sampled ids. Empty lists for a gamma of 1.
    """
    if gamma == 1:
        return [[] for _ in made]
    steps = 0
    places = []
    for row in made:
        place = []
        for before, now in pairwise([0, *row.loss_mask]):
            steps += now > before
            place.append(steps)
        places.append(place)
    return [
        [gamma ** (steps - step) * sampled for step, sampled in zip(place, row.loss_mask, strict=True)]
        for place, row in zip(places, made, strict=True)
    ]


def _group(trajectory: Trajectory, group_id: str | None) -> str:
    return group_id or trajectory.header.question_id or trajectory.header.question


def to_line(row: Row) -> str:
    """The row as a line of JSONL."""
    return json.dumps(asdict(row), ensure_ascii=True, separators=(",", ":")) + "\n"


def write(made: Iterable[Row], path: str | Path) -> int:
    """Writes rows as JSONL, one a line, and returns how many. The file appears whole or not at all."""
    path = Path(path)
    private_folder(path.parent)
    partial = path.with_name(f"{path.name}.partial")
    count = 0
    with open_private(partial, "w", encoding="utf-8", newline="\n") as file:
        for row in made:
            file.write(to_line(row))
            count += 1
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return count


def read(path: str | Path) -> Iterator[Row]:
    """The rows of a JSONL file, one at a time. Raises `DataError` with the line that is no row."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield _row(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the rows {path}: {error}") from error


def _row(line: str, where: str) -> Row:
    known = {field.name for field in fields(Row)}
    try:
        data = json.loads(line)
        row = Row(**{key: value for key, value in data.items() if key in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: not a training row ({error})") from None
    if not len(row.input_ids) == len(row.loss_mask) == len(row.logprobs):
        raise DataError(
            f"{where}: {len(row.input_ids)} ids, {len(row.loss_mask)} mask values and {len(row.logprobs)} "
            "log-probabilities; the three must be as many"
        )
    return row
