"""Fakes, tiny models and hostile inputs, for your own tests and measurements.

Nothing here downloads anything, and every result is the same on every machine:

    from context_agent import MemoryCorpus, SearchAgent
    from context_agent.testing import HashEmbedder, ScriptedPolicy, people
    from context_agent.testing.actions import rank_all, search

    corpus = MemoryCorpus(people(20), embedder=HashEmbedder())
    policy = ScriptedPolicy([search("a glazier from Ghent"), rank_all])
    result = SearchAgent(corpus, policy).search("Which glazier came from Ghent?")

Hostile inputs and longer checks are in modules that you import by name: `hostile_files`, `hostile_code`,
`hostile_indexes`, `loading`, `reward_attacks`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, fails, says
    from context_agent.policies.scripted import ScriptedPolicy
    from context_agent.policies.tokens.engines import FakeEngine
    from context_agent.testing.documents import linked_documents, people
    from context_agent.testing.embedders import HashEmbedder
    from context_agent.train.tiny_model import tiny_gpt_oss, tiny_llama, tiny_tokenizer

_HOME = {
    "FakeEngine": "context_agent.policies.tokens.engines",
    "HashEmbedder": "context_agent.testing.embedders",
    "ScriptedAnswer": "context_agent.policies.chat.scripted_server",
    "ScriptedPolicy": "context_agent.policies.scripted",
    "ScriptedServer": "context_agent.policies.chat.scripted_server",
    "fails": "context_agent.policies.chat.scripted_server",
    "linked_documents": "context_agent.testing.documents",
    "people": "context_agent.testing.documents",
    "says": "context_agent.policies.chat.scripted_server",
    "tiny_gpt_oss": "context_agent.train.tiny_model",
    "tiny_llama": "context_agent.train.tiny_model",
    "tiny_tokenizer": "context_agent.train.tiny_model",
}

__all__ = [
    "FakeEngine",
    "HashEmbedder",
    "ScriptedAnswer",
    "ScriptedPolicy",
    "ScriptedServer",
    "fails",
    "linked_documents",
    "people",
    "says",
    "tiny_gpt_oss",
    "tiny_llama",
    "tiny_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
