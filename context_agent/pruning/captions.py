"""Captions of the passages of plain text: titles, names of records, and the less indented lines that they belong to."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Self

from context_agent.pruning.headings import headings
from context_agent.pruning.keyed_records import RULE, keyed_records
from context_agent.text.fences import fenced_spans

LONGEST_LABEL = 120
LONGEST_LINE = 60
"""Maximum number of characters of a less indented line that count."""
MOST_LINES = 4
"""Maximum number of less indented lines that count, the nearest ones."""
INDENTATION = " \t\r\n│├└┬─"
"""The characters before the text of a line. A tree, such as that of `npm ls`, is drawn with the last five."""
_REPLACED = ("-/+ ", "+/- ")
"""The mark of a resource that Terraform replaces. Other marks in its plans have a character, and two more spaces."""
WIDEST_INDENT = 80
"""Maximum number of spaces before a line that are counted."""
BLAME = re.compile(
    r"\^?[0-9a-f]{7,40}+ (?:[^\s(]{1,200}+ {1,200}+)?\((?=[^()\n]{0,100}\d{4}-\d\d-\d\d )[^()\n]{1,150}+\)(?: |$)", re.M
)
"""The text that `git blame` writes before a line: a commit, its author and time, and the number of the line."""
LINE_NUMBER = re.compile(
    rf"[ \t]{{0,12}}(?!\d\d:(?:\d\d(?:[:\s]|$)|[\da-fA-F]{{2}}:))\d{{1,9}}(?:\t|→| ?[|│:] ?)|{BLAME.pattern}", re.M
)
"""The number before a line in a numbered listing, such as that of `cat -n`, and what separates it from the line.

The hour of a time, such as 10:00:00, is not a line number. Neither is the first byte of an address or of a key, such as
30:9f:38.
"""
_BAR = re.compile(r"\d ?[|│]")
"""A line number, and the bar between it and the line."""
SOURCE = re.compile(r"(?P<source>[A-Za-z][\w.-]{0,60}[_-]\d{1,3}) {0,40}\| ")
"""The name that `docker compose logs` writes before each line of a container."""
LINE_PREFIX = re.compile(
    rf"{LINE_NUMBER.pattern}|{SOURCE.pattern}|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{1,9}}Z "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} [^\s:]{1,60}: |#\d{1,3} \d{1,5}\.\d{1,3} ",
    re.M,
)
"""What a program writes before each line of a text: its number, its container, its time, or its process.

The times are those of GitHub's actions, of syslog and of `docker build`. The indentation of a line begins after them.
"""
_TAGS = r"[ \t]*+(?:</?(?!h[1-6]\b)[a-z][^>\n]*+>[ \t]*+)*+"
_HEADING = re.compile(rf"^(?:#{{1,6}}[ \t]+\S|{_TAGS}<h[1-6]\b)", re.M | re.I)
"""A heading of Markdown, or of HTML, which other tags may precede."""
_COMMENT = re.compile(r"^#{1,6}[ \t]", re.M)
_LOWER_HEADING = re.compile(r"^#{2,6}[ \t]", re.M)
_COMMENTED = ("#", "# ", "#\t", "#\r")
"""The beginnings of a line of a comment, or of a heading of the first level."""
_CODE_LINE = re.compile(
    r"[@)\]}]|\[[\w.\"':/@*, -]{1,80}\][ \t\r]*$|\.?[A-Za-z_][\w.\-\[\]\"']{0,80}[ \t]{0,20}(?:[:+?]?=|\()"
    r"|[a-z_][\w.-]{0,80}:(?:[ \t\r]|$)"
    r"|(?:import|from|def|class|async|if|elif|else|for|while|try|except|with|return|export|set|source|function|fi|done"
    r"|esac|case|echo|cd|sudo|exec|exit|local|trap|apt-get|pip|npm|git|docker|mkdir|rm|cp|mv|curl|let|use|require"
    r"|FROM|RUN|COPY|ADD|ENV|ARG|CMD|ENTRYPOINT|WORKDIR|EXPOSE|USER|LABEL|VOLUME|HEALTHCHECK)\b"
    r"|[^\n]{0,200}(?:\$[\w({]|[ \t]--?[a-z]|&&|\|\||\\\r?$)",
)
"""The start of a line that is more likely of a program or of settings than of prose."""
_UNDERLINED = re.compile(
    rf"^(?P<underlined>[^\W_][^\n]{{0,{LONGEST_LABEL}}})(?<![.!?;,: \t\r])\r?\n"
    r"(?P<rule>(?P<mark>[=~^\"-])(?P=mark)++)[ \t\r]*$",
    re.M,
)
"""A title with a rule below it, which is about as long."""
_LONG_RULE = re.compile(r"^(?:(?<=\S\n)|(?<=\S\r\n))~{4,}+[ \t\r]*$", re.M)
"""A rule of more tildes than most fences have. It is a rule even below a line that is not a title."""
HIT = re.compile(
    r"^(?:<(?:document|doc|result|item|source|passage|chunk)\b|\[\d+\]|[-=*_]{3,}[ \t]*$"
    r"|(?:result|document|hit|source|passage|chunk) ?#?\d)",
    re.M | re.I,
)
"""The first line of a search hit, in the formats that common tools write."""
_LETTER_HEADER = (
    r"(?:[-=_*]{3,60}+[^\n]{0,60}\n|\A|(?<=\n\n)|(?<=\n\r\n)|(?<=:\n)|(?<=:\r\n))"
    r"(?=From [^\s:]|\*{0,2}(?i:From|To|Subject|Date|Received|Return-Path|Delivered-To|Message-ID|Thread ID):)"
    r"(?=(?:[^\n]{1,400}\n){0,12}?\*{0,2}(?i:From):)(?=(?:[^\n]{1,400}\n){0,12}?\*{0,2}(?i:Subject|Date|Sent):)"
    r"(?:From [^\s:][^\n]{0,200}\n)?+"
    r"(?:\*{0,2}[A-Za-z][A-Za-z-]{0,30}(?: ID)?:[^\n]{0,400}\n(?:[ \t]++\S[^\n]{0,400}\n)*+){2,20}+"
    r"(?=[ \t\r]*(?:\n|\Z))"
)
"""The header of a letter up to its first blank line. It names the sender, and the subject or the date.

