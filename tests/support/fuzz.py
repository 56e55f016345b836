"""The fuzz run: hostile and random inputs for the loaders, the pruner and the proxy, within bounds of time and memory.

    python -m tests.support.fuzz --minutes 15 --seed 1
    python -m tests.support.fuzz --replay fuzz-failures/loaders-1-7-31

Inputs come from hypothesis, and from the corpus of `context_agent.testing`, which is mutated. Each input is tried in a
worker process, whose processor time and peak memory are measured. A worker that exceeds a bound, or that hangs, is
killed, and its input is saved as a folder of files. The same seed gives the same inputs in the same order.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import logging
import lzma
import math
import multiprocessing
import re
import resource
import socket
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.remembered_rows import rows_computed_anew

Input = dict[str, bytes]
"""An input as files: their names and contents."""
Attack = Callable[[Input], str]
"""Tries an input and names its outcome in a word. Raises for an outcome that must not be."""

MB = 2**20
SECONDS, SECONDS_PER_MB = 5.0, 5.0
"""Bounds of processor time for one input, and for each megabyte of it."""
MEGABYTES = 400.0
"""Bound of memory above the worker at rest."""
ADDRESS_SPACE = 6_000 * MB
"""What a worker may map, so that no input takes the machine down."""
PATIENCE = 120.0
"""Seconds after which a worker that does not answer counts as hanging."""
SILENCE = 0.25
"""Seconds without a byte after which the proxy's answer counts as read."""
BATCH = 40
"""Inputs of one seed."""
CORPUS_SIZES = (1_500, 200_000)
"""Sizes of the hostile parts of the files that are mutated."""
CODE_SIZES = (1_500, 40_000)
"""The same for files of code."""


# Inputs -----------------------------------------------------------------------------------------------------------

TOKENS = [
    b"\0", b"\xff\xfe", b"\r", b"\r\n\r\n", b'"', b"'", b"<", b"]]>", b"<!--", b"&#0;", b"&a;", b"{", b"[", b"\\",
    b"%", b"-1", b"9" * 40, b"2147483648", b"\xed\xa0\x80", "\u202e".encode(), "\u2028".encode(), b"=?utf-8?b?",
    b"PK\3\4", b"<Document id=d1>", b"<|start|>", b"restore: p1", b"---\n", b"```\n", b"e" * 200, b" " * 200,
    b"\n" * 200,
]  # fmt: skip
NUMBERS = st.integers(0, 2**31)


@cache
def corpus() -> Mapping[str, Sequence[tuple[str, bytes]]]:
    """Return hostile files with their names, by kind. The kind of `a.txt` is `txt`."""
    from context_agent.testing.hostile_code import hostile_code
    from context_agent.testing.hostile_files import hostile_files

    files = [(file.name, file.data) for size in CORPUS_SIZES for file in hostile_files(size)]
    files += [(name, data) for size in CODE_SIZES for name, data, _ in hostile_code(size)]
    by_kind: dict[str, list[tuple[str, bytes]]] = {}
    for name, data in files:
        by_kind.setdefault(name.partition(".")[2], []).append((name, data))
    return by_kind


def changed(draw: st.DrawFn, data: bytes, pieces: st.SearchStrategy[bytes]) -> bytes:
    """Return the bytes with one cut, repetition, insertion or replacement."""
    start, end = sorted((draw(NUMBERS) % (len(data) + 1), draw(NUMBERS) % (len(data) + 1)))
    change = draw(st.sampled_from(("cut", "end", "repeat", "insert", "replace", "flip")))
    if change == "cut":
        return data[:start] + data[end:]
    if change == "end":
        return data[:end]
    if change == "repeat":
        times = min(draw(st.sampled_from((2, 10, 500))), 1 + 200_000 // (end - start + 1))
        return data[:start] + data[start:end] * times + data[end:]
    if change == "flip" and data:
        place = start % len(data)
        return data[:place] + bytes((data[place] ^ draw(st.integers(1, 255)),)) + data[place + 1 :]
    return data[:start] + draw(pieces) + (data[start:] if change == "insert" else data[end:])


def changed_package(draw: st.DrawFn, data: bytes, pieces: st.SearchStrategy[bytes]) -> bytes:
    """Return a ZIP archive with one member changed, or with its bytes changed if it cannot be read."""
    target = io.BytesIO()
    try:
        with (
            zipfile.ZipFile(io.BytesIO(data)) as source,
            zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as result,
        ):
            names = source.namelist()
            if not names or sum(item.file_size for item in source.infolist()) > 4 * MB:
                return changed(draw, data, pieces)
            victim = draw(st.sampled_from(names))
            for name in names:
                content = source.read(name)
                result.writestr(name, changed(draw, content, pieces) if name == victim else content)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, RuntimeError, UserWarning, ValueError, EOFError):
        return changed(draw, data, pieces)
    return target.getvalue()


