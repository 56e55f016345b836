"""The reader of a training run's TOML file and of the settings in `--set`. This module does not import torch."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from context_agent._support.small_files import parse_toml, read_toml
from context_agent._support.suggest import closest, suggestion
from context_agent._support.validation import explain, problems, validate_plain
from context_agent.errors import ConfigError, reason_of
from context_agent.train.config import RUN_ADAPTER, RunConfig

LARGEST_NUMBERS = {int: 2**63 - 1, float: 3.4e38}
"""Largest numbers of a run file. torch computes in 64 bits for whole numbers, and in 32 bits for others."""


def read_run(path: str | Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a run file.

    Args:
        path: The TOML file.
        changes: Values by dotted key, such as `rollouts.groups`, that override those of the file.

    Returns:
        The run, with defaults filled in.

    Raises:
        ConfigError: If the file cannot be read, or a key or value is invalid. The message names the file and the key,
            or the change with the invalid value.
    """
    path = Path(path)
    try:
        data = read_toml(path)
    except OSError as error:
        raise ConfigError(
            f"cannot read the run file {path} ({reason_of(error)}). Pass an existing TOML file."
        ) from error
    except ValueError as error:
        raise ConfigError(f"the run file {path} is not valid TOML ({error}). Correct the file.") from error
    for key, value in (changes or {}).items():
        _change(data, key, deepcopy(value))  # a later key may change this value
    return _parsed(data, str(path), changes or {})


