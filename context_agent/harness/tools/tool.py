"""The kinds of tools, their arguments, their contexts and their outputs.

There are four kinds. A `ReadTool` adds chunks to the view, an `EditTool` removes, replaces or restores them, a
`SpawnTool` hands tasks to sub-agents, and a `BatchTool` wraps several calls.

Arguments come from a model. They are outside data, so pydantic checks them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from context_agent.budget import Budget
from context_agent.harness.profile import Profile
from context_agent.harness.rendering import Renderer
from context_agent.pruning.view import Edit, Selection, Source, SubAgentRecord, View
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where
from context_agent.text.markers import escape_markers
from context_agent.types import Hit, ToolCall

MAX_IDS = 500
"""Ids that one call may name."""
LISTED_IDS = 5
"""Ids that a message names at most."""
LISTED_ID_LENGTH = 80
"""Characters of an id that a message quotes."""


def _strings(value: object) -> object:
    """Return one string as a list of strings, and a JSON list in a string as the list. Models write both."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return [value]
        return [value]
    return value


Strings = Annotated[list[str], BeforeValidator(_strings), Field(min_length=1)]
ChunkIds = Annotated[list[str], BeforeValidator(_strings), Field(min_length=1, max_length=MAX_IDS)]


class ToolArguments(BaseModel):
    """The arguments of a call. The docstring of a subclass is the tool's description, and its fields are the schema."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SubAgents(Protocol):
    """An object that starts the sub-agents of one episode."""

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        """Return the output for each request of one turn. A request is a list of tasks. All tasks run at the same time.

        A sub-agent's failure is reported in its output.

        Args:
            requests: The tasks of each call.
            tokens_left: Maximum number of tokens that all sub-agents may spend together. None means no limit.
            shown_ids: The chunks that the episode has shown.
        """


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The objects that a reading call may use. `shown_ids` does not change while the calls of a turn run."""

    corpus: Corpus
    profile: Profile
    renderer: Renderer
    budget: Budget
    question: str
    where: Where | None
    excluded_ids: AbstractSet[str]
    """Chunks that other episodes show: no search brings them up."""
    shown_ids: set[str] = field(default_factory=set)
    """Chunks that this episode has shown."""
    surfacing_queries: dict[str, str] = field(default_factory=dict)
    """Document id to the query that first brought it up."""
    sub_agents: SubAgents | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a call, before the executor decides how much of it fits in the view.

    Attributes:
        source: The tool that the hits come from.
        hits: The chunks that were found, best first.
        limit: Maximum number of hits that may be shown.
        repeated_ids: Chunks that match but were shown before.
        new_only: True if chunks that the episode has shown are left out.
        in_order: True if the hits that fit are shown in document order.
        message: A text for the policy.
        mistake: The kind of mistake that the policy made. It is None if there was no mistake.
        seconds: The time that the call took.
        calls: The number of calls whose room the output may take. An output of sub-agents may take one call's room for
            each of them.
        room: The output's own bound in tokens, if it has one.
        delegated: The sub-agents behind the output. Room for the message about them is kept free of chunks.
    """

    source: Source
    hits: tuple[Hit, ...] = ()
    limit: int = 0
    repeated_ids: tuple[str, ...] = ()
    new_only: bool = False
    in_order: bool = False
    message: str = ""
    mistake: str | None = None
    seconds: float = 0.0
    calls: int = 1
    room: int | None = None
    delegated: tuple[SubAgentRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class EditContext:
    """The state that an edit call sees: the view after the turn's earlier edits, and the call's index in the turn."""

    view: View
    call: int
    renderer: Renderer
    budget: Budget
    protects: bool
    """True if summaries may not replace chunks that a call names to keep."""


@dataclass(frozen=True, slots=True)
class EditReply:
    """The change that an edit call makes, and the message to the policy. `mistake` names the policy's mistake."""

    edit: Edit
    message: str
    mistake: str | None = None


