"""transformers `generate` in this process, batched over the episodes that ask at the same moment.

For tests, demos and small models. One worker thread runs the model; requests that come within a few milliseconds of
each other share a batch. A request's tokens depend on its own seed, not on what shares its batch, as far as
floating-point sums allow.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.policies.tokens.engines import Finish, Sample

if TYPE_CHECKING:
    import torch


class Staged:
    """New values for some parameters of a model, and the version that they are. One side puts, the other takes.

    Hold `lock` for either; it is never held for longer than copying takes.
    """

    def __init__(self, model: Any, places: Sequence[int], *, lock: Any, named: Any) -> None:
        """`places` are those of the parameters in `model.parameters()`; their values are taken down as they are now.

        `named.value`, bytes, is the version of the values that were put last.
        """
        every = list(model.parameters())
        self._places = list(places)
        self._slots = [every[place].detach().clone() for place in self._places]
        self.lock, self._named = lock, named
        self._taken: bytes = named.value

    def share(self) -> None:
        """Moves the copies to memory that two processes see, where they are not a GPU's already."""
        for slot in self._slots:
            slot.share_memory_()

    def put(self, model: Any, version: str) -> None:
        """The values that this model's parameters have now are those of `version`."""
        import torch

        every = list(model.parameters())
        with torch.no_grad():
            for place, slot in zip(self._places, self._slots, strict=True):
                slot.copy_(every[place])
        self._named.value = version.encode()

    def take(self, model: Any) -> str:
        """The model's parameters get what was put last. Returns the version that they are now."""
        import torch

        if self._named.value != self._taken:
            every = list(model.parameters())
            with torch.no_grad():
                for place, slot in zip(self._places, self._slots, strict=True):
                    every[place].copy_(slot)
            self._taken = self._named.value
        return self._taken.decode()


PADDING = 0.25
"""Of a batch's padded ids the share that a second batch must spare."""
PATIENCE = 0.005
"""Seconds after which a batch that waits for episodes looks again how many there are."""


