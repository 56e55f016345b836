"""Training rows: built from the calls of an episode, stored, and divided into updates and forward passes. No torch.

A row is one sequence for one forward pass. Calls share a row while each prompt extends the call before it; a prompt
that an edit changed starts a new row. `loss_mask` marks the sampled ids. Each sampled id is in the mask of exactly one
row, at the position where the model sampled it, behind the very ids that it was sampled on.

`write_row_folder` writes `rows.jsonl`, `rows.parquet` and, last, `rows.json` with the number of rows and the tokenizer;
trainers read the parquet file by columns. It needs pyarrow. `StepRows` are the rows of a step in a checkpoint.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

from context_agent._support.journal import open_private, private_folder
from context_agent._support.small_files import parse_json, read_json, read_lines, require_files
from context_agent.errors import ConfigError, DataError, MissingExtraError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.prompt import Prompt, TokenCall, TokenRenderer, WholeCall, calls, expand
from context_agent.policies.tokens.routed_experts import Experts, pack
from context_agent.pruning.view import ActionTaken

T = TypeVar("T")


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
        """Appends what the call's prompt has beyond the row, then its output."""
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
    """Rows that teach a model the actions of any policy's episode, as if the model had sampled them.

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


def to_line(row: TrainingRow) -> str:
    """Return the row as a line of JSONL."""
    data = {name: value for name, value in asdict(row).items() if name != "experts" or value}
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


ROWS_FOLDER = "rows"
"""The folder of the rows in the folder of a run by demonstrations."""
JSONL, PARQUET, ABOUT = "rows.jsonl", "rows.parquet", "rows.json"
CHUNK = 256
"""Rows that are in memory at a time."""
MAX_SUBSTEPS = 10_000
"""Updates of one step whose rows a checkpoint holds."""


@dataclass(frozen=True, slots=True)
class RowFolder:
    """What was written. `tokens` are all ids, `trained` those that teach; `longest` is the longest row's length."""

    path: Path
    tokenizer: str
    rows: int
    tokens: int
    trained: int
    longest: int

    @property
    def parquet(self) -> Path:
        """The file that trainers read."""
        return self.path / PARQUET

    def check(self, tokenizer: str) -> None:
        """Raises `DataError` where the rows were made by another tokenizer than this one."""
        if self.tokenizer != tokenizer:
            raise DataError(
                f"the rows in {self.path} were made by the tokenizer {self.tokenizer!r}, the model's is "
                f"{tokenizer!r}: make them anew"
            )


def write_row_folder(rows: Iterable[TrainingRow], folder: str | Path, *, tokenizer: str) -> RowFolder:
    """Writes the rows as they come. The folder counts as written when its `rows.json` is there."""
    folder = Path(folder)
    private_folder(folder)
    require_files(folder.glob("*"), links=False)
    (folder / ABOUT).unlink(missing_ok=True)
    count = tokens = trained = longest = 0
    rows_file = open_private(folder / JSONL, "w", encoding="utf-8", newline="\n")
    with rows_file as lines, _Parquet(folder / PARQUET) as table:
        for chunk in chunked(rows, CHUNK):
            lines.writelines(to_line(row) for row in chunk)
            table.add(chunk)
            lengths = [len(row.input_ids) for row in chunk]
            count, tokens, longest = count + len(chunk), tokens + sum(lengths), max(longest, *lengths)
            trained += sum(row.trained for row in chunk)
        lines.flush()
        os.fsync(lines.fileno())
    about = RowFolder(folder, tokenizer, count, tokens, trained, longest)
    data = {key: value for key, value in asdict(about).items() if key != "path"}
    partial = folder / f"{ABOUT}.partial"
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / ABOUT)
    return about


def open_folder(folder: str | Path) -> RowFolder:
    """Return a folder of `write_row_folder`. Raises `DataError` if it is incomplete."""
    folder = Path(folder)
    try:
        require_files(folder.glob("*"))
        return RowFolder(folder, **read_json(folder / ABOUT))
    except (OSError, ValueError, TypeError, DataError) as error:
        raise DataError(f"{folder} is no folder of rows, or was not written to its end: {error}") from error


