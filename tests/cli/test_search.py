"""`ctx1 search`: one question or many, as text or JSON, live on a terminal."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from context_agent import Document, index_documents
from tests.support.ctx1_process import CTX1, PATIENCE, on_terminal
from tests.support.forked_ctx1 import forked_ctx1
from tests.support.http_server import Response, http_server

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"
FAST = ("--effort", "fast")
"""For commands in processes of their own, whose effort says nothing about what is tested."""
KEYS = [
    *("id", "question", "documents", "sufficient", "confidence"),
    *("stop_reason", "turns", "tokens", "critical_steps", "trajectory", "error"),
]


def read_rows(process):
    return [json.loads(line) for line in process.stdout.splitlines()]


def test_json_is_one_object_with_the_ranked_documents(inside, index):
    process = inside("search", QUESTION, "--path", index, "--json", "--k", 4)
    assert process.returncode == 0, process.stderr
    (result,) = read_rows(process)
    assert list(result) == KEYS
    assert (result["id"], result["question"], result["error"]) == (None, QUESTION, None)
    assert 1 <= len(result["documents"]) <= 4
    for document in result["documents"]:
        assert list(document) == ["id", "title", "score", "chunks"]
        assert all(list(chunk) == ["id", "text", "score"] for chunk in document["chunks"])
    scores = [document["score"] for document in result["documents"]]
    assert scores == sorted(scores, reverse=True)
    assert result["turns"] > 0 < result["tokens"]


def test_an_engine_replaces_the_index(inside, index):
    hits = [{"id": "rope", "title": "Rope", "text": "Rope is a film of 1948 directed by Alfred Hitchcock."}]
    with http_server(Response({"results": hits})) as server:
        process = inside(
            "search", "Who directed Rope?", "--engine", f"{server.url()}/search", "--json", "--effort", "fast"
        )
    assert process.returncode == 0, process.stderr
    assert [document["id"] for document in read_rows(process)[0]["documents"]] == ["rope"]
    # Searches of one turn run at the same time, so the engine may see them in any order.
    assert "Who directed Rope?" in {request["body"]["query"] for request in server.requests}
    refusal = inside("search", "Who?", "--engine", "http://localhost:9/search", "--path", index)
    assert refusal.returncode == 2
    assert "--engine replaces an index" in refusal.stderr


def test_a_swarm_answers_like_one_agent_and_tells_what_waited(inside, index):
    process = inside("search", QUESTION, "--path", index, "--json", "--swarm", 3, "--save", "runs")
    assert process.returncode == 0, process.stderr
    (result,) = read_rows(process)
    assert list(result) == KEYS
    assert 0 < result["critical_steps"] <= 4
    assert result["documents"]
    text_run = inside("search", QUESTION, "--path", index, "--swarm", 3)
    assert "(3 sub-agents, 4 critical steps)" in " ".join(text_run.stdout.split())
    view_text = inside("view", "runs", "--text").stdout
    assert "spawn   3 sub-agents" in view_text
    assert "└ ━ " in view_text


@pytest.mark.parametrize("wrong", ["0", "65", "many"])
def test_a_swarm_of_a_number_that_cannot_be_is_refused(inside, index, wrong):
    process = inside("search", QUESTION, "--path", index, "--swarm", wrong)
    assert process.returncode == 2
    assert "--swarm" in process.stderr


def test_the_same_question_gives_the_same_answer(inside, ctx1, index):
    # A fork would have this process's seed for hashes.
    search = ("search", QUESTION, "--path", index, "--json")
    assert read_rows(inside(*search)) == read_rows(ctx1(*search, ctx1=CTX1))


def test_text_shows_each_document_with_its_passage_and_no_escape_codes(inside, index):
    process = inside("search", QUESTION, "--path", index)
    assert process.returncode == 0, process.stderr
    assert "\x1b" not in process.stdout + process.stderr
    assert " 1. " in process.stdout
    assert "designed by Ketil Varga" in " ".join(process.stdout.split())


def test_a_question_can_come_through_a_pipe(inside, index):
    process = inside("search", "-", "--path", index, "--json", stdin=QUESTION + "\n")
    assert read_rows(process)[0]["question"] == QUESTION


def test_a_config_file_sets_options_and_flags_go_before_it(inside, index, tmp_path):
    (tmp_path / "c.toml").write_text(f'path = "{index}"\njson = true\n[search]\nk = 2\n', encoding="utf-8")
    assert len(read_rows(inside("search", QUESTION, "--config", "c.toml"))[0]["documents"]) == 2
    assert len(read_rows(inside("search", QUESTION, "--config", "c.toml", "--k", 1))[0]["documents"]) == 1


def test_an_empty_question_is_an_error_and_an_object(inside, index):
    process = inside("search", "  ", "--path", index, "--json")
    assert process.returncode != 0
    assert list(read_rows(process)[0]) == KEYS
    assert "empty" in read_rows(process)[0]["error"]
    assert "Traceback" not in process.stderr


def test_one_failing_question_of_a_file_stops_nothing(inside, index, tmp_path):
    rows = [
        json.dumps({"id": "a", "question": QUESTION}),
        "{broken",
        json.dumps({"id": "c", "question": "word " * 30_000}),
        json.dumps({"id": 4, "question": "Who taught Mirel Toke?"}),
        json.dumps(["no", "object"]),
        json.dumps({"id": "f"}),
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    process = inside("search", "--questions", "q.jsonl", "--path", index, "--json", "--ordered", *FAST)
    assert process.returncode == 1
    results = read_rows(process)
    assert [row["id"] for row in results] == ["a", None, "c", 4, None, "f"]
    assert [row["error"] is None for row in results] == [True, False, False, True, False, False]
    assert all(list(row) == KEYS for row in results)
    assert "its fields are ['id']" in results[-1]["error"]
    assert "4 of 6 questions failed" in process.stderr
    unordered = inside("search", "--questions", "-", "--path", index, "--json", *FAST, stdin="\n".join(rows))
    assert sorted(str(row["id"]) for row in read_rows(unordered)) == sorted(str(row["id"]) for row in results)
    parallel = inside("search", "--questions", "q.jsonl", "--path", index, "--json", "--processes", 2, *FAST)
    assert (parallel.returncode, parallel.stdout) == (1, process.stdout)
    assert "4 of 6 questions failed" in parallel.stderr


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """An index of reports of three years."""
    documents = [
        Document(f"report-{year}", f"The harbour moved {year} tons.", metadata={"year": year, "kind": "report"})
        for year in (2019, 2020, 2021)
    ]
    folder = tmp_path_factory.mktemp("dated") / "index"
    index_documents(documents, folder)
    return folder


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("year=2020", ["report-2020"]),
        ('{"year": {"$gte": 2020}}', ["report-2020", "report-2021"]),
        ("kind=note", []),
    ],
)
def test_a_filter_limits_what_is_searched(inside, dated, tmp_path, where, ids):
    process = inside("search", "How many tons did the harbour move?", "--where", where, "--path", dated, "--quiet")
    assert sorted(process.stdout.split()) == ids, process.stderr
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"id": "q", "question": "How many tons did the harbour move?"}) + "\n")
    many = inside("search", "--questions", file, "--where", where, "--path", dated, "--quiet")
    assert sorted(many.stdout.split()) == ["q", *ids]


def test_a_filter_that_matches_nothing_is_named_with_the_metadata_that_there_are(inside, dated):
    process = inside("search", "tons", "--where", "yaer=2020", "--path", dated)
    assert process.returncode == 0
    assert "no passage matches the filter of --where" in process.stderr
    assert re.search(r"kind=report, year=20\d\d", process.stderr)
    found = inside("search", "tons", "--where", "year=2020", "--path", dated)
    assert "--where" not in found.stderr


def test_a_number_in_a_filter_matches_the_text_of_a_csv_cell(inside, tmp_path):
    (tmp_path / "works.csv").write_text("id,text,year\nw1,A stone weir.,1991\nw2,A stone mill.,1993\n")
    assert inside("index", "works.csv", "--path", "works", "--embedder", "static").returncode == 0

    def found(where):
        return inside("search", "stone", "--where", where, "--path", "works", "--quiet")

    assert found("year=1991").stdout.split() == ["w1"]
    assert found('year="1991"').stdout.split() == ["w1"]
    nothing = found('{"year": {"$gte": 1990}}')
    assert re.search(r'Passages have, for example: year="199\d"', nothing.stderr)


def test_a_filter_asks_for_an_item_of_a_list_in_the_front_matter(inside, tmp_path):
    for name, tags in (("leave.md", "[people, leave]"), ("travel.md", "[people]"), ("weir.md", "'[draft'")):
        (tmp_path / name).write_text(f"---\ntags: {tags}\n---\n# Rules\n\nDays off and trips.\n", encoding="utf-8")
    assert inside("index", *sorted(tmp_path.glob("*.md")), "--embedder", "static").returncode == 0

    def found(where):
        process = inside("search", "days off", "--where", where, "--quiet")
        return sorted(process.stdout.split()), process.stderr

    assert found('{"tags": {"$contains": "leave"}}')[0] == ["leave.md"]
    assert found('{"tags": {"$not_contains": "leave"}}')[0] == ["travel.md", "weir.md"]
    assert re.search(r'\{"tags": \{"\$contains": "people"\}\}|tags=\[draft', found("tags=leave")[1])


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("2020", "must be KEY=VALUE, or JSON"),
        ("=2020", "must be KEY=VALUE, or JSON"),
        ('{"year": ', "not valid JSON"),
        ("year>=2020", 'like {"year": {"$gte": 2020}}'),
        ("year != 2020", 'like {"year": {"$ne": 2020}}'),
        ('{"year": {"$near": 2020}}', "$near"),
        ('{"date": {"$gte": "2020-01"}}', "compare `day`"),
        ('{"year": 2020, "kind": "report"}', "exactly one key"),
    ],
)
def test_a_filter_that_no_index_can_use_is_refused_before_the_search(inside, dated, where, reason):
    process = inside("search", "tons", "--where", where, "--path", dated)
    assert process.returncode == 2
    assert "--where" in process.stderr
    assert reason in process.stderr


def test_a_policy_without_sub_agents_refuses_a_swarm(inside, index):
    process = inside("search", "who?", "--policy", "hybrid", "--swarm", 2, "--path", index)
    assert process.returncode == 2
    assert "Remove --swarm, or choose another --policy" in process.stderr


def test_a_file_without_questions_is_told(inside, index, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    process = inside("search", "--questions", "empty.jsonl", "--path", index)
    assert process.returncode == 0
    assert "empty.jsonl has no questions" in process.stderr


def test_many_questions_as_text_are_a_line_each(inside, index):
    rows = json.dumps({"id": "a", "question": QUESTION}) + "\n"
    process = inside("search", "--questions", "-", "--path", index, stdin=rows)
    assert process.returncode == 0
    assert process.stdout.startswith("a\t")
    assert len(process.stdout.splitlines()) == 1


def test_a_saved_trajectory_replays(inside, index, tmp_path):
    from context_agent.harness import trajectory_file

    process = inside("search", QUESTION, "--path", index, "--json", "--save", "runs", "--rollouts", 2)
    (result,) = read_rows(process)
    paths = sorted((tmp_path / "runs").glob("*.jsonl"))
    assert len(paths) == 2
    assert Path(tmp_path / result["trajectory"]) in paths
    for path in paths:
        trajectory = trajectory_file.read(path)
        trajectory.verify()
        assert trajectory.header.question == QUESTION


@pytest.mark.parametrize("option", [["--window", "2048"], ["--max-turns", "1"], ["--profile", "context-1"]])
def test_limits_still_give_a_ranking(inside, index, option):
    process = inside("search", QUESTION, "--path", index, "--json", *option)
    assert process.returncode == 0, process.stderr
    assert read_rows(process)[0]["documents"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupt_exits_with_130_and_whole_lines(index, tmp_path, processes):
    row = json.dumps({"question": QUESTION}) + "\n"
    (tmp_path / "q.jsonl").write_text(row * 3000, encoding="utf-8")
    command = [forked_ctx1(), "search", "--questions", "q.jsonl", "--path", index, "--json"]
    command += ["--processes", processes, *FAST]
    with (
        (tmp_path / "err").open("w") as errors,
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
        ) as process,
    ):
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()  # `communicate` would lose lines buffered with the first
        process.wait(timeout=PATIENCE)
    err = (tmp_path / "err").read_text(encoding="utf-8")
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    for line in [first, *out.splitlines()]:
        json.loads(line)


def test_a_reader_that_goes_away_is_no_stack_trace(index, tmp_path):
    row = json.dumps({"question": QUESTION}) + "\n"
    (tmp_path / "q.jsonl").write_text(row * 50, encoding="utf-8")
    command = [forked_ctx1(), "search", "--questions", "q.jsonl", "--path", index, "--json", *FAST]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=PATIENCE)
    assert process.returncode == 1
    assert err == ""


def test_a_terminal_shows_the_ranking_and_no_turns(index, tmp_path):
    out = on_terminal("search", QUESTION, "--path", index, "--k", 3, *FAST, cwd=tmp_path)
    assert "1. " in out
    assert "designed by Ketil Varga" in out
    assert "brought nothing" not in out
    assert "█" not in out


def test_quiet_prints_ids_alone(inside, index):
    ids = [
        document["id"] for document in read_rows(inside("search", QUESTION, "--path", index, "--json"))[0]["documents"]
    ]
    process = inside("search", QUESTION, "--path", index, "-q")
    assert process.stdout.splitlines() == ids
    assert process.stderr == ""
    row = json.dumps({"id": "a", "question": QUESTION})
    many = inside("search", "--questions", "-", "--path", index, "--quiet", stdin=row)
    assert many.stdout == f"a\t{' '.join(ids)}\n"


@pytest.mark.parametrize("flag", ["--json", "--steps"])
def test_quiet_excludes_what_prints_more(inside, flag):
    process = inside("search", "who?", "--quiet", flag)
    assert process.returncode == 2
    assert flag in process.stderr


def test_steps_show_turns_calls_and_the_filling_context(index, tmp_path):
    out = on_terminal("search", QUESTION, "--path", index, "--k", 3, "--steps", *FAST, cwd=tmp_path)
    assert "turn 1" in out
    assert "search" in out
    assert "context" in out
    assert "█" in out
    assert "\x1b[" in out
    assert "of 32,768 tokens" in out


def test_a_document_cannot_steer_the_terminal(inside, tmp_path):
    row = json.dumps(
        {"id": "x", "title": "Bell\x07", "text": "The Lume \x1b[2J\x1b]0;owned\x07 flows past Brasko.\u202e"}
    )
    assert inside("index", "-", "--path", "i", stdin=row + "\n").returncode == 0
    out = on_terminal("search", "Lume", "--path", "i", *FAST, cwd=tmp_path)
    assert "\x1b[2J" not in out
    assert "\x1b]0;owned" not in out
    assert "\x07" not in out
    assert "\u202e" not in out


def test_a_reader_of_live_turns_that_goes_away_is_no_stack_trace(tmp_path):
    with subprocess.Popen(
        [forked_ctx1(), "demo"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        child.stdout.close()
        error_output = child.stderr.read()
        child.wait(timeout=PATIENCE)
    assert child.returncode == 1
    assert "Traceback" not in error_output
