"""The lock in the folder of a run, which keeps other processes from training there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from context_agent._support.atomic_files import naming_disk_errors
from context_agent._support.locks import NoLocksError, file_lock
from context_agent.errors import ConfigError
from context_agent.train.lineage import RUN_FILE
from context_agent.train.metrics_log import METRICS_FILE

LOCK_FILE = ".lock"
"""The lock in a run's folder. The process that trains there holds it."""
_PARTIAL_FILES = tuple(f".{name}.*.partial" for name in (RUN_FILE, METRICS_FILE, "episodes*.jsonl"))
"""The names that the files of a run have while they are written."""


@contextmanager
def locked_folder(out: str | Path) -> Iterator[None]:
    """Keep other processes from training in the folder of a run while the block runs. Errors of its disk name it.

    The first rank of a run holds the lock. If the file system has no locks, the folder is not protected.

    Args:
        out: The folder of the run.

    Raises:
        ConfigError: If another process trains in the folder, if `out` is a file, or if MPI started several processes
            that do not know of each other.
    """
    _check_launcher()
    busy = ConfigError(f"another process trains in {out}. Wait until it ends, or name another folder with --out.")
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":
            if Path(out).is_file():
                raise ConfigError(f"{out} is a file, but a run needs a folder. Name another folder with --out.")
            Path(out).mkdir(parents=True, exist_ok=True)
            with suppress(NoLocksError):
                stack.enter_context(file_lock(Path(out, LOCK_FILE), busy=busy))
                # A killed process left them. The other ranks, which write such files too, still wait for this one.
                for left in (path for pattern in _PARTIAL_FILES for path in Path(out).glob(pattern)):
                    left.unlink()
        # Libraries write files of the run, too, and their errors about a full disk name no file.
        with naming_disk_errors(Path(out)):
            yield


def _check_launcher() -> None:
    """Raise `ConfigError` if MPI started several processes without the variables of `torch.distributed`."""
    sizes = {name: os.environ.get(name, "") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")}
    several = [f"{name}={size}" for name, size in sizes.items() if size.isdecimal() and int(size) > 1]
    if several and "RANK" not in os.environ:
        raise ConfigError(
            f"MPI started several processes ({several[0]}), but RANK is not set, so each of them would train alone. "
            "Start the run with `accelerate launch` instead of mpirun."
        )
