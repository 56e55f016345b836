"""The pages that lead through commands: every block runs as printed, in the order of the page, in one folder.

A block with a title is a file, `sh` holds `ctx1` commands, `python` is a program, and `bash` holds lines of a shell.
A line of `bash` that ends in `&` starts a server, which ends with the page. Blocks of `text` and `console` are
skipped: they need what a test machine lacks, such as a GPU or a provider's key.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from context_agent.policies.chat.scripted_server import ScriptedServer, rank_seen, says
from tests.support.forked_ctx1 import forked_ctx1
from tests.support.real_server import free_port, need_serving, transformers_serve

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TRAINING = [
    "how-to/train-a-language-model.md",
    "how-to/resume-merge-export.md",
    "how-to/serve-what-you-trained.md",
]
"""The pages of a model in the folder `base-model`, one after the other in one folder."""
HOW_TO = [page for path in sorted((DOCS / "how-to").glob("*.md")) if (page := f"how-to/{path.name}") not in TRAINING]
MODEL_URL = "http://localhost:8000"
"""Where the pages expect the server of a language model. The tests have a stand-in."""
START_SECONDS = 60

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not part of the source distribution")


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    """Find `ctx1` on the path, and limit `ctx1 eval` to one process, whose workers would only import."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    folders = [Path(forked_ctx1()).parent, Path(sys.executable).parent, os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))


@pytest.fixture(scope="module")
def reader_folder(tmp_path_factory):
    """What the how-to guides expect: the notes of the tutorial's first lesson, and an index of them in `.ctx1`."""
    from context_agent.cli.app import run

    folder = tmp_path_factory.mktemp("reader")
    (folder / "notes").mkdir()
    lesson = (DOCS / "tutorial" / "1-index-and-search.md").read_text(encoding="utf-8")
    for _, title, block in BLOCK.findall(lesson):
        if title:
            (folder / title).write_text(block, encoding="utf-8")
    assert run(["index", str(folder / "notes"), "--path", str(folder / ".ctx1")]) == 0
    return folder


