"""The database of a local Chroma folder, read with SQLite and without Chroma.

A process that opens a folder with Chroma's client writes to it, even if it only queries. Chroma applies pending log
entries, and saves the vector index after enough of them. If another process indexes at the same time, this destroys the
vector index. So readers open Chroma's database read-only with SQLite, and read all other files only as
private copies.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from context_agent.errors import CorpusCorruptError, CorpusEmptyError, CorpusError, CorpusNotFoundError, reason_of
from context_agent.retrieval.index.manifest import MANIFEST_KEY
from context_agent.retrieval.index.metadata_keys import SAMPLED_RECORDS, USUAL_KEYS, usual_keys
from context_agent.retrieval.index.publication import StoredCollection, valid_id

DATABASE_FILE = "chroma.sqlite3"
"""The file that marks a Chroma folder."""
JOURNAL_FILE = f"{DATABASE_FILE}-journal"
"""The file of a transaction that is not complete."""
BUSY_SECONDS = 30.0
"""The time that a reader waits for a locked database."""
MAX_VALUE_BYTES = 10_000_000
"""The maximum size of a value that is read from the database."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The bytes with which a journal of SQLite begins. It also ends with them if it names a super-journal."""
_STEPS_PER_BYTE, _SPARE_STEPS, _STEPS_AT_ONCE = 20, 2_000_000, 100_000
"""The steps of SQLite that reading may take for each byte of the database, and those of a small database.

Pages that refer to each other have endless rows. A row takes fewer steps than it has bytes.
"""
_COMPARED_LETTERS = 500
"""The characters of a metadata value that are compared when the keys of a collection are chosen."""
_TABLES = (
    "collection_metadata",
    "collections",
    "databases",
    "embedding_metadata",
    "embeddings",
    "embeddings_queue",
    "max_seq_id",
    "segments",
)
"""The tables that are read. Chroma makes them one after the other when it first opens a folder."""
_UNREADABLE = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL"})


class UnreadableError(CorpusError):
    """An error for a database that cannot be read in place now.

    It is locked, or a killed writer left a transaction to roll back.
    """


class EmptyCollectionError(CorpusEmptyError):
    """An error for a collection of another program that has no records."""


class MissingCollectionError(CorpusNotFoundError):
    """An error for a collection that does not exist. `names` lists the existing collections."""

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


def read_collection(folder: Path, name: str, *, timeout: float = BUSY_SECONDS) -> StoredCollection:
    """Return the collection of this name, without writing to the folder.

    Raises:
        CorpusNotFoundError: If there is no such collection. The message lists those that exist.
        UnreadableError: If the database is locked for `timeout` seconds.
        CorpusCorruptError: If the database is damaged.
    """
    with open_database(folder, timeout) as database:
        return _collection(database, folder, name)


def vector_folder(folder: Path, name: str) -> Path | None:
    """Return the folder of the collection's vector index. If there is none, return None.

    It raises the same errors as `read_collection`.
    """
    with open_database(folder, BUSY_SECONDS) as database:
        return vector_files(folder, segment_id(database, _collection(database, folder, name).id, "VECTOR"))


def collection_ids(folder: Path) -> frozenset[str]:
    """Return the ids of all collections, of any tenant. It raises the same errors as `read_collection`."""
    with open_database(folder, BUSY_SECONDS) as database:
        return frozenset(str(row[0]) for row in database.execute("select id from collections"))


def changed_records(folder: Path, collection: str, sequence: int) -> frozenset[str]:
    """Return the records of a collection that were added or changed after a sequence number."""
    with open_database(folder, BUSY_SECONDS) as database:
        query = "select embedding_id from embeddings where segment_id = ? and seq_id > ?"
        segment = segment_id(database, collection, "METADATA")
        return frozenset(str(record) for (record,) in database.execute(query, (segment, sequence)))


