"""Rules for the values of parameters, headings of the help, and the options of every command.

A command is a function, and cyclopts reads its parameters. A positional parameter is an argument, and a keyword is an
option. If the annotation is a dataclass with `@options_in("Heading")`, each field is an option. The help of an option
is the docstring of the field, or the line about the parameter in the docstring of the function.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import CoercionError, Group, Parameter, validators

from context_agent._support.atomic_files import is_stream
from context_agent._support.suggest import closest
from context_agent.cli.invocation import current_invocation
from context_agent.errors import ConfigError, reason_of

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import ArgumentCollection

LARGEST_COUNT = 10**12
"""The largest number of things. Libraries fail at numbers of more than 64 bits."""
MOST_ROLLOUTS = 1_000
"""The largest number of episodes for one question, as `SearchAgent` has it."""
COUNT = Parameter(validator=validators.Number(gte=1, lte=LARGEST_COUNT), metavar="N")
COUNT_OR_ZERO = Parameter(validator=validators.Number(gte=0, lte=LARGEST_COUNT), metavar="N")
ROLLOUTS = Parameter(validator=validators.Number(gte=1, lte=MOST_ROLLOUTS), metavar="N")
SHARE = Parameter(validator=validators.Number(gte=0, lte=1), metavar="X")
POSITIVE_SHARE = Parameter(validator=validators.Number(gt=0, lte=1), metavar="X")
POSITIVE = Parameter(validator=validators.Number(gt=0, lt=math.inf), metavar="X")
NOT_NEGATIVE = Parameter(validator=validators.Number(gte=0, lt=math.inf), metavar="X")
REQUESTS = Parameter(validator=validators.Number(gte=0, lte=LARGEST_COUNT), metavar="X")
"""A mean number of requests, such as 2.5."""
SECONDS = Parameter(validator=validators.Number(gt=0), metavar="SECONDS")
PORT = Parameter(validator=validators.Number(gte=0, lte=65_535), metavar="N")
REQUIRED = Parameter(required=True)
"""A repeated argument that needs at least one value."""
SeedOption = Annotated[int, Parameter(help="Random seed. Equal seeds give equal results.", metavar="N")]
_OPTION = re.compile(r"--?\w[\w-]*")


def section(heading: str) -> Group:
    """Return the group of options that the help lists under this heading."""
    return Group(heading, sort_key=1)


OWN = Group.create_default_parameters("Options")
"""The options that only one command has."""
GENERAL = Group("General", sort_key=2)
"""The options of every command."""


def options_in(heading: str | Group) -> Parameter:
    """Return a decorator for a dataclass whose fields are options under this heading."""
    return Parameter(name="*", group=section(heading) if isinstance(heading, str) else heading)


@dataclass(frozen=True, slots=True)
class PathRule:
    """A check of a path, before the command does any work.

    Attributes:
        kind: What the path may name, if it exists: a file, a folder, or either (`path`).
        exists: True if the path must exist. The path of an output must not be below a file.
        stdin: True if `-` is standard input, or standard output if the path is written.
        written: True if the command writes the path. A file is replaced by another one, so its folder must be writable,
            and a device or a pipe cannot be such a file.
    """

    kind: Literal["file", "folder", "path"]
    exists: bool = False
    stdin: bool = False
    written: bool = False

    def __call__(self, _: Any, value: Any) -> None:
        """Check each path of the value.

        Raises:
            ValueError: If a path breaks the rule.
        """
        for path in value if isinstance(value, tuple | list) else (value,):
            if isinstance(path, Path) and not (self.stdin and str(path) == "-"):
                try:
                    self._check(path)
                except OSError as error:
                    raise ValueError(f'"{path}" cannot be used ({reason_of(error)}). Pass another path.') from None

    def _check(self, path: Path) -> None:
        other = "an existing" if self.exists else "another"
        kind = "file or folder" if self.kind == "path" else self.kind
        if self.kind == "file" and path.is_dir():
            raise ValueError(f'"{path}" is a folder, not a file. Pass {other} file.')
        if self.kind == "folder" and path.exists() and not path.is_dir():
            raise ValueError(f'"{path}" is a file, not a folder. Pass {other} folder.')
        if self.exists and not path.exists():
            raise ValueError(f'"{path}" does not exist. Pass an existing {kind}.')
        below = next((parent for parent in path.parents if parent.exists()), None)
        if below is not None and not below.is_dir():
            raise ValueError(f'"{below}" is a file, so it cannot contain "{path}". Pass another path.')
        if self.written:
            self._check_written(path, below)

    def _check_written(self, path: Path, parent: Path | None) -> None:
        if self.kind == "file" and is_stream(path):
            raise ValueError(f'"{path}" is a device or a pipe, not a file. Pass another file.')
        folder = path if self.kind == "folder" and path.exists() else parent
        if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
            raise ValueError(f'"{folder}" cannot be written. Pass another path, or allow this user to write it.')


def _refuse_option(_: Any, value: Any) -> None:
    """Refuse a mistyped option as the value of an argument that may be `-`.

    Raises:
        ConfigError: If the value looks like an option and is not behind `--`.
    """
    name, _, _ = str(value).partition("=")
    invocation = current_invocation()
    if _OPTION.fullmatch(name) and not (invocation and str(value) in invocation.texts):
        near = closest(name, invocation.names if invocation else ())
        raise ConfigError(f"unknown option {name}.{f' Did you mean {near}?' if near else ' See --help.'}")


def expand_home(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Replace a leading ~ of a path with the home folder.

    A shell does not replace it in `--out=~/runs`, and a config file has no shell.
    """
    for argument in arguments:
        if Path in {argument.hint, *get_args(argument.hint)} or "FOLDER" in str(argument.parameter.metavar):
            argument.tokens[:] = [
                token.evolve(value=os.path.expanduser(token.value))  # noqa: PTH111 (pathlib raises if there is no home)
                for token in argument.tokens
            ]


