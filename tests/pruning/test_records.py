"""Records in each format that tools write are passages, and what remains of them parses."""

from __future__ import annotations

import ast
import base64
import csv
import io
import json
import plistlib
import random
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from context_agent.pruning import ContextPruner, Prices, blocks
from context_agent.pruning.blocks import Passage
from context_agent.pruning.gaps import without
from context_agent.pruning.passages import cut
from context_agent.pruning.records import value_runs
from context_agent.pruning.relevance import MOST_DENSE, Goal, by_words
from context_agent.pruning.tables import tables
from context_agent.pruning.xml_documents import document, name
from tests.support.conversations import rendered
from tests.support.growth import MOST_GROWTH, growth
from tests.support.long_conversation import FILM, conversation, noise, pruner

RECORDS: list[dict[str, Any]] = [
    {"id": n, "host": f"db-{n}.example.com", "city": "Porto", "listen_port": 4_000 + n, "note": f"moved, on day {n}"}
    for n in range(12)
]
KEYS = [*RECORDS[0]]


def _csv(delimiter: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([KEYS, *(record.values() for record in RECORDS)])
    return text.getvalue()


def _table_row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


TABLE = "\n".join([_table_row(KEYS), "|---" * len(KEYS) + "|", *(_table_row([*record.values()]) for record in RECORDS)])
XML = "".join(f"<host>{''.join(f'<{k}>{v}</{k}>' for k, v in record.items())}</host>\n" for record in RECORDS)
BASE64 = base64.b64encode(random.Random(0).randbytes(9_000)).decode()


def _equal_cells(delimiter: str) -> Callable[[str], object]:
    def check(text: str) -> None:
        rows = [*csv.reader(io.StringIO(text), delimiter=delimiter)]
        assert rows[0] == KEYS
        assert {len(row) for row in rows} == {len(KEYS)}

    return check


def _check_table(text: str) -> None:
    lines = text.split("\n\n")[1].split("\n")
    assert lines[:2] == TABLE.split("\n")[:2]
    assert {line.count("|") for line in lines} == {len(KEYS) + 1}


def _ruled(left: str, line: str, cross: str, right: str) -> str:
    return left + cross.join([line * 8] * len(KEYS)) + right


BOXED = [" │ ".join(map(str, cells)) for cells in [KEYS, *(record.values() for record in RECORDS)]]
BOX = "\n".join([
    _ruled("┌", "─", "┬", "┐"), f"│ {BOXED[0]} │", _ruled("├", "─", "┼", "┤"), *(f"│ {row} │" for row in BOXED[1:]),
    _ruled("└", "─", "┴", "┘"),
])  # fmt: skip
GRID_RULE = f"+{'+'.join(['-' * 8] * len(KEYS))}+"
GRID = "\n".join([
    GRID_RULE, _table_row(KEYS), GRID_RULE.replace("-", "="),
    *(f"{_table_row([*record.values()])}\n{_table_row(['more'] * 5)}\n{GRID_RULE}" for record in RECORDS),
])  # fmt: skip
"""A grid with two lines in each row, as the Python package `tabulate` and reStructuredText write it."""
HEAVY = "\n".join([
    _ruled("┏", "━", "┳", "┓"), f"┃ {BOXED[0].replace('│', '┃')} ┃", _ruled("┡", "━", "╇", "┩"),
    *(f"│ {row} │" for row in BOXED[1:]), _ruled("└", "─", "┴", "┘"),
])  # fmt: skip
BARRED = "\n".join([f" {BOXED[0]}", _ruled("-", "-", "+", "-"), *(f" {row}" for row in BOXED[1:]), "(12 rows)"])
WIDTHS = [max(len(str(record[key])) for record in [*RECORDS, dict(zip(KEYS, KEYS, strict=True))]) + 2 for key in KEYS]


def _aligned(cells: Sequence[Any]) -> str:
    return "".join(str(cell).ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


ALIGNED = [_aligned([*record.values()]) for record in RECORDS]
RULED = "\n".join([_aligned(KEYS), _aligned(["-" * (width - 2) for width in WIDTHS]), *ALIGNED])
CAPITALS = "\n".join([_aligned([key.upper() for key in KEYS]), *ALIGNED])


def _check_head(head: str, marks: str = "") -> Callable[[str], object]:
    """Check that the header stays, and that every line has its marks or the rows their places."""

    def check(text: str) -> None:
        lines = text.split("\n")
        assert "\n".join(lines[: head.count("\n") + 1]) == head
        assert not marks or {sum(map(line.count, marks)) for line in lines[1:]} <= {0, len(KEYS) + 1, len(KEYS) - 1}

    return check


FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "pretty": (json.dumps(RECORDS, indent=2), json.loads),
    "under a key": (json.dumps({"hosts": RECORDS, "total": 12}), json.loads),
    "by name": (json.dumps({record["host"]: record for record in RECORDS}), json.loads),
    "after a line": ("Found 12:\n" + json.dumps(RECORDS), lambda text: json.loads(text.split("\n", 1)[1])),
    "on the line": ("Found 12: " + json.dumps(RECORDS), lambda text: json.loads(text.split(": ", 1)[1])),
    "before a line": (json.dumps(RECORDS) + "\n12 rows", lambda text: json.loads(text.rsplit("\n", 1)[0])),
    "fence": (
        f"Here:\n\n```json\n{json.dumps(RECORDS, indent=2)}\n```\nDone.",
        lambda text: json.loads(text.split("```json\n")[1].split("\n```\nDone.")[0]),
    ),
    "jsonl": ("\n".join(map(json.dumps, RECORDS)), lambda text: [*map(json.loads, text.split("\n"))]),
    "xml": (f'<?xml version="1.0"?>\n<hosts>\n{XML}</hosts>', ET.fromstring),
    "csv": (_csv(","), _equal_cells(",")),
    "tsv": (_csv("\t"), _equal_cells("\t")),
    "semicolons": (_csv(";"), _equal_cells(";")),
    "table": (f"# Hosts\n\n{TABLE}\n\nThat is all.", _check_table),
    "box": (BOX, _check_head("\n".join(BOX.split("\n")[:3]), "│")),
    "heavy box": (HEAVY, _check_head("\n".join(HEAVY.split("\n")[:3]), "│┃")),
    "grid": (GRID, _check_head("\n".join(GRID.split("\n")[:3]))),
    "psql": (BARRED, _check_head("\n".join(BARRED.split("\n")[:2]))),
    "ruled columns": (RULED, _check_head("\n".join(RULED.split("\n")[:2]))),
    "ruled after lines": (f"Desired\n{RULED}", _check_head("\n".join(["Desired", *RULED.split("\n")[:2]]))),
    "columns": (CAPITALS, _check_head(CAPITALS.split("\n")[0])),
    "repr": (repr(RECORDS), ast.literal_eval),
    "lines of repr": ("\n".join(map(repr, RECORDS)), lambda text: [*map(ast.literal_eval, text.split("\n"))]),
    "in a string": (
        json.dumps([{"type": "text", "text": json.dumps(RECORDS)}]),
        lambda text: json.loads(json.loads(text)[0]["text"]),
    ),
    "csv in a string": (json.dumps({"out": _csv(",")}), lambda text: _equal_cells(",")(json.loads(text)["out"])),
}


def stub(run: Sequence[int]) -> str:
    return f"[{len(run)} passages pruned, 1,234 tokens; restore: p1-p{len(run)}]"


@pytest.mark.parametrize("name", FORMATS)
def test_each_record_is_a_passage_and_what_remains_parses(name: str) -> None:
    text, parse = FORMATS[name]
    passages = cut(text)
    assert len(passages) == len(RECORDS)
    for record, passage in zip(RECORDS, passages, strict=True):
        assert record["host"] in passage.text
        assert str(record["listen_port"]) in passage.text
    for removed in (range(0, 12, 2), range(3, 9), range(12)):
        parse(without(text, passages, removed, stub))
    assert without(text, passages, [], stub) == text


@pytest.mark.parametrize("name", ["csv", "tsv", "table", "csv in a string", "box", "heavy box", "ruled columns"])
def test_rows_are_labeled_with_the_names_of_their_columns(name: str) -> None:
    assert all("listen_port" in passage.label for passage in cut(FORMATS[name][0]))


def test_sections_and_neighbors_of_tables_are_no_rows_of_a_grid() -> None:
    row = _table_row([*RECORDS[0].values()])
    sections = "\n".join([GRID_RULE, _table_row(KEYS), GRID_RULE, *(4 * f"{row}\n" + GRID_RULE for _ in range(4))])
    neighbors = "\n".join(["\n".join([GRID_RULE, _table_row(KEYS), GRID_RULE, *[row] * 3, GRID_RULE])] * 4)
    assert {passage.text for passage in cut(sections) if passage.form == "row"} == {row}
    assert [passage.text for passage in cut(neighbors)][:3] == [row] * 3


@pytest.mark.parametrize("lead", ["", " ", "\t", "\n\n  ", "\ufeff"])
@pytest.mark.parametrize("value", [RECORDS, {"hosts": RECORDS}, "It rained in most weeks.\n\n" * 80])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_after_white_space_remains_json_even_if_all_of_it_is_removed(lead: str, value: Any, indent: Any) -> None:
    text = lead + json.dumps(value, indent=indent) + "\n"
    passages = cut(text)
    assert len(passages) > 3
    for removed in (range(0, len(passages), 2), range(len(passages))):
        json.loads(without(text, passages, removed, stub).removeprefix("\ufeff"))


def test_a_large_record_is_cut_at_its_members_and_keeps_the_keys() -> None:
    record = {"id": 7, "title": "T", "summary": "It rained. " * 60, "steps": ["walk"] * 200, "log": "a b\n\n" * 900}
    text = json.dumps([record, record])
    passages = cut(text)
    lasts = {len(passages) // 2 - 1, len(passages) - 1}
    remaining = json.loads(without(text, passages, {*range(len(passages))} - lasts, stub))
    assert [list(item) for item in remaining] == [list(record)] * 2


def test_a_record_of_many_small_members_is_cut_too() -> None:
    text = json.dumps({f"setting_{n}": n for n in range(400)})
    passages = cut(text)
    assert len(passages) > 5
    assert len(json.loads(without(text, passages, range(0, len(passages), 2), stub))) < 300


@pytest.mark.parametrize("closer", "]})")
@pytest.mark.parametrize("quoted", ['"C:\\xampp"', '"a\tb"', '"\\q", 1'])
def test_a_bracket_that_closes_nothing_after_a_quoted_text_is_text(quoted: str, closer: str) -> None:
    text = f"{quoted} {closer}\n" + "The ferry to the island leaves at nine.\n" * 60
    assert "".join(passage.text for passage in cut(text)).startswith(quoted)


@pytest.mark.parametrize(
    "text",
    [
        "We met Ana, Jon, Mia\nand, as always, Leo\nwho came late, with Ida, Max, Eva\nand a dog, too",
        "[1] A title\nsome text\n[2] Another\nmore text",
        "{ int a; }\n{ int b; }\n{ int c; }",
        "a | b in a shell\npipes | are no tables\nls | wc",
        "IT RAINED  IN MOST WEEKS\nships stayed in port\nfor weeks\nand weeks\nand weeks",
        "A  B\n- -\n-- --\nthat is all",
        '"It rained," she said. "Ships stayed."',
        "\n".join(f'openat(AT_FDCWD, "/usr/lib/{name}.so", O_RDONLY|O_CLOEXEC) = 3' for name in "abcdef"),
    ],
)
def test_text_that_only_resembles_records_is_text(text: str) -> None:
    assert {passage.form for passage in cut(text)} == {"text"}


NEWLINES = "\n" * 2_000
BINARY = {
    "alone": BASE64,
    "in lines": "\n".join(BASE64[n : n + 76] for n in range(0, len(BASE64), 76)),
    "in json": json.dumps({"name": "a.png", "data": BASE64}),
    "data url": f"The image is data:image/png;base64,{BASE64} and that is all.",
    "hexadecimal": random.Random(0).randbytes(3_000).hex(),
    "blank lines": f"It rained.{NEWLINES}It rained again.",
    "cleared screens": ("\x1b[H\x1b[2J" + (" " * 80 + "\n") * 24) * 20,
    "colors alone": "\x1b[31m\x1b[0m" * 200,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_text_is_one_passage_and_scores_below_all_others(name: str) -> None:
    passages = [*cut(BINARY[name]), Passage("a poem", 0, 6)]
    binary = [row for row, passage in enumerate(passages) if passage.binary]
    assert len(binary) == 1
    assert by_words(passages, Goal(f"What is in {BINARY[name][:300]}?")).argmin() == binary[0]


DENSE_PIECES = {
    "hex dump": [f"{n * 16:08x}: {'7f45 4c46 0201 0100 ' * 2} .ELF....\n" for n in range(200)],
    "minified": [f"function f{n}(a,b){{return a[{n}]+b(a,{{x:{n}}});}}" for n in range(400)],
    "style sheet": [f".c{n}{{color:#{n:06x};margin:{n}px}}" for n in range(400)],
}
ASKED = {
    "hex dump": "00000640: 6272 6f6b 6572 2d70 6f72 743d 3536 3732  broker-port=5672\n",
    "minified": "function retryBroker(q){var tries=7;return q.push(tries)}",
    "style sheet": ".broker-bar{font-size:17px}",
}


@pytest.mark.parametrize("holder", ["{}", '{{"content": {}}}', "<html><h1>A</h1><script>\n{}\n</script></html>"])
@pytest.mark.parametrize("name", DENSE_PIECES)
def test_dense_text_is_read_only_where_it_has_what_is_asked_for(name: str, holder: str) -> None:
    """It was one passage, which went first even if the task named a part of it."""
    pieces = [*DENSE_PIECES[name][:100], ASKED[name], *DENSE_PIECES[name][101:]]
    text = holder.format(json.dumps("".join(pieces)) if "content" in holder else "".join(pieces))
    passages = [*cut(text), Passage("A poem is about a port, and about the weather.", 0, 46)]
    dense = [row for row, passage in enumerate(passages) if passage.dense]
    assert len(dense) > 10
    assert all(len(passages[row].text) <= blocks.LARGEST for row in dense)
    assert "".join("".join(passages[row].text for row in dense).split()) == "".join("".join(pieces).split())
    scores = by_words(passages, Goal("What does the broker say?"))
    assert ASKED[name].strip() in passages[max(dense, key=scores.__getitem__)].text
    assert sum(scores > scores[dense].min()) <= MOST_DENSE + 1, "the other parts go first"
    assert by_words(passages, Goal("Is there a poem?"))[dense].max() < scores[-1]


LONG_LINES = {
    "sql": f"INSERT INTO hosts VALUES {','.join(str((*record.values(),)) for record in RECORDS * 3)};",
    "query of an address": "&".join(f"host{n}=db{n}&owner{n}=harbor-office-{n}" for n in range(99)),
    "a fragment of json": json.dumps(RECORDS * 3, separators=(",", ":"))[20:-10],
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_records_in_one_long_line_are_passages(name: str) -> None:
    """The line counted as minified code, so it was one passage and went first."""
    passages = cut(LONG_LINES[name])
    assert all(not passage.binary and len(passage.text) <= blocks.LARGEST for passage in passages)
    assert "".join(passage.text for passage in passages) == LONG_LINES[name]
    if name == "sql":
        assert all(passage.text.endswith((",", ";")) for passage in passages), "no row is cut"


def test_encoded_text_in_a_long_line_of_records_is_a_passage_of_its_own() -> None:
    line = LONG_LINES["a fragment of json"]
    passages = cut(f'{line},"image":"{BASE64}",{line}')
    assert [passage.text for passage in passages if passage.binary] == [BASE64]
    assert len(passages) > 5


CUT_ENDS = ["", "\n", "... [truncated]", "\n\n... (9 more lines)", "\n<response clipped>\n" + "It rained. " * 99]
MANY = [{**record, "tags": ["sea", {"depth": record["id"]}]} for record in RECORDS * 2]


@pytest.mark.parametrize("end", CUT_ENDS)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("before", ["", "HTTP/1.1 200 OK\n\n"])
def test_the_records_of_json_that_a_tool_cut_are_passages(before: str, indent: int | None, end: str) -> None:
    whole = json.dumps({"total": 24, "hosts": MANY}, indent=indent, separators=(",", ":") if indent is None else None)
    text = before + whole[: whole.rindex('"note"') + 12] + end
    passages = [passage for passage in cut(text) if passage.form == "value"]
    assert [json.loads(passage.text) for passage in passages] == MANY[:-1]
    kept = without(text[: passages[-1].end], passages, [0, *range(2, 23)], stub)
    assert [MANY[1]] == [it for it in json.loads(f"{kept.removeprefix(before)}]}}")["hosts"] if isinstance(it, dict)]


def test_a_cut_record_is_divided_if_it_is_long() -> None:
    """Only its last part is incomplete."""
    text = json.dumps({"page": 1, "host": {"name": "db-1", "logs": [f"{noise(n)}" for n in range(30)]}})[:-90]
    passages = cut(text)
    assert all(json.loads(passage.text) for passage in passages if passage.form == "value")
    assert len(passages) > 10


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MANY) + " and 5 more",
        json.dumps(MANY)[:-1] + ", undefined]",
        json.dumps(MANY)[:-1] + ',\n// the last one\n{"id": 9}]',
    ],
)
def test_text_that_is_no_json_is_not_cut_json(text: str) -> None:
    assert not any(run.is_cut for run in value_runs(text))


@pytest.mark.parametrize("name", ["blank lines", "cleared screens", "colors alone"])
def test_white_space_and_escape_sequences_do_not_displace_other_results(name: str) -> None:
    """They were no passages, so everything else went in vain."""
    messages = rendered("openai", conversation(100 * BINARY[name], f"{FILM} {noise(1)}", "done"))
    pruned = pruner(400).prune(messages)
    assert (pruned.report.outcome, pruned.report.warnings) == ("pruned", ())
    assert "Ana Berg" in str(pruned.messages)
    assert "\x1b" not in str(pruned.messages)


@pytest.mark.parametrize(
    "line", ['{"id": %d, "text": "it rained in the port"}', "it rained on day %d.", "%d,b,c", "10:00:00 INFO day %d"]
)
def test_the_passages_of_a_giant_text_are_bounded(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "UNSCALED", 40_000)
    lines = "id,name,text\n" + "\n".join(line % n for n in range(400_000 // len(line)))
    assert 50 < len(cut(lines)) < 500


@pytest.mark.parametrize("style", ["ini", "yaml"])
def test_lines_of_settings_are_labeled_with_their_section(style: str) -> None:
    def section(name: str) -> str:
        settings = [f"option_{n} = {n * 37}" for n in range(60)] + [f"listen_port = 4711{len(name)}"]
        if style == "ini":
            return "\n".join([f"[{name}]", *settings])
        return "\n".join([f"{name}:", *(f"  {line.replace(' =', ':')}" for line in settings)])

    passages = cut("\n\n".join(map(section, ("development", "staging", "production"))))
    scores = by_words(passages, Goal("On which port does staging listen?"))
    best = passages[int(scores.argmax())]
    assert best.label == "staging"
    assert "listen_port" in best.text
    assert "47117" in best.text


@pytest.mark.parametrize("effort", ["fast", "careful"])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_in_a_tenth_of_the_tokens_the_asked_row_stays_below_its_header(form: str, effort: Any) -> None:
    """Full stubs and the headers of six tables would take all of the room."""

    def table(number: int) -> str:
        rows = [[f"host-{number}{n}", "Porto", 4_000 + 20 * number + n, f"owner {n} eastern region"] for n in range(18)]
        lines = [["host", "city", "listen_port", "owner"], *rows]
        if form == "csv":
            return "\n".join(",".join(map(str, line)) for line in lines)
        return "\n".join([_table_row(lines[0]), "|---" * 4 + "|", *map(_table_row, rows)])

    texts = [table(number) for number in range(1, 7)]
    messages: list[Any] = [{"role": "user", "content": "On which port does host-412 listen?"}]
    for number, text in enumerate([*texts, "saved"]):
        function = {"name": "list_hosts", "arguments": "{}"}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    keeper = ContextPruner("10%", effort=effort, prices=Prices(cached=1.0))
    pruned = keeper.prune(messages)
    assert pruned.report.outcome == "pruned"
    kept = pruned.messages[8]["content"].split("\n")
    assert kept[0] == texts[3].split("\n")[0]
    assert next(line for line in texts[3].split("\n") if "host-412" in line) in kept
    assert len({line.count("," if form == "csv" else "|") for line in kept}) == 1
    assert keeper.prune(messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


@pytest.mark.parametrize("separator", ["\u2028", "\x0b", "\x85"])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_line_separator_in_a_cell_does_not_divide_its_row(form: str, separator: str) -> None:
    lines = [f"{n},owner {n}{separator}of the eastern region,Porto" for n in range(30)]
    text = "\n".join(["id,owner,city", *lines])
    if form == "table":
        text = "\n".join(f"| {line.replace(',', ' | ')} |" for line in text.split("\n"))
        text = text.replace("\n", "\n|---|---|---|\n", 1)
    passages = cut(text)
    assert {passage.form for passage in passages} == {"cell" if form == "csv" else "row"}
    assert [line for passage in passages for line in passage.text.split("\n")] == text.split("\n")[
        1 if form == "csv" else 2 :
    ]


@pytest.mark.parametrize("gap", ["\n", "\n\n", "\n \n\n"])
@pytest.mark.parametrize("before", ["", "Export of May:\n"])
def test_a_quoted_cell_of_several_lines_does_not_divide_its_row(gap: str, before: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "message", "port"])
    messages = [f'Hello,{gap}the "barge" {n} is late{gap}it rained, in most weeks' for n in range(12)]
    writer.writerows((n, message, 4_000 + n) for n, message in enumerate(messages))
    after = "\nThat is all. " + "It rained in most weeks. " * 8
    passages = cut(before + text.getvalue() + after)
    assert [passage.form for passage in passages] == ["cell"] * 12 + ["text"]
    kept = without(before + text.getvalue(), passages, range(3, 9), stub).removeprefix(before)
    rows = [*csv.reader(io.StringIO(kept))]
    assert [row[1] for row in rows] == ["message", *messages[:3], "", *messages[9:]]


@pytest.mark.parametrize("mark", ["... [1,200 lines omitted] ...", "\u2026 301 tokens truncated \u2026"])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_rows_that_a_tool_left_out_do_not_end_a_table(form: str, mark: str) -> None:
    """The rows after the line lost the names of their columns. A CSV was no table if most rows are after the line."""
    head, rows = (2, TABLE.split("\n")) if form == "table" else (1, _csv(",").split("\r\n")[:-1])
    text = "\n".join([*rows[: head + 4], mark, *rows[head + 4 :]])
    passages = cut(text)
    assert [passage.text for passage in passages] == rows[head:]
    assert all("listen_port" in passage.label for passage in passages)
    kept = without(text, passages, range(2, 8), stub).split("\n")
    assert [*kept[: head + 2], *kept[-4:]] == [*rows[: head + 2], *rows[-4:]]
    assert mark in kept, "no stub stands for rows that the tool left out"


def test_a_quotation_mark_that_nothing_closes_takes_no_text_after_its_table() -> None:
    table = "id,note,port\n" + "".join(f"{n},it rained in most weeks in the port {n},{4_000 + n}\n" for n in range(9))
    after = 'The last one, "in May\n\n' + "It rained in most weeks. " * 9
    passages = cut(f'{table}9,"it rained,4009\n\n{after}')
    assert [passage.form for passage in passages[:9]] == ["cell"] * 9
    assert {passage.form for passage in passages[9:]} == {"text"}


@pytest.mark.parametrize("block", ['a,b\n1,"x\n2,3\n4,5\n\n', 'a,b\n1,"x\n\n', '"a\n\n', 'a, b, c\n"\n\n'])
def test_many_quotation_marks_that_nothing_closes_take_linear_time(block: str) -> None:
    assert growth(lambda text: [*tables(text, 0, len(text))], lambda size: block * size, 2_000) < MOST_GROWTH


def test_a_space_may_follow_each_comma_of_a_table() -> None:
    rows = [f'{n}, "quay {n}, north", 400{n}, it rained in most of the weeks' for n in range(9)]
    passages = cut("\n".join(["id, place, port, note", *rows]))
    assert [(passage.form, passage.label) for passage in passages] == [("cell", "id place port note")] * 9


COLUMNS = {
    "df": (
        "Filesystem      Size  Used Avail Use% Mounted on",
        "/dev/sd{n:<2}        {n:>2}G   1G    9G  {n:>2}% /srv/port/{n}",
    ),
    "ss": (
        "State  Recv-Q Send-Q Local Address:Port Peer Address:Port",
        "ESTAB  0      {n:>2}     192.0.2.1:40{n:>2}     192.0.2.2:443",
    ),
    "report": ("Quay          ships  tide in m", "North quay {n:>2} {n:>6}  {n:>6}.50 m"),
    "vmstat": (" r  b   swpd   free", "{n:>2}  0   {n:>4}   {n:>4}"),
}


@pytest.mark.parametrize("before", ["", "In the port\n"])
@pytest.mark.parametrize("name", COLUMNS)
def test_names_above_columns_of_which_one_has_numbers_are_a_header(name: str, before: str) -> None:
    header, row = COLUMNS[name]
    text = before + "\n".join([header, *(row.format(n=n) for n in range(40))])
    found = [*tables(text, 0, len(text))]
    assert [(table.form, table.labels, len(table.rows)) for table in found] == [("text", " ".join(header.split()), 40)]
    assert text[found[0].first :] == text
    assert header in without(text, cut(text), range(len(cut(text))), stub)


@pytest.mark.parametrize(
    "text",
    [
        "Documents  Downloads  Music\nNotes      Pictures   Public\nTemplates  Videos     Work\nPorts      Quays",
        "Build  passed on   Monday\nin 3 minutes and 4  seconds, it\nwas 2 minutes  faster\nthan the 4  before",
        "int   ships;   // 1\nint   quays;   // 2\nint   ports;   // 3\nint   tides;   // 4",
        "Name:     quay 1  north\nDepth:    7 m     low\nCranes:   2       new\nShips:    4       here",
        "one  two  three",
    ],
)
def test_words_with_wide_gaps_are_not_always_a_header(text: str) -> None:
    assert [*tables(text, 0, len(text))] == []


GROUPED = {
    "csv": ["region,host,port,note", '"north, upper",a,4000,{}', ",b,4001,{}", "south,c,4002,{}", ",d,4003,{}"],
    "tsv": [
        "region\thost\tport\tnote",
        "north, upper\ta\t4000\t{}",
        "\tb\t4001\t{}",
        "south\tc\t4002\t{}",
        "\td\t1\t{}",
    ],
    "table": [
        "| region | host | port | note |\n|---|---|---|---|",
        "| north, upper | a | 4000 | {} |",
        "| | b | 4001 | {} |",
        "| south | c | 4002 | {} |",
        "|  | d | 4003 | {} |",
    ],
    "columns": [
        "REGION        HOST  PORT  NOTE",
        "north, upper  a     4000  {}",
        "              b     4001  {}",
        "south         c     4002  {}",
        "              d     4003  {}",
    ],
}


@pytest.mark.parametrize("form", GROUPED)
def test_a_row_is_labeled_with_the_name_of_its_group_which_only_the_first_row_has(form: str) -> None:
    text = "\n".join(GROUPED[form]).replace("{}", "moved to the other quay, as it rained".replace(",", ""))
    labels = [passage.label for passage in cut(text)]
    assert [("north, upper" in label, "south" in label) for label in labels] == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]


def test_numbers_aligned_at_their_ends_do_not_begin_below_an_empty_cell() -> None:
    rows = [
        f"{pid:5}  {pid + 1:5}  worker of the northern quays, which waits for ships" for pid in (99_000, 1, 20_000, 3)
    ]
    assert {passage.label for passage in cut("\n".join(["PID    PPID  COMMAND", *rows]))} == {"PID PPID COMMAND"}


@pytest.mark.parametrize("is_spanned", [False, True])
@pytest.mark.parametrize("has_body", [False, True])
def test_a_row_of_an_html_table_is_labeled_with_its_columns_and_its_group(is_spanned: bool, has_body: bool) -> None:
    first, other = ('<td rowspan="3">{}</td>', "") if is_spanned else ("<td>{}</td>", "<td></td>")
    rows = [
        f"<tr>{other if number % 3 else first.format(('north', 'south')[number // 3])}"
        f"<td>host {number} of the eastern quays</td><td>{4000 + number}</td></tr>"
        for number in range(6)
    ]
    head, body = "<tr><th>region</th><th>host</th><th>listen_port</th></tr>", "\n".join(rows)
    inner = f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>" if has_body else f"{head}\n{body}"
    said = {passage.text: passage.label for passage in cut(f"<table>\n{inner}\n</table>")}
    assert all("listen_port" in said[row] for row in rows)
    assert [("north" in said[row], "south" in said[row]) for row in rows] == [
        (False, False), (True, False), (True, False), (False, False), (False, True), (False, True),
    ]  # fmt: skip


def test_an_element_is_named_by_its_own_attribute_and_not_by_one_whose_name_ends_like_it() -> None:
    text = '<list><ship data-name="row-7" name="Aurora"/><ship data-name="row-8"/><ship name="Borealis"/></list>'
    found = document(text, 0, len(text))
    assert found is not None
    assert [name(ship, ("name",), text) for ship in found.root.children] == ["Aurora", "", "Borealis"]


PROLOGS = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE hosts>\n',
    '<!DOCTYPE hosts PUBLIC "-//Example//DTD HOSTS 1.0//EN" "http://www.example.com/dtds/a-long-path/hosts-1.0.dtd">\n',
    f'<?xml version="1.0"?>\n<!-- {"It rained in most weeks. " * 20} -->\n<?style type="text/css" href="a.css"?>\n',
)


@pytest.mark.parametrize("prolog", PROLOGS)
def test_a_document_that_names_its_type_or_has_a_comment_before_its_root_remains_xml(prolog: str) -> None:
    text = f"{prolog}<hosts>\n{XML}</hosts>"
    passages = cut(text)
    assert [record["host"] in passage.text for record, passage in zip(RECORDS, passages[-12:], strict=True)] == [
        True
    ] * 12
    root = ET.fromstring(without(text, passages, {*range(len(passages))} - {len(passages) - 1}, stub))
    assert [host.findtext("host") for host in root] == [RECORDS[-1]["host"]]


def test_a_document_that_declares_entities_is_text() -> None:
    text = f'<!DOCTYPE hosts [<!ENTITY a "rain">]>\n<hosts>\n{XML}</hosts>'
    assert {passage.form for passage in cut(text)} == {"text"}


@pytest.mark.parametrize("size", [1, 30])
def test_a_value_of_a_property_list_is_removed_with_its_key_which_labels_its_parts(size: int) -> None:
    value = {f"note {n}": "It rained in most of the weeks of that year." for n in range(size)}
    said = {record["host"]: {"port": record["listen_port"], "notes": value} for record in RECORDS}
    text = plistlib.dumps(said).decode()
    passages = cut(text)
    rows = [row for row, passage in enumerate(passages) if "db-7.example.com" in passage.label + passage.text]
    kept = plistlib.loads(without(text, passages, {*range(len(passages))} - {*rows}, stub).encode())
    assert kept == {"db-7.example.com": said["db-7.example.com"]}
