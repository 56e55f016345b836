"""Options that several commands share, and the objects that they open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from context_agent._support.small_files import parse_json
from context_agent.cli import output
from context_agent.cli.invocation import is_shared
from context_agent.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    FILE,
    FOLDER,
    NOT_NEGATIVE,
    OWN,
    POSITIVE_SHARE,
    SECONDS,
    SHARE,
    options_in,
    section,
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
DEFAULT_EMBEDDER = "minilm for up to 600,000 characters of English, otherwise static"
"""The choice of `default_embedder`, in words."""
DEFAULT_POLICY: Literal["bridge"] = "bridge"
NO_VECTORS = "none"
"""The embedder that searches by words alone."""
INDEX_FOLDER = Path(".ctx1")
"""The default folder of an index."""


def _metadata_filter(_: Any, tokens: Sequence[Token]) -> Any:
    """Return the filter as a dictionary. A VALUE that is a number, `true` or `false` has that type.

    In quotes it is text.

    Raises:
        ValueError: If the text is neither KEY=VALUE nor JSON, or if no index could use the filter.
    """
    from context_agent.retrieval.filters import compile_where

    text = tokens[0].value
    try:
        where = _json_filter(text) if text.lstrip().startswith("{") else _equality(text)
        compile_where(where)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return where


def _json_filter(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigError(
            f'the filter is not valid JSON ({error}). Write it like {{"year": {{"$gte": 2020}}}}.'
        ) from None


def _equality(text: str) -> Any:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'a filter must be KEY=VALUE, or JSON like {{"year": {{"$gte": 2020}}}}; got {text!r}')
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = value.strip()
    return {key.strip(): parsed if isinstance(parsed, str | int | float) else value.strip()}


WhereOption = Annotated[
    Any,
    Parameter(
        help='Search only chunks whose metadata match: lang=en, or JSON like {"year": {"$gte": 2020}}.',
        converter=_metadata_filter,
        metavar="FILTER",
    ),
]
EffortOption = Annotated[
    Literal["careful", "fast"] | None,
    Parameter(
        help="How the bridge policy ranks: by reading the best passages, or by words and links.", show_default="careful"
    ),
]
ProfileOption = Annotated[
    str | None,
    Parameter(
        help="Tools, prompts and wire format of the episodes.",
        choices=PROFILES,
        show_default="default, or lean for a packaged model",
    ),
]
WindowOption = Annotated[
    int | None,
    Parameter(
        help="Size of the context window in tokens.",
        metavar="N",
        show_default=f"{WINDOW}, 2048 in the profile lean, or as a model was trained",
        group=section("Limits"),
    ),
]
SeedOption = Annotated[int, Parameter(help="Random seed. Equal seeds give equal results.", metavar="N")]
WeightsOption = Annotated[
    Path | None,
    EXISTING_FILE,
    Parameter(
        help="Weights of the bridge policy, as `ctx1 train bridge` writes them.",
        show_default="the weights in the package",
    ),
]
ProcessesOption = Annotated[
    int | None,
    COUNT,
    Parameter(help="Number of worker processes.", show_default="1; with --ray one per core of its machines"),
]
RayOption = Annotated[
    tuple[str, ...] | None,
    Parameter(
        help="Run the processes on the machines of a Ray cluster, by default that of RAY_ADDRESS or of this machine.",
        metavar="[ADDRESS]",
        consume_multiple=(0, 1),
    ),
]
SaveOption = Annotated[
    Path | None, FOLDER, Parameter(help="Write each trajectory to this folder, as JSONL.", group=OWN)
]
RunFile = Annotated[
    Path,
    EXISTING_FILE,
    Parameter(
        help="Run file with the settings; the repository has examples in configs/.", name="--run", metavar="FILE.toml"
    ),
]
SetOption = Annotated[
    tuple[str, ...],
    Parameter(
        help="Override a setting of the run file, such as rollouts.groups=8; repeatable. VALUE is TOML.",
        name="--set",
        metavar="KEY=VALUE",
    ),
]


@contextmanager
def worker_machines(ray: tuple[str, ...] | None) -> Iterator[Machines]:
    """Yield this machine, or the machines of the Ray cluster at the address, which may be left out.

    The cluster stays connected until the block ends.
    """
    from context_agent._support.worker_pool import ThisMachine

    if ray is None:
        yield ThisMachine()
        return
    from context_agent._support.ray_machines import RayMachines

    machines = RayMachines(*ray or ("auto",))
    try:
        yield machines
    finally:
        machines.close()


@contextmanager
def worker_pool(
    setup: WorkerSetup[Any, Any],
    processes: int | None,
    ray: tuple[str, ...] | None,
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


@options_in("Pruning")
@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The options for pruning the conversations of agents."""

    budget: Annotated[float | str, Parameter(metavar="N")] = 8000
    """Tokens of tool results to keep, or the share of them, e.g. 25%."""
    strategy: Literal["reader", "age", "random", "bm25", "embedding", "none"] = "reader"
    """How passages are judged."""
    effort: Literal["fast", "careful", "thorough"] = "careful"
    """How the strategy reader judges. fast judges by words alone. thorough compares whole passages and is slowest."""
    adapted: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.safetensors")] = None
    """Weights for the strategy reader, as `ctx1 train pruner` writes them."""
    turns: Annotated[float, NOT_NEGATIVE] = 10
    """Expected number of further requests."""
    cached_price: Annotated[float, SHARE] = 0.1
    """Price of a cached input token, as a share of the price of a fresh one. Without a cache, it is 1."""

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
            int(self.budget) if isinstance(self.budget, float) and self.budget.is_integer() else self.budget,
            strategy=self.strategy,
            effort=self.effort,
            adapted=self.adapted,
            prices=prices,
            confirm=confirm,
            confirm_above=confirm_above,
            on_restore=on_restore,
        )


