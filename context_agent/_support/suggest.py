"""Help in error messages: similar names, and the settings that differ between two runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

LISTED = 20
"""Names that a message lists at most."""


def closest(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice most similar to `name`; None if none is similar (`cutoff`: least similarity, 0 to 1)."""
    matches = difflib.get_close_matches(name, sorted(choices), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def suggestion(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """`did you mean 'x'?`, or `choose from a, b, c` if no choice is similar."""
    names = sorted(choices)
    similar = closest(name, names, cutoff)
    if similar is not None:
        return f"did you mean {similar!r}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"choose from {', '.join(names[:LISTED])}{more}"


def differing_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`loss.cap was 4.0 and is 5.0` for each value that two nested sets of settings do not share."""
    old, new = dict(flat_settings(before)), dict(flat_settings(now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in keys]


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested settings by dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
