"""A line that names the lines below it stays as long as one of them stays."""

from __future__ import annotations

import json
import random

import pytest

from context_agent.pruning.gaps import without
from context_agent.pruning.passages import cut
from context_agent.pruning.scopes import LONGEST_HEADING, MOST_SCOPES
from context_agent.tokens import HarmonyCounter
from tests.support.conversations import rendered
from tests.support.long_conversation import conversation, pruner, search

NOTE = "The lamp of the light has burnt out"
BODY = "It rained in most of the weeks of that year, and ships stayed in the port for as long as they could. " * 3


def numbered(form: str, count: int) -> list[str]:
    return [form.format(number, number * 7919 % 10_000) for number in range(10, 10 + count)]


FOUND = ["\n".join([f"src/{name}.py", *numbered("{0}:    timeout_{1} = rain or ports", 60)]) for name in "abc"]
LISTED = [
    "\n".join([f"./var/{name}:", "total 48", *numbered("-rw-r--r-- 1 root {0}{1} it{1}.log", 60)]) for name in "abc"
]
SHOWN = ["\n".join([f"==> {name}.conf <==", *numbered("rain_{0} ships_{1}", 90)]) for name in "abc"]
TREE = ["\n".join([f"├── part-{name}", *numbered("│   ├── it_{0}_{1}.txt", 90)]) for name in "abc"]
CLASSES = ["\n".join([f"class {name}:", *numbered("    def f{0}(self):\n        return {1}\n", 60)]) for name in "ABC"]
SECTIONS = ["\n\n".join([f"## Section {name}", *(f"{number} {BODY}" for number in range(5))]) for name in "abc"]
FAILED = [
    "\n".join([f"12:00:0{n} ERROR request {n} failed", "E: no", *numbered("\tat p.q(It.java:{0}{1})", 90)])
    for n in range(3)
]
COMMITS = [
    "\n\n".join([f"commit {n}abcdef0\nAuthor: Ana\nDate: now", f"    Ports {n}", *(f"    {BODY}" for _ in range(5))])
    for n in range(3)
]
GRAPHED = ["\n".join(("* " if row == 0 else "| ") + it for row, it in enumerate(c.split("\n"))) for c in COMMITS]
LONG_NAME = f"{'Ana Lund ' * 8}<{'ana.' * 5}lund@example.org>"
FULLER = [
    "\n\n".join(
        [
            f"commit {n}abcdef0\nAuthor:     {LONG_NAME}\nAuthorDate: now\nCommit:     {LONG_NAME}\nCommitDate: now",
            *(f"    Ports {n} {BODY}" for _ in range(5)),
        ]
    )
    for n in range(3)
]
MAPPED = [
    "\n".join([f"7f64{n}8d6{n}000-7f64{n}8d86000 r--p", "Size:    8 kB", *numbered("Label-{0}:     {1}", 90)])
    for n in range(3)
]
RECORDS = [
    "\n".join([f"Name:         pod-{name}", "Priority:     0", *numbered("Label-{0}:     {1}", 90)]) for name in "abc"
]
LETTERS = [
    "\n".join(
        [
            f"Subject: port {name}\nFrom: Ana {name} <ana@example.org>\nTo: office@example.org\nDate: 2024-05-0{n}\n",
            *(f"{line} {BODY}\n" for line in range(5)),
        ]
    )
    for n, name in enumerate("abc")
]
FORMS = {
    "found": ("\n\n", FOUND, 1),
    "listed": ("\n\n", LISTED, 1),
    "shown": ("\n\n", SHOWN, 1),
    "tree": ("\n", TREE, 1),
    "classes": ("\n\n", CLASSES, 1),
    "sections": ("\n\n", SECTIONS, 1),
    "failed": ("\n", FAILED, 1),
    "commits": ("\n\n", COMMITS, 5),
    "commits in a graph": ("\n| \n", GRAPHED, 5),
    "commits with long headers": ("\n\n", FULLER, 5),
    "mapped memory": ("\n", MAPPED, 1),
    "records": ("\n\n\n", RECORDS, 1),
    "letters": ("\n\n", LETTERS, 4),
    "ruled letters": ("\n\n---------- Forwarded ----------\n", LETTERS, 4),
    "mailbox": ("\n\nFrom ana@example.org Mon Jan  1 00:00:00 2024\n", LETTERS, 4),
    "ruled records": ("\n---\n", RECORDS, 1),
}


