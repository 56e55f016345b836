"""Episodes of a tiny model whose replies are forced, and the log-probabilities of a forward pass on their rows."""

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
    """As pytest's monkeypatch."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Put the value in place."""


def forced(patch: Patcher, replies: dict[str, Sequence[int]]) -> None:
    """Make the engine's sampler take these ids instead of drawing; the scores stay the model's."""
    from context_agent.policies.tokens.engines.transformers import Sampler

    (ids,) = replies.values()
    script = iter(ids)
    patch.setattr(Sampler, "_draw", lambda self, rows, logits: [next(script) for _ in rows])


def forced_episodes(
    model: Any, renderer: TokenRenderer, corpus: MemoryCorpus, patch: Patcher, *, seed: int, rollouts: int
) -> list[SearchResult]:
    """Concurrent episodes of random turns, prunes among them, each sampled token scored by the model in a batch."""
    from context_agent.policies.tokens.engines.transformers import Sampler, TransformersEngine

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
    """A policy that tells the sampler what to take before each call."""

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
    """A turn that costs few tokens: a small vocabulary spells everything at length."""
    if view.blocks and draw.random() < 0.6:
        return Action((ToolCall("prune_chunks", {"chunk_ids": [draw.choice(view.blocks).id]}),))
    return Action((ToolCall("search_corpus", {"query": draw.choice(QUERIES), "limit": 2}),))


class _Announced:
    """An engine that says what it is about to be asked."""

    def __init__(self, inner: Any, announce: Callable[[Sequence[int], int | None], None]) -> None:
        self._inner = inner
        self._announce = announce
        self.name = inner.name

    async def generate(self, request: SampleRequest) -> Sample:
        self._announce(request.prompt, request.seed)
        sample: Sample = await self._inner.generate(request)
        return sample


def worst_difference(model: Any, rows: Iterable[TrainingRow]) -> float:
    """The greatest difference between a sampled token's recorded log-probability and the forward pass on its row."""
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
