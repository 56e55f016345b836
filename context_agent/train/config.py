"""The run file: every table of a training run's TOML file, with its defaults and checks. No torch.

    [model]
    name = "openai/gpt-oss-20b"

    [data]
    questions = ["tasks.jsonl"]
    path = ".ctx1"

All other tables are optional. Their defaults are those of the Context-1 report where it gives any. `read_run` reads a
file and refuses unknown names. Paths are relative to the working directory.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError
from context_agent.pruning.budget import RESERVE, RESERVES, Budget
from context_agent.swarm import MAX_BREADTH
from context_agent.train.advantages import Baseline
from context_agent.train.curriculum import Curriculum
from context_agent.train.judge.judge import JudgeConfig
from context_agent.train.rewards import GAINS, ParlConfig, RewardConfig

Notify = Callable[[str], None]
"""Receives a message for the user."""

OnUpdate = Callable[[int, int], None]
"""Receives the number of updates that are done, and of all updates."""


class Loss(StrEnum):
    """Which loss the rows are trained with."""

    CISPO = "cispo"
    """Clipped importance weights with the gradient stopped, over all trained tokens (arXiv 2506.13585)."""
    GRPO = "grpo"
    """Clipped surrogate, averaged within a row and then over rows (arXiv 2402.03300)."""
    DR_GRPO = "dr_grpo"
    """Clipped surrogate over a constant number of tokens, without the bias for length (arXiv 2503.20783)."""
    REINFORCE = "reinforce"
    """No ratio at all: -A log p over the trained tokens; for rows sampled by the weights being trained."""

    @property
    def uses_ratio(self) -> bool:
        """Whether the sampler's log-probabilities matter."""
        return self is not Loss.REINFORCE

    @property
    def averages_rows(self) -> bool:
        """Whether a pass is averaged over its rows, so that the passes of a step have to be averaged too."""
        return self in {Loss.GRPO, Loss.DR_GRPO}


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """A step: `groups` questions, `rollouts` episodes of each, and `substeps` steps of the optimiser over their rows.

    The defaults are the report's (Context-1, section 3). `keep_negative` and `baseline` are `advantages`'. `save_every`
    writes the trajectories of `save_groups` questions every so many steps, for `ctx1 view`; 0 writes none.
    """

    steps: int = 300
    groups: int = 128
    rollouts: int = 8
    substeps: int = 4
    concurrency: int = 256
    seed: int = 0
    baseline: Baseline = Baseline.MEAN
    keep_negative: float = 1.0
    save_every: int = 10
    save_groups: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "groups", "rollouts", "substeps", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.rollouts < 2:
            raise ConfigError("a group needs at least 2 rollouts: an advantage compares them with each other")


Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[int, Field(ge=0)]
"""Steps between two of something; 0: never."""


