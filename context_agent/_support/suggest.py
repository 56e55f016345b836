"""Suggestions in error messages: similar names, and the settings that differ between two runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

LISTED = 20
"""The most names that a message lists."""


def closest(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice that is most similar to `name`. If none has a similarity of at least `cutoff`, return None."""
    matches = difflib.get_close_matches(name, sorted(choices), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def suggestion(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `Did you mean 'x'?`. If no choice is similar, return `Choose from a, b, c.`."""
    names = sorted(choices)
    similar = closest(name, names, cutoff)
    if similar is not None:
        return f"Did you mean {similar!r}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"Choose from {', '.join(names[:LISTED])}{more}."


def differing_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase such as `loss.cap was 4.0 and is 5.0` for each difference between two nested sets of settings."""
    old, new = dict(flat_settings(before)), dict(flat_settings(now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in keys]


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each nested setting."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
