"""What the framework faces share: an agent that returns passages, opening and closing it, and the metadata filters.

A passage is one chunk of the corpus with its own id and metadata; a framework makes a document or node of it. `k`
counts documents. With `per_document=1`, the default, that is also the number of passages: the best of each document.

The filters of LlamaIndex and Haystack are written in Chroma's syntax. Chroma has neither negation nor a test for a
missing key. It drops documents without the key from a comparison by order and from the opposite comparison alike, so
such a comparison cannot be negated; `$eq` and `$ne`, `$in` and `$nin` are exact negations of each other. A filter that
Chroma cannot express raises `ConfigError`; none is ever weakened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from context_agent.agent import DEFAULT_K, SearchAgent, SearchResult
from context_agent.errors import ConfigError, EmbedderError
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.retrieval.corpus import MAX_DEPTH, Where, check_count
from context_agent.types import Metadata

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


OPERATORS = {
    "==": "$eq",
    "!=": "$ne",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
    "in": "$in",
    "nin": "$nin",
    "not in": "$nin",
}
"""Operators of LlamaIndex (`nin`) and Haystack (`not in`); the others are the same in both."""
_NEGATED = {"$eq": "$ne", "$ne": "$eq", "$in": "$nin", "$nin": "$in"}


def all_of(*filters: Where | None) -> Where | None:
    """Return a filter that requires all of these filters; None if all of them are empty."""
    return _junction("$and", filters)


def from_haystack(filters: Mapping[str, Any] | None) -> Where | None:
    """Haystack's filter, a comparison or AND, OR and NOT over conditions; fields are `meta.KEY`, or `KEY`."""
    return _haystack(filters, MAX_DEPTH, negated=False) if filters else None


def from_llamaindex(filters: Any) -> Where | None:
    """LlamaIndex's `MetadataFilters`, also nested. NOT means that none of its filters holds."""
    return None if filters is None else _llamaindex(filters, MAX_DEPTH, negated=False)


def _haystack(filters: Mapping[str, Any], levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    if "field" in filters:
        if missing := {"operator", "value"} - filters.keys():
            raise ConfigError(f"the filter {brief(dict(filters))} has no {' and no '.join(sorted(missing))}")
        return _comparison(_metadata_key(filters["field"]), filters["operator"], filters["value"], negated)
    operator, conditions = filters.get("operator"), filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, Sequence) or not conditions:
        raise ConfigError(
            "a Haystack filter needs field, operator and value, or operator (AND, OR, NOT) and conditions; got "
            f"{brief(dict(filters))}"
        )
    inner = negated != (operator == "NOT")
    parts = [_haystack(condition, levels - 1, negated=inner) for condition in conditions]
    return _junction("$or" if (operator == "OR") != inner else "$and", parts)


def _metadata_key(field: str) -> str:
    if field in ("id", "content", "score", "embedding"):
        raise ConfigError(f"only metadata can be filtered, not {field!r}: use a field such as meta.year")
    return field.removeprefix("meta.")


def _llamaindex(filters: Any, levels: int, *, negated: bool) -> Where | None:
    _check_levels(levels)
    condition = _text(filters.condition or "and")
    inner = negated != (condition == "not")
    parts = [
        _llamaindex(part, levels - 1, negated=inner)
        if hasattr(part, "filters")
        else _comparison(part.key, _text(part.operator), part.value, inner)
        for part in filters.filters
    ]
    # By De Morgan, "none of them" is "all of them negated".
    is_or = condition in ("or", "not")
    return _junction("$or" if is_or != inner else "$and", parts)


def _comparison(key: str, operator: str, value: Any, negated: bool) -> Where:
    if operator not in OPERATORS:
        raise ConfigError(f"Chroma has no filter {operator!r} (on {key!r}): use one of {', '.join(OPERATORS)}")
    name = OPERATORS[operator]
    if negated:
        if name not in _NEGATED:
            raise ConfigError(
                f"Chroma cannot negate {key} {operator} {brief(value)}: write the opposite comparison instead"
            )
        name = _NEGATED[name]
    takes_list = name in ("$in", "$nin")
    if not isinstance(value, list | tuple | set if takes_list else str | int | float):
        raise ConfigError(
            f"{key} {operator} needs {'a list' if takes_list else 'text or a number'}; got {brief(value)}"
        )
    return {key: {name: sorted(value, key=str) if isinstance(value, set) else list(value) if takes_list else value}}


