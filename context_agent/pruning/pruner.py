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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from context_agent._support.arguments import items_of, require_callable, require_members, require_type, whole_number
from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError
from context_agent.pruning.adapted_reader import AdaptedReader
from context_agent.pruning.contents import PART_FORMS, MessageContent, Path, ResultText
from context_agent.pruning.fitting import Choice, Fitting
from context_agent.pruning.goal import COMPARED_STEPS, Goal
from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage
from context_agent.pruning.prices import Prices
from context_agent.pruning.protection import Protection
from context_agent.pruning.pruned_results import PrunedResults, digest
from context_agent.pruning.pruned_texts import PrunedTexts
from context_agent.pruning.relevance import JUDGES, READER_JUDGES, Judge, by_reading, custom, raised
from context_agent.pruning.report import Confirm, Pruned, PruneReport, RemovedPassage, RestoredPassage
from context_agent.pruning.result_budget import PruneBudget
from context_agent.pruning.selection import Candidate, copies
from context_agent.pruning.stubs import RequestedIds, looks_like_stub
from context_agent.pruning.words import Scores
from context_agent.tokens import HarmonyCounter, RepeatCounter, TokenCounter

LARGE_SHARE = 0.2
"""The share of the limit from which a passage is large, so that its result is cut into smaller passages."""
LARGE_ARGUMENTS = 1_000
"""The shortest arguments of a call that may be pruned, in characters. Shorter ones are not counted and never change."""
DEFAULT_BUDGET = 8_000
"""Tokens of tool results that stay by default."""
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
        self._recuts = strategy == "reader" and effort != "thorough"
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
                recuts=self._recuts,
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
            record.put_back |= {index: name for index, name in record.ids.items() if name in wanted}
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
        recuts: bool,
        on_restore: Callable[[list[Passage]], None],
    ) -> None:
        self._transcript, self._goal, self._memory, self._recuts = transcript, goal, memory, recuts
        self._results = [
            result
            for result in transcript.texts
            if not result.is_argument or len(result.text) >= LARGE_ARGUMENTS or memory.removed(result)[0]
        ]
        opening = _opening(transcript)
        self._records = memory.records(self._results, opening)
        self._texts = PrunedTexts(transcript, self._results, self._records, memory)
        self._sent = self._texts.without({row: record.put_back for row, record in enumerate(self._records)})
        for record in self._records:
            record.put_back = {}
        self._requests = RequestedIds(
            content.before_results if content.is_imitable else self._own_text(content)
            for content in transcript.contents
            if content.role in ("assistant", "user")
        )
        self._restored = self._restore(on_restore)
        self._unpruned = self._texts.without({})
        # The original texts decide the limit, so that a second prune computes the same limit.
        sizes = self._texts.sizes([record.text for record in self._records])
        self._original = sum(sizes)
        tokens = budget.tokens(self._original)
        if small_passages:
            for record in self._records:
                record.budget = tokens
        self._newest = self._whole(sizes, tokens)
        self._limit = max(tokens, tokens // 2 + sum(sizes[row] for row in self._newest))
        self._total_before = self._texts.total(self._unpruned)

    def _own_text(self, content: MessageContent) -> str:
        """Return the text that the author of a message wrote, with the original arguments of its calls.

        A stub in the arguments of a call must not count as a request to restore.
        """

        def original(argument: ResultText) -> str:
            record = self._memory.removed(argument)[0]
            return argument.text if record is None else record.text

        return content.text_with(original)

    def _whole(self, sizes: Sequence[int], tokens: int) -> frozenset[int]:
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
        restoring = self._texts.cached_lost(self._sent, self._unpruned)
        report = PruneReport("within budget", self._transcript.kind, strategy, total, total, warnings=self._warnings())
        report = replace(report, cached_lost=restoring, restored=tuple(self._restored))
        report = replace(report, tokens_original=self._original, limit=self._limit)
        if total <= self._limit:
            return self._pruned(report)
        if judge is None:
            return self._pruned(self._over_budget(report))
        candidates, protection, scores = self._judged(judge)
        if self._recuts and self._recut(candidates, protection, scores):
            candidates, protection, scores = self._judged(judge)
        removed = self._removed(candidates)
        protection.release_excess(scores)
        choice = Fitting(
            self._texts,
            candidates,
            removed,
            scores,
            protection,
            limit=self._limit,
            last_id=self._memory.last_id,
            requests=self._requests,
        ).choose()
        report = replace(report, protected=dict(Counter(protection.reasons.values())))
        if not choice.names and not choice.brief:
            return self._pruned(self._over_budget(report))
        texts = self._texts.without(choice.ids, choice.brief)
        freed, lost = total - self._texts.total(texts), self._texts.cached_lost(self._sent, texts)
        savings = prices.savings(freed, cold=cold)
        loss = prices.loss(max(0, lost - restoring), cold=cold)
        report = replace(report, outcome="does not pay", freed=freed, cached_lost=lost, savings=savings, loss=loss)
        if savings <= loss:
            return self._pruned(report)
        repeated = copies(candidates, removed)
        passages = tuple(
            self._removed_passage(candidates[row], name, scores[row], row in repeated)
            for row, name in choice.names.items()
        )
        planned = replace(report, outcome="pruned", tokens_after=total - freed, removed=passages)
        if not confirm(planned):
            return self._pruned(replace(report, outcome="declined"))
        self._commit(choice)
        report = planned
        return self._pruned(self._over_budget(report) if report.tokens_after > self._limit else report)

    def _judged(self, judge: Judge) -> tuple[list[Candidate], Protection, Scores]:
        """Return all passages, their protection, and their scores."""
        candidates = self._candidates()
        protection = Protection(
            candidates,
            self._removed(candidates),
            self._records,
            self._transcript,
            newest=self._newest,
            limit=self._limit,
        )
        return candidates, protection, self._scores(candidates, protection, judge)

    def _removed(self, candidates: Sequence[Candidate]) -> frozenset[int]:
        """Return the rows of the passages that were removed before."""
        return frozenset(row for row, it in enumerate(candidates) if it.index in self._records[it.number].ids)

    def _recut(self, candidates: Sequence[Candidate], protection: Protection, scores: Scores) -> bool:
        """Cut the results whose large passages would stay into smaller passages. Return True if any passage changed.

        A large passage leaves no room for the evidence of other results, and much of it is often irrelevant. A result
        is cut again only when it is judged for the first time, so a second prune of the same conversation changes
        nothing.
        """
        room = max(0, protection.room())
        judged, large, tokens = set[int](), set[int](), 0
        for row in np.argsort(-scores, kind="stable").tolist():
            if row in protection.reasons:
                continue
            number, size = candidates[row].number, candidates[row].passage.tokens
            judged.add(number)
            if tokens <= room and size >= LARGE_SHARE * self._limit:
                large.add(number)
            tokens += size
        changed = [self._records[number].settle(is_fine=number in large) for number in sorted(judged)]
        return any(changed)

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
            replace(result, is_error=record.source.is_error)
            for result, record in zip(self._results, self._records, strict=True)
        )
        return [
            Candidate(passage, result, number, index)
            for number, (result, record) in enumerate(zip(results, self._records, strict=True))
            for index, passage in enumerate(record.passages)
        ]

    def _scores(self, candidates: Sequence[Candidate], protection: Protection, judge: Judge) -> Scores:
        """Return the scores of the passages, shape (n_passages,).

        Raises:
            ConfigError: If the strategy does not return a number for each passage.
        """
        passages = [candidate.passage for candidate in candidates]
        reasons, room = protection.reasons, max(0, protection.room())
        scores = judge(passages, replace(self._goal, room=room, staying=frozenset(reasons)))
        if scores.shape != (len(passages),) or np.isnan(scores).any():
            raise ConfigError(
                f"the strategy must return a number for each of {len(passages)} passages; got shape {scores.shape}, "
                f"{np.isnan(scores).sum()} of them NaN"
            )
        scores = raised(scores, passages, [row for row, reason in reasons.items() if reason == "restored"])
        # The content of images and files is not judged. A later one stays longer.
        for form in PART_FORMS:
            parts = [row for row, candidate in enumerate(candidates) if candidate.source.form == form]
            scores[parts] = np.sort(scores[parts])
        return scores

    def _commit(self, choice: Choice) -> None:
        # The results of the last turn do not count, because a client may change them before its next request.
        settled = bisect_left(self._results, self._transcript.last_turn, key=lambda result: result.message)
        since = self._records[settled - 1].key if settled else b""
        for number, ids in choice.ids.items():
            self._records[number].remove(ids, since)
        for number, text in choice.brief.items():
            record = self._records[number]
            record.is_brief = True
            record.short = text if len(record.ids) == len(record.passages) and record.frame_can_go else ""
        if choice.names:
            self._memory.last_id = max(int(name[1:]) for name in choice.names.values())

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


def _opening(transcript: Transcript) -> bytes:
    """Return a digest of what users and the system wrote before the first result. It distinguishes conversations."""
    first = next((index for index, content in enumerate(transcript.contents) if content.results), None)
    opening = (content.text for content in transcript.contents[:first] if content.role != "assistant")
    return digest("\0".join(opening))
