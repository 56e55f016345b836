"""Pruning for any agent. Irrelevant passages of tool results are removed if that pays, and can be restored exactly.

    pruner = ContextPruner(budget=8_000)
    pruned = pruner.prune(messages)
    messages = pruner.restore(pruned.messages, ["p17"])

A stub marks what was removed. The pruner never parses stubs. A result counts as pruned only if it equals, as a whole, a
text that the pruner returned for the same call. A text inside a tool result that merely looks like a stub is therefore
a text like any other. With `originals_only`, no text counts as pruned.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from context_agent._support.arguments import items_of, require_callable, require_members, require_type, whole_number
from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError
from context_agent.pruning.adapted_reader import AdaptedReader
from context_agent.pruning.budget import PruneBudget
from context_agent.pruning.contents import PART_FORMS, MessageContent, Path, ResultText
from context_agent.pruning.goal import Goal
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage, gaps
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruned_results import PrunedResults, ResultRecord, digest
from context_agent.pruning.relevance import JUDGES, READER_JUDGES, Judge, by_reading, custom, raised
from context_agent.pruning.report import Confirm, Pruned, PruneReport, RemovedPassage, RestoredPassage
from context_agent.pruning.selection import (
    FULL_STUBS,
    Candidate,
    StubCosts,
    copies,
    protected,
    refill,
    select,
    without_short_runs,
)
from context_agent.pruning.stubs import RequestedIds, brief_stub, full_stub, id_ranges, looks_like_stub
from context_agent.pruning.words import Scores
from context_agent.tokens import HarmonyCounter, RepeatCounter, TokenCounter

MAX_STUB_SHARE = 0.15
"""The share of the limit above which stubs and empty frames become brief if other passages then stay."""
LARGE_ARGUMENTS = 1_000
"""The shortest arguments of a call that may be pruned, in characters. Shorter ones are not counted and never change."""
LIMITED_REASONS = ("error", "used by a later step")
"""Reasons that protect passages only while all such passages fit into half of the limit."""
DEFAULT_BUDGET = 8_000
"""Tokens of tool results that stay by default."""
BRIEF_TOKENS, GONE_TOKENS = 8, 5
"""Tokens of a brief stub, and of the text that replaces a result without remaining passages."""
MOST_SKIPPED = 3
"""Maximum number of passages that are left out, because they cost more than estimated, before others replace them."""
COMPARED_STEPS = 3
"""The number of the agent's latest messages that passages are compared with, in addition to the task."""
PREVIEW_CHARACTERS = 100
"""Characters of a removed passage that the report quotes."""
STRATEGIES = ("reader", *JUDGES, "none")
Effort = Literal["fast", "careful", "thorough"]
PassageStrategy = Callable[[Sequence[Passage], str], Iterable[float]]
"""A function of passages and a task that returns a score for each passage. Passages with higher scores stay."""


