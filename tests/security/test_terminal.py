"""Nothing that a document holds can steer the terminal that it is shown on."""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import replace

import pytest
from cyclopts import CycloptsError
from rich.table import Table

from context_agent.agent import SearchResult
from context_agent.cli import app, doctor
from context_agent.cli import output as printing
from context_agent.cli.search_batch import BatchAnswer, BatchRow
from context_agent.errors import DataError
from context_agent.types import RankedDocument

HOSTILE = "\ud800" + "".join(
    char for char in map(chr, range(0x110000)) if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"}
)


def unseen(output: str) -> set[str]:
    return {char for char in output if unicodedata.category(char) in printing.UNSEEN} - {"\n", "\t"}


def test_json_escapes_what_could_steer_a_terminal_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"title": f"a{HOSTILE}é中😀", HOSTILE[:40]: [HOSTILE]}
    printing.print_json(value)
    output = capsys.readouterr().out
    assert unseen(output) == set()
    assert "é中😀" in output
    assert json.loads(output) == value


def test_text_and_notes_lose_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert printing.printable(f"a{HOSTILE}b") == "a\t\nb"
    printing.note(f"name\x1b]0;owned\x07\u202e{HOSTILE}")
    assert unseen(capsys.readouterr().err) == set()


def test_brackets_and_braces_of_a_name_are_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "corpus [/red] {0} [link=https://evil.example]x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with printing.progress(f"Indexing {name}\x1b[31m", "chunks") as advance:
        advance(1, 2, name)
    assert name in capsys.readouterr().err
    table = Table(name)
    table.add_row(name)
    printing.stdout().print(table)
    printing.stdout().print(name)
    assert capsys.readouterr().out.count(name) == 3


@pytest.mark.parametrize("quiet", [True, False])
def test_no_id_title_or_error_adds_a_line_or_a_field_to_the_answers_of_a_batch(*, quiet: bool) -> None:
    documents = (RankedDocument("a\nq2\tb  c", "Title\rq3\tTitle\u2028x", 1.0, ()),)
    row = BatchRow("Who?\nWhere?\tWhy?", "q1\nq9\tx")
    result = SearchResult("", documents, "finished", 1, 1, ())
    for answer in (BatchAnswer(row, result), BatchAnswer(replace(row, id=None), error="no\nq4\tanswer")):
        line = answer.to_line(quiet=quiet)
        assert (len(line.splitlines()), line.count("\t")) == (1, 1), line


@pytest.mark.parametrize(
    "error",
    [
        DataError("bad\x1b[2Jfile\u202e"),
        FileNotFoundError(2, "No such file", "na\x9b2Jme\u202e"),
        RuntimeError("\x1b[2J"),
        CycloptsError("no \x1b[2J option"),
    ],
)
def test_errors_with_hostile_names_lose_it(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(app, "cli", fail)
    assert app.run(["search", "x"]) != 0
    output = capsys.readouterr().err
    assert output.startswith("ctx1: ")
    assert unseen(output) == set()


def test_a_finding_of_the_doctor_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding may quote what a model replied."""
    quoted = f"it replied: \n✓ index ok{HOSTILE}"
    monkeypatch.setattr(doctor, "_checks", lambda _: [doctor.InstallationCheck("tools", "note", quoted, quoted)])
    assert app.run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert unseen(shown) == set()
    assert shown.count("\n") == 1
