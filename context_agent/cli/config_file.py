"""Options from a config file.

The file is TOML. A key at the top level sets an option of every command that has it. A table named after a command
holds that command's own options and overrides the top level. Flags override both. Names are the flags' without the
dashes in front: `time-limit` (or `time_limit`).

    collection = "notes"

    [search]
    k = 5
    time-limit = 2.5

A key that no command has is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Token

from context_agent._support.small_files import read_toml
from context_agent._support.suggest import closest
from context_agent.cli.help import commands_of
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument, ArgumentCollection

NOT_IN_FILE = {"--config", "--debug"}


def apply_config_file(command: App, words: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Set the options that the file of --config sets and that have no value yet.

    cyclopts calls this function after `record_invocation`.

    Raises:
        ConfigError: If the file cannot be read or is not TOML, if no command has one of its tables or keys, or if a
            value has the wrong type.
    """
    given = arguments["--config"].tokens
    if not given:
        return
    path = Path(given[-1].value)
    options = _options(arguments)
    for key, value in load_config(command.app_stack.current_frame[0], words, path).items():
        if key not in options:
            continue
        _check_type(key, value, options[key], path)
        if not options[key].tokens:
            for index, item in enumerate(value if isinstance(value, list) else [value]):
                options[key].append(Token(keyword=f"--{key}", value=str(item), source=str(path), index=index))


def load_config(root: App, words: Iterable[str], path: Path) -> dict[str, Any]:
    """Return the options that the file sets for the command that these words name.

    Raises:
        ConfigError: If the file cannot be read or is not TOML, or if no command has one of its tables or keys.
    """
    try:
        data = read_toml(path)
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path} ({error.strerror}). Pass an existing file with --config."
        ) from error
    except ValueError as error:
        raise ConfigError(f"the config file {path} is not valid TOML ({error}). Correct the file.") from error
    _check_keys(_plain(data), {name for command in _every_command(root) for name in _options_of(command)}, str(path))
    _check_tables(data, root, str(path))
    options, table = _plain(data), data
    for word in words:
        table = table.get(word, {})
        options |= _plain(table)
    return options


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items() if not isinstance(value, dict)}


def _every_command(group: App) -> Iterator[App]:
    """Yield the commands of the group, and those of the groups in it."""
    for command in commands_of(group).values():
        yield command
        yield from _every_command(command)


def _options_of(command: App) -> dict[str, Argument]:
    return {} if command.default_command is None else _options(command.assemble_argument_collection())


def _options(arguments: ArgumentCollection) -> dict[str, Argument]:
    """Return the options that a file may set, by flag without the dashes."""
    flags = {name: argument for argument in arguments for name in argument.names if name.startswith("--")}
    return {flag[2:]: argument for flag, argument in flags.items() if flag not in NOT_IN_FILE}


def _check_tables(data: Mapping[str, Any], group: App, path: str, at: str = "") -> None:
    """Check that every table is a command, and that every key in it is an option of the command."""
    for name, table in data.items():
        if not isinstance(table, dict):
            continue
        commands = commands_of(group)
        if name not in commands:
            raise ConfigError(f"{path}: unknown table [{at}{name}]{_nearest(name, commands)}")
        command = commands[name]
        _check_keys(_plain(table), _options_of(command), path, f" in [{at}{name}]")
        _check_tables(table, command, path, f"{at}{name}.")


def _check_keys(keys: Iterable[str], options: Iterable[str], path: str, table: str = "") -> None:
    names = set(options)
    for key in keys:
        if key not in names:
            raise ConfigError(f"{path}: unknown key {key!r}{table}{_nearest(key, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = closest(name, names)
    return f". Did you mean {near!r}?" if near else ""


def _check_type(key: str, value: Any, argument: Argument, path: Path) -> None:
    """Refuse a number for a switch, a switch for a number, and a list for an option that is not repeated.

    The items of a list must not be lists, tables or switches.
    """
    if argument.is_flag() != isinstance(value, bool):
        expected = "true or false" if argument.is_flag() else "a value, not true or false"
        raise ConfigError(f"{path}: {key} must be {expected}; got {value!r}")
    if isinstance(value, list) and not argument.token_count()[1]:
        raise ConfigError(f"{path}: {key} must be one value, not a list; got {value!r}")
    if isinstance(value, list) and any(isinstance(item, bool | list | dict) for item in value):
        raise ConfigError(f"{path}: {key} must be a list of texts or numbers; got {value!r}")
