"""The user's cache folder, for files that can be downloaded or computed again."""

from __future__ import annotations

from pathlib import Path


def cache_folder(cache: str | Path | None = None) -> Path:
    """Return the given folder. If none is given, return the platform's cache folder for this package."""
    if cache is not None:
        return Path(cache).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("context-agent", appauthor=False)
