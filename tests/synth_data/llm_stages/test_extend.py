"""Extension: a bridging document that states the old answer, and two more; anything else is dropped with a reason."""

import asyncio
import json
from dataclasses import replace

import pytest

from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.synth_data.domains import load_domain
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.writing import extend
from context_agent.synth_data.stages import DropRow
from context_agent.testing.writer_process import corpus, row_of
from tests.support.tasks import task

TASK = task(
    "t1",
    "mason0",
    "tower0",
    "town0",
    question="Which stream flows past the old walls?",
    clues="A stream flows past old walls.",
    answer="Barlume",
    hops=1,
)
NEW_TASK = {
    "clues": "It ends in a water that somebody sounded.",
    "question": "Who sounded the water in which the stream by the old walls ends?",
    "answer": "Barstein",
    "truth_type": "person",
}
SEARCHES = [("search_corpus", {"query": query, "limit": 3}) for query in ("Barlume river", "Barmere", "Barfin ferry")]


def rank_reply(*ids, fact="{} has it"):
    return says(
        "\n".join(
            f"<Document id={chunk_id}><Justification>{fact.format(chunk_id)}</Justification></Document>"
            for chunk_id in ids
        )
    )


def run_extend(tmp_path, ranking, reply_task=NEW_TASK, row=TASK):
    """Extend the row with a scripted explorer and writer, and return the extended row."""
    steps = [says(calls=SEARCHES), ranking, *[says(json.dumps(reply_task))] * 3]
    with ScriptedServer(steps) as server:
        options = StructuredModelOptions(chat_options={"model": "scripted", "base_url": server.url}, backoff=0.001)
        with StructuredModel(options, tmp_path / "replies.jsonl") as model:
            context = StageContext(corpus(), model, load_domain("documents"))
            return asyncio.run(extend(context, row_of(row))).rows[0]


def test_a_task_gets_a_bridge_two_documents_and_a_new_answer(tmp_path):
    row = run_extend(tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0"))
    assert (row["id"], row["level"], row["hops"], row["answer"]) == ("t1-1", 1, 2, "Barstein")
    assert row["gold"] == ("mason0", "tower0", "town0", "bridge0", "lake0", "boat0")
    assert row["bridge"] == "bridge0"
    assert row["clues"] == f"{TASK.clues}\n{NEW_TASK['clues']}"
    assert row["labels"]["bridges"] == ["Barlume"]
    assert [support["id"] for support in row["supporting"]] == list(row["gold"])


def test_a_third_hop_keeps_its_place_in_the_name():
    from context_agent.synth_data.llm_stages.excerpts import DocumentExcerpt
    from context_agent.synth_data.llm_stages.writing import WrittenTask, extended_task

    class NoTypes:
        def truth_type(self, name):
            return None

    second = task("set-7-1", "a", level=1, hops=2, labels={"bridges": ["one"], "aliases": ["old"]}, answer="two")
    third = extended_task(NoTypes(), second, WrittenTask(**NEW_TASK), [DocumentExcerpt("b", "", ())])
    assert (third.id, third.level, third.hops) == ("set-7-2", 2, 3)
    assert third.labels == {"bridges": ["one", "two"]}


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (("lake0_0", "boat0_0"), "there are too few documents"),
        (("town0_0", "lake0_0", "boat0_0"), "there are too few documents"),
        ((), "the explorer named nothing"),
    ],
)
def test_what_an_explorer_must_find(tmp_path, ids, reason):
    ranking = rank_reply(*ids) if ids else says("I found nothing.")
    with pytest.raises(DropRow) as caught:
        run_extend(tmp_path, ranking)
    assert caught.value.dropped.reason == reason


def test_the_bridge_must_say_the_old_answer(tmp_path):
    with pytest.raises(DropRow) as caught:
        run_extend(
            tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0"), row=task("t1", "mason0", answer="Holm", clues="x")
        )
    assert caught.value.dropped.reason == "no bridging document was named"


def test_facts_must_differ(tmp_path):
    with pytest.raises(DropRow) as caught:
        run_extend(tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0", fact="the same"))
    assert caught.value.dropped.reason == "facts are missing or repeated"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "Barlume"}, "the answer is unchanged"),
        ({"question": "Who sounded the water in which the Barlume ends?"}, "the question contains the answer"),
        ({"answer": "old walls"}, "the answer is in no document"),
        ({"answer": "water", "question": "What is it?", "clues": "A deep one."}, None),
    ],
)
def test_what_a_writer_of_longer_questions_must_not_do(tmp_path, change, reason):
    if reason is None:
        assert (
            run_extend(tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0"), {**NEW_TASK, **change})["answer"]
            == "water"
        )
        return
    with pytest.raises(DropRow) as caught:
        run_extend(tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0"), {**NEW_TASK, **change})
    assert caught.value.dropped.reason == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": "Who sounded the water of Oldmere?"}, "the question contains the answer"),
        ({"clues": "It ends in a water that somebody of Oldmere sounded."}, "the question contains the answer"),
        ({"answer": "Oldmere"}, "the answer is unchanged"),
    ],
)
def test_no_hop_is_skipped_by_naming_an_earlier_answer(tmp_path, change, reason):
    second = replace(TASK, level=1, hops=2, labels={"bridges": ["Oldmere"]})
    with pytest.raises(DropRow) as caught:
        run_extend(tmp_path, rank_reply("lake0_0", "boat0_0", "bridge0_0"), {**NEW_TASK, **change}, second)
    assert caught.value.dropped.reason == reason


def test_the_domain_bounds_the_hops(tmp_path):
    with pytest.raises(DropRow) as caught:
        run_extend(tmp_path, rank_reply(), row=task("t1", "mason0", hops=4))
    assert caught.value.dropped.reason == "the maximum of hops is reached"
