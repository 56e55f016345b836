"""The tables of a run file, with their defaults and checks. This module does not import torch.

    [model]
    name = "openai/gpt-oss-20b"

    [data]
    questions = ["tasks.jsonl"]
    path = ".ctx1"

All other tables are optional. If the Context-1 report gives a value for a setting, it is the default. Paths are
relative to the working directory. Each table is a frozen dataclass. Its docstring describes every setting.
`train.run_file` reads the file, checks types and bounds against the annotations, and rejects unknown names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter

from context_agent.budget import MIN_RESERVES, RESERVE, WINDOW, Budget
from context_agent.errors import ConfigError
from context_agent.harness.profile import named_profile
from context_agent.policies.tokens.model_files import MAX_RANK
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.swarm import MAX_BREADTH
from context_agent.train.advantages import Baseline, BaselineMembers
from context_agent.train.curriculum import Curriculum
from context_agent.train.rewards import GAINS, RewardConfig, annealed
from context_agent.train.tiny_model import TinyModelConfig
from context_agent.train.toy.environment import WorldConfig

Notify = Callable[[str], None]
"""A callback that receives a message for the user."""


OnUpdate = Callable[[int, int], None]
"""A callback that receives the number of finished updates and the total number of updates."""


RunKind = Literal["sft", "rl"]
"""The kind of training: on demonstrations (`sft`, `ctx1 train sft`) or by reinforcement learning (`rl`, `ctx1 train
rl`).
"""


Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""A random seed that torch and NumPy accept."""


MAX_THREADS = 10_000
"""Largest number of torch threads. torch itself fails at numbers of more than 32 bits."""


LEARNING_RATE = 1e-5
"""Peak learning rate of the published baseline."""


ADAPTER_LESSONS_RATE = 2e-4
"""Peak learning rate of supervised training with adapters: that of GPT-2 in the LoRA paper (arXiv 2106.09685, D.3)."""


class Loss(StrEnum):
    """The loss of reinforcement learning. `train.rl.losses` has the formulas."""

    CISPO = "cispo"
    """Clipped importance weights without gradient, averaged over all trained tokens (arXiv 2506.13585)."""
    GRPO = "grpo"
    """The clipped surrogate objective, averaged within each episode and then over episodes (arXiv 2402.03300)."""
    DR_GRPO = "dr_grpo"
    """The clipped surrogate, divided by a constant number of tokens for each episode to avoid the length bias (arXiv
    2503.20783).
    """
    REINFORCE = "reinforce"
    """The loss -A log p over the trained tokens, where A is the advantage and p the policy's probability. It uses no
    probability ratio, so the rows must come from the weights being trained.
    """

    @property
    def uses_ratio(self) -> bool:
        """True if the loss uses the sampler's log-probabilities."""
        return self is not Loss.REINFORCE


