"""Options that several commands share, and what they open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import config
from context_agent.errors import CorpusNotFoundError
from context_agent.harness.profile import NAMES as PROFILES
from context_agent.retrieval.chroma import COLLECTION

if TYPE_CHECKING:
    from context_agent.agent import Observer, SearchAgent
    from context_agent.retrieval.chroma.corpus import ChromaCorpus
    from context_agent.retrieval.corpus import Corpus

Command = Callable[..., Any]

EMBEDDERS = (
    "static, sentence-transformers:NAME, openai:MODEL[@URL] or chroma-default. A URL gets a key only if it ends in "
    "?api_key_env=VARIABLE."
)
FOLDER = Path(".ctx1")
"""Where an index lies unless said otherwise."""
POLICIES = ("bridge", "chat", "tokens")


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
class ModelOptions:
    """Which language model decides, and how it is asked. None leaves it to the policy's own default."""

    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    tools: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    tokenizer: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which model server to look at, and what it should be fit for."""

    base_url: str | None
    model: str | None
    api_key_env: str | None
    window: int
    token_ids: bool
    probe_context: bool


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Who decides, and what an episode may take."""

    policy: str
    language_model: ModelOptions
    weights: Path | None
    profile: str
    max_turns: int
    time_limit: float | None
    save: Path | None


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Who searches, and what it may spend."""

    policy: str
    language_model: ModelOptions
    weights: Path | None
    profile: str
    window: int
    rollouts: int
    swarm: int | None
    max_turns: int
    time_limit: float | None
    save: Path | None


def common(command: Command) -> Command:
    """`--json`, `--config` and `--debug`, which every command takes."""
    return together(
        command,
        told,
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_configure,
            metavar="FILE.toml",
            help="Read options from this file; flags given here go before it.",
        ),
    )


def told(command: Command) -> Command:
    """`--json` and `--debug`, for commands whose `--config` is a run's file."""
    return together(
        command,
        click.option("--json", "as_json", is_flag=True, help="Data on stdout as JSON, one object a line."),
        click.option("--debug", is_flag=True, expose_value=False, help="Show where an unexpected error came from."),
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
            "--embedder",
            metavar="SPEC",
            help=f"What embeds questions: {EMBEDDERS}  [default: the index's, if it needs no network]",
        ),
        click.option(
            "--reranker",
            metavar="SPEC",
            help="cross-encoder:MODEL, or the URL of a /rerank endpoint (with ?api_key_env=VARIABLE for a key).  "
            "[default: none]",
        ),
        click.option(
            "--text-key", metavar="KEY", help="Metadata entry that holds the text, in a collection of your own."
        ),
        click.option("--title-key", metavar="KEY", help="Metadata entry that holds the title, there."),
        click.option("--document-key", metavar="KEY", help="Metadata entry that holds the document's id, there."),
    )


def _server(command: Command) -> Command:
    """The options that name a model on a server."""
    return together(
        command,
        click.option(
            "--base-url",
            metavar="URL",
            help="Server of the model, OpenAI-compatible.  [default: $CTX1_BASE_URL, or http://localhost:8000/v1]",
        ),
        click.option("--model", metavar="NAME", help="The model, as the server lists it.  [default: $CTX1_MODEL]"),
        click.option(
            "--api-key-env",
            metavar="VARIABLE",
            help="Environment variable that holds the key.  [default: $CTX1_API_KEY_ENV, or CTX1_API_KEY]",
        ),
    )


def model(command: Command) -> Command:
    """The options of a language model; the command gets them as `language_model: ModelOptions`."""
    return together(
        _server(gathered(command, "language_model", ModelOptions)),
        click.option(
            "--tools",
            type=click.Choice(["native", "text"]),
            help="How a chat model calls tools; text for one without tool calls.  [default: native]",
        ),
        click.option("--temperature", type=click.FloatRange(0), help="[default: the model's own]"),
        click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="[default: the model's own]"),
        click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of one reply."),
        click.option("--reasoning-effort", metavar="LEVEL", help="low, medium, high, or what the model knows."),
        click.option(
            "--tokenizer",
            metavar="NAME_OR_FOLDER",
            help="For the tokens policy: whose chat template to speak.  [default: gpt-oss's format]",
        ),
        click.option(
            "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Patience with one reply."
        ),
    )


