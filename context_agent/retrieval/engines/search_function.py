"""How a search function, or a retriever or store of a framework, is called.

No framework is imported, because its objects are recognized by their methods. Some retrievers take no number of
passages. They return as many as their own settings say. A vector store or an index receives the number.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from context_agent._support.event_loops import BACKGROUND, is_blocked, running_loop
from context_agent.errors import ConfigError, ContextAgentError, CorpusError
from context_agent.retrieval.engines.http_engine import HttpEngine
from context_agent.retrieval.engines.mcp_engine import LIMIT_NAMES
from context_agent.retrieval.filters import Where

WHERE_ARGUMENT = "where"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchFunction:
    """A search function, and the arguments that it takes.

    `limit_name` is empty if the number of passages is a positional argument, and None if there is no such argument.
    """

    call: Callable[..., Any]
    limit_name: str | None
    takes_where: bool
    loop: asyncio.AbstractEventLoop | None
    seconds: float

    @classmethod
    def of(cls, function: Callable[..., Any], seconds: float) -> Self:
        """Return the function with the arguments that its signature shows: a query, and perhaps a limit and `where`.

        Coroutines run in the event loop in which this method is called, if that loop is still running. If it has ended,
        or if its thread waits for the search, they run in a loop in the background.

        Raises:
            ConfigError: If the function cannot take a query.
        """
        parameters = _parameters(function)
        positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
        if not positional and all(item.kind is not item.VAR_POSITIONAL for item in parameters):
            raise ConfigError(f"{function!r} takes no query. Pass a function like search(query, limit).")
        names = {item.name for item in parameters if item.kind is not item.POSITIONAL_ONLY}
        second = (
            positional[1:2]
            and positional[1].name != WHERE_ARGUMENT
            and positional[1].default is inspect.Parameter.empty
        )
        limit_name = next((name for name in LIMIT_NAMES if name in names), "" if second else None)
        return cls(function, limit_name, WHERE_ARGUMENT in names, running_loop(), seconds)

    def __call__(self, query: str, limit: int, where: Where | None) -> Any:
        """Return the response. Raise `CorpusError` if the engine fails or takes too long."""
        options: dict[str, Any] = {self.limit_name: limit} if self.limit_name else {}
        if where is not None and self.takes_where:
            options[WHERE_ARGUMENT] = where
        positional = (query, limit) if self.limit_name == "" else (query,)
        return self.run(lambda: self.call(*positional, **options))

    def run(self, call: Callable[[], Any]) -> Any:
        """Return the result of the call. If it is a coroutine, run it.

        If the call fails or takes too long, raise `CorpusError`.
        """
        loop = None if self.loop is None or is_blocked(self.loop) else self.loop
        started = _in_thread(lambda: self._awaited(call(), loop))
        try:
            return started.result(self.seconds)
        except ContextAgentError as error:
            raise error if isinstance(error, CorpusError) else CorpusError(f"the engine failed: {error}") from error
        except TimeoutError as error:
            if started.done():
                raise CorpusError(
                    f"the search engine failed ({_described(error)}). Check the engine, and search again."
                ) from error
            raise CorpusError(
                f"the engine did not answer within {self.seconds:g} s. Check that it runs, or allow more with timeout=."
            ) from None
        except Exception as error:
            raise CorpusError(
                f"the search engine failed ({_described(error)}). Check the engine, and search again."
            ) from error

    def _awaited(self, result: Any, loop: asyncio.AbstractEventLoop | None) -> Any:
        if not inspect.isawaitable(result):
            return result
        if loop is not None and loop.is_running():
            return asyncio.run_coroutine_threadsafe(_until(result, self.seconds), loop).result()
        return BACKGROUND.run(_until(result, self.seconds))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function.

    If its signature is unknown, as for some functions in C, return only a query.
    """
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("query", inspect.Parameter.POSITIONAL_ONLY)]


async def _until(result: Any, seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await result


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Run the call in a thread of its own, in a copy of this context.

    The process can end while the thread is running.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 (raised again where the result is read)
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name="ctx1-engine").start()
    return future


def _described(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):  # as task groups raise
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:500]}" if str(error) else type(error).__name__


def search_function(engine: Any) -> Callable[..., Any]:
    """Return the engine's search, for `SearchFunction.of`. If the object cannot search, raise `ConfigError`."""
    search = HttpEngine(engine) if isinstance(engine, str) else _of_llamaindex(engine) or _of_langchain(engine)
    if search is not None:
        return search
    if callable(engine):
        return engine  # type: ignore[no-any-return]
    raise ConfigError(
        f"{type(engine).__name__} is not a supported search engine. Pass a function search(query, limit), a LangChain "
        "retriever or vector store, a LlamaIndex retriever or index, or the address of an HTTP endpoint."
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
    """Return LangChain's documents as hits."""
    return [{"text": document.page_content, "id": document.id, "metadata": document.metadata} for document in documents]


def _nodes(nodes: Iterable[Any]) -> list[dict[str, Any]]:
    """Convert LlamaIndex's scored nodes to hits. The document of a hit is the source of its node."""
    return [
        {"text": node.get_content(), "id": node.node_id, "document_id": node.node.ref_doc_id, "metadata": node.metadata}
        for node in nodes
    ]
