"""The noisy expert of the toy environment. Its episodes are demonstrations.

The expert searches the chain of documents name by name, prunes, and ranks the documents that it retrieved. It states
the relation that it follows before it searches for the name at its end. Each word of a demonstration can therefore be
derived from the words before it. The expert is noisy on purpose, because a perfect expert would leave nothing to learn
from rewards. In each turn it may stop early, search for something else in view, or skip a prune. If a question has
several branches, it searches them one after another, or it leads. To lead, it starts a sub-agent for each branch and
ranks their results. Sometimes it first searches for documents that they missed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.train.toy.environment import split_branches
from context_agent.train.toy.word_prompts import THOUGHT
from context_agent.types import Action, Question, RankedId, ToolCall


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities of the expert's mistakes and choices.

    Attributes:
        stop: Probability in each turn to end before the chain is complete.
        stray: Probability in each turn to search for something else.
        untidy: Probability in each turn to skip a prune.
        trust: Probability of an episode that ranks the sub-agents' results unchanged.
        leads: Probability of an episode with sub-agents.
    """

    stop: float = 0.5
    stray: float = 0.05
    untidy: float = 0.3
    trust: float = 0.0
    leads: float = 0.0


LEADING_NOISE = ExpertNoise(stop=0.1, stray=0.0, untidy=1.0, trust=0.7, leads=0.5)
"""Noise of an expert that demonstrates episodes with and without sub-agents. Both kinds find about as much."""


SUBAGENT_NOISE = ExpertNoise(stop=0.5, stray=0.0, untidy=1.0)
"""Noise of that expert's sub-agents, which rank half of their chains too early."""


class NoisyExpert:
    """A policy that knows each question's gold in hop order, and the titles by which documents name each other."""

    name = "expert"

    def __init__(
        self,
        questions: Sequence[Question],
        titles: Mapping[str, str],
        noise: ExpertNoise | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._branches = {question.question: tuple(split_branches(question)) for question in questions}
        self._branches |= {
            branch: ((branch, gold),) for branch_list in self._branches.values() for branch, gold in branch_list
        }
        self._titles = titles
        self._noise = noise or ExpertNoise()
        self.counter = counter

    def instructions(self, profile: Profile) -> str:
        """Return no instructions. The expert needs none."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> NoisyExpertActor:
        """Return an actor that follows the chain of a question, or of one branch of a question."""
        return NoisyExpertActor(
            self._branches[question], self._titles, self._noise, random.Random(f"{seed}:{question}")
        )


class NoisyExpertActor:
    """The expert as it acts in one episode."""

    def __init__(
        self,
        branches: Sequence[tuple[str, Sequence[str]]],
        titles: Mapping[str, str],
        noise: ExpertNoise,
        rng: random.Random,
    ) -> None:
        self._branches = branches
        self._chain = [document for _, chain in branches for document in chain]
        self._titles = titles
        self._noise = noise
        self._rng = rng
        self._leads = len(branches) > 1 and rng.random() < noise.leads
        self._trusts = self._leads and rng.random() < noise.trust

    async def act(self, view: View) -> Action:
        """Prune and continue the search, or rank the documents of the chain that are in view. A leader starts
        sub-agents first.
        """
        if self._leads:
            self._leads = False
            return Action((ToolCall(SPAWN, {"tasks": [branch for branch, _ in self._branches]}),))
        visible = list(dict.fromkeys(block.document_id for block in view.blocks))
        visible_gold = [document for document in self._chain if document in visible]
        has_results = bool(visible)
        stops = has_results and (self._trusts or self._rng.random() < self._noise.stop)
        if len(visible_gold) == len(self._chain) or stops:
            ranked = (
                visible_gold
                if len(self._branches) == 1
                else [document for document in visible if document in self._chain]
            )
            return Action(ranking=tuple(RankedId(document) for document in ranked or visible[:1]))
        target = next(document for document in self._chain if document not in visible)
        thought = self._thought(target)
        if has_results and self._rng.random() < self._noise.stray:
            target = self._rng.choice(visible)
        search = ToolCall("search_corpus", {"query": self._titles[target].lower()})
        tidy = visible_gold and len(visible_gold) < len(visible) and self._rng.random() >= self._noise.untidy
        prune = (ToolCall("prune_chunks", {"all_but": [f"{document}_0" for document in visible_gold]}),) if tidy else ()
        return Action((*prune, search), text=thought)

    def _thought(self, target: str) -> str:
        """Return the relation that leads to a document. `What is the home of the maker of X ?` is read from its end."""
        question, chain = next(branch for branch in self._branches if target in branch[1])
        hop = chain.index(target)
        relations = question.split(" of ")[:-1]
        return f"{THOUGHT} {relations[-hop].rpartition(' the ')[2].removeprefix('the ')}" if hop else ""
