"""How an engine is called, and the passages in whatever it returns.

A search function is called with the arguments that it takes, within a time limit, coroutines too. `search_function`
makes one of a retriever or store of LangChain or LlamaIndex, by its methods, and of an address. The frameworks are not
imported. A retriever without a number of passages in its call returns as many as it was made with; a vector store or an
index returns as many as a search needs.

In a response the hits are found, and the text, title and id in each. Known shapes are lists of texts, of mappings, of
objects and of (item, score) pairs, tables, and the responses of OpenSearch, Elasticsearch, Qdrant, Milvus, Solr and
similar servers. Scores are not read: they differ between engines in direction and scale, so only the order of the hits
counts.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from reprlib import repr as brief
from typing import Any, Self, TypeVar
from uuid import UUID

from context_agent._support.http import BACKGROUND
from context_agent.errors import ConfigError, ContextAgentError, CorpusError
from context_agent.retrieval.engines.servers import LIMIT_NAMES, HttpEngine
from context_agent.retrieval.filters import MAX_TEXT, Where
from context_agent.text.normalization import well_formed
from context_agent.types import Metadata

WHERE = "where"
MOST_HITS = 1_000
"""Hits of one response that are read."""
MOST_METADATA = 256
"""Metadata entries of a hit that are read."""
LISTS = (
    "hits", "results", "result", "documents", "docs", "points", "matches", "passages", "items", "rows", "data",
    "value", "response", "body", "objects", "root", "children",
)  # fmt: skip
"""Where a response holds its hits."""
NESTED = ("_source", "payload", "entity", "fields", "properties", "metadata", "document", "chunk")
"""Where a hit holds its fields, if not at its top."""
TEXTS = ("text", "content", "page_content", "body", "passage", "chunk", "document", "snippet")
TITLES = ("title", "name", "heading")
IDS = ("id", "_id", "id_", "chunk_id", "uuid", "pk")
DOCUMENT_IDS = ("document_id", "doc_id", "ref_doc_id")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchFunction:
    """A search function with the arguments that it takes; `limit_name` is empty for a positional one."""

    call: Callable[..., Any]
    limit_name: str | None
    takes_where: bool
    loop: asyncio.AbstractEventLoop | None
    seconds: float

    @classmethod
    def of(cls, function: Callable[..., Any], seconds: float) -> Self:
        """Return the function as it is: `(query)`, `(query, limit)`, and with `where` if it filters itself.

        Coroutines run in the event loop in which this is called, if it still runs then, else in one in the background.
        Raises `ConfigError` for a function that cannot take a query.
        """
        parameters = _parameters(function)
        positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
        if not positional and all(item.kind is not item.VAR_POSITIONAL for item in parameters):
            raise ConfigError(f"{function!r} takes no query: pass a function like search(query, limit)")
        names = {item.name for item in parameters if item.kind is not item.POSITIONAL_ONLY}
        second = positional[1:2] and positional[1].name != WHERE and positional[1].default is inspect.Parameter.empty
        limit_name = next((name for name in LIMIT_NAMES if name in names), "" if second else None)
        return cls(function, limit_name, WHERE in names, _running_loop(), seconds)

    def __call__(self, query: str, limit: int, where: Where | None) -> Any:
        """Return the response. Raises `CorpusError` if the engine fails or takes too long."""
        options: dict[str, Any] = {self.limit_name: limit} if self.limit_name else {}
        if where is not None and self.takes_where:
            options[WHERE] = where
        positional = (query, limit) if self.limit_name == "" else (query,)
        return self.run(lambda: self.call(*positional, **options))

    def run(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns, or its coroutine. Raises `CorpusError` if it fails or takes too long."""
        started = _in_thread(lambda: self._awaited(call()))
        try:
            return started.result(self.seconds)
        except ContextAgentError as error:
            raise error if isinstance(error, CorpusError) else CorpusError(f"the engine failed: {error}") from error
        except TimeoutError as error:
            if started.done():
                raise CorpusError(f"the engine failed: {_described(error)}") from error
            raise CorpusError(
                f"the engine did not answer within {self.seconds:g} s: check that it runs, or allow more with timeout="
            ) from None
        except Exception as error:
            raise CorpusError(f"the engine failed: {_described(error)}") from error

    def _awaited(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        if self.loop is not None and self.loop.is_running():
            return asyncio.run_coroutine_threadsafe(_until(result, self.seconds), self.loop).result()
        return BACKGROUND.run(_until(result, self.seconds))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; a query alone for one that does not say, as functions in C need not."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("query", inspect.Parameter.POSITIONAL_ONLY)]


async def _until(result: Any, seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await result


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Runs the call in a thread of its own, in a copy of this context. The thread holds up no exit of the process."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 (raised again where the result is read)
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name="ctx1-engine").start()
    return future


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _described(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):  # as task groups raise
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:500]}" if str(error) else type(error).__name__