@dataclass(slots=True)
class _Request:
    """A request, and what was sampled for it so far."""

    prompt: list[int]
    max_tokens: int
    stop: frozenset[int]
    temperature: float
    top_p: float
    seed: int | None
    answer: Future[Sample] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether its last token is sampled."""
        return len(self.ids) >= self.max_tokens or bool(self.ids and self.ids[-1] in self.stop)


class TransformersEngine:
    """A causal language model of transformers. Close it, or let it end with the process.

    `version` names the weights; a trainer that steps them sets it. `lock` is held while the model generates: take it
    to change weights in place. Those of a trainer that has a copy of its own come by `staged`.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str = "",
        version: str = "",
        wait: float = 0.005,
        most: int = 16,
        pad: int | None = None,
    ) -> None:
        """`wait` is how many seconds a batch is collected for, `most` its size at most, `pad` the padding id.

        Raises `MissingExtraError` without torch, `ConfigError` for settings that cannot work.
        """
        try:
            import torch  # noqa: F401 - told here rather than in the worker thread
        except ImportError:
            raise MissingExtraError("torch", "train") from None
        if wait < 0 or most < 1:
            raise ConfigError(f"wait must not be negative and most at least 1; got {wait} and {most}")
        self.model = model
        self.name = f"transformers:{name or model.config.model_type}"
        self.version = version
        self.lock = threading.Lock()
        self.staged: Staged | None = None
        self._wait = wait
        self._most = most
        self._pad = pad if pad is not None else getattr(model.config, "pad_token_id", None) or 0
        self._queue: queue.Queue[_Request | None] = queue.Queue()
        self._worker: threading.Thread | None = None
        self._starting = threading.Lock()
        self._expected = 0

    def hold(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Samples with this model from now on. `put` brings new values of its `trained` parameters, by place."""
        self.model = model
        named = SimpleNamespace(value=self.version.encode())
        self.staged = Staged(model, trained, lock=threading.Lock(), named=named)

    def put(self, model: Any, version: str) -> None:
        """The weights that this model has now sample from the next batch on. Does not wait for the batch at hand."""
        assert self.staged is not None
        with self.staged.lock:
            self.staged.put(model, version)

    def expect(self, episodes: int) -> None:
        """Says that so many more episodes are at work (fewer, if negative), each of which asks or ends.

        While some are, a batch is whole when each of them has asked, or when it is full, and no clock decides what
        shares it: the same episodes then give the same numbers to the last bit.
        """
        self._expected += episodes

    async def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        stop: Sequence[int],
        temperature: float,
        top_p: float,
        seed: int | None,
    ) -> Sample:
        """One reply. Raises `PolicyError` for a prompt longer than the model, or a model that fails."""
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and len(prompt) + max_tokens > longest:
            raise PolicyError(
                f"{len(prompt)} prompt ids and {max_tokens} more are past the model's {longest} positions"
            )
        request = _Request(list(prompt), max_tokens, frozenset(stop), temperature, top_p, seed)
        self._start()
        self._queue.put(request)
        return await asyncio.wrap_future(request.answer)

    def close(self) -> None:
        """Ends the worker thread after the batch at hand."""
        with self._starting:
            if self._worker is not None:
                self._queue.put(None)
                self._worker.join()
                self._worker = None

    def _start(self) -> None:
        with self._starting:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="ctx1-generate", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = self._collect(first)
            batch = [request for request in batch if request.answer.set_running_or_notify_cancel()]
            for part in parted(batch):
                self._answer(part)
            if last:
                return

    def _collect(self, first: _Request) -> tuple[list[_Request], bool]:
        """The requests of the next few milliseconds, and whether the engine was closed meanwhile."""
        batch, until = [first], time.monotonic() + self._wait
        while len(batch) < min(self._most, self._expected or self._most):
            try:
                request = self._queue.get(timeout=PATIENCE if self._expected else max(0.0, until - time.monotonic()))
            except queue.Empty:
                if self._expected:
                    continue
                break
            if request is None:
                return batch, True
            batch.append(request)
        return batch, False

    def _answer(self, batch: list[_Request]) -> None:
        try:
            with self.lock:
                version = self._renewed()
                sample(self.model, batch, self._pad)
        except Exception as error:  # noqa: BLE001 - whatever the model raises belongs to those who asked
            for request in batch:
                request.answer.set_exception(PolicyError(f"{self.name} failed: {type(error).__name__}: {error}"))
            return
        for request in batch:
            finish = Finish.STOP if request.ids[-1] in request.stop else Finish.LENGTH
            request.answer.set_result(Sample(tuple(request.ids), tuple(request.logprobs), finish, version=version))

    def _renewed(self) -> str:
        """The version that samples; weights that have come are taken up."""
        if self.staged is not None:
            with self.staged.lock:
                self.version = self.staged.take(self.model)
        return self.version


def parted(batch: list[_Request]) -> list[list[_Request]]:
    """The batch, or its short prompts and then its long ones where that spares much padding; none of an empty one."""
    if not batch:
        return []
    ordered = sorted(batch, key=lambda request: len(request.prompt))
    longest = len(ordered[-1].prompt)
    spared, place = max((n * (longest - len(one.prompt)), n) for n, one in enumerate(ordered, start=1))
    if spared < PADDING * longest * len(batch):
        return [batch]
    return [ordered[:place], ordered[place:]]


def sample(model: Any, batch: Sequence[_Request], pad: int) -> None:
    """Samples a reply for each request, prompts padded on the left, by the model's own `generate`.

    `generate` decodes greedily over scores in which each row's sampler has left one token, so that temperature, top-p
    and seed can be each request's own.
    """
    import torch
    from transformers import LogitsProcessorList

    sampler = Sampler(batch, pad)
    width = max(len(request.prompt) for request in batch)
    ids = torch.tensor([[pad] * (width - len(r.prompt)) + r.prompt for r in batch], device=model.device)
    mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in batch], device=model.device)
    with torch.inference_mode():
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=[lambda input_ids, scores: sampler.finished(input_ids)],
            max_new_tokens=max(request.max_tokens for request in batch),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=pad,
        )


class Sampler:
    """Chooses one token a row and step, and keeps it with its log-probability."""

    def __init__(self, batch: Sequence[_Request], pad: int) -> None:
        self._batch = batch
        self._pad = pad
        self._generators: list[Any] = [None for _ in batch]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """A logits processor: scores, shape (batch, vocabulary), with all but each row's token at -inf."""
        import torch

        raw = scores.float()
        tokens = self._chosen(raw)
        index = torch.tensor(tokens, device=scores.device).unsqueeze(1)
        logprobs = torch.log_softmax(raw, dim=-1).gather(1, index).squeeze(1).tolist()
        for request, token, logprob in zip(self._batch, tokens, logprobs, strict=True):
            if not request.done:
                request.ids.append(token)
                request.logprobs.append(logprob)
        return torch.full_like(scores, -torch.inf).scatter_(1, index, 0.0)

    def finished(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Which rows need no further token, shape (batch,)."""
        import torch

        return torch.tensor([request.done for request in self._batch], device=input_ids.device)

    def _chosen(self, raw: torch.Tensor) -> list[int]:
        """A token for each row: the likeliest at temperature 0, padding where the row is done, else one drawn."""
        tokens = [self._pad] * len(self._batch)
        cold = [row for row, one in enumerate(self._batch) if one.temperature == 0 and not one.done]
        warm = [row for row, one in enumerate(self._batch) if one.temperature != 0 and not one.done]
        for row, token in zip(cold, raw[cold].argmax(-1).tolist() if cold else (), strict=True):
            tokens[row] = token
        for row, token in zip(warm, self._random(warm, raw[warm]) if warm else (), strict=True):
            tokens[row] = token
        return tokens

    def _random(self, rows: Sequence[int], raw: torch.Tensor) -> list[int]:
        """Tokens drawn at each row's temperature from the fewest likeliest that hold its `top_p` of the mass."""
        import torch

        asked = [self._batch[row] for row in rows]
        heat = torch.tensor([[one.temperature] for one in asked], device=raw.device)
        most = torch.tensor([[one.top_p] for one in asked])
        ordered, order = torch.softmax(raw / heat, dim=-1).cpu().sort(descending=True)
        kept = ordered * ((ordered.cumsum(-1) - ordered) < most)
        # Rows draw one by one: each has its own seed.
        places = [
            torch.multinomial(one, 1, generator=self._generator(row)) for one, row in zip(kept, rows, strict=True)
        ]
        return [int(token) for token in order.gather(1, torch.stack(places)).squeeze(1)]

    def _generator(self, row: int) -> torch.Generator:
        import torch

        if self._generators[row] is None:
            generator = self._generators[row] = torch.Generator()
            seed = self._batch[row].seed
            generator.seed() if seed is None else generator.manual_seed(seed)
        made: torch.Generator = self._generators[row]
        return made
