"""JSON without NaN and infinity."""

import json

from context_agent._support.strict_json import strict_json


def test_numbers_that_are_not_finite_are_null():
    value = {"a": [1.5, float("nan")], "b": ({"c": float("-inf")}, "NaN", float("inf")), "d": None, "e": True}
    assert json.loads(strict_json(value)) == {"a": [1.5, None], "b": [{"c": None}, "NaN", None], "d": None, "e": True}


def test_finite_values_are_written_as_json_dumps_writes_them():
    value = {"é": [1, 2.5, {"x": "y"}]}
    for options in ({}, {"ensure_ascii": False}, {"indent": 1}, {"separators": (",", ":")}):
        assert strict_json(value, **options) == json.dumps(value, **options)
