"""`ctx1 proxy` as a process: OpenAI's client, the log, and options that cannot work."""

import json

import openai

from context_agent.policies.chat.scripted_server import ScriptedServer, says
from tests.support.ctx1_process import CTX1, run
from tests.support.ctx1_server import serving
from tests.support.proxied import CHAT, proxy_conversation
from tests.support.proxied import conversation as growing_conversation
from tests.support.upstream import upstream

KEY = "sk-secret-of-the-client"


def test_a_conversation_through_the_process(tmp_path):
    with (
        ScriptedServer([says("At six.")], key=KEY) as model,
        serving(
            "--upstream", model.url, "--budget", "400", "--strategy", "bm25", command="proxy", cwd=tmp_path
        ) as server,
    ):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        answer = client.chat.completions.with_raw_response.create(model="scripted", messages=proxy_conversation())
        assert answer.parse().choices[0].message.content == "At six."
        report = json.loads(answer.headers["x-context-pruned"])
        upstream_messages = model.chat_bodies()[0]["messages"]
        code, log = server.end()
    assert code == 0
    assert report["removed"] > 0
    assert len(json.dumps(upstream_messages)) < len(json.dumps(proxy_conversation()))
    line = next(entry for entry in log if entry["event"] == "request")
    assert line["prune"]["freed"] == report["freed"]
    assert KEY not in str(log)
    assert "violins" not in str(log)


def test_a_conversation_goes_on_after_the_proxy_was_killed(tmp_path):
    options = ("--budget", "300", "--strategy", "bm25")
    with upstream() as model:
        for steps in ((4, 5), (5, 5, 6)):
            with serving("--upstream", model.url, *options, command="proxy", cwd=tmp_path, ctx1=CTX1) as server:
                for number in steps:
                    answer = server.client.post(CHAT, json={"model": "m", "messages": growing_conversation(number)})
                    assert answer.status_code == 200
                server.process.kill()
                server.process.communicate()
        bodies = [json.loads(request.body)["messages"] for request in model.requests]
    assert max(len(json.dumps(messages)) for messages in bodies) < len(json.dumps(growing_conversation(4)))
    assert bodies[2] == bodies[3]
    for messages, number in zip(bodies, (4, 5, 5, 5, 6), strict=True):
        assert [message["role"] for message in messages] == [
            message["role"] for message in growing_conversation(number)
        ]
        assert messages[-1] == growing_conversation(number)[-1]


def test_a_restore_is_recorded_and_the_savings_are_written(tmp_path):
    options = ("--budget", "400", "--strategy", "bm25", "--restores", "restores.jsonl", "--report", "saved.json")
    (tmp_path / "prices.toml").write_text("[models]\nscripted = { input = 2, cached = 1 }", encoding="utf-8")
    with (
        ScriptedServer([says("At six."), says("At six.")], key=KEY) as model,
        serving("--upstream", model.url, *options, "--prices", "prices.toml", command="proxy", cwd=tmp_path) as server,
    ):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        client.chat.completions.create(model="scripted", messages=proxy_conversation())
        asking = [*proxy_conversation(), {"role": "user", "content": "Please restore: p1"}]
        client.chat.completions.create(model="scripted", messages=asking)
        assert "1 passage restored" in server.client.get("/_context/report").text
        code, _ = server.end()
    assert code == 0
    (line,) = [json.loads(line) for line in (tmp_path / "restores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert line["text"].startswith("Entry ")
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert (saved["total"]["requests"], saved["total"]["restored"]) == (2, 1)
    assert saved["total"]["without_price"] == 0
    assert saved["total"]["money"] != 0


def test_other_machines_are_admitted_on_demand_only(tmp_path):
    refusal = run("proxy", "--upstream", "http://127.0.0.1:1", "--host", "0.0.0.0", cwd=tmp_path)
    assert refusal.returncode == 2
    assert "--no-token" in refusal.stderr


def test_an_upstream_is_an_address_without_a_key(tmp_path):
    refusal = run("proxy", "--upstream", "https://me:secret@host/v1", cwd=tmp_path)
    assert refusal.returncode == 2
    assert "secret" not in refusal.stderr
    assert "keys in headers" in refusal.stderr