@st.composite
def sources(draw: st.DrawFn) -> Input:
    """Files of one folder: a hostile one as it is or changed, and sometimes rules beside it.

    All kinds are equally likely, however many files they have.
    """
    kinds = st.sampled_from(list(corpus()))
    files_of_any_kind = kinds.flatmap(lambda kind: st.sampled_from(corpus()[kind]))
    name, data = draw(files_of_any_kind)
    pieces = st.sampled_from(TOKENS) | st.binary(max_size=12) | st.just(draw(files_of_any_kind)[1][:5_000])
    for _ in range(draw(st.integers(0, 3))):
        packed = data.startswith(b"PK") and draw(st.booleans())
        data = changed_package(draw, data, pieces) if packed else changed(draw, data, pieces)
    kind = name.partition(".")[2]
    if draw(st.integers(0, 9)) == 0:
        kind = draw(kinds)
    if draw(st.integers(0, 19)) == 0:
        name, compress = draw(st.sampled_from([("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]))
        kind, data = draw(st.sampled_from(["jsonl", kind])) + f".{name}", compress(data)
    files = {f"source.{kind}": data}
    if draw(st.integers(0, 4)) == 0:
        rules = st.sampled_from(
            [b"[z-a]x", b"*", b"!", b"**/" * 50, b"[", b"\\", b"a*" * 50, b"{" * 99, b"source.*", b""]
        )
        files[".gitignore"] = b"\n".join(draw(st.lists(rules | st.binary(max_size=20), max_size=30)))
    return files


TEXTS = [
    "<div>\n\n", "</div>\n\n", "<Document id=d1>\n", "# Heading\n\n", "Sentence one. ", "word ", "\n\n", "\n", "\t",
    "| a | b |\n", "```\n", "- item\n", "[1] ", "restore: p1 ", "[p1 removed: 10 tokens, restore: p1]\n", "[", "{",
    '{"a": [1, 2]}', "\u2028", "\u202e", "\0", "<|end|>", "漢字。", "😀", "=" * 80 + "\n", "Title: x\n",
    "http://a.example/b?c=d ", "a" * 300,
]  # fmt: skip
TEXT = st.lists(
    st.tuples(st.sampled_from(TEXTS) | st.text(max_size=6), st.sampled_from((1, 1, 3, 40, 2_000, 60_000))), max_size=6
).map(lambda parts: "".join((text * count)[:300_000] for text, count in parts))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)


@st.composite
def exchange(draw: st.DrawFn) -> list[Any]:
    """Return a call of a tool and its result, in one of the formats; or anything else."""
    call, text = draw(st.sampled_from(("c1", "c2", "c3", ""))), draw(TEXT)
    parts = draw(st.sampled_from((text, [{"type": "text", "text": text}], [{"type": "text", "text": text}] * 3)))
    kind = draw(st.sampled_from(("chat", "chat", "chat", "responses", "anthropic", "anthropic", "user", "any")))
    if kind == "chat":
        function = {"name": "search", "arguments": draw(st.sampled_from(('{"query": "tides"}', "{", text[:50])))}
        calls = [{"id": call, "type": "function", "function": function}]
        return [{"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": call, "content": parts}]  # fmt: skip
    if kind == "responses":
        return [{"type": "function_call", "call_id": call, "name": "search", "arguments": "{}"},
                {"type": "function_call_output", "call_id": call, "output": text}]  # fmt: skip
    if kind == "anthropic":
        use = {"type": "tool_use", "id": call, "name": "search", "input": {}}
        result = {"type": "tool_result", "tool_use_id": call, "content": parts}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return (
        [{"role": "user", "content": parts}]
        if kind == "user"
        else [draw(st.dictionaries(st.text(max_size=6), JSON, max_size=3))]
    )


@st.composite
def conversations(draw: st.DrawFn) -> Input:
    """Return a body of a request to `/v1/prune`, which is also one for a model."""
    messages = [item for part in draw(st.lists(exchange(), max_size=8)) for item in part]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "What is known about tides?"}, *messages]}
    body["budget"] = draw(st.sampled_from((1, 50, 500)))
    body["strategy"] = draw(st.sampled_from(("reader", "bm25", "age")))
    body["turns"] = draw(st.sampled_from((10, 10_000)))
    if draw(st.integers(0, 3)) == 0:
        body["task"] = draw(TEXT)[:20_000]
    if draw(st.integers(0, 9)) == 0:
        body["restore"] = draw(st.lists(st.sampled_from(("p1", "p2", "p999999999", "", "x" * 99)), max_size=900))
    return {"conversation.json": json.dumps(body).encode()}


