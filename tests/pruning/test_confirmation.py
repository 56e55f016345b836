"""A prune that is announced: who is asked, when, and what a no leaves as it was."""

from __future__ import annotations

import io
import os
import pty
from itertools import pairwise
from typing import Any

import pytest

from context_agent.cli.confirm import TerminalConfirmation
from context_agent.errors import ConfigError
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.report import PruneReport
from tests.support.conversations import rendered
from tests.support.long_conversation import ALWAYS, LONG, noises, search

MESSAGES = rendered("openai", LONG)


class Answers:
    """Says what the test says, and keeps what it was asked."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.asked = list(answers), list[PruneReport]()

    def __call__(self, report: PruneReport) -> bool:
        self.asked.append(report)
        return self.answers.pop(0)


def test_a_no_leaves_everything_as_it_was() -> None:
    confirm = Answers(False)
    pruned = ContextPruner(300, strategy="bm25", confirm=confirm).prune(MESSAGES)
    assert pruned.report.outcome == "declined"
    assert all(a is b for a, b in zip(pruned.messages, MESSAGES, strict=True))
    assert pruned.report.tokens_after == pruned.report.tokens_before
    (asked,) = confirm.asked
    assert asked.outcome == "pruned"
    assert asked.freed == asked.tokens_before - asked.tokens_after > 0
    assert asked.removed[0].preview


def test_a_yes_prunes_as_announced() -> None:
    confirm = Answers(True)
    pruned = ContextPruner(300, strategy="bm25", confirm=confirm).prune(MESSAGES)
    assert pruned.report.removed == confirm.asked[0].removed
    assert pruned.messages == ContextPruner(300, strategy="bm25").prune(MESSAGES).messages


def test_small_prunes_are_not_announced() -> None:
    freed = ContextPruner(300, strategy="bm25").prune(MESSAGES).report.freed
    confirm = Answers()
    assert ContextPruner(300, strategy="bm25", confirm=confirm, confirm_above=freed).prune(MESSAGES).report.removed
    confirm = Answers(True)
    ContextPruner(300, strategy="bm25", confirm=confirm, confirm_above=freed - 1).prune(MESSAGES)
    assert len(confirm.asked) == 1


def test_after_a_no_it_is_asked_again_when_as_much_more_would_go() -> None:
    above = 200
    confirm = Answers(*[False] * 30)
    pruner = ContextPruner(300, strategy="bm25", confirm=confirm, confirm_above=above)
    turns: list[Any] = list(LONG)
    for number in range(12):
        assert pruner.prune(rendered("openai", turns)).report.outcome == "declined"
        turns.append(search(100 + number, noises(10 * number, 3)))
    freed = [report.freed for report in confirm.asked]
    assert 1 < len(freed) < 12
    assert all(later > earlier + above for earlier, later in pairwise(freed))


def test_after_a_no_the_same_prune_is_not_announced_again() -> None:
    confirm = Answers(False)
    pruner = ContextPruner(300, strategy="bm25", confirm=confirm)
    outcomes = [pruner.prune(MESSAGES).report.outcome for _ in range(2)]
    assert outcomes == ["declined", "declined"]
    assert len(confirm.asked) == 1


def test_after_a_yes_every_prune_is_announced() -> None:
    confirm = Answers(True, True)
    pruner = ContextPruner(300, strategy="bm25", confirm=confirm, prices=ALWAYS)
    longer = rendered("openai", [*LONG, search(100, noises(100, 4)), search(101, "done")])
    outcomes = [pruner.prune(messages).report.outcome for messages in (MESSAGES, longer)]
    assert outcomes == ["pruned", "pruned"]
    first, second = confirm.asked
    assert second.freed < first.freed


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="confirm_above"):
        ContextPruner(confirm_above=-1)


REPORT = ContextPruner(300, strategy="bm25").prune(MESSAGES).report


@pytest.mark.parametrize(("typed", "expected"), [("n\n", False), ("No\n", False), ("\n", True), ("y\n", True)])
def test_the_terminal_is_asked(
    typed: str, expected: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        # What was typed before the question does not answer it.
        os.write(leader, b"n\n")
        confirmation = TerminalConfirmation(20)
        flush = __import__("termios").tcflush

        def typing(*arguments: Any) -> None:
            flush(*arguments)
            os.write(leader, typed.encode())

        monkeypatch.setattr("termios.tcflush", typing)
        assert confirmation(REPORT) is expected
    os.close(leader)
    shown = capsys.readouterr().err
    assert f"{REPORT.freed:,}" in shown
    assert "weather" in shown


def test_without_an_answer_in_time_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        assert TerminalConfirmation(0.05)(REPORT)
    os.close(leader)


def test_without_a_terminal_it_is_announced_without_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert TerminalConfirmation()(REPORT)
    shown = capsys.readouterr().err
    assert f"{REPORT.freed:,}" in shown
    assert "weather" not in shown
