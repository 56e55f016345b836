"""JSON for clients. Values that JSON or UTF-8 cannot express are replaced."""

from __future__ import annotations

from typing import Any

from context_agent._support.extras import extra
from context_agent._support.strict_json import strict_json

with extra("serve"):
    from starlette.responses import JSONResponse


def encode(value: Any) -> bytes:
    """Return the value as JSON in UTF-8.

    A number that is not finite becomes null, and half of a surrogate pair becomes `?`. Both occur in collections of
    other programs, in the output of models, and in truncated texts.
    """
    return strict_json(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Json(JSONResponse):
    """A JSON response that is encoded by `encode`."""

    def render(self, content: Any) -> bytes:
        """Return the body of the response."""
        return encode(content)
