"""A folder of trajectories: complete, resumable, and the same bytes even after failures and kills.

Recorded trajectories checked against today's corpus: counts by cause, unreadable files, and a folder to train on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Action, Document, MemoryCorpus, RankedId, ScriptedPolicy, SearchAgent
from context_agent.budget import Budget
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.eval.rerun import Cause
from context_agent.harness.profile import default
from context_agent.harness.trajectory_file import read
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.scripted_server import fails, rank_seen, says
from context_agent.policies.scripted import rank_view
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.synth_data.demonstrations.experts import instructed_expert, oracle_expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.player import DemonstrationSettings, file_name
from context_agent.synth_data.demonstrations.replayed_files import ReplaySummary, check_files, trajectory_files
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.demonstrations.selection import ReplayRow, write_selection
from context_agent.synth_data.task import load_tasks
from context_agent.testing.actions import search
from context_agent.testing.documents import linked_documents
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.rows import demonstrated_rows
from tests.support.chatting import serving
from tests.support.tasks import task

SMALL = DemonstrationSettings(budget=Budget(2048), expert="oracle")


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(linked_documents(), embedder=HashEmbedder())


def tasks(count=8):
    """Tasks that each ask for an entry and the entry that it cites."""
    return [
        task(f"t{n}", f"d{n}", f"d{n * 7 % 60}", question=f"What does the entry cited by SENTINEL-{n:04d} tell?")
        for n in range(1, count + 1)
    ]


def play(folder, corpus, asked=None, expert=None, settings=SMALL):
    expert = expert or oracle_expert(profile=default())
    return asyncio.run(make_demonstrations(tasks() if asked is None else asked, corpus, expert, folder, settings))


def files(folder):
    """The bytes of a run's files by path. Journals are left out: their order is the order of completion."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".journal"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def read_rows(folder, name="trajectories.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


class Counting:
    """The oracle, which counts the episodes that it opens. It fails from the `failing`th episode on."""

    def __init__(self, failing=None):
        self.opened = 0
        self._failing = failing
        self._oracle = oracle_expert(profile=default())

    def __call__(self, gold):
        self.opened += 1
        if self._failing is not None and self.opened >= self._failing:
            raise PolicyError("the server is gone")
        return self._oracle(gold)


def test_what_is_kept_is_listed_and_can_be_taught(tmp_path, corpus):
    report = play(tmp_path, corpus)
    rows = read_rows(tmp_path)
    assert report.episodes == 8
    assert len(rows) == sum(report.kept.values()) > 4
    assert {row["file"] for row in rows} == {path.name for path in (tmp_path / "kept").iterdir()}
    for row in rows:
        trajectory = read(tmp_path / "kept" / row["file"])
        trajectory.verify()
        assert trajectory.header.question_id == row["task"]
        assert trajectory.header.policy == row["expert"]
        assert trajectory.end.turns == row["turns"]
        assert demonstrated_rows(trajectory, HarmonyRenderer())
        assert {"trajectory_recall", "output_recall", "tokens"} <= set(row)
    assert json.loads((tmp_path / "report.json").read_text())["kept"] == report.kept


def test_the_tasks_of_kept_episodes_are_a_file_of_questions_for_rewards(tmp_path, corpus):
    oracle = oracle_expert(profile=default())

    def expert(gold):
        fails = "d3" in gold.documents
        return ScriptedPolicy([Action(ranking=(RankedId("d40"),))]) if fails else oracle(gold)

    missing = task("t1", "nowhere", question="Which entry is missing?")
    report = play(tmp_path, corpus, [*tasks(), missing], expert, replace(SMALL, rollouts=2))
    assert report.unplayed
    assert report.failure == "missing: nowhere"
    assert load_tasks(tmp_path / "tasks.jsonl") == [item for item in tasks() if item.id != "t3"]


def test_a_task_without_a_question_is_not_played(tmp_path, corpus):
    report = play(tmp_path, corpus, [*tasks(1), task("t9", "d9", question=" ")])
    assert report.unplayed == {"no question": 1}


def test_equal_runs_give_equal_bytes_whatever_the_concurrency(tmp_path, corpus):
    play(tmp_path / "a", corpus)
    play(tmp_path / "b", corpus, settings=replace(SMALL, concurrency=1))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_run_that_failed_half_way_goes_on(tmp_path, corpus):
    play(tmp_path / "whole", corpus)
    failing = Counting(failing=5)
    report = play(tmp_path / "broken", corpus, expert=failing)
    assert (report.unplayed, report.failure) == ({"failed: PolicyError": 4}, "the server is gone")
    assert report.episodes == 4
    second = Counting()
    report = play(tmp_path / "broken", corpus, expert=second)
    assert second.opened == 4, "no finished episode is played again"
    assert report.resumed == 4
    uninterrupted, resumed = files(tmp_path / "whole"), files(tmp_path / "broken")
    assert uninterrupted == resumed
    third = Counting()
    play(tmp_path / "broken", corpus, expert=third)
    assert third.opened == 0


