"""The real coding agents behind `ctx1 wrap`, against a scripted server on this machine.

They are not run by default: `CTX1_AGENTS=1 pytest tests/cli/test_wrapped_agents.py` runs those that are installed. The
agents may send their own telemetry.
"""

import json
import os
import shutil

import pytest

from tests.support.ctx1_process import run
from tests.support.upstream import Reply, upstream

QUESTION, ANSWER = "When is high tide in Orm?", "At six."
KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
GEMINI_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
AGENTS = {
    "claude": ("/v1/messages", ["-p", QUESTION]),
    "codex": ("/v1/responses", ["exec", "--skip-git-repo-check", QUESTION]),
    "gemini": ("/v1beta/models/", ["-p", QUESTION]),
    "opencode": ("/v1/messages", ["run", "-m", "anthropic/claude-sonnet-4-5", QUESTION]),
    "aider": ("/v1/chat/completions", ["--model", "gpt-4o", "--no-git", "--yes-always", "--message", QUESTION]),
}


def streamed(received):
    """Answer in the format of the provider to which the path belongs."""
    if "enerateContent" in received.path:
        parts = [{"text": ANSWER if "stream" in received.path else "{}"}]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        events = [{"candidates": [candidate]}]
        if "stream" not in received.path:
            return Reply(json.dumps(events[0]).encode(), headers=[("Content-Type", "application/json")])
    elif received.path.startswith("/v1/messages"):
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        events = [
            {"type": "message_start", "message": {**message, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    elif received.path.startswith("/v1/responses"):
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
        response = {"id": "r", "object": "response", "status": "completed", "output": [item]}
        events = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
    elif received.path.startswith("/v1/chat/completions"):
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        deltas = [({"role": "assistant", "content": ANSWER}, None), ({}, "stop")]
        events = [{**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": end}]} for d, end in deltas]
    else:
        return Reply(status=404)
    named = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
    lines = [f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events, strict=True)]
    return Reply("".join(lines).encode(), headers=[("Content-Type", "text/event-stream")])


@pytest.mark.skipif(not os.environ.get("CTX1_AGENTS"), reason="runs programs of others: set CTX1_AGENTS=1")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_installed_agent_reaches_the_server_through_the_proxy(agent, tmp_path):
    if shutil.which(agent) is None:
        pytest.skip(f"{agent} is not installed")
    path, arguments = AGENTS[agent]
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "settings.json").write_text(json.dumps(GEMINI_SETTINGS), encoding="utf-8")
    environment = {**KEYS, "HOME": str(home), "CODEX_HOME": str(home)}
    with upstream(streamed) as server:
        options = ("--upstream", server.url, "--strategy", "bm25")
        wrapped = run("wrap", *options, agent, "--", *arguments, cwd=work, **environment)
        paths = [request.path for request in server.requests]
    assert wrapped.returncode == 0, wrapped.stderr
    assert ANSWER in wrapped.stdout
    assert any(received.startswith(path) for received in paths), paths
    assert " request" in wrapped.stderr.splitlines()[-3]