A rule, or the line of a mailbox that begins with `From `, may be its first line.
"""
_GRAPH = r"[|\\/ ]{0,60}+"
"""The lines that `git log --graph` draws before a line."""
LONGEST_HEADER = 400
"""Maximum number of characters of the header of a letter or of a commit that stays with each of its parts."""
LETTER_LEVEL = -1
"""The level of the header of a letter. Its text may have headings."""
RECORD = re.compile(
    rf"^(?:(?P<letter>{_LETTER_HEADER})"
    r"|(?P<mark>[_=-])(?P=mark){2,}+ \S[^\n]* (?P=mark){3,}+[ \t\r]*$"
    r"|={20,}[ \t\r]*\n(?=(?:FAIL|ERROR): )|  \u25cf \S"
    r"|# (?=/[^\s]{1,200}\.(?:service|socket|timer|target|mount|automount|path|slice|conf)[ \t\r]*$)"
    r"|\*(?:filter|nat|mangle|raw|security)[ \t\r]*$"
    rf"|(?P<numbered>(?P<graph>{_GRAPH}\*{_GRAPH})?commit [0-9a-f]{{7,64}}\b"
    r"|-\[ RECORD \d{1,9} \]|\*{10,40} \d{1,9}\. row \*{10,40}|\[(?=Event \"))"
    r"|(?P<component>(?:BEGIN:V(?:EVENT|TODO|JOURNAL|FREEBUSY|TIMEZONE|CARD)|END:VCALENDAR|0 TRLR)[ \t\r]*$"
    r"|0 @[^@\n]{1,40}@ [A-Z_]|TY  - [A-Z]|PMID- \d|dn:{1,2} \S))",
    re.M,
)
"""The first line of a record: a commit of `git log`, a failed test of pytest, unittest or Jest, a row that a client of
a database writes as lines, a unit of systemd, a table of iptables, a letter, a chess game, a component of a calendar, a
card of an address book, a person of a family tree, a reference of a bibliography, or an entry of a directory.

