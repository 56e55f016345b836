"""A row becomes a document: its id, the bounds of its metadata, and what is said of a row that cannot be one."""

from __future__ import annotations

import io
import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import DataError
from context_agent.retrieval.document_checks import LONGEST_KEY, MOST_ENTRIES
from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.rows import (
    ALL_COLUMNS_NOTE,
    LARGEST_METADATA,
    LEAST_DIVIDED,
    LONGEST_ID,
    LONGEST_ROW_NAME,
    check_columns,
    fields_captions,
    fields_text,
    from_row,
    has_text,
    has_text_column,
)
from context_agent.types import Document


def read(row: Any, **options: Any) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    reading = Reading("rows", "rows", io.BytesIO(), LoadOptions(**options), report)
    documents = list(from_row(reading, 1, row))
    return documents, [notice.reason for notice in report.notices]


def test_a_row_of_many_fields_keeps_one_more_than_is_stored_so_that_this_is_reported() -> None:
    (document,), _ = read({"text": "t", **{f"field {number}": number for number in range(400)}})
    assert len(document.metadata) == MOST_ENTRIES + 1


@pytest.mark.parametrize(("numbers", "kept"), [(2, 6), (3, 6)])
def test_the_metadata_of_a_row_is_bounded_by_characters_and_a_number_counts_as_one(numbers: int, kept: int) -> None:
    quarter = LARGEST_METADATA // 4
    texts = {"a": "x" * quarter, "b": "x" * quarter, "c": "x" * quarter, "d": "x" * (quarter - 2)}
    (document,), reasons = read({"text": "t", **texts, **{f"n{number}": number for number in range(numbers)}})
    assert len(document.metadata) == kept
    assert len(reasons) == (numbers > 2)
    assert all("more than 32,768 characters of metadata" in reason for reason in reasons)


def test_a_long_id_is_shortened_and_stays_distinct() -> None:
    ids = ["x" * LONGEST_ID, "x" * (LONGEST_ID + 1), "x" * (LONGEST_ID + 2)]
    whole, first, second = (read({"id": name, "text": "t"})[0][0] for name in ids)
    assert whole.id == ids[0]
    assert len(first.id) == len(second.id) == 200 + 1 + 16
    assert first.id != second.id
    assert (whole.metadata, first.metadata) == ({}, {"source_id": ids[1]})


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ([], {}, ("list", "object")),
        ({}, {}, ("text, content, body or contents", "none")),
        ({"x": 1, "a": 2}, {"text_key": "story"}, ("'story'", "'a', 'x'")),
        (
            {f"f{n:02}": n for n in range(12)},
            {"text_key": "s"},
            f"are {', '.join(repr(f'f{n:02}') for n in range(12))}",
        ),
        ({f"f{n:02}": n for n in range(13)}, {"text_key": "s"}, ("'f11' ...",)),
        ({"text": " "}, {}, ("'text'", "empty")),
        ({"text": None}, {}, ("'text'", "empty")),
        ({"text": 7}, {}, ("'text'", "number, not a string")),
        ({"text": "t", "id": True}, {}, ("'id'", "boolean")),
    ],
)
def test_a_row_that_is_no_document_is_reported(row: Any, options: dict[str, Any], said: tuple[str, ...]) -> None:
    documents, (reason,) = read(row, **options)
    assert documents == []
    assert all(fact in reason for fact in said)
    assert ("..." in reason) == (len(row) > 12)


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ({"id": "a\nb"}, {}, "a_b"),
        ({"id": 7.5, "_id": "x"}, {}, "7.5"),
        ({"id": None, "_id": "x"}, {}, "x"),
        ({"id": math.nan, "doc_id": "x"}, {}, "x"),
        ({"id": " ", "_id": "x"}, {}, "x"),
        ({"id": "y", "key": "x"}, {"id_key": "key"}, "x"),
    ],
)
def test_the_first_field_with_an_id_identifies_a_row(row: Any, options: dict[str, Any], expected: str) -> None:
    (document,), reasons = read({"text": "t", **row}, **options)
    assert document.id == expected
    assert reasons == []


