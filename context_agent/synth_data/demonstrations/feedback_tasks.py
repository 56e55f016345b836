"""Tasks from user feedback on served searches.

A task is a question that a user asked. The documents that judges found relevant are its gold. The documents that they
found irrelevant are its distractors. All searches with the same question count together. A judge's later verdict on a
document replaces the earlier one. If judges disagree, the majority decides, and a tie leaves the document out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from context_agent.errors import TrajectoryError
from context_agent.integrations.feedback import FeedbackLog, Judgment
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.task import Task
from context_agent.text.normalization import comparison_key

ORIGIN = "feedback"


NO_TRAJECTORY = "the trajectory is not there"


NO_IDS = "names no document"


NOT_RELEVANT = "no document judged relevant"


NOT_IN_INDEX = "no relevant document is in the index"


DocumentOf = Callable[[str], str | None]
"""A function that returns the document that an id belongs to.

The id is that of a document or a passage. If the index has neither, the function returns None.
"""


@dataclass(slots=True)
class FeedbackReport:
    """The counts of a feedback log.

    Attributes:
        read: The number of judgments.
        tasks: The number of tasks.
        judgments: The number of dropped judgments by reason.
        questions: The number of dropped questions by reason.
        conflicts: The number of documents on which judges disagreed.
        ties: The number of those documents that were left out, because the majority was not clear.
        missing: The number of judged ids that are not in the index.
        replaced: The number of verdicts that a judge changed later.
        missing_id: The first judged id that is not in the index.
    """

    read: int = 0
    tasks: int = 0
    judgments: Counter[str] = field(default_factory=Counter)
    questions: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    ties: int = 0
    missing: int = 0
    replaced: int = 0
    missing_id: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with keys in a fixed order."""
        return {
            "judgments": self.read,
            "tasks": self.tasks,
            "dropped_judgments": dict(sorted(self.judgments.items())),
            "dropped_questions": dict(sorted(self.questions.items())),
            "conflicts": self.conflicts,
            "ties": self.ties,
            "missing": self.missing,
            "replaced": self.replaced,
        }


@dataclass(slots=True)
class _JudgedQuestion:
    """A question with each judge's last verdict on each document. True means relevant."""

    question: str
    votes: dict[str, dict[str, bool]] = field(default_factory=lambda: defaultdict(dict))
    trajectories: dict[str, None] = field(default_factory=dict)
    ratings: list[int] = field(default_factory=list)
    lost: bool = False
    """True if a relevant document is not in the index."""

    @property
    def conflicts(self) -> int:
        """Number of documents on which judges disagree."""
        return sum(len(set(votes.values())) > 1 for votes in self.votes.values())


def tasks_from_feedback(
    judgments: Iterable[Judgment], trajectories: FeedbackLog, corpus: Corpus
) -> tuple[list[Task], FeedbackReport]:
    """Return the tasks in the order in which their questions were first judged, and the report.

    Args:
        judgments: The judgments of users.
        trajectories: The log that contains the judged trajectories.
        corpus: The corpus that the trajectories searched.
    """
    cases, report = _judged_questions(judgments, trajectories, corpus)
    tasks = [task for case in cases.values() if (task := _task(case, report)) is not None]
    report.tasks = len(tasks)
    return tasks, report


@dataclass(frozen=True, slots=True)
class QuestionVerdicts:
    """The final verdicts on the documents of each judged question."""

    by_question: Mapping[str, Mapping[str, bool]]

    def key(self, question: str) -> str:
        """Return a key that equal questions share."""
        return comparison_key(question)

    def of(self, question: str) -> Mapping[str, bool]:
        """Return True for each relevant document and False for each irrelevant one.

        Documents with a tie are left out.
        """
        return self.by_question.get(comparison_key(question), {})


def question_verdicts(judgments: Iterable[Judgment], trajectories: FeedbackLog, corpus: Corpus) -> QuestionVerdicts:
    """Return the final verdicts over all searches and judges."""
    cases, _ = _judged_questions(judgments, trajectories, corpus)
    return QuestionVerdicts({key: _majority(case)[0] for key, case in cases.items()})


