"""`ctx1 eval` as a user runs it: figures and a report from a folder of questions, resumed runs, checks and refusals."""

import json
import signal
import subprocess
import time

import pytest

from context_agent.cli.app import run
from tests.support import ctx1_process
from tests.support.forked_ctx1 import forked_ctx1
from tests.support.sample_benchmarks import native_folder


@pytest.fixture
def world(tmp_path):
    """A folder in the native format."""
    return native_folder(tmp_path, 4)


@pytest.fixture
def evaluate(tmp_path, monkeypatch, capsys):
    """Run `ctx1 eval` in this process with the test's own cache. Starting a process takes longer than most runs."""
    monkeypatch.chdir(tmp_path)

    def run_eval(*arguments):
        capsys.readouterr()
        words = ["eval", *map(str, arguments)]
        if "--report" not in words and "--list" not in words:
            words += ["--cache", str(tmp_path / "cache")]
        code = run(words)
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, captured.out, captured.err)

    return run_eval


def test_a_run_leaves_records_a_summary_and_a_report_and_prints_a_table(evaluate, ctx1, world, tmp_path):
    command = ("--benchmark", world, "--systems", "bm25,agent", "--windows", "1024,4096", "--effort", "fast")
    command += ("--out", "run")
    evaluation = ctx1("eval", "--cache", "cache", *command)
    assert evaluation.returncode == 0, evaluation.stderr
    assert "world" in evaluation.stdout
    assert "agent" in evaluation.stdout
    assert evaluation.stderr.splitlines()[-1] == "ctx1 eval: the report is run/report.html"
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        "run.json",
        "records.jsonl",
        "summary.json",
        "report.html",
    }
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 4 * (1 + 2)
    again = evaluate(*command, "--json")
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [(cell["system"], cell["window"]) for cell in summary["cells"]] == [
        ("bm25", 0),
        ("agent", 1024),
        ("agent", 4096),
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "license not stated" in page
    other = evaluate(*command, "--k", "3")
    assert other.returncode == 2
    assert "k was 10 and is 3" in other.stderr


def test_the_report_is_made_anew_from_the_records(evaluate, world, tmp_path):
    assert evaluate("--benchmark", world, "--systems", "bm25,hybrid", "--out", "run").returncode == 0
    for name in ("summary.json", "report.html"):
        (tmp_path / "run" / name).unlink()
    evaluation = evaluate("--report", "run", "--reference", "hybrid", "--json")
    assert evaluation.returncode == 0, evaluation.stderr
    assert json.loads(evaluation.stdout)["reference"] == "hybrid"
    assert (tmp_path / "run" / "report.html").exists()
    assert evaluate("--report", "run", "--reference", "agent").returncode == 2


def test_a_users_own_documents_and_questions_are_measured(evaluate, world, tmp_path):
    question_file = world / "queries.dev.jsonl"
    evaluation = evaluate(
        "--corpus", world / "corpus.jsonl", "--questions", question_file, "--systems", "bm25", "--out", "run", "--json"
    )
    assert evaluation.returncode == 0, evaluation.stderr
    assert json.loads(evaluation.stdout)["cells"][0]["questions"] == 4


def test_an_index_is_measured_without_indexing_again(evaluate, inside, world, tmp_path):
    assert inside("index", world / "corpus.jsonl", "--path", "index").returncode == 0
    evaluation = evaluate(
        "--path",
        "index",
        "--questions",
        world / "queries.dev.jsonl",
        "--systems",
        "hybrid,agent",
        "--out",
        "run",
        "--json",
    )
    assert evaluation.returncode == 0, evaluation.stderr
    assert [cell["failed"] for cell in json.loads(evaluation.stdout)["cells"]] == [0, 0]
    assert not (tmp_path / "cache").exists()


def test_bad_rows_are_reported_and_the_rest_is_scored(evaluate, world):
    with (world / "queries.dev.jsonl").open("a") as file:
        file.write("not json\n")
    evaluation = evaluate("--benchmark", world, "--systems", "bm25", "--out", "run", "--json")
    assert evaluation.returncode == 0, evaluation.stderr
    summary = json.loads(evaluation.stdout)
    assert summary["cells"][0]["questions"] == 4
    assert any("queries.dev.jsonl:5: the line is not valid JSON" in problem for problem in summary["problems"])


def test_missing_gold_stops_the_run_unless_it_is_allowed(evaluate, world):
    with (world / "queries.dev.jsonl").open("a") as file:
        file.write('{"id": "lost", "question": "Where is it?", "gold": ["nowhere"]}\n')
    command = ("--benchmark", world, "--systems", "bm25", "--out", "run")
    refusal = evaluate(*command)
    assert refusal.returncode == 1
    assert "not in the index: nowhere" in refusal.stderr
    assert "--allow-missing-gold" in refusal.stderr
    allowed = evaluate(*command, "--allow-missing-gold", "--json")
    assert allowed.returncode == 0, allowed.stderr
    assert any("not in the index: nowhere" in problem for problem in json.loads(allowed.stdout)["problems"])


def test_checking_alone_says_what_is_shared_and_missing(evaluate, world):
    clean_check = evaluate("--benchmark", world, "--check-only")
    assert clean_check.returncode == 0, clean_check.stderr
    assert "all gold is in the index" in clean_check.stdout
    (world / "queries.train.jsonl").write_text((world / "queries.dev.jsonl").read_text())
    leak_check = evaluate("--benchmark", world, "--check-only", "--json")
    assert leak_check.returncode == 1
    assert json.loads(leak_check.stdout)["leaks"].startswith("train and test share 4 questions")


def test_a_failed_question_makes_the_exit_code_one_and_counts_as_zero(evaluate, world):
    with (world / "queries.dev.jsonl").open("a") as file:
        file.write(json.dumps({"id": "long", "question": "osk " * 2_000, "gold": ["osk"]}) + "\n")
    evaluation = evaluate("--benchmark", world, "--systems", "agent", "--windows", "1024", "--out", "run", "--json")
    assert evaluation.returncode == 1, evaluation.stderr
    (failure,) = json.loads(evaluation.stdout)["failures"]
    assert failure["question"] == "long"
    assert "soft threshold" in failure["error"]


def test_wrong_calls_are_told_in_a_line(evaluate, world):
    cases = {
        "Pass --out FOLDER": ("--benchmark", world),
        "Pass --benchmarks NAME (names from --list), or --questions": ("--out", "run"),
        "--benchmarks and --questions cannot be combined": (
            *("--benchmark", world, "--questions", world / "queries.dev.jsonl"),
            *("--out", "run"),
        ),
        "Did you mean 'musique'": ("--benchmark", "musiqe", "--out", "run"),
        "Did you mean 'agent'": ("--benchmark", world, "--systems", "agnet", "--out", "run"),
        "must be integers": ("--benchmark", world, "--windows", "1k", "--out", "run"),
        "the window must be at least": ("--benchmark", world, "--windows", "100", "--out", "run"),
    }
    for message, arguments in cases.items():
        evaluation = evaluate(*arguments)
        assert evaluation.returncode == 2, (message, evaluation.stderr)
        assert message in evaluation.stderr
        assert len(evaluation.stderr.splitlines()) == 1


def test_an_empty_set_is_refused(evaluate, world):
    (world / "queries.dev.jsonl").write_text("")
    evaluation = evaluate("--benchmark", world, "--out", "run")
    assert evaluation.returncode == 1
    assert "cannot be scored" in evaluation.stderr


def test_what_has_a_name_is_listed(evaluate):
    evaluation = evaluate("--list", "--json")
    assert evaluation.returncode == 0, evaluation.stderr
    listing = json.loads(evaluation.stdout)
    assert listing["benchmarks"]["browsecomp-plus"]["license"] == "MIT"
    assert "agent-oracle" in listing["systems"]


@pytest.mark.slow
def test_an_interrupted_run_exits_130_and_goes_on(world, tmp_path):
    native_folder(tmp_path, 60)
    command = [
        forked_ctx1(),
        "eval",
        "--benchmark",
        str(world),
        "--systems",
        "agent",
        "--out",
        "run",
        "--cache",
        "cache",
    ]
    records = tmp_path / "run" / "records.jsonl"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + ctx1_process.PATIENCE
        while not (records.exists() and records.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        _, error_output = child.communicate(timeout=60)
    assert child.returncode == 130, error_output
    assert 0 < len(records.read_text().splitlines()) < 60
    # The workers of a resumed run would only import.
    command += ["--processes", "1"]
    resumed = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=ctx1_process.PATIENCE, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert len(records.read_text().splitlines()) == 60


def test_a_folder_with_a_run_of_another_effort_is_refused(evaluate, world):
    careful = ("--benchmarks", world, "--systems", "agent", "--limit", "1", "--out", "run", "--processes", "1")
    assert evaluate(*careful).returncode == 0
    fast = evaluate(*careful, "--effort", "fast")
    assert fast.returncode == 2
    assert "effort" in fast.stderr
    assert evaluate(*careful, "--effort", "careful").returncode == 0


def test_an_index_whose_vectors_cannot_be_searched_is_compared_without_dense_search(evaluate, tmp_path):
    import chromadb

    client = chromadb.PersistentClient(str(tmp_path / "theirs"))
    notes = client.create_collection("notes", embedding_function=None)
    topics = "rope comet tide violin salt glacier lamp harbor".split()
    texts = [f"An entry about the {topic} and nothing else." for topic in topics]
    vectors = [[float(row == column) for column in range(77)] for row in range(len(topics))]
    notes.add(ids=topics, documents=texts, embeddings=vectors)
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "q1", "question": "What is the comet?", "gold": ["comet"]}))
    asked = ("--questions", "q.jsonl", "--path", "theirs", "--processes", "1")
    run_default = evaluate(*asked, "--out", "run", "--json")
    assert run_default.returncode == 0, run_default.stderr
    assert "is searched by words alone, so the system dense is left out" in run_default.stderr
    assert json.loads(run_default.stdout)["systems"] == ["bm25", "hybrid", "agent"]
    named = evaluate(*asked, "--out", "named", "--systems", "dense")
    assert named.returncode == 1
    assert "Leave that system out of --systems" in named.stdout + named.stderr
