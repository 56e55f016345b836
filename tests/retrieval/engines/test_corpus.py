"""An engine as a corpus: what it answers from what it has seen, and what it makes of an engine that misbehaves."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from context_agent import EngineCorpus, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, CorpusError, PatternError
from context_agent.retrieval.corpus import Corpus, LimitedCorpus
from context_agent.retrieval.engines.passages import LONGEST_TITLE, FieldNames, passages_of
from context_agent.retrieval.engines.seen_passages import (
    CHUNK_CHARACTERS,
    FULL_LENGTH_KEY,
    LONGEST_PASSAGE,
    SeenPassages,
)
from context_agent.retrieval.engines.word_frequency import estimated_frequency
from context_agent.retrieval.filters import Where
from context_agent.testing.actions import rank_all, search
from context_agent.types import Document

TEXTS = {
    "rope": ("Rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", 1948),
    "hitchcock": ("Alfred Hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", 1979),
    "bread": ("Bread", "Bread is made of flour, water and salt.", 1900),
    "comet": ("Comet", "A comet is a small body of ice that warms when it passes the Sun.", 1910),
}
Row = dict[str, Any]


def rows() -> list[Row]:
    return [{"id": key, "title": title, "text": text, "year": year} for key, (title, text, year) in TEXTS.items()]


def ids(corpus: EngineCorpus, query: str = "anything", **options: Any) -> list[str]:
    return [hit.chunk.id for hit in corpus.search(query, **options)]


def test_it_is_a_corpus_without_grep() -> None:
    corpus = EngineCorpus(lambda query: rows())
    assert isinstance(corpus, Corpus)
    assert isinstance(corpus, LimitedCorpus)
    with SearchAgent(corpus, ScriptedPolicy([])) as agent:
        assert "grep_corpus" not in agent.profile.tools
        assert "read_document" in agent.profile.tools
    with SearchAgent(MemoryCorpus([Document("a", "a text")]), ScriptedPolicy([])) as agent:
        assert "grep_corpus" in agent.profile.tools


def test_an_agent_that_moves_to_an_index_has_all_tools_again() -> None:
    with SearchAgent(EngineCorpus(lambda query: rows()), ScriptedPolicy([])) as agent:
        assert "grep_corpus" not in agent.profile.tools
        assert "grep_corpus" in agent.on(MemoryCorpus([Document("a", "Rope.")])).profile.tools


def test_hits_keep_the_engines_order_whatever_its_scores() -> None:
    scored_rows = [{**row, "score": score} for row, score in zip(rows(), (0.1, "high", None, -5), strict=True)]
    hits = EngineCorpus(lambda query: scored_rows).search("film")
    assert [hit.chunk.document_id for hit in hits] == list(TEXTS)
    assert [hit.score for hit in hits] == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert (hits[0].chunk.id, hits[0].chunk.title) == ("rope_0", "Rope")
    assert hits[0].chunk.metadata["year"] == 1948


def test_what_was_returned_can_be_read_compared_and_searched() -> None:
    corpus = EngineCorpus(lambda query: rows())
    assert corpus.get(["rope_0"]) == corpus.read("rope") == list(corpus.walk()) == []
    corpus.search("film")
    assert [chunk.id for chunk in corpus.get(["comet_0", "none", "rope_0"])] == ["comet_0", "rope_0"]
    assert [chunk.title for chunk in corpus.read("bread")] == ["Bread"]
    assert [hit.chunk.id for hit in corpus.grep("19[0-9]{2}", exclude={"rope_0"})] == ["hitchcock_0"]
    assert [hit.chunk.id for hit in corpus.grep(r"\d|water", where={"year": {"$lt": 1905}})] == ["bread_0"]
    similarity = corpus.similarity("a film by Hitchcock", ["bread_0", "none", "rope_0"])
    assert np.isnan(similarity[1])
    assert similarity[2] > similarity[0]
    assert corpus.rerank("film", corpus.get(["rope_0"])).shape == (1,)
    with pytest.raises(PatternError):
        corpus.grep("(")


def test_excluded_chunks_are_made_up_for_by_larger_requests() -> None:
    requests: list[int] = []

    def engine(query: str, limit: int) -> list[Row]:
        requests.append(limit)
        return [{"id": str(n), "text": f"passage number {n}"} for n in range(min(limit, 60))]

    corpus = EngineCorpus(engine, max_passages=50)
    assert ids(corpus, k=5) == [f"{n}_0" for n in range(5)]
    assert ids(corpus, k=5, exclude={f"{n}_0" for n in range(15)}) == [f"{n}_0" for n in range(15, 20)]
    assert ids(corpus, k=5, exclude={f"{n}_0" for n in range(48)}) == ["48_0", "49_0"]
    assert requests == [5, 10, 20, 10, 20, 40, 50]
    assert ids(corpus, "  ") == []


def test_an_engine_that_returns_fewer_than_requested_is_not_asked_again() -> None:
    requests: list[str] = []

    def engine(query: str) -> list[Row]:
        requests.append(query)
        return rows()

    assert len(ids(EngineCorpus(engine), k=10, exclude={"rope_0"})) == 3
    assert requests == ["anything"]


@pytest.mark.parametrize("name", ["k", "top_k", "n_results"])
def test_the_number_of_passages_goes_to_the_argument_that_takes_it(name: str) -> None:
    received: list[Any] = []
    scope: dict[str, Any] = {"received": received}
    exec(f"def engine(query, client=None, *, {name}=3):\n    received.append({name})\n    return []", scope)
    EngineCorpus(scope["engine"]).search("film", k=7)
    assert received == [7]


def test_filters_go_to_an_engine_that_takes_them_and_are_tested_here_otherwise() -> None:
    filters: list[Where | None] = []

    def filtering(query: str, limit: int, where: Where | None = None) -> list[Row]:
        filters.append(where)
        return rows()[:1]

    recent: Where = {"year": {"$gt": 1940}}
    assert ids(EngineCorpus(filtering), where=recent) == ["rope_0"]
    assert filters == [recent]
    assert ids(EngineCorpus(lambda query: rows()), where=recent) == ["rope_0", "hitchcock_0"]
    assert ids(EngineCorpus(lambda query: ["a text without metadata"]), where=recent) == []
    with pytest.raises(ConfigError, match="unknown operator"):
        ids(EngineCorpus(filtering), where={"year": {"$near": 1}})


def test_documents_are_read_by_id_if_the_engine_can() -> None:
    pages = {"rope": ["Rope was filmed in long takes.", "It has a running time of 80 minutes."]}
    corpus = EngineCorpus(lambda query: rows(), read=lambda document_id: pages.get(document_id, []))
    corpus.search("film")
    assert [chunk.text for chunk in corpus.read("rope")][:2] == pages["rope"]
    assert [chunk.index for chunk in corpus.read("rope")] == [0, 1, 2]
    assert corpus.read("none") == []


@pytest.mark.parametrize("known", ["rope", "scene-2", None], ids=["the document", "another one", "no document"])
def test_a_document_is_read_in_its_order_whatever_the_search_returned_before(known: str | None) -> None:
    pages = ["Rope begins with a murder.", "A party follows.", "A former teacher finds the truth."]
    corpus = EngineCorpus(
        lambda query: [{"document_id": known, "text": text} for text in (pages[1], pages[2])],
        read=lambda document_id: [{"text": text} for text in pages],
    )
    found = {hit.chunk.text: hit.chunk.id for hit in corpus.search("party")}
    chunks = corpus.read("rope")
    assert [chunk.text for chunk in chunks] == pages
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    assert {chunk.text: chunk.id for chunk in chunks}.items() >= found.items()


async def test_a_coroutine_function_runs_in_the_callers_loop() -> None:
    loop = asyncio.get_running_loop()

    async def engine(query: str, limit: int) -> list[Row]:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        return rows()

    corpus = EngineCorpus(engine)
    with SearchAgent(corpus, ScriptedPolicy([search("film"), rank_all])) as agent:
        result = await agent.asearch("Which film?")
    assert {document.id for document in result.documents} == set(TEXTS)


async def test_a_coroutine_function_works_while_its_loop_waits_for_the_search() -> None:
    """As in a notebook, whose loop runs the cell that searches."""

    async def engine(query: str) -> list[Row]:
        await asyncio.sleep(0)
        return rows()

    corpus = EngineCorpus(engine, timeout=10)
    assert len(corpus.search("film")) == 4
    with SearchAgent(corpus, ScriptedPolicy([search("film"), rank_all])) as agent:
        result = agent.search("Which film?")
    assert {document.id for document in result.documents} == set(TEXTS)


def test_a_coroutine_function_works_without_a_loop() -> None:
    async def engine(query: str) -> list[Row]:
        await asyncio.sleep(0)
        return rows()

    assert len(EngineCorpus(engine).search("film")) == 4


def test_the_default_policy_finds_both_documents_of_two_steps() -> None:
    source = MemoryCorpus(Document(row["id"], row["text"], row["title"]) for row in rows())

    def engine(query: str, limit: int) -> list[Row]:
        hits = source.search(query, k=min(limit, 2))
        return [{"id": hit.chunk.document_id, "title": hit.chunk.title, "text": hit.chunk.text} for hit in hits]

    with SearchAgent(EngineCorpus(engine), effort="fast") as agent:
        result = agent.search("Which award did the director of Rope receive?")
    assert {document.id for document in result.documents[:2]} == {"rope", "hitchcock"}
    assert result.confidence is not None
    assert result.trajectories[0].header.corpus == "engine:engine"


def test_words_are_as_common_as_in_general() -> None:
    the, film, hitchcock, nothing = estimated_frequency(["the", "film", "hitchcock", "…"], 10_000).tolist()
    assert 10_000 >= the > 5 * film
    assert film > 5 * hitchcock > 0
    assert nothing == 0
    assert EngineCorpus(lambda query: [], size=500).count() == 500


# Engines that misbehave ---------------------------------------------------------------------------------------------


def test_a_timeout_is_an_error_that_names_the_option() -> None:
    release = threading.Event()
    corpus = EngineCorpus(lambda query: release.wait(10), timeout=0.05)
    start = time.perf_counter()
    with pytest.raises(CorpusError, match=r"did not answer within 0.05 s.*timeout="):
        corpus.search("film")
    assert time.perf_counter() - start < 9
    release.set()


def test_a_timeout_in_the_middle_ends_the_search_with_what_was_found() -> None:
    release = threading.Event()

    def engine(query: str) -> list[Row]:
        if query == "second":
            release.wait(10)
        return rows()

    with SearchAgent(EngineCorpus(engine, timeout=0.2), ScriptedPolicy([search("first"), search("second")])) as agent:
        result = agent.search("Which film?")
    release.set()
    assert result.documents
    assert result.stop_reason == "corpus_error"
    assert "did not answer" in str(result.error)


ERRORS = [ConnectionError("refused"), TimeoutError("read timed out"), KeyError("hits")]


@pytest.mark.parametrize("error", [*ERRORS, ExceptionGroup("tasks", [ExceptionGroup("more", ERRORS[:1])])])
def test_an_error_of_the_engine_says_what_it_was(error: Exception) -> None:
    def engine(query: str) -> list[Row]:
        raise error

    cause = type(error).__name__ if error in ERRORS else "ConnectionError: refused"
    with pytest.raises(CorpusError, match=rf"the search engine failed \({cause}"):
        EngineCorpus(engine).search("film")


async def test_a_coroutine_that_never_ends_is_an_error() -> None:
    async def engine(query: str) -> list[Row]:
        await asyncio.sleep(10)
        return []

    corpus = EngineCorpus(engine, timeout=0.1)
    with pytest.raises(CorpusError, match="the engine"):
        await asyncio.to_thread(corpus.search, "film")


def test_duplicates_count_once() -> None:
    corpus = EngineCorpus(lambda query: [*rows(), *rows(), {**rows()[0], "id": "another-id"}])
    assert ids(corpus) == [f"{key}_0" for key in TEXTS]


def test_a_passage_keeps_its_id_when_the_engine_changes_it() -> None:
    numbers = itertools.count()
    corpus = EngineCorpus(lambda query: [{**row, "id": next(numbers)} for row in rows()])
    first = ids(corpus)
    assert ids(corpus, "again") == first
    assert ids(corpus, "again", exclude=set(first)) == []


def test_passages_that_share_an_id_are_chunks_of_one_document() -> None:
    corpus = EngineCorpus(lambda query: [{"id": "guide", "text": f"Section {n} of the guide."} for n in range(3)])
    assert ids(corpus) == ["guide_0", "guide_1", "guide_2"]
    assert len(corpus.read("guide")) == 3


def test_passages_without_ids_get_ids_from_their_texts() -> None:
    corpus = EngineCorpus(lambda query: ["a first text", ("a second text", 0.5)])
    assert ids(corpus) == ids(EngineCorpus(lambda query: ["a first text", "a second text"]))
    assert corpus.search("x")[0].chunk.document_id.startswith("text-")


def test_a_passage_of_ten_megabytes_is_cut_into_chunks_and_bounded() -> None:
    needle = "Rope was directed by Alfred Hitchcock."
    text = "Flour, water and salt. " * 200 + needle + " Bread is baked in an oven." * 400_000
    corpus = EngineCorpus(lambda query: [{"id": "long", "text": text}, {"id": "short", "text": "A short passage."}])
    hits = corpus.search("Who directed Rope?", k=3)
    assert [hit.chunk.document_id for hit in hits] == ["long", "short", "long"]
    assert needle in hits[0].chunk.text
    assert hits[0].chunk.tokens <= 512
    assert hits[0].chunk.metadata[FULL_LENGTH_KEY] == len(text)
    assert sum(len(chunk.text) for chunk in corpus.read("long")) <= LONGEST_PASSAGE


def test_memory_is_bounded() -> None:
    passages = SeenPassages(most_characters=10 * (CHUNK_CHARACTERS + 150))
    for number in range(50):
        (chunk,) = passages.add(Document(str(number), f"passage {number:03} " + "x" * 88))
        passages.vectors([chunk], lambda texts: np.ones((len(texts), 4), dtype=np.float32))
    assert len(passages) == 10
    assert passages.document("0") == []
    assert [chunk.document_id for chunk in passages.walk()] == [str(number) for number in range(40, 50)]
    (repeated,) = passages.add(Document("other", "passage 045 " + "x" * 88))
    assert repeated.id == "45_0"


@pytest.mark.parametrize("field", ["title", "id", "metadata", "nothing"])
def test_whatever_a_passage_consists_of_its_memory_is_bounded(field: str) -> None:
    passages = SeenPassages(most_characters=10 * CHUNK_CHARACTERS)
    for number in range(50):
        long = f"{number}" + "x" * (10 * CHUNK_CHARACTERS)
        metadata = {long[:40]: long} if field == "metadata" else {}
        title, name = long if field == "title" else "", long if field == "id" else str(number)
        passages.add(Document(name, str(number), title, metadata))
    assert len(passages) == (9 if field == "nothing" else 1)


def test_of_a_title_the_beginning_is_read_and_an_id_of_great_length_is_none() -> None:
    (passage,) = passages_of([{"title": "t" * 10_000, "id": "i" * 100_000, "text": "a"}], FieldNames())
    assert (len(passage.title), passage.id) == (LONGEST_TITLE, "")


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (lambda query: None, "must return a list of texts.*got NoneType"),
        (lambda query: "one long text", "got str"),
        (lambda query: 7, "got int"),
        (lambda query: {"took": 3}, "got dict"),
        (lambda query: [1, 2], "a hit of the engine must be .* got int"),
        (lambda query: [{"id": 1, "inhalt": "Text"}], r"no field for its text\. Its fields are id, inhalt.*text_key="),
        (lambda query: [{"id": 1, "text": b"bytes"}], "bytes in 'text', not text"),
    ],
)
def test_wrong_types_are_errors_that_say_what_was_returned(engine: Callable[[str], Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        EngineCorpus(engine).search("film")


def test_an_endless_response_is_read_to_a_bound() -> None:
    corpus = EngineCorpus(lambda query: (f"text number {n}" for n in itertools.count()))
    assert len(ids(corpus, k=20)) == 20


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        (42, {}, "int is not a supported search engine"),
        (object().__repr__, {}, "takes no query"),
        (lambda query: [], {"timeout": 0}, "must be positive"),
        (lambda query: [], {"max_passages": 0}, "must be positive"),
        ("ftp://host/search", {}, "http"),
    ],
)
def test_what_is_no_engine_is_refused(engine: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineCorpus(engine, **options)


def test_many_threads_share_a_corpus() -> None:
    corpus = EngineCorpus(lambda query: [{"id": query, "text": f"a text about {query}"}, *rows()])
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 20):
                assert len(corpus.search(f"subject {number}")) == 5
                corpus.similarity("film", [chunk.id for chunk in corpus.walk()])
        except BaseException as error:  # noqa: BLE001 (reported below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(list(corpus.walk())) == 84
