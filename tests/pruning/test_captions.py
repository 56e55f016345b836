"""The caption of a passage of plain text says what is around it."""

from __future__ import annotations

import pytest

from context_agent.pruning.blocks import LARGEST, Sizes, is_log, is_log_entry, text_spans
from context_agent.pruning.captions import LONGEST_LABEL, MOST_LINES, Captions, indented
from tests.support.growth import seconds

BODY = "It rained in most of the weeks of that year, and ships stayed in the port for as long as they could. " * 3


def captions_of(text: str) -> dict[str, str]:
    """Return the captions of the passages by the first line of each."""
    spans = text_spans(text, Sizes.of(text))
    return {text[start:end].strip().split("\n")[0]: caption for start, end, caption in spans}


TITLES = (
    ("# Ports", "## North", "### Quay", "## South"),
    ("Ports\n=====", "North\n-----", "Quay\n~~~~", "South\n-----"),
    ("<h1>Ports</h1>", "<h2>North</h2>", "<h3>Quay</h3>", "<h2>South</h2>"),
    (r"\chapter{Ports}", r"\section*{North}\label{n}", r"\subsection[Q]{Quay}", r"\section{South}"),
    ("= Ports", "== North", "=== Quay", "== South"),
    ("= Ports =", "== North ==", "===Quay===", "== South =="),
    ("* Ports\n:PROPERTIES:\n:END:", "** North :wet:cold:", "*** Quay", "** South"),
    ("h1. Ports", "h2. North", "h3. Quay", "h2. South"),
    ("=head1 Ports", "=head2 North", "=head3 Quay", "=head2 South"),
    ("@chapter Ports", "@section North", "@subsection Quay", "@section South"),
)


@pytest.mark.parametrize(("first", "second", "third", "fourth"), TITLES)
def test_a_caption_has_the_titles_of_all_sections_around_a_passage(
    first: str, second: str, third: str, fourth: str
) -> None:
    parts = (first, BODY, second, BODY, third, BODY, f"After it. {BODY}", fourth, BODY, f"In the end. {BODY}")
    captions = captions_of("\n\n".join(parts))
    assert [*captions.values()] == ["", "Ports", "Ports North", "Ports North Quay", "Ports", "Ports South"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("language", "lead"),
    [(r"\section{%s}", ""), ("* TODO %s", ""), ("* %s", ":PROPERTIES:\n:END:\n"), (".SH %s", ""), ("== %s ==", "")],
)
def test_a_heading_without_blank_lines_around_it_begins_a_passage(language: str, lead: str, end: str) -> None:
    parts = "".join(f"{language % name}\n{BODY}\n" for name in NAMES)
    captions = captions_of(f"{lead}{parts}".replace("\n", end))
    assert [it.strip() for it in captions if it.startswith(language[:2])] == [language % name for name in NAMES]


@pytest.mark.parametrize(
    "line",
    ["=== RUN   TestQuay", "==> quay.log <==", "======= quay =======", "* quay", "** quay", "=quay", "== a == b"],
)
def test_a_line_that_only_resembles_a_heading_is_none(line: str) -> None:
    assert Captions(f"{BODY}\n{line}\n{BODY}\n\n{line} 2\n{BODY}").headings == {}


def test_a_named_result_with_equals_signs_stays_a_record_where_no_wiki_is() -> None:
    text = f"=== FAIL: quay ===\n{BODY}\n\n{BODY}\n=== FAIL: crane ===\n{BODY}\n\n{BODY}"
    assert [it for it in captions_of(text) if it.startswith("=")] == ["=== FAIL: quay ===", "=== FAIL: crane ==="]


@pytest.mark.parametrize("line", ["It rained.", "title: Rain", "Ports and quays of the north and of the south"])
def test_a_rule_below_other_lines_makes_no_title(line: str) -> None:
    captions = captions_of(f"{line}\n---\n{BODY}\n\n{BODY}")
    assert "" in captions.values()
    assert not any(line in caption for caption in captions.values() if not line.startswith("title"))