The first line of a failed test names it. Commits and rows have only a number, and a component has a line with its
summary. A letter has several first lines. The last line of a calendar or of a family tree must not belong to its last
component.
"""
_SUMMARY = re.compile(r"^(?:(?:SUMMARY|FN)(?:;[^\n:]*+)?:|1 NAME |T[I1]  ?- |dn:{1,2}[ \t]++)(?P<said>[^\n]++)", re.M)
"""The line that names a component of a calendar, a card, a person, a reference, or an entry of a directory."""
_LETTER_SUBJECT = re.compile(r"^\*{0,2}Subject:[ \t*]*+(?P<said>\S[^\n]*+)", re.M | re.I)
_GAME_TAGS = re.compile(r"^\[Event \"[^\n]*+\n(?:\[\w++ \"[^\n]*+(?:\n|\Z))*+", re.M)
"""The tags of a chess game. They are not the names of sections."""
MESSAGE = re.compile(
    r"^\u200e?\[?\d{1,4}[./-]\d{1,2}[./-]\d{2,4}, \d{1,2}:\d\d(?::\d\d)?(?:[ \u202f]?[AaPp]\.?[Mm]\.?)?(?:\]| -) "
    r"[^\n:]{1,80}: ",
    re.M,
)
"""The start of a message in an exported chat. It may have more lines."""
MOST_NAMING = 80
"""Maximum number of characters of a record's first lines that name it."""
_NAMELESS = re.compile(
    r"commit [0-9a-f]{7,64}|(?:-\[ RECORD|\*{10}|\w{0,20}Date:|Merge:|\[(?:Site|Round|Result|\w{0,9}Date) ).*"
)
"""The part of a line that does not say what a record is about."""
COMMIT = re.compile(
    rf"^(?:{_GRAPH}\*{_GRAPH})?commit [0-9a-f]{{7,64}}[^\n]*+\n(?:{_GRAPH}\w[^\n]*+\n){{1,6}}+{_GRAPH}\r?\n"
    r"[|\\/ \t]++(?P<subject>\S[^\n]{0,200}+)",
    re.M,
)
"""The header of a commit, and the first line of its message."""
_GRAPH_LINES = re.compile(rf"^{_GRAPH}(?:\*{_GRAPH})?", re.M)
_ADDRESS = re.compile(r" <[^<>\s]{1,100}+>$")
_TITLE = re.compile(
    r"(?:(?P<marks>#{1,6})[ \t]++(?P<heading>\S.*)$"
    rf"|{_TAGS}<h(?P<depth>[1-6])\b[^>\n]*+>\s*+(?:<[^>\n]*+>\s*+)*+(?P<tagged>[^\n<]++)"
    r"|(?:<(?!title>)[a-z][^>\n]*+>\s*+)*+<title>(?P<element>[^\n<]++)</title>"
    r"|\[\d{1,4}\][ \t]++(?P<bracketed>[^\n]*[^\s.!?;,])[ \t\r]*$"
    r"|(?:\d{1,4}[.)]|(?:result|document|hit|source|passage) ?#?\d{1,4}+\W*+)[ \t]*+"
    r"(?P<numbered>[^\n]*[^\s.!?;,:])[ \t\r]*\n[ \t\r]*$)",
    re.M | re.I,
)
"""A title: a heading, the title of a tagged hit, a line after a number in brackets, or a numbered line before a blank
one.

The quantifiers are possessive. A match never tries shorter runs again, so it takes linear time.
"""
_TITLES = ("heading", "tagged", "element", "bracketed", "numbered")
_SECTION = re.compile(r"^\[{1,2}(?P<name>[A-Za-z*][\w.\-\"':/@*, ]{0,80})\]{1,2}[ \t\r]*$", re.M)
"""The first line of a section of settings: `[name]`."""
NODE_HEADING = re.compile(
    r"^[ \t]*+(?:- '?)?(?:uid=\S{1,40}+ |\[\d{1,9}\] ?)?heading (?:\"(?P<said>[^\"\n]++)\"|'(?P<quoted>[^'\n]++)')"
    r"(?:[^\n]{0,200}?\blevel=\"?(?P<level>[1-9]))?",
    re.M,
)
"""A heading in the accessibility tree of a page. It names the nodes after it, which are not below it in the tree."""
NODE_LEVEL = 9
"""The level of a heading of a tree that doesn't say its level."""
NAMED = re.compile(
    r"^(?P<key>name|title|subject|from|package|service|host|job|pod|node|id|path|file|url)[ \t]*+:[ \t]++"
    r"(?P<name>\S[^\n]*)",
    re.M | re.I,
)
"""A line that names the record that follows."""
CLOSING = re.compile(r"[)\]}<]|(?:end|END|fi|done|esac)[;,.)]{0,2}[ \t\r]*$", re.M)
"""A line that names nothing: a closing bracket, a tag, or a word that ends a block of a program."""
FIGURE_SPACE = "\u2007"
"""A space that is as wide as a digit. `blocks` writes it before the shorter numbers of an aligned column."""
ENDS = f" {FIGURE_SPACE}\t\r:{{([,-"
"""The characters that a less indented line loses at its ends."""
_LETTER = re.compile(r"[^\W_]")


