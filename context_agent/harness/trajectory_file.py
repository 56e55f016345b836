"""Trajectories as JSONL files: one file for each episode, the header on the first line, then one event on each line.

The field names here are the file format, and `TRAJECTORY_SCHEMA` is its version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import naming_disk_errors, replace_file
from context_agent._support.private_files import open_private, private_folder
from context_agent._support.small_files import parse_json, read_bytes
from context_agent.budget import Budget
from context_agent.errors import TrajectoryError, reason_of
from context_agent.harness.profile import Profile
from context_agent.harness.trajectory import TRAJECTORY_SCHEMA, Header, Trajectory
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    Edit,
    EditApplied,
    EditCost,
    EpisodeEnded,
    Event,
    PromptShown,
    Role,
    Source,
    SubAgentRecord,
    Summary,
    Text,
    ToolResult,
    TurnClosed,
    View,
)
from context_agent.types import Action, Chunk, Hit, RankedChunk, RankedDocument, RankedId, ToolCall

TRAJECTORY_SUFFIX = ".jsonl"
MAX_FILE_BYTES = 64_000_000
"""The largest trajectory file that is read."""
MAX_RECORD_SIZE = 20_000
"""Maximum number of events of an episode, with the segments that they add and the keys that they name.

Replay takes quadratic time.
"""
MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Exceptions of reading a line that is not part of a trajectory."""
_BLOCK_FIELDS = ("key", "header", "body", "tokens", "turn", "call")