@options_in("Report")
@dataclass(frozen=True, slots=True)
class SavingsOptions:
    """The file for the report of what pruning saved, and the prices of tokens."""

    report: Annotated[Path | None, FILE, Parameter(metavar="FILE.json")] = None
    """Write the report of the savings to this file every minute and at the end."""
    prices: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.toml")] = None
    """Prices of models. They replace the prices in the package, which become outdated."""

    def open(self) -> SavingsReport:
        """Return an empty report.

        Raises:
            ConfigError: If the file of prices cannot be read or is invalid.
        """
        from context_agent.integrations.server.savings import PriceTable, SavingsReport

        return SavingsReport(PriceTable.read(self.prices))


@options_in("Index")
@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The index to use: a folder or a server, and the collection in it.

    If neither is set, the folder is `INDEX_FOLDER`.
    """

    path: Annotated[Path | None, FOLDER, Parameter(name=("--path", "--index"), show_default=str(INDEX_FOLDER))] = None
    """Folder of the index."""
    url: Annotated[str | None, Parameter(metavar="URL")] = None
    """Chroma server to use instead of a folder, e.g. http://localhost:8000."""
    collection: Annotated[
        str | None,
        Parameter(
            metavar="NAME", show_default=f"{DEFAULT_COLLECTION}; if it is missing, a search reads the only other one"
        ),
    ] = None
    """Collection in the folder or on the server."""

    def __post_init__(self) -> None:
        if self.path is not None and self.url is not None:
            raise ConfigError("--path and --url name two indexes. Remove one of them.")
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
        collection = f" --collection {self.collection}" if self.collection else ""
        return f"To make this index: ctx1 index SOURCE {location}{collection}"


