"""Questions about technical documents, made by templates from their cross-references, or read from a file.

A template never names the document that a question is about. It describes the document by its summary. The gold
documents of a question are those that its wording was made from.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from technical_documents import Page, Reference

WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
_UNCLEAR = re.compile(r"[{}=<>|\\`]|\b(?:[Ss]ee|below|above|this (?:page|section|document)|following|RFC ?\d)\b")
_VERSION = re.compile(r"New in version (3\.\d+)\.")
_LINUX = re.compile(
    r"(?:system call|syscall|function|call)s? (?:first appeared|was added|were added|appeared)[^.]{0,40}?"
    r" in Linux (\d\.\d+\.?\d*)"
)
_PUBLISHED = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December) ((?:19|20)\d\d)\b"
)
_ERROR = re.compile(r"\n\n(E[A-Z0-9]{3,})  ((?:[^.\n]|\.\S){30,220}\.)")
_VERBS = frozenset(
    "abort accept add adjust allocate append apply attach bind calculate cancel cause change check clear close"
    " compare compute connect control convert copy create decode define delete destroy determine disable duplicate"
    " enable encode enforce examine execute extract fill find flush format free generate get give initialize insert"
    " install issue join kill list load lock make map modify move obtain open parse perform put query queue raise"
    " read receive register release remove rename replace request reset restore resume retrieve return run schedule"
    " search send set shut sort split start stop store suspend synchronize terminate test transfer truncate unlock"
    " unmap update verify wait write".split()
)
"""The first words of summaries that say what their subject does."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its answer, the ids of the documents that answer it in the order of hops, and its type."""

    question: str
    answer: str
    gold: tuple[str, ...]
    type: str

    def row(self, number: str) -> dict[str, object]:
        """Return the question as a row of `queries.*.jsonl`."""
        return {
            "id": number,
            "question": self.question,
            "answer": self.answer,
            "gold": list(self.gold),
            "type": self.type,
            "hops": len(self.gold),
        }


@dataclass(frozen=True, slots=True)
class Wording:
    """The words with which the templates of a set describe a document.

    Attributes:
        unit: The kind of document.
        action: The words before a summary that begins with a verb, such as "create a pipe".
        topic: The words before any other summary. If it is empty, documents with such a summary are not described.
    """

    unit: str
    action: str
    topic: str = ""


def written_questions(file: Path, name: str, split: str, pages: Mapping[str, Page]) -> tuple[list[Item], list[str]]:
    """Return the written questions of a set and split, and the problems of those that are left out.

    Each gold document is stored with words that answer the question. If the document no longer exists in this version
    of its package, or no longer has the words, the question is left out.
    """
    items, problems = [], []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if (row["set"], row["split"]) == (name, split):
            missing = [gold for gold, words in row["evidence"].items() if not _holds(pages.get(gold), words)]
            if missing:
                problems.append(f"{', '.join(missing)}: evidence changed: {row['question']}")
            else:
                items.append(Item(row["question"], row["answer"], tuple(row["evidence"]), row["type"]))
    return items, problems


def _holds(page: Page | None, words: str) -> bool:
    return page is not None and " ".join(words.split()) in " ".join(page.text.split())


def template_questions(
    pages: Sequence[Page], wording: Wording, *, limit: int, without: Collection[str], seed: str
) -> list[Item]:
    """Return at most `limit` questions. The kinds alternate.

    Each document is used once. Documents in `without` are not used.
    """
    randomness = random.Random(seed)
    kinds = [
        _shuffled(kind, randomness) for kind in (_bridges(pages, wording), _errors(pages), _earlier(pages, wording))
    ]
    items: list[Item] = []
    used = set(without)
    while len(items) < limit and any(kinds):
        for kind in filter(None, kinds):
            while kind and used & set(kind[-1].gold):
                kind.pop()
            if kind:
                items.append(kind.pop())
                used.update(items[-1].gold)
    return items[:limit]


def _shuffled(items: Iterable[Item], randomness: random.Random) -> list[Item]:
    ordered = sorted(items, key=lambda item: item.question)
    randomness.shuffle(ordered)
    return ordered


