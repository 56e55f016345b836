"""The engines that sample a run's episodes: the trainer's own model, a vLLM server, and the model of sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_agent.errors import MissingExtraError
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.train.config import RunConfig
from context_agent.train.models import LoadedModel, autocast_dtype, load_frozen
from context_agent.train.rl.weight_sync import AdapterSync, NcclSync, SharedModelSync, WeightSync

try:
    import torch
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None


def local_engine(run: RunConfig, model: Any, *, version: str = "0") -> TransformersEngine:
    """Return an engine that samples with a model in this process and computes as the trainer does."""
    return TransformersEngine(
        model,
        name=run.model.name or "tiny",
        max_batch=run.engine.batch,
        version=version,
        autocast=autocast_dtype(run.model),
    )


ADAPTER_NAME = "policy"
"""Start of the names of the synced adapters on a model server."""
BATCH_WAIT = 0.05
"""Seconds that a batch waits for the calls of all sub-agents."""


@contextmanager
def subagent_engine(run: RunConfig, tokenizer: Any, device: torch.device | str = "cpu") -> Iterator[Engine | None]:
    """Open the engine of sub-agents that use a frozen model.

    Args:
        run: The run.
        tokenizer: The tokenizer of the run.
        device: The device of the model.

    Yields:
        The engine. None if the policy itself plays the sub-agents.
    """
    folder = run.episodes.searchers
    if folder is None:
        yield None
        return
    # The number of running episodes is unknown. The sub-agents start a turn when the orchestrators' batch is done.
    model = load_frozen(run.model, folder, tokenizer).to(device)
    engine = TransformersEngine(
        model,
        name=folder,
        max_batch=run.engine.batch,
        version="0",
        wait=BATCH_WAIT,
        autocast=autocast_dtype(run.model),
    )
    try:
        yield engine
    finally:
        engine.close()


def served_engine(config: RunConfig) -> VllmEngine:
    """Return the engine of the run's server. Weight syncs set its model and version."""
    chosen = config.engine
    return VllmEngine(
        chosen.base_url, config.model.name, version="0", timeout=chosen.timeout, concurrency=config.rollouts.concurrency
    )


@contextmanager
def open_sampler(config: RunConfig, loaded: LoadedModel) -> Iterator[tuple[Engine, WeightSync]]:
    """Open the engine that samples, with its weight sync.

    Args:
        config: The run.
        loaded: The trainer's model.

    Yields:
        The engine, and the weight sync that updates it.
    """
    chosen = config.engine
    if chosen.kind == "transformers":
        shared = local_engine(config, loaded.model)
        try:
            yield shared, SharedModelSync(shared)
        finally:
            shared.close()
        return
    server = served_engine(config)
    if chosen.sync == "nccl":
        yield server, NcclSync(server)
        return
    folder = Path(chosen.adapters or f"{config.out}/adapters")
    yield server, AdapterSync(server, chosen.base_url, folder, ADAPTER_NAME, timeout=chosen.timeout)
