"""The published formats of question sets about conversations: LoCoMo, LongMemEval and QMSum.

A row contains one or more whole conversations, and the questions about them. The conversations of all rows are pooled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from context_agent.eval.benchmarks.formats import BenchmarkContent, converted, text_of
from context_agent.eval.benchmarks.source_tables import SourceRow, SourceTables
from context_agent.types import Document, Question

WINDOW_WORDS = 150
"""Minimum number of words of a window, in which consecutive turns of a meeting make one document."""
ADVERSARIAL = 5
"""LoCoMo's category of questions that the conversation does not answer."""
_EVIDENCE = re.compile(r"D:?(\d+):0*(\d+)")
_SESSION = re.compile(r"session_(\d+)")


def locomo(tables: SourceTables) -> BenchmarkContent:
    """Read the format of LoCoMo. Each turn is a document, titled by the date of its session.

    The gold documents are the turns of the evidence. The text of a turn includes the caption of its picture. An
    adversarial question has neither gold nor an answer.
    """

    def sample(row: SourceRow) -> tuple[list[Document], list[Question]]:
        name, conversation = str(row["sample_id"]), row["conversation"]
        documents = [
            Document(f"{name}/{turn['dia_id']}", _spoken(turn), f"Session {number}, {date}".removesuffix(", "))
            for number, date, turns in _sessions(conversation)
            for turn in turns
        ]
        return documents, [_locomo_question(name, number, item) for number, item in enumerate(row["qa"], 1)]

    return _pooled_rows(converted(tables, "queries", sample))


def _sessions(conversation: Mapping[str, object]) -> Iterator[tuple[str, str, Sequence[Mapping[str, str]]]]:
    """Yield the number, the date and the turns of each session."""
    for key, turns in conversation.items():
        if (match := _SESSION.fullmatch(key)) and isinstance(turns, list):
            yield match[1], text_of(conversation.get(f"{key}_date_time")), turns


def _spoken(turn: Mapping[str, str]) -> str:
    caption = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{caption}"


def _locomo_question(name: str, number: int, item: Mapping[str, object]) -> Question:
    category = item.get("category")
    text, identifier = _asked(item["question"]), f"{name}-{number}"
    if category == ADVERSARIAL:
        return Question(identifier, text, type=str(category))
    evidence = item.get("evidence") or ()
    found = _EVIDENCE.findall(" ".join(map(str, evidence)) if isinstance(evidence, list) else str(evidence))
    gold = tuple(dict.fromkeys(f"{name}/D{session}:{turn}" for session, turn in found))
    return Question(identifier, text, text_of(item.get("answer")), gold, text_of(category), len(gold))


def longmemeval(tables: SourceTables) -> BenchmarkContent:
    """Read the format of LongMemEval. Each session is a document, titled by its date.

    The gold documents are the sessions with the answer. If the sessions do not answer a question, its id ends with
    `_abs`. Such a question gets neither gold nor an answer.
    """

    def row_content(row: SourceRow) -> tuple[list[Document], list[Question]]:
        ids, dates, sessions = row["haystack_session_ids"], row["haystack_dates"], row["haystack_sessions"]
        documents = [
            Document(str(name), "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns), text_of(date))
            for name, date, turns in zip(ids, dates, sessions, strict=True)
        ]
        identifier, kind = str(row["question_id"]), text_of(row.get("question_type"))
        if identifier.endswith("_abs"):
            return documents, [Question(identifier, _asked(row["question"]), type=kind)]
        gold = tuple(dict.fromkeys(map(str, row["answer_session_ids"])))
        return documents, [Question(identifier, _asked(row["question"]), text_of(row["answer"]), gold, kind, len(gold))]

    return _pooled_rows(converted(tables, "queries", row_content))


def qmsum(tables: SourceTables) -> BenchmarkContent:
    """Read the format of QMSum. Each window of consecutive turns is a document.

    The gold documents are the windows that overlap a question's relevant spans. General questions ask for a summary of
    the whole meeting, so they are left out.
    """
    numbers = count(1)

    def meeting(row: SourceRow) -> tuple[list[Document], list[Question]]:
        number = next(numbers)
        documents: list[Document] = []
        window_of: list[str] = []
        lines: list[str] = []
        turns = row["meeting_transcripts"]
        for place, turn in enumerate(turns):
            lines.append(f"{turn['speaker']}: {turn['content']}")
            window_of.append(f"{number}-{len(documents)}")
            if place + 1 == len(turns) or sum(len(line.split()) for line in lines) >= WINDOW_WORDS:
                documents.append(Document(window_of[-1], "\n".join(lines), f"Meeting {number}"))
                lines = []
        questions = []
        for place, item in enumerate(row["specific_query_list"], 1):
            spans = [(max(0, int(first)), int(last)) for first, last in item["relevant_text_span"]]
            gold = dict.fromkeys(window for first, last in spans for window in window_of[first : last + 1])
            questions.append(
                Question(f"{number}-q{place}", _asked(item["query"]), text_of(item.get("answer")), tuple(gold))
            )
        return documents, questions

    return _pooled_rows(converted(tables, "queries", meeting))


def _asked(question: object) -> str:
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"a question must be a string with text; got {question!r:.80}")
    return question


def _pooled_rows(rows: Iterator[tuple[list[Document], list[Question]]]) -> BenchmarkContent:
    """Return the documents and the questions of all rows.

    If an id is repeated, its first document or question counts.
    """
    documents: dict[str, Document] = {}
    questions: dict[str, Question] = {}
    for row_documents, row_questions in rows:
        for document in row_documents:
            documents.setdefault(document.id, document)
        for question in row_questions:
            questions.setdefault(question.id, question)
    return BenchmarkContent(tuple(documents.values()), tuple(questions.values()))
