"""Pruning for any agent: irrelevant passages of tool results go when that pays, and come back exactly.

pruner = ContextPruner(budget=8_000)
pruned = pruner.prune(messages)
messages = pruner.restore(pruned.messages, ["p17"])

A stub marks what was removed. A stub is never parsed: a result counts as pruned only if it equals, as a whole, a text
that was returned for the same call. So a text inside a tool result that looks like a stub is a text like any other.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, Literal

import numpy as np

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError
from context_agent.pruning.messages import LARGEST_RESULT, MessageKind, Path, ResultText, Transcript
from context_agent.pruning.passages import Passage, cut, without
from context_agent.pruning.relevance import JUDGES, Goal, Judge, Scores, by_words, custom
from context_agent.pruning.selection import Candidate, Prices, copies, protected, select
from context_agent.tokens import HarmonyCounter, TokenCounter

_REQUEST = re.compile(r"\brestore\W{1,3}(p\d{1,9}(?:-p\d{1,9})?(?:, ?p\d{1,9}(?:-p\d{1,9})?)*)", re.I)
_ID_RANGE = re.compile(r"p(\d+)(?:-p(\d+))?", re.I)
_LOOKS_LIKE_STUB = re.compile(r"\[\d+ passages? pruned, [\d,]+ tokens; restore: p\d")


@dataclass(eq=False)
class ResultRecord:
    """A text of a tool result as it came. `ids` are those of the passages that are removed, by index.

    `restored` are the indices of passages that came back and stay.
    """

    text: str
    counter: TokenCounter
    ids: dict[int, str] = field(default_factory=dict)
    restored: set[int] = field(default_factory=set)

    @cached_property
    def passages(self) -> list[Passage]:
        """The passages of the text, with their sizes."""
        return [replace(passage, tokens=self.counter.count(passage.text)) for passage in cut(self.text)]

    def restore(self, wanted: AbstractSet[str], removed: Mapping[int, str] | None = None) -> None:
        """Brings passages back by id; `removed` has further ids by index, those of a text returned earlier."""
        names = {**(removed or {}), **self.ids}
        self.restored |= {index for index, name in names.items() if name in wanted}
        self.ids = {index: name for index, name in self.ids.items() if name not in wanted}

    def without(self, ids: Mapping[int, str]) -> str:
        """The text with stubs in place of these passages."""
        return without(self.text, self.passages, ids, lambda run: self._stub(run, ids)) if ids else self.text

    def _stub(self, run: Sequence[int], ids: Mapping[int, str]) -> str:
        tokens = sum(self.passages[index].tokens for index in run)
        noun = "passage" if len(run) == 1 else "passages"
        return f"[{len(run)} {noun} pruned, {tokens:,} tokens; restore: {id_ranges([ids[index] for index in run])}]"


class PrunedResults:
    """The records of a pruner's conversations, found by the original text or by any text that it returned."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._originals: dict[tuple[str, str, Path, str], ResultRecord] = {}
        self._returned: dict[tuple[str, Path, str], tuple[ResultRecord, dict[int, str]]] = {}
        self._sizes: dict[str, int] = {}
        self.last_id = 0

    @property
    def characters(self) -> int:
        """Characters of all original texts."""
        return sum(len(record.text) for record in self._originals.values())

    def record(self, result: ResultText, opening: str) -> ResultRecord:
        """The record of a result. `opening` tells conversations apart that use the same call ids."""
        if (record := self.find(result, opening)) is None:
            record = self._originals[_key(result, opening)] = ResultRecord(result.text, self._counter)
        return record

    def find(self, result: ResultText, opening: str) -> ResultRecord | None:
        """The record of a result, None for one that was never pruned nor kept."""
        return self.removed(result)[0] or self._originals.get(_key(result, opening))

    def removed(self, result: ResultText) -> tuple[ResultRecord | None, dict[int, str]]:
        """The record and the ids of the passages that are missing in a text that was returned, else None."""
        return self._returned.get((result.call_id, result.path, digest(result.text)), (None, {}))

    def returned(self, result: ResultText, record: ResultRecord, ids: Mapping[int, str] | None = None) -> str:
        """The record's text without these passages, by default those removed, remembered as returned for that call."""
        ids = record.ids if ids is None else ids
        text = record.without(ids)
        if ids:
            self._returned[result.call_id, result.path, digest(text)] = (record, dict(ids))
        return text

    def tokens(self, text: str) -> int:
        """Tokens of a text, counted once."""
        key = digest(text)
        if key not in self._sizes:
            self._sizes[key] = self._counter.count(text)
        return self._sizes[key]


