"""`ctx1 index`: folders, files and streams in; a report of what was read and what was not."""

import json
import re
import signal
import subprocess

import pytest

from tests.support.ctx1_process import CTX1, on_terminal
from tests.support.ctx1_process import run as run_process
from tests.support.forked_programs import run_program


def read_report(process):
    assert len(process.stdout.splitlines()) == 1
    return json.loads(process.stdout)


def test_a_folder_is_indexed_and_a_second_time_nothing_is_added(inside, notes, tmp_path):
    first = inside("index", notes, "--path", "i", "--json")
    assert first.returncode == 0, first.stderr
    assert read_report(first)["documents"] == len(list(notes.iterdir()))
    assert read_report(first)["added"] == read_report(first)["documents"] == read_report(first)["chunks"]
    second = inside("index", notes, "--path", "i", "--json")
    assert (read_report(second)["added"], read_report(second)["chunks"]) == (0, read_report(first)["chunks"])


def test_a_new_index_of_a_few_english_notes_gets_minilm_and_the_command_says_so(notes, tmp_path):
    first = run_process("index", notes, "--path", "i", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert read_report(first)["embedder"].startswith("minilm-")
    assert "embedder: minilm" in first.stderr
    assert "--embedder SPEC" in first.stderr
    second = run_process("index", notes, "--path", "i", "--json", cwd=tmp_path)
    assert read_report(second)["embedder"] == read_report(first)["embedder"]
    assert "embedder:" not in second.stderr


def test_a_new_index_says_that_its_vectors_are_static_unless_the_caller_named_them(inside, notes):
    chosen = inside("index", notes, "--path", "i", "--json")
    assert read_report(chosen)["embedder"].startswith("static-")
    assert "embedder: static" in chosen.stderr
    assert "embedder:" not in inside("index", notes, "--path", "j", "--embedder", "static").stderr


def test_an_unreadable_file_is_reported_and_the_rest_is_indexed(inside, tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.txt").write_text("The Lume flows past Brasko.", encoding="utf-8")
    (folder / "bad.pdf").write_bytes(b"%PDF-1.7 this is none")
    process = inside("index", folder, "--path", "i", "--json")
    assert process.returncode == 0
    assert "bad.pdf" in process.stderr
    assert (read_report(process)["documents"], read_report(process)["skipped"]) == (1, 1)
    assert inside("index", folder, "--path", "j", "--strict").returncode == 1


def test_standard_input_is_a_source(inside):
    rows = "".join(json.dumps({"id": f"r{n}", "text": f"Row number {n} tells of the Lume."}) + "\n" for n in range(3))
    process = inside("index", "-", "--path", "i", "--json", stdin=rows)
    assert process.returncode == 0, process.stderr
    assert read_report(process)["documents"] == 3
    search = inside("search", "Lume", "--path", "i", "--json")
    assert json.loads(search.stdout)["documents"][0]["id"] in {"r0", "r1", "r2"}


def test_nothing_to_index_is_an_error(inside, tmp_path):
    (tmp_path / "empty").mkdir()
    for source in ("empty", "missing"):
        process = inside("index", source, "--path", "i")
        assert process.returncode == 1
        assert source in process.stderr
        assert "Traceback" not in process.stderr


def test_plain_output_has_no_escape_codes(inside, notes):
    process = inside("index", notes, "--path", "i")
    assert "\x1b" not in process.stdout + process.stderr
    assert f"{len(list(notes.iterdir()))} documents" in process.stdout


def test_an_interrupt_while_waiting_for_input_exits_with_130(tmp_path):
    with subprocess.Popen(
        [CTX1, "index", "-", "--path", "i"], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        child.stdin.write("x" * 2**20)  # More than a pipe holds: when this returns, the command is reading.
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        _, error_output = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in error_output
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, sys
from context_agent.cli import main
from context_agent.retrieval.chroma.record_writer import RecordWriter

store, ending = RecordWriter._store, int(sys.argv.pop(1))

def store_and_interrupt(*arguments):
    stored = store(*arguments)
    RecordWriter._store = store
    os.kill(os.getpid(), ending)
    return stored

RecordWriter._store = store_and_interrupt
main()
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_says_what_it_keeps_and_resumes(ctx1, tmp_path, ending):
    rows = (json.dumps({"id": f"r{n}", "text": f"Row number {n} is about the Lume."}) for n in range(700))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    index = ("index", "rows.jsonl", "--path", "i", "--embedder", "static")
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    process = run_program(tmp_path / "interrupted.py", str(int(ending)), *index, folder=tmp_path)
    assert process.returncode == 130, process.stderr
    message = re.search(
        r"interrupted: ([\d,]+) new or changed documents stored\. To continue, run the same", process.stderr
    )
    assert message, process.stderr
    stored_count = int(message[1].replace(",", ""))
    report = read_report(ctx1(*index, "--json"))
    assert 0 < stored_count < 700
    assert (report["added"], report["resumed"], report["stored"]) == (700, stored_count, 700 - stored_count)


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_ends_the_command_and_the_next_run_goes_on(ctx1, tmp_path):
    rows = (json.dumps({"id": f"r{n}", "text": f"Row number {n} is about the Lume. " * 2}) for n in range(4_000))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    index = ("index", "rows.jsonl", "--path", "i", "--embedder", "static")
    output = on_terminal(*index, cwd=tmp_path, code=130, ctrl_c_at="1,000 of")
    message = re.search(r"interrupted: ([\d,]+) new or changed documents stored\. To continue, run the same", output)
    assert message, output
    assert "Traceback" not in output
    stored_count = int(message[1].replace(",", ""))
    report = read_report(ctx1(*index, "--json"))
    assert 0 < stored_count < 4_000
    assert (report["added"], report["resumed"], report["stored"]) == (4_000, stored_count, 4_000 - stored_count)


def test_a_domain_brings_its_own_loader(inside, tmp_path):
    (tmp_path / "mail").mkdir()
    for name, more in (("a", ""), ("b", "In-Reply-To: <a@x>\n")):
        text = f"From: {name}@x\nSubject: lamps\nMessage-ID: <{name}@x>\n{more}\n{name} wants lamps.\n"
        (tmp_path / "mail" / f"{name}.eml").write_text(text)
    process = inside("index", "mail", "--domain", "email", "--json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["documents"] == 1, "two messages are a thread"
    process = inside("index", "mail", "--domain", "emial")
    assert process.returncode == 2
    assert "Did you mean 'email'" in process.stderr


def test_a_corpus_of_another_language_gets_one_warning_that_names_an_embedder(inside, tmp_path):
    rows = [{"id": f"r{n}", "text": f"第{n}号の浄水場は蛍川から原水を取っている。"} for n in range(5)]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    process = inside("index", "notes.jsonl", "--path", "i")
    assert process.returncode == 0, process.stderr
    assert "language: japanese" in process.stdout
    assert process.stderr.count("--embedder sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2") == 1
    doctor = inside("doctor", "--path", "i")
    assert doctor.returncode == 0, doctor.stdout
    assert doctor.stdout.count("--embedder sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2") == 1


def test_a_named_language_is_used_and_an_unknown_one_is_refused(inside, notes):
    process = inside("index", notes, "--path", "i", "--language", "de", "--json")
    assert (read_report(process)["language"], read_report(process)["warning"]) == ("de", "")
    refusal = inside("index", notes, "--path", "j", "--language", "german")
    assert refusal.returncode != 0
    assert "'german'" in refusal.stderr
    assert "--language" in inside("index", "--help").stdout
