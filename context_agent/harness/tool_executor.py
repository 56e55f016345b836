"""Runs the calls of a turn: checks them, applies edits, runs reads at the same time, and fits results into the view.

The outcome does not depend on timing: what a call may show is decided in call order, once all calls have returned.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from context_agent._support.markers import escape_markers
from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.harness.rendering import Rendered, Renderer
from context_agent.harness.tools import EDITS, TOOLS, UNREAD, ToolCallError, check
from context_agent.harness.tools.base import (
    LISTED_IDS,
    EditContext,
    EditReply,
    ReadContext,
    SubAgents,
    ToolArguments,
    ToolKind,
    ToolOutput,
)
from context_agent.harness.trajectory import ToolResult
from context_agent.pruning import edits
from context_agent.pruning.budget import Budget, Tier
from context_agent.pruning.edits import Edit
from context_agent.pruning.view import Block, Role, Text, View
from context_agent.retrieval.corpus import Corpus, Where
from context_agent.types import Hit, ToolCall

__all__ = ["CheckedCall", "EditReply", "SubAgents", "ToolExecutor", "ToolOutput"]


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call by its index in the turn. A call that cannot run has no `checked` arguments, but an `error`."""

    index: int
    name: str
    arguments: Mapping[str, Any]
    """Plain data, as the trajectory records it."""
    checked: ToolArguments | None = None
    error: str = ""


