"""The server process of `scripted_writer`, and stage contexts that use it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from context_agent import MemoryCorpus
from context_agent._support.worker_pool import CallParent
from context_agent.retrieval.embedders import STATIC
from context_agent.synth_data.domains import load_domain
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, PipelinePlan, make_tasks, stages_folder
from context_agent.synth_data.task import Task
from context_agent.testing.scripted_writer import documents

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Served:
    """A running server.

    Attributes:
        url: The server's address.
        log: The file in which it records requests.
    """

    url: str
    log: Path

    def fates(self, fate: str) -> Counter[str]:
        """Return the number of times that each request had this fate, by the request's digest."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return Counter(line["request"] for line in lines if line["fate"] == fate)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    """Run the server as a process until the block ends.

    Args:
        folder: The folder for the server's log.
        options: Options of the server, such as `--troubled`.
    """
    log = folder / "server.log"
    log.touch()
    command = [sys.executable, "-m", "context_agent.testing.scripted_writer", str(log), *options]
    with subprocess.Popen(  # noqa: S603 - this interpreter runs a module of this package
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout
            yield Served(child.stdout.readline().strip(), log)
        finally:
            child.kill()


@cache
def corpus() -> MemoryCorpus:
    """Return a corpus of the scripted writer's documents."""
    return MemoryCorpus(documents(), embedder=STATIC)


@contextmanager
def workshop(url: str, replies: Path, *, model: str = "scripted", **options: Any) -> Iterator[StageContext]:
    """Yield a stage context over the scripted writer's corpus, with short waits between retries.

    Args:
        url: The server's address.
        replies: The file of the reply cache.
        model: The name of the model to request.
        options: Further fields of `StructuredModelOptions`.
    """
    model_options = StructuredModelOptions(chat_options={"model": model, "base_url": url}, backoff=0.01, **options)
    with StructuredModel(model_options, replies) as writer:
        yield StageContext(corpus(), writer, load_domain("documents"))


def remote_workshop(url: str, call: CallParent) -> StageContext:
    """Return a stage context for a worker process.

    Args:
        url: The server's address.
        call: The function that sends a request to the parent process.
    """
    model_options = StructuredModelOptions(chat_options={"model": "scripted", "base_url": url})
    return StageContext(corpus(), StructuredModel(model_options, call), load_domain("documents"))


def environment() -> dict[str, str]:
    """Return the environment variables of a process that runs the pipeline."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def row_of(task: Task) -> dict[str, Any]:
    """Return the task as a stage reads it from a file."""
    row: dict[str, Any] = json.loads(json.dumps(task.to_json()))
    return row


PLAN = PipelinePlan(count=100, hops=(1, 2))


def make(url: str, out: Path, *, plan: PipelinePlan = PLAN, **options: Any) -> Any:
    """Run the pipeline on the scripted writer, and return its reports.

    Args:
        url: The server's address.
        out: The file of the tasks.
        plan: The plan of the pipeline.
        options: Arguments of `workshop`.
    """
    with workshop(url, stages_folder(out) / REPLIES_FILE, **options) as context:
        return asyncio.run(make_tasks(context, plan, out))
