"""Sampling for a batch of requests by the `generate` of transformers. Each request has its own temperature and seed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest
from context_agent.policies.tokens.engines.prefix_cache import PrefixCache, States, row_states, stacked
from context_agent.policies.tokens.engines.routers import joined, recorded_experts
from context_agent.policies.tokens.routed_experts import pack

if TYPE_CHECKING:
    import torch


SPLIT_SHARE = 0.25
"""A batch is split in two if that saves this share of its padded ids."""


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
