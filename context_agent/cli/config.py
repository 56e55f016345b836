"""`--config FILE.toml`: options in a file, with the command line's flags on top.

A key at the top level is an option of any command that has it; a table named after a command holds that command's
own, and goes before. Names are the flags' without dashes in front: `time-limit` (or `time_limit`).

    collection = "notes"

    [search]
    k = 5
    time-limit = 2.5

A key that no command knows is refused, so that a misspelt one cannot pass unnoticed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from context_agent.errors import ConfigError

NOT_IN_FILE = {"config", "debug"}


def load(context: click.Context, path: Path) -> dict[str, Any]:
    """The options that the file sets for the context's command, by parameter name. Raises `ConfigError`."""
    data = _read(path)
    root = context.find_root().command
    assert isinstance(root, click.Group)
    known = _every_option(root, context)
    for key in _plain(data):
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}{nearest(key, known)}")
    _check_tables(data, root, context, path)
    options = _plain(data)
    table = data
    for name in context.command_path.split()[1:]:
        table = table.get(name, {})
        options.update(_plain(table))
    own = _options(context.command)
    return {own[key].name or key: _typed(key, value, own[key], path) for key, value in options.items() if key in own}


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no name is near."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {path} is no valid TOML: {error}") from error


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items() if not isinstance(value, dict)}


def _check_tables(data: dict[str, Any], group: click.Group, context: click.Context, path: Path, at: str = "") -> None:
    """Every table is a command, and every key in it an option of that command: a file's mistakes show at once."""
    for name, table in data.items():
        if not isinstance(table, dict):
            continue
        command = group.get_command(context, name)
        if command is None:
            raise ConfigError(f"{path}: unknown table [{at}{name}]{nearest(name, group.list_commands(context))}")
        known = _options(command)
        for key in _plain(table):
            if key not in known:
                raise ConfigError(f"{path}: unknown key {key!r} in [{at}{name}]{nearest(key, known)}")
        if isinstance(command, click.Group):
            _check_tables(table, command, context, path, f"{at}{name}.")


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options that a file may set, by the flag's name without its dashes."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    named = {max(option.opts, key=len).lstrip("-"): option for option in options}
    return {name: option for name, option in named.items() if name not in NOT_IN_FILE}


def _every_option(group: click.Group, context: click.Context) -> set[str]:
    known: set[str] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            known |= _every_option(command, context)
        elif command is not None:
            known |= set(_options(command))
    return known


def _typed(key: str, value: Any, option: click.Option, path: Path) -> Any:
    """The value, where its TOML type fits the option; click converts it and checks its range afterwards."""
    if option.is_flag != isinstance(value, bool):
        wanted = "true or false" if option.is_flag else "a value, not true or false"
        raise ConfigError(f"{path}: {key} = {value!r} should be {wanted}")
    if isinstance(value, list) and not option.multiple:
        raise ConfigError(f"{path}: {key} takes one value, not a list")
    return [value] if option.multiple and not isinstance(value, list) else value