def shortened(text: str, *staying: str) -> str:
    """The text with stubs in place of the passages without these words."""
    passages = cut(text)
    removed = [row for row, it in enumerate(passages) if not any(word in text[it.start : it.end] for word in staying)]
    return without(text, passages, removed, lambda rows: f"[p{rows[0]}-p{rows[-1]}]")


@pytest.mark.parametrize("form", FORMS)
def test_what_stays_is_below_the_line_that_names_it(form: str) -> None:
    separator, parts, n_lines = FORMS[form]
    text = separator.join(parts)
    first_lines = ["\n".join(part.split("\n")[:n_lines]) for part in parts]
    last = parts[1].rstrip().rpartition("\n")[2]
    marked = f"{last} NEEDLE"
    text = text.replace(parts[1], parts[1].rstrip().removesuffix(last) + marked, 1)
    lines = shortened(text, "NEEDLE")
    assert f"{first_lines[1]}\n" in lines
    assert lines.index(first_lines[1]) < lines.index("NEEDLE")
    assert first_lines[0] not in lines, "a heading goes with the last passage below it"
    assert first_lines[2] not in lines
    assert all(line.startswith("[p") == ("[p" in line) for line in lines.split("\n")), "a stub has its own line"
    passages = cut(text)
    assert shortened(text, "") == text
    assert len(without(text, passages, range(len(passages)), lambda _: "-")) <= len("-\n-")


@pytest.mark.parametrize("form", FORMS)
def test_a_passage_has_the_line_that_names_it_in_its_label(form: str) -> None:
    separator, parts, _ = FORMS[form]
    names = [passage.label for passage in cut(separator.join(parts))]
    assert all(names)
    assert len({*names}) >= len(parts)


def test_a_short_letter_is_a_passage_with_its_header() -> None:
    """The end of a letter was joined with the header of the next one, and each paragraph was a passage."""
    letters = [f"{it[: it.index(BODY)]}{BODY[:200]}\n\nIt was in the log.\n\nBest,\nAna" for it in LETTERS]
    text = "\n\n".join(letters)
    assert [passage.text for passage in cut(text)] == letters


@pytest.mark.parametrize(
    "header",
    [
        "Name: port\nKind: office\nStatus: open",
        "From: Ana\nTo: office@example.org",
        "Subject: port\nDate: 2024-05-01",
        f"From: {'Ana ' * 100}\nDate: 2024-05-01",
    ],
)
def test_other_lines_of_names_and_long_headers_are_no_header_of_a_letter(header: str) -> None:
    text = "\n\n".join(f"{header}\n\n{BODY}\n\n{BODY}\n\n{BODY}{number}" for number in "ab")
    assert header not in shortened(text, f"{BODY}b")


POD = """Name:         pod-{0}
Start Time:   Mon, 16 Nov 2026 09:14:22 +0000
Containers:
  api-{0}:
    State:        Running
      Started:    Mon, 16 Nov 2026 10:02:11 +0000
    Last State:   Terminated
      Finished:   Mon, 16 Nov 2026 10:02:09 +0000
    Ready:        True
    LOG_LEVEL:    INFO
    Mode:         log INFO and more
    Restarts:     4
    Limits:       {1}
  proxy-{0}:
    State:        Running
      Started:    Mon, 16 Nov 2026 09:14:45 +0000
    Limits:       {2}
Tolerations:      none
"""