class TrajectoryWriter:
    """A writer of trajectory files.

    It appends one line per event and flushes it, so a killed process loses no completed turn.

    The file contains full questions and passages, so only its owner may read it.
    """

    def __init__(self, path: Path, header: Header) -> None:
        private_folder(path.parent)
        self.path = path
        self._file = open_private(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n")
        try:
            self._line(encode_header(header))
        except OSError:
            self.discard()
            raise

    def __call__(self, event: Event, view: View | None = None) -> None:
        """Write one event.

        After `EpisodeEnded`, the file is closed. The view is not used. It is an argument because the episode passes it
        to every listener.
        """
        self._line(encode(event))
        if isinstance(event, EpisodeEnded):
            self._file.close()

    def close(self) -> None:
        """Close the file before the episode has ended. An error of the disk is not raised."""
        with suppress(OSError):
            self._file.close()

    def discard(self) -> None:
        """Close the file and delete it, as far as the disk allows."""
        self.close()
        with suppress(OSError):
            self.path.unlink()

    def _line(self, data: dict[str, Any]) -> None:
        with naming_disk_errors(self.path):
            self._file.write(_as_line(data) + "\n")
            self._file.flush()


def write(trajectory: Trajectory, path: Path) -> None:
    """Write a whole trajectory, all or nothing. Only its owner may read the file."""
    replace_file(path, "".join(f"{line}\n" for line in to_lines(trajectory)))


def read(path: str | Path) -> Trajectory:
    """Return the trajectory in a file.

    If the file is truncated, the trajectory has the complete events, and `end` is None.

    Raises:
        TrajectoryError: If the file is missing or too large, has no header, or has another schema. Also if a line
            before the last one is not an event, or if a replay would take too long.
    """
    try:
        text = read_bytes(path, MAX_FILE_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise TrajectoryError(
            f"cannot read the trajectory {path} ({reason_of(error)}). Pass a trajectory "
            "file, such as one of `ctx1 search --save FOLDER`."
        ) from error
    # Other programs write the line separators of Unicode into a line of JSON.
    return from_lines(path, text.removesuffix("\n").split("\n") if text else [])


def to_lines(trajectory: Trajectory) -> list[str]:
    """Return the lines of the file of a trajectory."""
    return [_as_line(data) for data in (encode_header(trajectory.header), *map(encode, trajectory.events))]


def _as_line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"), default=str)


def from_lines(path: str | Path, rows: Sequence[str]) -> Trajectory:
    """Return the trajectory of a file's lines.

    Errors name the file as `path`. If the lines are not valid, raise `TrajectoryError`.
    """
    try:
        header = decode_header(parse_json(rows[0]))
    except (IndexError, *MALFORMED) as error:
        raise TrajectoryError(
            f"{path}: the first line is not a trajectory header ({_reason(error)}). Pass a trajectory file, such as "
            "one of `ctx1 search --save FOLDER`."
        ) from None
    events: list[Event] = []
    size = 0
    for number, row in enumerate(rows[1:], start=2):
        try:
            event = decode(parse_json(row))
            size += _size(event)
        except MALFORMED as error:
            if number == len(rows):
                break
            raise TrajectoryError(
                f"{path}, line {number}: the line is not a trajectory event ({_reason(error)}). Restore the file, or "
                "record the episode again."
            ) from None
        if size > MAX_RECORD_SIZE:
            raise TrajectoryError(
                f"{path}, line {number}: the events up to this line name more than {MAX_RECORD_SIZE:,} segments, "
                "which is the limit of a replay. Record the episode again."
            )
        events.append(event)
    return Trajectory(header, tuple(events))


def _reason(error: Exception) -> str:
    """Return why a line cannot be read. Python's own text names only the missing key or index."""
    match error:
        case KeyError(args=(str(name), *_)):
            return f"it has no field {name!r}"
        case IndexError():
            return "the file is empty"
    return str(error)


def _size(event: Event) -> int:
    """Return the work that an event adds to a replay."""
    match event:
        case PromptShown(segments=segments) | ToolResult(segments=segments):
            return 1 + len(segments)
        case EditApplied(edit=edit):
            keys = (edit.pruned, edit.restored, edit.replaced, edit.protected, *(item.of for item in edit.summaries))
            return 1 + len(edit.summaries) + sum(map(len, keys))
    return 1


def encode_header(header: Header) -> dict[str, Any]:
    """Return the first line of a file as data."""
    entries = {**asdict(header), "profile": header.profile.to_json()}
    return {"kind": "header", "schema": TRAJECTORY_SCHEMA, **entries}


def decode_header(data: dict[str, Any]) -> Header:
    """Return the header of a first line's data.

    If the schema is another one, raise `TrajectoryError`. If the data are not a header, raise `KeyError` or
    `ValueError`.
    """
    if data["kind"] != "header":
        raise ValueError(f"kind must be 'header'; got {data['kind']!r}")
    if data["schema"] != TRAJECTORY_SCHEMA:
        older = data["schema"] < TRAJECTORY_SCHEMA
        remedy = "Search again with `ctx1 search --save FOLDER`" if older else "Update context-agent"
        raise TrajectoryError(
            f"the trajectory has schema {data['schema']}, but this version reads schema {TRAJECTORY_SCHEMA}. {remedy}."
        )
    field_names = {entry.name for entry in fields(Header)}
    values = {key: value for key, value in data.items() if key in field_names}
    return Header(**{**values, "profile": Profile.from_json(values["profile"]), "budget": Budget(**values["budget"])})


def encode(event: Event) -> dict[str, Any]:
    """Return an event as a line's data."""
    match event:
        case PromptShown():
            return {"kind": "prompt", "segments": [_text(segment) for segment in event.segments]}
        case ActionTaken():
            return {
                "kind": "action",
                "turn": event.turn,
                "action": _action(event.action),
                "text": event.text,
                "tokens": event.tokens,
                "fits": event.fits,
                "seconds": event.seconds,
            }
        case EditApplied():
            return {"kind": "edit", "turn": event.turn, **asdict(event.edit), **asdict(event.cost)}
        case ToolResult():
            return {
                "kind": "result",
                "turn": event.turn,
                "call": event.call,
                "name": event.name,
                "arguments": event.arguments,
                "segments": [_text(item) if isinstance(item, Text) else _block(item) for item in event.segments],
                "mistake": event.mistake,
                "seconds": event.seconds,
                "delegated": [asdict(record) for record in event.delegated],
            }
        case TurnClosed():
            return {"kind": "usage", "turn": event.turn, "segment": _text(event.segment), "total": event.total}
        case EpisodeEnded():
            return {"kind": "end", **asdict(event)}


def decode(data: dict[str, Any]) -> Event:
    """Return the event of a line's data.

    If the data are not an event, raise `KeyError`, `TypeError` or `ValueError`.
    """
    match data["kind"]:
        case "prompt":
            return PromptShown(tuple(_to_text(item) for item in data["segments"]))
        case "action":
            action = _to_action(data["action"])
            return ActionTaken(data["turn"], action, data["text"], data["tokens"], data["fits"], data["seconds"])
        case "edit":
            return EditApplied(data["turn"], _to_edit(data), EditCost(data["freed"], data["recomputed"]))
        case "result":
            segments = tuple(_to_text(item) if "role" in item else _to_block(item) for item in data["segments"])
            head = (data["turn"], data["call"], data["name"], data["arguments"])
            delegated = tuple(SubAgentRecord(**record) for record in data["delegated"])
            return ToolResult(*head, segments, data["mistake"], data["seconds"], delegated)
        case "usage":
            return TurnClosed(data["turn"], _to_text(data["segment"]), data["total"])
        case "end":
            rest = {key: value for key, value in data.items() if key not in ("kind", "documents")}
            return EpisodeEnded(**rest, documents=tuple(_to_ranked(item) for item in data["documents"]))
    raise ValueError(f"unknown kind {data['kind']!r}")


def _to_edit(data: dict[str, Any]) -> Edit:
    keys = {name: tuple(data[name]) for name in ("pruned", "restored", "replaced", "protected")}
    return Edit(**keys, summaries=tuple(_to_summary(item) for item in data["summaries"]))


def _to_summary(data: dict[str, Any]) -> Summary:
    return Summary(**{**data, "of": tuple(data["of"])})


def _text(segment: Text) -> dict[str, Any]:
    return {
        "role": segment.role.value,
        "text": segment.text,
        "tokens": segment.tokens,
        "turn": segment.turn,
        "call": segment.call,
    }


def _to_text(data: dict[str, Any]) -> Text:
    return Text(Role(data["role"]), data["text"], data["tokens"], data["turn"], data["call"])


def _block(block: Block) -> dict[str, Any]:
    chunk = asdict(block.hit.chunk)
    if block.body == block.hit.chunk.text:
        del chunk["text"]
    hit = {name: getattr(block.hit, name) for name in ("score", "rank", "dense", "sparse")}
    block_fields = {name: getattr(block, name) for name in _BLOCK_FIELDS}
    return {**block_fields, "complete": block.complete, "source": block.source.value, "hit": hit, "chunk": chunk}


def _to_block(data: dict[str, Any]) -> Block:
    chunk = Chunk(**{"text": data["body"], **data["chunk"]})
    block_fields = {name: data[name] for name in _BLOCK_FIELDS}
    return Block(
        **block_fields, complete=data["complete"], source=Source(data["source"]), hit=Hit(chunk, **data["hit"])
    )


def _action(action: Action) -> dict[str, Any]:
    return {
        "calls": [asdict(call) for call in action.calls],
        "ranking": None if action.ranking is None else [asdict(item) for item in action.ranking],
        "text": action.text,
        "reasoning": action.reasoning,
        "tokens": action.tokens,
        "extra": dict(action.extra),
    }


def _to_action(data: dict[str, Any]) -> Action:
    ranking = data["ranking"]
    return Action(
        calls=tuple(ToolCall(**call) for call in data["calls"]),
        ranking=None if ranking is None else tuple(RankedId(**item) for item in ranking),
        text=data["text"],
        reasoning=data["reasoning"],
        tokens=data["tokens"],
        extra=data["extra"],
    )


def _to_ranked(data: dict[str, Any]) -> RankedDocument:
    return RankedDocument(**{**data, "chunks": tuple(RankedChunk(**chunk) for chunk in data["chunks"])})
