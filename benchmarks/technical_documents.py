"""Documents of technical manuals, with their cross-references: manual pages, HTML manuals and RFCs.

A parser turns the source of a page into `Page` values. A page has the text as a reader sees it, and the other documents
that its sentences name. When all pages of a set are known, `resolve` finds the targets of the references.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree as ET

from context_agent.retrieval.loaders.html_tags import Tag, tags, unescaped
from context_agent.retrieval.loaders.html_text import page_text

LEAST_WORDS = 40
"""The minimum number of words in a section. A shorter one is added to the section around it, or before it."""
LONG_PAGE = 1000
"""The maximum number of words in a manual page. A longer one is divided at its headings."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A sentence, the words in it that name another document, and that document's id."""

    sentence: str
    words: str
    target: str


@dataclass(frozen=True, slots=True)
class Page:
    """A document.

    Attributes:
        id: The document's id.
        title: The title.
        text: The text.
        summary: The line that says what the document is about, or an empty string.
        anchors: The names under which other documents refer to it.
        references: The references in its text. Their targets are anchors until `resolve` replaces them with ids.
    """

    id: str
    title: str
    text: str
    summary: str = ""
    anchors: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()


def resolve(pages: Sequence[Page]) -> list[Page]:
    """Return the pages with document ids as the targets of their references.

    References to unknown documents and to the page itself are left out.
    """
    ids: dict[str, str] = {}
    for page in pages:
        for anchor in page.anchors:
            ids.setdefault(anchor, page.id)
    return [replace(page, references=tuple(_resolved(page, ids))) for page in pages]


