"""Judgements: what is taken, what is told, and what they decide."""

import json

import pytest

from context_agent.errors import DataError
from context_agent.synth_data.review import (
    Judgements,
    apply_judgements,
    cohen_kappa,
    equal_share,
    estimate,
    krippendorff_alpha,
    load_judgements,
    measure_agreement,
)
from tests.synth_data.tasks import task


def written(path, *rows):
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def said(name, verdict="accept", **fields):
    return {"task": name, "verdict": verdict, **fields}


def test_the_judge_is_named_in_the_row_or_by_the_file(tmp_path):
    file = written(tmp_path / "ben.jsonl", said("a", judge="Ann"), said("b", "reject"), said("c", judge="  "))
    judgements = load_judgements([file], {"a", "b", "c"})
    assert judgements.verdicts == {"Ann": {"a": True}, "ben": {"b": False, "c": True}}
    assert not judgements.problems


def test_an_unknown_task_is_told_and_passed_over(tmp_path):
    file = written(tmp_path / "ann.jsonl", said("a"), said("gone"))
    judgements = load_judgements([file], {"a"})
    assert judgements.counts == {"unknown": 1}
    assert judgements.problems == [f"{file}:2: task 'gone' is not among those reviewed"]


def test_a_judge_who_judges_twice_changed_their_mind(tmp_path):
    first = written(tmp_path / "one.jsonl", said("a", judge="ann"), said("b", judge="ann"))
    second = written(tmp_path / "two.jsonl", said("a", "reject", judge="ann"), said("a", judge="ben"))
    judgements = load_judgements([first, second], {"a", "b"})
    assert judgements.verdicts == {"ann": {"a": False, "b": True}, "ben": {"a": True}}
    assert judgements.counts == {"changed": 1}
    assert "ann judged 'a' twice; the later verdict counts" in judgements.problems[0]


def test_what_is_no_judgement_is_told_with_its_line(tmp_path):
    bad = ["{broken", "[]", '{"verdict": "accept"}', '{"task": 3, "verdict": "accept"}']
    bad += ['{"task": "a", "verdict": "maybe"}', '{"task": "a", "verdict": ["accept"]}']
    file = written(tmp_path / "ann.jsonl", "", *bad, said("a"))
    judgements = load_judgements([file], {"a"})
    assert judgements.counts == {"bad": 6}
    assert judgements.problems[0].startswith(f"{file}:2: ")
    assert judgements.verdicts == {"ann": {"a": True}}


def test_a_comment_alone_decides_nothing(tmp_path):
    file = written(tmp_path / "ann.jsonl", said("a", None, comment="hm"), said("b", comment="fine"))
    judgements = load_judgements([file], {"a", "b"})
    assert judgements.verdicts == {"ann": {"b": True}}
    assert judgements.counts == {"undecided": 1}
    (a, b), rejected = apply_judgements([task("a"), task("b")], judgements)
    assert not rejected
    assert a.labels["review"] == {"accepted": [], "rejected": [], "comments": {"ann": "hm"}}
    assert b.labels["review"] == {"accepted": ["ann"], "rejected": [], "comments": {"ann": "fine"}}


def test_files_without_a_judgement_on_these_tasks_are_refused(tmp_path):
    with pytest.raises(DataError, match="not among those reviewed"):
        load_judgements([written(tmp_path / "ann.jsonl", said("gone"))], {"a"})
    with pytest.raises(DataError, match="none of these tasks has a judgement"):
        load_judgements([written(tmp_path / "empty.jsonl")], {"a"})
    with pytest.raises(DataError, match="cannot be read"):
        load_judgements([tmp_path / "none.jsonl"], {"a"})
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        load_judgements([tmp_path / "latin"], {"a"})