def test_a_lost_or_cut_file_is_played_again(tmp_path, corpus):
    play(tmp_path, corpus)
    before = files(tmp_path)
    lost_file, cut_file, *_ = sorted((tmp_path / "kept").iterdir())
    lost_file.unlink()
    cut_file.write_bytes(cut_file.read_bytes()[:300])
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "t1-0.jsonl.partial").write_text("{")
    expert = Counting()
    report = play(tmp_path, corpus, expert=expert)
    assert expert.opened == report.again == 2
    after = files(tmp_path)
    assert before == after


def test_other_filters_sort_the_same_episodes_anew(tmp_path, corpus):
    play(tmp_path, corpus)
    kept_files = {row["file"] for row in read_rows(tmp_path)}
    strict = replace(
        SMALL, filters=DemonstrationFilters(max_mistakes=0, min_output_recall=1.0, low_rate=0.0, max_zero_share=0.0)
    )
    expert = Counting()
    report = play(tmp_path, corpus, expert=expert, settings=strict)
    assert expert.opened == 0
    assert sum(report.kept.values()) == 0
    assert {path.name for path in (tmp_path / "dropped").iterdir()} >= kept_files
    assert {row["reason"] for row in read_rows(tmp_path, "dropped.jsonl")} <= {"low", "zero", "lost", "malformed"}
    play(tmp_path, corpus)
    assert {row["file"] for row in read_rows(tmp_path)} == kept_files


def test_dropped_files_can_be_left_out_and_are_not_missed(tmp_path, corpus):
    strict = DemonstrationFilters(min_output_recall=1.0, low_rate=0.0)
    settings = replace(SMALL, filters=strict, keep_dropped=False)
    play(tmp_path, corpus, settings=settings)
    assert not list((tmp_path / "dropped").iterdir())
    expert = Counting()
    play(tmp_path, corpus, expert=expert, settings=settings)
    assert expert.opened == 0
    report = play(tmp_path, corpus, expert=expert)
    assert expert.opened == report.again == sum(report.kept.values()), "what is to be kept after all is played again"


def test_the_tasks_of_another_run_stay_in_the_folder_and_out_of_the_list(tmp_path, corpus):
    play(tmp_path, corpus)
    all_kept = {row["file"] for row in read_rows(tmp_path)}
    play(tmp_path, corpus, asked=tasks()[:2])
    assert (
        {path.name for path in (tmp_path / "kept").iterdir()} == {row["file"] for row in read_rows(tmp_path)} < all_kept
    )
    expert = Counting()
    play(tmp_path, corpus, expert=expert)
    assert expert.opened == 0
    assert {row["file"] for row in read_rows(tmp_path)} == all_kept


def test_a_task_that_changed_is_another(tmp_path, corpus):
    play(tmp_path, corpus, asked=tasks()[:2])
    changed = [replace(tasks()[0], gold=("d1", "d9")), tasks()[1]]
    expert = Counting()
    play(tmp_path, corpus, asked=changed, expert=expert)
    assert expert.opened == 1


@pytest.mark.parametrize("name", ["問" * 300, "../" * 100, "a\ud800\0b", "..", ""])
def test_a_task_s_id_may_be_any_text(name):
    file = file_name(task(name, "d1"), 12)
    assert len(file.encode()) < 150
    assert "/" not in file
    assert file != file_name(task(name + "?", "d1"), 12)


def test_a_folder_begun_otherwise_is_refused(tmp_path, corpus):
    play(tmp_path, corpus, asked=tasks()[:1])
    with pytest.raises(ConfigError, match="seed was 0 and is 5"):
        play(tmp_path, corpus, asked=tasks()[:1], settings=replace(SMALL, seed=5))


def test_bad_tasks_cost_themselves_alone(tmp_path, corpus):
    mixed_tasks = [
        tasks()[0],
        task("none"),
        task("elsewhere", "d1", "nowhere"),
        task("long", "d1", question="What is told of rivers and bridges? " * 400),
        task("blank", "d1", question="  "),
    ]
    report = play(tmp_path, corpus, asked=mixed_tasks)
    assert report.episodes == 1
    failures = {"gold is not in the index": 1, "no gold": 1, "no question": 1, "the question does not fit": 1}
    assert report.unplayed == failures
    dropped = read_rows(tmp_path, "episodes.jsonl.dropped.jsonl")
    assert any("nowhere" in row["detail"] for row in dropped)
    with pytest.raises(DataError, match="no tasks"):
        play(tmp_path / "empty", corpus, asked=[])


