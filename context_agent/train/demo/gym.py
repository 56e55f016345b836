"""The gymnasium: a small closed world as a corpus and questions, with ids that are names.

A policy that reads two hundred words cannot copy numbers it has never seen. So a document's id is its title, and every
id in a question's gold is changed alike.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from context_agent.questions import Question
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data import world
from context_agent.types import Document

TYPES = ("single", "bridge")
"""Kinds of question asked here: chains of documents, each of which names the next."""
SPLITS = ("train", "dev", "test")
BETWEEN = " , "
"""Stands between the branches of a question, each of which can be followed without the others."""


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
    branches: int = 1,
) -> Gym:
    """A world of so many entities, and those of so many questions about it that are of these types.

    With more than one of the `worlds` the others are of the seeds that follow: lessons on several of them teach to read
    names, where lessons on one teach to remember them. With more than one of the `branches` each question asks for so
    many chains at once (`joined`). Equal arguments give equal gyms. Raises `ConfigError` for more questions than such a
    world has.
    """
    made = world.make(entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=0, vocabulary="small")
    ids = {one.id: one.title.lower().replace(" ", "-") for one in made.documents}
    documents = [Document(ids[one.id], one.text, one.title) for one in made.documents]
    titles = {ids[one.id]: one.title for one in made.documents}
    asked: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for task in made.stream(split):
            if task.type in types:
                question = replace(task.as_question, gold=tuple(ids[one] for one in task.gold), facts=())
                asked[split].append(question)
        if branches > 1:
            asked[split] = joined(asked[split], branches, seed=seed)
    others = (
        gym(entities=entities, tasks=tasks, seed=seed + n, hops=hops, types=types, branches=branches)
        for n in range(1, worlds)
    )
    return Gym(MemoryCorpus(documents), asked, titles, tuple(others))


def joined(questions: Sequence[Question], branches: int, *, seed: int = 0) -> list[Question]:
    """Questions that ask for so many chains at once: `ruler of garth coast , craft of the scene of dark bell ?`.

    A branch is a chain without what is asked about its last document, so its gold is what its words lead to. As many
    questions as were given, of branches without a document in common. Questions of one document make no branch.
    """
    found = list({_branch(one): one for one in questions if len(one.gold) > 1}.items())
    rng = random.Random(f"joined/{seed}/{branches}")
    made: dict[str, Question] = {}
    for _ in range(2 * len(questions)):
        drawn = rng.sample(found, min(branches, len(found)))
        gold = tuple(one for _, question in drawn for one in question.gold)
        if len(made) < len(questions) and len(drawn) == branches and len(set(gold)) == len(gold):
            text = f"{BETWEEN.join(branch for branch, _ in drawn)} ?"
            first = drawn[0][1]
            made[text] = Question(f"{first.id}-{len(made)}", text, gold=gold, type="joined", hops=len(gold))
    return list(made.values())


def parted(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The branches of a question with the gold of each, in hop order; the question itself where it has but one."""
    if question.type != "joined":
        yield question.question, question.gold
        return
    gold = iter(question.gold)
    for branch in question.question.removesuffix(" ?").split(BETWEEN):
        yield branch, tuple(next(gold) for _ in range(branch.count(" of ") + 1))


def _branch(question: Question) -> str:
    """`What is the house of the ruler of Garth Coast ?` is `ruler of garth coast`."""
    return question.question.lower().removesuffix(" ?").partition(" of ")[2].removeprefix("the ")
