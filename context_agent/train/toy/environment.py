"""The toy environment: a generated corpus with questions, for models of a few hundred thousand weights.

Such a model cannot copy numbers that it has never seen. Therefore the id of each document is its title, and the
questions' gold ids are changed in the same way. `toy.word_prompts` writes its prompts, and `toy.expert` demonstrates
its episodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from pydantic import Field, PositiveInt

from context_agent.errors import ConfigError
from context_agent.retrieval.embedders import STATIC
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data.world.closed_world import make_world
from context_agent.train.toy.word_prompts import SWARM_WORDS
from context_agent.types import Document, Question

TYPES = ("single", "bridge")
"""Kinds of questions in this environment. Both follow chains of documents, each of which names the next."""


SPLITS = ("train", "dev", "test")
"""Names of the sets of questions."""


BRANCH_SEPARATOR = " , "
"""The text between the branches of a question. Each branch can be followed without the others."""


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """A toy environment of a corpus and questions, generated when the run starts.

    Attributes:
        entities: Number of documents of the corpus.
        tasks: Number of questions of all splits and types together.
        seed: Random seed.
        hops: Smallest and largest number of documents in a question's chain.
        worlds: Number of environments for demonstrations, with consecutive seeds. Reinforcement learning uses the
            questions of the first one.
        branches: Number of chains that a question asks for at once.
    """

    entities: PositiveInt = 800
    tasks: PositiveInt = 6_000
    seed: int = 0
    hops: tuple[PositiveInt, PositiveInt] = (1, 3)
    worlds: Annotated[int, Field(ge=1, le=1_000)] = 1
    branches: PositiveInt = 1


@dataclass(frozen=True, slots=True)
class ToyEnvironment:
    """A corpus with questions. No gold document of one split is gold in another.

    Attributes:
        corpus: The corpus.
        questions: The questions of each split. Their gold is in hop order.
        titles: The title of each document, by id.
        others: Further environments, in which the same names have other meanings.
    """

    corpus: MemoryCorpus
    questions: dict[str, list[Question]]
    titles: dict[str, str]
    others: tuple[ToyEnvironment, ...] = ()


@lru_cache(maxsize=1)
def make_environment(config: WorldConfig) -> ToyEnvironment:
    """Generate a toy environment with the questions of the supported `TYPES`. Equal settings give equal environments.

    A process keeps the last environment, because a run's data and its vocabulary come from the same one.

    Demonstrations in several worlds teach a policy to read names. Demonstrations in one world teach it to remember
    them. If `branches` is above 1, each question asks for several chains at once (`join_questions`).

    Args:
        config: The settings.

    Returns:
        The environment.

    Raises:
        ConfigError: If such a world does not have enough questions.
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
    if not questions["train"]:
        raise ConfigError(
            f"no question of the world has {config.branches} branches that share no document. Lower "
            "data.world.branches, or raise data.world.entities."
        )
    further = (make_environment(replace(config, seed=config.seed + n, worlds=1)) for n in range(1, config.worlds))
    return ToyEnvironment(MemoryCorpus(documents, embedder=STATIC), questions, titles, tuple(further))


def join_questions(questions: Sequence[Question], branches: int, *, seed: int = 0) -> list[Question]:
    """Join questions, so that each asks for several chains: `ruler of garth coast , craft of the scene of dark bell ?`.

    A branch is a chain of documents without the question about its last document. Its words lead to its gold. Questions
    of one document have no branch. The branches of a joined question share no document. At most as many questions are
    returned as were given.

    Args:
        questions: The questions to join.
        branches: Number of chains in a joined question.
        seed: Seed of the draws.

    Returns:
        The joined questions.
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
    """Yield the branches of a question with the gold of each, in hop order.

    If the question has only one branch, yield the question itself.
    """
    if question.type != "joined":
        yield question.question, question.gold
        return
    gold = iter(question.gold)
    for branch in question.question.removesuffix(" ?").split(BRANCH_SEPARATOR):
        yield branch, tuple(next(gold) for _ in range(branch.count(" of ") + 1))


def _branch(question: Question) -> str:
    """Return the branch of a question. For `What is the house of the ruler of Garth Coast ?` it is `ruler of garth
    coast`.
    """
    return question.question.lower().removesuffix(" ?").partition(" of ")[2].removeprefix("the ")


def environment_texts(world: ToyEnvironment, *, swarm: bool = False) -> Iterator[str]:
    """Yield the texts that a vocabulary of whole words must cover. With `swarm`, include those about sub-agents."""
    if swarm:
        yield SWARM_WORDS
    for item in (world, *world.others):
        for chunk in item.corpus.chunks:
            yield chunk.indexed_text
        for questions in item.questions.values():
            for question in questions:
                yield question.question
