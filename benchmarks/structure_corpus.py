"""Measure whether search finds a value whose name is around its chunk: in headings, in classes, in parents or in paths.

    python benchmarks/structure_corpus.py [--kinds markdown,toml] [--questions 12] [--embedder static] [--seed 0]

The files are invented. For each kind of file there are two of them, or a folder. They state the settings of three
services in each of three environments, and each service has the same 24 settings. A service fills about a chunk, so its
name is often outside of the chunk that has the value. Each name also occurs as a word between the values in about a
third of the chunks. A question asks for one setting of one service in one environment, and the gold is the chunk that
has its value.

For each kind, the program prints the share of the questions whose gold chunk is the first one, and is among the first
five, of one hybrid search and of the agent with the efforts `fast` and `careful`. `named` is the share of the questions
whose gold chunk names the service and the environment, in its title or in its text, so that a reader could know what
the value belongs to. The last rows have the means with bootstrap 95% intervals over questions.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from prune_structure import ENVIRONMENTS, WORDS
from prune_structure import SETTINGS as PLAIN_SETTINGS

from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.loaders import load
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Chunk

SETTINGS = [f"{kind}_{setting}" for setting in PLAIN_SETTINGS for kind in ("soft", "hard", "daily")]
NAMES = (*WORDS, *ENVIRONMENTS)
OTHER_WORDS = (
    "about above after again along always before below between both change check close early every few first follow "
    "great group hold large later least less level light limit little long measure more most near never number often "
    "open order other part plan point quick rate reach same second set short since small start state still team than "
    "then through under until value week when while work year"
).split()
NAME_SHARE = 1 / 24
"""The share of the random words that are names. A third of the chunks have a name that is not theirs."""
WAYS = ("hybrid", "fast", "careful")
EFFORTS = WAYS[1:]
CUTOFF = 5
MOST_NAMING_WORDS = 6
"""Maximum number of words of a line that may name what is below it. Lines with random words have more."""
FILES = 2

Settings = Mapping[str, str]
Environments = Mapping[str, Mapping[str, Settings]]
Files = Mapping[str, str | bytes]


class Writer:
    """Writes environments as the files of a kind, with random words between the settings."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def words(self, count: int) -> str:
        """Return random words."""
        draw = self._draw
        return " ".join(draw.choice(NAMES if draw.random() < NAME_SHARE else OTHER_WORDS) for _ in range(count))

    def sentence(self, setting: str, value: str) -> str:
        """Return a sentence that states a setting, and another one."""
        return f"The {setting.replace('_', ' ')} is {value}. {self.words(9).capitalize()}."

    def titled(
        self, them: Environments, outer: Callable[[str], str], inner: Callable[[str], str], between: str = "\n\n"
    ) -> str:
        """Return sections inside sections, with a paragraph for each setting."""
        parts: list[str] = []
        for name, services in them.items():
            parts += [outer(name), self.words(20).capitalize() + "."]
            for service, settings in services.items():
                parts += [inner(service), *(self.sentence(*setting) for setting in settings.items())]
        return between.join(parts)

    def lines(
        self,
        them: Environments,
        outer: Callable[[str], str],
        inner: Callable[[str, str], str],
        line: Callable[[str, str], str],
        *,
        inner_end: str = "",
        outer_end: str = "",
    ) -> str:
        """Return a line for each setting, below the lines of its service and its environment."""
        lines: list[str] = []
        for name, services in them.items():
            lines.append(outer(name))
            for service, settings in services.items():
                lines += [inner(name, service), *(line(*setting) for setting in settings.items()), inner_end]
            lines.append(outer_end)
        return "\n".join(filter(None, lines)) + "\n"


Kind = Callable[[Writer, Environments], Files]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Register a kind of file under the function's name."""
    KINDS[function.__name__] = function
    return function


@kind
def markdown(writer: Writer, them: Environments) -> Files:
    """Return sections of Markdown."""
    return {"settings.md": "# Settings\n\n" + writer.titled(them, "## {}".format, "### {}".format)}


@kind
def changelog(writer: Writer, them: Environments) -> Files:
    """Return the lists of a changelog, whose versions are named like environments."""
    parts = ["# Changelog"]
    for name, services in them.items():
        parts.append(f"## 2.{len(parts)}.0-{name} (2024-03-1{len(parts) % 10})")
        for service, settings in services.items():
            entries = (
                f"- The {it.replace('_', ' ')} is now {value} ({writer.words(9)})." for it, value in settings.items()
            )
            parts += [f"### {service}", "\n".join(entries)]
    return {"CHANGELOG.md": "\n\n".join(parts)}


