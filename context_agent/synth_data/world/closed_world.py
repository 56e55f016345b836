"""A closed world of invented people, places and works, in which every answer is provably unique.

A world does not change. Its documents and tasks are generated when they are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from context_agent.errors import ConfigError
from context_agent.synth_data.task import Task
from context_agent.synth_data.world.documents import EntityDocument, write_document
from context_agent.synth_data.world.graph import SPLIT_SHARES, SPLITS, Graph, build_graph
from context_agent.synth_data.world.tasks import TaskGenerator
from context_agent.types import Document

TASKS_PER_ENTITY = 2
MOST_HOPS = 4
MOST_TASKS = 10**9


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """The settings that determine a world byte for byte.

    Attributes:
        entities: The number of entities, and thus of documents.
        seed: The seed of everything that is random.
        tasks: The number of tasks. If None, there are two per entity, or as many as possible.
        hops: The smallest and the largest number of documents that a question needs.
        distractors: The number of distractors per task.
        vocabulary: `full`, or `small` for about two hundred words and documents of one sentence.
    """

    entities: int
    seed: int = 0
    tasks: int | None = None
    hops: tuple[int, int] = (1, MOST_HOPS)
    distractors: int = 5
    vocabulary: str = "full"

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: If the hops or a number is invalid.
        """
        first, last = self.hops
        if not 1 <= first <= last <= MOST_HOPS:
            raise ConfigError(
                f"hops must be from 1 to {MOST_HOPS}, and the first must not exceed the last; got {first}-{last}"
            )
        if self.tasks is not None and not len(SPLITS) <= self.tasks <= MOST_TASKS:
            raise ConfigError(
                f"tasks must be at least {len(SPLITS)}, one for each split, and at most {MOST_TASKS:,}; got "
                f"{self.tasks}"
            )
        if self.distractors < 0:
            raise ConfigError(f"distractors must not be negative; got {self.distractors}")


class ClosedWorld:
    """Invented entities with their relations, documents and tasks."""

    def __init__(self, settings: WorldSettings) -> None:
        """Build the entities and their relations.

        Raises:
            ConfigError: If no world can have these settings.
        """
        settings.check()
        self.settings = settings
        self.graph: Graph = build_graph(settings.entities, settings.seed, settings.vocabulary)

    @property
    def name(self) -> str:
        """The start of every task's id."""
        small = "-small" if self.settings.vocabulary == "small" else ""
        return f"world{small}-{self.settings.entities}-{self.settings.seed}"

    @cached_property
    def entity_documents(self) -> list[EntityDocument]:
        """The document of each entity with its quotes, in the order of the entities' numbers."""
        return [write_document(self.graph, entity, self.settings.seed) for entity in self.graph.entities]

    @property
    def documents(self) -> list[Document]:
        """The documents of the corpus."""
        return [entity_document.document for entity_document in self.entity_documents]

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of all splits.

        Raises:
            ConfigError: If the world has fewer tasks than the settings require.
        """
        return [task for split in SPLITS for task in self.stream(split)]

    def stream(self, split: str) -> Iterator[Task]:
        """Yield a split's tasks one by one.

        Raises:
            ConfigError: If the split has fewer tasks than the settings require. The error is raised at the end.
        """
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
        """Return the error message for a world with too few tasks.

        It names the number of tasks that the world can have.
        """
        available = [sum(1 for _ in islice(self._generate(split), self._share(split))) for split in SPLITS]
        most = min(int(count / share) for count, share in zip(available, SPLIT_SHARES, strict=True))
        first, last = self.settings.hops
        return (
            f"{self.settings.entities} entities give about {most} tasks of {first} to {last} hops, and "
            f"{self.settings.tasks} are requested: request fewer tasks, or more entities"
        )

    def _share(self, split: str) -> int:
        """Return the number of tasks that a split should get."""
        total = self.settings.tasks or TASKS_PER_ENTITY * self.settings.entities
        small = {
            small_split: max(1, round(total * share))
            for small_split, share in zip(SPLITS[1:], SPLIT_SHARES[1:], strict=True)
        }
        return small.get(split, total - sum(small.values()))

    def describe(self) -> dict[str, Any]:
        """Return the settings and the numbers of entities and relations. Tasks are not counted."""
        kinds = Counter(entity.kind for entity in self.graph.entities)
        facts = {f"{relation.source}.{relation.name}": 0 for relation in self.graph.wording.relations}
        for entity in self.graph.entities:
            for name in entity.objects:
                facts[f"{entity.kind}.{name}"] += 1
        return {"settings": asdict(self.settings), "entities": dict(sorted(kinds.items())), "relations": facts}


def make_world(
    *,
    entities: int,
    seed: int = 0,
    tasks: int | None = None,
    hops: tuple[int, int] = (1, MOST_HOPS),
    distractors: int = 5,
    vocabulary: str = "full",
) -> ClosedWorld:
    """Return a closed world of invented entities. Equal arguments give equal documents and tasks, byte for byte.

    Args:
        entities: The number of entities, and thus of documents.
        seed: The seed of everything that is random.
        tasks: The number of tasks. If None, there are two per entity, or as many as possible.
        hops: The smallest and the largest number of documents that a question needs.
        distractors: The number of distractors per task.
        vocabulary: `full`, or `small` for about two hundred words and documents of one sentence.

    Raises:
        ConfigError: If no world can have these settings.
    """
    return ClosedWorld(WorldSettings(entities, seed, tasks, hops, distractors, vocabulary))
