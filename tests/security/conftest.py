"""A listening address of an attacker, secrets in the environment, and a record of what this process contacts."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent.testing.hostile_indexes import SECRETS
from tests.support.attacker import Attacker


@pytest.fixture
def attacker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacker]:
    """The attacker's server, with secrets in the environment. Other machines cannot be reached, only tried."""
    attacker = Attacker()

    def refuse_lookup(host: object, *_: object, **__: object) -> None:
        attacker.contacted.append(str(host))
        raise socket.gaierror(f"the test refuses {host}")

    def refuse_connection(self: socket.socket, address: object) -> None:
        attacker.contacted.append(str(address))
        raise OSError(f"the test refuses {address}")

    for variable, secret in SECRETS.items():
        monkeypatch.setenv(variable, secret)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_lookup)
    monkeypatch.setattr(socket.socket, "connect", refuse_connection)
    yield attacker
    attacker.close()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the harmless indexes that the hostile ones are made from."""
    return tmp_path_factory.mktemp("templates")