def refuse_fractions(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse a number with a point as the value of a whole number. cyclopts would round it.

    Raises:
        CoercionError: If the value of such a parameter has a point.
    """
    for argument in arguments:
        for token in argument.tokens if argument.hint in (int, int | None) else ():
            if "." in token.value:
                raise CoercionError(argument=argument, token=token, target_type=int)


def refuse_empty_paths(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse an empty path. It would mean the working folder, but is usually a variable of the shell that is not set.

    Raises:
        ConfigError: If the value of a parameter for paths is empty.
    """
    for argument in arguments:
        if Path in {argument.hint, *get_args(argument.hint)} and any(token.value == "" for token in argument.tokens):
            raise ConfigError(f"{argument.name} is empty, so it names no path. Pass a path, such as . for this folder.")


def refuse_shared_files(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse an output file that is also another file of the command. The command would destroy the other one.

    Raises:
        ConfigError: If two parameters name the same file, and the command writes one of them.
    """
    outputs: dict[str, str] = {}
    inputs: dict[str, str] = {}
    for argument in arguments:
        rules = argument.parameter.validator
        rule = next((rule for rule in rules if isinstance(rule, PathRule)), None) if isinstance(rules, tuple) else rules
        if not isinstance(rule, PathRule) or rule.kind == "folder":
            continue
        for value in (token.value for token in argument.tokens if token.value not in ("", "-")):
            file = os.path.realpath(value)
            other = outputs.get(file) or (inputs.get(file) if rule.written else None)
            if other is not None:
                raise ConfigError(
                    f"{other} and {argument.name} name the same file {value}, so one would destroy the other. Pass "
                    "another path."
                )
            if rule.written:
                outputs[file] = argument.name
            elif rule.exists:
                inputs[file] = argument.name


DASH = Parameter(allow_leading_hyphen=True, validator=_refuse_option)
"""An argument that may be `-`, for standard input. cyclopts would take it for an option."""
FILE = Parameter(validator=PathRule("file"), metavar="FILE")
FOLDER = Parameter(validator=PathRule("folder"), metavar="FOLDER")
OUTPUT_FILE = Parameter(validator=PathRule("file", written=True), metavar="FILE")
OUTPUT_FOLDER = Parameter(validator=PathRule("folder", written=True), metavar="FOLDER")
EXISTING_FILE = Parameter(validator=PathRule("file", exists=True), metavar="FILE")
EXISTING_FOLDER = Parameter(validator=PathRule("folder", exists=True), metavar="FOLDER")
EXISTING_PATH = Parameter(validator=PathRule("path", exists=True))
"""An input that is a file or a folder."""
INPUT_FILE = Parameter(allow_leading_hyphen=True, validator=(_refuse_option, PathRule("file", exists=True, stdin=True)))
"""An argument that is an input file, or `-` for standard input."""
INPUT_FILE_VALUE = Parameter(allow_leading_hyphen=True, validator=PathRule("file", exists=True, stdin=True))
"""An option whose value is an input file, or `-` for standard input."""
OUTPUT_FILE_VALUE = Parameter(allow_leading_hyphen=True, validator=PathRule("file", stdin=True, written=True))
"""An option whose value is an output file, or `-` for standard output."""
TEXT = Parameter(metavar="TEXT")
DASH_VALUE = Parameter(allow_leading_hyphen=True)
"""An option whose value may be `-` or start with it."""


@options_in(GENERAL)
@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options of every command."""

    json: bool = False
    """Print data on stdout as JSON, one object per line."""
    config: Annotated[Path | None, FILE, Parameter(metavar="FILE.toml")] = None
    """Read options from this file. Options on the command line override it."""
    debug: bool = False
    """Show the traceback of an unexpected error."""


def essential(names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that marks the essential options of a command by the names of their parameters.

    If the command has many options, `--help` describes only these.
    """

    def mark(function: Callable[..., int]) -> Callable[..., int]:
        function.essential = tuple(names.split())  # type: ignore[attr-defined]
        return function

    return mark
