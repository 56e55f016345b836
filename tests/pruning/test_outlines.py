"""YAML is read as an outline, whose records are passages as those of JSON are."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from context_agent.pruning.gaps import without
from context_agent.pruning.outlines import DEEPEST, MOST_LEADING, Outline, outline
from context_agent.pruning.passages import cut
from context_agent.pruning.records import Value
from tests.support.growth import seconds

PODS = """\
apiVersion: v1
kind: List
# The pods of the port.
items:
- kind: Pod
  metadata:
    name: quay
    annotations:
      applied: |
        {"kind": "Pod",
         "ports": [80]}
  spec:
    containers:
    - name: crane
      command:
      - sh
      - -c
    - name: winch
      image: &base registry.example/winch:2.1
- kind: Pod
  metadata: {name: pier}
  empty:
  status:
    note: it rained for
      a week
    "start time": 10:00:00
"""
BODY = "It rained in most of the weeks of that year, and ships stayed in the port. " * 4


def read(text: str) -> Outline:
    found = outline(text)
    assert found is not None
    return found


def plain(found: Outline, value: Value) -> Any:
    """Return a value as lists, dictionaries and texts."""
    if found.is_object(value):
        return {found.string(part.key): plain(found, part) for part in found.parts(value) if part.key is not None}
    return [plain(found, part) for part in found.parts(value)] if found.is_container(value) else found.string(value)


def test_an_outline_has_the_items_and_members_of_yaml() -> None:
    found = read(PODS)
    assert plain(found, found.values[0]) == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "kind": "Pod",
                "metadata": {
                    "name": "quay",
                    "annotations": {"applied": '        {"kind": "Pod",\n         "ports": [80]}'},
                },
                "spec": {
                    "containers": [
                        {"name": "crane", "command": ["sh", "-c"]},
                        {"name": "winch", "image": "registry.example/winch:2.1"},
                    ]
                },
            },
            {
                "kind": "Pod",
                "metadata": "{name: pier}",
                "empty": "",
                "status": {"note": "it rained for\n      a week", "start time": "10:00:00"},
            },
        ],
    }
    items = found.parts(found.values[0])[2]
    assert PODS[items.first :].startswith("# The pods")
    assert PODS[items.start :].startswith("- kind")
    assert [PODS[item.start : item.start + 9] for item in found.parts(items)] == ["kind: Pod"] * 2
    assert [item.first for item in found.parts(items)] == [item.start for item in found.parts(items)]


def test_a_key_may_have_several_words() -> None:
    rooms = {
        f"Room {row} of the mill": {"Kept by": "a miller", "Opening hours": f"8:00 to {row}", "Tags": ["dry"]}
        for row in range(9)
    }
    found = read(f"The rooms:\n```yaml\n{yaml.safe_dump(rooms, sort_keys=False)}```\n")
    assert plain(found, found.values[0]) == rooms


def test_a_list_begins_with_the_dash_of_its_first_item() -> None:
    text = indented(PODS, 3)
    found = read(text)
    assert text[found.start :].startswith("apiVersion")
    items = found.parts(found.values[0])[2]
    (containers,) = found.parts(found.parts(found.parts(items)[0])[2])
    assert text[containers.start :].startswith("- name: crane")
    assert containers.key is not None
    assert containers.key.first == containers.key.start == containers.first


def test_the_deepest_key_of_an_outline() -> None:
    keys = [f"{' ' * row}key-{row}:\n" for row in range(DEEPEST + 1)]
    assert outline("".join(keys[:-1])) is not None
    assert outline("".join(keys)) is None
    items = "a\n" + "- b\n" * 8
    assert outline("- " * DEEPEST + items) is not None
    assert outline("- " * (DEEPEST + 1) + items) is None


def test_the_text_of_an_item_continues_in_lines_that_are_indented() -> None:
    found = read(f"{PODS}last:\n- it rained for\n a week\n- it was\n     dry\n")
    last = found.parts(found.values[0])[-1]
    assert [found.string(item).split() for item in found.parts(last)] == [
        "it rained for a week".split(),
        ["it", "was", "dry"],
    ]


def test_half_of_an_outline_is_nested() -> None:
    nested = "key:\n" + "\n".join(f"    {letter}: rain" for letter in "abcdef")
    flat = len(nested) - len("\n  last: ")
    assert outline(f"  {nested}\n  last: {'x' * flat}") is not None
    assert outline(f"  {nested}\n  last: {'x' * (flat + 1)}") is None


def test_a_comment_belongs_to_the_member_below_it_in_its_column() -> None:
    text = " # About a.\n a: 1\n # About b.\n # More about b.\n b:\n   # Not about c.\n  c: 1\n" + indented(PODS, 2)
    parts = read(text).parts(read(text).values[0])
    assert [text[part.first :].split("\n")[0] for part in parts] == ["# About a.", "# About b."]
    inner = read(text).parts(parts[1])
    assert text[inner[0].first :].startswith("c: 1")


def indented(text: str, spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("value", "string"), [("''", ""), ('""', ""), ('"', '"'), ("'a'", "a"), ("\"a'", "\"a'"), ("a a", "a a"), ("", "")]
)
def test_a_text_is_without_its_quotes(value: str, string: str) -> None:
    found = read(f"{PODS}last: {value}\n")
    last = found.parts(found.values[0])[-1]
    assert found.string(last) == string


def test_a_line_of_a_block_begins_after_its_indentation() -> None:
    block = "rain  and sun\n     ships\nend"
    text = f"{PODS}last: |\n{indented(block, 3)}\n"
    found = read(text)
    last = found.parts(found.values[0])[-1]
    string, offset = found.string(last), found.offsets(last)
    assert string == indented(block, 3)
    for word in ("rain", "ships", "end"):
        line_start = string.rfind("\n", 0, string.index(word)) + 1
        assert {text[offset(at) :].split(maxsplit=1)[0] for at in range(line_start, string.index(word) + 1)} == {word}
    space = string.index(" ", string.index("rain"))
    assert offset(space) == text.rindex("rain") + len("rain")
    assert offset(len(string)) == len(text) - 1


def test_a_few_lines_may_precede_an_outline() -> None:
    lines = [f"It rained {days} days." for days in range(MOST_LEADING + 1)]
    assert len(lines) == 4
    assert read("\n".join([*lines[1:], PODS])).values
    assert outline("\n".join([*lines, PODS])) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("$ kubectl get pods\n\n", ""),
        ("The pods:\n```yaml\n", "```\nThat is all.\n"),
        ("The mill:\nIts rooms:\nIts pods:\n```yaml\n", "```\n"),
    ],
)
def test_other_lines_may_precede_an_outline_and_a_fence_may_surround_it(before: str, after: str) -> None:
    found = read(before + PODS + after)
    assert found.text[found.start : found.end] == PODS.strip()


@pytest.mark.parametrize("mark", ["\t", "→", " | "])
def test_the_lines_of_an_outline_may_be_numbered(mark: str) -> None:
    lines = yaml.safe_dump(services(6)).split("\n")
    text = "\n".join(f"{number:6}{mark}{line}" for number, line in enumerate(lines, 1))
    passages = cut(text, budget=400)
    assert {" ".join(passage.label.split()[:2]) for passage in passages} == {f"services quay-{row}" for row in range(6)}
    left = without(text, passages, range(len(passages)), lambda run: f"{len(run)} gone")
    assert left.split("\n") == [
        f"     1{mark}services:",
        f'     2{mark}  "{len(passages)} gone": ""',
        f"{len(lines):6}{mark}",
    ]


def test_each_document_is_a_value() -> None:
    found = read(f"---\n{PODS}---\n{PODS}...\n")
    assert [found.text[value.start : value.end] for value in found.values] == [PODS.strip()] * 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PODS + "The end.\n", id="a line of prose"),
        pytest.param(f"{PODS}{'- ' * (DEEPEST + 1)}a\n", id="too many dashes in a line"),
        pytest.param(f"The mill:\nIts rooms:\nIts pods:\n```yaml\nIt rained.\n{PODS}```\n", id="many lines before"),
        pytest.param("".join(f"Weeks of {row}:\n- it rained\n- dry\n" for row in range(9)), id="news of a word"),
        pytest.param(PODS.replace("  spec:", "\tspec:"), id="a tab"),
        pytest.param(PODS.replace("  empty:", "  kind: Pod"), id="a key twice"),
        pytest.param(f"- kind: Pod\n{PODS}", id="members after an item"),
        pytest.param("\n".join(f"key-{row}: {row}" for row in range(20)), id="nothing nested"),
        pytest.param("\n".join(f"INFO: it rained\n  for {row} days" for row in range(20)), id="a log"),
        pytest.param(
            "".join(f"10:00:0{row} it rained in:\n  quay: 1\n  pier: 2\n" for row in range(9)), id="a log with values"
        ),
        pytest.param("".join(f"Weeks of year {row}:\n\n- it rained\n- it did not\n" for row in range(9)), id="news"),
        pytest.param(
            "It rained:\n  It rained in:\n" + "".join(f"   {row}: a\n     at b\n" for row in range(9)), id="stack"
        ),
        pytest.param("- a word: it rained\n  for days\n" * 9, id="items with a colon"),
        pytest.param("".join(f"class Quay{row}:\n    crane: int\n    winch: str\n" for row in range(9)), id="types"),
        pytest.param("a:\n  b:\n    c: 1\n", id="a few keys"),
        pytest.param("".join(f"{' ' * row}k:\n" for row in range(DEEPEST + 9)), id="deep"),
        pytest.param("class Quay:\n    def open(self):\n        try:\n            self.crane()\n" * 4, id="code"),
        pytest.param(json.dumps(yaml.safe_load(PODS), indent=2), id="JSON"),
    ],
)
def test_other_texts_are_no_outline(text: str) -> None:
    assert outline(text) is None


def services(count: int) -> dict[str, Any]:
    return {
        "services": {
            f"quay-{row}": {
                "image": f"base:{row}",
                "about": BODY[:90],
                "environment": {f"RAIN_{number}": BODY[:60] for number in range(12)},
                "ports": ["80", f"90{row}"],
                "healthcheck": {"test": ["CMD", "curl", "--fail"], "retries": row, "about": BODY},
            }
            for row in range(count)
        }
    }


@pytest.mark.parametrize("count", [2, 6])
def test_the_parts_of_a_large_member_have_its_name(count: int) -> None:
    for text in (yaml.safe_dump(services(count)), json.dumps(services(count)), repr(services(count))):
        passages = cut(text, budget=400)
        assert len(passages) > count
        names = {" ".join(passage.label.split()[:2]) for passage in passages}
        assert names == {f"services quay-{row}" for row in range(count)}


def test_a_large_member_of_a_mapping_is_removed_with_the_last_of_its_parts() -> None:
    records = services(6)
    for text, parse in ((yaml.safe_dump(records), yaml.safe_load), (json.dumps(records), json.loads)):
        passages = cut(text, budget=400)
        rows = [row for row, passage in enumerate(passages) if {"quay-1", "quay-2"} & {*passage.label.split()}]
        left = parse(without(text, passages, rows, lambda run: f"{len(run)} gone"))["services"]
        assert [*left] == ["quay-0", f"{len(rows)} gone", "quay-3", "quay-4", "quay-5"]
        some = parse(without(text, passages, rows[1:], lambda run: f"{len(run)} gone"))["services"]
        assert "quay-1" in some
        assert "quay-2" not in some


def test_a_list_in_the_column_of_its_key_is_removed_with_the_key() -> None:
    flags = "".join(f"- -{letter}\n" for letter in "abcdefghijklmnopqrstuvwxyz" * 10)
    text = f"command:\n{flags}other:\n  about: {BODY[:90]}\n  more:\n    rain: {BODY[:90]}\n"
    passages = cut(text)
    left = yaml.safe_load(without(text, passages, range(len(passages)), lambda run: f"{len(run)} gone"))
    assert isinstance(left, dict)


def test_parts_of_a_block_of_lines_are_replaced_inside_its_indentation() -> None:
    script = "\n\n".join(f"# Part {row}\n{BODY}" for row in range(8))
    text = yaml.safe_dump({"a": {"b": {"c": 1, "d": 2, "e": 3, "script": "x"}}}, indent=4)
    text = text.replace("script: x", "script: |\n" + "\n".join(" " * 16 + line for line in script.split("\n")))
    passages = cut(text)
    assert len(passages) > 4
    left = yaml.safe_load(without(text, passages, range(0, len(passages), 2), lambda run: f"[{len(run)}: gone]"))
    assert left["a"]["b"]["script"].count("[1: gone]") > 2


WORDS = st.text(alphabet="abc", min_size=1, max_size=8)
TREES = st.recursive(
    st.one_of(WORDS, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(WORDS, inner, max_size=6)),
    max_leaves=40,
)


@given(st.lists(TREES, min_size=8, max_size=12), st.data())
def test_what_remains_of_yaml_parses(trees: list[Any], data: st.DataObject) -> None:
    records = {f"key-{row}": {"about": BODY[:70], "tree": tree} for row, tree in enumerate(trees)}
    # libyaml takes a tenth of the time.
    text = yaml.dump(records, Dumper=yaml.CSafeDumper)
    passages = cut(text, budget=400)
    assert without(text, passages, [], str) == text
    rows = data.draw(st.sets(st.integers(0, len(passages) - 1)))
    yaml.load(without(text, passages, rows, lambda run: f"[{len(run)}: gone]"), Loader=yaml.CSafeLoader)


@pytest.mark.parametrize("text", ["- " * 100_000, "a:\n" * 50_000, "a: b\n" * 50_000, "a:\n b:\n  - c\n" * 20_000])
def test_reading_is_linear(text: str) -> None:
    assert seconds(outline, text) < 2
