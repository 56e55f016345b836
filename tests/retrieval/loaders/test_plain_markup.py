"""Files in markup that has no reader of its own: their titles, and words with escapes inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.retrieval.loaders import load
from context_agent.types import Document

MANUAL = """\
.TH GATE 1 "2024-01-02" "Weir 1.0"
.SH NAME
gate \\- open a gate
.SH DESCRIPTION
The \\fBsluice\\fR \\f[CR]gate\\f[] is \\(lqold\\(rq.
"""


def only(path: Path, text: str) -> Document:
    path.write_text(text, "utf-8")
    (document,) = load(path)
    return document


LICENSE = '.\\" Redistribution and use are permitted.\n' * 90


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.org", "* Gates\n#+Title: Brasko Weir\n", "Brasko Weir"),
        ("a.org", "#+title:\n* Gates\n", "Gates"),
        ("a.adoc", "// note\n= Brasko Weir\nLena Ortiz\n\n== Gates\n", "Brasko Weir"),
        ("a.wiki", "== Brasko Weir ==\nThe gate.\n", "Brasko Weir"),
        ("a.mediawiki", "{| x=1\n|}\n= Brasko Weir =\n", "Brasko Weir"),
        ("a.wiki", "{{Infobox}}\nA town.\n== History ==\n", "a.wiki"),
        ("a.texi", "\\input texinfo\n@settitle The @command{gate} Manual\n@node Top\n", "The gate Manual"),
        ("a.texi", "@node Gates\n@chapter Opening gates\n", "Opening gates"),
        ("a.pod", "=pod\n\n=head1 NAME\n\nWeir::Gate - opens gates\n", "Weir::Gate - opens gates"),
        ("a.tex", "\\title{Brasko Weir\\thanks{Funded by the board}}\n", "Brasko Weir"),
        ("README", "Brasko Weir\n===========\n\nIt holds.\n", "Brasko Weir"),
        ("a.conf", "Brasko Weir\n===========\n\nIt holds.\n", "a.conf"),
        (
            "a.yaml",
            "# v\nopenapi: 3.0.0\nservers: []\ninfo:\n  version: '1'\n  title: 'Weir API'\npaths: {}\n",
            "Weir API",
        ),
        ("a.yml", "openapi: 3.0.0\ninfo:\n  version: '1'\npaths:\n  title: no\n", "a.yml"),
        ("a.yaml", "kind: Gate\ninfo:\n  title: Weir\n", "a.yaml"),
        ("a.textile", "h1. Brasko Weir\n", "Brasko Weir"),
        ("a.typ", "#set page(width: 1cm)\n= Brasko Weir\n", "Brasko Weir"),
        ("a.tex", "\\section{Gates}\n\\title[Short]{Brasko \\\\ \\emph{Weir}}\n", "Brasko Weir"),
        ("a.tex", "\\section*{The \\textbf{gates}}\n", "The gates"),
        ("a.tex", "\\title{never closed", "a.tex"),
        ("gate.1", MANUAL, "gate - open a gate"),
        ("gate.3", '.TH GATE 3\n.SH "NAME"\ngate\n', "gate"),
        ("gate.1", ".Dd January 2, 2024\n.Dt GATE 1\n.Sh NAME\n.Nm gate\n", "gate.1"),
        ("gate.1", ".Dd May 3, 2024\n.Sh BEZEICHNUNG\n.Nm gate ,\n.Nm sluice\n.Nd opens\n", "gate - opens"),
        ("gate.1", f'{LICENSE}.TH GATE 1\n.SH 名前\n.\\" x\n.PP\ngate \\- 開く\n.SH X\nNo\n', "gate - 開く"),
        ("gate.1", ".TH GATE 1\n.SH NAME\n.B gate\n.SH X\nNo\n", "gate.1"),
        ("de.po", 'msgid ""\nmsgstr ""\n"Language-Team: German (https://example.org)\\n"\n', "de.po (German)"),
        ("de.po", 'msgid ""\nmsgstr ""\n"Language-Team: \\n"\n"Language: pt_BR\\n"\n', "de.po (pt_BR)"),
        ("a.pot", 'msgid ""\nmsgstr ""\n"Language-Team: LANGUAGE <LL@li.org>\\n"\n', "a.pot"),
        ("a.adoc", "No heading.\n", "a.adoc"),
        ("a.conf", "= Brasko Weir\n", "a.conf"),
        (
            "4.2.txt",
            ".. _weir:\n\n=================\nBrasko Weir 4.2\n=================\n\nIt holds.\n",
            "Brasko Weir 4.2",
        ),
        ("4.2.txt", "Brasko Weir\n---------\nIt holds.\n", "Brasko Weir"),
        ("4.2.txt", "\n:mod:`weir`\n===========\nIt holds.\n", "weir"),
        ("4.2.txt", "It holds.\n\nBrasko Weir\n===========\n", "4.2"),
        ("4.2.txt", "Gate  Level\n----  -----\nA  4\n", "4.2"),
        ("4.2.txt", "The gate of the weir opens at dawn.\n---\nIt holds.\n", "4.2"),
    ],
)
def test_a_title_in_markup_is_the_title(tmp_path: Path, name: str, text: str, title: str) -> None:
    assert only(tmp_path / name, text).title == title


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("a.bib", 'title = {G{\\"o}del, G\\"odel, G\\"{o}del}', "title = {Gödel, Gödel, Gödel}"),
        ("a.bib", "{\\c c}a \\v{s} \\'{\\i} stra{\\ss}e S\\o{}ren stra\\ss e", "ça š í straße Søren straße"),
        ("a.bib", "title={W}eirs of the {N}orth, {DNA}", "title=Weirs of the North, {DNA}"),
        ("a.tex", 'x_{N}y \\d x \\textbf{N}ame G\\"odel', "x_{N}y \\d x \\textbf{N}ame Gödel"),
        ("a.tex", "one \\\\\"Apple\" two \\\\'echo' \\\\o n", "one \\\\\"Apple\" two \\\\'echo' \\\\o n"),
        ("a.properties", "folder=C:\\\\u00e4", "folder=C:\\\\u00e4"),
        ("a.properties", "gate=G\\u00e4te \\ud83d\\ude00 \\ud83d \\\\n", "gate=Gäte 😀 \ufffd \\\\n"),
        ("a.conf", 'G\\"odel \\u00e4', 'G\\"odel \\u00e4'),
    ],
)
def test_letters_that_are_written_as_escapes_are_read(tmp_path: Path, name: str, text: str, read: str) -> None:
    assert only(tmp_path / name, f"{text}\n").text == f"{read}\n"


def test_the_fonts_of_a_manual_page_are_not_part_of_its_words(tmp_path: Path) -> None:
    document = only(tmp_path / "gate.1", MANUAL)
    assert document.text.endswith("gate - open a gate\n\n## DESCRIPTION\n\nThe sluice gate is “old”.\n")


@pytest.mark.parametrize("name", ["a.qmd", "a.Rmd", "a.mdx"])
def test_dialects_of_markdown_have_front_matter(tmp_path: Path, name: str) -> None:
    document = only(tmp_path / name, '---\ntitle: "Brasko Weir"\nyear: 1901\n---\n\n## Gates\n')
    assert (document.title, document.text, document.metadata["year"]) == ("Brasko Weir", "## Gates\n", 1901)


CATALOG = r"""# Translators:
# Lena Ortiz, 2024
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"

#. the main gate
#: src/weir.c:12
#, c-format
msgctxt "lock"
msgid "The gate of %s "
"\"opens\"."
msgstr "Das Tor von %s"
" \"öffnet\"."
# one or many
msgid "gate"
msgid_plural "gates"
msgstr[0] "Tor"
msgstr[1] "Tore"
msgid "Weir"
msgstr "Weir"

no catalog
#~ msgid "sluice"
#~ msgstr "Schleuse"
"""


def test_a_catalog_of_translations_is_read_as_messages(tmp_path: Path) -> None:
    assert only(tmp_path / "de.po", CATALOG).text.split("\n\n") == [
        "Translators:\nLena Ortiz, 2024\nLanguage: de\nContent-Type: text/plain; charset=UTF-8",
        'the main gate\nlock\nThe gate of %s "opens".\nDas Tor von %s "öffnet".',
        "one or many\ngate\ngates\nTor\nTore",
        "Weir",
        "no catalog",
    ]
