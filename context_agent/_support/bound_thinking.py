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
CONVERSE_FIELDS = "additionalModelRequestFields"
"""The field of requests to Bedrock's Converse API that has the model's own fields."""
_CLAUDE = re.compile(r"claude-[a-z]{1,20}-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
"""The family and the version of a model. In the names of older models, the version comes before the family."""


def binds_thinking(request: Mapping[str, Any]) -> bool:
    """Return True if the model of a request to Anthropic's API binds its thinking, and if it thinks."""
    found = _CLAUDE.search(str(request.get("model")))
    if found is None or (int(found[1]), int(found[2] or 0)) < FIRST_BOUND_VERSION:
        return False
    thinking = request.get("thinking")
    return not isinstance(thinking, Mapping) or thinking.get("type") != "disabled"


def fields_to_drop_thinking(request: Mapping[str, Any], *, bedrock: str = "") -> dict[str, Any]:
    """Return the fields of a request that let the API drop thinking.

    Only adaptive thinking has this permission. With another kind, return nothing. A request without a kind thinks
    adaptively.

    Args:
        request: The body of the request.
        bedrock: The operation of Bedrock, `invoke` or `converse`. It reads the feature in the body. For all other
            servers, the header has to name `DROP_THINKING_BETA`.
    """
    is_converse = bedrock == "converse"
    own = request.get(CONVERSE_FIELDS) if is_converse else request
    holder = own if isinstance(own, Mapping) else {}
    found = holder.get("thinking")
    thinking = found if isinstance(found, Mapping) else {"type": "adaptive"}
    if "messages" not in request or thinking.get("type", "adaptive") != "adaptive":
        return {}
    fields: dict[str, Any] = {"thinking": {**thinking, "block_binding": DROP_THINKING}}
    if bedrock:
        betas = holder.get("anthropic_beta")
        others = [beta for beta in betas if beta != DROP_THINKING_BETA] if isinstance(betas, list) else []
        fields["anthropic_beta"] = [*others, DROP_THINKING_BETA]
    return {CONVERSE_FIELDS: {**holder, **fields}} if is_converse else fields
