"""A listening address of an attacker, secrets in the environment, and a record of what this process contacts."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.security.hostile import SECRETS


class Attacker:
    """An HTTP server that keeps what it is sent, and the names and addresses that this process tried to reach."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.contacted: list[str] = []
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                received.append(f"{self.requestline}\n{self.headers}\n{body.decode(errors='replace')}")
                self.send_error(403)

            do_GET = do_CONNECT = do_POST  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def attacker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacker]:
    """The attacker's server, with secrets in the environment. Other machines cannot be reached, only tried."""
    attacker = Attacker()
    threading.Thread(target=attacker.server.serve_forever, daemon=True).start()

    def refused(host: object, *_: object, **__: object) -> None:
        attacker.contacted.append(str(host))
        raise socket.gaierror(f"the test refuses {host}")

    def connected(self: socket.socket, address: object) -> None:
        attacker.contacted.append(str(address))
        raise OSError(f"the test refuses {address}")

    for variable, secret in SECRETS.items():
        monkeypatch.setenv(variable, secret)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", connected)
    yield attacker
    attacker.server.shutdown()
    attacker.server.server_close()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the harmless folders stand that the hostile ones are made from."""
    return tmp_path_factory.mktemp("templates")
