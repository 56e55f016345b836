"""The command `ctx1 config`, which shows the settings of a command and where each one comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Token
from cyclopts.exceptions import MissingArgumentError

from context_agent.cli import output
from context_agent.cli.config_file import NOT_IN_FILE
from context_agent.cli.help import commands_of
from context_agent.cli.invocation import TOP_LEVEL, Invocation, current_invocation, set_invocation
from context_agent.cli.parameters import DASH_VALUE, CommonOptions
from context_agent.errors import ConfigError

_CREDENTIALS = re.compile(r"(?<=//)[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """An option of a command, with its value and the source of the value. If it is not set, the value is None."""

    name: str
    value: Any
    source: str


def config(*line: Annotated[str, DASH_VALUE], common: CommonOptions = CommonOptions()) -> int:
    """Show the settings of a command and where they come from.

      ctx1 config search --k 5 --config my.toml

    A value comes from an option, a config file, an environment variable or the default. The command is not run.

    Args:
        line: What you would type after ctx1, by default search.
    """
    parsed = _parsed(line or ("search",), common.config)
    settings = list(_settings(parsed))
    if common.json:
        output.print_json({"command": parsed.path, "settings": [asdict(setting) for setting in settings]})
        return 0
    output.echo(parsed.path)
    shown = [setting for setting in settings if setting.value is not None]
    width = max(len(setting.name) for setting in shown)
    texts = {setting.name: _text(setting.value) for setting in shown}
    column = min(40, max(map(len, texts.values())))
    for setting in shown:
        output.echo(f"  {setting.name:{width}}  {texts[setting.name]:{column}}  {setting.source}")
    unset = " ".join(setting.name for setting in settings if setting.value is None)
    if unset:
        output.echo(f"  not set: {unset}")
    return 0


def _parsed(line: Sequence[str], file: Path | None) -> Invocation:
    """Return the invocation of the command that this line would run, without running it.

    Raises:
        ConfigError: If the line names no command, or if the file does not fit.
        CycloptsError: If the line is wrong.
    """
    from context_agent.cli.app import cli

    words, apps, rest = cli.parse_commands(line)
    if apps[-1].default_command is None and not rest:
        group = " ".join(["ctx1", *words])
        raise ConfigError(f"{group} needs a subcommand. Choose from {', '.join(commands_of(apps[-1]))}.")
    outer = current_invocation()
    try:
        cli.parse_args([*line, *([] if file is None else ["--config", str(file)])])
    except MissingArgumentError as error:
        # Sources, questions and required options may be missing, but not the value of an option in the line.
        if error.keyword is not None:
            raise
    parsed = current_invocation()
    set_invocation(outer)
    assert parsed is not None
    return parsed


def _settings(invocation: Invocation) -> Iterator[SettingInForce]:
    from context_agent.policies import ENVIRONMENT

    for option in invocation.arguments:
        if not option.show or option.index is not None or option.name in NOT_IN_FILE:
            continue
        name, default = option.name, option.field_info.default
        variable = ENVIRONMENT.get(option.field_info.name, "")
        if option.tokens:
            yield SettingInForce(name, _plain(option.convert_and_validate()), _source(option.tokens[0]))
        elif default is None and os.environ.get(variable):
            yield SettingInForce(name, _plain(os.environ[variable]), f"environment variable {variable}")
        elif isinstance(option.parameter.show_default, str):
            yield SettingInForce(name, _plain(option.parameter.show_default), "default")
        else:
            yield SettingInForce(name, _plain(None if default is option.field_info.empty else default), "default")


def _source(token: Token) -> str:
    """Return where the value of an option comes from."""
    return {"cli": "option", "env": f"environment variable {token.keyword}"}.get(
        token.source, f"file {token.source.removesuffix(TOP_LEVEL)}"
    )


def _plain(value: Any) -> Any:
    """Return the value as JSON data. Addresses lose their user and password, and an empty list becomes None."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value] or None
    if isinstance(value, bool | int | float | None):
        return value
    return _CREDENTIALS.sub("…@", str(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