def _resolved(page: Page, ids: Mapping[str, str]) -> Iterator[Reference]:
    for reference in dict.fromkeys(page.references):
        target = ids.get(reference.target, page.id)
        if target != page.id:
            yield replace(reference, target=target)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line. A blank line ends a sentence."""
    blocks = re.split(r"\n\s*\n|\n(?=\S{1,30}  )", text)
    flat = (" ".join(block.split()) for block in blocks)
    return [part for block in flat for part in re.split(r"(?<=[.!?:])\s+(?=[A-Z(\"“])", block) if part]


# Manual pages: the macros of man(7)

_NAMED_CHARACTERS = {
    "aq": "'", "dq": '"', "co": "©", "bu": "•", "em": "—", "en": "–", "lq": "“", "rq": "”", "oq": "‘", "cq": "’",
    "ti": "~", "ha": "^", "rs": "\\", "mu": "×", "<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "->": "→", "<-": "←",
    "lB": "[", "rB": "]", "sl": "/", "de": "°", "mc": "µ", "pl": "+", "eq": "=", "hy": "-", "ss": "ß", "at": "@",
    "+=": "≡", "*m": "μ", "if": "∞", "Fo": "«", "Fc": "»", "ul": "_", "ba": "|", "bv": "|", "sh": "#", "Do": "$",
}  # fmt: skip
_FONT = re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\s[-+]?\d|\\[hvwlL]'[^']*'|\\[&|^%:/,c)!]|\\\*\(?..?")
_CHARACTER = re.compile(r"\\\[([^]]+)\]|\\\((..)")
_ALTERNATING = frozenset(["BR", "RB", "IR", "RI", "BI", "IB"])
_CONTROL = frozenset("de ds nr if ie el rm ad hy in ti ta na nh ll rs so ft TH RS RE UE ME HP PD ig am ne".split())
_PAGE_NAME = re.compile(r"(?<![\w.])([A-Za-z_][\w.:+-]*)\((\d[a-z]*)\)")


def manual_page(source: str, *, collection: str, name: str) -> list[Page]:
    """Return the documents of a file in the macros of man(7). If the file is `open.2`, all their titles are `open(2)`.

    A page of more than `LONG_PAGE` words gives a document for each part under a heading. Any other page is one
    document. A file that only includes another file gives none. The anchors of the first document are `open(2)` and the
    names in its NAME line. References are the names of pages in running text.
    """
    if re.search(r"^\.so ", source, re.M) or not re.search(r"^\.TH ", source, re.M):
        return []
    text = manual_text(source)
    stem, _, section = name.rpartition(".")
    parts = _manual_parts(text) if len(text.split()) > LONG_PAGE else {"": text}
    names, _, summary = " ".join(_part(text, "NAME").split()).partition(" - ")
    anchors = dict.fromkeys(f"{item.strip()}({section})" for item in [stem, *names.split(",")])
    return [
        Page(
            id=f"{collection}:{name}{heading and '#'}{heading}",
            title=f"{stem}({section})",
            text=part,
            summary="" if position else summary,
            anchors=() if position else tuple(anchors),
            references=tuple(_named_pages(part)),
        )
        for position, (heading, part) in enumerate(parts.items())
    ]


def _named_pages(text: str) -> Iterator[Reference]:
    for sentence in sentences(text.replace(_part(text, "SEE ALSO") or "\0", "")):
        for match in _PAGE_NAME.finditer(sentence):
            yield Reference(sentence, match[0], match[0])


def _manual_parts(text: str) -> dict[str, str]:
    """Return the text under each heading, including the heading. A short part is added to the one before it."""
    parts: dict[str, str] = {}
    for block in re.split(r"^(?=[A-Z][A-Z /-]+\n\n)", text, flags=re.M):
        heading = block.partition("\n")[0].strip()
        if parts and (len(block.split()) < LEAST_WORDS or heading in parts):
            parts[next(reversed(parts))] += block
        elif block:
            parts[heading] = block
    return parts


def manual_text(source: str) -> str:
    """Return the text of a page in the macros of man(7), without fonts and indentation.

    A heading is alone on its line. The term of a list item is followed by two spaces and its text.
    """
    page = _ManualText()
    lines = iter(source.splitlines())
    for line in lines:
        if line.startswith((".TS", "'\\\" t")):
            page.table(lines if line.startswith(".TS") else iter(()))
        elif line.startswith((".", "'")):
            page.macro(line)
        else:
            page.words(line)
    return re.sub(r"\n{3,}", "\n\n", "".join(page.parts)).strip() + "\n"


class _ManualText:
    """The text so far, and the separator before the next words."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._verbatim = False
        self._before = ""
        self._term = False

    def words(self, line: str) -> None:
        """Add running text, or a line of an example."""
        text = plain_roff(line)
        if self._verbatim:
            self.parts.append(f"{self._before}{text}")
            self._before = "\n"
        elif text.strip():
            self.parts.append(f"{self._before}{text.strip()}")
            self._before = "  " if self._term else " "
            self._term = False
        else:
            self._before = "\n\n"

    def macro(self, line: str) -> None:
        """Add a line that begins with a control character."""
        name, *rest = line[1:].strip().split(None, 1) or ['\\"']
        arguments = _arguments(rest[0]) if rest else []
        if name in {"SH", "SS"}:
            self._heading(arguments)
        elif name in {"TP", "TQ"}:
            self._before, self._term = "\n\n" if name == "TP" else "\n", True
        elif name in {"PP", "P", "LP", "sp", "IP"}:
            self._before = "\n\n"
            if name == "IP" and arguments:
                self._term = True
                self.words(arguments[0])
        elif name in {"nf", "EX", "fi", "EE"}:
            self._verbatim, self._before = name in {"nf", "EX"}, "\n"
        elif name == "br":
            self._before = "\n"
        elif not name.startswith('\\"') and name not in _CONTROL:
            self.words(("" if name in _ALTERNATING else " ").join(arguments))

    def _heading(self, arguments: Sequence[str]) -> None:
        self._verbatim, self._term, self._before = False, False, "\n\n"
        self.words(" ".join(arguments))
        self._before = "\n\n"

    def table(self, lines: Iterator[str]) -> None:
        """Add the rows of a table, without its layout. Cells are two spaces apart."""
        self._before, in_block, layout = "\n", False, True
        for line in lines:
            if line.startswith(".TE"):
                break
            if layout:
                layout = not line.rstrip().endswith(".")
            elif not line.startswith((".", "'", "_", "=")):
                in_block = "T{" in line or (in_block and "T}" not in line)
                text = plain_roff(re.sub(r"T[{}]", "", line).replace("\t", "  ")).strip()
                self.parts.append(f"{self._before}{text}")
                self._before = " " if in_block else "\n"
        self._before = "\n\n"


