"""The texts of a conversation's results without the removed passages, and the tokens that they take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from context_agent.pruning.contents import Path, ResultText
from context_agent.pruning.gaps import gaps
from context_agent.pruning.messages import Transcript
from context_agent.pruning.pruned_results import PrunedResults, ResultRecord
from context_agent.pruning.selection import FULL_STUBS
from context_agent.pruning.stubs import brief_stub, full_stub, id_ranges

RemovedIds = Mapping[int, Mapping[int, str]]
"""The ids of removed passages, by the number of the result and the index of the passage."""


class PrunedTexts:
    """The texts of one conversation, as they are if further passages are removed.

    Args:
        transcript: The conversation.
        results: Its results that may be pruned.
        records: The record of each result.
        memory: The pruner's memory, which counts each text once.
    """

    def __init__(
        self,
        transcript: Transcript,
        results: Sequence[ResultText],
        records: Sequence[ResultRecord],
        memory: PrunedResults,
    ) -> None:
        self._transcript, self._results, self._records, self._memory = transcript, results, records, memory

    def without(self, ids: RemovedIds, brief: Mapping[int, str] | None = None) -> list[str]:
        """Return the text of each result, without the passages in `ids` and those that were removed before.

        Args:
            ids: The passages to remove.
            brief: Texts that replace those of some results, by the number of the result.
        """
        short = brief or {}
        return [
            short.get(row) or record.without({**record.ids, **ids.get(row, {})})
            for row, record in enumerate(self._records)
        ]

    def with_brief_stubs(self, ids: RemovedIds) -> dict[int, str]:
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

    def frames(self) -> dict[int, int]:
        """Return the tokens around the passages of older results, by the number of the result.

        Only results whose frame can be removed with the last of their passages are included.
        """
        return {
            number: self._memory.tokens(record.frame)
            for number, record in enumerate(self._records)
            if self._is_old(number) and record.frame_can_go
        }

    def _is_old(self, number: int) -> bool:
        return self._results[number].message < self._transcript.last_turn

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each record's current text."""
        return [self._memory.tokens(text, record) for text, record in zip(texts, self._records, strict=True)]

    def total(self, texts: Sequence[str]) -> int:
        """Return the number of tokens of all texts."""
        return sum(self.sizes(texts))

    def overhead(self, texts: Sequence[str], ids: RemovedIds) -> int:
        """Return the tokens of stubs, and of the frames of results without remaining passages."""
        overhead = 0
        for number, (record, tokens) in enumerate(zip(self._records, self.sizes(texts), strict=True)):
            removed = {**record.ids, **ids.get(number, {})}
            if not removed:
                continue
            is_gone = len(removed) == len(record.passages)
            overhead += tokens if is_gone else FULL_STUBS.stub * len(gaps(record.passages, removed))
        return overhead

    def cached_lost(self, sent: Sequence[str], texts: Sequence[str]) -> int:
        """Return the tokens that stay after the first change and were cached.

        The server has seen everything but the last turn.

        Args:
            sent: The text of each result as it was sent before.
            texts: The text of each result as it will be sent.
        """
        changed = zip(self._results, self._records, sent, texts, strict=True)
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


def _shared_prefix(before: str, after: str) -> int:
    """Return the number of characters that two texts share at the start."""
    longest = min(len(before), len(after))
    return bisect_left(range(longest), True, key=lambda end: before[: end + 1] != after[: end + 1])