@options_in("Retrieval")
@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The options for reading an index. The keys name metadata entries of a collection that another program made."""

    embedder: Annotated[
        str | None,
        Parameter(
            help=f"Embedder of the questions: {EMBEDDERS} none searches by words alone.",
            metavar="SPEC",
            show_default="the index's, if it needs no network",
        ),
    ] = None
    reranker: Annotated[str | None, Parameter(metavar="SPEC", show_default="none")] = None
    """Reranker: late-interaction, which works offline, cross-encoder:MODEL, or the URL of a /rerank endpoint, which
    gets an API key only if it ends in ?api_key_env=VARIABLE."""
    text_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the text."""
    title_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the title."""
    document_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the document id."""
    shared_keys: Annotated[bool, Parameter(parse=False)] = field(
        default_factory=lambda: is_shared("text_key", "title_key", "document_key")
    )
    """True if all these keys are from the top level of a config file. Then an index of this package ignores them."""


@dataclass(frozen=True, slots=True)
class CorpusOptions(IndexOptions):
    """An index to read, and the options for reading it."""

    opening: OpenOptions = OpenOptions()

    def open(self, *, cache: Path | None = None, notes: bool = True) -> ChromaCorpus:
        """Return the corpus. The caller closes it. `cache` stores the data that a server's collection lacks.

        If another program made the collection and its embedder is unknown, the corpus is searched by words alone. If
        `notes` is true, a note says so, and others name the choices that the user did not make.
        """
        from context_agent.retrieval.chroma.database import MissingCollectionError

        try:
            corpus = self._open(self.opening.embedder, cache)
        except UnknownEmbedderError as error:
            corpus = self._open(NO_VECTORS, cache)
            if notes:
                output.note(f"{error}. Until then, BM25 and grep search it without its vectors.")
        except CorpusNotFoundError as error:
            if self.url is not None and not isinstance(error, MissingCollectionError):
                raise  # The server does not answer, so it cannot make an index either.
            raise CorpusNotFoundError(f"{error}. {self.remedy}") from error
        for notice in corpus.notices if notes else ():
            output.note(f"{notice}.")
        return corpus

    def _open(self, embedder: str | None, cache: Path | None) -> ChromaCorpus:
        from context_agent.retrieval.chroma.corpus import ChromaCorpus, UnusedKeysError
        from context_agent.retrieval.rerankers import load_reranker

        opening = self.opening
        keys: dict[str, Any] = {
            "text_key": opening.text_key,
            "title_key": opening.title_key,
            "document_key": opening.document_key,
        }
        open_with = partial(
            ChromaCorpus.open,
            self.path,
            url=self.url,
            collection=self.collection,
            embedder=embedder,
            reranker=load_reranker(opening.reranker),
            cache=cache,
        )
        try:
            return open_with(**keys)
        except UnusedKeysError:
            if not opening.shared_keys:
                raise
            return open_with()


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A model on a server."""

    base_url: Annotated[
        str | None,
        Parameter(
            metavar="URL", show_default="$CTX1_BASE_URL, or http://localhost:8000/v1; api.anthropic.com for anthropic"
        ),
    ] = None
    """URL of the model's server."""
    model: Annotated[str | None, Parameter(metavar="NAME", show_default="$CTX1_MODEL")] = None
    """Name of the model, as the server lists it."""
    api_key_env: Annotated[
        str | None,
        Parameter(
            metavar="VARIABLE",
            show_default="$CTX1_API_KEY_ENV, or CTX1_API_KEY; ANTHROPIC_API_KEY for api.anthropic.com",
        ),
    ] = None
    """Environment variable that contains the API key."""


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ModelOptions(ServerOptions):
    """The language model to use, and how to sample from it. If a field is None, the policy's default applies."""

    model: Annotated[str | None, Parameter(metavar="NAME_OR_FOLDER", show_default="$CTX1_MODEL")] = None
    """Name of the model, as the server lists it. The policy tokens also runs the packaged model smollm2, or a
    folder such as that of a training run, in this process."""
    tools: Annotated[Literal["native", "text"] | None, Parameter(show_default="native")] = None
    """How a chat model calls tools; text is for models without tool calls."""
    temperature: Annotated[float | None, NOT_NEGATIVE, Parameter(show_default="the model's")] = None
    """Sampling temperature."""
    top_p: Annotated[float | None, POSITIVE_SHARE, Parameter(show_default="the model's")] = None
    """Probability mass for nucleus sampling."""
    max_tokens: Annotated[int | None, COUNT] = None
    """Maximum number of tokens in one reply."""
    reasoning_effort: Annotated[str | None, Parameter(metavar="LEVEL")] = None
    """Reasoning effort: low, medium, high, or another level of the model."""
    tokenizer: Annotated[str | None, Parameter(metavar="NAME_OR_FOLDER", show_default="gpt-oss's format")] = None
    """Tokenizer whose chat template the tokens policy uses."""
    timeout: Annotated[float | None, SECONDS] = None
    """Timeout for one reply."""