class Markup(NamedTuple):
    """What decides whether a line of a text is a title.

    Attributes:
        fences: The bounds of its fenced code, ascending.
        has_comments: True if a line with a number sign is a comment.
    """

    fences: Sequence[int]
    has_comments: bool

    @classmethod
    def of(cls, text: str, parts: Sequence[int] = ()) -> Self:
        """Return the markup of a text.

        Args:
            text: The text.
            parts: The bounds of its parts that are not plain text, ascending.
        """
        rules = {match.start("rule") for match in _underlined(text)}
        rules |= {match.start() for match in _LONG_RULE.finditer(text)}
        fences = [bound for span in fenced_spans(text, rules) for bound in span]
        return cls(fences, _has_comments(_outside(text, _united(fences, parts))))

    def inside(self, start: int, end: int) -> Self:
        """Return the markup of the text between two offsets."""
        first, last = bisect_right(self.fences, start), bisect_left(self.fences, end)
        inner = self.fences[first - first % 2 : last + last % 2]
        return self._replace(fences=[min(max(bound, start), end) - start for bound in inner])


class Captions:
    """The captions of the passages of a text, which are asked for in ascending order.

    A caption has the titles, the section of settings, the names of the record and the less indented lines that a
    position belongs to. The innermost ones come last. If there is too little room, the outermost ones are left out.

    Attributes:
        fences: The bounds of the fenced code, ascending.
        headings: The level and the text of each heading in a language other than Markdown and HTML, by its offset.
        records: The offsets of the first lines of records whose fields have keys.
        sections: The level, the end and the text of each title that was read, by its offset. The next line begins at
            its end.
        marks: The marks of the rules below titles, in the order of their levels.
        text: The text.
        titles: The level and the text of each title that is open after what was read, the outermost first.

    Args:
        text: The text.
        before: The captions of the text before this one, which have read all of it. Its titles go on.
        markup: The markup of the text. By default it is read from the text.
    """

    def __init__(self, text: str, before: Captions | None = None, markup: Markup | None = None) -> None:
        self.text = text
        self.titles: list[tuple[int, str]] = [] if before is None else [*before.titles]
        self._titled = 0
        self._underlined = {match.start(): match for match in _underlined(text)}
        self.headings = headings(text)
        self.records = frozenset(keyed_records(text))
        self.fences, self._has_comments = Markup.of(text) if markup is None else markup
        self.marks: list[str] = [] if before is None else before.marks
        self.sections: dict[int, tuple[int, int, str]] = {}
        tags = [bound for match in _GAME_TAGS.finditer(text) for bound in match.span()]
        sections = (match for match in _SECTION.finditer(text) if bisect_right(tags, match.start()) % 2 == 0)
        self._sections = [(match.start(), match["name"]) for match in sections]
        self._headings = NODE_HEADING.finditer(text)
        self._next_heading = next(self._headings, None)
        self._nodes: list[tuple[int, str]] = []
        self._named = NAMED.finditer(text)
        self._next_name = next(self._named, None)
        self._record: dict[str, str] = {}
        self._open: list[tuple[int, str]] = []
        self._read = 0

    def heads(self) -> set[int]:
        """Return the offsets of the lines that begin a section, a search hit, or a comment at the left margin."""
        starts = {match.start() for match in _HEADING.finditer(self.text)}
        if self._has_comments:
            # A comment of several lines stays together.
            starts = {it for it in starts if it == 0 or self.text[self.text.rfind("\n", 0, it - 1) + 1] != "#"}
        starts |= {match.start() for match in HIT.finditer(self.text)} | {start for start, _ in self._sections}
        starts |= self.headings.keys()
        return (starts - {match.start("rule") for match in self._underlined.values()}) | self._underlined.keys()

    def begin(self, start: int, following: int) -> bool:
        """Read the title or the first line of the record that a block begins with. Return True if there is one.

        Args:
            start: The offset where the block begins.
            following: The offset where the next block begins.
        """
        text = self.text
        # A title is in its own block. One more character shows whether a blank line follows it.
        if (title := self._underlined.get(start)) is not None:
            # The first mark below a title that occurs is that of the highest level.
            if title["mark"] not in self.marks:
                self.marks.append(title["mark"])
            self._push(self.marks.index(title["mark"]) + 1, title["underlined"], start, title.end())
        elif (title := _TITLE.match(text, start, following + 1)) and not (title["marks"] and self._has_comments):
            level = len(title["marks"] or "") or int(title["depth"] or 0)
            said = next(title[name] for name in _TITLES if title[name])
            self._push(level, said, start, start + len(title[0].rstrip()))
        elif start in self.headings:
            self._push(*self.headings[start], start, start + 1)
        elif record := RECORD.match(text, start):
            # The first line of a commit's message may be in the next block.
            commit = COMMIT.match(text, start)
            end = (commit or record).end()
            if commit is not None and end - start > LONGEST_HEADER:
                end = text.rfind("\n", start, commit.start("subject")) + 1
            level = LETTER_LEVEL if record["letter"] else 0
            said = _record_name(record, text[start : max(end, following)])
            if commit is not None and (subject := commit["subject"].strip()) not in said:
                said = f"{said[: MOST_NAMING // 2]} {subject}"[:MOST_NAMING]
            self._push(level, said, start, end)
        else:
            if HIT.match(text, start):
                self._push(0, "", start, start + 1)
            return False
        return True

    def _push(self, level: int, said: str, start: int, end: int) -> None:
        """Add a title. It closes the titles of its level and below. Level 0 closes all but the header of a letter."""
        line_end = self.text.find("\n", end - 1) + 1 or len(self.text)
        self.sections[start] = level, line_end, said.strip()
        self.titles = [*((above, it) for above, it in self.titles if above < level), (level, said.strip())]
        self._titled = start

    def caption(self, start: int, *, titled: bool = False, entry: int | None = None) -> str:
        """Return the caption of the passage that begins at this offset.

        Args:
            start: The offset.
            titled: True if the passage begins with its title, which is then left out.
            entry: The offset of the entry that the passage is the rest of. Its first line names the passage.
        """
        parts = [said for _, said in (self.titles[:-1] if titled else self.titles)]
        if row := bisect_right(self._sections, (start, "\U0010ffff")):
            section, name = self._sections[row - 1]
            parts += [name] if section >= self._titled else []
        parts += self._headings_before(start)
        above = self._lines_above(start)
        if entry is not None:
            line = self.text[entry : min(start, entry + WIDEST_INDENT + LONGEST_LABEL)].partition("\n")[0]
            first_line = indented(line)[1][:LONGEST_LABEL].strip(ENDS)
            parts += [] if any(map(first_line.startswith, above)) else [first_line]
        parts += [*self._names_of(start), *above]
        parts = [part for part in dict.fromkeys(parts) if part]
        while len(parts) > 1 and sum(map(len, parts)) + len(parts) > LONGEST_LABEL:
            del parts[0]
        return " ".join(parts)[:LONGEST_LABEL]

    def _headings_before(self, start: int) -> list[str]:
        """Return the headings of an accessibility tree that a position is below. A heading ends those of its level."""
        while (match := self._next_heading) is not None and match.start() < start:
            level = _level(match)
            self._nodes = [node for node in self._nodes if node[0] < level]
            self._nodes.append((level, (match["said"] or match["quoted"])[:LONGEST_LINE]))
            self._next_heading = next(self._headings, None)
        # A passage that begins with a heading is not below the headings of its level.
        own = _level(match) if match is not None and match.start() == start else NODE_LEVEL + 1
        return [said for level, said in self._nodes if level < own]

    def _names_of(self, start: int) -> Iterator[str]:
        """Yield the names of the record that a position is in. A record ends where one of its keys occurs again."""
        while (match := self._next_name) is not None and match.start() < start:
            key = match["key"].lower()
            if match.start() < self._titled:
                self._record = {}
            if key in self._record:
                self._record = dict(islice(self._record.items(), [*self._record].index(key)))
            self._record[key] = match["name"].strip()
            self._next_name = next(self._named, None)
        if match is not None and match.start() == start and match["key"].lower() in self._record:
            # The passage begins with the names of the next record.
            yield from islice(self._record.values(), [*self._record].index(match["key"].lower()))
        else:
            yield from self._record.values()

    def _lines_above(self, start: int) -> list[str]:
        """Return the less indented lines above the line of a position, the nearest ones."""
        line_start = self.text.rfind("\n", 0, start) + 1
        while self._read < line_start:
            end = self.text.find("\n", self._read) + 1 or len(self.text)
            line = self.text[self._read : end]
            if self._read in self.records:
                self._open.clear()
            self._read = end
            indent, content = indented(line)
            is_closing = CLOSING.match(content) is not None
            if is_closing:
                # The line that it closes still names what follows.
                indent += 1
            elif not _LETTER.search(content):
                continue
            while self._open and self._open[-1][0] >= indent:
                self._open.pop()
            is_heading = NODE_HEADING.match(line) is not None
            if not is_closing and not is_heading:
                self._open.append((indent, content[:LONGEST_LINE].strip(ENDS)))
        if line_start in self.records:
            return []
        indent, _ = indented(self.text[line_start : line_start + WIDEST_INDENT])
        return [said for own, said in self._open if own < indent][-MOST_LINES:]