def test_an_expert_that_ranks_nothing_it_saw_is_dropped_as_malformed(tmp_path, corpus):
    expert = instructed_expert(ScriptedPolicy([search("rivers"), Action(text="Done.")]))
    report = play(tmp_path, corpus, expert=expert, settings=DemonstrationSettings(expert="s"))
    assert report.dropped["malformed"] == 8
    assert {row["stop_reason"] for row in read_rows(tmp_path, "dropped.jsonl")} == {"no_ranking"}


def test_rollouts_of_a_task_compete(tmp_path, corpus):
    lenient = DemonstrationFilters(min_trajectory_recall=0, min_output_recall=0, max_gap=0)
    settings = replace(SMALL, rollouts=3, filters=lenient)
    report = play(tmp_path, corpus, asked=tasks()[:2], settings=settings)
    assert report.episodes == 6
    assert report.kept["high"] == 2
    assert report.dropped["repeated"] == 4


def test_a_chat_expert_whose_server_fails_half_of_the_calls(tmp_path, corpus):
    """Two of four requests are refused. With retries all tasks are played; without them, reruns play the rest."""
    lock, count = threading.Lock(), iter(range(10_000))

    def unreliable(body):
        with lock:
            number = next(count)
        if number % 4 > 1:
            return fails(503, "overloaded", headers={"Retry-After": "0"})
        if not any(message["role"] == "tool" for message in body["messages"]):
            sentinel = " ".join(str(message.get("content")) for message in body["messages"]).split("SENTINEL")[-1][:5]
            return says(
                calls=[("search_corpus", {"query": f"SENTINEL{sentinel}"}), ("search_corpus", {"query": "sea"})]
            )
        return rank_seen(body)

    settings = DemonstrationSettings(concurrency=1, filters=DemonstrationFilters(low_rate=1.0, max_zero_share=1.0))
    with serving(*[unreliable] * 400) as server:
        retrying_policy = ChatPolicy("scripted", base_url=server.url, backoff=0.01, timeout=5.0)
        report = play(tmp_path / "a", corpus, expert=instructed_expert(retrying_policy), settings=settings)
        assert report.unplayed == {}
        assert report.episodes == 8
        single_try_policy = ChatPolicy("scripted", base_url=server.url, backoff=0.01, timeout=5.0, retries=0)
        reports = [
            play(tmp_path / "b", corpus, expert=instructed_expert(single_try_policy), settings=settings)
            for _ in range(12)
        ]
    assert reports[0].unplayed, "some episodes failed at first"
    assert reports[-1].episodes > reports[0].episodes, "and are tried again"
    for row in read_rows(tmp_path / "a"):
        trajectory = read(tmp_path / "a" / "kept" / row["file"])
        (*_, last_row) = demonstrated_rows(trajectory, HarmonyRenderer())
        trained_text = HarmonyRenderer().decode(
            [token for token, keep in zip(last_row.input_ids, last_row.loss_mask, strict=True) if keep]
        )
        assert "<Document id=" in trained_text


SCRIPT = """
import asyncio, sys
from pathlib import Path
from context_agent import MemoryCorpus
from context_agent.harness.profile import default
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.demonstrations.experts import oracle_expert
from context_agent.testing.documents import linked_documents
from context_agent.testing.embedders import HashEmbedder
from tests.synth_data.demonstrations import test_runs as here

class Slow:
    def __init__(self, inner): self.inner = inner
    def __call__(self, gold):
        policy = self.inner(gold)
        opened = policy.open
        def slow(*args, **options):
            actor = opened(*args, **options)
            act = actor.act
            async def late(view):
                await asyncio.sleep(0.1)
                return await act(view)
            actor.act = late
            return actor
        policy.open = slow
        return policy

corpus = MemoryCorpus(linked_documents(), embedder=HashEmbedder())
print("ready", flush=True)
expert = Slow(oracle_expert(profile=default()))
asyncio.run(make_demonstrations(here.tasks(), corpus, expert, Path(sys.argv[1]), here.SMALL))
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(tmp_path, corpus):
    play(tmp_path / "whole", corpus)
    folder = tmp_path / "killed"
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, folder], stdout=subprocess.PIPE, env=environment)
    process.stdout.readline()
    journal = folder / "episodes.jsonl.journal"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished_count = journal.read_bytes().count(b"\n") - 1
    assert finished_count > 1
    expert = Counting()
    play(folder, corpus, expert=expert)
    assert expert.opened == 8 - finished_count
    uninterrupted_files, killed_files = files(tmp_path / "whole"), files(folder)
    uninterrupted_files.pop("report.json")
    killed_files.pop("report.json")
    assert uninterrupted_files == killed_files


def test_the_policy_ranked_by_view_has_the_prompt_in_view(tmp_path, corpus):
    settings = DemonstrationSettings(
        expert="s", filters=DemonstrationFilters(low_rate=1.0, max_zero_share=1.0, max_gap=0.0)
    )
    policy = ScriptedPolicy([search("SENTINEL-0001", "rivers"), rank_view], instructed=False)
    play(tmp_path, corpus, expert=instructed_expert(policy), settings=settings)
    (row, *_) = read_rows(tmp_path)
    assert "retrieval subagent" in (tmp_path / "kept" / row["file"]).read_text()


TEXTS = {"a": "comets and their tails", "b": "gardens in spring", "c": "operas of the north"}


def make_corpus(texts: dict[str, str]) -> MemoryCorpus:
    return MemoryCorpus([Document(name, text) for name, text in texts.items()])


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with the trajectories of three searches, each of one document, and a feedback log."""
    corpus = make_corpus(TEXTS)
    for topic in ("comets", "gardens", "operas"):
        with SearchAgent(corpus, ScriptedPolicy([search(topic, limit=1)]), trajectories=tmp_path / "served") as agent:
            agent.search(f"What of {topic}?")
    (tmp_path / "served" / "feedback.jsonl").write_text('{"id": "j"}\n')
    return tmp_path / "served"


