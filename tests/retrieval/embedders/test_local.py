"""The transformer embedder: a tiny model made on the spot where the extra is installed, its error where it is not.

The embedder that ships: what it promises of any text, and that its files are what they say.

The 8-bit all-MiniLM-L6-v2 that ships: unit vectors that carry meaning, whatever the text, and clear errors.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from context_agent._support.shipped_models import MINILM_FILE
from context_agent._support.token_table import SHIPPED_FOLDER, TOKENIZER_FILE, WEIGHTS_FILE, load_weights
from context_agent.errors import ConfigError, EmbedderError, MissingExtraError
from context_agent.retrieval.embedders import Embedder, load_embedder, multilingual, sentence_transformers
from context_agent.retrieval.embedders.minilm import MiniLMEmbedder
from context_agent.retrieval.embedders.sentence_transformers import SentenceTransformerEmbedder
from context_agent.retrieval.embedders.static import StaticEmbedder
from tests.support.remembered_rows import rows_computed_anew

needs_extra = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason='needs pip install "context-agent[embed]"'
)


@pytest.fixture(autouse=True)
def _rows_computed_anew() -> Iterator[None]:
    with rows_computed_anew():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer with random weights: what is tested is the wiring, not the meaning."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    base, model_folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("tiny-model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", "river", "film", ":", "?"]
    (base / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    sizes: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(base)
    BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
    parts = [modules.Transformer(str(base)), modules.Pooling(8, "mean")]
    SentenceTransformer(modules=parts, prompts={"query": "query : ", "document": "passage : "}).save(str(model_folder))
    return model_folder


@needs_extra
def test_a_folder_becomes_an_embedder(folder: Path) -> None:
    embedder = load_embedder(f"sentence-transformers:{folder}")
    assert isinstance(embedder, Embedder)
    assert embedder.name == f"sentence-transformers:{folder.name}"
    vectors = embedder.embed_documents(["river", "", "film \ud800"])
    assert vectors.shape == (3, embedder.dimension) == (3, 8)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-5)


@needs_extra
def test_the_models_prompts_are_used_unless_others_are_given(folder: Path) -> None:
    prompted = SentenceTransformerEmbedder(folder, device="cpu")
    bare = SentenceTransformerEmbedder(folder, device="cpu", query_prompt="", document_prompt="")
    assert not np.allclose(prompted.embed_query("river"), prompted.embed_documents(["river"])[0], atol=1e-4)
    np.testing.assert_allclose(bare.embed_query("river"), bare.embed_documents(["river"])[0], atol=1e-5)
    np.testing.assert_allclose(prompted.embed_query("river"), bare.embed_query("query : river"), atol=1e-5)
    assert prompted.name != bare.name


@needs_extra
def test_code_in_a_model_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    trap, trace = tmp_path / "trap", tmp_path / "trace"
    shutil.copytree(folder, trap)
    code = f"""
from pathlib import Path
from sentence_transformers.models import Pooling as Trap
Path({str(trace)!r}).touch()
"""
    code = f"""