def plain_roff(line: str) -> str:
    """Return a line without the escapes of roff."""
    text = re.sub(r'\\".*', "", line)
    text = _FONT.sub("", text.replace("\\\\", "\\e"))
    text = _CHARACTER.sub(lambda match: _NAMED_CHARACTERS.get(match[1] or match[2], ""), text)
    return re.sub(r"\\(.)", lambda match: {"e": "\\", "~": " ", "0": " ", "t": " "}.get(match[1], match[1]), text)


def _arguments(text: str) -> list[str]:
    return [
        (quoted or bare).replace('""', '"') for quoted, bare in re.findall(r'"((?:[^"]|"")*)"?|((?:\\ |\S)+)', text)
    ]


def _part(text: str, heading: str) -> str:
    matched = re.search(rf"^{heading}\n(.*?)(?=^[A-Z][A-Z /-]+\n\n|\Z)", text, re.M | re.S)
    return matched[1] if matched else ""


# Manuals in HTML: Sphinx and DocBook

_SECTIONS = frozenset(["chapter", "preface", "appendix", "sect1", "sect2", "sect3", "refentry", "refsect1"])
_LEFT_OUT = frozenset(["toc", "navheader", "navfooter", "titlepage-toc", "footnotes"])
_OPENED, _CLOSED = "\ue000", "\ue001"
_LINK = re.compile(f"{_OPENED}([^{_OPENED}{_CLOSED}]*){_CLOSED}([^{_OPENED}{_CLOSED}]*){_OPENED}{_CLOSED}")


@dataclass(slots=True)
class _Element:
    """The HTML of an open element that will become a document. `name` and `depth` identify its end tag."""

    anchor: str
    name: str
    depth: int
    prefix: str = ""
    html: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)

    def words(self) -> int:
        """Number of words in the element."""
        return sum(len(part.split()) for part in self.html if not part.startswith(("<", _OPENED)))

    def absorb(self, inner: _Element) -> None:
        """Add an inner element that is too short to be a document."""
        self.html += ["<p>", *inner.html, "</p>"]
        self.anchors += [inner.anchor, *inner.anchors]


def manual_sections(html: str, *, collection: str, name: str) -> list[Page]:
    """Return the documents of an HTML page: its sections, and its described objects of at least `LEAST_WORDS` words.

    `name` is the page's path without its suffix. The title is the section's heading or the object's name. For a part of
    a reference page, it begins with the page's title. Text of an inner section belongs only to the inner section.
    """
    return [_page_of(element, collection, name) for element in _elements(html)]


def _elements(html: str) -> Iterator[_Element]:
    """Yield the elements that become documents, in the order in which they end."""
    stack: list[_Element] = []
    depths: dict[str, int] = {}
    skipped, title = 0, ""
    for tag in tags(html):
        depth = depths[tag.name] = depths.get(tag.name, 0) + (-1 if tag.closing else 1)
        if skipped:
            skipped = 0 if tag.closing and (tag.name, depth) == ("div", skipped - 1) else skipped
            continue
        if stack:
            stack[-1].html.append(tag.before)
        classes = set(tag.get("class").split()) if not tag.closing else set()
        if tag.name == "title":
            title = f"{tag.inside.strip()}: "
        elif tag.name == "div" and classes & _LEFT_OUT:
            skipped = depth
        elif _begins(tag, classes):
            stack.append(_Element(tag.get("id"), tag.name, depth, title if "refsect1" in classes else ""))
        elif stack and tag.closing and (tag.name, depth) == (stack[-1].name, stack[-1].depth - 1):
            yield from _ended(stack)
        elif stack:
            _collect(tag, classes, stack)


def _ended(stack: list[_Element]) -> Iterator[_Element]:
    """Close the innermost element. If it is long enough for a document, yield it. If not, add it to the element around
    it.
    """
    element = stack.pop()
    if not stack:
        element.anchors.append("")
    if element.anchor and element.words() >= LEAST_WORDS:
        yield element
    elif stack:
        stack[-1].absorb(element)


