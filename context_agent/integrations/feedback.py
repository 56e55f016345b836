"""Judgments on served searches: an append-only JSONL log next to the trajectories, for any number of writers.

    log = FeedbackLog("trajectories")
    log.add(judgment(trajectory="5f0c...", relevant=["d7"], irrelevant=["d2"], rating=4, user="ann"))

`feedback.jsonl` has one judgment per line, and `served.jsonl` lists the trajectories of each request. A judgment whose
id is already in the log is not written again. `ctx1 synth from-feedback` turns the log into training tasks.

Both files are read once. After that only the bytes that were added are read, so the cost of a judgment does not depend
on the length of the log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from context_agent._support.arguments import items_of, require_type, whole_number
from context_agent._support.journal import encode_line
from context_agent._support.locks import file_lock
from context_agent._support.private_files import open_private
from context_agent._support.question_files import Source, load_rows
from context_agent._support.small_files import MAX_BYTES, parse_json, require_files
from context_agent.errors import ConfigError, ContextAgentError, DataError, FeedbackLimitError, TrajectoryError
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import MALFORMED, decode_header
from context_agent.integrations.line_index import LineIndex

JUDGMENTS_FILE, SERVED_FILE = "feedback.jsonl", "served.jsonl"
LOG_SCHEMA = 1
VALID_RATINGS = range(1, 6)
MAX_JUDGMENT_BYTES = 65_536
"""The size of a judgment as a line of the log."""
MAX_JUDGMENTS = 1_000_000
"""Judgments in a log. Each takes about 150 bytes of memory."""
MAX_REQUESTS = 200_000
"""The latest requests, which can be judged by request id. Earlier ones can be judged by trajectory id."""
_TRAJECTORY_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_LOCK_FILE = ".feedback.lock"


@dataclass(frozen=True, slots=True)
class Judgment:
    """A user's judgment on a search.

    Attributes:
        id: The id of the judgment.
        trajectory: The id of the search's trajectory.
        relevant: Ids of documents or passages that answer the question.
        irrelevant: Ids of documents or passages that do not answer it.
        rating: A rating from 1 to 5, if there is one.
        comment: The user's comment.
        user: The name of the user.
        time: The time of the judgment, in UTC and ISO 8601.
    """

    id: str
    trajectory: str
    relevant: tuple[str, ...] = ()
    irrelevant: tuple[str, ...] = ()
    rating: int | None = None
    comment: str = ""
    user: str = ""
    time: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the judgment as a row of the log."""
        return {"schema": LOG_SCHEMA, **asdict(self)}


def judgment(
    *,
    trajectory: str,
    relevant: Sequence[str] = (),
    irrelevant: Sequence[str] = (),
    rating: int | None = None,
    comment: str = "",
    user: str = "",
    id: str | None = None,
    time: str | None = None,
) -> Judgment:
    """Return a new judgment.

    Args:
        trajectory: The id of the search's trajectory.
        relevant: Ids of documents or passages that answer the question.
        irrelevant: Ids of documents or passages that do not answer it.
        rating: A rating from 1 to 5.
        comment: The user's comment.
        user: The name of the user.
        id: The id of the judgment. Defaults to a digest of all fields except the time.
        time: The time of the judgment. Defaults to now.

    Raises:
        ConfigError: If the judgment is empty, if `relevant` or `irrelevant` is not a list of ids, if an id is in both,
            if the rating is not a whole number from 1 to 5, or if another field is not text.
    """
    for name, text in (("trajectory", trajectory), ("comment", comment), ("user", user)):
        require_type(text, name, str, "text")
    for name, stated in (("id", id), ("time", time)):
        require_type(stated, name, (str, type(None)), "text")
    relevant, irrelevant = _ids(relevant, "relevant"), _ids(irrelevant, "irrelevant")
    both = sorted(set(relevant) & set(irrelevant))
    if both:
        raise ConfigError(f"{both[0]!r} is both in relevant and in irrelevant. Remove it from one of them.")
    if not (relevant or irrelevant or comment or rating is not None):
        raise ConfigError("the judgment is empty. Pass relevant or irrelevant ids, a rating or a comment.")
    if rating is not None and (rating := whole_number(rating, "rating")) not in VALID_RATINGS:
        raise ConfigError(f"a rating must be a whole number from 1 to 5; got {rating}")
    content = Judgment("", trajectory, relevant, irrelevant, rating, comment, user)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(content, id=id or _digest(content), time=now if time is None else time)