def test_a_row_without_the_named_id_gets_a_digest_and_a_notice() -> None:
    (document,), (reason,) = read({"text": "t", "id": "y"}, id_key="key")
    assert document.metadata == {"id": "y"}
    assert "'key'" in reason


def test_the_marks_of_comments_are_no_part_of_the_names_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# Mills, in all\n# by Ann\nmill,year,town\nOsterby,1901,Sarn\nNorth,1902,Brasko\n")
    (tmp_path / "b.tsv").write_text("#mill\tyear\nOsterby\t1901\n")
    assert [(document.title, document.text.split("\n")[0]) for document in load(tmp_path)] == [
        ("Mills, in all, by Ann", "mill: Osterby"), ("Mills, in all, by Ann", "mill: North"), ("", "mill: Osterby"),
    ]  # fmt: skip


PAGE = "<p>The <b>gate</b> opens.</p><p>At dawn.</p>"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "a.json",
            json.dumps({"issues": [{"subject": "Gate", "status": "open", "log": {"all": [{"said": PAGE}]}}] * 2}),
        ),
        ("a.jsonl", json.dumps({"subject": "Gate", "status": "open", "log": {"all": [{"said": PAGE}]}})),
        ("a.csv", f"subject,status,said\nGate,open,{PAGE}\n"),
    ],
)
def test_a_record_without_a_text_is_titled_by_its_name_and_its_pages_are_text(
    tmp_path: Path, name: str, data: str
) -> None:
    (tmp_path / name).write_text(data)
    document = next(load(tmp_path))
    assert (document.title, document.metadata["status"]) == ("Gate", "open")
    assert "The gate opens.\n\nAt dawn." in document.text
    assert "<" not in document.text


def test_the_short_fields_of_a_json_record_are_metadata(tmp_path: Path) -> None:
    fields = {
        "id": 7,
        "open": True,
        "tags": ["a", "b"],
        "long": "w" * (LONGEST_ROW_NAME + 1),
        "in": {"x": 1},
        "$ref": "r",
    }
    (tmp_path / "a.json").write_text(json.dumps([{**fields, "fields": {"day": 20260102}, "none": None}]))
    document = next(load(tmp_path))
    expected = {"id": 7, "open": True, "tags": '["a", "b"]', "day": 20260102, "path": "a.json"}
    assert (document.id, document.metadata) == ("a.json#1", expected)
    (tmp_path / "a.json").write_text(json.dumps([{f"k{number}": number for number in range(400)}]))
    report = LoadReport()
    assert len(next(load(tmp_path, report=report)).metadata) == MOST_ENTRIES - 1
    assert report.notices == []


def test_a_field_with_a_long_name_is_no_metadata() -> None:
    (document,), (reason,) = read({"k" * (LONGEST_KEY + 1): 1, "k" * LONGEST_KEY: 2, "text": "t", "n": 3})
    assert document.metadata == {"k" * LONGEST_KEY: 2, "n": 3}
    assert f"{LONGEST_KEY}" in reason


@pytest.mark.parametrize(("length", "captions"), [(LEAST_DIVIDED - 1, []), (LEAST_DIVIDED, ["Gates", "North"])])
def test_a_long_text_has_the_captions_of_its_headings_without_the_title(length: int, captions: list[str]) -> None:
    text = f"# Weir\n\n# Gates\n\nThe mill stood.\n\n## North\n\n{'It rained. ' * 200}"
    ((document,), _) = read({"title": "Weir", "text": text[:length]})
    assert [caption.text for caption in document.captions] == captions


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ({"text": "t"}, {}, True), ({"text": " "}, {}, False), ({"text": 7}, {}, False), ({"x": "t"}, {}, False),
        ({"text": 7, "body": "t"}, {}, True), ({"x": "t"}, {"text_key": "x"}, True),
        ({"text": "t", "x": ""}, {"text_key": "x"}, False),
    ],
)  # fmt: skip
def test_a_row_has_text_if_a_field_of_text_is_not_empty(row: Any, options: dict[str, Any], expected: bool) -> None:
    assert has_text(row, LoadOptions(**options)) is expected


