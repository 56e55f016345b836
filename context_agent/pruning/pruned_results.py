"""The tool results that were pruned: their original texts, the removed passages, and the texts returned for them."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from sys import getsizeof
from typing import Any

from context_agent._support.cancellation import check_cancelled
from context_agent.pruning.contents import PART_FORMS, Path, ResultText
from context_agent.pruning.gaps import without
from context_agent.pruning.passages import Passage, cut
from context_agent.pruning.stubs import brief_stub, full_stub
from context_agent.pruning.terminal import has_hidden
from context_agent.tokens import RepeatCounter, TokenCounter

NUMBER_BYTES, ID_BYTES, DIGEST_BYTES, LIST_BYTES = 32, 96, 49, 88
"""Bytes of an integer, of a passage's id with its index, of a digest, and of a list with one item."""
MIN_COVERED = 0.7
"""The share of a text that its passages must cover before one stub may replace all of it."""


@dataclass(eq=False, slots=True)
class ResultRecord:
    """A text of a conversation, with the passages that were removed from it.

    Attributes:
        source: The original text and its place in the conversation.
        counter: The counter for the tokens of passages.
        key: The digest by which the original text is found.
        since: The key of the last result before the last turn when a passage of this text was first removed. It tells
            apart conversations that have the same text. It is empty if nothing was removed.
        budget: The tokens that all results may keep, if a small budget cuts smaller passages. Otherwise it is None.
        ids: The ids of the removed passages, by the index of the passage.
        restored: The indices of passages that were restored, each with the number of messages that the conversation had
            then.
        put_back: The ids of passages that `ContextPruner.restore` restored since the last prune, by their indices. The
            model server has the text without them.
        short: The text that replaces the whole result if all of it is removed and its stub is brief. Otherwise it is
            empty.
        is_brief: True if its stubs contain only the ids.
        is_fine: True if it is cut into the smallest passages. None if this is not decided.
        counted: The bytes that the record had when `PrunedResults` last counted them.
    """

    source: ResultText
    counter: TokenCounter
    key: bytes = b""
    since: bytes = b""
    budget: int | None = None
    ids: dict[int, str] = field(default_factory=dict)
    restored: dict[int, int] = field(default_factory=dict)
    put_back: dict[int, str] = field(default_factory=dict)
    short: str = ""
    is_brief: bool = False
    is_fine: bool | None = None
    counted: int = 0
    _passages: list[Passage] | None = None
    _passage_bytes: int = 0

    @property
    def text(self) -> str:
        """The original text."""
        return self.source.text

    @property
    def passages(self) -> list[Passage]:
        """The passages of the text, with their sizes. An image or a file is one passage."""
        if self._passages is None:
            check_cancelled()
            passages = self._cut()
            self._passages, self._passage_bytes = passages, _passage_bytes(passages)
        return self._passages

    def _cut(self) -> list[Passage]:
        source = self.source
        if source.form in PART_FORMS:
            return [Passage(source.text, 0, len(source.text), tokens=source.tokens)]
        passages = cut(source.text, as_json=source.form != "text", budget=self.budget, is_fine=self.is_fine is True)
        if has_hidden(source.text):
            written = [source.text[passage.start : passage.end] for passage in passages]
        else:
            written = [passage.text for passage in passages]
        labels: dict[str, str] = {}
        counted = []
        for passage, text in zip(passages, written, strict=True):
            label = f"{source.asked} {passage.label}".strip()
            # Passages with equal labels share one text.
            counted.append(replace(passage, label=labels.setdefault(label, label), tokens=self.counter.count(text)))
        return counted

    def settle(self, *, is_fine: bool) -> bool:
        """Decide for good whether the text is cut into the smallest passages. Earlier decisions stay.

        If a passage was removed or restored, the text keeps its passages, because they are known by their indices.

        Returns:
            True if the passages are others than before.
        """
        if self.is_fine is not None or self.ids or self.restored:
            return False
        self.is_fine, before = is_fine, self.passages
        if is_fine:
            self._passages = None
        return self.passages != before

    @property
    def memory(self) -> int:
        """The bytes of the record, including its text and passages."""
        ids = getsizeof(self.ids) + ID_BYTES * len(self.ids)
        texts = getsizeof(self.text) + _text_bytes(self.source.part)
        restored = getsizeof(self.restored) + getsizeof(self.put_back)
        return getsizeof(self) + getsizeof(self.source) + texts + self._passage_bytes + ids + restored

    @property
    def frame_can_go(self) -> bool:
        """True if one stub may replace the whole text, because nearly all of it is removed with its passages."""
        covered = position = 0
        for passage in self.passages:
            # An item is removed with the last of its passages.
            part = passage.items[-1] if passage.items else passage
            covered += max(0, part.end - max(position, part.start))
            position = max(position, part.end)
        is_mostly = covered >= MIN_COVERED * len(self.text.strip())
        return is_mostly and bool(self.passages) and self.source.form == "text" and not self.source.is_argument

    @property
    def frame(self) -> str:
        """The text that remains if all passages are removed, without the stubs."""
        return without(self.text, self.passages, range(len(self.passages)), lambda rows: "")

    def restore(
        self, wanted: AbstractSet[str], removed: Mapping[int, str] | None = None, *, n_messages: int
    ) -> list[Passage]:
        """Restore the passages with these ids, and return the passages that were not restored before.

        Args:
            wanted: Ids of passages to restore.
            removed: Further ids by passage index, from a text that was returned earlier.
            n_messages: The number of messages of the conversation.
        """
        names = {**(removed or {}), **self.ids}
        back = {index for index, name in names.items() if name in wanted}
        new = sorted(back - self.restored.keys())
        if back:
            self.restored |= dict.fromkeys(sorted(back), n_messages)
            self.ids = {index: name for index, name in self.ids.items() if name not in wanted}
            self.short = ""
        return [self.passages[index] for index in new]

    def remove(self, ids: Mapping[int, str], since: bytes = b"") -> None:
        """Remove the passages with these indices, which get these ids. The first removal sets `since`."""
        self.ids |= ids
        self.since = self.since or since
        self.restored = {index: number for index, number in self.restored.items() if index not in ids}

    def without(self, ids: Mapping[int, str], *, is_brief: bool = False) -> str:
        """Return the text with stubs in place of the passages in `ids`.

        If `is_brief`, the stubs contain only the ids.
        """
        if not ids:
            return self.text
        if self.short and len(ids) == len(self.passages):
            return self.short
        return without(self.text, self.passages, ids, partial(self._stub, ids, is_brief or self.is_brief))

    def shortened(self, text: str) -> str:
        """Return `text` in the form in which it can replace this one.

        If this text is JSON, the result is a JSON string.
        """
        first = self.passages[0]
        return json.dumps(text) if first.strings or first.form in ("value", "member") else text

    def value(self, result: ResultText, text: str) -> tuple[Path, Any]:
        """Return the path and the value that put `text` into the message of `result`.

        Args:
            result: The text as it is in the current messages.
            text: The record's text with stubs.
        """
        source = self.source
        if source.form not in PART_FORMS:
            return result.path, text
        path = result.path if result.form in PART_FORMS else result.path[:-1]
        part = {"type": source.text_type, "text": text} if source.text_type else {"text": text}
        return path, source.part if text == source.text else part

    def _stub(self, ids: Mapping[int, str], is_brief: bool, run: Sequence[int]) -> str:
        names = [ids[index] for index in run]
        return brief_stub(names) if is_brief else full_stub(names, sum(self.passages[index].tokens for index in run))


