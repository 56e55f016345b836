"""Filters evaluated in Python let through the same rows as in Chroma."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

from context_agent import Document, EngineCorpus, MemoryCorpus
from context_agent.errors import ConfigError
from context_agent.retrieval.filters import Column, check_where, compile_where, matching_rows, plain_where

VALUES: list[Any] = [
    None, 0, 1, 2, -1, 1.0, 2.0, 1.5, True, False, "1", "x", "", "true", "X",
    [1, 2], ["x", "y"], [1.5], [True], 2**53 + 1, 10**18,
]  # fmt: skip
ROWS: list[dict[str, Any]] = [{"z": 1} if value is None else {"a": value, "z": 1} for value in VALUES]
OPERANDS = (0, 1, 2, -1, 1.0, 2.0, True, False, "1", "x", "", 2**53 + 1)
FILTERS: list[dict[str, Any]] = [
    *({"a": value} for value in OPERANDS),
    *({"a": {name: value}} for name in ("$eq", "$ne", "$contains", "$not_contains") for value in OPERANDS),
    *({"a": {name: value}} for name in ("$gt", "$gte", "$lt", "$lte") for value in (0, 1, 2, -1, 1.0, 2.0)),
    *({"a": {name: value}} for name in ("$in", "$nin") for value in ([1], [1, 2], [1.0], [True], ["x", "1"])),
    {"$and": [{"a": {"$gt": 0}}, {"a": {"$ne": 2}}, {"z": 1}]},
    {"$or": [{"a": "x"}, {"a": 1}, {"$and": [{"z": 1}, {"a": {"$contains": "y"}}]}]},
    {"missing": {"$ne": 1}},
    {"missing": 1},
]
REFUSED: list[Any] = [
    {}, {"a": 1, "z": 1}, {"a": {}}, {"a": {"$eq": 1, "$ne": 2}}, {"a": None}, {"a": [1]}, {"a": {"$eq": [1]}},
    {"a": {"$in": []}}, {"a": {"$in": [1, "x"]}}, {"a": {"$in": [True, 1]}}, {"a": {"$like": "x"}}, {"a": {"$gt": "x"}},
    {"$and": []}, {"$or": [{"a": 1}]}, {"$not": {"a": 1}}, {"a": {"$eq": float("nan")}},
]  # fmt: skip


@pytest.fixture(scope="module")
def chromas(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], list[int]]:
    """The rows that Chroma lets through."""
    folder: Path = tmp_path_factory.mktemp("filters")
    collection = chromadb.PersistentClient(str(folder)).create_collection("rows", embedding_function=None)
    for number, row in enumerate(ROWS):
        collection.add(ids=[str(number)], embeddings=[[1.0, 2.0]], documents=["text"], metadatas=[row])
    return lambda where: sorted(int(record) for record in collection.get(where=where, include=[])["ids"])


def column(key: str) -> Column:
    values = [row[key] for row in ROWS if key in row]
    positions = iter(range(len(values)))
    return np.array([next(positions) if key in row else -1 for row in ROWS], np.int32), values


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_as_chroma(where: dict[str, Any], chromas: Callable[[dict[str, Any]], list[int]]) -> None:
    expected = chromas(where)
    test = compile_where(where)
    assert [number for number, row in enumerate(ROWS) if test(row)] == expected
    assert np.flatnonzero(matching_rows(where, column)).tolist() == expected


@pytest.mark.parametrize("where", REFUSED, ids=str)
def test_malformed_filters_are_refused_as_by_chroma(where: Any, chromas: Callable[[dict[str, Any]], list[int]]) -> None:
    with pytest.raises(ConfigError):
        compile_where(where)
    with pytest.raises(Exception, match=r".") as error:
        chromas(where)
    assert not isinstance(error.value, AssertionError)


def test_a_fraction_is_not_cut_off() -> None:
    """Chroma compares a stored whole number with the operand's whole part, and so finds 1 where it is asked for 1.5."""
    assert compile_where({"a": {"$lt": 1.5}})({"a": 1})
    assert not compile_where({"a": 1.5})({"a": 1})


def test_texts_are_for_grep() -> None:
    with pytest.raises(ConfigError, match="grep"):
        compile_where({"#document": {"$contains": "x"}})


@pytest.mark.parametrize("value", [np.uint64(2**63), np.longdouble(1.5), np.complex64(1), np.datetime64("2025-01-01")])
def test_a_numpy_value_that_no_store_can_hold_is_refused(value: np.generic) -> None:
    for condition in ({"$gt": value}, {"$in": [value]}):
        with pytest.raises(ConfigError, match="metadata filter"):
            plain_where({"a": condition})


def test_numpy_numbers_become_plain_ones() -> None:
    plain = plain_where({"a": {"$in": (np.int8(-3), np.uint64(2**63 - 1))}})
    assert plain == {"a": {"$in": [-3, 2**63 - 1]}}
    assert {type(value) for value in plain["a"]["$in"]} == {int}


@pytest.mark.parametrize("open_corpus", [MemoryCorpus, lambda documents: EngineCorpus(lambda query: _hits(documents))])
@pytest.mark.parametrize("year", [{"$in": (1948, 1954)}, np.int64(1948), {"$gte": np.float32(1948)}], ids=str)
def test_every_corpus_takes_tuples_and_numbers_of_numpy(open_corpus: Callable[..., Any], year: Any) -> None:
    corpus = open_corpus([Document("rope", "A film of 1948.", metadata={"year": 1948}), Document("other", "A film.")])
    assert [hit.chunk.document_id for hit in corpus.search("film", where={"year": year})] == ["rope"]


def _hits(documents: list[Document]) -> list[dict[str, Any]]:
    return [{"id": document.id, "text": document.text, **document.metadata} for document in documents]


@pytest.mark.parametrize("where", [{1948: "x"}, {"a": {None: 1}}, {"$and": [{"a": 1}, {True: 1}]}], ids=str)
def test_a_key_that_is_no_string_is_refused(where: Any) -> None:
    for read in (compile_where, plain_where, check_where):
        with pytest.raises(ConfigError, match="keys of a metadata filter must be strings"):
            read(where)


def test_whole_numbers_and_fractions_in_one_list_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="only whole numbers, only fractions"):
        compile_where({"a": {"$in": [1, 1.5]}})
