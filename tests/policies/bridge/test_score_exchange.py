"""Candidates that are about equally relevant, and the scores that they exchange."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from context_agent.policies.bridge.candidates import analyze_question
from context_agent.policies.bridge.score_exchange import descending, relevant_rows


def test_the_first_scores_of_a_level_become_nearly_equal():
    above = np.nextafter(3, 4)
    assert descending(np.array([1.0, 3.0, 2.0])).tolist() == [3, 2, 1]
    assert descending(np.array([1.0, 3.0, 2.0]), 2).tolist() == [above, 3, 1]


def test_of_no_texts_none_is_relevant():
    notes = SimpleNamespace(question=analyze_question("rain", lambda terms: np.ones(len(terms))), candidates=[])
    assert relevant_rows(notes, [], frozenset()) == []
