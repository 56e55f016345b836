"""An allowed host has the spelling of the Host header of a request to it. Sockets refuse addresses that are wrong."""

import pytest

from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import allowed_host, check_hosts, host_name, is_loopback
from context_agent.integrations.server.process import bind_socket
from context_agent.integrations.server.settings import Settings


@pytest.mark.parametrize(
    ("allowed", "header"),
    [
        ("::1", "[::1]:8321"),
        ("[::1]", "[::1]"),
        ("0:0:0:0:0:0:0:1", "[::1]:80"),
        ("[2001:DB8::A]", "[2001:db8:0::a]:443"),
        ("Example.ORG", "example.org:8321"),
        ("example.org.", "EXAMPLE.org"),
        ("example.org", "example.org.:80"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("STRASSE.example.", "strasse.example"),
        ("my_host-1", "my_host-1:1"),
        ("192.168.0.7", "192.168.0.7:80"),
    ],
)
def test_a_request_to_an_allowed_host_has_its_name(allowed: str, header: str) -> None:
    assert allowed_host(allowed) == host_name(header)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a..b",
        "[::1]:80",
        "example.org:80",
        "127.0.0.1:80",
        "[::g]",
        "http://a",
        "a/b",
        "a b",
        "fe80::1%eth0",
        "[::1%a b]",
    ],
)
def test_a_name_that_no_header_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="without scheme and port") as caught:
        check_hosts([name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    "origin", ["", "*", "app.example", "https://", "https://app.example/", "http://a@b", "http://a b"]
)
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="must be a scheme and a host") as caught:
        Settings(origins=("https://App.example:8443", "http://localhost:*", "http://[::1]:80", origin))
    assert repr(origin) in str(caught.value)


@pytest.mark.parametrize("port", [70_000, 65_536, -1, 2**70, "http", "80", None, True, 80.0])
def test_a_value_that_is_no_port_is_refused(port: object) -> None:
    with pytest.raises(ConfigError, match="`port` must be a whole number"):
        bind_socket("127.0.0.1", port)  # type: ignore[arg-type]


def test_the_remedy_names_the_part_of_the_address_that_is_wrong() -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(ConfigError, match="Choose another --port"):
            bind_socket("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="Choose another --host"):
        bind_socket("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="Choose another --host"):
        bind_socket("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost.", True),
        ("::ffff:127.0.0.1", True),  # a client with an IPv4 address, as a socket for IPv6 shows it
        ("::ffff:192.168.0.7", False),
        ("192.168.0.7", False),
        ("::", False),
        ("0.0.0.0", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_this_machine_reaches_loopback(address: str, is_own: bool) -> None:
    assert is_loopback(address) == is_own
