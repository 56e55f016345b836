"""Options from a config file.

The file is TOML. A key at the top level sets an option of every command that has it. A table named after a command
holds that command's own options and overrides the top level. Flags override both. Names are the flags' without the
dashes in front: `time-limit` (or `time_limit`).

    collection = "notes"

    [search]
    k = 5
    time-limit = 2.5

A key that no command has is an error. If the command's policy or its strategy for pruning does not use a key, the key
is ignored at the top level. In the command's own table or as a flag, such an option is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from cyclopts import Parameter, Token

from context_agent._support.small_files import read_toml
from context_agent._support.suggest import suggestion
from context_agent._support.validation import is_number
from context_agent.cli.agent_options import unused_options
from context_agent.cli.help import commands_of
from context_agent.cli.invocation import TOP_LEVEL
from context_agent.errors import ConfigError, reason_of

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument, ArgumentCollection

NOT_IN_FILE = {"--config", "--debug"}
_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


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
    path = Path(os.path.expanduser(given[-1].value))  # noqa: PTH111 (pathlib raises if there is no home)
    options = _options(arguments)
    settings = load_config(command.app_stack.current_frame[0], words, path)
    used = {key: setting for key, setting in settings.items() if key in options}
    for key, setting in used.items():
        _check_type(key, setting.value, options[key], path)

    def chosen(name: str) -> Any:
        given = options[name].tokens if name in options else ()
        return given[-1].value if given else used[name].value if name in used else None

    unused = {key for key, setting in used.items() if setting.shared} & unused_options(options, chosen)
    # The command's own table goes first: it may give an option its other name, such as `top-k` for `k`.
    for key, setting in sorted(used.items(), key=lambda item: item[1].shared):
        if key in unused or options[key].tokens:
            continue
        source = f"{path}{TOP_LEVEL}" if setting.shared else str(path)
        for index, item in enumerate(setting.value if isinstance(setting.value, list) else [setting.value]):
            options[key].append(Token(keyword=f"--{key}", value=str(item), source=source, index=index))


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a config file. It is `shared` if it is at the top level, for all commands."""

    value: Any
    shared: bool


def load_config(root: App, words: Sequence[str], path: Path) -> dict[str, Setting]:
    """Return the options that the file sets for the command that these words name.

    Raises:
        ConfigError: If the file cannot be read or is not TOML, or if no command has one of its tables or keys.
    """
    try:
        data = read_toml(path)
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path} ({reason_of(error)}). Pass an existing file with --config."
        ) from error
    except ValueError as error:
        raise ConfigError(f"the config file {path} is not valid TOML ({error}). Correct the file.") from error
    shared = _plain(data)
    _check_shared_keys(shared, root, words, str(path))
    _check_tables(data, root, str(path))
    options, table = {key: Setting(value, shared=True) for key, value in shared.items()}, data
    for word in words:
        table = table.get(word, {})
        options |= {key: Setting(value, shared=False) for key, value in _plain(table).items()}
    return options


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items() if not isinstance(value, dict)}


def _every_command(group: App) -> Iterator[App]:
    """Yield the commands of the group, and those of the groups in it."""
    for command in commands_of(group).values():
        yield command
        yield from _every_command(command)


def _options_of(command: App) -> dict[str, Argument]:
    """Return the options of a command that a file may set. Outside a run, cyclopts would add negative flags."""
    if command.default_command is None:
        return {}
    return _options(command.assemble_argument_collection(default_parameter=Parameter(negative=())))


def _options(arguments: ArgumentCollection) -> dict[str, Argument]:
    """Return the options that a file may set, by flag without the dashes."""
    flags = {name: argument for argument in arguments for name in argument.names if name.startswith("--")}
    return {flag[2:]: argument for flag, argument in flags.items() if flag not in NOT_IN_FILE}


def _check_shared_keys(keys: Iterable[str], root: App, words: Sequence[str], path: str) -> None:
    """Check that every key is an option of a command.

    Listing the options of all commands takes a third of a second, so the command that these words name goes first.
    """
    named = root
    for word in words:
        named = commands_of(named).get(word, named)
    missing, names = set(keys), set[str]()
    for command in (named, *_every_command(root)):
        if missing <= names:
            return
        names.update(_options_of(command))
    _check_keys(keys, names, path)


def _check_tables(data: Mapping[str, Any], group: App, path: str, at: str = "") -> None:
    """Check that every table is a command, and that every key in it is an option of the command."""
    for name, table in data.items():
        if not isinstance(table, dict):
            continue
        commands = commands_of(group)
        if name not in commands:
            if any(name.replace("_", "-") in _options_of(command) for command in (group, *_every_command(group))):
                raise ConfigError(
                    f"{path}: {at}{name} must be one value, not a table. Write the value of the option --"
                    f"{name.replace('_', '-')} in quotes."
                )
            remedy = suggestion(name, commands) if commands else "Remove it."
            raise ConfigError(f"{path}: unknown table [{at}{name}]. {remedy}")
        command = commands[name]
        keys = _plain(table)
        if keys and (members := commands_of(command)):
            raise ConfigError(
                f"{path}: [{at}{name}] is for a group of commands, and has no key {next(iter(keys))!r}. Put the key "
                f"into the table of a command, such as [{at}{name}.{next(iter(members))}]."
            )
        _check_keys(keys, _options_of(command), path, f" in [{at}{name}]")
        _check_tables(table, command, path, f"{at}{name}.")


def _check_keys(keys: Iterable[str], options: Iterable[str], path: str, table: str = "") -> None:
    names = set(options)
    for key in keys:
        if key not in names:
            raise ConfigError(f"{path}: unknown key {key!r}{table}. {suggestion(key, names)}")


def _check_type(key: str, value: Any, argument: Argument, path: Path) -> None:
    """Raise `ConfigError` if the value or an item of its list has another type than the option.

    A whole number is also a number. A text is never accepted as a number, nor a number as a text.
    """
    types = _types_of(argument)
    if isinstance(value, list) and not argument.token_count()[1]:
        raise ConfigError(f"{path}: {key} must be one value, not a list; got {value!r}")
    for item in value if isinstance(value, list) else [value]:
        if type(item) not in types:
            quoted = f' To pass it as text, write {key} = "{item}".' if str in types and is_number(item) else ""
            expected = " or ".join(_TYPE_NAMES[kind] for kind in types if kind is not int or float not in types)
            raise ConfigError(f"{path}: {key} must be {expected}; got {_toml(item)}{'.' if quoted else ''}{quoted}")


def _types_of(argument: Argument) -> list[type]:
    """Return the types of TOML that a value of this option may have."""
    if argument.is_flag():
        return [bool]
    if argument.parameter.converter is not None:
        return [str]
    hints = set(_members(argument.hint))
    return [kind for kind in (int, float) if hints & {kind, float}] + ([str] if hints - {int, float} else [])


def _members(hint: Any) -> Iterator[Any]:
    """Yield the types in a union or tuple, and in unions and tuples in it."""
    inner = [part for part in get_args(hint) if part not in {type(None), ...}]
    if get_origin(hint) is Literal or not inner:
        yield hint
    else:
        for part in inner:
            yield from _members(part)


def _toml(value: Any) -> str:
    """Return the value as a TOML file writes it."""
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else str(value)
