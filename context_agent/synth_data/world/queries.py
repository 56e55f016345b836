"""Queries over a world, their exact answers, and their wording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from context_agent.synth_data.world.graph import Entity, Graph
from context_agent.synth_data.world.schema import KINDS, SMALL, YEAR, Relation
from context_agent.text.sentences import capitalize

Answers = frozenset[int | str]


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """A query for an entity by its name."""

    number: int


@dataclass(frozen=True, slots=True)
class Follow:
    """A query for the object of a relation. Another query describes the subject of the relation."""

    of: Query
    relation: Relation


@dataclass(frozen=True, slots=True)
class Intersection:
    """A query for entities of one kind with two relations, each to a described entity."""

    kind: str
    first: tuple[Relation, Query]
    second: tuple[Relation, Query]


@dataclass(frozen=True, slots=True)
class YearComparison:
    """A query that asks which of two entities has the earlier year."""

    relation: Relation
    a: Query
    b: Query


Query = NamedEntity | Follow | Intersection | YearComparison


def evaluate(graph: Graph, query: Query) -> Answers:
    """Return all answers to the query. An ambiguous description has several.

    An entity in the answers is its number in the graph.
    """
    match query:
        case NamedEntity(number):
            return frozenset({number})
        case Follow(of, relation):
            objects = (graph.entities[int(value)].objects.get(relation.name) for value in evaluate(graph, of))
            return frozenset(value for value in objects if value is not None)
        case Intersection(kind, first, second):
            return _subjects(graph, kind, *first) & _subjects(graph, kind, *second)
        case YearComparison(relation, a, b):
            years = {
                value: int(graph.entities[int(value)].objects[relation.name])
                for value in evaluate(graph, a) | evaluate(graph, b)
            }
            return frozenset(value for value, year in years.items() if year == min(years.values()))


def _subjects(graph: Graph, kind: str, relation: Relation, query: Query) -> Answers:
    """Return the entities that have the relation to one of the described entities."""
    return frozenset(
        subject
        for target in evaluate(graph, query)
        for subject, name in graph.sources.get(int(target), ())
        if name == relation.name and graph.entities[subject].kind == kind
    )


@dataclass(frozen=True, slots=True)
class QueryStep:
    """A document on the path to the answer.

    Attributes:
        number: The number of the document's entity.
        relations: The relations that the document is read for.
        clues: The clues that describe these relations.
    """

    number: int
    relations: tuple[Relation, ...]
    clues: tuple[str, ...]


def describe_query(graph: Graph, query: Query, rng: Random) -> tuple[str, list[QueryStep]]:
    """Return a description of the query's unique answer, and the documents on the path in hop order.

    The description names only the entities where it starts.
    """
    match query:
        case NamedEntity(number):
            return graph.entities[number].mention, []
        case Follow(of, relation):
            described, before = describe_query(graph, of, rng)
            noun = rng.choice(relation.noun) if isinstance(of, NamedEntity) else relation.noun[0]
            return noun.format(x=described), [
                *before,
                QueryStep(_single_entity(graph, of), (relation,), (_clue(relation, described),)),
            ]
        case Intersection(kind, first, second):
            one_end, before = describe_query(graph, first[1], rng)
            other_end, between = describe_query(graph, second[1], rng)
            ends = ((first[0], one_end), (second[0], other_end))
            clauses = [rng.choice(relation.clause).format(y=end) for relation, end in ends]
            clues = tuple(capitalize(relation.says[0].format(x=f"some {kind}", y=end)) for relation, end in ends)
            last = QueryStep(_single_entity(graph, query), (first[0], second[0]), clues)
            return f"the {kind} that {' and '.join(clauses)}", [*before, *between, last]
        case YearComparison(relation, a, b):
            left_phrase, to_left = describe_query(graph, a, rng)
            right_phrase, to_right = describe_query(graph, b, rng)
            year_steps = [
                QueryStep(_single_entity(graph, side), (relation,), (_clue(relation, text),))
                for side, text in ((a, left_phrase), (b, right_phrase))
            ]
            return relation.earlier.format(a=left_phrase, b=right_phrase), [
                *to_left,
                year_steps[0],
                *to_right,
                year_steps[1],
            ]


def phrase_question(graph: Graph, query: Query, rng: Random) -> tuple[str, list[QueryStep]]:
    """Return the question in words, and the documents that answer it in hop order."""
    if isinstance(query, Follow):
        described, before = describe_query(graph, query.of, rng)
        text = rng.choice(query.relation.asks).format(x=described)
        return text, [
            *before,
            QueryStep(_single_entity(graph, query.of), (query.relation,), (_clue(query.relation, described),)),
        ]
    described, way = describe_query(graph, query, rng)
    if isinstance(query, Intersection):
        mark = " ?" if graph.wording is SMALL else "?"
        return f"Which {described.removeprefix('the ').replace(' that ', ' ', 1)}{mark}", way
    return described, way


def _clue(relation: Relation, subject: str) -> str:
    """Return the statement about the subject, without its object."""
    return capitalize(relation.says[0].format(x=subject, y=relation.hidden))


def _single_entity(graph: Graph, query: Query) -> int:
    return int(min(evaluate(graph, query), key=str))


COMPARED_WITH = 8
"""The largest number of entities that one entity is compared with."""


_DEPTHS = {1: ((0, 0),), 2: ((0, 1), (1, 0)), 3: ((1, 1), (0, 2)), 4: ((1, 2), (2, 1))}
"""The numbers of documents that lead to each of the two ends of an intersection, by its total number of documents."""


class QueryStreams:
    """The streams of queries over one part. The seed determines their order."""

    def __init__(self, graph: Graph, split: str, seed: int) -> None:
        self._graph, self._split, self._seed = graph, split, seed

    def stream(self, kind: str, hops: int) -> Iterator[Query]:
        """Yield the queries of a type over this many documents.

        Args:
            kind: The type: `single`, `bridge`, `comparison` or `intersection`.
            hops: The number of documents.
        """
        rng = Random(f"candidates/{self._seed}/{self._split}/{kind}/{hops}")
        if kind == "comparison":
            return self._comparisons(hops, rng)
        return self._intersections(hops, rng) if kind == "intersection" else self._chains(hops, rng)

    def _shuffled(self, kinds: tuple[str, ...], rng: Random) -> list[Entity]:
        entities = [entity for kind in kinds for entity in self._graph.members(kind, self._split)]
        rng.shuffle(entities)
        return entities

    def _chains(self, hops: int, rng: Random) -> Iterator[Query]:
        """Yield chains from every start along every path of relations.

        Each start comes once before any start comes again with another path.
        """
        paths = {kind: self._paths(kind, hops) for kind in KINDS}
        for every in paths.values():
            rng.shuffle(every)
        starts = self._shuffled(KINDS, rng)
        for turn in range(max(map(len, paths.values()))):
            for position, start in enumerate(starts):
                mine = paths[start.kind]
                if turn < len(mine) and self._path_exists(start, path := mine[(turn + position) % len(mine)]):
                    query: Query = NamedEntity(start.number)
                    for relation in path:
                        query = Follow(query, relation)
                    yield query

    def _paths(self, kind: str, hops: int) -> list[tuple[Relation, ...]]:
        wording = self._graph.wording
        paths: list[tuple[Relation, ...]] = [(relation,) for relation in wording.of(kind)]
        for _ in range(hops - 1):
            paths = [
                (*path, relation) for path in paths if path[-1].to_entity for relation in wording.of(path[-1].target)
            ]
        return paths

    def _path_exists(self, start: Entity, path: tuple[Relation, ...]) -> bool:
        """Return True if the path can be followed from this entity: every entity on the way has the next relation."""
        here = start
        for relation in path:
            if relation.name not in here.objects:
                return False
            if relation.to_entity:
                here = self._graph.entities[int(here.objects[relation.name])]
        return True

    def _comparisons(self, hops: int, rng: Random) -> Iterator[Query]:
        """Yield comparisons of two entities of a kind by year, in which both, one or neither is named."""
        years = [relation for relation in self._graph.wording.relations if relation.target == YEAR]
        streams = [self._compared(hops, relation, rng) for relation in years] if hops > 1 else []
        for row in zip_longest(*streams):
            yield from (query for query in row if query is not None)

    def _compared(self, hops: int, year: Relation, rng: Random) -> Iterator[Query]:
        dated = [entity for entity in self._shuffled((year.source,), rng) if year.name in entity.objects]
        plain: list[tuple[int, Query]] = [(entity.number, NamedEntity(entity.number)) for entity in dated]
        described = [(number, query) for number, query in self._described(year, rng)] if hops > 2 else []
        firsts, seconds = {2: (plain, plain), 3: (plain, described), 4: (described, described)}[hops]
        for offset in range(1, COMPARED_WITH + 1):
            for position, (first, query) in enumerate(firsts):
                if not seconds or (firsts is seconds and offset >= len(firsts)):
                    return
                second, second_query = seconds[(position + offset) % len(seconds)]
                # If both ends come from one short list, each pair would come up twice.
                if first != second and not (firsts is seconds and 2 * offset == len(firsts) and position >= offset):
                    yield YearComparison(year, query, second_query)

    def _described(self, year: Relation, rng: Random) -> list[tuple[int, Query]]:
        """Return the entities with this year, each with a description by one subject that leads to it."""
        graph = self._graph
        described: list[tuple[int, Query]] = []
        for subject in self._shuffled(KINDS, rng):
            for relation in graph.wording.of(subject.kind):
                target = subject.objects.get(relation.name)
                if relation.target != year.source or target is None:
                    continue
                if year.name in graph.entities[int(target)].objects:
                    described.append((int(target), Follow(NamedEntity(subject.number), relation)))
        return described

    def _intersections(self, hops: int, rng: Random) -> Iterator[Query]:
        """Yield queries for entities with two relations, each with an object that is named or described."""
        for depths in _DEPTHS[hops]:
            for entity in self._shuffled(KINDS, rng):
                relations = [r for r in self._graph.wording.of(entity.kind) if r.to_entity and r.name in entity.objects]
                for position, first in enumerate(relations):
                    for second in relations[position + 1 :]:
                        ends = [
                            self._describe(int(entity.objects[relation.name]), depth, entity.number, rng)
                            for relation, depth in zip((first, second), depths, strict=True)
                        ]
                        if ends[0] is not None and ends[1] is not None:
                            yield Intersection(entity.kind, (first, ends[0]), (second, ends[1]))

    def _describe(self, number: int, depth: int, without: int, rng: Random) -> Query | None:
        """Return a description of an entity over `depth` documents that avoids the entity `without`.

        If there is no such description, return None.
        """
        if depth == 0:
            return NamedEntity(number)
        subjects = [
            (subject_number, name)
            for subject_number, name in self._graph.sources.get(number, ())
            if subject_number not in {without, number}
        ]
        if not subjects:
            return None
        subject, name = rng.choice(subjects)
        start = self._describe(subject, depth - 1, without, rng)
        return (
            None
            if start is None
            else Follow(start, self._graph.wording.relation(self._graph.entities[subject].kind, name))
        )
