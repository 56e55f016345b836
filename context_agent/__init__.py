"""A retrieval subagent with self-editing context: it searches in several steps, prunes what does not help, and ranks.


    agent = SearchAgent(MemoryCorpus(documents))
    for document in agent.search("Which award did the director of Rope receive?").documents:
        print(document.score, document.title)

The names below are loaded when first used, so importing the package takes almost no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from context_agent.version import __version__ as __version__

if TYPE_CHECKING:
    from context_agent.agent import Progress, SearchAgent, SearchResult
    from context_agent.budget import Budget
    from context_agent.errors import ContextAgentError
    from context_agent.harness.episode import Episode, Limits, StopReason
    from context_agent.harness.profile import Profile
    from context_agent.harness.trajectory import Trajectory
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.policies.scripted import ScriptedPolicy
    from context_agent.pruning.view import View
    from context_agent.retrieval.chroma.corpus import ChromaCorpus
    from context_agent.retrieval.chroma.indexing import index_documents
    from context_agent.retrieval.engines.corpus import EngineCorpus
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus
    from context_agent.types import Action, Chunk, Document, RankedDocument, RankedId, ToolCall

_HOME = {
    "Action": "types",
    "BridgePolicy": "policies.bridge",
    "Budget": "budget",
    "ChromaCorpus": "retrieval.chroma.corpus",
    "Chunk": "types",
    "ContextAgentError": "errors",
    "Document": "types",
    "EngineCorpus": "retrieval.engines.corpus",
    "Episode": "harness.episode",
    "Limits": "harness.episode",
    "MemoryCorpus": "retrieval.memory",
    "Profile": "harness.profile",
    "Progress": "agent",
    "RankedDocument": "types",
    "RankedId": "types",
    "ScriptedPolicy": "policies.scripted",
    "SearchAgent": "agent",
    "SearchResult": "agent",
    "StopReason": "harness.episode",
    "ToolCall": "types",
    "Trajectory": "harness.trajectory",
    "View": "pruning.view",
    "index_documents": "retrieval.chroma.indexing",
    "load": "retrieval.loaders",
}

__all__ = [
    "Action",
    "BridgePolicy",
    "Budget",
    "ChromaCorpus",
    "Chunk",
    "ContextAgentError",
    "Document",
    "EngineCorpus",
    "Episode",
    "Limits",
    "MemoryCorpus",
    "Profile",
    "Progress",
    "RankedDocument",
    "RankedId",
    "ScriptedPolicy",
    "SearchAgent",
    "SearchResult",
    "StopReason",
    "ToolCall",
    "Trajectory",
    "View",
    "index_documents",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
