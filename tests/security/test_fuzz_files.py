"""Random and mutated files: sources become documents or notices, trajectory files load or raise the package's error."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import TrajectoryError
from context_agent.harness.trajectory_file import read, write
from context_agent.retrieval.document_checks import check_document
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.testing.actions import prune, search
from context_agent.testing.embedders import HashEmbedder
from context_agent.types import Document

ROWS = [
    {"id": f"r{n}", "title": "T", "text": f'Text {n}, "quoted"; é', "chroma:document": n, "year": 1.5} for n in range(6)
]


@cache
def samples() -> dict[str, bytes]:
    """A good file of every format."""
    jsonl = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    table = io.StringIO()
    writer = csv.DictWriter(table, list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    files = {
        "a.jsonl": jsonl,
        "a.jsonl.gz": gzip.compress(jsonl),
        "a.csv": table.getvalue().encode(),
        "a.tsv": table.getvalue().replace(",", "\t").encode(),
        "a.txt": "Plain text, é\r\n".encode(),
        "a.md": b"---\ntitle: T\n---\n# Heading\n```\n# code\n```\ntext\n",
        "a.html": b"<!doctype html><title>T</title><h1>H</h1><p>a<br>b<script>x</script><!-- c --><a href='x'>l</a>",
        "a": jsonl,
    }
    return files | _binary_samples()


def _binary_samples() -> dict[str, bytes]:
    pa = pytest.importorskip("pyarrow")
    pypdf = pytest.importorskip("pypdf")
    from pyarrow import parquet

    table, pdf = io.BytesIO(), io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), table)
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(pdf)
    return {"a.parquet": table.getvalue(), "a.pdf": pdf.getvalue()}


INSERTED = [b"\0", b'"', b"\xff\xfe", b"[" * 3_000, b"\r", b"&#9;"]


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a few cuts, changes, repetitions and insertions."""
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        data = draw(
            st.sampled_from(
                [
                    data[:start] + data[end:],
                    data[:end],
                    data[:end] + data[start:],
                    data[:start] + draw(st.binary(max_size=8)) + data[end:],
                    data[:start] + draw(st.sampled_from(INSERTED)) + data[start:],
                ]
            )
        )
    return data


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_a_mutated_source_becomes_documents_or_notices(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(samples())))
    content = data.draw(st.binary(max_size=200) | mutated(samples()[name]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        report = LoadReport()
        with file.open("rb") as stream:
            documents = list(load(stream if name == "a" else file, report=report))
    for document in documents:
        check_document(document)
        document.text.encode()
    assert documents or report.notices


@cache
def trajectory() -> bytes:
    """The file of an episode with searches and an edit."""
    corpus = MemoryCorpus([Document(f"d{n}", f"Comets number {n}.") for n in range(4)], embedder=HashEmbedder())
    with tempfile.TemporaryDirectory() as folder:
        agent = SearchAgent(corpus, ScriptedPolicy([search("comets"), prune("d1_0")]))
        write(agent.search("comets?").trajectories[0], Path(folder, "t.jsonl"))
        return Path(folder, "t.jsonl").read_bytes()


@st.composite
def changed_lines(draw: st.DrawFn) -> bytes:
    """The trajectory with a value, a key or a line replaced by something else."""
    rows = [json.loads(line) for line in trajectory().splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        row = draw(st.sampled_from(rows))
        key = draw(st.sampled_from(sorted(row))) if row else ""
        value = draw(st.none() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({}) | st.just([{}]))
        if draw(st.booleans()):
            row.pop(key, None)
        else:
            row[key] = value
    order = draw(st.permutations(rows)) if draw(st.booleans()) else rows
    return "".join(json.dumps(row) + "\n" for row in order).encode()


@settings(max_examples=250, deadline=None)
@given(changed_lines() | st.deferred(lambda: mutated(trajectory())))
def test_a_mutated_trajectory_loads_or_is_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "t.jsonl")
        file.write_bytes(content)
        with contextlib.suppress(TrajectoryError):
            assert len(read(file).events) <= content.count(b"\n")


NO_EVENTS = ["[" * 100_000, '{"a":' * 100_000, "null", "[]", '{"kind": []}', '{"kind": "action", "action": []}']


@pytest.mark.parametrize("line", NO_EVENTS, ids=lambda line: line[:8])
@pytest.mark.parametrize("place", [0, 1])
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, place: int, line: str) -> None:
    lines = trajectory().decode().splitlines()
    lines[place] = line
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        TrajectoryError, match=r"the first line is not a trajectory header|line 2: the line is not a trajectory event"
    ):
        read(tmp_path / "t.jsonl")
