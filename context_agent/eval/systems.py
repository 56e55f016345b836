"""The systems that are compared in one run: one-shot retrieval, the agent, and the agent under controls.

A system is a value with a name; `asked` finds it. One-shot systems search once and keep no context, so a window, a seed
and a policy mean nothing to them. The controls are the agent with its own pruning taken away and a strategy in its
place (`pruning.strategies`), the bridge policy knowing that it cannot prune, or with summaries (`pruning.extracts`).
`NAME@4` is any agent in four rollouts, `agent+swarm4` the agent with four searchers.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from context_agent.agent import SearchAgent, SearchResult
from context_agent.episode import Limits
from context_agent.errors import ConfigError
from context_agent.eval.gold import Gold
from context_agent.eval.records import cell
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.entities import question_entities
from context_agent.policies.controlled import ControlledPolicy, SummarizingPolicy
from context_agent.policies.protocol import Policy
from context_agent.profiles import profile
from context_agent.pruning.strategies import strategy
from context_agent.questions import Question
from context_agent.ranking import RRF_K
from context_agent.retrieval.calibration import Calibration
from context_agent.retrieval.fusion import Retriever, reciprocal_rank_fusion
from context_agent.retrieval.hybrid import DENSE, SPARSE, gather
from context_agent.retrieval.protocol import CANDIDATES, Corpus
from context_agent.swarm import MOST, Swarm
from context_agent.types import Chunk, RankedChunk, RankedDocument

ONE_SHOT = "one_shot"
"""The stop reason of a system that searches once."""
ORACLE = "oracle"
SUMMARY, BOTH = "summary", "both"
"""Controls that summarise; the second one leaves the policy its own pruning."""
SWARM = "+swarm"
CHUNKS_A_DOCUMENT = 5
"""Chunks that a one-shot search asks for, for each document wanted: several may be of the same one."""

Search = Callable[["Opened", str, int], list[str]]
"""(corpus, question, depth) -> chunk ids, best first."""


@runtime_checkable
class Opened(Corpus, Protocol):
    """A corpus whose retrievers can be asked one by one, as both that ship can."""

    retrievers: list[Retriever]
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class System:
    """How a question is answered. `search` for one-shot retrieval; else the agent, `pruning` by its policy if None."""

    name: str
    about: str
    search: Search | None = None
    pruning: str | None = None
    rollouts: int = 1
    reranked: bool = False
    swarm: int = 0
    """Searchers that it may start at a time; 0 for an agent without a swarm."""

    @property
    def keeps_context(self) -> bool:
        """Whether a window means anything to it."""
        return self.search is None

    @property
    def summarizes(self) -> bool:
        """Whether its profile needs `summarize_context`, whatever the run's has."""
        return self.pruning in (SUMMARY, BOTH)


def bm25(corpus: Opened, question: str, depth: int) -> list[str]:
    """BM25 alone."""
    return _alone(corpus, SPARSE, question, depth)


def dense(corpus: Opened, question: str, depth: int) -> list[str]:
    """Cosine similarity of embeddings alone."""
    return _alone(corpus, DENSE, question, depth)


def hybrid(corpus: Opened, question: str, depth: int) -> list[str]:
    """Both, fused by reciprocal rank, without the reranker."""
    return [one.id for one in gather(corpus.retrievers, corpus.calibration.weights, question, limit=depth)]


def reranked(corpus: Opened, question: str, depth: int) -> list[str]:
    """Both, fused, and the candidates ordered by the reranker."""
    return [hit.chunk.id for hit in corpus.search(question, limit=depth)]


def subqueries(corpus: Opened, question: str, depth: int) -> list[str]:
    """The question and each name in it searched by `hybrid`, at once, and the rankings fused by reciprocal rank.

    The split needs no language model: names, quotations and the options of a comparison, as the bridge policy finds
    them. It is the agent's first turn without anything after it.
    """
    queries = dict.fromkeys([question, *question_entities(question)])
    rankings = [hybrid(corpus, query, depth) for query in queries]
    return [item for item, _ in reciprocal_rank_fusion(rankings, k=RRF_K)]


SYSTEMS = (
    System("bm25", "BM25, once", search=bm25),
    System("dense", "dense search, once", search=dense),
    System("hybrid", "BM25 and dense search fused by rank, once", search=hybrid),
    System("hybrid+reranker", "the same, reranked", search=reranked, reranked=True),
    System("subqueries", "the question and its names searched at once, fused by rank", search=subqueries),
    System("agent", "the policy as it is"),
    System("agent-unpruned", "the policy without pruning", pruning="none"),
    System("agent-random", "pruning of random chunks past the soft threshold", pruning="random"),
    System("agent-oldest", "pruning of the oldest chunks past the soft threshold", pruning="oldest"),
    System("agent-oracle", "pruning of all that is not gold past the soft threshold: a bound", pruning="oracle"),
    System("agent-summary", "summaries, a sentence of each chunk, where the policy would prune", pruning=SUMMARY),
    System(
        "agent-both",
        "its own pruning, and such summaries past the soft threshold in other turns",
        pruning=BOTH,
    ),
)


def asked(names: Iterable[str], *, reranker: bool = False) -> tuple[System, ...]:
    """The systems of these names, each once. Raises `ConfigError` for an unknown one, or one that lacks a reranker."""
    found = tuple(dict.fromkeys(_named(name) for name in names))
    if not found:
        raise ConfigError("no system is named")
    for one in found:
        if one.reranked and not reranker:
            raise ConfigError(f"{one.name} needs a reranker: name it with --reranker")
    return found


