"""Commands whose options are declared by the annotations of a function. A config file can set the options.

    @command
    def grep(pattern: Annotated[str, Argument("PATTERN")], *, k: Annotated[int, Option("Hits.")] = 5) -> int:

An option's name, type, default and help are thus in one place. If a parameter's annotation is a dataclass, each field
is an option, and the command receives one value. The class's `SECTION` is the heading in the help.

A config file is TOML. A key at the top level sets an option of every command that has it. A table named after a command
holds that command's own options and overrides the top level. Flags override both. Names are the flags' without the
dashes in front: `time-limit` (or `time_limit`).

    collection = "notes"

    [search]
    k = 5
    time-limit = 2.5

A key that no command has is an error.

If a command has more than `MAX_OPTIONS` options, its help describes only the essential ones and lists the names of the
others. `--help-all` describes all. The essential options are those that `@essential` names. By default they are the
command's own options and `ESSENTIAL`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import click

from context_agent._support.small_files import read_toml
from context_agent._support.suggest import closest
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
EXISTING_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
INPUT = click.Path(path_type=Path, allow_dash=True)
"""A file to read; `-` is standard input."""


class IntegerRange(click.IntRange):
    """An integer in a range. The error for a value of another type says "is not a valid integer"."""

    name = "integer"


class NumberRange(click.FloatRange):
    """A number in a range. The error for a value of another type says "is not a valid number"."""

    name = "number"


COUNT = IntegerRange(1)
COUNT_OR_ZERO = IntegerRange(0)
SHARE = NumberRange(0, 1)
POSITIVE_SHARE = NumberRange(0, 1, min_open=True)
SECONDS = NumberRange(0, min_open=True)
METAVARS = {"file": "FILE", "directory": "FOLDER", "path": "FILE"}
"""Placeholders by the names of click's types."""

OWN, COMMON = "Options", "General"
"""Headings of a command's own options, and of those that every command has."""
NOT_IN_FILE = {"config", "debug", "help", "help-all"}
MAX_OPTIONS = 12
"""Options that `--help` describes at most, `--help` included."""
ESSENTIAL = ("path", "url", "collection", "base_url", "model")
"""Options of several commands that their `--help` describes."""
CONFIG_FILE, WHOLE_HELP = f"{__name__}.config_file", f"{__name__}.whole_help"
"""Keys of a context's `meta`: the config file that was read, and whether the help describes every option."""


@dataclass(frozen=True, slots=True)
class Option:
    """The facts about an option that its parameter's name, type and default do not state.

    `type` is a range or a kind of path. `default` describes a default that the command determines when it runs. `flag`
    replaces `--parameter-name`. `bare` is the value of the option if the user gives none.
    """

    help: str
    type: Any = None
    metavar: str | None = None
    default: str | None = None
    flag: str | None = None
    section: str | None = None
    envvar: str | None = None
    bare: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument: its name in the usage line, and its type."""

    metavar: str
    type: Any = None


Json = Annotated[bool, Option("Print data on stdout as JSON, one object a line.", flag="--json", section=COMMON)]
"""The annotation of `as_json`."""


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings."""

    essential: tuple[str, ...] = ()
    """Names of the options that `--help` describes besides `--json`.

    If it is empty, `--help` describes the command's own options and `ESSENTIAL`.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading.

        The command's own options come first, and those of every command come last.
        """
        more: list[tuple[str, str]] = []
        sections = self._by_section(ctx)
        width = formatter.width - max(map(len, sections)) - 6
        for title, options in sections.items():
            described = [option for option in options if self.describes(ctx, option)]
            records = [option.get_help_record(ctx) for option in described]
            if described:
                with formatter.section(title):
                    formatter.write_dl([record for record in records if record is not None])
            names = " ".join(flag_of(option) for option in options if option not in described)
            # click would break a name at a hyphen.
            lines = textwrap.wrap(names, width, break_on_hyphens=False)
            more += zip([title, *[""] * len(lines)], lines, strict=False)
        if more:
            with formatter.section(f"More options ({ctx.command_path} --help-all describes them)"):
                formatter.write_dl(more)

    def describes(self, ctx: click.Context, option: click.Option) -> bool:
        """Return True if the help describes the option, and False if it only names it."""
        few = sum(isinstance(parameter, click.Option) for parameter in self.get_params(ctx)) <= MAX_OPTIONS
        if few or ctx.meta.get(WHOLE_HELP) or {"--json", "--help"} & {*option.opts}:
            return True
        if self.essential:
            return option.name in self.essential
        return getattr(option, "section", COMMON) == OWN or option.name in ESSENTIAL

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the whole summary. It is never truncated, because completion lists it as well."""
        return super().get_short_help_str(limit=1_000)

    def _by_section(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        sections: dict[str, list[click.Option]] = {OWN: []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and not option.hidden:
                sections.setdefault(getattr(option, "section", COMMON), []).append(option)
        sections[COMMON] = sections.pop(COMMON)
        return sections


class SectionedOption(click.Option):
    """An option with its heading. If its default is determined later, it has a description of the default."""

    section = COMMON
    default_text: str | None = None

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Return the default, and the range if it has two ends. The help text itself describes a range with one end."""
        extra = super().get_help_extra(ctx)
        if self.default_text is not None:
            extra["default"] = self.default_text
        if extra.get("range", "").startswith("x"):
            del extra["range"]
        return extra


