"""The published formats of public question sets: rows in, documents and questions out.

Each format is a function from the rows by role to a `BenchmarkContent`. A row that lacks a field is skipped, and
reported with its line number. If a set has no corpus but paragraphs for each question, the paragraphs of all questions
of the split are pooled. Each paragraph appears once; its id is a digest of title and text, because titles are not
unique.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from context_agent._support.question_files import Question
from context_agent.errors import DataError
from context_agent.eval.benchmarks.sources import LocatedRow, SourceRow, SourceTables
from context_agent.types import Document, Metadata


@dataclass(frozen=True, slots=True)
class BenchmarkContent:
    """Documents with unique ids, and the questions about them."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


Format = Callable[[SourceTables], BenchmarkContent]


def hotpotqa(tables: SourceTables) -> BenchmarkContent:
    """HotpotQA and 2WikiMultihopQA: `context` and `supporting_facts` are pairs, or columns in the hub's edition."""
    pooled: dict[str, Document] = {}

    def question(row: SourceRow) -> Question:
        paragraphs = {title: "".join(sentences) for title, sentences in _pairs(row["context"], "title", "sentences")}
        ids = {title: _pooled(pooled, title, text) for title, text in paragraphs.items()}
        titles = dict.fromkeys(title for title, _ in _pairs(row["supporting_facts"], "title", "sent_id"))
        gold = tuple(ids.get(title, title) for title in titles)
        answer, kind = _text(row.get("answer")), _text(row.get("type"))
        return Question(str(row.get("_id") or row["id"]), row["question"], answer, gold, kind, len(gold))

    questions = tuple(_converted(tables, "queries", question))
    return BenchmarkContent(tuple(pooled.values()), questions)


def musique(tables: SourceTables) -> BenchmarkContent:
    """MuSiQue: twenty annotated paragraphs per question; gold in the order of the decomposition."""
    pooled: dict[str, Document] = {}

    def question(row: SourceRow) -> Question:
        ids = {p["idx"]: _pooled(pooled, p["title"], p["paragraph_text"]) for p in row["paragraphs"]}
        steps = [step.get("paragraph_support_idx") for step in row.get("question_decomposition") or ()]
        marked = [p["idx"] for p in row["paragraphs"] if p.get("is_supporting")]
        order = [step for step in steps if step in ids] or marked
        gold = tuple(dict.fromkeys(ids[index] for index in order))
        kind = str(row["id"]).partition("__")[0]
        hops = len(steps) or int(re.match(r"\d*", kind)[0] or 0)  # type: ignore[index]  # it always matches
        return Question(str(row["id"]), row["question"], _text(row.get("answer")), gold, kind, hops)

    questions = tuple(_converted(tables, "queries", question))
    return BenchmarkContent(tuple(pooled.values()), questions)


def multihop_rag(tables: SourceTables) -> BenchmarkContent:
    """MultiHop-RAG: news articles by URL; gold are the articles of the evidence list.

    A null query has no evidence, and its answer ("insufficient information") appears in no text. It therefore gets no
    answer here and cannot be scored.
    """

    def question(row: SourceRow, number: int) -> Question:
        gold = tuple(dict.fromkeys(str(evidence["url"]) for evidence in row["evidence_list"]))
        answer = _text(row.get("answer")) if gold else ""
        return Question(str(number), row["query"], answer, gold, _text(row["question_type"]), len(gold))

    def document(row: SourceRow) -> Document:
        metadata = {key: row[key] for key in ("source", "category", "published_at", "author") if row.get(key)}
        return Document(str(row["url"]), row["body"], _text(row.get("title")), metadata)

    return BenchmarkContent(_documents(tables, document), tuple(_numbered(tables, question)))


def frames(tables: SourceTables) -> BenchmarkContent:
    """FRAMES: questions with Wikipedia links. The user provides the corpus; links are matched by `url`, `id` or title.

    A link without a document stays in the gold as its address, so that the check for missing gold reports it.
    """
    documents = _documents(tables, _plain)
    id_of_article: dict[str, str] = {}
    for document in documents:
        for name in (document.title, document.id, str(document.metadata.get("url", ""))):
            if name:
                id_of_article[_article(name)] = document.id

    def question(row: SourceRow, number: int) -> Question:
        links = dict.fromkeys(_links(row))
        gold = tuple(dict.fromkeys(id_of_article.get(_article(link), link) for link in links))
        kind = _text(row.get("reasoning_types"))
        index = _text(row.get("Unnamed: 0")) or _text(row.get("")) or str(number - 1)
        return Question(index, row["Prompt"], _text(row.get("Answer")), gold, kind, len(gold))

    return BenchmarkContent(documents, tuple(_numbered(tables, question)))