def _junction(operator: str, parts: Sequence[Where | None]) -> Where | None:
    filters = [part for part in parts if part]
    return {operator: filters} if len(filters) > 1 else filters[0] if filters else None


def _check_levels(levels: int) -> None:
    if levels < 1:
        raise ConfigError(f"the metadata filter has more than {MAX_DEPTH} levels: flatten nested AND and OR")


def _text(member: Any) -> str:
    """Return the value of an enumeration's member, or the text itself."""
    return str(getattr(member, "value", member))


PREFIX = "ctx1_"
"""Prefix of the entries that are added to a user's metadata, so that none of those is overwritten."""


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A chunk of a ranked document; `rank` counts documents from 1.

    `sufficient` is that of the `SearchResult`: with False, the passages are only the nearest in the corpus.
    """

    id: str
    document_id: str
    title: str
    text: str
    score: float
    rank: int
    justification: str = ""
    trajectory: str | None = None
    """The path of the trajectory file, if the agent writes trajectories."""
    metadata: Metadata = field(default_factory=dict)
    sufficient: bool | None = None

    def added_metadata(self) -> dict[str, Any]:
        """Return what a framework's document gets besides its own metadata and the score; names begin with `PREFIX`."""
        entries = {
            "document_id": self.document_id,
            "title": self.title,
            "rank": self.rank,
            "justification": self.justification or None,
            "trajectory": self.trajectory,
            "sufficient": self.sufficient,
        }
        return {PREFIX + name: value for name, value in entries.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PassageRetriever:
    """An agent that returns passages. Safe to share between threads and tasks, as the agent is.

    `where` applies to every question, together with the filter of the call. `per_document=None` returns all passages.
    """

    agent: SearchAgent
    k: int = DEFAULT_K
    where: Where | None = None
    per_document: int | None = 1

    def __post_init__(self) -> None:
        _check_positive("k", self.k)
        _check_positive("per_document", self.per_document)

    def search(self, question: str, *, k: int | None = None, where: Where | None = None) -> list[RetrievedPassage]:
        """Return the passages that answer a question, best document first; blocks, also inside a running event loop."""
        return self._passages(self.agent.search(question, **self._options(k, where)))

    async def asearch(
        self, question: str, *, k: int | None = None, where: Where | None = None
    ) -> list[RetrievedPassage]:
        """Return the same without blocking."""
        result = await self.agent.asearch(question, **self._options(k, where))
        if self.agent.corpus.blocking:
            return await asyncio.to_thread(self._passages, result)
        return self._passages(result)

    def _options(self, k: int | None, where: Where | None) -> dict[str, Any]:
        _check_positive("k", k)
        return {"k": self.k if k is None else k, "where": all_of(self.where, where)}

    def _passages(self, result: SearchResult) -> list[RetrievedPassage]:
        ranked_chunks = [
            (rank, document, ranked_chunk)
            for rank, document in enumerate(result.documents, start=1)
            for ranked_chunk in document.chunks[: self.per_document]
        ]
        chunks = {chunk.id: chunk for chunk in self.agent.corpus.get([ranked.id for _, _, ranked in ranked_chunks])}
        trajectory = None if result.trajectory is None else str(result.trajectory)
        return [
            RetrievedPassage(
                chunk.id,
                chunk.document_id,
                chunk.title,
                chunk.text,
                ranked_chunk.score,
                rank,
                document.justification,
                trajectory,
                chunk.metadata,
                result.sufficient,
            )
            for rank, document, ranked_chunk in ranked_chunks
            if (chunk := chunks.get(ranked_chunk.id)) is not None
        ]


@dataclass(frozen=True, slots=True)
class OpenAgent:
    """An agent, and the function that closes it and everything that was opened for it."""

    agent: SearchAgent
    close: Callable[[], None]


@contextmanager
def open_agent(
    collection: str | Collection | None = None,
    *,
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    corpus: Mapping[str, Any] | None = None,
    policy: Policy | str | None = None,
    policy_options: Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    **agent_options: Any,
) -> Iterator[OpenAgent]:
    """Yield an agent on a Chroma collection: a name in the folder `path` or on the server at `url`, or Chroma's object.

    `token` is sent to the server as a bearer token. `corpus` holds options of `ChromaCorpus.open`; `policy_options` are
    those of a policy that is given by name; `agent_options` are those of `SearchAgent`. `OpenAgent.close` closes what
    was opened here; an error inside the block closes it at once. A collection that the caller passes stays open.
    """
    from context_agent.policies import load_policy
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    stack = ExitStack()
    try:
        settings = {"cache": _temporary_cache(collection, stack), **(corpus or {})}
        if token is not None:
            settings["headers"] = {"Authorization": f"Bearer {token}"}
        if isinstance(policy, str):
            policy = load_policy(policy, **(policy_options or {}))
        if isinstance(limits, Mapping):
            limits = Limits(**limits)
        chroma = stack.enter_context(ChromaCorpus.open(path, url=url, collection=collection, **settings))
        agent = stack.enter_context(SearchAgent(chroma, policy, limits=limits, **agent_options))
        yield OpenAgent(agent, stack.close)
    except BaseException:
        stack.close()
        raise


@dataclass(frozen=True, slots=True)
class FrameworkEmbedder:
    """A framework's embedding model as an `Embedder`; its vectors are used as they are."""

    name: str
    dimension: int
    documents: Callable[[list[str]], Any]
    query: Callable[[str], Any]

    @classmethod
    def of(cls, collection: Collection, model: object, documents: str, query: str) -> Self:
        """Return the model that embedded a user's collection; `documents` and `query` are the names of its methods."""
        from context_agent.retrieval.chroma.store import dimension_of

        name = f"{type(model).__module__.partition('.')[0]}:{type(model).__name__}"
        return cls(name, dimension_of(collection), getattr(model, documents), getattr(model, query))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, d)."""
        return self._call(self.documents, list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Vector of a query, shape (d,)."""
        return self._call(self.query, text)

    def _call(self, embed: Callable[[Any], Any], argument: list[str] | str) -> NDArray[np.float32]:
        try:
            return np.asarray(embed(argument), dtype=np.float32)
        except Exception as error:
            raise EmbedderError(f"the embedding model {self.name} failed: {error}") from error


