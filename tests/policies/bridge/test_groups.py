"""Questions for several documents: members of a group rise beside the member that fits the question best."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.policies.bridge.groups import KEPT_DOCUMENTS, with_comparisons, with_feedback
from context_agent.testing.embedders import HashEmbedder

GATES = [
    "Lock gate on the Orme: timber leaves, opened by hand with a beam.",
    "Lock gate on the Tarn: timber leaves, opened by hand with a chain.",
    "Lock gate on the Isk: steel leaves, opened by hand with a beam.",
]
OTHERS = [
    "The ferry sails at noon and carries four carts.",
    "Ice closed the port in February for nine days.",
    "A baker on the quay sells rye bread on Fridays.",
    "The mayor gave a speech about taxes.",
    "Swallows nest under the bridge in May.",
    "Coal prices fell again.",
]
MANY = "Which barriers are worked by people?"


def noted(question, texts):
    """Notes that have seen each text as a document of its own."""
    notes = Notes.of(question, WordWeights(MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())))
    for number, text in enumerate(texts):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage("", text), 10, 0))
    return notes


def order(scores):
    return np.argsort(-scores, kind="stable").tolist()


def fed(question, texts, scores, trusted=None):
    scores = np.array(scores, dtype=np.float32)
    return with_feedback(noted(question, texts), scores, scores if trusted is None else np.float32(trusted))


TEXTS = [GATES[0], *OTHERS, *GATES[1:]]
SCORES = [0.9, 0.5, 0.45, 0.4, 0.35, 0.3, 0.28, 0.2, 0.15]


def test_texts_like_the_best_one_rise_above_others_if_the_question_asks_for_several():
    assert order(fed(MANY, TEXTS, SCORES)) == [0, 1, 2, 3, 4, 7, 8, 5, 6]


def test_the_candidates_exchange_their_scores():
    scores = fed(MANY, TEXTS, SCORES)
    assert scores.tolist() != pytest.approx(SCORES)
    assert sorted(scores.tolist()) == pytest.approx(sorted(SCORES))


@pytest.mark.parametrize(
    "question",
    [
        "What barrier is worked by people?",
        "Which barrier keeps the water?",
        "Which barrier leads past the lake?",
        "Which glass has bubbles?",
        "Which water sports club would use it?",
        "Did they open the barrier, which keeps ships out?",
    ],
)
def test_a_question_about_one_document_keeps_the_order(question):
    assert fed(question, TEXTS, SCORES).tolist() == pytest.approx(SCORES)


@pytest.mark.parametrize(
    "question",
    [
        "which old barriers are worked by hand",
        "Which kinds of barriers open by hand?",
        "By hand: which beams?",
    ],
)
def test_a_plural_after_the_question_word_asks_for_several(question):
    assert noted(question, []).question.asks_for_group


def test_the_more_of_a_question_is_in_names_the_less_resemblance_counts():
    # All words but the question word are in names, so nothing is left for the resemblance.
    named = "Which Orme Tarn Barriers?"
    assert noted(named, []).question.in_name.all()
    assert noted(named, []).question.asks_for_group
    assert fed(named, TEXTS, SCORES).tolist() == pytest.approx(SCORES)


def test_only_trusted_candidates_lift_others():
    planted = "The canal museum shows old tickets."
    texts = [f"{planted} Ticket one.", GATES[0], *OTHERS[:3], f"{planted} Ticket two.", GATES[1], GATES[2]]
    scores = [0.9, 0.8, 0.5, 0.45, 0.4, 0.2, 0.25, 0.25]
    misled = order(fed(MANY, texts, scores))
    assert misled.index(5) < misled.index(7)
    right = order(fed(MANY, texts, scores, trusted=[0.01, *scores[1:5], 0.01, *scores[6:]]))
    assert right.index(7) < right.index(5)


def test_candidates_without_words_have_finite_scores():
    scores = fed(MANY, ["", "the", "of"], [0.5, 0.4, 0.3])
    assert order(scores) == [0, 1, 2]
    assert len(fed(MANY, [], [])) == 0


def compared(late, scores=SCORES):
    scores = np.array(scores, dtype=np.float32)
    return with_comparisons(noted(MANY, TEXTS[: len(scores)]), scores, scores, np.float32(late))


def test_late_interaction_orders_the_documents_after_the_first_five():
    late = [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 0.9]
    scores = compared(late)
    assert order(scores) == [0, 1, 2, 3, 4, 8, 7, 5, 6]
    assert KEPT_DOCUMENTS == 5
    assert sorted(scores.tolist()) == pytest.approx(sorted(SCORES))


def test_a_candidate_that_was_not_compared_counts_as_the_lowest():
    assert order(compared([*[0.9] * 6, np.nan, 0.1, 0.9])) == [0, 1, 2, 3, 4, 5, 8, 6, 7]


def test_equal_late_interaction_keeps_the_order():
    assert compared([0.5] * 9).tolist() == pytest.approx(SCORES)
    assert compared([0.5], [0.9]).tolist() == pytest.approx([0.9])


@pytest.mark.parametrize(
    "question",
    [
        "Compare the ribbons of the HL-220 and the HL-240.",
        "What happened to the old format, version by version?",
        "Everyone in favor of the new hall",
        "In welchen Ländern gibt es ein Leihgerät?",
        "Welche Dienste werden angenommen?",
        "Mehrwertsteuer: alle Sätze",
        "Gilt die Frist in allen Ländern?",
        "Preise aller Modelle",
        "Quels filtres donnent des lignes fines ?",
        "¿Qué productos tienen lactosa?",
        "Quali ricette si possono congelare?",
        "Welke landen leveren gratis?",
        "Które wersje naprawiły błąd?",
        "В каких версиях это изменилось?",
        "哪些酒里有金酒？",
    ],
)
def test_several_documents_are_asked_for_in_many_languages(question):
    assert noted(question, []).question.asks_for_several


@pytest.mark.parametrize(
    "question",
    [
        "From when to when did the queen reign?",
        "Welche Farbe hat der Deckel?",
        "Welchen Preis hat die Lampe?",
        "Quel est le prix ?",
        "Que dit la lettre ?",
        "¿Qué dice la carta?",
        "Who wrote the letter?",
        "On which show did Alfie Allen play?",
        "Comment aller à Kiel ?",
        "User: Do I pay?\nAssistant: Yes, everyone does.\nUser: How much is it?",
    ],
)
def test_one_document_is_asked_for(question):
    assert not noted(question, []).question.asks_for_several
