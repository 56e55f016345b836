"""What counts as found: documents, chunks and facts, distinguished by the ids in the corpus."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent import Document, MemoryCorpus
from context_agent.eval.gold import contains_answer, gold_of, is_checkable, normalized, words
from context_agent.testing.embedders import HashEmbedder
from context_agent.types import Question

# `a_1` is both the second chunk of `a` and a document; `b_1` is only a chunk.
LONG = "Rivers meet the sea here. " * 40
SHELF = MemoryCorpus(
    [Document("a", LONG), Document("a_1", "A note."), Document("b", LONG)], embedder=HashEmbedder(), chunk_size=64
)


def make_question(*gold: str, facts: tuple[tuple[str, ...], ...] = ()) -> Question:
    return Question("q", "?", gold=gold, facts=facts)


def test_an_id_that_is_both_is_the_document_in_gold_and_the_chunk_in_facts() -> None:
    assert SHELF.get(["a_1"])[0].document_id == "a"
    by_document, by_fact = gold_of(make_question("a_1"), SHELF), gold_of(make_question(facts=(("a_1",),)), SHELF)
    assert by_document.found_by("a_1", ["a_1_0"]) == {0}
    assert by_document.found_by("a", ["a_1"]) == set()
    assert by_fact.found_by("a", ["a_1"]) == {0}
    assert by_fact.found_by("a_1", ["a_1_0"]) == set()


def test_gold_may_name_chunks_and_facts_may_name_documents() -> None:
    gold = gold_of(make_question("b_1", "a"), SHELF)
    assert gold.found_by("b", ["b_0"]) == set()
    assert gold.found_by("b", ["b_1"]) == {0}
    assert gold.found_by("a", []) == {1}
    assert gold_of(make_question(facts=(("b", "a_0"),)), SHELF).found_by("b", ["b_2"]) == {0}


def test_facts_are_scored_instead_of_documents() -> None:
    gold = gold_of(make_question("a", "b", facts=(("a_0", "b_0"), ("b_1",))), SHELF)
    assert gold.needs == 2
    assert gold.found_by("a", ["a_0"]) == {0}
    assert gold.found_by("b", ["b_0", "b_1"]) == {0, 1}


def test_ids_that_the_corpus_lacks_are_named_and_still_count() -> None:
    gold = gold_of(make_question("a", "zz", "b_99"), SHELF)
    assert gold.missing == ("zz", "b_99")
    assert gold.needs == 3
    assert gold.ids == {"a"}


def test_without_a_corpus_gold_are_documents_and_facts_are_chunks() -> None:
    assert gold_of(make_question("x", "x", "y")).documents == {"x": {0}, "y": {1}}
    assert gold_of(make_question("x", facts=(("c_0", "d_0"),))).chunks == {"c_0": {0}, "d_0": {0}}
    assert not gold_of(make_question())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Free Guy", "It stars in free  guy, a film."),
        ("No 5", "it is № 5 of them"),
        ("acme tm", "made by Acme ™"),
        ("Paris", "in \U0001d40f\U0001d41a\U0001d42b\U0001d422\U0001d42c"),
        ("The Beatles", "A song by Beatles members"),
        ("Beyoncé", "sung by BEYONCE."),
        ("1,000", "about 1000 men"),
        ("well-known", "a well known one"),
        ("U.S.", "the U.S. army"),
        ("King's Road", "on Kings Road"),
        ("東京", "日本の首都は東京都である"),
        ("The The", "a band named The The"),
        ("straße", "STRASSE 5"),
        ("3.5", "it is 3.5 km"),
    ],
)
def test_it_holds(answer: str, text: str) -> None:
    assert is_checkable(answer)
    assert contains_answer(["nothing here", text], answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("art", "a start was made"),
        ("Ann", "Anne came"),
        ("Guy Free", "free guy"),
        ("3.5", "35 km"),
        ("1918", "19180 and 11918"),
        ("New York", "New and old York"),
    ],
)
def test_words_must_be_whole_and_in_order(answer: str, text: str) -> None:
    assert not contains_answer([text], answer)


def test_an_answer_is_not_put_together_from_two_texts() -> None:
    assert not contains_answer(["ends in New", "York begins"], "New York")


@pytest.mark.parametrize("answer", ["", "  ", "yes", "No.", "TRUE", "?!"])
def test_some_answers_cannot_be_judged(answer: str) -> None:
    assert not is_checkable(answer)


@settings(deadline=None)
@given(st.text(), st.text(), st.text(min_size=1))
def test_a_text_contains_its_words(before: str, after: str, answer: str) -> None:
    if words(answer):
        assert contains_answer([f"{before} {answer} {after}"], answer)


def test_compatibility_forms_are_one_text() -> None:
    assert normalized("the ﬁrst\u00a0Ⅳ") == normalized("The first IV")
