"""The run file: every table of a training run's TOML file, with its defaults and checks. No torch.

    [model]
    name = "openai/gpt-oss-20b"

    [data]
    questions = ["tasks.jsonl"]
    path = ".ctx1"

All other tables are optional. Their defaults are those of the Context-1 report if it gives any. Paths are relative to
the working directory. A table is a frozen dataclass whose docstring has a line for each field; `read_run` reads a file,
checks the types and bounds of the annotations, and refuses unknown names.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter, ValidationError

from context_agent._support.small_files import parse_toml, read_toml
from context_agent._support.suggest import closest, suggestion
from context_agent.errors import ConfigError
from context_agent.harness.profile import profile as named_profile
from context_agent.pruning.budget import RESERVE, RESERVES, WINDOW, Budget
from context_agent.retrieval.chroma import COLLECTION
from context_agent.swarm import MAX_BREADTH
from context_agent.train.curriculum import AsyncRolloutConfig, Curriculum, RolloutConfig
from context_agent.train.environment import WorldConfig
from context_agent.train.judge.judge import JudgeConfig
from context_agent.train.parl import ParlConfig
from context_agent.train.rewards import GAINS, RewardConfig
from context_agent.train.tiny_model import TinyModelConfig

Notify = Callable[[str], None]
"""Receives a message for the user."""

OnUpdate = Callable[[int, int], None]
"""Receives the number of finished updates and of all updates."""


RunKind = Literal["sft", "rl"]
"""What a run trains by: lessons (`ctx1 train sft`) or rewards (`ctx1 train rl`)."""

LEARNING_RATE = 1e-5
"""Peak learning rate of the published baseline."""
ADAPTER_LESSONS_RATE = 2e-4
"""Peak learning rate of lessons that train adapters: that of GPT-2 in the paper on LoRA (arXiv 2106.09685, D.3)."""


class Loss(StrEnum):
    """The loss that the rows are trained with."""

    CISPO = "cispo"
    """Clipped importance weights with the gradient stopped, over all trained tokens (arXiv 2506.13585)."""
    GRPO = "grpo"
    """Clipped surrogate, averaged within a row and then over rows (arXiv 2402.03300)."""
    DR_GRPO = "dr_grpo"
    """Clipped surrogate over a constant number of tokens, without the bias for length (arXiv 2503.20783)."""
    REINFORCE = "reinforce"
    """No ratio: -A log p over the trained tokens; for rows sampled by the weights being trained."""

    @property
    def uses_ratio(self) -> bool:
        """Whether the sampler's log-probabilities matter."""
        return self is not Loss.REINFORCE