class ContextPruner:
    """A pruner for the conversations of an agent. It remembers what it removed, so use the same pruner for every turn.

    A pruner must not be shared between threads.

    Args:
        budget: How many tokens of tool results to keep, as a number or as a share: `0.25` or `"25%"`. Results of the
            last turn stay if they fit. In that case, older results still keep half of the budget.
        strategy: `reader`, `age`, `random`, `bm25`, `embedding`, `none`, or a function (passages, task) -> scores.
        effort: How the strategy `reader` judges. `fast` compares words and their meaning. `careful` also compares the
            sentence embeddings of short texts, and lets a cross-encoder read passages. `thorough` compares the
            embeddings of whole passages instead, and cuts smaller passages if the budget is small. It keeps the most
            evidence. When it prunes a conversation for the first time, it takes about three times as long as `careful`.
        adapted: A file of `ctx1 train pruner`. The strategy `reader` then uses the reader that was adapted with it.
        prices: Prices that decide whether a prune pays.
        counter: The token counter. Defaults to the counter for gpt-oss.
        confirm: A function that is called with the report before a prune that frees more than `confirm_above` tokens.
            If it returns False, nothing is removed. It is called again when the prune would free `confirm_above` more
            tokens.
        confirm_above: Maximum number of tokens that a prune may free without calling `confirm`.
        on_restore: A function that is called with each restored passage. Removing the passage was wrong, so a record of
            these calls is training data.
        originals_only: True if the conversation always comes as it was before any prune, as to a proxy. A text that
            equals a pruned one is then a text like any other. Set it if conversations of several users share the
            pruner. Otherwise, if calls have no ids, a tool result that imitates a stub can restore a text of another
            user.

    Raises:
        ConfigError: If the budget, the strategy, the effort or `confirm_above` is invalid, if the file of `adapted`
            cannot be read, or if `adapted` is used with another strategy or effort.
    """

    def __init__(
        self,
        budget: float | str = DEFAULT_BUDGET,
        *,
        strategy: str | PassageStrategy = "reader",
        effort: Effort = "thorough",
        adapted: str | os.PathLike[str] | None = None,
        prices: Prices | None = None,
        counter: TokenCounter | None = None,
        confirm: Confirm | None = None,
        confirm_above: int = 0,
        on_restore: Callable[[RestoredPassage], None] | None = None,
        originals_only: bool = False,
    ) -> None:
        confirm_above = whole_number(confirm_above, "confirm_above", least=0)
        if confirm is not None:
            require_callable(confirm, "confirm")
        if on_restore is not None:
            require_callable(on_restore, "on_restore")
        require_type(prices, "prices", (Prices, type(None)), "Prices, such as Prices(cached=0.1)")
        if counter is not None:
            require_members(counter, "counter", ("count",), "a token counter, such as HarmonyCounter()")
        self._confirm, self._confirm_above, self._declined = confirm, confirm_above, 0
        self._on_restore = on_restore
        self.budget, self.prices = PruneBudget.of(budget), prices or Prices()
        self.strategy = strategy if isinstance(strategy, str) else getattr(strategy, "__name__", "custom")
        self._judge = _judge(strategy, effort, adapted)
        # The other strategies keep no more evidence with smaller passages.
        self._has_small_passages = strategy == "reader" and effort == "thorough"
        if counter is None or type(counter) is HarmonyCounter:
            counter = RepeatCounter()
        self._results = PrunedResults(counter, originals_only=originals_only)
        self._used: float | None = None

    @property
    def memory(self) -> int:
        """The bytes that the pruner remembers, as of the last prune or restore."""
        return self._results.memory

    def prune(
        self, messages: Sequence[Any], task: str | None = None, *, hint: str = "", prices: Prices | None = None
    ) -> Pruned:
        """Remove the passages that matter least for the task, if removing them pays.

        Passages that were removed before stay removed, unless the user or the agent wrote `restore:` and their ids. A
        result without a call, or a call without a result, is left unchanged and causes a warning.

        Args:
            messages: The conversation. It is not changed. If an item is not a message, the list is returned unchanged.
            task: The task of the agent. Defaults to the last user message. It is read together with the end of the
                agent's own words in its latest turn.
            hint: The information that the agent is looking for. A line `looking for: …` in its latest message has the
                same effect.
            prices: Prices for this prune. Defaults to the prices of the pruner.

        Returns:
            The messages and a report. Messages that change are copied; the others are the same objects.

        Raises:
            ConfigError: If an argument has another type, or if the strategy does not return a number for each passage.
        """
        require_type(task, "task", (str, type(None)), "text")
        require_type(hint, "hint", str, "text")
        require_type(prices, "prices", (Prices, type(None)), "Prices, such as Prices(cached=0.1)")
        transcript = Transcript(messages)
        if problems := transcript.problems:
            report = PruneReport(
                "passed through", transcript.kind, self.strategy, warnings=(*problems, *transcript.notices)
            )
            return Pruned(list(messages), report)
        parts = (transcript.task if task is None else task, transcript.hint, hint.strip())
        task = "\n".join(filter(None, parts))
        goal = Goal("\n".join(filter(None, (task, transcript.intention))), transcript.steps(COMPARED_STEPS))
        prices, now = prices or self.prices, time.monotonic()
        cold = self._used is not None and now - self._used > prices.lifetime
        self._used = now
        try:
            prune = _Prune(
                transcript,
                goal,
                self._results,
                self.budget,
                small_passages=self._has_small_passages,
                on_restore=partial(self._record, task),
            )
            return prune.run(self.strategy, self._judge, prices, self._is_confirmed, cold=cold)
        finally:
            self._results.count_memory()

    def _record(self, task: str, passages: Iterable[Passage]) -> None:
        if self._on_restore is not None:
            for passage in passages:
                self._on_restore(RestoredPassage(task, passage.label, passage.text, passage.tokens))

    def _is_confirmed(self, report: PruneReport) -> bool:
        if self._confirm is None or report.freed <= self._confirm_above:
            return True
        if report.freed <= self._declined + self._confirm_above:
            return False
        self._declined = 0 if (confirmed := self._confirm(report)) else report.freed
        return confirmed

    def restore(self, messages: Sequence[Any], ids: Iterable[str]) -> list[Any]:
        """Restore passages at their original places. Later prunes do not remove them.

        Args:
            messages: The messages that `prune` returned, or the agent's original messages, which contain the passages
                anyway.
            ids: The ids of the passages, as in the stubs.

        Returns:
            The messages with the passages. Messages that change are copied; the others are the same objects.

        Raises:
            ConfigError: If `messages` is not a list, if `ids` are not texts, or if an id belongs to no passage that was
                removed from this conversation. Then nothing is restored.
        """
        wanted = set[str]()
        for name in items_of(ids, "ids", "the ids of passages, such as ['p17']"):
            require_type(name, "ids", str, "the ids of passages, such as ['p17']")
            wanted.add(name)
        transcript = Transcript(messages)
        found = [
            (result, record, removed)
            for result, record, removed in self._results.find(transcript.texts, _opening(transcript))
            if record is not None
        ]
        pruned_ids = {name for _, record, removed in found for name in (*removed.values(), *record.ids.values())}
        if unknown := sorted(wanted - pruned_ids):
            hint = suggestion(unknown[0], pruned_ids) if pruned_ids else "No passage of it is pruned."
            raise ConfigError(f"no stub in this conversation names {unknown[0]!r}. {hint}")
        values: list[tuple[ResultText, Path, Any]] = []
        for result, record, removed in found:
            n_messages = len(transcript.contents)
            self._record(transcript.task, record.restore(wanted, removed, n_messages=n_messages))
            remaining = {index: name for index, name in removed.items() if name not in wanted}
            if (text := self._results.returned(result, record, remaining)) != result.text:
                values.append((result, *record.value(result, text)))
        self._results.count_memory(record for _, record, _ in found)
        return transcript.rewritten(values)


