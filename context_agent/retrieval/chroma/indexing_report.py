"""What an indexing run says while it runs and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of a run.

    Attributes:
        documents: The number of documents that were read.
        chunks: The number of new chunks.
        stored: The number of new chunks that are stored.
        kept: The number of new and changed documents that are stored, by this run or by the interrupted run that it
            resumes.
        graph: The number of vectors in the graph for approximate search. The graph of a large index is made last.
        embedded: The number of new chunks that have vectors. They are stored soon afterwards.
    """

    documents: int
    chunks: int
    stored: int
    kept: int = 0
    graph: int = 0
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of a run. Times are in seconds.

    Attributes:
        collection: The name of the collection.
        revision: The number of the state that the run completed.
        chunks: The number of chunks in the index.
        added: The number of new documents.
        replaced: The number of changed documents.
        unchanged: The number of unchanged documents.
        removed: The number of documents that were removed.
        missing: The number of documents in the index that this run did not get. They stay in the index.
        missing_examples: The ids of the first missing documents.
        empty: The number of documents without text.
        stored: The number of chunks that this run stored.
        resumed: The number of chunks that an interrupted run had stored.
        language: The language that the caller named, or the language of most texts (see `text.languages`).
        languages: The number of chunks in each language, the most frequent language first.
        embedder: The name of the embedder, such as `minilm-384@1a2b3c4d`.
        warning: A warning, or an empty text. It names a language that the embedder does not know, an index that this
            run made too large for the embedder of its first texts, a missing package for faster searches, or another
            collection that searches read before and no longer do.
        seconds: The duration of the run.
        embedding_seconds: The time spent on embedding.
        chunking_seconds: The time spent on chunking.
    """

    collection: str
    revision: int
    chunks: int
    added: int
    replaced: int
    unchanged: int
    removed: int
    missing: int
    missing_examples: tuple[str, ...]
    empty: int
    stored: int
    resumed: int
    language: str
    languages: Mapping[str, int]
    embedder: str
    warning: str
    seconds: float
    embedding_seconds: float
    chunking_seconds: float
