"""Models of Anthropic that bind their thinking to the conversation before it.

If a message before a thinking block changes, the API can refuse the request, unless the request lets it drop this
thinking (https://platform.claude.com/docs/en/build-with-claude/preserved-thinking). Whether it refuses depends on the
model and on the age of the account.
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
REFUSED_THINKING = "bound to a different conversation"
"""What the API says if a message before a thinking block has changed."""
_CLAUDE = re.compile(r"claude-[a-z]{1,20}-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
"""The family and the version of a model. In the names of older models, the version comes before the family."""


def binds_thinking(request: Mapping[str, Any]) -> bool:
    """Return True if the model of a request to Anthropic's API binds its thinking, and if it thinks."""
    found = _CLAUDE.search(str(request.get("model")))
    if found is None or (int(found[1]), int(found[2] or 0)) < FIRST_BOUND_VERSION:
        return False
    thinking = request.get("thinking")
    return not isinstance(thinking, Mapping) or thinking.get("type") != "disabled"


def can_drop_thinking(request: Mapping[str, Any]) -> bool:
    """Return True if the permission can be added to a request to Anthropic's own API.

    Only adaptive thinking has this field, and Bedrock has no header for it.
    """
    is_of_bedrock = "messages" not in request or str(request.get("anthropic_version")).startswith("bedrock")
    thinking = request.get("thinking")
    type_name = thinking.get("type", "adaptive") if isinstance(thinking, Mapping) else "adaptive"
    return not is_of_bedrock and type_name == "adaptive" and "additionalModelRequestFields" not in request


def with_dropped_thinking(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request's thinking with the permission to drop it. Without this field, the model thinks adaptively."""
    thinking = request.get("thinking")
    return {**(thinking if isinstance(thinking, Mapping) else {"type": "adaptive"}), "block_binding": DROP_THINKING}
