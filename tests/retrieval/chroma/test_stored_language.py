"""The language of an index is identified once, stored, and used for every later query."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.chroma.client import connect
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.indexing_report import IndexReport
from context_agent.retrieval.chroma.location import Location
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.index.manifest import MANIFEST_KEY, parse_manifest
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Document

GERMAN = [
    Document(f"d{number}", f"Im Jahr {number} wurden die Häuser an der Straße geöffnet, weil es nicht anders ging.")
    for number in range(12)
]
JAPANESE = [Document(f"j{number}", f"第{number}号の浄水場は蛍川から原水を取っている。") for number in range(12)]


def index(path: Path, documents: list[Document], language: str | None = None) -> IndexReport:
    return index_documents(documents, path, embedder=HashEmbedder(), counter=CharCounter(), language=language)


def first_hit(path: Path, query: str) -> tuple[str, str]:
    """The language of the index, and the first document that BM25 finds."""
    with ChromaCorpus.open(path, embedder=HashEmbedder()) as corpus:
        hits = corpus.retrievers[1].search(query, 1)
        return corpus.snapshot.bm25.language, hits[0][0] if hits else ""


def remove_language(path: Path) -> None:
    """Remove the stored language, as in an index of an earlier version."""
    with closing(cast("Any", connect(Location.of(path, None, None)))) as client:
        for collection in client.list_collections():
            entry = json.loads(collection.metadata[MANIFEST_KEY])
            assert entry.pop("language")
            collection.modify(metadata={**collection.metadata, MANIFEST_KEY: json.dumps(entry)})


def test_the_language_is_identified_stored_and_used_by_later_queries_and_runs(tmp_path: Path) -> None:
    assert index(tmp_path, GERMAN).language == "de"
    assert first_hit(tmp_path, "Haus")[0] == "de"
    assert first_hit(tmp_path, "Haus")[1]
    report = index(tmp_path, [*GERMAN, *people(40)])
    assert (report.language, report.added) == ("de", 40)
    assert index(tmp_path, [*GERMAN, *people(40)]).language == "de"


def test_passages_are_analyzed_in_their_own_languages_also_those_added_later(tmp_path: Path) -> None:
    assert index(tmp_path, GERMAN).languages == {"de": 12}
    report = index(tmp_path, [*GERMAN, *JAPANESE])
    assert (report.language, report.languages) == ("de", {"de": 12, "ja": 12})
    assert first_hit(tmp_path, "第7号の水は")[1] == "j7_0"
    assert first_hit(tmp_path, "Haus")[1].startswith("d")
    assert index(tmp_path, [*GERMAN, *JAPANESE], "ja").languages == {"ja": 24}
    assert index(tmp_path, [*GERMAN, *JAPANESE, *people(1)]).languages == {"ja": 25}


def test_a_language_that_is_named_holds_for_an_index_that_is_identified_as_it(tmp_path: Path) -> None:
    index(tmp_path, GERMAN)
    assert index(tmp_path, GERMAN, "de").revision == 2
    assert index(tmp_path, [*GERMAN, *JAPANESE]).languages == {"de": 24}


def test_text_without_spaces_is_found_by_a_part_of_it(tmp_path: Path) -> None:
    assert index(tmp_path, JAPANESE).language == "ja"
    assert first_hit(tmp_path, "第7号の水は") == ("ja", "j7_0")


def test_a_named_language_takes_the_place_of_the_stored_one_without_embedding_again(tmp_path: Path) -> None:
    index(tmp_path, GERMAN)
    report = index(tmp_path, GERMAN, "none")
    assert (report.language, report.stored, report.unchanged, report.revision) == ("none", 0, 12, 2)
    assert first_hit(tmp_path, "Haus") == ("none", "")
    assert index(tmp_path, GERMAN).language == "none"
    assert index(tmp_path, GERMAN, "de").language == first_hit(tmp_path, "Haus")[0] == "de"


def test_an_index_of_an_earlier_version_without_a_language_names_the_command_that_makes_it_anew(
    tmp_path: Path,
) -> None:
    index(tmp_path, people(80))
    remove_language(tmp_path)
    with pytest.raises(CorpusCorruptError, match=r"ctx1\s+index"):
        first_hit(tmp_path, "the ledgers of person 7")
    with pytest.raises(CorpusCorruptError, match=r"ctx1\s+index"):
        index(tmp_path, people(81))


def test_an_unknown_language_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--language"):
        index(tmp_path / "index", GERMAN, "klingon")
    assert not (tmp_path / "index").exists()


def test_a_manifest_with_an_unknown_language_is_damaged() -> None:
    fields = {"embedder": "e", "dimension": 1, "chunking": {"size": 1, "overlap": 0, "counter": "c"}, "schema": 1}
    manifest = parse_manifest("c", json.dumps({**fields, "language": "ja"}))
    assert manifest is not None
    assert manifest.language == "ja"
    with pytest.raises(CorpusCorruptError, match="language"):
        parse_manifest("c", json.dumps({**fields, "language": "xx"}))


def test_an_english_embedder_gets_a_warning_for_japanese_and_none_for_english(tmp_path: Path) -> None:
    for documents, words in ((JAPANESE, "paraphrase-multilingual"), (people(12), "")):
        report = index_documents(
            documents, tmp_path / (words or "english"), embedder=load_embedder("static"), counter=CharCounter()
        )
        assert words in report.warning
        assert bool(report.warning) == bool(words)
