"""The command that this process runs, and where the value of each option comes from."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument, ArgumentCollection


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command, with what the command line, the environment and a config file say about its parameters.

    Attributes:
        path: The words that name the command, such as `ctx1 synth tasks`.
        arguments: The parameters. Each has a token for each value that it was given, and the token names its source.
        texts: The words behind `--`. None of them is an option.
    """

    path: str
    arguments: ArgumentCollection
    texts: Sequence[str] = ()

    @property
    def names(self) -> set[str]:
        """The flags of all options."""
        return {name for argument in self.arguments for name in argument.names}


TOP_LEVEL = " (top level)"
"""The end of the source of a value from the top level of a config file, which all commands share."""
_TEXTS: ContextVar[Sequence[str]] = ContextVar("texts", default=())
set_texts = _TEXTS.set
_CURRENT: ContextVar[Invocation | None] = ContextVar("invocation", default=None)
current_invocation = _CURRENT.get
set_invocation = _CURRENT.set


def record_invocation(_: App, words: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Record the command in these words as the current invocation.

    cyclopts calls this function after it has assigned the words of the command line to `arguments`, and before it
    converts them.
    """
    set_invocation(Invocation(" ".join(("ctx1", *words)), arguments, _TEXTS.get()))


def given_flags(*fields: str) -> list[str]:
    """Return the flags of those of these parameters that the command line sets. A config file does not count."""
    return [found.name for found in _arguments(fields) if any(token.source == "cli" for token in found.tokens)]


def is_shared(*fields: str) -> bool:
    """Return True if these parameters got values, and all of them are from the top level of a config file."""
    tokens = [token for found in _arguments(fields) for token in found.tokens]
    return bool(tokens) and all(token.source.endswith(TOP_LEVEL) for token in tokens)


def is_set(*fields: str) -> bool:
    """Return True if one of these parameters got a value, on the command line or from a config file."""
    return any(found.tokens for found in _arguments(fields))


def _arguments(fields: Sequence[str]) -> list[Argument]:
    """Return the arguments of the current invocation for these parameters."""
    invocation = current_invocation()
    return [found for found in invocation.arguments if found.field_info.name in fields] if invocation else []
