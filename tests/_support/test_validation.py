"""One formatter says what pydantic found, without the wrong values."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from context_agent._support.validation import explain


class Inner(BaseModel):
    count: int


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: list[Inner]
    name: str = ""


def problem_of(data: object, **options: int) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(data)
    return explain(caught.value, whole="the body", **options)


def test_a_field_is_named_by_its_path() -> None:
    assert problem_of({"inner": [{"count": 1}, {"count": "x"}]}).startswith("inner.1.count: ")


def test_a_problem_without_a_field_names_the_whole() -> None:
    assert problem_of(7).startswith("the body: ")


def test_the_first_problems_are_named_and_the_others_counted() -> None:
    text = problem_of({"inner": [{} for _ in range(9)]})
    assert text.count("count: ") == 3
    assert text.endswith("(6 more)")
    assert problem_of({"inner": [{} for _ in range(9)]}, limit=9).count("count: ") == 9


def test_a_wrong_value_is_not_repeated_and_a_long_name_is_cut() -> None:
    text = problem_of({"inner": [], "name": ["sk-secret"], "x" * 5_000: 1})
    assert "sk-secret" not in text
    assert len(text) < 300
