"""Where a Chroma collection is (a local folder or a server), the client that reaches it, and the folders of an index.

Chroma is imported only when it is needed: that takes more than a second.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from context_agent._support.small_files import require_files
from context_agent.errors import ConfigError, CorpusCorruptError, CorpusError, CorpusNotFoundError, DataError
from context_agent.retrieval.chroma.database import DATABASE, not_found

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

OWN_FOLDER = "ctx1"
"""The folder of this package's files inside a Chroma folder."""
WRITER_LOCK = "writer.lock"
"""The file in `OWN_FOLDER` that the process that indexes into the folder locks."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEAST_SPACE = 8_000_000
_FULL_TEXT = re.compile("disk is full|no space left|quota exceeded|file too large", re.IGNORECASE)
"""How SQLite, tantivy and Chroma report a full disk in errors without a number."""
_WRITING: list[Path | None] = []
PAGE = 2_000
"""Records fetched in one request when many are read."""


@dataclass(frozen=True, slots=True)
class Location:
    """A local folder or a server: exactly one of the two. `headers` are sent to the server, e.g. a token.

    `live` is a collection that the caller holds open; then `path` is its local folder if it has one, and `url` is None.
    """

    path: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    tenant: str | None = None
    database: str | None = None
    live: Collection | None = None

    @classmethod
    def of(cls, path: str | Path | None, url: str | None, live: Collection | None = None, **options: Any) -> Location:
        """Raises `ConfigError` unless exactly one of `path`, `url` and `live` is given.

        Raises `CorpusCorruptError` if the folder holds a pipe, a socket or a device in place of a file of an index.
        """
        if sum(option is not None for option in (path, url, live)) != 1:
            raise ConfigError("name the index either by its folder (path) or by its server's address (url)")
        if live is not None:
            settings = _settings(live)
            path = settings.persist_directory if settings.is_persistent else None
        folder = None if path is None else Path(path).expanduser().absolute()
        if folder is not None:
            _require_files(folder)
        return cls(folder, url, live=live, **options)

    @property
    def in_memory(self) -> bool:
        """Whether a live collection exists only in this process."""
        if self.live is None:
            return False
        settings = _settings(self.live)
        return not settings.is_persistent and settings.chroma_server_host is None

    def __str__(self) -> str:
        return str(self.path or self.url or "the client that holds it open")


def _require_files(folder: Path) -> None:
    """Refuse a folder with a pipe, which would block its reader, or a file that is almost all holes."""
    try:
        require_files(_files(folder))
    except DataError as error:
        raise CorpusCorruptError(f"{error}, and index the documents again") from error


def _files(folder: Path) -> Iterator[Path]:
    """Chroma's database and vectors, and the files of this package, as far as a writer does not delete them now."""
    for pattern in (f"{DATABASE}*", "*/*.bin", "*/*.pickle"):
        with suppress(FileNotFoundError):
            yield from folder.glob(pattern)
    for parent, _, names in os.walk(folder / OWN_FOLDER):
        yield from (Path(parent, name) for name in names)


def connect(location: Location) -> ClientAPI:
    """Return a client. It writes to a local folder: only for the process with the writer's lock, and for private
    copies.

    Raises `CorpusNotFoundError` if no server answers, `CorpusCorruptError` for a folder that Chroma cannot read.
    """
    import chromadb

    if location.url is not None:
        return _server(location, location.url)
    assert location.path is not None
    with chroma_errors(location):
        client = chromadb.PersistentClient(str(location.path), settings=_client_settings())
        client.count_collections()
        return client


def find(client: ClientAPI | None, location: Location, name: str) -> Collection:
    """Return the collection. Raises `CorpusNotFoundError`, which lists the existing collections."""
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
            raise ConfigError(f"{name!r} is not a valid name of a Chroma collection: {error}") from error
    raise not_found(name, location, names)


@contextmanager
def writing(location: Location) -> Iterator[None]:
    """Marks the folder as being written by this process with Chroma's client, for readers in the same process."""
    _WRITING.append(location.path)
    try:
        yield
    finally:
        _WRITING.remove(location.path)


def is_writing(path: Path) -> bool:
    """Return whether this process writes to the folder now."""
    return path in _WRITING


@contextmanager
def chroma_errors(location: Location) -> Iterator[None]:
    """Turns Chroma's errors about damaged files or a lost server into this package's errors."""
    import httpx
    from chromadb.errors import ChromaError, InternalError

    try:
        yield
    except (InternalError, OSError) as error:
        if "readonly database" in str(error):
            message = f"{location} is read-only ({error}): allow this user to write to the folder and its files"
            raise CorpusError(message) from error
        hint = "restore it from a backup, or delete it and index again" if location.path else "see the server's log"
        raise CorpusCorruptError(f"Chroma cannot read {location} ({error}): {hint}") from error
    except httpx.HTTPError as error:
        raise CorpusNotFoundError(f"the Chroma server {location} does not answer: {error}") from error
    except ChromaError as error:
        raise CorpusError(f"Chroma refused a request to {location}: {error}") from error