@kind
def nested_list(writer: Writer, them: Environments) -> Files:
    """Return nested lists of Markdown."""
    text = writer.lines(
        them,
        "- {}".format,
        lambda _, it: f"  - {it}",
        lambda name, value: f"    - {name.replace('_', ' ')}: {value} ({writer.words(9)})",
    )
    return {"settings.md": "# Settings\n\n" + text}


@kind
def wide_table(writer: Writer, them: Environments) -> Files:
    """Return a table of Markdown for each environment, with a column for each service."""
    parts = ["# Settings"]
    for name, services in them.items():
        head = f"| setting | {' | '.join(services)} | note |\n{'|---' * (len(services) + 2)}|"
        rows = [
            f"| {it.replace('_', ' ')} | {' | '.join(own[it] for own in services.values())} | {writer.words(14)} |"
            for it in SETTINGS
        ]
        parts += [f"## {name}", "\n".join([head, *rows])]
    return {"settings.md": "\n\n".join(parts)}


@kind
def underlined(writer: Writer, them: Environments) -> Files:
    """Return plain text with underlined titles."""
    text = writer.titled(them, lambda it: f"{it}\n{'=' * len(it)}", lambda it: f"{it}\n{'-' * len(it)}")
    return {"settings.txt": text}


@kind
def numbered(writer: Writer, them: Environments) -> Files:
    """Return plain text with numbered titles."""
    numbers = [0, 0]

    def outer(name: str) -> str:
        numbers[:] = numbers[0] + 1, 0
        return f"{numbers[0]}. {name.capitalize()}"

    def inner(name: str) -> str:
        numbers[1] += 1
        return f"{numbers[0]}.{numbers[1]}. {name.capitalize()}"

    return {"settings.txt": writer.titled(them, outer, inner)}


@kind
def capitals(writer: Writer, them: Environments) -> Files:
    """Return plain text as manuals print it: titles in capital letters, and indented text."""
    parts: list[str] = []
    for name, services in them.items():
        parts.append(name.upper())
        for service, settings in services.items():
            parts += [f"   {service}", *(f"       {writer.sentence(*setting)}" for setting in settings.items())]
    return {"settings.txt": "\n\n".join(parts)}


@kind
def html(writer: Writer, them: Environments) -> Files:
    """Return a page of HTML."""
    parts = ["<html><head><title>Settings</title></head><body>"]
    for name, services in them.items():
        parts.append(f"<section><h2>{name}</h2><p>{writer.words(20)}</p>")
        for service, settings in services.items():
            rows = (
                f"<dt>{it.replace('_', ' ')}</dt><dd>{value} ({writer.words(9)})</dd>" for it, value in settings.items()
            )
            parts.append(f"<h3>{service}</h3><dl>{''.join(rows)}</dl>")
        parts.append("</section>")
    return {"settings.html": "\n".join([*parts, "</body></html>"])}


