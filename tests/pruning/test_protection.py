"""Which passages stay whatever their score."""

from __future__ import annotations

import pytest

from context_agent.pruning.contents import ResultText
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage
from context_agent.pruning.protection import OwnWords
from context_agent.pruning.selection import Candidate


def found(*texts: str) -> list[Candidate]:
    """Passages of one result of the second message."""
    return [
        Candidate(Passage(text, 0, len(text), tokens=50), ResultText(1, (), "c", text), 0, index)
        for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(("words", "stays"), [(6, True), (5, False)])
def test_six_words_in_a_row_are_a_quote(words: int, stays: bool) -> None:
    quoted = "seven very old copper lamps hung"
    said = f"So: {' '.join(quoted.upper().split()[:words])}, then."
    transcript = Transcript([{"role": "user", "content": "Go."}, {}, {"role": "assistant", "content": said}])
    rows = OwnWords(transcript).sources(found("It rained.", f"The {quoted} there."))
    assert rows == ({1} if stays else set())


@pytest.mark.parametrize(("count", "stays"), [(1, True), (2, True), (3, False)])
def test_a_name_keeps_the_passages_that_have_it_if_they_are_at_most_two(count: int, stays: bool) -> None:
    later = {"role": "assistant", "content": "I open config/zq_engine.toml."}
    mentions = [f"Part {number} is in config/zq_engine.toml." for number in range(count)]
    rows = OwnWords(Transcript([{"role": "user", "content": "Go."}, {}, later])).sources(found("It rained.", *mentions))
    assert rows == (set(range(1, count + 1)) if stays else set())


def test_what_was_named_before_the_result_or_beside_it_keeps_nothing() -> None:
    """The user's question and the agent's call have the names that they ask for."""
    named = {"role": "user", "content": "Read config/zq_engine.toml."}
    result = found("The file config/zq_engine.toml is empty.")
    assert not OwnWords(Transcript([named, {}])).sources(result)
    assert not OwnWords(Transcript([{}, named])).sources(result)
    assert OwnWords(Transcript([{}, {}, named])).sources(result)