def description(page: Page, wording: Wording) -> str:
    """Return a description of the document that does not name it. If its summary names it, return an empty string.

    If the summary is too short, too long or unclear, return an empty string too.
    """
    summary = re.sub(r"\s*\([^()]*\)", "", page.summary.rpartition(" — ")[2]).strip(" .:")
    names = {word.lower() for word in WORD.findall(page.title)}
    if not 3 <= len(summary.split()) <= 20 or _UNCLEAR.search(summary) or _contains_name(summary, names):
        return ""
    if summary.split()[0].lower() in _VERBS:
        return f"{wording.action} {_uncapitalized(summary)}"
    return wording.topic and f"{wording.topic} {summary}"


def _contains_name(text: str, names: Collection[str]) -> bool:
    return any(word.lower() in names for word in WORD.findall(text))


def _uncapitalized(text: str) -> str:
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _bridges(pages: Sequence[Page], wording: Wording) -> Iterator[Item]:
    """Yield questions for the document that makes a statement about another document, which is described."""
    by_id = {page.id: page for page in pages}
    for page in pages:
        counts = Counter(reference.sentence for reference in page.references)
        for reference in page.references:
            target = by_id[reference.target]
            described = description(target, wording)
            is_meant = wording.topic or _contains_name(target.title, set(map(str.lower, WORD.findall(reference.words))))
            if described and is_meant and counts[reference.sentence] == 1 and _is_clear(reference, page):
                claim = reference.sentence.replace(reference.words, described).strip(" .")
                claim = re.sub(r"\b(?:the|a|an) (?=the )", "", claim, flags=re.I)
                question = f"Which {wording.unit} says that {_uncapitalized(claim)}?"
                yield Item(question, page.title, (page.id, reference.target), "bridge")


def _is_clear(reference: Reference, page: Page) -> bool:
    """Return True if the sentence is a plain statement that can be understood alone, and does not name its own
    document.
    """
    sentence = reference.sentence
    names = {word.lower() for word in WORD.findall(page.title)}
    rest = sentence.replace(reference.words, "")
    return (
        10 <= len(sentence.split()) <= 35
        and sentence.endswith(".")
        and len(re.findall(re.escape(reference.words), sentence)) == 1
        and re.match(
            r"(?:The|An?|If|When|In|On|By|Each|All|Unlike|For|Since|Because|To|You|Any|Some|Only|Before|After|While|No|Every)\b",
            sentence,
        )
        is not None
        and not _UNCLEAR.search(rest)
        and not _contains_name(rest, names)
    )


def _errors(pages: Sequence[Page]) -> Iterator[Item]:
    """Yield questions for the call that reports an error under a condition which only one page states."""
    conditions: dict[tuple[str, str], list[Page]] = {}
    for page in pages:
        for error, condition in _ERROR.findall(page.text):
            conditions.setdefault((error, " ".join(condition.split())), []).append(page)
    for (error, condition), (page, *further) in conditions.items():
        names = {word.lower() for word in WORD.findall(page.title)}
        if (
            not further
            and len(condition.split()) >= 16
            and not _UNCLEAR.search(condition)
            and not _contains_name(condition, names)
        ):
            question = f"Which call fails with {error} if {_uncapitalized(condition.rstrip('.'))}?"
            yield Item(question, page.title, (page.id,), "error")


def _earlier(pages: Sequence[Page], wording: Wording) -> Iterator[Item]:
    """Yield questions for the older of two subjects, by the only version or year that each document states."""
    dated = [(date, page) for page in pages if (date := _date(page)) and description(page, wording)]
    random.Random(len(dated)).shuffle(dated)
    for (date, page), (second_date, second_page) in zip(dated[::2], dated[1::2], strict=False):
        if date != second_date:
            first, second = description(page, wording), description(second_page, wording)
            older = page if date < second_date else second_page
            question = f"Which is older: {first}, or {second}?"
            yield Item(question, older.title, (page.id, second_page.id), "comparison")


def _date(page: Page) -> tuple[int, ...]:
    """Return the version or year from which the document dates its subject.

    If it states none, or several, return an empty tuple.
    """
    stated = _VERSION.findall(page.text) or _LINUX.findall(page.text)
    if page.id.endswith("#front"):
        stated = _PUBLISHED.findall(page.text)[:1]
    return tuple(int(part) for part in stated[0].strip(".").split(".")) if len(stated) == 1 else ()


def copied_share(question: str, texts: Iterable[str]) -> float:
    """Return the share of the question's different words of four or more letters that its gold documents contain."""
    words = {word.lower() for word in WORD.findall(question) if len(word) >= 4}
    gold_words = {word.lower() for text in texts for word in WORD.findall(text)}
    return len(words & gold_words) / len(words) if words else 0.0
