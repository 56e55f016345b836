"""The published formats of public question sets, as functions from rows to documents and questions.

Each format is a function from the rows, by role, to a `BenchmarkContent`. Some sets have no corpus, but paragraphs for
each question. For these, the paragraphs of all questions of the split are pooled. Each paragraph appears once. Its id
is a digest of title and text, because titles are not unique.

A row that lacks a field is skipped. The reason is added to `problems` with the line number.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from context_agent.errors import DataError
from context_agent.eval.benchmarks.source_tables import (
    DOCUMENT_IDS,
    DOCUMENT_TEXTS,
    QUERY_IDS,
    QUERY_TEXTS,
    LocatedRow,
    SourceRow,
    SourceTables,
)
from context_agent.retrieval.loaders.reading import storable
from context_agent.types import Document, Metadata, Question


@dataclass(frozen=True, slots=True)
class BenchmarkContent:
    """The documents of a benchmark, which have unique ids, and the questions about them."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


Format = Callable[[SourceTables], BenchmarkContent]


def hotpotqa(tables: SourceTables) -> BenchmarkContent:
    """Read the format of HotpotQA and 2WikiMultihopQA.

    In the published files, `context` and `supporting_facts` are lists of pairs. In the dataset repository, they are
    columns. If several paragraphs of a question have the same title, the first one is its gold.
    """
    pooled: dict[str, Document] = {}

    def question(row: SourceRow) -> Question:
        ids: dict[str, str] = {}
        for title, sentences in _pairs(row["context"], "title", "sentences"):
            ids.setdefault(title, _pooled(pooled, title, _joined(sentences)))
        titles = dict.fromkeys(title for title, _ in _pairs(row["supporting_facts"], "title", "sent_id"))
        gold = tuple(ids.get(title, str(title)) for title in titles)
        answer, kind = text_of(row.get("answer")), text_of(row.get("type"))
        return Question(str(row.get("_id") or row["id"]), row["question"], answer, gold, kind, len(gold))

    questions = tuple(converted(tables, "queries", question))
    return BenchmarkContent(tuple(pooled.values()), questions)


def musique(tables: SourceTables) -> BenchmarkContent:
    """Read the format of MuSiQue, which has twenty annotated paragraphs for each question.

    The gold documents are in the order of the question's decomposition.
    """
    pooled: dict[str, Document] = {}

    def question(row: SourceRow) -> Question:
        ids = {p["idx"]: _pooled(pooled, p["title"], p["paragraph_text"]) for p in row["paragraphs"]}
        steps = [step.get("paragraph_support_idx") for step in row.get("question_decomposition") or ()]
        marked = [p["idx"] for p in row["paragraphs"] if p.get("is_supporting")]
        order = [step for step in steps if step in ids] or marked
        gold = tuple(dict.fromkeys(ids[index] for index in order))
        kind = str(row["id"]).partition("__")[0]
        hops = len(steps) or int(re.match(r"\d*", kind)[0] or 0)  # type: ignore[index]  # it always matches
        return Question(str(row["id"]), row["question"], text_of(row.get("answer")), gold, kind, hops)

    questions = tuple(converted(tables, "queries", question))
    return BenchmarkContent(tuple(pooled.values()), questions)


def multihop_rag(tables: SourceTables) -> BenchmarkContent:
    """Read the format of MultiHop-RAG. Each news article is a document, and its id is its URL.

    The gold documents are the articles of the evidence list. A null query has no evidence, and its answer
    ("insufficient information") appears in no text. Its answer is left out, so that it is not scored.
    """

    def question(row: SourceRow, number: int) -> Question:
        gold = tuple(dict.fromkeys(str(evidence["url"]) for evidence in row["evidence_list"]))
        answer = text_of(row.get("answer")) if gold else ""
        return Question(str(number), row["query"], answer, gold, text_of(row["question_type"]), len(gold))

    def document(row: SourceRow) -> Document:
        metadata = {key: row[key] for key in ("source", "category", "published_at", "author") if row.get(key)}
        return Document(str(row["url"]), row["body"], text_of(row.get("title")), metadata)

    return BenchmarkContent(_documents(tables, document), tuple(_numbered(tables, question)))


