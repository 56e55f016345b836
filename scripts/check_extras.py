"""Check that each extra can be installed alone, and that its example runs with it.

    python scripts/check_extras.py                    all but vllm and verl, one after another; prints a table
    python scripts/check_extras.py --only mcp,serve   some of them
    python scripts/check_extras.py --markdown         the table in the format of the documentation

For each extra, the program makes an empty virtual environment. It installs the project's wheel with only that extra, in
the tested versions (constraints/). Then it runs the extra's example or a small program in an empty folder, and deletes
the environment. It needs a package index. Extras with torch take minutes and gigabytes. If an extra fails, its output
is on stderr, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 3_600
"""The time limit of one installation, in seconds."""
RUNS = 900
"""The time limit of one program, in seconds."""
HEAD = ("extra", "install, s", "size, MB", "packages", "what ran", "run, s", "result")
WIDTHS = (16, 10, 8, 8, 31, 6, 8)

CODE = """
from pathlib import Path
from context_agent import load
Path("gate.py").write_text("class Gate:\\n    def open(self, height):\\n        self.height = height\\n")
assert [section.title for section in next(load("gate.py")).sections] == ["gate.py: Gate", "gate.py: Gate.open"]
"""
LARGE = """
import numpy
from pathlib import Path
from context_agent.retrieval.index.vector_graph import VectorGraph, write_graph
vectors = numpy.random.default_rng(0).normal(size=(500, 8)).astype("float32")
write_graph(Path("vectors.graph"), vectors)
assert 7 in VectorGraph(Path("vectors.graph"), 500, 8).nearest(vectors[7], 3)
"""
PARQUET = """
import pyarrow, pyarrow.parquet, subprocess, sys
from context_agent import load
rows = {"id": ["a", "b"], "text": ["Rope is a film by Hitchcock.", "Bread is made of flour."]}
pyarrow.parquet.write_table(pyarrow.table(rows), "rows.parquet")
assert [one.id for one in load("rows.parquet")] == ["a", "b"]
from pypdf import PdfWriter
writer = PdfWriter()
writer.add_blank_page(72, 72)
writer.write("blank.pdf")
report = subprocess.run([sys.executable, "-m", "context_agent.cli", "index", "blank.pdf", "rows.parquet", "--json"],
                        capture_output=True, text=True)
assert report.returncode == 0, report.stderr
"""
PLOTS = """
import json, pathlib, subprocess, sys
notes = pathlib.Path("notes")
notes.mkdir()
for name, text in {"rope": "Rope is a film by Hitchcock.", "bread": "Bread is made of flour."}.items():
    (notes / f"{name}.txt").write_text(text)
asked = pathlib.Path("asked.jsonl")
asked.write_text(json.dumps({"id": "1", "question": "Who directed Rope?", "gold": ["rope.txt"]}) + "\\n")
line = ["eval", "--corpus", "notes", "--questions", "asked.jsonl", "--out", "run"]
subprocess.run([sys.executable, "-m", "context_agent.cli", *line], check=True)
assert "<svg" in (pathlib.Path("run") / "report.html").read_text()
"""
DATASETS = """
from pathlib import Path
from context_agent.synth_data.sets.folder import export
from context_agent.synth_data.task import task_of
row = {"id": "t1", "question": "Who directed Rope?", "answer": "Hitchcock", "gold": ["d1"]}
files = export({"train": [task_of(row, "row")]}, Path("out"), "parquet")
import datasets
assert datasets.load_dataset("parquet", data_files=str(files[0]), split="train")["question"] == [row["question"]]
"""
EMBED = """
from pathlib import Path
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import BertConfig, BertModel, BertTokenizerFast
from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.retrieval.embedders import load_embedder
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rope", "film", "bread", "flour"]
Path("bert").mkdir()
Path("bert/vocab.txt").write_text("\\n".join(words))
BertModel(BertConfig(vocab_size=len(words), hidden_size=8, num_attention_heads=2, intermediate_size=8,
                     num_hidden_layers=1)).save_pretrained("bert")
