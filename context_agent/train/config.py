"""The tables of a run file, with their defaults and checks. No torch.

    [model]
    name = "openai/gpt-oss-20b"

    [data]
    questions = ["tasks.jsonl"]
    path = ".ctx1"

All other tables are optional. Their defaults are those of the Context-1 report if it gives any. Paths are relative to
the working directory. A table is a frozen dataclass whose docstring has a line for each field. `train.run_file` reads
the file, checks the types and bounds of the annotations, and refuses unknown names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter

from context_agent.errors import ConfigError
from context_agent.harness.profile import profile as named_profile
from context_agent.pruning.budget import RESERVE, RESERVES, WINDOW, Budget
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.swarm import MAX_BREADTH
from context_agent.train.advantages import Baseline, BaselineMembers
from context_agent.train.curriculum import Curriculum
from context_agent.train.rewards import GAINS, RewardConfig, annealed
from context_agent.train.tiny_model import TinyModelConfig
from context_agent.train.toy.environment import WorldConfig

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
    collection: str = DEFAULT_COLLECTION
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


class RolloutLocation(StrEnum):
    """Where the copy of the model that samples during updates runs."""

    PROCESS = "process"
    THREAD = "thread"


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The rollouts of a step and the updates on their rows. The defaults are the report's (Context-1, section 3).

    - `steps`: steps of the run.
    - `groups`: questions of a step.
    - `rollouts`: episodes of each question.
    - `demonstrations`: how many of these are demonstrations from `data.trajectories` instead of sampled.
    - `substeps`: optimizer updates of a step.
    - `concurrency`: episodes at the same time.
    - `seed`: random seed of draws and sampling; 0 for the run's.
    - `baseline`: what is subtracted from a reward (`advantages.Baseline`).
    - `baseline_members`: the episodes that the baseline is computed from: `all`, or `sampled`, without demonstrations.
    - `refill`: how often a step samples other questions in place of those whose episodes all earn the same (dynamic
      sampling, DAPO, arXiv 2503.14476); 0 for never.
    - `keep_negative`: share of the episodes with a negative advantage that are trained on.
    - `save_every`: steps between two saved sets of trajectories, for `ctx1 view`; 0 for none.
    - `save_groups`: questions whose trajectories are saved.
    """

    steps: int = 300
    groups: int = 128
    rollouts: int = 8
    demonstrations: int = 0
    substeps: int = 4
    concurrency: int = 256
    seed: int = 0
    baseline: Baseline = Baseline.MEAN
    baseline_members: BaselineMembers = BaselineMembers.ALL
    refill: int = 0
    keep_negative: float = 1.0
    save_every: int = 10
    save_groups: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "groups", "substeps", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"rollouts.{name} must be at least 1; got {getattr(self, name)}")
        if self.refill < 0:
            raise ConfigError(f"rollouts.refill must be at least 0; got {self.refill}")
        if self.rollouts < 2:
            raise ConfigError(
                f"rollouts.rollouts must be at least 2, since an advantage compares the episodes of a question; "
                f"got {self.rollouts}"
            )
        if not 0 <= self.demonstrations < self.rollouts:
            raise ConfigError(
                f"rollouts.demonstrations must be at least 0 and below rollouts.rollouts = {self.rollouts}, since at "
                f"least one episode of a question is sampled; got {self.demonstrations}"
            )