def frames(tables: SourceTables) -> BenchmarkContent:
    """Read the format of FRAMES, whose questions have links to Wikipedia. The user provides the articles.

    A link is matched with an article by `url`, `id` or title. If no article matches, the link stays in the gold as its
    address. The check for missing gold then reports it.
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
        kind = text_of(row.get("reasoning_types"))
        index = text_of(row.get("Unnamed: 0")) or text_of(row.get("")) or str(number - 1)
        return Question(index, row["Prompt"], text_of(row.get("Answer")), gold, kind, len(gold))

    return BenchmarkContent(documents, tuple(_numbered(tables, question)))


def browsecomp_plus(tables: SourceTables) -> BenchmarkContent:
    """Read the format of BrowseComp-Plus, decrypted.

    The gold documents are the evidence documents. Those that contain the answer come first.
    """

    def question(row: SourceRow) -> Question:
        if " " not in row["query"].strip():
            raise DataError(
                "the rows of browsecomp-plus are published encrypted. Decrypt them with "
                "scripts_build_index/decrypt_dataset.py of github.com/texttron/BrowseComp-Plus, and pass the folder "
                "with its output: --benchmarks browsecomp-plus=FOLDER."
            )
        documents = (*(row.get("gold_docs") or ()), *(row.get("evidence_docs") or ()))
        gold = tuple(dict.fromkeys(str(document["docid"]) for document in documents))
        return Question(str(row["query_id"]), row["query"], text_of(row.get("answer")), gold)

    def document(row: SourceRow) -> Document:
        return Document(str(row["docid"]), row["text"], "", {"url": row["url"]} if row.get("url") else {})

    questions = tuple(converted(tables, "queries", question))
    return BenchmarkContent(_documents(tables, document), questions)


def beir(tables: SourceTables) -> BenchmarkContent:
    """Read the format of BEIR: `corpus`, `queries`, and the `qrels` of the split.

    The gold documents are those with a judgment above 0, the highest first.
    """
    judgments: dict[str, dict[str, float]] = {}

    def judgment(row: SourceRow) -> None:
        score = float(row["score"])
        if not math.isfinite(score):
            raise ValueError(f"a score must be a finite number; got {score}")
        if score > 0:
            judgments.setdefault(str(row["query-id"]), {})[str(row["corpus-id"])] = score

    for _ in converted(tables, "qrels", judgment):
        pass

    def question(row: SourceRow) -> Question:
        identifier, text = str(_first_of(row, QUERY_IDS)), _first_of(row, QUERY_TEXTS)
        scores = judgments.get(identifier, {})
        return Question(identifier, text, gold=tuple(sorted(scores, key=lambda gold_id: (-scores[gold_id], gold_id))))

    questions = tuple(converted for converted in converted(tables, "queries", question) if converted.gold)
    return BenchmarkContent(_documents(tables, _plain), questions)


_SPEAKER = re.compile(r"^\|\w+\|:[ \t]*", re.MULTILINE)


def mtrag(tables: SourceTables) -> BenchmarkContent:
    """Read the format of MTRAG, which is that of BEIR with one difference.

    Each line of a query starts with its speaker, as in `|user|: `.
    """
    content = beir(tables)
    questions = (replace(question, question=_SPEAKER.sub("", question.question)) for question in content.questions)
    return replace(content, questions=tuple(questions))


def bright(tables: SourceTables) -> BenchmarkContent:
    """Read the format of BRIGHT: the `documents` and the `examples` of a domain.

    The documents that an example lists in `excluded_ids` are not left out of the ranking.
    """

    def question(row: SourceRow) -> Question:
        gold = tuple(dict.fromkeys(map(str, row["gold_ids"])))
        return Question(str(row["id"]), row["query"], gold=gold, hops=len(gold))

    def document(row: SourceRow) -> Document:
        return Document(str(row["id"]), row["content"])

    questions = tuple(converted(tables, "queries", question))
    return BenchmarkContent(_documents(tables, document), questions)


def _plain(row: SourceRow) -> Document:
    metadata: Metadata = {"url": row["url"]} if row.get("url") else {}
    identifier, text = str(_first_of(row, DOCUMENT_IDS)), _first_of(row, DOCUMENT_TEXTS)
    return Document(identifier, text, text_of(row.get("title")), metadata)


def _first_of(row: SourceRow, names: Sequence[str]) -> Any:
    """Return the value of the first of these fields that the row has."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise ValueError(f"the row has no field {', '.join(names[:-1])} or {names[-1]}")


def _documents(tables: SourceTables, make: Callable[[SourceRow], Document]) -> tuple[Document, ...]:
    """Return the corpus with unique ids. A second document with the same id becomes a problem."""
    documents: dict[str, Document] = {}
    for location, document in _located(tables, "corpus", lambda row, _: make(row)):
        if document.id in documents:
            tables.problems.append(f"{location}: an earlier document already has the id {document.id!r}")
        else:
            documents[document.id] = document
    return tuple(documents.values())


