"""Checks of the web pages that may call a server of this package.

A web page can make its user's browser send requests, even to the user's own machine. The browser names the page in
`Origin` and `Sec-Fetch-Site`, which no script can change. Programs send neither field, and these checks let them pass.

The order of the checks is that of Go's `http.CrossOriginProtection` (Filippo Valsorda, 2025).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping

from context_agent.errors import ConfigError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Names that always mean this machine. If a page's own name was made to resolve to this machine, its requests have
another name in the Host header."""
_HOST_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*+\.?")
_SAME_ORIGIN = ("same-origin", "none")
"""Values of `Sec-Fetch-Site` for the server's own pages, and for an address that the user entered."""


def is_foreign_page(headers: Mapping[str, str], origins: Collection[str] = ()) -> bool:
    """Return True if the request is from a web page of another origin.

    Args:
        headers: The header fields of the request. The case of their names does not matter.
        origins: Origins that may call, such as `https://app.example`. `http://localhost:*` allows every port.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and _is_allowed(origin.lower(), origins):
        return False
    if site is not None:
        return site.lower() not in _SAME_ORIGIN
    if origin is None:
        return False
    address = origin.partition("://")[2].lower()
    return not address or address != headers.get("host", "").lower()


def is_navigation(method: str, headers: Mapping[str, str]) -> bool:
    """Return True if the user followed a link. In that case no foreign page wrote the request or reads the answer."""
    is_top_level = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return method in ("GET", "HEAD") and is_top_level and "origin" not in headers


def is_rebindable(headers: Mapping[str, str]) -> bool:
    """Return True if a web page sends the request to a name that could resolve to any address."""
    if "origin" not in headers and "sec-fetch-site" not in headers:
        return False
    name = host_name(headers.get("host", ""))
    if name in LOOPBACK_NAMES:
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return True
    return False


def host_name(header: str) -> str:
    """Return the name in a Host header without the port, in the form of `allowed_host`."""
    name, _, port = header.rpartition(":")
    name = (name if name and port.isdigit() else header).lower()
    return _bracketed(name) or name.removesuffix(".")


def check_hosts(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a name that no Host header can have, such as one with a port or a scheme."""
    for name in names:
        allowed_host(name)


def check_origins(origins: Iterable[str]) -> None:
    """Raise `ConfigError` for an origin that no browser sends, such as one with a path or without a scheme."""
    for origin in (origin for origin in origins if origin != "null"):
        scheme, _, address = origin.partition("://")
        if not (scheme and address) or any(letter in "/?#@" or letter.isspace() for letter in scheme + address):
            raise ConfigError(
                "an allowed origin must be a scheme and a host, with a port if it is not the scheme's own, such as "
                f"https://app.example; got {origin!r}"
            )


def allowed_host(name: str) -> str:
    """Return a name in the form that `host_name` gives to the Host header of a request to it.

    It is in lower case without a dot at the end. An IPv6 address is compressed and in brackets. If a name has letters
    that are not ASCII, it is encoded as browsers encode it.

    Raises:
        ConfigError: If no Host header can have the name, for example because it has a port or a scheme.
    """
    if bracketed := _bracketed(name):
        return bracketed
    wrong = ConfigError(
        f"an allowed host must be an IP address, or a name without scheme and port, such as example.org; got {name!r}"
    )
    if not _HOST_NAME.fullmatch(name):
        raise wrong
    if name.isascii():
        return name.lower().removesuffix(".")
    import httpx

    try:
        return httpx.URL(f"http://{name}").raw_host.decode("ascii").removesuffix(".")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise wrong from error


def _bracketed(name: str) -> str:
    """Return an IPv6 address, compressed and in brackets. If the name is anything else, return an empty string.

    No Host header has the zone of an address, such as `%eth0` (RFC 6874), so an address with a zone is refused.
    """
    inner = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if "%" in inner:
        return ""
    try:
        return f"[{ipaddress.IPv6Address(inner).compressed}]"
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return True if only programs on this machine can reach the address."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    # A socket for IPv6 shows a client with an IPv4 address in this form. Python before 3.13 does not look into it.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_allowed(origin: str, origins: Collection[str]) -> bool:
    """Return True if the origin is listed, or if it matches a listed origin that allows every port."""
    return origin in origins or f"{origin.rpartition(':')[0]}:*" in origins
