"""Measure recall@5 of the agent over existing search engines, and of the one-shot search of each engine.

    python benchmarks/engines.py --data FOLDER [--set 2wiki] [--split dev] [--limit N] [--effort careful|fast]
        [--embedder minilm] [--engines postgres,lancedb,milvus,chroma,own] [--cache FOLDER] [--work FOLDER]

Each engine gets the passages of the set. If it searches by vectors, it also gets their vectors from `--embedder`. It is
used only through a search function in `EngineCorpus`, as docs/engines.md shows. For each engine the program prints the
recall@5 of its own search with the question alone, the recall@5 of the agent, and the mean gain. Each figure has a
bootstrap 95% interval over questions. `own` is this package's index in memory, without `EngineCorpus`. No language
model and no GPU are needed.

| engine | search | needs |
|---|---|---|
| `postgres` | full-text search, any word of the query, ranked by `ts_rank` | Debian's package `postgresql`, `psycopg` |
| `lancedb` | hybrid, fused by LanceDB | `lancedb` |
| `milvus` | BM25 and vectors, fused by Milvus Lite | `pymilvus`, `milvus-lite` |
| `chroma` | vectors, on a Chroma server | |

The PostgreSQL cluster and the Chroma server keep their data in a temporary folder in `--work`. If you are root, the
cluster runs as the user `postgres`, who must be able to reach that folder.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from multihop import DEPTH, CachedEmbedder, Floats, build, load_chunks, recall, set_folder

from context_agent import EngineCorpus, SearchAgent
from context_agent._support.question_files import load_questions
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.embedders import load_embedder
from context_agent.types import Chunk, Question

Search = Callable[[str, int], Any]
BATCH = 2_000
"""The number of passages in one request to an engine."""
START_SECONDS = 60
SEARCH_SECONDS = 300
"""The time limit of one search. It is long because Milvus Lite is slow on a busy machine."""


@dataclass(frozen=True)
class Passages:
    """The passages that an engine indexes, and the embedder of their vectors."""

    chunks: Sequence[Chunk]
    embedder: CachedEmbedder

    @cached_property
    def vectors(self) -> Floats:
        """The vectors of the passages, shape (passages, d)."""
        return self.embedder.embed_documents([chunk.indexed_text for chunk in self.chunks])

    def query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return [float(value) for value in self.embedder.embed_query(text)]

    def rows(self, *, vectors: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield batches of rows with id, title and text. If `vectors` is true, the rows have vectors too."""
        for start in range(0, len(self.chunks), BATCH):
            part = self.chunks[start : start + BATCH]
            rows: list[dict[str, Any]] = [
                {"id": chunk.document_id, "title": chunk.title, "text": chunk.text} for chunk in part
            ]
            if vectors:
                for row, vector in zip(rows, self.vectors[start : start + BATCH], strict=True):
                    row["vector"] = vector.tolist()
            yield rows


@contextmanager
def postgres(passages: Passages, folder: Path) -> Iterator[Search]:
    """Yield the full-text search of a PostgreSQL cluster. The cluster listens only on a socket in the folder."""
    import psycopg
    from psycopg.rows import dict_row

    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def run(program: str, *arguments: str) -> None:
        log = subprocess.DEVNULL
        subprocess.run([binaries / program, *arguments], user=user, cwd=folder, stdout=log, stderr=log, check=True)

    run("initdb", "-D", str(folder / "cluster"), "-U", "bench", "--auth=trust", "--encoding=UTF8", "--no-sync")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    run("pg_ctl", "-D", str(folder / "cluster"), "-o", options, "-w", "-l", str(folder / "log"), "start")
    try:
        connection = psycopg.connect(host=str(folder), user="bench", dbname="postgres", autocommit=True)
        connection.execute(
            "create table passages (id text, title text, text text, words tsvector generated always as "
            "(to_tsvector('english', title || ' ' || text)) stored)"
        )
        with connection.cursor().copy("copy passages (id, title, text) from stdin") as copy:
            for row in (row for batch in passages.rows() for row in batch):
                copy.write_row((row["id"], row["title"], row["text"]))
        connection.execute("create index on passages using gin (words)")
        connection.execute("analyze passages")
        statement = """
            select id, title, text from passages, (select
                replace(plainto_tsquery('english', %s)::text, ' & ', ' | ')::tsquery as query) as any_word
            where words @@ query order by ts_rank(words, query) desc, id limit %s"""

        def search(query: str, limit: int) -> list[dict[str, Any]]:
            return connection.cursor(row_factory=dict_row).execute(statement, (query, limit)).fetchall()

        yield search
        connection.close()
    finally:
        run("pg_ctl", "-D", str(folder / "cluster"), "-m", "immediate", "stop")


