"""The command `ctx1 doctor`, which checks the installation, an index and a model server."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from context_agent.budget import WINDOW
from context_agent.cli import output
from context_agent.cli.agent_options import ServerOptions
from context_agent.cli.index_options import INDEX_FOLDER, CorpusOptions
from context_agent.cli.parameters import CommonOptions, essential, options_in
from context_agent.errors import reason_of

DISTRIBUTION = "context-agent"
LEAST_FREE = 1 << 30
"""Number of bytes that should be free on the disk of an index."""
WORDS = 12
"""Number of words of a chunk that the check searches for."""
STATUS_MARKS = {"ok": ("✓", "green"), "note": ("·", "dim"), "problem": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """The result of one check. `status` is `ok`, `note` (worth knowing) or `problem` (exit code 1).

    `fix` says how to fix the problem.
    """

    name: str
    status: str
    detail: str
    fix: str = ""


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ServerCheckOptions(ServerOptions):
    """The model server to check, and the abilities that it must have."""

    window: Annotated[int, Parameter(metavar="N")] = WINDOW
    """Context length that the model must have, in tokens."""
    token_ids: bool = False
    """Also check what the tokens policy needs."""
    probe_context: bool = False
    """If the server does not report its context length, send a prompt of --window tokens."""


@essential("path url collection embedder base_url model api_key_env")
def doctor(
    *,
    index: CorpusOptions = CorpusOptions(),
    server: ServerCheckOptions = ServerCheckOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Check the installation, an index and a model server.

    If --base-url, --model, CTX1_BASE_URL or CTX1_MODEL names a server, the command checks it. The exit code is 1 if
    there is a problem.
    """
    checks = []
    for check in itertools.chain(_checks(index), _served(server)):
        checks.append(check)
        if not common.json:
            _show(check)
    healthy = all(check.status != "problem" for check in checks)
    if common.json:
        output.print_json({"healthy": healthy, "checks": [asdict(check) for check in checks]})
    return 0 if healthy else 1


def _show(check: InstallationCheck) -> None:
    from rich.text import Text

    mark, color = STATUS_MARKS[check.status]
    # A finding may quote a server or an index, which must not print lines that look like other findings.
    line = Text.assemble((f"{mark} ", color), f"{check.name:<14} {output.one_line(check.detail)}")
    if check.fix:
        line.append(f" — {output.one_line(check.fix)}", style="yellow")
    output.stdout().print(line, soft_wrap=True)


def _checks(index: CorpusOptions) -> Iterator[InstallationCheck]:
    version, machine = platform.python_version(), f"{platform.system()} {platform.machine()}"
    yield InstallationCheck("python", "ok", f"{version} on {machine}")
    yield from _packages()
    yield from _extras()
    yield from _weights()
    yield _guarded("round trip", _round_trip)
    explicit = index.url is not None or (index.path is not None and index.path.exists())
    if not explicit and index.path == INDEX_FOLDER:
        yield InstallationCheck("index", "note", f"{index.path} has no index", "pass --path or --url to check one")
        return
    if index.path is not None and index.path.exists():
        yield _disk(index.path)
        yield _guarded("lock", functools.partial(_lock, index.path))
    yield _guarded("index", lambda: _index(index))


def _served(server: ServerCheckOptions) -> Iterator[InstallationCheck]:
    """Yield the results of the checks of the model server. If no server is named, yield none."""
    from context_agent.policies import from_environment

    flags = {"base_url": server.base_url, "model": server.model, "api_key_env": server.api_key_env}
    address = from_environment({name: value for name, value in flags.items() if value is not None})
    if not {"base_url", "model"} & set(address):
        return
    from context_agent._support.http_client import API_KEY_ENV, BASE_URL
    from context_agent.policies.chat.probe import inspect_server

    findings = inspect_server(
        address.get("base_url", BASE_URL),
        address.get("model"),
        api_key_env=address.get("api_key_env", API_KEY_ENV),
        window=server.window,
        tokens=server.token_ids,
        probe=server.probe_context,
    )
    statuses = {"ok": "ok", "warn": "note", "fail": "problem"}
    yield from (InstallationCheck(check.name, statuses[check.status], check.detail, check.fix) for check in findings)