def test_a_field_with_a_time_or_a_level_does_not_end_what_is_around_it() -> None:
    """`Started:` was an entry of a log. The lines after it were below it, and no longer below their container."""
    text = "\n".join(POD.format(name, "4 GB" * 20, "2 GB" * 20) for name in "abcdefgh")
    kept = shortened(text, f"Limits:       {'2 GB' * 20}")
    assert all(f"\n  proxy-{name}:\n" in kept for name in "abcdefgh")
    text = "\n".join(f"def f{n}():\n    a = {n}\n    log(INFO, a)\n    b{n} = [{'1, ' * 99}]" for n in range(9))
    assert "def f7():" in shortened(text, "b7 = ")


def test_the_parts_of_a_log_entry_have_its_first_line_in_their_label_once() -> None:
    trace = "".join(f"\tat org.ports.It.f{row}(It.java:{row})\n" for row in range(40))
    labels = [passage.label for passage in cut(f"2026-11-30 10:12:01 ERROR [main] Order 88123 failed\n{trace}")]
    assert len(labels) > 1
    assert {*labels} == {"2026-11-30 10:12:01 ERROR [main] Order 88123 failed"}


def test_a_line_of_another_container_is_not_below_a_log_entry() -> None:
    lines = [f"worker-2  | batch {n} of the ships in the port" for n in range(90)]
    text = "\n".join(["web-1     | 10:00:00 GET /port", "web-1     | no rain", *lines])
    assert "GET" not in shortened(text, "batch 89 ")


def test_a_record_keeps_its_first_field_and_a_count_is_below_none() -> None:
    text = "\n".join(f"Item: {n}\nKind: rain\nText: {BODY * 2}\nMore: {BODY * 2}{n}" for n in range(4))
    assert [line for line in shortened(text, f"{BODY}2").split("\n") if line.startswith("Item")] == ["Item: 2"]
    text = "\n".join(f"{9000 - 77 * n:7} rain {n} of many in the port" for n in range(110))
    assert shortened(text, "rain 109 ").count("rain 0 ") == 0


def test_the_end_of_a_method_goes_with_the_last_of_its_lines() -> None:
    methods = ["\n".join([f"def f{n}", *numbered(f"  it_{n}_{{0}} = {{1}}", 60), "end"]) for n in range(3)]
    kept = shortened("\n".join(methods), "it_1_11 ")
    assert [line for line in kept.split("\n") if line.startswith(("def", "end"))] == ["def f1", "end"]


def test_nested_names_stay_from_the_outermost_on() -> None:
    depth = MOST_SCOPES + 3
    lines = [f"{'  ' * level}level-{level}" for level in range(depth)]
    text = "\n".join([*lines, *(f"{'  ' * depth}it_{number} = {number}" for number in range(150))])
    kept = shortened(text, "it_140 ")
    assert [line for line in lines if f"{line}\n" in kept] == lines[:MOST_SCOPES]


