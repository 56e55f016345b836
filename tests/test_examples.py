"""The examples run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from tests.actions import prune, rank_all, search

QUESTION = "Which award did the director of Rope receive?"
EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    line = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout


def test_ask_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rope.txt").write_text("Rope is a film of 1948 directed by Alfred Hitchcock.")
    (tmp_path / "hitchcock.md").write_text("# Alfred Hitchcock\n\nHe received the AFI Life Achievement Award in 1979.")
    (tmp_path / "bread.txt").write_text("Bread is made of flour, water and salt.")
    lines = run("ask_a_folder.py", str(tmp_path), "Which award did the director of Rope receive?").splitlines()
    assert {"rope", "Alfred Hitchcock"} <= {line.split("  ")[1].split(":")[0] for line in lines[:2]}


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
    def search_reply(body: Any) -> Any:
        (tool,) = body["tools"]
        return says(calls=[(tool["function"]["name"], {"question": body["messages"][1]["content"], "k": 2})])

    with ScriptedServer([says(calls=[("search_documents", "{oops")]), search_reply, says(answer)]) as server:
        argv = [sys.executable, str(EXAMPLES / "reasoning_model.py"), "--base-url", server.url, "--model", "scripted"]
        process = subprocess.run([*argv, QUESTION], capture_output=True, text=True, check=False, timeout=120)
        assert (process.returncode, process.stdout.splitlines()[0]) == (status, answer), process.stderr
        assert told in process.stdout
        first, second = (body["messages"][-1] for body in server.chat_bodies()[1:])
    assert first["role"] == second["role"] == "tool"
    assert first["content"].startswith("Error: "), "a mistake comes back as text"
    assert second["content"].startswith(f"[1] Rope (id: rope_0)\n{ROPE}")