def _collection(database: sqlite3.Connection, folder: Path, name: str) -> StoredCollection:
    database.row_factory = sqlite3.Row
    # A name that the table lacks is an error of SQLite. Tables of other versions may lack the columns that `get` reads.
    query = (
        "select c.id, c.name, cast(c.dimension as integer) as size, c.* from collections c "
        "join databases d on d.id = c.database_id where d.name = 'default_database' and d.tenant_id = 'default_tenant'"
    )
    collections = {row["name"]: dict(row) for row in database.execute(query)}
    if name not in collections:
        raise not_found(name, folder, collections)
    row = collections[name]
    if not valid_id(row["id"]):
        raise CorpusCorruptError(
            f"{ascii(row['id'])[:50]} is not the id of a Chroma collection. Restore the folder from a backup."
        )
    segment = segment_id(database, row["id"], "METADATA")
    applied = last_sequence(database, segment)
    pending = _last_pending(database, row["id"], applied)
    stored = database.execute("select 1 from embeddings where segment_id = ? limit 1", (segment,)).fetchone()
    metadata = _metadata(database, row["id"])
    return StoredCollection(
        id=str(row["id"]),
        name=name,
        metadata=metadata,
        configuration=row.get("config_json_str"),
        schema=row.get("schema_str"),
        dimension=row["size"] or 0,
        empty=stored is None and not pending,
        sequence=pending or applied,
        usual_keys={} if MANIFEST_KEY in metadata else usual_keys(_sampled_metadata(database, segment)),
    )


def not_found(name: str, where: object, names: Iterable[str]) -> MissingCollectionError:
    """Return the error for a collection that does not exist. The message lists the existing collections."""
    names = sorted(names)
    listed = (
        f"Choose from {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}."
        if names
        else "There are none. Index documents first."
    )
    return MissingCollectionError(f"there is no collection {name!r} in {where}. {listed}", names)


def _metadata(database: sqlite3.Connection, collection: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for row in map(
        dict, database.execute("select key, * from collection_metadata where collection_id = ?", (collection,))
    ):
        typed = (row.get(name) for name in ("str_value", "int_value", "float_value"))
        flag = row.get("bool_value")
        values[row["key"]] = (
            bool(flag) if flag is not None else next((value for value in typed if value is not None), None)
        )
    return values


def _sampled_metadata(database: sqlite3.Connection, segment: str) -> list[dict[str, Any]]:
    """Return the metadata of the first records by id. Frameworks use random ids, so this is a random sample."""
    query = (
        "select r.id, m.key, coalesce(substr(m.string_value, 1, ?), m.int_value, m.float_value) from "
        "(select id from embeddings where segment_id = ? order by embedding_id limit ?) r left join "
        "embedding_metadata m on m.id = r.id and m.key in (select value from json_each(?))"
    )
    sample = defaultdict[int, dict[str, Any]](dict)
    usual = json.dumps(sorted(USUAL_KEYS))
    for record, key, value in database.execute(query, (_COMPARED_LETTERS, segment, SAMPLED_RECORDS, usual)):
        sample[record][key] = value
    return list(sample.values())


def segment_id(database: sqlite3.Connection, collection: str, scope: str) -> str:
    """Return the id of a collection's metadata or vector segment. If there is none, return ""."""
    query = "select id from segments where collection = ? and scope = ?"
    row = database.execute(query, (collection, scope)).fetchone()
    return str(row[0]) if row else ""


def last_sequence(database: sqlite3.Connection, segment: str) -> int:
    """Return the number of the last log entry that a segment contains. Old versions of Chroma store it as bytes."""
    row = database.execute("select seq_id from max_seq_id where segment_id = ?", (segment,)).fetchone()
    value = row[0] if row else 0
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


def _last_pending(database: sqlite3.Connection, collection: str, sequence: int) -> int:
    """Return the number of the last log entry, if it is after this one. Otherwise, return 0."""
    query = "select max(seq_id) from embeddings_queue where seq_id > ? and topic like ?"
    return int(database.execute(query, (sequence, f"%/{collection}")).fetchone()[0] or 0)


def require_own_journal(folder: Path, copy: Path | None = None) -> None:
    """Raise `CorpusCorruptError` if the journal of the database names a super-journal.

    SQLite deletes the file of this name when it rolls back, wherever the file is. Only transactions over several
    databases have super-journals, and Chroma has one database.

    Args:
        folder: The folder of the index, for the error.
        copy: The folder with the journal, if it is a copy.
    """
    journal = folder / JOURNAL_FILE
    with suppress(FileNotFoundError), ((copy or folder) / JOURNAL_FILE).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC)))
        if file.read() == _JOURNAL_MAGIC:
            raise CorpusCorruptError(
                f"{journal} names another file, which SQLite would delete, and Chroma makes no such journals. Restore "
                "the folder from a backup, or delete it and index the documents again."
            )


