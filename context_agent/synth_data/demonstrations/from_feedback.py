"""Tasks and demonstrations from user feedback on served searches.

**Tasks.** A task is a question that was asked. Its gold are the documents judged relevant to it, its distractors those
judged irrelevant. All searches with the same question count together. A judge's later verdict on a document replaces
the earlier one. If judges disagree the majority decides, and a tie leaves the document out.

**Demonstrations.** A judged trajectory is scored by the verdicts on its question: `helpful` and `bad` count the
relevant and irrelevant documents of its ranking, `missed` the relevant documents that it does not rank. A trajectory is
dropped by the first of these rules:

1. `unknown`: its file does not exist. `torn`, `unsound`: the file is cut, or does not replay.
2. `unfinished`: it did not end with its own ranking. `mistakes`: it made more than `mistakes` mistakes.
3. `poor rating`: the mean of its ratings, if it has any, is below `rating`.
4. `bad documents`: its ranking has more than `bad` irrelevant documents.
5. `nothing good`: no document of its ranking was judged relevant, and nobody rated it.
6. `changed`: the replay check found a difference, if one is requested.
7. `another is better`: only the best `per_question` trajectories of each question stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.errors import ConfigError, TrajectoryError
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.integrations.feedback import FeedbackLog, Judgment
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.demonstrations.runs import (
    ReplayResult,
    ReplayRow,
    ReplaySettings,
    check_file,
    read_or_problem,
)
from context_agent.synth_data.task import Task

ORIGIN = "feedback"
NO_TRAJECTORY = "the trajectory is not there"
NO_IDS = "names no document"
NOT_RELEVANT = "no document judged relevant"
NOT_IN_INDEX = "no relevant document is in the index"

DocumentOf = Callable[[str], str | None]
"""The document of a document's or passage's id; None if the index has neither."""


@dataclass(slots=True)
class FeedbackReport:
    """Counts of a feedback log. `judgments` and `questions` count the dropped ones by reason.

    `conflicts` counts the documents on which judges disagreed, `ties` those of them that were left out, `missing` the
    judged ids that the index lacks, `replaced` the verdicts that their judge changed later.
    """

    read: int = 0
    tasks: int = 0
    judgments: Counter[str] = field(default_factory=Counter)
    questions: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    ties: int = 0
    missing: int = 0
    replaced: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
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
    """A question, and each judge's last verdict on each document: True for relevant."""

    question: str
    votes: dict[str, dict[str, bool]] = field(default_factory=lambda: defaultdict(dict))
    trajectories: dict[str, None] = field(default_factory=dict)
    ratings: list[int] = field(default_factory=list)
    conflicts: int = 0
    lost: bool = False
    """Whether a relevant document is not in the index."""


def tasks_from_feedback(
    judgments: Iterable[Judgment], trajectories: FeedbackLog, corpus: Corpus
) -> tuple[list[Task], FeedbackReport]:
    """Return the tasks in the order in which their questions were first judged, and the report."""
    cases, report = _judged_questions(judgments, trajectories, corpus)
    tasks = [task for case in cases.values() if (task := _task(case, report)) is not None]
    report.tasks = len(tasks)
    return tasks, report


@dataclass(frozen=True, slots=True)
class QuestionVerdicts:
    """The settled verdicts on the documents of each judged question."""

    by_question: Mapping[str, Mapping[str, bool]]

    def key(self, question: str) -> str:
        """Return a key that equal questions share."""
        return _question_key(question)

    def of(self, question: str) -> Mapping[str, bool]:
        """True for a relevant document, False for an irrelevant one; ties and unjudged documents are missing."""
        return self.by_question.get(_question_key(question), {})


def question_verdicts(judgments: Iterable[Judgment], trajectories: FeedbackLog, corpus: Corpus) -> QuestionVerdicts:
    """Return the settled verdicts over all searches and judges."""
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
            cases.setdefault(_question_key(question), _JudgedQuestion(question)), judgment, document_of, report
        )
    return cases, report


