"""The quality stage: what goes says why, what stays is labelled, and a rerun does nothing twice."""

import json

import pytest

from context_agent import BridgePolicy, MemoryCorpus, ScriptedPolicy
from context_agent.errors import ConfigError, PolicyError
from context_agent.synth_data.passes import Trial, attempts
from context_agent.synth_data.quality import filter_tasks
from context_agent.synth_data.stages import dropped_path
from context_agent.synth_data.task_file import load_tasks
from tests import actions
from tests.conftest import made_documents
from tests.synth_data.tasks import task

EASY = task("easy", "d7", question="SENTINEL-0007 closes the entry")
HARD = task("hard", "d9", question="zzz qqq xxx")
TASKS = [
    EASY,
    task("again", "d7", question="SENTINEL-0007 closes the entry!"),
    task("none", question="Who?"),
    task("missing", "d7", "gone", question="What is gone?"),
    task("other", "d8", question="What does Entry 8 cite?"),
]


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(made_documents())


def reasons(out):
    rows = [json.loads(line) for line in dropped_path(out).read_text(encoding="utf-8").splitlines()]
    return {row["input"]["id"]: row["reason"] for row in rows}


async def test_each_dropped_task_has_its_reason(corpus, tmp_path):
    out = tmp_path / "kept.jsonl"
    report = await filter_tasks(TASKS, corpus, out)
    assert [one.id for one in load_tasks(out)] == ["easy", "other"]
    assert reasons(out) == {"again": "near-duplicate", "none": "no gold", "missing": "gold not in the index"}
    assert report.dropped == {"gold not in the index": 1, "near-duplicate": 1, "no gold": 1}
    assert all(0 <= one.labels["difficulty"]["score"] <= 1 for one in load_tasks(out))


async def test_duplicates_stay_where_asked(corpus, tmp_path):
    await filter_tasks(TASKS, corpus, tmp_path / "kept.jsonl", likeness=None)
    assert [one.id for one in load_tasks(tmp_path / "kept.jsonl")] == ["easy", "again", "other"]


async def test_attempts_drop_the_trivial_and_the_hopeless(corpus, tmp_path):
    trial = Trial(attempts(corpus, BridgePolicy(), 2, "effort"), "effort", k=1)
    out = tmp_path / "kept.jsonl"
    await filter_tasks([EASY, HARD], corpus, out, trial=trial)
    assert reasons(out) == {"easy": "always solved", "hard": "never solved"}
    trial = Trial(trial.attempts, "effort", k=1, drop=frozenset({"never"}))
    await filter_tasks([EASY, HARD], corpus, tmp_path / "other.jsonl", trial=trial)
    (kept,) = load_tasks(tmp_path / "other.jsonl")
    assert kept.labels["passes"]["solved"] == 2
    assert kept.labels["difficulty"]["misses"] == 0


async def test_a_rerun_asks_again_only_where_the_policy_failed(corpus, tmp_path):
    asked = []

    class Faulty(ScriptedPolicy):
        down = True

        def open(self, question, corpus, *, profile, seed=0):
            asked.append(question)
            if self.down and question == HARD.question:
                raise PolicyError("the server is down")
            return super().open(question, corpus, profile=profile, seed=seed)

    policy = Faulty([actions.search("entry"), actions.rank_all])
    trial = Trial(attempts(corpus, policy, 1, "seed"), "seed", drop=frozenset())
    out = tmp_path / "kept.jsonl"
    report = await filter_tasks([EASY, HARD], corpus, out, trial=trial)
    assert report.dropped == {"failed: PolicyError": 1}
    assert [one.id for one in load_tasks(out)] == ["easy"]
    policy.down = False
    report = await filter_tasks([EASY, HARD], corpus, out, trial=trial)
    assert (report.kept, report.resumed) == (2, 1)
    assert asked == [EASY.question, HARD.question, HARD.question]


async def test_other_settings_are_not_mixed_into_a_run(corpus, tmp_path):
    await filter_tasks([EASY], corpus, tmp_path / "kept.jsonl")
    with pytest.raises(ConfigError, match="likeness"):
        await filter_tasks([EASY], corpus, tmp_path / "kept.jsonl", likeness=0.5)


async def test_near_duplicates_are_those_of_the_rows_as_they_stand_now(corpus, tmp_path):
    out = tmp_path / "kept.jsonl"
    await filter_tasks(TASKS, corpus, out)
    again = [TASKS[1], *TASKS[2:], TASKS[0]]
    report = await filter_tasks(again, corpus, out)
    assert [one.id for one in load_tasks(out)] == ["again", "other"]
    assert reasons(out)["easy"] == "near-duplicate"
    assert report.resumed == 3, "the two that changed places were judged anew"
    fresh = tmp_path / "fresh.jsonl"
    await filter_tasks(again, corpus, fresh)
    assert out.read_bytes() == fresh.read_bytes()
    assert dropped_path(out).read_bytes() == dropped_path(fresh).read_bytes()
