"""Distractors of a world's tasks: documents that resemble the gold and lack the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from random import Random

from context_agent.synth_data.world.graph import Entity, Graph

RANDOM_PER_DOCUMENT = 12
"""The number of random documents of the same kind for each gold document. They come after all closer documents."""


_MOST_PER_SORT = 30
"""The largest number of candidates of one sort for one document."""


class DistractorFinder:
    """A finder of entities that resemble others in a world."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sharing: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._kinds: dict[str, list[int]] = defaultdict(list)
        for entity in graph.entities:
            self._kinds[entity.kind].append(entity.number)
            for word in entity.name.split():
                self._sharing[entity.kind, word].append(entity.number)

    def near(self, gold: Sequence[int], rng: Random) -> Iterator[int]:
        """Yield the numbers of other entities, the most similar first, each once.

        For each gold document in turn, namesakes and entities that share a word of the name come first. Entities with
        the same object of a relation follow, such as another work by the same author. Random entities of the same kind
        come last.
        """
        excluded = set(gold)
        entities = [self._graph.entities[number] for number in gold]
        close = [sort for item in entities for sort in (self._namesakes(item, rng), self._alike(item, rng))]
        in_turns = (item for row in zip_longest(*close) for item in row if item is not None)
        for number in chain(in_turns, self._any(entities, rng)):
            if number not in excluded:
                excluded.add(number)
                yield number

    def _namesakes(self, entity: Entity, rng: Random) -> list[int]:
        sharing = [n for word in entity.name.split() if word != "The" for n in self._few(entity.kind, word, rng)]
        return rng.sample(sharing, len(sharing))

    def _few(self, kind: str, word: str, rng: Random) -> list[int]:
        sharing = self._sharing[kind, word]
        return sharing if len(sharing) <= _MOST_PER_SORT else rng.sample(sharing, _MOST_PER_SORT)

    def _alike(self, entity: Entity, rng: Random) -> list[int]:
        """Return the other subjects that have the same objects of the same relations."""
        subjects = [
            subject
            for relation in self._graph.wording.of(entity.kind)
            if relation.to_entity and relation.name in entity.objects
            for subject, name in self._graph.sources[int(entity.objects[relation.name])][:_MOST_PER_SORT]
            if name == relation.name
        ]
        return rng.sample(subjects, len(subjects))

    def _any(self, entities: Sequence[Entity], rng: Random) -> Iterator[int]:
        for entity in entities:
            pool = self._kinds[entity.kind]
            yield from rng.sample(pool, min(RANDOM_PER_DOCUMENT, len(pool)))
