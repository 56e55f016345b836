"""The messages of a log: what is left of an entry without common words, and what a careful judge finds with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from context_agent._support.text_cache import TextCache
from context_agent.pruning import relevance
from context_agent.pruning.blocks import Passage
from context_agent.pruning.goal import Goal
from context_agent.pruning.log_messages import log_messages
from context_agent.pruning.relevance import by_reading

LEVELS = ("INFO", "DEBUG")
HOSTS = ("edge-a", "edge-b", "core")


def entry(number: int, message: str, level: str = "") -> Passage:
    """Return a log entry. Its level and its host repeat in other entries."""
    clock = f"2031-07-{number % 28 + 1:02d}T04:{number % 60:02d}:11Z"
    text = f"{clock} {level or LEVELS[number % 2]} {HOSTS[number % 3]} {message}"
    return Passage(text, 0, 0, tokens=20)


ROUTINE = tuple(entry(number, f"lease {number} renewed for tenant {number * 7}") for number in range(210))


class UnreadPairs:
    """A reader that finds all texts equally relevant."""

    width = 1

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        return np.zeros((len(pairs), 1), dtype=np.float32)


def test_an_entry_loses_what_most_lines_of_the_log_repeat() -> None:
    found = log_messages([*ROUTINE, entry(77, "valve 12 jammed, manual override", "WARN")])
    assert found[210] == "WARN valve jammed, manual override"
    assert {found[row] for row in range(210)} == {""}


def test_each_line_of_a_passage_counts() -> None:
    """A word that is in both lines of 50 passages is in 100 lines."""
    passages = [Passage(f"04:00:{n:02d} INFO ping\n04:01:{n:02d} INFO ping", 0, 0, tokens=20) for n in range(50)]
    single = [Passage(f"04:02:{n:02d} INFO {'ping' if n < 3 else f'x{n}y'}", 0, 0, tokens=20) for n in range(50)]
    assert log_messages(passages)[0] == ""
    assert log_messages(single)[0] == "ping", "three lines are too few to be common"


@pytest.mark.parametrize(
    ("lines", "count", "is_common"), [(40, 3, False), (40, 4, True), (400, 12, False), (400, 13, True)]
)
def test_a_word_is_common_in_four_lines_and_in_3_percent_of_a_long_log(
    lines: int, count: int, *, is_common: bool
) -> None:
    found = log_messages([entry(row, "valve" if row < count else f"other{row}x") for row in range(lines)])
    assert found[0] == ("" if is_common else "valve")


@pytest.mark.parametrize(("prose", "expected"), [(0, 210), (490, 210), (491, 0)])
def test_a_few_entries_among_other_results_are_not_a_log(prose: int, expected: int) -> None:
    others = [Passage(f"Paragraph {number} of a manual.", 0, 0, tokens=20) for number in range(prose)]
    assert len(log_messages([*others, *ROUTINE])) == expected


def test_records_and_prose_have_no_log_message() -> None:
    record = Passage('{"time": "04:11:02", "level": "INFO", "event": "ping"}', 0, 0, form="value", tokens=20)
    prose = Passage("The valve was jammed.", 0, 0, tokens=20)
    assert set(log_messages([record, prose, *ROUTINE])) == set(range(2, 212))


@pytest.mark.parametrize(
    ("message", "question"),
    [
        ("certificate chain has an unknown issuer", "Whose identity could not be verified?"),
        ("volume has no free blocks, write refused", "Where could nothing be saved because the disk was full?"),
        ("could not resolve hostname of the ledger", "When did looking up an address by name fail?"),
    ],
)
def test_a_careful_judge_finds_the_event_that_the_task_describes_in_other_words(message: str, question: str) -> None:
    """Each routine event has words of the task, and is in the log in many variants."""
    events = ("identity cache verified", "saved snapshot of disk", "looked up the price by name", "refreshed session")
    passages = [entry(number, f"{events[number % 4]}, part {number} of {number * 3}") for number in range(600)]
    passages[431] = entry(431, message, "WARN")
    order = np.argsort(-by_reading(passages, Goal(question, room=1_200), model=UnreadPairs()))
    assert 431 in order[:30]


def test_a_huge_log_of_other_messages_is_compared_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    class Embedding:
        def encode(self, batch: list[str]) -> np.ndarray:
            texts.extend(batch)
            return np.ones((len(batch), 2), dtype=np.float32)

    monkeypatch.setattr(relevance, "shipped_minilm", Embedding)
    monkeypatch.setattr(relevance, "EMBEDDINGS", TextCache(8_192))
    passages = [entry(number, f"{chr(97 + number % 26) * (number // 26 + 3)} happened") for number in range(2_000)]
    passages[1_999] = entry(1_999, "the pump of the ferry stalled")
    by_reading(passages, Goal("Why did the ferry stop?", room=1_000), model=UnreadPairs())
    assert any("ferry stalled" in text for text in texts[1:]), "what is likeliest by words is compared"
    assert sum(max(len(text), 100) for text in texts[1:]) <= relevance.MAX_COMPARED * relevance.GIST_CHARACTERS
