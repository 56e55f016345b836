"""Options that several commands share, and what they open."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import config
from context_agent.errors import CorpusNotFoundError

if TYPE_CHECKING:
    from context_agent.agent import SearchAgent
    from context_agent.retrieval.chroma import ChromaCorpus
    from context_agent.retrieval.protocol import Corpus

Command = Callable[..., Any]

EMBEDDERS = "static, sentence-transformers:NAME, openai:MODEL[@URL] or chroma-default."
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

    @property
    def remedy(self) -> str:
        """The command line that makes this index."""
        place = f"--url {self.url}" if self.url else f"--path {self.path}"
        return f"To make one: ctx1 index SOURCE {place} --collection {self.collection}"


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How an index is read. The keys name metadata entries of a collection that was made by something else."""

    embedder: str | None = None
    reranker: str | None = None
    text_key: str | None = None
    title_key: str | None = None
    document_key: str | None = None


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
    return together(
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

    return together(
        wrapped,
        click.option(
            "--path",
            type=click.Path(path_type=Path, file_okay=False),
            help=f"Folder of the index.  [default: {FOLDER}]",
        ),
        click.option("--url", help="Chroma server to use instead of a folder, e.g. http://localhost:8000."),
        click.option("--collection", default=COLLECTION, show_default=True, help="Collection in it."),
    )


def opening(command: Command) -> Command:
    """The options for reading an index; the command gets them as `opening: OpenOptions`."""
    return together(
        gathered(command, "opening", OpenOptions),
        click.option(
            "--embedder", metavar="SPEC", help=f"What embeds questions: {EMBEDDERS}  [default: as the index was made]"
        ),
        click.option(
            "--reranker", metavar="SPEC", help="cross-encoder:MODEL, or the URL of a /rerank endpoint.  [default: none]"
        ),
        click.option(
            "--text-key", metavar="KEY", help="Metadata entry that holds the text, in a collection of your own."
        ),
        click.option("--title-key", metavar="KEY", help="Metadata entry that holds the title, there."),
        click.option("--document-key", metavar="KEY", help="Metadata entry that holds the document's id, there."),
    )


def agent(command: Command) -> Command:
    """The options of a search; the command gets them as `agent: AgentOptions`."""
    return together(
        gathered(command, "agent", AgentOptions),
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


def open_corpus(index: IndexOptions, opening: OpenOptions | None = None) -> ChromaCorpus:
    """The corpus that the options name; the caller closes it."""
    from context_agent.retrieval.chroma import ChromaCorpus
    from context_agent.retrieval.embedders import load_embedder
    from context_agent.retrieval.rerankers import load_reranker

    opening = opening or OpenOptions()
    try:
        return ChromaCorpus.open(
            index.path,
            url=index.url,
            collection=index.collection,
            embedder=None if opening.embedder is None else load_embedder(opening.embedder),
            reranker=load_reranker(opening.reranker),
            text_key=opening.text_key,
            title_key=opening.title_key,
            document_key=opening.document_key,
        )
    except CorpusNotFoundError as error:
        raise CorpusNotFoundError(f"{error}. {index.remedy}") from error


def open_agent(chosen: AgentOptions, corpus: Corpus) -> SearchAgent:
    """An agent on the corpus; the caller closes it."""
    from context_agent.agent import SearchAgent
    from context_agent.episode import Limits
    from context_agent.policies.factory import load_policy

    return SearchAgent(
        corpus,
        load_policy(chosen.policy, weights=chosen.weights),
        profile=chosen.profile,
        budget=chosen.window,
        limits=Limits(turns=chosen.max_turns, seconds=chosen.time_limit),
        rollouts=chosen.rollouts,
        trajectories=chosen.save,
    )


def gathered(command: Command, name: str, kind: type[Any]) -> Command:
    """The command with its options of a kind handed to it as one value."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        mine = {field.name: given.pop(field.name) for field in fields(kind)}
        return command(**{name: kind(**mine)}, **given)

    return wrapped


def together(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options, listed in this order."""
    for add in reversed(options):
        command = add(command)
    return command


def _configure(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.default_map = config.load(context, path)
