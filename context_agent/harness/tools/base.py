"""What a tool is, and how the calls of a turn run: checked, edits first, then reads at the same time.

A tool is one file beside this one, and `tools/__init__.py` registers it. The executor treats tools by their kind alone.
What comes from a model is outside data, so pydantic checks it; a mistake becomes a `ToolCallError`, whose text is the
result that the policy reads.

The outcome does not depend on timing: what a call may show is decided in call order, once all calls have returned.
"""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from context_agent.harness.profile import SUMMARIZE, Profile, Renderer
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import (
    NO_EDIT,
    Block,
    Edit,
    Role,
    Selection,
    Source,
    SubAgentRecord,
    Text,
    ToolResult,
    View,
)
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where
from context_agent.text.markers import escape_markers
from context_agent.types import Hit, ToolCall

LONGEST_ARGUMENTS = 100_000
"""Characters of raw arguments that are parsed; longer arguments are refused."""
MOST_CALLS = 64
"""Tool calls read from one reply; if it has more, the last call says how many were not read."""
UNREAD = "unread_calls"
"""Name of the call that stands for those that were not read."""
MAX_IDS = 500
"""Ids that one call may name."""
LISTED_IDS = 5
"""Ids that a message names at most."""
LISTED_ID_LENGTH = 80
"""Characters of an id that a message quotes."""
_REPORTED_PROBLEMS = 3
_Outcome = TypeVar("_Outcome")


def _strings(value: object) -> object:
    """Accepts one string, or a JSON list in a string, for a list of strings: models write both."""
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
    """Hands tasks to sub-agents: all calls of a turn run as one, at the same time as the reads."""
    BATCH = "batch"
    """Wraps several calls; it is replaced by them and never runs."""


