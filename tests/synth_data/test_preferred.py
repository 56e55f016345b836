"""Judged trajectories to imitate: who is liked, who is not, and which of several of a question is the better one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from context_agent import Action, Document, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.feedback import FeedbackLog, Judgement, judgement
from context_agent.synth_data.preferred import Selection, Taste, preferred
from context_agent.synth_data.replay_check import Terms
from tests.actions import call, rank, search

TEXTS = {"a": "comets", "b": "comets and gardens", "c": "operas"}


@pytest.fixture(scope="module")
def small() -> MemoryCorpus:
    return MemoryCorpus([Document(name, text) for name, text in TEXTS.items()])


@pytest.fixture
def log(tmp_path: Path) -> FeedbackLog:
    return FeedbackLog(tmp_path / "served")


def serve(
    log: FeedbackLog, corpus: MemoryCorpus, *ranked: str, question: str = "comets?", first: Action | None = None
) -> str:
    """A search that hands back these documents; returns its trajectory's id."""
    steps = [first or search("comets", "operas"), rank(*ranked)]
    with SearchAgent(corpus, ScriptedPolicy(steps), trajectories=log.folder) as agent:
        path = agent.search(question).trajectory
    assert path is not None
    return path.stem


def said(
    trajectory: str, relevant: str = "", irrelevant: str = "", rating: int | None = None, user: str = ""
) -> Judgement:
    return judgement(
        trajectory=trajectory,
        relevant=relevant.split(),
        irrelevant=irrelevant.split(),
        rating=rating,
        user=user,
        comment="-",
    )


def chosen(given: Sequence[Judgement], log: FeedbackLog, corpus: MemoryCorpus, **how: object) -> Selection:
    taste = how.pop("taste", None)
    return asyncio.run(preferred(given, log, corpus, taste, **how))  # type: ignore[arg-type]


def kept(found: Selection) -> list[str]:
    return [one.path.stem for one in found.kept]


def reasons(found: Selection) -> dict[str, str]:
    return {one.path.stem: str(one.row["reason"]) for one in found.dropped}


def test_what_is_liked_is_kept(log: FeedbackLog, small: MemoryCorpus) -> None:
    helpful = serve(log, small, "a", "b", question="q1")
    rated = serve(log, small, "c", question="q2")
    found = chosen([said(helpful, "a"), said(rated, rating=5)], log, small)
    assert kept(found) == [helpful, rated]
    assert found.kept[0].row == {
        "trajectory": helpful, "question": "q1", "helpful": 1, "bad": 0, "missed": 0, "rating": None, "mistakes": 0,
        "tokens": found.kept[0].row["tokens"],
    }  # fmt: skip
    assert found.counts() == {"judged": 2, "kept": 2, "dropped": {}}


def test_each_rule_drops_with_its_name(log: FeedbackLog, small: MemoryCorpus) -> None:
    poor = serve(log, small, "a", question="q1")
    bad = serve(log, small, "a", "b", question="q2")
    nothing = serve(log, small, "a", question="q3")
    unranked = serve(log, small, "never-seen", question="q4")
    clumsy = serve(log, small, "a", question="q5", first=call("no_such_tool"))
    torn = serve(log, small, "a", question="q6")
    path = log.folder / f"{torn}.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    given = [
        said(poor, "a", rating=2),
        said(bad, "a", "b"),
        said(nothing),
        said(unranked, "a"),
        said(clumsy, "a"),
        said(torn, "a"),
        said("absent", "a"),
        said("../../etc/passwd", "a"),
    ]
    found = chosen(given, log, small, taste=Taste(mistakes=0))
    assert not found.kept
    told = reasons(found)
    assert [told[one] for one in (poor, bad, nothing, unranked, torn, "absent")] == [
        "poor rating", "bad documents", "nothing good", "unfinished", "torn", "unknown",
    ]  # fmt: skip
    assert told[clumsy] in ("mistakes", "unfinished")
    assert found.reasons["unknown"] == 2
    assert kept(chosen(given[1:2], log, small, taste=Taste(bad=1))) == [bad]


def test_a_verdict_holds_for_all_searches_of_the_question(log: FeedbackLog, small: MemoryCorpus) -> None:
    one = serve(log, small, "a", "b")
    other = serve(log, small, "a", question=" COMETS?")
    found = chosen([said(one, "a"), said(other, "", "b", user="ann"), said(other, rating=4)], log, small)
    assert kept(found) == [other]
    assert reasons(found) == {one: "bad documents"}


def test_of_several_the_better_one_stays_and_is_named(log: FeedbackLog, small: MemoryCorpus) -> None:
    half = serve(log, small, "a")
    whole = serve(log, small, "a", "b")
    rated = serve(log, small, "a", "b")
    given = [said(half, "a"), said(whole, "a b"), said(rated, "a b", rating=5)]
    found = chosen(given, log, small)
    assert kept(found) == [rated]
    assert reasons(found) == {half: "another is better", whole: "another is better"}
    assert {one.row["better"] for one in found.dropped} == {rated}
    assert kept(chosen(given, log, small, taste=Taste(per_question=2))) == [rated, whole]
    assert len(chosen(given, log, small, taste=Taste(per_question=0)).kept) == 3


def test_what_todays_corpus_would_show_otherwise_is_dropped(log: FeedbackLog, small: MemoryCorpus) -> None:
    stale, sound = (
        serve(log, small, "a", question="q1"),
        serve(log, small, "c", question="q2", first=search("operas", limit=1)),
    )
    now = MemoryCorpus([Document(name, f"{text} again" if name == "b" else text) for name, text in TEXTS.items()])
    given = [said(stale, "a"), said(sound, "c")]
    assert kept(chosen(given, log, now)) == [stale, sound]
    found = chosen(given, log, now, check=Terms())
    assert kept(found) == [sound]
    assert reasons(found) == {stale: "changed"}
    assert "text changed" in found.dropped[0].row["detail"]
    assert len(found.checks) == 2


def test_a_judges_last_rating_counts(log: FeedbackLog, small: MemoryCorpus) -> None:
    one = serve(log, small, "a")
    assert kept(chosen([said(one, rating=1, user="ann"), said(one, rating=5, user="ann")], log, small)) == [one]
    assert not chosen([said(one, rating=1), said(one, rating=5)], log, small).kept


def test_numbers_that_make_no_sense(small: MemoryCorpus) -> None:
    with pytest.raises(ConfigError, match=r"rating must lie in 1\.\.5"):
        Taste(rating=0)
