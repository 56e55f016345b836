"""DSPy: the agent as a retriever for programs, and as a tool for `dspy.ReAct`. Needs the extra `dspy`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.functions import SearchTool
from context_agent.integrations.open_agent import OpenAgent, open_agent
from context_agent.integrations.passages import PassageRetriever, RetrievedPassage
from context_agent.retrieval.filters import Where

with extra("dspy"):
    import dspy


class ContextAgentRetriever:
    """A retriever for DSPy's programs. If an optimizer copies a program, the copy shares the retriever.

    `retriever(question)` returns a prediction. Its `passages` are texts, best first, and `ids`, `titles`, `scores` and
    `metadata` are in the same order.
    """

    def __init__(
        self, agent: SearchAgent, *, k: int = DEFAULT_K, where: Where | None = None, per_document: int | None = 1
    ) -> None:
        """Make a retriever on an open agent.

        Args:
            agent: The agent. The caller closes it.
            k: The number of documents.
            where: A filter for every question, in Chroma's syntax.
            per_document: The number of passages for each document. If it is None, all passages in the final view are
                returned.
        """
        self._retriever = PassageRetriever(agent, k, where, per_document)
        self._handle: OpenAgent | None = None

    @classmethod
    def from_chroma(cls, collection: Any = None, **options: Any) -> Self:
        """Return a retriever on a Chroma collection.

        Args:
            collection: A Chroma collection, or its name in the folder `path` or on the server at `url`.
            options: Options of `open_agent`, of the retriever, or of `SearchAgent`.
        """
        fields = {name: options.pop(name) for name in ("k", "where", "per_document") if name in options}
        with open_agent(collection, **options) as handle:
            retriever = cls(handle.agent, **fields)
            retriever._handle = handle
            return retriever

    def __call__(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """Return the passages for a question. The call blocks."""
        return _prediction(self._retriever.search(query, k=k, where=where))

    async def acall(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """Return the passages for a question without blocking."""
        return _prediction(await self._retriever.asearch(query, k=k, where=where))

    def tool(self) -> Callable[..., str]:
        """Return a function for `dspy.ReAct(signature, tools=[...])`. It answers with numbered passages."""
        tool = self._tool()

        def search_documents(question: str) -> str:
            """Answers one question, also one of several steps, with numbered passages from the documents."""
            return tool.conversation().run({"question": question}).text

        return search_documents

    def atool(self) -> Callable[..., Awaitable[str]]:
        """Return the coroutine function of `tool`, for a `dspy.ReAct` that you call with `acall`.

        DSPy runs the function of `tool` in the event loop, which would wait for the search.
        """
        tool = self._tool()

        async def search_documents(question: str) -> str:
            """Answers one question, also one of several steps, with numbered passages from the documents."""
            return (await tool.conversation().arun({"question": question})).text

        return search_documents

    def _tool(self) -> SearchTool:
        retriever = self._retriever
        return SearchTool(retriever.agent, k=retriever.k, where=retriever.where, per_document=retriever.per_document)

    def close(self) -> None:
        """Close the objects that `from_chroma` opened. An agent or a collection that the caller passed stays open."""
        if self._handle is not None:
            self._handle.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _prediction(passages: list[RetrievedPassage]) -> dspy.Prediction:
    return dspy.Prediction(
        passages=[passage.text for passage in passages],
        ids=[passage.id for passage in passages],
        titles=[passage.title for passage in passages],
        scores=[passage.score for passage in passages],
        metadata=[dict(passage.metadata) for passage in passages],
        trajectory=passages[0].trajectory if passages else None,
    )
