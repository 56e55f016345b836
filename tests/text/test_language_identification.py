"""The language of a passage, and that of most passages of a corpus."""

from __future__ import annotations

import errno
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.text import language_identification
from context_agent.text.language_identification import _MARKERS, identify, language_of
from context_agent.text.languages import ENGLISH, LANGUAGES, STEMMED, UNIDENTIFIED
from tests.support.human_rights import TEXTS

TABLE = (
    "Year | Title | Role | Notes\n2004 | Vanity Fair | Celia Crawley | -\n2008 | Ciao Bella | Marta Rossi | 2 episodes"
)
LOG = "2024-03-01T10:22:31Z ERROR [db.pool] connection timeout after 3000 ms: retrying (attempt 4), host=10.2.0.7"
NOTATION = "Octave up: ^8va. Slur (ab). Repeat |: :| with first ending [1 and second ending [2. Tuplet: (3abc."
CODE = "def load(path):\n    with open(path) as file:\n        return json.load(file)"


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_most_texts_is_identified(language: str) -> None:
    texts = [TEXTS[language]] * 10
    assert identify(texts) == language
    assert identify([*texts, TEXTS["en"]]) == language
    assert language_of(TEXTS[language], "fr") == language


def test_texts_that_cannot_change_the_result_need_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    english = "Both were found by the river that runs through this town, which was their first home."
    texts = [*[english] * 6, "Das Haus ist alt und wird nicht mehr bewohnt.", *[TABLE] * 2]

    def refuse() -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr(language_identification, "_identifier", refuse)
    assert identify(texts) == ENGLISH
    with pytest.raises(AssertionError, match="loaded"):
        identify([*texts, TABLE])


def test_a_full_folder_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """py3langid unpacks its model there."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("py3langid.langid.LanguageIdentifier.from_model_file", fail)
    with pytest.raises(OSError, match="No space left") as told:
        language_identification._identifier.__wrapped__()
    assert told.value.filename == tempfile.gettempdir()


def test_too_few_words_count_as_english_and_words_without_a_language_as_none() -> None:
    assert identify([]) == identify(["", "\ud800"]) == identify(["Paris 4711"]) == ENGLISH
    assert identify([f"xq{number} M{number} 4711" for number in range(100)]) == UNIDENTIFIED


@pytest.mark.parametrize("text", [TABLE, LOG, NOTATION, CODE])
def test_english_tables_logs_notation_and_code_are_english(text: str) -> None:
    assert identify([f"{text} {number}" for number in range(30)]) == ENGLISH
    assert language_of(text, ENGLISH) == ENGLISH


def test_a_corpus_of_many_languages_is_in_none_of_them_as_a_whole() -> None:
    spaced = [language for language in TEXTS if language != "ja"]
    assert identify([*[TEXTS["ja"]] * 3, *[TEXTS[language] for language in spaced] * 2]) == UNIDENTIFIED


@pytest.mark.parametrize("text", ["", "4711", "Oslo 1975", "\ud800", "Nabucco"])
def test_a_text_that_shows_no_language_is_in_that_of_most(text: str) -> None:
    assert [language_of(text, majority) for majority in ("de", "ja", UNIDENTIFIED)] == ["de", "ja", UNIDENTIFIED]


@pytest.mark.parametrize(
    "text",
    [
        "Kauf dir einen bunten Luftballon is a 1961 film directed by Géza von Cziffra.",
        "Luis Méndez de Haro | Madrid | 1598 | Count of Morente",
        "She wrote “La vie est belle et nous sommes dans le jardin” for the theatre, which was by then closed.",
    ],
)
def test_names_and_titles_of_other_languages_do_not_change_that_of_a_text(text: str) -> None:
    assert language_of(text, ENGLISH) == ENGLISH


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("da", "Broen blev bygget efter krigen og havde nogle af de første lamper i byen."),
        ("no", "Broen ble bygget etter krigen, og noen hadde med seg de første lampene til byen."),
        ("pt", "A ponte foi construída pela câmara e não tem luz; uma das torres é mais alta."),
        ("tr", "Köprü bir yıl sonra açıldı ve şehir için çok önemli bir yol oldu."),
        ("ro", "Podul a fost construit în 1904 și este folosit pentru transport de către oraș."),
        ("el", "Η γέφυρα χτίστηκε το 1904 και είναι η παλαιότερη της πόλης."),
        ("ar", "بني الجسر في عام 1904 وهو أقدم جسر في المدينة."),
        ("none", "Most został zbudowany w 1904 roku i jest najstarszym mostem w mieście."),
        ("none", "Міст побудований у 1904 році, він найстаріший у місті та веде до ринку."),
    ],
)
def test_near_relatives_are_told_apart_whatever_most_texts_are_in(language: str, text: str) -> None:
    assert language_of(text, ENGLISH) == language_of(text, "es") == language


def test_a_marker_belongs_to_one_language_that_has_an_analyzer() -> None:
    markers = [marker for words in _MARKERS.values() for marker in words.split()]
    assert len(set(markers)) == len(markers)
    assert _MARKERS.keys() <= STEMMED.keys()


@given(st.text(max_size=300))
def test_any_text_has_a_language(text: str) -> None:
    assert language_of(text, ENGLISH) in LANGUAGES