@contextmanager
def lancedb(passages: Passages, folder: Path) -> Iterator[Search]:
    """Yield the hybrid search of a LanceDB table."""
    os.environ.setdefault("LANCE_LOG", "error")
    import lancedb as library
    from lancedb.index import FTS

    batches = passages.rows(vectors=True)
    table = library.connect(str(folder)).create_table("passages", data=next(batches))
    for batch in batches:
        table.add(batch)
    table.create_index("text", config=FTS())

    def search(query: str, limit: int) -> list[dict[str, Any]]:
        hybrid = table.search(query_type="hybrid").vector(passages.query(query)).text(query)
        rows: list[dict[str, Any]] = hybrid.limit(limit).select(["id", "title", "text"]).to_list()
        return rows

    yield search


@contextmanager
def milvus(passages: Passages, folder: Path) -> Iterator[Search]:
    """Yield BM25 and dense search of Milvus Lite, fused by reciprocal rank."""
    from pymilvus import AnnSearchRequest, DataType, Function, FunctionType, MilvusClient, RRFRanker

    client = MilvusClient(str(folder / "milvus.db"))
    schema = client.create_schema(auto_id=True)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("id", DataType.VARCHAR, max_length=512)
    schema.add_field("title", DataType.VARCHAR, max_length=2_048)
    schema.add_field("text", DataType.VARCHAR, max_length=65_535, enable_analyzer=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=passages.vectors.shape[1])
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["words"]))
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type="FLAT", metric_type="IP")
    indexes.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection("passages", schema=schema, index_params=indexes)
    for batch in passages.rows(vectors=True):
        client.insert("passages", batch)
    client.load_collection("passages")

    def search(query: str, limit: int) -> Any:
        requests = [
            AnnSearchRequest([passages.query(query)], "vector", {"metric_type": "IP"}, limit=limit),
            AnnSearchRequest([query], "words", {"metric_type": "BM25"}, limit=limit),
        ]
        return client.hybrid_search(
            "passages", requests, RRFRanker(), limit=limit, output_fields=["id", "title", "text"]
        )

    yield search
    client.close()


@contextmanager
def chroma(passages: Passages, folder: Path) -> Iterator[Search]:
    """Yield the dense search of a Chroma server."""
    import chromadb

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["chroma", "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        collection = _started(lambda: chromadb.HttpClient("127.0.0.1", port)).create_collection("passages")
        for batch, start in zip(passages.rows(), range(0, len(passages.chunks), BATCH), strict=True):
            collection.add(
                ids=[chunk.id for chunk in passages.chunks[start : start + BATCH]],
                documents=[row["text"] for row in batch],
                metadatas=[{"title": row["title"], "document_id": row["id"]} for row in batch],
                embeddings=passages.vectors[start : start + BATCH],
            )
        yield lambda query, limit: collection.query(query_embeddings=[passages.query(query)], n_results=limit)
    finally:
        server.terminate()
        server.wait()


def _started(connect: Callable[[], Any]) -> Any:
    """Call `connect` until the server answers, and return the connection."""
    ends = time.monotonic() + START_SECONDS
    while True:
        try:
            return connect()
        except Exception:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


ENGINES = {"postgres": postgres, "lancedb": lancedb, "milvus": milvus, "chroma": chroma}


def measure(name: str, corpus: Corpus, questions: Sequence[Question], policy: BridgePolicy) -> None:
    """Print the line of one engine."""
    one_shot, agent, seconds = [], [], []
    with SearchAgent(corpus, policy) as searcher:
        for question in questions:
            hits = corpus.search(question.question, k=DEPTH)
            one_shot.append(recall((hit.chunk.document_id for hit in hits), question.gold))
            started = time.perf_counter()
            result = searcher.search(question.question)
            seconds.append(time.perf_counter() - started)
            agent.append(recall((document.id for document in result.documents), question.gold))
    gain = [after - before for before, after in zip(one_shot, agent, strict=True)]
    figures = (Figure.of(values) for values in (one_shot, agent, gain))
    print(f"{name:10}", *figures, f"{1000 * median(seconds):8,.0f} ms", sep="   ", flush=True)


def main() -> int:
    """Measure the engines, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--set", default="2wiki")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--effort", default="careful")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--engines", default=",".join((*ENGINES, "own")))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "engines-vectors")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    folder = set_folder(options.data, options.set)
    questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.limit]
    chunks, embedder = load_chunks(folder), CachedEmbedder(load_embedder(options.embedder), options.cache)
    passages = Passages(chunks, embedder)
    policy = BridgePolicy(effort=options.effort)
    print(f"{options.set} {options.split}, {len(questions)} questions, {len(chunks):,} passages; recall@5, ", end="")
    print(f"{options.effort}, vectors by {options.embedder}", flush=True)
    print(f"{'engine':10}   {'one-shot':20}   {'agent':20}   {'gain':20}   median time of the agent")
    for name in options.engines.split(","):
        if name == "own":
            measure(name, build(chunks, embedder, shuffle=None, only=None), questions, policy)
            continue
        work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.work))
        try:
            with ENGINES[name](passages, work) as search:
                measure(name, EngineCorpus(search, name=name, timeout=SEARCH_SECONDS), questions, policy)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    embedder.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
