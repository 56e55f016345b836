"""Other local pruners, for `prune_any.py`, `prune_tools.py` and `prune_sessions.py`.

    pip install headroom-ai claw-compactor langchain

If they need other versions, install them in an environment of their own. A pruner whose package is missing is skipped.

- `headroom`: `headroom.compress` with its defaults, without the model that it would download
- `claw`: the `FusionEngine` of claw-compactor with its defaults
- `clear`: LangChain's `ClearToolUsesEdit`, which keeps the largest number of results that fits in the budget
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from prune_conversations import COUNTER, Message

MODEL = "gpt-4o"


def results_of(messages: Sequence[Message]) -> list[str]:
    """Return the texts of the tool results."""
    return [message["content"] for message in messages if message["role"] == "tool"]


def with_results(messages: Sequence[Message], changed: Sequence[Message]) -> list[Message]:
    """Return the messages with the tool results of `changed`. Messages that do not change are the same objects."""
    return [
        {**old, "content": new["content"]} if old["role"] == "tool" and new["content"] != old["content"] else old
        for old, new in zip(messages, changed, strict=True)
    ]


def clear_tool_uses(messages: Sequence[Message], budget: int, *, keep: int | None = None) -> list[Message] | None:
    """Return the messages that `ClearToolUsesEdit` leaves. If the package is missing, return None.

    Args:
        messages: The conversation.
        budget: The number of tokens of tool results that may stay.
        keep: The number of results that stay. Defaults to the largest number that fits in the budget.
    """
    try:
        from langchain.agents.middleware.context_editing import ClearToolUsesEdit
        from langchain_core.messages import convert_to_messages, convert_to_openai_messages
    except ImportError:
        return None
    if keep is None:
        sizes = [COUNTER.count(text) for text in reversed(results_of(messages))]
        keep = max(1, sum(sum(sizes[: number + 1]) <= budget for number in range(len(sizes))))
    edited = convert_to_messages(list(messages))
    edit = ClearToolUsesEdit(trigger=budget, keep=keep)
    edit.apply(edited, count_tokens=lambda items: sum(COUNTER.count(str(item.content)) for item in items))
    return with_results(messages, convert_to_openai_messages(edited))


def headroom(messages: Sequence[Message], budget: int) -> list[Message] | None:
    """Return the messages that headroom leaves. It ignores the budget. If the package is missing, return None."""
    logging.getLogger("headroom").setLevel(logging.CRITICAL)
    try:
        from headroom import compress
    except ImportError:
        return None
    compressed: Any = compress(list(messages), model=MODEL, kompress_model="disabled")
    return with_results(messages, compressed.messages)


@cache
def _fusion_engine() -> Any:
    from claw_compactor.fusion.engine import FusionEngine

    return FusionEngine()


def claw(messages: Sequence[Message], budget: int) -> list[Message] | None:
    """Return the messages that claw-compactor leaves. It ignores the budget. If the package is missing, return None."""
    try:
        engine = _fusion_engine()
    except ImportError:
        return None
    texts = [{"role": "tool", "content": text} for text in results_of(messages)]
    compressed = iter(engine.compress_messages(texts)["messages"])
    return with_results(messages, [next(compressed) if it["role"] == "tool" else it for it in messages])


RIVALS: dict[str, Callable[[Sequence[Message], int], list[Message] | None]] = {
    "clear": clear_tool_uses,
    "headroom": headroom,
    "claw": claw,
}


def tokens_left(rival: str, messages: Sequence[Message], budget: int) -> int | None:
    """Return the tokens of the tool results that a rival leaves. If its package is missing, return None."""
    left = RIVALS[rival](messages, budget)
    return None if left is None else max(1, sum(map(COUNTER.count, results_of(left))))


def leaves(value: Any) -> list[str]:
    """Return the scalars of a JSON value as texts."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
    return [str(value)]


def says(text: str, part: str) -> bool:
    """Return True if a text still contains a part.

    The part may be unchanged or escaped as JSON. If it is a JSON record, its values may also be together on one line.
    """
    if part in text or json.dumps(part, ensure_ascii=False)[1:-1] in text:
        return True
    try:
        values = leaves(json.loads(part))
    except ValueError:
        return False
    return any(all(value in line for value in values) for line in text.split("\\n" if "\n" not in text else "\n"))


def validity(before: Sequence[Message], after: Sequence[Message]) -> float:
    """Return the share of results that answer the same call, and are still JSON if they were JSON before."""
    if [it.get("tool_call_id") for it in before] != [it.get("tool_call_id") for it in after]:
        return 0.0
    pairs = [(old["content"], new["content"]) for old, new in zip(before, after, strict=True) if old["role"] == "tool"]
    return sum(_is_json(new) or not _is_json(old) for old, new in pairs) / max(1, len(pairs))


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except (TypeError, ValueError):
        return False
    return True
