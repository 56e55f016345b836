"""BM25 on tantivy, in memory or in a folder, with incremental additions and deletions.

The analyzer converts text to lower case, folds accents, and drops the stop words and endings of a text's language. The
title counts twice. On the train queries of 2wiki, hotpotqa and musique, recall@5 is .682, .752 and .508 with the title
twice. With the title once, it is .668, .745 and .469. A word is a run of letters and digits. `text.scripts` divides
scripts without spaces into terms. Scores use tantivy's fixed k1 = 1.2 and b = 0.75.

An index may hold texts in several languages. Each text is analyzed in its own language, so a word of a query has a form
in each language of the index. The forms count as one term, which is as frequent as all of them together.

A query is never parsed. Its analyzed words become a disjunction of terms, so a query may have any characters. The
ending of a possessive is no term. Neighboring words that a text has as one, such as `filename`, are one more term.

The identifiers of a text (`text.identifiers`) are in a field of their own. Those that only its document's id has are in
another one. The short values of its metadata are in a fourth field, which is only searched for words that more
metadata than texts have. The score of a text is the sum of its scores by field. A query without identifiers and such
words therefore has the scores of its words in the texts alone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import read_json
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.filters import Where
from context_agent.retrieval.index.analysis import TOKENIZER_NAME, analyzer, term_splitter, word_forms, word_splitter
from context_agent.retrieval.retriever import SPARSE
from context_agent.text.identifiers import asked_identifiers, identifiers
from context_agent.text.language_identification import identify, language_of, languages_shown
from context_agent.text.languages import ENGLISH, LANGUAGES, STEMMED, require_language
from context_agent.text.normalization import well_formed, with_plain_numbers
from context_agent.text.record_fields import short_fields
from context_agent.text.respelling import joined_words, respelled
from context_agent.text.scripts import segmented
from context_agent.text.words import without_possessives

if TYPE_CHECKING:
    from tantivy import Index, IndexWriter, Query, Schema

ANALYZER_VERSION = 7
"""The version of the analyzer. Increment it when the analyzer or the schema changes. Older indexes are then rebuilt."""
MAX_QUERY_TERMS = 64
"""The maximum number of distinct words in a query, and of identifiers. Of a longer query, the rarest ones are kept.

The forms of a word in several languages are one word.
"""
MIN_LANGUAGE_SHARE = 0.002
"""The minimum share of the texts from which a language counts in every query.

A rarer language counts too, unless the query shows that it is in another language.
"""
CLEAR_STOP_WORDS = 2
"""The number of additional stop words that show that a query is not in the language of most texts."""
MAX_METADATA_SHARE = 0.9
"""The maximum share of the texts whose metadata have a word that is searched for there."""
MAX_QUERY_CHARACTERS = 100_000
"""The maximum number of characters of a query that are analyzed."""
TITLE_WEIGHT = 2
"""The number of times that the title is indexed with the text."""
MAX_LIST_BYTES = 1_000_000
"""The maximum size of tantivy's lists of its files and segments."""
LIST_FILES = _FILE_LIST, _SEGMENT_LIST = ".managed.json", "meta.json"
MAX_SEGMENTS = 1_000
"""The maximum number of segments in an index that is opened."""
_WRITER_HEAP_BYTES = 32_000_000
_TIE_MARGIN = 8
"""The number of hits that are requested beyond twice the wanted number.

A second search costs far more than a larger first one.
"""


class Bm25Entry(NamedTuple):
    """The indexed parts of one chunk."""

    id: str
    title: str
    text: str
    document_id: str = ""
    metadata: Mapping[str, object] = MappingProxyType({})