def _key(result: ResultText, opening: str) -> tuple[str, str, Path, str]:
    return opening, result.call_id, result.path, digest(result.text)


def requested_numbers(text: str) -> list[range]:
    """The numbers of the ids that a text asks to restore, as a stub names them: `restore: p3-p5, p9`."""
    return [
        range(int(first), int(last or first) + 1)
        for request in _REQUEST.findall(text)
        for first, last in _ID_RANGE.findall(request)
    ]


def id_ranges(ids: Sequence[str]) -> str:
    """`p3-p5, p9` for the ids of a run."""
    ranges: list[list[str]] = []
    for name in ids:
        if ranges and int(ranges[-1][-1][1:]) + 1 == int(name[1:]):
            ranges[-1] = [ranges[-1][0], name]
        else:
            ranges.append([name])
    return ", ".join("-".join(bounds) for bounds in ranges)


def digest(text: str) -> str:
    """A digest that tells texts apart."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


BUDGET = 8_000
STEPS = 3
"""Latest messages of the agent that passages are judged against, beside the task."""
PREVIEW = 100
"""Characters of a removed passage in the report."""
STRATEGIES = (*JUDGES, "none")
Effort = Literal["careful", "fast"]
Outcome = Literal["pruned", "within budget", "does not pay", "nothing to remove", "passed through"]
PassageStrategy = Callable[[Sequence[Passage], str], Iterable[float]]
"""(passages, task) -> a score for each passage, higher for what should stay."""


@dataclass(frozen=True, slots=True)
class RemovedPassage:
    """A passage that a prune removed. `score` is the strategy's, `preview` how the passage begins."""

    id: str
    message: int
    call_id: str
    tokens: int
    score: float
    reason: str
    preview: str


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Both sides of a prune. Tokens are those of tool results; `savings` and `loss` are in fresh input tokens.

    `freed` is what leaves the context, stubs deducted; `cached_lost` what was cached behind the first change and is
    read afresh. `savings` and `loss` are their worth over the turns to come, also for a prune that does not pay.
    `protected` counts the passages that stay in any case, by reason. `restored` are the ids of passages that a message
    asked for and that came back; what that costs the cache is in `cached_lost`, but no loss of the prune.
    """

    outcome: Outcome
    kind: MessageKind
    strategy: str
    tokens_before: int = 0
    tokens_after: int = 0
    freed: int = 0
    cached_lost: int = 0
    savings: float = 0.0
    loss: float = 0.0
    removed: tuple[RemovedPassage, ...] = ()
    restored: tuple[str, ...] = ()
    protected: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Messages of the kind that was passed in, and the report."""

    messages: list[Any]
    report: PruneReport