def _ids(ids: Iterable[str], name: str) -> tuple[str, ...]:
    """Return the ids, which may be any iterable of texts. If they are something else, raise `ConfigError`."""
    stated = tuple(items_of(ids, name, "a list of ids"))
    for identifier in stated:
        require_type(identifier, name, str, "a list of ids, which are texts")
    return stated


def load_judgments(source: Source, *, problems: list[str] | None = None) -> list[Judgment]:
    """Return the judgments of a log in order.

    Args:
        source: The log, as in `load_questions`.
        problems: As in `load_questions`.

    Raises:
        DataError: If the log cannot be read. Without `problems`, also if a row is invalid or repeats an id.
    """
    return load_rows(source, _judgment, problems=problems)


class FeedbackLog:
    """The log of judgments in a folder of trajectories. Several threads and processes may use it at once."""

    def __init__(self, folder: str | Path) -> None:
        """Read the log in a folder.

        Args:
            folder: The folder of the trajectories.

        Raises:
            DataError: If a file of the log is a link or a pipe.
        """
        self.folder = Path(folder)
        require_files((self.folder / name for name in (JUDGMENTS_FILE, SERVED_FILE)), links=False)
        self._judgments = LineIndex(self.folder / JUDGMENTS_FILE, _judgment_id)
        self._requests = LineIndex(self.folder / SERVED_FILE, _request_id, latest=MAX_REQUESTS)

    def record_request(self, request: str, trajectories: Sequence[str]) -> None:
        """Record the trajectories of a request, so the request can be judged by its own id."""
        with self._locked():
            _append(self.folder / SERVED_FILE, encode_line({"request": request, "trajectories": list(trajectories)}))

    def trajectory_of(self, request: str) -> str:
        """Return the id of the first trajectory of a request. If two requests had the same id, the later one counts.

        Raises:
            TrajectoryError: If the log does not know the request.
        """
        line = self._requests.line_of(request)
        if _request_id(line) == request:
            return str(_decoded(line)["trajectories"][0])
        raise TrajectoryError(
            f"no trajectory is known for request {request[:140]!r}. Pass the id of a trajectory, which is the name of "
            f"its file without .jsonl, or the id of one of the last {MAX_REQUESTS:,} requests."
        )

    def resolve(self, name: str) -> str:
        """Return the id of a trajectory, given its own id or the id of its request.

        Raises:
            TrajectoryError: If the log knows neither id.
        """
        try:
            self.header(name)
            return name
        except TrajectoryError:
            return self.trajectory_of(name)

    def header(self, trajectory: str) -> Header:
        """Return the header of a trajectory's file.

        Raises:
            TrajectoryError: If there is no such trajectory.
        """
        if not _TRAJECTORY_ID.fullmatch(trajectory):
            raise TrajectoryError(
                f"{trajectory[:140]!r} cannot be the id of a trajectory. Pass the id from a search's answer."
            )
        path = self.folder / f"{trajectory}.jsonl"
        try:
            require_files([path])
            with path.open("rb") as stream:
                return decode_header(parse_json(stream.readline(MAX_BYTES)))
        except (OSError, *MALFORMED, ContextAgentError):
            raise TrajectoryError(
                f"there is no trajectory {trajectory!r} in the log folder. Pass the id from a search's answer."
            ) from None

    def add(self, judgment: Judgment) -> bool:
        """Write a judgment to the log.

        Returns:
            False if the log already has the judgment.

        Raises:
            TrajectoryError: If the trajectory is unknown.
            FeedbackLimitError: If the judgment is too large, or if the log is full.
            DataError: If another judgment in the log has the id.
        """
        line = encode_line(judgment.to_json())
        if len(line) > MAX_JUDGMENT_BYTES:
            raise FeedbackLimitError(
                f"the judgment must have at most {MAX_JUDGMENT_BYTES:,} bytes; got {len(line):,}. Name fewer "
                "documents, or shorten the comment."
            )
        self.header(judgment.trajectory)
        with self._locked():
            existing = self._logged(judgment.id)
            if existing is not None:
                if replace(existing, time="") == replace(judgment, time=""):
                    return False
                raise DataError(
                    f"the log already has a judgment with the id {judgment.id!r} and other content. Use another id."
                )
            if len(self._judgments) >= MAX_JUDGMENTS:
                raise FeedbackLimitError(
                    f"the log is full ({MAX_JUDGMENTS:,} judgments). Move {JUDGMENTS_FILE} out of {self.folder}."
                )
            _append(self.folder / JUDGMENTS_FILE, line, sync=True)
            return True

    def _logged(self, identifier: str) -> Judgment | None:
        """Return the judgment with this id from the log. If there is none, return None."""
        line = self._judgments.line_of(identifier)
        return _judgment(_decoded(line), 0, JUDGMENTS_FILE) if _judgment_id(line) == identifier else None

    def _locked(self) -> AbstractContextManager[None]:
        return file_lock(self.folder / _LOCK_FILE, timeout=-1)