def _add_judgment(case: _JudgedQuestion, judgment: Judgment, document_of: DocumentOf, report: FeedbackReport) -> None:
    """Adds a judgment. A judgment without a user counts as a judge of its own."""
    judge = f"user:{judgment.user}" if judgment.user else f"judgment:{judgment.id}"
    case.trajectories[judgment.trajectory] = None
    if judgment.rating is not None:
        case.ratings.append(judgment.rating)
    verdicts: dict[str, bool] = {}
    # A document with a relevant passage is relevant, whatever its other passages are.
    for ids, verdict in ((judgment.irrelevant, False), (judgment.relevant, True)):
        for relevant_id in ids:
            document = document_of(relevant_id)
            if document is None:
                report.missing += 1
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
    digest = blake2b(_question_key(case.question).encode("utf-8", "surrogatepass"), digest_size=8)
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
    """Return the majority verdict on each document, and the number of ties. Stores the number of conflicts in the
    case.
    """
    verdicts: dict[str, bool] = {}
    case.conflicts = 0
    for document, votes in case.votes.items():
        relevant = sum(votes.values())
        irrelevant = len(votes) - relevant
        case.conflicts += bool(relevant and irrelevant)
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
    chunks: Sequence[Any] = corpus.get([chunk_id])
    return str(chunks[0].document_id) if chunks else None


def _question_key(question: str) -> str:
    """Questions that differ only in case and spacing are equal."""
    return " ".join(question.split()).casefold()


FEEDBACK_RULES = (
    "unknown",
    "torn",
    "unsound",
    "unfinished",
    "mistakes",
    "poor rating",
    "bad documents",
    "nothing good",
    "changed",
    "another is better",
)
"""The rules that drop a judged trajectory, in order."""


@dataclass(frozen=True, slots=True)
class FeedbackFilters:
    """The values of the rules, described in the module's docstring. `per_question=0` keeps all."""

    rating: float = 4.0
    bad: int = 0
    mistakes: int = 2
    per_question: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rating <= 5 or min(self.bad, self.mistakes, self.per_question) < 0:
            raise ConfigError(
                f"rating must be in 1..5, and bad, mistakes and per_question must not be negative; got {self}"
            )