def unused_options(names: Collection[str], chosen: Callable[[str], Any]) -> set[str]:
    """Return options that the command's policy, its expert or its strategy for pruning does not take.

    The command may lack some of these options.

    Args:
        names: The options of the command.
        chosen: A function that returns the value of an option, or None if it has none.
    """
    unused = set[str]()
    if "strategy" in names and (chosen("strategy") not in (None, "reader") or chosen("effort") == "fast"):
        unused.add("adapted")
    kind = chosen("policy") or DEFAULT_POLICY if "policy" in names else chosen("expert")
    if kind is None and "expert" not in names:
        return unused
    from context_agent.policies import Kind, option_names

    # The expert `oracle`, the default, plays the bridge policy. It may have a tokenizer, which counts its tokens.
    oracle = kind not in get_args(Kind)
    taken = option_names("bridge" if oracle else kind, {"model": chosen("model"), "base_url": chosen("base-url")})
    of_some = {"weights", "effort", "adapter", *(option.name for option in fields(ModelOptions))}
    unused |= {name.replace("_", "-") for name in of_some - {*taken, *(("tokenizer",) if oracle else ())}}
    return unused | ({"swarm"} if kind == "hybrid" else set())


@options_in("Policy")
@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The options that choose the policy and its effort."""

    policy: Literal["bridge", "hybrid", "chat", "anthropic", "tokens"] = DEFAULT_POLICY
    """Policy that decides: the embedded one (bridge), one hybrid search for comparison (hybrid), or a language
    model by chat, by Anthropic's Messages API, or by token ids."""
    weights: WeightsOption = None
    effort: EffortOption = None
    adapter: Annotated[
        str | None, Parameter(metavar="FOLDER", show_default="the one in the package, if it has one")
    ] = None
    """Trained adapter for a packaged model, or for the model in a folder."""
    profile: ProfileOption = None
    language_model: ModelOptions = ModelOptions()

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


@options_in("Limits")
@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The limits of an episode."""

    max_turns: Annotated[int | None, COUNT, Parameter(show_default="64; with the profile lean 12")] = None
    """Maximum number of turns of an episode."""
    time_limit: Annotated[float | None, SECONDS] = None
    """Time limit of an episode."""

    def load(self) -> Limits:
        """Return the limits in the form that an episode takes."""
        from context_agent.harness.episode import Limits

        return Limits(turns=self.max_turns, seconds=self.time_limit)


@options_in("Policy")
@dataclass(frozen=True, slots=True)
class AgentOptions:
    """An agent: its policy, its limits, and the number of episodes for each question."""

    policy: PolicyOptions = PolicyOptions()
    limits: LimitOptions = LimitOptions()
    window: WindowOption = None
    rollouts: Annotated[int, COUNT] = 1
    """Episodes per question; their rankings are fused."""
    swarm: Annotated[int | None, Parameter(validator=Number(gte=1, lte=64), metavar="N")] = None
    """Let the policy start up to N sub-agents at a time, each with a context of its own."""
    save: SaveOption = None

    def open(self, corpus: Corpus, observers: Sequence[Observer] = ()) -> SearchAgent:
        """Return an agent on the corpus. The caller closes it.

        Raises:
            ConfigError: If the policy cannot start sub-agents, or if an option is invalid.
        """
        if self.swarm is not None and self.policy.policy == "hybrid":
            raise ConfigError(
                "the hybrid policy searches once and starts no sub-agents. Remove --swarm, or choose another --policy."
            )
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