def _begins(tag: Tag, classes: set[str]) -> bool:
    """Return True if the tag opens a section, or the description of an object."""
    if tag.closing:
        return False
    return (
        tag.name == "section"
        or (tag.name == "div" and bool(classes & _SECTIONS))
        or (tag.name == "dl" and "py" in classes)
    )


def _collect(tag: Tag, classes: set[str], stack: Sequence[_Element]) -> None:
    """Add the tag to the innermost element: anchors by name, links as marks, and everything else unchanged."""
    element = stack[-1]
    if not tag.closing and (anchor := tag.get("id")):
        element.anchors.append(anchor)
        if tag.name == "dt" and not element.anchor:
            element.anchor = anchor
    if tag.name == "a" and not tag.closing and tag.get("href") and "headerlink" not in classes:
        element.html.append(f"{_OPENED}{tag.get('href')}{_CLOSED}")
    elif tag.name == "a":
        element.html.append(f"{_OPENED}{_CLOSED}" if tag.closing else "")
    else:
        element.html.append("" if not tag.name else f"<{'/' * tag.closing}{tag.name}>")


def _page_of(element: _Element, collection: str, name: str) -> Page:
    _, marked = page_text("".join(element.html))
    text = _unmarked(marked).replace("¶", "")
    heading = re.match(r"#+ (.*)", text)
    anchor = element.anchor
    title = element.prefix + heading[1].strip() if heading and element.name != "dl" else anchor
    return Page(
        id=f"{collection}:{name}#{anchor}",
        title=title,
        text=text,
        summary=next((line for line in sentences(text.partition("\n\n")[2]) if 5 <= len(line.split()) <= 25), ""),
        anchors=tuple(f"{name}#{item}" for item in dict.fromkeys([anchor, *element.anchors])),
        references=tuple(_links(marked, name)),
    )


def _unmarked(text: str) -> str:
    return re.sub(f"{_OPENED}[^{_OPENED}{_CLOSED}]*{_CLOSED}", "", _LINK.sub(r"\2", text))


def _links(marked: str, name: str) -> Iterator[Reference]:
    for sentence in sentences(marked):
        for match in _LINK.finditer(sentence):
            if target := _target(match[1], name):
                yield Reference(_unmarked(sentence).replace("¶", ""), match[2], target)


def _target(href: str, name: str) -> str:
    """Return the anchor of a link on page `name`, such as `library/os#os.open`. For another site, return an empty
    string.
    """
    path, _, fragment = href.partition("#")
    if ":" in path:
        return ""
    folders = name.split("/")[:-1] if path else name.split("/")
    for part in filter(None, path.removesuffix(".html").split("/")):
        folders = folders[:-1] if part == ".." else [*folders, part]
    return f"{'/'.join(folders)}#{unescaped(fragment)}"


# RFCs as text

_PAGE_BREAK = re.compile(r"\n*\n[^\n]*\[Page +[\divx]+\][ \t]*\n+\f?\n*(?:RFC [^\n]*\d{4}[ \t]*\n+)?")
_NUMBERED = re.compile(r" *(?:Appendix +(?=[A-Z])|(?=\d|[A-Z]\.))((?:\d+|[A-Z])(?:\.\d+)*)[.:]? +(\S.{0,75})")
_UNNUMBERED = re.compile(r"[A-Z][\w']*(?: [\w'/&-]+){0,5}")
_CONTENTS = re.compile(r"\.{3,}|(?: \.){3,}|\s{3,}\d+\s*$")
_TAG = re.compile(r"^ *\[([\w.-]+)\]\s[^\[]{0,400}?\bRFC ?(\d+)\b", re.M)
_NUMBER = r"(?:\d+|[A-Z])(?:\.\d+)*"
_CITED = re.compile(
    rf"(?:[Ss]ections?|Appendix) ({_NUMBER})\b(?:,? (?:of|in) (?:\[([\w.-]+)\]|RFC ?(\d+)))?"
    rf"|\[([\w.-]+)\](?:, (?:Section|Appendix) ({_NUMBER}))?|\bRFC ?(\d+)\b"
)


