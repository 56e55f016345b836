"""Count the hosts that each command contacts when it opens a hostile index folder. The bound is zero.

    python benchmarks/hostile_indexes.py [--only NAME,...]

For each folder of `context_agent.testing.hostile_indexes` the program runs `ctx1 search`, `doctor`, `serve` (one
request), `mcp` (one tool call), `view` and `eval`. Each command runs inside the folder in a fork of this process, with
secrets in its environment.

An audit hook in each fork records the names that the command looks up and the addresses that it connects to. Lookups
of 127.0.0.1 and localhost are left out. The attacker's HTTP server is also the HTTP(S) proxy, to catch connections that
bypass Python's sockets. A secret counts as seen if the server receives it or if a command prints it.

The first folder is harmless. If a command fails there, the program stops, because its figures would mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent.parent))

from context_agent.testing.hostile_indexes import SECRETS, TRACE, AttackerServer, HostileIndex, build, hostile_indexes

LIMIT_S = 300
HARMLESS = "harmless"
QUESTION = "Who kept a ledger of tides?"
RETRIEVING, ANSWER = ("search", "serve", "mcp"), "harbour pilot"
"""The commands that print passages, and words of the passage that answers the question."""
MESSAGES: tuple[dict[str, Any], ...] = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {"name": "retrieve", "arguments": {"question": QUESTION}}},
)


@dataclass(frozen=True)
class Outcome:
    """The result of a command: its exit code, its contacts, and its output."""

    code: int
    contacts: tuple[str, ...]
    output: str


def main() -> None:
    """Run all commands over all folders, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of folders, separated by commas")
    names = set(filter(None, parser.parse_args().only.split(",")))
    attacker = AttackerServer()
    hostile = [index for index in hostile_indexes(attacker.address) if not names or index.name in names]
    indexes = [HostileIndex(HARMLESS, manifest={}), *hostile]
    with tempfile.TemporaryDirectory() as scratch:
        # Chroma takes the folder of its models from HOME when it is imported.
        os.environ.update(SECRETS, HOME=scratch, NO_PROXY="127.0.0.1")
        os.environ.update(dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), attacker.address))
        _import_all()
        folders = [_prepared(index, Path(scratch)) for index in indexes]
        saved = Child(("search", QUESTION, "--path", ".", "--save", "../saved"), folders[0]).finish()
        if saved.code:
            raise SystemExit(f"no trajectory was saved: {saved.output}")
        totals: Counter[str] = Counter()
        for index, folder in zip(indexes, folders, strict=True):
            shutil.copytree(folder.parent / "saved", folder / "saved")
            totals.update(_measured(index, folder, attacker))
    print(f"\n{len(hostile)} hostile indexes, {len(COMMANDS)} commands each")
    for figure in ("hosts contacted", "requests received", "secrets seen", "code run"):
        print(f"{figure:18} {totals[figure]} (bound 0)")
    sys.exit(1 if totals.total() else 0)


def _import_all() -> None:
    """Import once what every command would import, so that a fork starts in milliseconds."""
    for name in ("chromadb", "mcp", "uvicorn", "context_agent.cli.app", "context_agent.retrieval.chroma.corpus"):
        importlib.import_module(name)


def _prepared(index: HostileIndex, scratch: Path) -> Path:
    """Build the index in a folder, add a file of questions, and return the folder."""
    folder = scratch / index.name
    pid = os.fork()  # Chroma's threads must not run in the process that forks.
    if not pid:
        (scratch / "templates").mkdir(exist_ok=True)
        build(index, folder, scratch / "templates")
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(f"the folder {index.name} could not be built")
    (folder / "questions.jsonl").write_text(json.dumps({"id": "q", "question": QUESTION, "gold": ["d0"]}) + "\n")
    return folder