def _level(heading: re.Match[str]) -> int:
    return int(heading["level"] or NODE_LEVEL)


def _record_name(first_line: re.Match[str], record: str) -> str:
    """Return what names a record."""
    if first_line["letter"] or first_line["component"]:
        summary = (_LETTER_SUBJECT if first_line["letter"] else _SUMMARY).search(record)
        return summary["said"].strip()[:MOST_NAMING] if summary else ""
    if first_line["graph"]:
        record = _GRAPH_LINES.sub("", record)
    return _first_fields(record) if first_line["numbered"] else record.partition("\n")[0].strip(RULE)


def _first_fields(record: str) -> str:
    """Return what the first lines of a record say, without its number and its times.

    They are its first fields, or the header and the subject of a commit. A blank line is between those two.
    """
    parts = record.split("\n\n", 2)[:2]
    lines = (line for part in parts for line in islice(part.split("\n"), 2 * MOST_LINES))
    said = (_ADDRESS.sub("", " ".join(_NAMELESS.sub("", line).split())) for line in lines)
    return " ".join(filter(None, said))[:MOST_NAMING]


def _has_comments(text: str) -> bool:
    """Return True if a line with a number sign is a comment, as in programs and settings. In Markdown it is a heading.

    Most lines of a program or of settings show what they are. The text has no fenced code.
    """
    if _COMMENT.search(text) is None:
        return False
    if text.startswith("#!"):
        return True
    if 2 * len(_LOWER_HEADING.findall(text)) > len(_COMMENT.findall(text)):
        return False
    lines = code = 0
    before = ""
    for line in text.split("\n"):
        if line[:1] not in {"", " ", "\t", "\r", "#"}:
            lines += 1
            code += _CODE_LINE.match(line) is not None
        elif before[:2] in _COMMENTED and line[:2] in _COMMENTED:
            # Two headings of the first level do not follow each other.
            lines += 1
            code += 1
        before = line
    return 2 * code > lines