@kind
def html_table(writer: Writer, them: Environments) -> Files:
    """Return a page with a table for each environment, with a column for each service."""
    parts = ["<html><head><title>Settings</title></head><body>"]
    for name, services in them.items():
        head = "".join(f"<th>{it}</th>" for it in ("setting", *services, "note"))
        rows = (
            f"<tr><td>{it.replace('_', ' ')}</td>{''.join(f'<td>{own[it]}</td>' for own in services.values())}"
            f"<td>{writer.words(14)}</td></tr>"
            for it in SETTINGS
        )
        parts.append(f"<h2>{name}</h2><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    return {"settings.html": "\n".join([*parts, "</body></html>"])}


@kind
def restructured(writer: Writer, them: Environments) -> Files:
    """Return reStructuredText."""
    title = f"{'*' * 8}\nSettings\n{'*' * 8}\n\n"
    text = writer.titled(them, lambda it: f"{it}\n{'=' * len(it)}", lambda it: f"{it}\n{'~' * len(it)}")
    return {"settings.rst": title + text}


@kind
def asciidoc(writer: Writer, them: Environments) -> Files:
    """Return AsciiDoc."""
    return {"settings.adoc": "= Settings\n\n" + writer.titled(them, "== {}".format, "=== {}".format)}


@kind
def org(writer: Writer, them: Environments) -> Files:
    """Return an outline of Org."""
    return {"settings.org": "#+TITLE: Settings\n\n" + writer.titled(them, "* {}".format, "** {}".format)}


@kind
def latex(writer: Writer, them: Environments) -> Files:
    """Return LaTeX."""
    text = writer.titled(them, lambda it: f"\\section{{{it}}}", lambda it: f"\\subsection{{{it}}}")
    return {"settings.tex": f"\\title{{Settings}}\n\\begin{{document}}\n{text}\n\\end{{document}}\n"}


@kind
def wiki(writer: Writer, them: Environments) -> Files:
    """Return a page of MediaWiki."""
    return {"settings.wiki": "= Settings =\n\n" + writer.titled(them, "== {} ==".format, "=== {} ===".format)}


@kind
def manual(writer: Writer, them: Environments) -> Files:
    """Return a manual page."""
    text = writer.titled(them, ".SH {}".format, ".SS {}".format, "\n.PP\n")
    return {"settings.5": f".TH SETTINGS 5\n.SH NAME\nsettings \\- all settings\n{text}\n"}


@kind
def python(writer: Writer, them: Environments) -> Files:
    """Return classes of Python whose methods have the same names."""
    text = writer.lines(
        them,
        lambda it: f'class {it.title()}:\n    """{writer.words(9)}."""\n',
        lambda _, it: f'    def {it}(self):\n        """{writer.words(12)}."""',
        lambda name, value: f"        self.{name} = {value}  # {writer.words(9)}",
        inner_end="        return self\n",
    )
    return {"settings.py": text}


@kind
def kotlin(writer: Writer, them: Environments) -> Files:
    """Return objects of Kotlin."""
    text = writer.lines(
        them,
        lambda it: f"object {it.title()} {{",
        lambda _, it: f"    fun {it}(): Settings {{",
        lambda name, value: f'        set("{name}", {value}) // {writer.words(9)}',
        inner_end="    }\n",
        outer_end="}\n",
    )
    return {"Settings.kt": text}


@kind
def terraform(writer: Writer, them: Environments) -> Files:
    """Return blocks of Terraform."""
    text = writer.lines(
        them,
        lambda it: f'module "{it}" {{',
        lambda _, it: f"  {it} {{",
        lambda name, value: f'    {name} = "{value}" # {writer.words(9)}',
        inner_end="  }",
        outer_end="}\n",
    )
    return {"settings.tf": text}


@kind
def described(writer: Writer, them: Environments) -> Files:
    """Return descriptions, as those of `kubectl describe`."""
    text = writer.lines(
        them,
        lambda it: f"Name:         {it}\nAbout:        {writer.words(9)}\nContainers:",
        lambda _, it: f"  {it}:",
        lambda name, value: f"    {name + ':':16}{value} {writer.words(9)}",
    )
    return {"described": text}


@kind
def toml(writer: Writer, them: Environments) -> Files:
    """Return tables of TOML."""
    text = writer.lines(
        them,
        lambda it: f'[{it}]\nabout = "{writer.words(9)}"',
        lambda outer, it: f"\n[{outer}.{it}]",
        lambda name, value: f'{name} = "{value}"  # {writer.words(9)}',
    )
    return {"settings.toml": text}


@kind
def ini(writer: Writer, them: Environments) -> Files:
    """Return sections of an INI file."""
    text = writer.lines(
        them,
        lambda it: f"; {writer.words(9)}",
        lambda outer, it: f"\n[{outer} {it}]",
        lambda name, value: f"{name} = {value}\n; {writer.words(9)}",
    )
    return {"settings.ini": text}


@kind
def properties(writer: Writer, them: Environments) -> Files:
    """Return properties, whose keys are whole."""
    rows = [
        f"{name}.{service}.{it.replace('_', '.')}={value}\n# {writer.words(9)}"
        for name, services in them.items()
        for service, own in services.items()
        for it, value in own.items()
    ]
    return {"settings.properties": "\n".join(rows)}


@kind
def yaml(writer: Writer, them: Environments) -> Files:
    """Return mappings of YAML."""
    text = writer.lines(
        them,
        "{}:".format,
        lambda _, it: f"  {it}:",
        lambda name, value: f"    {name}: {value}  # {writer.words(9)}",
    )
    return {"settings.yaml": text}


@kind
def manifests(writer: Writer, them: Environments) -> Files:
    """Return manifests of Kubernetes in one file."""
    parts = [
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {service}\n  namespace: {name}\ndata:\n"
        + "\n".join(f'  {it}: "{value}"  # {writer.words(9)}' for it, value in own.items())
        for name, services in them.items()
        for service, own in services.items()
    ]
    return {"settings.yaml": "\n---\n".join(parts)}


def _noted(writer: Writer, them: Environments) -> dict[str, dict[str, dict[str, str]]]:
    return {
        name: {
            service: {it: f"{value} {writer.words(9)}" for it, value in own.items()}
            for service, own in services.items()
        }
        for name, services in them.items()
    }


@kind
def json_object(writer: Writer, them: Environments) -> Files:
    """Return objects of JSON."""
    return {"settings.json": json.dumps(_noted(writer, them), indent=2)}


@kind
def json_list(writer: Writer, them: Environments) -> Files:
    """Return a JSON object in which names are values: a list of environments with lists of services."""
    value = {
        "version": 3,
        "about": writer.words(200),
        "environments": [
            {"name": name, "services": [{"name": it, "settings": own} for it, own in services.items()]}
            for name, services in _noted(writer, them).items()
        ],
    }
    return {"settings.json": json.dumps(value, indent=2)}


@kind
def xml(writer: Writer, them: Environments) -> Files:
    """Return XML whose elements have names as attributes and as children."""
    parts = ["<settings>"]
    for name, services in them.items():
        parts.append(f'<environment name="{name}">')
        for service, own in services.items():
            rows = (f"<{it}>{value} {writer.words(9)}</{it}>" for it, value in own.items())
            parts.append(f"<service><name>{service}</name>{''.join(rows)}</service>")
        parts.append("</environment>")
    return {"settings.xml": "\n".join([*parts, "</settings>"])}


@kind
def sql(writer: Writer, them: Environments) -> Files:
    """Return definitions of tables in SQL."""
    text = writer.lines(
        them,
        lambda it: f"-- {writer.words(9)}",
        lambda outer, it: f"CREATE TABLE {outer}.{it} (",
        lambda name, value: f"    {name} integer DEFAULT {value}, -- {writer.words(9)}",
        inner_end="    id integer\n);\n",
    )
    return {"settings.sql": text}


@kind
def csv_titles(writer: Writer, them: Environments) -> Files:
    """Return a table for each environment, with its name above the header."""
    return {
        f"table{number}.csv": "\n".join(
            [
                f"Settings of {name}",
                ",".join(["setting", *services, "note"]),
                *(f"{it},{','.join(own[it] for own in services.values())},{writer.words(9)}" for it in SETTINGS),
            ]
        )
        for number, (name, services) in enumerate(them.items())
    }


@kind
def workbook(writer: Writer, them: Environments) -> Files:
    """Return a workbook with a sheet for each environment, with a column for each service."""
    sheets = []
    for services in them.values():
        rows = [["setting", *services, "note"]]
        rows += [[it, *(own[it] for own in services.values()), writer.words(14)] for it in SETTINGS]
        cells = (("".join(map(_cell, row))) for row in rows)
        sheets.append("".join(f"<row>{row}</row>" for row in cells))
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    named = "".join(f'<sheet name="{name}" sheetId="{at + 1}" r:id="r{at}"/>' for at, name in enumerate(them))
    parts = {"xl/workbook.xml": f'<workbook xmlns="{space}" xmlns:r="{links}"><sheets>{named}</sheets></workbook>'}
    parts |= {
        f"xl/sheet{at}.xml": f'<worksheet xmlns="{space}"><sheetData>{rows}</sheetData></worksheet>'
        for at, rows in enumerate(sheets)
    }
    targets = {f"r{at}": ("worksheet", f"sheet{at}.xml") for at in range(len(sheets))}
    return {"settings.xlsx": _package("xl/workbook.xml", parts, targets)}


def _cell(text: str) -> str:
    return f'<c t="inlineStr"><is><t>{text}</t></is></c>'


@kind
def word(writer: Writer, them: Environments) -> Files:
    """Return a Word file with headings."""
    blocks = writer.titled(them, "1\t{}".format, "2\t{}".format).split("\n\n")
    body = ""
    for block in blocks:
        level, tab, text = block.rpartition("\t")
        style = f'<w:pPr><w:pStyle w:val="h{level}"/></w:pPr>' if tab else ""
        body += f"<w:p>{style}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="h{level}"><w:name w:val="heading {level}"/></w:style>'
        for level in "12"
    )
    parts = {
        "word/document.xml": f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{space}">{styles}</w:styles>',
    }
    return {"settings.docx": _package("word/document.xml", parts, {"r1": ("styles", "styles.xml")})}


