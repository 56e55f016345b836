"""DSPy: the agent as a retriever for programs, and as a tool for `dspy.ReAct`. Needs the extra `dspy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, SearchAgent
from context_agent.integrations.functions import SearchTool
from context_agent.integrations.passages import Face, Opened, Passage, on_collection
from context_agent.retrieval.chroma import COLLECTION
from context_agent.retrieval.corpus import Where

with extra("dspy"):
    import dspy


class ContextAgentRetriever:
    """`retriever(question).passages` are texts, best first, with `ids`, `titles`, `scores` and `metadata` alongside.

    A copy of a program, as optimizers make them, shares its retriever.
    """

    def __init__(
        self, agent: SearchAgent, *, k: int = DEFAULT_K, where: Where | None = None, per_document: int | None = 1
    ) -> None:
        """`where` holds for every question; `per_document=None` returns all passages that stayed in view."""
        self.face = Face(agent, k, where, per_document)
        self._opened: Opened | None = None

    @classmethod
    def from_chroma(
        cls,
        collection: Any = COLLECTION,
        *,
        path: str | None = None,
        url: str | None = None,
        k: int = DEFAULT_K,
        where: Where | None = None,
        per_document: int | None = 1,
        corpus: dict[str, Any] | None = None,
        **agent: Any,
    ) -> Self:
        """On a Chroma collection as it stands: Chroma's own object, or its name in the folder `path` or at `url`.

        `corpus` holds options of `ChromaCorpus.open`, `agent` those of `SearchAgent`.
        """
        with on_collection(collection, path=path, url=url, corpus=corpus, **agent) as opened:
            made = cls(opened.agent, k=k, where=where, per_document=per_document)
            made._opened = opened
            return made

    def __call__(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """The passages for a question; blocks."""
        return _prediction(self.face.search(query, k=k, where=where))

    async def acall(self, query: str, k: int | None = None, where: Where | None = None) -> dspy.Prediction:
        """The same without blocking."""
        return _prediction(await self.face.asearch(query, k=k, where=where))

    def tool(self) -> Callable[..., str]:
        """A function for `dspy.ReAct(signature, tools=[...])`: numbered passages with their ids, as text."""
        tool = SearchTool(self.face.agent, k=self.face.k, where=self.face.where, per_document=self.face.per_document)

        def search_documents(question: str) -> str:
            """Answers one question, also one of several steps, with numbered passages from the documents."""
            return tool.conversation().run({"question": question}).text

        return search_documents

    def close(self) -> None:
        """Closes what `from_chroma` opened; an agent or a collection that was given stays open."""
        if self._opened is not None:
            self._opened.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _prediction(passages: list[Passage]) -> dspy.Prediction:
    return dspy.Prediction(
        passages=[one.text for one in passages],
        ids=[one.id for one in passages],
        titles=[one.title for one in passages],
        scores=[one.score for one in passages],
        metadata=[dict(one.metadata) for one in passages],
        trajectory=passages[0].trajectory if passages else None,
    )
