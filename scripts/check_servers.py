"""Check that a model server keeps the promises of the token path, and that the chat path works with it.

    python scripts/check_servers.py --base-url http://localhost:8000/v1 --model openai/gpt-oss-20b
    python scripts/check_servers.py --vllm          starts vLLM on a tiny gpt-oss, if vLLM is installed
    python scripts/check_servers.py --stand-in      the same checks on transformers in this process, to try the script

The program prints versions and a line for each check. If a check fails, it exits with 1. A tiny gpt-oss knows nothing,
so its episodes end soon. The checks test whether ids and log-probabilities are complete, repeatable, and the same as in
the training rows.

`--folder` names the model's folder. The model must fit in this machine's memory in fp32. Then log-probabilities are
compared with a forward pass in transformers. The bound is 1e-5 for the stand-in and 5e-3 for vLLM, whose kernels are
different. `--template` uses the chat template in that folder instead of harmony.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from context_agent import Action, Budget, Document, MemoryCorpus, SearchAgent, ToolCall
from context_agent.agent import SearchResult
from context_agent.errors import ContextAgentError
from context_agent.harness.profile import default
from context_agent.policies import load_policy
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.prompt import Prompt, TokenRenderer
from context_agent.policies.tokens.recorded_calls import calls, expand
from context_agent.train.rows import TrainingRow, sampled_rows

START_SECONDS = 600
QUESTION = "Which comet passed the bridge in 1744?"
DOCUMENTS = [
    Document(f"d{n}", f"Comet {n} passed the bridge of {1700 + n} in {1740 + n}.", f"Comet {n}") for n in range(9)
]


@dataclass(frozen=True, slots=True)
class Target:
    """A server to check. `bound` limits the difference of log-probabilities from a forward pass on the model in
    `folder`.
    """

    url: str
    model: str
    renderer: TokenRenderer
    folder: Path | None = None
    bound: float = 5e-3


def episode(target: Target, engine: VllmEngine, rollouts: int = 1) -> SearchResult:
    """Run a search on the token path, and return its result."""
    policy = TokenPolicy(engine, target.renderer, max_tokens=256)
    with SearchAgent(MemoryCorpus(DOCUMENTS), policy, budget=Budget(8192), rollouts=rollouts, seed=11) as agent:
        return agent.search(QUESTION)


def sampled(target: Target, prompt: list[int], **options: Any) -> Sample:
    """Return one sample from the server."""
    settings = {"max_tokens": 32, "stop": target.renderer.stop, "temperature": 1.0, "top_p": 0.9, "seed": 5, **options}
    return asyncio.run(VllmEngine(target.url, target.model).generate(SampleRequest(prompt, **settings)))


def ids_and_logprobs(target: Target) -> str:
    """Check that the server returns the ids that it sampled, with their log-probabilities."""
    opening = target.renderer.opening(default())
    sample = sampled(target, [*opening.before, *target.renderer.encode(QUESTION), *opening.after])
    assert all(value <= 0.0 for value in sample.logprobs), "a log-probability above 0"
    return f"{len(sample.ids)} ids, {sample.finish}, {len(sample.logprobs)} log-probabilities"


def repeatable(target: Target) -> str:
    """Check that the same seed gives the same ids. Report whether another seed gives other ids."""
    prompt = [*target.renderer.opening(default()).before, *target.renderer.encode(QUESTION)]
    first, repeated, other = (sampled(target, prompt, seed=seed).ids for seed in (5, 5, 6))
    assert first == repeated, "equal seeds gave different ids"
    return "equal seeds, equal ids" + ("" if first != other else "; another seed gave the same")


def exact_rows(target: Target) -> str:
    """Check that the rows of four rollouts contain exactly what was sent and sampled."""
    result = episode(target, VllmEngine(target.url, target.model), rollouts=4)
    rows, token_count = [], 0
    for trajectory in result.trajectories:
        rows += sampled_rows(trajectory)
        token_count += sum(len(whole_call.call.output) for whole_call in expand(calls(trajectory)))
    assert sum(row.trained for row in rows) == token_count, "tokens trained are not tokens sampled"
    worst = _against_a_forward_pass(target, rows)
    return f"{len(rows)} rows, {token_count} tokens sampled and trained, stop reason {result.stop_reason}{worst}"


class Led:
    """An engine that forces the server's replies. The server may sample only one given token at a time.

    So a model that knows nothing plays an episode of several turns with a prune. The server must support vLLM's
    `allowed_token_ids`. It returns the log-probabilities before that restriction.
    """

    name = "led"

    def __init__(self, target: Target) -> None:
        self._engine = VllmEngine(target.url, target.model)
        self._writer = Prompt(target.renderer, default())
        self._turns = [
            Action((ToolCall("search_corpus", {"query": "comets and bridges", "limit": 4}),), reasoning="Look."),
            Action((ToolCall("search_corpus", {"query": "1744", "limit": 2}),)),
            Action((ToolCall("prune_chunks", {"chunk_ids": ["d0_0", "d1_0", "d2_0"]}),)),
            Action((ToolCall("grep_corpus", {"pattern": "174[0-4]"}),)),
            Action(text="<Document id=d4><Justification>It names 1744.</Justification></Document>"),
        ]
        self.cached: list[int | None] = []

    async def generate(self, request: SampleRequest) -> Sample:
        """Return the ids of the next turn. The server samples them one by one."""
        ids: list[int] = []
        logprobs: list[float] = []
        for token in self._writer.reply_for(self._turns[len(self.cached)]):
            step = replace(request, prompt=[*request.prompt, *ids], max_tokens=1)
            sample = await self._engine.generate(step, extra={"allowed_token_ids": [token]})
            assert sample.ids == (token,), f"led to {token}, the server sampled {sample.ids}"
            if not ids:
                self.cached.append(sample.cached_tokens)
            ids.append(token)
            logprobs += sample.logprobs
        return Sample(tuple(ids), tuple(logprobs), Finish.STOP, self.cached[-1], self._engine.version)


def led_turns(target: Target) -> str:
    """Check the rows of an episode of five turns with a prune. The server sampled each token on its exact prompt."""
    engine = Led(target)
    policy = TokenPolicy(engine, target.renderer)
    with SearchAgent(MemoryCorpus(DOCUMENTS), policy, budget=Budget(8192)) as agent:
        result = agent.search(QUESTION)
    rows = sampled_rows(result.trajectories[0])
    assert result.stop_reason == "finished", f"the episode ended for {result.stop_reason} ({result.error})"
    assert len(rows) > 1, "no prune took effect"
    worst = _against_a_forward_pass(target, rows)
    tokens = sum(row.trained for row in rows)
    return f"{result.turns} turns, {len(rows)} rows, {tokens} tokens, cached prompt ids by turn {engine.cached}{worst}"


def prefix_cache(target: Target) -> str:
    """Report how much of a prompt is cached when it is sent again. A server without a cache does not fail."""
    writer = Prompt(target.renderer, default())
    search = writer.reply_for(Action((ToolCall("search_corpus", {"query": "comets"}),)))
    prompt = [*target.renderer.opening(default()).before, *search]
    sampled(target, prompt)
    cached = sampled(target, prompt).cached_tokens
    return (
        "not told (start vLLM with --enable-prompt-tokens-details)" if cached is None else f"{cached} of {len(prompt)}"
    )


def stops(target: Target) -> str:
    """Check that a stop token ends the reply and is its last id.

    The stop token is the model's most likely first token.
    """
    prompt = list(target.renderer.opening(default()).before)
    (likeliest,) = sampled(target, prompt, max_tokens=1, temperature=0.0).ids
    sample = sampled(target, prompt, stop=(likeliest,), temperature=0.0)
    assert sample.ids == (likeliest,), f"sampled on behind a stop token: {sample.ids[:5]}"
    assert sample.finish == "stop", f"the reply ended for {sample.finish}"
    return "the last id is the stop token"


def chat(target: Target) -> str:
    """Run an episode of the chat policy on the same server."""
    policy = load_policy("chat", model=target.model, base_url=target.url, max_tokens=256)
    with SearchAgent(MemoryCorpus(DOCUMENTS), policy, budget=Budget(8192), seed=11) as agent:
        result = agent.search(QUESTION)
    return f"stop reason {result.stop_reason}, {len(result.documents)} documents, {result.turns} turns"


def _against_a_forward_pass(target: Target, rows: list[TrainingRow]) -> str:
    """Return the largest difference from a forward pass as text. Without a folder, return an empty string."""
    if target.folder is None:
        return ""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(target.folder, dtype=torch.float32).eval()
    worst = max(float(differences.max()) for differences in logprob_differences(model, rows))
    assert worst <= target.bound, f"log-probabilities are off by {worst:.1e} from a forward pass ({target.bound:g})"
    return f", log-probabilities within {worst:.1e} of a forward pass (bound {target.bound:g})"


def logprob_differences(model: Any, rows: Iterable[TrainingRow]) -> Iterator[Any]:
    """Yield the absolute differences between each row's log-probabilities and a forward pass.

    Rows without a sampled token are skipped.
    """
    import torch

    for row in rows:
        ids = torch.tensor([row.input_ids], device=model.device)
        with torch.inference_mode():
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
        expected = scores.gather(1, ids[0, 1:, None])[:, 0].cpu()
        mask = torch.tensor(row.loss_mask[1:], dtype=torch.bool)
        if mask.any():
            yield (expected - torch.tensor(row.logprobs[1:]))[mask].abs()


CHECKS: tuple[Callable[[Target], str], ...] = (
    ids_and_logprobs,
    repeatable,
    stops,
    exact_rows,
    led_turns,
    prefix_cache,
    chat,
)


@contextmanager
def stand_in(folder: Path) -> Iterator[Target]:
    """Yield a server that runs transformers in this process, behind `/v1/completions`.

    It has no chat endpoint, and its replies cannot be forced.
    """
    import torch
    import transformers

    from context_agent.policies.chat.scripted_server import ScriptedServer
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engine = TransformersEngine(model)

    def completions(body: Mapping[str, Any]) -> tuple[int, Any]:
        request = SampleRequest(
            body["prompt"],
            max_tokens=body["max_tokens"],
            stop=body["stop_token_ids"],
            temperature=body["temperature"],
            top_p=body["top_p"],
            seed=body.get("seed"),
        )
        sample = asyncio.run(engine.generate(request))
        choice = {
            "token_ids": list(sample.ids),
            "prompt_token_ids": body["prompt"],
            "finish_reason": sample.finish.value,
            "logprobs": {"token_logprobs": list(sample.logprobs)},
        }
        return 200, {"choices": [choice], "usage": {}}

    with ScriptedServer(models=["tiny"], completions=completions) as server:
        yield Target(server.url, "tiny", harmony(folder), folder, bound=1e-5)
    engine.close()


@contextmanager
def started_vllm(folder: Path) -> Iterator[Target]:
    """Yield vLLM with the tiny model in a process of its own, with its chat endpoint."""
    flags = ["--dtype", "float32", "--max-model-len", "16384", "--enable-prompt-tokens-details", "--enforce-eager"]
    flags += ["--enable-auto-tool-choice", "--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss"]
    with vllm_server(folder, flags) as url:
        yield Target(url, "tiny", harmony(folder), folder)


@contextmanager
def vllm_server(
    folder: Path, flags: Sequence[str], *, name: str = "tiny", environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the address of vLLM in a process of its own. It serves the model in `folder` under `name`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--served-model-name", name, "--generation-config", "vllm", *flags]
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"vLLM ended with code {process.returncode} before it was up")
        try:
            if httpx.get(url, timeout=5.0).is_success:
                return
        except httpx.HTTPError:
            time.sleep(1.0)
    raise SystemExit(f"vLLM was not up after {START_SECONDS} s")


def harmony(folder: Path | None) -> HarmonyRenderer:
    """Return harmony in the vocabulary of the folder's tokenizer.

    Without a folder, the vocabulary is that of gpt-oss.
    """
    if folder is None:
        return HarmonyRenderer()
    from tokenizers import Tokenizer

    from context_agent.policies.tokens.vocabularies import TokenizerVocabulary

    return HarmonyRenderer(TokenizerVocabulary(Tokenizer.from_file(str(folder / "tokenizer.json")), folder.name))


def template(folder: Path) -> TokenRenderer:
    """Return a renderer with the chat template of the folder's tokenizer."""
    import transformers

    from context_agent.policies.tokens.template import TemplateRenderer

    return TemplateRenderer(transformers.AutoTokenizer.from_pretrained(folder))