class CommandGroup(click.Group):
    """A group of commands under headings. A command's module is imported when the command is named or listed."""

    def __init__(
        self,
        name: str,
        sections: Mapping[str, Mapping[str, str]],
        help: str,
        *,
        start_page: str = "",
    ) -> None:
        """Make a group. Its commands are imported when they are used.

        Args:
            name: The name of the group on the command line.
            sections: For each heading, the name of each command and its location, as `module:attribute`.
            help: The text above the list of commands.
            start_page: The text that the group prints without a command. By default the group prints its help.
        """
        super().__init__(name, help=help, invoke_without_command=True, callback=_without_command)
        self.sections = sections
        self.start_page = start_page
        self._locations = {name: location for commands in sections.values() for name, location in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the sections."""
        return list(self._locations)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None if there is none."""
        if cmd_name not in self._locations:
            return None
        module, attribute = self._locations[cmd_name].split(":")
        loaded: click.Command = getattr(import_module(module), attribute)
        loaded.name = cmd_name
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. If the name does not exist, the error suggests the nearest name."""
        name = args[0]
        if name not in self._locations and not name.startswith("-"):
            raise click.UsageError(f"no command {name!r}{_nearest(name, self._locations)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading, with whole summaries."""
        width = max(map(len, self._locations))
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", self._summary(ctx, name)) for name in names])

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the whole summary, which is never truncated."""
        return super().get_short_help_str(limit=1_000)

    def _summary(self, ctx: click.Context, name: str) -> str:
        loaded = self.get_command(ctx, name)
        return "" if loaded is None else loaded.get_short_help_str()


@click.pass_context
def _without_command(context: click.Context) -> None:
    group = context.command
    if context.invoked_subcommand is None and isinstance(group, CommandGroup):
        click.echo(group.start_page or context.get_help())


def essential(names: str) -> Callable[[SectionedCommand], SectionedCommand]:
    """Return a decorator that marks the essential options of a command by the names of their parameters.

    If the command has many options, its help describes only these.
    """

    def mark(marked: SectionedCommand) -> SectionedCommand:
        marked.essential = tuple(names.split())
        return marked

    return mark


def flag_of(option: click.Parameter) -> str:
    """Return the flag that names an option in the help, in errors and in config files.

    It is the option's first flag with two dashes.
    """
    return next((flag for flag in option.opts if flag.startswith("--")), option.opts[0])


def command(function: Callable[..., int]) -> SectionedCommand:
    """Return the command that runs the function.

    The function's docstring is the help of the command. Indented lines are shown unchanged.
    """
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[click.Parameter] = []
    for name, parameter in signature.items():
        if name not in groups:
            parameters.append(_parameter(name, hints[name], parameter.default, OWN))
    for kind in groups.values():
        parameters += _field_options(kind)

    def run(**values: Any) -> int:
        collected = {name: _collect(kind, values) for name, kind in groups.items()}
        return function(**values, **collected)

    parameters += _common()
    return SectionedCommand(function.__name__, callback=run, params=parameters, help=_help(function.__doc__ or ""))


def _help(doc: str) -> str:
    """Return the docstring for click. click wraps each paragraph that is not marked."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(f"\b\n{text}" if re.search("^ ", text, re.MULTILINE) else text for text in paragraphs)


def _field_options(kind: Any) -> Iterator[click.Parameter]:
    """Yield the options of a dataclass, including those of nested dataclasses."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if is_dataclass(hints[field.name]):
            yield from _field_options(hints[field.name])
        else:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield _parameter(field.name, hints[field.name], default, kind.SECTION)


def _collect(kind: Any, values: dict[str, Any]) -> Any:
    """Remove the dataclass's fields from `values`, and return the dataclass with them."""
    hints = get_type_hints(kind)
    return kind(
        **{
            name: _collect(hints[name], values) if is_dataclass(hints[name]) else values.pop(name)
            for name in (field.name for field in fields(kind))
        }
    )


def _parameter(name: str, annotation: Any, default: Any, section: str) -> click.Parameter:
    """Return the option or argument that the annotation declares."""
    kind, spec = get_args(annotation)[:2]
    optional = NoneType in get_args(kind)
    kind = next(part for part in get_args(kind) if part is not NoneType) if optional else kind
    multiple = get_origin(kind) is tuple and Ellipsis in get_args(kind)
    kind = get_args(kind)[0] if multiple else kind
    value_type = spec.type or (click.Choice(get_args(kind)) if get_origin(kind) is Literal else kind)
    missing = default is inspect.Parameter.empty
    settings = {"metavar": spec.metavar, "required": missing and not optional and kind is not bool}
    if isinstance(spec, Argument):
        settings |= {} if missing or multiple else {"default": default}
        return click.Argument([name], type=value_type, nargs=-1 if multiple else 1, **settings)
    if kind is bool:
        settings |= {"is_flag": True, "default": default is True, "show_default": default is True}
    else:
        settings |= {"type": value_type, "multiple": multiple, "show_default": default not in ("", ())}
        settings |= {"metavar": spec.metavar or _metavar(kind, value_type)}
        settings |= {} if missing else {"default": default}
        settings |= {} if spec.bare is None else {"is_flag": False, "flag_value": spec.bare}
    flags = (spec.flag or f"--{name.replace('_', '-')}").split()
    option = SectionedOption([name, *flags], help=spec.help, envvar=spec.envvar, **settings)
    option.section, option.default_text = spec.section or section, spec.default
    return option


def _metavar(kind: Any, value_type: Any) -> str | None:
    """Return the placeholder of a value in the help. If click should choose it, return None.

    For choices, click lists them.
    """
    if isinstance(value_type, click.Path):
        return METAVARS[value_type.name]
    if isinstance(value_type, click.Choice):
        return None
    return "SECONDS" if value_type is SECONDS else {int: "N", float: "X", str: "TEXT"}.get(kind)


def _common() -> list[click.Parameter]:
    """Return the options of every command, except `--json`."""
    config_file = SectionedOption(
        ["--config"],
        type=FILE,
        is_eager=True,
        expose_value=False,
        callback=_configure,
        metavar="FILE.toml",
        help="Read options from this file; flags override it.",
    )
    debug = SectionedOption(
        ["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an unexpected error."
    )
    help_all = SectionedOption(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_whole_help,
        help="Describe every option.",
    )
    return [config_file, debug, help_all]


def _configure(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.default_map = load_config(context, path)
        context.meta[CONFIG_FILE] = path


def _show_whole_help(context: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        context.meta[WHOLE_HELP] = True
        click.echo(context.get_help())
        context.exit()


def load_config(context: click.Context, path: Path) -> dict[str, Any]:
    """Return the options that the file sets for the context's command, by parameter name.

    Raises:
        ConfigError: If the file cannot be read or is not TOML, if no command has one of its tables or keys, or if a
            value has the wrong type.
    """
    data = _read(path)
    root = context.find_root().command
    assert isinstance(root, click.Group)
    _check_keys(_plain(data), _every_option(root, context), str(path))
    _check_tables(data, root, context, str(path))
    options = _plain(data)
    table = data
    for name in context.command_path.split()[1:]:
        table = table.get(name, {})
        options.update(_plain(table))
    flags = _options(context.command)
    return {
        flags[key].name or key: _typed(key, value, flags[key], path) for key, value in options.items() if key in flags
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the config file {path} is not valid TOML: {error}") from error


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items() if not isinstance(value, dict)}


def _check_tables(data: Mapping[str, Any], group: click.Group, context: click.Context, path: str, at: str = "") -> None:
    """Check that every table is a command, and that every key in it is an option of the command."""
    for name, table in data.items():
        if not isinstance(table, dict):
            continue
        loaded = group.get_command(context, name)
        if loaded is None:
            raise ConfigError(f"{path}: unknown table [{at}{name}]{_nearest(name, group.list_commands(context))}")
        _check_keys(_plain(table), _options(loaded), path, f" in [{at}{name}]")
        if isinstance(loaded, click.Group):
            _check_tables(table, loaded, context, path, f"{at}{name}.")


def _check_keys(keys: Iterable[str], options: Iterable[str], path: str, table: str = "") -> None:
    names = set(options)
    for key in keys:
        if key not in names:
            raise ConfigError(f"{path}: unknown key {key!r}{table}{_nearest(key, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = closest(name, names)
    return f"; did you mean {near!r}?" if near else ""


def _options(loaded: click.Command) -> dict[str, click.Option]:
    """Return the options that a file may set, by flag without the dashes."""
    options = [option for option in loaded.params if isinstance(option, click.Option)]
    by_flag = {flag.lstrip("-"): option for option in options for flag in option.opts}
    return {flag: option for flag, option in by_flag.items() if flag not in NOT_IN_FILE}


def _every_option(group: click.Group, context: click.Context) -> set[str]:
    names: set[str] = set()
    for name in group.list_commands(context):
        loaded = group.get_command(context, name)
        if isinstance(loaded, click.Group):
            names |= _every_option(loaded, context)
        elif loaded is not None:
            names |= set(_options(loaded))
    return names


def _typed(key: str, value: Any, option: click.Option, path: Path) -> Any:
    """Return the value if its TOML type fits the option. Afterwards click converts it and checks its range."""
    if option.is_flag != isinstance(value, bool):
        expected = "true or false" if option.is_flag else "a value, not true or false"
        raise ConfigError(f"{path}: {key} = {value!r} should be {expected}")
    if isinstance(value, list) and not option.multiple:
        raise ConfigError(f"{path}: {key} takes one value, not a list")
    return [value] if option.multiple and not isinstance(value, list) else value