class ConfigTable(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class RendererKind(StrEnum):
    """How prompts are spelled and replies are read."""

    HARMONY = "harmony"
    """gpt-oss's format."""
    TEMPLATE = "template"
    """The chat template of the model's own tokenizer."""
    WORDS = "words"
    """Whole words of a closed world, for tiny models (`train.demo.spelling`); the harness profile is its own."""


class LoraConfig(ConfigTable):
    """Low-rank adapters. `modules` are names of linear layers, `parameters` those of stacked experts.

    Rank 32 is the published baseline's.
    """

    rank: Count = 32
    alpha: Positive = 64.0
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    parameters: tuple[str, ...] = ()


class TinyModelConfig(ConfigTable):
    """A gpt-oss of a few hundred thousand weights, made on the spot (`train.tiny`).

    Its random weights have the `deviation`; `tied` has it read and write words by one table.
    """

    hidden: Count = 96
    layers: Count = 3
    experts: Count = 2
    positions: Count = 1024
    deviation: Positive = 0.02
    tied: bool = False


class ModelConfig(ConfigTable):
    """What is trained. Either `name`, a folder or a name on the hub, or `tiny`.

    `lora` absent: all weights are trained. `adapter` is a folder of LoRA adapters that go on being trained, as
    supervised training leaves them. `dequantize` loads MXFP4 weights, which cannot be trained, in `dtype`.
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

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.name) == (self.tiny is not None):
            raise ValueError("name a model, or describe a tiny one in [model.tiny]: one of the two")
        return self


class WorldConfig(ConfigTable):
    """A closed world made on the spot, corpus and questions (`train.demo.gym`).

    Demonstrations are spread over so many `worlds` of consecutive seeds; questions for rewards are asked in the first.
    With more than one of the `branches` a question asks for so many chains at once.
    """

    entities: Count = 800
    tasks: Count = 6_000
    seed: int = 0
    hops: tuple[Count, Count] = (1, 3)
    worlds: Count = 1
    branches: Count = 1


class DataConfig(ConfigTable):
    """What is asked of which corpus. `questions` and `dev` are files of question rows with gold.

    `trajectories` is a folder of `ctx1 synth trajectories`, for supervised training. `missing_gold` says what becomes
    of questions whose gold is not in the index: the run is refused, or they are dropped.
    """

    questions: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    path: str | None = None
    url: str | None = None
    collection: str = "documents"
    embedder: str | None = None
    reranker: str | None = None
    trajectories: str | None = None
    missing_gold: Literal["refuse", "drop"] = "refuse"
    world: WorldConfig | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.world is not None and (self.questions or self.path or self.url):
            raise ValueError("a world has its own corpus and questions: leave questions, path and url out")
        return self


class EpisodeConfig(ConfigTable):
    """The harness: profile and limits of an episode. `swarm` is how many sub-agents one turn may start, 0 for none.

    `searchers` is the folder of the model that decides in sub-agents, which training leaves as it is; by default the
    policy that is trained decides in them too. `shown` is how many hits a search shows, 0 for as many as the profile.
    `per_call` is what a call may show (0: an eighth of the window), `reserve` what is kept free behind every action.
    A window holds eight reserves at least, so one for very small models needs a smaller reserve.
    """

    profile: Literal["default", "context-1", "summary"] = "default"
    reserve: Count = RESERVE
    window: int = 32_768
    per_call: Annotated[int, Field(ge=0)] = 0
    turns: Count = 64
    seconds: Positive | None = None
    calls: Count = 16
    workers: Count = 8
    swarm: Annotated[int, Field(ge=0, le=MAX_BREADTH)] = 0
    searchers: str | None = None
    shown: Annotated[int, Field(ge=0)] = 0

    @field_validator("window")
    @classmethod
    def _holds(cls, window: int, about: ValidationInfo) -> int:
        least = RESERVES * about.data.get("reserve", RESERVE)
        if window < least:
            raise ValueError(f"should be greater than or equal to {least}, {RESERVES} reserves")
        return window

    @property
    def budget(self) -> Budget:
        """The window with what it is divided into."""
        return Budget(self.window, per_call=self.per_call, reserve=self.reserve)


class EngineConfig(ConfigTable):
    """What samples. `transformers` shares the trainer's model; `vllm` is a server at `base_url`.

    `sync` brings new weights to the server: `adapter` has it load a LoRA adapter from `adapters`, a folder that both
    see, under the name `adapter_name`; `nccl` sends all weights by TRL's client. `every` is how many updates apart.
    """

    kind: Literal["transformers", "vllm"] = "transformers"
    base_url: str = "http://localhost:8000/v1"
    sync: Literal["adapter", "nccl"] = "adapter"
    every: Count = 1
    adapters: str | None = None
    adapter_name: str = "policy"
    batch: Count = 16
    timeout: Positive = 600.0
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Count = 4_096


class RolloutLocation(StrEnum):
    """Where the trainer's copy of the model samples while the trainer updates."""

    PROCESS = "process"
    THREAD = "thread"


class AsyncRolloutConfig(ConfigTable):
    """Rollouts while updates are made; without this table a step is sampled first and then trained.

    Up to `ahead` steps are sampled before their turn. A step waits for a share `quota` of its groups; those that are
    left go on under newer weights and are trained in a later step. A model that is not a server's samples in a process
    of its own, or in a thread of the trainer's: None takes the process where there is no GPU.
    """

    ahead: Count = 1
    quota: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampler: RolloutLocation | None = None


class LossConfig(ConfigTable):
    """The loss: `cap` bounds CISPO's ratio, `clip` are the two epsilons of the surrogates, `kl` the pull to the start.

    Rows more than `staleness` updates old are dropped and counted. `pass_tokens` bounds the padded ids of a forward
    pass; 0 runs each row by itself, which is what long rows want.
    """

    kind: Loss = Loss.CISPO
    cap: Positive = 5.0
    clip: tuple[Positive, Positive] = (0.2, 0.28)
    kl: Annotated[float, Field(ge=0)] = 0.0
    staleness: Annotated[int, Field(ge=0)] = 8
    pass_tokens: Annotated[int, Field(ge=0)] = 0


class OptimizerConfig(ConfigTable):
    """AdamW. The defaults are the published baseline's (Adam with betas .9 and .95 at 1e-5)."""

    learning_rate: Positive = 1e-5
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"


class SftSettings(ConfigTable):
    """`ctx1 train sft`: epochs, rows per update and per forward pass, and the number of expert episodes of a toy
    environment.
    """

    epochs: Count = 2
    rows: Count = 16
    rows_per_pass: Count = 1
    demonstrations: Count = 2_000

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.rows % self.rows_per_pass:
            raise ValueError(f"rows = {self.rows} must be a multiple of rows_per_pass = {self.rows_per_pass}")
        return self


class EvaluationConfig(ConfigTable):
    """Every so many steps, `questions` of the dev files are asked: at each of the temperatures, 0 being greedy."""

    every: Interval = 10
    questions: Count = 64
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 1.0)