BertTokenizerFast("bert/vocab.txt").save_pretrained("bert")
SentenceTransformer(modules=[modules.Transformer("bert"), modules.Pooling(8, "mean")]).save("tiny")
corpus = MemoryCorpus([Document("a", "rope film"), Document("b", "bread flour")],
                      embedder=load_embedder("sentence-transformers:tiny"))
assert SearchAgent(corpus).search("rope?").documents[0].id == "a"
"""
MULTILINGUAL = """
from context_agent import Document, MemoryCorpus
corpus = MemoryCorpus([Document("wehr", "Das Wehr von Brasko wurde 1991 gebaut."),
                       Document("laib", "Der Bäcker nimmt Roggen und Salz.")], embedder="multilingual")
dense = next(retriever for retriever in corpus.retrievers if retriever.name == "dense")
assert dense.search("When was the weir built?", 1)[0][0].startswith("wehr")
"""
LANGCHAIN_AGENTS = """
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from context_agent.integrations.langchain_agents import ContextPruningMiddleware
model = GenericFakeChatModel(messages=iter([AIMessage("At six.")]))
agent = create_agent(model, [], middleware=[ContextPruningMiddleware(budget=100)])
assert agent.invoke({"messages": ["When is high tide?"]})["messages"][-1].content == "At six."
"""
OPENAI_AGENTS = """
from agents import RunConfig
from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.openai_agents import ContextPruningFilter, search_tool
RunConfig(call_model_input_filter=ContextPruningFilter(budget=100))
assert search_tool(SearchAgent(MemoryCorpus([Document("a", "Rope is a film.")]))).name == "search_documents"
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.pydantic_ai import ContextPruning, search_tool
tool = search_tool(SearchAgent(MemoryCorpus([Document("a", "Rope is a film.")])))
agent = Agent(TestModel(), tools=[tool], capabilities=[ContextPruning(budget=100)])
assert "search_documents" in agent.run_sync("Which film?").output
"""
GOOGLE_ADK = """
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.genai.types import Content, Part
from context_agent.integrations.google_adk import ContentPruningFilter
pruning = ContentPruningFilter(budget=100)
ContextFilterPlugin(custom_filter=pruning)
contents = [Content(role="user", parts=[Part(text="Which film?")])]
assert pruning(contents) == contents
"""
SERVE = """
import json, pathlib, subprocess, sys
import httpx
pathlib.Path("rope.txt").write_text("Rope is a film by Hitchcock.")
ctx1 = [sys.executable, "-m", "context_agent.cli"]
subprocess.run([*ctx1, "index", "rope.txt"], check=True)
server = subprocess.Popen([*ctx1, "serve", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
url = json.loads(server.stdout.readline())["url"]
found = httpx.post(url + "/v1/retrieve", json={"question": "Who directed Rope?"}, timeout=60).json()
server.terminate()
assert server.wait(60) == 0
assert "Rope" in found["documents"][0]["chunks"][0]["text"]
"""
TRAIN = """
import accelerate, datasets, peft, torch, trl
from pathlib import Path
from transformers import AutoModelForCausalLM
from context_agent.train.tiny_model import tiny_gpt_oss
model = AutoModelForCausalLM.from_pretrained(tiny_gpt_oss(Path("tiny"), size=2_048))
loss = model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss
loss.backward()
assert torch.isfinite(loss)
import context_agent.train.rl.row_trainer, context_agent.train.sft
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """The program that checks an extra: a file of the repository with its arguments, or the text of a program."""

    program: str
    arguments: tuple[str, ...] = ()
    constraints: str = "core.txt"

    @property
    def name(self) -> str:
        """The program's name in the table."""
        return "a program" if "\n" in self.program else self.program

    def command(self, python: Path) -> list[str]:
        """Return the command that runs the program."""
        if "\n" in self.program:
            return [str(python), "-c", self.program]
        return [str(python), str(ROOT / self.program), *self.arguments]


TRIALS = {
    "docs": Trial(PARQUET),
    "code": Trial(CODE),
    "large": Trial(LARGE),
    "plots": Trial(PLOTS),
    "datasets": Trial(DATASETS),
    "langchain": Trial("examples/langchain_rag.py"),
    "langchain-agents": Trial(LANGCHAIN_AGENTS),
    "openai-agents": Trial(OPENAI_AGENTS),
    "pydantic-ai": Trial(PYDANTIC_AI),
    "google-adk": Trial(GOOGLE_ADK, constraints="google-adk.txt"),
    "llamaindex": Trial("examples/llamaindex_query.py"),
    "haystack": Trial("examples/haystack_pipeline.py"),
    "dspy": Trial("examples/dspy_program.py"),
    "mcp": Trial("examples/mcp_client.py"),
    "serve": Trial(SERVE),
    "otel": Trial("examples/traced_search.py"),
    "embed": Trial(EMBED),
    "multilingual": Trial(MULTILINGUAL),
    "transformers": Trial("scripts/check_servers.py", ("--stand-in",)),
    "train": Trial(TRAIN, constraints="train.txt"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one extra. `size` is that of the environment's packages in MB, and `packages` is their number."""

    extra: str
    trial: str
    installed: float
    ran: float
    size: int
    packages: int
    failure: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table row, in the order of `HEAD`."""
        figures = (f"{self.installed:.0f}", f"{self.size:,}", str(self.packages))
        return (self.extra, *figures, self.trial, f"{self.ran:.0f}", self.failure or "ok")


def main() -> int:
    """Run the trials. If one fails, return 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TRIALS), help="extras with commas between them")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := sorted(set(names) - set(TRIALS)):
        parser.error(f"no extra {', '.join(unknown)}: there are {', '.join(TRIALS)}")
    failures = 0
    print(row(HEAD, markdown=options.markdown), flush=True)
    if options.markdown:
        print("|" + "---|" * len(HEAD), flush=True)
    with tempfile.TemporaryDirectory(prefix="ctx1-extras-") as folder:
        wheel = build_wheel(Path(folder))
        for name in names:
            outcome = run_trial(name, TRIALS[name], wheel, Path(folder))
            failures += bool(outcome.failure)
            print(row(outcome.cells(), markdown=options.markdown), flush=True)
    return 1 if failures else 0


def build_wheel(folder: Path) -> Path:
    """Build the project's wheel, and return its path."""
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(line, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run_trial(extra: str, trial: Trial, wheel: Path, folder: Path) -> Outcome:
    """Install the extra, run its program, and return the outcome."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        home, empty = Path(temporary) / "venv", Path(temporary) / "empty"
        empty.mkdir()
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        start = time.monotonic()
        failure = run_command(installation(python, wheel, extra, trial), empty, home, PATIENCE, "not installed")
        installed, start = time.monotonic() - start, time.monotonic()
        if not failure:
            failure = run_command(trial.command(python), empty, home, RUNS, "its program failed")
        size, packages = measure_packages(home)
        return Outcome(extra, trial.name, installed, time.monotonic() - start, size, packages, failure)


def installation(python: Path, wheel: Path, extra: str, trial: Trial) -> list[str]:
    """Return the command that installs only this extra."""
    constraints = ROOT / "constraints" / trial.constraints
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [*pip, "--constraint", str(constraints), f"{wheel}[{extra}]"]


def run_command(line: Sequence[str], folder: Path, home: Path, seconds: int, failure: str) -> str:
    """Run the command. If it succeeds, return an empty string. If not, return the failure and print the output on
    stderr.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_"))}
    path = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    quiet = {"HAYSTACK_TELEMETRY_ENABLED": "false", "HF_HUB_OFFLINE": "1"}
    try:
        process = subprocess.run(
            line,
            cwd=folder,
            env={**environment, **quiet, "PATH": path, "VIRTUAL_ENV": str(home)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{failure}: no end after {seconds} s"
    if process.returncode:
        print(process.stdout[-2_000:], process.stderr[-4_000:], sep="\n", file=sys.stderr)
        return f"{failure} (exit code {process.returncode})"
    return ""


def measure_packages(home: Path) -> tuple[int, int]:
    """Return the size of the installed packages in MB, and their number, including pip."""
    (site,) = home.glob("lib/python*/site-packages")
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and not file.is_symlink())
    return round(size / 1e6), len(list(site.glob("*.dist-info")))


def row(cells: Sequence[str], *, markdown: bool) -> str:
    """Return a line of the table."""
    if markdown:
        return f"| {' | '.join(cells)} |"
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
