"""Who shows the tiny policy how: searches the chain of documents name by name, prunes, and ranks what it found.

It says which relation it follows before it searches for the name at its end, so that each word of a lesson can be read
off what stands before it.

A perfect teacher would leave nothing to learn from rewards. So this one is careless on purpose: at each turn it may
stop too soon, search for something else that it sees, or forget to prune. What it does after a wrong search is right
again: it looks for the first document of the chain that it has not seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_agent.profiles import Profile
from context_agent.pruning.view import View
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter
from context_agent.train.demo.spelling import THOUGHT
from context_agent.types import Action, RankedId, ToolCall


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Probabilities a turn: to end before the chain is found, to search beside the point, to leave everything."""

    stop: float = 0.5
    stray: float = 0.05
    untidy: float = 0.3


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
        self._chains = {question.question: question.gold for question in questions}
        self._titles = titles
        self._careless = carelessness or Carelessness()
        self.counter = counter

    def instructions(self, profile: Profile) -> str:
        """None: it needs none."""
        return ""

    def open(self, question: str, corpus: Corpus, *, seed: int = 0) -> Lesson:
        """An actor that follows the question's chain."""
        return Lesson(
            question, self._chains[question], self._titles, self._careless, random.Random(f"{seed}:{question}")
        )


class Lesson:
    """One episode of the teacher."""

    def __init__(
        self,
        question: str,
        chain: Sequence[str],
        titles: Mapping[str, str],
        careless: Carelessness,
        rng: random.Random,
    ) -> None:
        self._question = question
        self._chain = chain
        self._titles = titles
        self._careless = careless
        self._rng = rng

    async def act(self, view: View) -> Action:
        """Prunes and searches on, or ranks what of the chain is in view."""
        there = list(dict.fromkeys(block.document_id for block in view.blocks))
        found = [one for one in self._chain if one in there]
        begun = bool(there)
        if len(found) == len(self._chain) or (begun and self._rng.random() < self._careless.stop):
            return Action(ranking=tuple(RankedId(one) for one in found or there[:1]))
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
        place = self._chain.index(wanted)
        relations = self._question.split(" of ")[:-1]
        return f"{THOUGHT} {relations[-place].rpartition(' the ')[2].removeprefix('the ')}" if place else ""
