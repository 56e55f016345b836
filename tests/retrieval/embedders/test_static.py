"""The embedder that ships: what it promises of any text, and that its files are what they say."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from context_agent._support.token_table import SHIPPED, TOKENIZER_FILE, WEIGHTS_FILE, load_weights
from context_agent.errors import EmbedderError
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.embedders.static import StaticEmbedder

PARAGRAPH = "Stewart Brand is an American writer, best known as editor of the Whole Earth Catalog. " * 6


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    return StaticEmbedder()


def test_it_is_an_embedder_with_a_stable_name(static: StaticEmbedder) -> None:
    assert isinstance(static, Embedder)
    assert re.fullmatch(rf"static-minilm-{static.dimension}@[0-9a-f]{{8}}", static.name)
    assert load_embedder("static").name == static.name


def test_vectors_are_unit_float32_rows(static: StaticEmbedder) -> None:
    vectors = static.embed_documents(["a river in Brazil", PARAGRAPH])
    assert vectors.shape == (2, static.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_a_query_is_embedded_like_a_document_whatever_stands_beside_it(static: StaticEmbedder) -> None:
    texts = [f"paragraph {i} about {PARAGRAPH}" for i in range(600)]
    together = static.embed_documents(texts)
    for i in (0, 255, 256, 599):
        np.testing.assert_allclose(static.embed_query(texts[i]), together[i], atol=1e-6)


def test_no_texts_give_no_rows(static: StaticEmbedder) -> None:
    assert static.embed_documents([]).shape == (0, static.dimension)


@pytest.mark.parametrize("text", ["", "   \n\t", "...", "\x00", "\u200b"])
def test_a_text_without_content_is_the_zero_vector(static: StaticEmbedder, text: str) -> None:
    assert not static.embed_query(text).any()


@pytest.mark.parametrize(
    "text", ["Ελλάδα και Рим", "東京の歴史", "🙂🙃", "a\ud800b", "\udfff", "x" * 5_000, "é" * 300, "[MASK] [UNK]"]
)
def test_any_text_gives_a_finite_vector(static: StaticEmbedder, text: str) -> None:
    vector = static.embed_query(text)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) < 1.001


def test_a_lone_surrogate_costs_only_itself(static: StaticEmbedder) -> None:
    assert static.embed_query("river \ud800 in Brazil") @ static.embed_query("river in Brazil") > 0.99


def test_a_text_in_pieces_is_the_text_as_a_whole(static: StaticEmbedder) -> None:
    # Each repetition has the same tokens, so the direction may not change with the length.
    long = PARAGRAPH * 400
    assert len(long) > 3 * 65_536
    assert static.embed_query(long) @ static.embed_query(PARAGRAPH) > 0.9999


@pytest.mark.slow
@pytest.mark.parametrize("text", [PARAGRAPH * 20_000, "x" * 10_000_000], ids=["words", "one word"])
def test_ten_megabytes_are_embedded(static: StaticEmbedder, text: str) -> None:
    assert np.isfinite(static.embed_query(text)).all()


def test_meaning_counts(static: StaticEmbedder) -> None:
    query = static.embed_query("Who directed the film Casablanca?")
    near, far = static.embed_documents(
        ["Casablanca is a 1942 movie directed by Michael Curtiz.", "The Novo River is a river of São Paulo state."]
    )
    assert query @ near > 0.3 > query @ far


def test_words_of_grammar_count_little(static: StaticEmbedder) -> None:
    assert static.embed_query("What is the name of the Novo River?") @ static.embed_query("Novo River name") > 0.8


def test_threads_share_one_loading() -> None:
    loaded_weights: list[object] = []
    threads = [threading.Thread(target=lambda: loaded_weights.append(load_weights())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(weights) for weights in loaded_weights}) == 1


def test_importing_loads_no_weights_and_no_torch() -> None:
    code = (
        "import sys\n"
        "from context_agent.retrieval.embedders import load_embedder\n"
        "embedder = load_embedder('static')\n"
        "from context_agent._support import token_table\n"
        "assert not token_table._LOADED\n"
        "embedder.embed_query('river')\n"
        "assert token_table._LOADED and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_name_is_a_digest_of_the_files(static: StaticEmbedder) -> None:
    with safe_open(SHIPPED / WEIGHTS_FILE, framework="numpy") as file:
        content = file.get_tensor("values").tobytes() + file.get_tensor("scales").tobytes()
    content += (SHIPPED / TOKENIZER_FILE).read_bytes()
    assert static.name.endswith("@" + hashlib.sha256(content).hexdigest()[:8])


@pytest.mark.parametrize("file", [WEIGHTS_FILE, TOKENIZER_FILE])
def test_the_note_beside_the_weights_tells_their_digest(file: str) -> None:
    digest = hashlib.sha256((SHIPPED / file).read_bytes()).hexdigest()
    assert digest in (SHIPPED / "README.md").read_text(encoding="utf-8")


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=re.escape(str(tmp_path))):
        load_embedder(f"static:{tmp_path}").embed_query("river")


def test_damaged_weights_are_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes((SHIPPED / WEIGHTS_FILE).read_bytes()[:5_000])
    (tmp_path / TOKENIZER_FILE).write_bytes((SHIPPED / TOKENIZER_FILE).read_bytes())
    with pytest.raises(EmbedderError, match="cannot be read"):
        StaticEmbedder(tmp_path).embed_query("river")


def test_a_query_takes_well_under_a_millisecond(static: StaticEmbedder) -> None:
    static.embed_query("warm up")
    times = []
    for i in range(200):
        start = time.perf_counter()
        static.embed_query(f"When was the director of film number {i} born?")
        times.append(time.perf_counter() - start)
    # Measured at 0.1 ms; the bound leaves room for a busy machine.
    assert sorted(times)[len(times) // 2] < 0.002
