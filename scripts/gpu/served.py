"""What vLLM serves, where it is installed: `scripts/gpu-check --vllm`.

- `served-gpt-oss`: a tiny gpt-oss; the checks of scripts/check_servers.py.
- `served-smollm2`: SmolLM2 in 32 and 16 bits: episodes in the profile lean, tokens trained against tokens sampled,
  log-probabilities against a forward pass of transformers.
- `served-learning`: SmolLM2 learns from lessons in an invented world, then from rewards, sampled by vLLM, which gets a
  new LoRA adapter after each update. At the end the log-probabilities of the server's newest adapter are
  compared with the trainer's.
- `served-sampling`: vLLM samples from gpt-oss-20b's shape with random weights.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import check_servers

from context_agent import Limits, MemoryCorpus, SearchAgent
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import Engine, Sample, SampleRequest
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.policies.tokens.lines import LinesRenderer
from context_agent.policies.tokens.packaged import model_folder
from context_agent.policies.tokens.recorded_calls import calls, expand
from context_agent.synth_data.world.closed_world import make_world
from context_agent.train.config import RunConfig
from context_agent.train.demo.material import DemoMaterial
from context_agent.train.estimate import GB, estimate_run
from context_agent.train.metrics_log import read_metrics
from context_agent.train.rl.samplers import ADAPTER_NAME
from context_agent.train.rows import sampled_rows
from context_agent.train.run_file import read_run
from gpu.part import FAILED, MISSED, OK, SKIPPED, Clock, Row, Scale, trained_updates, within
from gpu.shapes import ROOT, gpt_oss_config, replies, shape_run

RUN_FILE = "gpt-oss-20b-1gpu.toml"
WINDOW = 2_048
BOUNDS = {"float32": 1e-5, "bfloat16": 1e-3}
"""Mean difference of a log-probability between two programs that run the same weights."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the parts.

    `model` is SmolLM2, or the model that replaces it. `prompt` is the number of ids of a prompt to sample on.
    """

    model: str
    dtypes: tuple[str, ...]
    episodes: int
    entities: int
    lessons: int
    updates: int
    rollouts: int
    turns: int
    prompt: int
    requests: int
    reply: int


FULL = Sizes("smollm2", ("float32", "bfloat16"), 32, 400, 150, 100, 24, 6, 4_096, 64, 256)
SMALL = Sizes("tiny-llama", ("float32",), 1, 60, 2, 1, 2, 2, 32, 1, 8)


def sizes(scale: Scale) -> Sizes:
    """Return the sizes of the parts for a scale."""
    return FULL if scale.gpu else SMALL


class Recorder:
    """An engine that stores its samples."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.samples: list[Sample] = []

    async def generate(self, request: SampleRequest) -> Sample:
        """Sample with the engine, and store the sample."""
        self.samples.append(await self._engine.generate(request))
        return self.samples[-1]


def served_gpt_oss(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Run the checks of a server on a tiny gpt-oss."""
    from context_agent.train.tiny_model import tiny_gpt_oss

    # vLLM assumes gpt-oss's own vocabulary of every gpt-oss.
    model = tiny_gpt_oss(folder / "tiny", size=None if scale.gpu else 2_048)
    # The stand-in cannot be led.
    left_out = {check_servers.chat} if scale.gpu else {check_servers.chat, check_servers.led_turns}
    with (check_servers.started_vllm if scale.gpu else check_servers.stand_in)(model) as target:
        for check in check_servers.CHECKS:
            if check not in left_out:
                yield check_row(check.__name__.replace("_", " "), lambda check=check: check(target))
    if not scale.gpu:
        yield Row("", "vLLM", "the self-test serves by transformers", verdict=SKIPPED)


def check_row(figure: str, check: Callable[[], str]) -> Row:
    """Return the row of a check that returns text or raises."""
    try:
        return Row("", figure, check())
    except Exception as error:  # noqa: BLE001 - a row says what broke
        return Row("", figure, f"{type(error).__name__}: {error}"[:300], verdict=FAILED)


def served_smollm2(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Check that episodes are token-exact, and log-probabilities against a forward pass."""
    import transformers

    source = smollm2_folder(scale, folder)
    for dtype in sizes(scale).dtypes:
        flags = ["--dtype", dtype, "--max-model-len", "4096", "--gpu-memory-utilization", "0.3", "--enforce-eager"]
        with sampler(scale, source, flags) as engine:
            trajectories, samples = episodes(scale, engine, source)
        yield exactness(f"{dtype}: tokens", trajectories, samples)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype).eval().to(scale.device)
        yield agreement(f"{dtype}: log-probabilities", model, trajectories, BOUNDS[dtype])