FIELDS = [
    b"Host: 127.0.0.1", b"Host: evil.example", b"Content-Length: 4", b"Content-Length: 15", b"Content-Length: 99999999",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close", b"Connection: x, host",
    b"Expect: 100-continue", b"Upgrade: websocket", b"Content-Type: application/json", b"Content-Encoding: gzip",
    b"X-Context-Pruned: forged", b"X: \x1b[2J", b"X: \xff", b"X: a\rb", b"X:", b": x", b"Origin: null",
    b"Sec-Fetch-Site: cross-site", b"Authorization: Bearer x", b"Location: http://169.254.169.254/",
    b"Set-Cookie: a=b", b"Trailer: X", b"X: " + b"x" * 9_000, b" folded",
]  # fmt: skip
SEGMENTS = [
    b"v1", b"chat/completions", b"messages", b"..", b".", b"", b"%2e%2e", b"%252e", b"%2f", b"\\", b"%5c", b";",
    b"%00", b"%ff", b"%c0%ae", b"%u002e", b"%EF%BC%8E", b"http://evil.example", b"*", b"#", b"?a=..", b"%", b"x" * 300,
]  # fmt: skip
BODIES = [
    b"",
    b"{}",
    b"4\r\n{  }\r\n0\r\n\r\n",
    b'{"messages": []}',
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"\x1f\x8b\x08",
]
STARTS = [
    b"HTTP/1.1 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 X", b"HTTP/1.1 101 X", b"HTTP/1.1 100 X",
    b"HTTP/1.0 200 OK", b"HTTP/1.1 999 X", b"HTTP/2 200", b"", b"HTTP/1.1 307 X", b"HTTP/1.1 500 \x1b",
]  # fmt: skip


@st.composite
def exchanges(draw: st.DrawFn) -> Input:
    """Return a request to the proxy and the upstream's response, as bytes."""
    target = b"/" * draw(st.integers(0, 2)) + b"/".join(draw(st.lists(st.sampled_from(SEGMENTS), max_size=5)))
    target = draw(st.sampled_from((b"/v1/chat/completions", b"/v1/messages", b"/v1/models", target)))
    method = draw(st.sampled_from((b"GET", b"POST", b"POST", b"POST", b"HEAD", b"OPTIONS", b"CONNECT")))
    host = draw(st.sampled_from(([b"Host: 127.0.0.1"], [b"Host: 127.0.0.1"], [])))
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=3))
    body = draw(st.sampled_from(BODIES) | conversations().map(lambda files: files["conversation.json"]))
    length = [b"Content-Length: %d" % len(body)] if draw(st.integers(0, 4)) else []
    request = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *host, *length, *fields, b"", body])
    answer = draw(st.sampled_from(BODIES))
    length = [b"Content-Length: %d" % len(answer)] if draw(st.booleans()) else []
    reply = b"\r\n".join(
        [draw(st.sampled_from(STARTS)), *length, *draw(st.lists(st.sampled_from(FIELDS), max_size=4)), b"", answer]
    )
    pieces = st.sampled_from(TOKENS) | st.binary(max_size=8)
    if draw(st.integers(0, 3)) == 0:
        request = changed(draw, request, pieces)
    if draw(st.integers(0, 2)) == 0:
        reply = changed(draw, reply, pieces)
    return {"request": request, "reply": reply}


