"""Filters of frameworks, translated to Chroma's syntax, match what the frameworks' own evaluation matches."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from haystack import Document
from haystack.utils.filters import document_matches_filter
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from context_agent.errors import ConfigError
from context_agent.integrations.framework_filters import all_of, from_haystack, from_llamaindex
from context_agent.retrieval.filters import compile_where

METADATA: list[dict[str, Any]] = [
    {name: value for name, value in (("year", year), ("tag", tag)) if value is not None}
    for year, tag in itertools.product((None, 1, 2, 3), (None, "a", "b"))
]

TAGS = st.one_of(
    st.tuples(st.sampled_from(["==", "!="]), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.sampled_from(["in", "not in"]), st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2)),
)
NEGATABLE = TAGS.map(lambda pair: {"field": "meta.tag", "operator": pair[0], "value": pair[1]})
ORDERED = st.tuples(st.sampled_from([">", ">=", "<", "<=", "==", "!="]), st.integers(1, 3)).map(
    lambda pair: {"field": "meta.year", "operator": pair[0], "value": pair[1]}
)


def combined(leaves: st.SearchStrategy[Any], *operators: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(operators), st.lists(inner, min_size=1, max_size=3)).map(
            lambda pair: {"operator": pair[0], "conditions": pair[1]}
        ),
        max_leaves=5,
    )


@given(st.one_of(combined(NEGATABLE, "AND", "OR", "NOT"), combined(st.one_of(ORDERED, NEGATABLE), "AND", "OR")))
def test_haystack_s_filters_mean_the_same(filters: dict[str, Any]) -> None:
    matches = compile_where(from_haystack(filters) or {})
    for metadata in METADATA:
        assert matches(metadata) == document_matches_filter(filters, Document(content="", meta=metadata)), metadata


LEAVES = st.one_of(
    st.tuples(st.just("year"), st.sampled_from([">", ">=", "<", "<=", "==", "!="]), st.integers(1, 3)),
    st.tuples(st.just("tag"), st.sampled_from(["in", "nin"]), st.lists(st.sampled_from("ab"), min_size=1, max_size=2)),
)


@given(st.lists(LEAVES, min_size=1, max_size=3), st.sampled_from(["and", "or", "not"]))
def test_llamaindex_s_filters_mean_the_same(leaves: list[tuple[str, Any, Any]], condition: Any) -> None:
    if condition == "not":
        leaves = [leaf for leaf in leaves if leaf[1] in ("==", "!=", "in", "nin")] or [("tag", "in", ["a"])]
    filters = MetadataFilters(
        filters=[MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in leaves],
        condition=condition,
    )
    matches = compile_where(from_llamaindex(filters) or {})
    for metadata in METADATA:
        reference = build_metadata_filter_fn(lambda _, row=metadata: row, filters)  # type: ignore[misc]
        assert matches(metadata) == reference("any"), metadata


def test_nested_filters_and_none() -> None:
    tags = [MetadataFilter(key="tag", value=tag) for tag in ("a", "b")]
    either = MetadataFilters(filters=tags, condition="or")  # type: ignore[arg-type]
    both = MetadataFilters(filters=[either, MetadataFilter(key="year", value=1, operator=">")])  # type: ignore[arg-type]
    assert from_llamaindex(both) == {
        "$and": [{"$or": [{"tag": {"$eq": "a"}}, {"tag": {"$eq": "b"}}]}, {"year": {"$gt": 1}}]
    }
    assert from_llamaindex(MetadataFilters(filters=[])) is None
    assert from_llamaindex(None) is None
    assert from_haystack(None) is None
    assert all_of(None, {}, {"a": 1}) == {"a": 1}
    assert all_of({"a": 1}, {"b": 2}) == {"$and": [{"a": 1}, {"b": 2}]}


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"field": "meta.year", "operator": "~", "value": 1}, "no filter '~'"),
        ({"field": "meta.year", "operator": "=="}, "no value"),
        ({"field": "content", "operator": "==", "value": "x"}, "only metadata"),
        ({"operator": "XOR", "conditions": []}, "AND, OR, NOT"),
        ({"operator": "AND", "conditions": []}, "AND, OR, NOT"),
        ({"operator": "AND", "conditions": "abc"}, "AND, OR, NOT"),
        ({"operator": "AND", "conditions": [None]}, "must be a mapping"),
        ({"field": 3, "operator": "==", "value": 1}, "must be text"),
        ({"field": "meta.year", "operator": [], "value": 1}, "must be text"),
        ({"year": 1948}, "field, operator and value"),
        ({"field": "meta.year", "operator": "==", "value": None}, "text or a number"),
        ({"field": "meta.year", "operator": "in", "value": 1}, "a list"),
        (
            {"operator": "NOT", "conditions": [{"field": "meta.year", "operator": ">", "value": 1}]},
            "opposite comparison",
        ),
    ],
)
def test_what_chroma_cannot_say_is_refused(filters: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        from_haystack(filters)


def test_llamaindex_s_text_search_is_refused() -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="tag", value="a", operator="text_match")])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="text_match"):
        from_llamaindex(filters)