class ToolExecutor:
    """Runs the calls of one episode; remembers which chunks it showed and which query first surfaced a document."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        profile: Profile,
        renderer: Renderer,
        budget: Budget,
        question: str,
        where: Where | None,
        executor: Executor | None,
        sub_agents: SubAgents | None = None,
        excluded_ids: AbstractSet[str] = frozenset(),
    ) -> None:
        """`excluded_ids` are chunks that no search brings up, because another episode has shown them."""
        self._profile = profile
        self._renderer = renderer
        self._budget = budget
        self._executor = executor
        self._context = ReadContext(
            corpus, profile, renderer, budget, question, where, excluded_ids, sub_agents=sub_agents
        )

    def check(self, calls: Sequence[ToolCall], limit: int) -> list[CheckedCall]:
        """The calls of a turn with their arguments checked; those past the `limit` do not run."""
        return [self._checked(index, call, limit) for index, call in enumerate(calls)]

    def _checked(self, index: int, call: ToolCall, limit: int) -> CheckedCall:
        arguments = {"raw": call.arguments} if isinstance(call.arguments, str) else dict(call.arguments)
        if index >= limit and call.name != UNREAD:
            error = f"Error: at most {limit} calls run in one turn; this one did not."
            return CheckedCall(index, call.name, arguments, error=error)
        try:
            checked = check(call, self._profile.tools)
        except ToolCallError as error:
            return CheckedCall(index, call.name, arguments, error=str(error))
        return CheckedCall(index, call.name, checked.model_dump(), checked)

    def edit(self, view: View, calls: Sequence[CheckedCall]) -> tuple[Edit, dict[int, EditReply]]:
        """The net edit of a turn, and the reply to each edit call by its index.

        Prunes come before summaries and summaries before restores. Each call sees the view that the earlier ones leave.
        """
        net, replies = Edit(), dict[int, EditReply]()
        for call in sorted(_of_kind(calls, ToolKind.EDIT), key=lambda call: (EDITS.index(call.name), call.index)):
            after = edits.apply(view, net) if net else view
            context = EditContext(after, call.index, self._renderer, self._budget, SUMMARIZE in self._profile.tools)
            replies[call.index] = reply = TOOLS[call.name].run(call.checked, context)
            net = edits.combine(view, net, reply.edit)
        return net, replies

    async def run(self, calls: Sequence[CheckedCall], *, tokens_left: int | None) -> dict[int, ToolOutput]:
        """The output of each call that reads or delegates, by its index.

        Reads run in worker threads where the corpus waits for disk or network. `tokens_left` bounds the tokens of
        sub-agents. An error of the corpus is raised after all calls have ended.
        """
        reads, delegations = _of_kind(calls, ToolKind.READ), _of_kind(calls, ToolKind.DELEGATE)
        if not delegations:
            return await self._read(reads)
        outputs, delegated = await asyncio.gather(self._read(reads), self._delegate(delegations, tokens_left))
        return outputs | delegated

    async def _read(self, calls: Sequence[CheckedCall]) -> dict[int, ToolOutput]:
        jobs = [partial(_timed, call, self._context, earlier) for earlier, call in enumerate(calls)]
        if self._context.corpus.blocking and jobs:
            outputs = await self._in_threads(jobs)
        else:
            outputs = [job() for job in jobs]
        return {call.index: output for call, output in zip(calls, outputs, strict=True)}

    async def _in_threads(self, jobs: Sequence[Callable[[], ToolOutput]]) -> list[ToolOutput]:
        """Each job in a copy of this context: a request's id and its trace reach what the corpus calls."""
        loop = asyncio.get_running_loop()
        pending = [loop.run_in_executor(self._executor, contextvars.copy_context().run, job) for job in jobs]
        ended = await asyncio.gather(*pending, return_exceptions=True)
        return [_raised(output) for output in ended]

    async def _delegate(self, calls: Sequence[CheckedCall], tokens_left: int | None) -> dict[int, ToolOutput]:
        """Sub-agents of one turn share one budget and one clock, so all calls of a tool run as one."""
        outputs: dict[int, ToolOutput] = {}
        for name in dict.fromkeys(call.name for call in calls):
            same = [call for call in calls if call.name == name]
            results = await TOOLS[name].run([call.checked for call in same], self._context, tokens_left)
            outputs |= {call.index: output for call, output in zip(same, results, strict=True)}
        return outputs

    def result(self, view: View, call: CheckedCall, answer: ToolOutput | EditReply | None) -> ToolResult:
        """The result of a call as it enters the view, given all that is in the view by now."""
        segments: tuple[Text | Block, ...]
        mistake: str | None
        if answer is None:
            segments, mistake = self._text(view, call, call.error), "invalid_call"
        elif isinstance(answer, EditReply):
            segments, mistake = self._text(view, call, answer.message), answer.mistake
        elif view.tier is Tier.HARD:
            message = self._profile.hard_refusal.format(used=view.tokens, window=self._budget.window)
            segments, mistake = self._text(view, call, message), "hard_cutoff"
        else:
            segments, mistake = self._fitted(view, call, answer), answer.mistake
        result = ToolResult(view.turn, call.index, call.name, dict(call.arguments), segments, mistake)
        if isinstance(answer, ToolOutput):
            result = replace(result, seconds=answer.seconds, delegated=answer.delegated)
        return result

    def _fitted(self, view: View, call: CheckedCall, output: ToolOutput) -> tuple[Text | Block, ...]:
        """The hits that fit, as blocks, and a message where there is one. The one place where room is computed."""
        room = self._budget.call_room(view.tokens, output.calls)
        block_room = room if output.room is None else min(room, output.room)
        if output.delegated:
            block_room -= self._renderer.counter.count(f"{output.message}\n")
        blocks = self._blocks(view, call, output, block_room)
        message = self._message(view, output, blocks)
        for block in blocks:
            self._remember(call, block)
        if not message:
            return blocks
        # A note beside blocks is left out where it does not fit; an error or a message alone is cut.
        is_note = blocks and not output.mistake
        return (
            *blocks,
            *self._text(view, call, message, room - sum(block.tokens for block in blocks) if is_note else None),
        )

    def _blocks(self, view: View, call: CheckedCall, output: ToolOutput, room: int) -> tuple[Block, ...]:
        """Hits in rank order until the room is full.

        A first hit that does not fit whole is cut to the room, so that a small window still shows something.
        """
        fitting: list[tuple[Hit, Rendered]] = []
        for hit in self._new_hits(output):
            if len(fitting) >= output.limit:
                break
            rendered = self._renderer.chunk(hit.chunk)
            if rendered.tokens > room:
                cut = None if fitting else self._renderer.fit(hit.chunk, room)
                if cut is None:
                    break
                rendered = cut
            room -= rendered.tokens
            fitting.append((hit, rendered))
        if output.in_order:
            fitting.sort(key=lambda pair: pair[0].chunk.index)
        return tuple(
            Block(key, text.header, text.body, text.tokens, view.turn, call.index, output.source, hit, text.whole)
            for key, (hit, text) in enumerate(fitting, start=view.next_key)
        )

    def _new_hits(self, output: ToolOutput) -> list[Hit]:
        shown_ids = self._context.shown_ids if output.new_only else frozenset()
        return [hit for hit in output.hits if hit.chunk.id not in shown_ids]

    def _remember(self, call: CheckedCall, block: Block) -> None:
        query = call.arguments.get("query") or call.arguments.get("pattern") or self._context.question
        self._context.shown_ids.add(block.id)
        self._context.surfacing_queries.setdefault(block.document_id, query)

    def _message(self, view: View, output: ToolOutput, blocks: Sequence[Block]) -> str:
        """What is said beside the blocks: the error, that nothing was found, or what was left out."""
        if output.mistake or output.delegated:
            return output.message
        if not output.hits and not output.repeated_ids:
            return output.message or self._profile.nothing
        notes = [
            *(["more match"] if len(blocks) < min(len(self._new_hits(output)), output.limit) else []),
            *(f"{label}: {', '.join(ids[:LISTED_IDS])}" for label, ids in _repeated(view, output)),
        ]
        if not blocks and not notes:
            return self._profile.nothing
        return f"({'; '.join(notes)})" if notes and (self._profile.notes or not blocks) else ""

    def _text(self, view: View, call: CheckedCall, text: str, room: int | None = None) -> tuple[Text, ...]:
        """The text as a result segment, cut to what the window still holds; none where it exceeds a given `room`."""
        free = self._budget.result_room(view.tokens) if room is None else room
        count = self._renderer.counter.count
        text = f"{text}\n"
        tokens = count(text)
        if room is not None and tokens > room:
            return ()
        while tokens > free and text:
            text = text[: len(text) * max(free, 0) // (tokens + 1)]
            tokens = count(text) if text else 0
        return (Text(Role.RESULT, text, tokens, view.turn, call.index),)


def _of_kind(calls: Sequence[CheckedCall], kind: ToolKind) -> list[CheckedCall]:
    """The calls that can run and whose tool is of that kind."""
    return [call for call in calls if call.checked is not None and TOOLS[call.name].kind is kind]


def _repeated(view: View, output: ToolOutput) -> list[tuple[str, list[str]]]:
    """The chunks that match but were shown before, by where they are now."""
    if not output.repeated_ids:
        return []
    summarised = {block.id for block in view.citable_blocks} if view.summaries else frozenset()
    by_label: dict[str, list[str]] = {"in view": [], "in a summary": [], "pruned": []}
    for chunk_id in output.repeated_ids:
        label = "in view" if view.shows(chunk_id) else "in a summary" if chunk_id in summarised else "pruned"
        by_label[label].append(escape_markers(chunk_id))
    return [(label, ids) for label, ids in by_label.items() if ids]


def _raised(output: ToolOutput | BaseException) -> ToolOutput:
    if isinstance(output, BaseException):
        raise output
    return output


def _timed(call: CheckedCall, context: ReadContext, earlier: int) -> ToolOutput:
    started = time.perf_counter()
    output: ToolOutput = TOOLS[call.name].run(call.checked, context, earlier)
    return replace(output, seconds=time.perf_counter() - started)
