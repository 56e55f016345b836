"""Archives of web pages: each page is a document, and what is damaged or no page costs nothing else."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.types import Document

PAGE = "<html><head><title>Lamprey – River</title></head><body><h1>Lamprey</h1><p>It returned.</p></body></html>"
TEXT = "# Lamprey\n\nIt returned."
HTML = "Content-Type: text/html; charset=utf-8"


def record(body: bytes, kind: str = "response", uri: str = "https://rivers.org/a b", content: str = "") -> bytes:
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2024-03-01T00:00:00Z\r\n"
    return f"{head}Content-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"


def response(body: bytes, *fields: str, status: int = 200) -> bytes:
    return f"HTTP/1.1 {status} OK\r\n".encode() + "".join(f"{it}\r\n" for it in (*fields, "")).encode() + body


PICTURE = record(response(bytes(range(256)) * 9, "Content-Type: image/png"))


def read(path: Path, data: bytes, max_mb: int = 16) -> tuple[list[Document], list[str]]:
    path.write_bytes(data)
    report = LoadReport()
    documents = list(load(path.parent, options=LoadOptions(max_mb=max_mb), report=report))
    return documents, [notice.reason for notice in report.notices]


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_each_page_of_an_archive_is_a_document(tmp_path: Path, name: str) -> None:
    info = record(b"software: wget\r\n", "warcinfo", "", "application/warc-fields")
    page = record(response(PAGE.encode(), HTML))
    note = record("Réserve.".encode("latin-1"), "resource", "<file:///note.txt>", "text/plain; charset=latin-1")
    moved = record(response(PAGE.encode(), HTML, status=404), uri="https://rivers.org/gone")
    parts = [info, PICTURE, page, moved, record(b"GET / HTTP/1.1\r\n\r\n", "request"), note]
    data = b"".join(parts) if name == "a.warc" else b"".join(map(gzip.compress, parts))
    (first, second), reasons = read(tmp_path / name, data)
    assert (first.id, first.title, first.text) == (f"{name}#https%3A//rivers.org/a%20b", "Lamprey – River", TEXT)
    assert first.metadata == {
        "url": "https://rivers.org/a b", "date": "2024-03-01T00:00:00Z", "day": 20240301, "path": name,
    }  # fmt: skip
    assert (second.title, second.text, reasons) == ("file:///note.txt", "Réserve.", [])


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (["Transfer-Encoding: chunked"], b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(PAGE.encode()), PAGE.encode())),
        (["Transfer-Encoding: chunked"], PAGE.encode()),
        (["Content-Encoding: gzip"], gzip.compress(PAGE.encode())),
        (["Content-Encoding: deflate"], zlib.compress(PAGE.encode())),
    ],
)
def test_a_page_is_read_however_it_was_sent(tmp_path: Path, fields: list[str], body: bytes) -> None:
    (document,), reasons = read(tmp_path / "a.warc", record(response(body, HTML, *fields)))
    assert (document.text, reasons) == (TEXT, [])


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (record(response(b"x", HTML, "Content-Encoding: br")), "it is packed with br, which is not supported."),
        (record(response(b"xyz", HTML, "Content-Encoding: gzip")), "it cannot be unpacked ("),
        (record(response(gzip.compress(bytes(2_000_000)), HTML, "Content-Encoding: gzip")), "the page is larger than"),
        (record(response(b"a" * 1_100_000, HTML)), "the page is larger than 1 MB"),
    ],
)
def test_a_page_that_cannot_be_read_costs_no_other(tmp_path: Path, damaged: bytes, reason: str) -> None:
    (document,), (told,) = read(tmp_path / "a.warc", damaged + record(response(PAGE.encode(), HTML)), max_mb=1)
    assert document.text == TEXT
    assert told.startswith("page https://rivers.org/a b: ")
    assert reason in told


@pytest.mark.parametrize("rest", [b"no record\r\n\r\n", b"WARC/1.0\r\nContent-Length: -1\r\n\r\n", b"WARC/1.0\r\n"])
def test_the_pages_before_damage_are_read(tmp_path: Path, rest: bytes) -> None:
    (document,), reasons = read(tmp_path / "a.warc", record(response(PAGE.encode(), HTML)) + rest)
    assert document.text == TEXT
    assert reasons == ["record 2 is damaged, so the rest of the archive was not read"]


def test_an_archive_without_a_page_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path / "a.warc", PICTURE) == ([], ["the archive contains no page with text"])
    cut = record(response(PAGE.encode(), HTML))[:-30]
    assert len(read(tmp_path / "a.warc", cut)[0]) == 1
