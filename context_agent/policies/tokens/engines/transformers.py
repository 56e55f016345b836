"""transformers `generate` in this process, batched over the episodes that sample at the same moment.

It is for tests, demos and small models. One worker thread runs the model. Requests that arrive within a few
milliseconds of each other share a batch. A request's tokens depend on its own seed. Other requests in its
batch change only the rounding of floating-point sums.

`PrefixCache` keeps the keys and values of earlier prompts. The next prompt of an episode is mostly its last prompt,
followed by the reply and the results. After a prune, the two prompts share only the part before the first pruned
passage. The part that a prompt shares with a cached one is not computed again.
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
from typing import TYPE_CHECKING, Any, Protocol

from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest, Score
from context_agent.policies.tokens.engines.routers import joined, recorded_experts
from context_agent.policies.tokens.routed_experts import Experts, pack, unrecorded

if TYPE_CHECKING:
    import torch


MOST_BYTES = 2 << 30
"""Memory for keys and values over all prompts: 46,000 tokens of SmolLM2-135M in float32, or 14,000 of Qwen3-4B in
bfloat16.
"""
States = tuple[tuple["torch.Tensor", "torch.Tensor"], ...]
"""Keys and values of each layer, shape (1, heads, tokens, size of a head)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    ids: tuple[int, ...]
    states: States
    experts: Experts | None = None

    @property
    def bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.states)


