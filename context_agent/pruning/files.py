"""The number of tokens that a file, such as a PDF, takes in a model's window."""

from __future__ import annotations

import base64
import binascii
import re

from context_agent._support.text_cache import TextCache
from context_agent.pruning.images import base64_start

PAGE_TOKENS = 2_000
"""Tokens of a page. Anthropic's documentation says 1,500 to 3,000."""
PAGE_BYTES = 50_000
"""Bytes of a page if the pages of a file cannot be counted."""
MAX_PAGES = 1_000
"""Maximum number of pages that count, because a file may only claim to have more."""
TEXT_TOKEN_BYTES = 4
_PAGE = re.compile(rb"/Type\s{0,4}/Page(?![A-Za-z])")
_PAGE_COUNT = re.compile(rb"/Linearized\b[^>]{0,400}?/N\s{1,4}(\d{1,5})\b")
"""The number of pages at the start of a PDF that is made for the web. The pages themselves may be compressed."""
_START_BYTES = 1_024
_SIZES = TextCache[tuple[int, int]](1_024)
"""The bytes and the pages of files. A conversation has its files in each request."""


def file_tokens(data: str | bytes, media_type: str) -> int:
    """Return the number of tokens that a file takes.

    A text counts a token for each four bytes. Any other file counts `PAGE_TOKENS` for each page.

    Args:
        data: The bytes of the file, its base64 text, a `data:` URL, or an address or id.
        media_type: The media type, or an empty string if it is unknown.
    """
    if isinstance(data, bytes):
        size, pages = _size(data)
    else:
        ((size, pages),) = _SIZES.values([data], lambda texts: [_size(_decoded(text)) for text in texts])
    if media_type.startswith("text/") or (isinstance(data, str) and data[:10].lower().startswith("data:text/")):
        return max(1, size // TEXT_TOKEN_BYTES)
    return PAGE_TOKENS * min(MAX_PAGES, max(1, pages))


def _decoded(data: str) -> bytes:
    """Return the bytes of a file. For an address or an id, return a few bytes without a meaning."""
    encoded = data[base64_start(data) :]
    try:
        return base64.b64decode(encoded.replace("-", "+").replace("_", "/") + "==")
    except (binascii.Error, ValueError):
        return b""


def _size(content: bytes) -> tuple[int, int]:
    """Return the number of bytes, and the number of pages."""
    pages = 0
    if content.startswith(b"%PDF"):
        claimed = _PAGE_COUNT.search(content, 0, _START_BYTES)
        pages = int(claimed[1]) if claimed else sum(1 for _ in _PAGE.finditer(content))
    return len(content), pages or len(content) // PAGE_BYTES
