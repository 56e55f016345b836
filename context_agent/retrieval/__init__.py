"""Retrieval: corpora and search. Knows no agent and no language model.

| module | what is in it |
|---|---|
| `protocol` | `Corpus`, what an episode needs |
| `memory`, `chroma` | the two corpora: `MemoryCorpus`, `ChromaCorpus` |
| `index`, `writer` | `index_documents`: documents into a Chroma collection |
| `loaders`, `chunker`, `embedders` | files to documents, documents to chunks, texts to vectors |
| `bm25`, `dense`, `grep` | the retrievers and the regular expressions |
| `fusion`, `calibration`, `hybrid`, `rerankers` | from several rankings to one |
| `store`, `manifest`, `layouts`, `native` | how a collection is reached and laid out |
| `reading`, `readers`, `local` | how a corpus reads it: a local folder without Chroma's client |
| `snapshot`, `publication`, `exact` | a complete state in files of our own, and dense search in it |
| `hnsw`, `repair` | Chroma's vector files: checked, and restored after a killed run |

The names below are loaded when they are first used, as numpy, tantivy and Chroma take their time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_agent.retrieval.chroma import ChromaCorpus
    from context_agent.retrieval.index import IndexReport, index_documents
    from context_agent.retrieval.memory import MemoryCorpus
    from context_agent.retrieval.protocol import Corpus

__all__ = ["ChromaCorpus", "Corpus", "IndexReport", "MemoryCorpus", "index_documents"]

_HOMES = {
    "ChromaCorpus": "chroma",
    "Corpus": "protocol",
    "IndexReport": "index",
    "MemoryCorpus": "memory",
    "index_documents": "index",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
