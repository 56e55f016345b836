"""The systems that a run compares: one-shot retrieval, the agent, and the agent under controls.

A system is a value with a name, and `find_systems` looks it up. One-shot systems search once and keep no context, so
window, seed and policy do not affect them. A control replaces the agent's own pruning with a strategy
(`policies.controlled`), switches pruning off, or adds summaries. `NAME@4` is any agent with four rollouts.
`agent+swarm4` is the agent with four searchers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from context_agent._support.suggest import suggestion
from context_agent.agent import MAX_ROLLOUTS, SearchAgent, SearchResult
from context_agent.errors import ConfigError
from context_agent.eval.gold import Gold
from context_agent.eval.one_shot import Search, bm25, dense, hybrid, late, one_shot, read, reranked, subqueries
from context_agent.eval.records import cell_folder
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile, named_profile
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.controlled import ControlledPolicy, prune_by, strategy, summarize_oldest, summarize_prunes
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import MAX_BREADTH, Swarm
from context_agent.types import Question

ORACLE = "oracle"
SUMMARY, BOTH = "summary", "both"
"""The controls that summarize. `BOTH` keeps the policy's own pruning too."""
SWARM = "+swarm"


@dataclass(frozen=True, slots=True)
class System:
    """A way to answer questions: a one-shot search or an agent.

    Attributes:
        name: The name, as in `--systems`.
        about: A description for the report.
        search: The one-shot search. For an agent, it is None.
        pruning: The name of the control that replaces the policy's pruning. Without it, the policy prunes by itself.
        rollouts: The number of episodes for each question. Their rankings are fused.
        reranked: Whether the system needs a reranker.
        swarm: The maximum number of searchers that run at a time. It is 0 for an agent without a swarm.
    """

    name: str
    about: str
    search: Search | None = None
    pruning: str | None = None
    rollouts: int = 1
    reranked: bool = False
    swarm: int = 0

    @property
    def keeps_context(self) -> bool:
        """True if the system has a context, so that the window affects it."""
        return self.search is None

    @property
    def summarizes(self) -> bool:
        """True if the system needs a profile with `summarize_context`."""
        return self.pruning in (SUMMARY, BOTH)


SYSTEMS = (
    System("bm25", "BM25, once", search=bm25),
    System("dense", "dense search, once", search=dense),
    System("hybrid", "BM25 and dense search fused by score, once", search=hybrid),
    System("hybrid+reader", "hybrid, its candidates ordered by the shipped reader", search=read),
    System("hybrid+late", "hybrid, reranked by late interaction", search=late),
    System("hybrid+reranker", "hybrid, reranked", search=reranked, reranked=True),
    System("subqueries", "hybrid for the question and each name in it, fused by rank", search=subqueries),
    System("agent", "the policy with its own pruning"),
    System("agent-unpruned", "the policy without pruning", pruning="none"),
    System("agent-random", "random chunks are pruned past the soft threshold", pruning="random"),
    System("agent-oldest", "the oldest chunks are pruned past the soft threshold", pruning="oldest"),
    System("agent-oracle", "everything but gold is pruned past the soft threshold", pruning="oracle"),
    System("agent-summary", "what the policy would prune is replaced by one sentence per chunk", pruning=SUMMARY),
    System(
        "agent-both",
        "own pruning, plus such summaries in turns past the soft threshold without an edit",
        pruning=BOTH,
    ),
)


def find_systems(names: Iterable[str], *, reranker: bool = False) -> tuple[System, ...]:
    """Return the systems with these names, without repeats.

    Args:
        names: Names such as `hybrid`, `agent`, `agent@4` or `agent+swarm4`.
        reranker: Whether there is a reranker.

    Raises:
        ConfigError: If a name is unknown, or if a system needs a reranker and there is none.
    """
    systems = tuple(dict.fromkeys(_find_system(name) for name in names))
    if not systems:
        raise ConfigError("no system is selected. Choose some with --systems.")
    for system in systems:
        if system.reranked and not reranker:
            raise ConfigError(f"the system {system.name} needs a reranker. Pass --reranker.")
    return systems


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """Settings for all answers of a run.

    Attributes:
        profile: The harness profile, or its name.
        limits: The limits of an episode.
        k: The number of documents in a ranking.
        trajectories: The folder for trajectories. Without it, none are written.
    """

    profile: Profile | str = "default"
    limits: Limits = field(default_factory=Limits)
    k: int = 10
    trajectories: Path | None = None