def inspected(command: Command) -> Command:
    """The options for looking at a model server; the command gets them as `server: ServerOptions`."""
    return together(
        _server(gathered(command, "server", ServerOptions)),
        click.option(
            "--window", type=int, default=32_768, show_default=True, help="Context that the model should hold."
        ),
        click.option("--token-ids", is_flag=True, help="Check what the tokens policy needs of the server, too."),
        click.option(
            "--probe-context",
            is_flag=True,
            help="Where the server does not tell its length, try a prompt as long as the window (costs its tokens).",
        ),
    )


def agent(command: Command) -> Command:
    """The options of a search; the command gets them as `agent: AgentOptions`."""
    return together(
        _deciding(gathered(command, "agent", AgentOptions)),
        click.option("--window", type=int, default=32_768, show_default=True, help="Size of the context in tokens."),
        click.option(
            "--rollouts", type=click.IntRange(1), default=1, show_default=True, help="Searches fused by rank."
        ),
        click.option(
            "--swarm",
            type=click.IntRange(1, 64),
            metavar="N",
            help="Let the policy start up to N searchers at a time, each with a context of its own.",
        ),
    )


def policy(command: Command) -> Command:
    """The options of a policy alone; the command gets them as `deciding: PolicyOptions`."""
    return _deciding(gathered(command, "deciding", PolicyOptions))


def weights(command: Command) -> Command:
    """The embedded policy's weights; the command gets `weights`."""
    return click.option(
        "--weights",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The embedded policy's weights, as `ctx1 train bridge` writes them.  [default: those that ship]",
    )(command)


def _deciding(command: Command) -> Command:
    """The options that say who decides, and what an episode may take."""
    return together(
        model(command),
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            default="bridge",
            show_default=True,
            help="Who decides: the embedded policy, or a language model by chat or by token ids.",
        ),
        weights,
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="default",
            show_default=True,
            help="Wire format of the harness.",
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


def open_corpus(index: IndexOptions, opening: OpenOptions | None = None, *, cache: Path | None = None) -> ChromaCorpus:
    """The corpus that the options name; the caller closes it. `cache` holds what a server's collection lacks."""
    from context_agent.retrieval.chroma.corpus import ChromaCorpus
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
            cache=cache,
        )
    except CorpusNotFoundError as error:
        raise CorpusNotFoundError(f"{error}. {index.remedy}") from error


def open_agent(chosen: AgentOptions, corpus: Corpus, observers: Sequence[Observer] = ()) -> SearchAgent:
    """An agent on the corpus; the caller closes it."""
    from context_agent.agent import SearchAgent
    from context_agent.harness.episode import Limits
    from context_agent.policies.registry import load_policy
    from context_agent.swarm import Swarm

    return SearchAgent(
        corpus,
        load_policy(chosen.policy, weights=chosen.weights, **asdict(chosen.language_model)),
        profile=chosen.profile,
        budget=chosen.window,
        limits=Limits(turns=chosen.max_turns, seconds=chosen.time_limit),
        rollouts=chosen.rollouts,
        trajectories=chosen.save,
        observers=observers,
        swarm=None if chosen.swarm is None else Swarm(breadth=chosen.swarm),
    )


def otel(command: Command) -> Command:
    """`--otel`, which every command that serves takes; see `observed`."""
    return together(
        command,
        click.option(
            "--otel",
            is_flag=True,
            help="Send spans by OpenTelemetry, as its OTEL_... variables say. They hold no texts unless "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only.",
        ),
    )


@contextmanager
def observed(*, otel: bool) -> Iterator[tuple[Observer, ...]]:
    """The observers for `open_agent`; with `otel` spans are exported while the block runs."""
    if not otel:
        yield ()
        return
    from context_agent.integrations.otel import Tracing, exporting

    with exporting():
        yield (Tracing(),)


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