def _judgment_id(line: bytes) -> str | None:
    try:
        return _judgment(_decoded(line), 0, JUDGMENTS_FILE).id
    except DataError:  # A line that a crash cut, or of another program: `load_judgments` reports it.
        return None


def _request_id(line: bytes) -> str | None:
    row = _decoded(line)
    request, trajectories = row.get("request"), row.get("trajectories")
    is_record = isinstance(request, str) and isinstance(trajectories, list) and trajectories
    return request if is_record else None


def _append(path: Path, line: bytes, *, sync: bool = False) -> None:
    """Append a line. If a crash left the last line without a line end, end that line first."""
    with open_private(path, "ab+") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
        is_torn = bool(size) and stream.read(1) != b"\n"
        stream.write(b"\n" * is_torn + line)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _judgment(row: object, number: int, location: str) -> Judgment:
    """Return the judgment in a decoded row. `location` is the row's location, for error messages."""
    data = row if isinstance(row, dict) else {}
    schema = data.get("schema")
    if isinstance(schema, int) and schema > LOG_SCHEMA:
        raise DataError(
            f"{location}: the judgment has schema {schema}, but this version reads up to {LOG_SCHEMA}. Update "
            "context-agent."
        )
    try:
        return _stated(data)
    except ConfigError as error:
        raise DataError(
            f"{location}: the line is not a judgment ({str(error).rstrip('.')}). Write a line like "
            '{"trajectory": "…", "relevant": ["…"], "rating": 4}.'
        ) from None


def _stated(data: Mapping[str, Any]) -> Judgment:
    """Return the judgment in the fields of a row, or raise `ConfigError`."""
    texts = {name: data.get(name, "") for name in ("id", "trajectory", "comment", "user", "time")}
    ids = {name: data.get(name, []) for name in ("relevant", "irrelevant")}
    if not texts["trajectory"]:
        raise ConfigError("it names no trajectory")
    for name, stated in ids.items():
        require_type(stated, name, list, "a list of ids")
    return judgment(**texts, **ids, rating=data.get("rating"))


def _digest(judgment: Judgment) -> str:
    content = {name: value for name, value in asdict(judgment).items() if name not in ("id", "time")}
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=12).hexdigest()
