"""JSON for clients: numbers and texts that JSON or UTF-8 lacks are replaced."""

from __future__ import annotations

import json
import math
from typing import Any

from context_agent._support.extras import extra

with extra("serve"):
    from starlette.responses import JSONResponse


def encode(value: Any) -> bytes:
    """Return the value as JSON in UTF-8. A number that is not finite becomes null, half a surrogate pair `?`.

    Both occur: in the metadata of foreign collections, in the output of a model, in texts that were cut.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Json(JSONResponse):
    """A JSON response, encoded by `encode`."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode(content)
