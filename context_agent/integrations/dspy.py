"""DSPy: the agent as a retriever for programs, and as a tool for `dspy.ReAct`. Needs the extra `dspy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.functions import SearchTool
from context_agent.integrations.opening import OpenAgent, open_agent
from context_agent.integrations.passages import PassageRetriever, RetrievedPassage
from context_agent.retrieval.filters import Where

with extra("dspy"):
    import dspy


class ContextAgentRetriever:
    """`retriever(question).passages` are texts, best first, with `ids`, `titles`, `scores` and `metadata` alongside.

    A copy of a program, as optimizers make them, shares its retriever.
    """

    def __init__(
        self, agent: SearchAgent, *, k: int = DEFAULT_K, where: Where | None = None, per_document: int | None = 1
    ) -> None:
        """`where` applies to every question; `per_document=None` returns all passages that remained in view."""
        self._retriever = PassageRetriever(agent, k, where, per_document)
        self._handle: OpenAgent | None = None

    @classmethod
    def from_chroma(cls, collection: Any = None, **options: Any) -> Self:
        """On an existing Chroma collection: Chroma's own object, or its name in the folder `path` or at `url`.

        `corpus` holds options of `ChromaCorpus.open`; other options are the retriever's or `SearchAgent`'s.
        """
        fields = {name: options.pop(name) for name in ("k", "where", "per_document") if name in options}
        with open_agent(collection, **options) as handle:
            retriever = cls(handle.agent, **fields)
            retriever._handle = handle
            return retriever

    def __call__(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """Return the passages for a question; blocks."""
        return _prediction(self._retriever.search(query, k=k, where=where))

    async def acall(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """Return the same without blocking."""
        return _prediction(await self._retriever.asearch(query, k=k, where=where))

    def tool(self) -> Callable[..., str]:
        """Return a function for `dspy.ReAct(signature, tools=[...])`: numbered passages with their ids, as text."""
        retriever = self._retriever
        tool = SearchTool(retriever.agent, k=retriever.k, where=retriever.where, per_document=retriever.per_document)

        def search_documents(question: str) -> str:
            """Answers one question, also one of several steps, with numbered passages from the documents."""
            return tool.conversation().run({"question": question}).text

        return search_documents

    def close(self) -> None:
        """Closes what `from_chroma` opened. An agent or a collection that the caller passed stays open."""
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