def _measured(index: HostileIndex, folder: Path, attacker: AttackerServer) -> Counter[str]:
    seen: Counter[str] = Counter()
    codes: list[str] = []
    for name, command in COMMANDS.items():
        before = len(attacker.requests)
        outcome = command(folder)
        text = outcome.output + "\n".join(attacker.requests[before:])
        seen["hosts contacted"] += len(set(outcome.contacts))
        seen["requests received"] += len(attacker.requests) - before
        seen["secrets seen"] += sum(secret in text for secret in SECRETS.values())
        if index.name == HARMLESS and (outcome.code or (name in RETRIEVING and ANSWER not in outcome.output)):
            raise SystemExit(f"ctx1 {name} failed on the harmless index: {outcome.output}")
        codes.append(f"{name} {outcome.code}")
        for contact in sorted(set(outcome.contacts)):
            print(f"  {index.name}: {name} contacted {contact}")
    trace = folder.parent / TRACE
    seen["code run"] += trace.exists()
    trace.unlink(missing_ok=True)
    figures = "  ".join(f"{seen[figure]:2}" for figure in ("hosts contacted", "secrets seen", "code run"))
    print(f"{index.name:28} {figures}   exit: {', '.join(codes)}", flush=True)
    return seen


def _plain(*arguments: str) -> Callable[[Path], Outcome]:
    return lambda folder: Child(arguments, folder).finish()


def _serve(folder: Path) -> Outcome:
    child = Child(("serve", "--path", ".", "--port", "0", "--json"), folder)
    with suppress(ValueError, OSError):
        address = json.loads(child.stdout.readline())["url"]
        body = json.dumps({"question": QUESTION}).encode()
        request = urllib.request.Request(f"{address}/v1/retrieve", body, {"content-type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(urllib.error.HTTPError):
            child.lines.append(opener.open(request, timeout=LIMIT_S).read().decode())
        os.kill(child.pid, signal.SIGTERM)
    return child.finish()


def _mcp(folder: Path) -> Outcome:
    child = Child(("mcp", "--path", "."), folder)
    with suppress(OSError):
        for message in MESSAGES:
            child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        child.stdin.flush()
        replies = 0
        while replies < 2 and (line := child.stdout.readline()):
            child.lines.append(line)
            replies += '"id"' in line
    return child.finish()


class Child:
    """A command that runs inside the folder in a fork of this process, with pipes and an audit hook."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self.log, self.errors = folder.parent / "contacts.txt", folder.parent / "errors.txt"
        self.log.write_text("")
        self.lines: list[str] = []
        command_in, questions = os.pipe()
        answers, command_out = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            errors = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for standard, descriptor in enumerate((command_in, command_out, errors)):
                os.dup2(descriptor, standard)
            os.closerange(3, 1_000)
            sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
            _run(arguments, folder, self.log)
        os.close(command_in)
        os.close(command_out)
        self.stdin, self.stdout = os.fdopen(questions, "w"), os.fdopen(answers)

    def finish(self) -> Outcome:
        """Close stdin, read the rest of the output, and wait for the end."""
        with suppress(OSError):
            self.stdin.close()
        limit = threading.Timer(LIMIT_S, os.kill, (self.pid, signal.SIGKILL))
        limit.start()
        output = "".join(self.lines) + self.stdout.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        limit.cancel()
        self.stdout.close()
        return Outcome(code, tuple(self.log.read_text().splitlines()), output + self.errors.read_text(errors="replace"))


def _run(arguments: Sequence[str], folder: Path, log: Path) -> NoReturn:
    """Run the command in the forked process, and write each contact to the log."""
    from context_agent.cli.app import run

    os.chdir(folder)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)

    def record(event: str, values: tuple[Any, ...]) -> None:
        target = None
        if event in ("socket.connect", "socket.sendto") and not isinstance(values[1], str | bytes):
            target = values[1]
        elif event in ("socket.getaddrinfo", "socket.gethostbyname") and values[0] not in (
            "127.0.0.1",
            "localhost",
            None,
        ):
            target = values[0]
        if target is not None:
            os.write(written, f"{event} {target}\n".encode())

    sys.addaudithook(record)
    code = 1
    try:
        code = run(list(arguments))
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


COMMANDS: dict[str, Callable[[Path], Outcome]] = {
    "search": _plain("search", QUESTION, "--path", "."),
    "doctor": _plain("doctor", "--path", "."),
    "serve": _serve,
    "mcp": _mcp,
    "view": _plain("view", "saved", "--text"),
    "eval": _plain("eval", "--questions", "questions.jsonl", "--path", ".", "--out", "../eval", "--processes", "1"),
}


if __name__ == "__main__":
    main()
