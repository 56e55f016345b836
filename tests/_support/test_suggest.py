"""A typo is answered with the nearest name, other settings with what was and what is."""

from __future__ import annotations

from context_agent._support.suggest import MAX_LISTED, closest, differing_settings, listed_changes, suggestion


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    assert closest("lerning_rate", ["learning_rate", "loss"]) == "learning_rate"
    assert suggestion("lerning_rate", ["learning_rate", "loss"]) == "Did you mean 'learning_rate'?"


def test_a_name_like_no_other_is_answered_with_the_choices() -> None:
    assert closest("zzz", ["b", "a"]) is None
    assert suggestion("zzz", ["b", "a"]) == "Choose from a, b."
    names = [f"name{number:03d}" for number in range(MAX_LISTED + 5)]
    assert suggestion("zzz", names).endswith("name019 and 5 more.")


def test_settings_that_differ_are_named_by_dotted_key() -> None:
    before = {"loss": {"kind": "grpo", "cap": 4.0}, "seed": 1}
    assert differing_settings(before, before) == []
    assert differing_settings(before, {"loss": {"kind": "cispo", "cap": 4.0}, "window": [1024]}) == [
        "loss.kind was 'grpo' and is 'cispo'",
        "seed was 1 and is None",
        "window was None and is [1024]",
    ]


def test_a_message_on_changed_settings_stays_short() -> None:
    before = {"prompt": "Find the passages. " * 100, **{f"setting{number}": 1 for number in range(9)}}
    changes = differing_settings(before, {**dict.fromkeys(before, 2)})
    assert len(changes) == 10
    text = listed_changes(changes)
    assert text.startswith("prompt was 'Find the passages.")
    assert text.endswith("setting3 was 1 and is 2, and 5 more")
    assert len(text) < 300
    assert listed_changes(changes[1:2]) == "setting0 was 1 and is 2"


def test_of_long_values_the_part_that_differs_is_shown() -> None:
    prompt = "Find the passages. " * 100
    (change,) = differing_settings({"prompt": f"{prompt}Rank them."}, {"prompt": f"{prompt}Read them. {prompt}"})
    assert "Rank them.' and is …" in change
    assert "Read them. Find" in change
    assert len(change) < 200
    (change,) = differing_settings({"prompt": prompt}, {"prompt": f"A{prompt}"})
    assert change.startswith("prompt was 'Find the")
    assert "and is 'AFind" in change
