"""Trajectories as plain data for the page and the terminal.

Each trajectory has a row for the list, and a detail with the shape of `schema.TrajectoryDetail`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from context_agent.eval.gold import Gold, gold_of
from context_agent.harness.action_text import compact
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_folder import LoadedTrajectory, TrajectoryFiles
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    EditApplied,
    EpisodeEnded,
    PromptShown,
    Summary,
    ToolResult,
    TurnClosed,
    replaced_keys,
)
from context_agent.text.counts import counted
from context_agent.text.normalization import comparison_key
from context_agent.types import Chunk, Question, RankedDocument
from context_agent.web.viewer.schema import TrajectoryDetail, validated

CUT = "cut"
"""The stop reason of a trajectory without an end. Its file was truncated, or is still being written."""


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """A row of the list of trajectories.

    Attributes:
        id: The trajectory's id.
        run: The run that the file belongs to.
        file: The path of the file.
        question: The question.
        question_id: The question's id in its data set.
        policy: The name of the policy.
        seed: The seed of the episode.
        window: The size of the context window, in tokens.
        stop: The reason why the episode ended. If the file has no end, this is `cut`.
        turns: The number of turns.
        calls: The number of tool calls.
        tokens: The number of tokens placed in the context.
        mistakes: The number of tool calls that were wrong.
        pruned: The number of chunks that were pruned.
        restored: The number of chunks that were restored.
        seconds: The duration of the episode.
        queries: The search queries, in order.
        problem: The fault in the file. None if it is complete.
        seen: The share of the needed evidence that was shown. None if gold is unknown.
        ranked: The share of the needed evidence that the ranking has. None if gold is unknown.
        gold_pruned: The number of gold chunks that were ever pruned, alone or with their summary. None if gold is
            unknown.
        gold_lost: The number of gold chunks that were pruned and never restored. None if gold is unknown.
        summarized: The number of passages that summaries replaced.
        critical_steps: The number of actions that had to wait for each other, including those of sub-agents.
        parent: For a sub-agent, the id of the trajectory that started it.
    """

    id: str
    run: str
    file: str
    question: str
    question_id: str | None
    policy: str
    seed: int
    window: int
    stop: str
    turns: int
    calls: int
    tokens: int
    mistakes: int
    pruned: int
    restored: int
    seconds: float | None
    queries: tuple[str, ...]
    problem: str | None = None
    seen: float | None = None
    ranked: float | None = None
    gold_pruned: int | None = None
    gold_lost: int | None = None
    summarized: int = 0
    critical_steps: int = 0
    parent: str | None = None


@dataclass(slots=True)
class SharedTexts:
    """A list of texts. Each text is stored once and identified by its index."""

    all: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the index of the text, and store the text if it is new."""
        if (number := self._numbers.get(text)) is None:
            number = self._numbers[text] = len(self.all)
            self.all.append(text)
        return number


class GoldQuestions:
    """Questions with gold. A trajectory's question is looked up by its text, then by its id."""

    def __init__(self, questions: Iterable[Question]) -> None:
        questions = list(questions)
        self._by_text = {comparison_key(question.question): question for question in questions}
        self._by_id = {question.id: question for question in questions}

    def find(self, trajectory: Trajectory) -> Question | None:
        """Return the question that a trajectory answers. If it is unknown or has no gold, return None."""
        header = trajectory.header
        question = self._by_text.get(comparison_key(header.question)) or self._by_id.get(header.question_id or "")
        return question if question and (question.gold or question.facts) else None


