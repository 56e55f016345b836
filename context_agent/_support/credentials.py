"""Rules for API keys: which key goes to which server, and which parts of an address are secret.

All chat, token, embedding, reranker and judge calls follow one convention. By default, `OPENAI_API_KEY` goes only to
https://api.openai.com, and `ANTHROPIC_API_KEY` only to https://api.anthropic.com. Any other server gets a key only from
an environment variable that the user named for it. Users name it with `api_key_env=`, with `--api-key-env`, or with
`?api_key_env=NAME` on the address of an embedder or a reranker. Keys are read from the environment for each request and
are stored nowhere. The module `redaction` removes keys from what a server sends back.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx

from context_agent._support.arguments import require_type
from context_agent.errors import ConfigError

SHORTEST_IN_QUERY = 16
"""Minimum number of characters of a value in an address's query that is treated as a secret."""
_PARAMETER = "api_key_env="
_lent: dict[str, str] = {}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Vendor:
    """The rules of a vendor's API for keys and headers.

    Attributes:
        host: The vendor's own host.
        variable: The environment variable whose key goes only to this host.
        key_header: The name of the header with the key.
        key_prefix: The text before the key in this header.
        headers: Headers that go with every request.
    """

    host: bytes
    variable: str
    key_header: str
    key_prefix: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def request_headers(self, key: str) -> dict[str, str]:
        """Return the headers of a request. An empty key is not sent."""
        return {**self.headers, **({self.key_header: f"{self.key_prefix}{key}"} if key else {})}


OPENAI = Vendor(b"api.openai.com", "OPENAI_API_KEY", "Authorization", "Bearer ")
ANTHROPIC = Vendor(b"api.anthropic.com", "ANTHROPIC_API_KEY", "x-api-key", headers={"anthropic-version": "2023-06-01"})
"""Anthropic's API. The version is the one that the official client sends."""


def split_key_variable(address: str) -> tuple[str, str | None]:
    """Return an address without its `api_key_env=NAME` parameter, and the name.

    Without the parameter, the name is None.
    """
    try:
        parts = urlsplit(address)
    except ValueError:  # the address is refused when it is used
        return address, None
    pairs = [pair for pair in parts.query.split("&") if pair]
    names = [pair.removeprefix(_PARAMETER) for pair in pairs if pair.startswith(_PARAMETER)]
    if not names:
        return address, None
    query = "&".join(pair for pair in pairs if not pair.startswith(_PARAMETER))
    return urlunsplit(parts._replace(query=query)), names[-1]


def key_variable(url: httpx.URL, api_key_env: str | None, vendor: Vendor = OPENAI) -> str | None:
    """Return the environment variable with the key for a server. If the server gets no key, return None.

    Args:
        url: The address of the server.
        api_key_env: The variable that the user named for this server.
        vendor: The vendor whose API the server speaks. The vendor's own variable is used only for the vendor's own
            host.
    """
    if api_key_env:
        return checked_variable(api_key_env)
    official = url.scheme == "https" and url.raw_host == vendor.host and url.port in (None, 443)
    return vendor.variable if official else None


def checked_variable(name: str) -> str:
    """Return the name of an environment variable.

    Raises:
        ConfigError: If it is not a valid name. The message does not show the value, because it may be a key.
    """
    if _VARIABLE.fullmatch(name) is None:
        raise ConfigError(
            "api_key_env must be the name of an environment variable (letters, digits and underscores). Put the key "
            "into a variable and pass the variable's name. The value is not shown because it may be a key."
        )
    return name


def read_key(variable: str | None) -> str:
    """Return the key in an environment variable, or the key that was lent under this name.

    If there is no key, return "".
    """
    return (_lent.get(variable) or os.environ.get(variable, "")).strip() if variable else ""


@contextmanager
def lent_key(key: str) -> Iterator[str]:
    """Lend a key within this process, and yield a name that is used like a variable's name until the block ends.

    Unlike an environment variable, the key is not inherited by child processes.
    """
    name = f"LENT_{uuid4().hex}"
    _lent[name] = key
    try:
        yield name
    finally:
        del _lent[name]


def rejected_key_hint(variable: str | None) -> str:
    """Return advice on how to fix a 401 or 403 from an embedding or reranking server."""
    if variable is None:
        return (
            "No key was sent. Name the environment variable that holds the key with ?api_key_env=NAME at the end of "
            "the address, or with api_key_env= in Python."
        )
    if not read_key(variable):
        return f"The key is read from the environment variable {variable}, which is not set. Set it."
    return (
        f"The key comes from the environment variable {variable}. Correct it, or name another variable with "
        "?api_key_env=NAME."
    )


def checked_address(address: str) -> httpx.URL:
    """Return the address of an HTTP server.

    Raises:
        ConfigError: If the address is invalid. The message shows no user, password or query.
    """
    require_type(address, "address", str, "the address of a server")
    try:
        url = httpx.URL(address.strip())
        is_port = url.port is None or 0 < url.port < 65_536
        # httpx escapes what no name of a host has, such as a space. The zone of an IPv6 address may follow a "%".
        is_host = bool(url.host) and ("%" not in url.host or ":" in url.host)
        valid = url.scheme in {"http", "https"} and is_host and is_port and not url.fragment
    except (httpx.InvalidURL, ValueError):
        valid = False
    if not valid:
        public = address.rpartition("@")[2].partition("?")[0]
        raise ConfigError(f"the server's address must look like http://localhost:8000/v1; got {public!r}")
    return url


def shown_address(url: httpx.URL) -> str:
    """Return the address without the parts that may be secret: user, password and query."""
    return str(url.copy_with(username=None, password=None, query=None))


def secrets_in(url: httpx.URL) -> Iterator[str]:
    """Yield the secrets in an address.

    These are its password, the user and password as basic authentication sends them, and long values in its query.
    """
    if url.password:
        yield url.password
        yield b64encode(url.userinfo).decode()
    yield from (value for _, value in url.params.multi_items() if len(value) >= SHORTEST_IN_QUERY)