# Attacks ----------------------------------------------------------------------------------------------------------


@contextmanager
def load_files() -> Iterator[Attack]:
    """Load a folder of the files: every document can be stored, and what is left out has a notice."""
    from context_agent.errors import ContextAgentError
    from context_agent.retrieval.document_checks import check_document
    from context_agent.retrieval.loaders import LoadReport, load

    def attack(files: Input) -> str:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                Path(folder, name).write_bytes(data)
            report, documents = LoadReport(), 0
            try:
                for document in load(folder, report=report):
                    check_document(document)
                    documents += 1
            except ContextAgentError:
                return "refused"
        if documents:
            return "documents"
        assert report.notices or ".gitignore" in files or not next(iter(files.values())).strip(), "nothing was said"
        return "notices"

    yield attack


@contextmanager
def prune_conversations() -> Iterator[Attack]:
    """Prune a conversation as `/v1/prune` and the proxy do: no message but a tool's result changes."""
    from pydantic import ValidationError

    from context_agent.errors import ContextAgentError
    from context_agent.integrations.conversation_pruners import ConversationPruners
    from context_agent.integrations.server.prune_requests import prune_conversation
    from context_agent.integrations.server.pruned_bodies import BodyPruner
    from context_agent.integrations.server.schema import PruneRequest
    from context_agent.pruning.pruner import ContextPruner

    served, relayed = ConversationPruners(), BodyPruner(ConversationPruners(lambda: ContextPruner(50)), 32 * MB)

    def attack(files: Input) -> str:
        body = files["conversation.json"]
        counts = relayed.prune(body, "messages", b"").counts
        assert counts["outcome"] != "failed", "the proxy could not prune"
        try:
            request = PruneRequest.model_validate_json(body)
            messages = prune_conversation(served, request).messages
        except (ValidationError, ContextAgentError):
            return "refused"
        assert len(messages) == len(request.messages)
        for before, after in zip(request.messages, messages, strict=True):
            assert before.keys() == after.keys()
            assert before.get("role") == after.get("role")
        return "pruned" if messages != request.messages else "unchanged"

    yield attack