class CheckpointConfig(ConfigTable):
    """How often the state is saved, in optimiser steps, and how many of the saved ones stay."""

    every: Count = 4
    keep: Annotated[int, Field(ge=2)] = 2


class LoggingConfig(ConfigTable):
    """Metrics go to metrics.jsonl always, and to these by name."""

    to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    project: str = "context-agent"
    run: str | None = None


class ExpectedCosts(ConfigTable):
    """What an episode is expected to come to, for the estimate of `--dry-run`: measured figures, where there are any.

    `sampled` tokens an episode, `row_tokens` in all of its rows; tokens a second that are sampled and trained over the
    whole machine; `gpus` of `gpu_memory` GB each train, `server_gpus` sample (0: they share), `server_sequences`
    at a time on each. `sharded`: weights and states are spread over the training GPUs (ZeRO stage 3, FSDP2).
    """

    sampled: Count = 4_000
    row_tokens: Count = 24_000
    longest_row: Count | None = None
    sampled_per_second: Positive | None = None
    trained_per_second: Positive | None = None
    gpus: Annotated[int, Field(ge=0)] = 1
    gpu_memory: Positive | None = None
    server_gpus: Annotated[int, Field(ge=0)] = 0
    server_sequences: Count = 16
    sharded: bool = False


class RunConfig(ConfigTable):
    """A whole run file. `seed` is the random seed."""

    out: str = "runs/policy"
    seed: int = 0
    threads: Annotated[int, Field(ge=0)] = 0
    model: ModelConfig
    data: DataConfig
    episodes: EpisodeConfig = EpisodeConfig()
    engine: EngineConfig = EngineConfig()
    rollouts: RolloutConfig = RolloutConfig()
    async_rollouts: AsyncRolloutConfig | None = None
    rewards: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    parl: ParlConfig = ParlConfig()
    curriculum: Curriculum = Curriculum()
    loss: LossConfig = LossConfig()
    optimiser: OptimizerConfig = OptimizerConfig()
    sft: SftSettings = SftSettings()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    expected: ExpectedCosts = ExpectedCosts()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.loss.staleness < self.rollouts.substeps - 1:
            raise ValueError(
                f"loss.staleness = {self.loss.staleness} would drop the rows of later substeps: "
                f"with {self.rollouts.substeps} substeps at least {self.rollouts.substeps - 1}"
            )
        if self.async_rollouts is not None and self.loss.staleness < self.oldest:
            raise ValueError(
                f"loss.staleness = {self.loss.staleness} would drop rows that are sampled ahead: with "
                f"async_rollouts.ahead = {self.async_rollouts.ahead} and {self.rollouts.substeps} substeps they are up "
                f"to {self.oldest} updates old"
            )
        if self.episodes.searchers and not self.episodes.swarm:
            raise ValueError("episodes.searchers names a model for sub-agents, and episodes.swarm = 0 has none: set it")
        if self.episodes.searchers and self.engine.kind != "transformers":
            raise ValueError('episodes.searchers is loaded beside the trainer: it needs engine.kind = "transformers"')
        if self.parl.on and not self.episodes.swarm:
            raise ValueError("parl rewards sub-agents, and episodes.swarm = 0 has none: set it, or leave parl out")
        if (self.model.renderer is RendererKind.WORDS) != (self.data.world is not None):
            raise ValueError("the words renderer is for data.world, and data.world is spelled by it: use both")
        if bool(self.judge.model) != bool(self.rewards.judge):
            raise ValueError("a judge has a model in judge.model and a weight in rewards.judge: give both or neither")
        has_other_gain = any(getattr(self.rewards, name) for name in GAINS if name != "judge")
        if self.rewards.judge and not has_other_gain and not self.judge.alone:
            raise ValueError(
                "rewards.judge is the only gain that counts, so the policy would learn to please the judge alone: "
                "weigh another term, or set judge.alone = true"
            )
        return self

    @property
    def updates(self) -> int:
        """Optimiser steps of the reinforced training."""
        return self.rollouts.steps * self.rollouts.substeps

    @property
    def oldest(self) -> int:
        """Updates that a row may be old when it is trained, if its step takes all groups that it asked."""
        every = self.engine.every if self.engine.kind == "vllm" else 1
        ahead = 0 if self.async_rollouts is None else self.async_rollouts.ahead
        return (ahead + every) * self.rollouts.substeps - 1

    @property
    def drawing(self) -> RolloutConfig:
        """The rollouts, with the run's seed where they have none of their own."""
        return replace(self.rollouts, seed=self.rollouts.seed or self.seed)

    def plain(self) -> dict[str, Any]:
        """The run as plain data, defaults filled in."""
        plain: dict[str, Any] = _RUN.dump_python(self, mode="json")
        return plain


