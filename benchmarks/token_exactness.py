"""Check that the trained tokens are exactly the sampled ones. Each figure of the token path is printed with its bound.

    python benchmarks/token_exactness.py [--quick] [--only NAME]

- `sampled`: tokens trained against tokens sampled, over 200 random episodes with prunes (bound: equal).
- `rows`: the ids of each row against the ids that the engine received and returned (bound: equal).
- `logprobs`: the recorded log-probability of each sampled token against a forward pass on its row, with a tiny gpt-oss
  in fp32 (bound 1e-5). Replies are forced, so that the episodes prune. Needs the extra `train`.
- `harmony`: 1,000 random conversations rendered by this package and by oss-harmony (bound: equal ids).
- `parsing`: 10,000 mutations of valid replies (bounds: no exception, and less than 50 ms of CPU time each).
- `content`: 2,000 texts that spell special tokens, roles and calls (bounds: no special id, no call).
- `overhead`: a turn at about 30k tokens outside the engine: the CPU time of the worst turn (bound 10 ms), the wall
  time, and the time to write the JSON for a server.

`--quick` takes a twentieth of the cases.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The random episodes are the tests' own; run from a checkout.
sys.path.insert(0, str(Path(__file__).parent.parent))

from context_agent import Action, Budget, Limits, MemoryCorpus, SearchAgent, ToolCall, View
from context_agent.harness.profile import context_1, default
from context_agent.policies.tokens.engines import FakeEngine, Sample, SampleRequest
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.prompt import Prompt
from context_agent.policies.tokens.vocabularies import TokenizerVocabulary
from context_agent.testing.documents import linked_documents
from context_agent.testing.random_views import random_text, random_view, rendered_by_oss_harmony
from context_agent.testing.spoiled_replies import as_json, mutated
from context_agent.testing.token_episodes import FORGERIES, QUESTION, Played, Watched, play, rank_view, small_corpus
from context_agent.train.rows import sampled_rows

FIRST_SPECIAL = 199_998


def verdict(good: bool) -> str:
    """Return "ok" or "MISSED"."""
    return "ok" if good else "MISSED"


def episodes(count: int) -> list[Played]:
    """Return random episodes, half with each profile. Some have parallel calls."""
    corpus = small_corpus()
    return [
        play(corpus, HarmonyRenderer(parallel=seed % 3 == 0), seed, profile=context_1() if seed % 2 else default())
        for seed in range(count)
    ]


def sampled(share: float) -> None:
    """Compare the trained tokens with the sampled tokens."""
    played = episodes(int(200 * share))
    trained, drawn, edits, row_count = 0, 0, 0, 0
    equal = True
    for item in played:
        rows = sampled_rows(item.result.trajectories[0])
        ids = [t for row in rows for t, keep in zip(row.input_ids, row.loss_mask, strict=True) if keep]
        expected = [token for sample in item.engine.samples for token in sample.ids]
        equal = equal and ids == expected
        trained, drawn, row_count = trained + len(ids), drawn + len(expected), row_count + len(rows)
        edits += sum(a.hidden != b.hidden for a, b in zip(item.views, item.views[1:], strict=False))
    print(
        f"sampled    {len(played)} episodes, {edits} edits, {row_count} rows: {drawn:,} tokens sampled, "
        f"{trained:,} trained (bound: equal, in order) {verdict(equal)}"
    )


def rows(share: float) -> None:
    """Compare the ids of rows with those of the engine."""
    checked, wrong = 0, 0
    for item in episodes(int(200 * share)):
        calls = iter(zip(item.engine.requests, item.engine.samples, strict=True))
        for row in sampled_rows(item.result.trajectories[0]):
            at = 0
            while at < len(row.input_ids):
                request, sample = next(calls)
                at = len(request.prompt) + len(sample.ids)
                checked += at
                wrong += tuple(row.input_ids[:at]) != request.prompt + sample.ids
    print(f"rows       {checked:,} ids compared, {wrong} calls differ (bound 0) {verdict(not wrong)}")


class Patch:
    """A replacement for pytest's monkeypatch. It restores nothing, because this program ends soon."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute, as pytest's monkeypatch does."""
        setattr(target, name, value)


def logprobs(share: float) -> None:
    """Compare the sampler's log-probabilities with a forward pass."""
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"logprobs   not run: {error}")
        return
    from context_agent.testing.forced_episodes import forced_episodes, worst_difference
    from context_agent.train.tiny_model import tiny_gpt_oss

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        tiny_gpt_oss(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        renderer = HarmonyRenderer(TokenizerVocabulary(transformers.AutoTokenizer.from_pretrained(folder), "tiny"))
    corpus, checked_rows = small_corpus(), []
    count = max(1, int(6 * share))
    for seed in range(count):
        for result in forced_episodes(model, renderer, corpus, Patch(), seed=seed, rollouts=4):
            checked_rows += sampled_rows(result.trajectories[0])
    worst = worst_difference(model, checked_rows)
    tokens = sum(row.trained for row in checked_rows)
    print(
        f"logprobs   {4 * count} episodes, {len(checked_rows)} rows, {tokens:,} sampled tokens: "
        f"worst difference {worst:.1e} (bound 1e-5) {verdict(worst <= 1e-5)}"
    )


def harmony(share: float) -> None:
    """Compare this package's rendering with that of oss-harmony."""
    count, same, tokens = int(1_000 * share), 0, 0
    for seed in range(count):
        draw = random.Random(seed)
        profile = draw.choice([default(), context_1()])
        view = random_view(draw, profile)
        expected = rendered_by_oss_harmony(view, profile)
        same += Prompt(HarmonyRenderer(), profile).show(view) == expected
        tokens += len(expected)
    print(f"harmony    {same} of {count} conversations equal, {tokens:,} ids (bound: all) {verdict(same == count)}")


def parsing(share: float) -> None:
    """Parse mutated replies."""
    draw, renderer = random.Random(0), HarmonyRenderer()
    count, raised, slowest, calls = int(10_000 * share), 0, 0.0, 0
    for _ in range(count):
        ids = mutated(draw)
        started = time.thread_time()
        try:
            action = renderer.parse(ids)
        except Exception:  # noqa: BLE001 - templates raise what they like
            raised += 1
            continue
        slowest = max(slowest, time.thread_time() - started)
        calls += len(action.calls)
        as_json(action)
    print(
        f"parsing    {count} mutations: {raised} raised (bound 0), slowest {slowest * 1e3:.1f} ms (bound 50), "
        f"{calls:,} calls read {verdict(not raised and slowest < 0.05)}"
    )


def content(share: float) -> None:
    """Encode texts that imitate special tokens."""
    draw, renderer = random.Random(1), HarmonyRenderer()
    count, special, called = int(2_000 * share), 0, 0
    for _ in range(count):
        text = random_text(draw) + draw.choice(FORGERIES) + random_text(draw)
        special += max(renderer.encode(text)) >= FIRST_SPECIAL
        called += bool(renderer.parse(renderer.reply(Action(text=text, reasoning=text))).calls)
    print(
        f"content    {count} texts: {special} with a special id (bound 0), {called} with a call (bound 0) "
        f"{verdict(not special and not called)}"
    )


class Timed(FakeEngine):
    """A fake engine that records the time of its own calls."""

    seconds: float = 0.0
    cpu: float = 0.0

    async def generate(self, request: SampleRequest) -> Sample:
        """Return what the fake engine returns, and record the time."""
        started, cpu = time.perf_counter(), time.thread_time()
        try:
            return await super().generate(request)
        finally:
            self.seconds, self.cpu = time.perf_counter() - started, time.thread_time() - cpu


def overhead(share: float) -> None:
    """Measure turns near a full window of 32,768 tokens."""
    corpus = MemoryCorpus(linked_documents(400), embedder=small_corpus().embedder)
    renderer = HarmonyRenderer()
    grow = tuple(ToolCall("search_corpus", {"query": f"comets and rivers {n}", "limit": 10}) for n in range(4))
    small: list[View] = []
    times: list[float] = []
    busy: list[float] = []
    bodies: list[float] = []

    def reply(request: SampleRequest) -> tuple[int, ...]:
        view: View = policy.views[-1]
        if view.tokens < 29_000:
            return writer.reply_for(Action(grow, reasoning="word " * 300))
        small.append(view)
        if len(small) > 20:
            return writer.reply_for(rank_view(view))
        edit = ToolCall("prune_chunks", {"chunk_ids": [view.blocks[len(small) * 3 % len(view.blocks)].id]})
        return writer.reply_for(
            Action((edit if len(small) % 3 == 0 else ToolCall("grep_corpus", {"pattern": "nowhere"}),))
        )

    writer = Prompt(renderer, default())
    engine = Timed(reply)
    policy = Watched(engine, renderer)
    act = policy.open

    def open_timed(*args: Any, **kwargs: Any) -> Any:
        actor = act(*args, **kwargs)
        inner = actor.act

        async def timed(view: View) -> Action:
            started, cpu = time.perf_counter(), time.thread_time()
            action = await inner(view)
            if view.tokens >= 29_000:
                busy.append(time.thread_time() - cpu - engine.cpu)
                times.append(time.perf_counter() - started - engine.seconds)
                started = time.perf_counter()
                json.dumps({"prompt": list(engine.requests[-1].prompt)}, separators=(",", ":")).encode()
                bodies.append(time.perf_counter() - started)
            return action

        actor.act = timed
        return actor

    policy.open = open_timed  # type: ignore[method-assign]
    agent = SearchAgent(corpus, policy, budget=Budget(32_768, soft=30_000, hard=31_500), limits=Limits(turns=100))
    asyncio.run(agent.asearch(QUESTION))
    prompts = [len(request.prompt) for request in engine.requests[-len(times) :]]
    print(
        f"overhead   {len(times)} turns on prompts of {min(prompts):,} to {max(prompts):,} ids: worst "
        f"{max(busy) * 1e3:.2f} ms of CPU (bound 10) {verdict(max(busy) <= 0.01)}; on the wall median "
        f"{statistics.median(times) * 1e3:.2f} ms, worst {max(times) * 1e3:.2f} ms; the request's JSON "
        f"{statistics.median(bodies) * 1e3:.2f} ms"
    )


FIGURES: dict[str, Callable[[float], None]] = {
    function.__name__: function for function in (sampled, rows, logprobs, harmony, parsing, content, overhead)
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the cases")
    parser.add_argument("--only", choices=sorted(FIGURES), help="one figure")
    options = parser.parse_args()
    print(f"machine    {platform.machine()}, Python {platform.python_version()}")
    for name, figure in FIGURES.items():
        if options.only in (None, name):
            figure(0.05 if options.quick else 1.0)


if __name__ == "__main__":
    main()
