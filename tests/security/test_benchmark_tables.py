"""Tables of a benchmark from someone else: rows of documents, questions and judgments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import DataError
from context_agent.eval.benchmarks.loading import load_benchmark
from context_agent.eval.benchmarks.source_tables import read_rows
from tests.support.sample_benchmarks import hotpot_row, write


def rows(path: Path) -> list[Any]:
    return [row for _, row in read_rows(path, [], "queries")]


@pytest.mark.parametrize("name", ["dev.json", "dev.jsonl", "dev.tsv", "dev.parquet"])
def test_a_sparse_table_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.touch()
    os.truncate(path, 2**40)

    with pytest.raises(DataError, match="almost none of them are on the disk"):
        rows(path)


def test_short_rows_below_a_long_header_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "queries.tsv"
    path.write_text("_id\ttext\t" + "\t".join(f"c{number}" for number in range(50_000)) + "\n" + "1\tx\n" * 50_000)

    # With a value for each column, the rows would have 2,500,000,000 values.
    assert rows(path) == [{"_id": "1", "text": "x"}] * 50_000


def test_a_parquet_table_that_repeats_a_long_text_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "corpus.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 400), pa.array(["x" * 900_000]))
    parquet.write_table(pa.table({"_id": [str(number) for number in range(400)], "text": texts}), path)

    with pytest.raises(DataError, match="unpacks to more than"):
        rows(path)


@pytest.mark.parametrize("kind", ["timestamp", "date32", "duration"])
def test_a_value_that_python_cannot_hold_is_an_error_of_the_file(kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "corpus.parquet"
    value, arrow = {
        "timestamp": (2**40, pa.timestamp("s")),
        "date32": (2**30, pa.date32()),
        "duration": (2**60, pa.duration("s")),
    }[kind]
    parquet.write_table(pa.table({"_id": ["1"], "value": pa.array([value], arrow)}), path)

    with pytest.raises(DataError, match="is damaged after 0 rows"):
        rows(path)


@pytest.mark.parametrize("identifier", ["d\ud800", "d\0"])
def test_a_document_whose_id_cannot_be_stored_is_a_problem(identifier: str, tmp_path: Path) -> None:
    documents = [{"_id": "d1", "text": "Osk is a river."}, {"_id": identifier, "text": "Vellmar is a town."}]
    write(tmp_path / "corpus.jsonl", documents)
    write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "What is Osk?"}])
    (tmp_path / "qrels.tsv").write_text("q\td1\t1\n")
    benchmark = load_benchmark(f"own={tmp_path}")
    assert [document.id for document in benchmark.documents] == ["d1"]
    assert "has a character that cannot be stored" in benchmark.problems[0]


@pytest.mark.parametrize("title", [None, 5, True])
def test_a_gold_title_of_another_type_is_a_text(title: object, tmp_path: Path) -> None:
    row = {**hotpot_row(), "supporting_facts": [[title, 0]]}
    write(tmp_path / "hotpot_dev_distractor_v1.json", [row])
    assert load_benchmark(f"hotpotqa-distractor={tmp_path}").questions[0].gold == (str(title),)
