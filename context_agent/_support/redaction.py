"""Removal of secrets from what a server sends back."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

T = TypeVar("T")

REDACTED = "[key]"
SHORTEST_IN_ERRORS = 4
"""Minimum number of characters of a key that is removed from errors.

Shorter keys protect nothing, and removing them would make error messages unreadable.
"""
SHORTEST_IN_REPLIES = 8
"""Minimum number of characters of a key that is removed from replies.

Placeholders such as `none` or `EMPTY` are common as keys, and they are also common words in a reply.
"""


class Redactor:
    """A filter that removes secrets from what a server sent.

    It recognizes a secret verbatim, URL-quoted, JSON-escaped and in base64. This protects against servers that quote a
    key. It cannot protect against a server that hides the key, which could also store it.

    Args:
        secrets: The secrets to remove.
        shortest: Minimum number of characters of a secret that is removed.
    """

    def __init__(self, secrets: Iterable[str], shortest: int) -> None:
        spellings = {text for secret in secrets if len(secret) >= shortest for text in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __repr__(self) -> str:
        return "Redactor()"

    def text(self, text: str) -> str:
        """Return the text with each secret replaced by `[key]`."""
        for spelling in self._spellings:
            text = text.replace(spelling, REDACTED)
        return text

    def redact_json(self, value: object) -> None:
        """Redact all strings in decoded JSON, in place.

        The method does not recurse, so the depth of nesting does not matter.
        """
        pending = [value] if self._spellings else []
        while pending:
            container = pending.pop()
            if isinstance(container, dict):
                self._redact_names(container)
            items = container.items() if isinstance(container, dict) else enumerate(_as_list(container))
            for key, item in list(items):
                if isinstance(item, str):
                    self._redact_item(container, key, item)
                elif isinstance(item, dict | list):
                    pending.append(item)

    def redact_value(self, value: T) -> T:
        """Return a dataclass value with all strings in its fields redacted. Other values are returned unchanged.

        Redacting the JSON alone is not enough, because a reply is assembled from pieces, and arguments are JSON inside
        JSON.
        """
        if not self._spellings or not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        fields = {field.name: self._copy(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)

    def _copy(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._copy(key): self._copy(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self._copy, value))
        return self.redact_value(value)

    def _redact_item(self, container: Any, key: Any, item: str) -> None:
        if (text := self.text(item)) != item:
            container[key] = text

    def _redact_names(self, container: dict[str, Any]) -> None:
        for name in [name for name in container if self.text(name) != name]:
            container[self.text(name)] = container.pop(name)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _spellings(secret: str) -> Iterator[str]:
    escaped = json.dumps(secret)[1:-1]
    quoted = quote(secret, safe="")
    yield from (secret, escaped, escaped.replace("/", "\\/"), quoted, quoted.lower(), quote_plus(secret))
    yield from _base64_spellings(secret.encode())


def _base64_spellings(secret: bytes) -> Iterator[str]:
    """Yield the base64 spellings of a secret at each of the three offsets in a longer text.

    The characters at the edges are left out, because they depend on the text around the secret.
    """
    for offset in range(3):
        groups = (bytes(offset) + secret)[: (offset + len(secret)) // 3 * 3]
        for encode in (b64encode, urlsafe_b64encode):
            text = encode(groups).decode()[offset + 1 if offset else 0 :]
            if len(text) >= SHORTEST_IN_REPLIES:
                yield text