def _package(main: str, parts: Mapping[str, str], links: Mapping[str, tuple[str, str]]) -> bytes:
    """Return an Office file of these parts, with links from its main part."""
    folder, _, name = main.partition("/")
    base = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    space = "http://schemas.openxmlformats.org/package/2006/relationships"

    def relationships(targets: Mapping[str, tuple[str, str]]) -> str:
        rows = (f'<Relationship Id="{key}" Type="{base}/{kind}" Target="{to}"/>' for key, (kind, to) in targets.items())
        return f'<Relationships xmlns="{space}">{"".join(rows)}</Relationships>'

    data = BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        types = "http://schemas.openxmlformats.org/package/2006/content-types"
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{types}"/>')
        archive.writestr("_rels/.rels", relationships({"r0": ("officeDocument", main)}))
        archive.writestr(f"{folder}/_rels/{name}.rels", relationships(links))
        for path, text in parts.items():
            archive.writestr(path, text)
    return data.getvalue()


@kind
def notebook(writer: Writer, them: Environments) -> Files:
    """Return a notebook with headings between cells of code."""
    cells = [("markdown", "# Settings")]
    for name, services in them.items():
        cells.append(("markdown", f"## {name}\n\n{writer.words(20)}"))
        for service, own in services.items():
            cells.append(("markdown", f"### {service}"))
            cells += [("code", f"# {writer.words(9)}\n{it} = {value}") for it, value in own.items()]
    value = {"nbformat": 4, "metadata": {}, "cells": [{"cell_type": kind, "source": text} for kind, text in cells]}
    return {"settings.ipynb": json.dumps(value)}