def smollm2_folder(scale: Scale, folder: Path) -> str:
    """Return the folder of SmolLM2's weights, or of the model that replaces it."""
    if scale.gpu:
        return model_folder(sizes(scale).model)
    from context_agent.train.tiny_model import tiny_llama

    return str(tiny_llama(folder / sizes(scale).model))


@contextmanager
def sampler(scale: Scale, model: str, flags: Sequence[str]) -> Iterator[Engine]:
    """Serve the model with vLLM. Without a GPU, sample with transformers in this process."""
    if scale.gpu:
        with check_servers.vllm_server(Path(model), flags, name="model") as url:
            yield VllmEngine(url, "model")
        return
    import transformers

    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    engine = TransformersEngine(transformers.AutoModelForCausalLM.from_pretrained(model).eval())
    yield engine
    engine.close()


def episodes(scale: Scale, engine: Engine, model: str) -> tuple[list[Trajectory], list[Sample]]:
    """Play episodes in the profile lean at the same time.

    Return them, and everything that the engine sampled.
    """
    import transformers

    world = make_world(entities=sizes(scale).entities, hops=(2, 2))
    recorder = Recorder(engine)
    renderer = LinesRenderer(transformers.AutoTokenizer.from_pretrained(model), name=model)
    policy = TokenPolicy(recorder, renderer, temperature=1.0, max_tokens=64)
    limits = Limits(turns=sizes(scale).turns)
    questions = [task.question for task in world.stream("test")][: sizes(scale).episodes]

    async def play(agent: SearchAgent) -> list[Trajectory]:
        results = await asyncio.gather(*map(agent.asearch, questions))
        return [trajectory for result in results for trajectory in result.trajectories]

    with SearchAgent(
        MemoryCorpus(world.documents, embedder="static"), policy, profile="lean", budget=WINDOW, limits=limits
    ) as agent:
        return asyncio.run(play(agent)), recorder.samples


def exactness(figure: str, trajectories: Sequence[Trajectory], samples: Sequence[Sample]) -> Row:
    """Return the row of the check that training uses exactly the sampled tokens, in order."""
    rows = [row for trajectory in trajectories for row in sampled_rows(trajectory)]
    recorded = [whole_call.call.output for trajectory in trajectories for whole_call in expand(calls(trajectory))]
    trained = [token for row in rows for token, use in zip(row.input_ids, row.loss_mask, strict=True) if use]
    equal = sorted(recorded) == sorted(sample.ids for sample in samples) and trained == [
        token for output in recorded for token in output
    ]
    value = f"{sum(len(sample.ids) for sample in samples):,} sampled, {len(trained):,} trained in {len(rows)} rows"
    return Row("", figure, value, "equal, in order", OK if equal and trained else MISSED)


def agreement(figure: str, model: Any, trajectories: Sequence[Trajectory], bound: float) -> Row:
    """Compare recorded log-probabilities with a forward pass on the rows."""
    import torch

    rows = [row for trajectory in trajectories for row in sampled_rows(trajectory)]
    differences = torch.cat(list(check_servers.logprob_differences(model, rows)))
    mean, worst = float(differences.mean()), float(differences.max())
    return Row(
        "", figure, f"off by {mean:.1e} on average, {worst:.1e} at worst", f"mean <= {bound:g}", within(mean, bound)
    )