@dataclass(frozen=True, slots=True)
class AsyncRolloutConfig:
    """Rollouts during updates; without this table a step is sampled first and then trained.

    - `ahead`: steps that are sampled before their turn.
    - `quota`: share of its groups that a step waits for; the rest continue under newer weights, for a later step.
    - `sampler`: where the copy of the model samples; by default a process if there is no GPU, else a thread.
    """

    ahead: PositiveInt = 1
    quota: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampler: RolloutLocation | None = None


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


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A judge. Without a model there is none.

    - `model`: name of the model on the server.
    - `base_url`: address of the server.
    - `api_key_env`: environment variable with the key.
    - `questions`: whether only questions without gold are judged, or all.
    - `rubric`: a TOML file with criteria; by default the rubric that ships.
    - `reference`: whether the judge reads the question's answer.
    - `passages`: passages of a ranking that the judge reads.
    - `characters`: characters of each passage.
    - `temperature`: sampling temperature.
    - `max_tokens`: longest reply, in tokens.
    - `reasoning_effort`: reasoning effort, for models that take one.
    - `timeout`: timeout for one reply, in seconds.
    - `retries`: retries of a failed call.
    - `concurrency`: calls at the same time.
    - `price_in`: price of a million prompt tokens.
    - `price_out`: price of a million completion tokens.
    - `max_calls`: most calls of the whole run, resumed or not; one of the three caps is required.
    - `max_tokens_total`: most tokens of the whole run.
    - `max_cost`: highest cost of the whole run.
    - `max_failed_steps`: steps in a row without any verdict after which the run stops.
    - `calibration`: report of `ctx1 train judge-check` on this judge.
    - `uncalibrated`: allow a judge without a calibration.
    - `alone`: allow the judge to be the only gain.
    """

    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    questions: Literal["without_gold", "all"] = "without_gold"
    rubric: str | None = None
    reference: bool = True
    passages: int = 8
    characters: int = 1_500
    temperature: float = 0.0
    max_tokens: int = 1_024
    reasoning_effort: str | None = None
    timeout: float = 120.0
    retries: int = 2
    concurrency: int = 8
    price_in: float = 0.0
    price_out: float = 0.0
    max_calls: int | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_failed_steps: int = 3
    calibration: str | None = None
    uncalibrated: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        for name in ("passages", "characters", "max_tokens", "concurrency", "max_failed_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"judge.{name} must be at least 1; got {getattr(self, name)}")
        if self.temperature < 0:
            raise ConfigError(f"judge.temperature must not be negative; got {self.temperature}")
        if self.model and self.max_calls is None and self.max_tokens_total is None and self.max_cost is None:
            raise ConfigError(
                "the judge has no cap: set judge.max_calls, judge.max_tokens_total, or judge.max_cost with prices"
            )


class ParlForm(StrEnum):
    """How the terms are combined."""

    SUM = "sum"
    """`l1 r_parallel + l2 r_finish + r_performance`: the paper's."""
    MIXED = "mixed"
    """`l r_parallel + (1 - l) 1[success] Q`."""


@dataclass(frozen=True, slots=True)
class ParlConfig:
    """Weights of PARL's terms. With `parallel` and `finish` at 0, the default, the reward is the performance alone.

    - `form`: how the terms are combined.
    - `parallel`: l1, or l of the form `mixed`, at the start of training.
    - `finish`: l2 at the start of training.
    - `until`: share of training, in (0, 1], at which both reach 0 on a line; the paper gives no schedule.
    - `breadth`: number of sub-agents that earns all of `r_parallel`.
    - `success`: recall from which the form `mixed` counts an episode as a success.
    """

    form: ParlForm = ParlForm.SUM
    parallel: float = 0.0
    finish: float = 0.0
    until: float = 1.0
    breadth: int = 4
    success: float = 1.0

    def __post_init__(self) -> None:
        for name in (setting.name for setting in fields(self) if setting.name != "form"):
            if not isfinite(getattr(self, name)):
                raise ConfigError(f"PARL setting {name} must be a finite number; got {getattr(self, name)}")
        if self.form not in set(ParlForm):
            raise ConfigError(f"form must be one of {', '.join(ParlForm)}; got {self.form!r}")
        if min(self.parallel, self.finish) < 0 or not 0 < self.until <= 1 or self.breadth < 1:
            raise ConfigError(
                "parallel and finish must not be negative, until in (0, 1] and breadth at least 1; got "
                f"{self.parallel}, {self.finish}, {self.until} and {self.breadth}"
            )
        if self.form is ParlForm.MIXED and (self.parallel > 1 or self.finish):
            raise ConfigError("the mixed form weighs with parallel, a share of at most 1, and has no finish term")
        if not 0 <= self.success <= 1:
            raise ConfigError(f"success is a recall in [0, 1]; got {self.success}")

    @property
    def on(self) -> bool:
        """True if PARL changes the reward. The form `mixed` always does: it replaces the reward with success."""
        return bool(self.parallel or self.finish) or self.form is ParlForm.MIXED

    def at(self, progress: float) -> ParlConfig:
        """Return the weights after a share `progress`, in [0, 1], of training."""
        share = progress / self.until
        return replace(self, parallel=annealed(self.parallel, 0.0, share), finish=annealed(self.finish, 0.0, share))


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
        return dict(RUN_ADAPTER.dump_python(self, mode="json"))


RUN_ADAPTER = TypeAdapter(RunConfig)
"""Checks plain data against the tables, and turns a run into plain data."""
