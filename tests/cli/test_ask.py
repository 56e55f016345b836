"""`ctx1 ask`, against a scripted server."""

import json

import pytest

from context_agent import Document, index_documents
from context_agent.policies.chat.scripted_server import ScriptedServer, says

QUESTION = "Who designed Orm Skerry Light?"
SETTINGS = ("CTX1_MODEL", "CTX1_BASE_URL", "CTX1_API_KEY_ENV", "CTX1_API_KEY")


@pytest.fixture(scope="module")
def two_notes(tmp_path_factory):
    """An index of two notes."""
    documents = [
        Document("light", "It was designed by Ketil Varga in 1868.", "Orm Skerry Light"),
        Document("town", "Brasko is a market town.", "Brasko"),
    ]
    folder = tmp_path_factory.mktemp("notes") / "index"
    index_documents(documents, folder)
    return folder


@pytest.fixture
def ask(inside, monkeypatch, two_notes):
    """Run `ctx1 ask` on two notes. The environment names no model."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        return inside("ask", QUESTION, "--effort", "fast", "--path", two_notes, *arguments)

    return run


def test_without_a_model_it_prints_the_passages_and_says_how_to_name_one(ask):
    process = ask()
    assert process.returncode == 0
    assert "It was designed by Ketil Varga in 1868." in process.stdout
    for part in ("--model NAME", "--base-url URL", "CTX1_MODEL", "CTX1_BASE_URL"):
        assert part in process.stderr


def test_an_answer_is_printed_with_its_sources_and_marks(ask, monkeypatch):
    text = "Ketil Varga\x1b[2J did [1]. So says [5]."
    with ScriptedServer([says(text), says("I do not know.")]) as server:
        monkeypatch.setenv("CTX1_MODEL", "scripted")
        process = ask("--base-url", server.url)
        uncited = ask("--base-url", server.url)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Ketil Varga[2J did [1]. So says [5] [unconfirmed: there is no passage 5].\n")
    assert "\n[1] Orm Skerry Light" in process.stdout
    assert "the answer has 1 unconfirmed citation" in process.stderr
    assert "cites no passage" in uncited.stderr


def test_json_has_the_answer_beside_the_ranking(ask):
    with ScriptedServer([says("Ketil Varga [1].")]) as server:
        process = ask("--base-url", server.url, "--model", "scripted", "--api", "anthropic", "--json")
    result = json.loads(process.stdout)
    assert (result["model"], result["answer"], result["problems"]) == ("scripted", "Ketil Varga [1].", [])
    assert result["cited"][0]["text"].endswith("It was designed by Ketil Varga in 1868.")
    assert result["documents"]
    assert server.requests[0].path == "/v1/messages"
    assert json.loads(ask("--json").stdout)["answer"] is None


def test_an_answer_that_reached_its_limit_is_reported(ask):
    with ScriptedServer([says("Ketil Varga [1] was", finish="length")] * 2) as server:
        process = ask("--base-url", server.url, "--model", "scripted", "--max-tokens", "9")
        result = json.loads(ask("--base-url", server.url, "--model", "scripted", "--json").stdout)
    assert "cut off after 9 tokens. Raise --max-tokens" in process.stderr
    assert result["truncated"] is True


def test_a_model_that_the_server_lacks_is_reported_in_a_line(ask):
    with ScriptedServer() as server:
        process = ask("--base-url", server.url, "--model", "scripte")
    assert process.returncode == 1
    assert "Did you mean 'scripted'" in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
