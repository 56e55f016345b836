"""Records of plain text whose fields have keys."""

from __future__ import annotations

import pytest

from context_agent.pruning.keyed_records import keyed_records

RECORD = "Title: {0}\nURL: x/{0}\nIt rained in {0}.\n"


def records(form: str) -> str:
    return "".join(form.format(number) for number in range(4))


@pytest.mark.parametrize(
    "form",
    [
        RECORD,
        f"{RECORD}\n",
        f"---\n{RECORD}",
        f"{RECORD}\nThen the sun shone.\nOn {{0}}.\n",
        "**Title:** {0}\n**URL:** x\nIt rained in {0}.\n",
        "File size (KB): {0}\n Unit: x\n",
        "HOST\ta\t{0}\nSTATE\tup\nTAG\tx\nTAG\ty\n",
        "Q: {0}?\nA: yes.\n",
    ],
)
def test_a_record_begins_where_the_first_key_occurs_again(form: str) -> None:
    first = form.removeprefix("---\n")[:3]
    text = records(form)
    starts = keyed_records(text)
    assert len(starts) == 4
    assert all(text[start:].startswith(first) for start in starts)
    assert len(keyed_records(f"Found 4 of them:\n{text}")) == 4


@pytest.mark.parametrize(
    "text",
    [
        RECORD.format(1) * 2,
        records("Ana: {0}\n"),
        "Ana: a\nBen: b\nAna: c\nEva: d\nAna: e\nIt rained.\n",
        records("  {{\n  name: {0},\n  size: 1,\n  }},\n"),
        records("- a: {0}\n  name: b\n  size: 1\n"),
        records("meta:\n  name: {0}\n  size: 1\n"),
        records("call(a,\nname: {0}\nsize: 1\n"),
        records("\ncommit {0}\nAuthor: Ana\nDate: now\n"),
        records("see http://a.b/{0}\nand c::d\n"),
        "",
    ],
)
def test_other_lines_begin_no_record(text: str) -> None:
    assert keyed_records(text) == []
