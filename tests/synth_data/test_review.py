"""Judgements: how they are read, which problems are reported, and what they decide."""

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


def write_rows(path, *rows):
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def verdict_row(name, verdict="accept", **fields):
    return {"task": name, "verdict": verdict, **fields}


def test_the_judge_is_named_in_the_row_or_by_the_file(tmp_path):
    file = write_rows(
        tmp_path / "ben.jsonl", verdict_row("a", judge="Ann"), verdict_row("b", "reject"), verdict_row("c", judge="  ")
    )
    judgements = load_judgements([file], {"a", "b", "c"})
    assert judgements.verdicts == {"Ann": {"a": True}, "ben": {"b": False, "c": True}}
    assert not judgements.problems


def test_an_unknown_task_is_told_and_passed_over(tmp_path):
    file = write_rows(tmp_path / "ann.jsonl", verdict_row("a"), verdict_row("gone"))
    judgements = load_judgements([file], {"a"})
    assert judgements.counts == {"unknown": 1}
    assert judgements.problems == [f"{file}:2: task 'gone' is not among those reviewed"]


def test_a_judge_who_judges_twice_changed_their_mind(tmp_path):
    first = write_rows(tmp_path / "one.jsonl", verdict_row("a", judge="ann"), verdict_row("b", judge="ann"))
    second = write_rows(tmp_path / "two.jsonl", verdict_row("a", "reject", judge="ann"), verdict_row("a", judge="ben"))
    judgements = load_judgements([first, second], {"a", "b"})
    assert judgements.verdicts == {"ann": {"a": False, "b": True}, "ben": {"a": True}}
    assert judgements.counts == {"changed": 1}
    assert "ann judged 'a' twice; the later verdict counts" in judgements.problems[0]


def test_what_is_no_judgement_is_told_with_its_line(tmp_path):
    bad_lines = ["{broken", "[]", '{"verdict": "accept"}', '{"task": 3, "verdict": "accept"}']
    bad_lines += ['{"task": "a", "verdict": "maybe"}', '{"task": "a", "verdict": ["accept"]}']
    file = write_rows(tmp_path / "ann.jsonl", "", *bad_lines, verdict_row("a"))
    judgements = load_judgements([file], {"a"})
    assert judgements.counts == {"bad": 6}
    assert judgements.problems[0].startswith(f"{file}:2: ")
    assert judgements.verdicts == {"ann": {"a": True}}


def test_a_comment_alone_decides_nothing(tmp_path):
    file = write_rows(tmp_path / "ann.jsonl", verdict_row("a", None, comment="hm"), verdict_row("b", comment="fine"))
    judgements = load_judgements([file], {"a", "b"})
    assert judgements.verdicts == {"ann": {"b": True}}
    assert judgements.counts == {"undecided": 1}
    (a, b), rejected = apply_judgements([task("a"), task("b")], judgements)
    assert not rejected
    assert a.labels["review"] == {"accepted": [], "rejected": [], "comments": {"ann": "hm"}}
    assert b.labels["review"] == {"accepted": ["ann"], "rejected": [], "comments": {"ann": "fine"}}


def test_files_without_a_judgement_on_these_tasks_are_refused(tmp_path):
    with pytest.raises(DataError, match="not among those reviewed"):
        load_judgements([write_rows(tmp_path / "ann.jsonl", verdict_row("gone"))], {"a"})
    with pytest.raises(DataError, match="none of these tasks has a judgement"):
        load_judgements([write_rows(tmp_path / "empty.jsonl")], {"a"})
    with pytest.raises(DataError, match="cannot be read"):
        load_judgements([tmp_path / "none.jsonl"], {"a"})
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        load_judgements([tmp_path / "latin"], {"a"})


def test_one_rejection_or_half_of_them():
    verdicts = {"ann": {"a": True, "b": False}, "ben": {"a": True, "b": True}, "cem": {"a": False}}
    tasks = [task("a"), task("b"), task("c")]
    accepted, rejected = apply_judgements(tasks, Judgements(verdicts=verdicts))
    assert ([item.id for item in accepted], [item.id for item in rejected]) == (["c"], ["a", "b"])
    accepted, rejected = apply_judgements(tasks, Judgements(verdicts=verdicts), "majority")
    assert ([item.id for item in accepted], [item.id for item in rejected]) == (["a", "c"], ["b"])
    assert accepted[0].labels["review"]["rejected"] == ["cem"]
    assert accepted[1] == task("c")


# Krippendorff, Computing Krippendorff's alpha-reliability (2011): sections B (two observers) and C (four).
OBSERVERS_B = ("0100000010", "1110010000")
OBSERVERS_C = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")


def units(observers):
    return [[value for value in column if value != "."] for column in zip(*observers, strict=True)]


def test_alpha_is_that_of_the_published_examples():
    assert krippendorff_alpha(units(OBSERVERS_B)) == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha(units(OBSERVERS_C)) == pytest.approx(0.743, abs=5e-4)


def test_kappa_is_that_of_the_contingency_table():
    """Cohen (1960): agreement .70 where chance gives .50, then agreement .60 where chance gives .54 and .46."""
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
    small_sample, large_sample = (
        estimate([True, True, True, False] * n, equal := lambda verdicts: sum(verdicts) / len(verdicts), 0)
        for n in (5, 100)
    )
    assert small_sample.low < small_sample.value == 0.75 < small_sample.high
    assert large_sample.high - large_sample.low < 0.5 * (small_sample.high - small_sample.low)
    assert estimate([True, False] * 9, equal, 0) == estimate([True, False] * 9, equal, 0)
    assert "0.750 [" in str(small_sample)
    assert "undefined (n = 0)" in str(estimate([], cohen_kappa, 0))


def test_judges_pairs_and_the_verification():
    tasks = [f"t{number}" for number in range(10)]
    verification = {name: number < 8 for number, name in enumerate(tasks)}
    ann = {name: number < 7 for number, name in enumerate(tasks)}
    ben = {name: number < 8 for number, name in enumerate(tasks[:9])}
    agreement = measure_agreement({"ben": ben, "ann": ann}, verification)
    assert list(agreement.judges) == ["ann", "ben"]
    assert (agreement.judges["ann"].judged, agreement.judges["ann"].accepted) == (10, 7)
    assert agreement.judges["ann"].verification.value == pytest.approx(0.9)
    assert agreement.judges["ben"].verification.value == 1
    assert agreement.judges["ben"].kappa.value == 1
    assert agreement.equal["ann, ben"].value == pytest.approx(8 / 9)
    assert agreement.equal["ann, ben"].n == 9
    assert agreement.kappa["ann, ben"].value == pytest.approx(0.609, abs=1e-3)
    assert agreement.alpha.n == 9


def test_one_judge_alone_has_no_pair():
    agreement = measure_agreement({"ann": {"t": True}}, {"t": True})
    assert agreement.kappa == {}
    assert agreement.alpha.value is None
    assert agreement.judges["ann"].accept_rate.value == 1
