"""Any engine as a search function: retrievers and stores of LangChain and LlamaIndex by their methods, and addresses.

The frameworks are not imported. A retriever without a number of passages in its call returns as many as it was made
with; a vector store or an index returns as many as a search needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from context_agent.errors import ConfigError
from context_agent.retrieval.engines.http import HttpEngine


def search_function(engine: Any) -> Callable[..., Any]:
    """The engine's search, for `SearchFunction.of`. Raises `ConfigError` for what is no engine."""
    search = HttpEngine(engine) if isinstance(engine, str) else _of_llamaindex(engine) or _of_langchain(engine)
    if search is not None:
        return search
    if callable(engine):
        return engine  # type: ignore[no-any-return]
    raise ConfigError(
        f"{type(engine).__name__} is no engine: pass a function like search(query, limit), a retriever or vector store "
        "of LangChain, a retriever or index of LlamaIndex, or the address of an HTTP endpoint"
    )


def _of_langchain(engine: Any) -> Callable[..., Any] | None:
    if hasattr(engine, "similarity_search"):
        return lambda query, limit: _documents(engine.similarity_search(query, k=limit))
    if hasattr(engine, "search_kwargs"):
        # A retriever over a vector store: its own settings stay, but for the number of passages.
        return lambda query, limit: _documents(engine.invoke(query, k=limit))
    return (lambda query: _documents(engine.invoke(query))) if hasattr(engine, "invoke") else None


def _of_llamaindex(engine: Any) -> Callable[..., Any] | None:
    if hasattr(engine, "retrieve"):
        return lambda query: _nodes(engine.retrieve(query))
    if hasattr(engine, "as_retriever") and not hasattr(engine, "similarity_search"):
        return lambda query, limit: _nodes(engine.as_retriever(similarity_top_k=limit).retrieve(query))
    return None


def _documents(documents: Iterable[Any]) -> list[dict[str, Any]]:
    """LangChain's documents as hits."""
    return [{"text": document.page_content, "id": document.id, "metadata": document.metadata} for document in documents]


def _nodes(nodes: Iterable[Any]) -> list[dict[str, Any]]:
    """LlamaIndex's nodes with scores as hits; the document of a node is its source."""
    return [
        {"text": node.get_content(), "id": node.node_id, "document_id": node.node.ref_doc_id, "metadata": node.metadata}
        for node in nodes
    ]
