from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from context_agent._support.question_files import MAX_PROBLEMS, load_questions
from context_agent.errors import DataError
from context_agent.types import Question

ROW = {"id": "q1", "question": "Who?", "answer": "Ann", "gold": ["d1", 2], "type": "bridge", "hops": 2, "other": [1]}
FULL = Question("q1", "Who?", "Ann", ("d1", "2"), "bridge", 2)


def write_rows(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_row_with_everything_and_a_row_with_the_question_alone(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "q.jsonl", ROW, {"question": "Où?"})
    assert load_questions(file) == load_questions(str(file)) == [FULL, Question("2", "Où?")]


def test_other_names_of_the_fields_and_nulls() -> None:
    row = {"_id": 7, "query": "Why?", "answer": None, "gold": None, "hops": None}
    assert load_questions(io.StringIO(json.dumps(row))) == [Question("7", "Why?")]


def test_zipped_files_streams_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(ROW).encode()
    file = tmp_path / "q.jsonl.gz"
    file.write_bytes(gzip.compress(line + b"\n"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line), "ascii"))
    assert load_questions(file) == load_questions(io.BytesIO(b"\xef\xbb\xbf" + line)) == load_questions("-") == [FULL]


def test_ids_default_to_the_number_of_the_line_blank_ones_counted() -> None:
    stream = io.StringIO('\n{"question": "A?"}\n  \n{"question": ""}\n')
    assert load_questions(stream) == [Question("2", "A?"), Question("4", "")]


def test_no_line_gives_no_question() -> None:
    assert load_questions(io.StringIO("\n")) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "must be an object with fields; got a list"),
        ("null", "must be an object with fields; got null"),
        ("{}", "no field question"),
        (
            '{"text": "Who?", "id": 1}',
            "no field question, and its fields are ['text', 'id']. Add one, or rename a field.",
        ),
        ('{"question": "?", "Gold_IDs": ["d1"]}', "the field 'Gold_IDs' is not read. Rename it to gold."),
        ('{"question": "?", "golds": ["d1"], "answer": "x"}', "Rename it to gold."),
        ('{"question": "?", "gold": ["d1", " "]}', "field gold must be a list"),
        ("id,question,gold", "Write each object on one line"),
        ('{"question": 3}', "field question must be a string; got a whole number"),
        ('{"question": "?", "id": 1.5}', "field id must be a string or a whole number; got a number"),
        ('{"question": "?", "gold": "d1"}', "field gold must be a list"),
        ('{"question": "?", "gold": [{}]}', "field gold must be a list"),
        ('{"question": "?", "answer": ["a"]}', "field answer must be a string; got a list"),
        ('{"question": "?", "hops": true}', "field hops must be a whole number; got a boolean"),
        ('{"question": "?", "id": "1"}', "line 1 already has the id '1'"),
    ],
)
def test_a_malformed_row_is_named_by_its_line(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "fine"}\n' + line)
    with pytest.raises(DataError) as excinfo:
        load_questions(file)
    assert str(excinfo.value).startswith(f"{file}:2: ")
    assert reason in str(excinfo.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl cannot be read .No such file"):
        load_questions(tmp_path / "none.jsonl")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(ROW).encode() * 50)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        load_questions(cut)
    binary = tmp_path / "b.jsonl"
    binary.write_bytes(b"\xff\xfe\xff\n")
    with pytest.raises(DataError, match="not UTF-8"):
        load_questions(binary)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(json.dumps(ROW).encode()), "add .gz to its name"),
        (b"PAR1\x15\x04\x15\x10", "The file is Parquet. Convert it to JSON Lines."),
        (b"PK\x03\x04\x14\x00\x06\x00\n", "The file is a spreadsheet or a ZIP file. Convert it to JSON Lines."),
        (b"PK\x03\x04\x14\x00\xc7\x00\n", "The file is a spreadsheet or a ZIP file. Convert it to JSON Lines."),
        (json.dumps([ROW]).encode(), "Write each object on one line of its own, for example with `jq -c"),
        (json.dumps([ROW], indent=1).encode(), "Write each object on one line of its own, for example with `jq -c"),
        (json.dumps(ROW, indent=1).encode(), "Write each object on one line of its own, as JSON Lines."),
        ("\ufeffid;Question;gold\nq1;When?;a.md\n".encode(), "The file is a table. Convert it to JSON Lines"),
        (b'"query"\t"id"\r\nWhen?\tq1\r\n', "The file is a table. Convert it to JSON Lines"),
        (b"A question?\nWhen?\n", "Write each object on one line of its own, as JSON Lines."),
        (json.dumps({"version": "1", "data": []}).encode(), "The file is in the format of SQuAD. Write an object"),
    ],
)
def test_a_file_of_another_kind_says_what_to_do(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(content)
    with pytest.raises(DataError) as excinfo:
        load_questions(file)
    assert told in str(excinfo.value)


def test_gold_by_fact() -> None:
    (question,) = load_questions(io.StringIO('{"question": "a", "facts": [["d_0", "d_1"], [7]]}'))
    assert question.facts == (("d_0", "d_1"), ("7",))


def test_bad_rows_can_be_collected_and_the_rest_read() -> None:
    problems: list[str] = []
    rows = '{"question": "a", "id": 1}\n{broken\n{"question": "b", "id": 1}\n{"question": "c", "facts": [[]]}\n'
    questions = load_questions(io.StringIO(rows + '{"question": "d", "id": 2}\n'), problems=problems)
    assert [question.question for question in questions] == ["a", "d"]
    assert [text.split(":")[1] for text in problems] == ["2", "3", "4"]


def test_millions_of_invalid_rows_are_counted_without_a_text_for_each() -> None:
    problems: list[str] = []
    assert load_questions(io.BytesIO(b"x\n" * 5_000), problems=problems) == []
    assert len(problems) == 5_000
    assert len(set(map(id, problems))) == MAX_PROBLEMS + 1
    assert problems[-1] == "stream: another row is invalid"