@pytest.mark.parametrize("key", ["text_key", "id_key", "title_key"])
def test_a_table_without_a_column_that_is_named_is_refused(key: str) -> None:
    check_columns(["b", "a"], LoadOptions())
    check_columns(["b", "a"], LoadOptions(**{key: "a"}))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"no column 'c'\. The columns are 'a', 'b'"):
        check_columns(["b", "a"], LoadOptions(**{key: "c"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "text_key", "expected"),
    [(["x", "Body"], None, True), (["x"], None, False), (["x"], "x", True), ([], "x", True)],
)
def test_a_table_has_a_column_of_text_if_its_name_says_so(
    names: list[str], text_key: str | None, expected: bool
) -> None:
    assert has_text_column(names, LoadOptions(text_key=text_key)) is expected


def test_if_no_column_is_named_all_of_them_are_the_text() -> None:
    assert ALL_COLUMNS_NOTE.startswith("there is no column text, content, body or contents, so all columns")
    reading = Reading("rows", "rows", io.BytesIO(), LoadOptions(), LoadReport())
    (document,) = from_row(reading, 1, {"a": "The mill", "b": 7}, by_field=True)
    assert (document.text, document.metadata) == ("a: The mill\nb: 7", {"a": "The mill", "b": 7})


def test_a_record_is_a_line_for_each_field() -> None:
    day = date(2026, 1, 2)
    record = {
        "text": "t",
        "n": 7,
        "x": 1.5,
        "no": None,
        "yes": True,
        "day": day,
        "list": [b"t", day, "é"],
        "in": {"a": 1},
    }
    assert fields_text(record) == (
        'text: t\nn: 7\nx: 1.5\nno: null\nyes: true\nday: 2026-01-02\nlist: [\n"",\n"2026-01-02",\n"é"\n]\n'
        'in: {\n"a": 1\n}'
    )


@pytest.mark.parametrize("first", ["one", "one\r", "one\r\ntwo", "one\rtwo"])
def test_the_captions_of_a_record_are_the_keys_and_names_of_its_large_parts(first: str) -> None:
    words = "It rained in the port. " * 5
    record = {
        "a": first,
        "ports": {"north": {"text": words}, "south": {"text": words}},
        "few": {"k": 1},
        "quays": [{"name": "east", "text": words}],
        "last": 7,
    }
    text = unix_lines(fields_text(record))
    said = [(it.text, text[it.start : it.end].split("\n")[0], text[it.end - 1 :][:2]) for it in fields_captions(record)]
    assert said == [
        ("ports", "ports: {", "}\n"), ("north", '"north": {', "},"), ("south", '"south": {', "}\n"),
        ("quays", "quays: [", "]\n"), ("east", "{", "}\n"),
    ]  # fmt: skip


def test_a_field_that_is_nested_too_deeply_costs_its_row_alone() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    documents, (reason,) = read({"text": "t", "deep": deep})
    assert documents == []
    assert "nested too deep" in reason


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.log"])
def test_the_case_of_a_name_does_not_matter_unless_the_options_name_it(tmp_path: Path, name: str) -> None:
    table = "ID,Title,TEXT,Body\n7,Weir,The mill stood.,no\n"
    row = json.dumps({"ID": "7", "Title": "Weir", "TEXT": "The mill stood.", "Body": "no"})
    (tmp_path / name).write_text(table if name == "a.csv" else f"{row}\n")
    (document,) = load(tmp_path)
    assert (document.id, document.title, document.text) == ("7", "Weir", "The mill stood.")
    assert document.metadata["Body"] == "no"
    (other,) = load(tmp_path, options=LoadOptions(text_key="Body"))
    assert (other.text, other.metadata["TEXT"]) == ("no", "The mill stood.")


def test_a_name_in_lower_case_comes_before_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("TEXT,content\nno,The mill stood.\n")
    (document,) = load(tmp_path)
    assert document.text == "The mill stood."


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ({"name": "Osterby"}, "Osterby"),
        ({"Name": " Osterby "}, "Osterby"),
        ({"subject": "The weir", "name": 7}, "The weir"),
        ({"headline": "The weir broke", "subject": "weirs"}, "The weir broke"),
        ({"heading": "Gates"}, "Gates"),
        ({"Summary": "The gate leaks"}, "The gate leaks"),
        ({"title": "The mill", "name": "Osterby"}, "The mill"),
        ({"title": "", "name": "Osterby"}, "Osterby"),
        ({"name": "One\ntwo"}, ""),
        ({"name": "x" * 201}, ""),
        ({"name": "x" * 200}, "x" * 200),
        ({"name": "X"}, "X"),
        ({"name": " ", "subject": "The weir"}, "The weir"),
        ({"label": "spam"}, ""),
    ],
)
def test_a_row_without_a_title_is_titled_by_its_name_which_stays_metadata(row: dict[str, object], title: str) -> None:
    ((document,), _) = read({"text": "The mill stood.", **row})
    assert document.title == title
    assert {key: value for key, value in row.items() if value and key != "title"} == document.metadata
    assert read({"text": "The mill stood.", **row}, title_key="other")[0][0].title == ""


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        (
            [{"author": {"login": "ann"}, "createdAt": "2026-01-02", "body": " Close it. "}],
            "ann (2026-01-02):\nClose it.",
        ),
        ([{"user": "ann", "body": "Close it."}, {"text": "Done."}], "ann:\nClose it.\n\nDone."),
        ([{"created_at": "2026-01-02", "author": None, "content": "Close it."}], "2026-01-02:\nClose it."),
        ([{"owner": {"display_name": 7}, "body": "Close it."}, {"body": None}], "Close it."),
        ([{"author": {"login": " ", "name": "Ina"}, "body": "Close it."}], "Ina:\nClose it."),
        ([{"user": ["ann"], "body": "Close it."}], "Close it."),
    ],
)
@pytest.mark.parametrize("key", ["comments", "answers"])
def test_what_people_replied_to_a_row_is_part_of_its_text(key: str, replies: list[object], text: str) -> None:
    ((document,), _) = read({"title": "The gate leaks", "body": "It leaks.", key: replies})
    assert document.text == f"It leaks.\n\n{text}"
    assert document.metadata == {}


