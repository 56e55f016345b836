"""Haystack: the agent as a retriever component that a pipeline can save and load. Needs the extra `haystack`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.filters import from_haystack
from context_agent.integrations.passages import PREFIX, Face, Opened, Passage, on_collection
from context_agent.retrieval.chroma import COLLECTION

with extra("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret


@component
class ContextAgentRetriever:
    """A document for each ranked document, its best passage, with score; the rest is in `meta` under `ctx1_` names."""

    def __init__(
        self,
        *,
        path: str | None = None,
        url: str | None = None,
        collection: str = COLLECTION,
        token: Secret | None = None,
        corpus: dict[str, Any] | None = None,
        policy: str = "bridge",
        policy_options: dict[str, Any] | None = None,
        agent: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int = DEFAULT_K,
        per_document: int | None = 1,
    ) -> None:
        """A collection in the folder `path` or on the server at `url`, to which `token` is sent as a bearer token.

        `corpus` holds options of `ChromaCorpus.open` (`title_key`, `embedder`), `agent` of `SearchAgent` (`budget`,
        `trajectories`), `limits` of `Limits`; `policy` and `policy_options` are those of `load_policy`. `filters` hold
        for every question, beside a call's. `per_document` is how many passages of a document are returned, None for
        all in view. The collection is opened when it is first needed.
        """
        self._options: dict[str, Any] = {
            "path": path, "url": url, "collection": collection, "token": token, "corpus": corpus, "policy": policy,
            "policy_options": policy_options, "agent": agent, "limits": limits, "filters": filters,
            "top_k": top_k, "per_document": per_document,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._opened: Opened | None = None
        self._live = False
        self._where = from_haystack(filters)

    @classmethod
    def of(cls, agent: SearchAgent, **options: Any) -> Self:
        """On an agent that is open and stays the caller's. A pipeline with it runs, and cannot be saved."""
        made = cls(**options)
        made._opened, made._live = Opened(agent, lambda: None), True
        return made

    def to_dict(self) -> dict[str, Any]:
        """The options, as Haystack saves them. Raises `ConfigError` for a retriever on a live agent."""
        if self._live:
            raise ConfigError("a retriever made of a live agent cannot be saved: make it with path or url")
        return dict(default_to_dict(self, **self._options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """A retriever with these options, not yet opened."""
        return default_from_dict(cls, data)

    def warm_up(self) -> None:
        """Opens the collection, once."""
        with self._lock:
            if self._opened is None:
                given = self._options
                place = {name: given[name] for name in ("path", "url", "policy", "policy_options", "limits")}
                token = None if given["token"] is None else given["token"].resolve_value()
                who = given["agent"] or {}
                with on_collection(given["collection"], token=token, corpus=given["corpus"], **place, **who) as opened:
                    self._opened = opened

    def close(self) -> None:
        """Closes what was opened; the next run opens it again."""
        with self._lock:
            if self._opened is not None and not self._live:
                self._opened.close()
                self._opened = None

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The documents for a question. `filters` are Haystack's, on `meta`; `top_k` counts documents."""
        found = self._face().search(query, k=top_k, where=from_haystack(filters))
        return {"documents": [_document(one) for one in found]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The same without blocking."""
        face = await asyncio.to_thread(self._face)
        found = await face.asearch(query, k=top_k, where=from_haystack(filters))
        return {"documents": [_document(one) for one in found]}

    def _face(self) -> Face:
        self.warm_up()
        assert self._opened is not None
        return Face(self._opened.agent, self._options["top_k"], self._where, self._options["per_document"])


def _document(passage: Passage) -> Document:
    notes = passage.notes()
    score = notes.pop(PREFIX + "score")
    return Document(id=passage.id, content=passage.text, meta={**passage.metadata, **notes}, score=score)
