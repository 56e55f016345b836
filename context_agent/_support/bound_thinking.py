"""Models of Anthropic that bind their thinking to the conversation before it.

If a message before a thinking block changes, the API refuses the request, unless the request lets it drop this thinking
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking). A model binds its thinking from the first
request on, so a conversation with such a model must stay as it is from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FIRST_BOUND_VERSION = (5, 1)
"""The first version of Claude that binds its thinking. All later versions do."""
DROP_THINKING: Mapping[str, str] = {"prefix_mismatch_behavior": "drop_block"}
"""The value of `thinking.block_binding` that lets the API drop thinking."""
DROP_THINKING_BETA = "thinking-binding-controls-2026-08-01"
"""The feature of Anthropic's API that `DROP_THINKING` belongs to. The header `anthropic-beta` names it."""
_THINKING_BLOCKS = ("thinking", "redacted_thinking")
_CLAUDE = re.compile(r"claude-[a-z]{1,20}-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
"""The family and the version of a model. In the names of older models, the version comes before the family."""


def bound_model(request: Mapping[str, Any], model: str = "") -> str:
    """Return the model's name if it binds its thinking in this request. Otherwise return an empty string.

    Args:
        request: The body of a request to Anthropic's API or to Bedrock.
        model: The model in the path. A model in the body takes precedence.
    """
    named = request.get("model")
    found = _CLAUDE.search(named if isinstance(named, str) else model)
    if found is None or (int(found[1]), int(found[2] or 0)) < FIRST_BOUND_VERSION:
        return ""
    return "" if _thinking(request).get("type") == "disabled" and not _has_thinking(request) else found[0]


def may_drop_thinking(request: Mapping[str, Any]) -> bool:
    """Return True if a request lets the API drop thinking whose conversation has changed."""
    binding = _thinking(request).get("block_binding")
    return isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block"


def can_drop_thinking(request: Mapping[str, Any]) -> bool:
    """Return True if the permission can be added to a request to Anthropic's own API.

    Bedrock has no header for it, and thinking that is turned off has no such field.
    """
    is_of_bedrock = str(request.get("anthropic_version")).startswith("bedrock")
    return not is_of_bedrock and _thinking(request).get("type") != "disabled"


def with_dropped_thinking(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request's thinking with the permission to drop it. Without this field, the model thinks adaptively."""
    thinking = request.get("thinking")
    return {**(thinking if isinstance(thinking, Mapping) else {"type": "adaptive"}), "block_binding": DROP_THINKING}


def _thinking(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the field `thinking`. In Bedrock's Converse API, it is among the fields of the model."""
    holder = request.get("additionalModelRequestFields")
    thinking = (holder if isinstance(holder, Mapping) else request).get("thinking")
    return thinking if isinstance(thinking, Mapping) else {}


def _has_thinking(request: Mapping[str, Any]) -> bool:
    messages = request.get("messages")
    contents = (message.get("content") for message in messages or () if isinstance(message, Mapping))
    blocks = (block for content in contents if isinstance(content, list) for block in content)
    return any(isinstance(block, Mapping) and block.get("type") in _THINKING_BLOCKS for block in blocks)
