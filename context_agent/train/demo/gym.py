"""The gymnasium: a small closed world as a corpus and questions, with ids that are names.

A policy that reads two hundred words cannot copy numbers it has never seen. So a document's id is its title, and every
id in a question's gold is changed alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from context_agent.questions import Question
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data import world
from context_agent.types import Document

TYPES = ("single", "bridge")
"""Kinds of question asked here: chains of documents, each of which names the next."""
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Gym:
    """A corpus, and for each split questions whose gold is in hop order. No gold of one split is gold of another.

    `others` are further worlds, in which the same names stand for something else.
    """

    corpus: MemoryCorpus
    questions: dict[str, list[Question]]
    titles: dict[str, str]
    """By document id."""
    others: tuple[Gym, ...] = ()


def gym(
    *,
    entities: int = 800,
    tasks: int = 6_000,
    seed: int = 0,
    hops: tuple[int, int] = (1, 3),
    types: Collection[str] = TYPES,
    worlds: int = 1,
) -> Gym:
    """A world of so many entities, and those of so many questions about it that are of these types.

    With more than one of the `worlds` the others are of the seeds that follow: lessons on several of them teach to read
    names, where lessons on one teach to remember them. Equal arguments give equal gyms. Raises `ConfigError` for more
    questions than such a world has.
    """
    made = world.make(entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=0, vocabulary="small")
    ids = {one.id: one.title.lower().replace(" ", "-") for one in made.documents}
    documents = [Document(ids[one.id], one.text, one.title) for one in made.documents]
    titles = {ids[one.id]: one.title for one in made.documents}
    asked: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for task in made.stream(split):
            if task.type in types:
                question = replace(task.asked, gold=tuple(ids[one] for one in task.gold), facts=())
                asked[split].append(question)
    others = (gym(entities=entities, tasks=tasks, seed=seed + n, hops=hops, types=types) for n in range(1, worlds))
    return Gym(MemoryCorpus(documents), asked, titles, tuple(others))