def converted(tables: SourceTables, role: str, make: Callable[[SourceRow], Any]) -> Iterator[Any]:
    """Yield the rows of a role as `make` converts them. A row without the fields of its format becomes a problem."""
    return (value for _, value in _located(tables, role, lambda row, _: make(row)))


def _numbered(tables: SourceTables, make: Callable[[SourceRow, int], Question]) -> Iterator[Question]:
    """Yield the questions of a set without ids, numbered from 1 in its order."""
    return (question for _, question in _located(tables, "queries", make))


def _located(tables: SourceTables, role: str, make: Callable[[SourceRow, int], Any]) -> Iterator[tuple[str, Any]]:
    """Yield the converted rows of a role with their locations.

    A row without the fields of its format becomes a problem.
    """
    rows: Iterable[LocatedRow] = tables.rows(role)
    question_ids: set[str] = set()
    for number, (location, row) in enumerate(rows, 1):
        try:
            value = make(row, number)
        except (KeyError, TypeError, ValueError, AttributeError, LookupError, StopIteration, OverflowError) as error:
            reason = (
                f"the row has no field {error}" if isinstance(error, KeyError) else str(error) or "the row has no id"
            )
            tables.problems.append(f"{location}: the row does not fit {tables.name} ({reason})")
            continue
        if problem := _unreadable(value):
            tables.problems.append(f"{location}: {problem}")
            continue
        if isinstance(value, Question):
            if value.id in question_ids:
                tables.problems.append(f"{location}: an earlier question already has the id {value.id!r}")
                continue
            question_ids.add(value.id)
        yield location, value


def _unreadable(value: object) -> str:
    """Return why a converted row cannot be used. If it can be used, return "".

    The question may be empty, a text may have another type, or the id may have a character that no database accepts.
    """
    if isinstance(value, Document) and storable(value.id) != value.id:
        return f"the id {value.id!r} has a character that cannot be stored"
    text: object = value.question if isinstance(value, Question) else "-"
    if text is None or (isinstance(text, str) and not text.strip()):
        return "the question is empty"
    if not isinstance(text, str):
        return "the question is not a text"
    content: object = value.text if isinstance(value, Document) else ""
    return "" if isinstance(content, str) else "the document is not a text"


def _pooled(pooled: dict[str, Document], title: str, text: str) -> str:
    """Return the id of a paragraph. Unless the paragraph has no text, add it to `pooled`."""
    identifier = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16]
    if text.strip():
        pooled.setdefault(identifier, Document(identifier, text, title))
    return identifier


def _joined(sentences: Iterable[str]) -> str:
    """Return the text of a paragraph. The sentences of HotpotQA begin with a space, and those of 2Wiki do not."""
    text = ""
    for sentence in sentences:
        is_apart = not text or not sentence or text[-1].isspace() or sentence[0].isspace()
        text += sentence if is_apart else f" {sentence}"
    return text


def _pairs(value: Any, first: str, second: str) -> Sequence[tuple[Any, Any]]:
    """Return pairs from a published value.

    It is `[[a, b], …]`, or `{first: [a, …], second: [b, …]}` as in the dataset repository.
    """
    if isinstance(value, Mapping):
        return list(zip(value[first], value[second], strict=True))
    return [(pair[0], pair[1]) for pair in value]


def _links(row: SourceRow) -> Iterator[str]:
    """Yield the Wikipedia links of a FRAMES row.

    `wiki_links` is a Python list as text. Without it, each link has a column.
    """
    links = row.get("wiki_links")
    if isinstance(links, str) and links.strip().startswith("["):
        try:
            links = ast.literal_eval(links)
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"wiki_links is not a list ({error})") from None
    cells = links if isinstance(links, list) else [row[key] for key in row if str(key).startswith("wikipedia_link")]
    for cell in cells:
        yield from (
            link.strip(" ,") for link in re.split(r"(?<![\s,])[\s,]++(?=https?://)", text_of(cell)) if link.strip(" ,")
        )


def _article(name: str) -> str:
    """Return the casefolded article name, which is the same for a link, an id and a title."""
    parts = urlsplit(name.strip())
    path = parts.path.rpartition("/wiki/")[2] if parts.netloc else name
    return unquote(path).replace("_", " ").strip().casefold()


def text_of(value: object) -> str:
    """Return a field as text. For a missing value, return an empty string."""
    return "" if value is None or value != value else str(value)  # noqa: PLR0124 - NaN is a missing value in a table
