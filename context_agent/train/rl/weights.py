"""New weights for whatever samples, after each step: the same model, a server's adapter, or all of a server's weights.

What reaches a vLLM server is written against vLLM 0.31 and TRL 1.16; `docs/training.md` says what of it has been run.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

from context_agent._support.http import Endpoint, Refusal, policy_address
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.policies.engines.vllm import VllmEngine


class Weights(Protocol):
    """Brings the trainer's weights to an engine, and names them there by the number of updates."""

    def begin(self, trainer: Any) -> None:
        """Called once, when the trainer is made."""

    def before_update(self) -> None:
        """Called before the optimiser changes weights."""

    def after_update(self) -> None:
        """Called when it has."""

    def push(self, trainer: Any, step: int) -> None:
        """Makes the weights after `step` updates those that sample. Raises `PolicyError` where that fails."""


class Shared:
    """The engine runs the trainer's own model: nothing is copied; it waits while weights change."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    def begin(self, trainer: Any) -> None:
        """The engine takes the model as the trainer has it, with its adapters."""
        self._engine.model = trainer.accelerator.unwrap_model(trainer.model)

    def before_update(self) -> None:
        """Waits until no batch is being sampled."""
        self._engine.lock.acquire()

    def after_update(self) -> None:
        """Sampling may go on."""
        self._engine.lock.release()

    def push(self, trainer: Any, step: int) -> None:
        """The weights are there already; they get their name."""
        self._engine.version = str(step)


class Adapters:
    """A vLLM server loads each version's LoRA adapter from a folder that it shares with the trainer.

    Each version has a name of its own, so what a request samples with, and what the server's prefix cache holds, are
    never two versions' at once. The server needs `--enable-lora` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.
    """

    def __init__(self, engine: VllmEngine, base_url: str, folder: Path, name: str, *, timeout: float = 600.0) -> None:
        self._engine, self._folder, self._name = engine, folder, name
        # A retry of a command that was carried out would be refused.
        self._endpoint = Endpoint(
            policy_address(base_url), api_key_env=engine.endpoint.api_key_env, timeout=timeout, retries=0
        )
        self._loaded: str | None = None

    def begin(self, trainer: Any) -> None:
        """Raises `ConfigError` for a model without adapters."""
        if not hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config"):
            raise ConfigError("engine.sync = 'adapter' needs [model.lora]; all weights go to a server by 'nccl'")

    def before_update(self) -> None:
        """Nothing: the server has a copy."""

    def after_update(self) -> None:
        """Nothing."""

    def push(self, trainer: Any, step: int) -> None:
        """Writes the adapter, has the server load it, and takes the last one off."""
        name = f"{self._name}-{step}"
        if trainer.accelerator.is_main_process and name != self._loaded:
            place = self._folder / name
            trainer.accelerator.unwrap_model(trainer.model).save_pretrained(place)
            self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(place.resolve())})
            if self._loaded is not None:
                self._post("unload_lora_adapter", {"lora_name": self._loaded})
                shutil.rmtree(self._folder / self._loaded, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        self._loaded = name
        self._engine.model, self._engine.version = name, str(step)

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
            raise PolicyError(f"the server at {server} did not take new weights: {error}") from None


class Broadcast:
    """All weights to a vLLM server by TRL's client over NCCL, which gathers shards and merges adapters first.

    The server needs `VLLM_SERVER_DEV_MODE=1` and `--weight-transfer-config '{"backend": "nccl"}'`.
    """

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._sent = -1

    def begin(self, trainer: Any) -> None:
        """The trainer was made with `use_vllm`; its client stands."""

    def before_update(self) -> None:
        """Nothing: the server has a copy."""

    def after_update(self) -> None:
        """Nothing."""

    def push(self, trainer: Any, step: int) -> None:
        """Sends them, once for each update; the server drops its cached prefixes."""
        if step == self._sent:
            return
        try:
            trainer.vllm_generation.sync_weights()
        except Exception as error:  # TRL raises plain exceptions
            raise PolicyError(f"the server did not take new weights: {error}") from error
        self._sent, self._engine.version = step, str(step)
