"""The large values inside a YAML file are chunks that are titled by their keys."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.yaml_outline import yaml_sections
from context_agent.tokens import CharCounter

LONG = "The gate of the weir opens at dawn and closes at dusk. " * 20
API = f"""\
info: {{version: 2}}
paths:
  "/gates/{{id}}":   # one gate
    get:
      summary: |
        note: {LONG}

    put:
      summary: {LONG}
tags:
- name: {LONG}
# the end
limits:
  gates: 4
---
paths:
  text: {LONG}
"""


def test_a_large_value_is_a_chunk_that_is_titled_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text(API)
    (document,) = load(tmp_path)
    chunks = chunk_document(document, size=330, counter=CharCounter())
    titles = [(chunk.title, chunk.text.partition("\n")[0]) for chunk in chunks if "closes at dusk" in chunk.text]
    assert titles == [
        ("api.yaml: paths./gates/{id}.get > summary", "get:"),
        ("api.yaml: paths./gates/{id}.put", "put:"),
        ("api.yaml: tags", "tags:"),
        ("api.yaml: paths", "paths:"),
    ]
    assert [chunk.text for chunk in chunks if "gates: 4" in chunk.text] == ["limits:\n  gates: 4\n---"]


def test_small_values_are_no_sections() -> None:
    assert yaml_sections("a:\n  b: 1\nc:\n- d\n", "a.yaml") == ()


KEYS = st.sampled_from(["a:", "- b:", "c: 1", "- d", "e: " + "z" * 500, "# f:", "---", "", "g: |", "'h:"])


@given(st.lists(st.tuples(st.integers(0, 4), KEYS), max_size=20))
def test_sections_nest(lines: list[tuple[int, str]]) -> None:
    text = "\n".join(" " * indent + key for indent, key in lines)
    sections = yaml_sections(text, "a")
    for section in sections:
        assert 0 <= section.start < section.end <= len(text)
    for first, second in pairwise(sections):
        assert first.start <= second.start
        assert second.end <= first.end or second.start >= first.end
