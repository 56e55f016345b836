"""A closed world of invented people, places and works: a toy environment in which every answer is provably unique.

A world is a value; its documents and tasks are made on demand. `write` writes it to a folder: corpus.jsonl.gz,
queries.<split>.jsonl, world.json with settings and counts, README.md
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError
from context_agent.synth_data.sets.folder import CARD, CORPUS, queries_path, write_corpus
from context_agent.synth_data.task import Task, write_json, write_rows
from context_agent.synth_data.world.graph import SPLIT_SHARES, SPLITS, Graph, build_graph
from context_agent.synth_data.world.tasks import EntityDocument, TaskGenerator, write_document
from context_agent.types import Document

TASKS_PER_ENTITY = 2
MOST_HOPS = 4


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """The settings that determine a world byte for byte.

    `tasks=None` makes two for each entity, or as many as possible.
    """

    entities: int
    seed: int = 0
    tasks: int | None = None
    hops: tuple[int, int] = (1, MOST_HOPS)
    distractors: int = 5
    vocabulary: str = "full"

    def check(self) -> None:
        """Raises `ConfigError` for invalid hops or numbers."""
        first, last = self.hops
        if not 1 <= first <= last <= MOST_HOPS:
            raise ConfigError(
                f"hops must be within 1-{MOST_HOPS}, the first no greater than the last; got {first}-{last}"
            )
        if self.tasks is not None and self.tasks < len(SPLITS):
            raise ConfigError(f"tasks must be at least {len(SPLITS)}, one for each split; got {self.tasks}")
        if self.distractors < 0:
            raise ConfigError(f"distractors must not be negative; got {self.distractors}")


class ClosedWorld:
    """Invented entities with their relations, documents and tasks."""

    def __init__(self, settings: WorldSettings) -> None:
        """Raises `ConfigError` for settings that no world can meet."""
        settings.check()
        self.settings = settings
        self.graph: Graph = build_graph(settings.entities, settings.seed, settings.vocabulary)

    @property
    def name(self) -> str:
        """The prefix of the tasks' ids."""
        small = "-small" if self.settings.vocabulary == "small" else ""
        return f"world{small}-{self.settings.entities}-{self.settings.seed}"

    @cached_property
    def entity_documents(self) -> list[EntityDocument]:
        """The document of each entity with its quotes, by the entity's number."""
        return [write_document(self.graph, entity, self.settings.seed) for entity in self.graph.entities]

    @property
    def documents(self) -> list[Document]:
        """The corpus."""
        return [entity_document.document for entity_document in self.entity_documents]

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of all splits. Raises `ConfigError` if fewer can be made than the settings require."""
        return [task for split in SPLITS for task in self.stream(split)]

    def stream(self, split: str) -> Iterator[Task]:
        """Yield a split's tasks one by one; raises the error of `tasks` at the end."""
        target, count = self._share(split), 0
        for task in islice(self._generate(split), target):
            count += 1
            yield task
        if count < target and self.settings.tasks is not None:
            raise ConfigError(self._shortage())

    def _generate(self, split: str) -> Iterator[Task]:
        first, last = self.settings.hops
        maker = TaskGenerator(
            self.graph,
            self.entity_documents,
            split,
            seed=self.settings.seed,
            name=self.name,
            distractors=self.settings.distractors,
        )
        return maker.tasks(range(first, last + 1))

    def _shortage(self) -> str:
        """Return the error message, with the number of tasks that could be made if each split had its share."""
        available = [sum(1 for _ in islice(self._generate(split), self._share(split))) for split in SPLITS]
        most = min(int(count / share) for count, share in zip(available, SPLIT_SHARES, strict=True))
        first, last = self.settings.hops
        return (
            f"{self.settings.entities} entities give about {most} tasks of {first} to {last} hops, and "
            f"{self.settings.tasks} are requested: request fewer tasks, or more entities"
        )

    def _share(self, split: str) -> int:
        """Return the number of tasks of a split."""
        total = self.settings.tasks or TASKS_PER_ENTITY * self.settings.entities
        small = {
            small_split: max(1, round(total * share))
            for small_split, share in zip(SPLITS[1:], SPLIT_SHARES[1:], strict=True)
        }
        return small.get(split, total - sum(small.values()))

    def describe(self) -> dict[str, Any]:
        """Settings and counts, without those of the tasks."""
        kinds = Counter(entity.kind for entity in self.graph.entities)
        facts = {f"{relation.source}.{relation.name}": 0 for relation in self.graph.wording.relations}
        for entity in self.graph.entities:
            for name in entity.objects:
                facts[f"{entity.kind}.{name}"] += 1
        return {"settings": asdict(self.settings), "entities": dict(sorted(kinds.items())), "relations": facts}


