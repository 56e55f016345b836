"""transformers `generate` in this process, batched over the episodes that sample at the same moment.

It is for tests, demos and small models. One worker thread runs the model. Requests that arrive within a few
milliseconds of each other share a batch. A request's tokens depend on its own seed. Other requests in its
batch change only the rounding of floating-point sums.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from context_agent.errors import ConfigError, MissingExtraError, PolicyError, reason_of
from context_agent.policies.tokens.engines import Sample, SampleRequest, Score
from context_agent.policies.tokens.engines.prefix_cache import PrefixCache, supported
from context_agent.policies.tokens.engines.sampling import PendingSample, sample_batch, split_by_length
from context_agent.policies.tokens.engines.staged_weights import NewWeights, StagedWeights

if TYPE_CHECKING:
    import torch


MOST_PADDED_IDS = 16_384
"""Maximum number of padded ids that a CPU reads at once if the model's states cannot be cached.

The attention scores of more do not fit the processor's caches: 256 prompts of 80 to 290 ids take twice the time
(`benchmarks/sampling.py`).
"""
POLL_SECONDS = 0.005
"""A batch that waits for running episodes checks their number at this interval."""


@dataclass(slots=True)
class PendingScore:
    """Ids to score between two batches."""

    ids: Sequence[int]
    answer: Future[Score] = field(default_factory=Future)


class TransformersEngine:
    """An engine with a causal language model of transformers. Close it, or let it end with the process.

    Args:
        model: The model.
        name: The name of the model in the engine's name. Defaults to the model's type.
        version: The version of the weights.
        wait: The seconds for which a batch collects requests.
        max_batch: Maximum number of requests in a batch.
        pad_id: The id that pads prompts. Defaults to the id in the model's configuration.
        autocast: The type in which the trainer's forward pass computes. Defaults to the type of the weights. A sampler
            that computes in another type finds other log-probabilities than the trainer.

    Attributes:
        version: The version of the weights. A trainer that updates the weights sets it.
        lock: A lock that is held while the model generates. Hold it to change weights in place.
        staged: The weights that a trainer with a copy of its own delivers.

    Raises:
        MissingExtraError: If torch is not installed.
        ConfigError: If `wait` is negative or `max_batch` is below 1.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str = "",
        version: str = "",
        wait: float = 0.005,
        max_batch: int = 16,
        pad_id: int | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        try:
            import torch  # noqa: F401 - reported here rather than in the worker thread
        except ImportError:
            raise MissingExtraError("torch", "train") from None
        if wait < 0:
            raise ConfigError(f"wait must not be negative; got {wait}")
        if max_batch < 1:
            raise ConfigError(f"max_batch must be at least 1; got {max_batch}")
        self.model = model
        self.name = f"transformers:{name or model.config.model_type}"
        self.version = version
        self.lock = threading.Lock()
        self.staged: NewWeights | None = None
        self._wait = wait
        self._max_batch = max_batch
        self._pad_id = pad_id if pad_id is not None else getattr(model.config, "pad_token_id", None) or 0
        self._autocast = autocast
        self._queue: queue.Queue[PendingSample | PendingScore | None] = queue.Queue()
        self._worker: threading.Thread | None = None
        self._starting = threading.Lock()
        self._expected = 0
        self._cacheable = False
        self._prefixes: PrefixCache | None = None
        self._prefix_version: tuple[int, str] | None = None

    def load_model(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Sample with this copy of the model from now on. `put` updates its `trained` parameters, given by index."""
        self.model = model
        version = SimpleNamespace(value=self.version.encode())
        self.staged = StagedWeights(model, trained, lock=threading.Lock(), version=version)

    def put(self, model: Any, version: str) -> int:
        """Sample with this model's present weights from the next batch on.

        The call does not wait for the current batch.

        Return the number of bytes that were copied.
        """
        assert isinstance(self.staged, StagedWeights)
        with self.staged.lock:
            return self.staged.put(model, version)

    def expect(self, episodes: int) -> None:
        """Add to the number of running episodes. A negative number subtracts.

        While episodes are running, a batch is complete when each of them has sent a request, or when it is full. No
        clock decides which requests share a batch, so the same episodes give the same numbers to the last bit. When no
        episode is left, the engine forgets their prompts. The numbers of the next episodes then do not depend on
        earlier ones, which a resumed run does not play again.
        """
        self._expected += episodes
        if not self._expected:
            self._prefixes = self._prefix_version = None

    async def generate(self, request: SampleRequest) -> Sample:
        """Return one reply.

        Raise `PolicyError` if the prompt is longer than the model's context, or the model fails.
        """
        prompt, new = len(request.prompt), request.max_tokens
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if limit is not None and prompt + new > limit:
            raise PolicyError(
                f"{prompt} prompt ids and up to {new} new ids exceed the model's {limit} positions. Use a smaller "
                "window."
            )
        pending = PendingSample(request)
        self._start()
        self._queue.put(pending)
        return await asyncio.wrap_future(pending.answer)

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the log-probabilities that the model gives to the ids.

        The current batch ends first. Raise `PolicyError` if the model fails.
        """
        pending = PendingScore(ids)
        self._start()
        self._queue.put(pending)
        return await asyncio.wrap_future(pending.answer)

    def close(self) -> None:
        """End the worker thread after the current batch."""
        with self._starting:
            if self._worker is not None:
                self._queue.put(None)
                self._worker.join()
                self._worker = None

    def _start(self) -> None:
        with self._starting:
            if self._worker is None:
                self._cacheable = supported(self.model)
                self._worker = threading.Thread(target=self._work, name="ctx1-generate", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            if isinstance(first, PendingScore):
                self._score(first)
                continue
            batch, closed = self._collect(first)
            batch = [pending for pending in batch if pending.answer.set_running_or_notify_cancel()]
            most_ids = None if self._cacheable or self.model.device.type != "cpu" else MOST_PADDED_IDS
            for part in split_by_length(batch, most_ids):
                self._answer(part)
            if closed:
                return

    def _collect(self, first: PendingSample) -> tuple[list[PendingSample], bool]:
        """Return the requests of the next few milliseconds, and True if the engine was closed in that time."""
        batch, until = [first], time.monotonic() + self._wait
        while len(batch) < min(self._max_batch, self._expected or self._max_batch):
            try:
                timeout = POLL_SECONDS if self._expected else max(0.0, until - time.monotonic())
                pending = self._queue.get(timeout=timeout)
            except queue.Empty:
                if self._expected:
                    continue
                break
            if pending is None:
                return batch, True
            if isinstance(pending, PendingScore):
                self._score(pending)
            else:
                batch.append(pending)
        return batch, False

    def _answer(self, batch: list[PendingSample]) -> None:
        try:
            with self.lock:
                version = self._current_version()
                with self._precision():
                    sample_batch(self.model, batch, self._pad_id, self._prefixes_of(version))
        except Exception as error:  # noqa: BLE001 - whatever the model raises belongs to the requests
            for pending in batch:
                pending.answer.set_exception(
                    PolicyError(f"{self.name} failed ({type(error).__name__}: {reason_of(error)})")
                )
            return
        for pending in batch:
            pending.finish(version)

    def _score(self, pending: PendingScore) -> None:
        try:
            with self.lock:
                version = self._current_version()
                with self._precision():
                    logprobs = tuple(row_logprobs(self.model, pending.ids).tolist())
        except Exception as error:  # noqa: BLE001 - whatever the model raises belongs to the request
            pending.answer.set_exception(
                PolicyError(f"{self.name} failed ({type(error).__name__}: {reason_of(error)})")
            )
            return
        pending.answer.set_result(Score(logprobs, version))

    def _precision(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the model computes as it does in training."""
        import torch

        return nullcontext() if self._autocast is None else torch.autocast(self.model.device.type, self._autocast)

    def _prefixes_of(self, version: str) -> PrefixCache | None:
        """Return the cache for these weights. If the model's states cannot be cut at any position, return None."""
        if self._prefix_version != (id(self.model), version):
            self._prefix_version = (id(self.model), version)
            self._prefixes = PrefixCache() if self._cacheable else None
        return self._prefixes

    def _current_version(self) -> str:
        """Return the version that samples, after taking staged weights."""
        if self.staged is not None:
            with self.staged.lock:
                self.version = self.staged.take(self.model)
        return self.version


def row_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Return the log-probability of each id after the first, shape (ids - 1,), at temperature 1."""
    import torch

    with torch.inference_mode():
        row = torch.tensor([list(ids)], device=model.device)
        logits = model(input_ids=row, use_cache=False).logits[0, :-1].float()
        return torch.log_softmax(logits, dim=-1).gather(1, row[0, 1:, None]).squeeze(1)