def _judge(strategy: str | PassageStrategy, effort: Effort, file: str | os.PathLike[str] | None) -> Judge | None:
    """Return the judge for a strategy. If the strategy is `none`, return None.

    Raises:
        ConfigError: If the strategy or the effort is unknown, or if an adapted reader cannot be used with them.
    """
    if effort not in get_args(Effort):
        raise ConfigError(f"effort must be fast, careful or thorough; got {effort!r}")
    if file is not None:
        if strategy != "reader" or effort == "fast":
            raise ConfigError(
                "an adapted reader needs strategy='reader', and effort='careful' or effort='thorough'; "
                f"got {strategy!r} and {effort!r}"
            )
        return partial(by_reading, model=AdaptedReader.load(file), whole=effort == "thorough")
    if not isinstance(strategy, str):
        require_callable(strategy, "strategy")
        return custom(strategy)
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown pruning strategy {strategy!r}. {suggestion(strategy, STRATEGIES)}")
    return READER_JUDGES[effort] if strategy == "reader" else JUDGES.get(strategy)


def _release(candidates: Sequence[Candidate], rows: Sequence[int], reasons: dict[int, str], excess: int) -> None:
    """Remove the first rows from the reasons until their passages have `excess` tokens in all."""
    for row in rows:
        if excess <= 0:
            break
        del reasons[row]
        excess -= candidates[row].passage.tokens


