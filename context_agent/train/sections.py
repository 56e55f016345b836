"""The tables of a run's file, one class each, with what may stand in them. No torch."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from context_agent.harness.profile import Profile
from context_agent.harness.profile import profile as named_profile
from context_agent.pruning.budget import RESERVE, RESERVES, Budget
from context_agent.swarm import MAX_BREADTH
from context_agent.train.rl.losses import Loss

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Every = Annotated[int, Field(ge=0)]
"""Steps between two of something; 0: never."""


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Rendering(StrEnum):
    """How prompts are spelled and replies are read."""

    HARMONY = "harmony"
    """gpt-oss's format."""
    TEMPLATE = "template"
    """The chat template of the model's own tokenizer."""
    WORDS = "words"
    """Whole words of a closed world, for tiny models (`train.demo.spelling`); the harness profile is its own."""


class Lora(Section):
    """Low-rank adapters. `modules` are names of linear layers, `parameters` those of stacked experts.

    Rank 32 is the published baseline's.
    """

    rank: Count = 32
    alpha: Positive = 64.0
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    parameters: tuple[str, ...] = ()


class Tiny(Section):
    """A gpt-oss of a few hundred thousand weights, made on the spot (`train.tiny`).

    Its random weights have the `deviation`; `tied` has it read and write words by one table.
    """

    hidden: Count = 96
    layers: Count = 3
    experts: Count = 2
    positions: Count = 1024
    deviation: Positive = 0.02
    tied: bool = False


class Model(Section):
    """What is trained. Either `name`, a folder or a name on the hub, or `tiny`.

    `lora` absent: all weights are trained. `adapter` is a folder of LoRA adapters that go on being trained, as
    supervised training leaves them. `dequantize` loads MXFP4 weights, which cannot be trained, in `dtype`.
    """

    name: str = ""
    revision: str | None = None
    tiny: Tiny | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    attention: str | None = None
    dequantize: bool = False
    gradient_checkpointing: bool = True
    renderer: Rendering = Rendering.HARMONY
    reasoning_effort: Literal["low", "medium", "high"] = "high"
    parallel: bool = False
    lora: Lora | None = None
    adapter: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.name) == (self.tiny is not None):
            raise ValueError("name a model, or describe a tiny one in [model.tiny]: one of the two")
        return self


class World(Section):
    """A closed world made on the spot, corpus and questions (`train.demo.gym`).

    Lessons are spread over so many `worlds` of consecutive seeds; questions for rewards are asked in the first. With
    more than one of the `branches` a question asks for so many chains at once.
    """

    entities: Count = 800
    tasks: Count = 6_000
    seed: int = 0
    hops: tuple[Count, Count] = (1, 3)
    worlds: Count = 1
    branches: Count = 1


class Data(Section):
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
    world: World | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.world is not None and (self.questions or self.path or self.url):
            raise ValueError("a world has its own corpus and questions: leave questions, path and url out")
        return self


class Episodes(Section):
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

    def harness(self, renderer: Rendering) -> Profile:
        """The profile that episodes run in."""
        if renderer is Rendering.WORDS:
            from context_agent.train.demo.spelling import profile

            made = profile()
        else:
            made = named_profile(self.profile)
        return replace(made, search_limit=self.shown) if self.shown else made


class Engine(Section):
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


class Sampler(StrEnum):
    """Where the trainer's copy of the model samples while the trainer updates."""

    PROCESS = "process"
    THREAD = "thread"


class Overlap(Section):
    """Rollouts while updates are made; without this table a step is sampled first and then trained.

    Up to `ahead` steps are sampled before their turn. A step waits for a share `quota` of its groups; those that are
    left go on under newer weights and are trained in a later step. A model that is not a server's samples in a process
    of its own, or in a thread of the trainer's: None takes the process where there is no GPU.
    """

    ahead: Count = 1
    quota: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampler: Sampler | None = None


class LossSection(Section):
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


class Optimiser(Section):
    """AdamW. The defaults are the published baseline's (Adam with betas .9 and .95 at 1e-5)."""

    learning_rate: Positive = 1e-5
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"


class Supervised(Section):
    """`ctx1 train sft`: passes over the rows, rows a step, and for a world how many episodes a teacher shows."""

    epochs: Count = 2
    rows: Count = 16
    rows_a_pass: Count = 1
    lessons: Count = 2_000

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.rows % self.rows_a_pass:
            raise ValueError(f"rows = {self.rows} must be a multiple of rows_a_pass = {self.rows_a_pass}")
        return self


class Evaluation(Section):
    """Every so many steps, `questions` of the dev files are asked: at each of the temperatures, 0 being greedy."""

    every: Every = 10
    questions: Count = 64
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 1.0)


class Checkpoints(Section):
    """How often the state is saved, in optimiser steps, and how many of the saved ones stay."""

    every: Count = 4
    keep: Annotated[int, Field(ge=2)] = 2


class Logging(Section):
    """Metrics go to metrics.jsonl always, and to these by name."""

    to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    project: str = "context-agent"
    run: str | None = None


class Expected(Section):
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