class Answerer:
    """A component that answers questions about one corpus with any system. Threads may share it.

    It keeps the agents that it opened, and with them their cached token counts.
    """

    def __init__(self, corpus: Corpus, policy: Policy, settings: AnswerSettings) -> None:
        self.corpus = corpus
        self._policy, self._unpruned = policy, without_pruning(policy)
        self._settings = settings
        self._agents: dict[tuple[System, int, int], SearchAgent] = {}
        self._lock = threading.Lock()

    def answer(self, system: System, question: Question, gold: Gold, *, window: int, seed: int) -> SearchResult:
        """Return the system's answer. Only the oracle uses `gold`. Errors of the search are not caught."""
        if system.search is not None:
            return one_shot(system.search, question, self.corpus, self._settings.k)
        if system.pruning == ORACLE:
            # What the oracle prunes depends on the gold, so each question has its own policy.
            with self._open(system, window, seed, gold) as agent:
                return self._search(agent, question)
        with self._lock:
            key = (system, window, seed)
            if key not in self._agents:
                self._agents[key] = self._open(system, window, seed)
        return self._search(self._agents[key], question)

    def _search(self, agent: SearchAgent, question: Question) -> SearchResult:
        return agent.search(question.question, k=self._settings.k, question_id=question.id)

    def _controlled(self, system: System, seed: int, gold: AbstractSet[str]) -> Policy:
        if system.pruning is None:
            return self._policy
        if system.summarizes:
            control = summarize_oldest if system.pruning == BOTH else summarize_prunes
            return ControlledPolicy(self._policy, control, system.pruning)
        return ControlledPolicy(
            self._unpruned, prune_by(strategy(system.pruning, seed=seed, gold=gold)), system.pruning
        )

    def _open(self, system: System, window: int, seed: int, gold: Gold | None = None) -> SearchAgent:
        settings, folder = self._settings, self._settings.trajectories
        chosen = settings.profile if isinstance(settings.profile, Profile) else named_profile(settings.profile)
        return SearchAgent(
            self.corpus,
            self._controlled(system, seed, gold.ids if gold else frozenset()),
            profile=chosen.with_summaries() if system.summarizes else chosen,
            budget=window,
            limits=settings.limits,
            rollouts=system.rollouts,
            seed=seed,
            trajectories=None if folder is None else cell_folder(folder, system.name, window, seed),
            swarm=Swarm(breadth=system.swarm) if system.swarm else None,
        )


def without_pruning(policy: Policy) -> Policy:
    """Return the policy with its pruning switched off. It also plans its searches without pruning.

    If the policy has no such switch, return it unchanged.
    """
    return policy.without_pruning() if isinstance(policy, BridgePolicy) else policy


def _find_system(name: str) -> System:
    base, at, rollouts = name.partition("@")
    stem, plus, breadth = base.partition(SWARM)
    system = next((candidate for candidate in SYSTEMS if candidate.name == stem), None)
    if system is None:
        raise ConfigError(f"unknown system {name!r}. {suggestion(stem, [candidate.name for candidate in SYSTEMS])}")
    if plus:
        if system.name != "agent" or not _within(breadth, MAX_BREADTH):
            raise ConfigError(
                f"unknown system {name!r}. A swarm of the agent has 1 to {MAX_BREADTH} searchers, as in agent+swarm4."
            )
        about = f"{system.about}, with {breadth} searchers"
        system = replace(system, name=base, about=about, swarm=int(breadth))
    if not at:
        return system
    if not system.keeps_context or not _within(rollouts, MAX_ROLLOUTS):
        raise ConfigError(f"unknown system {name!r}. Only agents take rollouts, 1 to {MAX_ROLLOUTS:,}, as in agent@4.")
    about = f"{system.about}, {rollouts} rollouts fused"
    return replace(system, name=name, about=about, rollouts=int(rollouts))


def _within(digits: str, most: int) -> bool:
    """Return True if the text is a whole number from 1 to `most`. Python reads no number of thousands of digits."""
    return digits.isdecimal() and len(digits) <= len(str(most)) and 1 <= int(digits) <= most