def supported(model: Any) -> bool:
    """Return True if every layer of the model attends to all earlier tokens and to nothing else."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


class PrefixCache:
    """The states of the latest prompts that were sampled on. It belongs to one set of weights."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._entries: list[_Entry] = []

    def states(self, model: Any, ids: Sequence[int]) -> tuple[States, int]:
        """Return the states of all but the last of the ids, and how many of them were known."""
        import torch
        from transformers import DynamicCache

        prompt = tuple(ids[:-1])
        best = max(self._entries, key=lambda entry: _shared(entry.ids, prompt), default=None)
        shared = 0 if best is None else _shared(best.ids, prompt)
        cache: Any = DynamicCache() if best is None or not shared else DynamicCache(_first(best.states, shared))
        if shared < len(prompt):
            fresh = torch.tensor([prompt[shared:]], device=model.device)
            model(input_ids=fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return tuple((layer.keys, layer.values) for layer in cache.layers), shared

    def experts(self, model: Any, ids: Sequence[int]) -> tuple[States, int, Experts]:
        """Return `states`, and the experts that all but the last of the ids were routed to when they were read."""
        prompt = tuple(ids[:-1])
        best = max(self._entries, key=lambda entry: _shared(entry.ids, prompt), default=None)
        with recorded_experts(model, rows=1) as record:
            states, shared = self.states(model, ids)
        fresh = record.row(0)
        earlier = None if best is None or best.experts is None else best.experts[:shared]
        return states, shared, joined([unrecorded(shared, like=fresh) if earlier is None else earlier, fresh])

    def keep(self, ids: Sequence[int], states: States, experts: Experts | None = None) -> None:
        """Store the states of the ids. States of a beginning of them are dropped, and the oldest beyond the limit."""
        stored = tuple(ids)
        self._entries = [entry for entry in self._entries if stored[: len(entry.ids)] != entry.ids]
        self._entries.append(_Entry(stored, states, experts))
        while self._entries and sum(entry.bytes for entry in self._entries) > self._most_bytes:
            self._entries.pop(0)


def stacked(rows: Sequence[States]) -> Any:
    """Return the states of several prompts as one cache, padded on the left."""
    import torch
    from transformers import DynamicCache

    width = max(row[0][0].shape[2] for row in rows)

    def padded(tensor: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(tensor, (0, 0, width - tensor.shape[2], 0))

    def joined(layer: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([padded(keys) for keys, _ in layer]), torch.cat([padded(values) for _, values in layer])

    return DynamicCache([joined(layer) for layer in zip(*rows, strict=True)])


def row_states(cache: Any, row: int, start: int, end: int) -> States:
    """Return the states of one row of a batch, from position `start` to `end`, as a copy."""
    return tuple(
        (layer.keys[row : row + 1, :, start:end].clone(), layer.values[row : row + 1, :, start:end].clone())
        for layer in cache.layers
    )


def _first(states: States, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(keys[:, :, :count], values[:, :, :count]) for keys, values in states]


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common beginning of two sequences of ids."""
    most = min(len(first), len(second))
    return next((place for place in range(most) if first[place] != second[place]), most)


SPLIT_SHARE = 0.25
"""A batch is split in two if that saves this share of its padded ids."""
MOST_PADDED_IDS = 16_384
"""The most padded ids that a CPU reads at once if the model's states cannot be cached.

The attention scores of more do not fit the processor's caches: 256 prompts of 80 to 290 ids take twice the time
(`benchmarks/sampling.py`).
"""
POLL_SECONDS = 0.005
"""A batch that waits for running episodes checks their number at this interval."""


class NewWeights(Protocol):
    """Weights that a trainer has sent and the model does not have yet. Hold `lock` to take them."""

    lock: Any

    def take(self, model: Any) -> str:
        """Bring the model up to date. Return the version of its weights."""


class StagedWeights:
    """New values for some of a model's parameters.

    A trainer may store them at any time, and the sampler takes them later. So the trainer does not wait for the current
    batch, which may take longer than an update. This costs memory for a second copy of the trained parameters. Hold
    `lock` to store or to take values.
    """

    def __init__(self, model: Any, indices: Sequence[int], *, lock: Any, version: Any) -> None:
        """Copy the present values of the parameters at `indices` in `model.parameters()`.

        `version.value` has the version of the latest stored values, in bytes.
        """
        self._indices = list(indices)
        self._slots = [parameter.detach().clone() for parameter in self._parameters(model)]
        self.lock, self._version = lock, version
        self._taken_version: bytes = version.value

    def put(self, model: Any, version: str) -> int:
        """Store the model's present values as those of `version`. Return the number of bytes that were copied."""
        self._copy(self._parameters(model), self._slots)
        self._version.value = version.encode()
        return sum(slot.nbytes for slot in self._slots)

    def take(self, model: Any) -> str:
        """Copy the latest stored values into the model, and return their version."""
        if self._version.value != self._taken_version:
            self._copy(self._slots, self._parameters(model))
            self._taken_version = self._version.value
        return self._taken_version.decode()

    def _parameters(self, model: Any) -> list[Any]:
        parameters = list(model.parameters())
        return [parameters[index] for index in self._indices]

    @staticmethod
    def _copy(sources: Sequence[Any], targets: Sequence[Any]) -> None:
        import torch

        with torch.no_grad():
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)


@dataclass(slots=True)
class PendingSample:
    """A request in a batch, and what was sampled for it so far."""

    request: SampleRequest
    answer: Future[Sample] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached_tokens: int | None = None
    experts: str = ""

    @property
    def done(self) -> bool:
        """True if the last token of the sample is sampled."""
        return len(self.ids) >= self.request.max_tokens or self.stopped

    @property
    def stopped(self) -> bool:
        """True if a stop token ended the sample."""
        return bool(self.ids) and self.ids[-1] in self.request.stop

    def finish(self, version: str) -> None:
        """Deliver the sample."""
        finish = Finish.STOP if self.stopped else Finish.LENGTH
        sample = Sample(tuple(self.ids), tuple(self.logprobs), finish, self.cached_tokens, version, self.experts)
        self.answer.set_result(sample)


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
        max_batch: The most requests in a batch.
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
        clock decides which requests share a batch, so the same episodes give the same numbers to the last bit.
        """
        self._expected += episodes

    async def generate(self, request: SampleRequest) -> Sample:
        """Return one reply.

        Raise `PolicyError` if the prompt is longer than the model's context, or the model fails.
        """
        prompt, new = len(request.prompt), request.max_tokens
        limit = getattr(self.model.config, "max_position_embeddings", None)
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
                pending.answer.set_exception(PolicyError(f"{self.name} failed ({type(error).__name__}: {error})"))
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
            pending.answer.set_exception(PolicyError(f"{self.name} failed ({type(error).__name__}: {error})"))
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


def split_by_length(batch: list[PendingSample], most_ids: int | None = None) -> list[list[PendingSample]]:
    """Return the batch in parts of prompts of similar length. An empty batch has no parts.

    A batch of more than `most_ids` padded ids is split into parts of at most `most_ids` ids, or of one prompt. Any
    other batch is split in two if that saves `SPLIT_SHARE` of its padded ids.
    """
    if not batch:
        return []
    ordered = sorted(batch, key=lambda pending: len(pending.request.prompt))
    longest = len(ordered[-1].request.prompt)
    if most_ids is not None and len(batch) * longest > most_ids:
        parts: list[list[PendingSample]] = [[]]
        for pending in ordered:
            if parts[-1] and (len(parts[-1]) + 1) * len(pending.request.prompt) > most_ids:
                parts.append([])
            parts[-1].append(pending)
        return parts
    savings = (count * (longest - len(item.request.prompt)) for count, item in enumerate(ordered, start=1))
    saved, short = max((saving, count) for count, saving in enumerate(savings, start=1))
    return [batch] if saved < SPLIT_SHARE * longest * len(batch) else [ordered[:short], ordered[short:]]


def row_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Return the log-probability of each id after the first, shape (ids - 1,), at temperature 1."""
    import torch

    with torch.inference_mode():
        row = torch.tensor([list(ids)], device=model.device)
        logits = model(input_ids=row, use_cache=False).logits[0, :-1].float()
        return torch.log_softmax(logits, dim=-1).gather(1, row[0, 1:, None]).squeeze(1)


def sample_batch(model: Any, batch: Sequence[PendingSample], pad_id: int, prefixes: PrefixCache | None = None) -> None:
    """Sample a reply for each request with the model's own `generate`. Prompts are padded on the left.

    Each row's sampler chooses a token and leaves only its score, so `generate` decodes greedily. Each request therefore
    has its own temperature, top-p and seed. With `prefixes`, each prompt is read by itself, from the first id that was
    not read before. Then only the replies are sampled together.
    """
    import torch
    from transformers import LogitsProcessorList

    sampler = Sampler(batch, pad_id)
    prompts = [list(pending.request.prompt) for pending in batch]
    width = max(map(len, prompts))
    ids = torch.tensor([[pad_id] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    with torch.inference_mode():
        # A prompt of one token leaves nothing to read before sampling.
        prefixes = prefixes if min(map(len, prompts)) > 1 else None
        recording = any(pending.request.experts_from is not None for pending in batch)
        read = [] if prefixes is None else [_read(model, prompt, prefixes, recording) for prompt in prompts]
        cache = stacked([states for states, _, _ in read]) if read else None
        recorder = recorded_experts(model, len(batch)) if recording else nullcontext()
        with recorder as record:
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                logits_processor=LogitsProcessorList([sampler]),
                stopping_criteria=[lambda input_ids, scores: sampler.finished(input_ids)],
                max_new_tokens=max(pending.request.max_tokens for pending in batch),
                do_sample=False,
                eos_token_id=None,
                pad_token_id=pad_id,
                past_key_values=cache,
            )
    for row, (pending, prompt) in enumerate(zip(batch, prompts, strict=True)):
        # The last token of a reply was sampled, but not read.
        known = [*prompt, *pending.ids[:-1]]
        experts = None
        if record is not None:
            # After a cache, sampling reads the last id of the prompt; without one, all of it behind the padding.
            earlier = [read[row][2]] if read else []
            experts = joined([*earlier, record.row(row)[0 if read else width - len(prompt) :]])[: len(known)]
        if experts is not None and pending.request.experts_from is not None:
            pending.experts = pack(experts[pending.request.experts_from :])
        if prefixes is not None:
            start = width - len(prompt)
            prefixes.keep(known, row_states(cache, row, start, start + len(known)), experts)
            pending.cached_tokens = read[row][1]


def _read(model: Any, prompt: Sequence[int], prefixes: PrefixCache, recording: bool) -> tuple[States, int, Any]:
    """Return the states of a prompt, how many of its ids were cached, and its experts if they are recorded."""
    return prefixes.experts(model, prompt) if recording else (*prefixes.states(model, prompt), None)


class Sampler:
    """Chooses one token for each row and step, and records it with its log-probability."""

    def __init__(self, batch: Sequence[PendingSample], pad_id: int) -> None:
        self._batch = batch
        self._pad_id = pad_id
        self._generators: list[torch.Generator | None] = [None for _ in batch]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (batch, vocabulary), in which all but each row's token are -inf. `generate` calls it."""
        import torch

        # Temperature 0 scales by 1: its log-probabilities are the model's own.
        scales = [[pending.request.temperature or 1.0] for pending in self._batch]
        logits = scores.float()
        if any(scale != [1.0] for scale in scales):
            logits = logits / torch.tensor(scales, device=scores.device)
        logprobs = torch.log_softmax(logits, dim=-1)
        tokens = self._choose(logprobs)
        index = torch.tensor(tokens, device=scores.device).unsqueeze(1)
        chosen = logprobs.gather(1, index).squeeze(1).tolist()
        for pending, token, logprob in zip(self._batch, tokens, chosen, strict=True):
            if not pending.done:
                pending.ids.append(token)
                pending.logprobs.append(logprob)
        return torch.full_like(scores, -torch.inf).scatter_(1, index, 0.0)

    def finished(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return which rows need no further token, shape (batch,)."""
        import torch

        return torch.tensor([pending.done for pending in self._batch], device=input_ids.device)

    def _choose(self, logprobs: torch.Tensor) -> list[int]:
        """Return a token for each row.

        At temperature 0 it is the most likely token. For a row that is done it is padding. Otherwise it is a random
        token.
        """
        tokens = [self._pad_id] * len(self._batch)
        active = [row for row, pending in enumerate(self._batch) if not pending.done]
        greedy = [row for row in active if self._batch[row].request.temperature == 0]
        for row, token in zip(greedy, _rows(logprobs, greedy).argmax(-1).tolist() if greedy else (), strict=True):
            tokens[row] = token
        # A nucleus is drawn from in another order: rows with and without one do not draw together.
        warm = [row for row in active if self._batch[row].request.temperature != 0]
        whole = [row for row in warm if self._batch[row].request.top_p >= 1]
        nucleus = [row for row in warm if self._batch[row].request.top_p < 1]
        for rows in filter(None, (whole, nucleus)):
            for row, token in zip(rows, self._draw(rows, _rows(logprobs, rows)), strict=True):
                tokens[row] = token
        return tokens

    def _draw(self, rows: Sequence[int], logprobs: torch.Tensor) -> list[int]:
        """Draw a token for each row from the smallest set of tokens with a total probability of `top_p`."""
        import torch

        # Rows draw one by one: each has its own seed.
        points = [torch.rand(1, generator=self._generator(row), dtype=torch.float64) for row in rows]
        uniform = torch.stack(points).to(logprobs.device)
        top_p = [self._batch[row].request.top_p for row in rows]
        if min(top_p) >= 1:
            tokens = drawn(logprobs.exp(), uniform)
        else:
            mass, order = likeliest(logprobs, top_p)
            tokens = order.gather(1, drawn(mass, uniform).unsqueeze(1)).squeeze(1)
        return [int(token) for token in tokens.tolist()]

    def _generator(self, row: int) -> torch.Generator:
        import torch

        generator = self._generators[row]
        if generator is None:
            generator = self._generators[row] = torch.Generator()
            seed = self._batch[row].request.seed
            generator.seed() if seed is None else generator.manual_seed(seed)
        return generator


def drawn(mass: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return an index for each row, drawn in proportion to its mass.

    Args:
        mass: Positive numbers, shape (rows, choices). They need not add up to 1.
        uniform: A random number in [0, 1) for each row, 64 bits, shape (rows, 1).

    Returns:
        The indices, shape (rows,). A choice without mass is never drawn.
    """
    import torch

    # Sums in 32 bits would lose the tail of a large vocabulary.
    sums = mass.cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(sums, uniform * sums[:, -1:], right=True).squeeze(1).clamp_(max=mass.shape[1] - 1)


LIKELIEST = 64
"""Tokens among which a nucleus is first searched. If they hold too little mass, eight times as many are."""


def likeliest(logprobs: torch.Tensor, top_p: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest set of most likely tokens whose probabilities add up to `top_p`, for each row.

    The function avoids sorting the whole vocabulary, which takes longer than a small model's forward pass.

    Args:
        logprobs: Natural logarithms, shape (rows, vocabulary).
        top_p: A share below 1 for each row.

    Returns:
        The probabilities of the likeliest tokens, 0 beyond the nucleus, and the tokens, both of shape (rows, tokens).
    """
    import torch

    shares = torch.tensor(top_p, dtype=torch.float64, device=logprobs.device).unsqueeze(1)
    count = min(LIKELIEST, logprobs.shape[1])
    while True:
        best, order = logprobs.topk(count, dim=-1)
        mass = best.exp()
        before = mass.cumsum(-1, dtype=torch.float64) - mass
        # A row is complete once one of its tokens has all of its share before it.
        if count == logprobs.shape[1] or bool((before[:, -1:] >= shares).all()):
            return mass.where(before < shares, 0.0), order
        count = min(8 * count, logprobs.shape[1])


def _rows(values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Return the given rows. If they are all rows, return them without a copy."""
    return values if len(rows) == len(values) else values[list(rows)]