def make(
    *,
    entities: int,
    seed: int = 0,
    tasks: int | None = None,
    hops: tuple[int, int] = (1, MOST_HOPS),
    distractors: int = 5,
    vocabulary: str = "full",
) -> ClosedWorld:
    """Return a closed world of invented entities. Equal arguments give equal documents and tasks, byte for byte.

    `hops` is the smallest and the largest number of documents that a question needs. `vocabulary="small"` uses about
    two hundred words and documents of one sentence. Raises `ConfigError`.
    """
    return ClosedWorld(WorldSettings(entities, seed, tasks, hops, distractors, vocabulary))


ABOUT = "world.json"
LICENCE = "CC0-1.0: invented by a program, no rights reserved; any likeness to real names is chance"

Progress = Callable[[int, int | None], None]


def write(world: ClosedWorld, folder: Path, *, force: bool = False, report: Progress | None = None) -> dict[str, Any]:
    """Writes the world and returns the content of `world.json`. `report` is called with (tasks written, total).

    A folder that is not empty is refused without `force`, which replaces a world's files and leaves other files alone.
    The files are written beside the folder and moved when they are complete, so a killed run leaves nothing behind.
    Raises `ConfigError`.
    """
    _check_folder(folder, force)
    target = folder.resolve()
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        about = _write_files(world, partial, report)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ABOUT).unlink(missing_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == ABOUT):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return about


def _write_files(world: ClosedWorld, folder: Path, report: Progress | None) -> dict[str, Any]:
    counted = {split: Counter[str]() for split in SPLITS}
    write_corpus(folder / CORPUS, world.documents)
    for split in SPLITS:
        write_rows(queries_path(folder, split), _rows(world, split, counted, report))
    about = _world_info(world, counted)
    (folder / CARD).write_text(_card_text(about), encoding="utf-8", newline="\n")
    write_json(folder / ABOUT, about)
    return about


def _check_folder(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: give a folder for the world")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty: use another folder, or replace the world in it with --force")


def _rows(
    world: ClosedWorld, split: str, counted: Mapping[str, Counter[str]], report: Progress | None
) -> Iterator[dict[str, Any]]:
    """Yield a split's tasks as rows, counted by type and hops."""
    for task in world.stream(split):
        counted[split][f"{task.type}, {task.hops}"] += 1
        if report is not None:
            report(sum(counts.total() for counts in counted.values()), world.settings.tasks)
        yield task.to_json()


def _world_info(world: ClosedWorld, counted: dict[str, Counter[str]]) -> dict[str, Any]:
    tasks = {split: dict(sorted(counts.items())) for split, counts in counted.items()}
    return {
        "name": world.name,
        **world.describe(),
        "documents": len(world.entity_documents),
        "tasks": {split: {"all": sum(counts.values()), **counts} for split, counts in tasks.items()},
        "split": "by document: no relation leads from an entity of one split to one of another",
        "licence": LICENCE,
    }


def _card_text(about: dict[str, Any]) -> str:
    settings = about["settings"]
    rows = "\n".join(f"| {split} | {counts['all']} |" for split, counts in about["tasks"].items())
    command = (
        f"ctx1 synth world --entities {settings['entities']} --seed {settings['seed']} --out FOLDER"
        f"{'' if settings['tasks'] is None else ' --tasks ' + str(settings['tasks'])}"
        f" --hops {settings['hops'][0]}-{settings['hops'][1]} --distractors {settings['distractors']}"
        f" --vocabulary {settings['vocabulary']}"
    )
    return f"""# {about["name"]}

An invented world: {about["documents"]} documents, each about one person, town, work, institution, region or prize
that does not exist, and questions about them whose answers follow from the documents alone.

| split | tasks |
|---|---|
{rows}

`{CORPUS}` holds `id`, `title`, `text`; `queries.*.jsonl` a task a line with `question`, `answer`, `gold` in hop order,
`type`, `hops`, supporting quotes and distractors. Split {about["split"]}.

Made by `{command}`; the same command gives the same bytes.

Licence: {about["licence"]}.
"""