def run_page(page, inside, folder):
    """Run the blocks of a page. Return the standard output of each command."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if "\ncurl " in text and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if "ctx1 train bridge" in text:
        pytest.importorskip("torch", reason="needs the train extra")
    outputs = {}
    with ExitStack() as stack:
        shell = Shell(folder, stack)
        if MODEL_URL in text:
            text = text.replace(MODEL_URL, stack.enter_context(stand_in_model()).url.removesuffix("/v1"))
        for language, title, block in BLOCK.findall(text):
            if title:
                (folder / title).parent.mkdir(parents=True, exist_ok=True)
                (folder / title).write_text(block, encoding="utf-8")
            elif language == "python":
                exec(compile(block, page, "exec"), {"__name__": "walk_through"})
            elif language == "sh":
                for line in joined_lines(block):
                    process = inside(*shlex.split(line)[1:])
                    assert process.returncode == 0, (line, process.stderr)
                    outputs[line] = process.stdout
            elif language == "bash":
                for line in joined_lines(block):
                    outputs[line] = shell.run(line)
    return outputs


def joined_lines(block):
    """Return the lines of a block, with those that end in a backslash joined to the next one."""
    return block.replace("\\\n", " ").splitlines()


class Shell:
    """Lines of `bash` in one folder. The ports of the pages become free ones, the same in every line."""

    def __init__(self, folder, stack):
        self.folder, self.stack, self.ports = folder, stack, {}
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(self, line):
        """Run a line. Return its output; of a server, which keeps running, nothing."""
        line = re.sub(r"\b83\d\d\b", lambda port: self.ports.setdefault(port[0], str(free_port())), line)
        if export := re.fullmatch(r"export (\w+)=(\S+)", line):
            self.environment[export[1]] = export[2]
            return ""
        if line.endswith(" &"):
            self.stack.enter_context(self.server(line.removesuffix(" &")))
            return ""
        process = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert process.returncode == 0, (line, process.stdout, process.stderr)
        return process.stdout

    @contextmanager
    def server(self, line):
        """Start a server and wait until its port answers; end it with SIGTERM, and check that it stops."""
        port = re.search(r"--port (\d+)", line)
        assert port, f"{line}: name the port, so that a reader who copies the next line reaches it"
        log = self.folder / "server.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                shlex.split(line), cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not answers(f"http://127.0.0.1:{port[1]}/"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def answers(url):
    try:
        return httpx.get(url, timeout=5).status_code > 0
    except httpx.HTTPError:
        return False


def stand_in_model():
    """Return a chat server that calls a tool for searching once, if it has one, and then answers."""

    def reply(body):
        tools = [tool.get("function", tool)["name"] for tool in body.get("tools", ())]
        has_result = any(message["role"] == "tool" or "tool_result" in str(message) for message in body["messages"])
        if "search_corpus" in tools and has_result:
            return rank_seen(body)
        if "search_corpus" in tools:
            return says(calls=[("search_corpus", {"query": "Brasko Weir engineer Lena Ortiz born"})])
        if "search_documents" in tools and not has_result:
            return says(calls=[("search_documents", {"question": "Who built Brasko Weir?"})])
        return says("Lena Ortiz was born on 1 May 1961 [1].")

    return ScriptedServer([reply] * 50, models=("my-model",), model_length=40_960)


def test_the_tutorial(inside, tmp_path):
    outputs = {}
    for page in sorted((DOCS / "tutorial").glob("*.md")):
        outputs |= run_page(f"tutorial/{page.name}", inside, tmp_path)
    assert outputs['ctx1 search "When was the engineer of Brasko Weir born?" --quiet -k 2'].split() == [
        "weir.md",
        "lena.md",
    ]
    assert outputs['ctx1 search "What is the price of oil?"'].startswith("Nothing relevant found")
    assert (tmp_path / "runs/mine/report.html").exists()
    assert (tmp_path / "episodes.html").exists()


def test_ten_tasks_for_a_start(inside, tmp_path):
    outputs = run_page("newcomer-tasks.md", inside, tmp_path)
    assert outputs['ctx1 search "Which method raises the sluice gate?" --quiet -k 1'].split() == ["gate.py"]
    assert "Brasko Weir is a stone weir" in outputs['ctx1 ask "Who built Brasko Weir?"']


def test_each_of_the_ten_tasks_has_commands():
    text = (DOCS / "newcomer-tasks.md").read_text(encoding="utf-8")
    tasks = re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(tasks) == 10
    assert [task.splitlines()[0] for task in tasks if "ctx1 " not in task and "SearchAgent(" not in task] == []


@pytest.mark.parametrize("page", HOW_TO)
def test_a_how_to_guide(page, inside, tmp_path, reader_folder):
    shutil.copytree(reader_folder, tmp_path, dirs_exist_ok=True)
    run_page(page, inside, tmp_path)


@pytest.mark.parametrize("page", [*HOW_TO, *TRAINING])
def test_a_how_to_guide_begins_with_what_to_do(page):
    """Its first block comes before its first section."""
    before_sections = re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    assert page == "how-to/index.md" or "```" in before_sections


@pytest.mark.slow
def test_a_language_model_is_trained_and_served(inside, tmp_path):
    """Every command of both pages, the last one against a real `transformers serve`."""
    pytest.importorskip("trl")
    from context_agent.train.tiny_model import tiny_llama

    tiny_llama(tmp_path / "base-model")
    outputs = {}
    for page in TRAINING:
        outputs |= run_page(page, inside, tmp_path)
    assert "lessons: " in outputs["ctx1 train sft --run lessons.toml --dry-run"]
    assert json.loads((tmp_path / "runs/lessons/best/evaluation.json").read_text())["metric"] == "dev/loss"
    rewarded = json.loads((tmp_path / "runs/rewards/run.json").read_text())
    assert rewarded["model"]["adapter"] == "runs/lessons/best"
    steps = [json.loads(line)["step"] for line in (tmp_path / "runs/rewards/metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2]
    last = json.loads((tmp_path / "runs/rewards/metrics.jsonl").read_text().splitlines()[-1])
    assert {"sampled_per_second", "trained_per_second", "replies_truncated"} <= set(last)
    episodes = (tmp_path / "runs/rewards/episodes.jsonl").read_text().splitlines()
    assert all("reward" in json.loads(line) for line in episodes)
    assert len(episodes) >= 6
    assert (tmp_path / "runs/rewards/episodes.html").exists()
    refilled = json.loads((tmp_path / "runs/refilled/run.json").read_text())
    assert refilled["rollouts"]["refill"] == 1
    assert refilled["rollouts"]["baseline_members"] == "sampled"
    assert (tmp_path / "served/model.safetensors").exists()
    serve, search = served_commands("how-to/serve-what-you-trained.md")
    need_serving()
    port = free_port()
    arguments = shlex.split(serve.replace("8000", str(port)))[2:]
    with transformers_serve(arguments, tmp_path, port):
        asked = inside(*shlex.split(search.replace("8000", str(port)))[1:], "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["stop_reason"] in {"finished", "no_ranking", "turns"}
    assert "POST /v1/chat/completions" in (tmp_path / "log").read_text()


def served_commands(page):
    """The lines of a page that start `transformers serve`, and that ask its model."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    (serve,) = [line for line in lines if line.startswith("transformers serve")]
    (search,) = [line for line in lines if "--policy chat" in line]
    return serve, search
