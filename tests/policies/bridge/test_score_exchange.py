"""Candidates that are about equally relevant, and the scores that they exchange."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, analyze_question
from context_agent.policies.bridge.score_exchange import descending, relevant_rows


def test_the_first_scores_of_a_level_become_nearly_equal():
    above = np.nextafter(3, 4)
    assert descending(np.array([1.0, 3.0, 2.0])).tolist() == [3, 2, 1]
    assert descending(np.array([1.0, 3.0, 2.0]), 2).tolist() == [above, 3, 1]


def relevant(question, *texts):
    """The rows of the texts that are relevant to a question whose words weigh the same."""
    candidates = [SimpleNamespace(passage=AnalyzedPassage("", text)) for text in texts]
    notes = SimpleNamespace(
        question=analyze_question(question, lambda terms: np.ones(len(terms))), candidates=candidates
    )
    return relevant_rows(notes, list(range(len(texts))), frozenset())


def test_of_no_texts_none_is_relevant():
    assert relevant("rain") == []


def test_another_form_of_a_short_word_counts_as_much_as_the_word():
    assert relevant("siano rain", "Siana.", "Rain.") == [0, 1]


def test_another_form_of_a_long_word_has_its_first_six_letters():
    assert relevant("marigold rain", "Rain.", "Marigans.", "Marigolds.") == [0, 2]


def test_a_number_counts_as_a_whole():
    assert relevant("rain 1234567", "Rain 1234567.", "Rain.", "Rain 1234568.", "1234567.") == [0]
