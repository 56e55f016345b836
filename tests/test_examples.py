"""The examples run as a user runs them, each in a process of its own."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import chromadb
import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.cli.demo import documents
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.testing.actions import prune, rank_all, search
from tests.support.fork_servers import MODELS, PROGRAMS
from tests.support.forked_ctx1 import forked_python
from tests.support.forked_programs import ForkedProgram, run_path, run_program

QUESTION = "Which award did the director of Rope receive?"
EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str, server: str = PROGRAMS) -> str:
    """Run an example. Return its standard output."""
    process = ForkedProgram(run_path, str(EXAMPLES / name), arguments, server, python=forked_python()).completed()
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_ask_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rope.txt").write_text("Rope is a film of 1948 directed by Alfred Hitchcock.")
    (tmp_path / "hitchcock.md").write_text("# Alfred Hitchcock\n\nHe received the AFI Life Achievement Award in 1979.")
    (tmp_path / "bread.txt").write_text("Bread is made of flour, water and salt.")
    # The other examples run as forks of a process that has imported the package.
    line = [sys.executable, str(EXAMPLES / "ask_a_folder.py"), str(tmp_path), QUESTION]
    process = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    lines = process.stdout.splitlines()
    assert {"rope", "Alfred Hitchcock"} <= {line.split("  ")[1].split(":")[0] for line in lines[:2]}


LINKED_NOTES = """\
# Brasko Weir

Brasko Weir is a stone weir. Brasko Weir was built by Lena Ortiz. It was raised in 1994.
===
# Lena Ortiz

Lena Ortiz (born 1 May 1961) is a harbor engineer. Lena Ortiz moved to the coast in 1981.
===
# Tessel Lock

Tessel Lock is a canal lock. Tessel Lock was designed by Paul Reker. It was closed in 1987.
===
# Paul Reker

