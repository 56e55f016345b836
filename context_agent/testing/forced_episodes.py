"""Episodes of a tiny model with forced replies, and a check of the recorded log-probabilities."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from context_agent import Action, Budget, MemoryCorpus, SearchAgent, ToolCall, View
from context_agent.agent import SearchResult
from context_agent.harness.profile import default
from context_agent.policies.tokens.engines import Sample, SampleRequest
from context_agent.policies.tokens.prompt import Prompt, TokenRenderer
from context_agent.testing.token_episodes import QUERIES, QUESTION, Watched, rank_view
from context_agent.train.rows import TrainingRow


class Patcher(Protocol):
    """A tool that replaces attributes, such as pytest's `monkeypatch`."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of the target to the value."""


def forced(patch: Patcher, ids: Sequence[int]) -> None:
    """Make the engine's sampler take given token ids instead of drawing them. The model still computes their scores.

    Args:
        patch: The tool that replaces the sampler's method.
        ids: The token ids to take, in order.
    """
    from context_agent.policies.tokens.engines.sampling import Sampler

    script = iter(ids)
    patch.setattr(Sampler, "_draw", lambda self, rows, logits: [next(script) for _ in rows])


def forced_episodes(
    model: Any, renderer: TokenRenderer, corpus: MemoryCorpus, patch: Patcher, *, seed: int, rollouts: int
) -> list[SearchResult]:
    """Run concurrent episodes of random turns, including prunes, in which the model scores each forced token.

    Args:
        model: The model that computes the recorded scores.
        renderer: The renderer of prompts and replies.
        corpus: The corpus that the episodes search.
        patch: The tool that replaces the sampler's method.
        seed: The seed of the random turns.
        rollouts: The number of episodes.

    Returns:
        The results of the episodes.
    """
    from context_agent.policies.tokens.engines.sampling import Sampler
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    scripts: dict[tuple[int, ...], Iterator[int]] = {}

    def take(self: Any, rows: Sequence[int], logits: Any) -> list[int]:
        requests = [self._batch[row].request for row in rows]
        return [next(scripts[request.seed, len(request.prompt)]) for request in requests]

    patch.setattr(Sampler, "_draw", take)
    engine = TransformersEngine(model, wait=0.05, version="v1")
    agents = [
        SearchAgent(
            corpus, _Forced(engine, renderer, scripts, seed * 100 + i), budget=Budget(4096), seed=seed * 100 + i
        )
        for i in range(rollouts)
    ]

    async def run_all() -> list[SearchResult]:
        return await asyncio.gather(*(agent.asearch(QUESTION) for agent in agents))

    try:
        return asyncio.run(run_all())
    finally:
        engine.close()


class _Forced(Watched):
    """A token policy that chooses each reply before it calls the engine."""

    def __init__(self, engine: Any, renderer: TokenRenderer, scripts: dict[Any, Iterator[int]], seed: int) -> None:
        super().__init__(_Announced(engine, self._announce), renderer)  # type: ignore[arg-type]
        self._scripts = scripts
        self._draw = random.Random(seed)
        self._writer = Prompt(renderer, default())

    def _announce(self, prompt: Sequence[int], seed: int | None) -> None:
        view = self.views[-1]
        action = _short_turn(view, self._draw) if len(self.views) < 4 else rank_view(view)
        self._scripts[seed, len(prompt)] = iter(self._writer.reply_for(action))


def _short_turn(view: View, draw: random.Random) -> Action:
    """Return a random action that costs few tokens, because a small vocabulary spells every word at length."""
    if view.blocks and draw.random() < 0.6:
        return Action((ToolCall("prune_chunks", {"chunk_ids": [draw.choice(view.blocks).id]}),))
    return Action((ToolCall("search_corpus", {"query": draw.choice(QUERIES), "limit": 2}),))


class _Announced:
    """An engine that reports each request before it answers it."""

    def __init__(self, inner: Any, announce: Callable[[Sequence[int], int | None], None]) -> None:
        self._inner = inner
        self._announce = announce
        self.name = inner.name

    async def generate(self, request: SampleRequest) -> Sample:
        self._announce(request.prompt, request.seed)
        sample: Sample = await self._inner.generate(request)
        return sample


def worst_difference(model: Any, rows: Iterable[TrainingRow]) -> float:
    """Return the largest difference between recorded log-probabilities and those of a forward pass, in nats.

    Args:
        model: The model that sampled the tokens.
        rows: Training rows with recorded log-probabilities. Only tokens in the loss mask are compared.
    """
    import torch

    worst = 0.0
    for row in rows:
        ids = torch.tensor([row.input_ids])
        with torch.inference_mode():
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
        expected = scores.gather(1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(row.loss_mask[1:], dtype=torch.bool)
        recorded = torch.tensor(row.logprobs[1:])
        worst = max(worst, float((expected - recorded)[mask].abs().max()))
    return worst
