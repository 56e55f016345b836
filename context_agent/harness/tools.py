"""The tools a policy may call: their schemas, and the check of what it wrote.

What comes from a model is outside data, so pydantic checks it. A mistake is no exception to anybody but this module's
caller in the episode, which turns it into a result that says what was wrong.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.types import ToolCall

LONGEST_ARGUMENTS = 100_000
"""Characters of raw arguments that are still parsed; longer ones are refused by length."""
MAX_IDS = 500
MAX_SHOWN = 10
"""Chunks one search may be asked to show (the published baseline's value)."""


class ToolCallError(Exception):
    """A call that cannot run; the text is what the policy is told."""


def _ids(value: object) -> object:
    """Accepts one id, or a JSON list in a string, where a list of ids is meant: models write both."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return [value]
        return [value]
    return value


ChunkIds = Annotated[list[str], BeforeValidator(_ids), Field(min_length=1, max_length=MAX_IDS)]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedSearchArguments(_Arguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    query: str = Field(min_length=1, description="what to look for, in a few words or a question")


class SearchArguments(PublishedSearchArguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    limit: int | None = Field(default=None, ge=1, le=MAX_SHOWN, description="how many chunks to show at most")


class GrepArguments(_Arguments):
    """Find chunks whose text matches a regular expression (RE2 syntax)."""

    pattern: str = Field(min_length=1, description="a regular expression; (?i) ignores case")


class ReadArguments(_Arguments):
    """Read a document: all its chunks, as far as they fit."""

    doc_id: str = Field(min_length=1, description="the id of a document, or of one of its chunks")


class PublishedPruneArguments(_Arguments):
    """Remove chunks from the context to free space."""

    chunk_ids: ChunkIds = Field(description="ids of chunks in view")


class PruneArguments(_Arguments):
    """Remove chunks from the context to free space: those named, or all but those named."""

    chunk_ids: ChunkIds | None = Field(default=None, description="ids of chunks to remove")
    all_but: ChunkIds | None = Field(default=None, description="instead: ids of the chunks to keep; all others go")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.chunk_ids is None) == (self.all_but is None):
            raise ValueError("give either chunk_ids or all_but")
        return self


class RestoreArguments(_Arguments):
    """Bring pruned chunks back into the context."""

    chunk_ids: ChunkIds = Field(description="ids of pruned chunks")


class SummarizeArguments(_Arguments):
    """Replace chunks by a summary that you write: those named, or all but those named. Their documents may still be
    ranked, restore_chunks brings a chunk back, and prune_chunks takes the summary away by its own id."""

    summary: str = Field(
        min_length=1, description="what they say that matters for the question; cite a chunk as [[its id]]"
    )
    chunk_ids: ChunkIds | None = Field(default=None, description="ids of chunks, or of summaries, to replace")
    all_but: ChunkIds | None = Field(default=None, description="instead: ids to keep word for word; all others go")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.chunk_ids is None) == (self.all_but is None):
            raise ValueError("give either chunk_ids or all_but")
        if not self.summary.strip():
            raise ValueError("the summary is empty")
        return self


class SpawnArguments(_Arguments):
    """Start a searcher for each task. They search at the same time, each in a context of its own, and what they find
    comes back merged, best first. A task must be understandable by itself."""

    tasks: Annotated[list[str], BeforeValidator(_ids), Field(min_length=1)] = Field(
        description="sub-questions that can be searched without each other"
    )


class InnerCall(BaseModel):
    """One call inside `multi_tool_use`."""

    model_config = ConfigDict(frozen=True)
    tool_name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class MultiArguments(_Arguments):
    """Run several tool calls at the same time."""

    tool_calls: list[InnerCall] = Field(min_length=1)


ToolArguments = (
    SearchArguments
    | GrepArguments
    | ReadArguments
    | PruneArguments
    | SummarizeArguments
    | RestoreArguments
    | SpawnArguments
    | MultiArguments
)

EDITS = ("prune_chunks", "restore_chunks", SUMMARIZE)
"""Tools that edit the view and are accepted past the hard cutoff."""
SPAWN = "spawn_searchers"
"""Starts sub-agents; in the profile of an agent that has a swarm."""


_MODELS: dict[str, type[_Arguments]] = {
    "search_corpus": SearchArguments,
    "grep_corpus": GrepArguments,
    "read_document": ReadArguments,
    "prune_chunks": PruneArguments,
    "restore_chunks": RestoreArguments,
    SUMMARIZE: SummarizeArguments,
    SPAWN: SpawnArguments,
    "multi_tool_use": MultiArguments,
}


_PUBLISHED: dict[str, type[_Arguments]] = {
    "search_corpus": PublishedSearchArguments,
    "prune_chunks": PublishedPruneArguments,
}


def schemas(profile: Profile) -> list[dict[str, Any]]:
    """The profile's tools as `{"name", "description", "parameters"}`, parameters in JSON Schema.

    `limit` of a search and `all_but` of a prune are understood in every profile, and declared where it says so.
    """
    found = []
    for name in profile.tools:
        model = _MODELS[name] if profile.extended_arguments else _PUBLISHED.get(name, _MODELS[name])
        parameters = model.model_json_schema()
        description = parameters.pop("description", "")
        parameters.pop("title", None)
        found.append({"name": name, "description": description, "parameters": parameters})
    return found


def flatten(calls: Sequence[ToolCall], profile: Profile) -> list[ToolCall]:
    """The calls with every well-formed `multi_tool_use` replaced by what it wraps."""
    flat: list[ToolCall] = []
    for call in calls:
        if call.name != "multi_tool_use" or call.name not in profile.tools:
            flat.append(call)
            continue
        try:
            inner = check(call, profile)
        except ToolCallError:
            flat.append(call)
            continue
        assert isinstance(inner, MultiArguments)
        flat += [
            ToolCall(item.tool_name.removeprefix("functions."), item.parameters, id=f"{call.id}.{index}")
            for index, item in enumerate(inner.tool_calls)
        ]
    return flat


def check(call: ToolCall, profile: Profile) -> ToolArguments:
    """The call's arguments, checked. Raises `ToolCallError` with a text that says what to write instead."""
    if call.name not in profile.tools:
        raise ToolCallError(f"Error: there is no tool {call.name[:80]!r}. {_nearest(call.name, profile.tools)}")
    try:
        return _MODELS[call.name].model_validate(_mapping(call.arguments))  # type: ignore[return-value]
    except ValidationError as error:
        raise ToolCallError(f"Error: {call.name}: {_explain(error)}") from None


def _mapping(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    if not isinstance(arguments, str):
        return arguments
    if len(arguments) > LONGEST_ARGUMENTS:
        raise ToolCallError(
            f"Error: arguments of {len(arguments):,} characters; at most {LONGEST_ARGUMENTS:,} are read."
        )
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolCallError(f"Error: the arguments are not valid JSON ({_reason(error)}).") from None
    if not isinstance(value, dict):
        raise ToolCallError(f"Error: the arguments must be a JSON object, not {type(value).__name__}.")
    return value


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _explain(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False, include_input=False)[:3]:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        problems.append(f"{where}: {item['msg']}")
    return "; ".join(problems)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"The tools are {', '.join(known)}."
