"""Chroma's client, and its errors as errors of this package.

Importing Chroma takes more than a second, so it is imported only when it is needed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from context_agent.errors import ConfigError, CorpusCorruptError, CorpusError, CorpusNotFoundError
from context_agent.retrieval.chroma.database import not_found
from context_agent.retrieval.chroma.location import Location

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CHROMA_API = "/api/v2"
"""The path of Chroma's API, below the address of a server."""
AUTHENTICATION = (
    "If it requires a token, pass headers= in Python, or set Chroma's variables CHROMA_CLIENT_AUTH_PROVIDER and "
    "CHROMA_CLIENT_AUTH_CREDENTIALS."
)
MAX_REASON = 300
"""Maximum number of characters of a server's answer in an error."""
NOT_ALLOWED_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The errors of a file that a user may not use."""
_MIN_FREE_BYTES = 8_000_000
_DISK_FULL_TEXT = re.compile("disk is full|no space left|quota exceeded|file too large", re.IGNORECASE)
"""How SQLite, tantivy and Chroma report a full disk in errors without a number."""
_WRITTEN_FOLDERS: list[Path | None] = []


def connect(location: Location) -> ClientAPI:
    """Return a Chroma client.

    The client writes to a local folder. So open a folder only while holding the writer's lock, or if it is a private
    copy.

    Raises:
        CorpusNotFoundError: If no server answers.
        CorpusCorruptError: If Chroma cannot read the folder.
        ConfigError: If the address does not belong to a server, or if this process has opened the folder with a client
            that has other settings.
    """
    import chromadb

    if location.url is not None:
        return _server(location, location.url)
    assert location.path is not None
    with chroma_errors(location), _forgotten_if_failed(str(location.path)):
        try:
            client = chromadb.PersistentClient(str(location.path), settings=_client_settings())
        except ValueError as error:
            raise ConfigError(
                f"Chroma does not open {location} ({error}). If this program has opened the folder with a Chroma "
                "client, close that client first."
            ) from error
        client.count_collections()
        return client


@contextmanager
def _forgotten_if_failed(path: str) -> Iterator[None]:
    """Remove what Chroma keeps of a folder that it could not open. The next attempt would use it, and fail."""
    from chromadb.api.shared_system_client import SharedSystemClient

    try:
        yield
    except BaseException:
        if path not in SharedSystemClient._identifier_to_refcount:  # noqa: SLF001
            SharedSystemClient._identifier_to_system.pop(path, None)  # noqa: SLF001
        raise


def find(client: ClientAPI | None, location: Location, name: str) -> Collection:
    """Return the collection.

    Raises:
        CorpusNotFoundError: If there is no such collection. The message lists those that exist.
        ConfigError: If the name is not valid.
    """
    from chromadb.errors import NotFoundError

    if location.live is not None:
        return location.live
    assert client is not None
    with chroma_errors(location):
        try:
            return client.get_collection(name, embedding_function=None)
        except NotFoundError:
            names = [collection.name for collection in client.list_collections()]
        except ValueError as error:
            raise invalid_name(name, error) from error
    raise not_found(name, location, names)


def invalid_name(name: str, error: Exception) -> ConfigError:
    """Return the error for a name that Chroma refuses."""
    return ConfigError(f"{name!r} is not a valid name of a Chroma collection ({error}). Pass another --collection.")


@contextmanager
def writing(location: Location) -> Iterator[None]:
    """Mark the folder as one that this process writes with Chroma's client.

    Readers in the same process check the mark with `is_writing`.
    """
    _WRITTEN_FOLDERS.append(location.path)
    try:
        yield
    finally:
        _WRITTEN_FOLDERS.remove(location.path)


def is_writing(path: Path) -> bool:
    """Return True if this process writes to the folder now, also under another path, such as through a link."""
    return any(_is_same(path, written) for written in list(_WRITTEN_FOLDERS) if written is not None)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # One of them does not exist.
        return path == other


@contextmanager
def chroma_errors(location: Location) -> Iterator[None]:
    """Turn Chroma's errors about damaged files or a lost server into this package's errors."""
    import httpx
    from chromadb.errors import ChromaError, InternalError

    try:
        yield
    except (InternalError, OSError) as error:
        if getattr(error, "errno", None) in NOT_ALLOWED_ERRORS or "readonly database" in str(error):
            raise not_allowed(location, error) from error
        raise _unreadable(location, error) from error
    except httpx.HTTPError as error:
        raise _no_server(location, error) from error
    except ChromaError as error:
        raise CorpusError(f"Chroma refused a request to {location} ({error})") from error
    except BaseException as error:
        # Chroma panics if another program made the tables of its database.
        if type(error).__name__ != "PanicException":
            raise
        raise _unreadable(location, error) from error


def _unreadable(location: Location, error: BaseException) -> CorpusCorruptError:
    hint = "Restore it from a backup, or delete it and index again." if location.path else "See the server's log."
    return CorpusCorruptError(f"Chroma cannot read {location} ({error}). {hint}")


def not_allowed(location: Location, error: Exception) -> CorpusError:
    """Return the error for a file of an index that this user may not read or write."""
    if location.path is None:
        return CorpusError(
            f"the local files of the index on {location} cannot be used ({error}). Set XDG_CACHE_HOME to a folder that "
            "is writable (with ctx1 serve: --cache; in Python: cache=)."
        )
    return CorpusError(
        f"{location} is read-only, or this user may not read it ({error}). Allow this user to read and write the "
        "folder and its files."
    )


def disk_full(location: Location, error: BaseException | None) -> bool:
    """Return True if an error or one of its causes reports a full disk, or if Chroma failed and no space is left."""
    if isinstance(error, CorpusCorruptError) and location.path is not None and not _has_space(location.path):
        return True
    return any(
        getattr(cause, "errno", None) in _DISK_FULL_ERRORS or _DISK_FULL_TEXT.search(str(cause))
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, each once. An error that is raised again may be a cause of itself."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _has_space(folder: Path) -> bool:
    """Return True if the disk and this process's file size limit leave space.

    Chroma does not always report the reason for a failure.
    """
    limit = float("inf")
    if os.name == "posix":
        import resource

        soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        limit = limit if soft == resource.RLIM_INFINITY else soft
    largest = max((file.stat().st_size for file in folder.glob("*") if file.is_file()), default=0)
    return min(shutil.disk_usage(folder).free, limit - largest) > _MIN_FREE_BYTES


def _client_settings() -> Any:
    """Return Chroma's settings, read only from environment variables.

    Chroma would also read a file `.env` in the working directory. That file can come from someone else, and can name
    classes to load and addresses to send traces to. In the supported versions, Chroma's product telemetry sends
    nothing.
    """
    from chromadb.config import Settings

    return cast("Any", Settings)(_env_file=None)


def _no_server(location: Location, error: Exception) -> CorpusError:
    """Return the error for an address where no Chroma server answers, or where the server refuses this client."""
    reason = " ".join(str(error).split())
    status = _status(error)
    if status in (401, 403):
        return CorpusError(f"the Chroma server {location} refused the request (HTTP {status}). {AUTHENTICATION}")
    if reason.startswith("<"):
        return CorpusNotFoundError(
            f"{location} is not a Chroma server, because it answers with a web page. Check the address and the port."
        )
    known = reason[:MAX_REASON] or (f"HTTP {status}" if status else type(error).__name__)
    return CorpusNotFoundError(
        f"the Chroma server {location} does not answer ({known}). Check that it runs at this address."
    )


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status that an error or one of its causes reports. If there is none, return None."""
    import httpx

    statuses = (cause.response.status_code for cause in _causes(error) if isinstance(cause, httpx.HTTPStatusError))
    return next(statuses, None)


def _server(location: Location, url: str) -> ClientAPI:
    import chromadb
    from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 8000)
        valid = parts.scheme in ("http", "https") and "@" not in parts.netloc and not parts.query
    except ValueError:  # The port or the IPv6 address is invalid.
        valid = False
    if not valid or not parts.hostname:
        public = url.rpartition("@")[2].partition("?")[0]
        raise ConfigError(
            "the address of a Chroma server must look like http://localhost:8000, without a user, a password or a "
            f"query; got {public!r}. {AUTHENTICATION}"
        )
    # If the host is a whole address, Chroma keeps its path. A proxy may serve Chroma below a path.
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix(CHROMA_API)
    with chroma_errors(location):
        try:
            return chromadb.HttpClient(
                f"{parts.scheme}://{name}:{port}{path}",
                port,
                ssl=parts.scheme == "https",
                settings=_client_settings(),
                headers=dict(location.headers or {}) or None,
                tenant=location.tenant or DEFAULT_TENANT,
                database=location.database or DEFAULT_DATABASE,
            )
        except ValueError as error:
            raise _no_server(location, error) from error
