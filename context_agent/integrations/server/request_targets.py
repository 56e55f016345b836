"""The request targets that `ctx1 proxy` relays. No server can read such a path as a path outside its base path.

Servers read a path in different ways. Some decode it twice, take a backslash for a slash, or cut a segment at a
semicolon. Some replace a character that only looks like a dot with a dot. The proxy does not know how its upstream
reads a path. If one of these readings has a parent segment, the proxy refuses the path. It sends every other path byte
for byte.
"""

from __future__ import annotations

import re
import unicodedata

MAX_ENCODINGS = 3
"""How many times a path may be percent-encoded. Clients encode once, and a proxy in between may do it again."""
_PERCENT_ENCODED = re.compile(rb"%(?:u([0-9A-Fa-f]{4})|([0-9A-Fa-f]{2}))")
"""A percent-encoded byte, or the form `%uXXXX` that IIS reads."""
_OVERLONG_UTF8 = re.compile(rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")
"""The beginning of a character with more bytes than UTF-8 allows, such as `%c0%ae` for a dot."""
_LOOKALIKE_SEPARATORS = str.maketrans({**dict.fromkeys("\\⁄∕⧸∖⧵⧹¥₩", "/"), "。": "."})
"""What a server may read as a slash or a dot, beyond what Unicode's compatibility forms already fold."""
_PARENT_SEGMENT = re.compile(r"/\.\.+(?=[/;:?#]|$)")
_EMPTY_FIRST_SEGMENT = re.compile(r"/(?:\.(?:;[^/]*)?/)*+(?:;[^/]*)?/")
"""An empty first segment: a server may read what follows it as the name of a host."""


def path_fault(path: bytes) -> str:
    """Return the reason why a server could read the path as one outside its base path, or an empty string.

    Args:
        path: The raw path of a request's target, without the query.
    """
    if not path.startswith(b"/"):
        return "the path does not begin with a slash. Send the path alone, without a scheme and a host."
    if b"#" in path:
        return "the path contains a fragment (#). Send the # percent-encoded."
    for _ in range(MAX_ENCODINGS + 1):
        if _OVERLONG_UTF8.search(path):
            return "the path contains a character in an overlong form, which is not UTF-8"
        text = unicodedata.normalize("NFKC", path.decode("utf-8", "surrogateescape")).translate(_LOOKALIKE_SEPARATORS)
        if fault := _reading_fault(text):
            return fault
        folded = text.encode("utf-8", "surrogateescape")
        path = _PERCENT_ENCODED.sub(_decoded, folded)
        if path == folded:
            return ""
    return f"the path is percent-encoded more than {MAX_ENCODINGS} times. Send it encoded once."


def _reading_fault(text: str) -> str:
    """Return the reason to reject one interpretation of the path, or an empty string.

    A path is rejected if it contains a control character, a parent segment or a host.
    """
    if any(unicodedata.category(character) == "Cc" for character in text):
        return "the path contains a control character"
    # Windows ignores spaces at the end of a name, and some filters drop characters without a width.
    visible = "".join(c for c in text if not c.isspace() and unicodedata.category(c) != "Cf")
    if _PARENT_SEGMENT.search(visible):
        return "the path has a parent segment (..), which could lead out of the upstream's base path"
    if _EMPTY_FIRST_SEGMENT.match(visible):
        return "the path begins with two slashes, so the next segment could be read as a host"
    return ""


def _decoded(encoded: re.Match[bytes]) -> bytes:
    """Return the bytes of one percent-encoded character."""
    wide, narrow = encoded.groups()
    return chr(int(wide, 16)).encode("utf-8", "replace") if wide else bytes((int(narrow, 16),))