@contextmanager
def open_database(folder: Path, timeout: float, *, has_tables: bool = True) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection. It raises the same errors as `read_collection`.

    Args:
        folder: The folder of the index.
        timeout: Seconds to wait for a lock of another process.
        has_tables: False if Chroma may not have made all tables yet.
    """
    file = folder / DATABASE_FILE
    try:
        with file.open("rb") as stream:
            header = stream.read(20)
    except FileNotFoundError:
        state = f"is not a Chroma folder, because it has no {DATABASE_FILE}" if folder.is_dir() else "does not exist"
        message = f"{folder} {state}. Index documents there first, or name another folder."
        raise CorpusNotFoundError(message) from None
    except OSError as error:
        remedy = (
            "Allow this user to read the file."
            if isinstance(error, PermissionError)
            else "Name the folder of an index."
        )
        raise CorpusError(f"{file} cannot be read ({reason_of(error)}). {remedy}") from error
    if header[18:20] == b"\2\2":
        # Chroma does not use this mode. Opening such a database creates files next to it, even read-only.
        raise UnreadableError(
            f"{file} has a write-ahead log, which Chroma does not use. Turn it off with `sqlite3 FILE 'pragma "
            "journal_mode = delete'`."
        )
    try:
        # Never `immutable=1`: it would ignore a writer's locks and its journal.
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=timeout)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            steps = iter(range(0, _SPARE_STEPS + _STEPS_PER_BYTE * file.stat().st_size, _STEPS_AT_ONCE))
            database.set_progress_handler(lambda: next(steps, None) is None, _STEPS_AT_ONCE)
            _require_tables(database, file)
            if has_tables:
                _require_begun(database, folder)
            yield database
    except sqlite3.Error as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name in _UNREADABLE or name.startswith(("SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_CANTOPEN")):
            raise UnreadableError(f"{file} cannot be read at the moment ({error}). Try again later.") from error
        reason = "its pages have more rows than its size allows" if name == "SQLITE_INTERRUPT" else error
        raise damaged(file, reason) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema in its error, which Python cannot decode
        raise damaged(file, "its schema is not UTF-8") from error


def require_sound(folder: Path, copy: Path | None = None) -> None:
    """Raise `CorpusCorruptError` if pages of the database are damaged. Chroma would read endless rows from them.

    Args:
        folder: The folder of the index, for the error.
        copy: The folder with the database, if it is a copy.
    """
    with open_database(copy or folder, BUSY_SECONDS, has_tables=False) as database:
        result = database.execute("pragma quick_check(1)").fetchone()[0]
    if result != "ok":
        raise damaged(folder / DATABASE_FILE, result.replace("\n", " "))


def damaged(file: Path, reason: object) -> CorpusCorruptError:
    """Return the error for a database that cannot be read."""
    return CorpusCorruptError(
        f"Chroma's database {file} cannot be read ({reason}). Restore it from a backup, or delete it and index the "
        "documents again."
    )


def _require_tables(database: sqlite3.Connection, file: Path) -> None:
    """Raise `CorpusCorruptError` if the database has views, triggers or computed columns.

    Chroma makes none, and a view of a hundred bytes can have endless rows.
    """
    # SQLite also accepts a schema that writes a type in capitals or as bytes.
    computed = (
        "select 1 from sqlite_master s where type not in ('table', 'index') or type = 'table' and "
        "case name when 'embedding_fulltext_search' then sql not like 'create virtual table%' "
        "else sql not like 'create table%' or exists (select 1 from pragma_table_xinfo(s.name) where hidden != 0) end "
        "limit 1"
    )
    if database.execute(computed).fetchone():
        raise CorpusCorruptError(
            f"{file} has views, triggers or computed columns, which Chroma does not make. Delete it, and index the "
            "documents again."
        )


def _require_begun(database: sqlite3.Connection, folder: Path) -> None:
    """Raise `CorpusNotFoundError` if Chroma has not made all tables. It makes the others when it opens the folder."""
    query = "select count(*) from sqlite_master where type = 'table' and name in (select value from json_each(?))"
    if database.execute(query, (json.dumps(_TABLES),)).fetchone()[0] == len(_TABLES):
        return
    is_chromas = (
        "select not exists (select 1 from sqlite_master) or exists (select 1 from sqlite_master where name = ?)"
    )
    if database.execute(is_chromas, ("migrations",)).fetchone()[0]:
        raise CorpusNotFoundError(
            f"the indexing into {folder} was never completed. To resume it, run the same `ctx1 index` command again."
        )


def vector_files(folder: Path, segment: str) -> Path | None:
    """Return the folder of a vector index. If there is none, return None."""
    # The name comes from a file and must not lead outside the folder.
    valid = bool(segment) and segment == Path(segment).name and segment not in (".", "..")
    return folder / segment if valid and (folder / segment).is_dir() else None
