"""The pipeline end to end, against a server process with scripted replies, some of them broken on request."""

import asyncio
import json
import time
from functools import partial

import pytest

from context_agent import Document, MemoryCorpus
from context_agent._support.worker_pool import ThisMachine, WorkerPool
from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.answers import reveals_answer, states_answer
from context_agent.synth_data.llm_stages.ledger import SpendingCap, TokenPrices
from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, PipelinePlan, make_tasks, stages_folder
from context_agent.synth_data.llm_stages.writing import draw_seeds
from context_agent.synth_data.quotes import find_quote
from context_agent.synth_data.stages import StageWorker, dropped_path
from context_agent.synth_data.task import load_tasks
from context_agent.testing.scripted_writer import COAXED, INVENTED, ORDERED, TOLD, documents
from context_agent.testing.writer_process import PLAN, corpus, make, remote_workshop, serving, workshop
from tests.support.forked_workers import start_fork

GOOD = {0, 1, 2, 3}
"""The groups of documents that are not traps."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The output file and the reports of an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    out = folder / "tasks.jsonl"
    with serving(folder) as server:
        return out, make(server.url, out)


def text_of(document):
    return next(f"{item.title}\n{item.text}" for item in documents() if item.id == document)


def test_tasks_come_out_with_proofs_that_hold(whole):
    tasks = load_tasks(whole[0])
    assert {int(task.gold[0][-1]) for task in tasks} == GOOD
    for task in tasks:
        assert (task.origin, task.domain, task.type, len(task.gold)) == ("model", "documents", "clues", 3 * task.hops)
        assert task.hops == task.level + 1
        assert [support.id for support in task.supporting] == list(task.gold)
        for support in task.supporting:
            assert all(find_quote(quote, task.clues) for quote in support.clue_quotes)
            assert all(
                find_quote(quote, text_of(support.id)) for quote in (*support.item_quotes, *support.truth_quotes)
            )
            assert support.clue_quotes
            assert support.item_quotes
        holders = [support for support in task.supporting if support.contains_truth]
        assert holders
        assert all(states_answer(quote, task.answer) for support in holders for quote in support.truth_quotes)
        assert not reveals_answer(f"{task.question}\n{task.clues}", task.answer)
        assert task.facts == tuple((f"{document}_0",) for document in task.gold)


def test_distractors_are_other_documents_without_the_answer(whole):
    for task in load_tasks(whole[0]):
        assert len(task.distractors) == 10
        assert not set(task.distractors) & set(task.gold)
        assert not any(reveals_answer(text_of(document), task.answer) for document in task.distractors)


def test_hops_are_spread_and_an_extension_hides_the_old_answer(whole):
    tasks = load_tasks(whole[0])
    assert sorted(task.hops for task in tasks) == [1, 1, 2, 2]
    for task in tasks:
        if task.hops == 2:
            assert task.id.endswith("-1")
            (old_answer,) = task.labels["bridges"]
            assert states_answer(text_of(task.bridge), old_answer)
            assert not reveals_answer(f"{task.question}\n{task.clues}", old_answer)
            assert task.answer != old_answer


def test_what_comes_to_nothing_is_dropped_with_its_reason(whole):
    folder = stages_folder(whole[0])
    reasons = {}
    for path in folder.glob("*.dropped.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            gold = row["input"].get("gold") or [item["id"] for item in row["input"].get("documents", ())]
            if gold:
                reasons[int(gold[0][-1])] = row["reason"]
    assert reasons == {
        ORDERED: "a document has instructions",
        COAXED: "quotes are not in the clues",
        TOLD: "the question contains the answer",
        INVENTED: "quotes are not in the document",
    }


def test_a_server_that_fails_half_of_the_calls_changes_nothing(whole, tmp_path):
    out = tmp_path / "tasks.jsonl"
    with serving(tmp_path, "--troubled") as server:
        reports = make(server.url, out)
        broken, answered = server.fates("broken"), server.fates("answered")
    assert out.read_bytes() == whole[0].read_bytes()
    assert not [reason for report in reports for reason in report.dropped if reason.startswith("failed")]
    assert len(broken) > len(answered) / 4
    assert set(answered.values()) == {1}


def test_concurrency_changes_nothing(whole, tmp_path):
    out = tmp_path / "tasks.jsonl"
    with serving(tmp_path) as server:
        make(server.url, out, plan=PipelinePlan(count=100, concurrency=1))
    assert out.read_bytes() == whole[0].read_bytes()


def test_worker_processes_change_nothing_and_one_that_is_killed_has_nothing_paid_twice(whole, tmp_path):
    out, killed_pids = tmp_path / "tasks.jsonl", []
    with serving(tmp_path, "--troubled") as server, workshop(server.url, stages_folder(out) / REPLIES_FILE) as context:
        setup = StageWorker(partial(remote_workshop, server.url))
        with WorkerPool(setup, ThisMachine(), processes=2, concurrency=4, answer=context.model.answer) as pool:

            def watch(stage):
                def advance(done, total):
                    if stage == "write" and done == 2 and not killed_pids:
                        killed_pids.append(pool._workers[0].child.process.pid)
                        pool._workers[0].child.process.kill()

                return advance

            reports = asyncio.run(make_tasks(context, PLAN, out, pool=pool, watch=watch))
        answered = server.fates("answered")
    assert killed_pids
    assert out.read_bytes() == whole[0].read_bytes()
    assert set(answered.values()) == {1}
    assert reports[-1].cost["calls"] == len(answered)


@pytest.mark.parametrize("moment", [30, 100])
def test_a_killed_run_goes_on_and_asks_nothing_twice(whole, tmp_path, moment):
    out = tmp_path / "tasks.jsonl"
    replies = stages_folder(out) / REPLIES_FILE
    (tmp_path / "server.log.hold").touch()
    with serving(tmp_path, "--troubled", "--hold", str(moment)) as server:
        child = start_fork(make, server.url, out)
        deadline = time.monotonic() + 60
        # The server holds back all further answers, and its earlier answers are on disk before the kill.
        while not replies.exists() or replies.read_bytes().count(b"\n") < moment:
            assert child.exitcode is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.kill()
        child.join()
    assert not out.exists()
    # Another server goes on with the log: the first one could still read requests of the killed run and answer them.
    with serving(tmp_path, "--troubled") as server:
        again = start_fork(make, server.url, out)
        again.join()
        assert again.exitcode == 0
        answered = server.fates("answered")
    assert out.read_bytes() == whole[0].read_bytes()
    assert dropped_path(out).read_bytes() == dropped_path(whole[0]).read_bytes()
    assert set(answered.values()) == {1}


def test_a_finished_run_asks_nothing_when_it_is_begun_again(whole, tmp_path):
    before = whole[0].read_bytes()
    with serving(tmp_path) as server:
        make(server.url, whole[0])
        assert not server.fates("answered")
    assert whole[0].read_bytes() == before


def test_the_cap_ends_the_run_before_it_is_passed_and_a_higher_one_goes_on(whole, tmp_path):
    out = tmp_path / "tasks.jsonl"
    with serving(tmp_path) as server:
        for cap in (SpendingCap(tokens=20_000), SpendingCap(tokens=40_000), SpendingCap(cost=0.5)):
            prices = TokenPrices(input=2.0, output=10.0)
            last_report = make(server.url, out, prices=prices, cap=cap)[-1]
            spent_tokens = last_report.cost["prompt_tokens"] + last_report.cost["completion_tokens"]
            if cap.tokens is not None:
                assert "the cap is reached" in last_report.halted
                assert cap.tokens / 2 < spent_tokens <= cap.tokens
        assert last_report.halted == ""
        assert 0 < last_report.cost["cost"] <= 0.5
        assert set(server.fates("answered").values()) == {1}
    assert out.read_bytes() == whole[0].read_bytes()


def test_a_cap_on_cost_is_kept(tmp_path):
    with serving(tmp_path) as server:
        last_report = make(
            server.url, tmp_path / "tasks.jsonl", prices=TokenPrices(2.0, 10.0), cap=SpendingCap(cost=0.1)
        )[-1]
    assert "of 0.1" in last_report.halted
    assert 0.04 < last_report.cost["cost"] <= 0.1


def test_another_model_is_refused_with_the_difference(whole, tmp_path):
    with serving(tmp_path) as server, pytest.raises(ConfigError, match="model was 'scripted' and is 'other'"):
        make(server.url, whole[0], model="other")


def test_a_server_that_is_gone_ends_the_run_with_words(tmp_path):
    reports = make("http://127.0.0.1:9", tmp_path / "tasks.jsonl")
    assert [report.stage for report in reports] == ["explore"]
    assert "calls in a row failed" in reports[0].halted
    assert "server is running" in reports[0].halted


def test_a_model_that_does_not_exist_ends_the_run_with_words(tmp_path):
    with serving(tmp_path) as server:
        (report,) = make(server.url, tmp_path / "tasks.jsonl", model="other")
    assert "`other` does not exist" in report.halted


def test_a_corpus_too_small_is_told():
    small_corpus = MemoryCorpus(
        [Document("a", "one document of quite a number of words in a row"), Document("b", "too short")]
    )
    with pytest.raises(DataError, match=r"too small.* has 1"):
        draw_seeds(small_corpus, 10, 0)


def test_more_seeds_begin_with_the_fewer_ones():
    assert draw_seeds(corpus(), 20, 3)[:5] == draw_seeds(corpus(), 5, 3)
    assert draw_seeds(corpus(), 20, 3) != draw_seeds(corpus(), 20, 4)
    assert len({row["seed"] for row in draw_seeds(corpus(), 1000, 0)}) == len(documents())


def test_hops_are_spread_evenly_over_their_range():
    assert [PipelinePlan(9, hops=(2, 4)).target(number) for number in range(6)] == [2, 3, 4, 2, 3, 4]
    for count, hops in ((0, (1, 2)), (5, (0, 2)), (5, (3, 2))):
        with pytest.raises(ConfigError, match="hops must be a range that starts at 1"):
            PipelinePlan(count, hops=hops)


def test_more_hops_than_the_domain_has_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"at most 4 .*; got 5"):
        make("http://127.0.0.1:9", tmp_path / "tasks.jsonl", plan=PipelinePlan(10, hops=(1, 5)))
