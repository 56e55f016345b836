"""Locks between processes, in files. The lock of a killed process is free."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_agent._support.private_files import private_folder
from context_agent.errors import ConfigError, ContextAgentError, reason_of

_WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a file system without locks answers, such as NFS without a lock service."""


class NoLocksError(ConfigError):
    """The file system of a folder has no locks."""


@contextmanager
def file_lock(path: Path, *, timeout: float = 0, busy: ContextAgentError | None = None) -> Iterator[None]:
    """Hold a lock file while the block runs.

    Args:
        path: The lock file.
        timeout: Seconds to wait for the lock. -1 waits forever.
        busy: The error if another process holds the lock. Defaults to a `ConfigError`.

    Raises:
        ConfigError: If another process holds the lock and there is no `busy`, or if `path` is a link.
        NoLocksError: If the file system has no locks.
    """
    lock = acquired_lock(path, timeout, busy)
    try:
        yield
    finally:
        lock.release()


def acquired_lock(path: Path, timeout: float, busy: ContextAgentError | None) -> Any:
    """Return the lock of a file, which this process now holds. Its method `release` frees it, in any thread.

    See `file_lock`.
    """
    from filelock import FileLock, Timeout

    private_folder(path.parent)
    if path.is_symlink():
        raise ConfigError(f"{path} is a symbolic link, but a lock must be a regular file. Delete the link.")
    # By default, `release` does nothing in another thread than that of `acquire`.
    lock = FileLock(path, timeout=timeout, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise busy or ConfigError(f"another process has locked {path}. Wait until it ends, or stop it.") from None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _WITHOUT_LOCKS:
            raise
        raise NoLocksError(
            f"the file system of {path.parent} has no locks ({reason_of(error)}). Use a folder on another file system."
        ) from error
    return lock