def test_a_long_line_is_no_heading() -> None:
    long = "word " * (LONGEST_HEADING // 4)
    lines = numbered("    def f{0}(self):\n        return {1}\n", 90)
    assert "word" not in shortened("\n".join([f"class {long}:", *lines]), "def f95")


def test_fences_go_with_the_last_of_their_code() -> None:
    code = "\n".join(numbered("rain_{0} = {1}", 150))
    text = f"{BODY}\n\n```python\n{code}\n```\n\n{BODY}\n\n```\n{code.replace('rain', 'ship')}\n```\n\n{BODY}"
    assert shortened(text, "ship_99 ").count("```") == 2
    assert shortened(text, BODY).count("```") == 0
    assert shortened(text, "rain_10 ", "ship_159 ").count("```") == 4
    assert "```python\nrain_10 " in shortened(text, "rain_10 ")


def test_a_heading_in_a_string_stays_too() -> None:
    text = json.dumps({"ok": True, "output": "\n\n".join(FOUND)})
    kept = json.loads(shortened(text, "60:"))["output"]
    assert [part.split("\n")[0] for part in kept.split("\n\n")] == [f"src/{name}.py" for name in "abc"]


TABLE = "| port | depth |\n|---|---|\n" + "".join(f"| p{row} | {row} |\n" for row in range(40))
PARTS = {
    "table": TABLE,
    "JSON": f"```json\n{json.dumps([{'port': f'p{row}', 'depth': row} for row in range(40)])}\n```\n",
    "image": f"![x](data:image/png;base64,{'aB3' * 300})\n",
    "diff": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
}
MANUAL = (
    "# Harbor\n\n{body}\n\n## North\n\n{body}\n\n{part}\n{note}\n\n{body}\n\n## South\n\n{body}\n\n{part}\n{body}\n"
)


def test_the_titles_of_a_section_stay_with_the_text_after_a_part_of_another_kind() -> None:
    for name, part in PARTS.items():
        text = MANUAL.format(body=BODY, part=part, note=f"{NOTE}. {BODY}")
        passages = cut(text)
        kept = next(row for row, passage in enumerate(passages) if NOTE in passage.text)
        left = without(text, passages, {*range(len(passages))} - {kept}, lambda rows: f"[{len(rows)} gone]")
        assert left.index("# Harbor") < left.index("## North") < left.index(NOTE), name
        assert "## South" not in left, name
        assert left.count("gone]") == 4 + (name != "table"), name


def test_a_title_after_a_part_of_another_kind_stays_between_what_is_removed() -> None:
    text = MANUAL.format(body=BODY, part=TABLE, note=BODY)
    passages = cut(text)
    rows = {row for row, passage in enumerate(passages) if "| p3 " in passage.text}
    left = without(text, passages, {*range(len(passages))} - rows, lambda rows: f"[{len(rows)} gone]")
    assert [line for line in left.split("\n") if line.startswith("#")] == ["# Harbor", "## North", "## South"]
    assert (
        without(text, passages, range(len(passages)), lambda rows: f"[{len(rows)} gone]")
        == f"[{len(passages)} gone] \n"
    )


def test_a_title_right_above_a_single_table_stays_with_its_header() -> None:
    text = f"# Harbor\n\n{BODY}\n\n## North\n\n{TABLE}\n## South\n\n{BODY}\n\n{TABLE}\n{BODY}\n"
    passages = cut(text)
    kept = {len(passages) - 1}
    left = without(text, passages, {*range(len(passages))} - kept, lambda rows: f"[{len(rows)} gone]")
    assert "## South" in left
    assert BODY.strip() in left
    for passage in passages:
        assert text[passage.start : passage.end] == passage.text


def left_of(text: str, *words: str) -> str:
    """Return what is left of a text if only the passages with these words stay."""
    passages = cut(text)
    assert all(text[passage.start : passage.end].strip() == passage.text.strip() for passage in passages)
    gone = [row for row, passage in enumerate(passages) if not any(word in passage.text for word in words)]
    assert len(gone) == len(passages) - len(words)
    return without(text, passages, gone, lambda rows: f"[{len(rows)} gone]").replace(BODY.strip(), "BODY")


def test_a_section_without_a_table_after_one_with_a_table_is_not_in_it() -> None:
    text = f"# North\n\n{BODY}\n\n{TABLE}\n{BODY}\n\n# South\n\n{NOTE}. {BODY}\n"
    assert left_of(text, NOTE) == f"[{len(cut(text)) - 1} gone] \n\n# South\n\n{NOTE}. BODY \n"


def test_the_text_after_a_table_and_the_next_section_share_a_stub() -> None:
    text = f"# Harbor\n\n{NOTE}. {BODY}\n\n{TABLE}\n{BODY}\n\n## North\n\n{BODY}\n\n{TABLE}\n{BODY}\n"
    left = left_of(text, NOTE)
    assert left == f"# Harbor\n\n{NOTE}. BODY \n\n[{len(cut(text)) - 1} gone] \n"


def test_a_short_text_before_a_title_is_cut_from_the_section() -> None:
    text = f"{NOTE}.\n\n# North\n\nIt snowed. {BODY}\n\n{TABLE}\n{BODY}\n"
    assert left_of(text, NOTE) == f"{NOTE}.\n\n[{len(cut(text)) - 1} gone] \n"
    assert left_of(text, "It snowed").startswith("[1 gone]\n\n# North\n\nIt snowed. BODY")
    joined = f"{NOTE}.\n\n- a\n# North\nIt rained.\n\n{TABLE}\n{BODY}\n"
    assert "# North" not in "".join(passage.text for passage in cut(joined))


def test_a_value_with_a_title_of_its_own_is_below_the_title_of_the_section() -> None:
    ports = [f'## Port {row}\n\n{{"depth": {row}, "note": "{BODY}"}}\n\n' for row in range(5, 9)]
    text = f"# Harbor\n\n{ports[0]}{ports[1]}{BODY}\n\n{ports[2]}{ports[3]}{BODY}\n"
    passages = cut(text)
    assert '\n\n"[1 gone]"\n\n## Port 6\n\n{"depth": 6' in left_of(text, '"depth": 6')
    rows = [row for row, passage in enumerate(passages) if '"depth": 6' in passage.text]
    left = without(text, passages, rows, lambda gone: f"[{len(gone)} gone]")
    assert f"## Port 6\n\n[1 gone]\n\n{BODY}" in left


def test_a_title_and_the_header_of_a_single_table_stay() -> None:
    for text in (f"# Harbor\n{TABLE}", f"# Harbor\n\n{TABLE}"):
        assert left_of(text).startswith("# Harbor\n")
        assert "| port | depth |" in left_of(text)


def test_a_rule_before_a_title_is_cut_from_the_section() -> None:
    text = f"12\n\n# North\n\nIt snowed. {BODY}\n\n{TABLE}\n{BODY}\n"
    assert cut(text)[0].text == "12"
    assert left_of(text, "It snowed").startswith("[1 gone]\n\n# North\n\nIt snowed.")


def test_the_fence_of_a_second_value_stays() -> None:
    text = MANUAL.format(body=BODY, part=PARTS["JSON"], note=f"{NOTE}. {BODY}")
    passages = cut(text)
    left = without(text, passages, range(len(passages) - 2, len(passages)), lambda rows: f"[{len(rows)} gone]")
    assert left.count("```") == 4


def random_block(draw: random.Random, number: int) -> str:
    """Return a block of a random kind, with its number in it."""
    count = draw.randint(3, 12)
    blocks = (
        BODY * draw.randint(1, 3) + f"p{number}.\n",
        "| port | depth |\n|---|---|\n" + "".join(f"| p{number}x{row} | {row} |\n" for row in range(count)),
        "port,depth,at\n" + "".join(f"p{number}x{row},{row},rain\n" for row in range(count)),
        f"```json\n{json.dumps({f'k{number}': [BODY[:40]] * count}, indent=draw.choice([None, 2]))}\n```\n",
        json.dumps({"number": number, "note": BODY}) + "\n",
        f"data:image/png;base64,{'aB3' * 30 * count}\n",
        "".join(f"- item {number} {row} {BODY[:40]}\n" for row in range(count)),
        "".join(f"2026-11-30 10:12:{row:02} INFO [main] event {number} {row}\n" for row in range(count)),
        f"--- a/x{number}.py\n+++ b/x{number}.py\n@@ -1 +1 @@\n-a\n+b\n",
        f"```python\n# Step {number}\ndef f{number}():\n    return {number}\n```\n",
    )
    return draw.choice(blocks)


@pytest.mark.parametrize("underlined", [False, True])
def test_a_passage_of_a_random_document_is_below_all_titles_of_its_sections(underlined: bool) -> None:
    for seed in range(60):
        draw = random.Random(seed)
        parts: list[tuple[int, str]] = []
        for number in range(draw.randint(2, 14)):
            level = draw.randint(1, 2 if underlined else 4) if draw.random() < 0.45 else 0
            title = f"Title {number}\n{'=-'[level - 1] * 8}\n" if underlined else f"{'#' * level} Title {number}\n"
            parts.append((level, title if level else random_block(draw, number)))
        # The mark below the first title is that of the highest level.
        first = next((level for level, _ in parts if level), 1)
        ranks = {level: (level != first) + 1 if underlined else level for level, _ in parts}
        text = "\n".join(part for _, part in parts)
        passages = cut(text)
        starts = [sum(len(part) + 1 for _, part in parts[:row]) for row in range(len(parts))]
        for row, passage in enumerate(passages):
            above: list[tuple[int, str]] = []
            for start, (level, part) in zip(starts, parts, strict=True):
                if level and start <= passage.start:
                    above = [*(it for it in above if it[0] < ranks[level]), (ranks[level], part)]
            left = without(text, passages, {*range(len(passages))} - {row}, lambda rows: f"[{len(rows)} gone]")
            for _, title in above:
                assert title.rstrip("\n") in left.split("\n\n") or title in left, (seed, title, passage)


def test_code_right_after_a_table_is_fenced_and_its_comments_are_no_titles() -> None:
    code = "```python\n" + "".join(f"# Step {row}\nports({row})\n\n" for row in range(60)) + "```\n"
    text = f"# Harbor\n\n{TABLE}\n{code}\n## South\n\n{BODY}\n\n{TABLE}\n{BODY}\n"
    passages = cut(text)
    steps = [passage for passage in passages if "ports(" in passage.text]
    assert len(steps) > 1
    assert {passage.label for passage in steps} == {"Harbor"}
    assert "Harbor South" in {passage.label for passage in passages}


def test_a_title_after_code_with_a_value_in_it_is_one() -> None:
    value = json.dumps({"ports": [f"p{row}" for row in range(40)]})
    text = f"# Harbor\n\n{BODY}\n\n```\n$ ports --json\n{value}\n$ exit\n```\n\n## South\n\n{BODY}{BODY}\n\n{BODY}\n"
    passages = cut(text)
    kept = len(passages) - 1
    left = without(text, passages, {*range(kept)}, lambda rows: f"[{len(rows)} gone]")
    assert passages[kept].label == "Harbor South"
    assert left.index("# Harbor") < left.index("## South") < left.index(BODY.strip())


def test_a_title_in_a_passage_of_its_own_stays_with_a_single_value_below_it() -> None:
    text = f'{BODY}\n\n#### North\n\n{{"depth": 3, "note": "{BODY}"}}\n\n# South\n\n{BODY}\n'
    passages = cut(text)
    row = next(row for row, passage in enumerate(passages) if "depth" in passage.text)
    left = without(text, passages, {*range(len(passages))} - {row}, lambda rows: f"[{len(rows)} gone]")
    assert left.index("#### North") < left.index('"depth"')


def test_a_small_budget_keeps_a_commit_of_many_with_diffs() -> None:
    """The headers of the other commits are removed with them, so they are no reason to remove all commits."""

    def commit(number: int) -> str:
        change = f"--- a/f{number}.py\n+++ b/f{number}.py\n@@ -1,2 +1,2 @@\n tide\n-rain = {number}\n+rain = 5\n"
        message = f"    {NOTE if number == 30 else f'Port {number}'}"
        header = f"commit {number:040x}\nAuthor: Ana <ana@example.org>\nDate:   now\n\n{message}\n\n"
        return header + (f"diff --git a/f{number}.py b/f{number}.py\n{change}" if number % 2 else f"    {BODY}\n")

    turns = [*conversation("\n".join(map(commit, range(60)))), search(90, "done")]
    pruned = pruner(400, strategy=lambda passages, task: [float(NOTE in it.text) for it in passages])
    messages = pruned.prune(rendered("openai", turns)).messages
    assert NOTE in str(messages)


def test_the_most_relevant_passage_stays_although_the_lines_around_it_cost_more_than_estimated() -> None:
    lines = [f"{'  ' * (number % 41)}part_{number}: tide {number * 7919 % 997}" for number in range(300)]
    lines[180] += f" {NOTE}"
    turns = [*conversation("\n".join(lines)), search(90, "done")]
    pruned = pruner(
        180, counter=HarmonyCounter(), strategy=lambda passages, task: [float(NOTE in it.text) for it in passages]
    ).prune(rendered("openai", turns))
    assert NOTE in str(pruned.messages)
    assert pruned.report.tokens_after <= 180
