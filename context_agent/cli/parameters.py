"""Rules for the values of parameters, headings of the help, and the options of every command.

A command is a function, and cyclopts reads its parameters. A positional parameter is an argument, and a keyword is an
option. If the annotation is a dataclass with `@options_in("Heading")`, each field is an option. The help of an option
is the docstring of the field, or the line about the parameter in the docstring of the function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CoercionError, Group, Parameter, validators

from context_agent._support.suggest import closest
from context_agent.cli.invocation import current_invocation
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import ArgumentCollection

COUNT = Parameter(validator=validators.Number(gte=1), metavar="N")
COUNT_OR_ZERO = Parameter(validator=validators.Number(gte=0), metavar="N")
SHARE = Parameter(validator=validators.Number(gte=0, lte=1), metavar="X")
POSITIVE_SHARE = Parameter(validator=validators.Number(gt=0, lte=1), metavar="X")
POSITIVE = Parameter(validator=validators.Number(gt=0, lt=math.inf), metavar="X")
NOT_NEGATIVE = Parameter(validator=validators.Number(gte=0, lt=math.inf), metavar="X")
SECONDS = Parameter(validator=validators.Number(gt=0), metavar="SECONDS")
PORT = Parameter(validator=validators.Number(gte=0, lte=65_535), metavar="N")
FILE = Parameter(validator=validators.Path(dir_okay=False), metavar="FILE")
FOLDER = Parameter(validator=validators.Path(file_okay=False), metavar="FOLDER")
EXISTING_FILE = Parameter(validator=validators.Path(exists=True, dir_okay=False), metavar="FILE")
EXISTING_FOLDER = Parameter(validator=validators.Path(exists=True, file_okay=False), metavar="FOLDER")
REQUIRED = Parameter(required=True)
"""A repeated argument that needs at least one value."""
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


def refuse_fractions(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse a number with a point as the value of a whole number. cyclopts would round it.

    Raises:
        CoercionError: If the value of such a parameter has a point.
    """
    for argument in arguments:
        for token in argument.tokens if argument.hint in (int, int | None) else ():
            if "." in token.value:
                raise CoercionError(argument=argument, token=token, target_type=int)


DASH = Parameter(allow_leading_hyphen=True, validator=_refuse_option)
"""An argument that may be `-`, for standard input. cyclopts would take it for an option."""
DASH_VALUE = Parameter(allow_leading_hyphen=True)
"""An option whose value may be `-` or start with it."""


@options_in(GENERAL)
@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options of every command."""

    json: bool = False
    """Print data on stdout as JSON, one object per line."""
    config: Annotated[Path | None, FILE, Parameter(metavar="FILE.toml")] = None
    """Read options from this file; flags override it."""
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