def check(target: Target, *, chats: bool) -> bool:
    """Run all checks. If all pass, return True."""
    failed = 0
    for item in CHECKS if chats else [item for item in CHECKS if item not in (led_turns, chat)]:
        try:
            print(f"ok     {item.__name__}: {item(target)}")
        except (AssertionError, ContextAgentError) as error:
            failed += 1
            print(f"FAILED {item.__name__}: {error}")
    return not failed


def versions() -> str:
    """Return the installed versions of the packages that affect the checks."""
    names = ("context-agent", "vllm", "torch", "transformers", "oss-harmony")
    installed = []
    for name in names:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            installed.append(f"{name} -")
    return ", ".join(installed)


def main() -> int:
    """Return 0 if all checks pass, 1 if a check fails, and 2 if vLLM is not installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="a server that runs")
    parser.add_argument("--model", help="the model, as the server lists it")
    parser.add_argument("--folder", type=Path, help="the model's folder, for a forward pass and its vocabulary")
    parser.add_argument("--template", action="store_true", help="the folder's chat template instead of harmony")
    parser.add_argument("--vllm", action="store_true", help="start vLLM on a tiny gpt-oss")
    parser.add_argument("--stand-in", action="store_true", help="this process's transformers")
    options = parser.parse_args()
    print(f"       {versions()}")
    if options.base_url:
        if not options.model or (options.template and not options.folder):
            parser.error("--base-url needs --model, and --template needs --folder")
        renderer = template(options.folder) if options.template else harmony(options.folder)
        return not check(Target(options.base_url, options.model, renderer, options.folder), chats=True)
    if options.vllm and importlib.util.find_spec("vllm") is None:
        print("       vLLM is not installed here: nothing was checked")
        return 2
    if not options.vllm and not options.stand_in:
        parser.error("name a server: --base-url, --vllm or --stand-in")
    from context_agent.train.tiny_model import tiny_gpt_oss

    with tempfile.TemporaryDirectory() as name:
        # vLLM's chat endpoint assumes gpt-oss's own vocabulary.
        folder = tiny_gpt_oss(Path(name) / "tiny", size=None if options.vllm else 2_048)
        with (started_vllm if options.vllm else stand_in)(folder) as target:
            return not check(target, chats=options.vllm)


if __name__ == "__main__":
    sys.exit(main())