@dataclass(frozen=True, slots=True)
class Settings:
    """What the answers of a run have in common. `trajectories` is a folder for the episodes, None for none kept."""

    profile: str = "default"
    limits: Limits = field(default_factory=Limits)
    k: int = 10
    trajectories: Path | None = None


class Answerer:
    """Has systems answer questions about one corpus. Agents are kept, and with them what they have counted.

    Safe to share between threads.
    """

    def __init__(self, corpus: Corpus, policy: Policy, settings: Settings) -> None:
        self.corpus = corpus
        self._policy, self._resigned = policy, resigned(policy)
        self._settings = settings
        self._agents: dict[tuple[System, int, int], SearchAgent] = {}
        self._lock = threading.Lock()

    def answer(self, system: System, question: Question, gold: Gold, *, window: int, seed: int) -> SearchResult:
        """The system's answer. Raises what the search raises. `gold` is for the oracle alone."""
        if system.search is not None:
            return _once(system.search, question, self.corpus, self._settings.k)
        if system.pruning == ORACLE:
            # What it prunes depends on the question's gold, so it is another policy for every question.
            with self._open(system, window, seed, gold) as agent:
                return self._ask(agent, question)
        with self._lock:
            key = (system, window, seed)
            if key not in self._agents:
                self._agents[key] = self._open(system, window, seed)
        return self._ask(self._agents[key], question)

    def _ask(self, agent: SearchAgent, question: Question) -> SearchResult:
        return agent.search(question.question, k=self._settings.k, question_id=question.id)

    def _controlled(self, system: System, seed: int, gold: AbstractSet[str]) -> Policy:
        if system.pruning is None:
            return self._policy
        if system.summarizes:
            return SummarizingPolicy(self._policy, system.pruning, own=system.pruning == BOTH)
        return ControlledPolicy(self._resigned, strategy(system.pruning, seed=seed, gold=gold), system.pruning)

    def _open(self, system: System, window: int, seed: int, gold: Gold | None = None) -> SearchAgent:
        settings, saved = self._settings, self._settings.trajectories
        return SearchAgent(
            self.corpus,
            self._controlled(system, seed, gold.ids if gold else frozenset()),
            profile=profile(settings.profile).with_summaries() if system.summarizes else settings.profile,
            budget=window,
            limits=settings.limits,
            rollouts=system.rollouts,
            seed=seed,
            trajectories=None if saved is None else cell(saved, system.name, window, seed),
            swarm=Swarm(breadth=system.swarm) if system.swarm else None,
        )


def resigned(policy: Policy) -> Policy:
    """The policy knowing that it cannot prune, where it can be told so; it then plans its searches by that."""
    if not isinstance(policy, BridgePolicy):
        return policy
    return BridgePolicy(policy.scorer, effort=replace(policy.effort, prune=False), untrained=policy.scorer is None)


def _named(name: str) -> System:
    whole, at, count = name.partition("@")
    stem, plus, breadth = whole.partition(SWARM)
    one = next((system for system in SYSTEMS if system.name == stem), None)
    if one is None:
        known = [system.name for system in SYSTEMS]
        near = difflib.get_close_matches(stem, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"no system {name!r}; {hint}")
    if plus:
        if one.name != "agent" or not breadth.isdecimal() or not 1 <= int(breadth) <= MOST:
            raise ConfigError(
                f"no system {name!r}: a swarm of 1 to {MOST} searchers is the agent's, as in agent+swarm4"
            )
        one = replace(one, name=whole, about=f"{one.about}, with {breadth} searchers", swarm=int(breadth))
    if not at:
        return one
    if not one.keeps_context or not count.isdecimal() or int(count) < 1:
        raise ConfigError(f"no system {name!r}: rollouts are for agents, as in agent@4")
    return replace(one, name=name, about=f"{one.about}, {count} rollouts fused by rank", rollouts=int(count))


def _alone(corpus: Opened, name: str, question: str, depth: int) -> list[str]:
    found = next((one for one in corpus.retrievers if one.name == name), None)
    if found is None:
        raise ConfigError(f"the corpus {corpus.name} has no {name} search of its own")
    return [item for item, _ in found.search(question, depth)]


def _once(search: Search, question: Question, corpus: Corpus, k: int) -> SearchResult:
    if not question.question.strip():
        raise ConfigError("the question is empty")
    if not isinstance(corpus, Opened):
        raise ConfigError(f"one-shot systems need the corpus's retrievers; {corpus.name} does not give them")
    ids = search(corpus, question.question, max(CANDIDATES, CHUNKS_A_DOCUMENT * k))
    documents = _documents(corpus.get(ids), k)
    return SearchResult(question.question, documents, ONE_SHOT, 0, 0, (), id=question.id)


def _documents(chunks: Sequence[Chunk], k: int) -> tuple[RankedDocument, ...]:
    """The first `k` documents of a ranking of chunks, each at its best chunk's place, with that chunk as passage."""
    best: dict[str, Chunk] = {}
    for one in chunks:
        best.setdefault(one.document_id, one)
    return tuple(
        RankedDocument(one.document_id, one.title, 1 / place, (RankedChunk(one.id, one.text, 1 / place),))
        for place, one in enumerate(list(best.values())[:k], start=1)
    )
