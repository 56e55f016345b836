"""Embedders that know one language."""

from __future__ import annotations

import pytest

from context_agent.retrieval import language_fit
from context_agent.retrieval.language_fit import knows_language, language_warning
from tests.support.human_rights import TEXTS


@pytest.mark.parametrize("language", TEXTS)
def test_an_english_embedder_fits_english_alone(language: str) -> None:
    warning = language_warning("static-minilm-256@1a2b3c4d", [TEXTS[language]])
    assert bool(warning) == (language != "en")
    assert not warning or "--embedder multilingual" in warning
    assert not warning or "--embedder sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2" in warning


def test_only_known_models_and_texts_with_letters_are_judged() -> None:
    assert language_warning("openai:bge-m3@http://localhost", [TEXTS["ja"]]) == ""
    assert language_warning("minilm-384@1a2b3c4d", ["", "4711 2.5 ..."]) == ""
    assert language_warning("minilm-384@1a2b3c4d", ["a" * 5_000]) == ""
    assert "pieces of 0.0 letters" in language_warning("minilm-384@1a2b3c4d", ["ขาย" * 400])
    assert (
        language_warning("minilm-384@1a2b3c4d", ["Alda Brunner was born in Brasko.", "The weir at Corran, Tessel."])
        == ""
    )
    assert language_warning("minilm-384@1a2b3c4d", ["def load(path): return json.loads(path.read_text())"]) == ""


def test_a_few_words_are_not_judged() -> None:
    assert language_warning("static-minilm-380@b832660a", ["# B readme\nThe mill of b."]) == ""
    assert language_warning("static-minilm-380@b832660a", ["第1号の浄水場は蛍川から原水を取っている。" * 3]) != ""


def test_short_english_sentences_about_invented_names_fit() -> None:
    names = ("Ashford", "Belwick", "Corvale", "Dunmere")
    towns = [f"{name} is a town on the Lume. It is by the sea." for name in names]
    assert language_warning("static-minilm-380@b832660a", towns) == ""
    orte = [f"{name} ist ein Ort an der Lume. Er liegt bei der alten Brennerei am Fluss." for name in names]
    assert "knows English only" in language_warning("static-minilm-380@b832660a", orte)


@pytest.mark.parametrize(
    ("embedder", "most_texts", "query", "known"),
    [
        ("static-minilm-256@1a2b3c4d", "de", "Druck Ventil", False),
        ("static-minilm-256@1a2b3c4d", "en", "Warum ist der Druck am Ventil und im Kessel nicht gleich?", False),
        ("minilm-384@1a2b3c4d", "zh", "阀门", False),
        ("minilm-384@1a2b3c4d", "de", "Why is the pressure at the valve not the same as in the boiler?", True),
        ("static-minilm-256@1a2b3c4d", "en", "pressure valve", True),
        ("static-minilm-256@1a2b3c4d", "en", "which", True),
        ("static-minilm-256@1a2b3c4d", "en", "4711 2.5", True),
        ("static-minilm-256@1a2b3c4d", "en", "Comment s'appelle l'extraction d'un objet de son fond ?", False),
        ("static-minilm-256@1a2b3c4d", "en", "Was ist ein verwaistes Paket?", False),
        ("static-minilm-256@1a2b3c4d", "en", "Qui a créé le programme, et dans quelles circonstances ?", False),
        ("multilingual-384@1a2b3c4d", "de", "Druck Ventil", True),
    ],
)
def test_an_english_embedder_knows_no_query_in_another_language(
    embedder: str, most_texts: str, query: str, known: bool
) -> None:
    assert knows_language(embedder, most_texts, query) is known


@pytest.mark.parametrize(
    ("query", "is_loaded"),
    [
        ("repair of an old stone bridge", False),
        ("Was the weir at Brasko built by an engineer, and for what?", False),
        ("Brasko Tessel Corran Lume", True),
        ("kalkhaltiges Wasser im Keller gefunden", True),
        ("Paket Kernel Desktop Distribution die alt stable", True),
    ],
)
def test_most_english_queries_need_no_model_of_languages(
    query: str, is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def identified(text: str, majority: str) -> str:
        asked.append(text)
        return majority

    monkeypatch.setattr(language_fit, "language_of", identified)
    assert knows_language("minilm-384@1a2b3c4d", "en", query)
    assert bool(asked) is is_loaded
