"""DSPy: a callable in a program, and a tool of `dspy.ReAct`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import chromadb
import dspy
import pytest
from chromadb.api.models.Collection import Collection
from dspy.utils import DummyLM

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.dspy import ContextAgentRetriever
from context_agent.integrations.framework_embedder import FrameworkEmbedder
from context_agent.testing.actions import search
from tests.support.film_question import QUESTION, TEXTS, vector


class Rag(dspy.Module):  # type: ignore[misc]
    def __init__(self, retriever: ContextAgentRetriever) -> None:
        super().__init__()
        self.retriever = retriever
        self.answer = dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> Any:
        result = self.retriever(question)
        return dspy.Prediction(answer=self.answer(context=result.passages, question=question).answer, ids=result.ids)


def test_a_prediction_holds_passages_and_what_belongs_to_them(agent: SearchAgent) -> None:
    prediction = ContextAgentRetriever(agent, k=2)(QUESTION)
    assert isinstance(prediction, dspy.Prediction)
    assert prediction.passages == [TEXTS["Rope"][0], TEXTS["Alfred Hitchcock"][0]]
    assert (prediction.ids, prediction.titles) == (["d0_0", "d1_0"], ["Rope", "Alfred Hitchcock"])
    assert prediction.metadata == [{"year": 1948}, {"year": 1979}]
    assert prediction.scores[0] > prediction.scores[1] > 0
    assert Path(prediction.trajectory).exists()


def test_k_and_filters_pass_through_and_loops_do_not_matter(agent: SearchAgent) -> None:
    retriever = ContextAgentRetriever(agent, where={"year": {"$gt": 1900}})

    async def call_both() -> list[Any]:
        return [retriever(QUESTION, k=1), await retriever.acall(QUESTION, where={"year": 1979})]

    first, second = asyncio.run(call_both())
    assert (first.ids, second.ids) == (["d0_0"], ["d1_0"])
    assert retriever("bread", where={"year": 1200}).passages == []
    assert retriever("bread", where={"year": 1200}).trajectory is None
    with pytest.raises(ConfigError, match=r"`k` must be"):
        retriever(QUESTION, k=0)


def test_a_program_and_its_copy_share_the_retriever(agent: SearchAgent) -> None:
    program = Rag(ContextAgentRetriever(agent, k=2))
    copy = program.deepcopy()
    assert copy.retriever is program.retriever
    with dspy.context(lm=DummyLM([{"answer": "AFI Life Achievement Award"}])):
        result = copy(question=QUESTION)
    assert (result.answer, result.ids) == ("AFI Life Achievement Award", ["d0_0", "d1_0"])


REACT_STEPS = [
    {
        "next_thought": "I need the director.",
        "next_tool_name": "search_documents",
        "next_tool_args": {"question": QUESTION},
    },
    {"next_thought": "I have it.", "next_tool_name": "finish", "next_tool_args": {}},
    {"reasoning": "By passage 2.", "answer": "AFI Life Achievement Award"},
]


def test_react_calls_the_tool(agent: SearchAgent) -> None:
    react = dspy.ReAct("question -> answer", tools=[ContextAgentRetriever(agent, k=2).tool()])
    with dspy.context(lm=DummyLM(REACT_STEPS)):
        result = react(question=QUESTION)
    assert result.answer == "AFI Life Achievement Award"
    observation = result.trajectory["observation_0"]
    assert observation.startswith(f"[1] Rope (id: d0_0)\n{TEXTS['Rope'][0]}\n\n[2] Alfred Hitchcock (id: d1_0)\n")


async def test_react_calls_the_tool_without_blocking_the_loop(films: MemoryCorpus) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    with SearchAgent(films, ScriptedPolicy([search("Rope", limit=1)], delay=0.5)) as agent:
        react = dspy.ReAct("question -> answer", tools=[ContextAgentRetriever(agent).atool()])
        with dspy.context(lm=DummyLM(REACT_STEPS)):
            ticking = asyncio.create_task(tick())
            result = await react.acall(question=QUESTION)
            ticking.cancel()
    assert result.answer == "AFI Life Achievement Award"
    assert result.trajectory["observation_0"].startswith(f"[1] Rope (id: d0_0)\n{TEXTS['Rope'][0]}")
    assert ticks > 10


def test_an_existing_collection_is_searched_as_it_stands(collection: Collection) -> None:
    texts = [text for text, _ in TEXTS.values()]
    collection.add(ids=[f"own-{n}" for n in range(len(texts))], documents=texts, embeddings=list(map(vector, texts)))

    class Model:
        def many(self, texts: list[str]) -> list[list[float]]:
            return list(map(vector, texts))

        def one(self, text: str) -> list[float]:
            return vector(text)

    embedder = FrameworkEmbedder.of(collection, Model(), "many", "one")
    folder = collection._client.get_settings().persist_directory
    for retriever in (
        ContextAgentRetriever.from_chroma(collection, k=2, corpus={"embedder": embedder}),
        ContextAgentRetriever.from_chroma("mine", path=folder, k=2, corpus={"embedder": embedder}),
    ):
        assert retriever(QUESTION).ids == ["own-0", "own-1"]
        retriever.close()
    assert collection.count() == len(texts), "the collection stays open"
    assert chromadb.PersistentClient(folder).get_collection("mine").count() == len(texts)