def test_one_rejection_or_half_of_them():
    verdicts = {"ann": {"a": True, "b": False}, "ben": {"a": True, "b": True}, "cem": {"a": False}}
    tasks = [task("a"), task("b"), task("c")]
    kept, rejected = apply_judgements(tasks, Judgements(verdicts=verdicts))
    assert ([item.id for item in kept], [item.id for item in rejected]) == (["c"], ["a", "b"])
    kept, rejected = apply_judgements(tasks, Judgements(verdicts=verdicts), "majority")
    assert ([item.id for item in kept], [item.id for item in rejected]) == (["a", "c"], ["b"])
    assert kept[0].labels["review"]["rejected"] == ["cem"]
    assert kept[1] == task("c")


# Krippendorff, Computing Krippendorff's alpha-reliability (2011): sections B (two observers) and C (four).
OBSERVERS_B = ("0100000010", "1110010000")
OBSERVERS_C = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")


def units(observers):
    return [[value for value in column if value != "."] for column in zip(*observers, strict=True)]


def test_alpha_is_that_of_the_published_examples():
    assert krippendorff_alpha(units(OBSERVERS_B)) == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha(units(OBSERVERS_C)) == pytest.approx(0.743, abs=5e-4)


def test_kappa_is_that_of_the_contingency_table():
    """Cohen (1960): agreement .70 where chance gives .50, and the same share of agreement with less of it by chance."""
    table = {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.4)
    table = {(True, True): 45, (True, False): 15, (False, True): 25, (False, False): 15}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.1304, abs=5e-5)
    table = {(True, True): 25, (True, False): 35, (False, True): 5, (False, False): 35}
    assert cohen_kappa([pair for pair, count in table.items() for _ in range(count)]) == pytest.approx(0.2593, abs=5e-5)


def test_nothing_to_vary_is_undefined_and_not_perfect():
    assert cohen_kappa([(True, True)] * 10) is None
    assert cohen_kappa([]) is None
    assert krippendorff_alpha([[True, True]] * 10) is None
    assert krippendorff_alpha([[True], [False]]) is None
    assert equal_share([]) is None


def test_complete_disagreement_is_below_chance():
    assert cohen_kappa([(True, False), (False, True)] * 5) == -1
    assert krippendorff_alpha([[True, False]] * 5) < 0


def test_an_interval_holds_its_value_and_narrows_with_more_tasks():
    few, many = (estimate([True, True, True, False] * n, equal := lambda v: sum(v) / len(v), 0) for n in (5, 100))
    assert few.low < few.value == 0.75 < few.high
    assert many.high - many.low < 0.5 * (few.high - few.low)
    assert estimate([True, False] * 9, equal, 0) == estimate([True, False] * 9, equal, 0)
    assert "0.750 [" in str(few)
    assert "undefined (n = 0)" in str(estimate([], cohen_kappa, 0))


def test_judges_pairs_and_the_verification():
    tasks = [f"t{at}" for at in range(10)]
    verified = {name: at < 8 for at, name in enumerate(tasks)}
    ann = {name: at < 7 for at, name in enumerate(tasks)}
    ben = {name: at < 8 for at, name in enumerate(tasks[:9])}
    result = measure_agreement({"ben": ben, "ann": ann}, verified)
    assert list(result.judges) == ["ann", "ben"]
    assert (result.judges["ann"].judged, result.judges["ann"].accepted) == (10, 7)
    assert result.judges["ann"].verification.value == pytest.approx(0.9)
    assert result.judges["ben"].verification.value == 1
    assert result.judges["ben"].kappa.value == 1
    assert result.equal["ann, ben"].value == pytest.approx(8 / 9)
    assert result.equal["ann, ben"].n == 9
    assert result.kappa["ann, ben"].value == pytest.approx(0.609, abs=1e-3)
    assert result.alpha.n == 9


def test_one_judge_alone_has_no_pair():
    result = measure_agreement({"ann": {"t": True}}, {"t": True})
    assert result.kappa == {}
    assert result.alpha.value is None
    assert result.judges["ann"].accept_rate.value == 1
