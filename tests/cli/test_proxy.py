"""`ctx1 proxy` as a process: OpenAI's client, the log, and options that cannot work."""

import json

import openai

from context_agent.policies.chat.scripted_server import ScriptedServer, says
from tests.cli.process import run
from tests.cli.serving import serving

KEY = "sk-secret-of-the-client"


def conversation():
    """Two searches with long results; only one is about the question."""
    messages = [{"role": "user", "content": "When is high tide in Orm?"}]
    for number, topic in enumerate(("tide in Orm", "violins", "weather")):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": topic}}
        text = "\n\n".join(f"Entry {entry} on {topic}: " + f"{topic} again. " * 30 for entry in range(4))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return messages


def test_a_conversation_through_the_process(tmp_path):
    with (
        ScriptedServer([says("At six.")], key=KEY) as model,
        serving(
            "--upstream", model.url, "--budget", "400", "--strategy", "bm25", command="proxy", cwd=tmp_path
        ) as server,
    ):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        answer = client.chat.completions.with_raw_response.create(model="scripted", messages=conversation())
        assert answer.parse().choices[0].message.content == "At six."
        report = json.loads(answer.headers["x-context-pruned"])
        sent = model.chat_bodies()[0]["messages"]
        code, log = server.end()
    assert code == 0
    assert report["removed"] > 0
    assert len(json.dumps(sent)) < len(json.dumps(conversation()))
    line = next(entry for entry in log if entry["event"] == "request")
    assert line["prune"]["freed"] == report["freed"]
    assert KEY not in str(log)
    assert "violins" not in str(log)


def test_other_machines_are_admitted_on_demand_only(tmp_path):
    refused = run("proxy", "--upstream", "http://127.0.0.1:1", "--host", "0.0.0.0", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--no-token" in refused.stderr


def test_an_upstream_is_an_address_without_a_key(tmp_path):
    refused = run("proxy", "--upstream", "https://me:secret@host/v1", cwd=tmp_path)
    assert refused.returncode == 2
    assert "secret" not in refused.stderr
    assert "keys in headers" in refused.stderr