def read_parquet(path: str | Path) -> Iterator[TrainingRow]:
    """Yield the rows of a parquet file, some at a time. Raises `DataError`."""
    parquet = _pyarrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(CHUNK):
                for row in batch.to_pylist():
                    yield TrainingRow(**row)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"cannot read the rows {path}: {error}") from error


class _Parquet:
    """A parquet file that grows by a group of rows at a time."""

    def __init__(self, path: Path) -> None:
        arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
        self._schema = arrow.schema(
            [
                ("input_ids", arrow.list_(arrow.int32())),
                ("loss_mask", arrow.list_(arrow.int8())),
                ("logprobs", arrow.list_(arrow.float64())),
                ("episode_id", arrow.string()),
                ("group_id", arrow.string()),
                ("policy_version", arrow.string()),
                ("experts", arrow.string()),
            ]
        )
        self._table = arrow.Table
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")

    def add(self, rows: list[TrainingRow]) -> None:
        self._writer.write_table(self._table.from_pylist([asdict(row) for row in rows], schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _pyarrow(module: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        raise MissingExtraError("pyarrow", "train") from None


SORTED_BATCHES = 50
"""Batches whose rows are sorted by length together."""


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """A row and the advantage of its episode. `weights`, one for each id, scale it; none means 1 throughout.

    `demonstrated`: an expert chose its ids, not the policy, so it has no sampler's log-probabilities.
    """

    row: TrainingRow
    advantage: float
    weights: tuple[float, ...] = ()
    demonstrated: bool = False

    @property
    def length(self) -> int:
        """Ids in the row."""
        return len(self.row.input_ids)


ForwardPass = Sequence[WeightedRow]
"""The rows of one forward pass, padded to the longest of them."""


def inert_row(like: WeightedRow) -> WeightedRow:
    """Return a row that trains nothing and costs little: ranks with fewer passes than others run it to keep step."""
    row = like.row
    first = TrainingRow(row.input_ids[:2], [0] * len(row.input_ids[:2]), [0.0] * len(row.input_ids[:2]), "", "")
    return WeightedRow(first, 0.0)


def minibatches(items: Sequence[WeightedRow], count: int) -> list[list[WeightedRow]]:
    """Return the rows in `count` parts of about equal length, an episode's rows together, the same for any order of
    rows.

    The longest episode first, each to the part that is shortest so far (greedy number partitioning).
    """
    if count < 1:
        raise ConfigError(f"rows are shared out over at least one part; got {count}")
    episodes: dict[str, list[WeightedRow]] = {}
    for item in items:
        episodes.setdefault(item.row.episode_id, []).append(item)
    sizes = {episode: sum(item.length for item in rows) for episode, rows in episodes.items()}
    parts: list[list[WeightedRow]] = [[] for _ in range(count)]
    loads = [0] * count
    for episode in sorted(sizes, key=lambda name: (-sizes[name], name)):
        lightest = loads.index(min(loads))
        parts[lightest] += episodes[episode]
        loads[lightest] += sizes[episode]
    return parts


def forward_passes(items: Iterable[WeightedRow], most_tokens: int = 0) -> list[list[WeightedRow]]:
    """Return the rows in passes of at most `most_tokens` padded ids, rows of like length together; a longer row goes
    alone.

    0 puts every row in a pass of its own: no padding, which is what long rows want. No pass has both sampled and
    demonstrated rows, since their losses differ.
    """
    passes: list[list[WeightedRow]] = []
    ordered = sorted(items, key=lambda item: (item.demonstrated, -item.length, item.row.episode_id))
    for item in ordered:
        last = passes[-1] if passes and passes[-1][0].demonstrated == item.demonstrated else None
        if last is not None and (len(last) + 1) * last[0].length <= most_tokens:
            last.append(item)
        else:
            passes.append([item])
    return passes


def order_by_length(lengths: Sequence[int], size: int, *, seed: int, epoch: int) -> list[int]:
    """Return an order of rows for an epoch in which each `size` in a row are of like length; a function of seed and
    epoch.

    Rows are shuffled, sorted within stretches of `SORTED_BATCHES` batches, and the batches shuffled. The one with the
    longest row comes first, so that a row that does not fit in memory fails at once.
    """
    rng = random.Random(f"{seed}:{epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), size * SORTED_BATCHES):
        ordered = sorted(order[start : start + size * SORTED_BATCHES], key=lambda index: -lengths[index])
        batches += [ordered[at : at + size] for at in range(0, len(ordered), size)]
    short = [batch for batch in batches if len(batch) < size]
    full = [batch for batch in batches if len(batch) == size]
    rng.shuffle(full)
    longest = max(lengths, default=0)
    full.sort(key=lambda batch: lengths[batch[0]] < longest)
    return [index for batch in (*full, *short) for index in batch]


def trained_tokens(items: Iterable[WeightedRow]) -> int:
    """Sampled ids that the rows train."""
    return sum(item.row.trained for item in items)


def update_number(version: str) -> int | None:
    """Return the update that a policy version is named by; None for any other name."""
    return int(version) if version.isdecimal() else None


def row_age(row: TrainingRow, update: int) -> int:
    """Updates since the row's first token was sampled; 0 for a version that is not the number of an update."""
    sampled_at = update_number(row.policy_version)
    return 0 if sampled_at is None else update - sampled_at


def fresh_rows(rows: Sequence[WeightedRow], update: int, staleness: int) -> list[WeightedRow]:
    """Return the rows that are at most `staleness` updates old. Demonstrated rows have no age.

    Raises `PolicyError` if no sampled row is: then the sampling engine no longer receives new weights.
    """
    ages = [row_age(item.row, update) for item in rows if not item.demonstrated]
    if ages and min(ages) > staleness:
        raise PolicyError(
            f"update {update}: all {len(ages)} rows are more than {staleness} updates old, up to {max(ages)}: the "
            f"engine did not receive new weights"
        )
    return [item for item in rows if item.demonstrated or row_age(item.row, update) <= staleness]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of each update of a step, by substep; step -1 means none.

    A checkpoint that falls between two updates of a step holds them, so that the step is not sampled again.
    """

    step: int = -1
    substeps: Sequence[Sequence[WeightedRow]] = field(default_factory=list)

    def save(self, folder: Path, rank: int) -> None:
        """Writes the rank's rows, one a line."""
        with open_private(_rows_file(folder, rank), "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"number": self.step, "parts": len(self.substeps)}) + "\n")
            for index, rows in enumerate(self.substeps):
                for item in rows:
                    line = [index, item.advantage, item.weights, item.demonstrated, asdict(item.row)]
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    @staticmethod
    def load(folder: Path, rank: int) -> StepRows:
        """Return the rows that were saved, bit by bit; empty if none were. Raises `DataError`."""
        path = _rows_file(folder, rank)
        if not path.is_file():
            return StepRows()
        try:
            with path.open(encoding="utf-8") as file:
                lines = read_lines(file)
                head = parse_json(next(lines))
                substeps = _empty_substeps(head["parts"])
                for line in lines:
                    index, advantage, weights, demonstrated, row = parse_json(line)
                    item = WeightedRow(TrainingRow(**row), advantage, tuple(weights), demonstrated)
                    substeps[index].append(item)
            return StepRows(int(head["number"]), substeps)
        except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, StopIteration) as error:
            raise DataError(
                f"cannot read the rollouts {path} ({type(error).__name__}: {error}): delete the checkpoint to resume "
                f"from the one before"
            ) from error


def _empty_substeps(count: object) -> list[list[WeightedRow]]:
    if not (isinstance(count, int) and 0 <= count <= MAX_SUBSTEPS):
        raise ValueError(f"it claims {count!r} parts")
    return [[] for _ in range(count)]


def _rows_file(folder: Path, rank: int) -> Path:
    return folder / f"rollouts-{rank}.jsonl"
