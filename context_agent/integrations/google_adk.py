"""Pruning for Google's Agent Development Kit, as the filter of its `ContextFilterPlugin`.

Needs the extra `google-adk`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_agent._support.extras import extra
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.pruning.pruner import DEFAULT_BUDGET

with extra("google-adk"):
    from google.genai.types import Content, FunctionResponse

Message = dict[str, Any]


class ContentPruningFilter:
    """A filter that prunes function responses and large arguments in each model request. The session keeps all of them.

    Any number of agents and sessions can share one filter. The filter blocks the event loop while it judges passages.

    Example:
        ```python
        App(name="harbor", root_agent=agent, plugins=[ContextFilterPlugin(custom_filter=ContentPruningFilter())])
        ```
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a filter with a pruner for each conversation.

        Args:
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        self._pruners = ConversationPruners.of(budget, **options)

    def __call__(self, contents: list[Content]) -> list[Content]:
        """Return the contents with pruned responses and arguments. Contents that do not change are the same objects."""
        changed = self._pruners.changed_parts([*_chat(contents)])
        return [
            _rewritten(content, changed[row]) if row in changed else content for row, content in enumerate(contents)
        ]


def _chat(contents: Sequence[Content]) -> Iterator[tuple[Message, int, list[int]]]:
    """Yield the contents as chat messages, each with the number of its content and the numbers of its parts.

    The parts are the calls of the message, or the response.

    The kit removes the ids of calls that it made itself from a request. A response without the id of an open call
    answers the first open call of its function.
    """
    open_calls: dict[str, deque[str]] = {}
    for row, content in enumerate(contents):
        parts = content.parts or []
        calls: list[Message] = []
        numbers: list[int] = []
        texts = [part.text for part in parts if part.text]
        for number, part in enumerate(parts):
            if (call := part.function_call) is not None:
                call_id = call.id or f"{row}.{number}"
                open_calls.setdefault(call.name or "", deque()).append(call_id)
                arguments = _json(call.args)
                if part.thought_signature:
                    # The model's server checks the call, so it must stay. It counts as words of the agent.
                    texts.append(f"{call.name} {arguments}")
                    arguments = ""
                function = {"name": call.name, "arguments": arguments}
                calls.append({"id": call_id, "type": "function", "function": function})
                numbers.append(number)
            elif (response := part.function_response) is not None:
                waiting = open_calls.get(response.name or "", deque())
                call_id = response.id or ""
                if call_id in waiting:
                    waiting.remove(call_id)
                else:
                    call_id = waiting.popleft() if waiting else f"{row}.{number}"
                yield {"role": "tool", "tool_call_id": call_id, "content": _text_of(response)}, row, [number]
        if texts or calls:
            role = "assistant" if content.role == "model" else "user"
            yield {"role": role, "content": "\n".join(texts), **({"tool_calls": calls} if calls else {})}, row, numbers


def _text_of(response: FunctionResponse) -> str:
    """Return the function's result, as text or as JSON."""
    value = response.response
    if _is_text(value):
        return str(value["result"])
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text(value: Mapping[str, Any] | None) -> bool:
    """Return True if the function returned a text. The kit wraps a text in a dict."""
    return value is not None and value.keys() == {"result"} and isinstance(value["result"], str)


def _rewritten(content: Content, texts: Mapping[int, str]) -> Content:
    """Return a copy of the content with new texts in some parts.

    `texts` are the new texts, by the number of the part.
    """
    parts = list(content.parts or [])
    for number, text in texts.items():
        if (call := parts[number].function_call) is not None:
            changed = {"function_call": call.model_copy(update={"args": json.loads(text)})}
        else:
            response = parts[number].function_response
            value = _value_of(text, is_text=_is_text(response.response))
            changed = {"function_response": response.model_copy(update={"response": value})}
        parts[number] = parts[number].model_copy(update=changed)
    return content.model_copy(update={"parts": parts})


def _value_of(text: str, *, is_text: bool) -> dict[str, Any]:
    """Return the response for a pruned text. JSON that was pruned by lines may no longer be JSON."""
    if not is_text:
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if isinstance(value, dict):
            return value
    return {"result": text}
