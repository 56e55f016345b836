"""Print how many functions and modules a call passes through, and how often it passes from one module into another.

    python benchmarks/call_paths.py [episode] [search] [rl] [--calls]

- `episode`: a search, a prune and a ranking over three documents, played by a scripted policy.
- `search`: `ctx1 search` with the embedded policy on a local index of a few documents.
- `rl`: the second step of a reinforcement-learning run of a tiny model, from the draw of the questions to the new
  weights in the sampler. It needs the extra `train`. Its second line counts only functions of the package `train`.

Only functions of this package count. Class bodies, lambdas, comprehensions and the methods that dataclasses generate do
not count. `--calls` prints every call, indented by depth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from context_agent import (
    Action,
    Document,
    MemoryCorpus,
    RankedId,
    ScriptedPolicy,
    SearchAgent,
    ToolCall,
    index_documents,
)

PACKAGE = "context_agent."
DOCUMENTS = [
    Document("a", "The Lume flows past Brasko."),
    Document("b", "The Arrow flows past Tessel."),
    Document("c", "Ness is a river."),
]
QUESTION = "What flows past Brasko?"
SCRIPT = [
    Action(calls=(ToolCall("search_corpus", {"query": "Which river flows past Brasko?"}),)),
    Action(calls=(ToolCall("prune_chunks", {"chunk_ids": ["b_0"]}),)),
    Action(ranking=(RankedId("a"),)),
]
TINY: dict[str, Any] = {
    "threads": 1,
    "model": {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"},
    "data": {"world": {"entities": 120, "tasks": 300}},
    "episodes": {"window": 512, "turns": 4},
    "engine": {"batch": 8, "max_tokens": 16},
    "loss": {"pass_tokens": 2048},
    "rollouts": {"steps": 2, "groups": 4, "rollouts": 4, "substeps": 1, "concurrency": 8},
    "evaluation": {"every": 0},
}
SHOWN: dict[str, Any] = {
    **TINY,
    "model": {**TINY["model"], "tiny": {"hidden": 32, "layers": 1, "positions": 1024, "deviation": 0.18}},
    "optimiser": {"learning_rate": 1e-2},
    "sft": {"demonstrations": 600, "rows_per_pass": 16, "epochs": 3},
}
"""The run that teaches the model to search. Without it, all rewards would be 0, and there would be nothing to train on.
"""


@dataclass
class CallPath:
    """The calls of this package's functions while `recording` is true.

    Calls are recorded in the thread that installs the object, and in threads that start while it is installed.
    """

    calls: list[tuple[int, str, str]] = field(default_factory=list)
    """The depth, module and function of each call."""
    crossings: int = 0
    """The number of calls from one module into another."""
    recording: bool = True
    _stacks: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Receive an event of the interpreter, as `sys.setprofile` describes."""
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        called = bool(code.co_flags & inspect.CO_OPTIMIZED) and "<" not in code.co_filename + code.co_name
        if not self.recording or not called or not module.startswith(PACKAGE):
            return
        stack: list[str] = self._stacks.__dict__.setdefault("modules", [])
        if event == "call":
            self.crossings += bool(stack) and stack[-1] != module
            self.calls.append((len(stack), module.removeprefix(PACKAGE), code.co_qualname))
            stack.append(module)
        elif event == "return" and stack:
            stack.pop()

    @contextlib.contextmanager
    def installed(self) -> Iterator[CallPath]:
        """Receive events inside the block, from this thread and from threads that start in it."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def line(self, name: str, rooms: Sequence[str] = ("",)) -> str:
        """Return the figures of the modules in these packages. Crossings are counted over all modules."""
        calls = [(module, function) for _, module, function in self.calls if module.startswith(tuple(rooms))]
        modules = {module for module, _ in calls}
        crossings = f", {self.crossings} crossings" if rooms == ("",) else ""
        return f"{name}: {len(set(calls))} functions in {len(modules)} modules{crossings}"


def episode() -> CallPath:
    """Record three actions of a scripted policy over three documents in memory."""
    corpus = MemoryCorpus(DOCUMENTS)
    SearchAgent(corpus, ScriptedPolicy(SCRIPT)).search(QUESTION)  # imports, and loads what is cached
    agent, path = SearchAgent(corpus, ScriptedPolicy(SCRIPT)), CallPath()
    with path.installed():
        asyncio.run(agent.asearch(QUESTION))
    return path


def search() -> CallPath:
    """Record one `ctx1 search` over an index of three documents, run as the command runs it."""
    from context_agent.cli import app

    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        index_documents(DOCUMENTS, index)
        path = CallPath()
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), path.installed():
            app.run(["search", QUESTION, "--path", str(index)])
    return path


def rl() -> CallPath:
    """Record the second step of a run, from the questions to the new weights."""
    from context_agent.train import reinforcement, run_file, sft
    from context_agent.train.rl import loop

    path, run = CallPath(recording=False), loop.ReinforcementLoop.run

    def traced(self: Any, trainer: Any, update: int) -> Iterator[Any]:
        for number, rows in enumerate(run(self, trainer, update)):
            # An update yields its rows and then a checkpoint: the second step lies between items 1 and 3.
            path.recording = False
            if number < 3:
                path.recording = number in (1, 2)
            yield rows

    loop.ReinforcementLoop.run = traced  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sft.train(run_file.parse_run({**SHOWN, "out": f"{folder}/sft"}), note=lambda _: None)
        model = {**TINY["model"], "name": f"{folder}/sft/final"}
        with path.installed():
            reinforcement.train(
                run_file.parse_run({**TINY, "model": model, "out": f"{folder}/rl"}), note=lambda _: None
            )
    return path


PATHS: dict[str, tuple[Callable[[], CallPath], str]] = {
    "episode": (episode, "one scripted episode"),
    "search": (search, "one ctx1 search"),
    "rl": (rl, "one RL step"),
}


def main() -> None:
    """Print the figures of each path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="|".join(PATHS))
    parser.add_argument("--calls", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.paths if name not in PATHS]:
        parser.error(f"no path {unknown[0]!r}: choose from {', '.join(PATHS)}")
    for name in options.paths or PATHS:
        work, label = PATHS[name]
        path = work()
        if options.calls:
            for depth, module, function in path.calls:
                print(f"{'  ' * depth}{module}: {function}")
        print(path.line(label))
        if name == "rl":
            print(path.line("  of these, in train", rooms=("train",)))


if __name__ == "__main__":
    main()
