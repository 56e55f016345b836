"""The agent as a Haystack retriever component. Needs the extra `haystack`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.framework_filters import from_haystack
from context_agent.integrations.open_agent import OpenAgent, open_agent
from context_agent.integrations.passages import PassageRetriever, RetrievedPassage

with extra("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret


@component
class ContextAgentRetriever:
    """A retriever component that a pipeline can save and load.

    It returns a Haystack document for each ranked document, with the best passage and its score. `meta` has the
    metadata of the chunk. Entries that the search adds have names that begin with `ctx1_`.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        url: str | None = None,
        collection: str | None = None,
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
        """Make a retriever on a Chroma collection. The collection is opened when it is first used.

        Args:
            path: The folder of the collection.
            url: The address of the Chroma server, instead of a folder.
            collection: The name of the collection.
            token: The bearer token for the server.
            corpus: Options of `ChromaCorpus.open`, such as `title_key` and `embedder`.
            policy: The name of the policy, as in `load_policy`.
            policy_options: The options of the policy, as in `load_policy`.
            agent: Options of `SearchAgent`, such as `budget` and `trajectories`.
            limits: The fields of `Limits`.
            filters: Haystack's filters for every question. They apply together with the filters of the call.
            top_k: The number of documents.
            per_document: The number of passages for each document. If it is None, all passages in the final view are
                returned.
        """
        self._options: dict[str, Any] = {
            "path": path, "url": url, "collection": collection, "token": token, "corpus": corpus, "policy": policy,
            "policy_options": policy_options, "agent": agent, "limits": limits, "filters": filters,
            "top_k": top_k, "per_document": per_document,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._handle: OpenAgent | None = None
        self._is_live = False
        self._where = from_haystack(filters)

    @classmethod
    def of(cls, agent: SearchAgent, **options: Any) -> Self:
        """Return a retriever on an open agent. A pipeline with this retriever can run, but cannot be saved.

        Args:
            agent: The agent. The caller closes it.
            options: Options of the retriever, such as `top_k`.
        """
        retriever = cls(**options)
        retriever._handle, retriever._is_live = OpenAgent(agent, lambda: None), True
        return retriever

    def to_dict(self) -> dict[str, Any]:
        """Return the options as Haystack saves them.

        Raises:
            ConfigError: If the retriever was made on an open agent.
        """
        if self._is_live:
            raise ConfigError("a retriever on an open agent cannot be saved. Create it with path or url instead.")
        return dict(default_to_dict(self, **self._options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a retriever with saved options. Its collection is not open yet."""
        return default_from_dict(cls, data)

    def warm_up(self) -> None:
        """Open the collection, unless it is open."""
        with self._lock:
            if self._handle is None:
                options = dict(self._options)
                del options["filters"], options["top_k"], options["per_document"]
                agent_options, secret = options.pop("agent") or {}, options.pop("token")
                token = None if secret is None else secret.resolve_value()
                with open_agent(options.pop("collection"), token=token, **options, **agent_options) as handle:
                    self._handle = handle

    def close(self) -> None:
        """Close the objects that the retriever opened. The next run opens them again."""
        with self._lock:
            if self._handle is not None and not self._is_live:
                self._handle.close()
                self._handle = None

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents for a question.

        Args:
            query: The question.
            filters: Haystack's filters on `meta`.
            top_k: The number of documents.
        """
        passages = self._retriever().search(query, k=top_k, where=from_haystack(filters))
        return {"documents": [_document(passage) for passage in passages]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents for a question without blocking."""
        retriever = await asyncio.to_thread(self._retriever)
        passages = await retriever.asearch(query, k=top_k, where=from_haystack(filters))
        return {"documents": [_document(passage) for passage in passages]}

    def _retriever(self) -> PassageRetriever:
        self.warm_up()
        assert self._handle is not None
        return PassageRetriever(self._handle.agent, self._options["top_k"], self._where, self._options["per_document"])


def _document(passage: RetrievedPassage) -> Document:
    meta = {**passage.metadata, **passage.added_metadata()}
    return Document(id=passage.id, content=passage.text, meta=meta, score=passage.score)
