"""A run on a closed world, prepared for verl, and servers that reply to it by the seed. Needs verl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from context_agent.policies.tokens.engines import FakeEngine, SampleRequest
from context_agent.testing import tiny_runs
from context_agent.train import run_file
from context_agent.train.config import RunConfig
from context_agent.train.experimental.verl.folder import prepare
from context_agent.train.models import load_model, load_renderer
from context_agent.train.toy.environment import ToyEnvironment, make_environment
from context_agent.train.toy.word_prompts import WordRenderer

CHANGES: dict[str, Any] = {
    "rollouts": {"steps": 3, "groups": 4, "rollouts": 4, "substeps": 2, "save_every": 1},
    "episodes": {"turns": 6},
}
PRIMARY = {
    "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
    "defaults": ["ppo_trainer", "settings", "_self_"],
    "actor_rollout_ref": {
        # verl then sends seeds, and the servers of these tests reply by them.
        "rollout": {"name": "vllm", "full_determinism": True, "agent": {"num_workers": 1}},
        "actor": {"strategy": "fsdp", "use_dynamic_bsz": True},
    },
}


def prepared(folder: Path) -> RunConfig:
    """Save a model of a few thousand weights and prepare a run of it in `folder/verl`."""
    tiny_run = run_file.parse_run(
        tiny_runs.merged(tiny_runs.TINY, {"model": {"tiny": {"hidden": 32, "layers": 1}}, "out": str(folder / "out")})
    )
    student = load_model(tiny_run)
    for part in (student.model, student.tokenizer):
        part.save_pretrained(folder / "model")
    settings = tiny_runs.merged(tiny_runs.TINY, {"model": {"name": str(folder / "model")}, "out": str(folder / "out")})
    run = run_file.parse_run(tiny_runs.merged(settings, CHANGES))
    prepare(run, folder / "verl", note=lambda _: None)
    (folder / "verl" / "primary.yaml").write_text(json.dumps(PRIMARY))
    return run


def composed(folder: Path, *overrides: str, name: str = "primary") -> Any:
    """verl's configuration as hydra puts it together for `verl.trainer.main_ppo`."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose(name, list(overrides))


def played_by_seed(run: RunConfig) -> Callable[[SampleRequest], Sequence[int]]:
    """Some episodes search for what the question names, prune the hits, search again and rank; others rank nobody."""
    assert run.data.world is not None
    world = make_environment(run.data.world)
    _, words = load_renderer(run)
    assert isinstance(words, WordRenderer)
    return lambda request: _reply(request, world, words)


def _reply(request: SampleRequest, world: ToyEnvironment, words: WordRenderer) -> Sequence[int]:
    assert request.seed is not None
    text = words.decode(request.prompt)
    names = sorted((name.lower() for name in world.titles.values()), key=len, reverse=True)
    question = text.split("<go>")[0]
    title = next((name for name in names if name in question), "nobody")
    turns = text.count("<go>")
    long_plan = ["search " + title, "keep " + title, "search maker", "rank " + title]
    plans = (["rank nobody"], ["search " + title, "rank " + title], long_plan, long_plan)
    # The seed of a turn is the episode's seed plus the turn's number.
    plan = plans[(request.seed - turns + 1) % 4]
    reply = plan[min(turns, len(plan)) - 1]
    return (*words.encode(reply), *words.stop)


class Client:
    """Stands in for verl's `LLMServerClient`: answers from a `FakeEngine`, as verl's vLLM server would."""

    def __init__(self, run: RunConfig, *, experts: bool = False, steps: int = 0, dead: int = -1) -> None:
        """`experts` adds routed experts to each answer; every `dead`th call fails."""
        self.engine = FakeEngine(played_by_seed(run))
        self.experts, self.steps, self.dead = experts, steps, dead
        self.sent: list[dict[str, Any]] = []

    async def generate(self, request_id: Any, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.sent.append({"request": request_id, "prompt": prompt_ids, **sampling_params})
        if self.dead > 0 and len(self.sent) % self.dead == 0:
            raise RuntimeError("the server died")
        await asyncio.sleep(0)
        names = ("max_tokens", "stop_token_ids", "temperature", "top_p", "seed")
        sample = await self.engine.generate(SampleRequest(prompt_ids, *(sampling_params[name] for name in names)))
        length = len(prompt_ids) + len(sample.ids)
        return TokenOutput(
            token_ids=list(sample.ids),
            log_probs=list(sample.logprobs),
            routed_experts=[[[position % 2]] for position in range(length)] if self.experts else None,
            stop_reason="completed",
            extra_fields={"global_steps": self.steps, "min_global_steps": self.steps, "max_global_steps": self.steps},
        )
