"""Trajectories as plain data: a row for the list, and all that is shown of one. The page and the terminal read this.

What is shown of one has the shape of `shape.Detail`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.view.loading import Collection, Loaded
from context_agent.eval.view.schema import Detail, checked
from context_agent.pruning.view import Block, Summary
from context_agent.questions import Question
from context_agent.rendering import compact
from context_agent.swarm import steps
from context_agent.trajectory import Acted, Counted, Edited, End, Prompted, Returned, Trajectory
from context_agent.types import Chunk, RankedDocument

CUT = "cut"
"""Stands for the stop reason of a trajectory without an end: cut, or still being written."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the list. The last three are None where gold is unknown: shares of what is needed that was ever seen
    and that the ranking holds, and the number of gold chunks that were pruned at some time, by themselves or with their
    summary. `summarized` counts the passages that summaries replaced."""

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
    summarized: int = 0
    critical_steps: int = 0
    parent: str | None = None
    """Of a sub-agent's: the id of the trajectory that started it."""


@dataclass(slots=True)
class Texts:
    """Texts, each kept once and named by its number."""

    all: list[str] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """The text's number."""
        if (known := self._known.get(text)) is None:
            known = self._known[text] = len(self.all)
            self.all.append(text)
        return known


class GoldFile:
    """What a question file knows about the questions of trajectories: found by their text, else by their id."""

    def __init__(self, questions: Iterable[Question]) -> None:
        questions = list(questions)
        self._by_text = {_folded(question.question): question for question in questions}
        self._by_id = {question.id: question for question in questions}

    def find(self, trajectory: Trajectory) -> Question | None:
        """The question that a trajectory answers; None where the file does not have it, or no gold for it."""
        header = trajectory.header
        found = self._by_text.get(_folded(header.question)) or self._by_id.get(header.question_id or "")
        return found if found and (found.gold or found.facts) else None


class _Shelf:
    """What a trajectory showed, as the shelf that tells documents and chunks of a question's gold apart."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._chunks = {block.id: block.hit.chunk for block in blocks}

    def read(self, document_id: str) -> list[Chunk]:
        """The chunks of a document that were shown."""
        return [chunk for chunk in self._chunks.values() if chunk.document_id == document_id]

    def get(self, chunk_ids: list[str]) -> list[Chunk]:
        """Those of the chunks that were shown."""
        return [self._chunks[one] for one in chunk_ids if one in self._chunks]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """All that is shown: a row and a detail for each trajectory, the texts they name by number, a line for each file
    or row that can't be shown, and how many files were none of ours."""

    rows: tuple[Row, ...]
    details: tuple[Detail, ...]
    texts: tuple[str, ...]
    problems: tuple[str, ...] = ()
    ignored: int = 0


def exhibit(collection: Collection, gold: GoldFile | None = None, *, problems: Iterable[str] = ()) -> Exhibit:
    """What was loaded as plain data. A trajectory whose values can't be shown joins the `problems`."""
    texts = Texts()
    told = [*problems, *collection.problems]
    rows: list[Row] = []
    details: list[Detail] = []
    for loaded in collection.loaded:
        try:
            shown = _Shown(loaded, gold.find(loaded.trajectory) if gold else None, texts)
            detail = checked(shown.detail())
            row = shown.row()
            json.dumps([asdict(row), detail], allow_nan=False)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told.append(f"{loaded.path}: its values cannot be shown ({type(error).__name__}: {error})")
        else:
            rows.append(row)
            details.append(detail)
    return Exhibit(tuple(rows), tuple(details), tuple(texts.all), tuple(told), collection.ignored)


