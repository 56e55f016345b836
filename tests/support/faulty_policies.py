"""Policies that misbehave in the processes of a run, depending on the text of the question."""

from __future__ import annotations

import os
import signal
import threading
import time

from context_agent import Action, ScriptedPolicy, View
from context_agent.harness.policy import Policy
from context_agent.testing.actions import rank_all, search

HANGS, DIES, FAILS, ENDS = "hangs", "dies", "fails", "ends"


def scripted() -> Policy:
    """Search for the question and rank what was found, or misbehave as the question says."""
    return ScriptedPolicy([_search_or_fail, rank_all], instructed=False)


def repaired() -> Policy:
    """Return the same systems without misbehavior."""
    return ScriptedPolicy([lambda view: search(view.question), rank_all], instructed=False)


def slow() -> Policy:
    """Return the same systems, slow enough to be interrupted between two questions."""
    return ScriptedPolicy([_search_late, rank_all], instructed=False)


def broken() -> Policy:
    """Fail to open."""
    raise ValueError("no weights here")


def _search_or_fail(view: View) -> Action:
    if HANGS in view.question:
        # This neither awaits nor returns, so no timeout inside the process can end it.
        threading.Event().wait()
    if DIES in view.question:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAILS in view.question:
        raise RuntimeError("a bug in the policy")
    if ENDS in view.question:
        raise SystemExit("enough")
    return search(view.question)


def _search_late(view: View) -> Action:
    time.sleep(0.15)
    return _search_or_fail(view)
