"""The 8-bit all-MiniLM-L6-v2 that ships: unit vectors that carry meaning, whatever the text, and clear errors."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.embedders.minilm import MODEL_FILE, MiniLMEmbedder

PARAGRAPH = "The Novo River is a river of Amazonas state in north-western Brazil. "


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    return MiniLMEmbedder()


def test_it_is_an_embedder_with_a_stable_name(minilm: MiniLMEmbedder) -> None:
    assert isinstance(minilm, Embedder)
    assert re.fullmatch(r"minilm-384@[0-9a-f]{8}", minilm.name)
    assert load_embedder("minilm").name == minilm.name


def test_vectors_are_unit_float32_rows(minilm: MiniLMEmbedder) -> None:
    vectors = minilm.embed_documents(["a river in Brazil", PARAGRAPH])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, minilm.dimension) == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(minilm.embed_query(PARAGRAPH), vectors[1])


def test_meaning_counts_where_no_word_is_shared(minilm: MiniLMEmbedder) -> None:
    query = minilm.embed_query("How do I make my computer run faster?")
    near, far = minilm.embed_documents(["Ways to speed up a slow PC", "The run of salmon up the river"])
    assert query @ near > query @ far + 0.3


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff", "🌊", "ꯃ ꯄ", "𐎀𐎁", "x" * 101, "x" * 10_000_000])
def test_a_text_without_a_known_word_is_the_zero_vector(minilm: MiniLMEmbedder, text: str) -> None:
    assert not minilm.embed_query(text).any()


@pytest.mark.parametrize("text", ["river", "река Амазонка", "川 river 강 نهر", "a\x00b", "[SEP]", PARAGRAPH * 150_000])
def test_any_other_text_gets_a_vector(minilm: MiniLMEmbedder, text: str) -> None:
    assert np.linalg.norm(minilm.embed_query(text)) == pytest.approx(1, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=20))
def test_every_vector_is_finite(text: str) -> None:
    vector = MiniLMEmbedder().embed_query(text)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) < 1.001


def test_the_first_256_word_pieces_are_read(minilm: MiniLMEmbedder) -> None:
    start = "river " * 254
    np.testing.assert_array_equal(minilm.embed_query(start), minilm.embed_query(start + "bread"))
    assert (minilm.embed_query("river " * 253) != minilm.embed_query("river " * 253 + "bread")).any()


def test_a_lone_surrogate_costs_only_itself(minilm: MiniLMEmbedder) -> None:
    assert minilm.embed_query("river \ud800 in Brazil") @ minilm.embed_query("river ? in Brazil") > 0.999


def test_threads_get_the_same_vectors_from_one_loading() -> None:
    rows: list[np.ndarray] = []
    texts = [f"{PARAGRAPH} {number}" for number in range(6)]
    threads = [threading.Thread(target=lambda: rows.append(MiniLMEmbedder().embed_documents(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) == 4
    assert all((row == rows[0]).all() for row in rows)


def test_naming_it_loads_no_weights_and_using_it_no_torch() -> None:
    code = (
        "import sys\n"
        "from context_agent.retrieval.embedders import load_embedder\n"
        "embedder = load_embedder('minilm')\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "embedder.embed_query('river')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_note_beside_the_weights_tells_the_digest_and_name(minilm: MiniLMEmbedder) -> None:
    note = MODEL_FILE.with_name("README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(MODEL_FILE.read_bytes()).hexdigest() in note
    assert minilm.name in note


def test_a_missing_or_cut_file_is_an_error_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "minilm.onnx"
    with pytest.raises(ConfigError, match=r"minilm\.onnx cannot be read.*Reinstall"):
        MiniLMEmbedder(file).embed_query("river")
    file.write_bytes(MODEL_FILE.read_bytes()[:1_000_000])
    with pytest.raises(ConfigError, match=r"minilm\.onnx is damaged"):
        _ = MiniLMEmbedder(file).dimension


def test_it_takes_no_argument() -> None:
    with pytest.raises(ConfigError, match="minilm takes no argument, but got 'large'"):
        load_embedder("minilm:large")
