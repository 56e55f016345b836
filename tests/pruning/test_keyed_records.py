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
    "form",
    [
        "======== img/{0}.jpg\nFile Size      : {0} MB\nISO            : 100\n",
        "5652{0}053b000-5652{0}0540000 r-xp 00002000 /usr/bin/cat\nSize:    20 kB\nRss:     8 kB\nFlags: rd\n",
        "[{0}]\nState: up\nRate: 10\n",
        " #{0} eth\n State: up\n Rate: 10\n",
    ],
)
def test_a_line_right_before_the_first_field_begins_a_record(form: str) -> None:
    text = records(form)
    starts = keyed_records(text)
    assert len(starts) == 4
    assert all(text[start:].startswith(form[:1]) for start in starts)


def test_lines_of_unlike_forms_begin_no_record() -> None:
    form = "{1}\nState: up\nRate: 10\n"
    text = "".join(form.format(number, title) for number, title in enumerate(["#1", "== 2", "[3]", "quay"]))
    assert all(text[start:].startswith("State") for start in keyed_records(text))


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
