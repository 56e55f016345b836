"""The entities of an invented world with their relations. The graph answers queries exactly.

A world has three parts, one for each split. No relation crosses between parts, so no test question needs a training
document. All parts share one corpus and one vocabulary, so names in different parts can be nearly the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from context_agent.errors import ConfigError
from context_agent.synth_data.world.lexicon import Lexicon, full_lexicon, small_lexicon
from context_agent.synth_data.world.schema import FULL, KINDS, SHARES, SMALL, YEAR, Relation, Wording

SPLITS = ("train", "dev", "test")


SPLIT_SHARES = (0.8, 0.1, 0.1)


SMALLEST_PART = 12
"""The number of entities of the smallest part. Fewer entities have no chain of four hops."""


FEWEST_ENTITIES, MOST_ENTITIES = 50, 1_000_000
"""The numbers of entities of the smallest and the largest world."""


VOCABULARIES = ("full", "small")


_RELATION_RATE = 0.92
"""The probability that an entity has a given relation."""


_PRIZE_RATE = 0.5


_SHORT_RELATIONS = 3
"""The number of relations of an entity in a world of short documents."""


_NAMESAKE_SHARE = 0.02
"""The share of persons who get the name of another person, in a world with the full vocabulary."""


@dataclass(slots=True)
class Entity:
    """An invented entity.

    Attributes:
        number: The entity's number, which identifies it.
        kind: The kind of the entity.
        name: The entity's name.
        split: The part of the world that it belongs to.
        objects: The objects of its relations by name. An object is an entity's number, a year or a word.
        ambiguous: True if another entity has the same name. Texts then add its trade.
    """

    number: int
    kind: str
    name: str
    split: str
    objects: dict[str, int | str] = field(default_factory=dict)
    ambiguous: bool = False

    @property
    def id(self) -> str:
        """The id of the entity's document."""
        return f"w-{self.number:06d}"

    @property
    def title(self) -> str:
        """The title of the entity's document."""
        return f"{self.name} ({self.objects['trade']})" if self.ambiguous else self.name

    @property
    def mention(self) -> str:
        """The name by which texts mention the entity."""
        if self.ambiguous:
            return f"the {self.objects['trade']} {self.name}"
        return f"the {self.name}" if self.kind in {"institution", "prize"} else self.name


@dataclass(frozen=True)
class Graph:
    """The entities by number, and the wording of their relations."""

    entities: Sequence[Entity]
    wording: Wording
    lexicon: Lexicon

    @cached_property
    def sources(self) -> Mapping[int, Sequence[tuple[int, str]]]:
        """The (subject, relation) pairs that lead to each entity."""
        sources: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for entity in self.entities:
            for relation in self.wording.of(entity.kind):
                target = entity.objects.get(relation.name)
                if relation.to_entity and isinstance(target, int):
                    sources[target].append((entity.number, relation.name))
        return sources

    def members(self, kind: str, split: str) -> list[Entity]:
        """Return the entities of a kind in one part."""
        return self.by_kind.get((kind, split), [])

    @cached_property
    def by_kind(self) -> Mapping[tuple[str, str], list[Entity]]:
        """The entities by kind and split."""
        by_kind: dict[tuple[str, str], list[Entity]] = defaultdict(list)
        for entity in self.entities:
            by_kind[entity.kind, entity.split].append(entity)
        return by_kind

    def written(self, entity: Entity, relation: Relation) -> str:
        """Return the object of an entity's relation as texts write it."""
        value = entity.objects[relation.name]
        return self.entities[int(value)].mention if relation.to_entity else str(value)


def build_graph(entities: int, seed: int, vocabulary: str) -> Graph:
    """Return the graph of a world with this many entities.

    Args:
        entities: The number of entities.
        seed: The seed of everything that is random.
        vocabulary: `full` or `small`.

    Raises:
        ConfigError: If the size or the vocabulary is invalid.
    """
    if vocabulary not in VOCABULARIES:
        raise ConfigError(f"unknown vocabulary {vocabulary!r}. Choose {' or '.join(VOCABULARIES)}.")
    if not FEWEST_ENTITIES <= entities <= MOST_ENTITIES:
        raise ConfigError(f"a world must have {FEWEST_ENTITIES} to {MOST_ENTITIES:,} entities; got {entities}")
    rng = Random(f"world/{seed}/{entities}/{vocabulary}")
    parts = [_counts(size) for size in _sizes(entities)]
    totals = {kind: sum(part[kind] for part in parts) for kind in KINDS}
    wording = SMALL if vocabulary == "small" else FULL
    lexicon = small_lexicon(rng) if vocabulary == "small" else full_lexicon(totals, rng, wording.words())
    _check_names(totals, lexicon, entities)
    invented = _entities(parts, lexicon, rng)
    graph = Graph(invented, wording, lexicon)
    for split in SPLITS:
        _Relations(graph, split, rng).draw()
    if vocabulary == "full":
        _make_namesakes(graph, rng)
    else:
        _keep_few_relations(graph, rng)
    return graph


def _sizes(entities: int) -> list[int]:
    """Return the number of entities of each part."""
    small = [max(SMALLEST_PART, round(entities * share)) for share in SPLIT_SHARES[1:]]
    return [entities - sum(small), *small]


