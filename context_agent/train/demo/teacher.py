"""Who shows the tiny policy how: searches the chain of documents name by name, prunes, and ranks what it found.

It says which relation it follows before it searches for the name at its end, so that each word of a lesson can be read
off what stands before it.

A perfect teacher would leave nothing to learn from rewards. So this one is careless on purpose: at each turn it may
stop too soon, search for something else that it sees, or forget to prune. What it does after a wrong search is right
again: it looks for the first document of the chain that it has not seen.

A question of several branches it searches branch by branch, or it leads: it starts a sub-agent on each branch and ranks
what they found, now and then after it has searched for what they missed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.pruning.view import View
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter
from context_agent.train.demo.gym import parted
from context_agent.train.demo.spelling import THOUGHT
from context_agent.types import Action, RankedId, ToolCall


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Probabilities a turn: to end before the chain is found, to search beside the point, to leave everything.

    `leads` is the probability of an episode with sub-agents, and `trust` of then ranking what they bring as it is.
    """

    stop: float = 0.5
    stray: float = 0.05
    untidy: float = 0.3
    trust: float = 0.0
    leads: float = 0.0


LEADING = Carelessness(stop=0.1, stray=0.0, untidy=1.0, trust=0.7, leads=0.5)
"""Of who shows how to lead, and how to do without: either way about as much is found."""
LED = Carelessness(stop=0.5, stray=0.0, untidy=1.0)
"""Of its sub-agents, which rank half of their chains too soon."""


class Teacher:
    """A policy that knows each question's gold, in hop order, and the titles by which documents name each other."""

    name = "teacher"

    def __init__(
        self,
        questions: Sequence[Question],
        titles: Mapping[str, str],
        carelessness: Carelessness | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._branches = {question.question: tuple(parted(question)) for question in questions}
        self._branches |= {branch: ((branch, gold),) for one in self._branches.values() for branch, gold in one}
        self._titles = titles
        self._careless = carelessness or Carelessness()
        self.counter = counter

    def instructions(self, profile: Profile) -> str:
        """None: it needs none."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Lesson:
        """An actor that follows the question's chain, or that of one branch of a question."""
        return Lesson(self._branches[question], self._titles, self._careless, random.Random(f"{seed}:{question}"))


class Lesson:
    """One episode of the teacher."""

    def __init__(
        self,
        branches: Sequence[tuple[str, Sequence[str]]],
        titles: Mapping[str, str],
        careless: Carelessness,
        rng: random.Random,
    ) -> None:
        self._branches = branches
        self._chain = [one for _, chain in branches for one in chain]
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
        there = list(dict.fromkeys(block.document_id for block in view.blocks))
        found = [one for one in self._chain if one in there]
        begun = bool(there)
        stops = begun and (self._trusts or self._rng.random() < self._careless.stop)
        if len(found) == len(self._chain) or stops:
            ranked = found if len(self._branches) == 1 else [one for one in there if one in self._chain]
            return Action(ranking=tuple(RankedId(one) for one in ranked or there[:1]))
        wanted = next(one for one in self._chain if one not in there)
        thought = self._thought(wanted)
        if begun and self._rng.random() < self._careless.stray:
            wanted = self._rng.choice(there)
        search = ToolCall("search_corpus", {"query": self._titles[wanted].lower()})
        tidy = found and len(found) < len(there) and self._rng.random() >= self._careless.untidy
        prune = (ToolCall("prune_chunks", {"all_but": [f"{one}_0" for one in found]}),) if tidy else ()
        return Action((*prune, search), text=thought)

    def _thought(self, wanted: str) -> str:
        """The relation that leads to that document: `What is the home of the maker of X ?` is read from its end."""
        question, chain = next(one for one in self._branches if wanted in one[1])
        place = chain.index(wanted)
        relations = question.split(" of ")[:-1]
        return f"{THOUGHT} {relations[-place].rpartition(' the ')[2].removeprefix('the ')}" if place else ""
