"""Options that several commands share, and what they open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import config

if TYPE_CHECKING:
    from context_agent.agent import SearchAgent
    from context_agent.policies.protocol import Policy
    from context_agent.retrieval.chroma import ChromaCorpus
    from context_agent.retrieval.protocol import Corpus

Command = Callable[..., Any]

FOLDER = Path(".ctx1")
"""Where an index lies unless said otherwise."""
COLLECTION = "documents"
POLICIES = ("bridge",)


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Which index: a folder or a server, and the collection in it."""

    path: Path | None
    url: str | None
    collection: str


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Who searches, and what it may spend."""

    policy: str
    weights: Path | None
    profile: str
    window: int
    rollouts: int
    max_turns: int
    time_limit: float | None
    save: Path | None


def common(command: Command) -> Command:
    """`--json`, `--config` and `--debug`, which every command takes."""
    return _with(
        command,
        click.option("--json", "as_json", is_flag=True, help="Data on stdout as JSON, one object a line."),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_configure,
            metavar="FILE.toml",
            help="Read options from this file; flags given here go before it.",
        ),
        click.option("--debug", is_flag=True, expose_value=False, help="Show where an error came from."),
    )


def index(command: Command) -> Command:
    """The options that name an index; the command gets them as `index: IndexOptions`."""

    @functools.wraps(command)
    def wrapped(*, path: Path | None, url: str | None, collection: str, **rest: Any) -> Any:
        if path is not None and url is not None:
            raise click.UsageError("give --path or --url, not both")
        folder = FOLDER if path is None and url is None else path
        return command(index=IndexOptions(folder, url, collection), **rest)

    return _with(
        wrapped,
        click.option(
            "--path",
            type=click.Path(path_type=Path, file_okay=False),
            help=f"Folder of the index.  [default: {FOLDER}]",
        ),
        click.option("--url", help="Chroma server to use instead of a folder, e.g. http://localhost:8000."),
        click.option("--collection", default=COLLECTION, show_default=True, help="Collection in it."),
    )


def agent(command: Command) -> Command:
    """The options of a search; the command gets them as `agent: AgentOptions`."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        mine = {name: given.pop(name) for name in AgentOptions.__dataclass_fields__}
        return command(agent=AgentOptions(**mine), **given)

    return _with(
        wrapped,
        click.option("--policy", type=click.Choice(POLICIES), default="bridge", show_default=True, help="Who decides."),
        click.option(
            "--weights",
            type=click.Path(path_type=Path, dir_okay=False),
            help="The bridge policy's weights, as `ctx1 train bridge` writes them.  [default: those that ship]",
        ),
        click.option(
            "--profile",
            type=click.Choice(["default", "context-1"]),
            default="default",
            show_default=True,
            help="Wire format of the harness.",
        ),
        click.option("--window", type=int, default=32_768, show_default=True, help="Size of the context in tokens."),
        click.option(
            "--rollouts", type=click.IntRange(1), default=1, show_default=True, help="Searches fused by rank."
        ),
        click.option(
            "--max-turns", type=click.IntRange(1), default=64, show_default=True, help="Turns before it ends."
        ),
        click.option(
            "--time-limit", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Wall clock of a question."
        ),
        click.option(
            "--save",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Write each trajectory here, as JSONL.",
        ),
    )


@contextmanager
def open_corpus(chosen: IndexOptions) -> Iterator[ChromaCorpus]:
    """The corpus that the options name."""
    from context_agent.retrieval.chroma import ChromaCorpus

    corpus = ChromaCorpus.open(path=chosen.path, url=chosen.url, collection=chosen.collection)
    try:
        yield corpus
    finally:
        corpus.close()


def open_agent(chosen: AgentOptions, corpus: Corpus) -> SearchAgent:
    """An agent on the corpus; the caller closes it."""
    from context_agent.agent import SearchAgent
    from context_agent.episode import Limits

    return SearchAgent(
        corpus,
        _policy(chosen),
        profile=chosen.profile,
        budget=chosen.window,
        limits=Limits(turns=chosen.max_turns, seconds=chosen.time_limit),
        rollouts=chosen.rollouts,
        trajectories=chosen.save,
    )


def _policy(chosen: AgentOptions) -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    return BridgePolicy() if chosen.weights is None else BridgePolicy.load(chosen.weights)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for add in reversed(options):
        command = add(command)
    return command


def _configure(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.default_map = config.load(context, path)