def _text_bytes(value: Any) -> int:
    """Return the bytes of all texts in a message part."""
    if isinstance(value, Mapping):
        return sum(map(_text_bytes, value.values()))
    return getsizeof(value) if isinstance(value, str | bytes) else 0


def _passage_bytes(passages: Sequence[Passage]) -> int:
    """Return the bytes of the passages. Neighbors under one heading share its text as their label."""
    labels = (label for label, _ in groupby(passage.label for passage in passages))
    parts = ((it, it.text, it.start, it.end, it.tokens) for it in passages)
    return getsizeof(passages) + sum(map(getsizeof, chain(labels, *parts)))


class PrunedResults:
    """The records of a pruner's conversations. A record is found by its original text or by any text returned for it.

    Every key is a digest, so a long call id takes no more memory than a short one.

    Args:
        counter: The counter for the tokens of texts.
        originals_only: True if a record is found by its original text alone.
    """

    def __init__(self, counter: TokenCounter, *, originals_only: bool = False) -> None:
        self._counter, self._originals_only = counter, originals_only
        self._originals: dict[bytes, list[ResultRecord]] = {}
        self._returned: dict[bytes, tuple[ResultRecord, dict[int, str]]] = {}
        self._sizes: dict[bytes, int] = {}
        self._bytes = 0
        self._latest: list[ResultRecord] = []
        self.last_id = 0

    @property
    def memory(self) -> int:
        """The bytes of the records, of the returned texts and of the token counts, as of the last `count_memory`."""
        tables = (self._originals, self._returned, self._sizes)
        return self._bytes + sum(getsizeof(table) + DIGEST_BYTES * len(table) for table in tables)

    def count_memory(self, records: Iterable[ResultRecord] | None = None) -> None:
        """Count the bytes of records again, because they may have changed. The lines of texts are forgotten.

        Args:
            records: The records. Defaults to those that `records` returned last.
        """
        if isinstance(self._counter, RepeatCounter):
            self._counter.forget()
        for record in self._latest if records is None else records:
            self._bytes += (size := record.memory) - record.counted
            record.counted = size

    def records(self, results: Iterable[ResultText], opening: bytes) -> list[ResultRecord]:
        """Return the record of each result. A new result gets a new record.

        If several calls with the same id have equal results, each of these results has its own record, in their order.

        Args:
            results: The results of one conversation.
            opening: A digest that distinguishes conversations with the same call ids.
        """
        found = self.find(results, opening)
        self._latest = [record or self._new_record(result, opening) for result, record, _ in found]
        return self._latest

    def _new_record(self, result: ResultText, opening: bytes) -> ResultRecord:
        key = _key(result, opening)
        record = ResultRecord(replace(result, call_id=""), self._counter, key)
        self._originals.setdefault(key, []).append(record)
        self._bytes += LIST_BYTES
        return record

    def find(
        self, results: Iterable[ResultText], opening: bytes
    ) -> list[tuple[ResultText, ResultRecord | None, dict[int, str]]]:
        """Return each result with its record and the ids of the passages that its text lacks.

        If a result is new, its record is None. A record belongs to one result. If calls have no id, a later result can
        repeat a text that was returned for an earlier one. Then the earlier result has the record.

        Conversations that begin alike can have equal results whose calls have equal ids or none. If passages of such a
        text were removed in another conversation, or after the step to which a client went back, its record is not
        found here.
        """
        returned = [(result, *self.removed(result)) for result in results]
        keys = {_key(result, opening) if record is None else record.key for result, record, _ in returned}
        claimed = {id(record) for _, record, _ in returned if record is not None}
        taken: set[int] = set()
        # Of the records with equal texts, those that no text above has come first.
        waiting: dict[bytes, deque[ResultRecord]] = {}
        found: list[tuple[ResultText, ResultRecord | None, dict[int, str]]] = []
        for result, shortened, ids in returned:
            if shortened is not None and id(shortened) not in taken:
                found.append((result, shortened, ids))
            else:
                key = _key(result, opening)
                if key not in waiting:
                    known = self._originals.get(key, ())
                    own = [it for it in known if not it.since or it.since in keys]
                    waiting[key] = deque(sorted(own, key=lambda it: id(it) in claimed))
                originals = waiting[key]
                while originals and id(originals[0]) in taken:
                    originals.popleft()
                found.append((result, originals[0] if originals else None, {}))
            taken.add(id(found[-1][1]))
        return found

    def removed(self, result: ResultText) -> tuple[ResultRecord | None, dict[int, str]]:
        """Return the record of a text that was returned earlier, and the ids of the passages that the text lacks.

        If the text was never returned, return None and no ids.
        """
        return self._returned.get(_key(result), (None, {}))

    def returned(self, result: ResultText, record: ResultRecord, ids: Mapping[int, str] | None = None) -> str:
        """Return the record's text without the passages in `ids`, and remember this text for the call of `result`.

        By default `ids` are all passages that are removed from the record.
        """
        ids = record.ids if ids is None else ids
        text = record.without(ids)
        path = (*result.path, "text") if result.form in PART_FORMS else result.path
        if not ids or self._originals_only:
            return text
        if (key := _text_key(result.call_id, path, text)) not in self._returned:
            entry = self._returned[key] = (record, dict(ids))
            self._bytes += getsizeof(entry) + getsizeof(entry[1])
        return text

    def tokens(self, text: str, record: ResultRecord | None = None) -> int:
        """Return the tokens of a text.

        Each text is counted once. If the text is the image or the file of `record`, return its known size.
        """
        if record is not None and record.source.form in PART_FORMS and text == record.text:
            return record.source.tokens
        key = digest(text)
        if key not in self._sizes:
            check_cancelled()
            self._sizes[key] = self._counter.count(text)
            self._bytes += NUMBER_BYTES
        return self._sizes[key]


def _key(result: ResultText, opening: bytes = b"") -> bytes:
    return _text_key(result.call_id, result.path, result.text, opening)


def _text_key(call_id: str, path: Path, text: str, opening: bytes = b"") -> bytes:
    return digest(f"{(opening, call_id, path)!r}\0{text}")


def digest(text: str) -> bytes:
    """Return a digest that distinguishes texts, 16 bytes."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
