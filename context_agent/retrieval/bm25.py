"""BM25 on tantivy: in memory or in a folder, with incremental adds and deletes.

The analyser lower-cases, folds accents, and drops the stop words and endings of the index's language; the title counts
twice (recall@5 on the train queries of 2wiki, hotpotqa, musique: .668/.745/.469 with the title once, .682/.752/.508
twice). Words are runs of letters and digits; `languages` cuts scripts without spaces into terms. Scores use tantivy's
fixed k1 = 1.2 and b = 0.75.

A query is never parsed: its analysed words become a disjunction of terms, so any character is allowed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import read_bytes, read_json
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.languages import (
    ENGLISH,
    STEMMED,
    WITHOUT_STOP_WORDS,
    identify,
    require_language,
    segmented,
)
from context_agent.tokens import well_formed

if TYPE_CHECKING:
    from tantivy import Index, IndexWriter, Schema, TextAnalyzer

ANALYZER_VERSION = 1
"""Incremented when the analyser or the schema changes: an index of another version is rebuilt."""
MAX_QUERY_TERMS = 64
"""Distinct terms of one query; of a longer one the rarest are kept."""
MAX_QUERY_CHARACTERS = 100_000
"""Only this much of a query is analysed."""
LONGEST_WORD = 80
"""Bytes; longer words (encoded blobs) are not indexed."""
TITLE_WEIGHT = 2
MAX_LIST_BYTES = 1_000_000
"""Size of tantivy's lists of its files and segments."""
MAX_SEGMENTS = 1_000
BEFORE_LANGUAGES = ""
"""The language of an index from before languages were stored: English, and runs of any script are words."""
_HEAP = 32_000_000
_TIE_MARGIN = 8
"""Hits requested beyond twice as many as are wanted. Twice: a second search costs far more than a larger first one."""


class Bm25Entry(NamedTuple):
    """What is indexed of one chunk."""

    id: str
    title: str
    text: str


