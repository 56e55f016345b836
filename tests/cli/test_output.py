"""How JSON, control characters and unreadable input are shown."""

import errno
import io
import json
import sys

from context_agent.cli import output
from context_agent.cli.output import MAX_LISTED, note_problems, print_json, printable
from context_agent.cli.server_options import ServedIndex, announce_server
from context_agent.retrieval.loaders import Notice


def test_control_characters_are_left_out():
    assert printable("a\x1b[2Jb\u202ec\x07\n\td") == "a[2Jbc\n\td"


def test_a_number_that_is_not_finite_is_printed_as_null(capsys):
    print_json({"score": float("nan"), "text": "é"})
    assert capsys.readouterr().out == '{"score": null, "text": "é"}\n'


def test_json_can_be_read_whatever_the_encoding_of_stdout(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252", errors="backslashreplace"))
    print_json({"text": "é \U0001f600 中 \u202e"})
    assert json.loads(written.getvalue().decode("ascii")) == {"text": "é \U0001f600 中 \u202e"}


def test_a_notice_about_a_file_cannot_forge_another_line(capsys):
    note_problems([Notice("notes/a\nctx1: all is well.txt", "empty")])
    assert capsys.readouterr().err == "ctx1: notes/a ctx1: all is well.txt: empty\n"


def test_few_problems_are_listed_and_of_many_the_first_with_each_reason(capsys):
    binary = [Notice(f"{n}.gz", "unknown extension") for n in range(MAX_LISTED - 1)]
    damaged = Notice("z.pdf", "damaged")
    note_problems([*binary, damaged])
    assert len(capsys.readouterr().err.splitlines()) == MAX_LISTED
    note_problems([*binary, Notice("y.gz", "unknown extension"), damaged], unlisted=3)
    assert capsys.readouterr().err.splitlines() == [
        "ctx1: 0.gz: unknown extension",
        "ctx1: z.pdf: damaged",
        f"ctx1: and {MAX_LISTED + 2} more",
    ]


def test_without_a_terminal_long_work_prints_a_line_about_its_progress_now_and_then(capsys, monkeypatch):
    with output.progress("Indexing notes\x1b", "documents") as advance:
        advance(1, None)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(output, "LOG_SECONDS", 0)
        advance(25_600, None, ", 7 passages")
        advance(2, 3_000)
    assert capsys.readouterr().err.splitlines() == [
        "ctx1: Indexing notes: 25,600 documents, 7 passages, after 0 s",
        "ctx1: Indexing notes: 2 of 3,000 documents, after 0 s",
    ]


def test_work_goes_on_if_its_progress_cannot_be_printed(monkeypatch):
    def refused(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(output, "LOG_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "write", refused)
    with output.progress("Indexing", "documents") as advance:
        advance(1, None)


def test_a_server_runs_if_its_address_cannot_be_printed(monkeypatch):
    written = []

    def refused(text):
        written.append(text)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.stderr, "write", refused)
    announce_server(ServedIndex("/home/ann/notes", "chroma:documents@1", 2), "http://127.0.0.1:8321", as_json=False)
    assert "/home/ann/notes (chroma:documents@1) at http://127.0.0.1:8321" in "".join(written)