def edit_reply(edit: Edit, sentences: Sequence[str], unchanged: str, selection: Selection) -> EditReply:
    """Return the reply to an edit.

    The message has the `sentences`. Then it says how many ids changed nothing and why (`unchanged`), and lists the
    unknown ids.
    Unknown ids are a mistake of the policy.
    """
    parts = list(sentences)
    if selection.unchanged:
        parts.append(f"{len(selection.unchanged)} {unchanged}.")
    if selection.unknown:
        parts.append(f"Unknown ids: {listed(selection.unknown)}.")
    return EditReply(edit, " ".join(parts), "unknown_id" if selection.unknown else None)


def listed(ids: Sequence[str]) -> str:
    """Return the first ids as a list in a message, with their markers escaped."""
    return ", ".join(escape_markers(chunk_id[:LISTED_ID_LENGTH]) for chunk_id in ids[:LISTED_IDS])


ArgumentsT = TypeVar("ArgumentsT", bound=ToolArguments)


@dataclass(frozen=True, slots=True)
class ReadTool(Generic[ArgumentsT]):
    """A tool that adds chunks.

    The calls of a turn run at the same time. Past the hard cutoff they are refused. `run` takes the arguments, a
    context, and the number of reads before this one in the turn. If the published format declares fewer arguments,
    `published` has them.
    """

    name: str
    arguments: type[ArgumentsT]
    run: Callable[[ArgumentsT, ReadContext, int], ToolOutput]
    published: type[ToolArguments] | None = None


@dataclass(frozen=True, slots=True)
class EditTool(Generic[ArgumentsT]):
    """A tool that removes, replaces or restores chunks.

    It runs before all reads of the turn, and also past the hard cutoff.
    """

    name: str
    arguments: type[ArgumentsT]
    run: Callable[[ArgumentsT, EditContext], EditReply]
    published: type[ToolArguments] | None = None


@dataclass(frozen=True, slots=True)
class SpawnTool(Generic[ArgumentsT]):
    """A tool that hands tasks to sub-agents.

    All calls of a turn run as one, at the same time as the reads. `run` takes the arguments of each call, a context,
    and the maximum number of tokens that the sub-agents may spend together.
    """

    name: str
    arguments: type[ArgumentsT]
    run: Callable[[Sequence[ArgumentsT], ReadContext, int | None], Awaitable[list[ToolOutput]]]
    published: type[ToolArguments] | None = None


@dataclass(frozen=True, slots=True)
class BatchTool(Generic[ArgumentsT]):
    """A tool that wraps several calls. Its calls replace it, so it never runs. `unwrap` takes its arguments and id."""

    name: str
    arguments: type[ArgumentsT]
    unwrap: Callable[[ArgumentsT, str], list[ToolCall]]
    published: type[ToolArguments] | None = None


Tool = ReadTool[Any] | EditTool[Any] | SpawnTool[Any] | BatchTool[Any]


def schema(tool: Tool, *, extended: bool) -> dict[str, Any]:
    """Return `{"name", "description", "parameters"}` of a tool, parameters in plain JSON Schema.

    Without `extended`, they are the parameters that the published format declares.
    """
    model = tool.arguments if extended or tool.published is None else tool.published
    parameters = model.model_json_schema()
    description = parameters.pop("description", "")
    definitions = parameters.pop("$defs", {})
    return {"name": tool.name, "description": description, "parameters": _plain_schema(parameters, definitions)}


def _plain_schema(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema without `$ref`, titles and null alternatives.

    Prompt templates and some servers do not read those. pydantic's titles repeat the names (`Doc Id` for `doc_id`), and
    its references hide what a call inside `multi_tool_use` looks like.
    """
    if isinstance(schema, list):
        return [_plain_schema(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        target = definitions[reference.rpartition("/")[2]]
        return _plain_schema({key: value for key, value in target.items() if key != "description"}, definitions)
    fields = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    alternatives = fields.get("anyOf", [])
    if {"type": "null"} in alternatives:
        (alternative,) = (item for item in alternatives if item != {"type": "null"})
        fields = {**alternative, **{key: value for key, value in fields.items() if key not in ("anyOf", "default")}}
    return {key: _plain_schema(value, definitions) for key, value in fields.items()}
