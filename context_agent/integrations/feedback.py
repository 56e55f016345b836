"""Judgements on served searches: an append-only log of JSONL beside the trajectories, for any number of writers.

    log = FeedbackLog("trajectories")
    log.add(judgement(trajectory="5f0c...", relevant=["d7"], irrelevant=["d2"], rating=4, user="ann"))

`feedback.jsonl` has a judgement a line, `served.jsonl` says which request led to which trajectories. A judgement with
an id that the log has already is not written again. `ctx1 synth from-feedback` turns the log into training tasks.

Both files are read once and from then on only as far as they grew: a judgement costs the same however long the log is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, cast

from context_agent._support.files import open_private, private_folder
from context_agent._support.question_files import Source, load_rows
from context_agent.errors import ConfigError, DataError, FeedbackLimitError, TrajectoryError
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import decode_header

JUDGEMENTS, SERVED = "feedback.jsonl", "served.jsonl"
SCHEMA = 1
RATINGS = range(1, 6)
MAX_JUDGEMENT = 65_536
"""Bytes of a judgement as a line of the log."""
MAX_JUDGEMENTS = 1_000_000
"""Judgements in a log: their places are kept in memory, some 150 bytes each."""
MAX_REQUESTS = 200_000
"""Latest requests that can be judged by their own id; earlier ones by the id of their trajectory."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_LOCK = ".feedback.lock"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What someone made of a search. The ids are of documents or of passages; `time` is UTC, ISO 8601."""

    id: str
    trajectory: str
    relevant: tuple[str, ...] = ()
    irrelevant: tuple[str, ...] = ()
    rating: int | None = None
    comment: str = ""
    user: str = ""
    time: str = ""

    def to_json(self) -> dict[str, Any]:
        """A line of the log."""
        return {"schema": SCHEMA, **asdict(self)}


def judgement(
    *,
    trajectory: str,
    relevant: Sequence[str] = (),
    irrelevant: Sequence[str] = (),
    rating: int | None = None,
    comment: str = "",
    user: str = "",
    id: str | None = None,
    time: str | None = None,
) -> Judgement:
    """A judgement made now. Its id, where none is given, is made of all the rest but the time.

    Raises `ConfigError` for one that says nothing, calls a document both relevant and not, or rates beyond 1 to 5.
    """
    both = sorted(set(relevant) & set(irrelevant))
    if both:
        raise ConfigError(f"{both[0]!r} is called both relevant and irrelevant")
    if not (relevant or irrelevant or comment or rating is not None):
        raise ConfigError("the judgement says nothing: give relevant or irrelevant ids, a rating or a comment")
    if rating is not None and rating not in RATINGS:
        raise ConfigError(f"a rating is a whole number from 1 to 5; got {rating}")
    made = Judgement("", trajectory, tuple(relevant), tuple(irrelevant), rating, comment, user)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(made, id=id or _digest(made), time=now if time is None else time)


def load_judgements(source: Source, *, problems: list[str] | None = None) -> list[Judgement]:
    """The judgements of a log, in order; `problems` as in `load_questions`."""
    return load_rows(source, _judgement, problems=problems)


class FeedbackLog:
    """The log in a folder of trajectories. Safe to use from several threads and processes at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._judgements = _LineIndex(self.folder / JUDGEMENTS, _judgement_id)
        self._requests = _LineIndex(self.folder / SERVED, _request_id, latest=MAX_REQUESTS)

    def served(self, request: str, trajectories: Sequence[str]) -> None:
        """Notes which trajectories a request led to, so that it can be judged by the request's id."""
        with self._locked():
            _append(self.folder / SERVED, _line({"request": request, "trajectories": list(trajectories)}))

    def trajectory_of(self, request: str) -> str:
        """The (first) trajectory of a request, its latest where an id came twice. Raises `TrajectoryError`."""
        row = _decoded(self._requests.line_of(request))
        if row.get("request") == request:
            return str(row["trajectories"][0])
        raise TrajectoryError(
            f"no trajectory of a request {request!r} is known here: name the trajectory, or one of the last "
            f"{MAX_REQUESTS:,} requests"
        )

    def resolve(self, name: str) -> str:
        """The trajectory of that id, or of the request of that id. Raises `TrajectoryError`."""
        try:
            self.header(name)
            return name
        except TrajectoryError:
            return self.trajectory_of(name)

    def header(self, trajectory: str) -> Header:
        """The first line of a trajectory's file. Raises `TrajectoryError` where there is no such trajectory."""
        if not _NAME.fullmatch(trajectory):
            raise TrajectoryError(f"{trajectory[:140]!r} is no id of a trajectory")
        try:
            with (self.folder / f"{trajectory}.jsonl").open("rb") as stream:
                return decode_header(json.loads(stream.readline()))
        except (OSError, ValueError, KeyError, TypeError):
            raise TrajectoryError(f"no trajectory {trajectory!r} is known here") from None

    def add(self, given: Judgement) -> bool:
        """Writes the judgement; False where the log has it already.

        Raises `TrajectoryError` for a trajectory that is not there, `FeedbackLimitError` for a judgement that is too
        large or a log that is full, and `DataError` for an id that stands for another judgement.
        """
        line = _line(given.to_json())
        if len(line) > MAX_JUDGEMENT:
            raise FeedbackLimitError(
                f"the judgement has {len(line):,} bytes: name fewer documents or shorten the comment, so that it has "
                f"at most {MAX_JUDGEMENT:,}"
            )
        self.header(given.trajectory)
        with self._locked():
            logged = self._logged(given.id)
            if logged is not None:
                if replace(logged, time="") == replace(given, time=""):
                    return False
                raise DataError(f"judgement {given.id!r} says something else in the log: give it another id")
            if len(self._judgements) >= MAX_JUDGEMENTS:
                raise FeedbackLimitError(
                    f"the log has {MAX_JUDGEMENTS:,} judgements, the most that one may have: move {JUDGEMENTS} away"
                )
            _append(self.folder / JUDGEMENTS, line, sync=True)
            return True

    def _logged(self, identifier: str) -> Judgement | None:
        """The judgement of that id in the log."""
        line = self._judgements.line_of(identifier)
        if _judgement_id(line) != identifier:
            return None
        return _judgement(_decoded(line), 0, JUDGEMENTS)

    def _locked(self) -> Any:
        from filelock import FileLock

        private_folder(self.folder)
        return FileLock(self.folder / _LOCK)


