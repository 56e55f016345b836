"""A long conversation in which one passage answers the question."""

from __future__ import annotations

from typing import Any

from context_agent.pruning import ContextPruner, Prices
from context_agent.tokens import CharCounter
from tests.support.conversations import Call, Turn

TASK = "Where was the director of Polar Light born?"
FILM = "Polar Light\n\nPolar Light is a film of 1990. Ana Berg was its director, and it won a prize in Bergen."
ALWAYS = Prices(cached=1.0)


def noise(number: int) -> str:
    """Return a passage about something else."""
    body = f"The weather of region {number} brings rain and wind in most weeks, and ships stay in port."
    return f"Item {number}\n\n{body} Item {number} ends with a calm week in region {number}."


def noises(first: int, count: int) -> str:
    return "\n\n".join(noise(number) for number in range(first, first + count))


def search(number: int, text: str, **options: Any) -> Turn:
    return Turn("", "", (Call(f"c{number}", {"query": "more about it"}, (text,), **options),))


def conversation(*texts: str, user: str = TASK) -> list[Turn]:
    """Return a question, and a search for each text."""
    return [Turn(user, "I will search."), *(search(number, text) for number, text in enumerate(texts))]


def pruner(budget: int = 300, **options: Any) -> ContextPruner:
    return ContextPruner(budget, **{"effort": "fast", "prices": ALWAYS, "counter": CharCounter()} | options)


LONG = conversation(noises(0, 6), f"{noises(10, 3)}\n\n{FILM}\n\n{noises(20, 3)}", noises(30, 6), "done")
