"""A run of a closed world as verl is started with it, and servers that play it by the seed. Needs verl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from context_agent.policies.tokens.engines import FakeEngine, SampleRequest
from context_agent.train import config
from context_agent.train.config import RunConfig
from context_agent.train.data import environment_of
from context_agent.train.environment import ToyEnvironment, WordRenderer
from context_agent.train.models import load_model, load_renderer
from context_agent.train.verl.folder import prepare
from tests.train import runs

CHANGES: dict[str, Any] = {
    "rollouts": {"steps": 3, "groups": 4, "rollouts": 4, "substeps": 2, "save_every": 1},
    "episodes": {"turns": 6},
}
PRIMARY = {
    "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
    "defaults": ["ppo_trainer", "settings", "_self_"],
    "actor_rollout_ref": {
        # Seeds are sent then, by which the servers of these tests play.
        "rollout": {"name": "vllm", "full_determinism": True, "agent": {"num_workers": 1}},
        "actor": {"strategy": "fsdp", "use_dynamic_bsz": True},
    },
}


def prepared(place: Path) -> RunConfig:
    """A model of a few thousand weights, saved, and a run of it in `place/verl`."""
    scratch = config.parse_run(
        runs.merged(runs.TINY, {"model": {"tiny": {"hidden": 32, "layers": 1}}, "out": str(place / "out")})
    )
    loaded = load_model(scratch, environment_of(scratch.data))
    for part in (loaded.model, loaded.tokenizer):
        part.save_pretrained(place / "model")
    named = runs.merged(runs.TINY, {"model": {"name": str(place / "model")}, "out": str(place / "out")})
    run = config.parse_run(runs.merged(named, CHANGES))
    prepare(run, place / "verl", note=lambda _: None)
    (place / "verl" / "primary.yaml").write_text(json.dumps(PRIMARY))
    return run


def composed(folder: Path, *overrides: str, name: str = "primary") -> Any:
    """verl's configuration as hydra puts it together for `verl.trainer.main_ppo`."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose(name, list(overrides))


def played_by_seed(run: RunConfig) -> Callable[[SampleRequest], Sequence[int]]:
    """Some episodes search what the question names, prune what came, search again and rank; others rank nobody."""
    world = environment_of(run.data)
    assert world is not None
    _, words = load_renderer(run, world)
    assert isinstance(words, WordRenderer)
    return lambda request: _reply(request, world, words)


def _reply(request: SampleRequest, world: ToyEnvironment, words: WordRenderer) -> Sequence[int]:
    assert request.seed is not None
    spelled = words.decode(request.prompt)
    names = sorted((one.lower() for one in world.titles.values()), key=len, reverse=True)
    asked = spelled.split("<go>")[0]
    title = next((one for one in names if one in asked), "nobody")
    turns = spelled.count("<go>")
    long = ["search " + title, "keep " + title, "search maker", "rank " + title]
    plans = (["rank nobody"], ["search " + title, "rank " + title], long, long)
    # Each turn has a seed of its own, the episode's and the turn.
    plan = plans[(request.seed - turns + 1) % 4]
    said = plan[min(turns, len(plan)) - 1]
    return (*words.encode(said), *words.stop)


class Client:
    """In the place of verl's `LLMServerClient`: answers from a `FakeEngine`, as vLLM's server of verl's would."""

    def __init__(self, run: RunConfig, *, experts: bool = False, steps: int = 0, dead: int = -1) -> None:
        """`experts` sends what was routed where; every `dead`th call fails."""
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
        every = len(prompt_ids) + len(sample.ids)
        return TokenOutput(
            token_ids=list(sample.ids),
            log_probs=list(sample.logprobs),
            routed_experts=[[[place % 2]] for place in range(every)] if self.experts else None,
            stop_reason="completed",
            extra_fields={"global_steps": self.steps, "min_global_steps": self.steps, "max_global_steps": self.steps},
        )