@dataclass(frozen=True, slots=True)
class FeedbackScores:
    """The feedback on a trajectory. Counts of documents; `rating` is the mean of its ratings, None without any."""

    trajectory: str
    question: str = ""
    helpful: int = 0
    bad: int = 0
    missed: int = 0
    rating: float | None = None
    mistakes: int = 0
    tokens: int = 0

    @property
    def order(self) -> tuple[float, ...]:
        """A sort key, smaller is better: higher recall, fewer bad documents, higher rating; then cheaper."""
        relevant = self.helpful + self.missed
        recall = self.helpful / relevant if relevant else 0.0
        return (-recall, self.bad, -(self.rating or 0.0), self.missed, self.mistakes, self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the row of an index, without the file."""
        return asdict(self)


@dataclass(slots=True)
class FeedbackSelection:
    """The selected and the dropped trajectories, each with its row.

    `reasons` counts the dropped ones by rule; `checks` are the results of the replay check, if there was one.
    """

    kept: list[ReplayRow] = field(default_factory=list)
    dropped: list[ReplayRow] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    checks: list[ReplayResult] = field(default_factory=list)

    def drop(self, path: Path, standing: FeedbackScores, reason: str, **more: Any) -> None:
        """Adds a dropped trajectory."""
        self.reasons[reason] += 1
        self.dropped.append(ReplayRow(path, {"reason": reason, **standing.to_json(), **more}))

    def counts(self) -> dict[str, Any]:
        """Return the number of judged and kept trajectories, and of the dropped ones by rule."""
        dropped = {rule: self.reasons[rule] for rule in FEEDBACK_RULES if self.reasons[rule]}
        return {"judged": len(self.kept) + len(self.dropped), "kept": len(self.kept), "dropped": dropped}


async def demonstrations_from_feedback(
    judgments: Sequence[Judgment],
    log: FeedbackLog,
    corpus: Corpus,
    filters: FeedbackFilters | None = None,
    *,
    check: ReplaySettings | None = None,
) -> FeedbackSelection:
    """Selects the judged trajectories that are worth imitating, in the order in which they were first judged.

    With `check` each candidate is replayed, and dropped if a view differs. Raises `CorpusError`.
    """
    filters, selection = filters or FeedbackFilters(), FeedbackSelection()
    verdicts_by_question = question_verdicts(judgments, log, corpus)
    candidates: dict[str, list[tuple[FeedbackScores, Path]]] = {}
    for name, ratings in _by_trajectory(judgments).items():
        path = log.folder / f"{name}.jsonl"
        try:
            verdicts = verdicts_by_question.of(log.header(name).question)
        except TrajectoryError:
            selection.drop(path, FeedbackScores(name), "unknown")
            continue
        scores, reason, detail = _score_and_rule(path, name, verdicts, ratings, filters)
        if reason is None and check is not None:
            replay = await check_file(path, corpus, check)
            selection.checks.append(replay)
            if replay.difference is not None:
                reason, detail = "changed", f"{replay.difference.cause}: {replay.difference.detail}"
        if reason is not None:
            selection.drop(path, scores, reason, **({"detail": detail} if detail else {}))
        else:
            candidates.setdefault(verdicts_by_question.key(scores.question), []).append((scores, path))
    for group in candidates.values():
        _keep_best(group, filters, selection)
    return selection


def _keep_best(
    group: list[tuple[FeedbackScores, Path]], filters: FeedbackFilters, selection: FeedbackSelection
) -> None:
    """Keeps the best candidates of a question; each of the others names the best one."""
    ordered = sorted(group, key=lambda candidate: (candidate[0].order, candidate[0].trajectory))
    most = filters.per_question or len(ordered)
    selection.kept += [ReplayRow(path, scores.to_json()) for scores, path in ordered[:most]]
    for scores, path in ordered[most:]:
        selection.drop(path, scores, "another is better", better=ordered[0][0].trajectory)


def _score_and_rule(
    path: Path, name: str, verdicts: Mapping[str, bool], judgments: Sequence[Judgment], filters: FeedbackFilters
) -> tuple[FeedbackScores, str | None, str]:
    """Return the scores, the rule that drops the trajectory or None, and a detail."""
    trajectory = read_or_problem(path)
    if isinstance(trajectory, str):
        return FeedbackScores(name), "unsound", trajectory
    scores = _feedback_scores(trajectory, name, verdicts, judgments)
    end = trajectory.end
    if end is None:
        return scores, "torn", ""
    broken = {
        "unfinished": end.stop_reason != StopReason.FINISHED,
        "mistakes": end.mistakes > filters.mistakes,
        "poor rating": scores.rating is not None and scores.rating < filters.rating,
        "bad documents": scores.bad > filters.bad,
        "nothing good": not scores.helpful and scores.rating is None,
    }
    return scores, next((rule for rule, out in broken.items() if out), None), ""


def _feedback_scores(
    trajectory: Trajectory, name: str, verdicts: Mapping[str, bool], judgments: Sequence[Judgment]
) -> FeedbackScores:
    ranked = {document.id for document in trajectory.end.documents} if trajectory.end is not None else set()
    votes = [verdicts[document] for document in ranked if document in verdicts]
    relevant = sum(verdicts.values())
    ratings = _ratings(judgments)
    return FeedbackScores(
        trajectory=name,
        question=trajectory.header.question,
        helpful=sum(votes),
        bad=len(votes) - sum(votes),
        missed=relevant - sum(votes),
        rating=fmean(ratings) if ratings else None,
        mistakes=0 if trajectory.end is None else trajectory.end.mistakes,
        tokens=0 if trajectory.end is None else trajectory.end.tokens,
    )


def _ratings(judgments: Iterable[Judgment]) -> list[int]:
    """Return the last rating of each judge; a judgment without a user counts as a judge of its own."""
    ratings = {
        judgment.user or f"judgment:{judgment.id}": judgment.rating
        for judgment in judgments
        if judgment.rating is not None
    }
    return list(ratings.values())


def _by_trajectory(judgments: Iterable[Judgment]) -> dict[str, list[Judgment]]:
    by_trajectory: dict[str, list[Judgment]] = {}
    for judgment in judgments:
        by_trajectory.setdefault(judgment.trajectory, []).append(judgment)
    return by_trajectory
