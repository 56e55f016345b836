"""Decompression of HTTP request bodies, with a bound on the size that they unpack to."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from context_agent._support.extras import extra

if TYPE_CHECKING:
    import zstandard

MOST_ENCODINGS = 3
"""Maximum number of encodings of one body that are undone."""
SMALLEST_PIECE = 256
"""The bytes of a stream that are decoded first. The following pieces grow."""
LARGEST_WINDOW = 1 << 27
"""Maximum number of bytes that a zstd decoder may allocate.

RFC 9659 allows 8 MB for HTTP, but the zstd tools accept up to 128 MB by default.
"""
TRUNCATED = "the compressed body is truncated. Send all of it."


class UndecodableBody(ValueError):
    """A body that is damaged, too large when unpacked, or in an unknown encoding."""


def decoded_body(body: bytes, encodings: str, limit: int) -> bytes:
    """Return the body without its encodings.

    Args:
        body: The bytes of the request.
        encodings: The value of `Content-Encoding`: names in the order in which they were applied.
        limit: Maximum number of bytes that the body may have after each step.

    Raises:
        UndecodableBody: If the body cannot be decoded within the limit.
    """
    names = [name.strip().lower() for name in encodings.split(",") if name.strip()]
    if len(names) > MOST_ENCODINGS:
        raise UndecodableBody(f"the body must have at most {MOST_ENCODINGS} encodings; got {len(names)}")
    for name in reversed(names):
        if name == "identity":
            continue
        if name not in _DECODERS:
            raise UndecodableBody(f"the encoding of the body must be gzip, deflate, br or zstd; got {name[:20]!r}")
        try:
            body = _DECODERS[name](body, limit + 1)
        except UndecodableBody:
            raise
        except Exception as error:
            # Each library raises its own errors.
            raise UndecodableBody(f"the body is not valid {name} ({error}). Compress it again.") from error
        if len(body) > limit:
            raise UndecodableBody(
                f"the body unpacks to more than {limit:,} bytes. Send less, or raise --max-body of the server."
            )
    return body


def _gunzip(body: bytes, most: int) -> bytes:
    return _inflate(body, most, zlib.MAX_WBITS | 16)


def _inflate_deflate(body: bytes, most: int) -> bytes:
    """Undo `deflate`: a zlib stream, or a raw deflate stream, which some clients send."""
    try:
        return _inflate(body, most, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(body, most, -zlib.MAX_WBITS)


def _inflate(body: bytes, most: int, window: int) -> bytes:
    parts: list[bytes] = []
    position = 0
    while position < len(body) and most > 0:
        # A body may consist of several streams in a row. The decoder copies what follows the end of a stream, so it
        # gets pieces that grow with the stream.
        stream, size = zlib.decompressobj(window), SMALLEST_PIECE
        while most > 0 and not stream.eof:
            if position == len(body):
                raise UndecodableBody(TRUNCATED)
            piece = body[position : position + size]
            parts.append(stream.decompress(piece, most))
            most -= len(parts[-1])
            position += len(piece) - len(stream.unused_data)
            size *= 2
    return b"".join(parts)


def _unzstd(body: bytes, most: int) -> bytes:
    with extra("serve"):
        import zstandard
    decoder = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    with decoder.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
        unpacked = bytes(reader.read(most))
    if len(unpacked) < most:
        _require_whole_frames(body, decoder)
    return unpacked


def _require_whole_frames(body: bytes, decoder: zstandard.ZstdDecompressor) -> None:
    """Raise an error if the last frame of a zstd body is truncated, which a stream reader does not notice.

    The body must fit into the limit, because nothing bounds what one piece of it unpacks to.
    """
    position = 0
    while position < len(body):
        frame, size = decoder.decompressobj(), SMALLEST_PIECE
        while not frame.eof:
            if position == len(body):
                raise UndecodableBody(TRUNCATED)
            piece = body[position : position + size]
            frame.decompress(piece)
            position += len(piece) - len(frame.unused_data)
            size *= 2


def _unbrotli(body: bytes, most: int) -> bytes:
    with extra("serve"):
        import brotli
    decoder = brotli.Decompressor()
    unpacked = bytearray(decoder.process(body, output_buffer_limit=most))
    while len(unpacked) < most and not decoder.is_finished():
        if not (more := decoder.process(b"", output_buffer_limit=most - len(unpacked))):
            raise UndecodableBody(TRUNCATED)
        unpacked += more
    return bytes(unpacked)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate_deflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
