"""Splits by document: no document of a test task is used in training, and equal seeds give equal splits."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.sets.splits import CROSSING, NO_DOCUMENT, check_splits, split_tasks
from context_agent.synth_data.task import Support
from tests.support.tasks import chained, tangled, task


def documents(tasks):
    return {document for item in tasks for document in item.documents}


def test_no_document_stands_on_both_sides():
    for tasks in (chained(), tangled()):
        parts = split_tasks(tasks, "set")
        sides = [documents(part) for part in parts.splits.values()]
        assert not sides[0] & sides[1]
        assert not sides[0] & sides[2]
        assert not sides[1] & sides[2]


def test_components_stay_whole_and_shares_are_met():
    tasks = chained()
    parts = split_tasks(tasks, "set")
    assert parts.components == 40
    assert parts.largest == 5
    assert not parts.dropped
    assert {split: len(part) for split, part in parts.splits.items()} == {"train": 160, "dev": 20, "test": 20}


def test_a_giant_component_is_cut_and_what_crosses_is_dropped_and_counted():
    tasks = tangled()
    parts = split_tasks(tasks, "set")
    assert parts.largest > 0.8 * len(tasks)
    assert parts.cut >= 1
    assert Counter(reason for _, reason in parts.dropped) == {CROSSING: len(parts.dropped)}
    assert sum(map(len, parts.splits.values())) + len(parts.dropped) == len(tasks)
    assert 0.07 * len(tasks) <= len(parts.splits["test"]) <= 0.13 * len(tasks)
    assert 0.07 * len(tasks) <= len(parts.splits["dev"]) <= 0.13 * len(tasks)
    # A random assignment of documents to splits would lose every task whose two documents are separated.
    by_chance = (1 - (0.8**2 + 0.1**2 + 0.1**2)) * len(tasks)
    assert 0 < len(parts.dropped) < 0.6 * by_chance
    assert parts.spread["test"] < parts.spread["train"]


def test_the_held_out_parts_of_a_giant_have_its_mix_of_hops():
    """Tasks of one hop have the fewest neighbors. If only cost counted, a test split would consist of them."""
    draw = random.Random(0)
    tasks = [
        task(str(number), *(f"d{document_id}" for document_id in draw.sample(range(1200), hops)), hops=hops)
        for number, hops in enumerate(draw.choices([1, 2, 3, 4], k=2000))
    ]
    parts = split_tasks(tasks, "set")
    assert parts.cut == 1
    for split in ("dev", "test"):
        counter = Counter(item.hops for item in parts.splits[split])
        assert all(0.2 < counter[hops] / len(parts.splits[split]) < 0.3 for hops in (1, 2, 3, 4))


def test_a_giant_component_can_be_kept_whole():
    tasks = tangled()
    parts = split_tasks([*tasks, *chained()], "set", oversized="keep")
    assert not parts.dropped
    assert parts.cut == 0
    assert len(parts.splits["train"]) > 0.8 * (len(tasks) + 200)


def test_what_is_only_a_bridge_or_a_support_counts_too():
    tasks = [
        task("a", "d1", supporting=(Support("d1"), Support("d2"))),
        task("b", "d3", bridge="d2"),
        task("c", "d4", facts=(("d3_0", "d5_12"),)),
        task("d", "d5"),
        *(task(f"x{number}", f"x{number}") for number in range(16)),
    ]
    for seed in range(20):
        parts = split_tasks(tasks, "set", shares={"train": 0.5, "test": 0.5}, seed=seed)
        splits_used = {item.split for part in parts.splits.values() for item in part if item.id[-1] in "abcd"}
        assert len(splits_used) == 1


def test_a_fact_stands_for_the_documents_of_its_chunks():
    assert task("a", facts=(("d_1_0", "d_2_12"), ("own-id", "left_right"))).documents == {
        "d_1",
        "d_2",
        "own-id",
        "left_right",
    }


def test_equal_questions_and_copies_of_a_document_go_together():
    tasks = [
        task("a", "d1", question="Who built it?"),
        task("b", "d2", question="who built it"),
        task("c", "copy"),
        task("d", "d2"),
        *(task(f"x{number}", f"x{number}") for number in range(16)),
    ]
    for seed in range(20):
        parts = split_tasks(tasks, "set", shares={"train": 0.5, "test": 0.5}, seed=seed, duplicates={"copy": "d1"})
        assert len({item.split for part in parts.splits.values() for item in part if item.id[-1] in "abcd"}) == 1


def test_ids_are_namespaced_by_set_and_split_once():
    parts = split_tasks(chained(), "notes")
    for split, part in parts.splits.items():
        assert all(item.id.startswith(f"notes/{split}/") and item.split == split for item in part)
    resplit = split_tasks([item for part in parts.splits.values() for item in part], "notes", seed=1)
    names = {item.id.split("/", 2)[2] for part in resplit.splits.values() for item in part}
    assert names == {item.id for item in chained()}


def test_a_namespace_stays_where_ids_would_collide_without_it():
    tasks = [task("s/train/1", "d1"), task("s/test/1", "d2"), *chained()]
    ids = {
        item.id.partition("/")[2].partition("/")[2] for part in split_tasks(tasks, "s").splits.values() for item in part
    }
    assert {"s/train/1", "s/test/1"} <= ids


def test_the_seed_decides_and_nothing_else():
    tasks = tangled()
    assert split_tasks(tasks, "set") == split_tasks(list(tasks), "set")
    assert split_tasks(tasks, "set").splits != split_tasks(tasks, "set", seed=1).splits


def test_a_task_without_documents_is_dropped_with_its_reason():
    parts = split_tasks([task("none"), *chained()], "set")
    assert [(item.id, reason) for item, reason in parts.dropped] == [("none", NO_DOCUMENT)]


def test_a_split_with_a_share_of_nothing_is_not_made():
    parts = split_tasks(chained(), "set", shares={"train": 0.9, "dev": 0, "test": 0.1})
    assert list(parts.splits) == ["train", "test"]


@pytest.mark.parametrize("shares", [{"train": 0.8, "test": 0.1}, {"train": 1.2, "test": -0.2}, {"train": float("nan")}])
def test_shares_that_cannot_work_are_refused(shares):
    with pytest.raises(ConfigError, match="shares must"):
        split_tasks(chained(), "set", shares=shares)


@pytest.mark.parametrize("name", ["", "a/b", "a b"])
def test_a_name_that_would_break_the_ids_is_refused(name):
    with pytest.raises(ConfigError, match="name"):
        split_tasks(chained(), name)


def test_too_few_tasks_are_refused():
    with pytest.raises(DataError, match="3 splits need more than 2 tasks"):
        split_tasks([task("a", "d1"), task("b", "d2")], "set")
    with pytest.raises(DataError, match="0 tasks"):
        split_tasks([], "set")


def test_a_split_that_stays_empty_is_told():
    hub = [task(str(number), "hub") for number in range(50)]
    with pytest.raises(DataError, match="has no task"):
        split_tasks(hub, "set")


def test_the_last_check_finds_what_it_is_for():
    first, second = task("a", "d1"), task("b", "d1")
    with pytest.raises(DataError, match="document 'd1' is in task a"):
        check_splits({"train": [first], "test": [second]})
    with pytest.raises(DataError, match="question"):
        check_splits({"train": [first], "test": [replace(task("b", "d2"), question=first.question)]})
    with pytest.raises(DataError, match="twice"):
        check_splits({"train": [first], "test": [task("a", "d2")]})
    with pytest.raises(DataError, match="test has no task"):
        check_splits({"train": [first], "test": []})