@contextmanager
def relay_exchanges() -> Iterator[Attack]:
    """Send the request through a proxy to an upstream that answers with the reply."""
    from tests.support.raw_http import proxy_before, raw_upstream

    failures: list[str] = []

    class Failures(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                failures.append(self.format(record))

    logging.getLogger().addHandler(Failures(logging.ERROR))
    with raw_upstream() as upstream, proxy_before(upstream.url + "/base") as url:

        def attack(files: Input) -> str:
            upstream.reply = files["reply"]
            upstream.requests.clear()
            failures.clear()
            content = _sent(url, files["request"])
            assert not failures, failures[0]
            for request in upstream.requests:
                if target := request.partition(b" ")[2].partition(b" ")[0]:
                    _check_target(target)
                    assert b"evil.example" not in request.partition(b"\r\n\r\n")[0].replace(target, b"")
            _check_answer(content)
            upstream.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
            assert httpx.get(f"{url}/v1/models", timeout=PATIENCE / 2).is_success, "the proxy is not well"
            return content[9:12].decode("ascii", "replace") or "closed"

        yield attack


def _sent(url: str, request: bytes) -> bytes:
    """Return what the server sends until it closes or is silent."""
    address, content = urlsplit(url), bytearray()
    with (
        socket.create_connection((address.hostname or "", address.port or 0), timeout=SILENCE) as connection,
        suppress(ConnectionError, TimeoutError),
    ):
        connection.sendall(request)
        while part := connection.recv(65_536):
            content += part
    return bytes(content)


def _check_target(target: bytes) -> None:
    """Raise for a target that leaves the base path when it is decoded up to three times."""
    assert target.startswith(b"/base/"), target
    path = target.partition(b"?")[0]
    for _ in range(4):
        assert not re.search(rb"[/\\]\.\.([/\\;]|$)|^/base[/\\]{2}|\0", path), target
        path = unquote_to_bytes(path)


def _check_answer(content: bytes) -> None:
    """Raise for an answer that is a failure, or that holds what only an upstream could have put there."""
    if not content:
        return
    head = content.partition(b"\r\n\r\n")[0]
    assert re.match(rb"HTTP/1\.1 [1-5]\d\d ", content), content[:80]
    assert b"HTTP/1.1 500" not in head or b'"internal"' not in content, content[:500]
    assert not re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", head), head
    assert b"forged" not in head


@dataclass(frozen=True, slots=True)
class Surface:
    """What is attacked: its inputs, and a block that yields the attack, entered in the worker."""

    inputs: Callable[[], st.SearchStrategy[Input]]
    opened: Callable[[], AbstractContextManager[Attack]]


SURFACES: Mapping[str, Surface] = {
    "loaders": Surface(sources, load_files),
    "pruner": Surface(conversations, prune_conversations),
    "proxy": Surface(exchanges, relay_exchanges),
}


PROCESSES: Any = multiprocessing.get_context("spawn")
"""What starts the workers. Those of a short run are forks that have imported everything."""


# Workers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an input came to: its outcome, what is wrong with it (empty if nothing is), and its cost."""

    outcome: str = ""
    fault: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0


class Worker:
    """A process that tries the inputs of one surface; a new one is started after it was killed."""

    def __init__(self, surface: str) -> None:
        self.surface = surface
        self._process: Any = None
        self._pipe: Any = None

    def attempt(self, files: Input) -> Verdict:
        """Try an input."""
        if self._process is None:
            self._start()
        verdict = Verdict(fault="the worker ended")
        with suppress(EOFError, ConnectionError):
            self._pipe.send(files)
            verdict = self._pipe.recv() if self._pipe.poll(PATIENCE) else Verdict(fault=f"no answer in {PATIENCE:g} s")
        if verdict.fault:
            self.close()
        return verdict

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        self._pipe, other = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=work, args=(self.surface, other), daemon=True)
        self._process.start()
        other.close()


def work(surface: str, pipe: Any) -> None:
    """Try inputs until the pipe is closed: the main function of a worker."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    logging.getLogger().addHandler(logging.NullHandler())
    with SURFACES[surface].opened() as attack, suppress(EOFError, KeyboardInterrupt), rows_computed_anew():
        _warm_up(surface, attack)
        while True:
            pipe.send(_verdict(attack, pipe.recv()))


def _warm_up(surface: str, attack: Attack) -> None:
    """Load what the first input would load: its cost is not the input's."""
    body = b'{"messages": [{"role": "user", "content": "x"}], "budget": 1, "strategy": "reader"}'
    request = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    if surface == "pruner":
        attack({"conversation.json": body})
    elif surface == "proxy":
        attack({"request": request, "reply": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"})
    else:
        from context_agent.retrieval.loaders.reader_choice import READERS

        for suffix in READERS:
            attack({f"source{suffix}": b"x"})


def _verdict(attack: Attack, files: Input) -> Verdict:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    rest, started, fault, outcome = _status("VmRSS"), time.process_time(), "", ""
    try:
        outcome = attack(files)
    except Exception as error:  # noqa: BLE001 (the run goes on; the fault is reported)
        fault = f"{type(error).__name__}: {error}"[:2_000]
    seconds, megabytes = time.process_time() - started, (_status("VmHWM") - rest) / 1024
    allowed = SECONDS + SECONDS_PER_MB * sum(map(len, files.values())) / MB
    if not fault and seconds > allowed:
        fault = f"took {seconds:.1f} s of {allowed:.1f} s"
    if not fault and megabytes > MEGABYTES:
        fault = f"took {megabytes:.0f} MB of {MEGABYTES:.0f} MB"
    return Verdict(outcome, fault, seconds, megabytes)


def _status(name: str) -> int:
    """Return a number of this process's status, in kilobytes."""
    match = re.search(rf"^{name}:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"), re.M)
    return int(match[1]) if match else 0


# The run ----------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The outcomes of the inputs of one surface so far."""

    inputs: int = 0
    kinds: set[str] = field(default_factory=set)
    """The kinds of the files. The kind of `source.txt` is `txt`."""
    outcomes: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    largest: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)
    """The folder of each input that broke a bound, and how."""

    def add(self, files: Input, verdict: Verdict) -> None:
        """Count an input."""
        self.inputs += 1
        self.kinds.update(name.partition(".")[2] for name in files)
        self.outcomes[verdict.outcome] = self.outcomes.get(verdict.outcome, 0) + 1
        self.slowest, self.largest = max(self.slowest, verdict.seconds), max(self.largest, verdict.megabytes)

    def line(self, surface: str) -> str:
        """Return the counts as a row of a table."""
        outcomes = ", ".join(f"{name or 'fault'} {count:,}" for name, count in sorted(self.outcomes.items()))
        cost = f"{self.slowest:.2f} s | {self.largest:.0f} MB"
        return f"| {surface} | {self.inputs:,} | {cost} | {len(self.faults)} | {outcomes} |"


