"""Options that several commands share, and the objects that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import click

from context_agent._support.small_files import parse_json
from context_agent.cli import output
from context_agent.cli.command import (
    COUNT,
    EXISTING_FILE,
    FILE,
    FOLDER,
    OWN,
    POSITIVE_SHARE,
    SECONDS,
    SHARE,
    IntegerRange,
    NumberRange,
    Option,
)
from context_agent.errors import ConfigError, CorpusNotFoundError, UnknownEmbedderError
from context_agent.harness.profile import NAMES as PROFILES
from context_agent.pruning.budget import WINDOW
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.retrieval.language_fit import MULTILINGUAL_EMBEDDER

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent, Machines, WorkerPool, WorkerSetup
    from context_agent.agent import SearchAgent
    from context_agent.harness.episode import Limits, Observer
    from context_agent.harness.policy import Policy
    from context_agent.integrations.server.savings import SavingsReport
    from context_agent.pruning import ContextPruner
    from context_agent.pruning.report import Confirm, RestoredPassage
    from context_agent.retrieval.chroma.corpus import ChromaCorpus
    from context_agent.retrieval.corpus import Corpus

EMBEDDERS = (
    f"static, minilm, sentence-transformers:NAME, openai:MODEL[@URL] or chroma-default. {MULTILINGUAL_EMBEDDER} knows "
    "50 languages. A URL gets an API key only if it ends in ?api_key_env=VARIABLE."
)
NO_VECTORS = "none"
"""The embedder that searches by words alone."""
INDEX_FOLDER = Path(".ctx1")
"""The default folder of an index."""


class _MetadataFilter(click.ParamType[Any]):
    """A filter on metadata, as KEY=VALUE or as JSON.

    If a VALUE is a number, `true` or `false`, it has that type. In quotes it is text.
    """

    name = "filter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the filter as a dictionary.

        The method fails if the text has neither form, or if no index could use the filter.
        """
        from context_agent.retrieval.filters import compile_where

        try:
            where = _json_filter(value) if value.lstrip().startswith("{") else _equality(value)
            compile_where(where)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return where


def _json_filter(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigError(f"the filter is not valid JSON: {error}") from None


def _equality(text: str) -> Any:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'{text!r} is not a filter. Write KEY=VALUE, or JSON like {{"year": {{"$gte": 2020}}}}')
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = value.strip()
    return {key.strip(): parsed if isinstance(parsed, str | int | float) else value.strip()}


WhereOption = Annotated[
    Any,
    Option(
        'Search only chunks whose metadata match: lang=en, or JSON like {"year": {"$gte": 2020}}.',
        _MetadataFilter(),
        "FILTER",
    ),
]
EffortOption = Annotated[
    Literal["careful", "fast"] | None,
    Option("How the bridge policy ranks: by reading the best passages, or by words and links.", default="careful"),
]
ProfileOption = Annotated[
    str | None,
    Option(
        "Tools, prompts and wire format of the episodes.",
        click.Choice(PROFILES),
        default="default, or lean for a packaged model",
    ),
]
WindowOption = Annotated[
    int | None,
    Option(
        "Size of the context window in tokens.",
        section="Limits",
        default=f"{WINDOW}, 2048 in the profile lean, or as a model was trained",
    ),
]
SeedOption = Annotated[int, Option("Random seed. Equal seeds give equal results.")]
WeightsOption = Annotated[
    Path | None,
    Option(
        "Weights of the bridge policy, as `ctx1 train bridge` writes them.", FILE, default="the weights in the package"
    ),
]
ProcessesOption = Annotated[
    int | None, Option("Number of worker processes.", COUNT, default="1; with --ray one per core of its machines")
]
RayOption = Annotated[
    str | None,
    Option(
        "Run the processes on the machines of a Ray cluster, by default the one of RAY_ADDRESS or of this machine.",
        metavar="[ADDRESS]",
        bare="auto",
    ),
]
SaveOption = Annotated[Path | None, Option("Write each trajectory to this folder, as JSONL.", FOLDER, section=OWN)]
RunFile = Annotated[
    Path,
    Option("Run file with the settings; the repository has examples in configs/.", FILE, "FILE.toml", flag="--run"),
]
SetOption = Annotated[
    tuple[str, ...],
    Option(
        "Override a setting of the run file, such as rollouts.groups=8; repeatable. VALUE is TOML.",
        metavar="KEY=VALUE",
        flag="--set",
    ),
]


