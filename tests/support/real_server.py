"""Real model servers as processes: `transformers serve`, or vLLM."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.fork_servers import MODELS
from tests.support.forked_programs import ForkedProgram, run_main

NEEDED = ("torch", "transformers", "fastapi", "uvicorn", "openai", "accelerate")
START_SECONDS = 180


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serving_model(
    model: Path, folder: Path, port: int | None = None, kind: str = "transformers"
) -> AbstractContextManager[str]:
    """Start a server on a model, and yield its address. The process of `transformers serve` is a fork."""
    port = port or free_port()
    if kind == "transformers":
        return transformers_serve((str(model), "--host", "127.0.0.1", "--port", str(port)), folder, port)
    options = "--host 127.0.0.1 --dtype float32 --enforce-eager --max-model-len 40960 --enable-prompt-tokens-details"
    parsers = "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"
    program = [os.environ["CTX1_TEST_VLLM"], "serve", str(model), "--port", str(port)]
    return serving([*program, *options.split(), *parsers.split()], folder, port)


@contextmanager
def transformers_serve(arguments: Sequence[str], folder: Path, port: int) -> Iterator[str]:
    """Run `transformers serve ARGUMENTS` in a folder, as a fork, and yield its address at this port."""
    arguments = ("serve", *arguments, "--device", "cpu")
    program = ForkedProgram(run_main, "transformers.cli.transformers", arguments, MODELS, folder)
    log = folder / "log"
    process = program.start(log, log)
    assert process.pid is not None
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process.is_alive, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        # The program leads its process group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


@contextmanager
def serving(command: Sequence[str], folder: Path, port: int) -> Iterator[str]:
    """Run a command that serves at a port, in a folder, and yield its address."""
    # Without this folder /v1/models of transformers fails.
    (folder / "hub").mkdir(exist_ok=True)
    log = folder / "log"
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **settings, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", lambda: process.poll() is None, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def need_serving() -> None:
    """Skip where there is no `transformers serve`."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing or not Path(sys.executable).with_name("transformers").exists():
        pytest.skip(f'no transformers serve: pip install torch "transformers[serving]" (missing: {", ".join(missing)})')


def wait_for(url: str, is_alive: Callable[[], bool], log: Path) -> None:
    """Return once the server answers. If it ended or takes too long, fail with its log."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and is_alive():
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    pytest.fail(f"transformers serve did not start:\n{log.read_text()[-3000:]}")