class RendererKind(StrEnum):
    """How prompts are spelled and replies are read."""

    HARMONY = "harmony"
    """gpt-oss's format."""
    TEMPLATE = "template"
    """The chat template of the model's own tokenizer, calls as JSON."""
    LINES = "lines"
    """The same template, calls as lines of commands: for the profile `lean`."""
    WORDS = "words"
    """Whole words of the toy environment, for tiny models; it has a harness profile of its own."""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Low-rank adapters (LoRA, arXiv 2106.09685).

    - `rank`: rank of the update matrices; the published baseline uses 32.
    - `alpha`: scale of the update, which is divided by the rank.
    - `modules`: names of the linear layers with adapters.
    - `parameters`: names of the stacked expert weights with adapters.
    - `first_layer`: the layer from which on there are adapters. Below it nothing is computed backwards.
    """

    rank: PositiveInt = 32
    alpha: PositiveFloat = 64.0
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    parameters: tuple[str, ...] = ()
    first_layer: NonNegativeInt = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model that is trained: either `name` or `tiny`.

    - `name`: a folder, a packaged model (`smollm2`), or a name on the hub.
    - `revision`: revision on the hub.
    - `tiny`: a tiny model instead of a named one.
    - `dtype`: type that the model computes in. Weights that are trained, all or adapters, have 32 bits.
    - `attention`: attention implementation of transformers.
    - `dequantize`: load MXFP4 weights, which cannot be trained, in `dtype`.
    - `gradient_checkpointing`: compute activations again in the backward pass instead of storing them.
    - `renderer`: how prompts are spelled.
    - `reasoning_effort`: reasoning effort in harmony's system message.
    - `parallel`: whether a harmony reply may have several calls.
    - `lora`: adapters to train; without it all weights are trained.
    - `adapter`: a folder of trained LoRA adapters to continue with, as supervised training leaves them.
    """

    name: str = ""
    revision: str | None = None
    tiny: TinyModelConfig | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    attention: str | None = None
    dequantize: bool = False
    gradient_checkpointing: bool = True
    renderer: RendererKind = RendererKind.HARMONY
    reasoning_effort: Literal["low", "medium", "high"] = "high"
    parallel: bool = False
    lora: LoraConfig | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        if bool(self.name) == (self.tiny is not None):
            raise ConfigError("name a model (model.name), or describe a tiny one in [model.tiny]: one of the two")


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The questions and the index.

    - `questions`: question files with gold, for training.
    - `dev`: question files with gold, for evaluation.
    - `path`: folder of a local index.
    - `url`: address of a Chroma server.
    - `documents`: files or folders of documents, held in memory, instead of an index.
    - `collection`: name of the collection.
    - `embedder`: embedder of the index, if it is not the one that ships.
    - `reranker`: reranker of the searches.
    - `trajectories`: a folder of `ctx1 synth trajectories`, or several: demonstrations.
    - `missing_gold`: whether questions whose gold is not in the index stop the run or are dropped.
    - `world`: a toy environment instead of questions and an index.
    """

    questions: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    path: str | None = None
    url: str | None = None
    documents: tuple[str, ...] = ()
    collection: str = COLLECTION
    embedder: str | None = None
    reranker: str | None = None
    trajectories: str | tuple[str, ...] | None = None
    missing_gold: Literal["refuse", "drop"] = "refuse"
    world: WorldConfig | None = None

    def __post_init__(self) -> None:
        if self.world is not None and (self.questions or self.path or self.url or self.documents):
            raise ConfigError(
                "data.world has its own corpus and questions: leave out data.questions, path, url and documents"
            )
        if self.documents and (self.path or self.url):
            raise ConfigError("data.documents replaces an index: leave out data.path and data.url")


@dataclass(frozen=True, slots=True)
class EpisodeConfig:
    """The harness: profile, window and limits of an episode.

    - `profile`: harness profile.
    - `reserve`: tokens kept free behind every action; tiny models need fewer, since a window holds eight reserves.
    - `window`: tokens of the context window.
    - `windows`: windows of the episodes that train, one a question in turn; by default `window`. A call shows as much
      as in `window`. Evaluations use `window`.
    - `per_call`: tokens that a call may show; 0 for the profile's share of the window, mostly an eighth.
    - `turns`: turn limit.
    - `seconds`: time limit.
    - `calls`: most tool calls of a turn.
    - `workers`: calls that run at the same time.
    - `swarm`: sub-agents that one turn may start; 0 for none.
    - `searchers`: folder of a frozen model that decides in sub-agents; by default the trained policy does.
    - `shown`: hits that a search shows; 0 for as many as the profile.
    """

    profile: Literal["default", "context-1", "summary", "lean"] = "default"
    reserve: PositiveInt = RESERVE
    window: int = WINDOW
    windows: tuple[int, ...] = ()
    per_call: NonNegativeInt = 0
    turns: PositiveInt = 64
    seconds: PositiveFloat | None = None
    calls: PositiveInt = 16
    workers: PositiveInt = 8
    swarm: Annotated[int, Field(ge=0, le=MAX_BREADTH)] = 0
    searchers: str | None = None
    shown: NonNegativeInt = 0

    def __post_init__(self) -> None:
        smallest = RESERVES * self.reserve
        if self.window < smallest:
            raise ConfigError(
                f"episodes.window = {self.window} is too small: use at least {smallest}, {RESERVES} reserves"
            )
        if any(not smallest <= window <= self.window for window in self.windows):
            raise ConfigError(
                f"episodes.windows must lie between {smallest} ({RESERVES} reserves) and episodes.window = "
                f"{self.window}; got {list(self.windows)}"
            )
        if self.searchers and not self.swarm:
            raise ConfigError("episodes.searchers names a model for sub-agents, and episodes.swarm = 0 allows none")

    @property
    def budget(self) -> Budget:
        """The window and its parts, by default as the profile divides it."""
        if not self.per_call:
            return named_profile(self.profile).budget(self.window, reserve=self.reserve)
        return Budget(self.window, per_call=self.per_call, reserve=self.reserve)

    def training_budget(self, number: int) -> Budget | None:
        """Return the budget of a question's episodes in training, by its place among the questions; None for
        `budget`.
        """
        return self.budget.resized(self.windows[number % len(self.windows)]) if self.windows else None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What samples.

    - `kind`: the trainer's own model in this process, or a vLLM server.
    - `base_url`: address of the server.
    - `sync`: weights that the server gets: a LoRA `adapter` from a shared folder, or all of them over `nccl`.
    - `every`: steps between two weight syncs with a server.
    - `adapters`: folder of the synced adapters, which trainer and server see under the same path.
    - `adapter_name`: name of the synced adapters on the server.
    - `batch`: most sequences of a batch in this process.
    - `timeout`: timeout for one reply, in seconds.
    - `temperature`: temperature of the episodes that train, and of the loss. For other temperatures than 1 start
      vLLM with `--logprobs-mode processed_logprobs`.
    - `max_tokens`: longest reply, in tokens.
    """

    kind: Literal["transformers", "vllm"] = "transformers"
    base_url: str = "http://localhost:8000/v1"
    sync: Literal["adapter", "nccl"] = "adapter"
    every: PositiveInt = 1
    adapters: str | None = None
    adapter_name: str = "policy"
    batch: PositiveInt = 16
    timeout: PositiveFloat = 600.0
    temperature: PositiveFloat = 1.0
    max_tokens: PositiveInt = 4_096


