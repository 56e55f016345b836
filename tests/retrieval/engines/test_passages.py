"""The shapes in which engines return passages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from context_agent.errors import CorpusError
from context_agent.retrieval.engines.passages import MOST_HITS, FieldNames, passages_of
from context_agent.types import Chunk, Document, Hit

DEFAULT_NAMES = FieldNames()
ROPE = Document("7", "A film of 1948.", "Rope", {"year": 1948})
SOURCE = {"title": "Rope", "text": "A film of 1948.", "year": 1948}


@dataclass
class Row:
    id: int
    title: str
    text: str
    year: int


class Model(BaseModel):
    id: int = 7
    content: str = "A film of 1948."
    metadata: dict[str, Any] = {"title": "Rope", "year": 1948}


@pytest.mark.parametrize(
    "response",
    [
        [{"id": 7, **SOURCE}],
        ({"id": 7, **SOURCE} for _ in range(1)),
        [({"id": 7, **SOURCE}, 0.3)],
        [[{"id": 7, "distance": 0.25, "entity": SOURCE}]],
        {"results": [{"_id": "7", "content": "A film of 1948.", "name": "Rope", "year": 1948}]},
        {"took": 2, "hits": {"total": {"value": 1}, "hits": [{"_index": "wiki", "_id": "7", "_source": SOURCE}]}},
        {"responseHeader": {"status": 0}, "response": {"numFound": 1, "docs": [{"id": "7", **SOURCE}]}},
        {"ids": [["7"]], "documents": [["A film of 1948."]], "metadatas": [[{"title": "Rope", "year": 1948}]]},
        {"ids": ["7"], "documents": ["A film of 1948."], "metadatas": [{"title": "Rope", "year": 1948}]},
        SimpleNamespace(points=[{"id": 7, "payload": SOURCE}]),
        SimpleNamespace(objects=[SimpleNamespace(uuid="7", properties=SOURCE)]),
        {"root": {"id": "toplevel", "children": [{"id": "7", "relevance": 0.5, "fields": SOURCE}]}},
        [SimpleNamespace(id=7, **SOURCE)],
        [Row(7, "Rope", "A film of 1948.", 1948)],
        [Model()],
    ],
)
def test_the_text_the_title_and_the_id_are_found(response: Any) -> None:
    (passage,) = passages_of(response, DEFAULT_NAMES)
    assert (passage.text, passage.title, passage.id, passage.metadata["year"]) == (
        ROPE.text,
        ROPE.title,
        ROPE.id,
        1948,
    )


def test_an_empty_response_has_no_passages() -> None:
    for response in ([], (), {"hits": {"hits": []}}, {"ids": [[]], "documents": [[]]}, {"results": []}):
        assert passages_of(response, DEFAULT_NAMES) == []


def test_this_packages_own_values_are_hits() -> None:
    chunk = Chunk("d_3", "d", 3, "a text", 0, 6, 2, "a title", {"year": 1948})
    for value in (chunk, Hit(chunk, 1.0, 1)):
        (passage,) = passages_of([value], DEFAULT_NAMES)
        assert (passage.text, passage.title, passage.id) == ("a text", "a title", "d")
        assert passage.metadata["year"] == 1948
    assert passages_of([Document("d", "a text")], DEFAULT_NAMES)[0].id == "d"


def test_fields_can_be_named() -> None:
    names = FieldNames(text="inhalt", title="ueberschrift", id="nummer", document="seite")
    row = {"inhalt": "Ein Text", "text": "other", "ueberschrift": "Titel", "nummer": 3, "seite": "s1"}
    (passage,) = passages_of([row], names)
    assert passage == Document("s1", "Ein Text", "Titel", {"text": "other"})
    with pytest.raises(CorpusError, match=r"no field for its text\. Its fields are id, text"):
        passages_of([{"id": 1, "text": "a"}], names)


def test_passages_without_text_are_left_out() -> None:
    rows = [{"id": 1, "text": ""}, {"id": 2, "text": None}, {"id": 3, "text": "  "}, {"id": 4, "text": "a text"}]
    assert [passage.id for passage in passages_of(rows, DEFAULT_NAMES)] == ["4"]


@pytest.mark.parametrize(
    ("value", "identifier"), [("None", "chunk"), (None, "chunk"), (True, "chunk"), (1.5, "chunk"), (0, "0")]
)
def test_ids_that_identify_nothing_are_dropped(value: object, identifier: str) -> None:
    (passage,) = passages_of([{"id": "chunk", "document_id": value, "text": "a text"}], DEFAULT_NAMES)
    assert passage.id == identifier


def test_metadata_are_scalars_and_bounded() -> None:
    row = {"text": "a", "list": [1, 2], "vector": [0.1], "long": "x" * 10_000, "ok": True, "n": 1.5}
    assert passages_of([row], DEFAULT_NAMES)[0].metadata == {"ok": True, "n": 1.5}
    wide_row = {"text": "a", **{f"key{number}": number for number in range(1_000)}}
    assert len(passages_of([wide_row], DEFAULT_NAMES)[0].metadata) == 256


def test_lone_surrogates_are_replaced() -> None:
    (passage,) = passages_of([{"id": "\ud800", "text": "a \ud800 text", "title": "\udfff"}], DEFAULT_NAMES)
    for text in (passage.id, passage.text, passage.title):
        text.encode()


def test_of_columns_the_first_rows_are_read() -> None:
    response = {"ids": [[str(number) for number in range(3_000)]], "documents": [["a text"] * 3_000]}
    assert len(passages_of(response, DEFAULT_NAMES)) == MOST_HITS


@pytest.mark.parametrize("value", [5, True, float("nan"), "text", {"body": "text"}, [5], [[5]], [None], [[{}]]])
@pytest.mark.parametrize("name", ["documents", "metadatas"])
def test_columns_of_another_type_are_no_passages_or_refused(name: str, value: Any) -> None:
    response = {"ids": [["a"]], "documents": [["a text"]], "metadatas": [[{}]], name: value}
    with suppress(CorpusError):
        assert len(passages_of(response, DEFAULT_NAMES)) <= 1


def test_an_error_lists_a_part_of_many_fields() -> None:
    with pytest.raises(CorpusError, match=r"key0, key1, .* and 980 more") as refused:
        passages_of([{f"key{number}": 1 for number in range(1_000)}], DEFAULT_NAMES)
    with pytest.raises(CorpusError, match="xxx…"):
        passages_of([{"x" * 1_000_000: 1}], DEFAULT_NAMES)
    assert len(str(refused.value)) < 500


def test_a_response_that_is_nested_too_deeply_is_refused() -> None:
    def nested(value: Any, wrap: Callable[[Any], Any]) -> Any:
        for _ in range(3_000):
            value = wrap(value)
        return value

    itself: dict[str, Any] = {"text": "a text"}
    itself["payload"] = itself
    for response in (
        nested([], lambda value: [value]),
        nested([], lambda value: {"hits": value}),
        [nested("a text", lambda value: (value, 1.0))],
        [nested({"text": "a text"}, lambda value: {"payload": value})],
        [itself],
    ):
        with pytest.raises(CorpusError, match="nested too deeply"):
            passages_of(response, DEFAULT_NAMES)
