"""The header fields that `ctx1 proxy` passes on, in both directions.

Fields of one connection end at the proxy (RFC 9110, section 7.6.1). Only the proxy itself sends the fields that speak
for it, such as its report. The framing of each message is computed again, so both sides agree on its end.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable

from context_agent.integrations.server.errors import Problem

RawHeaders = list[tuple[bytes, bytes]]
OWN_PREFIX = b"x-context-"
"""The beginning of the proxy's own fields. Clients trust them, so an upstream cannot set one."""
REPORT_HEADER = b"x-context-pruned"
BETA_HEADER = b"anthropic-beta"
"""The field that names features of Anthropic's API."""
_HOP_BY_HOP_FIELDS = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authentication-info", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
))  # fmt: skip
"""Fields that belong to one connection."""
_RECOMPUTED_FIELDS = frozenset((b"host", b"content-length", b"expect"))
"""Fields of a request that the proxy's HTTP client writes itself."""
_BODY_FIELDS = frozenset((b"content-encoding", b"content-digest", b"repr-digest", b"digest", b"content-md5"))
"""Fields of a request that describe the bytes of its body."""
_ORIGIN_FIELDS = frozenset((b"alt-svc", b"strict-transport-security"))
"""Fields of a response that hold for a whole origin. The upstream's origin is not the proxy's."""


def request_headers(headers: Iterable[tuple[bytes, bytes]], *, recoded: bool = False, betas: bytes = b"") -> RawHeaders:
    """Return the fields of a client's request that go to the upstream, with names in lower case.

    Fields for the proxy itself are left out. If the body was `recoded`, its encoding and its digest are left out too.
    `betas` are further features of Anthropic's API. Their field has one line, because some gateways read only one.
    """
    passed = _without_own(_end_to_end(headers, _RECOMPUTED_FIELDS | _BODY_FIELDS if recoded else _RECOMPUTED_FIELDS))
    if not betas:
        return passed
    named = [value for name, value in passed if name == BETA_HEADER]
    return [*(item for item in passed if item[0] != BETA_HEADER), (BETA_HEADER, b",".join([*named, betas]))]


def response_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the fields of an upstream's response that go to the client, with names in lower case.

    Raises:
        Problem: If a field contains a control character, or if two fields state the length of the body.
    """
    fields = [(name.lower(), value) for name, value in headers]
    names = {name for name, _ in fields}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise invalid_answer(
            "the answer states the length of its body twice, with Content-Length and Transfer-Encoding"
        )
    for name, value in fields:
        if _has_control_character(value):
            raise invalid_answer(f"the header field {name.decode('ascii', 'replace')} contains a control character")
    return _without_own(_end_to_end(fields, _ORIGIN_FIELDS))


def _without_own(fields: RawHeaders) -> RawHeaders:
    return [item for item in fields if not item[0].replace(b"_", b"-").startswith(OWN_PREFIX)]


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], dropped: Collection[bytes]) -> RawHeaders:
    """Return the fields, leaving out the `dropped` fields and the fields of the connection.

    The field `Connection` may name further fields of the connection. Some servers read an underscore in a name as a
    hyphen, so `Transfer_Encoding` is left out too.
    """
    fields = [(name.lower(), value) for name, value in headers]
    listed = b",".join(value for name, value in fields if name == b"connection").lower().split(b",")
    gone = _HOP_BY_HOP_FIELDS.union(dropped, (name.strip() for name in listed))
    return [(name, value) for name, value in fields if gone.isdisjoint((name, name.replace(b"_", b"-")))]


def _has_control_character(value: bytes) -> bool:
    """Return True if a value could steer a terminal that reads it as UTF-8 or as Latin-1."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return any(unicodedata.category(character) == "Cc" and character != "\t" for character in text)


def invalid_answer(reason: str) -> Problem:
    """Return the error for an upstream's answer that is not relayed."""
    message = f"the upstream's answer is not relayed: {reason}"
    return Problem(502, "upstream_invalid", message, headers={"Connection": "close"})