def _judged_questions(
    judgments: Iterable[Judgment], trajectories: FeedbackLog, corpus: Corpus
) -> tuple[dict[str, _JudgedQuestion], FeedbackReport]:
    report = FeedbackReport()
    cases: dict[str, _JudgedQuestion] = {}
    document_of = _document_lookup(corpus)
    for judgment in judgments:
        report.read += 1
        try:
            question = trajectories.header(judgment.trajectory).question
        except TrajectoryError:
            report.judgments[NO_TRAJECTORY] += 1
            continue
        if not (judgment.relevant or judgment.irrelevant):
            report.judgments[NO_IDS] += 1
            continue
        _add_judgment(
            cases.setdefault(comparison_key(question), _JudgedQuestion(question)), judgment, document_of, report
        )
    return cases, report


def _add_judgment(case: _JudgedQuestion, judgment: Judgment, document_of: DocumentOf, report: FeedbackReport) -> None:
    """Add a judgment. Each judgment without a user counts as a separate judge."""
    judge = f"user:{judgment.user}" if judgment.user else f"judgment:{judgment.id}"
    case.trajectories[judgment.trajectory] = None
    if judgment.rating is not None:
        case.ratings.append(judgment.rating)
    verdicts: dict[str, bool] = {}
    # A document with a relevant passage is relevant, even if its other passages are not.
    for ids, verdict in ((judgment.irrelevant, False), (judgment.relevant, True)):
        for judged_id in ids:
            document = document_of(judged_id)
            if document is None:
                report.missing += 1
                report.missing_id = report.missing_id or judged_id
                case.lost = case.lost or verdict
            else:
                verdicts[document] = verdict
    for document, verdict in verdicts.items():
        report.replaced += case.votes[document].get(judge, verdict) != verdict
        case.votes[document][judge] = verdict


def _task(case: _JudgedQuestion, report: FeedbackReport) -> Task | None:
    verdicts, ties = _majority(case)
    gold = [document for document, relevant in verdicts.items() if relevant]
    distractors = [document for document, relevant in verdicts.items() if not relevant]
    report.ties += ties
    report.conflicts += case.conflicts
    if not gold:
        report.questions[NOT_IN_INDEX if case.lost else NOT_RELEVANT] += 1
        return None
    digest = blake2b(comparison_key(case.question).encode("utf-8", "surrogatepass"), digest_size=8)
    return Task(
        id=f"feedback-{digest.hexdigest()}",
        question=case.question,
        answer="",
        gold=tuple(gold),
        type=ORIGIN,
        hops=0,
        distractors=tuple(distractors),
        origin=ORIGIN,
        labels={ORIGIN: _label(case)},
    )


def _majority(case: _JudgedQuestion) -> tuple[dict[str, bool], int]:
    """Return the majority verdict on each document, and the number of ties."""
    verdicts: dict[str, bool] = {}
    for document, votes in case.votes.items():
        relevant = sum(votes.values())
        irrelevant = len(votes) - relevant
        if relevant != irrelevant:
            verdicts[document] = relevant > irrelevant
    return verdicts, len(case.votes) - len(verdicts)


def _label(case: _JudgedQuestion) -> Mapping[str, Any]:
    judges = {judge for votes in case.votes.values() for judge in votes}
    return {
        "trajectories": list(case.trajectories),
        "judges": len(judges),
        "conflicts": case.conflicts,
        "ratings": case.ratings,
    }


def _document_lookup(corpus: Corpus) -> DocumentOf:
    documents: dict[str, str | None] = {}

    def document_of(item_id: str) -> str | None:
        if item_id not in documents:
            documents[item_id] = item_id if corpus.read(item_id) else _owner(corpus, item_id)
        return documents[item_id]

    return document_of


def _owner(corpus: Corpus, chunk_id: str) -> str | None:
    chunks = corpus.get([chunk_id])
    return chunks[0].document_id if chunks else None