def rfc_sections(source: str, *, collection: str, name: str, subject: str) -> list[Page]:
    """Return a document for each section of an RFC.

    `name` is the name of the file, such as `rfc791.txt`, and the title of all documents. `subject` is the RFC's title.
    References are citations of sections and of other RFCs. The table of contents is left out.
    """
    text = _PAGE_BREAK.sub(_joined, source.lstrip("\ufeff").replace("\r", ""))
    number = name.removesuffix(".txt")
    cited_rfcs = {tag: f"rfc{cited}" for tag, cited in _TAG.findall(text)}
    return [
        Page(
            id=f"{collection}:{number}#{section}",
            title=name,
            text=body,
            summary=f"{heading} in {subject}" if heading else subject,
            anchors=(f"{number}#{section}", *([f"{number}#"] if position == 0 else [])),
            references=tuple(_citations(body, number, cited_rfcs)),
        )
        for position, (section, heading, body) in enumerate(_rfc_parts(text))
    ]


def _joined(match: re.Match[str]) -> str:
    """Return the replacement for a page break.

    If the next line continues a sentence, it is a line break. Otherwise, it is a blank line.
    """
    return "\n" if match.string[match.end() : match.end() + 80].lstrip()[:1].islower() else "\n\n"


def _rfc_parts(text: str) -> list[tuple[str, str, str]]:
    """Return the number, the heading and the text of each section. A short section is added to the one before it.

    A section without a number has its heading as its number.
    """
    bodies: dict[str, tuple[str, str]] = {}
    for section, heading, lines in _headed(text.split("\n")):
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
        if heading.lower() in {"table of contents", "contents"}:
            continue
        if bodies and (len(body.split()) < LEAST_WORDS or section in bodies):
            previous = next(reversed(bodies))
            bodies[previous] = (bodies[previous][0], f"{bodies[previous][1]}\n{body}")
        else:
            bodies[section] = (heading, body)
    return [(section, heading, body) for section, (heading, body) in bodies.items()]


