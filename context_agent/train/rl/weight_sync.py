"""Weight sync: the transfer of the trainer's weights to the sampler after updates.

The sampler uses the trainer's own model, a copy of it, or a vLLM server. A server receives LoRA adapters or all
weights. The vLLM paths are written for vLLM 0.31 and TRL 1.16. `docs/training.md` states which paths were run.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from context_agent._support.http_client import Endpoint, Refusal, policy_address
from context_agent.errors import ConfigError, PolicyError, ServerError, reason_of
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.policies.tokens.engines.vllm import VllmEngine


@dataclass(frozen=True, slots=True)
class SentWeights:
    """The size of a weight sync.

    Attributes:
        sent: Number of bytes that were sent.
        full: Size of all the model's weights in bytes.
    """

    sent: int = 0
    full: int = 0

    def __add__(self, other: SentWeights) -> SentWeights:
        return SentWeights(self.sent + other.sent, max(self.full, other.full))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the sync. Empty if nothing was sent."""
        return {"sync/bytes": float(self.sent), "sync/full_bytes": float(self.full)} if self.sent else {}


NOTHING_SENT = SentWeights()


def full_bytes(model: Any) -> int:
    """Return the size of a model's weights in bytes, without its adapters."""
    return sum(parameter.nbytes for name, parameter in model.named_parameters() if "lora_" not in name)


class WeightSync(Protocol):
    """A channel that sends the trainer's weights to an engine. The number of updates is the name of each version."""

    def attach(self, trainer: Any) -> None:
        """Connect to the trainer. The run calls this once, when the trainer exists."""

    def before_update(self) -> None:
        """Prepare for a change of weights. The driver calls this before the optimizer steps."""

    def after_update(self) -> None:
        """Continue after a change of weights. The driver calls this after the optimizer has stepped."""

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Send the trainer's weights to the sampling engine. They become version `step`.

        Args:
            trainer: The trainer.
            step: The number of updates so far.

        Returns:
            The number of bytes that were sent.

        Raises:
            PolicyError: If the sampler does not accept the weights.
        """


class SeparateWeights:
    """A base class for samplers that have weights of their own. They may sample while the trainer updates."""

    def before_update(self) -> None:
        """Do nothing. The sampler has its own weights."""

    def after_update(self) -> None:
        """Do nothing. The sampler has its own weights."""


class SharedModelSync:
    """A weight sync for an engine that runs the trainer's own model. Nothing is copied. The engine waits while weights
    change.
    """

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    def attach(self, trainer: Any) -> None:
        """Give the engine the trainer's model, with its adapters."""
        self._engine.model = trainer.accelerator.unwrap_model(trainer.model)

    def before_update(self) -> None:
        """Wait until the current batch is sampled, and keep the engine from starting another."""
        self._engine.lock.acquire()

    def after_update(self) -> None:
        """Let sampling continue."""
        self._engine.lock.release()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Set the engine's version to the number of updates."""
        self._engine.version = str(step)
        return NOTHING_SENT


class AdapterSync(SeparateWeights):
    """A weight sync for a vLLM server that loads each version's LoRA adapter from a folder shared with the trainer.

    Each version of each process has a name of its own. A request, and the server's prefix cache, therefore never mix
    two versions. A server refuses a name that it has loaded, so a resumed run may not use those of the killed process.
    The server needs `--enable-lora` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.
    """

    def __init__(self, engine: VllmEngine, base_url: str, folder: Path, name: str, *, timeout: float = 600.0) -> None:
        self._engine, self._folder, self._name = engine, folder, name
        # Commands are not retried, because a server refuses one that already succeeded.
        self._endpoint = Endpoint(
            policy_address(base_url), api_key_env=engine.endpoint.api_key_env, timeout=timeout, retries=0
        )
        self._loaded: str | None = None

    def attach(self, trainer: Any) -> None:
        """Choose the names of this process's versions. Raise `ConfigError` if the model has no adapters."""
        from accelerate.utils import broadcast_object_list

        if not hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config"):
            raise ConfigError(
                'engine.sync = "adapter" needs [model.lora]. Add it, or set engine.sync = "nccl" to send all weights.'
            )
        # All ranks use the first rank's names.
        (token,) = broadcast_object_list([secrets.token_hex(4)])
        self._name = f"{self._name}-{token}"

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Write the adapter, make the server load it, and unload the previous one."""
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
            hint = ". Start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1." if refusal.status == 404 else ""
            raise PolicyError(
                f"the server at {server} refused {command} of {body['lora_name']} (HTTP {refusal.status}: "
                f"{refusal.message[:200]}){hint}"
            ) from None
        except ServerError as error:
            raise PolicyError(f"the server at {server} did not run {command} of {body['lora_name']}: {error}") from None


class NcclSync(SeparateWeights):
    """A weight sync that sends all weights to a vLLM server over NCCL, with TRL's client.

    The client gathers shards and merges adapters first. The server needs `VLLM_SERVER_DEV_MODE=1` and
    `--weight-transfer-config '{"backend": "nccl"}'`.
    """

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._sent = -1

    def attach(self, trainer: Any) -> None:
        """Do nothing. A trainer made with `use_vllm` has its client."""

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Send all weights, once for each update. The server drops its cached prefixes."""
        if step == self._sent:
            return NOTHING_SENT
        try:
            trainer.vllm_generation.sync_weights()
        except Exception as error:  # TRL raises plain exceptions
            raise PolicyError(
                f"the server did not take new weights ({reason_of(error)}). See the server's log."
            ) from error
        self._sent, self._engine.version = step, str(step)
        size = full_bytes(trainer.accelerator.unwrap_model(trainer.model))
        return SentWeights(size, size)
