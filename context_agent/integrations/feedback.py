"""Judgements on served searches: an append-only log of JSONL beside the trajectories, for any number of writers.

    log = FeedbackLog("trajectories")
    log.add(judgement(trajectory="5f0c...", relevant=["d7"], irrelevant=["d2"], rating=4, user="ann"))

`feedback.jsonl` has a judgement a line, `served.jsonl` says which request led to which trajectories. A judgement with
an id that the log has already is not written again. `ctx1 synth from-feedback` turns the log into training tasks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from context_agent.errors import ConfigError, DataError, TrajectoryError
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import decode_header
from context_agent.questions import Source, load_rows

JUDGEMENTS, SERVED = "feedback.jsonl", "served.jsonl"
SCHEMA = 1
RATINGS = range(1, 6)
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

    def served(self, request: str, trajectories: Sequence[str]) -> None:
        """Notes which trajectories a request led to, so that it can be judged by the request's id."""
        with self._locked():
            _append(self.folder / SERVED, {"request": request, "trajectories": list(trajectories)})

    def trajectory_of(self, request: str) -> str:
        """The (first) trajectory of a request, its latest where an id came twice. Raises `TrajectoryError`."""
        wanted = json.dumps(request)[1:-1].encode()
        for line in reversed(_lines(self.folder / SERVED)):
            if wanted in line:
                row = _decoded(line)
                if row.get("request") == request and row.get("trajectories"):
                    return str(row["trajectories"][0])
        raise TrajectoryError(f"no trajectory of a request {request!r} is known here")

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

        Raises `TrajectoryError` for a trajectory that is not there, and `DataError` for an id that stands for another
        judgement.
        """
        self.header(given.trajectory)
        with self._locked():
            for known in self._known():
                if known.id == given.id:
                    if replace(known, time="") == replace(given, time=""):
                        return False
                    raise DataError(f"judgement {given.id!r} says something else in the log: give it another id")
            _append(self.folder / JUDGEMENTS, given.to_json(), sync=True)
            return True

    def _known(self) -> Iterator[Judgement]:
        for number, line in enumerate(_lines(self.folder / JUDGEMENTS), start=1):
            try:
                yield _judgement(_decoded(line), number, JUDGEMENTS)
            except DataError:  # A line that a crash cut, or of someone else's: told where the log is read.
                continue

    def _locked(self) -> Any:
        from filelock import FileLock

        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / _LOCK)


def _append(path: Path, row: Mapping[str, Any], *, sync: bool = False) -> None:
    """Adds a line; one that a crash left without its end is ended first."""
    with path.open("ab+") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
        cut = bool(size) and stream.read(1) != b"\n"
        stream.write(b"\n" * cut + json.dumps(row, separators=(",", ":")).encode() + b"\n")
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


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