@kind
def mail(writer: Writer, them: Environments) -> Files:
    """Return a letter from each environment about each service."""
    return {
        f"letter{number}.eml": f"From: {name.title()} Team <{name}@example.com>\nTo: all@example.com\n"
        f"Subject: {service} of {name}\nDate: Mon, 4 Mar 2024 10:00:00 +0000\n\n"
        + "\n\n".join(writer.sentence(*setting) for setting in own.items())
        for number, (name, service, own) in enumerate(_services(them))
    }


@kind
def log(writer: Writer, them: Environments) -> Files:
    """Return a log of each service, with a block at its beginning that says whose it is."""
    return {
        f"run{number}.log": f"Environment: {name}\nService: {service}\nStarted: 2024-03-04\n\n"
        + "\n".join(
            f"2024-03-04 10:{at:02}:00 INFO {it.replace('_', ' ')} is {value}; {writer.words(9)}"
            for at, (it, value) in enumerate(own.items())
        )
        for number, (name, service, own) in enumerate(_services(them))
    }


@kind
def chat(writer: Writer, them: Environments) -> Files:
    """Return an export of Slack: a folder for each channel."""
    return {
        f"{name}-{service}/2024-03-04.json": json.dumps(
            [
                {"type": "message", "user": "U1", "ts": f"17095{at:05}.000100", "text": writer.sentence(*setting)}
                for at, setting in enumerate(own.items())
            ]
        )
        for name, service, own in _services(them)
    }


@kind
def files(writer: Writer, them: Environments) -> Files:
    """Return a file of settings for each service. Only its path says whose it is."""
    return {
        f"{name}/{service}.conf": "\n".join(f"{it} = {value}\n# {writer.words(9)}" for it, value in own.items())
        for name, service, own in _services(them)
    }


@kind
def pages(writer: Writer, them: Environments) -> Files:
    """Return a page for each service. All pages have the same title, and only their paths say whose they are."""
    return {
        f"{name}/{service}/README.md": "# Settings\n\n"
        + "\n\n".join(writer.sentence(*setting) for setting in own.items())
        for name, service, own in _services(them)
    }


def _services(them: Environments) -> Iterator[tuple[str, str, Settings]]:
    return ((name, service, own) for name, services in them.items() for service, own in services.items())


