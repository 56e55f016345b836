"""`ctx1 wrap` and `ctx1 unwrap`: official clients behind the proxy, signals, exit codes, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from context_agent.cli.wrap import WRAPPED
from context_agent.cli.wrapped_agents import (
    CHATGPT,
    CODE_ASSIST,
    OPENCODE_CONFIG,
    PROVIDERS,
    _uses_chatgpt_plan,
    arguments_of,
    servers_of,
    variables_of,
)
from context_agent.errors import ConfigError
from tests.support.ctx1_process import PATIENCE, run
from tests.support.forked_ctx1 import forked_ctx1
from tests.support.proxied import proxy_conversation
from tests.support.upstream import upstream
from tests.support.wrapped_agent import AGENT, answer

ADDRESSES = dict(zip(PROVIDERS, ("http://127.0.0.1:1", "http://127.0.0.1:2/v1", "http://127.0.0.1:3"), strict=True))
FAST = ("--budget", "400", "--strategy", "bm25")
VARIABLES = [name for provider in PROVIDERS for name in provider.variables]
HOSTS = (*CODE_ASSIST.variables, *(provider.goose for provider in PROVIDERS))
ANTHROPIC_AGENT = """
import anthropic
client = anthropic.Anthropic(max_retries=0)
question = [{"role": "user", "content": "When is high tide?"}]
print(client.messages.create(model="claude-sonnet-4-5", max_tokens=9, messages=question).content[0].text)
"""


@pytest.fixture(autouse=True)
def _no_base_addresses(monkeypatch, tmp_path):
    for name in (*VARIABLES, *HOSTS, WRAPPED, OPENCODE_CONFIG, "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))


def test_an_option_of_the_agent_without_dashes_before_it_gets_the_remedy(tmp_path):
    wrapped = run("wrap", sys.executable, "-c", "print(1)", cwd=tmp_path)
    assert wrapped.returncode == 2
    assert "unknown option" in wrapped.stderr.lower()
    assert "ctx1 wrap codex -- --model NAME" in wrapped.stderr
    unwrapped = run("unwrap", sys.executable, "-c", "print(1)", cwd=tmp_path)
    assert "ctx1 unwrap codex -- --model NAME" in unwrapped.stderr


def test_options_behind_the_dashes_reach_the_agent_as_they_are(tmp_path):
    words = ("--help-all", "--debug", "--help", "--version")
    wrapped = run("unwrap", sys.executable, "--", "-c", "import sys; print(*sys.argv[1:])", *words, cwd=tmp_path)
    assert wrapped.stdout.split() == [*words], wrapped.stderr


def test_a_client_goes_through_the_proxy_and_the_savings_are_printed(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "conversation.json").write_text(json.dumps(proxy_conversation()), encoding="utf-8")
    with upstream(answer) as server:
        environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-key-of-the-client"}
        wrapped = run("wrap", *FAST, "--report", "saved.json", sys.executable, "agent.py", cwd=tmp_path, **environment)
        (received,) = server.requests
    assert (wrapped.returncode, wrapped.stdout) == (7, "At six.\n"), wrapped.stderr
    assert "passages pruned" in received.body.decode()
    assert dict(received.headers)["authorization"] == "Bearer sk-key-of-the-client"
    lines = wrapped.stderr.splitlines()
    assert len(lines) == 3
    assert "1 request in 1 conversation" in lines[0]
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert saved["total"]["withheld"] > 0
    assert saved["conversations"][0]["model"] == "gpt-5"


def test_one_upstream_takes_the_requests_of_all_clients(tmp_path):
    pytest.importorskip("anthropic")
    (tmp_path / "agent.py").write_text(ANTHROPIC_AGENT, encoding="utf-8")
    with upstream(answer) as server:
        arguments = ("--upstream", server.url, "--json", sys.executable, "--", "-B", "agent.py")
        wrapped = run("wrap", *FAST, *arguments, cwd=tmp_path, ANTHROPIC_API_KEY="k")
    assert wrapped.returncode == 0, wrapped.stderr
    text, report = wrapped.stdout.splitlines()
    assert text == "At six."
    assert json.loads(report)["total"]["requests"] == 1


def test_a_signal_reaches_the_agent_and_its_exit_code_comes_back(tmp_path):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    cases = [(signal.SIGTERM, 5)]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # Under nohup the agent inherits that it is ignored.
        cases.append((signal.SIGHUP, 128 + signal.SIGHUP))
    for sign, code in cases:
        command = [forked_ctx1(), "wrap", *FAST, sys.executable, "--", "-c", script]
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(sign)
            assert process.wait(PATIENCE) == code


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    script = "import os; print(os.environ['OPENAI_BASE_URL'])"
    wrapped = run("wrap", *FAST, sys.executable, "--", "-c", script, cwd=home)
    assert wrapped.returncode == 0, wrapped.stderr
    assert "no conversation went through the proxy" in wrapped.stderr
    assert [path.name for path in home.rglob("*") if path.suffix not in {".pyc", ""}] == []
    port = int(wrapped.stdout.strip().removesuffix("/v1").rpartition(":")[2])
    deadline = time.monotonic() + PATIENCE
    while _listens(port):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _listens(port):
    import socket

    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_unwrap_restores_the_environment_for_one_agent_and_for_the_shell(tmp_path):
    script = (
        "import os, json; print(json.dumps([os.environ.get(name) for name in ('OPENAI_BASE_URL', 'CTX1_WRAPPED')]))"
    )
    mine = {"OPENAI_BASE_URL": "http://mine.example/v1's"}
    wrapped = run(
        "wrap", *FAST, forked_ctx1(), "--", "unwrap", sys.executable, "--", "-c", script, cwd=tmp_path, **mine
    )
    assert json.loads(wrapped.stdout) == [mine["OPENAI_BASE_URL"], None], wrapped.stderr
    shell = f'eval "$({forked_ctx1()} unwrap)"; {sys.executable} -c "{script}"'
    wrapped = run("wrap", *FAST, "sh", "--", "-c", shell, cwd=tmp_path, **mine)
    assert json.loads(wrapped.stdout) == [mine["OPENAI_BASE_URL"], None], wrapped.stderr


def test_a_wrapped_shell_is_not_wrapped_again(inside, monkeypatch):
    monkeypatch.setenv(WRAPPED, "{}")
    assert inside("wrap", sys.executable).returncode == 2
    for value in ("", "[", "[1]", '{"NAME": 1}', '{"NAME; echo hacked": null}', '{"": "x"}'):
        monkeypatch.setenv(WRAPPED, value)
        assert "Start a new shell" in inside("unwrap").stderr


def test_a_command_that_does_not_exist_is_an_error(inside):
    process = inside("wrap", "no-such-agent-here")
    assert process.returncode == 2
    assert "no-such-agent-here" in process.stderr
    assert inside("unwrap", "no-such-agent-here").returncode == 2
    Path("agent.py").write_text("print(1)\n", encoding="utf-8")
    assert "./agent.py is not executable. Pass the program that runs it" in inside("wrap", "./agent.py").stderr
    assert "nothing is wrapped" in inside("unwrap").stderr


def test_codex_without_a_login_gets_a_provider_that_reads_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    arguments = arguments_of("/usr/bin/codex", ADDRESSES)
    assert arguments[::2] == ["-c"] * 5
    assert 'model_providers.ctx1.base_url="http://127.0.0.1:2/v1"' in arguments
    assert 'model_provider="ctx1"' in arguments
    assert arguments_of("claude", ADDRESSES) == []
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        arguments_of("codex", ADDRESSES)


@pytest.mark.parametrize(
    ("login", "chatgpt"),
    [
        ({"OPENAI_API_KEY": "k"}, False),
        ({"auth_mode": "apikey", "OPENAI_API_KEY": "k", "tokens": None}, False),
        ({"OPENAI_API_KEY": None, "tokens": {"access_token": "t"}}, True),
        ({"auth_mode": "chatgpt", "OPENAI_API_KEY": "k", "tokens": {"access_token": "t"}}, True),
    ],
)
def test_codex_with_a_login_keeps_its_provider_so_that_its_sessions_can_be_resumed(
    login, chatgpt, monkeypatch, tmp_path
):
    (tmp_path / "auth.json").write_text(json.dumps(login), encoding="utf-8")
    assert _uses_chatgpt_plan("codex", None) is chatgpt
    addresses = ADDRESSES | ({CHATGPT: "http://127.0.0.1:4"} if chatgpt else {})
    address = "http://127.0.0.1:4" if chatgpt else "http://127.0.0.1:2/v1"
    assert arguments_of("codex", addresses) == ["-c", f'openai_base_url="{address}"']
    assert (CHATGPT in servers_of("codex", None)) is chatgpt
    assert not _uses_chatgpt_plan("codex", "http://localhost:4000")
    assert not _uses_chatgpt_plan("claude", None)
    monkeypatch.setenv("CODEX_API_KEY", "k")
    assert not _uses_chatgpt_plan("codex", None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"OPENAI_API_KEY": null, "tokens": null}'])
def test_a_file_without_a_login_of_codex_counts_as_none(text, tmp_path):
    (tmp_path / "auth.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="codex login"):
        arguments_of("codex", ADDRESSES)


def test_an_agent_that_does_not_reach_the_proxy_gets_its_own_remedy(tmp_path):
    agent = tmp_path / "gemini"
    agent.write_text("#!/bin/sh\nexit 41\n", encoding="utf-8")
    agent.chmod(0o755)
    wrapped = run("wrap", *FAST, str(agent), cwd=tmp_path)
    assert wrapped.returncode == 41
    assert "no conversation went through the proxy" in wrapped.stderr
    assert "selectedType" in wrapped.stderr


def test_spaces_around_an_address_in_the_environment_do_not_count(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", " ")
    monkeypatch.setenv("ANTHROPIC_API_BASE", " http://gateway.example/v1 ")
    servers = servers_of("claude", None)
    assert servers[PROVIDERS[0]] == "http://gateway.example/v1"
    assert servers[PROVIDERS[1]] == "https://api.openai.com/v1"
    for address in ("gateway", "http://me:secret@gateway.example", "http://gateway.example?key=secret"):
        monkeypatch.setenv("ANTHROPIC_API_BASE", address)
        with pytest.raises(ConfigError, match="ANTHROPIC_API_BASE cannot be used: the server's address must") as error:
            servers_of("claude", None)
        assert "secret" not in str(error.value)
        assert servers_of("claude", "http://localhost:4000")[PROVIDERS[0]] == "http://localhost:4000"


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://web.example:3128"}, "127.0.0.1"),
        ({"http_proxy": "http://web.example:3128", "NO_PROXY": "a.example"}, "a.example,127.0.0.1"),
        ({"ALL_PROXY": "http://web.example:3128", "no_proxy": "b", "NO_PROXY": "a"}, "b,127.0.0.1"),
        ({"HTTP_PROXY": "http://web.example:3128", "NO_PROXY": "*"}, "*"),
    ],
)
def test_a_web_proxy_gets_no_requests_to_this_machine(environment, hosts, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    variables = variables_of(ADDRESSES, "claude")
    assert variables.get("NO_PROXY") == variables.get("no_proxy") == hosts


def test_opencode_gets_settings_in_its_environment(monkeypatch):
    monkeypatch.setenv(OPENCODE_CONFIG, '{"theme": "dark", "provider": {"openai": {"options": {"timeout": 3}}}}')
    settings = json.loads(variables_of(ADDRESSES, "opencode")[OPENCODE_CONFIG])
    assert settings["theme"] == "dark"
    assert settings["provider"]["openai"]["options"] == {"timeout": 3, "baseURL": "http://127.0.0.1:2/v1"}
    assert settings["provider"]["anthropic"]["options"]["baseURL"] == "http://127.0.0.1:1/v1"
    assert settings["provider"]["google"]["options"]["baseURL"] == "http://127.0.0.1:3/v1beta"
    assert OPENCODE_CONFIG not in variables_of(ADDRESSES, "claude")
    for broken in ("{", "[]", '{"provider": 3}'):
        monkeypatch.setenv(OPENCODE_CONFIG, broken)
        with pytest.raises(ConfigError, match=OPENCODE_CONFIG):
            variables_of(ADDRESSES, "opencode")


@pytest.mark.parametrize("name", VARIABLES)
def test_each_client_is_led_to_a_proxy(name):
    assert variables_of(ADDRESSES, "any")[name].startswith("http://127.0.0.1:")
    assert not os.environ.get(name)


def test_goose_finds_the_hosts_of_the_providers_and_keeps_its_own(monkeypatch):
    variables = variables_of(ADDRESSES, "/usr/bin/goose")
    assert variables["ANTHROPIC_HOST"] == "http://127.0.0.1:1"
    assert variables["OPENAI_HOST"] == "http://127.0.0.1:2"
    assert variables["GOOGLE_HOST"] == "http://127.0.0.1:3"
    assert "GOOGLE_HOST" not in variables_of(ADDRESSES, "bash"), "others may use this name for something else"
    monkeypatch.setenv("OPENAI_HOST", "http://mine.example/")
    monkeypatch.setenv("ANTHROPIC_HOST", "http://claude.example/")
    assert [servers_of("goose", None)[it] for it in PROVIDERS[:2]] == [
        "http://claude.example",
        "http://mine.example/v1",
    ]
    assert servers_of("aider", None)[PROVIDERS[1]] == PROVIDERS[1].address


def test_gemini_after_a_login_with_google_goes_through_the_proxy(monkeypatch):
    assert servers_of("gemini", None)[CODE_ASSIST] == CODE_ASSIST.address
    assert CODE_ASSIST not in servers_of("claude", None)
    assert CODE_ASSIST not in servers_of("gemini", "http://localhost:4000"), "a gateway does not know this API"
    monkeypatch.setenv("CODE_ASSIST_ENDPOINT", "http://mine.example")
    assert servers_of("gemini", None)[CODE_ASSIST] == "http://mine.example"
    assert variables_of({CODE_ASSIST: "http://127.0.0.1:4"}, "gemini")["CODE_ASSIST_ENDPOINT"] == "http://127.0.0.1:4"