def disk_full(location: Location, error: BaseException | None) -> bool:
    """Return whether the disk is full: an error or its cause says so, or Chroma failed and there is no space."""
    if isinstance(error, CorpusCorruptError) and location.path is not None and not _has_space(location.path):
        return True
    while error is not None:
        if getattr(error, "errno", None) in _FULL or _FULL_TEXT.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _has_space(folder: Path) -> bool:
    """Return whether the disk and this process's file size limit leave space. Chroma does not always say why it
    fails.
    """
    limit = float("inf")
    if os.name == "posix":
        import resource

        soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        limit = limit if soft == resource.RLIM_INFINITY else soft
    largest = max((file.stat().st_size for file in folder.glob("*") if file.is_file()), default=0)
    return min(shutil.disk_usage(folder).free, limit - largest) > _LEAST_SPACE


def pages(
    collection: Collection, include: Sequence[Any], ids: Sequence[str] | None = None, *, size: int = PAGE
) -> Iterator[dict[str, Any]]:
    """Yield the records with these ids, by default all records, in pages as Chroma's `get` returns them."""
    if ids is not None:
        for start in range(0, len(ids), size):
            yield dict(collection.get(ids=list(ids[start : start + size]), include=list(include)))
        return
    offset = 0
    while True:
        page: dict[str, Any] = dict(collection.get(limit=size, offset=offset, include=list(include)))
        if not page["ids"]:
            return
        yield page
        offset += len(page["ids"])


def contents(
    collection: Collection, ids: Sequence[str] | None = None
) -> Iterator[tuple[str, str | None, Mapping[str, Any] | None]]:
    """Record id, text and metadata of the records with these ids, by default of all."""
    for page in pages(collection, ["documents", "metadatas"], ids):
        yield from zip(page["ids"], page["documents"], page["metadatas"], strict=True)


def all_ids(collection: Collection) -> list[str]:
    """Return the ids of all records, in the order of the store."""
    return [record for page in pages(collection, [], size=10 * PAGE) for record in page["ids"]]


def own_folder(location: Location, collection_id: str, cache: str | Path | None = None) -> Path:
    """Return the folder of a collection's snapshots: in a writable index folder, else in the user's cache folder.

    Raises `CorpusCorruptError` if a part of the path inside the index folder is a link.
    """
    if cache is None and location.path is not None and os.access(location.path, os.W_OK):
        return without_links(location.path, OWN_FOLDER, collection_id)
    return cache_folder(cache) / collection_id


def without_links(folder: Path, *names: str) -> Path:
    """Return a folder below `folder`. Files are written and deleted in it, so no part of its path may be a link."""
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise CorpusCorruptError(
                f"{folder} is a link, but an index keeps its files in its own folder: delete the link"
            )
    return folder


def cache_folder(cache: str | Path | None = None) -> Path:
    """Return the given folder, else the platform's cache folder for this package."""
    if cache is not None:
        return Path(cache).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("context-agent", appauthor=False)


def _client_settings() -> Any:
    """Chroma's settings from the user's environment alone.

    Chroma would also read a file `.env` in the working directory, which can come from someone else and name classes to
    load and addresses to send traces to. Its product telemetry sends nothing in the supported versions.
    """
    from chromadb.config import Settings

    return cast("Any", Settings)(_env_file=None)


def _settings(collection: Collection) -> Any:
    """Return the settings of a collection's client; Chroma has no public way to get them."""
    return collection._client.get_settings()  # noqa: SLF001


def make_folder(path: Path) -> None:
    """Creates the folder of an index. Raises `CorpusError` if that fails or the folder holds other files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CorpusError(f"the index folder {path} cannot be created: {error}") from error
    if not (path / DATABASE).exists() and any(
        child.name != OWN_FOLDER and not child.name.startswith(".") for child in path.iterdir()
    ):
        raise CorpusError(f"{path} holds other files but no index: name a new or empty folder")


def _server(location: Location, url: str) -> ClientAPI:
    import chromadb
    from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT

    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not the address of a Chroma server: write it like http://localhost:8000")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 8000)
    with chroma_errors(location):
        try:
            return chromadb.HttpClient(
                parts.hostname,
                port,
                ssl=secure,
                settings=_client_settings(),
                headers=dict(location.headers or {}) or None,
                tenant=location.tenant or DEFAULT_TENANT,
                database=location.database or DEFAULT_DATABASE,
            )
        except ValueError as error:
            raise CorpusNotFoundError(f"the Chroma server {location} does not answer: {error}") from error


def first_vectors(collection: Collection, count: int) -> NDArray[np.float32]:
    """Return the first vectors of a collection, shape (at most count, d)."""
    vectors = collection.get(limit=count, include=["embeddings"])["embeddings"]
    return np.asarray(vectors if vectors is not None else [], dtype=np.float32)


def dimension_of(collection: Collection) -> int:
    """Return the length of a collection's vectors; 0 when it is empty."""
    vectors = first_vectors(collection, 1)
    return vectors.shape[1] if len(vectors) else 0


def space_of(collection: Collection) -> str:
    """Chroma's name of the collection's distance: `cosine`, `l2` or `ip`."""
    configuration = collection.configuration_json
    index = configuration.get("hnsw") or configuration.get("spann") or {}
    return str(index.get("space") or "l2")