Paul Reker (born 3 June 1950) is a canal engineer. Paul Reker retired in 2012."""


@pytest.fixture
def linked_notes(tmp_path: Path) -> Path:
    """A folder of notes that name each other, among others."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for number, note in enumerate(LINKED_NOTES.split("===\n")):
        (folder / f"{number}.md").write_text(note, encoding="utf-8")
    for document in documents()[:10]:
        (folder / f"{document.id}.md").write_text(f"# {document.title}\n\n{document.text}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_begins_with_the_command_that_runs_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert re.search(rf"^    (\w+=\w+ )?python examples/{path.name}", text.split('"""')[1], re.M)
    assert f"[{path.name}]({path.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"def test_{path.stem}" in Path(__file__).read_text(encoding="utf-8"), "every example has a test here"


@pytest.mark.parametrize(
    "path", [path for path in sorted(EXAMPLES.glob("*.py")) if "len(sys.argv) !=" in path.read_text()]
)
def test_an_example_without_its_arguments_says_how_to_run_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name == "train_on_a_folder.py":
        pytest.importorskip("torch", reason="needs the train extra")
    monkeypatch.setattr(sys, "argv", [str(path)])
    with pytest.raises(SystemExit, match=re.escape(f"python examples/{path.name} ")):
        runpy.run_path(str(path), run_name="__main__")


def test_search_code(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter", reason="needs the extra code")
    (tmp_path / "gate.py").write_text(
        'class SluiceGate:\n    def open(self, height):\n        """Raise the gate by `height` meters."""\n'
        '        self.height = height\n\n\ndef bake(flour):\n    """Bake a bread from flour."""\n    return flour\n'
    )
    lines = run("search_code.py", str(tmp_path), "Which method raises the sluice gate?").splitlines()
    assert lines[0] == "gate.py: SluiceGate  class SluiceGate:"


def test_existing_chroma() -> None:
    lines = run("existing_chroma.py").splitlines()
    ranked = [line.split("  ")[1].split(":")[0] for line in lines]
    assert set(ranked[:2]) == {"Rope", "Alfred Hitchcock"}


def test_existing_chroma_opens_a_folder_of_the_user(tmp_path: Path) -> None:
    collection = chromadb.PersistentClient(str(tmp_path)).create_collection("rivers", embedding_function=None)
    collection.add(ids=["a"], documents=["The Lume flows past Brasko."], embeddings=[[0.5, 0.5]])
    lines = run("existing_chroma.py", str(tmp_path), "Which river flows past Brasko?").splitlines()
    assert lines[-1].endswith("The Lume flows past Brasko.")


def test_stream_turns() -> None:
    lines = run("stream_turns.py").splitlines()
    assert lines[0].startswith("turn 0: search_corpus")
    assert lines[0].endswith("4 new passages")
    assert set(lines[-1].removeprefix("ranked: ").split(", ")) == {"Rope", "Alfred Hitchcock"}


def test_follow_up_questions() -> None:
    first, second, third = run("follow_up_questions.py").split("?\n")[1:]
    assert "Rope: Rope is a film" in first
    assert "Alfred Hitchcock received" in second
    assert "Alfred Hitchcock received" in third
    assert "Welles" not in second + third


def test_filter_by_metadata() -> None:
    assert run("filter_by_metadata.py").splitlines() == [
        "one year: Minutes 1990",
        "since 1994: Letter 1995, Minutes 1994",
        "since 1994, one team: Minutes 1994",
    ]


def test_prune_messages() -> None:
    lines = run("prune_messages.py").splitlines()
    assert lines[0].startswith("pruned: ")
    assert any("Mara Lind was born in Tromso" in line for line in lines)
    assert sum("restore: p" in line for line in lines) == 2
    assert lines[-1].startswith("restored p1: Brasko is a town")


def test_prune_anthropic_agent() -> None:
    lines = run("prune_anthropic_agent.py").splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["request with 1 messages", "request with 3 messages"]
    assert lines[-1] == "The AFI Life Achievement Award [2]."


def test_langchain_middleware() -> None:
    pytest.importorskip("langchain")
    lines = run("langchain_middleware.py").splitlines()
    whole, read = (int(part.split()[-2].replace(",", "")) for part in lines[0].split("; "))
    assert read < 0.7 * whole
    assert any("The ferry to Ness leaves at six" in line for line in lines)
    assert lines[-1] == "At six."


def test_custom_policy() -> None:
    assert run("custom_policy.py").splitlines() == ["ranked: Rope, Alfred Hitchcock", "pruned: rope-making"]


def test_own_engine() -> None:
    lines = run("own_engine.py").splitlines()
    assert [line.split("  ")[1].split(":")[0] for line in lines] == ["Rope", "Alfred Hitchcock"]


def test_search_engines() -> None:
    """Its functions run against recorded servers in tests/retrieval/engines; without a server, the script says so."""
    process = run_program(EXAMPLES / "search_engines.py", "http://127.0.0.1:9", "wiki", QUESTION)
    assert process.returncode == 1
    assert "127.0.0.1" in process.stderr


def test_own_embedder_and_reranker() -> None:
    assert run("own_embedder_and_reranker.py").splitlines() == [
        "fused: gate, tide, bread",
        "shared-words: tide, gate, bread",
    ]


def test_many_questions() -> None:
    lines = run("many_questions.py").splitlines()
    assert [line.split("? ")[1] for line in lines] == [
        "Rope, Alfred Hitchcock",
        "Citizen Kane, Orson Welles",
        "Persona, Ingmar Bergman",
    ]


def test_answer_with_citations() -> None:
    lines = run("answer_with_citations.py").splitlines()
    assert lines[0].endswith("[9] [unconfirmed: there is no passage 9].")
    assert lines[1].startswith("[1] rope: ")
    assert lines[-1] == "problem: [9]: there is no passage 9"


def test_record_feedback() -> None:
    assert run("record_feedback.py").splitlines() == [
        "2 judgments, 1 question",
        f"{QUESTION} gold: hitchcock, rope",
    ]


def test_make_questions() -> None:
    rows = [json.loads(line) for line in run("make_questions.py").splitlines()]
    assert rows[0]["question"] == "Brasko Weir was built by a certain harbor engineer. When was that engineer born?"
    assert rows[0]["gold"] == ["Brasko Weir.md", "Lena Ortiz.md"]


def test_evaluate_questions(linked_notes: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(run("make_questions.py", str(linked_notes)), encoding="utf-8")
    lines = run("evaluate_questions.py", str(linked_notes), str(questions), str(tmp_path / "run")).splitlines()
    assert [line.split(":")[0] for line in lines] == ["bm25", "hybrid", "agent", "report"]
    assert lines[2].startswith("agent: 1.000")
    assert (tmp_path / "run" / "report.html").is_file()


def test_train_on_a_folder(linked_notes: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    weights = tmp_path / "mine.safetensors"
    lines = run(
        "train_on_a_folder.py", str(linked_notes), str(weights), "Who built Brasko Weir?", server=MODELS
    ).splitlines()
    assert lines[0].endswith("questions, recall@5 1.000 [1.000, 1.000]")
    assert {line.split("  ")[1] for line in lines[1:3]} >= {"Brasko Weir"}
    assert weights.is_file()


def test_watch_the_context(corpus: MemoryCorpus, tmp_path: Path) -> None:
    policy = ScriptedPolicy([search("comets", limit=5), lambda view: prune(view.blocks[0].id), rank_all])
    result = SearchAgent(corpus, policy, trajectories=tmp_path).search("comets?")
    lines = run("watch_the_context.py", str(result.trajectory)).splitlines()
    assert lines[1].endswith("+5 -0 passages")
    assert lines[2].endswith("+0 -1 passages")
    assert lines[-1].startswith("ranked: Title")


ROPE = "Rope is a film of 1948 directed by Alfred Hitchcock."


def test_langchain_rag() -> None:
    lines = run("langchain_rag.py").splitlines()
    assert lines[1] == f"- {ROPE}"
    assert lines[2].startswith("- Alfred Hitchcock received")
    assert lines[-1] == "Pruning alone keeps 2 of 4: Alfred Hitchcock, Rope"


def test_llamaindex_query() -> None:
    lines = run("llamaindex_query.py").splitlines()
    assert lines[0].endswith(f"Rope: {ROPE}")
    assert lines[1].split("  ")[1].startswith("Alfred Hitchcock: ")
    assert lines[-1] == "Pruning alone keeps 2 of 4: Alfred Hitchcock, Rope"


def test_haystack_pipeline() -> None:
    output = run("haystack_pipeline.py")
    assert "type: context_agent.integrations.haystack.ContextAgentRetriever" in output
    assert output.split("Answer from these passages only:\n")[-1].startswith(f"- {ROPE}\n- Alfred Hitchcock received")


def test_dspy_program() -> None:
    lines = run("dspy_program.py").splitlines()
    assert lines[0].endswith(f"Rope: {ROPE}")
    assert "[2] Alfred Hitchcock (id: hitchcock_0)" in lines


def test_serve_client() -> None:
    lines = run("serve_client.py").splitlines()
    assert lines[0] == f"retrieved Rope: {ROPE}"
    assert lines[1].startswith("retrieved Alfred Hitchcock: ")
    assert lines[2] == "events: turn, ..., end"
    assert lines[3].startswith("as a chat model: '[1] ")
    assert lines[4] == "judged: 201"


def test_mcp_client() -> None:
    lines = run("mcp_client.py").splitlines()
    assert lines[0] == "retrieve, search, grep, read, prune"
    assert lines[1].startswith("  turn 1: search_corpus; 3 passages in view")
    assert "[1] Rope (id: Rope.md_0)" in lines
    assert lines[-1] == "['Rope']"


def test_traced_search() -> None:
    lines = run("traced_search.py").splitlines()
    assert [line.split("  ")[-2] for line in lines[:3]] == ["POST /ask", "invoke_agent context-agent", "decide"]
    assert any(line.startswith("    execute_tool search_corpus") for line in lines)
    assert any(line.startswith("      retrieval memory:") for line in lines)
    assert "ctx1.stop_reason = finished" in lines


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        ("He got the AFI Life Achievement Award [2], as Rope [1] is his.", 0, "cites hitchcock_0: Alfred Hitchcock"),
        ("The Oscar [7].", 1, "[7] stands for nothing"),
        ("The Oscar.", 1, "The Oscar."),
    ],
)
def test_reasoning_model(answer: str, status: int, told: str) -> None:
    pytest.importorskip("openai", reason="needs the extra dev")

    def search_reply(body: Any) -> Any:
        (tool,) = body["tools"]
        return says(calls=[(tool["function"]["name"], {"question": body["messages"][1]["content"], "k": 2})])

    with ScriptedServer([says(calls=[("search_documents", "{oops")]), search_reply, says(answer)]) as server:
        options = ("--base-url", server.url, "--model", "scripted")
        process = run_program(EXAMPLES / "reasoning_model.py", *options, QUESTION)
        assert (process.returncode, process.stdout.splitlines()[0]) == (status, answer), process.stderr
        assert told in process.stdout
        first, second = (body["messages"][-1] for body in server.chat_bodies()[1:])
    assert first["role"] == second["role"] == "tool"
    assert first["content"].startswith("Error: "), "a mistake comes back as text"
    assert second["content"].startswith(f"[1] Rope (id: rope_0)\n{ROPE}")