def _change(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a value by its dotted key, and create the tables that are missing."""
    *tables, last = key.split(".")
    table: Any = data
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"cannot set {key}, because {name} is a value, not a table. Set {name} alone.")
    table[last] = value


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings of the form `rollouts.groups=8`, as `--set` takes them.

    Args:
        texts: Settings. Each is a dotted key, an equals sign and a TOML value. A word that is not valid TOML is a
            string.

    Returns:
        The values by dotted key.

    Raises:
        ConfigError: If a text has no equals sign, an unknown key or an invalid value.
    """
    return dict(_parse_change(text) for text in texts)


def _parse_change(text: str) -> tuple[str, Any]:
    key, equals, spelled = (part.strip() for part in text.partition("="))
    if not key or not equals or not spelled:
        raise ConfigError(f"{text!r} sets nothing. Write KEY=VALUE, such as rollouts.groups=8.")
    names = list(_setting_names(RunConfig))
    if key not in names and not any(name.startswith(f"{key}.") for name in names):
        raise ConfigError(f"unknown setting {key!r}. {_suggested_setting(key, names)}")
    try:
        parsed = parse_toml(f"value = {spelled}")
    except ValueError as error:
        if spelled[0] in "[{\"'":
            raise ConfigError(
                f"{key} = {spelled} is not valid TOML ({error}). Close every bracket and quote."
            ) from None
        return key, spelled
    if len(parsed) > 1:
        raise ConfigError(f"{text!r} sets more than one value. Use --set once for each.")
    return key, parsed["value"]


def _suggested_setting(key: str, names: Sequence[str]) -> str:
    """Suggest the setting that was probably meant. Its last part resembles the key's last part, in full or as initials
    (`lr`).
    """
    last = key.rpartition(".")[2]
    endings: dict[str, list[str]] = {}
    for name in names:
        ending = name.rpartition(".")[2]
        initials = "".join(word[0] for word in ending.split("_"))
        for spelling in {ending, initials} if len(initials) > 1 else {ending}:
            endings.setdefault(spelling, []).append(name)
    near = last if last in endings else closest(last, endings, 0.7)
    if near is not None:
        return f"Did you mean {closest(key, endings[near], 0.0)!r}?"
    table = key.rpartition(".")[0]
    inside = {name.removeprefix(f"{table}.") for name in names if table and name.startswith(f"{table}.")}
    return suggestion(last, inside or {name.partition(".")[0] for name in names}, 0.7)


def _setting_names(table: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings, nested tables included."""
    for name, hint in typing.get_type_hints(table).items():
        optional = () if typing.get_origin(hint) is tuple else typing.get_args(hint)
        inner = next((part for part in (hint, *optional) if is_dataclass(part)), None)
        if inner is None:
            yield f"{prefix}{name}"
        else:
            yield from _setting_names(inner, f"{prefix}{name}.")


def parse_run(data: Mapping[str, Any], source: str = "the run") -> RunConfig:
    """Convert plain data to a run.

    Args:
        data: The tables of the run file.
        source: The name that error messages use for the data.

    Returns:
        The run, with defaults filled in.

    Raises:
        ConfigError: If a name is unknown or a value is invalid.
    """
    return _parsed(data, source, {})


def _parsed(data: Mapping[str, Any], source: str, changes: Mapping[str, Any]) -> RunConfig:
    """Convert plain data that contains these changes to a run."""
    try:
        _check_data(data, RunConfig)
        return validate_plain(RUN_ADAPTER, data)
    except _SettingError as error:
        key = _change_of(error.name, changes)
        raise ConfigError(f"{source if key is None else f'--set {key}'}: {error}") from None
    except ValidationError as error:
        for name, problem in problems(error, error.error_count()):
            if (key := _change_of(name, changes)) is not None:
                part = "" if name == key else f"{name}: "
                raise ConfigError(f"--set {key}: {part}{problem}; got {changes[key]!r}") from None
        raise ConfigError(f"{source}: {explain(error)}") from None
    except ConfigError as error:
        named = [f" --set {key}" for key in changes if _names(str(error), key)]
        raise ConfigError(f"{source}{' with' if named else ''}{','.join(named)}: {error}") from None


def _names(message: str, key: str) -> bool:
    """Return True if a message names a setting or its table. `rollouts.groups` does not name the setting `out`."""
    found = re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", message)
    return found is not None or f"[{key.partition('.')[0]}]" in message


class _SettingError(ConfigError):
    """The setting with this dotted name cannot work."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def _change_of(name: str, changes: Mapping[str, Any]) -> str | None:
    """Return the key of the change that set the setting with this name. If none did, return None."""
    return next((key for key in changes if f"{name}.".startswith(f"{key}.")), None)


def _check_data(data: Mapping[str, Any], table: Any, prefix: str = "") -> None:
    """Raise `_SettingError` if the data has a name that the table does not have, a number that is not finite or too
    large, or an empty text for a setting that may be left out.

    Tables are checked at any depth.
    """
    hints = typing.get_type_hints(table)
    for name, value in data.items():
        whole = f"{prefix}{name}"
        if name not in hints:
            what = f"table [{whole}]" if isinstance(value, Mapping) else f"key {name!r}"
            location = f" in [{prefix.rstrip('.')}]" if prefix and not isinstance(value, Mapping) else ""
            raise _SettingError(whole, f"unknown {what}{location}. {suggestion(name, hints)}")
        if value == "" and type(None) in typing.get_args(hints[name]):
            raise _SettingError(whole, f'{whole} must not be empty; got "". Give it a value, or leave it out.')
        inner = _table_in(hints[name])
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, float) and not math.isfinite(each):
                raise _SettingError(whole, f"{whole} must be a finite number; got {each}")
            largest = LARGEST_NUMBERS.get(type(each))
            if largest is not None and abs(each) > largest:
                raise _SettingError(whole, f"{whole} must be at most {largest:.1e}; got a larger number")
            if inner is not None and isinstance(each, Mapping):
                _check_data(each, inner, f"{whole}.")


def _table_in(annotation: Any) -> Any:
    """Return the dataclass in a field's type: the type itself, or a member of a union or tuple.

    If there is none, return None.
    """
    if is_dataclass(annotation):
        return annotation
    return next((table for inner in typing.get_args(annotation) if (table := _table_in(inner)) is not None), None)