@dataclass(frozen=True)
class Run:
    """Tries inputs until the time or the number of batches is reached.

    Attributes:
        seed: The same seed gives the same inputs in the same order.
        save: The folder for inputs with a fault. Each gets a folder of its own.
        seconds: The time for all surfaces together.
        batches: The number of batches of each surface.
        inputs: The number of inputs of a batch.
        surfaces: What is attacked.
    """

    seed: int
    save: Path
    seconds: float = math.inf
    batches: float = math.inf
    inputs: int = BATCH
    surfaces: Sequence[str] = tuple(SURFACES)

    def tallies(self) -> dict[str, Tally]:
        """Try the inputs, the surfaces in turn, and return what they came to."""
        ends = time.monotonic() + self.seconds
        tallies = {name: Tally() for name in self.surfaces}
        workers = {name: Worker(name) for name in self.surfaces}
        try:
            for number, name in enumerate(cycle(self.surfaces)):
                batch = number // len(self.surfaces)
                if batch >= self.batches or time.monotonic() > ends:
                    break
                self._try_batch(workers[name], tallies[name], batch, ends)
        finally:
            for worker in workers.values():
                worker.close()
        return tallies

    def _try_batch(self, worker: Worker, tally: Tally, batch: int, ends: float) -> None:
        """Try the inputs of one batch. Its seed follows from the run's, whatever the batches before came to."""

        def attempt(files: Input) -> None:
            if time.monotonic() > ends:
                return
            verdict = worker.attempt(files)
            tally.add(files, verdict)
            if verdict.fault:
                folder = self.save / f"{worker.surface}-{self.seed}-{tally.inputs}"
                folder.mkdir(parents=True, exist_ok=True)
                for name, data in files.items():
                    (folder / name).write_bytes(data)
                tally.faults[str(folder)] = verdict.fault

        configured = settings(
            max_examples=self.inputs,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        seed(self.seed * 1_000_003 + batch)(configured(given(SURFACES[worker.surface].inputs())(attempt)))()


def replay(folder: Path) -> Verdict:
    """Try a saved input again."""
    worker = Worker(folder.name.partition("-")[0])
    try:
        return worker.attempt({file.name: file.read_bytes() for file in folder.iterdir()})
    finally:
        worker.close()


def main() -> int:
    """Run, or replay, and print what came of it; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description="Fuzz the loaders, the pruner and the proxy.")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--surface", choices=list(SURFACES), action="append", help="default: all")
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="folder for inputs with a fault")
    parser.add_argument("--replay", type=Path, help="a folder of such an input")
    options = parser.parse_args()
    if options.replay is not None:
        verdict = replay(options.replay)
        print(f"{verdict.outcome or verdict.fault}: {verdict.seconds:.2f} s, {verdict.megabytes:.0f} MB")
        return 1 if verdict.fault else 0
    surfaces = options.surface or tuple(SURFACES)
    tallies = Run(options.seed, options.save, options.minutes * 60, surfaces=surfaces).tallies()
    print(f"seed {options.seed}, {options.minutes:g} minutes")
    print("| surface | inputs | slowest | most memory | faults | outcomes |\n|---|---|---|---|---|---|")
    for surface, tally in tallies.items():
        print(tally.line(surface))
    for tally in tallies.values():
        for folder, fault in tally.faults.items():
            print(f"{folder}: {fault}")
    return 1 if any(tally.faults for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
