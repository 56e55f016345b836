"""JSON for clients. Values that JSON or UTF-8 cannot express are replaced."""

from __future__ import annotations

import json
import math
from typing import Any

from context_agent._support.extras import extra

with extra("serve"):
    from starlette.responses import JSONResponse


def encode(value: Any) -> bytes:
    """Return the value as JSON in UTF-8.

    A number that is not finite becomes null, and half of a surrogate pair becomes `?`. Both occur in collections of
    other programs, in the output of models, and in truncated texts.
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
    """A JSON response that is encoded by `encode`."""

    def render(self, content: Any) -> bytes:
        """Return the body of the response."""
        return encode(content)
