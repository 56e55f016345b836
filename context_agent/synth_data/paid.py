"""An `Endpoint` that never pays for the same request twice, and never past the cap.

Every answer is appended to a file and synced to the disk before anybody reads it. A request that is in the file is not
sent, so a run that was killed and begun again repeats only what had no answer yet, and sees the same answers.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from context_agent._support.files import open_private, private_folder
from context_agent._support.http import Endpoint, Events, Refusal
from context_agent.errors import DataError, PolicyError
from context_agent.policies import refusals
from context_agent.policies.replies import Reply, read_reply, usage_bounds
from context_agent.synth_data.ledger import Ledger
from context_agent.synth_data.stages import Halted, lock
from context_agent.synth_data.task_file import encode

T = TypeVar("T")
FAILURES = 8
"""Calls in a row that are given up, after all their retries, before the run ends: the server is gone."""


class ReplyFile:
    """Answers by request, in an append-only JSONL file. Locked while it is open."""

    def __init__(self, path: Path) -> None:
        """Reads what is there; a last line that a kill cut off is cut away.

        Raises `DataError` for another damage, and where another process has the file.
        """
        self.path = path
        private_folder(path.parent)
        self._known: dict[str, tuple[Events, int, int]] = {}
        self._stream = open_private(path, "a+b")
        lock(self._stream, path)
        self._stream.seek(0)
        data = self._stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._stream.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                self._known[row["key"]] = (row["events"], int(row["prompt"]), int(row["completion"]))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: no stored reply ({error}); delete the line, or the file") from None

    def __len__(self) -> int:
        return len(self._known)

    def paid(self) -> list[tuple[int, int]]:
        """Tokens of prompt and completion of each stored answer."""
        return [(prompt, completion) for _, prompt, completion in self._known.values()]

    def get(self, key: str) -> Events | None:
        """The answer to a request, None where it has none yet."""
        found = self._known.get(key)
        return None if found is None else found[0]

    def put(self, key: str, events: Events, prompt: int, completion: int) -> None:
        """Stores an answer; it is on the disk when this returns."""
        row = {"key": key, "prompt": prompt, "completion": completion, "events": list(events)}
        self._stream.write(f"{encode(row)}\n".encode())
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._known[key] = (events, prompt, completion)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


class PaidEndpoint(Endpoint):
    """A model server whose answers are kept, counted and capped. Its calls belong to one event loop."""

    def __init__(self, base_url: str, *, ledger: Ledger, replies: ReplyFile, **patience: Any) -> None:
        """`patience` is what `Endpoint` takes. What the file holds is entered in the ledger: the cap is on the sum."""
        super().__init__(base_url, **patience)
        self.ledger = ledger
        self._replies = replies
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures = 0
        for prompt, completion in replies.paid():
            ledger.add(prompt, completion)

    async def post(self, path: str, body: Mapping[str, Any], read: Any, *, until: float = math.inf) -> Any:
        """As `Endpoint.post`, from the file where it has the answer.

        Raises `Halted` when the cap is reached, when the key or the model is refused, and when the server is gone.
        """
        key = request_key(path, body)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:  # of two equal requests at once, the second finds the answer of the first
            events = self._replies.get(key)
            if events is not None:
                self.ledger.reused += 1
            else:
                events = await self._pay(key, path, body, read, until)
        return self.redact_value(read(events))

    async def _pay(self, key: str, path: str, body: Mapping[str, Any], read: Any, until: float) -> Events:
        prompt, completion = usage_bounds(body)

        def checked(events: Events) -> Events:
            read(events)  # raises `MalformedResponse`, and so is asked again, before anything is stored
            return events

        async with self.ledger.room(prompt, completion) as claim:
            try:
                events: Events = await super().post(path, body, checked, until=until)
            except PolicyError as error:
                self._give_up(error)
                raise
            self._failures = 0
            claim.settle(*_taken(read_reply(events, body), prompt))
            self._replies.put(key, events, claim.prompt, claim.completion)
        return events

    def _give_up(self, error: PolicyError) -> None:
        """Ends the run for what will not get better with the next row."""
        if isinstance(error, Refusal):
            if error.status in (401, 403):
                raise Halted(f"{self.base_url}: {refusals.key_words(error, self.api_key_env)}") from None
            if error.status in (402, 404):
                raise Halted(str(error)) from None
            return
        self._failures += 1
        if self._failures >= FAILURES:
            raise Halted(f"{self._failures} calls in a row failed, the last one with: {error}") from None


def request_key(path: str, body: Mapping[str, Any]) -> str:
    """The digest of a request: of all that it asks, and not of where the server stands."""
    text = json.dumps([path, body], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _taken(reply: Reply, prompt: int) -> tuple[int, int]:
    """Tokens of prompt and reply as the server reported them, else no fewer than there can be."""
    written = len(f"{reply.text}{reply.reasoning}{reply.calls or ''}".encode())
    return reply.usage.get("prompt_tokens", prompt), reply.usage.get("completion_tokens", written)
