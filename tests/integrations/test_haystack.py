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
from tests.support.film_question import QUESTION, TEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of an index."""
    path = tmp_path_factory.mktemp("index")
    sources = [Source(f"d{n}", text, title, {"year": y}) for n, (title, (text, y)) in enumerate(TEXTS.items())]
    index_documents(sources, path=path)
    return str(path)


def pipeline(retriever: Any) -> Pipeline:
    pipe = Pipeline()
    pipe.add_component("retriever", retriever)
    template = "{% for d in documents %}{{ d.content }}\n{% endfor %}{{ question }}"
    pipe.add_component("prompt", PromptBuilder(template, required_variables=["documents", "question"]))
    pipe.connect("retriever.documents", "prompt.documents")
    return pipe


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
    inputs = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    first = loaded.run(inputs, include_outputs_from={"retriever"})
    assert first["prompt"]["prompt"].startswith(f"{TEXTS['Rope'][0]}\n{TEXTS['Alfred Hitchcock'][0]}")
    documents = first["retriever"]["documents"]
    assert all(isinstance(document, Document) for document in documents)
    assert [(document.id, document.meta["ctx1_document_id"], document.meta["year"]) for document in documents] == [
        ("d0_0", "d0", 1948),
        ("d1_0", "d1", 1979),
    ]
    assert documents[0].score > documents[1].score > 0
    assert Path(documents[0].meta["ctx1_trajectory"]).parent == tmp_path
    second = asyncio.run(loaded.run_async(inputs, include_outputs_from={"retriever"}))
    assert [document.id for document in second["retriever"]["documents"]] == [document.id for document in documents]
    loaded.get_component("retriever").close()


def test_filters_of_a_call_join_the_component_s(folder: str) -> None:
    retriever = ContextAgentRetriever(path=folder, filters={"field": "meta.year", "operator": ">", "value": 1900})
    call_filters = {"operator": "NOT", "conditions": [{"field": "meta.year", "operator": "==", "value": 1948}]}
    assert [document.meta["year"] for document in retriever.run(QUESTION, filters=call_filters)["documents"]] == [1979]
    assert len(retriever.run(QUESTION, top_k=1)["documents"]) == 1
    retriever.close()
    retriever.close()
    assert len(retriever.run(QUESTION, top_k=2)["documents"]) == 2, "it opens again"
    retriever.close()


def test_many_runs_at_once_open_it_once(folder: str) -> None:
    retriever = ContextAgentRetriever(path=folder, top_k=2)

    async def runs() -> list[list[str]]:
        results = await asyncio.gather(*(retriever.run_async(QUESTION) for _ in range(8)))
        return [[document.id for document in result["documents"]] for result in results]

    assert asyncio.run(runs()) == [["d0_0", "d1_0"]] * 8
    retriever.close()


def test_a_live_agent_runs_and_cannot_be_saved(agent: SearchAgent) -> None:
    live_pipeline = pipeline(ContextAgentRetriever.of(agent, top_k=1))
    inputs = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    assert TEXTS["Rope"][0] in live_pipeline.run(inputs)["prompt"]["prompt"]
    with pytest.raises(ConfigError, match="cannot be saved"):
        live_pipeline.dumps()
    live_pipeline.get_component("retriever").close()
    assert TEXTS["Rope"][0] in live_pipeline.run(inputs)["prompt"]["prompt"], "the agent stays open"


def test_a_token_is_never_saved_and_goes_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    client_options: dict[str, Any] = {}

    def fail_to_open(*_: object, **options: Any) -> None:
        client_options.update(options)
        raise CorpusNotFoundError("no server")

    monkeypatch.setenv("CHROMA_TOKEN", "very-secret")
    monkeypatch.setattr("context_agent.retrieval.chroma.corpus.ChromaCorpus.open", fail_to_open)
    retriever = ContextAgentRetriever(url="http://127.0.0.1:1", token=Secret.from_env_var("CHROMA_TOKEN"))
    assert "very-secret" not in pipeline(retriever).dumps()
    with pytest.raises(CorpusNotFoundError):
        retriever.warm_up()
    assert client_options["headers"] == {"Authorization": "Bearer very-secret"}


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusNotFoundError, match="does not exist"):
        ContextAgentRetriever(path=str(tmp_path / "none")).run(QUESTION)
    with pytest.raises(ConfigError, match="by its folder"):
        ContextAgentRetriever().run(QUESTION)
    with pytest.raises(ConfigError, match="field, operator and value"):
        ContextAgentRetriever(path="x", filters={"year": 1})
    with pytest.raises(ConfigError, match="'oracle'"):
        ContextAgentRetriever(path="x", policy="oracle").run(QUESTION)
