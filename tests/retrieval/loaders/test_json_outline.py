"""The large values inside a JSON file are chunks that are titled by their keys."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.json_outline import json_sections
from context_agent.tokens import CharCounter
from context_agent.types import Document

LONG = "The gate of the weir opens at dawn and closes at dusk. " * 20
API = {
    "info": {"title": "Weir API", "version": "2"},
    "paths": {"/gates/{id}": {"get": {"summary": LONG}, "put": {"summary": LONG}}},
    "limits": {"gates": 4},
    "tags": ["a", {"text": LONG}],
}


def only(path: Path, value: Any, indent: int | None = 2) -> Document:
    path.write_text(json.dumps(value, indent=indent), "utf-8")
    (document,) = load(path)
    return document


@pytest.mark.parametrize("indent", [2, None])
def test_a_large_value_is_a_chunk_that_is_titled_by_its_keys(tmp_path: Path, indent: int | None) -> None:
    document = only(tmp_path / "api.json", API, indent)
    chunks = chunk_document(document, size=375, counter=CharCounter())
    titles = {chunk.title: chunk.text for chunk in chunks}
    assert document.title == "Weir API"
    assert [title for title, text in titles.items() if "closes at dusk" in text] == [
        "Weir API: paths./gates/{id}.get",
        "Weir API: paths./gates/{id}.put",
        "Weir API: tags",
    ]
    assert '"gates": 4' in titles["Weir API"]
    assert titles["Weir API: paths./gates/{id}.put"].startswith('"put": {')


def test_a_line_break_in_a_string_is_a_line_break(tmp_path: Path) -> None:
    text = '{"a\\nb": "One\\nTwo \\\\new \\r\\nThree\\t\\"4\\"", "name": "x\\ny", "long": "%s"}' % ("z" * 100)
    (tmp_path / "a.json").write_text(f'{{"all": {text}}}')
    (document,) = load(tmp_path)
    assert document.text.startswith('{"all": {"a\nb": "One\nTwo \\\\new \nThree\t\\"4\\"", "name": "x\ny"')
    assert [caption.text for caption in document.captions] == ["all: x y"]
    (tmp_path / "a.json").write_text(json.dumps([{"log": {"said": "One\nTwo\rThree"}}]))
    assert [document.text for document in load(tmp_path)] == ['log: {\n"said": "One\nTwo\nThree"\n}']


def test_a_short_file_is_one_chunk(tmp_path: Path) -> None:
    document = only(tmp_path / "a.json", API)
    assert len(chunk_document(document, size=9000, counter=CharCounter())) == 1
    assert document.sections


def test_small_values_are_no_sections_and_a_file_without_a_title_has_its_name(tmp_path: Path) -> None:
    document = only(tmp_path / "a.json", {"title": 3, "info": {"title": " "}, "gates": {"a": 1, "b": {}}})
    assert (document.title, document.sections) == ("a.json", ())


def test_a_key_with_escapes_is_written_as_it_reads() -> None:
    text = '{"a\\n\\"b\\" \\ud800": {"x": "%s"}}' % ("y" * 500)
    assert [section.title for section in json_sections(text, "a")][1:] == ['a: a "b" \ufffd']


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("z" * 500),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 0, 2]))
def test_sections_hold_whole_values_and_nest(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    sections = json_sections(text, "a")
    for section in sections[1:]:
        assert json.loads("{" + text[section.start : section.end] + "}")
    for first, second in pairwise(sections):
        assert first.start <= second.start
        assert second.end <= first.end or second.start >= first.end
