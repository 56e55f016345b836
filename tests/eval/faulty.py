"""Policies that misbehave, opened in the processes of a run; what a question says decides what happens to it."""

from __future__ import annotations

import os
import signal
import threading
import time

from context_agent import Action, ScriptedPolicy, View
from context_agent.harness.policy import Policy
from tests.actions import rank_all, search

HANGS, DIES, FAILS, ENDS = "hangs", "dies", "fails", "ends"


def scripted() -> Policy:
    """Searches for the question, prunes nothing, ranks what it saw; misbehaves where the question says so."""
    return ScriptedPolicy([_first, rank_all], instructed=False)


def slow() -> Policy:
    """The same, taking a while: long enough to be interrupted between two questions."""
    return ScriptedPolicy([_late, rank_all], instructed=False)


def broken() -> Policy:
    """Cannot be opened."""
    raise ValueError("no weights here")


def _first(view: View) -> Action:
    if HANGS in view.question:
        # Neither awaits nor returns: no timeout inside the process can end this.
        threading.Event().wait()
    if DIES in view.question:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAILS in view.question:
        raise RuntimeError("a bug in the policy")
    if ENDS in view.question:
        raise SystemExit("enough")
    return search(view.question)


def _late(view: View) -> Action:
    time.sleep(0.15)
    return _first(view)
