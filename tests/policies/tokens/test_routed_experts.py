"""Recorded experts: their text, and how the calls of an episode are put together."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent.errors import DataError, TrajectoryError
from context_agent.policies.tokens.recorded_calls import TokenCall, expand
from context_agent.policies.tokens.routed_experts import UNRECORDED, pack, unpack, unrecorded
from context_agent.train.row_files import to_line
from context_agent.train.rows import TrainingRow, rows_of_calls


def numbered(start: int, end: int, *, layers: int = 2, top_k: int = 2, offset: int = 0) -> np.ndarray:
    """Experts that tell their position."""
    positions = np.arange(start, end, dtype=np.int32)[:, None, None] + offset
    return np.broadcast_to(positions, (end - start, layers, top_k)).copy()


@pytest.mark.parametrize("most", [3, 254, 255, 511])
def test_a_text_gives_back_the_experts_and_the_gaps(most: int) -> None:
    rng = np.random.default_rng(0)
    experts = rng.integers(0, most + 1, (50, 3, 4), dtype=np.int32)
    experts[7] = UNRECORDED
    experts[8, 0, 0] = most
    text = pack(experts)
    assert np.array_equal(unpack(text), experts)
    assert text.startswith(f"50x3x4:{1 if most < 255 else 2}:")
    assert pack(None) == ""


def test_a_text_is_small() -> None:
    experts = np.random.default_rng(0).integers(0, 32, (1_000, 24, 4), dtype=np.int32)
    assert len(pack(experts)) < 1.1 * 1_000 * 24 * 4, "5 bits a choice in a byte, deflated, in base64"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3x2:1:eJwDAAAAAAE=",
        "1x1x1:3:eJwDAAAAAAE=",
        "-1x-1x1:1:eJwDAAAAAAE=",
        "9x9x9:1:eJwDAAAAAAE=",
        "1x1x1:1:no base64",
        f"2x2x2:1:{pack(numbered(0, 9)).rpartition(':')[2]}",
        "99999999999999999999x1x1:1:eJwDAAAAAAE=",
    ],
)
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="cannot read recorded experts"):
        unpack(text)


def test_a_row_carries_the_experts_of_all_its_calls() -> None:
    calls = [
        TokenCall(0, (1, 2, 3), (4, 5), (-1.0, -1.0), experts=pack(numbered(0, 4))),
        TokenCall(5, (6, 7), (8,), (-1.0,), experts=pack(numbered(4, 7))),
    ]
    (row,) = rows_of_calls(calls, episode_id="e", group_id="g")
    assert np.array_equal(unpack(row.experts), numbered(0, len(row.input_ids) - 1))


def test_a_row_behind_an_edit_keeps_the_experts_of_the_shared_prefix() -> None:
    calls = [
        TokenCall(0, (1, 2, 3), (4, 5), (-1.0, -1.0), experts=pack(numbered(0, 4))),
        TokenCall(2, (9, 9), (8,), (-1.0,), experts=pack(numbered(1, 4, offset=100))),
    ]
    first, second = rows_of_calls(calls, episode_id="e", group_id="g")
    assert np.array_equal(unpack(first.experts), numbered(0, 4))
    expected = np.concatenate([numbered(0, 2), numbered(2, 4, offset=100)])
    assert np.array_equal(unpack(second.experts), expected), "an id keeps the experts that it was first read with"


def test_calls_without_a_record_are_gaps() -> None:
    calls = [
        TokenCall(0, (1, 2), (3,), (-1.0,)),
        TokenCall(3, (4,), (5,), (-1.0,), experts=pack(numbered(2, 4))),
        TokenCall(5, (6,), (7,), (-1.0,)),
    ]
    (row,) = rows_of_calls(calls, episode_id="e", group_id="g")
    fresh = numbered(2, 4)
    expected = np.concatenate([unrecorded(2, like=fresh), fresh, unrecorded(2, like=fresh)])
    assert np.array_equal(unpack(row.experts), expected)


def test_experts_of_another_number_of_positions_or_another_model_are_refused() -> None:
    with pytest.raises(TrajectoryError, match="the record is damaged"):
        list(expand([TokenCall(0, (1, 2), (3,), (-1.0,), experts=pack(numbered(0, 3)))]))
    calls = [
        TokenCall(0, (1, 2), (3,), (-1.0,), experts=pack(numbered(0, 2))),
        TokenCall(3, (4,), (5,), (-1.0,), experts=pack(numbered(2, 4, layers=3))),
    ]
    with pytest.raises(TrajectoryError, match="the record is damaged"):
        list(expand(calls))


def test_what_has_no_experts_is_written_as_before() -> None:
    assert "experts" not in TokenCall(0, (1,), (2,), (-1.0,)).to_extra()["sampled"]
    assert "experts" not in to_line(TrainingRow([1, 2], [0, 1], [0.0, -1.0], "e", "g"))
    call = TokenCall(0, (1,), (2,), (-1.0,), experts=pack(numbered(0, 1)))
    assert TokenCall.from_extra(call.to_extra()) == call
