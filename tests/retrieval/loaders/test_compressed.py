"""Files compressed by gzip, bzip2 and xz: their content is read as that of the file inside."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.compressed import LARGEST_DICTIONARY
from context_agent.types import Document

MAILBOX = b"".join(b"From a@b Fri Jan  2 03:04:05 2026\nFrom: a@b\nSubject: No. %d\n\nHi.\n\n" % n for n in range(3))
PAGE = b"<html><title>Weir</title><body>Shut.</body></html>"

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": partial(bz2.compress, compresslevel=1),
    "xz": partial(lzma.compress, preset=0),
}
compressions = pytest.mark.parametrize("extension", COMPRESS)


def read(source: Path, **options: int) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(source, options=LoadOptions(**options), report=report))
    return documents, [notice.reason for notice in report.notices]


@compressions
@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("app.log.1", b"The weir was shut.\n", {"app.log.1": "The weir was shut.\n"}),
        ("changelog.Debian", b"weir (2) unstable\n", {"changelog.Debian": "weir (2) unstable\n"}),
        ("notes.md", b"# The weir\n\nShut.", {"The weir": "# The weir\n\nShut."}),
        ("page", PAGE, {"Weir": "Shut."}),
        ("rows.csv", b"title,text\nA,one\nB,two\n", {"A": "one", "B": "two"}),
        ("rows.jsonl", b'{"title": "A", "text": "one"}\n{"title": "B", "text": "two"}\n', {"A": "one", "B": "two"}),
        ("rows", b'{"title": "A", "text": "one"}\n', {"A": "one"}),
        ("box.mbox", MAILBOX, {f"No. {n}": f"From: a@b\nSubject: No. {n}\n\nHi." for n in range(3)}),
    ],
)
def test_the_file_inside_is_read_by_its_name_or_content(
    tmp_path: Path, extension: str, name: str, data: bytes, expected: dict[str, str]
) -> None:
    file = tmp_path / f"{name}.{extension}"
    file.write_bytes(COMPRESS[extension](data))
    for source in (tmp_path, file):
        documents, reasons = read(source)
        assert ({document.title: document.text for document in documents}, reasons) == (expected, [])
        assert documents[0].metadata.get("path", file.name) == file.name
        assert documents[0].id == file.name or "path" not in documents[0].metadata


@compressions
def test_parts_that_follow_each_other_are_one_file(tmp_path: Path, extension: str) -> None:
    (tmp_path / f"a.log.{extension}").write_bytes(
        COMPRESS[extension](b"one\n") + COMPRESS[extension](b"two\n") + bytes(2**17)
    )
    ((document,), reasons) = read(tmp_path)
    assert (document.text, reasons) == ("one\ntwo\n", [])


@compressions
def test_of_damaged_rows_those_before_the_damage_are_read(tmp_path: Path, extension: str) -> None:
    rows = b"".join(b'{"text": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(800))
    packed = COMPRESS[extension](rows)
    (tmp_path / f"a.jsonl.{extension}").write_bytes(packed[: len(packed) // 2])
    documents, (reason,) = read(tmp_path)
    assert 0 < len(documents) < 800
    assert f"Its first {len(documents)} documents were read." in reason


@compressions
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.log", b"a" * 10_000_000, "the file unpacks to more than 200 times its size"),
        ("a.csv", b"text\n" + b"x\n" * 300_000, "more than one row for every 2 bytes of its size"),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "not text but an image"),
        ("a", b"", "the file is empty"),
        ("a.log", gzip.compress(b"The weir was shut.", mtime=0), "not text but a compressed file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, extension: str, name: str, data: bytes, reason: str) -> None:
    (tmp_path / f"{name}.{extension}").write_bytes(COMPRESS[extension](data))
    documents, (said,) = read(tmp_path)
    assert len(documents) <= 1
    assert reason in said


@compressions
def test_an_archive_inside_is_named(tmp_path: Path, extension: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    (tmp_path / f"a.tar.{extension}").write_bytes(COMPRESS[extension](packed.getvalue()))
    assert read(tmp_path) == ([], ["not text but an archive. To read its files, unpack it."])


def test_a_text_above_the_limit_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(os.urandom(600_000).hex().encode()))
    documents, (said,) = read(tmp_path, max_mb=1)
    assert documents == []
    assert "is larger than 1 MB. Raise the limit with --max-mb" in said


def test_xz_that_needs_much_memory_is_left_out(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": LARGEST_DICTIONARY, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
    (tmp_path / "a.log.xz").write_bytes(lzma.compress(b"The weir was shut.", filters=filters))
    assert read(tmp_path) == ([], ["the file cannot be read (LZMAError: Memory usage limit exceeded)"])