def test_each_record_is_counted_by_what_became_of_it(served: Path) -> None:
    changed_corpus = make_corpus({"a": TEXTS["a"], "b": "gardens in autumn"})
    checks = asyncio.run(check_files(trajectory_files([served]), changed_corpus))
    summary = ReplaySummary.of(checks)
    assert summary.to_json() | {"recorded_by": {}, "version": ""} == {
        "checked": 3,
        "same": 1,
        "differ": 2,
        "causes": {"chunk gone": 1, "text changed": 1},
        "recorded_by": {},
        "version": "",
    }
    assert list(summary.versions.values()) == [3]
    by_question = {check.question: check.to_json() for check in checks}
    assert by_question["What of comets?"]["same"]
    assert by_question["What of gardens?"]["cause"] == "text changed"
    assert by_question["What of operas?"]["turn"] == 0


def test_a_file_that_is_cut_or_damaged_stops_nothing(served: Path) -> None:
    cut_path, damaged_path, _ = trajectory_files([served])
    cut_path.write_bytes(cut_path.read_bytes()[:-40])
    lines = damaged_path.read_text().splitlines()
    damaged_path.write_text("\n".join([lines[0], "no json", *lines[2:]]) + "\n")
    (served / "half.jsonl").write_text('{"kind":"header","sch')
    differences = {
        check.path.name: check.difference
        for check in asyncio.run(check_files(trajectory_files([served]), make_corpus(TEXTS)))
    }
    causes = {name: None if difference is None else difference.cause for name, difference in differences.items()}
    assert causes[cut_path.name] is Cause.TORN
    assert causes[damaged_path.name] is Cause.UNSOUND
    assert causes["half.jsonl"] is Cause.UNSOUND
    assert list(causes.values()).count(None) == 1


def test_nothing_to_check_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        trajectory_files([tmp_path / "absent"])
    with pytest.raises(DataError, match="no trajectory in"):
        trajectory_files([tmp_path])


def test_a_folder_holds_what_is_kept_and_nothing_older(served: Path, tmp_path: Path) -> None:
    first, second, third = trajectory_files([served])
    folder = tmp_path / "lessons"
    write_selection(
        folder,
        [ReplayRow(first, {"x": 1}), ReplayRow(second, {})],
        [ReplayRow(third, {"reason": "r"})],
        {"kept": 2},
    )
    (folder / "kept" / "mine.jsonl").write_text("not ours\n")
    assert json.loads((folder / "dropped.jsonl").read_text()) == {"file": third.name, "reason": "r"}
    assert json.loads((folder / "trajectories.jsonl").read_text().splitlines()[0]) == {"file": first.name, "x": 1}
    write_selection(folder, [ReplayRow(second, {})], [], {"kept": 1})
    assert sorted(path.name for path in (folder / "kept").iterdir()) == sorted([second.name, "mine.jsonl"])
    assert (folder / "kept" / second.name).read_bytes() == second.read_bytes()


def test_a_folder_of_something_else_is_refused(served: Path, tmp_path: Path) -> None:
    path = trajectory_files([served])[0]
    twin = tmp_path / "twin" / path.name
    twin.parent.mkdir()
    twin.write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="2 files have the name"):
        write_selection(tmp_path / "lessons", [ReplayRow(path, {}), ReplayRow(twin, {})], [], {})
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "episodes.jsonl").write_text("")
    with pytest.raises(ConfigError, match="ctx1 synth trajectories"):
        write_selection(tmp_path / "teacher", [ReplayRow(path, {})], [], {})
