"""Trajectories as plain data for the page and the terminal."""

import json

import pytest

from context_agent.harness.trajectory_folder import read_all
from context_agent.testing.actions import prune, rank, search
from context_agent.types import Question
from context_agent.web.viewer.model import CUT, GoldQuestions, view_data
from tests.support import episodes


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs"


def view_of(folder, *gold):
    return view_data(read_all([folder]), GoldQuestions(gold))


def test_a_row_summarizes_its_trajectory(corpus, folder):
    episodes.edited(corpus, folder)
    (loaded,) = read_all([folder]).loaded
    (row,) = view_of(folder).rows
    end = loaded.trajectory.end
    assert (row.stop, row.turns, row.tokens, row.mistakes) == (end.stop_reason, end.turns, end.tokens, end.mistakes)
    assert (row.calls, row.pruned, row.restored) == (4, 1, 1)
    assert row.queries == (episodes.QUESTION, "painters and gardens")
    assert (row.seen, row.ranked, row.gold_pruned) == (None, None, None)


def test_the_details_tokens_add_up_to_every_view(folder):
    episodes.long(folder, turns=40)
    (loaded,) = read_all([folder]).loaded
    (detail,) = view_of(folder).details
    sizes = {block["key"]: block["tokens"] for block in detail["blocks"]}
    used = sum(part["tokens"] for part in detail["prompt"])
    edits = 0
    for turn, view in zip(detail["turns"], list(loaded.trajectory.views())[1:], strict=True):
        edit = turn["edit"] or {"pruned": [], "restored": []}
        edits += len(edit["pruned"]) + len(edit["restored"])
        used += turn["tokens"] + sum(sizes[key] for key in edit["restored"]) - sum(sizes[key] for key in edit["pruned"])
        parts = [part for result in turn["results"] for part in result["segments"]]
        used += sum(sizes[part] if isinstance(part, int) else part["tokens"] for part in parts)
        used += turn["usage"]["tokens"] if turn["usage"] else 0
        assert used == view.tokens
    assert edits > 10


def test_a_summary_is_shown_as_a_passage_of_its_own_and_counted_apart(corpus, folder):
    episodes.summarized(corpus, folder)
    (loaded,) = read_all([folder]).loaded
    a, b = (hit.chunk for hit in corpus.search(episodes.QUESTION)[:2])
    data = view_of(folder, Question("q", episodes.QUESTION, gold=(a.document_id, b.document_id)))
    (row,), (detail,) = data.rows, data.details
    assert loaded.problem is None
    assert (row.pruned, row.summarized, row.restored) == (0, 2, 1)
    assert row.gold_pruned == 2, "with the summary that stood for them"
    assert row.gold_lost == 1, "one of them was restored"
    (block,) = [block for block in detail["blocks"] if block["source"] == "summary"]
    assert (block["chunk"], block["title"], block["gold"]) == ("summary:1", "Summary of 2 passages", False)
    assert data.texts[block["text"]].endswith(f"stands for {a.id}, {b.id}\nThe rivers meet below the bridges.\n")
    edit = detail["turns"][1]["edit"]
    assert (edit["pruned"], edit["replaced"], edit["summaries"]) == ([], [0, 1], [3])
    assert detail["turns"][4]["edit"]["pruned"] == [3]
    sizes = {block["key"]: block["tokens"] for block in detail["blocks"]}
    before, after = list(loaded.trajectory.views())[1:3]
    assert after.tokens - before.tokens == (
        detail["turns"][1]["tokens"]
        + sizes[3]
        - sizes[0]
        - sizes[1]
        + sum(part["tokens"] for part in detail["turns"][1]["results"][0]["segments"])
        + detail["turns"][1]["usage"]["tokens"]
    )


def test_the_row_of_a_cut_trajectory_counts_the_events_that_it_has(corpus, folder):
    path = episodes.edited(corpus, folder)
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:-1]))
    (row,) = view_of(folder).rows
    assert row.stop == CUT
    assert row.seconds is None
    assert row.turns == 5
    path.write_text(rows[0])
    data = view_of(folder)
    assert (data.rows[0].turns, data.details[0]["turns"], data.details[0]["end"]) == (0, [], None)


def test_gold_is_found_by_the_questions_text_before_its_id(corpus, folder):
    episodes.edited(corpus, folder, id="7")
    ranked_ids = [hit.chunk.document_id for hit in corpus.search(episodes.QUESTION)]
    by_id = Question("7", "another question", gold=("nothing",))
    by_text = Question("8", f"  {episodes.QUESTION.title()} ", gold=(ranked_ids[0],))
    assert view_of(folder, by_id, by_text).rows[0].seen == 1.0
    assert view_of(folder, by_id).rows[0].seen == 0.0
    assert view_of(folder, Question("9", "another question", gold=("nothing",))).rows[0].seen is None
    assert view_of(folder, Question("7", episodes.QUESTION)).rows[0].seen is None


