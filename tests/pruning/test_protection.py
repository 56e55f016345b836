"""Which passages stay whatever their score."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np
import pytest

from context_agent.pruning.contents import ResultText
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage
from context_agent.pruning.protection import OwnWords
from context_agent.pruning.selection import Candidate
from tests.support.hand_made_passages import parts, protection

ERROR, RESTORED = "error", "restored"


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


def test_quotes_and_names_keep_passages_together() -> None:
    later = {"role": "assistant", "content": "Seven very old copper lamps hung in zq_engine."}
    candidates = found("Seven very old copper lamps hung there.", "It rained.", "The zq_engine is old.")
    assert OwnWords(Transcript([{"role": "user", "content": "Go."}, {}, later])).sources(candidates) == {0, 2}


def test_what_was_named_before_the_result_or_beside_it_keeps_nothing() -> None:
    """The user's question and the agent's call have the names that they ask for."""
    named = {"role": "user", "content": "Read config/zq_engine.toml."}
    result = found("The file config/zq_engine.toml is empty.")
    assert not OwnWords(Transcript([named, {}])).sources(result)
    assert not OwnWords(Transcript([{}, named])).sources(result)
    assert OwnWords(Transcript([{}, {}, named])).sources(result)


def test_of_the_last_turn_only_the_results_that_stay_whole_are_protected() -> None:
    candidates = [*parts(9), *parts(9, message=8, number=1), *parts(9, message=9, number=2), *parts(9, message=9)]
    assert protection(candidates, 99, newest={1, 2}).reasons == {2: "last turn"}


def test_the_latest_image_and_the_latest_file_are_protected() -> None:
    candidates = [*parts(9, 9, 9, form="image"), *parts(9, 9, form="file"), *parts(9)]
    assert protection(candidates, 99).reasons == {2: "latest image", 4: "latest file"}


@pytest.mark.parametrize(
    ("errors", "restored", "removed", "room"),
    [
        ({}, {}, (), 101),
        ({0}, {}, (), 91),
        ({0, 3}, {}, (), 51),  # at most half is for errors
        ({2}, {}, (), 71),
        ({0}, {1: 9}, (), 71),
        ({}, {1: 9, 3: 9}, (), 1),
        ({}, {1: 9, 2: 9, 3: 9}, (), -29),
        ({0, 2}, {1: 9, 3: 9}, (), -39),
        ({0, 3}, {1: 9}, {1, 3}, 91),  # what was removed takes no tokens
    ],
)  # fmt: skip
def test_the_room_is_what_the_protected_passages_leave(
    errors: Collection[int], restored: Mapping[int, int], removed: Collection[int], room: int
) -> None:
    assert protection(parts(10, 20, 30, 80, errors=errors), 101, restored, removed=removed).room() == room


@pytest.mark.parametrize(
    ("limit", "restored", "reasons"),
    [
        (100, {0: 1, 1: 2, 2: 3}, {0: RESTORED, 1: RESTORED, 2: RESTORED, 3: ERROR}),
        (60, {0: 1, 1: 2, 2: 3}, {1: RESTORED, 2: RESTORED, 3: ERROR}),
        (60, {0: 3, 1: 2, 2: 1}, {0: RESTORED, 1: RESTORED, 3: ERROR}),
        (59, {0: 1, 1: 2, 2: 3}, {2: RESTORED, 3: ERROR}),
        (60, {0: 1, 1: 1, 2: 3}, {2: RESTORED, 3: ERROR}),
        (9, {0: 1, 1: 5, 2: 6}, {2: RESTORED, 3: ERROR}),  # message 5 is the third last step
        (0, {2: 1, 3: 1}, {3: ERROR}),  # a restored error is an error again
    ],
)
def test_what_was_restored_first_is_judged_again_if_the_rest_does_not_fit(
    limit: int, restored: Mapping[int, int], reasons: Mapping[int, str]
) -> None:
    assert protection(parts(20, 20, 20, 20, errors={3}), limit, restored).reasons == reasons


@pytest.mark.parametrize(
    ("limit", "restored", "removed", "stay"),
    [
        (160, {}, (), {0, 1, 2, 3}),
        (159, {}, (), {1, 2, 3}),  # more than half of the limit
        (80, {}, (), {2, 3}),
        (79, {}, (), {3}),
        (80, {}, {1}, {1, 2, 3}),  # a removed passage is no excess
        (160, {4: 9}, (), {1, 2, 3, 4}),  # 90 tokens leave 70
        (130, {4: 9}, (), {2, 3, 4}),
        (91, {4: 9}, (), {4}),
        (90, {4: 9}, (), {2, 3, 4}),  # nothing fits beside the restored one, so half of the limit counts
    ],
)
def test_errors_beyond_half_of_the_limit_are_judged_the_least_relevant_first(
    limit: int, restored: Mapping[int, int], removed: Collection[int], stay: Collection[int]
) -> None:
    own = protection(parts(20, 20, 20, 20, 90, errors=range(4)), limit, restored, removed=removed)
    own.release_excess(np.array([0.1, 0.2, 0.3, 0.4, 0.0]))
    assert own.reasons.keys() == stay


def test_errors_are_released_before_what_was_restored_long_ago() -> None:
    """Of errors with equal scores the first goes first. What was restored earlier goes earlier."""
    own = protection(parts(9, 9, 9, 9, 9, 9, 9, 9, errors={0, 1, 2, 7}), 99, {2: 9, 3: 4, 4: 2, 5: 4, 6: 4})
    scores, order = np.array([0.5, 0.5, 0.0, 0.3, 0.4, 0.2, 0.2, 0.1]), [set(own.reasons)]
    while own.release(scores, 1):
        order.append(set(own.reasons))
    released = [before - after for before, after in pairwise(order)]
    assert released == [{7}, {0}, {1}, {4}, {5}, {6}, {3}]
    assert own.reasons == {2: RESTORED}


@pytest.mark.parametrize(("excess", "stay"), [(9, {1, 2}), (10, {1, 2}), (12, {2}), (99, set[int]())])
def test_as_much_is_released_as_there_is_excess(excess: int, stay: Collection[int]) -> None:
    own = protection(parts(10, 10, 10, errors=range(3)), 99)
    assert own.release(np.arange(3.0), excess)
    assert own.reasons.keys() == stay


@pytest.mark.parametrize(("limit", "removed", "is_released"), [(90, (), True), (89, (), False), (1, {1}, True)])
def test_nothing_is_released_if_the_other_protected_passages_do_not_fit(
    limit: int, removed: Collection[int], is_released: bool
) -> None:
    own = protection(parts(10, 90, errors={0}), limit, {1: 9}, removed=removed)
    assert own.release(np.zeros(2), 1) is is_released
    assert (0 in own.reasons) is not is_released


def test_without_errors_and_restored_passages_nothing_is_released() -> None:
    assert not protection(parts(9, errors={0}), 99, removed={0}).release(np.zeros(1), 1)
