"""Splits by document: no gold, supporting or bridging document of a test task is one of a training task.

Tasks that share a document or a question form a component. A component goes into one split, which is drawn in
proportion to the remaining capacity. If a component fits no split, it is divided. Each held-out split then grows inside
the component. It takes tasks with documents that few other tasks use, and keeps the component's mix of hops. Tasks that
would be on both sides are dropped and counted.
"""

from __future__ import annotations

import heapq
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from context_agent.errors import ConfigError, DataError
from context_agent.eval.gold import question_key
from context_agent.synth_data.task import Task, check_set_name

SHARES: Mapping[str, float] = {"train": 0.8, "dev": 0.1, "test": 0.1}
SLACK = 0.01
"""The amount by which a component may overfill a split, as a share of all tasks."""
CROSSING = "its documents are needed in two splits"
NO_DOCUMENT = "names no document"


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """The splits of a set.

    Attributes:
        splits: The tasks by split, in file order and with new ids.
        dropped: The dropped tasks with their reasons.
        components: The number of groups of tasks that share documents or questions.
        largest: The number of tasks in the largest component.
        cut: The number of components that were divided.
        spread: For each split, the mean number of tasks that use one of its documents. A division prefers documents
            with few users for the held-out splits, and this number shows how strongly.
    """

    splits: dict[str, tuple[Task, ...]]
    dropped: tuple[tuple[Task, str], ...] = ()
    components: int = 0
    largest: int = 0
    cut: int = 0
    spread: dict[str, float] = field(default_factory=dict)


def split_tasks(
    tasks: Sequence[Task],
    name: str,
    *,
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
    oversized: Literal["cut", "keep"] = "cut",
    duplicates: Mapping[str, str] | None = None,
) -> TaskSplits:
    """Divide tasks into splits that share no document and no question.

    Args:
        tasks: The tasks.
        name: The name of the set. Ids become `<name>/<split>/<id>`.
        shares: The share of the tasks that each split gets.
        seed: The seed of the draw.
        oversized: What happens to a component that fits no split. `cut` divides it and drops the tasks on both sides
            of the cut. `keep` adds it to the split with the most capacity, so the shares are not met.
        duplicates: For each duplicate document, the id of the document that it repeats.

    Returns:
        The splits, and the dropped tasks.

    Raises:
        ConfigError: If the name or the shares are invalid.
        DataError: If there are too few tasks to fill every split.
    """
    _check_arguments(tasks, name, shares)
    keys = [_shared_keys(task, duplicates or {}) for task in tasks]
    usable = [row for row, task_keys in enumerate(keys) if any(kind == "document" for kind, _ in task_keys)]
    groups = _components(usable, keys)
    capacities = {name: share * len(usable) for name, share in shares.items() if share > 0}
    draft = _SplitAssignment(keys, [task.hops for task in tasks], capacities, random.Random(seed))
    draft.place(groups, oversized)
    placed = _renamed(tasks, draft.chosen, name)
    lost = [
        (task, CROSSING if row in draft.crossing else NO_DOCUMENT)
        for row, task in enumerate(tasks)
        if row not in placed
    ]
    splits = {split: tuple(placed[row] for row in sorted(rows)) for split, rows in draft.chosen.items()}
    check_splits(splits, duplicates=duplicates)
    return TaskSplits(
        splits, tuple(lost), len(groups), len(groups[0]) if groups else 0, draft.cut, _document_uses(draft.chosen, keys)
    )


