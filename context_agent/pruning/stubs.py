"""What a pruner removed from tool results: stubs in the texts that it returned, and the originals behind them.

A stub is never parsed. A result counts as pruned only if it equals, as a whole, a text that was returned for the same
call. So a text inside a tool result that looks like a stub is a text like any other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from context_agent.pruning.messages import Path, ResultText
from context_agent.pruning.passages import Passage, cut, without
from context_agent.tokens import TokenCounter

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


def looks_like_stub(text: str) -> bool:
    """Whether a text imitates a stub."""
    return _LOOKS_LIKE_STUB.search(text) is not None


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
