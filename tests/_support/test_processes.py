"""How a process ended, and the environment that it gets."""

from __future__ import annotations

import os

import pytest

from context_agent._support.processes import environment, exit_reason


@pytest.mark.parametrize(
    ("code", "reason"), [(9, "exit code 9"), (None, "it or its machine is gone"), (-11, "SIGSEGV")]
)
def test_an_exit_reason_names_the_signal(code: int | None, reason: str) -> None:
    assert exit_reason(code) == reason


def test_an_environment_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTX1_SET", "before")
    monkeypatch.delenv("CTX1_ABSENT", raising=False)
    with environment({"CTX1_SET": "1", "CTX1_ABSENT": "2"}):
        assert (os.environ["CTX1_SET"], os.environ["CTX1_ABSENT"]) == ("1", "2")
    assert os.environ["CTX1_SET"] == "before"
    assert "CTX1_ABSENT" not in os.environ
