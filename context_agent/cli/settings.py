"""`ctx1 config` shows which settings are in force and where they come from; `ctx1 completion` installs completion."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from click.core import ParameterSource

from context_agent.cli import output
from context_agent.cli.command import CONFIG_FILE, NOT_IN_FILE, Argument, CommandGroup, Json, Option, command, flag_of
from context_agent.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")
_CREDENTIALS = re.compile(r"(?<=//)[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """An option of a command: its value, None if it has none, and where that comes from."""

    name: str
    value: Any
    source: str


@command
def config(
    line: Annotated[tuple[str, ...], Argument("[COMMAND [OPTIONS]]", click.UNPROCESSED)] = (),
    *,
    as_json: Json,
) -> int:
    """Show the settings of a command and where they come from.

    COMMAND is what you would type after ctx1, by default search; it is not run: ctx1 config search --k 5 --config
    my.toml. A value comes from an option, a config file, an environment variable or the default.
    """
    context = click.get_current_context()
    file = context.meta.get(CONFIG_FILE)
    # A config file may come before the command, as an option of this one.
    arguments = [*(line or ["search"]), *(["--config", str(file)] if file is not None else [])]
    parsed = _parsed(context.find_root(), arguments)
    settings = list(_settings(parsed))
    if as_json:
        output.print_json({"command": parsed.command_path, "settings": [asdict(setting) for setting in settings]})
        return 0
    output.echo(parsed.command_path)
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


# An option after the command belongs to the command.
config.context_settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _parsed(root: click.Context, line: Sequence[str]) -> click.Context:
    """The context that the command of this line would run in. Raises `click.UsageError` for a line that is wrong."""
    context, group, arguments = root, root.command, list(line)
    while isinstance(group, CommandGroup):
        if not arguments or arguments[0].startswith("-"):
            names = ", ".join(group.list_commands(context))
            raise click.UsageError(f"name a command of {context.command_path}: {names}", context)
        name, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        if isinstance(found, CommandGroup):
            context, group = click.Context(found, parent=context, info_name=name), found
        else:
            return _without_required(found).make_context(name, arguments, parent=context)
    raise AssertionError("the root is a group")


def _without_required(found: click.Command) -> click.Command:
    """The command as it is, except that nothing has to be given: its sources and questions are no settings."""
    optional = copy.copy(found)
    optional.params = [copy.copy(parameter) for parameter in found.params]
    for parameter in optional.params:
        parameter.required = False
    return optional


def _settings(context: click.Context) -> Iterator[SettingInForce]:
    from context_agent.policies import ENVIRONMENT

    for option in context.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name not in context.params or name in NOT_IN_FILE:
            continue
        value, source = context.params[name], context.get_parameter_source(name)
        variable = ENVIRONMENT.get(name, "")
        if source is ParameterSource.COMMANDLINE:
            yield SettingInForce(flag_of(option), _plain(value), "option")
        elif source is ParameterSource.DEFAULT_MAP:
            yield SettingInForce(flag_of(option), _plain(value), f"file {context.meta[CONFIG_FILE]}")
        elif source is ParameterSource.ENVIRONMENT:
            yield SettingInForce(flag_of(option), _plain(value), f"environment variable {option.envvar}")
        elif value is None and os.environ.get(variable):
            yield SettingInForce(flag_of(option), _plain(os.environ[variable]), f"environment variable {variable}")
        else:
            default = getattr(option, "default_text", None) if value in (None, ()) else value
            yield SettingInForce(flag_of(option), _plain(default), "default")


def _plain(value: Any) -> Any:
    """The value as JSON has it; an address without user and password, an empty list as None."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value] or None
    if isinstance(value, bool | int | float | None):
        return value
    return _CREDENTIALS.sub("…@", str(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@command
def completion(
    action: Annotated[Literal["install", "show"], Argument("[install|show]")] = "show",
    *,
    shell: Annotated[Literal["bash", "zsh", "fish"] | None, Option("Shell to complete in.", default="$SHELL")] = None,
    as_json: Json,
) -> int:
    """Complete commands and options with the Tab key.

    `install` writes the completion script and loads it in the start-up file of your shell (~/.bashrc or ~/.zshrc; fish
    needs no line there). `show` prints the script.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise ConfigError(f"the shell is {name!r}, which has no completion: pass --shell {', '.join(SHELLS)}")
    script = _script(name)
    if action == "show":
        output.result({"shell": name, "script": script}, script, as_json=as_json)
        return 0
    file, startup = _install(name, script, Path.home())
    loaded = "" if startup is None else f", loaded by {startup}"
    message = f"{file}{loaded}. Open a new {name} to use it."
    files = {"script": str(file), "startup": None if startup is None else str(startup)}
    output.result({"shell": name, **files}, message, as_json=as_json)
    return 0


def _script(shell: str) -> str:
    """Click's completion script. Raises `ConfigError` for a bash that is too old for it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    return kind(root.command, {}, "ctx1", "_CTX1_COMPLETE").source()


def _install(shell: str, script: str, home: Path) -> tuple[Path, Path | None]:
    """Writes the script, and once the line that loads it; returns both files, None for a shell that finds it itself."""
    if shell == "fish":
        file = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions" / "ctx1.fish"
        startup, line = None, ""
    else:
        file = home / f".ctx1-complete.{shell}"
        startup = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
        # Zsh's own completion has to run before, and many start-up files do not run it.
        prefix = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; " if shell == "zsh" else ""
        line = f'{prefix}. "{file}"'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script, encoding="utf-8")
    if startup is not None:
        present = startup.read_text(encoding="utf-8") if startup.exists() else ""
        if line not in present.splitlines():
            gap = "" if present.endswith("\n") or not present else "\n"
            with startup.open("a", encoding="utf-8") as lines:
                lines.write(f"{gap}{line}\n")
    return file, startup
