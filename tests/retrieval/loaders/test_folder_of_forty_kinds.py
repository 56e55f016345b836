"""A folder as people have it: each of 40 kinds of files is read, or left out with the right reason."""

from __future__ import annotations

import csv
import email.message
import io
import json
import zipfile
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadReport, load
from context_agent.retrieval.loaders.sniffing import GENERATED_REASON, MINIFIED_REASON, PRIVATE_KEY_REASON

WORD = "observatory"
"""A word in every file."""
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def _notebook() -> str:
    cell = {"cell_type": "markdown", "metadata": {}, "source": [f"The {WORD}"]}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})


def _table(delimiter: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([["id", "text"], ["r1", f"The {WORD}"]])
    return stream.getvalue()


def _message() -> bytes:
    message = email.message.EmailMessage()
    message["From"], message["Subject"] = "ann@example.com", "Storm"
    message.set_content(f"The {WORD}")
    return message.as_bytes()


def _zipped(name: str, text: str = WORD) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, text)
    return stream.getvalue()


ODT = f"<document><body><h outline-level='2'>Storms</h><p>The {WORD}</p></body></document>"
CUE = f"00:00:01.000 --> 00:00:02.000\nAnn: The {WORD}\n"
CONVERSATION = {"uuid": "1", "name": "Storms", "chat_messages": [{"sender": "human", "text": f"The {WORD}"}]}
READ: dict[str, str | bytes] = {
    "notes.txt": f"The {WORD}",
    "notes.md": f"# Storms\n\nThe {WORD}",
    "notes.rst": f"Storms\n======\n\nThe {WORD}",
    "page.html": f"<title>Storms</title><p>The {WORD}",
    "code.py": f'"""The {WORD}."""\n',
    "code.sql": f"SELECT * FROM {WORD};\n",
    "code.sh": f"echo {WORD}\n",
    "code.zig": f"const {WORD} = 1;\n",
    "book.ipynb": _notebook(),
    "mail.eml": _message(),
    "rows.jsonl": json.dumps({"id": "j1", "text": f"The {WORD}"}),
    "rows.csv": _table(","),
    "rows.tsv": _table("\t").replace("r1", "r2"),
    "object.json": json.dumps({"name": WORD}),
    "conversations.json": json.dumps([CONVERSATION]),
    "slack/general/2026-01-02.json": json.dumps([{"ts": "1.0", "user": "U1", "text": f"The {WORD}"}]),
    "talk.vtt": f"WEBVTT\n\n{CUE}",
    "talk.srt": f"1\n{CUE.replace('.', ',')}",
    "config.yaml": f"name: {WORD}\n",
    "config.toml": f'name = "{WORD}"\n',
    "config.ini": f"[main]\nname = {WORD}\n",
    "feed.xml": f"<feed><title>{WORD}</title></feed>",
    "server.log": f"12:00 {WORD} started\n",
    "notes.org": f"* {WORD}\n",
    "paper.tex": f"\\section{{{WORD}}}\n",
    "paper.bib": f"@book{{a, title={{{WORD}}}}}\n",
    "guide.adoc": f"= {WORD}\n",
    "letter.rtf": f"{{\\rtf1 The {WORD}}}",
    "letter.odt": _zipped("content.xml", ODT),
    "all.mbox": b"From ann@example.com Fri Jan  2 03:04:05 2026\n" + _message().replace(b"Storm", b"Storms"),
    "notes.enex": f"<en-export><note><title>Storms</title><content><![CDATA[<en-note><div>The {WORD}</div></en-note>]]>"
    "</content></note></en-export>",
    "api.proto": f"message {WORD} {{}}\n",
    "main.tf": f'variable "{WORD}" {{}}\n',
    "events.ics": f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:{WORD}\nEND:VEVENT\nEND:VCALENDAR\n",
    "people.vcf": f"BEGIN:VCARD\nVERSION:3.0\nFN:Ann\nORG:{WORD}\nEND:VCARD\n",
    "feeds.opml": f'<opml><body><outline text="{WORD}"/></body></opml>',
    "Dockerfile": f"FROM {WORD}\n",
    "Makefile": f"{WORD}:\n\techo\n",
}
LEFT_OUT: dict[str, tuple[str | bytes, str]] = {
    "photo.png": (PNG, "not text but an image"),
    "old.zip": (_zipped("a.txt"), "not text but an archive. To read its files, unpack it."),
    "program": (b"\x7fELF\2\1\1\0", "not text but a program"),
    "data.pickle": (b"\x80\4\x95\0\0", "not text but binary"),
    "poetry.lock": (f"# {WORD}\n", GENERATED_REASON),
    "app.min.js": (f"{WORD}=1;" * 200, MINIFIED_REASON),
    "server.key": (f"-----BEGIN PRIVATE KEY-----\n{WORD}\n", PRIVATE_KEY_REASON),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], LoadReport, Path]:
    """Return the texts of the folder by path, and the report about it."""
    folder = tmp_path_factory.mktemp("forty")
    for name, data in (READ | {name: data for name, (data, _) in LEFT_OUT.items()}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    report = LoadReport()
    documents = list(load(folder, report=report))
    texts = {str(document.metadata.get("path", document.id.split("/")[0])): document.text for document in documents}
    return texts, report, folder


def test_there_are_forty_kinds() -> None:
    assert len(READ) + len(LEFT_OUT) >= 40


@pytest.mark.parametrize("name", READ)
def test_it_is_read(loaded: tuple[dict[str, str], LoadReport, Path], name: str) -> None:
    rows = {"rows.jsonl": "j1", "rows.csv": "r1", "rows.tsv": "r2", "all.mbox": "mail"}
    assert WORD in loaded[0][rows.get(name, name)]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_it_is_left_out_with_its_reason(loaded: tuple[dict[str, str], LoadReport, Path], name: str) -> None:
    texts, report, folder = loaded
    assert name not in texts
    assert [notice.reason for notice in report.notices if notice.source == str(folder / name)] == [LEFT_OUT[name][1]]


def test_the_report_counts_every_file(loaded: tuple[dict[str, str], LoadReport, Path]) -> None:
    pytest.importorskip("tree_sitter", reason="needs the extra code")
    _, report, _ = loaded
    assert sum(report.files_read.values()) == report.files == len(READ)
    assert sum(report.files_left_out.values()) == len(report.notices) == len(LEFT_OUT)