def search_function(engine: Any) -> Callable[..., Any]:
    """Return the engine's search, for `SearchFunction.of`. Raises `ConfigError` for what is no engine."""
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


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The fields of a hit that hold its text, title, id and document; None for those with a usual name."""

    text: str | None = None
    title: str | None = None
    id: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class EnginePassage:
    """A hit of an engine. `id` and `document_id` are empty if the engine gives none."""

    text: str
    title: str = ""
    id: str = ""
    document_id: str = ""
    metadata: Metadata = field(default_factory=dict)


def passages_of(response: object, names: FieldNames) -> list[EnginePassage]:
    """Return the passages of a response, best first; hits with an empty text are left out.

    Raises `CorpusError` for a response that holds no list of hits, and for a hit without a field for its text.
    """
    passages = (_passage(hit, names) for hit in _hits(response))
    return [passage for passage in passages if passage.text.strip()]


def _hits(response: Any) -> Sequence[object]:
    """Return the list of hits, at most `MOST_HITS`, wherever the response holds it."""
    if hasattr(response, "to_pylist"):  # a table of Arrow
        response = response.to_pylist()
    elif hasattr(response, "to_dict") and hasattr(response, "columns"):  # one of pandas
        response = response.to_dict("records")
    elif isinstance(body := getattr(response, "body", None), Mapping | list):  # a response of Elasticsearch's client
        response = body
    if isinstance(response, Iterable) and not isinstance(response, str | bytes | Mapping) and not _is_record(response):
        hits = list(islice(response, MOST_HITS))
        # Milvus answers a list of queries with a list of lists.
        return _hits(hits[0]) if len(hits) == 1 and isinstance(hits[0], list) else hits
    if isinstance(response, Mapping) and isinstance(ids := response.get("ids"), list):
        return _columns(response, ids)
    read = response.get if isinstance(response, Mapping) else lambda name: getattr(response, name, None)
    for value in map(read, LISTS):
        if isinstance(value, Mapping | list | tuple):
            return _hits(value)
    raise CorpusError(
        f"the engine returned {type(response).__name__} ({brief(response)}), not a list of passages: return a list of "
        'texts, or of mappings like {"id": ..., "title": ..., "text": ...}'
    )


def _columns(response: Mapping[str, Any], ids: list[Any]) -> list[object]:
    """Return the hits of Chroma's response: a list for each part of a hit, inside a list for each query."""

    def column(name: str) -> list[Any]:
        values = response.get(name) or [None] * len(ids)
        return list(values[0] if len(values) == 1 and isinstance(values[0], list) else values)

    rows = zip(column("ids"), column("documents"), column("metadatas"), strict=False)
    return [{"id": hit_id, "text": text, "metadata": metadata or {}} for hit_id, text, metadata in rows]


def _passage(hit: object, names: FieldNames) -> EnginePassage:
    entries = _entries(hit)
    text_name, text = _entry(entries, names.text, TEXTS)
    if text_name is None or not isinstance(text, str | None):
        wrong = "no field for its text" if text_name is None else f"{type(text).__name__} in {text_name!r}, not text"
        raise CorpusError(
            f"a hit of the engine has {wrong}; its fields are {', '.join(map(str, entries)) or 'empty'}: name the "
            "field of the text with text_key="
        )
    title_name, title = _entry(entries, names.title, TITLES)
    id_name, hit_id = _entry(entries, names.id, IDS)
    document_name, document_id = _entry(entries, names.document, DOCUMENT_IDS)
    used = {text_name, title_name, id_name, document_name}
    metadata = {str(name): value for name, value in entries.items() if name not in used and _is_metadata(value)}
    return EnginePassage(
        well_formed(text or ""),
        well_formed(title) if isinstance(title, str) else "",
        _identifier(hit_id),
        _identifier(document_id),
        dict(islice(metadata.items(), MOST_METADATA)),
    )


def _entries(hit: Any) -> dict[str, Any]:
    """Return the fields of a hit, those that it nests included; its own come before nested ones of the same name."""
    if isinstance(hit, str):
        return {"text": hit}
    if isinstance(hit, tuple) and len(hit) == 2 and isinstance(hit[1], int | float):
        return _entries(hit[0])
    if isinstance(hit, Mapping):
        own = dict(hit)
    elif _is_record(hit):
        own = {entry.name: getattr(hit, entry.name) for entry in fields(hit)} if is_dataclass(hit) else dict(vars(hit))
    elif getattr(hit, "__dict__", None) and not callable(hit):
        own = dict(vars(hit))
    else:
        raise CorpusError(
            f"a hit of the engine is {type(hit).__name__} ({brief(hit)}): return texts, mappings or objects with fields"
        )
    nested: dict[str, Any] = {}
    for name in NESTED:
        if isinstance(own.get(name), Mapping) or _is_record(own.get(name)):
            nested |= _entries(own.pop(name))
    return nested | own


def _is_record(value: object) -> bool:
    """Return whether it is an object with fields: a dataclass, or one of pydantic, which can be iterated over too."""
    return (is_dataclass(value) and not isinstance(value, type)) or hasattr(value, "model_fields_set")


def _entry(entries: Mapping[str, Any], name: str | None, usual: Sequence[str]) -> tuple[str | None, Any]:
    """Return the entry's name and value: the named one, else the first usual one that has a value; (None, None)
    without.
    """
    candidates = [name] if name is not None else [usual_name for usual_name in usual if usual_name in entries]
    filled = (candidate for candidate in candidates if entries.get(candidate) is not None)
    key = next(filled, candidates[0] if candidates and candidates[0] in entries else None)
    value = entries.get(key) if key is not None else None
    # OpenSearch returns requested fields as lists.
    return key, value[0] if isinstance(value, list) and len(value) == 1 else value


def _identifier(value: object) -> str:
    """Return an id as text; empty for none. LlamaIndex stores a missing document as "None"."""
    usable = isinstance(value, str | int | UUID) and not isinstance(value, bool)
    text = well_formed(str(value)) if usable else ""
    return "" if text == "None" else text


def _is_metadata(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_TEXT)
