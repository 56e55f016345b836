"""The execution of a turn's calls. The calls are checked, then the edits run, and then the reads run at the same time.

The outcome does not depend on timing. When all calls have returned, the executor decides in call order which results
each call may show.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from context_agent._support.thread_pool import closed_in_use
from context_agent.harness.profile import SUMMARIZE
from context_agent.harness.tools.calls import UNREAD_CALLS, ToolCallError, bounded_calls, check_call, flatten_calls
from context_agent.harness.tools.registry import TOOLS
from context_agent.harness.tools.tool import (
    LISTED_IDS,
    BatchTool,
    EditContext,
    EditReply,
    EditTool,
    ReadContext,
    ReadTool,
    SpawnTool,
    Tool,
    ToolArguments,
    ToolOutput,
)
from context_agent.pruning.view import NO_EDIT, Block, Edit, Role, Text, ToolResult, View
from context_agent.text.markers import escape_markers
from context_agent.types import ToolCall

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call that can run, with its index in the turn. `arguments` are plain data, as the trajectory records them."""

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
    """An object that runs the calls of one episode.

    Attributes:
        context: The context of the reads. It remembers the chunks shown, and the query that first brought up each
            document.
        threads: The executor that runs the reads of a corpus that waits for disk or network.
    """

    context: ReadContext
    threads: Executor | None = None

    def check(self, calls: Sequence[ToolCall], limit: int) -> list[CheckedCall | RefusedCall]:
        """Unwrap the calls of a turn and check their arguments. Calls past the `limit` are refused."""
        tools = self.context.profile.tools
        checked_calls: list[CheckedCall | RefusedCall] = []
        for index, call in enumerate(bounded_calls(flatten_calls(calls, tools))):
            try:
                arguments = check_call(call, tools)
            except ToolCallError as error:
                refusal = str(error)
            else:
                nested = isinstance(TOOLS[call.name], BatchTool)
                refusal = f"Error: {call.name} cannot wrap {call.name}." if nested else ""
            if index >= limit and call.name != UNREAD_CALLS:
                refusal = f"Error: at most {limit} calls run in one turn; this one did not."
            if refusal:
                raw = dict(call.arguments) if isinstance(call.arguments, Mapping) else {"raw": call.arguments}
                checked_calls.append(RefusedCall(index, call.name, raw, refusal))
            else:
                plain = arguments.model_dump()
                checked_calls.append(CheckedCall(index, call.name, plain, TOOLS[call.name], arguments))
        return checked_calls

    def edit(self, view: View, calls: Sequence[CheckedCall | RefusedCall]) -> tuple[Edit, dict[int, EditReply]]:
        """Return the net edit of a turn, and by index the reply to each edit call and to each refused call.

        Prunes come before summaries and summaries before restores. Each call sees the view that the earlier ones leave.
        """
        net, edits = NO_EDIT, list[tuple[CheckedCall, EditTool[Any]]]()
        replies: dict[int, EditReply] = {}
        for call in calls:
            if isinstance(call, RefusedCall):
                replies[call.index] = EditReply(net, call.error, "invalid_call")
            elif isinstance(call.tool, EditTool):
                edits.append((call, call.tool))
        protects = SUMMARIZE in self.context.profile.tools
        order = list(TOOLS)
        for call, tool in sorted(edits, key=lambda edit: (order.index(edit[0].name), edit[0].index)):
            after = view if net == NO_EDIT else view.apply(net)
            context = EditContext(after, call.index, self.context.renderer, self.context.budget, protects)
            reply = tool.run(call.checked, context)
            net = view.combine(net, reply.edit)
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
        reads = [(call, call.tool) for call in checked if isinstance(call.tool, ReadTool)]
        delegations = [(call, call.tool) for call in checked if isinstance(call.tool, SpawnTool)]
        if not delegations:
            return await self._read(reads)
        ended = await asyncio.gather(
            self._read(reads), self._delegate(delegations, tokens_left), return_exceptions=True
        )
        outputs, delegated = (_raised(outcome) for outcome in ended)
        return outputs | delegated

    async def _read(self, calls: Sequence[tuple[CheckedCall, ReadTool[Any]]]) -> dict[int, ToolOutput]:
        jobs = [partial(_timed, *call, self.context, earlier) for earlier, call in enumerate(calls)]
        if self.context.corpus.blocking and jobs:
            outputs = await self._in_threads(jobs)
        else:
            outputs = [job() for job in jobs]
        return {call.index: output for (call, _), output in zip(calls, outputs, strict=True)}

    async def _in_threads(self, jobs: Sequence[Callable[[], ToolOutput]]) -> list[ToolOutput]:
        """Run each job in a copy of this context, so a request's id and its trace reach what the corpus calls.

        If the threads are ended before a job has begun, raise `ConfigError`.
        """
        loop = asyncio.get_running_loop()
        pending = [loop.run_in_executor(self.threads, contextvars.copy_context().run, job) for job in jobs]
        ended = await asyncio.gather(*pending, return_exceptions=True)
        if any(isinstance(output, asyncio.CancelledError) for output in ended):
            # This task was not canceled. Jobs that waited for a thread were.
            raise closed_in_use()
        return [_raised(output) for output in ended]

    async def _delegate(
        self, calls: Sequence[tuple[CheckedCall, SpawnTool[Any]]], tokens_left: int | None
    ) -> dict[int, ToolOutput]:
        """Run all calls of a tool as one, because the sub-agents of a turn share one budget and one clock."""
        outputs: dict[int, ToolOutput] = {}
        for name, tool in {tool.name: tool for _, tool in calls}.items():
            same = [call for call, _ in calls if call.name == name]
            results = await tool.run([call.checked for call in same], self.context, tokens_left)
            outputs |= {call.index: output for call, output in zip(same, results, strict=True)}
        return outputs

    def result(self, view: View, call: CheckedCall | RefusedCall, answer: ToolOutput | EditReply) -> ToolResult:
        """Return the result of a call in the form that enters the view. The room for it depends on the current view."""
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
        """Return the hits that fit, as blocks, and the message if there is one.

        No other function computes how much room a result has.
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
        """Return the message of a result: an error, the note that nothing matches, or a list of what was left out."""
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
        """Return the text as the result of a call, cut to the room that is left in the window."""
        count, room = self.context.renderer.counter.count, view.result_room
        text = f"{text}\n"
        tokens = count(text)
        while tokens > room and text:
            text = text[: len(text) * max(room, 0) // (tokens + 1)]
            tokens = count(text)
        return Text(Role.RESULT, text, tokens, view.turn, index)


def _repeated(view: View, repeated_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return chunks that were shown before, grouped by where they are now."""
    summarized = {block.id for block in view.citable_blocks}
    visible = {block.id for block in view.blocks}
    by_label: dict[str, list[str]] = {"in view": [], "in a summary": [], "pruned": []}
    for chunk_id in repeated_ids:
        label = "in view" if chunk_id in visible else "in a summary" if chunk_id in summarized else "pruned"
        by_label[label].append(escape_markers(chunk_id))
    return [(label, ids) for label, ids in by_label.items() if ids]


def _raised(outcome: _Outcome | BaseException) -> _Outcome:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _timed(call: CheckedCall, tool: ReadTool[Any], context: ReadContext, earlier: int) -> ToolOutput:
    started = time.perf_counter()
    output = tool.run(call.checked, context, earlier)
    return replace(output, seconds=time.perf_counter() - started)
