"""Weight sync: brings the trainer's weights to the sampler after updates.

The sampler uses the trainer's own model, a copy of it, or a vLLM server, which receives LoRA adapters or all weights.
The vLLM paths are written against vLLM 0.31 and TRL 1.16; `docs/training.md` states which of them have been run.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from context_agent._support.http import Endpoint, Refusal, policy_address
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.train.config import RunConfig
from context_agent.train.models import LoadedModel, local_engine, sampling_copy


@dataclass(frozen=True, slots=True)
class SentWeights:
    """The bytes that a sync has sent, and those of all the model's weights."""

    sent: int = 0
    full: int = 0

    def __add__(self, other: SentWeights) -> SentWeights:
        return SentWeights(self.sent + other.sent, max(self.full, other.full))

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the sync; none if nothing was sent."""
        return {"sync/bytes": float(self.sent), "sync/full_bytes": float(self.full)} if self.sent else {}


NOTHING_SENT = SentWeights()


def full_bytes(model: Any) -> int:
    """Return the bytes of all weights of a model, without those of adapters."""
    return sum(parameter.nbytes for name, parameter in model.named_parameters() if "lora_" not in name)


class WeightSync(Protocol):
    """Brings the trainer's weights to an engine, and names them there by the number of updates."""

    def attach(self, trainer: Any) -> None:
        """Called once, when the trainer is made."""

    def before_update(self) -> None:
        """Called before the optimizer changes weights."""

    def after_update(self) -> None:
        """Called when it has."""

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Makes the weights after `step` updates those that sample. Raises `PolicyError` where that fails."""


class SeparateWeights:
    """A sampler with weights of its own: it may sample while the trainer updates."""

    def before_update(self) -> None:
        """Nothing to wait for."""

    def after_update(self) -> None:
        """Nothing to release."""


class SharedModelSync:
    """The engine runs the trainer's own model: nothing is copied; it waits while weights change."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    def attach(self, trainer: Any) -> None:
        """The engine takes the model as the trainer has it, with its adapters."""
        self._engine.model = trainer.accelerator.unwrap_model(trainer.model)

    def before_update(self) -> None:
        """Waits until no batch is sampled."""
        self._engine.lock.acquire()

    def after_update(self) -> None:
        """Sampling continues."""
        self._engine.lock.release()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Names the shared weights by the update."""
        self._engine.version = str(step)
        return NOTHING_SENT


class AdapterSync(SeparateWeights):
    """A vLLM server loads each version's LoRA adapter from a folder that it shares with the trainer.

    Each version has a name of its own, so what a request samples with, and what the server's prefix cache holds, are
    never two versions' at once. The server needs `--enable-lora` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.
    """

    def __init__(self, engine: VllmEngine, base_url: str, folder: Path, name: str, *, timeout: float = 600.0) -> None:
        self._engine, self._folder, self._name = engine, folder, name
        # A server refuses to repeat a command that succeeded.
        self._endpoint = Endpoint(
            policy_address(base_url), api_key_env=engine.endpoint.api_key_env, timeout=timeout, retries=0
        )
        self._loaded: str | None = None

    def attach(self, trainer: Any) -> None:
        """Raises `ConfigError` for a model without adapters."""
        if not hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config"):
            raise ConfigError("engine.sync = 'adapter' needs [model.lora]; all weights go to a server by 'nccl'")

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Writes the adapter, has the server load it, and unloads the previous one."""
        name, sent = f"{self._name}-{step}", NOTHING_SENT
        if trainer.accelerator.is_main_process and name != self._loaded:
            folder = self._folder / name
            model = trainer.accelerator.unwrap_model(trainer.model)
            model.save_pretrained(folder, selected_adapters=["default"])
            sent = SentWeights(sum(file.stat().st_size for file in folder.iterdir()), full_bytes(model))
            self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
            if self._loaded is not None:
                self._post("unload_lora_adapter", {"lora_name": self._loaded})
                shutil.rmtree(self._folder / self._loaded, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        self._loaded = name
        self._engine.model, self._engine.version = name, str(step)
        return sent

    def _post(self, command: str, body: dict[str, str]) -> None:
        server = self._endpoint.base_url
        try:
            self._endpoint.command(f"/{command}", body)
        except Refusal as refusal:
            hint = " (it needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)" if refusal.status == 404 else ""
            raise PolicyError(
                f"the server at {server} refused {command} of {body['lora_name']}: "
                f"{refusal.status} {refusal.message[:200]}{hint}"
            ) from None
        except PolicyError as error:
            raise PolicyError(f"the server at {server} did not run {command} of {body['lora_name']}: {error}") from None


class NcclSync(SeparateWeights):
    """All weights to a vLLM server by TRL's client over NCCL, which gathers shards and merges adapters first.

    The server needs `VLLM_SERVER_DEV_MODE=1` and `--weight-transfer-config '{"backend": "nccl"}'`.
    """

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._sent = -1

    def attach(self, trainer: Any) -> None:
        """Nothing to do: a trainer made with `use_vllm` has its client."""

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Sends them, once for each update; the server drops its cached prefixes."""
        if step == self._sent:
            return NOTHING_SENT
        try:
            trainer.vllm_generation.sync_weights()
        except Exception as error:  # TRL raises plain exceptions
            raise PolicyError(f"the server did not take new weights: {error}") from error
        self._sent, self._engine.version = step, str(step)
        size = full_bytes(trainer.accelerator.unwrap_model(trainer.model))
        return SentWeights(size, size)


class ModelHolder(Protocol):
    """Samples with a model, in this process or another."""

    def hold(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Samples with this model from now on. `put` brings new values of its `trained` parameters, by index."""

    def put(self, model: Any, version: str) -> int:
        """Return the model's current weights sample from the next batch on. Does not wait for the current batch.

        Returns the bytes that were sent.
        """


class CopySync(SeparateWeights):
    """The sampler has a copy of the trainer's model, so that neither waits for the other.

    Weights that are not trained (a base model under adapters) are shared, not copied. A batch is sampled by one
    version: the sampler adopts new weights between two.
    """

    def __init__(self, sampler: ModelHolder) -> None:
        self._sampler = sampler
        self._pushed = -1

    def attach(self, trainer: Any) -> None:
        """Makes the copy of the model as the trainer has it, with its adapters."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = [index for index, parameter in enumerate(model.parameters()) if parameter.requires_grad]
        self._sampler.hold(sampling_copy(model), trained)

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Sends the trained weights, once for each update."""
        if step == self._pushed:
            return NOTHING_SENT
        model = trainer.accelerator.unwrap_model(trainer.model)
        sent = self._sampler.put(model, str(step))
        self._pushed = step
        return SentWeights(sent, full_bytes(model))


class PausableRollouts(Protocol):
    """Episodes in the background that can be paused between two turns."""

    def between_turns(self, *, drain: bool) -> AbstractContextManager[None]:
        """Pauses the episodes for the block. With `drain` no call is in progress inside it."""


class PausingSync:
    """A weight sync during background rollouts, which pause between two turns."""

    def __init__(self, weights: WeightSync, rollouts: PausableRollouts, *, drain: bool) -> None:
        """With `drain` no call is in progress when weights change, as a server that unloads the last adapter needs."""
        self._weights, self._rollouts, self._drain = weights, rollouts, drain
        self._pushed = -1
        self.seconds = 0.0
        """Seconds that weight syncs have taken, waiting included."""

    def attach(self, trainer: Any) -> None:
        """As the weights do."""
        self._weights.attach(trainer)

    def before_update(self) -> None:
        """As the weights do."""
        self._weights.before_update()

    def after_update(self) -> None:
        """As the weights do."""
        self._weights.after_update()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Pauses the episodes, sends the weights, and lets the episodes continue."""
        if step == self._pushed:
            return NOTHING_SENT
        started = time.perf_counter()
        with self._rollouts.between_turns(drain=self._drain):
            sent = self._weights.push(trainer, step)
        self._pushed = step
        self.seconds += time.perf_counter() - started
        return sent


class CombinedSync:
    """Several weight syncs as one."""

    def __init__(self, every: Sequence[WeightSync]) -> None:
        self._every = every

    def attach(self, trainer: Any) -> None:
        """As each does."""
        for sync in self._every:
            sync.attach(trainer)

    def before_update(self) -> None:
        """As each does."""
        for sync in self._every:
            sync.before_update()

    def after_update(self) -> None:
        """As each does."""
        for sync in self._every:
            sync.after_update()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """As each does."""
        return sum((sync.push(trainer, step) for sync in self._every), NOTHING_SENT)


def served_engine(config: RunConfig) -> VllmEngine:
    """Return the engine of the run's server; weight syncs set its model and version."""
    chosen = config.engine
    return VllmEngine(
        chosen.base_url, config.model.name, version="0", timeout=chosen.timeout, concurrency=config.rollouts.concurrency
    )


@contextmanager
def open_sampler(config: RunConfig, loaded: LoadedModel) -> Iterator[tuple[Engine, WeightSync]]:
    """Yield the engine that samples, and its weight sync."""
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
    yield server, AdapterSync(server, chosen.base_url, folder, chosen.adapter_name, timeout=chosen.timeout)
