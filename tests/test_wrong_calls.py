"""A wrong call from Python raises an error with the argument, its value and what to pass. Numbers of numpy work."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import os
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent import (
    BridgePolicy,
    Budget,
    ChromaCorpus,
    Document,
    EngineCorpus,
    Limits,
    MemoryCorpus,
    ScriptedPolicy,
    SearchAgent,
    index_documents,
    load,
)
from context_agent.errors import ContextAgentError
from context_agent.harness.trajectory import Header
from context_agent.policies.bridge.effort import Effort
from context_agent.policies.chat import ChatPolicy
from context_agent.pruning import ContextPruner, Prices
from context_agent.retrieval.loaders import LoadOptions
from context_agent.swarm import Swarm
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder

QUESTION = "Who was an engraver?"
DOCUMENTS = people(12)
CORPUS = MemoryCorpus(DOCUMENTS, embedder=HashEmbedder(), calibration=False)
AGENT = SearchAgent(CORPUS, effort="fast")
MESSAGES = [{"role": "user", "content": "Find the lamp."}]
any_: Any = None


def search(**options: Any) -> Callable[[Path], Any]:
    return lambda _: AGENT.search(QUESTION, **options)


def agent(**options: Any) -> Callable[[Path], Any]:
    return lambda _: SearchAgent(CORPUS, **options)


def index(documents: Any = DOCUMENTS, **options: Any) -> Callable[[Path], Any]:
    return lambda path: index_documents(documents, path / "i", **{"embedder": HashEmbedder(), **options})


def memory(documents: Any, **options: Any) -> Callable[[Path], Any]:
    return lambda _: MemoryCorpus(documents, **{"embedder": HashEmbedder(), **options})


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a question in bytes": (lambda _: AGENT.search(b"a"), "question"),  # type: ignore[arg-type]
    "a filter by date": (search(where={"day": dt.date(2020, 1, 1)}), "day"),
    "a filter by bytes": (search(where={"day": b"2020"}), "b'2020'"),
    "a filter with a set": (search(where={"day": {"$in": {1, 2}}}), "lists"),
    "a filter with NaN of numpy": (search(where={"day": np.float32(math.nan)}), "finite"),
    "a filter with keys of two types": (search(where={"$and": [{1: 2, "a": 3}, {"b": 1}]}), "key"),
    "a seed in text": (search(seed="7"), "`seed`"),
    "a fraction as a seed": (search(seed=1.5), "`seed`"),
    "a budget in text": (search(budget="big"), "`budget`"),
    "a budget of NaN": (search(budget=math.nan), "`budget`"),
    "a fraction as a budget": (search(budget=8000.0), "`budget`"),
    "no corpus": (lambda _: SearchAgent(any_), "`corpus`"),
    "documents for a corpus": (lambda _: SearchAgent(DOCUMENTS), "`corpus`"),  # type: ignore[arg-type]
    "a path for a corpus": (lambda path: SearchAgent(corpus=path), "`corpus`"),  # type: ignore[arg-type]
    "a class for a corpus": (lambda _: SearchAgent(MemoryCorpus), "class MemoryCorpus"),  # type: ignore[arg-type]
    "a name for a policy": (agent(policy="bridge"), "`policy`"),
    "a class for a policy": (agent(policy=BridgePolicy), "class BridgePolicy"),
    "a number for a profile": (agent(profile=3), "`profile`"),
    "rollouts in text": (agent(rollouts="2"), "`rollouts`"),
    "rollouts of NaN": (agent(rollouts=math.nan), "`rollouts`"),
    "a fraction of a rollout": (agent(rollouts=1.5), "`rollouts`"),
    "no workers": (agent(workers=None), "`workers`"),
    "a dictionary for limits": (agent(limits={"turns": 3}), "`limits`"),
    "a number for trajectories": (agent(trajectories=3), "`trajectories`"),
    "a file for trajectories": (agent(trajectories=__file__), "is a file"),
    "a path below a file for trajectories": (agent(trajectories=f"{__file__}/a/b"), "is a file"),
    "a number for observers": (agent(observers=3), "`observers`"),
    "names for observers": (agent(observers=["log"]), "`observers`"),
    "nothing among the observers": (agent(observers=[print, None]), "`observers`"),
    "a number for a swarm": (agent(swarm=3), "`swarm`"),
    "a number for an effort": (agent(effort=3), "careful or fast; got 3"),
    "a number for the effort of a search": (search(effort=3), "careful or fast; got 3"),
    "a file for a scorer": (lambda _: BridgePolicy("weights.json"), "`scorer`"),  # type: ignore[arg-type]
    "a name for a reader": (lambda _: BridgePolicy(reader="small"), "`reader`"),  # type: ignore[arg-type]
    "a text for a number of passages": (lambda _: BridgePolicy(remembered="9"), "`remembered`"),  # type: ignore[arg-type]
    "searches in text": (lambda _: Effort(searches="3"), "`searches`"),  # type: ignore[arg-type]
    "a negative number of readings": (lambda _: Effort(readings=-1), "`readings`"),
    "an effort that compares nothing": (lambda _: Effort(compared=0), "`compared`"),
    "a probability in text": (lambda _: Effort(sufficient="1"), "`sufficient`"),  # type: ignore[arg-type]
    "a breadth in text": (lambda _: Swarm(breadth="3"), "`breadth`"),  # type: ignore[arg-type]
    "a fraction as a breadth": (lambda _: Swarm(breadth=1.5), "`breadth`"),  # type: ignore[arg-type]
    "a fraction of a turn": (lambda _: Swarm(turns=1.5), "`turns`"),  # type: ignore[arg-type]
    "a number for a model": (lambda _: ChatPolicy(3), "`model`"),  # type: ignore[arg-type]
    "a number for the address of a model": (lambda _: ChatPolicy("m", base_url=3), "`address`"),  # type: ignore[arg-type]
    "a temperature in text": (lambda _: ChatPolicy("m", temperature="hot"), "`temperature`"),  # type: ignore[arg-type]
    "a time limit in text": (lambda _: ChatPolicy("m", timeout="9"), "`timeout`"),  # type: ignore[arg-type]
    "a deadline in text": (lambda _: ChatPolicy("m", deadline="9"), "`deadline`"),  # type: ignore[arg-type]
    "tokens in text": (lambda _: ChatPolicy("m", max_tokens="9"), "`max_tokens`"),  # type: ignore[arg-type]
    "a number for an effort of a model": (
        lambda _: ChatPolicy("m", reasoning_effort=3),  # type: ignore[arg-type]
        "`reasoning_effort`",
    ),
    "a list of fields": (lambda _: ChatPolicy("m", extra_body=["a"]), "`extra_body`"),  # type: ignore[arg-type]
    "a number for the most passages": (lambda _: EngineCorpus(print, max_passages="9"), "`max_passages`"),  # type: ignore[arg-type]
    "a name for a reranker in memory": (memory(DOCUMENTS, reranker="x"), "`reranker`"),
    "a name for a counter in memory": (memory(DOCUMENTS, counter="x"), "`counter`"),
    "a number for the counter of a pruner": (lambda _: ContextPruner(counter=3), "`counter`"),  # type: ignore[arg-type]
    "a limit of a file in text": (lambda _: LoadOptions(max_mb="3"), "`max_mb`"),  # type: ignore[arg-type]
    "a number for an encoding": (lambda _: LoadOptions(encoding=3), "`encoding`"),  # type: ignore[arg-type]
    "a limit of more than 64 bits": (lambda _: LoadOptions(max_mb=10**25), "between 1 and 1,000,000"),
    "a number for a delimiter": (lambda _: LoadOptions(delimiter=3), "`delimiter`"),  # type: ignore[arg-type]
    "a number for a field": (lambda _: LoadOptions(text_key=3), "`text_key`"),  # type: ignore[arg-type]
    "turns in text": (lambda _: Limits(turns="3"), "`turns`"),  # type: ignore[arg-type]
    "seconds of NaN": (lambda _: Limits(seconds=math.nan), "`seconds`"),
    "seconds beyond a float": (lambda _: Limits(seconds=10**309), "`seconds`"),
    "seconds in a fraction beyond a float": (lambda _: Limits(seconds=Fraction(7**400)), "`seconds`"),  # type: ignore[arg-type]
    "seconds as a duration": (lambda _: Limits(seconds=dt.timedelta(3)), "`seconds`"),  # type: ignore[arg-type]
    "no calls": (lambda _: Limits(calls=any_), "`calls`"),
    "a window in text": (lambda _: Budget("9000"), "`window`"),  # type: ignore[arg-type]
    "a text for documents": (memory("abc"), "`sources`"),
    "texts for documents": (memory(["abc"]), "'abc'"),
    "rows for documents": (memory([{"id": "a", "text": "b"}]), "Document"),
    "one document for a list": (memory(DOCUMENTS[0]), "`sources`"),
    "no documents": (memory(None), "`sources`"),
    "a document with a number for an id": (memory([Document(5, "text")]), "must be strings"),  # type: ignore[arg-type]
    "a document without a text": (memory([Document("a", any_)]), "must be strings"),
    "a document with a list for metadata": (
        memory([Document("a", "b", metadata=[1])]),  # type: ignore[arg-type]
        "dictionary",
    ),
    "vectors in text": (memory(DOCUMENTS, vectors="a"), "`vectors`"),
    "vectors of NaN": (memory(DOCUMENTS, vectors=np.full((12, HashEmbedder().dimension), np.nan)), "finite"),
    "a fraction as a chunk size": (memory(DOCUMENTS, chunk_size=64.5), "`chunk_size`"),
    "a pattern in bytes": (lambda _: CORPUS.grep(b"a"), "pattern"),  # type: ignore[arg-type]
    "a limit in text": (lambda _: CORPUS.grep("a", limit="1"), "`limit`"),  # type: ignore[arg-type]
    "a number for a document id": (lambda _: CORPUS.read(3), "document id"),  # type: ignore[arg-type]
    "a text for a list of ids": (lambda _: CORPUS.get("person-1_0"), "`chunk_ids`"),
    "a number for a folder": (lambda _: ChromaCorpus.open(3), "`path`"),  # type: ignore[arg-type]
    "a folder in bytes": (lambda _: ChromaCorpus.open(b"a"), "`path`"),  # type: ignore[arg-type]
    "a folder with a null character": (lambda _: ChromaCorpus.open("a\0b"), "`path`"),
    "a number for an address": (lambda _: ChromaCorpus.open(url=3), "`url`"),  # type: ignore[arg-type]
    "a text for headers": (
        lambda _: ChromaCorpus.open(url="http://127.0.0.1:9", headers="a"),  # type: ignore[arg-type]
        "`headers`",
    ),
    "a number for a collection": (lambda path: ChromaCorpus.open(path, collection=3), "`collection`"),  # type: ignore[arg-type]
    "a name for a reranker": (lambda path: ChromaCorpus.open(path, reranker="x"), "`reranker`"),  # type: ignore[arg-type]
    "nothing to index": (index(None), "`documents`"),
    "a text to index": (index("abc"), "`documents`"),
    "texts to index": (index(["abc"]), "'abc'"),
    "a chunk size in text": (index(chunk_size="64"), "`chunk_size`"),
    "a negative overlap": (index(overlap=-1), "`overlap`"),
    "a batch of NaN": (index(batch_size=math.nan), "`batch_size`"),
    "a number for the name of a collection": (index(collection=3), "`collection`"),
    "a number for progress": (index(progress=3), "`progress`"),
    "a text for the ids to remove": (index(remove_missing="person-1"), "`remove_missing`"),
    "a number for a counter": (index(counter=3), "`counter`"),
    "no source": (lambda _: list(load(any_)), "`sources`"),
    "a source in bytes": (lambda _: list(load(b"abc")), "`sources`"),  # type: ignore[arg-type]
    "a list of no sources": (lambda _: list(load([None])), "`sources`"),  # type: ignore[list-item]
    "a dictionary for options": (lambda _: list(load(__file__, options={})), "`options`"),  # type: ignore[arg-type]
    "a price in text": (lambda _: Prices(cached="a"), "`cached`"),  # type: ignore[arg-type]
    "a dictionary for prices": (lambda _: ContextPruner(prices={"cached": 0.1}), "`prices`"),  # type: ignore[arg-type]
    "a number for a strategy": (lambda _: ContextPruner(strategy=3), "`strategy`"),  # type: ignore[arg-type]
    "nothing for a strategy": (lambda _: ContextPruner(strategy=any_), "`strategy`"),
    "a number for a question to the user": (lambda _: ContextPruner(confirm=3), "`confirm`"),  # type: ignore[arg-type]
    "a number for what hears of restores": (lambda _: ContextPruner(on_restore=3), "`on_restore`"),  # type: ignore[arg-type]
    "a number for a task": (lambda _: ContextPruner().prune(MESSAGES, 3), "`task`"),  # type: ignore[arg-type]
    "a number for a hint": (lambda _: ContextPruner().prune(MESSAGES, hint=3), "`hint`"),  # type: ignore[arg-type]
    "a number for the prices of a prune": (lambda _: ContextPruner().prune(MESSAGES, prices=3), "`prices`"),  # type: ignore[arg-type]
    "a number for an id to restore": (lambda _: ContextPruner().restore(MESSAGES, [3]), "`ids`"),  # type: ignore[list-item]
    "texts for steps": (lambda _: ScriptedPolicy(["a"]), "`steps`"),  # type: ignore[list-item]
    "no steps": (lambda _: ScriptedPolicy(any_), "`steps`"),
    "a pause in text": (lambda _: ScriptedPolicy([], delay="1"), "`delay`"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_of_a_wrong_call_names_the_argument_or_its_value(name: str, tmp_path: Path) -> None:
    call, fact = WRONG[name]
    with pytest.raises(ContextAgentError) as caught:
        call(tmp_path)
    assert fact in str(caught.value)


def test_a_coroutine_for_a_value_is_a_config_error_and_an_unknown_option_is_a_type_error() -> None:
    async def value() -> int:
        return 1

    calls: list[Callable[[Any], Any]] = [MemoryCorpus, lambda late: AGENT.search(QUESTION, k=late)]
    for call in calls:
        late = value()
        with pytest.raises(ContextAgentError, match="coroutine"):
            call(late)
        late.close()
    with pytest.raises(TypeError, match=r"no option 'parent'\. Its options are k, where"):
        AGENT.search(QUESTION, parent="a")  # type: ignore[call-arg]


def test_wrong_settings_leave_an_index_as_it_was(tmp_path: Path) -> None:
    index_documents(DOCUMENTS, tmp_path, embedder=HashEmbedder())
    for wrong in ({"overlap": -3}, {"chunk_size": "64"}, {"chunk_size": 64.0}):
        with pytest.raises(ContextAgentError):
            index_documents(people(13), tmp_path, embedder=HashEmbedder(), **wrong)
    assert index_documents(DOCUMENTS, tmp_path, embedder=HashEmbedder()).unchanged == 12


def test_observers_may_come_from_a_generator_and_may_be_classes() -> None:
    class QuestionListener:
        def __init__(self, header: Header) -> None:
            heard.append(header.question)

        def __call__(self, *_: Any) -> None:
            pass

    heard: list[str] = []
    observers: Any = (observer for observer in [QuestionListener])
    SearchAgent(CORPUS, effort="fast", observers=observers).search(QUESTION)
    assert heard == [QUESTION]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"chunk_size": np.int64(64), "overlap": np.int32(4), "batch_size": np.uint8(5)}
    options: dict[str, Any] = {"k": np.int64(3), "budget": np.int64(16_000)}
    rollouts: Any = np.int64(1)
    share: Any = np.float32(0.5)
    documents = (Document(f"d{year}", f"The lamp of {year}.", metadata={"year": year}) for year in (1900, 1950))
    index_documents(documents, tmp_path, embedder=HashEmbedder(), **settings)
    limits = Limits(turns=np.int64(4), seconds=np.float32(30))  # type: ignore[arg-type]
    corpus = ChromaCorpus.open(tmp_path, embedder=HashEmbedder())
    with corpus, SearchAgent(corpus, effort="fast", limits=limits, rollouts=rollouts, seed=rollouts) as searcher:
        where = {"year": {"$in": [np.int64(1950), np.int64(1951)]}}
        result = searcher.search("Which lamp?", where=where, **options)
        assert [document.id for document in result.documents] == ["d1950"]
        above = {"year": {"$gt": np.float32(1940)}}
        assert [hit.chunk.document_id for hit in corpus.search("lamp", where=above)] == ["d1950"]
        assert len(corpus.grep("lamp", limit=rollouts)) == 1
    assert ContextPruner(rollouts * 100, prices=Prices(cached=share)).budget.count == 100


class Blocking(MemoryCorpus):
    blocking = True


def test_a_closed_corpus_says_that_it_is_closed_until_it_is_refreshed(tmp_path: Path) -> None:
    index_documents(DOCUMENTS, tmp_path, embedder=HashEmbedder())
    with ChromaCorpus.open(tmp_path, embedder=HashEmbedder()) as corpus:
        (first, *_) = corpus.search(QUESTION)
    searcher = SearchAgent(corpus, effort="fast")
    uses: list[Callable[[], Any]] = [
        lambda: corpus.search(QUESTION),
        lambda: corpus.grep("engraver"),
        lambda: list(corpus.walk()),
        lambda: corpus.read(first.chunk.document_id),
        lambda: corpus.get([first.chunk.id]),
        lambda: corpus.similarity(QUESTION, [first.chunk.id]),
        lambda: searcher.search(QUESTION),
    ]
    for use in uses:
        with pytest.raises(ContextAgentError, match=r"is closed\. Open it again with ChromaCorpus\.open"):
            use()
    corpus.refresh()
    assert all(len(use()) for use in uses[:-1])
    assert searcher.search(QUESTION).documents
    corpus.close()


@pytest.mark.parametrize("kind", [MemoryCorpus, Blocking])
def test_a_closed_agent_says_that_it_is_closed(kind: type[MemoryCorpus]) -> None:
    searcher = SearchAgent(kind(DOCUMENTS, embedder=HashEmbedder(), calibration=False), effort="fast")
    searcher.close()
    with pytest.raises(ContextAgentError, match="the agent is closed"):
        searcher.search(QUESTION)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_agent_that_waits_in_threads_works_in_a_forked_process() -> None:
    searcher = SearchAgent(Blocking(DOCUMENTS, embedder=HashEmbedder(), calibration=False), effort="fast")
    expected = [document.id for document in searcher.search(QUESTION).documents]
    child = os.fork()
    if not child:
        try:
            found = [document.id for document in searcher.search(QUESTION).documents]
            searcher.close()
            os._exit(0 if found == expected else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_a_search_may_be_canceled_at_any_await_and_the_agent_goes_on() -> None:
    searcher = SearchAgent(Blocking(DOCUMENTS, embedder=HashEmbedder(), calibration=False), effort="fast")

    async def canceled_after(steps: int) -> bool:
        task = asyncio.create_task(searcher.asearch(QUESTION))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    async def every_step() -> int:
        outcomes = [await canceled_after(steps) for steps in range(40)]
        assert len(asyncio.all_tasks()) == 1
        assert len((await searcher.asearch(QUESTION)).documents) == 10
        return sum(outcomes)

    assert asyncio.run(every_step()) > 3