from pathlib import Path
from sentence_transformers.models import Pooling as Trap
Path({str(trace)!r}).touch()
"""
    (trap / "modeling_trap.py").write_text(code)
    modules = json.loads((trap / "modules.json").read_text())
    modules[1]["type"] = "modeling_trap.Trap"
    (trap / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EmbedderError, match="third-party code"):
        SentenceTransformerEmbedder(trap, device="cpu").embed_query("river")
    assert not trace.exists()


@needs_extra
def test_a_model_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EmbedderError, match=r"(?s)cannot be loaded.*pass a folder"):
        SentenceTransformerEmbedder(tmp_path).embed_query("river")


def test_without_the_extra_multilingual_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilingual, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "context-agent\[multilingual\]"'):
        load_embedder("multilingual")


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_transformers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "context-agent\[embed\]"'):
        load_embedder("sentence-transformers:anything")


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
    batch = static.embed_documents(texts)
    for i in (0, 255, 256, 599):
        np.testing.assert_allclose(static.embed_query(texts[i]), batch[i], atol=1e-6)


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
    with safe_open(SHIPPED_FOLDER / WEIGHTS_FILE, framework="numpy") as file:
        content = file.get_tensor("values").tobytes() + file.get_tensor("scales").tobytes()
    content += (SHIPPED_FOLDER / TOKENIZER_FILE).read_bytes()
    assert static.name.endswith("@" + hashlib.sha256(content).hexdigest()[:8])


@pytest.mark.parametrize("file", [WEIGHTS_FILE, TOKENIZER_FILE])
def test_the_note_beside_the_weights_tells_their_digest(file: str) -> None:
    digest = hashlib.sha256((SHIPPED_FOLDER / file).read_bytes()).hexdigest()
    assert digest in (SHIPPED_FOLDER / "README.md").read_text(encoding="utf-8")


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=re.escape(str(tmp_path))):
        load_embedder(f"static:{tmp_path}").embed_query("river")


def test_damaged_weights_are_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes((SHIPPED_FOLDER / WEIGHTS_FILE).read_bytes()[:5_000])
    (tmp_path / TOKENIZER_FILE).write_bytes((SHIPPED_FOLDER / TOKENIZER_FILE).read_bytes())
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


RIVER = "The Novo River is a river of Amazonas state in north-western Brazil. "


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    return MiniLMEmbedder()


def test_minilm_is_an_embedder_with_a_stable_name(minilm: MiniLMEmbedder) -> None:
    assert isinstance(minilm, Embedder)
    assert re.fullmatch(r"minilm-384@[0-9a-f]{8}", minilm.name)
    assert load_embedder("minilm").name == minilm.name


def test_vectors_of_minilm_are_unit_float32_rows(minilm: MiniLMEmbedder) -> None:
    vectors = minilm.embed_documents(["a river in Brazil", RIVER])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, minilm.dimension) == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(minilm.embed_query(RIVER), vectors[1])


def test_meaning_counts_where_no_word_is_shared(minilm: MiniLMEmbedder) -> None:
    query = minilm.embed_query("How do I make my computer run faster?")
    near, far = minilm.embed_documents(["Ways to speed up a slow PC", "The run of salmon up the river"])
    assert query @ near > query @ far + 0.3


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff", "🌊", "ꯃ ꯄ", "𐎀𐎁", "x" * 101, "x" * 10_000_000])
def test_a_text_without_a_known_word_is_the_zero_vector(minilm: MiniLMEmbedder, text: str) -> None:
    assert not minilm.embed_query(text).any()


@pytest.mark.parametrize("text", ["river", "река Амазонка", "川 river 강 نهر", "a\x00b", "[SEP]", RIVER * 150_000])
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


def test_a_lone_surrogate_costs_minilm_only_itself(minilm: MiniLMEmbedder) -> None:
    assert minilm.embed_query("river \ud800 in Brazil") @ minilm.embed_query("river ? in Brazil") > 0.999


def test_threads_get_the_same_vectors_from_one_loading() -> None:
    rows: list[np.ndarray] = []
    texts = [f"{RIVER} {number}" for number in range(6)]
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
    note = MINILM_FILE.with_name("README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(MINILM_FILE.read_bytes()).hexdigest() in note
    assert minilm.name in note


def test_a_missing_or_cut_file_is_an_error_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "minilm.onnx"
    with pytest.raises(ConfigError, match=r"minilm\.onnx cannot be read.*Reinstall"):
        MiniLMEmbedder(file).embed_query("river")
    file.write_bytes(MINILM_FILE.read_bytes()[:1_000_000])
    with pytest.raises(ConfigError, match=r"minilm\.onnx is damaged"):
        _ = MiniLMEmbedder(file).dimension


def test_it_takes_no_argument() -> None:
    with pytest.raises(ConfigError, match="minilm takes no argument; got 'large'"):
        load_embedder("minilm:large")