def llamaindex_options(collection: Collection, model: object | None) -> dict[str, Any]:
    """Options of `ChromaCorpus.open` for a collection of LlamaIndex, embedded by `model`.

    The entry `document_id` names a record's document only if every record has one: LlamaIndex writes the text None for
    a missing document, and all such records would become one document.
    """
    options: dict[str, Any] = {}
    where: Where = {"document_id": {"$ne": "None"}}
    metadatas = collection.get(where=where, limit=1, include=["metadatas"])["metadatas"]
    without_document = collection.get(where={"document_id": "None"}, limit=1, include=[])["ids"]
    if metadatas and "_node_content" in (metadatas[0] or {}) and not without_document:
        options["document_key"] = "document_id"
    if model is not None:
        methods = ("get_text_embedding_batch", "get_query_embedding")
        options["embedder"] = FrameworkEmbedder.of(collection, model, *methods)
    return options


def _temporary_cache(collection: str | Collection | None, stack: ExitStack) -> str | None:
    """Return a folder for the BM25 index of a collection in memory, deleted when the stack closes; None for any
    other.
    """
    from tempfile import TemporaryDirectory

    from context_agent.retrieval.chroma.store import Location

    if isinstance(collection, str | None) or not Location.of(None, None, collection).in_memory:
        return None
    return stack.enter_context(TemporaryDirectory(prefix="ctx1-", ignore_cleanup_errors=True))


def _check_positive(name: str, number: int | None) -> None:
    if number is not None:
        check_count(number, name)
