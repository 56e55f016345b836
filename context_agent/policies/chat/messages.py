"""Views as chat messages.

Messages depend on the view alone, so a replay or a new process gives the same messages. The first segment of a view
holds the prompt and then the declared tools, one JSON object on each line. Both are in the segment because both are
sent and count against the budget. For a server with native tool calls, the tools go into the request's own field and
the prompt into the system message. For the text format the segment is sent unchanged.

Each call has one result message. The episode numbers the calls inside `multi_tool_use` separately, so one message may
hold several results, in the order of these calls. The usage line ends the turn's last message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from context_agent.harness.action_text import compact
from context_agent.harness.profile import Profile
from context_agent.harness.tools import flatten_calls, schemas
from context_agent.policies.chat.replies import EXTRA_FIELD, INLINE, REASONING_FIELDS
from context_agent.policies.chat.text_calls import CALL_INSTRUCTIONS, written
from context_agent.pruning.view import Role, Text, View
from context_agent.text.markers import escape_markers
from context_agent.types import Action, ToolCall

ToolFormat = Literal["native", "text"]
Message = dict[str, Any]

HEADING = "\n\n# Tools\n"


@dataclass(slots=True)
class _Turn:
    """A turn whose segments are being collected. It has the results of each call, by the call's index."""

    action: Action
    number: int
    results: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


@lru_cache(maxsize=16)
def opening_text(profile: Profile, tool_format: ToolFormat) -> str:
    """Return the first segment of a view, which is the profile's prompt and its tools."""
    return profile.instructions().rstrip() + _section(profile, tool_format)


def system_message(view: View, profile: Profile, tool_format: ToolFormat) -> str:
    """Return the system message for a view: the profile's prompt, or the episode's own instructions."""
    first = view.segments[0] if view.segments else None
    text = first.text if isinstance(first, Text) and first.role is Role.PROMPT else ""
    if text == opening_text(profile, tool_format):
        return (text if tool_format == "text" else profile.instructions()).strip()
    return (text + _section(profile, tool_format) if tool_format == "text" else text).strip()


def _section(profile: Profile, tool_format: ToolFormat) -> str:
    lines = [compact(tool) for tool in schemas(profile)]
    return HEADING + "\n".join([*([CALL_INSTRUCTIONS] if tool_format == "text" else []), *lines]) + "\n"


def messages(
    view: View, profile: Profile, *, tool_format: ToolFormat = "native", fields: Sequence[str] = REASONING_FIELDS
) -> list[Message]:
    """Return the view as messages.

    They are the system message, the question, and then a reply and its results for each turn.

    `fields` names the reasoning fields that may be sent back. If it contains `blocks`, a reply's blocks are sent back.
    Reasoning that came between tags is always sent back between tags.
    """
    system = system_message(view, profile, tool_format)
    built: list[Message] = [{"role": "system", "content": system}] if system else []
    turn: _Turn | None = None
    for segment in view.visible:
        if not isinstance(segment, Text) or segment.role is Role.RESULT:
            if turn is not None:
                turn.results[segment.call].append(escape_markers(segment.text, blocks=False))
        elif segment.role is Role.QUESTION:
            built.append({"role": "user", "content": escape_markers(segment.text, blocks=False).strip()})
        elif segment.role is Role.ACTION and segment.action is not None:
            turn = _Turn(segment.action, segment.turn)
        elif segment.role is Role.USAGE and turn is not None:
            built += _turn_messages(turn, segment.text, profile.tools, tool_format, fields)
            turn = None
    return built


def _turn_messages(
    turn: _Turn, usage: str, tools: Sequence[str], tool_format: ToolFormat, fields: Sequence[str]
) -> Iterator[Message]:
    calls = with_ids(turn.action, turn.number)
    results = _results(calls, turn, tools)
    results[-1] += usage
    if tool_format == "text":
        yield assistant(turn.action, [], "\n".join([turn.action.text, *map(written, calls)]).strip(), fields)
        responses = (f"<tool_response>\n{text}</tool_response>" for text in results)
        yield {"role": "user", "content": "\n".join(responses)}
        return
    yield assistant(turn.action, calls, turn.action.text, fields)
    for call, text in zip(calls, results, strict=True):
        yield {"role": "tool", "tool_call_id": call.id, "content": text}


def assistant(
    action: Action, calls: Sequence[ToolCall], text: str, fields: Sequence[str] = REASONING_FIELDS
) -> Message:
    """Return a reply of the model in the form in which it is sent back.

    The reasoning is in the same field as in the reply.
    """
    message: Message = {"role": "assistant", "content": text}
    source = action.extra.get("reasoning_field")
    if action.reasoning and source == INLINE:
        message["content"] = f"<think>\n{action.reasoning}\n</think>\n\n{text}"
    elif action.reasoning and source in fields:
        message[str(source)] = action.reasoning
    if "blocks" in fields and action.extra.get("blocks"):
        message["blocks"] = action.extra["blocks"]
    if calls:
        extras = action.extra.get("call_extras", {})
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
                **({EXTRA_FIELD: extras[call.id]} if call.id in extras else {}),
            }
            for call in calls
        ]
    return message


def _results(calls: Sequence[ToolCall], turn: _Turn, tools: Sequence[str]) -> list[str]:
    """Return the text of each call's message. It is the call's result, or the results of all calls that it wraps."""
    texts = []
    index = 0
    for call in calls:
        count = len(flatten_calls([call], tools))
        texts.append("".join(text for inner in range(index, index + count) for text in turn.results[inner]))
        index += count
    return texts


def with_ids(action: Action, turn: int) -> list[ToolCall]:
    """Give unique ids to an action's calls, and return the calls.

    A missing or repeated id is replaced by nine letters and digits, a form that all servers accept.
    """
    calls: list[ToolCall] = []
    used_ids = {""}
    for index, call in enumerate(action.calls):
        call_id = f"c{turn % 10_000:04d}{index % 10_000:04d}" if call.id in used_ids else call.id
        used_ids.add(call_id)
        calls.append(ToolCall(call.name, call.arguments, call_id))
    return calls


def _arguments(call: ToolCall) -> str:
    """Return the arguments as a JSON object.

    Raw text is wrapped, because some servers fail on other arguments in a history.
    """
    return compact({"unparsed": call.arguments} if isinstance(call.arguments, str) else call.arguments)
