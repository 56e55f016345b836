"""Where a Chroma collection is, and the folders of an index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_agent._support.arguments import folder_path, require_type, require_utf8
from context_agent._support.cache_folder import cache_folder
from context_agent._support.small_files import require_files
from context_agent.errors import ConfigError, CorpusCorruptError, CorpusError, DataError, reason_of
from context_agent.retrieval.chroma.database import DATABASE_FILE, collection_ids
from context_agent.retrieval.chroma.vector_files import VECTOR_FILES
from context_agent.retrieval.index.publication import valid_id

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

OWN_FOLDER = "ctx1"
"""The folder of this package's files inside a Chroma folder."""
WRITER_LOCK = "writer.lock"
"""The file in `OWN_FOLDER` that a process locks while it indexes into the folder."""


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a collection: a local folder, a server, or a collection that the caller holds open.

    Attributes:
        path: The folder.
        url: The address of the server.
        headers: HTTP headers for the server, for example with a token.
        tenant: Chroma's tenant on the server.
        database: Chroma's database on the server.
        live: A collection that the caller holds open. `path` is then its local folder, if it has one. `url` is None.
    """

    path: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    tenant: str | None = None
    database: str | None = None
    live: Collection | None = None

    @classmethod
    def of(cls, path: str | Path | None, url: str | None, live: Collection | None = None, **options: Any) -> Location:
        """Return the location of an index, from exactly one of `path`, `url` and `live`.

        Args:
            path: The folder.
            url: The address of the server.
            live: A collection that the caller holds open.
            options: The fields `headers`, `tenant` and `database`.

        Raises:
            ConfigError: If not exactly one of `path`, `url` and `live` is given, or if the path is not UTF-8.
            CorpusCorruptError: If a file of the index is a pipe, a socket or a device, or a mostly empty sparse file.
        """
        if sum(option is not None for option in (path, url, live)) != 1:
            raise ConfigError(
                "an index is named either by its folder (path) or by its server's address (url). Pass one of the two."
            )
        if live is not None:
            settings = _settings(live)
            path = settings.persist_directory if settings.is_persistent else None
        folder = None if path is None else require_utf8(folder_path(path, "path").expanduser().absolute())
        if url is not None:
            require_type(url, "url", str, "the address of a Chroma server")
        require_type(options.get("headers"), "headers", (Mapping, type(None)), "a dictionary")
        if folder is not None:
            _require_files(folder)
        return cls(folder, url, live=live, **options)

    @property
    def in_memory(self) -> bool:
        """Whether a live collection exists only in this process."""
        if self.live is None:
            return False
        return not _settings(self.live).is_persistent and not is_on_server(self.live)

    def __str__(self) -> str:
        return str(self.path or self.url or "the client that holds it open")


def _require_files(folder: Path) -> None:
    """Raise `CorpusCorruptError` if a file is a pipe, which would block its reader, or a mostly empty sparse file."""
    try:
        require_files(_files(folder))
    except DataError as error:
        raise CorpusCorruptError(f"{error}. Then index the documents again.") from error


def require_own_files(folder: Path) -> None:
    """Raise `CorpusCorruptError` if a file or a folder of the index is a link, through which Chroma would write."""
    for path in (*folder.iterdir(), *_files(folder)):
        without_links(folder, *path.relative_to(folder).parts)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of Chroma's database and vectors, and those of this package.

    Files that a writer deletes at the same time may be missing.
    """
    for pattern in (f"{DATABASE_FILE}*", "*/*.bin", "*/*.pickle"):
        with suppress(FileNotFoundError):
            yield from folder.glob(pattern)
    for parent, _, names in os.walk(folder / OWN_FOLDER):
        yield from (Path(parent, name) for name in names)


def own_folder(location: Location, collection_id: str, cache: str | Path | None = None) -> Path:
    """Return the folder of a collection's snapshots.

    If the index folder is writable and no cache is named, it is in the index folder. Otherwise, it is in the cache
    folder. If a part of the path inside the index folder is a link, raise `CorpusCorruptError`.
    """
    if cache is None and location.path is not None and os.access(location.path, os.W_OK):
        return without_links(location.path, OWN_FOLDER, collection_id)
    return require_utf8(cache_folder(cache).absolute()) / collection_id


def snapshot_folders(folder: Path) -> list[Path]:
    """Return the folders in an index folder that hold the snapshots of a collection."""
    children = (folder / OWN_FOLDER).glob("*")
    return [child for child in children if valid_id(child.name) and child.is_dir() and not child.is_symlink()]


def remove_deleted(snapshots: Iterable[Path], folder: Path) -> None:
    """Delete the snapshots of collections that are no longer in the database.

    Args:
        snapshots: Folders that `snapshot_folders` returned before the database was read or copied. The folder of a
            collection is made after the collection.
        folder: The folder with the database.
    """
    present = collection_ids(folder)
    for child in snapshots:
        if child.name not in present:
            shutil.rmtree(child, ignore_errors=True)


def without_links(folder: Path, *names: str) -> Path:
    """Return a folder below `folder`. If a part of its path is a link, raise `CorpusCorruptError`.

    Writers create and delete files in this folder. A link could point to files of other programs.
    """
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise CorpusCorruptError(
                f"{folder} is a link, but an index keeps its files in its own folder. Delete the link."
            )
    return folder


def is_on_server(collection: Collection) -> bool:
    """Return True if a collection is on a server, and not in a local folder or in memory."""
    return _settings(collection).chroma_server_host is not None


def _settings(collection: Collection) -> Any:
    """Return the settings of a collection's client. Chroma has no public way to get them."""
    return collection._client.get_settings()  # noqa: SLF001


def make_folder(path: Path) -> None:
    """Make the folder of an index. If that fails, or if the folder holds other files, raise `CorpusError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CorpusError(
            f"the index folder {path} cannot be created ({reason_of(error)}). Name a folder that you may write to."
        ) from error
    if not (path / DATABASE_FILE).exists() and any(
        child.name != OWN_FOLDER and not child.name.startswith(".") and not _is_vector_folder(child)
        for child in path.iterdir()
    ):
        raise CorpusError(f"{path} contains other files, but no index. Name a new or empty folder.")


def _is_vector_folder(path: Path) -> bool:
    """Return True if this is a folder with a vector index. It stays if the user deletes a damaged database."""
    return valid_id(path.name) and path.is_dir() and {child.name for child in path.iterdir()} <= set(VECTOR_FILES)