class Asked(NamedTuple):
    """A question, the names that its answer belongs to, and the answer."""

    question: str
    names: tuple[str, str]
    value: str

    def holds(self, chunk: Chunk) -> bool:
        """Return True if the chunk has the value."""
        return re.search(rf"(?<!\d){self.value}(?!\d)", chunk.text) is not None

    def is_named(self, chunk: Chunk) -> bool:
        """Return True if the chunk's title, its path or a line without a value has both names."""
        lines = (line for line in chunk.text.splitlines() if len(re.findall(r"[A-Za-z]+", line)) <= MOST_NAMING_WORDS)
        said = f"{chunk.title}\n" + "\n".join(lines)
        return all(re.search(rf"(?<![a-z]){name}(?![a-z])", said, re.IGNORECASE) for name in self.names)


def written(form: Kind, seed: str, count: int) -> tuple[Files, list[Asked]]:
    """Return the files of a kind, and questions about them."""
    draw = random.Random(seed)
    writer, made, facts = Writer(draw), dict[str, str | bytes](), list[Asked]()
    values = iter(draw.sample(range(10_000, 99_999), 2_000))
    names = draw.sample(ENVIRONMENTS, 3 * FILES)
    for number in range(FILES):
        them = {
            name: {service: {setting: str(next(values)) for setting in SETTINGS} for service in draw.sample(WORDS, 3)}
            for name in names[3 * number : 3 * number + 3]
        }
        made |= {f"part{number}/{path}": text for path, text in form(writer, them).items()}
        for name, service, own in _services(them):
            facts += [
                Asked(f"What is the {it.replace('_', ' ')} of {service} in {name}?", (name, service), value)
                for it, value in own.items()
            ]
    return made, draw.sample(facts, count)


class Found(NamedTuple):
    """Where the gold chunk is in each ranking, from 1, and whether it is named."""

    ranks: dict[str, float]
    named: bool


def measure(form: Kind, options: argparse.Namespace) -> list[Found]:
    """Index the files of a kind and ask all questions."""
    made, asked = written(form, f"{options.seed}:{form.__name__}", options.questions)
    with tempfile.TemporaryDirectory() as folder:
        for path, content in made.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        corpus = MemoryCorpus(load(folder), embedder=options.embedder)
    chunks = {chunk.id: chunk for chunk in corpus.chunks}
    if options.show:
        for chunk in corpus.chunks[: options.show]:
            print(f"--- {chunk.id} {chunk.title!r} {chunk.tokens}\n{chunk.text[:200]}\n")
    agents = {effort: SearchAgent(corpus, BridgePolicy().with_effort(effort)) for effort in EFFORTS}  # type: ignore[arg-type]
    found: list[Found] = []
    for item in asked:
        rankings: dict[str, Sequence[Chunk]] = {"hybrid": [hit.chunk for hit in corpus.search(item.question, k=50)]}
        for effort, agent in agents.items():
            documents = agent.search(item.question).documents
            passages = sorted((part for one in documents for part in one.chunks), key=lambda part: -part.score)
            rankings[effort] = [chunks[part.id] for part in passages]
        ranks = {
            way: next((float(at) for at, chunk in enumerate(ranking, 1) if item.holds(chunk)), float("inf"))
            for way, ranking in rankings.items()
        }
        gold = [chunk for chunk in corpus.chunks if item.holds(chunk)]
        found.append(Found(ranks, bool(gold) and all(map(item.is_named, gold))))
    return found


def main() -> None:
    """Print a row for each kind."""
    options = _options()
    chosen = options.kinds.split(",") if options.kinds else [*KINDS]
    heads = [f"{way}@{depth}" for way in WAYS for depth in (1, CUTOFF)]
    print(f"{'kind':14}{'named':>8}" + "".join(f"{head:>11}" for head in heads), flush=True)
    pooled: list[Found] = []
    for name in chosen:
        found = measure(KINDS[name], options)
        pooled += found
        print(f"{name:14}{_share([it.named for it in found]):8.3f}" + "".join(
            f"{_share([it.ranks[way] <= depth for it in found]):11.3f}" for way in WAYS for depth in (1, CUTOFF)
        ), flush=True)  # fmt: skip
    print(f"\nall {len(pooled)} questions")
    print(f"{'named':11}{Figure.of([float(it.named) for it in pooled])}")
    for way in WAYS:
        for depth in (1, CUTOFF):
            print(f"{way + '@' + str(depth):11}{Figure.of([float(it.ranks[way] <= depth) for it in pooled])}")


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", help="kinds of files, comma-separated; by default all")
    parser.add_argument("--questions", type=int, default=12, help="questions of each kind")
    parser.add_argument("--embedder", default="static", help="spec of the embedder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="print the first chunks of each kind")
    return parser.parse_args()


if __name__ == "__main__":
    main()