def _headed(lines: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Return the number, the heading and the lines of each section.

    A section without a number has its heading as its number. The lines before the first heading are the section
    `front`.
    """
    parts: list[tuple[str, str, list[str]]] = [("front", "", [])]
    numbers: set[str] = set()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        section, heading = _heading(before, line, after, numbers)
        if heading:
            numbers.add(section)
            parts.append((section, heading, []))
        parts[-1][2].append(line.rstrip())
    return parts


def _heading(before: str, line: str, after: str, numbers: Collection[str]) -> tuple[str, str]:
    """Return the number and the words of a section's heading. If the line is not a heading, return two empty strings.

    For a heading without a number, return its words twice. `numbers` contains the numbers of the sections before. If a
    number's predecessor is not among them, the line is not a heading.
    """
    if before.strip() or _CONTENTS.search(line):
        return "", ""
    if (match := _NUMBERED.fullmatch(line.rstrip())) and _predecessor(match[1]) in {"", *numbers}:
        is_list_item = line.startswith("   ") and "." not in match[1] and not match[2].isupper()
        return ("", "") if is_list_item else (match[1], match[2])
    if not after.strip() and _UNNUMBERED.fullmatch(line.rstrip()):
        return line.strip(), line.strip()
    return "", ""


def _predecessor(number: str) -> str:
    """Return the number before this one on its level. If it is the first, return the number of the section around it.

    If there is no such section, return an empty string.
    """
    outer, _, end = number.rpartition(".")
    if end in {"0", "1", "A"}:
        return outer
    previous = str(int(end) - 1) if end.isdigit() else chr(ord(end) - 1)
    return f"{outer}.{previous}" if outer else previous


def _citations(body: str, number: str, cited_rfcs: Mapping[str, str]) -> Iterator[Reference]:
    for sentence in sentences(body):
        for match in _CITED.finditer(sentence):
            section, tag, rfc, alone, part, plain = match.groups()
            of = cited_rfcs.get(tag or alone or "", "") or (f"rfc{rfc or plain}" if rfc or plain else "")
            if section or of:
                yield Reference(sentence, match[0], f"{of or number}#{section or part or ''}")


# Other texts: help pages, essays in plain HTML, and a dictionary

LONGEST_PAGE = 2500
"""The maximum number of words in a part of a help page. A longer part is a list for machines, and is left out."""
_MALLARD = "{http://projectmallard.org/1.0/}"


def help_sections(html: str, *, collection: str, name: str) -> list[Page]:
    """Return a document for each heading of an HTML page. A part of less than `LEAST_WORDS` words is joined to its
    neighbor.

    `name` is the page's path without its suffix. The title is the heading. If there is no heading, it is the page's
    title.
    """
    title, text = page_text(html)
    parts: list[tuple[str, str]] = []
    for block in re.split(r"^(?=#{1,4} )", text, flags=re.M):
        heading = re.match(r"#+ (.*)", block)
        words = heading[1].strip() if heading else ""
        if parts and min(len(block.split()), len(parts[-1][1].split())) < LEAST_WORDS:
            parts[-1] = (parts[-1][0] or words, f"{parts[-1][1]}\n{block}")
        elif block.strip():
            parts.append((words, block))
    pages: dict[str, Page] = {}
    for heading_words, body in parts:
        if len(body.split()) >= LEAST_WORDS:
            page_id = f"{collection}:{name}#{heading_words}" if pages else f"{collection}:{name}"
            page_id += f"-{len(pages)}" if page_id in pages else ""
            tidy = re.sub(r"\n{3,}", "\n\n", body).strip()
            pages[page_id] = Page(page_id, heading_words or title, tidy)
    return [page for page in pages.values() if len(page.text.split()) <= LONGEST_PAGE]


def mallard_page(source: str, *, collection: str, name: str) -> Iterator[Page]:
    """Yield the document of a page of Mallard, the XML format of GNOME's help. A short or damaged page yields nothing.

    A page of more than `LONGEST_PAGE` words yields nothing either.
    """
    try:
        root = ET.fromstring(source)
    except ET.ParseError:
        return
    heading = root.find(f"{_MALLARD}title")
    title = name.rpartition("/")[2] if heading is None else " ".join("".join(heading.itertext()).split())
    text = re.sub(r"\n\s*\n+", "\n\n", _mallard_text(root)).strip()
    if LEAST_WORDS <= len(text.split()) <= LONGEST_PAGE:
        yield Page(f"{collection}:{name}", title, text)


def _mallard_text(element: ET.Element) -> str:
    tag = element.tag.replace(_MALLARD, "") if isinstance(element.tag, str) else ""
    if tag in {"info", "media", "comment"}:
        return ""
    text = (element.text or "") + "".join(_mallard_text(inner) + (inner.tail or "") for inner in element)
    if tag in {"p", "title", "gui", "key", "app", "link", "guiseq"}:
        text = re.sub(r"\s+", " ", text)
    return ("\n\n" if tag in {"p", "title", "item", "note"} else "") + text


_NUMBERED_HEADING = re.compile(r"^#{1,2} +([A-J]\.\d+(?:\.\d+)*) +(\S.*)$", re.M)
_BRACES = re.compile(r"\{\s*([^{}]+?)\s*\}")


def essay_sections(html: str, *, collection: str) -> list[Page]:
    """Return a document for each section of an HTML page whose headings look like `A.1.2 Heading`."""
    _, text = page_text(html)
    headings = list(_NUMBERED_HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    return [
        Page(f"{collection}:{heading[1]}", f"{heading[1]} {heading[2]}".strip(), text[heading.start() : end].strip())
        for heading, end in zip(headings, ends, strict=False)
        if len(text[heading.end() : end].split()) >= LEAST_WORDS
    ]


def dictionary_entries(source: str, *, collection: str) -> list[Page]:
    """Return a document for each entry of a dictionary in plain text.

    An entry is a headword at the margin, followed by indented lines. `{names}` of other entries become plain words.
    """
    pages = []
    for block in re.split(r"\n(?=\S)", source):
        headword, _, body = block.partition("\n")
        text = _BRACES.sub(lambda match: " ".join(match[1].split()), body)
        text = re.sub(r"\n{3,}", "\n\n", re.sub(r"^[ \t]+", "", text, flags=re.M)).strip()
        if len(text.split()) >= LEAST_WORDS and not headword.startswith("00-database"):
            pages.append(Page(f"{collection}:{headword.strip()}", headword.strip(), f"{headword.strip()} {text}"))
    return list({page.id: page for page in pages}.values())