@pytest.mark.parametrize("replies", [2, "none", ["one"], [{"id": 7}], []])
def test_a_field_without_replies_stays_metadata(replies: object) -> None:
    ((document,), _) = read({"body": "It leaks.", "comments": replies})
    assert document.text == "It leaks."
    assert set(document.metadata) == {"comments"}


def test_a_table_without_a_header_loses_no_row(tmp_path: Path) -> None:
    rows = ["7\tThe mill stood.", "8\tThe weir broke.", '9\t"Why?" she asked.']
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    report = LoadReport()
    documents = list(load(tmp_path / "a.tsv", report=report))
    assert [document.text for document in documents] == [
        f"column_1: {number}\ncolumn_2: {text}" for number, text in (row.split("\t") for row in rows)
    ]
    assert "the first row is data" in report.notices[0].reason
    options = LoadOptions(id_key="column_1", text_key="column_2")
    assert {document.id: document.text for document in load(tmp_path / "a.tsv", options=options)} == dict(
        row.split("\t") for row in rows
    )
    (tmp_path / "a.csv").write_text("1,Weir\n2,Gate,x\n3,Mill\n")
    report = LoadReport()
    assert [document.metadata["column_2"] for document in load(tmp_path / "a.csv", report=report)] == ["Weir", "Mill"]
    assert report.notices[-1].line == 2


