"""`ctx1 search --policy chat`, against a scripted server."""

import json
from pathlib import Path

import pytest

from context_agent.policies.chat.scripted_server import ScriptedServer, fails, says

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"
STEP = says(calls=[("search_corpus", {"query": "Orm Skerry Light", "limit": 2})])


@pytest.fixture
def ask(inside, index, monkeypatch):
    """Search the notes with the model `scripted`."""

    def run(server, *arguments, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return inside("search", QUESTION, "--path", index, "--policy", "chat", "--base-url", server.url, *arguments)

    return run


def test_a_model_on_a_server_decides(ask):
    with ScriptedServer([STEP]) as server:
        process = ask(server, "--model", "scripted", "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert (result["stop_reason"], result["turns"], result["error"]) == ("finished", 1, None)
    assert len(result["documents"]) == 2


def test_options_reach_the_request(ask):
    options = [
        "--temperature",
        0.6,
        "--top-p",
        0.9,
        "--max-tokens",
        200,
        "--reasoning-effort",
        "high",
        "--tools",
        "text",
    ]
    with ScriptedServer(
        [says('<tool_call>{"name": "search_corpus", "arguments": {"query": "light"}}</tool_call>')]
    ) as server:
        process = ask(server, "--model", "scripted", *options)
    assert process.returncode == 0, process.stderr
    body = server.chat_bodies()[0]
    sampling = (body["temperature"], body["top_p"], body["max_tokens"], body["reasoning_effort"])
    assert sampling == (0.6, 0.9, 200, "high")
    assert "tools" not in body


def test_the_server_may_be_named_by_the_environment_or_a_file(ctx1, index, tmp_path):
    (tmp_path / "ctx1.toml").write_text('[search]\npolicy = "chat"\nmodel = "scripted"\ntemperature = 0.2\n', "utf-8")
    with ScriptedServer([STEP]) as server:
        env = {"CTX1_BASE_URL": server.url, "CTX1_API_KEY_ENV": "MY_KEY", "MY_KEY": "sk-secret-7"}
        process = ctx1("search", QUESTION, "--path", index, "--config", "ctx1.toml", "--save", "traces", **env)
    assert process.returncode == 0, process.stderr
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret-7"
    assert server.chat_bodies()[0]["temperature"] == 0.2
    (trace,) = (tmp_path / "traces").iterdir()
    assert "sk-secret-7" not in trace.read_text(encoding="utf-8") + process.stdout + process.stderr


def test_rollouts_run_at_once_and_are_fused(ask):
    with ScriptedServer([STEP] * 3) as server:
        process = ask(server, "--model", "scripted", "--rollouts", 3, "--json")
    assert process.returncode == 0, process.stderr
    assert {body["seed"] for body in server.chat_bodies()} == {0, 1, 2}
    assert json.loads(process.stdout)["turns"] == 3


def test_a_model_that_only_talks_is_told_with_what_to_do(ask, inside, tmp_path):
    with ScriptedServer([says("Marta Quill is a character of a film.")] * 2) as server:
        process = ask(server, "--model", "scripted", "--save", tmp_path / "episodes")
    assert "no ranking" in process.stdout
    assert "--tools text" in process.stdout
    shown = inside("view", tmp_path / "episodes", "--text")
    assert "last reply: Marta Quill is a character of a film." in shown.stdout


def test_a_model_that_gives_no_turn_within_the_time_limit_is_a_failure_and_not_an_empty_corpus(ask, inside, index):
    with ScriptedServer([fails(500, "broken")] * 9) as server:
        options = ("--model", "scripted", "--time-limit", 0.2)
        shown, quiet, plain = (ask(server, *options, *more) for more in ((), ("--quiet",), ("--json",)))
        Path("questions.jsonl").write_text('{"id": 1, "question": "Who built it?"}\n', encoding="utf-8")
        several = inside(
            "search",
            "--questions",
            "questions.jsonl",
            "--path",
            index,
            "--policy",
            "chat",
            "--base-url",
            server.url,
            *options,
        )
    assert [process.returncode for process in (shown, quiet, plain, several)] == [1] * 4
    assert "Nothing relevant" not in shown.stdout + quiet.stderr + several.stdout
    for text in (shown.stdout, quiet.stderr, several.stdout, (result := json.loads(plain.stdout))["error"]):
        assert "ended the search before its first turn. Raise --time-limit" in " ".join(text.split())
    assert (result["stop_reason"], result["sufficient"]) == ("time", None)


def test_a_failure_in_the_middle_keeps_what_was_found(ask):
    with ScriptedServer([STEP, fails(400, "out of luck")]) as server:
        process = ask(server, "--model", "scripted", "--json")
    assert process.returncode == 1
    result = json.loads(process.stdout)
    assert result["stop_reason"] == "policy_error"
    assert "out of luck" in result["error"]
    assert len(result["documents"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "CTX1_MODEL"),
        (["--model", "scripte"], 1, "Did you mean 'scripted'"),
        (["--model", "scripted", "--weights", __file__], 2, "no option 'weights'"),
        (["--model", "scripted", "--base-url", "nonsense"], 2, "http://localhost:8000/v1"),
        (["--model", "scripted", "--policy", "bridge"], 2, "no option"),
        (["--model", "scripted", "--policy", "chatty"], 2, "chatty"),
    ],
)
def test_mistakes_are_told_in_a_line(ask, arguments, code, said):
    with ScriptedServer() as server:
        process = ask(server, *arguments)
    assert process.returncode == code
    assert said in process.stderr
    assert "Traceback" not in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
