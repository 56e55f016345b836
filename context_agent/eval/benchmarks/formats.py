"""The published formats of public question sets: rows in, documents and questions out.

A function here gets the rows by role and gives a `Pool`. What a row lacks becomes a problem with its line number, and
the rest goes on. Where a set has no corpus but paragraphs beside each question, the paragraphs of all questions of the
split are pooled, each once, under a digest of title and text: titles are no keys.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from context_agent.errors import DataError
from context_agent.eval.benchmarks.sources import Placed, Row, Tables
from context_agent.questions import Question
from context_agent.types import Document, Metadata


@dataclass(frozen=True, slots=True)
class Pool:
    """Documents, each id once, and the questions about them."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


Format = Callable[[Tables], Pool]


def hotpotqa(tables: Tables) -> Pool:
    """HotpotQA and 2WikiMultihopQA: `context` and `supporting_facts` as pairs, or as columns in the hub's edition."""
    pooled: dict[str, Document] = {}

    def question(row: Row) -> Question:
        paragraphs = {title: "".join(sentences) for title, sentences in _pairs(row["context"], "title", "sentences")}
        ids = {title: _pooled(pooled, title, text) for title, text in paragraphs.items()}
        titles = dict.fromkeys(title for title, _ in _pairs(row["supporting_facts"], "title", "sent_id"))
        gold = tuple(ids.get(title, title) for title in titles)
        answer, kind = _text(row.get("answer")), _text(row.get("type"))
        return Question(str(row.get("_id") or row["id"]), row["question"], answer, gold, kind, len(gold))

    questions = tuple(_made(tables, "queries", question))
    return Pool(tuple(pooled.values()), questions)


def musique(tables: Tables) -> Pool:
    """MuSiQue: twenty annotated paragraphs a question; gold in the order of the decomposition."""
    pooled: dict[str, Document] = {}

    def question(row: Row) -> Question:
        ids = {p["idx"]: _pooled(pooled, p["title"], p["paragraph_text"]) for p in row["paragraphs"]}
        steps = [step.get("paragraph_support_idx") for step in row.get("question_decomposition") or ()]
        marked = [p["idx"] for p in row["paragraphs"] if p.get("is_supporting")]
        order = [step for step in steps if step in ids] or marked
        gold = tuple(dict.fromkeys(ids[at] for at in order))
        kind = str(row["id"]).partition("__")[0]
        hops = len(steps) or int(re.match(r"\d*", kind)[0] or 0)  # type: ignore[index]  # it always matches
        return Question(str(row["id"]), row["question"], _text(row.get("answer")), gold, kind, hops)

    questions = tuple(_made(tables, "queries", question))
    return Pool(tuple(pooled.values()), questions)


def multihop_rag(tables: Tables) -> Pool:
    """MultiHop-RAG: news articles by their URL; gold are the articles of the evidence list.

    A null query has no evidence. Its answer says so, and no text does: it gets no answer here, so nothing to score.
    """

    def question(row: Row, number: int) -> Question:
        gold = tuple(dict.fromkeys(str(one["url"]) for one in row["evidence_list"]))
        answer = _text(row.get("answer")) if gold else ""
        return Question(str(number), row["query"], answer, gold, _text(row["question_type"]), len(gold))

    def document(row: Row) -> Document:
        kept = {key: row[key] for key in ("source", "category", "published_at", "author") if row.get(key)}
        return Document(str(row["url"]), row["body"], _text(row.get("title")), kept)

    return Pool(_documents(tables, document), tuple(_numbered(tables, question)))


def frames(tables: Tables) -> Pool:
    """FRAMES: questions with Wikipedia links. The corpus is the user's: its rows' `url` (or `id`, or title) is matched.

    A link that no document answers to stays as gold under its address, for the check of missing gold to find.
    """
    documents = _documents(tables, _plain)
    known: dict[str, str] = {}
    for one in documents:
        for name in (one.title, one.id, str(one.metadata.get("url", ""))):
            if name:
                known[_article(name)] = one.id

    def question(row: Row, number: int) -> Question:
        links = dict.fromkeys(_links(row))
        gold = tuple(dict.fromkeys(known.get(_article(link), link) for link in links))
        kind = _text(row.get("reasoning_types"))
        index = _text(row.get("Unnamed: 0")) or _text(row.get("")) or str(number - 1)
        return Question(index, row["Prompt"], _text(row.get("Answer")), gold, kind, len(gold))

    return Pool(documents, tuple(_numbered(tables, question)))


