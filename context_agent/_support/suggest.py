"""Suggestions in error messages: similar names, and the settings that differ between two runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MAX_LISTED = 20
"""Maximum number of names that a message lists."""
LISTED_CHANGES = 5
"""Maximum number of changed settings that a message lists."""
MAX_VALUE = 60
"""Maximum number of characters of a name or of a setting's value that a message shows. A prompt has thousands."""


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
    return f"Choose from {listed(names)}."


def listed(names: Iterable[object]) -> str:
    """Join the first names with commas, and add how many more there are. Of a long name, only the start is listed."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return ", ".join(text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…" for text in texts[:MAX_LISTED]) + more


def differing_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase such as `loss.cap was 4.0 and is 5.0` for each difference between two nested sets of settings.

    Long values are cut to the part where they differ.
    """
    old, new = dict(flat_settings(before)), dict(flat_settings(now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key} was {before} and is {now}" for key in keys for before, now in [_shown(old.get(key), new.get(key))]]


def listed_changes(changes: Sequence[str]) -> str:
    """Join the first changes with commas, and add how many more there are."""
    more = f", and {len(changes) - LISTED_CHANGES} more" if len(changes) > LISTED_CHANGES else ""
    return ", ".join(changes[:LISTED_CHANGES]) + more


def _shown(*values: Any) -> list[str]:
    """Return the values as texts. Of long ones, the text begins shortly before they differ."""
    texts = [repr(value) for value in values]
    if max(map(len, texts)) <= MAX_VALUE:
        return texts
    characters = enumerate(zip(*texts, strict=False))
    same = next((index for index, pair in characters if len({*pair}) > 1), min(map(len, texts)))
    start = same - MAX_VALUE // 2 if same > MAX_VALUE // 2 else 0
    parts = [text[start : start + MAX_VALUE] for text in texts]
    return [
        f"{'…' * (start > 0)}{part}{'…' * (start + len(part) < len(text))}"
        for text, part in zip(texts, parts, strict=True)
    ]


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each nested setting."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
