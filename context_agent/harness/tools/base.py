"""What a tool is: its name, its arguments, its kind, and the function that runs it.

A tool is one file beside this one. `tools/__init__.py` registers it, and nothing else names it: the executor treats
tools by their kind alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from context_agent._support.markers import escape_markers
from context_agent.harness.profile import Profile
from context_agent.harness.rendering import Renderer
from context_agent.harness.trajectory import SubAgentRecord
from context_agent.pruning.budget import Budget
from context_agent.pruning.edits import Edit, Selection
from context_agent.pruning.view import Source, View
from context_agent.retrieval.corpus import Corpus, Where
from context_agent.types import Hit

MAX_IDS = 500
"""Ids that one call may name."""
LISTED_IDS = 5
"""Ids that a message names at most."""
LISTED_ID_LENGTH = 80
"""Characters of an id that a message quotes."""


def _strings(value: object) -> object:
    """Accepts one string, or a JSON list in a string, where a list of strings is meant: models write both."""
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
    """The arguments of a call. The docstring of a subclass is the tool's description, its fields are the schema."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolKind(StrEnum):
    """What a tool does to the view."""

    READ = "read"
    """Adds chunks. The calls of a turn run at the same time; refused past the hard cutoff."""
    EDIT = "edit"
    """Removes, replaces or restores chunks. Runs before all reads of the turn, past the hard cutoff too."""
    DELEGATE = "delegate"
    """Hands tasks to sub-agents: all calls of a turn run as one, beside the reads."""
    BATCH = "batch"
    """Wraps several calls; it is replaced by them and never runs."""


class SubAgents(Protocol):
    """Starts the sub-agents of one episode."""

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        """The output for each request of one turn, a list of tasks; all tasks run at the same time.

        `tokens_left` bounds the tokens of all sub-agents together, `shown_ids` are the chunks that the episode has
        shown. A sub-agent's failure is reported in the output.
        """


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What a call that reads may use. `shown_ids` does not change while the calls of a turn run."""

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
    """What a call returned, before it is decided how much of it fits the view.

    `limit` is how many hits may be shown, best first. `repeated_ids` are chunks that match but were shown before.
    `calls` is how many calls' room the output may fill, `room` its own bound in tokens where it has one. `delegated`
    are the sub-agents behind it; room for the `message` about them is kept free of chunks.
    """

    source: Source
    hits: tuple[Hit, ...] = ()
    limit: int = 0
    repeated_ids: tuple[str, ...] = ()
    new_only: bool = False
    """Whether chunks that the episode has shown are left out."""
    in_order: bool = False
    """Whether the hits that fit are shown in document order."""
    message: str = ""
    mistake: str | None = None
    seconds: float = 0.0
    calls: int = 1
    room: int | None = None
    delegated: tuple[SubAgentRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class EditContext:
    """What an edit call may use: the view as the turn's earlier edits leave it, and the call's index in the turn."""

    view: View
    call: int
    renderer: Renderer
    budget: Budget
    protects: bool
    """Whether chunks that a call names to keep are protected from summaries."""


@dataclass(frozen=True, slots=True)
class EditReply:
    """What an edit call changes and what the policy is told; `mistake` names what the policy did wrong."""

    edit: Edit
    message: str
    mistake: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the harness.

    `run` takes the checked arguments and a context. By kind it is `(arguments, ReadContext, earlier) -> ToolOutput`,
    where `earlier` counts the reads before this one in the turn, `(arguments, EditContext) -> EditReply`,
    `async (list of arguments, ReadContext, tokens left) -> list of ToolOutput` for sub-agents, or
    `(arguments, call id) -> list of ToolCall` for a batch.
    """

    name: str
    kind: ToolKind
    arguments: type[ToolArguments]
    run: Callable[..., Any]
    published: type[ToolArguments] | None = None
    """The arguments as the published format declares them, where they are fewer."""

    def schema(self, *, extended: bool = True) -> dict[str, Any]:
        """`{"name", "description", "parameters"}`, parameters in plain JSON Schema: see `_plain_schema`."""
        model = self.arguments if extended or self.published is None else self.published
        parameters = model.model_json_schema()
        description = parameters.pop("description", "")
        definitions = parameters.pop("$defs", {})
        return {"name": self.name, "description": description, "parameters": _plain_schema(parameters, definitions)}


def _plain_schema(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema without `$ref`, titles and null alternatives, which prompt templates and some servers do not read.

    pydantic's titles repeat the names (`Doc Id` for `doc_id`), and its references hide what a call inside
    `multi_tool_use` looks like.
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


def edit_reply(edit: Edit, sentences: Sequence[str], unchanged: str, selection: Selection) -> EditReply:
    """The reply of an edit: its sentences, then the ids that changed nothing, then unknown ids, which are a mistake."""
    parts = list(sentences)
    if selection.unchanged:
        parts.append(f"{len(selection.unchanged)} {unchanged}.")
    if selection.unknown:
        parts.append(f"Unknown ids: {listed(selection.unknown)}.")
    return EditReply(edit, " ".join(parts), "unknown_id" if selection.unknown else None)


def counted(selection: Selection) -> str:
    """The size of a selection, as a message says it."""
    return f"{len(selection.blocks)} chunks ({sum(block.tokens for block in selection.blocks):,} tokens)"


def listed(ids: Sequence[str]) -> str:
    """The first ids, safe to show."""
    return ", ".join(escape_markers(chunk_id[:LISTED_ID_LENGTH]) for chunk_id in ids[:LISTED_IDS])
