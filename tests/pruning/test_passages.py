"""Tool results are cut into passages from which the text can be put together again."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from context_agent.pruning.blocks import (
    FINE,
    LETTERS_OF_A_WIDE,
    SHORT_ROWS,
    SMALL_BUDGET,
    SMALLEST,
    TARGET,
    Item,
    Sizes,
    with_line_breaks,
)
from context_agent.pruning.gaps import without
from context_agent.pruning.passages import LARGEST, Passage, cut
from context_agent.pruning.passages import _last_line as last_line
from context_agent.pruning.passages import _with_name as with_name
from context_agent.tokens import HarmonyCounter
from tests.support.conversations import TEXTS
from tests.support.growth import MOST_GROWTH, growth

BODY = "It rained in most of the weeks of that year, and ships stayed in the port for as long as they could. " * 2


def texts_of(text: str) -> list[str]:
    return [passage.text for passage in cut(text)]


def test_search_hits_are_passages_with_their_titles() -> None:
    hits = [f"{number}. Title {number}\n\n{BODY.strip()}" for number in range(4)]
    assert texts_of("\n\n".join(hits)) == hits
    tagged = [f'<document index="{number}">\n{BODY.strip()}\n</document>' for number in range(4)]
    assert texts_of("\n".join(tagged)) == tagged


def test_passages_in_wide_characters_have_about_as_many_tokens_as_others() -> None:
    count = HarmonyCounter().count
    sizes = [
        max(count(passage) for passage in texts_of("\n\n".join(f"{sentence * 9}{number}" for number in range(20))))
        for sentence in (BODY, "港の事務所は川沿いの市場の近くにあり、毎週月曜日に開いている。雨の日には閉まる。" * 2)
    ]
    assert 0.5 < sizes[1] / sizes[0] < 1.5
    assert max(map(len, texts_of("港は静かである。" * 300))) <= LARGEST // LETTERS_OF_A_WIDE


@pytest.mark.parametrize(
    "part",
    [
        "| port | depth |\n|---|---|\n" + "".join(f"| p{row} | {row} |\n" for row in range(6)),
        f"```json\n{json.dumps({'ports': ['Orme', 'Vell'] * 40})}\n```\n",
        f"![x](data:image/png;base64,{'aB3' * 300})\n",
    ],
    ids=["table", "JSON", "image"],
)
def test_the_text_after_a_part_of_another_kind_is_in_the_same_section(part: str) -> None:
    text = f"# Ports\n\n{BODY}{BODY}\n\n## North\n\n{BODY}{BODY}\n\n{part}\n{BODY}{BODY}\n\n## Rain\n\n{BODY}{BODY}\n"
    labels = [passage.label for passage in cut(text)]
    after = [label for passage, label in zip(cut(text), labels, strict=True) if text.index(part) <= passage.start]
    assert "Ports North" in after
    assert labels[-1] == "Ports"
    assert all(label.startswith(("Ports", "North")) for label in after)


def test_a_part_of_another_kind_right_below_its_heading_is_named_by_it() -> None:
    table = "| port | depth |\n|---|---|\n" + "".join(f"| p{row} | {row} |\n" for row in range(6))
    text = f"# Ports\n\n{BODY}{BODY}\n\n## North\n\n{table}\n{BODY}{BODY}\n\n## South\n\n{table}\n{BODY}{BODY}\n"
    labels = [passage.label for passage in cut(text)]
    assert [label for label in labels if "port depth" in label and "North" in label]
    assert labels[-1] == "Ports South"
    assert all("North" not in label for label in labels[labels.index("Ports North") + 1 :])


def test_markdown_sections_lend_their_heading() -> None:
    text = f"# Ports\n\n{BODY}\n\n## Rain\n\n{BODY}\n\n{BODY}\n\n```\ncode\n\n\ncode\n```\n"
    passages = cut(text)
    assert [passage.text.split("\n")[0] for passage in passages] == [BODY.strip()] * 3 + ["```"]
    assert [passage.label for passage in passages] == ["Ports", "Ports Rain", "Ports Rain", "Ports Rain"]
    assert passages[3].text == "```\ncode\n\n\ncode\n```"
    assert texts_of(f"# Ports\n\n{BODY}\n\n# Rain\n\n{BODY}")[0].startswith("# Ports"), "it is in one passage"


TITLED = ("1. T\n\n{}", "<doc>\n<title>T</title>\n{}\n</doc>", "[1] T\n{}", "Result 1: T\n\n{}")


@pytest.mark.parametrize("hit", TITLED)
def test_all_passages_of_a_long_hit_have_its_title(hit: str) -> None:
    passages = cut("\n\n".join((hit.format(BODY * 8), "A new paragraph.\n\n" + BODY, "2. It ends.\n\n" + BODY)))
    long = [passage for passage in passages if BODY[:30] in passage.text][:2]
    assert [passage.label for passage in long] == ["T", "T"]


def test_a_hit_without_a_title_does_not_have_that_of_the_hit_before() -> None:
    text = f"<doc>\n<title>Polar Light</title>\n{BODY}\n</doc>\n<doc>\n{BODY}\n</doc>"
    assert [passage.label for passage in cut(text)][-1] == ""


def test_matches_in_a_file_belong_together() -> None:
    lines = [f"src/{name}.py:{number}: value_{number} = compute({number})" for name in "abc" for number in range(12)]
    passages = cut("\n".join(lines))
    assert all(len({line.split(":")[0] for line in passage.text.split("\n")}) == 1 for passage in passages)


def test_an_indented_line_of_a_log_belongs_to_the_line_before() -> None:
    log = "\n".join(f"2026-01-01 10:00:{n:02d} ERROR it failed\n    at frame {n}\n    at main" for n in range(60))
    passages = cut(log)
    assert len(passages) > 5
    assert all(passage.text.startswith("2026") for passage in passages)
    assert all(len(passage.text) <= LARGEST for passage in passages)


@pytest.mark.parametrize(
    ("stack", "first", "last"),
    [
        (
            "\n\tat shop.Orders.pay(Orders.java:{n})" * 6,
            "java.io.IOException: pipe {n} broke",
            "Caused by: shop.Rain: {n}",
        ),
        ('\n  File "pay.py", line {n}, in pay' * 6, "Traceback (most recent call last):", "KeyError: {n}"),
    ],
)
def test_the_traceback_after_a_log_entry_belongs_to_it(stack: str, first: str, last: str) -> None:
    head = "2026-01-01 10:00:{n:02d} ERROR the worker of the shop could not pay the invoice of the customer {n}\n"
    entries = [f"{head}{first}{stack}\n{last}".format(n=number) for number in range(10, 40)]
    passages = texts_of("\n".join(entries))
    assert len(passages) > 9
    assert all(any(entry in passage for passage in passages) for entry in entries)


@pytest.mark.parametrize(
    "entry",
    [
        "2026-01-01 10:00:{n:02d} INFO gateway accepted the request in {n} ms, which is more than is usual",
        '10.0.3.{n} - - [01/Mar/2026:10:00:{n:02d} +0000] "GET /index.html?page={n} HTTP/1.1" 200 5120 of the gateway',
        'level=info service=gateway msg="the request was accepted" duration={n}ms and what else there is to say here',
    ],
)
def test_each_entry_of_a_log_is_a_passage(entry: str) -> None:
    entries = [entry.format(n=number) for number in range(5)]
    assert texts_of("\n".join(entries)) == entries
    assert texts_of(json.dumps({"log": "\n".join(entries)})) == entries


def test_lines_of_prose_with_a_time_are_no_log() -> None:
    text = "The train leaves at 10:00:00.\nIt is late.\nThe conductor gives no INFO.\nNobody is angry.\nIt goes."
    assert texts_of(text) == [text]


def test_items_of_json_are_passages_and_large_ones_are_opened() -> None:
    items = [{"title": f"T{n}", "stars": n, "text": BODY} for n in range(3)]
    items[1]["text"] = "\n\n".join([BODY] * 12)
    text = json.dumps({"total": 3, "hits": items})
    passages = cut(text)
    assert passages[0].text == text[passages[0].start : passages[0].end]
    assert {passage.form for passage in passages} == {"value", "string"}
    assert {passage.label for passage in passages if passage.form == "string"} == {"hits T1"}
    assert passages[1].text == BODY.strip()


NODE = {f"label-{number}": "The quay of the north, behind the old crane." for number in range(3)}


def _pods() -> list[dict[str, Any]]:
    """Records of lists in lists, so large that they are divided."""
    return [
        {
            "metadata": {"name": f"web-{pod}"},
            "containers": [
                {"name": f"part-{part}", "arguments": [BODY.strip()] * 12, "limits": {"memory": f"{part} Mi"}} | NODE
                for part in range(2)
            ],
        }
        for pod in range(3)
    ]


def test_passages_of_nested_records_have_the_names_of_all_of_them() -> None:
    labels = {passage.label for passage in cut(json.dumps(_pods()))}
    assert labels == {f"web-{pod} part-{part}" for pod in range(3) for part in range(2)}
    fields = {"note": BODY * 8, "status": {"name": "Open"}, "reporter": {"name": "Ana", "about": BODY * 8}}
    issue = {"key": "OPS-7", "fields": fields}
    assert {passage.label for passage in cut(json.dumps([issue]))} == {"OPS-7", "OPS-7 Ana"}


def _stub(rows: list[int]) -> str:
    return f"{len(rows)} gone"


@pytest.mark.parametrize("indent", [None, 2])
def test_an_item_without_remaining_passages_is_removed_as_a_whole(indent: int | None) -> None:
    pods = _pods()
    text = json.dumps({"kind": "list", "items": pods}, indent=indent)
    passages = cut(text)
    first, second, third = (_rows_in(passages, item) for item in _outer(passages))
    assert min(len(first), len(second), len(third)) > 4
    one = json.loads(without(text, passages, second, _stub))
    assert one["items"] == [pods[0], f"{len(second)} gone", pods[2]]
    # Neighbors that are removed as a whole share a stub.
    two = json.loads(without(text, passages, [*first, *second], _stub))
    assert two["items"] == [f"{len(first) + len(second)} gone", pods[2]]
    # What is around a passage that remains stays, and so does an item beside an inner one that is removed.
    kept = json.loads(without(text, passages, [*first[:-1], *third], _stub))["items"]
    assert kept[0]["metadata"] == pods[0]["metadata"]
    assert isinstance(kept[0]["containers"][0], str)
    assert isinstance(kept[0]["containers"][1], dict)
    assert kept[1:] == [pods[1], f"{len(third)} gone"]


def _rows_in(passages: list[Passage], item: Item) -> list[int]:
    return [row for row, passage in enumerate(passages) if item in passage.items]


def _outer(passages: list[Passage]) -> list[Item]:
    return list(dict.fromkeys(passage.items[-1] for passage in passages if passage.items))


def test_an_item_of_a_list_inside_a_string_is_removed_as_a_whole() -> None:
    pods = _pods()
    text = json.dumps({"output": json.dumps(pods)})
    passages = cut(text)
    rows = _rows_in(passages, _outer(passages)[1])
    pruned = json.loads(without(text, passages, rows, _stub))
    assert json.loads(pruned["output"]) == [pods[0], f"{len(rows)} gone", pods[2]]


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_the_fence_around_a_value_stays_and_the_text_around_the_fence_is_passages(fence: str) -> None:
    records = json.dumps([{"name": f"ship {number}", "log": BODY} for number in range(4)], indent=1)
    before, after = f"Before. {BODY}".strip(), f"After. {BODY}".strip()
    text = f"{before}\n\n{fence}json\n{records}\n{fence}\n\n{after}\n\n{fence}json\n{records}\n{fence}\n"
    passages = cut(text)
    assert [passage.text.strip() for passage in passages if passage.form == "text"] == [before, after]
    kept = without(text, passages, range(len(passages)), lambda rows: "gone")
    assert [line for line in kept.splitlines() if line.startswith(fence)] == [f"{fence}json", fence] * 2


def test_a_line_that_begins_with_code_between_values_is_no_fence() -> None:
    records = json.dumps([{"name": f"ship {number}", "log": BODY} for number in range(4)])
    between = f"```quay open``` opens the quay. {BODY}".strip()
    passages = cut(f"{records}\n\n{between}\n\n{records}")
    assert [passage.text for passage in passages if passage.form == "text"] == [between]


def test_a_block_of_code_at_the_beginning_is_removed_with_its_fences() -> None:
    records = json.dumps([{"name": f"ship {number}", "log": BODY} for number in range(4)], indent=1)
    text = f"```\n{BODY.strip()}\n```\n\nThe ships are:\n\n{records}"
    passages = cut(text)
    assert passages[0].text.startswith("```\n")
    assert "```" not in without(text, passages, range(len(passages)), lambda rows: "gone")


def test_a_line_before_each_of_many_values_names_its_value_and_is_removed_with_it() -> None:
    titles = [f"> GET /api/ships/{number} HTTP/1.1\n< HTTP/1.1 200 OK" for number in range(6)]
    values = [json.dumps({"number": number, "log": BODY[:150]}, indent=1) for number in range(6)]
    text = "\n".join(f"{title}\n{value}" for title, value in zip(titles, values, strict=True))
    passages = cut(text)
    assert [passage.text for passage in passages] == values
    assert all(f"/api/ships/{number} " in passages[number].label for number in range(1, 6))
    rest = without(text, passages, (1, 2, 3, 5), lambda rows: f"{len(rows)} gone")
    assert rest == f"{titles[0]}\n{values[0]}\n3 gone\n{titles[4]}\n{values[4]}\n1 gone"


def test_tags_around_values_stay_because_others_close_them() -> None:
    value = json.dumps({"log": BODY[:150]})
    text = "\n".join(f"<item>\n{value}\n</item>" for _ in range(6))
    passages = cut(text)
    rest = without(text, passages, range(len(passages)), lambda rows: "gone")
    assert rest == "\n".join('<item>\n"gone"\n</item>' for _ in range(6))


@pytest.mark.parametrize("title", ["Step {0}: ask for ship {0}", f"Step {{0}}: {BODY}"], ids=["short", "long"])
def test_fences_go_with_what_is_in_them(title: str) -> None:
    values = [json.dumps({"ship": number, "log": BODY[:150]}) for number in range(6)]
    steps = [f"{title.format(number).strip()}\n\n```\n{inner}\n```" for number, inner in enumerate(values)]
    text = "\n\n".join(steps)
    passages = cut(text)
    assert "```" not in without(text, passages, range(len(passages)), lambda rows: "gone")
    removed = [row for row, passage in enumerate(passages) if passage.start < text.index(values[4])]
    rest = without(text, passages, removed, lambda rows: "gone")
    assert rest.endswith(f"```\n{values[4]}\n```\n\n{steps[5]}")
    assert rest.count("```") == 4


def test_an_error_right_after_a_value_goes_with_it() -> None:
    values = [json.dumps({"number": number, "log": BODY[:150]}, indent=1) for number in range(6)]
    errors = {2: "\nError: ship 2 sank after the reply"}
    parts = [f"GET /ships/{number}\n{value}{errors.get(number, '')}" for number, value in enumerate(values)]
    text = "\n".join(parts)
    passages = cut(text)
    assert "ship 2 sank" in passages[2].label
    assert "ship 2 sank" not in passages[3].label
    assert without(text, passages, (0, 1, 3, 4, 5), lambda rows: "-").endswith(f"\n-\n{parts[2]}\n-")
    assert "sank" not in without(text, passages, (2,), lambda rows: "-")


def test_the_header_of_a_commit_stays_with_its_diff_and_goes_with_it() -> None:
    def commit(number: int) -> str:
        header = f"commit {number}abcdef0\nAuthor: Ana\nDate: now\n\n    Ports {number}\n\n    {BODY.strip()}"
        return f"{header}\n\n--- a/it.py\n+++ b/it.py\n@@ -1,2 +1,2 @@\n-old_{number}\n+new_{number}\n {BODY}"

    text = "\n\n".join(map(commit, range(6)))
    passages = cut(text)
    changes = [row for row, passage in enumerate(passages) if passage.text.startswith("---")]
    assert [passages[row].label for row in changes] == [f"Ports {number} it.py" for number in range(6)]
    rest = without(text, passages, [row for row in range(len(passages)) if row != changes[3]], lambda rows: "-")
    assert rest.startswith("-\n\ncommit 3abcdef0\nAuthor: Ana\nDate: now\n\n    Ports 3\n\n-\n\n--- a/it.py")
    assert rest.count("commit ") == 1
    assert without(text, passages, range(len(passages)), lambda rows: "-") == "-"


@pytest.mark.parametrize(("count", "stay"), [(3, 3), (4, 1)])
def test_the_lines_before_few_values_stay(count: int, stay: int) -> None:
    """The line before the first value may be about all of them."""
    values = [json.dumps({"number": number, "log": BODY[:150]}) for number in range(count)]
    text = "\n".join(f"Ship {number}:\n{value}" for number, value in enumerate(values))
    passages = cut(text)
    assert without(text, passages, range(count), lambda rows: "gone").count("Ship ") == stay


def test_of_the_text_before_a_value_only_the_last_paragraph_is_its_title() -> None:
    values = [json.dumps({"number": number, "log": BODY[:150]}) for number in range(6)]
    text = "\n".join(f"Note {number}.\n\nShip {number}:\n{value}" for number, value in enumerate(values))
    passages = cut(text)
    rest = without(text, passages, (2,), lambda rows: "-")
    assert rest == text.replace(f"Ship 2:\n{values[2]}", "-")


@pytest.mark.parametrize(
    "text",
    [
        "It rained.",
        f"It rained. {json.dumps([{'log': BODY}] * 4)}",
        "\n".join([json.dumps({"log": BODY})] * 4),
        repr([{"log": BODY}] * 4),
    ],
)
def test_a_text_that_must_be_json_and_is_not_has_no_passages(text: str) -> None:
    assert cut(text, as_json=True) == []


@pytest.mark.parametrize("size", [1, 9])
def test_in_a_text_that_must_be_json_the_keys_stay(size: int) -> None:
    record = {"name": "a ship", "log": BODY * size}
    ships = {f"ship {number}": {**record, "notes": [record] * 3} for number in range(6)}
    for value in (ships, record, {"items": ships, "next": None}):
        text = json.dumps(value)
        passages = cut(text, as_json=True)
        left = json.loads(without(text, passages, range(len(passages)), _stub))
        assert passages
        assert left.keys() == value.keys()
    assert json.loads(without(json.dumps([ships]), cut(json.dumps([ships]), as_json=True), [], _stub)) == [ships]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_of_two_tables_one_is_removed_with_its_header_and_its_number_of_rows(end: str) -> None:
    def table(month: str, ship: str, below: str) -> str:
        rows = [
            f"| {ship} {number} | it lay at the north quay for {number} days and then went on |" for number in range(5)
        ]
        return "\n".join([f"Ships in {month}:", "", "| ship | what it did |", "|---|---|", *rows, below, ""])

    text = "\n".join([table("May", "brig", "(5 rows)"), table("June", "barge", "```")]).replace("\n", end)
    passages = cut(text)
    assert [passage.label for passage in passages] == [
        f"Ships in {month} ship what it did" for month in ("May", "June") for _ in range(5)
    ]

    def left(rows: range) -> list[str]:
        return [line for line in without(text, passages, rows, lambda _: "gone").splitlines() if line]

    lines = [line for line in text.splitlines() if line]
    assert left(range(5)) == ["Ships in May:", "gone", *lines[9:]]
    assert left(range(5, 10)) == [*lines[:9], "Ships in June:", "gone", "```"]
    assert left(range(4)) == [*lines[:3], "| gone ||", *lines[7:]]


def test_scalars_are_collected_and_a_small_object_is_one_passage() -> None:
    assert len(cut(json.dumps(list(range(500))))) == 4
    assert texts_of('{"temperature": 5, "wind": "north"}') == ['{"temperature": 5, "wind": "north"}']


@pytest.mark.parametrize("text", ["", " \n\n\t ", "[]", "{}", "null", '"x'])
def test_little_gives_at_most_one_passage(text: str) -> None:
    assert len(cut(text)) <= 1


def test_a_long_word_is_cut_too() -> None:
    assert all(len(text) <= LARGEST for text in texts_of("x" * 50_000))
    assert all(len(text) <= LARGEST for text in texts_of("One sentence. " * 5_000))


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({"budget": None}, 1), ({"budget": SMALL_BUDGET}, 1), ({"budget": SMALL_BUDGET + 1}, 1),
        ({"budget": 0.8 * SMALL_BUDGET}, 0.8), ({"budget": 1}, SMALLEST), ({"is_fine": True}, FINE),
    ],
)  # fmt: skip
def test_a_small_budget_gets_smaller_passages(options: dict[str, Any], factor: float) -> None:
    blocks = "\n\n".join("".join(f"{row} {'x' * 90}\n" for row in range(rows)) for rows in range(1, 40))
    passages = [passage.text for passage in cut(blocks, **options)]
    longest = max(map(len, passages))
    assert factor * LARGEST - 100 < longest <= factor * LARGEST
    whole = [text for text in passages if text.startswith("0 ") and f"{text}\n\n" in blocks]
    assert max(map(len, whole)) == longest


@given(TEXTS)
def test_passages_are_spans_in_order_and_json_stays_json(text: str) -> None:
    passages = cut(text)
    position = 0
    for passage in passages:
        assert position <= passage.start < passage.end <= len(text)
        position = passage.end
        for item in {item for other in passages for item in other.items}:
            assert (item in passage.items) == (item.start < passage.end and passage.start < item.end)
        raw = text[passage.start : passage.end]
        assert passage.text == (json.loads(f'"{raw}"') if passage.form == "string" else _value(passage, raw))
    assert without(text, passages, [], str) == text
    pruned = without(text, passages, range(0, len(passages), 2), lambda run: f'a "stub" of {len(run)}')
    if passages and passages[0].form != "text":
        json.loads(pruned)


def _value(passage: Passage, raw: str) -> str:
    is_string = passage.form == "value" and raw.startswith('"') and passage.text != raw
    return json.loads(raw) if is_string else raw


@pytest.mark.parametrize("part", ["\n", " ", "- ", "1-", "```\n", "[", "a. ", "[a]\n", "[12:00:01] one\n"])
def test_cutting_is_linear(part: str) -> None:
    assert growth(cut, lambda characters: part * (characters // len(part)), 50_000) < MOST_GROWTH


@pytest.mark.parametrize("mark", ["#", "##"])
def test_cutting_sections_with_values_is_linear(mark: str) -> None:
    section = f'{mark} Ports\n\n{BODY}\n\n{{"port": [1, 2]}}\n\n{BODY}\n\n'
    assert growth(cut, lambda characters: "# All\n\n" + section * (characters // len(section)), 50_000) < MOST_GROWTH


@pytest.mark.parametrize("number", ["{:6}\t", "{:4} | ", "{:5}→", "{:>3}: "])
def test_the_spaces_before_line_numbers_are_no_indentation(number: str) -> None:
    functions = [f"def f{row}():\n    total = {row}\n    return total + {row} * {row}" for row in range(90)]
    lines = "\n".join(functions).split("\n")
    listing = "\n".join(number.format(row) + line for row, line in enumerate(lines, start=1))
    passages = texts_of(listing)
    assert len(passages) > 4
    # The first line of the last function fits. Its indented lines stay with it.
    assert max(passage.rindex("def f") for passage in passages) <= TARGET
    assert all("def f" in passage.split("\n")[0] for passage in passages)


COMMITS = [f"commit {n:040x}\nAuthor: Ana\nDate:   Mon\n\n    Subject {n}\n\n    {BODY.strip()}" for n in range(5)]
PYTEST = [
    f"____ test_{n} ____\n\n    def test_{n}():\n        rain = ships({n})\n>       assert rain == {n}\n"
    f"E       assert 7 == {n}\n\ntests/test_ports.py:{n}: AssertionError"
    for n in range(5)
]
UNITTEST = [f"{'=' * 70}\nFAIL: test_{n} (ports)\n{'-' * 70}\n{BODY}\n\nAssertionError: {n}" for n in range(5)]
JEST = [f"  ● ports › it rains {n}\n\n    expect({n}).toBe(7)\n\n    {BODY}\n\n      at ports.js:{n}" for n in range(5)]


@pytest.mark.parametrize("records", [COMMITS, PYTEST, UNITTEST, JEST])
def test_the_blocks_of_a_commit_or_of_a_failed_test_stay_together(records: list[str]) -> None:
    assert texts_of("\n\n".join(records)) == records


def test_the_blocks_of_a_long_failed_test_have_its_name() -> None:
    long = f"____ test_rain ____\n\n{BODY}\n\n{BODY * 3}\n\n{BODY * 3}"
    passages = cut(f"{PYTEST[0]}\n\n{long}\n\n{PYTEST[1]}")
    assert [passage.label for passage in passages] == ["", *["test_rain"] * 3, ""]


def test_tracebacks_that_belong_together_are_one_passage() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line {0}, in f\n    g()\nValueError: rain {0}'
    chained = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    first = chained.join(trace.format(number) for number in range(3))
    second = trace.format(7)
    assert texts_of(f"{first}\n\n{BODY}\n\n{second}") == [first, BODY.strip(), second]


def test_the_exception_stays_with_the_last_frames_of_a_long_traceback() -> None:
    frames = [
        f'  File "ports.py", line {n}, in ship_{n}\n    return load_all_of_the_ships_in_port_{n}(it)' for n in range(9)
    ]
    for number in range(4, 9):
        text = "\n".join(["Traceback (most recent call last):", *frames[:number], "ports.RainError: it rained"])
        (last,) = [passage for passage in texts_of(f"{text}\n{BODY * 6}") if "RainError" in passage]
        assert frames[number - 1] in last


def test_an_indented_block_stays_with_the_block_that_it_belongs_to() -> None:
    settings = "\n".join(f"  setting_{n} = {n}" for n in range(8))
    resources = [f'resource "host_{n}" {{\n{settings}\n\n  disk {{\n    gigabytes = {n}\n  }}\n}}' for n in range(9)]
    assert texts_of("\n\n".join(resources)) == resources
    large = [f"- host {n}\n\n    {'It rains. ' * 50}\n\n    {'It snows. ' * 50}" for n in range(3)]
    assert all(len(passage) <= TARGET for passage in texts_of("\n\n".join(large)))


def test_a_bracket_stays_with_the_lines_that_it_closes() -> None:
    functions = [f"function f{n}(a) {{\n{f'  rain(a, {n});{chr(10)}' * 17}}}" for n in range(9)]
    assert all(passage[-1] == "}" for passage in texts_of("\n".join(functions)))


@pytest.mark.parametrize("indent", ["  ", "│ "])
def test_a_long_indented_text_is_cut_between_its_larger_parts(indent: str) -> None:
    services = [f"├─ service_{n}:\n{f'{indent}└─ setting: rain and wind{chr(10)}' * 9}" for n in range(20)]
    text = "services:\n" + "".join(f"{indent}{line}\n" for service in services for line in service.split("\n") if line)
    assert all(passage.split("\n")[0].endswith(":") for passage in texts_of(text))


QUAY = "".join(f"<crane><part>{row}</part><about>{BODY}</about></crane>" for row in range(9))


def test_parts_of_xml_have_the_names_of_the_elements_around_them() -> None:
    named = f"<name>north</name><size><name>L</name></size><cranes>{QUAY}</cranes>"
    west = f"<about><key>west</key></about>{QUAY}"
    ports = f'<ports><port>{named}</port><port id="south">{QUAY}</port><port>{west}</port></ports>'
    labels = list(dict.fromkeys(passage.label for passage in cut(ports)))
    assert labels == ["north cranes", "south", "west"]


def test_a_large_element_is_removed_with_the_last_of_its_parts() -> None:
    ports = "".join(f'<port name="{name}" about="{BODY}">{QUAY}</port>' for name in ("north", "south", "west"))
    text = f"<ports>{ports}</ports>"
    passages = cut(text)
    rows = [row for row, passage in enumerate(passages) if passage.label in ("south", "west")]
    assert len(rows) > 10
    left = ET.fromstring(without(text, passages, rows, _stub))
    assert [port.get("name") for port in left] == ["north"]
    some = ET.fromstring(without(text, passages, rows[1:], _stub))
    assert [port.get("name") for port in some] == ["north", "south"]


def test_the_declaration_of_an_xml_file_is_no_label() -> None:
    items = "".join(f"<port><name>Rain {n}</name><note>{BODY}</note></port>" for n in range(9))
    assert all("xml" not in passage.label for passage in cut(f'<?xml version="1.0"?>\n<ports>{items}</ports>'))


def test_html_is_cut_where_blocks_begin_and_has_its_headings() -> None:
    rows = [f"    <tr><td>{n}</td>\n<td>Port {n}</td>\n<td>rain and wind</td>\n    </tr>" for n in range(60)]
    parts = [
        f"<p>It rained {n}\nin most of the weeks\nof that year, and <b>ships</b>\nstayed in port.</p>"
        for n in range(60)
    ]
    page = [
        "<!DOCTYPE html>",
        "<html>",
        "<h2 id='t'><a></a>Tides</h2>",
        "<table>",
        *rows,
        "</table>",
        "</section><section><h2>Rain</h2>",
        *parts,
    ]
    passages = cut("\n".join(page))
    for passage in passages[2:]:
        assert passage.text.lstrip().startswith(("<tr>", "<p>", "</section>"))
    assert [passage.label for passage in passages if "Port 40<" in passage.text] == ["Tides"]
    assert [passage.label for passage in passages if "rained 40\n" in passage.text] == ["Rain"]


@pytest.mark.parametrize("prompt", [">>> ", "$ ", "In [7]: ", "ana@port:~/notes$ ", "PS C:\\notes> "])
def test_the_output_of_a_command_stays_with_its_prompt(prompt: str) -> None:
    for width in range(40, 70):
        steps = [f"{prompt}tide({n})\nhigh tide in port {n} {'~' * width}" for n in range(40)]
        assert all(passage.startswith(prompt) for passage in texts_of("\n".join(steps)))


def test_the_cause_of_an_exception_stays_with_it() -> None:
    frames = "\n".join(f"\tat com.example.ports.Tide{n}.run(Tide{n}.java:{n})" for n in range(11))
    traces = [f"java.lang.TideError: port {n}\n{frames}\nCaused by: java.io.IOError: rain\n{frames}" for n in range(5)]
    assert texts_of("\n".join(traces)) == traces


@pytest.mark.parametrize(
    "text",
    [
        r"C:\nginx\nodes\table" + "\n" + r"C:\new\notes\names",
        'print("one\\ntwo\\nthree")\nprint("four\\nfive\\nsix")\n',
        r"a\nb\nc\nd\ne",
    ],
)
def test_few_escapes_stay(text: str) -> None:
    assert with_line_breaks(text) == text


def test_escaped_line_breaks_are_line_breaks_in_a_text_of_the_same_length() -> None:
    assert with_line_breaks(r"a\nb\nc\td\r\ne\nf\ng") == "a \nb \nc  d   \ne \nf \ng"
    assert with_line_breaks("a\\nb" * 5 + "\n") == "a\\nb" * 5 + "\n"
    assert with_line_breaks("a\\nb" * 6 + "\n") == "a \nb" * 6 + "\n"


@pytest.mark.parametrize("first_line", ["WEBVTT\n", "\ufeffWEBVTT - Rain\r\n"])
def test_the_first_line_of_subtitles_stays(first_line: str) -> None:
    cues = "".join(
        f"00:00:{n}.000 --> 00:00:{n}.900\nIt rained in the {n}th week of the year.\n\n" for n in range(10, 60)
    )
    passages = cut(f"{first_line}\n{cues}")
    assert passages[0].start >= len(first_line)
    assert passages[0].text.startswith("00:00:10.000 -->")


def shapes(text: str) -> list[tuple[str, int]]:
    """The forms and the lengths of the passages, each once in a row."""
    return [shape for shape, _ in groupby((it.form, it.end - it.start) for it in cut(text))]


@pytest.mark.parametrize(
    ("count", "length", "lengths"),
    [
        (30, 41, [600, 84]),  # at most `TARGET` characters, with the commas and spaces between them
        (30, 42, [570, 174]),
        (12, 99, [503, 200]),
        (12, 100, [100]),  # not below `SMALL`
    ],
)
def test_scalars_are_joined_up_to_the_target_size(count: int, length: int, lengths: list[int]) -> None:
    values = [str(number).zfill(length - 2) for number in range(count)]
    assert shapes(json.dumps(values)) == [("value", length) for length in lengths]


@pytest.mark.parametrize(("length", "lengths"), [(39, [599, 199]), (40, [40])])
def test_records_and_rows_are_joined_if_they_are_tiny(length: int, lengths: list[int]) -> None:
    rows = "".join(f"{number},".ljust(length, "x") + "\n" for number in range(10, 60))
    assert shapes(f"id,name\n{rows}") == [("cell", length) for length in lengths]
    values = [{"note": "v" * (length - len('{"note": ""}'))}] * 20
    assert {it.end - it.start > length for it in cut(json.dumps(values))} == {length < 40}


@pytest.mark.parametrize(
    ("records", "texts", "passages"),
    [
        (4, 0, [("member", 406)]),
        (3, 1, [("member", 406), ("member", 408)]),
        (2, 2, [("value", 400), ("value", 402)]),
        (3, 0, [("value", 400)]),
        (6, 2, [("member", 406), ("member", 408)]),
        (5, 3, [("value", 400), ("value", 402)]),
    ],
)
def test_an_object_of_many_records_is_a_list_of_them(records: int, texts: int, passages: list[tuple[str, int]]) -> None:
    """Three of four members are records, and there are at least four members. Each key then goes with its record."""
    record = {"note": "v" * (400 - len('{"note": ""}'))}
    members = {f"r{number}": record for number in range(records)} | {f"s{number}": "w" * 400 for number in range(texts)}
    assert shapes(json.dumps(members)) == passages


@pytest.mark.parametrize(("length", "goes"), [(60, False), (61, True)])
def test_small_members_go_if_they_have_more_than_three_times_the_small_size(length: int, goes: bool) -> None:
    small = {f"k{number}": "v" * (60 - len('"k0": ""')) for number in range(4)}
    members = small | {"k9": "v" * (length - len('"k0": ""')), "large": "It rained. " * 200}
    assert (shapes(json.dumps(members))[0][0] == "member") is goes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", ""),
        ("The rain:\nTarn\n", "Tarn"),
        ("## Tarn:\n```json\n", "Tarn"),
        ("> **Tarn**\n\n", "Tarn"),
        ("Tarn\n<?xml version='1.0'?>\n", "Tarn"),
        ("Tarn\n12\n", ""),
        ("Tarn\n  <?xml version='1.0'?>\n", "Tarn"),
        ("a" * 130, "a" * 120),
        ("a" * 30 + "b" * 240, "b" * 120),
    ],
)
def test_the_last_line_before_a_part_names_it(line: str, said: str) -> None:
    assert last_line(line) == said


@pytest.mark.parametrize(
    ("label", "name", "whole"),
    [
        ("", "Tarn", "Tarn"),
        ("Fell", "", "Fell"),
        ("a" * 120, "", "a" * 120),
        ("Fell", "Tarn", "Fell Tarn"),
        ("a" * 115, "Tarn", "a" * 115 + " Tarn"),
        ("a" * 116, "Tarn", "a" * 115 + " Tarn"),
        ("Fell", "b" * 119, "b" * 119),
        ("Fell", "c" + "b" * 120, "b" * 120),
    ],
)
def test_a_label_is_shortened_so_that_the_name_has_room(label: str, name: str, whole: str) -> None:
    assert with_name(label, name) == whole


def test_a_tiny_row_of_a_table_is_a_passage_and_tiny_pairs_are_joined() -> None:
    rows = [f"A-{number},Ana Berg,lamp,Bergen" for number in range(100, 130)]
    assert [passage.text for passage in cut("\n".join(["order,customer,item,city", *rows]))] == rows
    shortest = [f"{number},b,c" for number in range(100, 130)]
    assert [passage.text for passage in cut("\n".join(["order,customer,item", *shortest]))] == [
        "\n".join(shortest[row : row + 5]) for row in range(0, 30, 5)
    ]
    pairs = [f"{number}K\tsrc/a{number}.py" for number in range(100, 130)]
    assert len(cut("\n".join(["size\tfile", *pairs]))) == 1


def test_tiny_rows_of_a_long_text_are_joined_up_to_the_target_size() -> None:
    short, long = Sizes.of("a" * SHORT_ROWS), Sizes.of("a" * (SHORT_ROWS + 1))
    assert (short.rows, long.rows) == (short.tiny, long.target)