def _outside(text: str, bounds: Sequence[int]) -> str:
    """Return the text outside of spans, whose bounds ascend."""
    ends = [0, *bounds[1::2]]
    return "".join(text[end:start] for end, start in zip(ends, [*bounds[::2], len(text)], strict=True))


def _united(bounds: Sequence[int], others: Sequence[int]) -> list[int]:
    """Return the bounds of the spans of two kinds. Spans that overlap are one. All bounds ascend."""
    both = sorted([*zip(bounds[::2], bounds[1::2], strict=True), *zip(others[::2], others[1::2], strict=True)])
    united: list[int] = []
    for start, end in both:
        if united and start <= united[-1]:
            united[-1] = max(united[-1], end)
        else:
            united += [start, end]
    return united


def _underlined(text: str) -> Iterator[re.Match[str]]:
    """Yield the titles with a rule below them."""
    if not any(f"\n{mark * 3}" in text for mark in '=~^"-'):
        # Most texts have no rule, and the pattern takes longer.
        return
    for match in _UNDERLINED.finditer(text):
        if len(match["rule"]) >= max(3, len(match["underlined"]) - 2):
            yield match


def indented(line: str) -> tuple[int, str]:
    """Return the number of columns before the text of a line, and its text. Its prefix does not count.

    Error messages show code with its line numbers. The columns before such a number count.
    """
    prefix = LINE_PREFIX.match(line)
    above = 0
    if prefix is not None:
        line = line[prefix.end() :]
        if _BAR.search(prefix[0]):
            above = len(prefix[0]) - len(prefix[0].lstrip(" "))
    content = line.lstrip(INDENTATION)
    if content.startswith(_REPLACED):
        content = content[2:]
    indentation = line[: len(line) - len(content)]
    # Few lines have tabs.
    return above + len(indentation.expandtabs() if "\t" in indentation else indentation), content.rstrip()