def browsecomp_plus(tables: Tables) -> Pool:
    """BrowseComp-Plus, decrypted: gold are the evidence documents, those that hold the answer first."""

    def question(row: Row) -> Question:
        if " " not in row["query"].strip():
            raise DataError(
                "browsecomp-plus: the rows are encrypted, as published. Decrypt them with the script "
                "scripts_build_index/decrypt_dataset.py of github.com/texttron/BrowseComp-Plus, and name the folder "
                "with the file it writes: --benchmarks browsecomp-plus=FOLDER"
            )
        named = (*(row.get("gold_docs") or ()), *(row.get("evidence_docs") or ()))
        gold = tuple(dict.fromkeys(str(one["docid"]) for one in named))
        return Question(str(row["query_id"]), row["query"], _text(row.get("answer")), gold)

    def document(row: Row) -> Document:
        return Document(str(row["docid"]), row["text"], "", {"url": row["url"]} if row.get("url") else {})

    questions = tuple(_made(tables, "queries", question))
    return Pool(_documents(tables, document), questions)


def beir(tables: Tables) -> Pool:
    """BEIR: `corpus`, `queries`, and `qrels` of the split; a judgement above 0 is gold, the highest first."""
    judged: dict[str, dict[str, int]] = {}

    def judgement(row: Row) -> None:
        if (score := int(float(row["score"]))) > 0:
            judged.setdefault(str(row["query-id"]), {})[str(row["corpus-id"])] = score

    for _ in _made(tables, "qrels", judgement):
        pass

    def question(row: Row) -> Question:
        mine = judged.get(str(row["_id"]), {})
        return Question(str(row["_id"]), row["text"], gold=tuple(sorted(mine, key=lambda one: (-mine[one], one))))

    asked = tuple(one for one in _made(tables, "queries", question) if one.gold)
    return Pool(_documents(tables, _plain), asked)


def _plain(row: Row) -> Document:
    identifier = row.get("_id", row.get("id"))
    metadata: Metadata = {"url": row["url"]} if row.get("url") else {}
    return Document(
        str(row["url"] if identifier is None else identifier), row["text"], _text(row.get("title")), metadata
    )


def _documents(tables: Tables, make: Callable[[Row], Document]) -> tuple[Document, ...]:
    """The corpus, a document each id: a later one of the same id is a problem."""
    found: dict[str, Document] = {}
    for place, one in _placed(tables, "corpus", lambda row, _: make(row)):
        if one.id in found:
            tables.problems.append(f"{place}: id {one.id!r} names another document already")
        else:
            found[one.id] = one
    return tuple(found.values())


def _made(tables: Tables, role: str, make: Callable[[Row], Any]) -> Iterator[Any]:
    return (one for _, one in _placed(tables, role, lambda row, _: make(row)))


def _numbered(tables: Tables, make: Callable[[Row, int], Question]) -> Iterator[Question]:
    """Questions of a set without ids, which are numbered from 1 in its order."""
    return (one for _, one in _placed(tables, "queries", make))


def _placed(tables: Tables, role: str, make: Callable[[Row, int], Any]) -> Iterator[tuple[str, Any]]:
    """What the rows of a role are made into; a row without the fields of its format becomes a problem."""
    rows: Iterable[Placed] = tables.rows(role)
    for number, (place, row) in enumerate(rows, 1):
        try:
            made = make(row, number)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error) or "no id"
            tables.problems.append(f"{place}: not a row of {tables.name}: {reason}")
            continue
        if isinstance(made, Question) and not str(made.question or "").strip():
            tables.problems.append(f"{place}: the question is empty")
            continue
        yield place, made


def _pooled(pooled: dict[str, Document], title: str, text: str) -> str:
    """The id of a paragraph, which is then among the `pooled` unless it has no text."""
    identifier = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16]
    if text.strip():
        pooled.setdefault(identifier, Document(identifier, text, title))
    return identifier


def _pairs(value: Any, first: str, second: str) -> Sequence[tuple[Any, Any]]:
    """`[[a, b], …]` as published, or the hub's `{first: [a, …], second: [b, …]}`."""
    if isinstance(value, Mapping):
        return list(zip(value[first], value[second], strict=True))
    return [(one[0], one[1]) for one in value]


def _links(row: Row) -> Iterator[str]:
    """The Wikipedia addresses of a FRAMES row: `wiki_links` is the text of a Python list; else a column a link."""
    whole = row.get("wiki_links")
    if isinstance(whole, str) and whole.strip().startswith("["):
        whole = ast.literal_eval(whole)
    cells = whole if isinstance(whole, list) else [row[key] for key in row if str(key).startswith("wikipedia_link")]
    for cell in cells:
        yield from (link.strip(" ,") for link in re.split(r"[\s,]+(?=https?://)", _text(cell)) if link.strip(" ,"))


def _article(name: str) -> str:
    """What a link, an id or a title has in common: the article's name, folded."""
    parts = urlsplit(name.strip())
    path = parts.path.rpartition("/wiki/")[2] if parts.netloc else name
    return unquote(path).replace("_", " ").strip().casefold()


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)  # noqa: PLR0124 - NaN stands for nothing in a table