class _Shown:
    """One trajectory read for showing: its row, and its detail. Raises what unsound values raise."""

    def __init__(self, loaded: Loaded, question: Question | None, texts: Texts) -> None:
        self._loaded = loaded
        self._trajectory = loaded.trajectory
        self._texts = texts
        self._blocks = {block.key: block for block in blocks_of(loaded.trajectory)}
        self._summaries = {summary.key: summary for summary in summaries_of(loaded.trajectory)}
        self._question = question
        self._gold = gold_of(question, _Shelf(self._blocks.values())) if question else None
        self._turns = list(turns_of(loaded.trajectory))

    def row(self) -> Row:
        """The line of the list."""
        header, end = self._trajectory.header, self._trajectory.end
        results = [result for turn in self._turns for result in turn.results]
        pruned = [key for turn in self._turns if turn.edit for key in turn.edit.edit.pruned]
        needs = self._gold.needs if self._gold else 0
        return Row(
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
            tokens=end.tokens if end else sum(map(placed, self._turns)),
            mistakes=sum(result.mistake is not None for result in results),
            pruned=sum(key not in self._summaries for key in pruned),
            summarized=sum(len(turn.edit.edit.replaced) for turn in self._turns if turn.edit),
            restored=sum(len(turn.edit.edit.restored) for turn in self._turns if turn.edit),
            seconds=finite(end.seconds) if end else None,
            queries=tuple(dict.fromkeys(str(one) for r in results if (one := r.arguments.get("query")))),
            problem=self._loaded.problem,
            seen=len(self._seen()) / needs if needs else None,
            ranked=len(self._ranked()) / needs if needs else None,
            gold_pruned=len(self._gold_among(pruned)) if needs else None,
            critical_steps=steps(self._trajectory),
            parent=header.parent,
        )

    def detail(self) -> dict[str, Any]:
        """All that is shown of it, before it is checked."""
        end = self._trajectory.end
        prompt = [
            segment for event in self._trajectory.events if isinstance(event, Prompted) for segment in event.segments
        ]
        return {
            "header": self._header(),
            "prompt": [{"role": s.role.value, "tokens": s.tokens, "text": self._texts.number(s.text)} for s in prompt],
            "blocks": [
                self._summary(self._summaries[key]) if key in self._summaries else self._block(self._blocks[key])
                for key in sorted({**self._blocks, **self._summaries})
            ],
            "turns": [turn_data(turn) for turn in self._turns],
            "critical_steps": steps(self._trajectory),
            "end": self._end(end) if end else None,
            "gold": self._told(),
        }

    def _header(self) -> dict[str, Any]:
        header = self._trajectory.header
        names = ("id", "question", "question_id", "policy", "corpus", "counter", "seed", "version", "started", "parent")
        budget = header.budget
        return {
            **{name: getattr(header, name) for name in names},
            "profile": str(header.profile.get("name", "")),
            "budget": {"window": budget.window, "soft": budget.soft, "hard": budget.hard, "per_call": budget.per_call},
            "limits": [(name, value) for name, value in header.limits.items() if value is not None],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        hit = block.hit
        scores = {name: finite(getattr(hit, name)) for name in ("score", "dense", "sparse")}
        return {
            **{name: getattr(block, name) for name in ("key", "tokens", "turn", "call", "whole")},
            **scores,
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
            **{name: getattr(summary, name) for name in ("key", "tokens", "turn", "call")},
            **dict.fromkeys(("score", "dense", "sparse")),
            "whole": True,
            "rank": 0,
            "source": "summary",
            "chunk": summary.id,
            "document": "",
            "title": f"Summary of {len(summary.of)} passage{'' if len(summary.of) == 1 else 's'}",
            "gold": False if self._gold else None,
            "text": self._texts.number(summary.text),
        }

    def _end(self, end: End) -> dict[str, Any]:
        names = ("stop_reason", "error", "turns", "tokens", "mistakes", "dropped")
        return {
            **{name: getattr(end, name) for name in names},
            "seconds": finite(end.seconds),
            "documents": [self._document(document) for document in end.documents],
        }

    def _document(self, document: RankedDocument) -> dict[str, Any]:
        chunks = [
            {"id": chunk.id, "score": finite(chunk.score), "text": self._texts.number(chunk.text)}
            for chunk in document.chunks
        ]
        return {
            **{name: getattr(document, name) for name in ("id", "title", "justification")},
            "score": finite(document.score),
            "gold": bool(self._finds(document)) if self._gold else None,
            "chunks": chunks,
        }

    def _told(self) -> dict[str, Any] | None:
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
        """The gold chunks among blocks, and among what summaries stand for, by their keys."""
        found: set[str] = set()
        for key in keys:
            if key in self._summaries:
                found |= self._gold_among(one for one in self._summaries[key].of if one < key)
            elif self._is_gold(self._blocks[key]):
                found.add(self._blocks[key].id)
        return found

    def _seen(self) -> frozenset[int]:
        gold = self._gold or Gold(0)
        return frozenset().union(*(gold.found_by(b.document_id, (b.id,)) for b in self._blocks.values()))

    def _ranked(self) -> frozenset[int]:
        end = self._trajectory.end
        return frozenset().union(*map(self._finds, end.documents if end else ()))

    def _finds(self, document: RankedDocument) -> frozenset[int]:
        return (self._gold or Gold(0)).found_by(document.id, [chunk.id for chunk in document.chunks])


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


@dataclass(slots=True)
class Turn:
    """The events of one turn."""

    acted: Acted
    edit: Edited | None = None
    results: list[Returned] = field(default_factory=list)
    usage: Counted | None = None


def turns_of(trajectory: Trajectory) -> Iterator[Turn]:
    """The turns in order; the last one may lack what a cut file lost."""
    turn: Turn | None = None
    for event in trajectory.events:
        match event:
            case Acted():
                if turn is not None:
                    yield turn
                turn = Turn(event)
            case Edited() if turn is not None:
                turn.edit = event
            case Returned() if turn is not None:
                turn.results.append(event)
            case Counted() if turn is not None:
                turn.usage = event
    if turn is not None:
        yield turn


def blocks_of(trajectory: Trajectory) -> Iterator[Block]:
    """Every block that was shown."""
    for event in trajectory.events:
        if isinstance(event, Returned):
            yield from (segment for segment in event.segments if isinstance(segment, Block))


def summaries_of(trajectory: Trajectory) -> Iterator[Summary]:
    """Every summary that was made."""
    for event in trajectory.events:
        if isinstance(event, Edited):
            yield from event.edit.summaries


def turn_data(turn: Turn) -> dict[str, Any]:
    """A turn in the shape of `shape.TurnData`."""
    acted, edit, usage = turn.acted, turn.edit, turn.usage
    return {
        "turn": acted.turn,
        "tokens": acted.tokens,
        "seconds": finite(acted.seconds),
        "shown": acted.shown,
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


def _result(result: Returned) -> dict[str, Any]:
    arguments = [(name, value) for name, value in result.arguments.items() if value is not None]
    return {
        "call": result.call,
        "name": result.name,
        "arguments": [(name, value if isinstance(value, str) else compact(value)) for name, value in arguments],
        "mistake": result.mistake,
        "seconds": finite(result.seconds),
        "segments": [s.key if isinstance(s, Block) else {"tokens": s.tokens, "text": s.text} for s in result.segments],
        "delegated": [asdict(one) for one in result.delegated],
    }


def placed(turn: Turn) -> int:
    """Tokens that a turn placed in the context."""
    results = sum(segment.tokens for result in turn.results for segment in result.segments)
    summaries = sum(summary.tokens for summary in turn.edit.edit.summaries) if turn.edit else 0
    return turn.acted.tokens + results + summaries + (turn.usage.segment.tokens if turn.usage else 0)


def finite(value: float | None) -> float | None:
    """A number that JSON has; files may hold others."""
    return value if value is not None and math.isfinite(value) else None