class _Prune:
    """One prune of one conversation."""

    def __init__(
        self,
        transcript: Transcript,
        goal: Goal,
        memory: PrunedResults,
        budget: PruneBudget,
        *,
        small_passages: bool,
        on_restore: Callable[[list[Passage]], None],
    ) -> None:
        self._transcript, self._goal, self._memory = transcript, goal, memory
        self._results = [
            result
            for result in transcript.texts
            if not result.is_argument or len(result.text) >= LARGE_ARGUMENTS or memory.removed(result)[0]
        ]
        opening = _opening(transcript)
        self._records = memory.records(self._results, opening)
        self._sent = self._rendered({})
        self._requests = RequestedIds(
            content.before_results if content.is_imitable else self._own_text(content)
            for content in transcript.contents
            if content.role in ("assistant", "user")
        )
        self._restored = self._restore(on_restore)
        self._texts = self._rendered({})
        # The original texts decide the limit, so that a second prune computes the same limit.
        sizes = self._sizes([record.text for record in self._records])
        self._original = sum(sizes)
        tokens = budget.tokens(self._original)
        if small_passages:
            for record in self._records:
                record.budget = tokens
        self._newest = self._fitting(sizes, tokens)
        self._limit = max(tokens, tokens // 2 + sum(sizes[row] for row in self._newest))
        self._total_before = self._total(self._texts)

    def _own_text(self, content: MessageContent) -> str:
        """Return the text that the author of a message wrote, with the original arguments of its calls.

        A stub in the arguments of a call must not count as a request to restore.
        """

        def original(argument: ResultText) -> str:
            record = self._memory.removed(argument)[0]
            return argument.text if record is None else record.text

        return content.text_with(original)

    def _fitting(self, sizes: Sequence[int], tokens: int) -> frozenset[int]:
        """Return the numbers of the newest texts that stay whole.

        Of the last turn's texts, the smallest are taken first, while they fit. Its files stay at any size, and so
        does the newest file, because pruning cannot keep the relevant part of a file.
        """
        last = {row for row, result in enumerate(self._results) if result.message >= self._transcript.last_turn}
        every_file = [row for row, record in enumerate(self._records) if record.source.form == "file"]
        files = {*every_file[-1:], *last.intersection(every_file)}
        texts = sorted(last - files, key=lambda row: (sizes[row], row))
        sums = np.cumsum([sizes[row] for row in texts])
        return frozenset((*files, *texts[: int(np.searchsorted(sums, tokens, side="right"))]))

    def run(
        self,
        strategy: str,
        judge: Judge | None,
        prices: Prices,
        confirm: Confirm,
        *,
        cold: bool,
    ) -> Pruned:
        """Prune the conversation, and return the messages and the report."""
        total = self._total_before
        restoring = self._cached_lost(self._texts)
        report = PruneReport("within budget", self._transcript.kind, strategy, total, total, warnings=self._warnings())
        report = replace(report, cached_lost=restoring, restored=tuple(self._restored), tokens_original=self._original)
        if total <= self._limit:
            return self._pruned(report)
        if judge is None:
            return self._pruned(self._over_budget(report))
        candidates = self._candidates()
        staying = self._staying(candidates)
        scores = self._scores(candidates, staying, judge)
        repeated = copies(candidates, self._removed(candidates))
        self._release_excess(candidates, scores, staying)
        names, brief = self._fitting_choice(candidates, scores, staying)
        ids = self._ids(candidates, names)
        report = replace(report, protected=dict(Counter(staying.values())))
        if not names and not brief:
            return self._pruned(self._over_budget(report))
        texts = self._rendered(ids, brief)
        freed, lost = total - self._total(texts), self._cached_lost(texts)
        savings = prices.savings(freed, cold=cold)
        loss = prices.loss(max(0, lost - restoring), cold=cold)
        report = replace(report, outcome="does not pay", freed=freed, cached_lost=lost, savings=savings, loss=loss)
        if savings <= loss:
            return self._pruned(report)
        removed = tuple(
            self._removed_passage(candidates[row], name, scores[row], row in repeated) for row, name in names.items()
        )
        planned = replace(report, outcome="pruned", tokens_after=total - freed, removed=removed)
        if not confirm(planned):
            return self._pruned(replace(report, outcome="declined"))
        self._commit(candidates, names, brief)
        report = planned
        return self._pruned(self._over_budget(report) if report.tokens_after > self._limit else report)

    def _over_budget(self, report: PruneReport) -> PruneReport:
        """Return the report with the outcome `over budget` and a warning."""
        warning = (
            f"{report.tokens_after:,} tokens of tool results stay, {self._limit:,} fit: what remains is protected, "
            "restored, or too small to remove"
        )
        return replace(report, outcome="over budget", warnings=(*report.warnings, warning))

    def _restore(self, on_restore: Callable[[list[Passage]], None]) -> list[str]:
        """Restore the passages that the user and the agent ask for, and return their ids."""
        if not self._requests:
            return []
        removed = {name for record in self._records for name in record.ids.values()}
        wanted = {name for name in removed if int(name[1:]) in self._requests}
        for record in self._records:
            on_restore(record.restore(wanted, n_messages=len(self._transcript.contents)))
        return sorted(wanted, key=lambda name: int(name[1:]))

    def _candidates(self) -> list[Candidate]:
        """Return all passages in order, including removed ones. Earlier prunes must not change the scores.

        The original text decides whether a result is an error, because the pruned one may lack the word that says so.
        """
        results = (
            result if result.is_error == record.source.is_error else replace(result, is_error=record.source.is_error)
            for result, record in zip(self._results, self._records, strict=True)
        )
        return [
            Candidate(passage, result, number, index)
            for number, (result, record) in enumerate(zip(results, self._records, strict=True))
            for index, passage in enumerate(record.passages)
        ]

    def _staying(self, candidates: Sequence[Candidate]) -> dict[int, str]:
        """Return the rows that stay whatever their score, with the reasons."""
        reasons = protected(candidates, self._transcript)
        reasons = {
            row: reason
            for row, reason in reasons.items()
            if reason != "last turn" or candidates[row].number in self._newest
        }
        for form in PART_FORMS:
            if parts := [row for row, item in enumerate(candidates) if item.source.form == form]:
                reasons[parts[-1]] = f"latest {form}"
        return self._with_restored(candidates, reasons)

    def _protected_tokens(self, candidates: Sequence[Candidate], reasons: Mapping[int, str]) -> tuple[int, int]:
        """Return the tokens of the passages whose protection is limited, and of the other protected passages."""
        removed, tokens = self._removed(candidates), Counter[bool]()
        for row in reasons.keys() - removed:
            tokens[reasons[row] in LIMITED_REASONS] += candidates[row].passage.tokens
        return tokens[True], tokens[False]

    def _room(self, candidates: Sequence[Candidate], reasons: Mapping[int, str]) -> int:
        """Return the tokens that remain beside the protected passages. If they do not fit, it is negative."""
        limited, others = self._protected_tokens(candidates, reasons)
        return self._limit - others - min(limited, self._limit // 2)

    def _with_restored(self, candidates: Sequence[Candidate], reasons: Mapping[int, str]) -> dict[int, str]:
        """Return the reasons, and add the restored passages that stay.

        If the protected passages do not fit, those that were restored first are judged like other passages. Otherwise
        a request for a long range of ids would keep the conversation over its budget. What was restored within the
        latest `COMPARED_STEPS` steps stays.
        """
        restored = [row for row, item in enumerate(candidates) if item.index in self._records[item.number].restored]
        staying = {**reasons, **dict.fromkeys(restored, "restored")}
        by_time: dict[int, list[int]] = {}
        for row, n_messages in self._long_restored(candidates).items():
            by_time.setdefault(n_messages, []).append(row)
        for n_messages in sorted(by_time):
            if self._room(candidates, staying) >= 0:
                break
            for row in by_time[n_messages]:
                del staying[row]
                if row in reasons:
                    staying[row] = reasons[row]
        return staying

    def _long_restored(self, candidates: Sequence[Candidate]) -> dict[int, int]:
        """Return the rows that were restored before the latest steps, with the number of messages at that time."""
        steps = [index for index, content in enumerate(self._transcript.contents) if content.role == "assistant"]
        first_step = min(steps[-COMPARED_STEPS:], default=0)
        restored = ((row, self._records[item.number].restored.get(item.index)) for row, item in enumerate(candidates))
        return {row: n_messages for row, n_messages in restored if n_messages is not None and n_messages <= first_step}

    def _release_excess(self, candidates: Sequence[Candidate], scores: Scores, reasons: dict[int, str]) -> None:
        """Remove the protection of errors and used passages beyond half of the limit, the least relevant first.

        Otherwise they could keep out everything that the task needs. If the other protected passages leave less room,
        only what fits beside them stays protected.
        """
        limited, others = self._protected_tokens(candidates, reasons)
        half, room = self._limit // 2, self._limit - others
        excess = limited - (min(half, room) if room > 0 else half)
        _release(candidates, self._releasable(candidates, scores, reasons), reasons, excess)

    def _releasable(self, candidates: Sequence[Candidate], scores: Scores, reasons: Mapping[int, str]) -> list[int]:
        """Return the rows whose protection may be removed, in this order.

        The least relevant errors and used passages are the first. Passages that were restored long ago follow.
        """
        removed, restored = self._removed(candidates), self._long_restored(candidates)
        limited = [row for row, reason in reasons.items() if reason in LIMITED_REASONS and row not in removed]
        others = [row for row in restored if reasons.get(row) == "restored"]
        return [
            *sorted(limited, key=lambda row: (scores[row], row)),
            *sorted(others, key=lambda row: (restored[row], scores[row], row)),
        ]

    def _removed(self, candidates: Sequence[Candidate]) -> frozenset[int]:
        return frozenset(row for row, item in enumerate(candidates) if item.index in self._records[item.number].ids)

    def _scores(self, candidates: Sequence[Candidate], staying: Mapping[int, str], judge: Judge) -> Scores:
        """Return the scores of the passages, shape (n_passages,).

        Raises:
            ConfigError: If the strategy does not return a number for each passage.
        """
        passages = [candidate.passage for candidate in candidates]
        room = max(0, self._room(candidates, staying))
        scores = judge(passages, replace(self._goal, room=room, staying=frozenset(staying)))
        if scores.shape != (len(passages),) or np.isnan(scores).any():
            raise ConfigError(
                f"the strategy must return a number for each of {len(passages)} passages; got shape {scores.shape}, "
                f"{np.isnan(scores).sum()} of them NaN"
            )
        scores = raised(scores, passages, [row for row, reason in staying.items() if reason == "restored"])
        # The content of images and files is not judged. A later one stays longer.
        for form in PART_FORMS:
            parts = [row for row, candidate in enumerate(candidates) if candidate.source.form == form]
            scores[parts] = np.sort(scores[parts])
        return scores

    def _fitting_choice(
        self, candidates: Sequence[Candidate], scores: Scores, staying: dict[int, str]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Choose the passages to remove. If the rest and its stubs do not fit, fewer passages stay protected.

        Returns:
            The same as `_chosen`.
        """
        factor = 1
        while True:
            names, brief = self._chosen(candidates, scores, staying)
            excess = self._total(self._rendered(self._ids(candidates, names), brief)) - self._limit
            rows = self._releasable(candidates, scores, staying) if excess > 0 else []
            fixed = staying.keys() - self._removed(candidates) - {*rows}
            if not rows or sum(candidates[row].passage.tokens for row in fixed) > self._limit:
                return names, brief
            # Each round releases twice as much as the round before, so there are few.
            _release(candidates, rows, staying, excess * factor)
            factor *= 2

    def _chosen(
        self, candidates: Sequence[Candidate], scores: Scores, staying: Mapping[int, str]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Choose the passages to remove.

        Stubs are brief only if full stubs take much room, and other passages stay with brief ones.

        Returns:
            The ids of the passages to remove, by row, and the texts with brief stubs, by the number of the result.
        """
        rows = self._least_relevant(candidates, scores, staying, FULL_STUBS)
        ids = self._ids(candidates, self._names(rows))
        overhead = self._overhead(self._rendered(ids), ids)
        rows = self._refilled(candidates, scores, rows, FULL_STUBS)
        if overhead <= MAX_STUB_SHARE * self._limit:
            return self._names(rows), {}
        frames = {
            number: self._memory.tokens(record.frame)
            for number, record in enumerate(self._records)
            if self._is_old(number) and record.frame_can_go
        }
        costs = StubCosts(BRIEF_TOKENS, GONE_TOKENS, frames)
        brief_rows = self._least_relevant(candidates, scores, staying, costs)
        brief_rows = self._refilled(candidates, scores, brief_rows, costs)
        if brief_rows == rows and self._total_without(candidates, rows, FULL_STUBS) <= self._limit:
            return self._names(rows), {}
        names = self._names(brief_rows)
        return names, self._brief(self._ids(candidates, names))

    def _is_old(self, number: int) -> bool:
        return self._results[number].message < self._transcript.last_turn

    def _overhead(self, texts: Sequence[str], ids: Mapping[int, Mapping[int, str]]) -> int:
        """Return the tokens of stubs, and of the frames of results without remaining passages."""
        overhead = 0
        for number, (record, tokens) in enumerate(zip(self._records, self._sizes(texts), strict=True)):
            removed = {**record.ids, **ids.get(number, {})}
            if not removed:
                continue
            is_gone = len(removed) == len(record.passages)
            overhead += tokens if is_gone else FULL_STUBS.stub * len(gaps(record.passages, removed))
        return overhead

    def _least_relevant(
        self, candidates: Sequence[Candidate], scores: Scores, staying: Mapping[int, str], costs: StubCosts
    ) -> frozenset[int]:
        """Return the rows to remove, the least relevant first.

        The method stops when the rest and its stubs fit, or when nothing more can be removed.
        """
        removed = self._removed(candidates)
        rows: frozenset[int] = frozenset()
        total, factor = self._total_without(candidates, rows, costs), 1
        while total > self._limit:
            # From the third round on, each round frees twice as much as the round before. The number of rounds stays
            # small even if stubs cost more than estimated.
            limit = total - (total - self._limit) * factor
            more = select(candidates, scores, staying, removed | rows, total=total, limit=limit, costs=costs)
            if not more and limit <= 0:
                break
            # If all that was chosen frees less than its stubs cost, more has to be chosen.
            factor *= 2 if rows or not more else 1
            rows |= more
            total = self._total_without(candidates, rows, costs)
        return rows

    def _refilled(
        self, candidates: Sequence[Candidate], scores: Scores, rows: frozenset[int], costs: StubCosts
    ) -> frozenset[int]:
        """Return the rows to remove, without those that fit in the rest of the budget.

        Stubs and frames can cost more than estimated. Of the passages that should fit together, those that really fit
        are then kept, the most relevant first, and the next passage stays removed.
        """

        def excess(fewer: frozenset[int]) -> int:
            return self._total_without(candidates, fewer, costs) - self._limit

        removed, skipped = self._removed(candidates), frozenset[int]()
        while len(skipped) <= MOST_SKIPPED and (room := -excess(rows)) > 0:
            others = removed | skipped
            back = refill(
                candidates, scores, rows - skipped, others, total=self._limit - room, limit=self._limit, costs=costs
            )
            fitting = len(back)
            if excess(rows - {*back}) > 0:
                fitting = bisect_left(range(fitting), True, key=lambda last: excess(rows - {*back[: last + 1]}) > 0)
            rows -= {*back[:fitting]}
            if fitting == len(back):
                break
            skipped |= {back[fitting]}
        fewer = frozenset(without_short_runs(candidates, rows, removed, costs))
        return rows if excess(fewer) > 0 else fewer

    def _total_without(self, candidates: Sequence[Candidate], rows: frozenset[int], costs: StubCosts) -> int:
        """Return the tokens of the results without the passages in these rows."""
        ids = self._ids(candidates, self._names(rows))
        return self._total(self._rendered(ids, {} if costs is FULL_STUBS else self._brief(ids)))

    def _names(self, rows: Iterable[int]) -> dict[int, str]:
        """Return new ids for the rows, in order. Ids that a message already asks to restore are skipped."""
        names: dict[int, str] = {}
        number = self._memory.last_id
        for row in sorted(rows):
            number = self._requests.next_free(number + 1)
            names[row] = f"p{number}"
        return names

    def _ids(self, candidates: Sequence[Candidate], names: Mapping[int, str]) -> dict[int, dict[int, str]]:
        """Return the ids by the number of the result and the index of the passage."""
        ids: dict[int, dict[int, str]] = {}
        for row, name in names.items():
            ids.setdefault(candidates[row].number, {})[candidates[row].index] = name
        return ids

    def _rendered(self, ids: Mapping[int, Mapping[int, str]], brief: Mapping[int, str] | None = None) -> list[str]:
        """Return the text of each result, without the passages in `ids` and those that were removed before."""
        short = brief or {}
        return [
            short.get(row) or record.without({**record.ids, **ids.get(row, {})})
            for row, record in enumerate(self._records)
        ]

    def _brief(self, ids: Mapping[int, Mapping[int, str]]) -> dict[int, str]:
        """Return the texts of older results with brief stubs, by the number of the result.

        If no passage of a result remains, its frame is removed too. If neighboring results have no passages, the first
        names the ids of all of them, and each other result names its own ids.
        """
        texts: dict[int, str] = {}
        groups: list[list[int]] = []
        removed = [{**record.ids, **ids.get(row, {})} for row, record in enumerate(self._records)]
        for row, record in enumerate(self._records):
            if not removed[row] or not self._is_old(row):
                continue
            if len(removed[row]) < len(record.passages) or not record.frame_can_go:
                if not record.is_brief or ids.get(row):
                    texts[row] = record.without(removed[row], is_brief=True)
            elif not record.short:
                texts[row] = record.shortened(id_ranges([*removed[row].values()]))
                if groups and groups[-1][-1] == row - 1:
                    groups[-1].append(row)
                else:
                    groups.append([row])
        for group in groups:
            names = [name for row in group for name in removed[row].values()]
            if len(group) > 1:
                tokens = sum(passage.tokens for row in group for passage in self._records[row].passages)
                first = full_stub(names, tokens, results=len(group))
            elif group[0] and self._records[group[0] - 1].short:
                continue
            else:
                first = brief_stub(names)
            texts[group[0]] = self._records[group[0]].shortened(first)
        return texts

    def _commit(self, candidates: Sequence[Candidate], names: Mapping[int, str], brief: Mapping[int, str]) -> None:
        for number, ids in self._ids(candidates, names).items():
            self._records[number].remove(ids)
        for number, text in brief.items():
            record = self._records[number]
            record.is_brief = True
            record.short = text if len(record.ids) == len(record.passages) and record.frame_can_go else ""
        if names:
            self._memory.last_id = max(int(name[1:]) for name in names.values())

    def _sizes(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each record's current text."""
        return [self._memory.tokens(text, record) for text, record in zip(texts, self._records, strict=True)]

    def _total(self, texts: Sequence[str]) -> int:
        return sum(self._sizes(texts))

    def _cached_lost(self, texts: Sequence[str]) -> int:
        """Return the tokens that stay after the first change and were cached.

        The server has seen everything but the last turn.
        """
        changed = zip(self._results, self._records, self._sent, texts, strict=True)
        lost, is_broken = 0, False
        by_message: dict[int, list[tuple[ResultRecord, str, str]]] = {}
        # Large arguments are separate texts.
        counted: set[tuple[int, Path]] = set()
        for result, record, before, after in changed:
            by_message.setdefault(result.message, []).append((record, before, after))
            counted.add((result.message, result.path))
        for message, content in enumerate(self._transcript.contents[: self._transcript.last_turn]):
            for record, before, after in by_message.get(message, ()):
                if is_broken or before != after:
                    start = 0 if is_broken else _shared_prefix(before, after)
                    lost += self._memory.tokens(after[start:], record)
                    is_broken = True
            if is_broken:
                own = content.text_with(lambda it: "" if (it.message, it.path) in counted else it.text)
                lost += self._memory.tokens(own)
        return lost

    def _removed_passage(self, candidate: Candidate, name: str, score: float, is_copy: bool) -> RemovedPassage:
        passage, result = candidate.passage, candidate.source
        return RemovedPassage(
            id=name,
            message=self._transcript.origins[result.message],
            call_id=result.call_id,
            tokens=passage.tokens,
            score=round(float(score), 4),
            reason="copy of an earlier passage" if is_copy else "less relevant than what stays",
            preview=" ".join(passage.text[: 2 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS],
        )

    def _warnings(self) -> tuple[str, ...]:
        origins = self._transcript.origins
        imitations = (
            f"message {origins[result.message]} has a text that looks like a stub; it is treated as text"
            for result, record in zip(self._results, self._records, strict=True)
            if looks_like_stub(record.text)
        )
        return (*self._transcript.notices, *dict.fromkeys(imitations))

    def _pruned(self, report: PruneReport) -> Pruned:
        values = [
            (result, *record.value(result, text))
            for result, record in zip(self._results, self._records, strict=True)
            if (text := self._memory.returned(result, record)) != result.text
        ]
        return Pruned(self._transcript.rewritten(values), report)


def _shared_prefix(before: str, after: str) -> int:
    """Return the number of characters that two texts share at the start."""
    longest = min(len(before), len(after))
    return bisect_left(range(longest), True, key=lambda end: before[: end + 1] != after[: end + 1])


def _opening(transcript: Transcript) -> bytes:
    """Return a digest of what users and the system wrote before the first result. It distinguishes conversations."""
    first = next((index for index, content in enumerate(transcript.contents) if content.results), None)
    opening = (content.text for content in transcript.contents[:first] if content.role != "assistant")
    return digest("\0".join(opening))