class Bm25Index:
    """A set of texts by id that can be searched by words.

    Reads are thread-safe. Writes need one thread, and a `commit` makes them visible. If the files of a folder are
    damaged, a search raises `CorpusCorruptError`.
    """

    def __init__(
        self, path: Path | None = None, *, create: bool = True, language: str = ENGLISH, mixed: bool = False
    ) -> None:
        """Open an index in memory or in a folder.

        Args:
            path: The folder. None keeps the index in memory.
            create: Whether to make the folder if it does not exist.
            language: A code of `text.languages.LANGUAGES`. It must be the same each time the folder is opened.
            mixed: Whether each text is analyzed in its own language. `language` then applies to texts whose language is
                unclear.

        Raises:
            ConfigError: If the language is unknown.
            CorpusCorruptError: If tantivy cannot open the folder.
        """
        require_language(language)
        self.language, self.mixed = language, mixed
        self._schema = _schema()
        self._index = _open(self._schema, path, create)
        self._index.register_tokenizer(TOKENIZER_NAME, term_splitter())
        self.reading: Callable[[], AbstractContextManager[None]] = (
            nullcontext if path is None else partial(CorpusCorruptError.reading, path)
        )
        """A context that turns whatever damaged files raise into `CorpusCorruptError`."""
        with self.reading():
            # By default a thread of tantivy follows commits, and its lock files appear in a folder after it was closed.
            self._index.config_reader("Manual", 0)
            self._read()
        self._writer: IndexWriter | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, entries: Iterable[Bm25Entry]) -> Self:
        """Return an index of these texts in memory, each analyzed in its own language."""
        entries = list(entries)
        index = cls(language=identify([entry.text for entry in entries]), mixed=True)
        index.add(entries)
        index.commit()
        return index

    def count(self) -> int:
        """Return the number of texts as of the last commit."""
        return self._searcher.num_docs

    def add(self, entries: Iterable[Bm25Entry]) -> None:
        """Add texts, which become visible after `commit`. To replace a text, delete its id first."""
        from tantivy import Document

        writer = self._open_writer()
        for entry in entries:
            language = self.language
            if self.mixed:
                language = language_of(f"{entry.title}\n{entry.text}", language)
            text = f"{entry.title}\n" * TITLE_WEIGHT + entry.text
            terms = analyzer(language).analyze(self._cut(text))
            document = Document()
            document.add_text("id", entry.id)
            document.add_text("every", _EVERY_TEXT)
            document.add_text("language", language)
            document.add_text("text", " ".join(terms))
            names = identifiers(text)
            if names:
                document.add_text("identifiers", " ".join(names))
            if others := set(identifiers(entry.document_id)).difference(names):
                document.add_text("document", " ".join(sorted(others)))
            if values := "\n".join(value for _, value in short_fields(entry.metadata)):
                document.add_text("metadata", " ".join(analyzer(language).analyze(self._cut(values))))
            writer.add_document(document)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove texts by id. This takes effect after `commit`. Unknown ids are ignored."""
        writer = self._open_writer()
        for chunk_id in ids:
            writer.delete_documents_by_term("id", chunk_id)

    def commit(self) -> None:
        """Make additions and deletions durable and visible, and release the folder's writer lock."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.commit()
            writer.wait_merging_threads()
            self._index.reload()
            self._read()

    def search(self, query: str, k: int, *, only: AbstractSet[str] | None = None) -> list[tuple[str, float]]:
        """Search by words.

        Args:
            query: The query. Its words become a disjunction.
            k: The maximum number of texts to return.
            only: The ids to which the search is limited. None searches all texts.

        Returns:
            Ids with their scores, best first. Equal scores are ordered by id.
        """
        from tantivy import Occur, Query

        searcher = self._searcher
        k = min(k, searcher.num_docs)
        if k <= 0:
            return []
        with self.reading():
            query = respelled(query[:MAX_QUERY_CHARACTERS], lambda word: any(map(self._known, self._terms(word))))
            query = " ".join((query, *(joined for joined, _ in self.joined(query))))
            terms = {"text": self._terms(query), "identifiers": self._identifiers(query)}
            terms["document"] = terms["identifiers"]
            terms["metadata"] = [forms for forms in terms["text"] if self._field(forms) == "metadata"]
            parts = [
                part
                for field, of_field in terms.items()
                for forms in (of_field if len(of_field) <= MAX_QUERY_TERMS else self._rarest(of_field, field))
                for part in self._weighted(forms, field)
            ]
            if not parts:
                return []
            any_term = Query.boolean_query([(Occur.Should, part) for part in parts])
            if only is not None:
                allowed = Query.const_score_query(Query.term_set_query(self._schema, "id", sorted(only)), 0.0)
                any_term = Query.boolean_query([(Occur.Must, any_term), (Occur.Must, allowed)])
            # More than `k` hits while a tie crosses the cut: tantivy orders ties by position.
            depth = k
            while True:
                depth = 2 * depth + _TIE_MARGIN
                hits = searcher.search(any_term, depth, count=False).hits
                if len(hits) < depth or hits[k - 1][0] > hits[-1][0]:
                    break
            # An id is read from disk: only those that may be among the first k are.
            least = hits[k - 1][0] if len(hits) > k else -math.inf
            scored = [
                (str(searcher.doc(address).get_first("id")), float(score)) for score, address in hits if score >= least
            ]
        return sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:k]

    def joined(self, query: str) -> list[tuple[str, str]]:
        """Return the words of the texts that join words of a query, such as `filename`, and the words as asked."""
        asked = {form for forms in self._terms(query) for form in forms}

        def is_known(word: str) -> bool:
            return any(self._known(tuple(form for form in forms if form not in asked)) for forms in self._terms(word))

        return joined_words(query, is_known)

    def analyze(self, text: str) -> list[str]:
        """Return the distinct terms of a text in order of appearance, in each language of the index."""
        return [form for forms in self._terms(text) for form in forms]

    def term_frequencies(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the number of texts in which each distinct term of a text occurs, shape (n,).

        If a term is in more metadata than texts, count the metadata instead. The second array, shape (n,), is true for
        these terms. Deleted texts may still count.
        """
        with self.reading():
            terms = self._terms(text)
            counts = [min(self._known(forms), self.count()) for forms in terms]
            in_metadata = [self._field(forms) == "metadata" for forms in terms]
        return np.array(counts, dtype=np.int64), np.array(in_metadata, dtype=np.bool_)

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of texts in which each term occurs, shape (n,).

        If a word is in more metadata than texts, count the metadata instead. If a term has several words, a text counts
        if it has all of them. If it has only stop words, every text counts. If it has no letter or digit, no text
        counts.
        """
        with self.reading():
            # Tantivy's own number counts what was deleted until it merges the segment.
            is_exact = self._searcher.doc_freq("every", _EVERY_TEXT) == self.count()
            return np.array([self._frequency(term, is_exact) for term in terms], dtype=np.int64)

    def _cut(self, text: str) -> str:
        """Return the text for tantivy. In scripts without spaces, blanks are put between the terms."""
        text = with_plain_numbers(text)
        return text if text.isascii() else segmented(well_formed(text))

    def _read(self) -> None:
        """Read the last commit, and count the texts of each language."""
        self._searcher = self._index.searcher()
        counts = {code: self._searcher.doc_freq("language", code) for code in LANGUAGES}
        self.languages = {code: counts[code] for code in sorted(counts, key=lambda code: -counts[code]) if counts[code]}
        """The number of texts in each language, the most frequent language first. Deleted texts may still count."""
        # Languages without a stemmer are analyzed alike.
        alike: dict[str, list[str]] = {}
        for code in self.languages:
            alike.setdefault(STEMMED.get(code, ""), []).append(code)
        self._analyzed = [codes[0] for codes in alike.values()]
        least = self.count() * MIN_LANGUAGE_SHARE
        self._always = [codes[0] for codes in alike.values() if sum(map(self.languages.__getitem__, codes)) >= least]

    def _terms(self, text: str) -> list[tuple[str, ...]]:
        """Return the distinct terms of a text in order of appearance.

        Each term has the forms of a word in different languages.
        """
        cut = self._cut(without_possessives(text[:MAX_QUERY_CHARACTERS]))
        codes = self._always
        if len(codes) < len(self._analyzed):
            shown = languages_shown(cut)
            if shown.isdisjoint(codes):
                shown = frozenset(self._analyzed)
            codes = [code for code in self._analyzed if code in codes or code in shown]
        if len(codes) <= 1:
            code = codes[0] if codes else self.language
            return [(term,) for term in dict.fromkeys(analyzer(code).analyze(cut))]
        words = list(dict.fromkeys(word_splitter().analyze(cut)))
        by_language = [word_forms(code, words) for code in codes]
        stop_words = [forms.count("") for forms in by_language]
        likely = stop_words.index(max(stop_words))
        own = by_language[likely if stop_words[likely] - stop_words[0] >= CLEAR_STOP_WORDS else 0]
        taken: set[str] = {""}
        terms = []
        for forms, form in zip(zip(*by_language, strict=True), own, strict=True):
            fresh = tuple(dict.fromkeys(item for item in forms if item not in taken)) if form else ()
            taken.update(fresh)
            if fresh:
                terms.append(fresh)
        return terms

    def _identifiers(self, query: str) -> list[tuple[str, ...]]:
        """Return the distinct identifiers of a query in order of appearance, each as a term with one form."""
        asked = asked_identifiers(query[:MAX_QUERY_CHARACTERS])
        return [(name,) for name in dict.fromkeys(name for one in asked for name in one.spellings)]

    def _weighted(self, forms: tuple[str, ...], field: str) -> Iterator[Query]:
        """Yield a query for each form of a term.

        A form has the weight of a word that is as frequent as all forms together.
        """
        from tantivy import Query

        queries = [Query.term_query(self._schema, field, form, "freq") for form in forms]
        if len(forms) == 1:
            yield from queries
            return
        frequencies = [self._searcher.doc_freq(field, form) for form in forms]
        together = self._inverse(min(sum(frequencies), self.count()))
        for query, frequency in zip(queries, frequencies, strict=True):
            if frequency:
                yield Query.boost_query(query, together / self._inverse(frequency))

    def _inverse(self, frequency: int) -> float:
        """Return the inverse document frequency, as tantivy computes it."""
        return math.log1p((max(0, self.count() - frequency) + 0.5) / (frequency + 0.5))

    def _frequency(self, term: str, is_exact: bool) -> int:
        """Return the number of texts with a term. `is_exact` is true if tantivy's own numbers count no deleted text."""
        from tantivy import Occur, Query

        terms = self._terms(term)
        if not terms:
            return self.count() if any(map(str.isalnum, term)) else 0
        if len(terms) == 1 and is_exact:
            return min(self._known(terms[0]), self.count())
        every_term = [
            (Occur.Must, Query.term_set_query(self._schema, self._field(forms), list(forms))) for forms in terms
        ]
        return int(self._searcher.search(Query.boolean_query(every_term), 1).count)  # type: ignore[attr-defined]

    def _sum(self, forms: tuple[str, ...], field: str = "text") -> int:
        return sum(self._searcher.doc_freq(field, form) for form in forms)

    def _field(self, forms: tuple[str, ...]) -> str:
        """Return the field that has a term more often: the text or the metadata.

        A term that nearly all metadata have, such as the name of a format, tells no texts apart.
        """
        most = MAX_METADATA_SHARE * self.count()
        return "metadata" if self._sum(forms) < self._sum(forms, "metadata") <= most else "text"

    def _known(self, forms: tuple[str, ...]) -> int:
        """Return the number of texts that have a term in this field."""
        return self._sum(forms, self._field(forms))

    def _rarest(self, terms: Sequence[tuple[str, ...]], field: str) -> list[tuple[str, ...]]:
        """Return the terms of a field that occur in the fewest texts, but not those that occur in none."""
        frequencies = {forms: self._sum(forms, field) for forms in terms}
        indexed = (forms for forms in terms if frequencies[forms])
        return sorted(indexed, key=lambda forms: (frequencies[forms], forms))[:MAX_QUERY_TERMS]

    def _open_writer(self) -> IndexWriter:
        with self._lock:
            if self._writer is None:
                # One indexing thread: documents keep their order, and an ingest leaves the other cores to the vectors.
                self._writer = self._index.writer(_WRITER_HEAP_BYTES, 1)
            return self._writer


_EVERY_TEXT = "1"
"""A term that every text has. Its frequency shows whether deleted texts are still counted."""


def _schema() -> Schema:
    from tantivy import SchemaBuilder

    builder = SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("every", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("language", tokenizer_name="raw", index_option="basic")
    for name in ("text", "identifiers", "document", "metadata"):
        builder.add_text_field(name, tokenizer_name=TOKENIZER_NAME, index_option="freq")
    return builder.build()


def _open(schema: Schema, path: Path | None, create: bool) -> Index:
    from tantivy import Index

    if path is None:
        return Index(schema)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    with CorpusCorruptError.reading(path):
        if not create or (path / _FILE_LIST).exists():
            _check_files(path)
        return Index(schema, path=str(path)) if create else Index.open(str(path))


def _check_files(path: Path) -> None:
    """If tantivy's lists of files are too large, name a segment twice or lead out of the folder, raise `ValueError`.

    When tantivy commits, it deletes the listed files that it no longer needs.
    """
    if any(Path(name).name != name for name in read_json(path / _FILE_LIST, MAX_LIST_BYTES)):
        raise ValueError(f"{_FILE_LIST} names a file outside the folder")
    segments = [segment["segment_id"] for segment in read_json(path / _SEGMENT_LIST, MAX_LIST_BYTES)["segments"]]
    if len(segments) > MAX_SEGMENTS or len(set(segments)) < len(segments):
        raise ValueError(f"{_SEGMENT_LIST} names too many segments, or names a segment twice")


_SMALL_SET = 1_000
"""If a filter admits at most this many texts, only these are searched."""


class Bm25Retriever:
    """A `Retriever` that searches a `Bm25Index`."""

    name = SPARSE

    def __init__(
        self,
        index: Bm25Index,
        matching: Callable[[Where], AbstractSet[str]],
        chunk_of: Mapping[str, str] | None = None,
    ) -> None:
        """Wrap an index.

        Args:
            index: The index.
            matching: A function that returns the indexed ids which a metadata filter admits.
            chunk_of: A mapping from an indexed id to its chunk's id. None means that they are the same.
        """
        self._index, self._matching, self._chunk_of = index, matching, chunk_of

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`."""
        hits = self._index.search(query, k) if where is None else self._search_where(query, k, where)
        if self._chunk_of is None:
            return hits
        with self._index.reading():  # An indexed id without a row is damage.
            return [(self._chunk_of[item], score) for item, score in hits]

    def unknown_share(self, query: str) -> float:
        """See `KnowsWords`. A word has the same weight as in BM25.

        A word in the metadata makes up for an unknown one, because only a search by words finds it. Words that a chunk
        has as one count as known.
        """
        for joined, asked in self._index.joined(query):
            query = query.replace(asked, joined)
        frequencies, in_metadata = self._index.term_frequencies(query)
        rarity = np.log1p((self._index.count() - frequencies + 0.5) / (frequencies + 0.5))
        unknown = rarity[frequencies == 0].sum() - rarity[in_metadata].sum()
        return float(max(unknown, 0.0) / rarity.sum()) if len(rarity) else 0.0

    def _search_where(self, query: str, k: int, where: Where) -> list[tuple[str, float]]:
        allowed = self._matching(where)
        if len(allowed) <= _SMALL_SET:
            return self._index.search(query, k, only=allowed)
        depth = k
        while True:
            hits = self._index.search(query, depth)
            allowed_hits = [hit for hit in hits if hit[0] in allowed]
            if len(allowed_hits) >= k or len(hits) < depth:
                return allowed_hits[:k]
            depth *= 4
