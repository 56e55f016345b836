"""What a stranger's passages, titles and questions cost the embedded policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from context_agent.integrations.passage_pruning import prune
from context_agent.policies.bridge.candidates import ANALYZED_CHARACTERS, AnalyzedPassage, analyze_question
from context_agent.policies.bridge.features import _best_sentence
from context_agent.text.names import mentions
from tests.support.bounded import bounded
from tests.support.growth import MOST_GROWTH, growth

RUNS: dict[str, Callable[[int], str]] = {
    "names with connectors": lambda length: " of ".join(f"A{number:x}" for number in range(length // 9)),
    "names in a row": lambda length: " ".join(f"Ab{number:x}" for number in range(length // 7)),
    "openers in a row": lambda length: "The " * (length // 4),
    "names and openers": lambda length: "The Of A An " * (length // 12),
}


@pytest.mark.parametrize("name", RUNS)
def test_names_are_found_in_linear_time(name: str) -> None:
    assert growth(mentions, RUNS[name], 100_000) < MOST_GROWTH


def test_a_long_run_of_names_is_several_names() -> None:
    found = [mention.surface for mention in mentions(" ".join(f"Ab{number}" for number in range(200)))]
    assert found[0].startswith("Ab0 Ab1 ")
    assert found[-1].endswith(" Ab199")
    assert len(found) > 1


QUESTIONS: dict[str, Callable[[int], str]] = {
    "clauses": lambda length: " ".join(f"w{n}a v{n} u{n} t{n} which" for n in range(length // 28)),
    "lists": lambda length: ", ".join(f"a{n:x}" for n in range(length // 6)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_of_a_megabyte_takes_bounded_memory(name: str) -> None:
    outcome = bounded(_prune_for, QUESTIONS[name](1_000_000)).require()
    assert outcome.error is None


def _prune_for(question: str) -> int:
    return len(prune(question, [("Orm", "The harbor of Orm is in the north."), ("", "It rained.")], threshold=0.0))


def test_a_passage_of_megabytes_takes_bounded_memory() -> None:
    outcome = bounded(_prune_passage, 4_000_000).require()
    assert outcome.value == 3


def _prune_passage(length: int) -> int:
    text = ". ".join(f"Ab{number:x} Cd" for number in range(length // 11))
    passages = [("Orm", text), (text, "The harbor of Orm."), ("Orm", "The harbor of Orm is in the north.")]
    return len(prune("Where is the harbor of Orm?", passages, threshold=0.0))


def test_of_a_long_text_the_beginning_is_analyzed() -> None:
    passage = AnalyzedPassage("Orm", "harbor " + "x " * ANALYZED_CHARACTERS + "north")
    assert "harbor" in passage.keys
    assert "north" not in passage.keys
    question = analyze_question("harbor " + "x " * ANALYZED_CHARACTERS + "north", _flat)
    assert question.terms == ("harbor", "x")
    assert question.text.endswith("north")


def test_sentences_are_compared_with_a_long_title_in_linear_time() -> None:
    question = analyze_question("Where is the harbor of Orm?", _flat)

    def make(length: int) -> AnalyzedPassage:
        words = " ".join(f"b{number:x}" for number in range(length // 6))
        return AnalyzedPassage(words, "Harbor. " * (length // 8))

    assert growth(lambda passage: _best_sentence(question, passage), make, ANALYZED_CHARACTERS // 4) < MOST_GROWTH


def _flat(words: object) -> np.ndarray:
    return np.ones(len(words), dtype=np.float32)  # type: ignore[arg-type]
