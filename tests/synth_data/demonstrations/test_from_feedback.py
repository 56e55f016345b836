"""Tasks from judgments: which documents are gold or distractors, and what is dropped for which reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from context_agent import Action, Document, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.feedback import FeedbackLog, Judgment, judgment
from context_agent.synth_data.demonstrations.feedback_demonstrations import (
    FeedbackFilters,
    FeedbackSelection,
    demonstrations_from_feedback,
)
from context_agent.synth_data.demonstrations.feedback_tasks import tasks_from_feedback
from context_agent.synth_data.demonstrations.replayed_files import ReplaySettings
from context_agent.synth_data.task import load_tasks, write_tasks
from context_agent.testing.actions import call, rank, search

LONG = "A sentence on comets. " * 400


@pytest.fixture(scope="module")
def small() -> MemoryCorpus:
    """Four documents, one of several chunks."""
    texts = {"a": "comets", "b": "gardens", "c": "operas", "long": LONG}
    return MemoryCorpus([Document(name, text) for name, text in texts.items()])


@pytest.fixture
def served(small: MemoryCorpus, tmp_path: Path) -> tuple[FeedbackLog, dict[str, str]]:
    """A log of searches for three questions, the first asked twice, and the trajectory ids by name."""
    questions = {
        "q1": "What are comets?",
        "again": " what  are COMETS?",
        "q2": "What are operas?",
        "q3": "And gardens?",
    }
    with SearchAgent(small, ScriptedPolicy([search("comets")]), trajectories=tmp_path / "kept") as agent:
        paths = {name: agent.search(question).trajectory for name, question in questions.items()}
    return FeedbackLog(tmp_path / "kept"), {name: path.stem for name, path in paths.items() if path is not None}


def vote(trajectory: str, relevant: str = "", irrelevant: str = "", user: str = "", rating: int | None = 3) -> Judgment:
    return judgment(
        trajectory=trajectory, relevant=relevant.split(), irrelevant=irrelevant.split(), user=user, rating=rating
    )


def test_a_task_is_the_question_with_what_was_judged(
    small: MemoryCorpus, served: tuple[FeedbackLog, dict[str, str]], tmp_path: Path
) -> None:
    log, ids = served
    (task,), report = tasks_from_feedback([vote(ids["q1"], "a long_1", "b", "ann", 5)], log, small)
    assert (task.question, task.answer, task.origin, task.type) == ("What are comets?", "", "feedback", "feedback")
    assert (task.gold, task.distractors) == (("a", "long"), ("b",))
    assert task.labels["feedback"] == {"trajectories": [ids["q1"]], "judges": 1, "conflicts": 0, "ratings": [5]}
    assert report.to_json() == {
        "judgments": 1,
        "tasks": 1,
        "dropped_judgments": {},
        "dropped_questions": {},
        "conflicts": 0,
        "ties": 0,
        "missing": 0,
        "replaced": 0,
    }
    write_tasks(tmp_path / "tasks.jsonl", [task])
    assert load_tasks(tmp_path / "tasks.jsonl") == [task]


def test_the_majority_decides_and_a_tie_leaves_out(
    small: MemoryCorpus, served: tuple[FeedbackLog, dict[str, str]]
) -> None:
    log, ids = served
    judgments = [
        vote(ids["q1"], "a b", "c", "ann"),
        vote(ids["again"], "a c", "b", "ben"),
        vote(ids["q1"], "a", "b", "cleo"),
    ]
    (task,), report = tasks_from_feedback(judgments, log, small)
    assert (task.gold, task.distractors) == (("a",), ("b",))
    assert (report.conflicts, report.ties) == (2, 1)
    assert task.labels["feedback"]["judges"] == 3
    assert task.labels["feedback"]["trajectories"] == [ids["q1"], ids["again"]]


def test_a_judges_later_word_replaces_the_former(
    small: MemoryCorpus, served: tuple[FeedbackLog, dict[str, str]]
) -> None:
    log, ids = served
    judgments = [vote(ids["q1"], "b", "a", "ann"), vote(ids["q1"], "a", "b", "ann")]
    (task,), report = tasks_from_feedback(judgments, log, small)
    assert (task.gold, task.distractors, report.conflicts, report.replaced) == (("a",), ("b",), 0, 2)
    anonymous = [vote(ids["q1"], "b", "a", rating=1), vote(ids["q1"], "a", "b", rating=2)]
    tasks, report = tasks_from_feedback(anonymous, log, small)
    assert (tasks, report.ties, report.replaced) == ([], 2, 0)


def test_a_document_with_a_relevant_passage_is_relevant(
    small: MemoryCorpus, served: tuple[FeedbackLog, dict[str, str]]
) -> None:
    log, ids = served
    (task,), report = tasks_from_feedback([vote(ids["q1"], "long_0", "long_1 b")], log, small)
    assert (task.gold, task.distractors, report.conflicts) == (("long",), ("b",), 0)


def test_what_is_dropped_is_counted_by_reason(small: MemoryCorpus, served: tuple[FeedbackLog, dict[str, str]]) -> None:
    log, ids = served
    judgments = [
        vote("absent", "a"),
        vote(ids["q1"], rating=2),
        vote(ids["q1"], "", "a"),
        vote(ids["q2"], "gone", "b"),
        vote(ids["q3"], "a gone gone-too"),
    ]
    (task,), report = tasks_from_feedback(judgments, log, small)
    assert (task.question, task.gold) == ("And gardens?", ("a",))
    assert report.judgments == {"the trajectory is not there": 1, "names no document": 1}
    assert report.questions == {"no document judged relevant": 1, "no relevant document is in the index": 1}
    assert (report.read, report.missing, report.missing_id) == (5, 3, "gone")


TEXTS = {"a": "comets", "b": "comets and gardens", "c": "operas"}


@pytest.fixture(scope="module")
def documents() -> MemoryCorpus:
    return MemoryCorpus([Document(name, text) for name, text in TEXTS.items()])


@pytest.fixture
def log(tmp_path: Path) -> FeedbackLog:
    return FeedbackLog(tmp_path / "served")


def serve(
    log: FeedbackLog, corpus: MemoryCorpus, *ranked: str, question: str = "comets?", first: Action | None = None
) -> str:
    """Run a search that returns these documents, and return the id of its trajectory."""
    steps = [first or search("comets", "operas"), rank(*ranked)]
    with SearchAgent(corpus, ScriptedPolicy(steps), trajectories=log.folder) as agent:
        path = agent.search(question).trajectory
    assert path is not None
    return path.stem


def judge(
    trajectory: str, relevant: str = "", irrelevant: str = "", rating: int | None = None, user: str = ""
) -> Judgment:
    return judgment(
        trajectory=trajectory,
        relevant=relevant.split(),
        irrelevant=irrelevant.split(),
        rating=rating,
        user=user,
        comment="-",
    )


def select(
    judgments: Sequence[Judgment], log: FeedbackLog, corpus: MemoryCorpus, **options: object
) -> FeedbackSelection:
    filters = options.pop("taste", None)
    return asyncio.run(demonstrations_from_feedback(judgments, log, corpus, filters, **options))  # type: ignore[arg-type]


def kept_ids(selection: FeedbackSelection) -> list[str]:
    return [item.path.stem for item in selection.kept]


def drop_reasons(selection: FeedbackSelection) -> dict[str, str]:
    return {item.path.stem: str(item.row["reason"]) for item in selection.dropped}


def test_what_is_liked_is_kept(log: FeedbackLog, documents: MemoryCorpus) -> None:
    helpful = serve(log, documents, "a", "b", question="q1")
    rated = serve(log, documents, "c", question="q2")
    selection = select([judge(helpful, "a"), judge(rated, rating=5)], log, documents)
    assert kept_ids(selection) == [helpful, rated]
    assert selection.kept[0].row == {
        "trajectory": helpful, "question": "q1", "helpful": 1, "bad": 0, "missed": 0, "rating": None, "mistakes": 0,
        "tokens": selection.kept[0].row["tokens"],
    }  # fmt: skip
    assert selection.counts() == {"judged": 2, "kept": 2, "dropped": {}}


def test_each_rule_drops_with_its_name(log: FeedbackLog, documents: MemoryCorpus) -> None:
    poor = serve(log, documents, "a", question="q1")
    bad = serve(log, documents, "a", "b", question="q2")
    nothing = serve(log, documents, "a", question="q3")
    unranked = serve(log, documents, "never-seen", question="q4")
    clumsy = serve(log, documents, "a", question="q5", first=call("no_such_tool"))
    torn = serve(log, documents, "a", question="q6")
    path = log.folder / f"{torn}.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    judgments = [
        judge(poor, "a", rating=2),
        judge(bad, "a", "b"),
        judge(nothing),
        judge(unranked, "a"),
        judge(clumsy, "a"),
        judge(torn, "a"),
        judge("absent", "a"),
        judge("../../etc/passwd", "a"),
    ]
    selection = select(judgments, log, documents, taste=FeedbackFilters(mistakes=0))
    assert not selection.kept
    reasons = drop_reasons(selection)
    assert [reasons[item] for item in (poor, bad, nothing, unranked, torn, "absent")] == [
        "poor rating", "bad documents", "nothing good", "unfinished", "torn", "unknown",
    ]  # fmt: skip
    assert reasons[clumsy] in ("mistakes", "unfinished")
    assert selection.reasons["unknown"] == 2
    assert kept_ids(select(judgments[1:2], log, documents, taste=FeedbackFilters(bad=1))) == [bad]


def test_a_verdict_holds_for_all_searches_of_the_question(log: FeedbackLog, documents: MemoryCorpus) -> None:
    first = serve(log, documents, "a", "b")
    second = serve(log, documents, "a", question=" COMETS?")
    selection = select([judge(first, "a"), judge(second, "", "b", user="ann"), judge(second, rating=4)], log, documents)
    assert kept_ids(selection) == [second]
    assert drop_reasons(selection) == {first: "bad documents"}


def test_of_several_the_better_one_stays_and_is_named(log: FeedbackLog, documents: MemoryCorpus) -> None:
    half = serve(log, documents, "a")
    whole = serve(log, documents, "a", "b")
    rated = serve(log, documents, "a", "b")
    judgments = [judge(half, "a"), judge(whole, "a b"), judge(rated, "a b", rating=5)]
    selection = select(judgments, log, documents)
    assert kept_ids(selection) == [rated]
    assert drop_reasons(selection) == {half: "another is better", whole: "another is better"}
    assert {item.row["better"] for item in selection.dropped} == {rated}
    assert kept_ids(select(judgments, log, documents, taste=FeedbackFilters(per_question=2))) == [rated, whole]
    assert len(select(judgments, log, documents, taste=FeedbackFilters(per_question=0)).kept) == 3


def test_what_todays_corpus_would_show_otherwise_is_dropped(log: FeedbackLog, documents: MemoryCorpus) -> None:
    stale, sound = (
        serve(log, documents, "a", question="q1"),
        serve(log, documents, "c", question="q2", first=search("operas", limit=1)),
    )
    changed_corpus = MemoryCorpus(
        [Document(name, f"{text} again" if name == "b" else text) for name, text in TEXTS.items()]
    )
    judgments = [judge(stale, "a"), judge(sound, "c")]
    assert kept_ids(select(judgments, log, changed_corpus)) == [stale, sound]
    selection = select(judgments, log, changed_corpus, check=ReplaySettings())
    assert kept_ids(selection) == [sound]
    assert drop_reasons(selection) == {stale: "changed"}
    assert "text changed" in selection.dropped[0].row["detail"]
    assert len(selection.checks) == 2


def test_a_judges_last_rating_counts(log: FeedbackLog, documents: MemoryCorpus) -> None:
    trajectory_id = serve(log, documents, "a")
    assert kept_ids(
        select([judge(trajectory_id, rating=1, user="ann"), judge(trajectory_id, rating=5, user="ann")], log, documents)
    ) == [trajectory_id]
    assert not select([judge(trajectory_id, rating=1), judge(trajectory_id, rating=5)], log, documents).kept


def test_numbers_that_make_no_sense(documents: MemoryCorpus) -> None:
    with pytest.raises(ConfigError, match=r"rating must be from 1 to 5"):
        FeedbackFilters(rating=0)