SETTINGS = {
    "shell": ("set -euo pipefail\n", "export {}_PORT=${{1:-40}}\n", "{} --wait $PORT && echo done\n"),
    "environment": ("", "{}_PORT=4000\n", "{}_HOST=quay.example.com\n"),
    "yaml": ("version: 2\n", "{}:\n  - port\n", "open_{}: true\n"),
    "docker": ("FROM python:3.12\n", "RUN pip install {}\n", "COPY {} /srv\n"),
    "make": ("CC := gcc\n", "{}: port.o\n\t$(CC) -o port\n", "{}_FLAGS += -O2\n"),
    "python": ("import rain\n\n", "{} = 3\n", "def open_{}():\n    return 3\n\n"),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_comment_of_a_program_or_of_settings_is_no_title(kind: str) -> None:
    head, *lines = SETTINGS[kind]
    text = f"{head}# Rain\n" + "".join(line.format(f"quay{number}") for number in range(90) for line in lines)
    captions = captions_of(text + "\n# Ships\n# in the port\n" + lines[0].format("last"))
    assert len(captions) > 3
    assert not any("Rain" in caption or "Ships" in caption for caption in captions.values())
    assert "# in the port" not in captions, "a comment of two lines stays together"


NAMES = ("quay", "crane", "rope", "pilot", "storm", "sailor")
RECORDS = {
    "psql": "-[ RECORD {1} ]------\nname  | {0}\nport  | {1}\nnote  | It rained in most of the weeks of that year.",
    "mysql": "************ {1}. row ************\n name: {0}\n port: {1}\n note: It rained.",
    "ini": "[{0}]\nport={1}\n# It rained.\nnote=It rained in most of the weeks",
    "ldif": "dn: cn={0}\nmobile: {1}\ndescription: It rained in most of the weeks of that year.",
    "gedcom": "0 @I{1}@ INDI\n1 NAME Ana /{0}/\n1 NOTE It rained in most of the weeks of that year.",
    "ris": "TY  - JOUR\nTI  - On {0}s\nPY  - 200{1}\nN1  - It rained in most of the weeks.\nER  - ",
    "medline": "PMID- {1}\nTI  - On {0}s\nAB  - It rained in most of the weeks of that year.",
    "pgn": '[Event "{0} open"]\n[Site "Port"]\n[Round "{1}"]\n\n1. e4 e5 2. Nf3 Nc6 1-0\n',
    "systemctl cat": "# /etc/systemd/system/{0}.service\n[Unit]\nAfter=port.target\n\n[Service]\nRestartSec={1}\n",
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_short_record_or_section_is_not_joined_with_the_next(kind: str) -> None:
    text = "\n".join(RECORDS[kind].format(name, number) for number, name in enumerate(NAMES, 1))
    passages = [text[start:end] for start, end, _ in text_spans(text, Sizes.of(text))]
    assert len(passages) >= len(NAMES)
    assert all(sum(name in passage for name in NAMES) <= 1 for passage in passages)


LARGE_RECORDS = {
    "ldif": ("dn: cn={0}\n", "cn={0}"),
    "gedcom": ("0 @I1@ INDI\n1 NAME Ana /{0}/\n", "Ana /{0}/"),
    "ris": ("TY  - JOUR\nTI  - On {0}s\n", "On {0}s"),
    "pgn": ('[Event "{0} open"]\n[Site "Port"]\n[White "Ana"]\n', 'Event "{0} open"] [White "Ana"]'),
    "systemctl cat": ("# /etc/systemd/system/{0}.service\n", "/etc/systemd/system/{0}.service"),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", LARGE_RECORDS)
def test_each_part_of_a_large_record_is_named_by_the_lines_at_its_start(kind: str, end: str) -> None:
    head, named = LARGE_RECORDS[kind]
    body = "9 note: It rained in most of the weeks of that year.\n" * 60
    text = "".join(head.format(name) + body for name in NAMES).replace("\n", end)
    captions = [(start, caption) for start, _, caption in text_spans(text, Sizes.of(text))]
    for row, name in enumerate(NAMES):
        first, last = (text.index(head.format(it).replace("\n", end)) for it in (name, NAMES[row + 1 - len(NAMES)]))
        parts = [caption for start, caption in captions if first < start < (last if last > first else len(text))]
        assert len(parts) > 2
        assert all(named.format(name) in caption for caption in parts)


def test_the_last_line_of_a_family_tree_is_in_no_record() -> None:
    text = "".join(RECORDS["gedcom"].format(name, row) + "\n" for row, name in enumerate(NAMES)) + "0 TRLR\n"
    spans = [*text_spans(text, Sizes.of(text))]
    assert text[slice(*spans[-1][:2])] == "0 TRLR"


@pytest.mark.parametrize(
    "head", ["[23.11.26, 10:0{}:12] {}: ", "[11/23/26, 10:0{}:12\u202fAM] {}: ", "23/11/2026, 10:0{} - {}: "]
)
def test_a_message_of_several_lines_in_a_chat_is_not_cut(head: str) -> None:
    text = "".join(f"{head.format(row, name)}It rained.\n{BODY[:200]}\n" for row, name in enumerate(NAMES))
    passages = [text[start:end] for start, end, _ in text_spans(text, Sizes.of(text))]
    assert [
        head.format(row, name) == it[: len(head.format(row, name))]
        for row, (name, it) in enumerate(zip(NAMES, passages, strict=True))
    ] == [True] * len(NAMES)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("notes", [1, 60])
def test_components_of_a_calendar_are_records_with_their_summary_and_its_last_line_is_in_none(
    end: str, notes: int
) -> None:
    components = [
        f"BEGIN:VEVENT\nUID:{n}@example.com\nDESCRIPTION:{'It rained in the port. ' * notes}\n"
        f"SUMMARY;LANGUAGE=en:The {name}\nBEGIN:VALARM\nTRIGGER:-PT5M\nEND:VALARM\nEND:VEVENT\n"
        for n, name in enumerate(NAMES)
    ]
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\n{''.join(components)}END:VCALENDAR\n".replace("\n", end)
    spans = [*text_spans(text, Sizes.of(text))]
    passages = [text[start:first] for start, first, _ in spans]
    assert passages[-1] == "END:VCALENDAR"
    assert [it.startswith("BEGIN:VEVENT") for it in passages[1:-1]].count(True) == len(NAMES)
    assert all(it.count("END:VEVENT") <= 1 for it in passages)
    for start, _, caption in spans:
        is_part = not text.startswith(("BEGIN:", "END:"), start)
        assert not is_part or caption == f"The {NAMES[text.count('BEGIN:VEVENT', 0, start) - 1]}"


def test_a_heading_above_fenced_code_or_fields_is_a_title() -> None:
    code = "```sh\n" + "export PORT=$1\n" * 50 + "```"
    fields = "\n".join(f"Quay {number}: open" for number in range(120))
    captions = captions_of(f"# Ports\n\n{BODY}\n\n{code}\n\n# Rain\n{fields}\n\n## North\n\n{BODY}\n\n{BODY}")
    assert {"Ports", "Rain", "Rain North"} <= {*captions.values()}


@pytest.mark.parametrize("title", ["Why does it rain?", ":func:`rain`", "``rain``"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_rule_of_tildes_below_any_line_begins_no_code(title: str, end: str) -> None:
    part = f"{title}\n{'~' * len(title)}\n\n{BODY}\n\n"
    text = f"{part * 3}Snow\n====\n\n{BODY}\n\n{BODY}".replace("\n", end)
    assert Captions(text).fences == []
    code = f"~~~~\n{CODE_LINES}\n~~~~".replace("\n", end)
    assert len(Captions(f"{text}{end}{end}{code}").fences) == 2


CODE_LINES = "# install\npip install quay\n\n# open it\nquay open"


@pytest.mark.parametrize(
    "code",
    [
        f"````md\n```sh\n{CODE_LINES}\n```\n````",
        f"```md\n```sh\n{CODE_LINES}\n```",
        f"1. Install it:\n\n   ```sh\n{CODE_LINES}\n   ```",
        f"Open it so:\n~~~sh\n{CODE_LINES}\n~~~",
        "```quay open``` opens it. " + BODY,
    ],
)
def test_a_heading_below_fenced_code_is_one_and_a_comment_in_it_is_none(code: str) -> None:
    captions = captions_of(f"# Ports\n\n{BODY}\n\n{code}\n\n## Rain\n\n{BODY}\n\n{BODY}\n\n## Snow\n\n{BODY}")
    assert {*captions.values()} == {"", "Ports", "Ports Rain"}


@pytest.mark.parametrize("line", ["<title></title>", "<head><title></title></head>", "<title>\n</title>"])
def test_an_empty_title_is_no_title(line: str) -> None:
    captions = captions_of(f"# Ports\n\n{BODY}\n\n{line}\n\n{BODY}\n\n{BODY}")
    assert {*captions.values()} <= {"", "Ports"}


CODE = """\
class Quay(
    Port,
):
    \"\"\"A quay.\"\"\"

    rain = 1

    @property
    def open(self):
        if self.rain:
{0}
        return True


def close():
{0}
"""


def test_a_caption_has_the_less_indented_lines_above_a_passage() -> None:
    lines = "\n".join(
        f"            self.ships({number}, 'stay in the port for as long as they can')" for number in range(60)
    )
    text = CODE.format(lines)
    captions = Captions(text)
    starts = [text.index("self.ships(7,"), text.index("return True"), text.rindex("self.ships(7,")]
    assert [captions.caption(start) for start in starts] == [
        "class Quay def open(self) if self.rain",
        "class Quay def open(self)",
        "def close()",
    ]


def test_the_branches_and_the_numbers_before_lines_are_no_text_of_a_tree() -> None:
    tree = "├── north\n│   ├── quay\n│   │   ├── crane\n├── south\n│   ├── pier\n"
    for text in (tree, "".join(f"{number:4}\t{line}\n" for number, line in enumerate(tree.splitlines(), 1))):
        captions = Captions(text)
        assert captions.caption(text.index("crane")) == "north quay"
        assert captions.caption(text.index("pier")) == "south"


COMMIT = """\
commit 0a1b2c3d4e5f
Merge: 1a2b3c4 5d6e7f8
Author: Ana Lund <ana@example.com>
Date:   Mon Mar 2 10:00:00 2026 +0000

    Open the quay

    {0}

    {0}
"""
FIELDS = "port | quay\nsailor | Ana Lund\nnote | {0}\n{0}\nstorm | none\n"


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        pytest.param(COMMIT, "Author: Ana Lund Open the quay", id="git log"),
        pytest.param("* | " + COMMIT.replace("\n", "\n| | "), "Author: Ana Lund Open the quay", id="git log --graph"),
        pytest.param(f"-[ RECORD 7 ]----\n{FIELDS}", "port | quay sailor | Ana Lund note | It rained", id="psql"),
        pytest.param(f"{'*' * 27} 7. row {'*' * 27}\n{FIELDS}", "port | quay sailor | Ana Lund", id="mysql"),
    ],
)
def test_the_parts_of_a_long_record_have_its_first_fields(text: str, caption: str) -> None:
    spans = [*text_spans(text.format(BODY * 3), Sizes.of(text))]
    assert len(spans) > 1
    assert all(said.startswith(caption) for _, _, said in spans[1:])
    assert len(spans[1][2]) <= LONGEST_LABEL


def blamed(line: str, number: int, path: str = "") -> str:
    """Return a line as `git blame` writes it."""
    return f"0a1b2c3{number % 10} {path}(Ana Lund   2026-03-02 10:00:00 +0000 {number:4}) {line}"


@pytest.mark.parametrize("path", ["", "src/quay.py  "])
def test_what_git_blame_writes_before_a_line_is_no_part_of_it(path: str) -> None:
    lines = [f"class Quay:\n    def crane_{number}(self):\n        self.ships()\n" for number in range(9)]
    code = [line for block in lines for line in block.splitlines()]
    text = "\n".join(blamed(line, number, path) for number, line in enumerate(code, 1))
    captions = Captions(text)
    assert captions.caption(text.index("self.ships")) == "class Quay def crane_0(self)"
    assert not is_log(text)
    assert not is_log_entry(text.split("\n")[0])


TREES = (
    """\
- heading "Port" [level=1] [ref=e1]
- heading "North" [level=2] [ref=e2]
{0}- 'heading "Quay: 3" [level=2] [ref=e3]'
{0}- heading "Sun" [level=1] [ref=e4]
{0}""",
    """\
uid=1_0 RootWebArea "x"
  uid=1_1 heading "Port" level="1"
  uid=1_2 heading "North" level="2"
{0}  uid=1_3 heading "Quay: 3" level="2"
{0}  uid=1_4 heading "Sun" level="1"
{0}""",
)


@pytest.mark.parametrize("frame", ["{0}", "- Page Snapshot\n```yaml\n{0}```\n"])
@pytest.mark.parametrize("tree", TREES)
def test_a_heading_in_the_tree_of_a_page_names_the_nodes_after_it(tree: str, frame: str) -> None:
    text = frame.format(tree.format("".join(f'  - button "Open {number}" [ref=f{number}]\n' for number in range(60))))
    spans = [
        (text[start:end], said.partition("uid")[0].strip()) for start, end, said in text_spans(text, Sizes.of(text))
    ]
    captions = {"Quay" if "Quay" in passage else "Sun": said for passage, said in spans if "heading" in passage}
    assert captions == {"Quay": "Port", "Sun": ""}
    later = dict.fromkeys(said for passage, said in spans if "heading" not in passage)
    assert [*later] == ["Port North", "Port Quay: 3", "Sun"]


def test_headings_without_a_level_follow_each_other() -> None:
    text = "[1] RootWebArea 'x'\n\t[2] heading 'Port'\n\t\t[3] link 'Open'\n\t[4] heading 'Sun'\n\t\t[5] link 'Shine'"
    captions = Captions(text)
    assert captions.caption(text.index("\t[5]") - 1).startswith("Sun")
    text = '- heading "Port" [level=9]\n- heading "Sun"\n- link "Shine"'
    assert Captions(text).caption(text.index("- link")) == "Sun"


def test_closing_lines_and_tags_are_no_names() -> None:
    text = "export class Quay {\n  open() {\n    rain();\n  }\n\n  close() {\n    <div>\n      sun();\n"
    captions = Captions(text)
    assert captions.caption(text.index("close")) == "export class Quay"
    assert captions.caption(text.index("sun")) == "export class Quay close()"


def test_the_mark_of_a_replaced_resource_is_as_wide_as_other_marks() -> None:
    """All later resources of a plan were below the replaced one."""
    plan = '-/+ resource "a" {\n      ~ b = 1\n    }\n\n  + resource "c" {\n      + d = 1\n    }\n'
    captions = Captions(plan)
    assert captions.caption(plan.index("  + resource")) == ""
    assert captions.caption(plan.index("      + d")) == '+ resource "c"'


def test_the_end_of_a_block_names_nothing() -> None:
    text = "class Quay\n  def open\n    rain\n  end\n    sun\n  endless\n    wind\n"
    captions = Captions(text)
    assert captions.caption(text.index("    sun")) == "class Quay def open"
    assert captions.caption(text.index("    wind")) == "class Quay endless"


def test_a_caption_has_the_names_of_the_record() -> None:
    letters = [
        f"From: {name}@example.com\nSubject: {rain}\n\n{BODY}\n\nIn the end. {BODY}"
        for name, rain in (("ana", "Rain"), ("ben", "Sun"))
    ]
    text = "\n\n---\n\n".join(letters)
    captions = Captions(text)
    ends = [text.index("In the end"), text.rindex("In the end")]
    assert [captions.caption(end) for end in ends] == ["ana@example.com Rain", "ben@example.com Sun"]
    pods = (
        "Name: quay\nAbout: rain\nContainers:\n  crane:\n    Port: 80\n\n"
        "Name: pier\nContainers:\n  winch:\n    Port: 90\n"
    )
    assert Captions(pods).caption(pods.index("Name: pier")) == "", "a record is not below the one before"
    assert Captions(f"Host: a\n{pods}").caption(pods.index("Name: pier") + len("Host: a\n")) == "a"
    captions = Captions(pods)
    assert captions.caption(pods.index("Port: 80")) == "quay Containers crane"
    assert captions.caption(pods.index("Port: 90")) == "pier Containers winch"


def test_the_innermost_parts_of_a_caption_stay() -> None:
    text = "".join(f"{' ' * depth}level-{depth} {'x' * 50}\n" for depth in range(9))
    caption = Captions(text).caption(text.index("level-8"))
    assert caption.split()[::2] == ["level-6", "level-7"]
    assert len(caption) <= LONGEST_LABEL
    short = "".join(f"{' ' * depth}{depth}\n" for depth in range(9))
    assert MOST_LINES == 4
    assert Captions(short).caption(short.index("8")).split() == ["4", "5", "6", "7"]


def test_a_title_of_a_section_ends_that_of_a_search_hit_before_it() -> None:
    hits = f"[1] Rain\n{BODY}\n\n# Quay\n\n{BODY}\n\n[2] Sun\n{BODY}\n\nIn the end. {BODY}"
    captions = captions_of(hits)
    assert [*captions.values()][-1] == "Sun"
    assert captions["# Quay"] == "Rain"


@pytest.mark.parametrize(
    "text",
    ["Name: a\n" * 50_000, "# a\n\nb\n\n" * 20_000, "a\n===\n" * 50_000, " a\n" * 50_000, "[a]\nb: c\n" * 50_000],
)
def test_captions_take_linear_time(text: str) -> None:
    assert len(text) > LARGEST
    assert seconds(lambda it: [*text_spans(it, Sizes.of(it))], text) < 3


def caption_after(*blocks: str) -> str:
    """Return the caption of what follows these blocks, which are read one after the other."""
    text = "".join(blocks) + "rain"
    captions, start = Captions(text), 0
    for block in blocks:
        captions.begin(start, start + len(block))
        start += len(block)
    return captions.caption(start)


@pytest.mark.parametrize("before", ["", "\n", "set -e\n"])
def test_a_comment_of_a_program_begins_at_its_first_line(before: str) -> None:
    text = f"{before}# Rain\n# in the port\nexport A=1\n# Ships\nexport B=2\nexport C=3\n"
    assert Captions(text).heads() == {text.index("# Rain"), text.index("# Ships")}


@pytest.mark.parametrize(
    "text",
    [
        "# Rain\nexport A=1\n## Ships\nexport B=2\n# Sun\nexport C=3\n## Sea\nexport D=4\n# Fog\nexport E=5\n",
        "# Rain\nexport A=1\n## Ships\nexport B=2\n",
        "# Rain\n# Ships\n# Sun\nThe port is open.\n",
        "# Rain\n\nexport A=1\n\nexport B=2\n",
    ],
)
def test_most_lines_of_a_text_with_comments_are_code_or_comments(text: str) -> None:
    assert not Captions(text).begin(0, len("# Rain\n"))


def test_a_script_has_comments_although_its_commands_are_unknown() -> None:
    text = "#!/usr/bin/env quay\n# Rain\nopen port\nclose port\n"
    assert not Captions(text).begin(text.index("# Rain"), text.index("open"))


def test_a_heading_below_a_tag_is_one() -> None:
    text = "#rain #ships\n<h1>Port</h1>\n"
    assert Captions(text).heads() == {text.index("<h1>")}


@pytest.mark.parametrize(
    "text",
    [
        "# Rain\nexport A=1\n## Ships\nexport B=2\n## Sun\nexport C=3\n",
        "# Rain\n\nIt rained.\n\n```sh\n# Ships\n# Sun\n# Sea\nexport A=1\nexport B=2\n```\n",
        "# Rain\n\n```sh\n# Ships\nexport A=1\n```\n\n```sh\n# Sun\nB=2\nC=3\nD=4\nE=5\n```\n",
        "# Rain\n# Ships\nThe port is open.\nIt rained.\n",
        "# Rain\n\nThe port is open.\n\nIt rained.\n\n# Ships\n# Sun\n",
        "# Rain\n\nIt rained.\n\nexport A=1\n",
    ],
)
def test_a_text_with_lower_headings_or_prose_has_titles(text: str) -> None:
    assert Captions(text).begin(0, len("# Rain\n"))


def test_sections_and_hits_begin_at_their_heads() -> None:
    text = "rain\n\n# Port\n\n<H2>Quay</H2>\n\nPier\n====\n\nRESULT 1\n\n<document>\n"
    heads = [text[head:].splitlines()[0] for head in sorted(Captions(text).heads())]
    assert heads == ["# Port", "<H2>Quay</H2>", "Pier", "RESULT 1", "<document>"]


@pytest.mark.parametrize(
    ("blocks", "caption"),
    [
        pytest.param(["# Port\n", "Quay\n====\n"], "Quay", id="the first underlined title ends a title of level 1"),
        pytest.param(["[1] Sun\n", "Quay\n====\n"], "Sun Quay", id="an underlined title is inside a hit"),
        pytest.param(["1. Sun\n", "\n"], "Sun", id="a numbered line before a blank one"),
        pytest.param(["1. Sun\n", "Storm\n"], "", id="an item of a list"),
        pytest.param(["[1] Sun\n", "commit 0a1b2c3 (main)\nLine 2\n"], "(main) Line 2", id="a commit"),
        pytest.param(
            ["commit 0a1b2c3\nAuthor: Ana\n\n    Open\n\n    Rain\n\n    Sun\n"],
            "Author: Ana Open",
            id="a commit with a text",
        ),
        pytest.param(
            ["-[ RECORD 1 ]---\n" + "".join(f"{row} | x\n" for row in range(9))],
            " ".join(f"{row} | x" for row in range(7)),
            id="a row with many fields",
        ),
        pytest.param(["# Port\n", "___ test_quay ___\nx\n"], "test_quay", id="a failed test"),
        pytest.param(["[1] Sun\n", "<document>\n"], "", id="a hit without a title ends those before it"),
        pytest.param(["[quay]\n", "a = 1\n"], "quay", id="a section of settings"),
        pytest.param(
            ["[port:quay/2, 'sun']\n", "a = 1\n"], "port:quay/2, 'sun'", id="a section with marks in its name"
        ),
        pytest.param(["[quay]\n", "[pier]\n", "[[crane]]\n"], "crane", id="the latest of several sections"),
        pytest.param(["# Port\n", "[quay]\n"], "Port quay", id="a section below a title"),
        pytest.param(["[quay]\n", "# Port\n"], "Port", id="a title ends a section"),
        pytest.param(["Harbor\n====\n"], "Harbor", id="a rule that is two characters shorter"),
        pytest.param(["Harbors\n====\n"], "", id="a rule that is three characters shorter"),
        pytest.param(["Sun\n===\n"], "Sun", id="the shortest rule"),
        pytest.param(["Sun\n==\n"], "", id="a rule that is too short"),
        pytest.param(['[Event "Sun"]\n', "1. e4\n"], '[Event "Sun"]', id="the tags of a game are no section"),
        pytest.param(
            ['[Event "Sun"]\n1. e4\n\n', "[quay]\n"],
            '[Event "Sun"] 1. e4 quay',
            id="a section after the tags of a game",
        ),
        pytest.param(
            ["class Quay(\n Port,\n):\n    "], "class Quay", id="a bracket closes what is one space further in"
        ),
        pytest.param(["FROM: Ana\nSUBJECT: Quay\n\n", "# Port\n"], "Quay Port", id="a heading in a letter"),
        pytest.param(["FROM: Ana\nSUBJECT: Quay\n\n", "[1] Sun\n"], "Quay Sun", id="a hit in a letter"),
        pytest.param([f"# {'p' * 60}\n", f"## {'q' * 58}\n"], f"{'p' * 60} {'q' * 58}", id="as long as it may be"),
        pytest.param([f"# {'p' * 60}\n", f"## {'q' * 59}\n"], "q" * 59, id="too long for the outer title"),
        pytest.param([f"# {'p' * 200}\n"], "p" * LONGEST_LABEL, id="too long for one title"),
    ],
)
def test_what_a_caption_says(blocks: list[str], caption: str) -> None:
    assert caption_after(*blocks) == caption


@pytest.mark.parametrize(
    ("block", "level", "lines"),
    [
        ("# Port\n", 1, "# Port\n"),
        ("1. Sun\n  \n", 0, "1. Sun\n"),
        ("<h2>\nQ</h2>\n", 2, "<h2>\nQ</h2>\n"),
        ("Port\n====\n", 1, "Port\n====\n"),
        ("\\section{Quay}\n", 3, "\\section{Quay}\n"),
        ("<document>\n", 0, "<document>\n"),
        (".SH A\n", 1, ".SH A\n"),
        ("commit 0a1b2c3\nAuthor: A\n\n    Open\n\n    It rained.\n", 0, "commit 0a1b2c3\nAuthor: A\n\n    Open\n"),
    ],
)
def test_a_section_begins_with_the_lines_of_its_title(block: str, level: int, lines: str) -> None:
    before = "Fog.\n\n"
    text = f"{before}{block}It rained.\n\nIt snowed."
    captions = Captions(text)
    captions.begin(len(before), len(before + block))
    ((start, (own, body, _)),) = captions.sections.items()
    assert (own, text[start:body]) == (level, lines)


def test_a_title_at_the_end_of_a_text_ends_there() -> None:
    captions = Captions("# Port")
    captions.begin(0, len("# Port"))
    assert captions.sections == {0: (1, len("# Port"), "Port")}


def test_a_rule_of_three_tildes_below_a_title_begins_no_code() -> None:
    assert Captions("Sun\n~~~\n\nIt rained.\n").fences == []


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("# Rain\nexport A=1\nexport B=2\n# Ships", ["# Rain", "# Ships"]),
        ("# Rain\n\n# Ships\nexport A=1\nexport B=2\nexport C=3\n", ["# Rain", "# Ships"]),
    ],
)
def test_a_comment_is_not_joined_with_one_elsewhere(text: str, heads: list[str]) -> None:
    assert [text[head:].splitlines()[0] for head in sorted(Captions(text).heads())] == heads


def test_the_rest_of_an_entry_below_a_title_has_both_names_once() -> None:
    entry = f"ERROR {'request of Ana failed ' * 5}"
    text = f"# Port\n{entry}\nIt stopped.\n\tat step\n"
    captions = Captions(text)
    captions.begin(0, len(text))
    assert captions.caption(text.index("It stopped"), entry=len("# Port\n")) == entry[:LONGEST_LABEL].strip()
    short = f"# Port\n{entry[:80]}\n\tat step\n"
    captions = Captions(short)
    captions.begin(0, len(short))
    assert captions.caption(short.index("\tat"), entry=len("# Port\n")) == f"Port {entry[:60]}".strip()


def test_the_rest_of_a_long_log_entry_has_its_first_line_and_not_the_next_entry() -> None:
    frames = "\n".join(f"\tat com.acme.Service.step{number}(Service.java:{number})" for number in range(30))
    text = "\n".join(
        f"2026-01-05 10:0{number}:00 ERROR request of {name} failed\njava.lang.RuntimeException: it stopped\n{frames}\n"
        f"Caused by: java.sql.SQLException: timeout {number}\n\tat com.acme.Pool.get(Pool.java:1)"
        for number, name in enumerate(("Ana", "Ben", "Cem"))
    )
    spans = [(text[start:end], said) for start, end, said in text_spans(text, Sizes.of(text))]
    for number, name in enumerate(("Ana", "Ben", "Cem")):
        ((cause, said),) = [(passage, said) for passage, said in spans if f"timeout {number}" in passage]
        assert f"request of {name} failed" in said
        assert "request of" not in cause


def test_the_parts_of_a_log_entry_of_one_long_line_have_its_start() -> None:
    line = f"2026-01-05 10:00:00 INFO orders of Ana: {BODY * 10}"
    text = f"{line}\n2026-01-05 10:00:01 INFO done\n2026-01-05 10:00:02 INFO done"
    (first, *rest, last) = [said for _, _, said in text_spans(text, Sizes.of(text))]
    assert (first, last) == ("", "")
    assert len(rest) > 1
    assert all(said.startswith("2026-01-05 10:00:00 INFO orders of Ana") for said in rest)


@pytest.mark.parametrize("text", [BODY * 20, "\n".join(f"   built part {number} of the port" for number in range(90))])
def test_parts_of_prose_and_of_a_list_have_no_first_line(text: str) -> None:
    captions = [said for _, _, said in text_spans(text, Sizes.of(text))]
    assert len(captions) > 1
    assert {*captions} == {""}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("10:00:00.123 [main] INFO started", "10:00:00.123 [main] INFO started"),
        ("10:00 Ana: hello", "10:00 Ana: hello"),
        ("10:00", "10:00"),
        ("10:000 pieces", "000 pieces"),
        ("10:return x", "return x"),
        ("100:00 pieces", "00 pieces"),
        ("    12\treturn x", "return x"),
        ("30:9f:38:55", "30:9f:38:55"),
        ("30:9F:38:55", "30:9F:38:55"),
        ("30:if x:", "if x:"),
    ],
)
def test_the_hour_of_a_time_is_not_a_line_number(line: str, said: str) -> None:
    assert indented(line) == (0, said)


