"""The toy environment: a generated corpus with questions, for models of a few hundred thousand weights.

Such a model cannot copy numbers that it has never seen, so the id of a document is its title, and the gold ids of
questions are changed alike. `toy.words` spells its prompts, and `toy.expert` demonstrates its episodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import PositiveInt

from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data.world.closed_world import make_world
from context_agent.train.toy.words import SWARM_WORDS
from context_agent.types import Document, Question

TYPES = ("single", "bridge")
"""Kinds of question asked here: chains of documents, each of which names the next."""


SPLITS = ("train", "dev", "test")


BRANCH_SEPARATOR = " , "
"""Stands between the branches of a question, each of which can be followed without the others."""


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """A toy environment made when the run starts: corpus and questions (`train.environment`).

    Attributes:
        entities: Documents of the corpus.
        tasks: Questions of all splits and types.
        seed: Random seed.
        hops: Fewest and most documents that a question leads through.
        worlds: Environments of consecutive seeds for demonstrations; questions for rewards use the first one.
        branches: Chains of documents that a question asks for at once.
    """

    entities: PositiveInt = 800
    tasks: PositiveInt = 6_000
    seed: int = 0
    hops: tuple[PositiveInt, PositiveInt] = (1, 3)
    worlds: PositiveInt = 1
    branches: PositiveInt = 1


@dataclass(frozen=True, slots=True)
class ToyEnvironment:
    """A corpus, and for each split questions whose gold is in hop order. No gold of one split is gold of another.

    `others` are further environments, in which the same names mean something else.
    """

    corpus: MemoryCorpus
    questions: dict[str, list[Question]]
    titles: dict[str, str]
    """By document id."""
    others: tuple[ToyEnvironment, ...] = ()


def make_environment(config: WorldConfig) -> ToyEnvironment:
    """Return a toy environment with the questions of the supported `TYPES`. Equal settings give equal environments.

    Demonstrations in several worlds teach a policy to read names; demonstrations in one teach it to remember them. With
    more than one of the `branches` each question asks for several chains at once (`join_questions`). Raises
    `ConfigError` for more questions than such a world has.
    """
    generated = make_world(
        entities=config.entities,
        seed=config.seed,
        tasks=config.tasks,
        hops=config.hops,
        distractors=0,
        vocabulary="small",
    )
    ids = {document.id: document.title.lower().replace(" ", "-") for document in generated.documents}
    documents = [Document(ids[document.id], document.text, document.title) for document in generated.documents]
    titles = {ids[document.id]: document.title for document in generated.documents}
    questions: dict[str, list[Question]] = {}
    for split in SPLITS:
        tasks = [task for task in generated.stream(split) if task.type in TYPES]
        questions[split] = [
            replace(task.as_question, gold=tuple(ids[document] for document in task.gold), facts=()) for task in tasks
        ]
        if config.branches > 1:
            questions[split] = join_questions(questions[split], config.branches, seed=config.seed)
    further = (make_environment(replace(config, seed=config.seed + n, worlds=1)) for n in range(1, config.worlds))
    return ToyEnvironment(MemoryCorpus(documents), questions, titles, tuple(further))


def join_questions(questions: Sequence[Question], branches: int, *, seed: int = 0) -> list[Question]:
    """Questions that ask for so many chains at once: `ruler of garth coast , craft of the scene of dark bell ?`.

    A branch is a chain without what is asked about its last document, so its gold is what its words lead to. As many
    questions as were given, of branches without a document in common. Questions of one document make no branch.
    """
    branches_of = list({_branch(question): question for question in questions if len(question.gold) > 1}.items())
    rng = random.Random(f"joined/{seed}/{branches}")
    joined: dict[str, Question] = {}
    for _ in range(2 * len(questions)):
        drawn = rng.sample(branches_of, min(branches, len(branches_of)))
        gold = tuple(document for _, question in drawn for document in question.gold)
        if len(joined) < len(questions) and len(drawn) == branches and len(set(gold)) == len(gold):
            text = f"{BRANCH_SEPARATOR.join(branch for branch, _ in drawn)} ?"
            first = drawn[0][1]
            joined[text] = Question(f"{first.id}-{len(joined)}", text, gold=gold, type="joined", hops=len(gold))
    return list(joined.values())


def split_branches(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the branches of a question with the gold of each, in hop order; the question itself where it has but
    one.
    """
    if question.type != "joined":
        yield question.question, question.gold
        return
    gold = iter(question.gold)
    for branch in question.question.removesuffix(" ?").split(BRANCH_SEPARATOR):
        yield branch, tuple(next(gold) for _ in range(branch.count(" of ") + 1))


def _branch(question: Question) -> str:
    """`What is the house of the ruler of Garth Coast ?` is `ruler of garth coast`."""
    return question.question.lower().removesuffix(" ?").partition(" of ")[2].removeprefix("the ")


def environment_texts(world: ToyEnvironment, *, swarm: bool = False) -> Iterator[str]:
    """Yield the texts that a vocabulary of whole words must cover; with `swarm` also those about sub-agents."""
    if swarm:
        yield SWARM_WORDS
    for item in (world, *world.others):
        for chunk in item.corpus.chunks:
            yield chunk.indexed_text
        for questions in item.questions.values():
            for question in questions:
                yield question.question