class RendererKind(StrEnum):
    """The format in which prompts are written and replies are parsed."""

    HARMONY = "harmony"
    """The harmony format of gpt-oss."""
    TEMPLATE = "template"
    """The chat template of the model's own tokenizer, with tool calls as JSON."""
    LINES = "lines"
    """The chat template of the model's own tokenizer, with tool calls as command lines. Made for the profile `lean`."""
    WORDS = "words"
    """Prompts in whole words of the toy environment, for tiny models. This format has its own harness profile."""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Low-rank adapters (LoRA, arXiv 2106.09685).

    Attributes:
        rank: Rank of the update matrices. The published baseline uses 32.
        alpha: Scale of the update. It is divided by the rank.
        modules: Names of the linear layers that get adapters. The output layer cannot have any.
        parameters: Names of the stacked expert weights that get adapters.
        first_layer: First layer with adapters. The backward pass does not compute anything below it.
    """

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] = 32
    alpha: PositiveFloat = 64.0
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    parameters: tuple[str, ...] = ()
    first_layer: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if not (self.modules or self.parameters):
            raise ConfigError(
                "model.lora.modules and model.lora.parameters name no layer, so nothing would be trained. Name layers, "
                "or leave out [model.lora] to train all weights."
            )
        if not all((*self.modules, *self.parameters)):
            raise ConfigError(
                f"model.lora.modules = {list(self.modules)} and model.lora.parameters = {list(self.parameters)} have "
                "an empty name. Remove it."
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model that is trained. Exactly one of `name` and `tiny` is set.

    Attributes:
        name: A folder, a packaged model (`smollm2`), or a name on the hub.
        revision: Revision on the hub.
        tiny: A tiny model that is made when the run starts.
        dtype: Number type in which the model computes. Trained weights and trained adapters have 32 bits.
        attention: Attention implementation of transformers.
        dequantize: If True, convert MXFP4 weights, which cannot be trained, to `dtype`.
        gradient_checkpointing: If True, compute activations again in the backward pass instead of storing them.
        renderer: The format in which prompts are written.
        reasoning_effort: Reasoning effort in harmony's system message.
        parallel: If True, a harmony reply may have several tool calls.
        lora: New adapters to train. If it is None, all weights are trained.
        adapter: Folder of LoRA adapters to train further, such as those that supervised training saves.
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
        if not self.name and self.tiny is None:
            raise ConfigError("the run has no model. Set model.name, or describe a tiny model in [model.tiny].")
        if self.name and self.tiny is not None:
            raise ConfigError("model.name and [model.tiny] both name the model of the run. Remove one of them.")


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The questions and the index of a run.

    Attributes:
        questions: Question files with gold, for training.
        dev: Question files with gold, for evaluation.
        path: Folder of a local index.
        url: Address of a Chroma server.
        documents: Files or folders of documents that are loaded into memory instead of an index.
        collection: Name of the collection.
        embedder: Embedder of the index. None means the index's own. For `documents`, it means the one that
            `default_embedder` chooses.
        reranker: Reranker of the searches.
        trajectories: Demonstrations: one or several folders of `ctx1 synth trajectories`.
        missing_gold: The treatment of questions that have gold outside the index. `refuse` stops the run, and `drop`
            leaves the questions out.
        world: A toy environment instead of questions and an index.
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
        if self.world is not None:
            unused = ("questions", "dev", "path", "url", "documents", "embedder", "reranker")
            if given := [f"data.{name}" for name in unused if getattr(self, name)]:
                raise ConfigError(f"data.world has its own corpus and questions. Leave out {', '.join(given)}.")
        if self.documents and (self.path or self.url):
            raise ConfigError(
                "data.documents cannot be combined with data.path or data.url, because it replaces the index. Leave "
                "out data.path and data.url."
            )
        if self.documents and self.embedder == "none":
            raise ConfigError(
                'data.embedder = "none" searches an index by words alone, but data.documents are embedded in memory. '
                'Set data.embedder = "static", which needs neither a model nor a network, or leave it out.'
            )


@dataclass(frozen=True, slots=True)
class EpisodeConfig:
    """The harness of an episode: its profile, window and limits.

    Attributes:
        profile: Harness profile.
        reserve: Number of tokens that stay free after every action. A window holds at least eight reserves, so tiny
            models need a smaller one.
        window: Size of the context window, in tokens. Evaluations always use it.
        windows: Window sizes of the training episodes. The questions of a step use them in turn. If it is empty, all
            episodes use `window`. A call may show as many tokens as in `window`.
        per_call: Number of tokens that a call may show. 0 means the profile's share of the window, usually an eighth.
        turns: Largest number of turns.
        seconds: Time limit, in seconds. None means no limit.
        calls: Largest number of tool calls in a turn.
        swarm: Number of sub-agents that one turn may start. 0 means none.
        searchers: Folder of a frozen model that plays the sub-agents. If it is None, the trained policy plays them.
        shown: Number of hits that a search shows. 0 means the profile's number.
    """

    profile: Literal["default", "context-1", "summary", "lean"] = "default"
    reserve: PositiveInt = RESERVE
    window: int = WINDOW
    windows: tuple[int, ...] = ()
    per_call: NonNegativeInt = 0
    turns: PositiveInt = 64
    seconds: PositiveFloat | None = None
    calls: PositiveInt = 16
    swarm: Annotated[int, Field(ge=0, le=MAX_BREADTH)] = 0
    searchers: str | None = None
    shown: NonNegativeInt = 0

    def __post_init__(self) -> None:
        smallest = MIN_RESERVES * self.reserve
        if self.window < smallest:
            raise ConfigError(
                f"episodes.window must be at least {smallest}, which is {MIN_RESERVES} times the reserve; got "
                f"{self.window}"
            )
        if any(not smallest <= window <= self.window for window in self.windows):
            raise ConfigError(
                f"episodes.windows must be between {smallest} ({MIN_RESERVES} times the reserve) and episodes.window = "
                f"{self.window}; got {list(self.windows)}"
            )
        largest = self.window * 3 // 4
        if self.per_call > largest:
            raise ConfigError(
                f"episodes.per_call must be at most {largest}, three quarters of episodes.window = {self.window}; got "
                f"{self.per_call}"
            )
        if self.searchers and not self.swarm:
            raise ConfigError(
                "episodes.searchers names a model for sub-agents, but episodes.swarm = 0 allows none. Set "
                "episodes.swarm, or leave out episodes.searchers."
            )

    @property
    def budget(self) -> Budget:
        """The token budget of an episode. If `per_call` is 0, the profile divides the window."""
        if not self.per_call:
            return named_profile(self.profile).budget(self.window, reserve=self.reserve)
        return Budget(self.window, per_call=self.per_call, reserve=self.reserve)

    def training_budget(self, number: int) -> Budget | None:
        """Return the token budget of a question's training episodes.

        Args:
            number: The index of the question. It selects one of `windows` in turn.

        Returns:
            The budget, or None if `windows` is empty and the episodes use `budget`.
        """
        return self.budget.resized(self.windows[number % len(self.windows)]) if self.windows else None


class RolloutLocation(StrEnum):
    """The place where the sampling copy of the model runs while the trainer updates."""

    PROCESS = "process"
    THREAD = "thread"


SAVED_QUESTIONS = 2
"""Number of questions of a step whose trajectories are saved."""


MOST_EPISODES = 1_000_000
"""Maximum number of episodes of a step. All of them are in memory at the end of the step."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The rollouts of a step, and the updates on their rows. The defaults are the report's (Context-1, section 3).

    Attributes:
        steps: Number of steps of the run.
        groups: Number of questions of a step.
        rollouts: Number of episodes of each question.
        demonstrations: Number of these episodes that are demonstrations from `data.trajectories` instead of sampled
            episodes.
        substeps: Number of optimizer updates of a step.
        concurrency: Number of episodes that run concurrently.
        seed: Random seed for drawing questions and sampling. 0 means the run's seed.
        baseline: The quantity that is subtracted from each reward (`advantages.Baseline`).
        baseline_members: The episodes that the baseline is computed from: `all`, or `sampled`, which leaves out
            demonstrations.
        refill: How often a step may replace a question if all of its episodes earn the same reward (dynamic sampling,
            DAPO, arXiv 2503.14476). 0 means never.
        keep_negative: Of the episodes with a negative advantage, the share that is trained on.
        save_every: Number of steps between two saved sets of trajectories, for `ctx1 view`. A set has the episodes of
            `SAVED_QUESTIONS` questions. 0 means none.
    """

    steps: int = 300
    groups: int = 128
    rollouts: int = 8
    demonstrations: int = 0
    substeps: int = 4
    concurrency: int = 256
    seed: Seed = 0
    baseline: Baseline = Baseline.MEAN
    baseline_members: BaselineMembers = BaselineMembers.ALL
    refill: int = 0
    keep_negative: Annotated[float, Field(ge=0, le=1)] = 1.0
    save_every: NonNegativeInt = 10

    def __post_init__(self) -> None:
        for name in ("steps", "groups", "substeps", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"rollouts.{name} must be at least 1; got {getattr(self, name)}")
        if self.groups * self.rollouts > MOST_EPISODES:
            raise ConfigError(
                f"a step has rollouts.groups * rollouts.rollouts episodes, at most {MOST_EPISODES:,}; got "
                f"{self.groups} * {self.rollouts}"
            )
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
    """Rollouts during updates. Without this table, each step is sampled completely before it is trained.

    Attributes:
        max_steps_ahead: Largest number of steps that are sampled in advance.
        quota: Share of its groups that a step waits for. The other groups continue under newer weights, and a later
            step trains on them.
        sampler: The place where the sampling copy of the model runs. The default is a process if there is no GPU,
            otherwise a thread.
    """

    max_steps_ahead: PositiveInt = 1
    quota: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampler: RolloutLocation | None = None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The engine that samples episodes.

    Attributes:
        kind: The trainer's own model in this process (`transformers`), or a vLLM server (`vllm`).
        base_url: Address of the server.
        sync: The way in which the server receives weights: a LoRA `adapter` through a shared folder, or all weights
            over `nccl`.
        every: Number of steps between two weight syncs with a server.
        adapters: Folder of the synced adapters. The trainer and the server must see it under the same path.
        batch: Largest number of sequences in a batch in this process.
        timeout: Timeout for one reply, in seconds.
        temperature: Temperature of the training episodes and of the loss. For a temperature other than 1, start vLLM
            with `--logprobs-mode processed_logprobs`.
        max_tokens: Longest reply, in tokens.
    """

    kind: Literal["transformers", "vllm"] = "transformers"
    base_url: str = "http://localhost:8000/v1"
    sync: Literal["adapter", "nccl"] = "adapter"
    every: PositiveInt = 1
    adapters: str | None = None
    batch: PositiveInt = 16
    timeout: PositiveFloat = 600.0
    temperature: PositiveFloat = 1.0
    max_tokens: PositiveInt = 4_096


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """The model that judges rankings. If `model` is empty, there is no judge.

    Attributes:
        model: Name of the model on the server.
        base_url: Address of the server.
        api_key_env: Environment variable that contains the API key.
        questions: The questions that the judge scores: those without gold, or all.
        rubric: A TOML file with criteria. None means the rubric that ships.
        reference: If True, the judge reads the question's answer.
        passages: Number of passages of a ranking that the judge reads.
        characters: Number of characters of each passage that the judge reads.
        temperature: Sampling temperature.
        max_tokens: Longest reply, in tokens.
        reasoning_effort: Reasoning effort, for models that support it.
        timeout: Timeout for one reply, in seconds.
        retries: Number of times that a failed call is repeated.
        concurrency: Number of calls that run concurrently.
        price_in: Price of a million prompt tokens.
        price_out: Price of a million completion tokens.
        max_calls: Largest number of calls in the whole run, resumes included. At least one of `max_calls`,
            `max_tokens_total` and `max_cost` is required.
        max_tokens_total: Largest number of tokens in the whole run.
        max_cost: Highest cost of the whole run.
        max_failed_steps: The run stops after this number of consecutive steps without any verdict.
        calibration: Report of `ctx1 train judge-check` on this judge.
        uncalibrated: If True, allow a judge without a calibration report.
        alone: If True, the judge's verdict may be the only positive term of the reward.
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
    timeout: PositiveFloat = 120.0
    retries: NonNegativeInt = 2
    concurrency: int = 8
    price_in: NonNegativeFloat = 0.0
    price_out: NonNegativeFloat = 0.0
    max_calls: PositiveInt | None = None
    max_tokens_total: PositiveInt | None = None
    max_cost: PositiveFloat | None = None
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
                "the judge has no cap. Set judge.max_calls, judge.max_tokens_total, or judge.max_cost with prices."
            )


class ParlForm(StrEnum):
    """The formula that combines PARL's terms."""

    SUM = "sum"
    """`l1 r_parallel + l2 r_finish + r_performance`, the formula of the paper."""
    MIXED = "mixed"
    """`l r_parallel + (1 - l) 1[success] Q`, where Q is the reward of the answer."""