def browsecomp_plus(tables: SourceTables) -> BenchmarkContent:
    """BrowseComp-Plus, decrypted: gold are the evidence documents, those that contain the answer first."""

    def question(row: SourceRow) -> Question:
        if " " not in row["query"].strip():
            raise DataError(
                "browsecomp-plus: the rows are published encrypted. Decrypt them with the script "
                "scripts_build_index/decrypt_dataset.py of github.com/texttron/BrowseComp-Plus, and pass the folder "
                "with its output: --benchmarks browsecomp-plus=FOLDER"
            )
        documents = (*(row.get("gold_docs") or ()), *(row.get("evidence_docs") or ()))
        gold = tuple(dict.fromkeys(str(document["docid"]) for document in documents))
        return Question(str(row["query_id"]), row["query"], _text(row.get("answer")), gold)

    def document(row: SourceRow) -> Document:
        return Document(str(row["docid"]), row["text"], "", {"url": row["url"]} if row.get("url") else {})

    questions = tuple(_converted(tables, "queries", question))
    return BenchmarkContent(_documents(tables, document), questions)


def beir(tables: SourceTables) -> BenchmarkContent:
    """BEIR: `corpus`, `queries`, and `qrels` of the split; judgements above 0 are gold, the highest first."""
    judgements: dict[str, dict[str, int]] = {}

    def judgement(row: SourceRow) -> None:
        if (score := int(float(row["score"]))) > 0:
            judgements.setdefault(str(row["query-id"]), {})[str(row["corpus-id"])] = score

    for _ in _converted(tables, "qrels", judgement):
        pass

    def question(row: SourceRow) -> Question:
        scores = judgements.get(str(row["_id"]), {})
        return Question(
            str(row["_id"]), row["text"], gold=tuple(sorted(scores, key=lambda gold_id: (-scores[gold_id], gold_id)))
        )

    questions = tuple(converted for converted in _converted(tables, "queries", question) if converted.gold)
    return BenchmarkContent(_documents(tables, _plain), questions)


def _plain(row: SourceRow) -> Document:
    identifier = row.get("_id", row.get("id"))
    metadata: Metadata = {"url": row["url"]} if row.get("url") else {}
    return Document(
        str(row["url"] if identifier is None else identifier), row["text"], _text(row.get("title")), metadata
    )


def _documents(tables: SourceTables, make: Callable[[SourceRow], Document]) -> tuple[Document, ...]:
    """The corpus with unique ids: a second document with the same id becomes a problem."""
    documents: dict[str, Document] = {}
    for location, document in _located(tables, "corpus", lambda row, _: make(row)):
        if document.id in documents:
            tables.problems.append(f"{location}: an earlier document already has the id {document.id!r}")
        else:
            documents[document.id] = document
    return tuple(documents.values())


def _converted(tables: SourceTables, role: str, make: Callable[[SourceRow], Any]) -> Iterator[Any]:
    return (value for _, value in _located(tables, role, lambda row, _: make(row)))


def _numbered(tables: SourceTables, make: Callable[[SourceRow, int], Question]) -> Iterator[Question]:
    """Questions of a set without ids, numbered from 1 in its order."""
    return (question for _, question in _located(tables, "queries", make))


def _located(tables: SourceTables, role: str, make: Callable[[SourceRow, int], Any]) -> Iterator[tuple[str, Any]]:
    """The converted rows of a role with their locations; a row without the fields of its format becomes a problem."""
    rows: Iterable[LocatedRow] = tables.rows(role)
    for number, (location, row) in enumerate(rows, 1):
        try:
            value = make(row, number)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error) or "no id"
            tables.problems.append(f"{location}: not a row of {tables.name}: {reason}")
            continue
        if isinstance(value, Question) and not str(value.question or "").strip():
            tables.problems.append(f"{location}: the question is empty")
            continue
        yield location, value


def _pooled(pooled: dict[str, Document], title: str, text: str) -> str:
    """The id of a paragraph; adds the paragraph to `pooled` unless it has no text."""
    identifier = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16]
    if text.strip():
        pooled.setdefault(identifier, Document(identifier, text, title))
    return identifier


def _pairs(value: Any, first: str, second: str) -> Sequence[tuple[Any, Any]]:
    """The pairs of `[[a, b], …]` as published, or of the hub's `{first: [a, …], second: [b, …]}`."""
    if isinstance(value, Mapping):
        return list(zip(value[first], value[second], strict=True))
    return [(pair[0], pair[1]) for pair in value]


def _links(row: SourceRow) -> Iterator[str]:
    """The Wikipedia links of a FRAMES row: `wiki_links` is a Python list as text; without it, one column per link."""
    links = row.get("wiki_links")
    if isinstance(links, str) and links.strip().startswith("["):
        links = ast.literal_eval(links)
    cells = links if isinstance(links, list) else [row[key] for key in row if str(key).startswith("wikipedia_link")]
    for cell in cells:
        yield from (link.strip(" ,") for link in re.split(r"[\s,]+(?=https?://)", _text(cell)) if link.strip(" ,"))


def _article(name: str) -> str:
    """The casefolded article name that a link, an id and a title share."""
    parts = urlsplit(name.strip())
    path = parts.path.rpartition("/wiki/")[2] if parts.netloc else name
    return unquote(path).replace("_", " ").strip().casefold()


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)  # noqa: PLR0124 - NaN is a missing value in a table