def learning(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Train on lessons, then by rewards with an adapter that is synced after each update."""
    from context_agent.train import sft

    source = smollm2_folder(scale, folder)
    material = DemoMaterial(folder, source, (WINDOW,), sizes(scale).lessons, entities=sizes(scale).entities)
    material.make(print, lambda *_: None)
    start = time.perf_counter()
    sft.train(learning_run(scale, source, material, "sft"), note=print)
    yield lessons_row(scale, folder / "sft", time.perf_counter() - start)
    run = learning_run(scale, source, material, "rl")
    if not scale.gpu:
        yield from rewards(scale, run)
        yield Row("", "adapter of the server", "no vLLM in the self-test", verdict=SKIPPED)
        return
    flags = ["--dtype", run.model.dtype, "--max-model-len", "4096", "--gpu-memory-utilization", "0.3"]
    flags += ["--enable-lora", "--max-lora-rank", "32", "--max-loras", "2"]
    with check_servers.vllm_server(Path(source), flags, environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}) as url:
        run = dataclasses.replace(run, engine=dataclasses.replace(run.engine, base_url=url))
        yield from rewards(scale, run)
        newest = VllmEngine(url, f"{ADAPTER_NAME}-{sizes(scale).updates}")
        trajectories, samples = episodes(scale, newest, source)
    yield exactness("adapter of the server: tokens", trajectories, samples)
    yield from synced(scale, source, folder / "rl" / "final", trajectories)


def learning_run(scale: Scale, source: str, material: DemoMaterial, kind: str) -> RunConfig:
    """Return the run of configs/smollm2.toml, changed for this check. `kind` is `sft` or `rl`."""
    changes: dict[str, Any] = {
        "out": str(material.out / kind),
        "model.name": source,
        "model.dtype": "bfloat16" if scale.gpu else "float32",
        "data": material.data(),
        "checkpoints.every": 1_000,
        "threads": 0,
    }
    if not scale.gpu:
        changes["model.lora"] = {"rank": 4, "modules": ["q_proj", "v_proj"]}
    if kind == "rl":
        changes |= {
            "model.adapter": str(material.out / "sft" / "final"),
            "engine": {"kind": "vllm" if scale.gpu else "transformers", "max_tokens": 64},
            "rollouts": {
                "steps": sizes(scale).updates,
                "groups": max(1, sizes(scale).rollouts // 8),
                "rollouts": min(8, sizes(scale).rollouts),
                "substeps": 1,
                "concurrency": 2 * sizes(scale).rollouts,
            },
            "episodes.turns": sizes(scale).turns,
            "loss.pass_tokens": 8 * WINDOW,
            "optimizer": {"learning_rate": 5e-5, "warmup": 5},
            "evaluation.every": 0,
        }
    return read_run(ROOT / "configs" / "smollm2.toml", changes)


def lessons_row(scale: Scale, out: Path, seconds: float) -> Row:
    """Return the rows, the speed and the losses of the lessons."""
    losses = [line["loss"] for line in read_metrics(out / "metrics.jsonl") if "loss" in line]
    rows = json.loads((out / "rows" / "rows.json").read_text(encoding="utf-8"))
    value = (
        f"{rows['rows']:,} rows, {rows['tokens']:,} tokens in {seconds:.0f} s; loss {losses[0]:.2f} at the first of "
        f"{len(losses)} updates, {losses[-1]:.2f} at the last"
    )
    # The self-test's single update shows nothing.
    return Row("", "lessons", value, "loss falls", OK if not scale.gpu or losses[-1] < losses[0] else MISSED)


def rewards(scale: Scale, run: RunConfig) -> Iterator[Row]:
    """Train by rewards, and yield rows.

    They have the number of updates, their speed, and the rewards of the first and the last updates.
    """
    from context_agent.train import reinforcement

    start = time.perf_counter()
    wanted = sizes(scale).updates
    updates = trained_updates(scale, lambda: reinforcement.train(run, note=print).updates, wanted)
    seconds = time.perf_counter() - start
    lines = [line for line in read_metrics(Path(run.out) / "metrics.jsonl") if "reward" in line]
    aborted = sum(line.get("episodes_aborted", 0) for line in lines)
    tenth = max(1, len(lines) // 10)
    first, last = (fmean(line["reward"] for line in part) for part in (lines[:tenth], lines[-tenth:]))
    verdict = OK if updates == wanted and not aborted else MISSED
    yield Row("", "updates of rewards", f"{updates}, {aborted:.0f} episodes aborted", f"{wanted}, 0", verdict)
    yield Row("", "seconds an update", f"{seconds / updates:.1f}, {sizes(scale).rollouts} episodes each")
    yield Row("", "reward, first and last tenth", f"{first:.3f}, {last:.3f}")


def synced(scale: Scale, source: str, adapter: Path, trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Compare the server's log-probabilities with those of the trainer's adapter, and of the base model."""
    import transformers
    from peft import PeftModel

    base = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="bfloat16").eval().to(scale.device)
    plain = agreement("without the adapter, for comparison", base, trajectories, float("inf"))
    yield agreement(
        "adapter of the server: log-probabilities", PeftModel.from_pretrained(base, adapter).eval(), trajectories, 1e-2
    )
    yield dataclasses.replace(plain, reference="")