def check_splits(splits: Mapping[str, Sequence[Task]], *, duplicates: Mapping[str, str] | None = None) -> None:
    """Raise an error if the splits are not separate.

    Args:
        splits: The tasks by split.
        duplicates: For each duplicate document, the id of the document that it repeats.

    Raises:
        DataError: If an id repeats, if a split is empty, or if two splits share a document or a question.
    """
    owner: dict[tuple[str, str], tuple[str, str]] = {}
    ids: set[str] = set()
    for split, tasks in splits.items():
        if not tasks:
            raise DataError(f"split {split} has no task. Use a larger share, more tasks, or another seed.")
        for task in tasks:
            if task.id in ids:
                raise DataError(f"id {task.id!r} occurs twice in the splits. Give each task its own id.")
            ids.add(task.id)
            for key in _shared_keys(task, duplicates or {}):
                owner_split, first = owner.setdefault(key, (split, task.id))
                if owner_split != split:
                    raise DataError(
                        f"the {key[0]} {key[1]!r} is in task {first} ({owner_split}) and in task {task.id} ({split}). "
                        "Split the tasks again."
                    )


Key = tuple[str, str]
"""An item that two tasks may share: the kind (`document` or `question`) and its identity."""


def _shared_keys(task: Task, duplicates: Mapping[str, str]) -> tuple[Key, ...]:
    documents = sorted({duplicates.get(document, document) for document in task.documents})
    return (*(("document", document) for document in documents), ("question", question_key(task.question)))


def _check_arguments(tasks: Sequence[Task], name: str, shares: Mapping[str, float]) -> None:
    check_set_name(name)
    if any(share < 0 or not math.isfinite(share) for share in shares.values()):
        raise ConfigError(f"shares must be 0 or more; got {_format_shares(shares)}")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ConfigError(f"shares must sum to 1; got {_format_shares(shares)}, which sum to {sum(shares.values()):g}")
    split_count = sum(share > 0 for share in shares.values())
    if len(tasks) < split_count:
        raise DataError(f"{split_count} splits need more than {len(tasks)} tasks. Pass more tasks.")


def _format_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in shares.items())


def _components(rows: Sequence[int], keys: Sequence[Sequence[Key]]) -> list[list[int]]:
    """Return groups of rows that share keys, directly or through other rows.

    The largest group comes first. Rows in a group are in file order.
    """
    parent = {row: row for row in rows}

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    first: dict[Key, int] = {}
    for row in rows:
        for key in keys[row]:
            lower, higher = sorted((root(first.setdefault(key, row)), root(row)))
            parent[higher] = lower
    groups: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        groups[root(row)].append(row)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0]))


class _SplitAssignment:
    """An assignment of rows to splits. `room` is the number of tasks that each split still takes."""

    def __init__(
        self, keys: Sequence[Sequence[Key]], kinds: Sequence[int], room: dict[str, float], draw: random.Random
    ) -> None:
        self.chosen: dict[str, list[int]] = {name: [] for name in room}
        self.crossing: set[int] = set()
        self.cut = 0
        self._keys, self._kinds = keys, kinds
        self._room = room
        self._slack = max(1.0, SLACK * sum(room.values()))
        self._draw = draw

    def place(self, groups: Sequence[list[int]], oversized: Literal["cut", "keep"]) -> None:
        """Assign every component, the largest first. Components of equal size are assigned in random order."""
        order = sorted(self._draw.sample(groups, len(groups)), key=len, reverse=True)
        for group in order:
            # The split is drawn in proportion to its room, so each split gets a fair sample of component sizes.
            fitting = {name: room for name, room in self._room.items() if len(group) <= room + self._slack}
            weights = [max(room, 1e-9) for room in fitting.values()]
            if fitting:
                self._take(self._draw.choices(list(fitting), weights)[0], group)
            elif oversized == "keep":
                self._take(max(self._room, key=self._room.__getitem__), group)
            else:
                self._divide(group)

    def _take(self, name: str, rows: Iterable[int]) -> None:
        members = list(rows)
        self.chosen[name] += members
        self._room[name] -= len(members)

    def _divide(self, group: list[int]) -> None:
        """Divide a component in proportion to the remaining capacity of the splits.

        The smallest part is taken first. The largest part gets the rest.
        """
        self.cut += 1
        total = sum(max(0.0, room) for room in self._room.values())
        targets = {name: len(group) * max(0.0, room) / total for name, room in self._room.items()}
        rest = set(group)
        *small, largest = sorted(targets, key=lambda name: (targets[name], name))
        mix = Counter(self._kinds[row] for row in group)
        for name in small:
            kinds = {kind: targets[name] * count / len(group) for kind, count in sorted(mix.items())}
            region, touched = grow_region(rest, self._keys, self._kinds, kinds, self._draw)
            self._take(name, sorted(region))
            self.crossing |= touched
            rest -= region | touched
        self._take(largest, sorted(rest))