def _guarded(name: str, check: Callable[[], InstallationCheck]) -> InstallationCheck:
    """Return the result of a check. If the check raises an error, the error is the result."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 (whatever is broken becomes a finding)
        return InstallationCheck(name, "problem", reason_of(error))


def _requirements() -> Iterator[tuple[str, str | None]]:
    """Yield the distribution of each requirement, and the extra that it belongs to."""
    for line in importlib.metadata.requires(DISTRIBUTION) or ():
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", line)
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name is not None:
            yield name[0], extra[1] if extra else None


@functools.cache
def _version(distribution: str) -> str | None:
    """Return the version of a distribution. Its file is read once, although several extras need it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[InstallationCheck]:
    names = [DISTRIBUTION, *(name for name, extra in _requirements() if extra is None)]
    versions = {name: _version(name) for name in names}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield InstallationCheck("packages", "problem", f"missing: {', '.join(missing)}", f"pip install {DISTRIBUTION}")
    yield InstallationCheck(
        "packages", "ok", ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    )


def _extras() -> Iterator[InstallationCheck]:
    extras: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra is not None and name != DISTRIBUTION:
            extras.setdefault(extra, []).append(name)
    installed = [extra for extra, names in extras.items() if all(map(_version, names))]
    absent = [extra for extra in extras if extra not in installed]
    yield InstallationCheck(
        "extras", "note", f"installed: {', '.join(installed) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    )


def _weights() -> Iterator[InstallationCheck]:
    shipped = sorted(Path(str(files("context_agent"))).rglob("*.safetensors"))
    if not shipped:
        yield InstallationCheck(
            "weights", "problem", "no weights in the package", f"pip install --force-reinstall {DISTRIBUTION}"
        )
    for path in shipped:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        yield InstallationCheck(
            "weights", "ok", f"{path.name} sha256 {digest[:16]} ({path.stat().st_size / 1e6:.1f} MB)"
        )


def _round_trip() -> InstallationCheck:
    """Search a few passages in memory. The search tests the embedding, BM25, an episode and its ranking."""
    from context_agent.agent import SearchAgent
    from context_agent.cli.demo import documents, questions
    from context_agent.retrieval.memory import MemoryCorpus

    question = questions()[0]
    started = time.perf_counter()
    with SearchAgent(MemoryCorpus(documents())) as agent:
        result = agent.search(question.question)
    seconds = time.perf_counter() - started
    if question.gold[0] not in {document.id for document in result.documents}:
        return InstallationCheck(
            "round trip", "problem", f"the search of the bundled passages missed {question.gold[0]!r}"
        )
    return InstallationCheck("round trip", "ok", f"{result.turns} turns over the bundled passages in {seconds:.1f} s")


def _disk(folder: Path) -> InstallationCheck:
    free = shutil.disk_usage(folder).free
    fix = "" if free >= LEAST_FREE else "free some space before you index more"
    return InstallationCheck(
        "disk", "ok" if free >= LEAST_FREE else "problem", f"{free / 1e9:.1f} GB free at {folder}", fix
    )


def _lock(folder: Path) -> InstallationCheck:
    """Report whether another process is indexing into the folder."""
    from filelock import FileLock, Timeout

    from context_agent.retrieval.chroma.location import OWN_FOLDER, WRITER_LOCK

    file = folder / OWN_FOLDER / WRITER_LOCK
    if not file.exists():
        return InstallationCheck("lock", "ok", "free")
    try:
        with FileLock(file, timeout=0):
            return InstallationCheck("lock", "ok", "free")
    except Timeout:
        return InstallationCheck(
            "lock", "note", "another process is writing to the index, and searches use its last complete state"
        )


def _index(index: CorpusOptions) -> InstallationCheck:
    """Open the index, and search it for words from one of its own chunks."""
    from context_agent.retrieval.language_fit import language_warning

    started = time.perf_counter()
    with index.open() as corpus:
        if not corpus.count():
            return InstallationCheck("index", "note", f"{corpus.name} is empty", "to fill it, run ctx1 index")
        row = corpus.snapshot.rows[corpus.count() // 2]
        (chunk,) = corpus.get([row.chunk])
        words = " ".join(chunk.indexed_text.split()[:WORDS])
        hits = [hit.chunk.id for hit in corpus.search(words)]
        weights = corpus.calibration.weights
        idle = [name for name, weight in weights.items() if not weight]
        seconds = time.perf_counter() - started
        detail = f"{corpus.name}: {corpus.count():,} chunks by {corpus.embedder.name}, searched in {seconds:.1f} s"
        warning = language_warning(corpus.embedder.name, corpus.snapshot.sample())
    if chunk.id not in hits:
        return InstallationCheck(
            "index", "problem", f"{detail}; a search missed a chunk by its own words", "run ctx1 index again"
        )
    if idle:
        return InstallationCheck(
            "index",
            "problem",
            f"{detail}; switched off because they find nothing: {', '.join(idle)}",
            warning or "pass the right --embedder",
        )
    if warning:
        return InstallationCheck("index", "note", detail, warning)
    return InstallationCheck("index", "ok", detail)
