"""The transformer embedder: a tiny model made on the spot where the extra is installed, its error where it is not."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent.errors import EmbedderError, MissingExtraError
from context_agent.retrieval.embedders import Embedder, load_embedder, sentence_transformers
from context_agent.retrieval.embedders.sentence_transformers import SentenceTransformerEmbedder

needs_extra = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason='needs pip install "context-agent[embed]"'
)


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
    with pytest.raises(EmbedderError, match=r"(?s)cannot be loaded.*name a folder"):
        SentenceTransformerEmbedder(tmp_path).embed_query("river")


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_transformers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "context-agent\[embed\]"'):
        load_embedder("sentence-transformers:anything")