class Bm25Index:
    """A set of texts by id, searchable by words. Reads are thread-safe; writes need one thread and a `commit`."""

    def __init__(self, path: Path | None = None, *, create: bool = True, language: str = ENGLISH) -> None:
        """An index in memory, or in the folder `path`; `create` makes it if it does not exist.

        `language` is a code of `LANGUAGES`, the same each time the folder is opened, or `BEFORE_LANGUAGES`. Raises
        `ConfigError` for another language, `CorpusCorruptError` if tantivy cannot open the folder. So do searches in a
        folder whose files are damaged.
        """
        self.language = language
        self._schema = _schema()
        self._analyzer = _analyzer(language)
        self._index = _open(self._schema, path, create)
        self._index.register_tokenizer(_TOKENIZER, self._analyzer)
        self.reading: Callable[[], AbstractContextManager[None]] = (
            nullcontext if path is None else partial(CorpusCorruptError.reading, path)
        )
        """Raises `CorpusCorruptError` for whatever damaged files raise in the block."""
        with self.reading():
            # By default a thread of tantivy follows commits, and its lock files appear in a folder after it was closed.
            self._index.config_reader("Manual", 0)
            self._searcher = self._index.searcher()
        self._writer: IndexWriter | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, entries: Iterable[Bm25Entry]) -> Self:
        """An index in memory of these texts, in the language of most of them."""
        entries = list(entries)
        index = cls(language=identify([entry.text for entry in entries]))
        index.add(entries)
        index.commit()
        return index

    def count(self) -> int:
        """Number of texts as of the last commit."""
        return self._searcher.num_docs

    def add(self, entries: Iterable[Bm25Entry]) -> None:
        """Adds texts; an existing id is not replaced (delete it first). Visible after `commit`."""
        from tantivy import Document

        writer = self._open_writer()
        for entry in entries:
            document = Document()
            document.add_text("id", entry.id)
            document.add_text("every", _EVERY)
            document.add_text("text", self._cut(f"{entry.title}\n" * TITLE_WEIGHT + entry.text))
            writer.add_document(document)

    def delete(self, ids: Iterable[str]) -> None:
        """Removes texts by id; unknown ids are ignored. Visible after `commit`."""
        writer = self._open_writer()
        for chunk_id in ids:
            writer.delete_documents_by_term("id", chunk_id)

    def commit(self) -> None:
        """Makes additions and deletions durable and visible, and releases the folder's writer lock."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.commit()
            writer.wait_merging_threads()
            self._index.reload()
            self._searcher = self._index.searcher()

    def search(self, query: str, k: int, *, only: AbstractSet[str] | None = None) -> list[tuple[str, float]]:
        """The `k` best texts as (id, score), best first, equal scores by id; `only` limits them to these ids."""
        from tantivy import Occur, Query

        terms, searcher = self.analyze(query), self._searcher
        k = min(k, searcher.num_docs)
        if k <= 0 or not terms:
            return []
        with self.reading():
            if len(terms) > MAX_QUERY_TERMS:
                terms = self._rarest(terms)
            any_term = Query.boolean_query(
                [(Occur.Should, Query.term_query(self._schema, "text", term, "freq")) for term in terms]
            )
            if only is not None:
                allowed = Query.const_score_query(Query.term_set_query(self._schema, "id", sorted(only)), 0.0)
                any_term = Query.boolean_query([(Occur.Must, any_term), (Occur.Must, allowed)])
            # More than `k` hits while a tie crosses the cut: tantivy orders ties by position.
            depth = 2 * k + _TIE_MARGIN
            hits = searcher.search(any_term, depth, count=False).hits
            while len(hits) == depth and hits[k - 1][0] == hits[-1][0]:
                depth *= 2
                hits = searcher.search(any_term, depth, count=False).hits
            # An id is read from disk: only those that may be among the first k are.
            least = hits[k - 1][0] if len(hits) > k else -math.inf
            scored = [
                (str(searcher.doc(address).get_first("id")), float(score)) for score, address in hits if score >= least
            ]
        return sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:k]

    def analyze(self, text: str) -> list[str]:
        """The distinct terms of a text, in order of appearance."""
        return list(dict.fromkeys(self._analyzer.analyze(self._cut(text[:MAX_QUERY_CHARACTERS]))))

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """In how many texts each term occurs, shape (n,).

        For a term of several words it is the number of texts with all of them; for a term of stop words alone the
        number of texts; for a term without a letter or digit 0.
        """
        with self.reading():
            return np.array([self._frequency(term) for term in terms], dtype=np.int64)

    def _cut(self, text: str) -> str:
        """The text as tantivy gets it: with blanks between the terms of scripts that have none."""
        if text.isascii():
            return text
        return well_formed(text) if self.language == BEFORE_LANGUAGES else segmented(well_formed(text))

    def _frequency(self, term: str) -> int:
        from tantivy import Occur, Query

        words = self.analyze(term)
        if not words:
            return self.count() if any(map(str.isalnum, term)) else 0
        # Tantivy's own number counts what was deleted until it merges the segment.
        if len(words) == 1 and self._searcher.doc_freq("every", _EVERY) == self.count():
            return self._searcher.doc_freq("text", words[0])
        query = Query.boolean_query(
            [(Occur.Must, Query.term_query(self._schema, "text", word, "freq")) for word in words]
        )
        return int(self._searcher.search(query, 1, count=True).count)  # type: ignore[attr-defined]

    def _rarest(self, terms: Sequence[str]) -> list[str]:
        """The terms that occur in the fewest texts, but in any."""
        frequencies = {term: self._searcher.doc_freq("text", term) for term in terms}
        indexed = sorted((term for term in terms if frequencies[term]), key=lambda term: (frequencies[term], term))
        return indexed[:MAX_QUERY_TERMS]

    def _open_writer(self) -> IndexWriter:
        with self._lock:
            if self._writer is None:
                # One indexing thread: documents keep their order, and an ingest leaves the other cores to the vectors.
                self._writer = self._index.writer(_HEAP, 1)
            return self._writer


_TOKENIZER = "context_agent_english"
"""The name of the analyser of any language: it is part of every index on disk."""
_EVERY = "1"
"""A term of every text, which shows whether deleted texts are still counted."""


def _schema() -> Schema:
    from tantivy import SchemaBuilder

    builder = SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("every", stored=False, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", stored=False, tokenizer_name=_TOKENIZER, index_option="freq")
    return builder.build()


def _analyzer(language: str) -> TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    if language != BEFORE_LANGUAGES:
        require_language(language)
    code = language or ENGLISH
    filters = [] if code in WITHOUT_STOP_WORDS or code not in STEMMED else [Filter.stopword(STEMMED[code])]
    filters += [Filter.stemmer(STEMMED[code])] if code in STEMMED else []
    # Stop words and endings of other languages have accents.
    filters.insert(0 if code == ENGLISH else len(filters), Filter.ascii_fold())
    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (Filter.remove_long(LONGEST_WORD), Filter.lowercase(), *filters):
        builder = builder.filter(step)
    return builder.build()


def _open(schema: Schema, path: Path | None, create: bool) -> Index:
    from tantivy import Index

    if path is None:
        return Index(schema)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    with CorpusCorruptError.reading(path):
        if not create:
            _check_files(path)
        return Index(schema, path=str(path)) if create else Index.open(str(path))


def _check_files(path: Path) -> None:
    """Refuse lists of files that tantivy would read whole, or that name a segment twice."""
    read_bytes(path / ".managed.json", MAX_LIST_BYTES)
    segments = [segment["segment_id"] for segment in read_json(path / "meta.json", MAX_LIST_BYTES)["segments"]]
    if len(segments) > MAX_SEGMENTS or len(set(segments)) < len(segments):
        raise ValueError("meta.json names a segment twice, or too many")
