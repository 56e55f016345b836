"""The cost of loading a file. It is measured in a separate process, which needs Linux."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

MB = 2**20
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class LoadingCost:
    """The cost of loading one file, and the size of the result.

    Attributes:
        seconds: Processor time from the first byte to the last document, including child processes.
        megabytes: Peak memory in addition to the memory of the idle process, including child processes.
        documents: The number of documents.
        characters: Characters of all documents and their metadata, counted up to the memory limit of the measurement.
        reason: The loader's first notice. Empty if there is none.
        failure: The reason why the process was ended. Empty if it ended by itself.
    """

    seconds: float
    megabytes: float
    documents: int = 0
    characters: int = 0
    reason: str = ""
    failure: str = ""


def loading_cost(path: Path, *, max_seconds: float = 60, max_megabytes: int = 2_000) -> LoadingCost:
    """Load a file in a forked process under limits of time and memory, and return the cost.

    Args:
        path: The file.
        max_seconds: Seconds after which the process is killed.
        max_megabytes: Address space that the process may use beyond that of this process.
    """
    import context_agent.retrieval.loaders  # noqa: F401 - the fork finds it imported

    reader, writer = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run(path, writer, max_megabytes)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], max_seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as stream:
        reply = stream.read()
    _, status, usage = os.wait4(child, 0)
    if reply:
        return LoadingCost(**json.loads(reply))
    failure = f"killed after {max_seconds:g} s" if not ready else f"exit status {status}"
    return LoadingCost(time.perf_counter() - started, usage.ru_maxrss / 1024, failure=failure)


def _run(path: Path, writer: int, max_megabytes: int) -> None:
    """Load the file, report the cost, and end the process."""
    from context_agent.retrieval.loaders import LoadReport, load

    gc.freeze()  # prevents a collection that copies all objects of the parent
    limit = _status("VmSize") * 1024 + max_megabytes * MB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    rest, before, report, failure = _status("VmRSS"), time.process_time(), LoadReport(), ""
    documents = characters = 0
    try:
        for document in load(path, report=report):
            documents += 1
            characters += len(document.text) + sum(len(str(value)) for value in document.metadata.values())
    except BaseException as error:  # noqa: BLE001 - a fork must not return into its parent's code
        failure = f"{type(error).__name__}: {error}"
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() - before + children.ru_utime + children.ru_stime
    reason = report.notices[0].reason if report.notices else ""
    megabytes = (_status("VmHWM") - rest + children.ru_maxrss) / 1024
    cost = LoadingCost(seconds, megabytes, documents, characters, reason, failure)
    os.write(writer, json.dumps(asdict(cost)).encode())
    os._exit(0)


def _status(field: str) -> int:
    """Return a number from this process's status, in kilobytes."""
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(field + ":"))
    return int(line.split()[1])