@pytest.mark.parametrize(
    "table",
    [
        "1991,gate\n5,6\n7,8",
        "0,1\n5,6",
        "hour,1\n5,6",
        "7,text\n8,The mill stood.",
        "7,mill",
        "7,mill\n,8",
        "7,mill\nx,8",
    ],
)
def test_a_first_row_that_may_name_the_columns_is_a_header(tmp_path: Path, table: str) -> None:
    (tmp_path / "a.csv").write_text(table)
    report = LoadReport()
    list(load(tmp_path / "a.csv", report=report))
    assert not any("the first row is data" in notice.reason for notice in report.notices)


def test_a_quotation_mark_in_a_table_with_tabs_is_part_of_the_text_unless_it_quotes_a_cell(tmp_path: Path) -> None:
    rows = [
        '1\t"Yes" is an answer',
        "2\tThe mill stood.",
        '3\t"Not closed',
        '4\t"two\nlines of ""it"""',
        '5\t"a\tb"',
        '6\t"Not closed either',
        '7\tbut 6" or 7',
        '8\t"',
    ]
    (tmp_path / "a.tsv").write_text("id\ttext\n" + "\n".join(rows) + "\n")
    report = LoadReport()
    texts = {document.id: document.text for document in load(tmp_path / "a.tsv", report=report)}
    assert texts == {
        "1": '"Yes" is an answer',
        "2": "The mill stood.",
        "3": '"Not closed',
        "4": 'two\nlines of "it"',
        "5": "a\tb",
        "6": '"Not closed either',
        "7": 'but 6" or 7',
        "8": '"',
    }
    assert report.notices == []


def test_a_table_in_json_whose_columns_are_named_beside_it_has_rows(tmp_path: Path) -> None:
    rows = [["North", "red"], ["South", "blue"]]
    (tmp_path / "a.json").write_text(json.dumps({"columns": ["name", "wheel"], "index": [0, 1], "data": rows}))
    (tmp_path / "b.json").write_text(json.dumps({"fields": [{"name": "name"}, {"name": "text"}], "rows": rows}))
    (tmp_path / "c.json").write_text(json.dumps({"columns": ["name"], "data": rows}))
    first, second, third, fourth, whole = load(tmp_path)
    assert (first.title, first.text) == ("North", "name: North\nwheel: red")
    assert (second.id, third.title, third.text, fourth.text) == ("a.json#2", "North", "red", "blue")
    assert whole.id == "c.json"


@pytest.mark.parametrize(
    "body",
    [
        "<p>The pump <b>leaks</b> &amp; drips.</p><ul><li>Close valve 4.</li></ul>",
        "<p>The pump leaks &amp; drips.</p><p>Close valve 4.</p>\n ",
        "<!-- wp:paragraph -->\n<p>The pump leaks &amp; drips.</p>\n<p>Close valve 4.</p>\n<!-- /wp:paragraph -->",
    ],
)
def test_html_in_a_field_of_text_is_read_as_text(body: str) -> None:
    ((document,), _) = read({"id": 7, "body": body, "comments": [{"author": "Ina", "body": "<p>Valve <i>4</i>?</p>"}]})
    assert "The pump leaks & drips." in document.text
    assert "Close valve 4." in document.text
    assert "Valve 4?" in document.text
    assert "<" not in document.text


@pytest.mark.parametrize(
    "body",
    [
        "Use <p> and </p> for paragraphs.",
        "<p> begins a paragraph",
        "<name>Ina</name>",
        "a < b",
        "<p></p>",
        "<pre-commit>",
    ],
)
def test_a_text_that_only_mentions_tags_stays(body: str) -> None:
    ((document,), _) = read({"body": body})
    assert document.text == body