def test_a_tab_is_as_wide_as_the_columns_up_to_the_next_multiple_of_eight() -> None:
    lines = ["PORTS", "       The ports are below.", "\t   The first one is deep.", "       The second one is not."]
    assert [indented(line)[0] for line in lines] == [0, 7, 11, 7]
    assert indented(" \tThe ports") == (8, "The ports")


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("# Ports\n\n## North\n\nIt rained.", "## South\n\n{BODY}\n\n# Rain\n\n{BODY}"),
        ("Ports\n=====\n\nNorth\n-----\n\nIt rained.", "South\n-----\n\n{BODY}\n\nRain\n====\n\n{BODY}"),
    ],
)
def test_the_titles_of_the_text_before_go_on(before: str, text: str) -> None:
    captions = Captions(before)
    assert [*text_spans(before, Sizes.of(before), captions)]
    assert captions.titles == [(1, "Ports"), (2, "North")]
    text = f"{BODY}\n\n{text.format(BODY=BODY)}"
    following = Captions(text, captions)
    assert [said for _, _, said in text_spans(text, Sizes.of(text), following)] == ["Ports North", "Ports", ""]
    assert following.titles == [(1, "Rain")]


def test_the_columns_before_the_number_of_a_line_of_code_in_a_message_count() -> None:
    frame = ["      41 |   const calls = ports();", "    > 43 |   expect(calls).toBe(3);", "      44 | });"]
    assert [indented(line)[0] for line in frame] == [8, 4, 6]
    assert indented("12 |   const calls = ports();") == (2, "const calls = ports();")
    failures = "".join(
        f"  \u25cf client \u203a test {name}\n\n    Expected: 3\n\n"
        + "\n".join(frame)
        + f"\n\n      at {name} (it.ts:43:24)\n\n"
        for name in "ab"
    )
    assert {*captions_of(f" FAIL  src/client.test.ts\n{failures}{failures}".rstrip()).values()} >= {
        "FAIL  src/client.test.ts"
    }
    assert list(captions_of(f" FAIL  src/client.test.ts\n{failures}").values())[1:] == ["FAIL  src/client.test.ts"] * 2