@dataclass(frozen=True, slots=True)
class ParlConfig:
    """Weights of PARL's terms. With the defaults, only the answer is rewarded.

    Attributes:
        form: The formula that combines the terms.
        parallel: Weight l1 of `r_parallel`, or weight l of the form `mixed`, at the start of training.
        finish: Weight l2 of `r_finish` at the start of training.
        until: Share of training, in (0, 1], at which both weights have fallen linearly to 0. The paper gives no
            schedule.
        breadth: Number of started sub-agents for which `r_parallel` reaches 1.
        success: Lowest recall that the form `mixed` counts as a success.
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
                raise ConfigError(f"parl.{name} must be a finite number; got {getattr(self, name)}")
        if self.form not in set(ParlForm):
            raise ConfigError(f"parl.form must be one of {', '.join(ParlForm)}; got {self.form!r}")
        if min(self.parallel, self.finish) < 0 or not 0 < self.until <= 1 or self.breadth < 1:
            raise ConfigError(
                "parl.parallel and parl.finish must not be negative, parl.until must be in (0, 1], and parl.breadth "
                f"must be at least 1; got parallel = {self.parallel}, finish = {self.finish}, until = {self.until}, "
                f"breadth = {self.breadth}"
            )
        if self.form is ParlForm.MIXED and (self.parallel > 1 or self.finish):
            raise ConfigError(
                'if parl.form = "mixed", parl.parallel must be at most 1 and parl.finish must be 0; got parallel = '
                f"{self.parallel}, finish = {self.finish}"
            )
        if not 0 <= self.success <= 1:
            raise ConfigError(f"parl.success must be a recall from 0 to 1; got {self.success}")

    @property
    def on(self) -> bool:
        """True if PARL changes the reward. The form `mixed` always does, because it replaces the reward with
        success.
        """
        return bool(self.parallel or self.finish) or self.form is ParlForm.MIXED

    def at(self, progress: float) -> ParlConfig:
        """Return the settings with the weights at a point of training. They fall linearly to 0.

        Args:
            progress: The share of training that is done, in [0, 1].

        Returns:
            A changed copy.
        """
        share = progress / self.until
        return replace(self, parallel=annealed(self.parallel, 0.0, share), finish=annealed(self.finish, 0.0, share))


MISMATCH_BOUNDS = {"float32": 0.01, "bfloat16": 0.1, "float16": 0.05}
"""Default of `loss.mismatch` for each `model.dtype`: several times what `benchmarks/mismatch.py` measures."""


@dataclass(frozen=True, slots=True)
class LossConfig:
    """The loss of reinforcement learning, and the limits within which rows are trained.

    Attributes:
        kind: The loss.
        cap: Upper bound of CISPO's ratio, at least 1. It is 1 + epsilon in the notation of the paper.
        clip: Lower and upper epsilon of the clipped surrogates. The default is DAPO's clip-higher.
        kl: Weight of the KL divergence from the initial policy.
        staleness: Largest age of a row, in updates. Older rows are dropped and counted.
        mismatch: Largest allowed mean difference between the log-probabilities of the sampler and the trainer for the
            same weights. If the difference is larger, the run stops. The default is .01 in float32, .1 in bfloat16 and
            .05 in float16.
        mask_above: Largest mean decrease in a row's log-probabilities since it was sampled. If a row with a negative
            advantage exceeds it, the row is not trained (DeepSeek-V3.2, arXiv 2512.02556). By default, all rows are
            trained.
        pass_tokens: Largest number of padded tokens in a forward pass. If it is 0, each row gets its own pass, which is
            best for long rows.
        router_replay: If True, each token goes to the experts that the sampler chose for it (R3, arXiv 2510.11370).
    """

    kind: Loss = Loss.CISPO
    cap: Annotated[float, Field(ge=1)] = 5.0
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
                f'loss.mask_above = {self.mask_above} has no effect if loss.kind = "{self.kind}", which does not use '
                "the sampler's log-probabilities. Leave out loss.mask_above, or choose another loss.kind."
            )


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """The settings of AdamW. The defaults are the published baseline's.

    Attributes:
        learning_rate: Peak learning rate. The default is 2e-4 for supervised training of adapters, and 1e-5 otherwise.
        betas: Decay rates of the two moments.
        weight_decay: Decoupled weight decay.
        max_grad_norm: Largest norm of the gradient. A longer gradient is clipped to it. 0 means no limit.
        warmup: Number of updates in which the learning rate rises linearly to its peak. The first of them has the
            learning rate 0, as in transformers, and does not change the weights. The schedule `constant` has none.
        schedule: Learning rate schedule.
    """

    learning_rate: PositiveFloat | None = None
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    weight_decay: NonNegativeFloat = 0.0
    max_grad_norm: NonNegativeFloat = 1.0
    warmup: NonNegativeInt = 0
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"

    def __post_init__(self) -> None:
        if self.warmup and self.schedule == "constant":
            raise ConfigError(
                f'optimizer.warmup = {self.warmup} has no effect if optimizer.schedule = "constant". Set '
                'optimizer.schedule = "constant_with_warmup", or leave out optimizer.warmup.'
            )


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Supervised fine-tuning, `ctx1 train sft`.

    Attributes:
        learning_rate: Peak learning rate of supervised training. None means `optimizer.learning_rate`.
        epochs: Number of passes over the rows.
        rows: Number of rows of an update, on all GPUs together.
        rows_per_pass: Number of rows of a forward pass. These rows have similar lengths, so this number decides which
            rows an update has.
        demonstrations: Number of expert episodes, in a toy environment.
        held_out: Share of the questions that are held out. Their demonstrations measure the loss and are not trained
            on.
        every: Number of updates between two measurements of the held-out loss.
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
            raise ConfigError(
                f"sft.rows must be a multiple of sft.rows_per_pass = {self.rows_per_pass}; got {self.rows}"
            )


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """Evaluation on the dev questions during reinforcement learning.

    Attributes:
        every: Number of steps between two evaluations. 0 means none.
        questions: Number of dev questions that are used.
        temperatures: Sampling temperatures. 0 is greedy.
        best: The metric that decides which model is best, measured at the first temperature.
    """

    every: NonNegativeInt = 10
    questions: PositiveInt = 64
    temperatures: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)] = (0.0, 1.0)
    best: Literal["reward", "recall"] = "reward"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """The frequency of checkpoints, and how many are kept.

    Attributes:
        every: Number of updates between two checkpoints.
        keep: Number of newest checkpoints that are kept.
    """

    every: PositiveInt = 4
    keep: Annotated[int, Field(ge=2)] = 2


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """The trackers that receive metrics in addition to `metrics.jsonl`.

    Attributes:
        to: Names of the trackers. If trackio is installed, it is the default. It writes to this machine only.
        project: Project name in trackio and Weights & Biases, and the name of MLflow's experiment.
        run: Run name in the trackers. None means the name of the run's folder.
    """

    to: tuple[Literal["mlflow", "tensorboard", "trackio", "wandb"], ...] | None = None
    project: str = "context-agent"
    run: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedCosts:
    """The assumptions of `--dry-run` about episodes and the machine. Replace them with measured values if you have any.

    Attributes:
        sampled: Number of sampled tokens in an episode.
        row_tokens: Number of tokens in all rows of an episode.
        longest_row: Number of tokens in the longest row. None means the whole window.
        sampled_per_second: Number of tokens that the whole machine samples per second.
        trained_per_second: Number of tokens that the whole machine trains per second.
        gpus: Number of training GPUs.
        gpu_memory: Memory of a GPU, in GB.
        server_gpus: Number of sampling GPUs. 0 if sampler and trainer share GPUs.
        server_sequences: Number of concurrent sequences on each sampling GPU.
        sharded: If True, weights and optimizer states are spread over the training GPUs (ZeRO stage 3, FSDP2).
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
    """The content of a run file.

    Attributes:
        out: Folder of the run.
        seed: Random seed.
        threads: Number of torch threads. 0 means torch's default.
        minutes: Time limit. The run stops after the update that reaches it, and saves its state. 0 means no limit.
        model: The model that is trained.
        data: The questions and the index.
        episodes: The harness of an episode.
        engine: The engine that samples.
        rollouts: The rollouts of a step.
        async_rollouts: The settings of rollouts during updates. If it is None, each step is sampled before it is
            trained.
        rewards: The weights of the reward.
        judge: The judge.
        parl: The reward for sub-agents.
        curriculum: The curriculum.
        loss: The loss of reinforcement learning.
        optimizer: The optimizer.
        sft: Supervised fine-tuning.
        evaluation: Evaluation during reinforcement learning.
        checkpoints: The checkpoints.
        logging: The trackers.
        expected: The assumptions of `--dry-run`.
    """

    out: str = "runs/policy"
    seed: Seed = 0
    threads: Annotated[int, Field(ge=0, le=MAX_THREADS)] = 0
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
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    expected: ExpectedCosts = field(default_factory=ExpectedCosts)

    def __post_init__(self) -> None:
        if not self.out.strip() or "\0" in self.out:
            raise ConfigError(f"out must be the path of a folder; got {self.out!r}. For this folder, write '.'.")
        needed = self.rollouts.substeps - 1 if self.async_rollouts is None else self.oldest
        if self.loss.staleness < needed:
            found = self.async_rollouts
            ahead = "" if found is None else f"async_rollouts.max_steps_ahead = {found.max_steps_ahead} and "
            raise ConfigError(
                f"loss.staleness = {self.loss.staleness} would drop rows before they are trained. With "
                f"{ahead}rollouts.substeps = {self.rollouts.substeps}, set loss.staleness to at least {needed}."
            )
        if self.rollouts.demonstrations and not self.data.trajectories:
            raise ConfigError(
                f"rollouts.demonstrations = {self.rollouts.demonstrations} needs trajectories, but the run file names "
                "none. Set data.trajectories to a folder of `ctx1 synth trajectories`, or set rollouts.demonstrations "
                "to 0."
            )
        if self.rollouts.refill and self.async_rollouts is not None:
            raise ConfigError(
                "rollouts.refill needs the rewards of a step before its other questions are sampled, but "
                "[async_rollouts] samples ahead of them. Remove one of the two."
            )
        if self.episodes.searchers and self.engine.kind != "transformers":
            raise ConfigError(
                'episodes.searchers needs engine.kind = "transformers", because its model is loaded next to the '
                f'trainer; got engine.kind = "{self.engine.kind}". Change engine.kind, or leave out episodes.searchers.'
            )
        if self.parl.on and not self.episodes.swarm:
            raise ConfigError(
                "[parl] rewards sub-agents, but episodes.swarm = 0 allows none. Set episodes.swarm, or leave out "
                "[parl]."
            )
        if (self.model.renderer is RendererKind.WORDS) != (self.data.world is not None):
            raise ConfigError('model.renderer = "words" and [data.world] need each other. Use both or neither.')
        if bool(self.judge.model) != bool(self.rewards.judge):
            raise ConfigError("a judge has a model in judge.model and a weight in rewards.judge. Give both or neither.")
        has_other_gain = any(getattr(self.rewards, name) for name in GAINS if name != "judge")
        if self.rewards.judge and not has_other_gain and not self.judge.alone:
            raise ConfigError(
                "rewards.judge is the only gain that counts, so the policy would learn to please the judge alone. "
                "Give another reward a weight, or set judge.alone = true."
            )

    def learning_rate(self, kind: RunKind) -> float:
        """Return the peak learning rate of a kind of training.

        Args:
            kind: Supervised training (`sft`) or reinforcement learning (`rl`).

        Returns:
            The rate that the run file sets, or the default of that kind.
        """
        lessons = kind == "sft"
        chosen = (self.sft.learning_rate if lessons else None) or self.optimizer.learning_rate
        adapters = self.model.lora is not None or self.model.adapter is not None
        return chosen or (ADAPTER_LESSONS_RATE if lessons and adapters else LEARNING_RATE)

    @property
    def updates(self) -> int:
        """Total number of optimizer updates in reinforcement learning."""
        return self.rollouts.steps * self.rollouts.substeps

    @property
    def oldest(self) -> int:
        """Highest possible age of a row when it is trained, in updates.

        The number assumes that each step waits for all of its groups.
        """
        every = self.engine.every if self.engine.kind == "vllm" else 1
        ahead = 0 if self.async_rollouts is None else self.async_rollouts.max_steps_ahead
        return (ahead + every) * self.rollouts.substeps - 1

    @property
    def mismatch_bound(self) -> float:
        """Largest allowed mean difference between the log-probabilities of sampler and trainer for the same weights."""
        return self.loss.mismatch or MISMATCH_BOUNDS[self.model.dtype]

    @property
    def drawing(self) -> RolloutConfig:
        """The rollout settings. If they have no seed, they use the run's seed."""
        return replace(self.rollouts, seed=self.rollouts.seed or self.seed)

    def plain(self) -> dict[str, Any]:
        """Return the run as plain data, with all defaults filled in."""
        return dict(RUN_ADAPTER.dump_python(self, mode="json"))


RUN_ADAPTER = TypeAdapter(RunConfig)
"""Validates plain data against the tables, and converts a run to plain data."""
