"""Haystack: a component that runs, saves and loads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.utils import Secret

from context_agent import Document as Source
from context_agent import SearchAgent, index_documents
from context_agent.errors import ConfigError, CorpusNotFoundError
from context_agent.integrations.haystack import ContextAgentRetriever
from tests.integrations.conftest import QUESTION, TEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of our own."""
    path = tmp_path_factory.mktemp("index")
    sources = [Source(f"d{n}", text, title, {"year": y}) for n, (title, (text, y)) in enumerate(TEXTS.items())]
    index_documents(sources, path=path)
    return str(path)


def pipeline(retriever: Any) -> Pipeline:
    result = Pipeline()
    result.add_component("retriever", retriever)
    template = "{% for d in documents %}{{ d.content }}\n{% endfor %}{{ question }}"
    result.add_component("prompt", PromptBuilder(template, required_variables=["documents", "question"]))
    result.connect("retriever.documents", "prompt.documents")
    return result


def test_a_pipeline_dumps_loads_equal_and_runs(folder: str, tmp_path: Path) -> None:
    options: dict[str, Any] = dict(  # noqa: C408 - they are keyword arguments
        path=folder,
        token=Secret.from_env_var("NO_SUCH_TOKEN", strict=False),
        corpus={"calibration": False},
        agent={"trajectories": str(tmp_path), "budget": 16_384},
        limits={"turns": 9},
        filters={"field": "meta.year", "operator": ">", "value": 1300},
        top_k=2,
    )
    text = pipeline(ContextAgentRetriever(**options)).dumps()
    loaded = Pipeline.loads(text, allowed_modules=["context_agent.integrations.haystack"])
    assert loaded == pipeline(ContextAgentRetriever(**options))
    assert loaded != pipeline(ContextAgentRetriever(path=folder))
    assert loaded.dumps() == text
    asked = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    first = loaded.run(asked, include_outputs_from={"retriever"})
    assert first["prompt"]["prompt"].startswith(f"{TEXTS['Rope'][0]}\n{TEXTS['Alfred Hitchcock'][0]}")
    found = first["retriever"]["documents"]
    assert all(isinstance(item, Document) for item in found)
    assert [(item.id, item.meta["ctx1_document_id"], item.meta["year"]) for item in found] == [
        ("d0_0", "d0", 1948),
        ("d1_0", "d1", 1979),
    ]
    assert found[0].score > found[1].score > 0
    assert Path(found[0].meta["ctx1_trajectory"]).parent == tmp_path
    again = asyncio.run(loaded.run_async(asked, include_outputs_from={"retriever"}))
    assert [item.id for item in again["retriever"]["documents"]] == [item.id for item in found]
    loaded.get_component("retriever").close()


def test_filters_of_a_call_join_the_component_s(folder: str) -> None:
    retriever = ContextAgentRetriever(path=folder, filters={"field": "meta.year", "operator": ">", "value": 1900})
    call = {"operator": "NOT", "conditions": [{"field": "meta.year", "operator": "==", "value": 1948}]}
    assert [item.meta["year"] for item in retriever.run(QUESTION, filters=call)["documents"]] == [1979]
    assert len(retriever.run(QUESTION, top_k=1)["documents"]) == 1
    retriever.close()
    retriever.close()
    assert len(retriever.run(QUESTION, top_k=2)["documents"]) == 2, "it opens again"
    retriever.close()


def test_many_runs_at_once_open_it_once(folder: str) -> None:
    retriever = ContextAgentRetriever(path=folder, top_k=2)

    async def runs() -> list[list[str]]:
        done = await asyncio.gather(*(retriever.run_async(QUESTION) for _ in range(8)))
        return [[one.id for one in item["documents"]] for item in done]

    assert asyncio.run(runs()) == [["d0_0", "d1_0"]] * 8
    retriever.close()


def test_a_live_agent_runs_and_cannot_be_saved(agent: SearchAgent) -> None:
    result = pipeline(ContextAgentRetriever.of(agent, top_k=1))
    asked = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    assert TEXTS["Rope"][0] in result.run(asked)["prompt"]["prompt"]
    with pytest.raises(ConfigError, match="cannot be saved"):
        result.dumps()
    result.get_component("retriever").close()
    assert TEXTS["Rope"][0] in result.run(asked)["prompt"]["prompt"], "the agent stays open"


def test_a_token_is_never_saved_and_goes_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def opened(*_: object, **options: Any) -> None:
        seen.update(options)
        raise CorpusNotFoundError("no server")

    monkeypatch.setenv("CHROMA_TOKEN", "very-secret")
    monkeypatch.setattr("context_agent.retrieval.chroma.corpus.ChromaCorpus.open", opened)
    retriever = ContextAgentRetriever(url="http://127.0.0.1:1", token=Secret.from_env_var("CHROMA_TOKEN"))
    assert "very-secret" not in pipeline(retriever).dumps()
    with pytest.raises(CorpusNotFoundError):
        retriever.warm_up()
    assert seen["headers"] == {"Authorization": "Bearer very-secret"}


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusNotFoundError, match="does not exist"):
        ContextAgentRetriever(path=str(tmp_path / "none")).run(QUESTION)
    with pytest.raises(ConfigError, match="by its folder"):
        ContextAgentRetriever().run(QUESTION)
    with pytest.raises(ConfigError, match="field, operator and value"):
        ContextAgentRetriever(path="x", filters={"year": 1})
    with pytest.raises(ConfigError, match="unknown policy 'oracle'"):
        ContextAgentRetriever(path="x", policy="oracle").run(QUESTION)
