"""An estimate of a run's GPU memory and cost, computed from the shape of its model.

This module does not import torch and does not download anything.

The formulas omit parts that only a measurement can show, such as allocator fragmentation and kernel workspaces. `SLACK`
is added for these parts. A gigabyte is 10^9 bytes, as GPU makers count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.policies.tokens.model_files import check_adapter
from context_agent.train.config import LoraConfig, RunConfig, RunKind
from context_agent.train.lessons import stored_trajectories
from context_agent.train.model_shape import ModelShape, shape_of
from context_agent.train.row_files import ABOUT, ROWS_FOLDER, open_folder

GB = 1e9
"""Bytes of a gigabyte."""


SLACK = 0.08
"""Share of memory that is added for the allocator and for workspaces. It is an assumption."""


TRAINED_BYTES, MOMENT_BYTES = 4, 8
"""Bytes of a trained weight or of its gradient, and bytes of its two AdamW moments. All have 32 bits."""


LOGIT_ROWS, LOGIT_WIDTH = 4_096, 32_768
"""Tile size of TRL's fused output layer, which never stores the logits of a whole row."""


ASSUMED_LESSONS = 1_000
"""Number of demonstrations that the estimate assumes if none exist yet."""


BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by data type."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The estimated memory of one training GPU and of one sampling GPU.

    Attributes:
        parts: Number of bytes on a training GPU, by part.
        server: Number of bytes on a GPU of the sampling server, by part. Empty if there is no server.
        shared: True if trainer and server use the same GPUs.
    """

    parts: Mapping[str, float]
    server: Mapping[str, float]
    shared: bool

    @property
    def peak(self) -> float:
        """Bytes on the fullest training GPU. They include the server's part if trainer and server share the GPU."""
        parts = sum(self.parts.values()) * (1 + SLACK)
        return parts + (sum(self.server.values()) if self.shared else 0.0)


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of one step: its rollouts and its updates.

    Attributes:
        episodes: Number of episodes of the step.
        sampled: Number of sampled tokens.
        trained: Number of tokens in the rows.
        sampling_seconds: Time to sample. None if the run file gives no rate.
        training_seconds: Time to train. None if the run file gives no rate.
        flops: Number of floating-point operations.
    """

    episodes: int
    sampled: int
    trained: int
    sampling_seconds: float | None
    training_seconds: float | None
    flops: float

    @property
    def seconds(self) -> float | None:
        """Time to sample and then to train. None if the run file lacks one of the rates."""
        if self.sampling_seconds is None or self.training_seconds is None:
            return None
        return self.sampling_seconds + self.training_seconds

    def lines(self, steps: int) -> list[str]:
        """Return the cost as lines of text, for a run of `steps` steps."""
        lines = [
            f"a step: {self.episodes:,} episodes, {self.sampled:,} tokens sampled, {self.trained:,} in rows",
            f"work of a step: {self.flops:.2g} floating-point operations",
        ]
        if self.seconds is None:
            return [*lines, "time: give expected.sampled_per_second and expected.trained_per_second, as measured"]
        hours = self.seconds * steps / 3600
        return [*lines, f"time of a step: {self.seconds / 60:.1f} minutes; of {steps} steps: {hours:.1f} hours"]

    def to_json(self) -> dict[str, Any]:
        """Return the cost as plain data, with keys in a fixed order."""
        return {
            "episodes": self.episodes,
            "sampled_tokens": self.sampled,
            "row_tokens": self.trained,
            "flops": self.flops,
            "step_seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class LessonsCost:
    """The cost of the whole supervised training.

    Attributes:
        episodes: Number of demonstrations.
        epochs: Number of passes over the rows.
        tokens: Number of token ids that pass through the model, over all epochs.
        source: The origin of the numbers of episodes and tokens.
        seconds: Training time. None if the run file gives no rate.
        flops: Number of floating-point operations.
    """

    episodes: int
    epochs: int
    tokens: int
    source: str
    seconds: float | None
    flops: float

    def lines(self, steps: int) -> list[str]:
        """Return the cost as lines of text.

        `steps` is not used, because supervised training has no rollout steps.
        """
        lines = [
            f"lessons: {self.episodes:,} episodes, {self.epochs} times: {self.tokens:,} tokens ({self.source})",
            f"work of the lessons: {self.flops:.2g} floating-point operations",
        ]
        if self.seconds is None:
            return [*lines, "time: give expected.trained_per_second, as measured"]
        return [*lines, f"time of the lessons: {self.seconds / 3600:.1f} hours"]

    def to_json(self) -> dict[str, Any]:
        """Return the cost as plain data, with keys in a fixed order."""
        return {
            "episodes": self.episodes,
            "row_tokens": self.tokens,
            "source": self.source,
            "flops": self.flops,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The estimated memory and cost of a whole run.

    Attributes:
        shape: The shape of the model.
        memory: The memory of the GPUs.
        cost: The cost of a step of reinforcement learning, or of the whole supervised training.
        steps: Number of steps of the run.
        room: Memory of a GPU, in bytes. None if the run file does not state it.
        adapter_bytes: Number of bytes that a weight sync sends to a sampler. None if all weights are trained, or in
            supervised training, which has no sampler.
    """

    shape: ModelShape
    memory: MemoryEstimate
    cost: StepCost | LessonsCost
    steps: int
    room: float | None
    adapter_bytes: float | None = None

    @property
    def full_bytes(self) -> float:
        """Bytes of all weights in 16 bits, as a server stores them."""
        return 2.0 * self.shape.parameters

    def lines(self) -> list[str]:
        """Return the estimate as lines of text."""
        parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in self.memory.parts.items() if size >= GB / 20)
        server = ", ".join(f"{name} {size / GB:.1f}" for name, size in self.memory.server.items())
        where = "on the same GPU" if self.memory.shared else "on each of its GPUs"
        result = [
            f"model: {self.shape.parameters / 1e9:.3g} billion weights, {self.shape.active / 1e9:.3g} active",
            f"memory of a training GPU: {self.memory.peak / GB:.1f} GB ({parts or 'next to nothing'})",
            *([f"memory of the server, {where}: {server} GB"] if server else []),
        ]
        if self.adapter_bytes is not None:
            share = self.adapter_bytes / self.full_bytes
            result.append(
                f"a weight sync: {self.adapter_bytes / GB:.2f} GB of adapters, {share:.1%} of all weights "
                f"({self.full_bytes / GB:.1f} GB)"
            )
        result += self.cost.lines(self.steps)
        if self.room is not None:
            verdict = "fits" if self.memory.peak <= self.room else "DOES NOT FIT"
            result.insert(2, f"{verdict} in {self.room / GB:.0f} GB")
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as plain data, in bytes and seconds, with keys in a fixed order."""
        return {
            "parameters": self.shape.parameters,
            "active": self.shape.active,
            "memory": dict(self.memory.parts),
            "server_memory": dict(self.memory.server),
            "peak": self.memory.peak,
            "room": self.room,
            **self.cost.to_json(),
            "steps": self.steps,
            "sync_bytes": self.adapter_bytes,
            "full_bytes": self.full_bytes,
        }


def estimate_run(run: RunConfig, config: str | Path | None = None, *, kind: RunKind = "rl") -> RunEstimate:
    """Estimate the memory and cost of a run.

    Args:
        run: The run.
        config: The `config.json` of its model. It is needed only if neither the model's folder nor `KNOWN` gives the
            shape.
        kind: Supervised training (`sft`) or reinforcement learning (`rl`).

    Returns:
        The estimate.

    Raises:
        ConfigError: If the model's shape is unknown, if the folder of `model.adapter` has no adapters, or if
            `model.lora.first_layer` leaves no layer.
    """
    shape = shape_of(run, config)
    if run.model.adapter and run.model.lora is None:
        run = replace(run, model=replace(run.model, lora=_stored_adapters(run.model.adapter)))
    if run.model.lora is not None and run.model.lora.first_layer >= shape.layers:
        raise ConfigError(
            f"model.lora.first_layer must be one of the model's layers, 0 to {shape.layers - 1}; got "
            f"{run.model.lora.first_layer}"
        )
    needs = memory_needs(run, shape, kind=kind, ranks=max(1, run.expected.gpus), sharded=run.expected.sharded)
    room = None if run.expected.gpu_memory is None else run.expected.gpu_memory * GB
    cost = step_cost(run, shape) if kind == "rl" else lessons_cost(run, shape)
    sent = adapter_parameters(shape, run.model.lora) * TRAINED_BYTES if run.model.lora and kind == "rl" else None
    return RunEstimate(shape, needs, cost, run.rollouts.steps, room, sent)


def _stored_adapters(folder: str) -> LoraConfig:
    """Return the description of the adapters in a folder, which are trained further."""
    stored = check_adapter(folder)
    layers = stored.get("layers_to_transform") or 0
    return LoraConfig(
        rank=int(stored.get("r", 8)),
        modules=tuple(stored.get("target_modules") or ()),
        parameters=tuple(stored.get("target_parameters") or ()),
        first_layer=min(layers) if isinstance(layers, list) else layers,
    )


def memory_needs(
    run: RunConfig, shape: ModelShape, *, kind: RunKind = "rl", ranks: int = 1, sharded: bool = False
) -> MemoryEstimate:
    """Estimate the memory of the trainer and of the sampling server.

    A server's GPU holds all weights in 16 bits, and the cache of `expected.server_sequences` full episodes. Supervised
    training needs no sampler, and holds `sft.rows_per_pass` rows.

    Args:
        run: The run.
        shape: The shape of its model.
        kind: Supervised training (`sft`) or reinforcement learning (`rl`).
        ranks: Number of training GPUs.
        sharded: If True, weights, gradients and optimizer states are spread over the ranks (ZeRO stage 3, FSDP2). If
            False, each rank holds all of them.

    Returns:
        Bytes on one GPU, by part.
    """
    width = BYTES[run.model.dtype]
    trained = adapter_parameters(shape, run.model.lora) if run.model.lora else shape.parameters
    over = ranks if sharded else 1
    held = width if run.model.lora else TRAINED_BYTES
    parts = {
        "weights": shape.parameters * held / over,
        "adapters": trained * TRAINED_BYTES / over if run.model.lora else 0.0,
        "gradients": trained * TRAINED_BYTES / over,
        "optimizer": trained * MOMENT_BYTES / over,
        "activations": activation_bytes(
            shape, longest_row(run), width, run.model.attention, run.model.gradient_checkpointing
        ),
        "logits": logit_bytes(shape, longest_row(run)),
    }
    if run.model.lora and run.model.lora.parameters:
        # PEFT adds the adapter's product to a stack's weights in each pass. One layer at a time holds the product, the
        # sum and its gradient.
        parts["stacks"] = 3.0 * shape.experts * shape.expert * width
    if held > width:
        # Autocast converts each weight once per pass.
        parts["converted weights"] = shape.parameters * width / over
    if kind == "sft":
        parts["activations"] *= run.sft.rows_per_pass
        return MemoryEstimate(parts, {}, shared=False)
    if run.loss.kl:
        parts["reference"] = trained * TRAINED_BYTES / over
    if run.engine.kind == "transformers":
        cache = run.engine.batch * shape.cached(longest_row(run)) * width
        if run.async_rollouts is not None:
            parts["sampler's copy"] = float(trained * TRAINED_BYTES)
        return MemoryEstimate({**parts, "sampling cache": cache}, {}, shared=False)
    cache = run.expected.server_sequences * shape.cached(min(run.expected.row_tokens, longest_row(run))) * 2
    server = {"weights": float(shape.parameters * 2), "cache": cache}
    return MemoryEstimate(parts, server, shared=run.expected.server_gpus == 0)


def longest_row(run: RunConfig) -> int:
    """Return the number of tokens in the longest expected row. If the run file does not set it, return the window."""
    return run.expected.longest_row or run.episodes.window


def adapter_parameters(shape: ModelShape, lora: LoraConfig) -> int:
    """Return the number of adapter weights. Each matrix has the rank times the sum of its inputs and outputs.

    The formula is that of LoRA (arXiv 2106.09685).
    """
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    widths = {
        "q_proj": shape.hidden + queries,
        "k_proj": shape.hidden + keys,
        "v_proj": shape.hidden + keys,
        "o_proj": queries + shape.hidden,
        "gate_proj": shape.hidden + shape.inner,
        "up_proj": shape.hidden + shape.inner,
        "down_proj": shape.inner + shape.hidden,
    }
    stacked = {"gate_up_proj": shape.hidden + 2 * shape.inner, "down_proj": shape.inner + shape.hidden}
    each = sum(widths.get(name, 2 * shape.hidden) for name in lora.modules)
    each += shape.experts * sum(stacked.get(name.rsplit(".", 1)[-1], 0) for name in lora.parameters)
    return (shape.layers - lora.first_layer) * lora.rank * each


def activation_bytes(shape: ModelShape, tokens: int, width: int, attention: str | None, checkpointed: bool) -> float:
    """Return the bytes of activations in the backward pass of one row.

    With checkpointing (arXiv 1604.06174), each layer stores its input, and one layer at a time stores everything. The
    size of a layer follows Korthikanti et al. (arXiv 2205.05198, section 4). A layer stores about 4 tensors of the
    hidden size, the queries, keys and values twice, and 3 tensors of the inner size for each chosen expert. Eager
    attention stores the scores twice.

    Args:
        shape: The shape of the model.
        tokens: Length of the row in tokens.
        width: Size of a number in bytes.
        attention: The attention implementation. None counts as eager.
        checkpointed: True if activations are computed again in the backward pass.

    Returns:
        The number of bytes.
    """
    hidden = tokens * shape.hidden
    heads = 2 * tokens * (shape.heads + 2 * shape.kv_heads) * shape.head
    inner = 3 * tokens * shape.inner * min(shape.chosen, shape.experts)
    scores = 2 * attention_score_bytes(shape, tokens, width) / width if attention in (None, "eager") else 0.0
    layer = (4 * hidden + heads + inner + scores) * width
    return float(hidden * width * shape.layers + layer if checkpointed else layer * shape.layers)


def attention_score_bytes(shape: ModelShape, tokens: int, width: int) -> float:
    """Return the bytes of one layer's attention scores. They grow with the square of the row's length."""
    return float(shape.heads * tokens * tokens * width)


def logit_bytes(shape: ModelShape, tokens: int) -> float:
    """Return the largest number of bytes that the fused output layer holds for 32-bit logits and their gradient."""
    return float(2 * 4 * min(tokens, LOGIT_ROWS) * min(shape.vocabulary, LOGIT_WIDTH))


def step_cost(run: RunConfig, shape: ModelShape) -> StepCost:
    """Estimate the tokens and the time of one step. Every question is assumed to have all of its demonstrations.

    A sampled token costs 2 floating-point operations per weight. A trained token costs 6 for the forward and backward
    pass (arXiv 2001.08361, section 2.1). With checkpointing it costs 2 more, because the forward pass runs again.
    """
    episodes = run.rollouts.groups * run.rollouts.rollouts
    sampled = (episodes - run.rollouts.groups * run.rollouts.demonstrations) * run.expected.sampled
    trained = episodes * run.expected.row_tokens
    rates = run.expected.sampled_per_second, run.expected.trained_per_second
    times = [None if rate is None else count / rate for count, rate in zip((sampled, trained), rates, strict=True)]
    again = 2 if run.model.gradient_checkpointing else 0
    flops = shape.active * (2.0 * sampled + (6 + again) * trained)
    return StepCost(episodes, sampled, trained, times[0], times[1], flops)


def lessons_cost(run: RunConfig, shape: ModelShape) -> LessonsCost:
    """Estimate the tokens and the time of the whole supervised training.

    If the run has already written its rows, their tokens are counted. Otherwise each demonstration is assumed to have
    `expected.row_tokens`. Floating-point operations are estimated as in `step_cost`.
    """
    source = "by expected.row_tokens"
    try:
        stored = run.data.world is None
        episodes = sum(1 for _ in stored_trajectories(run.data)) if stored else run.sft.demonstrations
    except (ConfigError, DataError):
        episodes = ASSUMED_LESSONS
        source = f"{source}; there are no trajectories yet, so {episodes:,} are assumed"
    rows = Path(run.out) / ROWS_FOLDER
    tokens = episodes * run.expected.row_tokens
    if (rows / ABOUT).is_file():
        tokens, source = open_folder(rows).tokens, "counted in the rows"
    tokens *= run.sft.epochs
    rate = run.expected.trained_per_second
    flops = shape.active * (8.0 if run.model.gradient_checkpointing else 6.0) * tokens
    return LessonsCost(episodes, run.sft.epochs, tokens, source, None if rate is None else tokens / rate, flops)