class ContextPruner:
    """Prunes the conversations of an agent. It remembers what it removed: use the same pruner for every turn.

    `budget` is the number of tokens of tool results to keep. Of these, the last turn's, which stay, take at most half.
    `strategy` is `reader`, `age`, `random`, `bm25`, `embedding`, `none`, or a function (passages, task) -> scores.
    `effort="fast"` lets `reader` judge without reading. `prices` decide when a prune pays. Not for several threads.
    Raises `ConfigError` for a budget, a strategy or an effort that does not exist.
    """

    def __init__(
        self,
        budget: int = BUDGET,
        *,
        strategy: str | PassageStrategy = "reader",
        effort: Effort = "careful",
        prices: Prices | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if budget < 1:
            raise ConfigError(f"the budget is {budget} tokens; it must be at least 1")
        self.budget, self.prices = budget, prices or Prices()
        self.strategy = strategy if isinstance(strategy, str) else getattr(strategy, "__name__", "custom")
        self._judge = _judge(strategy, effort)
        self._results = PrunedResults(counter or HarmonyCounter())

    @property
    def characters(self) -> int:
        """Characters of the tool results that the pruner remembers."""
        return self._results.characters

    def prune(self, messages: Sequence[Any], task: str | None = None) -> Pruned:
        """The messages without the passages that matter least for the task, if removing them pays.

        The task is the last user message by default. No message is changed in place, and those that stay as they are
        are the same objects. What was removed before stays removed, unless the user or the agent wrote `restore:` and
        its id. A conversation that a provider would refuse is passed through, with the reasons among the warnings.
        Raises `ConfigError` if `messages` is no list of messages.
        """
        transcript = Transcript(messages)
        if problems := transcript.problems:
            report = PruneReport("passed through", transcript.kind, self.strategy, warnings=problems)
            return Pruned(list(messages), report)
        goal = Goal(transcript.task if task is None else task, transcript.steps(STEPS))
        return _Prune(transcript, goal, self._results, self.budget).run(self.strategy, self._judge, self.prices)

    def restore(self, messages: Sequence[Any], ids: Iterable[str]) -> list[Any]:
        """The messages with these passages back where they were; later prunes leave them.

        The messages may be those that `prune` returned, or the agent's original ones, which have the passages anyway.
        Raises `ConfigError` for an id that is not pruned in them.
        """
        transcript, wanted, pruned_ids = Transcript(messages), set(ids), set[str]()
        opening = _opening(transcript)
        texts: list[tuple[ResultText, str]] = []
        for result in transcript.results:
            record, (_, removed) = self._results.find(result, opening), self._results.removed(result)
            if record is None:
                continue
            pruned_ids |= {*removed.values(), *record.ids.values()}
            record.restore(wanted, removed)
            remaining = {index: name for index, name in removed.items() if name not in wanted}
            texts.append((result, self._results.returned(result, record, remaining)))
        if unknown := sorted(wanted - pruned_ids):
            hint = suggestion(unknown[0], pruned_ids) if pruned_ids else "nothing is pruned in it"
            raise ConfigError(f"no stub in this conversation names {unknown[0]!r}: {hint}")
        return transcript.rewritten(texts)


def _judge(strategy: str | PassageStrategy, effort: Effort) -> Judge | None:
    """The judge of that name, None for `none`."""
    if effort not in ("careful", "fast"):
        raise ConfigError(f"effort must be careful or fast; got {effort!r}")
    if not isinstance(strategy, str):
        return custom(strategy)
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown pruning strategy {strategy!r}: {suggestion(strategy, STRATEGIES)}")
    return by_words if (strategy, effort) == ("reader", "fast") else JUDGES.get(strategy)


class _Prune:
    """One prune of one conversation."""

    def __init__(self, transcript: Transcript, goal: Goal, memory: PrunedResults, budget: int) -> None:
        self._transcript, self._goal, self._memory = transcript, goal, memory
        self._results = [result for result in transcript.results if len(result.text) <= LARGEST_RESULT]
        opening = _opening(transcript)
        self._records = [memory.record(result, opening) for result in self._results]
        self._sent = self._rendered({})
        self._requests = [
            numbers
            for content in transcript.contents
            if content.role in ("user", "assistant")
            for numbers in requested_numbers(content.text)
        ]
        self._restored = self._restore()
        self._texts = self._rendered({}) if self._restored else self._sent
        in_last_turn = [result.message >= transcript.last_turn for result in self._results]
        self._limit = max(budget, budget // 2 + self._total(compress(self._texts, in_last_turn)))
        self._total_before = self._total(self._texts)

    def run(self, strategy: str, judge: Judge | None, prices: Prices) -> Pruned:
        """The messages and the report."""
        total = self._total_before
        restoring = self._cached_lost(self._texts) if self._restored else 0
        report = PruneReport("within budget", self._transcript.kind, strategy, total, total, warnings=self._warnings())
        report = replace(report, cached_lost=restoring, restored=tuple(self._restored))
        if total <= self._limit or judge is None:
            return self._pruned(report)
        candidates = self._candidates()
        staying = self._staying(candidates)
        report = replace(report, outcome="nothing to remove", protected=dict(Counter(staying.values())))
        scores = self._scores(candidates, staying, judge)
        repeated = copies(candidates, self._removed(candidates))
        names = self._names(self._least_relevant(candidates, scores, staying))
        if not names:
            return self._pruned(report)
        texts = self._rendered(self._ids(candidates, names))
        freed, lost = total - self._total(texts), self._cached_lost(texts)
        savings, loss = prices.savings(freed), prices.loss(max(0, lost - restoring))
        report = replace(report, outcome="does not pay", freed=freed, cached_lost=lost, savings=savings, loss=loss)
        if savings <= loss:
            return self._pruned(report)
        self._commit(candidates, names)
        removed = tuple(
            self._removed_passage(candidates[row], name, scores[row], row in repeated) for row, name in names.items()
        )
        return self._pruned(replace(report, outcome="pruned", tokens_after=total - freed, removed=removed))

    def _restore(self) -> list[str]:
        """Restores what the user and the agent ask for; returns the ids."""
        removed = {name for record in self._records for name in record.ids.values()} if self._requests else set()
        wanted = {name for name in removed if any(int(name[1:]) in numbers for numbers in self._requests)}
        for record in self._records if wanted else ():
            record.restore(wanted)
        return sorted(wanted, key=lambda name: int(name[1:]))

    def _candidates(self) -> list[Candidate]:
        """All passages in order, those that are removed included: scores must not depend on what went before."""
        return [
            Candidate(passage, result, number, index)
            for number, (result, record) in enumerate(zip(self._results, self._records, strict=True))
            for index, passage in enumerate(record.passages)
        ]

    def _staying(self, candidates: Sequence[Candidate]) -> dict[int, str]:
        """The rows that stay in any case, with the reasons."""
        restored = {
            row: "restored" for row, item in enumerate(candidates) if item.index in self._records[item.number].restored
        }
        return protected(candidates, self._transcript) | restored

    def _removed(self, candidates: Sequence[Candidate]) -> frozenset[int]:
        return frozenset(row for row, item in enumerate(candidates) if item.index in self._records[item.number].ids)

    def _scores(self, candidates: Sequence[Candidate], staying: Mapping[int, str], judge: Judge) -> Scores:
        """The scores, shape (n,). Raises `ConfigError` if the strategy does not return a number for each passage."""
        passages = [candidate.passage for candidate in candidates]
        room = max(0, self._limit - sum(passages[row].tokens for row in staying))
        scores = judge(passages, replace(self._goal, room=room, staying=frozenset(staying)))
        if scores.shape != (len(passages),) or np.isnan(scores).any():
            raise ConfigError(
                f"the strategy returned scores of shape {scores.shape} for {len(passages)} passages: it must return a "
                "number for each of them"
            )
        return scores

    def _least_relevant(
        self, candidates: Sequence[Candidate], scores: Scores, staying: Mapping[int, str]
    ) -> frozenset[int]:
        """The rows to remove, until what remains fits, stubs included, or nothing more can go."""
        removed = self._removed(candidates)
        rows: frozenset[int] = frozenset()
        total = self._total_before
        while total > self._limit:
            more = select(candidates, scores, staying, removed | rows, total=total, limit=self._limit)
            if not more:
                break
            rows |= more
            total = self._total(self._rendered(self._ids(candidates, self._names(rows))))
        return rows

    def _names(self, rows: Iterable[int]) -> dict[int, str]:
        """New ids for the rows, in order, without those that a message already asks for."""
        names: dict[int, str] = {}
        number = self._memory.last_id
        for row in sorted(rows):
            number += 1
            while request := next((request for request in self._requests if number in request), None):
                number = request.stop
            names[row] = f"p{number}"
        return names

    def _ids(self, candidates: Sequence[Candidate], names: Mapping[int, str]) -> dict[int, dict[int, str]]:
        """The ids by the number of the result and the index of the passage."""
        ids: dict[int, dict[int, str]] = {}
        for row, name in names.items():
            ids.setdefault(candidates[row].number, {})[candidates[row].index] = name
        return ids

    def _rendered(self, ids: Mapping[int, Mapping[int, str]]) -> list[str]:
        """The text of each result without these passages and those that were removed before."""
        return [record.without({**record.ids, **ids.get(row, {})}) for row, record in enumerate(self._records)]

    def _commit(self, candidates: Sequence[Candidate], names: Mapping[int, str]) -> None:
        for number, ids in self._ids(candidates, names).items():
            self._records[number].ids |= ids
        self._memory.last_id = max(int(name[1:]) for name in names.values())

    def _total(self, texts: Iterable[str]) -> int:
        return sum(map(self._memory.tokens, texts))

    def _cached_lost(self, texts: Sequence[str]) -> int:
        """Tokens that stay behind the first change and were in the cache: all but the last turn was sent before."""
        changed = iter(zip(self._results, self._sent, texts, strict=True))
        lost, is_broken = 0, False
        by_message: dict[int, list[tuple[str, str]]] = {}
        for result, before, after in changed:
            by_message.setdefault(result.message, []).append((before, after))
        for message, content in enumerate(self._transcript.contents[: self._transcript.last_turn]):
            for before, after in by_message.get(message, ()):
                if is_broken or before != after:
                    lost += self._memory.tokens(after[0 if is_broken else _shared_prefix(before, after) :])
                    is_broken = True
            lost += self._memory.tokens(content.text) if is_broken else 0
        return lost

    def _removed_passage(self, candidate: Candidate, name: str, score: float, is_copy: bool) -> RemovedPassage:
        passage, result = candidate.passage, candidate.source
        return RemovedPassage(
            id=name,
            message=result.message,
            call_id=result.call_id,
            tokens=passage.tokens,
            score=round(float(score), 4),
            reason="copy of an earlier passage" if is_copy else "less relevant than what stays",
            preview=" ".join(passage.text[: 2 * PREVIEW].split())[:PREVIEW],
        )

    def _warnings(self) -> tuple[str, ...]:
        imitations = (
            f"message {result.message} has a text that looks like a stub; it is treated as text"
            for result, record in zip(self._results, self._records, strict=True)
            if _LOOKS_LIKE_STUB.search(record.text)
        )
        return (*self._transcript.notices, *imitations)

    def _pruned(self, report: PruneReport) -> Pruned:
        texts = [
            (result, self._memory.returned(result, record))
            for result, record in zip(self._results, self._records, strict=True)
        ]
        return Pruned(self._transcript.rewritten(texts), report)


def _shared_prefix(before: str, after: str) -> int:
    """The number of characters that two texts share at the start."""
    longest = min(len(before), len(after))
    return bisect_left(range(longest), True, key=lambda end: before[: end + 1] != after[: end + 1])


def _opening(transcript: Transcript) -> str:
    """A digest of what comes before the first result, which tells conversations apart."""
    first = next((index for index, content in enumerate(transcript.contents) if content.results), 0)
    return digest("\0".join(content.text for content in transcript.contents[:first]))