def test_gold_by_document_by_chunk_and_by_fact(corpus, folder):
    hits = corpus.search(episodes.QUESTION)
    (a, b), unseen = [hit.chunk for hit in hits[:2]], hits[-1].chunk
    steps = [search(episodes.QUESTION, limit=3), prune(a.id), rank(b.id)]
    episodes.record(corpus, steps, folder)
    ask = episodes.QUESTION

    def gold_marks(**gold):
        data = view_of(folder, Question("x", ask, **gold))
        marked = {block["chunk"] for block in data.details[0]["blocks"] if block["gold"]}
        row = data.rows[0]
        return marked, row.seen, row.ranked, row.gold_pruned, row.gold_lost

    assert gold_marks(gold=(a.document_id, b.document_id)) == ({a.id, b.id}, 1.0, 0.5, 1, 1)
    assert gold_marks(gold=(a.id, "nowhere")) == ({a.id}, 0.5, 0.0, 1, 1)
    assert gold_marks(facts=((unseen.id, b.id), ("nowhere",))) == ({b.id}, 0.5, 0.5, 0, 0)
    data = view_of(folder, Question("x", ask, gold=(b.document_id, "nowhere"), answer="x"))
    assert data.details[0]["gold"] == {"needs": 2, "seen": 1, "ranked": 1, "missing": ["nowhere"], "answer": "x"}


def test_a_shared_text_is_stored_once(corpus, folder):
    for _ in range(3):
        episodes.edited(corpus, folder)
    data = view_of(folder)
    assert len(data.texts) == len(set(data.texts))
    numbers = [[block["text"] for block in detail["blocks"]] for detail in data.details]
    assert numbers[0] == numbers[1] == numbers[2]
    (loaded, *_) = read_all([folder]).loaded
    bodies = [block.body for view in loaded.trajectory.views() for block in view.blocks]
    assert {data.texts[number] for number in numbers[0]} == set(bodies)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("header", {"question": ["which?"]}),
        ("header", {"budget": {"window": 4096, "soft": 9000}}),
        ("action", {"tokens": "many"}),
        ("result", {"arguments": 5}),
        ("result", {"mistake": ["x"]}),
        ("edit", {"recomputed": "x"}),
        ("usage", {"total": []}),
        ("usage", {"segment": {}}),
        ("end", {"dropped": 5}),
        ("end", {"turns": "x"}),
        ("end", {"stop_reason": None}),
    ],
)
def test_values_that_cannot_be_shown_are_a_problem_of_their_file_alone(corpus, folder, kind, change):
    episodes.edited(corpus, folder)
    path = episodes.edited(corpus, folder)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    next(row for row in rows if row["kind"] == kind).update(change)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = view_of(folder)
    (problem,) = data.problems
    assert path.name in problem
    assert len(data.rows) == 1
    assert path.name not in data.rows[0].file


def test_numbers_that_json_does_not_have_are_left_out(corpus, folder):
    path = episodes.edited(corpus, folder)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    result = next(row for row in rows if row["kind"] == "result")
    result["segments"][0]["hit"]["score"] = float("nan")
    result["arguments"]["limit"] = float("inf")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (detail,) = view_of(folder).details
    assert detail["blocks"][0]["score"] is None
    assert ("limit", "Infinity") in detail["turns"][0]["results"][0]["arguments"]


def test_sub_agents_have_rows_and_are_lanes_of_their_parent(corpus, folder):
    episodes.swarm(corpus, folder)
    data = view_of(folder)
    (main,) = [row for row in data.rows if row.parent is None]
    subs = [row for row in data.rows if row.parent is not None]
    assert {row.parent for row in subs} == {main.id}
    assert len(subs) == 2
    detail = data.details[data.rows.index(main)]
    (lanes,) = [result["delegated"] for turn in detail["turns"] for result in turn["results"]]
    assert [(lane["task"], lane["steps"], lane["stop_reason"]) for lane in lanes] == [
        ("comets and operas", 2, "finished"),
        ("rivers", 2, "finished"),
        (("the task that is too long " * 60).strip(), 0, "not_started"),
    ]
    assert lanes[2]["error"]
    assert main.critical_steps == detail["critical_steps"] == 2 + 2
    assert {block["source"] for block in detail["blocks"]} == {"spawn"}