def sampling(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Sample from a server with random weights, all requests at once."""
    import torch

    from context_agent.train.tiny_model import for_transformers, harmony_tokenizer, own_tokenizer

    config = gpt_oss_config(scale)
    run = shape_run(scale, config, folder, RUN_FILE, "eager")
    model = run.model.name
    for_transformers(harmony_tokenizer() if scale.gpu else own_tokenizer()).save_pretrained(model)
    if not scale.gpu:
        import transformers

        transformers.GptOssForCausalLM(config).save_pretrained(model)
    shape = (sizes(scale).requests, sizes(scale).prompt)
    prompts = torch.randint(0, config.vocab_size - 2_000 * scale.gpu, shape).tolist()
    flags = ["--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "8192"]
    with sampler(scale, model, flags) as engine:
        asyncio.run(replies(engine, prompts[:1], 4))
        start = time.perf_counter()
        count = asyncio.run(replies(engine, prompts, sizes(scale).reply))
        seconds = time.perf_counter() - start
    value = f"{count / seconds:,.0f}: {sizes(scale).requests} replies at once, prompts of {sizes(scale).prompt:,}"
    yield Row(
        "",
        "tokens a second, sampled",
        value,
        f"{run.expected.sampled_per_second:,.0f} assumed by configs/{RUN_FILE}",
    )
    yield server_memory_row(scale, estimate_run(run).memory.server, folder.parent / f"{folder.name}.log")


def server_memory_row(scale: Scale, estimate: Mapping[str, float], log: Path) -> Row:
    """Return the memory of the server's weights, as it logs it. The rest of its share is cache."""
    reference = f"{estimate['weights'] / GB:.1f} GB by --dry-run, and {estimate['cache'] / GB:.1f} GB of cache"
    if not scale.gpu:
        return Row("", "memory of the server's weights", "no vLLM in the self-test", reference, SKIPPED)
    sizes = re.findall(r"loading took ([\d.]+) GiB", log.read_text(encoding="utf-8", errors="replace"))
    value = f"{float(sizes[-1]) * 2**30 / GB:.1f} GB" if sizes else "not in the server's log"
    return Row("", "memory of the server's weights", value, reference, OK if sizes else SKIPPED)