@contextmanager
def worker_machines(ray: str | None) -> Iterator[Machines]:
    """Yield this machine, or the machines of a Ray cluster. The cluster stays connected until the block ends."""
    from context_agent._support.worker_pool import ThisMachine

    if ray is None:
        yield ThisMachine()
        return
    from context_agent._support.ray_machines import RayMachines

    machines = RayMachines(ray)
    try:
        yield machines
    finally:
        machines.close()


@contextmanager
def worker_pool(
    setup: WorkerSetup[Any, Any],
    processes: int | None,
    ray: str | None,
    *,
    concurrency: int,
    answer: CallParent | None = None,
) -> Iterator[WorkerPool[Any, Any] | None]:
    """Yield the worker pool that the two options ask for. If this process should do the work itself, yield None."""
    from context_agent._support.worker_pool import WorkerPool

    if ray is None and (processes or 1) == 1:
        yield None
        return
    with worker_machines(ray) as machines:
        count = processes or machines.cores
        with WorkerPool(setup, machines, processes=count, concurrency=max(count, concurrency), answer=answer) as pool:
            yield pool


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The options for pruning the conversations of agents."""

    SECTION: ClassVar[str] = "Pruning"

    budget: Annotated[str, Option("Tokens of tool results to keep, or the share of them, e.g. 25%.", metavar="N")] = (
        "8000"
    )
    strategy: Annotated[
        Literal["reader", "age", "random", "bm25", "embedding", "none"], Option("How passages are judged.")
    ] = "reader"
    effort: Annotated[Literal["careful", "fast"], Option("fast lets the strategy reader judge by words alone.")] = (
        "careful"
    )
    adapted: Annotated[
        Path | None, Option("File of ctx1 train pruner; the strategy reader reads with it.", FILE, "FILE.safetensors")
    ] = None
    turns: Annotated[float, Option("Expected number of further requests.", NumberRange(0))] = 10
    cached_price: Annotated[
        float, Option("Price of a cached input token, as a share of a fresh one; 1 without a cache.", SHARE)
    ] = 0.1

    def open(
        self,
        confirm: Confirm | None = None,
        confirm_above: int = 0,
        on_restore: Callable[[RestoredPassage], None] | None = None,
    ) -> ContextPruner:
        """Return a pruner.

        Raises:
            ConfigError: If the budget or the file of `adapted` is invalid, or if `adapted` does not fit the strategy.
        """
        from context_agent.pruning import ContextPruner, Prices

        prices = Prices(cached=self.cached_price, turns=self.turns)
        return ContextPruner(
            self.budget,
            strategy=self.strategy,
            effort=self.effort,
            adapted=self.adapted,
            prices=prices,
            confirm=confirm,
            confirm_above=confirm_above,
            on_restore=on_restore,
        )


@dataclass(frozen=True, slots=True)
class SavingsOptions:
    """The file for the report of what pruning saved, and the prices of tokens."""

    SECTION: ClassVar[str] = "Report"

    report: Annotated[
        Path | None, Option("Write what was saved to this file every minute and at the end.", FILE, "FILE.json")
    ] = None
    prices: Annotated[
        Path | None,
        Option("Prices of models, instead of those of this package, which age.", EXISTING_FILE, "FILE.toml"),
    ] = None

    def open(self) -> SavingsReport:
        """Return an empty report.

        Raises:
            ConfigError: If the file of prices cannot be read or is invalid.
        """
        from context_agent.integrations.server.savings import PriceTable, SavingsReport

        return SavingsReport(PriceTable.read(self.prices))


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The index to use: a folder or a server, and the collection in it.

    If neither is set, the folder is `INDEX_FOLDER`.
    """

    SECTION: ClassVar[str] = "Index"

    path: Annotated[
        Path | None, Option("Folder of the index.", FOLDER, default=str(INDEX_FOLDER), flag="--path --index")
    ] = None
    url: Annotated[
        str | None, Option("Chroma server to use instead of a folder, e.g. http://localhost:8000.", metavar="URL")
    ] = None
    collection: Annotated[
        str | None,
        Option(
            "Collection in the folder or on the server.",
            metavar="NAME",
            default=f"{DEFAULT_COLLECTION}; if it is missing, the only one that there is is read",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.path is not None and self.url is not None:
            raise click.UsageError("--path and --url name two indexes: remove one of them")
        if self.path is None and self.url is None:
            object.__setattr__(self, "path", INDEX_FOLDER)

    @property
    def named(self) -> bool:
        """True if an option names the index."""
        return self.url is not None or self.path != INDEX_FOLDER

    @property
    def remedy(self) -> str:
        """The advice for a user whose index does not exist."""
        location = f"--url {self.url}" if self.url else f"--path {self.path}"
        check = "Check that the server runs. " if self.url else ""
        collection = self.collection or DEFAULT_COLLECTION
        return f"{check}To make this index: ctx1 index SOURCE {location} --collection {collection}"


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The options for reading an index. The keys name metadata entries of a collection that another program made."""

    SECTION: ClassVar[str] = "Retrieval"

    embedder: Annotated[
        str | None,
        Option(
            f"Embedder of the questions: {EMBEDDERS} none searches by words alone.",
            metavar="SPEC",
            default="the index's, if it needs no network",
        ),
    ] = None
    reranker: Annotated[
        str | None,
        Option(
            "Reranker: cross-encoder:MODEL, or the URL of a /rerank endpoint, which gets an API key only if it ends in "
            "?api_key_env=VARIABLE.",
            metavar="SPEC",
            default="none",
        ),
    ] = None
    text_key: Annotated[
        str | None, Option("For a collection of another program: metadata entry with the text.", metavar="KEY")
    ] = None
    title_key: Annotated[
        str | None, Option("For a collection of another program: metadata entry with the title.", metavar="KEY")
    ] = None
    document_key: Annotated[
        str | None, Option("For a collection of another program: metadata entry with the document id.", metavar="KEY")
    ] = None


@dataclass(frozen=True, slots=True)
class CorpusOptions(IndexOptions):
    """An index to read, and the options for reading it."""

    opening: OpenOptions = field(default_factory=OpenOptions)

    def open(self, *, cache: Path | None = None) -> ChromaCorpus:
        """Return the corpus. The caller closes it. `cache` stores the data that a server's collection lacks.

        If another program made the collection and its embedder is unknown, the corpus is searched by words alone. A
        note says so.
        """
        try:
            corpus = self._open(self.opening.embedder, cache)
        except UnknownEmbedderError as error:
            corpus = self._open(NO_VECTORS, cache)
            output.note(f"{error}. Until then, BM25 and grep search it without its vectors.")
        except CorpusNotFoundError as error:
            raise CorpusNotFoundError(f"{error}. {self.remedy}") from error
        for notice in corpus.notices:
            output.note(f"{notice}.")
        return corpus

    def _open(self, embedder: str | None, cache: Path | None) -> ChromaCorpus:
        from context_agent.retrieval.chroma.corpus import ChromaCorpus
        from context_agent.retrieval.rerankers import load_reranker

        return ChromaCorpus.open(
            self.path,
            url=self.url,
            collection=self.collection,
            embedder=embedder,
            reranker=load_reranker(self.opening.reranker),
            text_key=self.opening.text_key,
            title_key=self.opening.title_key,
            document_key=self.opening.document_key,
            cache=cache,
        )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A model on a server."""

    SECTION: ClassVar[str] = "Language model"

    base_url: Annotated[
        str | None,
        Option(
            "URL of the model's server.",
            metavar="URL",
            default="$CTX1_BASE_URL, or http://localhost:8000/v1; api.anthropic.com for anthropic",
        ),
    ] = None
    model: Annotated[
        str | None, Option("Name of the model, as the server lists it.", metavar="NAME", default="$CTX1_MODEL")
    ] = None
    api_key_env: Annotated[
        str | None,
        Option(
            "Environment variable that contains the API key.",
            metavar="VARIABLE",
            default="$CTX1_API_KEY_ENV, or CTX1_API_KEY; ANTHROPIC_API_KEY for api.anthropic.com",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ModelOptions(ServerOptions):
    """The language model to use, and how to sample from it. If a field is None, the policy's default applies."""

    model: Annotated[
        str | None,
        Option(
            "Name of the model, as the server lists it. The policy tokens also runs a packaged model, or a folder such "
            "as that of a training run, in this process.",
            metavar="NAME_OR_FOLDER",
            default="$CTX1_MODEL",
        ),
    ] = None
    tools: Annotated[
        Literal["native", "text"] | None,
        Option("How a chat model calls tools; text is for models without tool calls.", default="native"),
    ] = None
    temperature: Annotated[float | None, Option("Sampling temperature.", NumberRange(0), default="the model's")] = None
    top_p: Annotated[
        float | None, Option("Probability mass for nucleus sampling.", POSITIVE_SHARE, default="the model's")
    ] = None
    max_tokens: Annotated[int | None, Option("Maximum number of tokens in one reply.", COUNT)] = None
    reasoning_effort: Annotated[
        str | None, Option("Reasoning effort: low, medium, high, or another level of the model.", metavar="LEVEL")
    ] = None
    tokenizer: Annotated[
        str | None,
        Option(
            "Tokenizer whose chat template the tokens policy uses.",
            metavar="NAME_OR_FOLDER",
            default="gpt-oss's format",
        ),
    ] = None
    timeout: Annotated[float | None, Option("Timeout for one reply.", SECONDS)] = None


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The policy that decides."""

    SECTION: ClassVar[str] = "Policy"

    policy: Annotated[
        Literal["bridge", "hybrid", "chat", "anthropic", "tokens"],
        Option(
            "Policy that decides: the embedded one (bridge), one hybrid search for comparison (hybrid), or a language "
            "model by chat, by Anthropic's Messages API, or by token ids."
        ),
    ] = "bridge"
    weights: WeightsOption = None
    effort: EffortOption = None
    adapter: Annotated[
        str | None,
        Option(
            "Trained adapter for a packaged model, or for the model in a folder.",
            metavar="FOLDER",
            default="the one in the package, if it has one",
        ),
    ] = None
    profile: ProfileOption = None
    language_model: ModelOptions = field(default_factory=ModelOptions)

    @property
    def wire_format(self) -> str:
        """The name of the profile that the episodes use."""
        from context_agent.policies import default_profile

        return self.profile or default_profile(self.policy, self.language_model.model)

    @property
    def window(self) -> int | None:
        """The window that the policy was trained with. If it is None, the profile's own window is used."""
        from context_agent.policies import default_window

        return default_window(self.policy, self.language_model.model) if self.language_model.base_url is None else None

    def load(self) -> Policy:
        """Return the policy."""
        from context_agent.policies import load_policy

        model = asdict(self.language_model)
        return load_policy(self.policy, weights=self.weights, effort=self.effort, adapter=self.adapter, **model)


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The limits of an episode."""

    SECTION: ClassVar[str] = "Limits"

    max_turns: Annotated[
        int | None, Option("Maximum number of turns of an episode.", COUNT, default="64; with the profile lean 12")
    ] = None
    time_limit: Annotated[float | None, Option("Time limit of an episode.", SECONDS)] = None

    def load(self) -> Limits:
        """Return the limits in the form that an episode takes."""
        from context_agent.harness.episode import Limits

        return Limits(turns=self.max_turns, seconds=self.time_limit)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """An agent: its policy, its limits, and the number of episodes for each question."""

    SECTION: ClassVar[str] = "Policy"

    policy: PolicyOptions
    limits: LimitOptions
    window: WindowOption = None
    rollouts: Annotated[int, Option("Episodes per question; their rankings are fused.", COUNT)] = 1
    swarm: Annotated[
        int | None,
        Option(
            "Let the policy start up to N sub-agents at a time, each with a context of its own.", IntegerRange(1, 64)
        ),
    ] = None
    save: SaveOption = None

    def open(self, corpus: Corpus, observers: Sequence[Observer] = ()) -> SearchAgent:
        """Return an agent on the corpus. The caller closes it."""
        from context_agent.agent import SearchAgent
        from context_agent.swarm import Swarm

        return SearchAgent(
            corpus,
            self.policy.load(),
            profile=self.policy.wire_format,
            budget=self.window or self.policy.window,
            limits=self.limits.load(),
            rollouts=self.rollouts,
            trajectories=self.save,
            observers=observers,
            swarm=None if self.swarm is None else Swarm(breadth=self.swarm),
        )