def _counts(size: int) -> dict[str, int]:
    """Return the number of entities of each kind. Each kind has at least one, and most entities are persons."""
    counts = {kind: max(1, int(size * share)) for kind, share in SHARES.items()}
    return {"person": size - sum(counts.values()), **counts}


def _check_names(totals: Mapping[str, int], lexicon: Lexicon, entities: int) -> None:
    """Check that the lexicon has enough names.

    Raises:
        ConfigError: If there are too few names. The message states the largest possible world.
    """
    most, kind = min((entities * len(lexicon.names[kind]) // count, kind) for kind, count in totals.items())
    if most < entities:
        raise ConfigError(
            f"the small vocabulary has {len(lexicon.names[kind])} names for the kind {kind}, but {entities} entities "
            f"need {totals[kind]} of them. Use about {most} entities, or the full vocabulary."
        )


def _entities(parts: Sequence[Mapping[str, int]], lexicon: Lexicon, rng: Random) -> list[Entity]:
    """Return the entities in random order, so that a number reveals neither kind nor split."""
    names = {kind: iter(every) for kind, every in lexicon.names.items()}
    drawn = [
        (kind, next(names[kind]), split)
        for split, counts in zip(SPLITS, parts, strict=True)
        for kind in KINDS
        for _ in range(counts[kind])
    ]
    rng.shuffle(drawn)
    return [Entity(number, *fields) for number, fields in enumerate(drawn)]


class _Relations:
    """The random choice of relations for the entities of one part."""

    def __init__(self, graph: Graph, split: str, rng: Random) -> None:
        self._graph, self._split, self._rng = graph, split, rng
        self._years = graph.lexicon.years
        self._people: list[Entity] = []
        self._births: list[int] = []

    def draw(self) -> None:
        """Draw all relations, years first. A teacher is older than a pupil, and a work is younger than its maker."""
        for kind in KINDS:
            for entity in self._graph.members(kind, self._split):
                self._year(entity)
        self._people = sorted(
            self._graph.members("person", self._split), key=lambda person: (self._born(person), person.number)
        )
        self._births = [self._born(person) for person in self._people]
        for kind in KINDS:
            for entity in self._graph.members(kind, self._split):
                self._relate(entity)
        for region in self._graph.members("region", self._split):
            self._capital(region)

    def _year(self, entity: Entity) -> None:
        """Draw a year. Persons are born in the first four fifths of the period, which leaves years for their works."""
        years = self._years
        latest = years.start + len(years) * 4 // 5 if entity.kind == "person" else years.stop
        for relation in self._graph.wording.of(entity.kind):
            if relation.target == YEAR:
                entity.objects[relation.name] = self._rng.randrange(years.start, latest)

    def _relate(self, entity: Entity) -> None:
        for relation in self._graph.wording.of(entity.kind):
            if relation.name == "capital" or relation.target == YEAR:
                continue
            if not relation.to_entity:
                entity.objects[relation.name] = self._rng.choice(self._graph.lexicon.words(relation.name))
            elif self._rng.random() < (_PRIZE_RATE if relation.target == "prize" else _RELATION_RATE):
                self._point(entity, relation)

    def _point(self, entity: Entity, relation: Relation) -> None:
        if relation.name == "teacher":
            older = self._older(entity)
            target = self._rng.choice(older) if older else None
        else:
            target = self._rng.choice(self._graph.members(relation.target, self._split))
        if target is not None:
            entity.objects[relation.name] = target.number
            if relation.name in {"maker", "founder"}:
                self._after(entity, self._born(target))

    def _older(self, entity: Entity) -> list[Entity]:
        """Return up to thirty persons who were born in earlier years than this person, the nearest in time."""
        position = bisect_left(self._births, self._born(entity))
        return self._people[max(0, position - 30) : position]

    def _after(self, entity: Entity, born: int) -> None:
        """Move the year of a work or institution into the life of its maker."""
        year = next(relation.name for relation in self._graph.wording.of(entity.kind) if relation.target == YEAR)
        lived = max(2, len(self._years) // 10)
        entity.objects[year] = min(self._years.stop - 1, born + self._rng.randint(1 + lived // 3, lived))

    def _born(self, person: Entity) -> int:
        name = next(relation.name for relation in self._graph.wording.of("person") if relation.target == YEAR)
        return int(person.objects[name])

    def _capital(self, region: Entity) -> None:
        towns = [
            town for town in self._graph.members("town", self._split) if town.objects.get("region") == region.number
        ]
        if towns:
            region.objects["capital"] = self._rng.choice(towns).number


def _make_namesakes(graph: Graph, rng: Random) -> None:
    """Give some persons the name of a person with another trade, who may be in any part."""
    people = [entity for entity in graph.entities if entity.kind == "person"]
    rng.shuffle(people)
    pairs = int(len(people) * _NAMESAKE_SHARE)
    for first, second in zip(people[:pairs], people[pairs : 2 * pairs], strict=True):
        if first.objects["trade"] != second.objects["trade"]:
            second.name = first.name
            first.ambiguous = second.ambiguous = True


def _keep_few_relations(graph: Graph, rng: Random) -> None:
    """Reduce each entity to a few of its relations, so that one sentence can state them."""
    for entity in graph.entities:
        names = rng.sample(list(entity.objects), min(_SHORT_RELATIONS, len(entity.objects)))
        entity.objects = {name: value for name, value in entity.objects.items() if name in names}