class SubAgents(Protocol):
    """Starts the sub-agents of one episode."""

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        """Return the output for each request of one turn, a list of tasks; all tasks run at the same time.

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
    `calls` is how many calls' room the output may fill, `room` its own bound in tokens if it has one. `delegated`
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
    """The arguments as the published format declares them, if those are fewer."""

    def schema(self, *, extended: bool = True) -> dict[str, Any]:
        """`{"name", "description", "parameters"}`, parameters in plain JSON Schema: see `_plain_schema`."""
        model = self.arguments if extended or self.published is None else self.published
        parameters = model.model_json_schema()
        description = parameters.pop("description", "")
        definitions = parameters.pop("$defs", {})
        return {"name": self.name, "description": description, "parameters": _plain_schema(parameters, definitions)}


def _plain_schema(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema without `$ref`, titles and null alternatives, which prompt templates and some servers do not
    read.

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


TOOLS: dict[str, Tool] = {}
"""The registered tools by name. Edits of a turn are applied in the order of registration."""


class ToolCallError(Exception):
    """A call that cannot run; the text is what the policy is told."""


def bounded(calls: Sequence[ToolCall], count: int | None = None) -> tuple[ToolCall, ...]:
    """Return the calls of a reply if they are at most `MOST_CALLS`, else the first of them and one that stands for the
    rest.

    `count` is how many the reply had, if `calls` are only its first ones.
    """
    count = len(calls) if count is None else count
    if count <= MOST_CALLS:
        return tuple(calls)
    first = calls[: MOST_CALLS - 1]
    return (*first, ToolCall(UNREAD, {"count": count - len(first)}))


def flatten(calls: Sequence[ToolCall], tools: Sequence[str]) -> list[ToolCall]:
    """Return the calls with every well-formed batch replaced by what it wraps, if it is one of the `tools`."""
    flat: list[ToolCall] = []
    for call in calls:
        wraps = call.name in tools and TOOLS[call.name].kind is ToolKind.BATCH
        flat += _unwrapped(call) if wraps else [call]
    return flat


def check(call: ToolCall, tools: Sequence[str]) -> ToolArguments:
    """Return the call's arguments, checked against the profile's `tools`. Raises `ToolCallError`, which says what to
    write.
    """
    if call.name == UNREAD:
        raise ToolCallError(
            f"Error: only the first {MOST_CALLS - 1} tool calls of a reply are read; the rest did not run. Make fewer "
            "calls at a time."
        )
    if call.name not in tools:
        raise ToolCallError(f"Error: there is no tool {call.name[:80]!r}. {_suggestion(call.name, tools)}")
    arguments = call.arguments if not isinstance(call.arguments, str) else _parsed(call.arguments)
    try:
        return TOOLS[call.name].arguments.model_validate(arguments)
    except ValidationError as error:
        raise ToolCallError(f"Error: {call.name}: {_explained(error)}") from None


def _unwrapped(call: ToolCall) -> list[ToolCall]:
    try:
        batch = check(call, (call.name,))
    except ToolCallError:
        return [call]
    calls: list[ToolCall] = TOOLS[call.name].run(batch, call.id)
    return calls


def _parsed(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > LONGEST_ARGUMENTS:
        raise ToolCallError(
            f"Error: arguments of {len(arguments):,} characters; at most {LONGEST_ARGUMENTS:,} are read."
        )
    try:
        value = json.loads(arguments or "{}")
    except RecursionError:
        raise ToolCallError("Error: the arguments are not valid JSON (nested too deeply).") from None
    except ValueError as error:
        raise ToolCallError(f"Error: the arguments are not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise ToolCallError(f"Error: the arguments must be a JSON object, not {type(value).__name__}.")
    return value


def _explained(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False, include_input=False)[:_REPORTED_PROBLEMS]:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        problems.append(f"{where}: {item['msg']}")
    return "; ".join(problems)


def _suggestion(name: str, tools: Sequence[str]) -> str:
    similar = difflib.get_close_matches(name, tools, n=1)
    return f"Did you mean {similar[0]}?" if similar else f"The tools are {', '.join(tools)}."


def edit_reply(edit: Edit, sentences: Sequence[str], unchanged: str, selection: Selection) -> EditReply:
    """Return the reply of an edit: its sentences, then the ids that changed nothing, then unknown ids, which are a
    mistake.
    """
    parts = list(sentences)
    if selection.unchanged:
        parts.append(f"{len(selection.unchanged)} {unchanged}.")
    if selection.unknown:
        parts.append(f"Unknown ids: {listed(selection.unknown)}.")
    return EditReply(edit, " ".join(parts), "unknown_id" if selection.unknown else None)


def listed(ids: Sequence[str]) -> str:
    """Return the first ids, safe to show."""
    return ", ".join(escape_markers(chunk_id[:LISTED_ID_LENGTH]) for chunk_id in ids[:LISTED_IDS])


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call that can run, by its index in the turn. `arguments` are plain data, as the trajectory records them."""

    index: int
    name: str
    arguments: dict[str, Any]
    tool: Tool
    checked: ToolArguments


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that cannot run, by its index in the turn, and the error that the policy reads."""

    index: int
    name: str
    arguments: dict[str, Any]
    error: str


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Runs the calls of one episode. Its context remembers the chunks shown and the queries that surfaced documents.

    `threads` run the reads of a corpus that waits for disk or network.
    """

    context: ReadContext
    threads: Executor | None = None

    def check(self, calls: Sequence[ToolCall], limit: int) -> list[CheckedCall | RefusedCall]:
        """Return the calls of a turn, unwrapped and with their arguments checked; those past the `limit` do not run."""
        tools = self.context.profile.tools
        checked_calls: list[CheckedCall | RefusedCall] = []
        for index, call in enumerate(bounded(flatten(calls, tools))):
            try:
                arguments = check(call, tools)
            except ToolCallError as error:
                refusal = str(error)
            else:
                nested = TOOLS[call.name].kind is ToolKind.BATCH
                refusal = f"Error: {call.name} cannot wrap {call.name}." if nested else ""
            if index >= limit and call.name != UNREAD:
                refusal = f"Error: at most {limit} calls run in one turn; this one did not."
            if refusal:
                raw = dict(call.arguments) if isinstance(call.arguments, Mapping) else {"raw": call.arguments}
                checked_calls.append(RefusedCall(index, call.name, raw, refusal))
            else:
                plain = arguments.model_dump()
                checked_calls.append(CheckedCall(index, call.name, plain, TOOLS[call.name], arguments))
        return checked_calls

    def edit(self, view: View, calls: Sequence[CheckedCall | RefusedCall]) -> tuple[Edit, dict[int, EditReply]]:
        """Return the net edit of a turn, and replies by index: to each edit call, and to each call that cannot run.

        Prunes come before summaries and summaries before restores. Each call sees the view that the earlier ones leave.
        """
        net, edits = NO_EDIT, []
        replies: dict[int, EditReply] = {}
        for call in calls:
            if isinstance(call, RefusedCall):
                replies[call.index] = EditReply(net, call.error, "invalid_call")
            elif call.tool.kind is ToolKind.EDIT:
                edits.append(call)
        protects = SUMMARIZE in self.context.profile.tools
        order = list(TOOLS)
        for call in sorted(edits, key=lambda call: (order.index(call.name), call.index)):
            after = view if net == NO_EDIT else view.apply(net)
            context = EditContext(after, call.index, self.context.renderer, self.context.budget, protects)
            reply: EditReply = call.tool.run(call.checked, context)
            net = reply.edit if net == NO_EDIT else view.combine(net, reply.edit)
            replies[call.index] = reply
        return net, replies

    async def run(
        self, calls: Sequence[CheckedCall | RefusedCall], *, tokens_left: int | None
    ) -> dict[int, ToolOutput]:
        """Return the output of each call that reads or delegates, by its index.

        Reads run in worker threads if the corpus waits for disk or network. `tokens_left` bounds the tokens of
        sub-agents. An error of the corpus is raised after all calls have ended.
        """
        checked = [call for call in calls if isinstance(call, CheckedCall)]
        reads = [call for call in checked if call.tool.kind is ToolKind.READ]
        delegations = [call for call in checked if call.tool.kind is ToolKind.DELEGATE]
        if not delegations:
            return await self._read(reads)
        ended = await asyncio.gather(
            self._read(reads), self._delegate(delegations, tokens_left), return_exceptions=True
        )
        outputs, delegated = (_raised(outcome) for outcome in ended)
        return outputs | delegated

    async def _read(self, calls: Sequence[CheckedCall]) -> dict[int, ToolOutput]:
        jobs = [partial(_timed, call, self.context, earlier) for earlier, call in enumerate(calls)]
        if self.context.corpus.blocking and jobs:
            outputs = await self._in_threads(jobs)
        else:
            outputs = [job() for job in jobs]
        return {call.index: output for call, output in zip(calls, outputs, strict=True)}

    async def _in_threads(self, jobs: Sequence[Callable[[], ToolOutput]]) -> list[ToolOutput]:
        """Return each job in a copy of this context: a request's id and its trace reach what the corpus calls."""
        loop = asyncio.get_running_loop()
        pending = [loop.run_in_executor(self.threads, contextvars.copy_context().run, job) for job in jobs]
        ended = await asyncio.gather(*pending, return_exceptions=True)
        return [_raised(output) for output in ended]

    async def _delegate(self, calls: Sequence[CheckedCall], tokens_left: int | None) -> dict[int, ToolOutput]:
        """Sub-agents of one turn share one budget and one clock, so all calls of a tool run as one."""
        outputs: dict[int, ToolOutput] = {}
        for name in dict.fromkeys(call.name for call in calls):
            same = [call for call in calls if call.name == name]
            results = await TOOLS[name].run([call.checked for call in same], self.context, tokens_left)
            outputs |= {call.index: output for call, output in zip(same, results, strict=True)}
        return outputs

    def result(self, view: View, call: CheckedCall | RefusedCall, answer: ToolOutput | EditReply) -> ToolResult:
        """Return the result of a call as it enters the view; what fits depends on all that is in the view by now."""
        segments: tuple[Text | Block, ...]
        mistake = answer.mistake
        if isinstance(answer, EditReply):
            segments = (self._text(view, call.index, answer.message),)
            return ToolResult(view.turn, call.index, call.name, call.arguments, segments, mistake)
        if view.tokens >= view.budget.hard:
            refusal = self.context.profile.hard_refusal.format(used=view.tokens, window=view.budget.window)
            segments, mistake = (self._text(view, call.index, refusal),), "hard_cutoff"
        else:
            segments = self._fitted(view, call, answer)
        return ToolResult(
            view.turn, call.index, call.name, call.arguments, segments, mistake, answer.seconds, answer.delegated
        )

    def _fitted(self, view: View, call: CheckedCall | RefusedCall, output: ToolOutput) -> tuple[Text | Block, ...]:
        """Return the hits that fit, as blocks, and a message if there is one. This is the only place that computes
        room.
        """
        context, count = self.context, self.context.renderer.counter.count
        room = view.call_room(output.calls)
        block_room = room if output.room is None else min(room, output.room)
        if output.delegated:
            block_room -= count(f"{output.message}\n")
        new_hits = [hit for hit in output.hits if not (output.new_only and hit.chunk.id in context.shown_ids)]
        hits = new_hits[: output.limit]
        fitting = list(zip(hits, context.renderer.fitting([hit.chunk for hit in hits], block_room), strict=False))
        message = self._message(view, output, blocks=len(fitting), left_out=len(hits) - len(fitting))
        if output.in_order:
            fitting.sort(key=lambda pair: pair[0].chunk.index)
        query = call.arguments.get("query") or call.arguments.get("pattern") or context.question
        blocks = []
        for key, (hit, text) in enumerate(fitting, start=view.next_key):
            context.shown_ids.add(hit.chunk.id)
            context.surfacing_queries.setdefault(hit.chunk.document_id, query)
            blocks.append(
                Block(
                    key,
                    text.header + context.profile.label.format(number=key),
                    text.body,
                    text.tokens,
                    view.turn,
                    call.index,
                    output.source,
                    hit,
                    text.complete,
                )
            )
        if not message:
            return tuple(blocks)
        if not blocks or output.mistake:
            return (*blocks, self._text(view, call.index, message))
        # A note beside blocks is left out if it does not fit; an error or a message alone is cut.
        tokens = count(f"{message}\n")
        fits = tokens <= room - sum(block.tokens for block in blocks)
        return (*blocks, Text(Role.RESULT, f"{message}\n", tokens, view.turn, call.index)) if fits else tuple(blocks)

    def _message(self, view: View, output: ToolOutput, *, blocks: int, left_out: int) -> str:
        """Return the text beside the blocks: the error, that nothing matches, or what was left out."""
        if output.mistake or output.delegated:
            return output.message
        nothing = self.context.profile.nothing
        if not output.hits and not output.repeated_ids:
            return output.message or nothing
        notes = ["more match"] if left_out else []
        if output.repeated_ids:
            notes += [f"{label}: {', '.join(ids[:LISTED_IDS])}" for label, ids in _repeated(view, output.repeated_ids)]
        if not blocks and not notes:
            return nothing
        return f"({'; '.join(notes)})" if notes and (self.context.profile.notes or not blocks) else ""

    def _text(self, view: View, index: int, text: str) -> Text:
        """Return the text as the result of a call, cut to what the window still holds."""
        count, room = self.context.renderer.counter.count, view.result_room
        text = f"{text}\n"
        tokens = count(text)
        while tokens > room and text:
            text = text[: len(text) * max(room, 0) // (tokens + 1)]
            tokens = count(text) if text else 0
        return Text(Role.RESULT, text, tokens, view.turn, index)


def _repeated(view: View, repeated_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the chunks that match but were shown before, by where they are now."""
    summarised = {block.id for block in view.citable_blocks} if view.summaries else frozenset()
    visible = {block.id for block in view.blocks}
    by_label: dict[str, list[str]] = {"in view": [], "in a summary": [], "pruned": []}
    for chunk_id in repeated_ids:
        label = "in view" if chunk_id in visible else "in a summary" if chunk_id in summarised else "pruned"
        by_label[label].append(escape_markers(chunk_id))
    return [(label, ids) for label, ids in by_label.items() if ids]


def _raised(outcome: _Outcome | BaseException) -> _Outcome:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _timed(call: CheckedCall, context: ReadContext, earlier: int) -> ToolOutput:
    started = time.perf_counter()
    output: ToolOutput = call.tool.run(call.checked, context, earlier)
    return replace(output, seconds=time.perf_counter() - started)
