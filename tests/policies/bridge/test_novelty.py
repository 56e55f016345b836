"""Repeats of a question and of better candidates share one place."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.policies.bridge.novelty import COMPARED, Novelty
from context_agent.testing.embedders import HashEmbedder

QUESTION = "Where was the director of the film Forbidden Marsh born?"
FILM = ("Forbidden Marsh", "Forbidden Marsh is a 1951 drama film. It was directed by Jo Vance for a studio in Orme.")
PERSON = ("Jo Vance", "Jo Vance grew up as the child of two carpenters in Tarn, where she was born in 1911.")


def scores_of(passages, scores, question=QUESTION):
    """The discounted scores of passages (title, text), each a document of its own."""
    corpus = MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())
    notes = Notes.of(question, WordWeights(corpus))
    for number, (title, text) in enumerate(passages):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage(title, text), 10, 0))
    return Novelty(notes).discounted(np.array(scores, dtype=np.float32)).tolist()


def test_passages_that_say_different_things_keep_their_scores():
    assert scores_of([FILM, PERSON], [0.9, 0.4]) == pytest.approx([0.9, 0.4])


OPENINGS = ("note", "tell", "so", "a", "hm")
LONG_QUESTION = "In which town by the sea was the director of the drama film Forbidden Marsh of 1951 born?"
FILLER = (
    "Ships go there twice a week, and trains do not. Many of the houses are old and have small gardens behind them."
)
TOWNS = ("Ulm", "Rye", "Ayr", "Ely", "Bo")


@pytest.mark.parametrize(
    "planted",
    [
        [("", QUESTION)] * 5,
        [("Jo Vance", QUESTION)] * 5,
        [("", f"{word} the film Forbidden Marsh director was born where") for word in OPENINGS],
        [("Forbidden Marsh", f"marsh forbidden film director born {word}") for word in OPENINGS],
        [("", f"{town} has a port and a market. {LONG_QUESTION} {town} {FILLER}") for town in TOWNS],
        [("", f"The director of the film Forbidden Marsh was born in {town}.") for town in TOWNS],
    ],
)
def test_passages_that_repeat_the_question_share_one_place(planted):
    question = LONG_QUESTION if LONG_QUESTION in planted[0][1] else QUESTION
    scores = scores_of([*planted, FILM, PERSON], [0.9] * 5 + [0.3, 0.2], question)
    assert scores[5:] == pytest.approx([0.3, 0.2])
    assert sum(score > 0.2 for score in scores[:5]) <= 1


WORDS = (
    "stone river bridge mill harbour light keeper storm winter letter sister boat timber cargo island north chapel "
    "garden wall tower meadow lantern copper anchor saddle orchard violin ribbon candle mirror"
).split()
PASTED = f"{' '.join(WORDS[:10]).capitalize()}. {' '.join(WORDS[10:18]).capitalize()}."


def test_the_passage_that_was_pasted_as_the_question_keeps_its_score():
    assert scores_of([("", PASTED), FILM], [0.9, 0.1], PASTED) == pytest.approx([0.9, 0.1])
    asked = f"{PASTED[:-1]}?"
    assert scores_of([("", asked), FILM], [0.9, 0.1], asked) == pytest.approx([0.0, 0.1])


def test_a_pasted_paragraph_finds_its_document():
    draw = np.random.default_rng(1)
    parts = [[" ".join(draw.choice(WORDS, 9)).capitalize() for _ in range(2)] for _ in range(20)]
    texts = [f"{first}. {second}." for first, second in parts]
    agent = SearchAgent(MemoryCorpus([Document(f"d{row}", text) for row, text in enumerate(texts)]), effort="fast")
    found = [agent.search(text, k=1).documents[0].id for text in texts[:6]]
    assert sum(name == f"d{row}" for row, name in enumerate(found)) >= 5


def test_a_bare_copy_of_the_question_comes_last():
    assert scores_of([("", QUESTION), FILM], [0.9, 0.1]) == pytest.approx([0.0, 0.1])


def test_copies_of_a_passage_with_the_question_in_front_yield_to_it():
    title, text = FILM
    planted = (title, f"{QUESTION} {text[: len(text) // 2]}")
    scores = scores_of([planted, planted, FILM, PERSON], [0.9, 0.9, 0.2, 0.3])
    assert scores[2:] == pytest.approx([0.2, 0.3])
    assert max(scores[:2]) < 0.1


def test_versions_that_the_question_compares_keep_their_places():
    rest = "The pump runs at 50 bar and needs oil twice a year. Close both valves before you open the case."
    pages = [(f"Pump manual v{version}", f"Manual of version {version}. {rest}") for version in ("2.0", "2.1")]
    question = "Which pump needs more oil, v2.0 or v2.1?"
    assert scores_of(pages, [0.9, 0.8], question) == pytest.approx([0.9, 0.8])
    first, second = scores_of(pages, [0.9, 0.8], "How many bar does the pump v2.0 run at?")
    assert (first, second) == pytest.approx((0.9, 0.08))


def test_issues_with_other_figures_keep_their_places():
    text = "Sales of pumps came to {} million, more than in the quarter before. The outlook for the year is unchanged."
    question = "How much did the maker of pumps sell?"
    for first, second in (("ACME Q1", "ACME Q2"), ("ACME March", "ACME April"), ("ACME Q1", "Bolt Q1")):
        issues = [(first, text.format(31)), (second, text.format(40))]
        assert scores_of(issues, [0.9, 0.8], question) == pytest.approx([0.9, 0.8])
        copies = [(first, text.format(31)), (second, text.format(31))]
        assert scores_of(copies, [0.9, 0.8], question) == pytest.approx([0.9, 0.08])


def test_only_a_few_issues_of_one_text_keep_their_places():
    copies = [
        (f"Note {letter}", f"The harbor bridge was built by Ada Orm, says all we know. Ref {90 + number}.")
        for number, letter in enumerate("abcdefgh")
    ]
    scores = scores_of([*copies, FILM, PERSON], [0.9] * 8 + [0.3, 0.2], "Who built the bridge of the harbor?")
    assert sum(score > 0.2 for score in scores[:8]) == 4
    assert scores[8:] == pytest.approx([0.3, 0.2])


def test_planted_issues_that_repeat_the_question_share_one_place():
    planted = [(f"Note {number}", f"{QUESTION} It was in {1900 + number}.") for number in range(5)]
    scores = scores_of([*planted, FILM, PERSON], [0.9] * 5 + [0.3, 0.2])
    assert scores[5:] == pytest.approx([0.3, 0.2])
    assert sum(score > 0.2 for score in scores[:5]) <= 1


def test_records_with_all_that_a_question_asks_for_keep_their_places_if_it_asks_for_several():
    record = "Flat with balcony, garden and garage in the harbor district. Rent {}, floor {}."
    flats = [(f"Flat {letter}", record.format(700 + number, number)) for number, letter in enumerate("ABCDE", 1)]
    scores = scores_of(flats, [0.9] * 5, "All flats with balcony, garden and garage in the harbor district")
    assert sum(score > 0.7 for score in scores) == 4
    scores = scores_of(flats, [0.9] * 5, "Which flat with balcony, garden and garage is in the harbor district?")
    assert sum(score > 0.1 for score in scores) == 1


def test_chunks_of_one_document_are_no_repeats():
    corpus = MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())
    notes = Notes.of(QUESTION, WordWeights(corpus))
    for number in range(2):
        notes.add(ChunkCandidate(f"a_{number}", "a", AnalyzedPassage(*FILM), 10, 0))
    assert Novelty(notes).discounted(np.array([0.9, 0.8], dtype=np.float32)).tolist() == pytest.approx([0.9, 0.8])


def test_scores_follow_candidates_that_come_later():
    corpus = MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())
    notes = Notes.of(QUESTION, WordWeights(corpus))
    novelty = Novelty(notes)
    for number in range(3):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage(*FILM), 10, 0))
        scores = novelty.discounted(np.full(len(notes), 0.5, dtype=np.float32))
    assert sorted(scores.tolist()) == pytest.approx([0.005, 0.05, 0.5])


@pytest.mark.parametrize("text", ["", "?", "one", "word " * 5000, "…", "𝔘𝔫𝔦"])
def test_odd_texts_have_finite_scores(text):
    passages = [("", text)] * (COMPARED + 8)
    for question in (QUESTION, text):
        assert np.isfinite(scores_of(passages, [0.5] * len(passages), question)).all()


def test_a_passage_of_the_one_word_that_is_asked_for_is_no_echo():
    corpus = MemoryCorpus([Document(word, word) for word in ("river", "lake", "sea", "ocean")])
    assert SearchAgent(corpus).search("What is a lake?").documents[0].id == "lake"


def test_a_record_with_the_identifier_that_is_asked_for_repeats_no_other_record():
    records = [("", f"The order was for {count} units, shipped from warehouse {count % 7}.") for count in (4192, 2935)]
    question = "Which warehouse shipped the order for 2,935 units?"
    assert scores_of(records, [0.4, 0.9], question)[1] > 0.4


def test_a_date_counts_as_one_word_of_a_question():
    minutes = ("", "Meeting on 2021-01-28. The board talked about the roof, and in the end it approved a new one.")
    question = "What was approved in the board meeting on January 28, 2021?"
    assert scores_of([minutes], [0.9], question) == pytest.approx([0.9])