_RUN = TypeAdapter(RunConfig)


def read_run(path: str | Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Reads a run file. `changes` are values by dotted key that override the file's.

    Raises `ConfigError` naming the file, the key and what is wrong with it.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the run's file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the run's file {path} is no valid TOML: {error}") from error
    for key, value in (changes or {}).items():
        _set_dotted(data, key, value)
    return parse_run(data, str(path))


def parse_run(data: Mapping[str, Any], where: str = "the run") -> RunConfig:
    """The run of plain data. Raises `ConfigError`."""
    _check_names(data, RunConfig, where)
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ConfigError(f"{where}: {f'{location}: ' if location else ''}{message}{more}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _set_dotted(data: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    for table in tables:
        data = data.setdefault(table, {})
    data[last] = value


def _check_names(data: Mapping[str, Any], kind: Any, where: str, at: str = "") -> None:
    """Refuses names that the table does not have, at any depth."""
    allowed = _fields_of(kind)
    for name, value in data.items():
        if name not in allowed:
            what = f"table [{at}{name}]" if isinstance(value, Mapping) else f"key {name!r}"
            location = f" in [{at.rstrip('.')}]" if at and not isinstance(value, Mapping) else ""
            raise ConfigError(f"{where}: unknown {what}{location}; {suggestion(name, allowed)}")
        inner = next((inner_type for inner_type in _inner_types(allowed[name]) if _fields_of(inner_type)), None)
        for each in value if isinstance(value, list) else [value]:
            if inner is not None and isinstance(each, Mapping):
                _check_names(each, inner, where, f"{at}{name}.")


def _fields_of(kind: Any) -> dict[str, Any]:
    """The names of a table and the type of each; empty for what is no table."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {field.name: hints[field.name] for field in fields(kind)}
    return {}


def _inner_types(annotation: Any) -> Iterator[Any]:
    """The type itself and the types inside it: of unions, tuples and lists."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from _inner_types(inner)
