"""The recipes run as a user runs them, at a small size."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.forked_ctx1 import forked_ctx1
from tests.support.proxied import proxy_conversation
from tests.support.upstream import upstream
from tests.support.wrapped_agent import AGENT, answer

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = sorted(path.parent.name for path in RECIPES.glob("*/run.sh"))
FAMILIES = 8

pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="the recipes are not part of the source distribution")


@contextmanager
def one_core() -> Iterator[None]:
    """Give the programs of the block one core. On more of them, `ctx1 eval` starts workers that mostly import."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def run(recipe: str, *arguments: str | Path, code: int = 0, **variables: str) -> str:
    """Run a recipe's script. Return its standard output."""
    folders = [Path(forked_ctx1()).parent, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))
    with one_core():
        process = subprocess.run(
            ["bash", str(RECIPES / recipe / "run.sh"), *map(str, arguments)],
            env={**os.environ, "PATH": path, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert process.returncode == code, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of notes, of which the one names the other."""
    folder = tmp_path_factory.mktemp("user") / "notes"
    folder.mkdir()
    kinds = ("weir", "lock", "bridge", "mill", "pier", "tower", "dam", "crane")
    people = ("Ortiz", "Brunner", "Castor", "Lind", "Reker", "Varga", "Moss", "Hale")
    for number, (kind, name) in enumerate(zip(kinds[:FAMILIES], people, strict=True)):
        work, person = f"{name}brook {kind.title()}", f"Lena {name}"
        (folder / f"{kind}.md").write_text(
            f"# {work}\n\n{work} is a stone {kind}. {work} was built by {person}. It was raised in 199{number}.\n"
        )
        (folder / f"{name}.md").write_text(
            f"# {person}\n\n{person} (born {number + 1} May 196{number}) is a harbour engineer. "
            f"{person} moved to the coast in 198{number}.\n"
        )
    return folder


@pytest.fixture(scope="module")
def policy_run(notes: Path) -> Path:
    """The folder that the recipe `notes-policy` made of the notes."""
    pytest.importorskip("torch", reason="needs the train extra")
    folder = notes.parent / "policy"
    output = run("notes-policy", notes, folder)
    assert output.index("The shipped policy:") < output.index("Your policy:")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_a_page_and_says_how_it_is_called(name: str) -> None:
    assert f"{name}/README.md" in (RECIPES / "README.md").read_text(encoding="utf-8")
    assert f"    bash recipes/{name}/run.sh" in (RECIPES / name / "README.md").read_text(encoding="utf-8")
    assert f"bash recipes/{name}/run.sh" in run(name, code=2)


@pytest.mark.slow
def test_a_policy_on_your_notes(policy_run: Path) -> None:
    assert (policy_run / "mine.safetensors").is_file()
    summaries = [json.loads((policy_run / name / "summary.json").read_text()) for name in ("shipped", "mine")]
    assert summaries[0]["systems"] == ["hybrid", "agent"]
    assert summaries[1]["systems"] == ["agent"]
    train, test = (
        {json.loads(line)["question"] for line in (policy_run / "set" / f"queries.{split}.jsonl").open()}
        for split in ("train", "test")
    )
    assert train
    assert test
    assert not train & test


@pytest.mark.slow
def test_two_policies_are_compared(policy_run: Path, tmp_path: Path) -> None:
    questions = policy_run / "set" / "queries.test.jsonl"
    output = run("compare-policies", policy_run / "index", questions, tmp_path)
    assert output.splitlines()[-1].startswith("b less a: recall@5 ")
    assert (tmp_path / "a" / "report.html").is_file()
    efforts = [json.loads((tmp_path / run / "run.json").read_text())["settings"].get("effort") for run in "ab"]
    assert efforts == [{"readings": 0, "compared": 10}, None]


def test_a_run_of_several_systems_is_not_compared(policy_run: Path) -> None:
    program = RECIPES / "compare-policies" / "difference.py"
    line = [sys.executable, program, policy_run / "shipped", policy_run / "mine"]
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "has 2 systems (agent in a window of 32,768; hybrid" in process.stderr


def test_a_folder_without_a_run_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(RECIPES / "compare-policies" / "difference.py")
    nowhere = str(tmp_path / "nowhere")
    for arguments, message in (
        ([], "difference.py RUN_A RUN_B"),
        ([nowhere], "difference.py RUN_A RUN_B"),
        ([nowhere, nowhere], "nowhere has no records"),
    ):
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit, match=message):
            runpy.run_path(program, run_name="__main__")


def compared(first: Path, second: Path) -> str:
    program = RECIPES / "compare-policies" / "difference.py"
    return subprocess.run([sys.executable, program, first, second], capture_output=True, text=True, check=True).stdout


def test_the_seeds_of_a_question_are_averaged_and_few_questions_decide_nothing(tmp_path: Path) -> None:
    """The second run finds everything with one of two seeds, and the first run finds nothing."""
    lines = (Path(__file__).parent / "eval" / "old_run" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[0])
    for questions in (5, 6):
        for name, recalls in (("a", (0.0, 0.0)), ("b", (1.0, 0.0))):
            rows = [
                {**record, "question": f"q{number}", "seed": seed, "scores": {**record["scores"], "recall@5": recall}}
                for number in range(questions)
                for seed, recall in enumerate(recalls)
            ]
            (tmp_path / name).mkdir(exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / name / "records.jsonl").write_text(text, encoding="utf-8")
        verdict = {5: "fewer than 6 questions decide nothing", 6: "b is better"}[questions]
        line = f"b less a: recall@5 +0.500 [+0.500, +0.500] on {questions} questions: {verdict}\n"
        assert compared(tmp_path / "a", tmp_path / "b") == line


def test_a_coding_agent_is_pruned(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "conversation.json").write_text(json.dumps(proxy_conversation()), encoding="utf-8")
    with upstream(answer) as server:
        script = f"import os; os.chdir({str(tmp_path)!r}); exec(open('agent.py').read())"
        variables = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-none"}
        saved = tmp_path / "saved.json"
        output = run("coding-agent", saved, sys.executable, "-c", script, code=7, **variables)
    assert output.strip() == "At six."
    assert json.loads(saved.read_text())["total"]["requests"] == 1


def test_gpt_oss_20b_shows_its_plan_without_a_gpu(notes: Path, tmp_path: Path) -> None:
    # The script was stopped before while it wrote the splits.
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "queries.train.jsonl").touch()
    output = run("gpt-oss-20b", "--dry-run", notes, tmp_path)
    assert output.count("openai/gpt-oss-20b") >= 2
    assert str(tmp_path / "set" / "queries.train.jsonl") in output
    assert {path.name for path in (tmp_path / "set").glob("queries.*")} == {
        f"queries.{split}.jsonl" for split in ("train", "dev", "test")
    }
    assert (tmp_path / "lessons" / "kept").is_dir()
    assert not (tmp_path / "sft").exists()