class _ShownCorpus:
    """A lookup of the chunks that a trajectory showed. It implements `CorpusLookup`."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._chunks = {block.id: block.hit.chunk for block in blocks}
        self._documents: dict[str, list[Chunk]] = {}
        for chunk in self._chunks.values():
            self._documents.setdefault(chunk.document_id, []).append(chunk)

    def read(self, document_id: str) -> list[Chunk]:
        """Return the chunks of a document that were shown."""
        return self._documents.get(document_id, [])

    def get(self, chunk_ids: list[str]) -> list[Chunk]:
        """Return the chunks with these ids that were shown."""
        return [self._chunks[chunk_id] for chunk_id in chunk_ids if chunk_id in self._chunks]


@dataclass(frozen=True, slots=True)
class ViewData:
    """The data of the page.

    Attributes:
        rows: A row for each trajectory.
        details: A detail for each trajectory. It refers to `texts` by index.
        texts: The texts that the details share.
        problems: A line for each file or row that cannot be shown.
        ignored: The number of files that are not trajectories.
    """

    rows: tuple[TrajectoryRow, ...]
    details: tuple[TrajectoryDetail, ...]
    texts: tuple[str, ...]
    problems: tuple[str, ...] = ()
    ignored: int = 0


def view_data(files: TrajectoryFiles, gold: GoldQuestions | None = None, *, problems: Iterable[str] = ()) -> ViewData:
    """Return the loaded trajectories as plain data.

    Args:
        files: The loaded trajectories.
        gold: The questions with gold. Without them, the page shows no metrics of evidence.
        problems: Problems that were found before, which the page shows first.

    Returns:
        The data of the page. A trajectory with invalid values becomes an entry of `problems` instead of a row.
    """
    texts = SharedTexts()
    all_problems = [*problems, *files.problems]
    rows: list[TrajectoryRow] = []
    details: list[TrajectoryDetail] = []
    for loaded in files.loaded:
        try:
            converter = _Converter(loaded, gold.find(loaded.trajectory) if gold else None, texts)
            detail = validated(converter.detail())
            row = converter.row()
            json.dumps([asdict(row), detail], allow_nan=False)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            all_problems.append(f"{loaded.path}: its values cannot be shown ({type(error).__name__}: {error})")
        else:
            rows.append(row)
            details.append(detail)
    return ViewData(tuple(rows), tuple(details), tuple(texts.all), tuple(all_problems), files.ignored)


class _Converter:
    """A converter of one trajectory into its row and its detail.

    Its methods raise `KeyError`, `TypeError`, `ValueError` or `AttributeError` for invalid values.
    """

    def __init__(self, loaded: LoadedTrajectory, question: Question | None, texts: SharedTexts) -> None:
        self._loaded = loaded
        self._trajectory = loaded.trajectory
        self._texts = texts
        self._blocks = {block.key: block for block in _blocks(loaded.trajectory)}
        self._summaries = {summary.key: summary for summary in _summaries(loaded.trajectory)}
        self._question = question
        self._gold = gold_of(question, _ShownCorpus(self._blocks.values())) if question else None
        self._turns = list(_turns(loaded.trajectory))

    def row(self) -> TrajectoryRow:
        header, end = self._trajectory.header, self._trajectory.end
        results = [result for turn in self._turns for result in turn.results]
        pruned = [key for turn in self._turns if turn.edit for key in turn.edit.edit.pruned]
        needs = self._gold.needs if self._gold else 0
        return TrajectoryRow(
            id=str(header.id),
            run=self._loaded.run,
            file=str(self._loaded.path),
            question=str(header.question),
            question_id=None if header.question_id is None else str(header.question_id),
            policy=str(header.policy),
            seed=header.seed,
            window=header.budget.window,
            stop=end.stop_reason if end else CUT,
            turns=len(self._turns) if end is None else end.turns,
            calls=len(results),
            tokens=end.tokens if end else sum(map(_placed_tokens, self._turns)),
            mistakes=sum(result.mistake is not None for result in results),
            pruned=sum(key not in self._summaries for key in pruned),
            summarized=sum(len(turn.edit.edit.replaced) for turn in self._turns if turn.edit),
            restored=sum(len(turn.edit.edit.restored) for turn in self._turns if turn.edit),
            seconds=_finite(end.seconds) if end else None,
            queries=tuple(dict.fromkeys(str(query) for r in results if (query := r.arguments.get("query")))),
            problem=self._loaded.problem,
            seen=len(self._seen()) / needs if needs else None,
            ranked=len(self._ranked()) / needs if needs else None,
            gold_pruned=len(self._gold_among(pruned)) if needs else None,
            gold_lost=len(self._gold_among(pruned) - self._gold_among(self._in_view())) if needs else None,
            critical_steps=self._trajectory.critical_steps,
            parent=header.parent,
        )

    def detail(self) -> dict[str, Any]:
        """Return the detail as plain data that was not validated yet."""
        end = self._trajectory.end
        prompt = [
            segment for event in self._trajectory.events if isinstance(event, PromptShown) for segment in event.segments
        ]
        return {
            "header": self._header(),
            "prompt": [{"role": s.role.value, "tokens": s.tokens, "text": self._texts.number(s.text)} for s in prompt],
            "blocks": [
                self._summary(self._summaries[key]) if key in self._summaries else self._block(self._blocks[key])
                for key in sorted({**self._blocks, **self._summaries})
            ],
            "turns": [_turn(turn) for turn in self._turns],
            "critical_steps": self._trajectory.critical_steps,
            "end": self._end(end) if end else None,
            "gold": self._gold_data(),
        }

    def _header(self) -> dict[str, Any]:
        header = self._trajectory.header
        budget = header.budget
        return {
            "id": header.id,
            "question": header.question,
            "question_id": header.question_id,
            "policy": header.policy,
            "corpus": header.corpus,
            "counter": header.counter,
            "seed": header.seed,
            "version": header.version,
            "started": header.started,
            "parent": header.parent,
            "profile": header.profile.name,
            "budget": {"window": budget.window, "soft": budget.soft, "hard": budget.hard, "per_call": budget.per_call},
            "limits": [(name, value) for name, value in header.limits.items() if value is not None],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        hit = block.hit
        return {
            "key": block.key,
            "tokens": block.tokens,
            "turn": block.turn,
            "call": block.call,
            "whole": block.complete,
            "score": _finite(hit.score),
            "dense": _finite(hit.dense),
            "sparse": _finite(hit.sparse),
            "rank": hit.rank,
            "source": block.source.value,
            "chunk": block.id,
            "document": block.document_id,
            "title": hit.chunk.title,
            "gold": self._is_gold(block) if self._gold else None,
            "text": self._texts.number(block.body),
        }

    def _summary(self, summary: Summary) -> dict[str, Any]:
        return {
            "key": summary.key,
            "tokens": summary.tokens,
            "turn": summary.turn,
            "call": summary.call,
            "whole": True,
            "score": None,
            "dense": None,
            "sparse": None,
            "rank": 0,
            "source": "summary",
            "chunk": summary.id,
            "document": "",
            "title": f"Summary of {counted(len(summary.of), 'passage')}",
            "gold": False if self._gold else None,
            "text": self._texts.number(summary.text),
        }

    def _end(self, end: EpisodeEnded) -> dict[str, Any]:
        return {
            "stop_reason": end.stop_reason,
            "confidence": _finite(end.confidence),
            "error": end.error,
            "seconds": _finite(end.seconds),
            "turns": end.turns,
            "tokens": end.tokens,
            "mistakes": end.mistakes,
            "dropped": end.dropped,
            "documents": [self._document(document) for document in end.documents],
        }

    def _document(self, document: RankedDocument) -> dict[str, Any]:
        chunks = [
            {"id": chunk.id, "score": _finite(chunk.score), "text": self._texts.number(chunk.text)}
            for chunk in document.chunks
        ]
        return {
            "id": document.id,
            "title": document.title,
            "score": _finite(document.score),
            "justification": document.justification,
            "gold": bool(self._finds(document)) if self._gold else None,
            "chunks": chunks,
        }

    def _gold_data(self) -> dict[str, Any] | None:
        if self._gold is None or self._question is None:
            return None
        return {
            "needs": self._gold.needs,
            "seen": len(self._seen()),
            "ranked": len(self._ranked()),
            "missing": list(self._gold.missing),
            "answer": self._question.answer,
        }

    def _is_gold(self, block: Block) -> bool:
        return bool(self._gold and self._gold.found_by(block.document_id, (block.id,)))

    def _gold_among(self, keys: Iterable[int]) -> set[str]:
        """Return the ids of the gold chunks with these keys, including the chunks that summaries replace."""
        blocks = [self._blocks[key] for key in replaced_keys(keys, self._summaries) if key not in self._summaries]
        return {block.id for block in blocks if self._is_gold(block)}

    def _in_view(self) -> set[int]:
        """Return the keys of the blocks and summaries in the last view."""
        keys = {*self._blocks, *self._summaries}
        for edit in (turn.edit.edit for turn in self._turns if turn.edit):
            keys = keys - {*edit.pruned, *edit.replaced} | {*edit.restored}
        return keys

    def _seen(self) -> frozenset[int]:
        gold = self._gold or Gold(0)
        return frozenset().union(*(gold.found_by(b.document_id, (b.id,)) for b in self._blocks.values()))

    def _ranked(self) -> frozenset[int]:
        end = self._trajectory.end
        return frozenset().union(*map(self._finds, end.documents if end else ()))

    def _finds(self, document: RankedDocument) -> frozenset[int]:
        return (self._gold or Gold(0)).found_by(document.id, [chunk.id for chunk in document.chunks])


@dataclass(slots=True)
class TurnEvents:
    """The events of one turn."""

    acted: ActionTaken
    edit: EditApplied | None = None
    results: list[ToolResult] = field(default_factory=list)
    usage: TurnClosed | None = None


def _turns(trajectory: Trajectory) -> Iterator[TurnEvents]:
    """Yield the turns in order. If the file was truncated, the last turn may be incomplete."""
    turn: TurnEvents | None = None
    for event in trajectory.events:
        match event:
            case ActionTaken():
                if turn is not None:
                    yield turn
                turn = TurnEvents(event)
            case EditApplied() if turn is not None:
                turn.edit = event
            case ToolResult() if turn is not None:
                turn.results.append(event)
            case TurnClosed() if turn is not None:
                turn.usage = event
    if turn is not None:
        yield turn


def _blocks(trajectory: Trajectory) -> Iterator[Block]:
    """Yield every block that was shown."""
    for event in trajectory.events:
        if isinstance(event, ToolResult):
            yield from (segment for segment in event.segments if isinstance(segment, Block))


def _summaries(trajectory: Trajectory) -> Iterator[Summary]:
    """Yield every summary, in the order in which they were written."""
    for event in trajectory.events:
        if isinstance(event, EditApplied):
            yield from event.edit.summaries


def _turn(turn: TurnEvents) -> dict[str, Any]:
    """Return a turn in the shape of `schema.TurnData`."""
    acted, edit, usage = turn.acted, turn.edit, turn.usage
    return {
        "turn": acted.turn,
        "tokens": acted.tokens,
        "seconds": _finite(acted.seconds),
        "shown": acted.fits,
        "text": acted.action.text,
        "reasoning": acted.action.reasoning,
        "edit": edit
        and {
            "pruned": list(edit.edit.pruned),
            "replaced": list(edit.edit.replaced),
            "summaries": [summary.key for summary in edit.edit.summaries],
            "restored": list(edit.edit.restored),
            "freed": edit.cost.freed,
            "recomputed": edit.cost.recomputed,
        },
        "results": [_result(result) for result in turn.results],
        "usage": usage and {"tokens": usage.segment.tokens, "text": usage.segment.text, "total": usage.total},
    }


def _result(result: ToolResult) -> dict[str, Any]:
    arguments = [(name, value) for name, value in result.arguments.items() if value is not None]
    return {
        "call": result.call,
        "name": result.name,
        "arguments": [(name, value if isinstance(value, str) else compact(value)) for name, value in arguments],
        "mistake": result.mistake,
        "seconds": _finite(result.seconds),
        "segments": [s.key if isinstance(s, Block) else {"tokens": s.tokens, "text": s.text} for s in result.segments],
        "delegated": [asdict(delegated) for delegated in result.delegated],
    }


def _placed_tokens(turn: TurnEvents) -> int:
    """Return the number of tokens that a turn placed in the context."""
    results = sum(segment.tokens for result in turn.results for segment in result.segments)
    summaries = sum(summary.tokens for summary in turn.edit.edit.summaries) if turn.edit else 0
    return turn.acted.tokens + results + summaries + (turn.usage.segment.tokens if turn.usage else 0)


def _finite(value: float | None) -> float | None:
    """Return the value. If it is infinite or NaN, return None.

    JSON has neither of them, but a file may contain them.
    """
    return value if value is not None and math.isfinite(value) else None
