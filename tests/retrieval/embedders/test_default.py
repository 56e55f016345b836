"""A new index of small English texts gets MiniLM's vectors; every other new index gets the static vectors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent.cli.index_options import DEFAULT_EMBEDDER
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.embedders import default, load_embedder
from context_agent.retrieval.embedders.default import LEAST_COUNTED, SMALL_CORPUS_CHARACTERS, default_embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.testing.documents import people
from context_agent.types import Document

ENGLISH = "The keeper of the light wrote that the lamp was lit with oil, and that she had been there for years. "
GERMAN = "Der Wärter schrieb, dass die Lampe nicht mit Öl brennt und dass sie für viele Jahre auf der Insel wird. "
CODE = "def area(self, width, height):\n    return self.scale * width * height\nprint(max(values, key=len))\n"
LOG = "2026-01-02 03:04:05 ERROR worker 7 request timed out after 30 s, retry 2 of 5\n"
JAPANESE = "灯台守は毎晩ランプに火を入れた。島には三十年住んでいた。"

pytestmark = pytest.mark.usefixtures("real_default_embedder")


def small(text: str = ENGLISH, number: int = 3) -> list[Document]:
    return [Document(f"d{row}", f"{text * 3}{row}") for row in range(number)]


def spec(name: str) -> str:
    return name.partition("-")[0]


def chosen(path: Path) -> str:
    with ChromaCorpus.open(path) as corpus:
        return spec(corpus.embedder.name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(ENGLISH, "minilm"), (CODE, "minilm"), (LOG, "minilm"), (GERMAN, "static"), (JAPANESE, "static")],
)
def test_small_english_texts_code_and_logs_get_minilm_and_other_languages_do_not(text: str, expected: str) -> None:
    assert spec(default_embedder([text * 10] * 8).name) == expected


def test_texts_above_the_bound_get_static_vectors() -> None:
    filler = "x" * (SMALL_CORPUS_CHARACTERS - len(ENGLISH))
    assert spec(default_embedder([ENGLISH, filler]).name) == "minilm"
    assert spec(default_embedder([ENGLISH, filler + "x"]).name) == "static"


def test_many_tiny_texts_count_as_large() -> None:
    most = SMALL_CORPUS_CHARACTERS // LEAST_COUNTED
    assert spec(default_embedder(["a"] * most).name) == "minilm"
    assert spec(default_embedder(["a"] * (most + 1)).name) == "static"


def test_an_endless_stream_of_texts_is_read_only_to_the_bound() -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "x" * 1_000

    assert spec(default_embedder(texts()).name) == "static"
    assert read == SMALL_CORPUS_CHARACTERS // 1_000 + 1


def test_a_corpus_in_memory_chooses_by_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spec(MemoryCorpus(small()).embedder.name) == "minilm"
    assert spec(MemoryCorpus(small(GERMAN)).embedder.name) == "static"
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", 500)
    assert spec(MemoryCorpus(small()).embedder.name) == "static"


def test_a_named_embedder_and_given_vectors_are_kept() -> None:
    assert spec(MemoryCorpus(small(), embedder="static").embedder.name) == "static"
    vectors = load_embedder("static").embed_documents([document.text for document in small()])
    assert spec(MemoryCorpus(small(), vectors=vectors).embedder.name) == "static"


def test_a_new_index_says_which_embedder_it_got(tmp_path: Path) -> None:
    for text, expected in ((ENGLISH, "minilm"), (GERMAN, "static")):
        report = index_documents(small(text), tmp_path / expected)
        assert spec(report.embedder) == chosen(tmp_path / expected) == expected
    assert spec(index_documents(small(), tmp_path / "named", embedder="static").embedder) == "static"


def test_all_documents_of_a_stream_are_indexed_whether_it_crosses_the_bound_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound, expected in ((10_000, "minilm"), (700, "static")):
        monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", bound)
        report = index_documents(iter(small(number=9)), tmp_path / expected)
        assert (report.added, spec(report.embedder)) == (9, expected)


def test_an_index_keeps_its_embedder_when_it_grows_past_the_bound_or_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_documents(small(), tmp_path / "grows")
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", 500)
    index_documents(small(number=12), tmp_path / "grows")
    assert chosen(tmp_path / "grows") == "minilm"
    index_documents(small(number=12), tmp_path / "shrinks")
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", SMALL_CORPUS_CHARACTERS)
    index_documents(small(), tmp_path / "shrinks", remove_missing=True)
    assert chosen(tmp_path / "shrinks") == "static"


def test_a_run_that_crosses_the_bound_says_once_what_minilm_costs_and_how_to_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index_documents(small(number=4), tmp_path).warning == ""
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", 1_500)
    assert index_documents(small(number=4), tmp_path).warning == ""
    crossing = index_documents(small(number=6), tmp_path).warning
    assert "20 ms" in crossing
    assert "ctx1 index SOURCE --path NEW_FOLDER --embedder static" in crossing
    assert index_documents(small(number=8), tmp_path).warning == ""


def test_an_embedder_that_the_caller_names_at_the_crossing_is_not_questioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", 1_500)
    for number in (3, 7):
        assert index_documents(small(number=number), tmp_path, embedder="minilm").warning == ""


def test_a_search_finds_what_is_said_in_other_words() -> None:
    corpus = MemoryCorpus([*people(30), Document("boat", "The vessel sank in a storm.", "Notes")], calibration=False)
    assert corpus.retrievers[0].search("Which ship went down?", 1)[0][0] == "boat_0"


def test_the_help_of_commands_names_the_bound() -> None:
    assert f"{SMALL_CORPUS_CHARACTERS:,} characters" in DEFAULT_EMBEDDER