MISMATCH_BOUNDS = {"float32": 0.01, "bfloat16": 0.1, "float16": 0.05}
"""What `loss.mismatch` is by default, for each `model.dtype`: several times what `benchmarks/mismatch.py` measures."""


@dataclass(frozen=True, slots=True)
class LossConfig:
    """The loss.

    - `kind`: which loss.
    - `cap`: upper bound of CISPO's ratio.
    - `clip`: lower and upper epsilon of the clipped surrogates (DAPO's clip-higher by default).
    - `kl`: weight of the KL divergence from the initial policy.
    - `staleness`: most updates that a row may be old; older rows are dropped and counted.
    - `mismatch`: largest mean difference between the log-probabilities of sampler and trainer for the same weights;
      beyond it the run stops. By default .01 in float32, .1 in bfloat16, .05 in float16.
    - `mask_above`: rows with a negative advantage are not trained if their log-probabilities have fallen by more than
      this since they were sampled, on average (DeepSeek-V3.2, arXiv 2512.02556). By default all are trained.
    - `pass_tokens`: most padded tokens of a forward pass; 0 runs each row alone, which is best for long rows.
    - `router_replay`: send the tokens of a mixture of experts to the experts that the sampler chose for them (R3,
      arXiv 2510.11370).
    """

    kind: Loss = Loss.CISPO
    cap: PositiveFloat = 5.0
    clip: tuple[PositiveFloat, PositiveFloat] = (0.2, 0.28)
    kl: NonNegativeFloat = 0.0
    staleness: NonNegativeInt = 8
    mismatch: PositiveFloat | None = None
    mask_above: PositiveFloat | None = None
    pass_tokens: NonNegativeInt = 0
    router_replay: bool = False

    def __post_init__(self) -> None:
        if self.mask_above is not None and not self.kind.uses_ratio:
            raise ConfigError(
                f'loss.mask_above = {self.mask_above} has no effect on loss.kind = "{self.kind}", which does not use '
                "the sampler's log-probabilities: leave it out, or choose another loss"
            )


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW. The defaults are the published baseline's.

    - `learning_rate`: peak learning rate; by default 1e-5, and 2e-4 for lessons that train adapters.
    - `betas`: decay rates of the two moments.
    - `weight_decay`: decoupled weight decay.
    - `max_grad_norm`: norm to which gradients are clipped.
    - `warmup`: updates of linear warm-up.
    - `schedule`: learning rate schedule.
    """

    learning_rate: PositiveFloat | None = None
    betas: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] = (0.9, 0.95)
    weight_decay: NonNegativeFloat = 0.0
    max_grad_norm: NonNegativeFloat = 1.0
    warmup: NonNegativeInt = 0
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Supervised fine-tuning, `ctx1 train sft`.

    - `learning_rate`: peak learning rate of the lessons, if it is not `optimiser.learning_rate`.
    - `epochs`: passes over the rows.
    - `rows`: rows of an update.
    - `rows_per_pass`: rows of a forward pass.
    - `demonstrations`: expert episodes, in a toy environment.
    - `held_out`: share of the questions whose demonstrations measure the loss and are not trained on.
    - `every`: updates between two measurements on the held-out demonstrations.
    """

    learning_rate: PositiveFloat | None = None
    epochs: PositiveInt = 2
    rows: PositiveInt = 16
    rows_per_pass: PositiveInt = 1
    demonstrations: PositiveInt = 2_000
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    every: PositiveInt = 50

    def __post_init__(self) -> None:
        if self.rows % self.rows_per_pass:
            raise ConfigError(f"sft.rows = {self.rows} must be a multiple of sft.rows_per_pass = {self.rows_per_pass}")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """Evaluation on the dev questions during reinforcement learning.

    - `every`: steps between two evaluations; 0 for none.
    - `questions`: dev questions that are asked.
    - `temperatures`: sampling temperatures; 0 is greedy.
    - `best`: the metric, at the first temperature, of which the highest value marks the best model.
    """

    every: NonNegativeInt = 10
    questions: PositiveInt = 64
    temperatures: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)] = (0.0, 1.0)
    best: Literal["reward", "recall"] = "reward"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Checkpoints.

    - `every`: updates between two checkpoints.
    - `keep`: newest checkpoints that are kept.
    """

    every: PositiveInt = 4
    keep: Annotated[int, Field(ge=2)] = 2


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """Where metrics go besides `metrics.jsonl`.

    - `to`: trackers; by default trackio, which writes to this machine, if it is installed.
    - `project`: project name at the trackers.
    - `run`: run name at the trackers; by default the name of the run's folder.
    """

    to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] | None = None
    project: str = "context-agent"
    run: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedCosts:
    """What the estimate of `--dry-run` assumes of an episode and of the machine; use measured figures if you have any.

    - `sampled`: sampled tokens of an episode.
    - `row_tokens`: tokens in all rows of an episode.
    - `longest_row`: tokens of the longest row; by default the whole window.
    - `sampled_per_second`: tokens sampled a second by the whole machine.
    - `trained_per_second`: tokens trained a second by the whole machine.
    - `gpus`: GPUs that train.
    - `gpu_memory`: memory of a GPU, in GB.
    - `server_gpus`: GPUs that sample; 0 if they share the training ones.
    - `server_sequences`: sequences at the same time on each sampling GPU.
    - `sharded`: whether weights and states are spread over the training GPUs (ZeRO stage 3, FSDP2).
    """

    sampled: PositiveInt = 4_000
    row_tokens: PositiveInt = 24_000
    longest_row: PositiveInt | None = None
    sampled_per_second: PositiveFloat | None = None
    trained_per_second: PositiveFloat | None = None
    gpus: NonNegativeInt = 1
    gpu_memory: PositiveFloat | None = None
    server_gpus: NonNegativeInt = 0
    server_sequences: PositiveInt = 16
    sharded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A run file.

    - `out`: folder of the run.
    - `seed`: random seed.
    - `threads`: torch threads; 0 for torch's default.
    - `minutes`: time limit. The run stops after the update that reaches it, and saves its state; 0 for no limit.

    Every other field is the table of its name.
    """

    out: str = "runs/policy"
    seed: int = 0
    threads: NonNegativeInt = 0
    minutes: NonNegativeFloat = 0.0
    model: ModelConfig
    data: DataConfig
    episodes: EpisodeConfig = field(default_factory=EpisodeConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollouts: RolloutConfig = field(default_factory=RolloutConfig)
    async_rollouts: AsyncRolloutConfig | None = None
    rewards: RewardConfig = field(default_factory=RewardConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    parl: ParlConfig = field(default_factory=ParlConfig)
    curriculum: Curriculum = field(default_factory=Curriculum)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimizerConfig = field(default_factory=OptimizerConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    expected: ExpectedCosts = field(default_factory=ExpectedCosts)

    def __post_init__(self) -> None:
        needed = self.rollouts.substeps - 1 if self.async_rollouts is None else self.oldest
        if self.loss.staleness < needed:
            ahead = "" if self.async_rollouts is None else f"async_rollouts.ahead = {self.async_rollouts.ahead} and "
            raise ConfigError(
                f"loss.staleness = {self.loss.staleness} would drop rows before they are trained: with {ahead}"
                f"rollouts.substeps = {self.rollouts.substeps} set it to at least {needed}"
            )
        if self.rollouts.demonstrations and not self.data.trajectories:
            raise ConfigError(
                f"rollouts.demonstrations = {self.rollouts.demonstrations}, and the run file names no trajectories: "
                f"set data.trajectories to a folder of `ctx1 synth trajectories`, or rollouts.demonstrations to 0"
            )
        if self.rollouts.refill and self.async_rollouts is not None:
            raise ConfigError(
                "rollouts.refill needs the rewards of a step before its other questions are sampled, and "
                "[async_rollouts] samples ahead of them: remove one of the two"
            )
        if self.episodes.searchers and self.engine.kind != "transformers":
            raise ConfigError('episodes.searchers is loaded next to the trainer: it needs engine.kind = "transformers"')
        if self.parl.on and not self.episodes.swarm:
            raise ConfigError(
                "parl rewards sub-agents, and episodes.swarm = 0 allows none: set it, or leave out [parl]"
            )
        if (self.model.renderer is RendererKind.WORDS) != (self.data.world is not None):
            raise ConfigError('model.renderer = "words" and [data.world] need each other: use both or neither')
        if bool(self.judge.model) != bool(self.rewards.judge):
            raise ConfigError("a judge has a model in judge.model and a weight in rewards.judge: give both or neither")
        has_other_gain = any(getattr(self.rewards, name) for name in GAINS if name != "judge")
        if self.rewards.judge and not has_other_gain and not self.judge.alone:
            raise ConfigError(
                "rewards.judge is the only gain that counts, so the policy would learn to please the judge alone: "
                "weigh another term, or set judge.alone = true"
            )

    def learning_rate(self, kind: RunKind) -> float:
        """Return the peak learning rate of lessons (`sft`) or rewards (`rl`)."""
        lessons = kind == "sft"
        chosen = (self.sft.learning_rate if lessons else None) or self.optimiser.learning_rate
        adapters = self.model.lora is not None or self.model.adapter is not None
        return chosen or (ADAPTER_LESSONS_RATE if lessons and adapters else LEARNING_RATE)

    @property
    def updates(self) -> int:
        """Optimizer updates of the reinforcement learning."""
        return self.rollouts.steps * self.rollouts.substeps

    @property
    def oldest(self) -> int:
        """The highest age of a row when it is trained, in updates, if its step waits for all of its groups."""
        every = self.engine.every if self.engine.kind == "vllm" else 1
        ahead = 0 if self.async_rollouts is None else self.async_rollouts.ahead
        return (ahead + every) * self.rollouts.substeps - 1

    @property
    def mismatch_bound(self) -> float:
        """The largest mean difference between the log-probabilities of sampler and trainer for the same weights."""
        return self.loss.mismatch or MISMATCH_BOUNDS[self.model.dtype]

    @property
    def drawing(self) -> RolloutConfig:
        """The rollouts, with the run's seed unless they have one."""
        return replace(self.rollouts, seed=self.rollouts.seed or self.seed)

    def plain(self) -> dict[str, Any]:
        """Return the run as plain data, defaults filled in."""
        return dict(_RUN.dump_python(self, mode="json"))


_RUN = TypeAdapter(RunConfig)


def read_run(path: str | Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a run file.

    Args:
        path: The TOML file.
        changes: Values by dotted key, such as `rollouts.groups`, that override the file's.

    Returns:
        The run, with defaults filled in.

    Raises:
        ConfigError: If the file cannot be read, or a key or value is invalid. The message names the file and the key.
    """
    path = Path(path)
    try:
        data = read_toml(path)
    except OSError as error:
        raise ConfigError(f"cannot read the run file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the run file {path} is not valid TOML: {error}") from error
    for key, value in (changes or {}).items():
        _change(data, key, value)
    return parse_run(data, str(path))


def _change(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a value by its dotted key; tables that are missing are made."""
    *tables, last = key.split(".")
    table: Any = data
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"cannot set {key}: {name} is a value, not a table")
    table[last] = value


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings of the form `rollouts.groups=8`, as `--set` takes them.

    Args:
        texts: A dotted key, an equals sign and a TOML value each. A word that is not valid TOML is a string.

    Returns:
        The values by dotted key.

    Raises:
        ConfigError: If a text has no equals sign, an unknown key or an invalid value.
    """
    return dict(_parse_change(text) for text in texts)


def _parse_change(text: str) -> tuple[str, Any]:
    key, equals, spelled = (part.strip() for part in text.partition("="))
    if not key or not equals or not spelled:
        raise ConfigError(f"{text!r} sets nothing: write KEY=VALUE, such as rollouts.groups=8")
    names = list(_setting_names(RunConfig))
    if key not in names and not any(name.startswith(f"{key}.") for name in names):
        raise ConfigError(f"unknown setting {key!r}; {_suggested_setting(key, names)}")
    try:
        parsed = parse_toml(f"value = {spelled}")
    except ValueError as error:
        if spelled[0] in "[{\"'":
            raise ConfigError(f"{key} = {spelled} is not valid TOML: {error}") from None
        return key, spelled
    if len(parsed) > 1:
        raise ConfigError(f"{text!r} sets more than one value: use --set once for each")
    return key, parsed["value"]


def _suggested_setting(key: str, names: Sequence[str]) -> str:
    """Suggest the setting whose last part is most like the key's, spelled out or as initials (`lr`)."""
    last = key.rpartition(".")[2]
    endings: dict[str, list[str]] = {}
    for name in names:
        ending = name.rpartition(".")[2]
        initials = "".join(word[0] for word in ending.split("_"))
        for spelling in {ending, initials} if len(initials) > 1 else {ending}:
            endings.setdefault(spelling, []).append(name)
    near = last if last in endings else closest(last, endings, 0.7)
    if near is not None:
        return f"did you mean {closest(key, endings[near], 0.0)!r}?"
    table = key.rpartition(".")[0]
    inside = {name.removeprefix(f"{table}.") for name in names if table and name.startswith(f"{table}.")}
    return suggestion(last, inside or {name.partition(".")[0] for name in names}, 0.7)


def _setting_names(table: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings, nested tables included."""
    for name, hint in typing.get_type_hints(table).items():
        optional = () if typing.get_origin(hint) is tuple else typing.get_args(hint)
        inner = next((part for part in (hint, *optional) if is_dataclass(part)), None)
        if inner is None:
            yield f"{prefix}{name}"
        else:
            yield from _setting_names(inner, f"{prefix}{name}.")


def parse_run(data: Mapping[str, Any], source: str = "the run") -> RunConfig:
    """Return the run of plain data. Raises `ConfigError`, which names the `source`."""
    _check_names(data, RunConfig, source)
    try:
        return _RUN.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ConfigError(f"{source}: {'.'.join(map(str, first['loc']))}: {first['msg']}{more}") from None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _check_names(data: Mapping[str, Any], table: Any, source: str, prefix: str = "") -> None:
    """Refuses names that the table does not have, at any depth."""
    hints = typing.get_type_hints(table)
    for name, value in data.items():
        if name not in hints:
            what = f"table [{prefix}{name}]" if isinstance(value, Mapping) else f"key {name!r}"
            location = f" in [{prefix.rstrip('.')}]" if prefix and not isinstance(value, Mapping) else ""
            raise ConfigError(f"{source}: unknown {what}{location}; {suggestion(name, hints)}")
        inner = _table_in(hints[name])
        for each in value if isinstance(value, list) else [value]:
            if inner is not None and isinstance(each, Mapping):
                _check_names(each, inner, source, f"{prefix}{name}.")


def _table_in(annotation: Any) -> Any:
    """Return the dataclass in a field's type: the type itself, or one inside a union or tuple; None if there is
    none.
    """
    if is_dataclass(annotation):
        return annotation
    return next((table for inner in typing.get_args(annotation) if (table := _table_in(inner)) is not None), None)
