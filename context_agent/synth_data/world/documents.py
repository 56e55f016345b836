"""The documents of a world: sentences that state each entity's relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from context_agent.synth_data.world.graph import Entity, Graph
from context_agent.synth_data.world.schema import SMALL, Relation
from context_agent.text.sentences import capitalize
from context_agent.types import Document

_NAME_RATE = 0.2
"""The probability that a sentence after the first repeats the subject's name."""


@dataclass(frozen=True, slots=True)
class EntityDocument:
    """An entity's document, and the part of it that states each relation."""

    document: Document
    quotes: Mapping[str, str]


def write_document(graph: Graph, entity: Entity, seed: int) -> EntityDocument:
    """Return the document of an entity. The same seed gives the same words."""
    rng = Random(f"prose/{seed}/{entity.number}")
    relations = [relation for relation in graph.wording.of(entity.kind) if relation.name in entity.objects]
    rng.shuffle(relations)
    if graph.wording is SMALL:
        return _write_one_sentence(graph, entity, relations)
    quotes = {
        relation.name: capitalize(_sentence(graph, entity, relation, rng, first=position == 0))
        for position, relation in enumerate(relations)
    }
    return EntityDocument(Document(entity.id, " ".join(quotes.values()), entity.title), quotes)


def _write_one_sentence(graph: Graph, entity: Entity, relations: Sequence[Relation]) -> EntityDocument:
    """Return a document of one sentence: `Ada Burr has the home Old Elm , has the prize Cole Cup and has the … .`"""
    quotes = {}
    for relation in relations:
        predicate = relation.says[0].removeprefix("{x} ").removesuffix(" .")
        quotes[relation.name] = predicate.format(y=graph.written(entity, relation))
    clauses = list(quotes.values())
    text = f"{entity.mention} {' and '.join([' , '.join(clauses[:-1]), clauses[-1]] if clauses[1:] else clauses)} ."
    return EntityDocument(Document(entity.id, text, entity.title), quotes)


def _sentence(graph: Graph, entity: Entity, relation: Relation, rng: Random, *, first: bool) -> str:
    """Return a sentence that states a relation.

    After the first sentence, a pronoun usually replaces the subject's name.
    """
    by_name = first or rng.random() < _NAME_RATE
    pronoun = ("He" if entity.number % 2 else "She") if entity.kind == "person" else "It"
    return rng.choice(relation.says).format(x=entity.mention if by_name else pronoun, y=graph.written(entity, relation))
