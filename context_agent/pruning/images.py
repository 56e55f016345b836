"""The number of tokens that an image takes in a model's window, by the provider's published rule."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from typing import Literal

UNKNOWN_SIZE = 1_100
"""Tokens of an image whose size is unknown, such as one at an address. A screenshot has about as many."""
LOW_DETAIL = 85
"""Tokens of an image of any size that OpenAI is asked to read with low detail."""
_HEADER_CHARACTERS = 88_000
"""The number of base64 characters that are decoded to find the size. A JPEG may have 64 kB of metadata before it."""
_DATA_URL = re.compile(r"data:[\w.+/-]{0,100}(?:;[\w=.+-]{0,100}){0,4};base64,", re.I)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG that precede its size."""

ImageRule = Literal["pixels", "tiles", "squares"]
"""The rule that counts an image's tokens.

The rules are one token for each 750 pixels (Anthropic), tiles of 512 pixels (OpenAI), and squares of 768 pixels
(Gemini).
"""


def image_tokens(data: str | bytes, rule: ImageRule) -> int:
    """Return the number of tokens that an image takes.

    Args:
        data: The bytes of the image, its base64 text, a `data:` URL, or an address.
        rule: The provider's rule.

    Returns:
        The number of tokens, or `UNKNOWN_SIZE` if the size of the image cannot be read.
    """
    size = image_size(_header(data))
    return UNKNOWN_SIZE if size is None else _RULES[rule](*size)


def _header(data: str | bytes) -> bytes:
    if isinstance(data, bytes):
        return data[:_HEADER_CHARACTERS]
    start = base64_start(data)
    encoded = data[start : start + _HEADER_CHARACTERS]
    try:
        return base64.b64decode(encoded[: len(encoded) // 4 * 4].replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def base64_start(data: str) -> int:
    """Return the index at which the base64 text of a `data:` URL begins. For any other text, return 0."""
    match = _DATA_URL.match(data)
    return match.end() if match else 0


def image_size(header: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, GIF, WebP or JPEG in pixels. For other bytes, return None."""
    try:
        if header.startswith(b"\x89PNG\r\n\x1a\n"):
            size = struct.unpack(">II", header[16:24])
        elif header[:6] in (b"GIF87a", b"GIF89a"):
            size = struct.unpack("<HH", header[6:10])
        elif header[:4] == b"RIFF" and header[8:12] == b"WEBP":
            size = _webp_size(header)
        elif header.startswith(b"\xff\xd8"):
            size = _jpeg_size(header)
        else:
            return None
    except (struct.error, IndexError):
        return None
    width, height = size
    return (width, height) if width > 0 and height > 0 else None


def _webp_size(header: bytes) -> tuple[int, int]:
    form = header[12:16]
    if form == b"VP8X":
        return int.from_bytes(header[24:27], "little") + 1, int.from_bytes(header[27:30], "little") + 1
    if form == b"VP8L":
        bits = struct.unpack("<I", header[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack("<HH", header[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _jpeg_size(header: bytes) -> tuple[int, int]:
    position = 2
    while header[position] == 0xFF:
        marker, length = header[position + 1], struct.unpack(">H", header[position + 2 : position + 4])[0]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", header[position + 5 : position + 9])
            return width, height
        position += 2 + max(2, length)
    return 0, 0


def _by_pixels(width: int, height: int) -> int:
    """Return the tokens by Anthropic's rule: one for each 750 pixels.

    The image is first scaled to at most 1,568 pixels on a side and 1.15 megapixels.
    """
    scale = min(1.0, 1_568 / max(width, height), math.sqrt(1_150_000 / (width * height)))
    return max(1, math.ceil(width * height * scale**2 / 750))


def _by_tiles(width: int, height: int) -> int:
    """Return the tokens by OpenAI's rule for high detail: 85, and 170 for each tile of 512 pixels.

    The image is first scaled to at most 2,048 pixels on a side and 768 pixels on the shorter side.
    """
    scale = min(1.0, 2_048 / max(width, height))
    scale *= min(1.0, 768 / max(1.0, min(width, height) * scale))
    return 85 + 170 * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def _by_squares(width: int, height: int) -> int:
    """Return the tokens by Gemini's rule: 258 for a small image, otherwise 258 for each square of 768 pixels."""
    if max(width, height) <= 384:
        return 258
    return 258 * min(16, math.ceil(width / 768) * math.ceil(height / 768))


_RULES = {"pixels": _by_pixels, "tiles": _by_tiles, "squares": _by_squares}
