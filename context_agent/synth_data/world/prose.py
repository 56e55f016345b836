"""Documents of a world: what is true of one entity, told in sentences whose wording and order vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from context_agent.synth_data.world.graph import Entity, Graph
from context_agent.synth_data.world.queries import capital
from context_agent.synth_data.world.schema import SMALL, Relation
from context_agent.types import Document

_NAMED_AGAIN = 0.2
"""Chance that a later sentence repeats its subject's name."""


@dataclass(frozen=True, slots=True)
class Told:
    """A document, and the part of it that tells each relation."""

    document: Document
    quotes: Mapping[str, str]


def tell(graph: Graph, entity: Entity, seed: int) -> Told:
    """The document of an entity; the same seed tells it in the same words."""
    rng = Random(f"prose/{seed}/{entity.number}")
    relations = [one for one in graph.wording.of(entity.kind) if one.name in entity.objects]
    rng.shuffle(relations)
    if graph.wording is SMALL:
        return _in_one_sentence(graph, entity, relations)
    quotes = {
        relation.name: capital(_sentence(graph, entity, relation, rng, first=place == 0))
        for place, relation in enumerate(relations)
    }
    return Told(Document(entity.id, " ".join(quotes.values()), entity.title), quotes)


def _in_one_sentence(graph: Graph, entity: Entity, relations: Sequence[Relation]) -> Told:
    """`Ada Burr has the home Old Elm , has the prize Cole Cup and has the house the Abel Bank .`"""
    quotes = {}
    for relation in relations:
        predicate = relation.told[0].removeprefix("{x} ").removesuffix(" .")
        quotes[relation.name] = predicate.format(y=graph.written(entity, relation))
    said = list(quotes.values())
    text = f"{entity.mention} {' and '.join([' , '.join(said[:-1]), said[-1]] if said[1:] else said)} ."
    return Told(Document(entity.id, text, entity.title), quotes)


def _sentence(graph: Graph, entity: Entity, relation: Relation, rng: Random, *, first: bool) -> str:
    """The first sentence names its subject, the others mostly use a pronoun, as texts do."""
    named = first or rng.random() < _NAMED_AGAIN
    pronoun = ("He" if entity.number % 2 else "She") if entity.kind == "person" else "It"
    return rng.choice(relation.told).format(x=entity.mention if named else pronoun, y=graph.written(entity, relation))
