"""The user's cache folder, for files that can be downloaded or computed again."""

from __future__ import annotations

from pathlib import Path

from context_agent.errors import ConfigError


def cache_folder(cache: str | Path | None = None) -> Path:
    """Return the given folder. If none is given, return the platform's cache folder for this package.

    Raises:
        ConfigError: If no folder is given, and the user has no home folder.
    """
    if cache is not None:
        return Path(cache).expanduser()
    from platformdirs import user_cache_path

    try:
        return user_cache_path("context-agent", appauthor=False)
    except RuntimeError as error:
        raise ConfigError(
            "there is no cache folder, because this user has no home folder. Set XDG_CACHE_HOME or HOME to a folder "
            "that is writable."
        ) from error
