"""Rubrics: the score they make of their criteria, and the files they are read from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.train.experimental.judge.rubric import DEFAULT_RUBRIC, Criterion, Rubric, load_rubric


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(0, 3))
def test_a_score_lies_between_zero_and_one(coverage: int, focus: int) -> None:
    score = DEFAULT_RUBRIC.score({"coverage": coverage, "focus": focus})
    assert score == pytest.approx((2 * coverage + focus) / 9)
    assert (score == 0) == (coverage == focus == 0)
    assert (score == 1) == (coverage == focus == 3)


def test_a_range_need_not_begin_at_zero() -> None:
    rubric = Rubric((Criterion("a", "?", low=1, high=5), Criterion("b", "?", low=-1, high=1, weight=3)))
    assert rubric.score({"a": 3, "b": 1}) == pytest.approx((0.5 + 3) / 4)
    assert rubric.problem({"a": 0, "b": 1}) == (
        "a score is out of range",
        "the score of 'a' must be from 1 to 5; got 0",
    )
    assert rubric.problem({"a": 1}) == ("a score is missing", "there is no score for 'b'")
    assert rubric.problem({"a": 1, "b": float("nan")}) is not None
    assert rubric.problem({"a": 5, "b": -1}) is None


def test_a_rubric_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text('[[criteria]]\nname = "fit"\nasks = "Does it fit?"\nhigh = 4\n')
    rubric = load_rubric(path)
    assert rubric == Rubric((Criterion("fit", "Does it fit?", 0, 4),))
    assert rubric.words() == "- fit (0 to 4): Does it fit?"
    assert rubric.digest != DEFAULT_RUBRIC.digest
    assert load_rubric(None) is DEFAULT_RUBRIC


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no criteria"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nhihg = 3', "unknown key 'hihg'"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nhigh = 0', "a high value above its low value"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nhigh = 2.5', "high: Input should be a valid integer"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nlow = false', "low: Input should be a valid integer"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nweight = "2"', "weight: Input should be a valid number"),
        ('[[criteria]]\nname = 3\nasks = "?"', "name: Input should be a valid string"),
        ('[[criteria]]\nname = "a"\nasks = "?"\nweight = nan', "a positive weight"),
        ('[[criteria]]\nname = "a"\nasks = "?"\n[[criteria]]\nname = "A"\nasks = "?"', "different names"),
        ("criteria = 3", "rubric"),
        ("no toml", "rubric"),
    ],
)
def test_an_invalid_rubric_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rubric.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_rubric(tmp_path / "rubric.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the rubric"):
        load_rubric(tmp_path / "absent.toml")