def grow_region(
    rows: Iterable[int],
    keys: Sequence[Sequence[Key]],
    kinds: Sequence[int],
    targets: Mapping[int, float],
    draw: random.Random,
) -> tuple[set[int], set[int]]:
    """Grow a region of about `targets` rows of each kind, greedily.

    Each step adds a row of the kind that lacks the most rows. Of these rows, it takes the one with new keys that have
    the fewest users. Ties are broken at random. Each key is added once. So apart from the heaps, the time is linear in
    the number of times that rows use keys.

    Args:
        rows: The rows to choose from.
        keys: The keys of each row.
        kinds: The kind of each row.
        targets: The number of rows of each kind.
        draw: The source of randomness.

    Returns:
        The region, and the rows outside the region that share a key with it.
    """
    order = draw.sample(sorted(rows), len(set(rows)))
    turn = {row: at for at, row in enumerate(order)}
    users: dict[Key, list[int]] = defaultdict(list)
    for row in order:
        for key in keys[row]:
            users[key].append(row)
    cost = {row: sum(len(users[key]) for key in keys[row]) for row in order}
    lacking = dict(targets)
    heaps: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in order:
        heapq.heappush(heaps[kinds[row]], (cost[row], turn[row], row))
    region: set[int] = set()
    inside: set[Key] = set()
    while (kind := max(lacking, key=lambda candidate: (lacking[candidate], candidate), default=None)) is not None:
        if lacking[kind] < 0.5 or not heaps[kind]:
            del lacking[kind]
            continue
        price, _, row = heapq.heappop(heaps[kind])
        if row in region or price != cost[row]:
            continue
        region.add(row)
        lacking[kind] -= 1
        for key in keys[row]:
            if key in inside:
                continue
            inside.add(key)
            for neighbor in users[key]:
                cost[neighbor] -= len(users[key])
                heapq.heappush(heaps[kinds[neighbor]], (cost[neighbor], turn[neighbor], neighbor))
    return region, {row for key in inside for row in users[key]} - region


def _renamed(tasks: Sequence[Task], chosen: Mapping[str, Iterable[int]], name: str) -> dict[int, Task]:
    """Return the assigned tasks by row, with their split and an id that starts with the set and the split.

    If an id already starts with this set and a split, that prefix is replaced. If ids would then repeat, the prefix
    stays.
    """
    prefix = re.compile(rf"{re.escape(name)}/(?:{'|'.join(map(re.escape, chosen))})/")
    plain = [prefix.sub("", task.id, count=1) if prefix.match(task.id) else task.id for task in tasks]
    ids = plain if len(set(plain)) == len(plain) else [task.id for task in tasks]
    return {
        row: replace(tasks[row], id=f"{name}/{split}/{ids[row]}", split=split)
        for split, rows in chosen.items()
        for row in rows
    }


def _document_uses(chosen: Mapping[str, Sequence[int]], keys: Sequence[Sequence[Key]]) -> dict[str, float]:
    uses = Counter(key for task_keys in keys for key in task_keys if key[0] == "document")
    means = {}
    for name, rows in chosen.items():
        counts = [uses[key] for row in rows for key in keys[row] if key[0] == "document"]
        means[name] = sum(counts) / len(counts) if counts else 0.0
    return means
