"""The help of commands, as plain text in two columns.

If a command has more than `MAX_OPTIONS` options, `--help` describes only the essential ones and lists the names of the
others. `--help-all` describes all. The essential options are those that `@essential` names. By default they are the
command's own options and `ESSENTIAL`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from cyclopts.help.formatters import PlainFormatter

from context_agent.cli.parameters import GENERAL, OWN

if TYPE_CHECKING:
    from cyclopts import App, Group
    from cyclopts.argument import Argument
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

MAX_OPTIONS = 12
"""Options that `--help` describes at most."""
MIN_TEXT_WIDTH = 20
"""Minimum width of a text. A narrower terminal breaks the lines."""
MAX_COLUMN = 30
"""Width of the column of names. The description of a longer name starts in the next line."""
ESSENTIAL = ("path", "url", "collection", "base_url", "model")
"""Options of several commands that their `--help` describes."""


def commands_of(group: App) -> dict[str, App]:
    """Return the commands of a group by name. The group's `--help` and `--version` are not among them."""
    return {name: command for name, command in group.resolved_commands().items() if not name.startswith("-")}


class TwoColumns(PlainFormatter):
    """The usage, the docstring, and two columns for each group of commands or options.

    Args:
        root: The command line.
        whole: True if every option is described.
    """

    def __init__(self, root: App, *, whole: bool = False) -> None:
        super().__init__()
        self.root = root
        self.whole = whole
        self.listed: list[Argument] = []

    @property
    def _path(self) -> list[App]:
        """The command whose help is printed, behind the groups that it is in."""
        return self.root.app_stack.current_frame

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line. It has the names of optional arguments, in place of cyclopts' `[ARGS]`."""
        names = [f"[{name}]" for name in _optional_arguments(self._path[-1])]
        line = re.sub(r"\[ARGS(?:\.\.\.)?\]", lambda _: " ".join(names), str(usage))
        super().render_usage(console, options, line)

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Print the docstring up to the description of the parameters. Indented lines are printed unchanged.

        cyclopts calls this function before it calls the object for each group.
        """
        self.listed = [] if self.whole else listed_options(self._path[-1])
        for paragraph in _text(self._path[-1]).split("\n\n"):
            indented = re.search("^ ", paragraph, re.MULTILINE)
            lines = paragraph.splitlines() if indented else textwrap.wrap(paragraph, max(console.width, MIN_TEXT_WIDTH))
            self._print_lines(console, lines)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a group. The options of every command come last, and the names of the other options follow them."""
        command = self._path[-1]
        if panel.format == "command":
            rows = [(name, _summary(command[name])) for entry in panel.entries for name in entry.names]
            self._print_table(console, str(panel.title), rows)
            return
        left_out = {option.name for option in self.listed}
        entries = [entry for entry in panel.entries if not left_out & {*entry.names}]
        rows = [(", ".join(entry.display_labels_with_metavar), _description(entry)) for entry in entries]
        self._print_table(console, str(panel.title), rows)
        if panel.title == GENERAL.name:
            path = " ".join(app.name[0] for app in self._path)
            self._print_table(console, f"More options ({path} --help-all describes them)", _by_group(self.listed))

    def _print_table(self, console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
        if not rows:
            return
        column = min(max(len(left) for left, _ in rows), MAX_COLUMN) + 4
        width = max(console.width - column, MIN_TEXT_WIDTH)
        lines = [f"{title}:"]
        for left, right in rows:
            wrapped = textwrap.wrap(right, width, break_on_hyphens=False)
            first = [] if len(left) > MAX_COLUMN else wrapped[:1]
            lines.append(f"  {left:{column - 2}}{''.join(first)}".rstrip())
            lines += [" " * column + line for line in wrapped[len(first) :]]
        self._print_lines(console, lines)

    def _print_lines(self, console: Console, lines: Iterable[str]) -> None:
        console.print("\n".join(lines), "\n", highlight=False, markup=False, soft_wrap=True, sep="")


def _text(command: App) -> str:
    """Return the docstring of a command without the description of its parameters."""
    return re.split(r"^Args:$", inspect.cleandoc(command.help), flags=re.MULTILINE)[0].strip()


def _summary(command: App) -> str:
    return " ".join(_text(command).split("\n\n")[0].split())


def _optional_arguments(command: App) -> list[str]:
    """Return the names of the arguments that may be left out. A name ends in `...` if the argument may repeat."""
    arguments = command.assemble_argument_collection() if command.default_command else ()
    optional = [argument for argument in arguments if argument.show and argument.index is not None]
    return [
        argument.name.lstrip("-").upper() + "..." * (argument.field_info.kind == argument.field_info.VAR_POSITIONAL)
        for argument in optional
        if not argument.required
    ]


def listed_options(command: App) -> list[Argument]:
    """Return the options of which `--help` lists only the names."""
    if command.default_command is None:
        return []
    options = [option for option in command.assemble_argument_collection() if option.show and option.index is None]
    if len(options) <= MAX_OPTIONS:
        return []
    essential = getattr(command.default_command, "essential", ())
    if essential:
        return [option for option in options if option.field_info.name not in (*essential, "json")]
    others = [option for option in options if _heading(option) != OWN.name]
    return [option for option in others if option.field_info.name not in (*ESSENTIAL, "json")]


def _by_group(options: Iterable[Argument]) -> list[tuple[str, str]]:
    """Return the headings that the options have in the whole help, each with the names of its options."""
    names: dict[str, list[str]] = {}
    for option in options:
        names.setdefault(_heading(option), []).append(option.name)
    return [(heading, " ".join(flags)) for heading, flags in names.items()]


def _heading(option: Argument) -> str:
    group, *_ = cast("tuple[Group, ...]", option.parameter.group)
    return group.name


def _description(entry: HelpEntry) -> str:
    facts = [" ".join(entry.description.primary_renderable.plain.split())]
    if entry.choices:
        facts.append(f"[choices: {', '.join(entry.choices)}]")
    if entry.default:
        facts.append(f"[default: {entry.default.removesuffix('.0')}]")
    if entry.required:
        facts.append("[required]")
    return " ".join(facts)
