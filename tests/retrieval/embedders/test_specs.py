"""The names by which a command line asks for an embedder."""

from __future__ import annotations

import pytest

from context_agent.errors import ConfigError
from context_agent.retrieval.embedders import load_embedder


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small@api.openai.com"),
        ("openai:bge-m3@http://localhost:8000/v1", "openai:bge-m3@localhost"),
        ("openai:BAAI/bge@rev1@https://host/v1", "openai:BAAI/bge@rev1@host"),
    ],
)
def test_an_endpoint_is_named_by_model_and_address(spec: str, name: str) -> None:
    assert load_embedder(spec).name == name


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'statik'\. Did you mean 'static'"):
        load_embedder("statik")


def test_an_unknown_name_gets_the_list() -> None:
    names = "chroma-default, minilm, multilingual, none, openai, sentence-transformers, static"
    with pytest.raises(ConfigError, match=f"Choose from {names}"):
        load_embedder("word2vec")


@pytest.mark.parametrize(
    "spec", ["", "openai:", "openai:@http://host/v1", "sentence-transformers:", "chroma-default:x", "multilingual:x"]
)
def test_a_spec_that_lacks_something_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        load_embedder(spec)


@pytest.mark.parametrize("address", ["localhost:8000/v1", "ftp://host/v1", "HTTP://host/v1", "host"])
def test_an_address_without_http_is_not_taken_for_a_part_of_the_model(address: str) -> None:
    with pytest.raises(ConfigError, match="http://"):
        load_embedder(f"openai:bge-m3@{address}")