class _LineIndex:
    """Where the line of each key begins in a file that only grows. Reads what was added since it was last asked.

    Keeps two numbers for each key: the hash of the key and the place of its line. Safe to use from several threads.
    """

    def __init__(self, path: Path, key_of: Callable[[bytes], str | None], latest: int | None = None) -> None:
        """`latest` keys are kept, and the last line of each; without it all keys, and the first line of each."""
        self._path, self._key_of, self._latest = path, key_of, latest
        self._places: dict[int, int] = {}
        self._end = self._inode = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._places)

    def line_of(self, key: str) -> bytes:
        """The line of the key, or, rarely, of another key with its hash; empty where there is none."""
        try:
            with self._lock, self._path.open("rb") as stream:
                self._read_on(stream)
                place = self._places.get(hash(key))
                if place is None:
                    return b""
                stream.seek(place)
                return stream.readline()
        except FileNotFoundError:
            return b""

    def _read_on(self, stream: BinaryIO) -> None:
        status = os.fstat(stream.fileno())
        if status.st_ino != self._inode or status.st_size < self._end:
            self._places.clear()
            self._end, self._inode = 0, status.st_ino
        stream.seek(self._end)
        for line in stream:
            key = self._key_of(line)
            if key is not None:
                self._note(hash(key), self._end)
            if line.endswith(b"\n"):  # Else somebody still writes it: it is read again the next time.
                self._end += len(line)

    def _note(self, key: int, place: int) -> None:
        if self._latest is None:
            self._places.setdefault(key, place)
            return
        self._places.pop(key, None)
        self._places[key] = place
        if len(self._places) > self._latest:
            del self._places[next(iter(self._places))]


def _judgement_id(line: bytes) -> str | None:
    try:
        return _judgement(_decoded(line), 0, JUDGEMENTS).id
    except DataError:  # A line that a crash cut, or another program's: reported where the log is read.
        return None


def _request_id(line: bytes) -> str | None:
    row = _decoded(line)
    request = row.get("request")
    return request if isinstance(request, str) and row.get("trajectories") else None


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _append(path: Path, line: bytes, *, sync: bool = False) -> None:
    """Adds a line; one that a crash left without its end is ended first."""
    with open_private(path, "ab+") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
        cut = bool(size) and stream.read(1) != b"\n"
        stream.write(b"\n" * cut + line)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _judgement(row: object, number: int, place: str) -> Judgement:
    data = cast("Mapping[str, Any]", row) if isinstance(row, dict) else {}
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise DataError(f"{place}: a judgement of schema {schema}; this version reads up to {SCHEMA}")
    texts = [data.get(name, "") for name in ("id", "trajectory", "comment", "user", "time")]
    lists = [data.get(name, []) for name in ("relevant", "irrelevant")]
    rating = data.get("rating")
    sound = (
        all(isinstance(one, str) for one in texts)
        and all(isinstance(one, list) and all(isinstance(item, str) for item in one) for one in lists)
        and (rating is None or rating in RATINGS)
        and texts[1]
    )
    if not sound:
        raise DataError(f'{place}: no judgement like {{"trajectory": "…", "relevant": ["…"], "rating": 4}}')
    identifier, trajectory, comment, user, time = texts
    made = Judgement("", trajectory, tuple(lists[0]), tuple(lists[1]), rating, comment, user, time)
    return replace(made, id=identifier or _digest(replace(made, time="")))


def _digest(made: Judgement) -> str:
    content = {name: value for name, value in asdict(made).items() if name not in ("id", "time")}
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=12).hexdigest()
