"""A folder from a stranger can be indexed: what is wrong in it is reported, and costs neither memory nor the run."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import CorpusError
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.document_checks import MOST_ENTRIES
from context_agent.retrieval.loaders import LoadOptions, LoadReport, folders, load, sources
from context_agent.retrieval.loaders.options import MAX_MB
from context_agent.testing.embedders import HashEmbedder
from context_agent.types import Document
from tests.support.bounded import bounded

MB = 2**20
UNPACK = "If you trust it, unpack it and index the result."
MOST_MEMORY = 300
"""Megabytes above the process at rest."""
FAR_TOO_LARGE = (MOST_MEMORY + 20) * MB
"""The size of a file that takes too much memory as a whole."""


def read(path: Path, **options: Any) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(path, options=LoadOptions(**options), report=report))
    return documents, [notice.reason for notice in report.notices]


# Metadata ---------------------------------------------------------------------------------------------------------

REFUSED = ["chroma:document", "chroma:other", "", "$and", "#document", "k" * 1_000]


def test_fields_that_chroma_refuses_are_left_out_and_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [
        {"id": f"r{n}", "text": f"Text of row {n}", "year": n, key: "x"} for n, key in enumerate(REFUSED)
    ]
    rows.append({"id": "last", "text": "fine", "big": 2**64, "low": -(2**63), "\ud800": "a", "nested": {"a": [1]}})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents, reasons = read(file)
    report = index_documents(documents, tmp_path / "index", embedder=HashEmbedder(), calibration=False)
    assert report.added == len(rows)
    assert [document.metadata for document in documents[:-1]] == [{"year": n} for n in range(len(REFUSED))]
    assert documents[-1].metadata == {"big": str(2**64), "low": -(2**63), "\ufffd": "a", "nested": '{"a": [1]}'}
    assert len(reasons) == len(REFUSED)
    assert reasons[0].startswith("metadata field 'chroma:document' is left out: Chroma reserves names")


def test_of_too_many_fields_the_first_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "wide.jsonl"
    file.write_text(json.dumps({"text": "x", **{f"k{n}": n for n in range(20_000)}}) + "\n")
    ((document,), reasons) = read(file)
    assert list(document.metadata) == [f"k{n}" for n in range(MOST_ENTRIES)]
    assert reasons == ["some documents have more than 256 metadata fields, of which only the first 256 are indexed"]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"chroma:document": "x"}, "Chroma reserves names"),
        ({"": "x"}, "the name is empty"),
        ({"a": None}, "must be a string, number or boolean; got NoneType"),
        ({"a": {"b": 1}}, "must be a string, number or boolean; got dict"),
        ({"a": ["b"]}, "must be a string, number or boolean; got list"),
        ({"a": b"b"}, "must be a string, number or boolean; got bytes"),
        ({"a": 2**63}, "more than 64 bits"),
        ({"a": math.nan}, "must be a finite number"),
        ({"a": -math.inf}, "must be a finite number"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"\ud800": "a"}, "lone surrogate"),
        ({1: "a"}, "the name must be a string; got int"),
        ({f"k{n}": n for n in range(20_000)}, "at most 256 metadata entries.*20,000"),
    ],
)
def test_a_document_that_a_caller_made_is_refused_by_name(tmp_path: Path, metadata: Any, reason: str) -> None:
    documents = [Document("good", "text"), Document("bad one", "text", metadata=metadata)]
    with pytest.raises(CorpusError, match=reason) as refusal:
        index_documents(documents, tmp_path, embedder=HashEmbedder(), calibration=False)
    assert "'bad one'" in str(refusal.value)


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        ("", "a document has the empty id ''"),
        ("  ", "a document has the empty id '  '"),
        ("\ud800", "document id .* contains a lone surrogate"),
        ("i" * MB, "a document id must have at most 16,384 bytes; .* has 1,048,576"),
        ("😀" * 16_384, "a document id must have at most 16,384 bytes; .* has 65,536"),
    ],
)
def test_an_id_that_cannot_be_stored_is_refused(tmp_path: Path, identifier: str, reason: str) -> None:
    with pytest.raises(CorpusError, match=reason):
        index_documents([Document(identifier, "text")], tmp_path, embedder=HashEmbedder(), calibration=False)


def test_ids_of_rows_are_made_storable(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    values = ["i" * MB, "a\x00b", "\ud800", "a\u2028b", 2**70]
    rows = [{"id": value, "text": f"text {n}"} for n, value in enumerate(values)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents, _ = read(file)
    report = index_documents(documents, tmp_path / "index", embedder=HashEmbedder(), calibration=False)
    assert report.added == len(rows)
    assert max(len(document.id) for document in documents) <= 256


# Size -------------------------------------------------------------------------------------------------------------


def read_all(path: Path) -> tuple[int, str]:
    """Return the number of documents, and the first notice."""
    report = LoadReport()
    documents = sum(1 for _ in load(path, report=report))
    return documents, report.notices[0].reason if report.notices else ""


def megabytes_of_reading(path: Path) -> tuple[int, int, str]:
    """Peak memory above rest, documents, and the first notice, of a process that reads the source."""
    outcome = bounded(read_all, path, seconds=300)
    assert outcome.error is None, repr(outcome.error)
    return outcome.memory >> 20, *outcome.value


def write_file(path: Path, unit: bytes, size: int, head: bytes = b"", tail: bytes = b"") -> Path:
    """A file of `size` bytes of the unit between head and tail; gzipped where its name says so."""
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(head)
        block = unit * (MB // len(unit))
        for _ in range(size // len(block)):
            file.write(block)
        file.write(tail)
    return path


@pytest.mark.parametrize(
    ("name", "unit", "size", "head", "reason"),
    [
        ("one-line.jsonl.gz", b"a", FAR_TOO_LARGE, b'{"text": "', "the file unpacks to more than 200 times its size"),
        ("one-line.jsonl", b"a", FAR_TOO_LARGE, b'{"text": "', f"the line is larger than {MAX_MB} MB"),
        ("lists.jsonl", b"[],", 15 * MB, b'{"text": "x", "m": [', "the line has more than 1,048,576 JSON values"),
        ("cell.csv", b"a", FAR_TOO_LARGE, b"text\n", "a row is larger"),
        ("open-quote.csv", b"aaaaaaa\n", 128 * MB, b'text\n"', "a row is larger"),
        ("cells.csv", b"ab,", 15 * MB, b"text,b\n", "a row is larger"),
        ("header.csv", b"a,", MB, b"", "the header names more than 10,000 columns"),
        ("large.txt", b"a", FAR_TOO_LARGE, b"", "the file, which is one document, is larger than"),
        ("large.md", b"# a\n", FAR_TOO_LARGE, b"", "the file, which is one document, is larger than"),
        ("large.html", b"<p>", FAR_TOO_LARGE, b"", "the file, which is one document, is larger than"),
    ],
)
def test_a_source_that_is_far_too_large_takes_little_memory(  # noqa: PLR0917 - the columns of the table above
    tmp_path: Path, name: str, unit: bytes, size: int, head: bytes, reason: str
) -> None:
    memory, documents, first = megabytes_of_reading(write_file(tmp_path / name, unit, size, head, b"\n"))
    assert memory <= MOST_MEMORY
    assert documents == 0
    assert first.startswith(reason)


def test_a_page_of_many_tags_takes_little_memory(tmp_path: Path) -> None:
    memory, documents, _ = megabytes_of_reading(write_file(tmp_path / "page.html", b"a<p>", MB))
    assert (memory <= MOST_MEMORY // 16, documents) == (True, 1)


def test_a_parquet_file_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr("context_agent.retrieval.loaders.unpacking.FREE_UNPACKED_SIZE", 2 * MB)
    parquet.write_table(pa.table({"text": ["a" * (4 * MB)]}), tmp_path / "a.parquet", compression="zstd")
    assert read(tmp_path) == ([], [f"the file unpacks to more than 200 times its size. {UNPACK}"])


def test_a_parquet_row_that_is_too_large_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"text": [os.urandom(2 * MB).hex()]}), tmp_path / "a.parquet")
    documents, reasons = read(tmp_path, max_mb=1)
    assert documents == []
    assert reasons[0].startswith("a row is larger than 1 MB")


def test_a_pdf_page_that_unpacks_to_far_too_much_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, NameObject

    writer = PdfWriter()
    for content in (b"BT (Hello) Tj ET", b"q Q " * (5 * MB // 4)):
        page = writer.add_blank_page(100, 100)
        stream = DecodedStreamObject()
        stream.set_data(content)
        page[NameObject("/Contents")] = stream.flate_encode()
    writer.write(tmp_path / "a.pdf")
    _, reasons = read(tmp_path)
    assert "page 2: the page unpacks to more than 4 MB, so it is left out" in reasons


def test_the_rest_of_a_file_with_a_long_line_is_read_and_the_limit_can_be_raised(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"id": "a", "text": "first"}, {"id": "b", "text": "x" * 2 * MB}, {"id": "c", "text": "third"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents, reasons = read(file, max_mb=1)
    assert [document.id for document in documents] == ["a", "c"]
    assert reasons == ["the line is larger than 1 MB. Raise the limit with --max-mb (in Python: LoadOptions.max_mb)."]
    assert [document.id for document in read(file, max_mb=3)[0]] == ["a", "b", "c"]


# Links and special files ------------------------------------------------------------------------------------------


def test_a_link_in_a_folder_is_never_read(tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("root:x:0:0")
    (folder / "inside.txt").write_text("inside")
    (folder / "out.txt").symlink_to(secret)
    (folder / "twice.txt").symlink_to(folder / "inside.txt")
    documents, reasons = read(folder)
    assert [document.text for document in documents] == ["inside"]
    assert reasons == ["a link in a folder is not followed. To read its target, name it as a source."] * 2


def test_a_link_that_the_user_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "link.txt").symlink_to(tmp_path / "file.txt")
    ((document,), _) = read(tmp_path / "link.txt")
    assert document.text == "text"


@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_a_file_that_becomes_a_trap_after_its_folder_was_listed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("secret")
    (folder / "a.txt").write_text("harmless")

    def swap_and_open(source: sources.Source) -> Any:
        (folder / "a.txt").unlink()
        (folder / "a.txt").symlink_to(secret) if trap == "link" else os.mkfifo(folder / "a.txt")
        return sources.opened(source)

    monkeypatch.setattr("context_agent.retrieval.loaders.opened", swap_and_open)
    documents, reasons = read(folder)
    assert documents == []
    assert reasons == [folders.LINK_REASON if trap == "link" else folders.SPECIAL_REASON]


def test_pipes_and_sockets_in_a_folder_are_reported(tmp_path: Path) -> None:
    import socket

    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.txt"))
        documents, reasons = read(tmp_path)
    assert documents == []
    assert reasons == ["the path is neither a file nor a folder"] * 2


# Exported chats ---------------------------------------------------------------------------------------------------

CHATS: tuple[Any, ...] = (
    {"title": "t", "messages": [{"sender_name": "a", "timestamp_ms": 1_600_000_000_000, "content": "x"}]},
    {"channel": {"name": "c"}, "messages": [{"author": {"name": "a"}, "timestamp": "2020-01-01", "content": "x"}]},
    {"chats": {"list": [{"messages": [{"from": "a", "date": "2020-01-01", "text": ["x", {"text": "y"}]}]}]}},
    {"room_name": "r", "messages": [{"sender": "a", "origin_server_ts": 1.6e12, "content": {"body": "x"}}]},
    {"displayName": "d", "MessageList": [{"from": "a", "originalarrivaltime": "2020-01-01", "content": "<b>x"}]},
    {"value": [{"from": {"user": {"displayName": "a"}}, "createdDateTime": "2020-01-01", "body": {"content": "x"}}]},
    {"id": "i", "conversations": [{"from": "a", "value": "x"}]},
    {"uuid": "u", "chat_messages": [{"sender": "a", "created_at": "2020-01-01", "content": [{"text": "x"}]}]},
    {"id": "i", "current_node": "n", "mapping": {"n": {"parent": None, "message": {
        "author": {"role": "user"}, "content": {"parts": ["x"]}, "create_time": 1.6e9}}}},
    [{"ts": "1600000000.1", "user": "U1", "text": "x <@U1>", "user_profile": {"display_name": "d"}}],
    {"messages": [{"role": "user", "content": "x", "timestamp": 1_600_000_000, "name": "n"}]},
)  # fmt: skip
SESSIONS: tuple[Any, ...] = (
    [{"type": "session_meta", "payload": {}},
     {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"text": "x"}]}},
     {"type": "response_item", "payload": {"type": "function_call", "name": "f", "arguments": "{}"}},
     {"type": "response_item", "payload": {"type": "function_call_output", "output": '{"output": "y"}'}}],
    [{"type": "user", "uuid": "u", "timestamp": "t", "message": {"role": "user", "content": "x"}},
     {"type": "assistant", "uuid": "v", "message": {"role": "assistant", "content": [
         {"type": "tool_use", "name": "f", "input": {"a": 1}}, {"type": "tool_result", "content": [{"text": "y"}]}]}}],
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"type": "function_call", "name": "f"}],
)  # fmt: skip
FIELD_VALUES: tuple[Any, ...] = (
    None, True, 10**400, -(10**400), 1e308, float("nan"), float("-inf"), "", "9" * 5_000, "\0\ud800\u202e", [], [[[]]],
    {}, {"text": {"text": 1}},
)  # fmt: skip


def with_each_value(tree: Any) -> Iterator[Any]:
    """Yield the tree with each value of `FIELD_VALUES` in each place."""
    yield from FIELD_VALUES
    if isinstance(tree, dict):
        yield from ({**tree, key: changed} for key, value in tree.items() for changed in with_each_value(value))
    elif isinstance(tree, list):
        yield from (
            [*tree[:at], changed, *tree[at + 1 :]] for at, one in enumerate(tree) for changed in with_each_value(one)
        )


@pytest.mark.parametrize(
    "chat", CHATS, ids=lambda chat: "-".join(list(chat)[:2]) if isinstance(chat, dict) else "slack"
)
def test_any_value_in_any_field_of_an_exported_chat_is_read_or_reported(tmp_path: Path, chat: Any) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(chat))
    assert "x" in read(file)[0][0].text
    for changed in with_each_value(chat):
        file.write_text(json.dumps(changed))
        assert any(read(file)), changed


@pytest.mark.parametrize("session", SESSIONS, ids=["Codex", "Claude Code", "messages"])
def test_any_value_in_any_field_of_a_session_is_read_or_reported(tmp_path: Path, session: Any) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in session))
    assert len(read(file)[0]) == 1
    for changed in with_each_value(session):
        rows = changed if isinstance(changed, list) else [changed]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert any(read(file)) or not rows, changed
