"""The toy environment: a generated corpus with questions, and an expert that demonstrates how to search it.

A policy that reads two hundred words cannot copy numbers that it has never seen. So the id of a document is its title,
and the gold ids of questions are changed alike.

The expert searches the chain of documents name by name, prunes, and ranks what it retrieved. It states which relation
it follows before it searches for the name at its end, so that each word of a demonstration can be read off the words
before it. It is noisy on purpose, since a perfect expert would leave nothing to learn from rewards: at each turn it may
stop early, search for something else that it sees, or leave out a prune. A question of several branches it searches
branch by branch, or it leads: it starts a sub-agent for each branch and ranks their results, sometimes after a search
for what they missed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from context_agent._support.question_files import Question
from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data import world
from context_agent.tokens import TokenCounter
from context_agent.train.demo.words import THOUGHT
from context_agent.types import Action, Document, RankedId, ToolCall

TYPES = ("single", "bridge")
"""Kinds of question asked here: chains of documents, each of which names the next."""
SPLITS = ("train", "dev", "test")
BRANCH_SEPARATOR = " , "
"""Stands between the branches of a question, each of which can be followed without the others."""


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


def make_environment(
    *,
    entities: int = 800,
    tasks: int = 6_000,
    seed: int = 0,
    hops: tuple[int, int] = (1, 3),
    types: Collection[str] = TYPES,
    worlds: int = 1,
    branches: int = 1,
) -> ToyEnvironment:
    """A world of so many entities, and those of so many questions about it that are of these types.

    With more than one of the `worlds` the others are of the seeds that follow: demonstrations on several of them teach
    to read names, where demonstrations on one teach to remember them. With more than one of the `branches` each
    question asks for so many chains at once (`joined`). Equal arguments give equal gyms. Raises `ConfigError` for more
    questions than such a world has.
    """
    generated = world.make(entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=0, vocabulary="small")
    ids = {document.id: document.title.lower().replace(" ", "-") for document in generated.documents}
    documents = [Document(ids[document.id], document.text, document.title) for document in generated.documents]
    titles = {ids[document.id]: document.title for document in generated.documents}
    questions: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for task in generated.stream(split):
            if task.type in types:
                question = replace(task.as_question, gold=tuple(ids[document] for document in task.gold), facts=())
                questions[split].append(question)
        if branches > 1:
            questions[split] = join_questions(questions[split], branches, seed=seed)
    further = (
        make_environment(entities=entities, tasks=tasks, seed=seed + n, hops=hops, types=types, branches=branches)
        for n in range(1, worlds)
    )
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
    """The branches of a question with the gold of each, in hop order; the question itself where it has but one."""
    if question.type != "joined":
        yield question.question, question.gold
        return
    gold = iter(question.gold)
    for branch in question.question.removesuffix(" ?").split(BRANCH_SEPARATOR):
        yield branch, tuple(next(gold) for _ in range(branch.count(" of ") + 1))


def _branch(question: Question) -> str:
    """`What is the house of the ruler of Garth Coast ?` is `ruler of garth coast`."""
    return question.question.lower().removesuffix(" ?").partition(" of ")[2].removeprefix("the ")


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities a turn: to end before the chain is found, to search beside the point, to leave everything.

    `leads` is the probability of an episode with sub-agents, and `trust` of then ranking what they bring as it is.
    """

    stop: float = 0.5
    stray: float = 0.05
    untidy: float = 0.3
    trust: float = 0.0
    leads: float = 0.0


LEADING_NOISE = ExpertNoise(stop=0.1, stray=0.0, untidy=1.0, trust=0.7, leads=0.5)
"""Of who shows how to lead, and how to do without: either way about as much is found."""
SUBAGENT_NOISE = ExpertNoise(stop=0.5, stray=0.0, untidy=1.0)
"""Of its sub-agents, which rank half of their chains too soon."""


class NoisyExpert:
    """A policy that knows each question's gold, in hop order, and the titles by which documents name each other."""

    name = "expert"

    def __init__(
        self,
        questions: Sequence[Question],
        titles: Mapping[str, str],
        carelessness: ExpertNoise | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._branches = {question.question: tuple(split_branches(question)) for question in questions}
        self._branches |= {
            branch: ((branch, gold),) for branch_list in self._branches.values() for branch, gold in branch_list
        }
        self._titles = titles
        self._careless = carelessness or ExpertNoise()
        self.counter = counter

    def instructions(self, profile: Profile) -> str:
        """None: it needs none."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ExpertEpisode:
        """An actor that follows the question's chain, or that of one branch of a question."""
        return ExpertEpisode(
            self._branches[question], self._titles, self._careless, random.Random(f"{seed}:{question}")
        )


class ExpertEpisode:
    """One episode of the expert."""

    def __init__(
        self,
        branches: Sequence[tuple[str, Sequence[str]]],
        titles: Mapping[str, str],
        careless: ExpertNoise,
        rng: random.Random,
    ) -> None:
        self._branches = branches
        self._chain = [document for _, chain in branches for document in chain]
        self._titles = titles
        self._careless = careless
        self._rng = rng
        self._leads = len(branches) > 1 and rng.random() < careless.leads
        self._trusts = self._leads and rng.random() < careless.trust

    async def act(self, view: View) -> Action:
        """Prunes and searches on, or ranks what of the chain is in view; one that leads starts sub-agents first."""
        if self._leads:
            self._leads = False
            return Action((ToolCall(SPAWN, {"tasks": [branch for branch, _ in self._branches]}),))
        visible = list(dict.fromkeys(block.document_id for block in view.blocks))
        visible_gold = [document for document in self._chain if document in visible]
        has_results = bool(visible)
        stops = has_results and (self._trusts or self._rng.random() < self._careless.stop)
        if len(visible_gold) == len(self._chain) or stops:
            ranked = (
                visible_gold
                if len(self._branches) == 1
                else [document for document in visible if document in self._chain]
            )
            return Action(ranking=tuple(RankedId(document) for document in ranked or visible[:1]))
        target = next(document for document in self._chain if document not in visible)
        thought = self._thought(target)
        if has_results and self._rng.random() < self._careless.stray:
            target = self._rng.choice(visible)
        search = ToolCall("search_corpus", {"query": self._titles[target].lower()})
        tidy = visible_gold and len(visible_gold) < len(visible) and self._rng.random() >= self._careless.untidy
        prune = (ToolCall("prune_chunks", {"all_but": [f"{document}_0" for document in visible_gold]}),) if tidy else ()
        return Action((*prune, search), text=thought)

    def _thought(self, target: str) -> str:
        """The relation that leads to that document: `What is the home of the maker of X ?` is read from its end."""
        question, chain = next(branch for branch in self._branches if target in branch[1])
        hop = chain.index(target)
        relations = question.split(" of ")[:-1]
        return f"{THOUGHT} {relations[-hop].rpartition(' the ')[2].removeprefix('the ')}" if hop else ""
