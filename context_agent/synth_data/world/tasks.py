"""The tasks of a world: queries in words, checked against the graph, with gold, quotes and distractors.

A query becomes a task only if it passes these checks:

- The graph gives exactly one answer, and no other entity has the answer's name.
- All documents on the path differ.
- The answer is not in the question, except as an option of a comparison.
- No document before the last one states the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from context_agent.synth_data.task import Support, Task
from context_agent.synth_data.world.distractors import DistractorFinder
from context_agent.synth_data.world.documents import EntityDocument
from context_agent.synth_data.world.graph import Graph
from context_agent.synth_data.world.queries import (
    Follow,
    Intersection,
    Query,
    QueryStep,
    QueryStreams,
    YearComparison,
    evaluate,
    phrase_question,
)
from context_agent.text.sentences import capitalize

TYPE_ORDER = ("bridge", "comparison", "bridge", "intersection")
"""The order in which the types alternate. A chain over one document has the type `single`."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a query.

    Attributes:
        text: The answer as text.
        kind: The kind of the entity, `year` or `word`.
        number: The entity's number. None for a year or a word.
    """

    text: str
    kind: str
    number: int | None = None


class TaskGenerator:
    """A generator of the tasks of one part of a world."""

    def __init__(
        self, graph: Graph, documents: Sequence[EntityDocument], split: str, *, seed: int, name: str, distractors: int
    ) -> None:
        """Create a generator.

        Args:
            graph: The world.
            documents: The documents of all entities, indexed by entity number.
            split: The part of the world.
            seed: The seed of everything that is random.
            name: The start of every task's id.
            distractors: The number of distractors per task.
        """
        self._graph, self._documents, self._split, self._seed = graph, documents, split, seed
        self._name, self._distractor_count = name, distractors
        self._distractors = DistractorFinder(graph)

    def tasks(self, hops: range) -> Iterator[Task]:
        """Yield tasks until no more can be made.

        The numbers of hops alternate, and so do the types for each number of hops.
        """
        rng = Random(f"tasks/{self._seed}/{self._split}")
        lanes = [self._lane(n, rng) for n in hops]
        seen: set[str] = set()
        numbers = count(1)
        while lanes:
            for lane in list(lanes):
                task = next((candidate for candidate in lane if candidate.question not in seen), None)
                if task is None:
                    lanes.remove(lane)
                    continue
                seen.add(task.question)
                yield self._finish(task, next(numbers), rng)

    def _lane(self, hops: int, rng: Random) -> Iterator[Task]:
        """Yield the tasks over this many documents. The types alternate until each is exhausted."""
        candidates = QueryStreams(self._graph, self._split, self._seed)
        streams = {kind: candidates.stream(kind, hops) for kind in TYPE_ORDER}
        turns = list(TYPE_ORDER)
        while turns:
            for kind in list(turns):
                task = next(
                    (drafted for query in streams[kind] if (drafted := self.task(query, rng)) is not None), None
                )
                if task is None:
                    turns = [other_kind for other_kind in turns if other_kind != kind]
                else:
                    yield task

    def task(self, query: Query, rng: Random) -> Task | None:
        """Return the task of a query, without its id and distractors. If a check fails, return None."""
        matches = evaluate(self._graph, query)
        if len(matches) != 1:
            return None
        question, way = phrase_question(self._graph, query, rng)
        answer = self._answer(query, *matches)
        return (
            self._build(query, capitalize(question), way, answer)
            if self._is_valid(query, question, way, answer)
            else None
        )

    def _answer(self, query: Query, value: int | str) -> _Answer:
        if isinstance(query, Follow) and not query.relation.to_entity:
            return _Answer(str(value), query.relation.target)
        entity = self._graph.entities[int(value)]
        return _Answer(entity.name, entity.kind, entity.number)

    def _is_valid(self, query: Query, question: str, way: Sequence[QueryStep], answer: _Answer) -> bool:
        numbers = [step.number for step in way]
        if len(set(numbers)) < len(numbers):
            return False
        if answer.number is not None and self._graph.entities[answer.number].ambiguous:
            return False
        if isinstance(query, YearComparison):
            return True
        return not contains_words(question, answer.text) and not any(self._states(n, answer.text) for n in numbers[:-1])

    def _states(self, number: int, answer: str) -> bool:
        document = self._documents[number].document
        return contains_words(document.title, answer) or contains_words(document.text, answer)

    def _build(self, query: Query, question: str, way: Sequence[QueryStep], answer: _Answer) -> Task:
        supporting = tuple(self._support(step, answer.text) for step in way)
        kind = (
            "comparison"
            if isinstance(query, YearComparison)
            else "intersection"
            if isinstance(query, Intersection)
            else "bridge"
        )
        return Task(
            id="",
            question=question,
            answer=answer.text,
            gold=tuple(support.id for support in supporting),
            type="single" if kind == "bridge" and len(way) == 1 else kind,
            hops=len(way),
            facts=tuple(support.chunks for support in supporting),
            clues="\n".join(quote for support in supporting for quote in support.clue_quotes),
            truth_type=answer.kind,
            supporting=supporting,
            domain="world",
            origin="world",
            split=self._split,
        )

    def _support(self, step: QueryStep, answer: str) -> Support:
        document = self._documents[step.number]
        states_answer = self._states(step.number, answer)
        return Support(
            id=document.document.id,
            chunks=(f"{document.document.id}_0",),
            clue_quotes=step.clues,
            item_quotes=tuple(document.quotes[relation.name] for relation in step.relations),
            contains_truth=states_answer,
            truth_quotes=(answer,) if states_answer else (),
        )

    def _finish(self, task: Task, number: int, rng: Random) -> Task:
        gold = [int(document_id.removeprefix("w-")) for document_id in task.gold]
        near = self._distractors.near(gold, rng)
        distractors: list[str] = []
        for candidate in near:
            if len(distractors) == self._distractor_count:
                break
            if not self._states(candidate, task.answer):
                distractors.append(self._documents[candidate].document.id)
        return replace(task, id=f"{self._name}-{self._split}-{number:06d}", distractors=tuple(distractors))


def contains_words(text: str, answer: str) -> bool:
    """Return True if the text contains the answer at word boundaries, in any case."""
    low, sought = text.lower(), answer.lower()
    return sought in low and re.search(rf"(?<!\w){re.escape(sought)}(?!\w)", low) is not None
