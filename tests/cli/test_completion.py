"""`ctx1 completion`: the completion of commands and options in a shell."""

import functools
import json
import subprocess

import pytest
from cyclopts import App

from context_agent.cli.app import cli
from tests.support.ctx1_process import CTX1

SCRIPT_OF = functools.cache(cli.generate_completion)
"""Making the script of a shell takes seconds, so each one is made once."""


@pytest.fixture(autouse=True)
def _each_script_is_made_once(monkeypatch):
    monkeypatch.setattr(App, "generate_completion", lambda _, shell: SCRIPT_OF(shell=shell))


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_one_command_installs_completion_for_bash(inside, home, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/bash")
    (home / ".bashrc").write_text("export A=1", encoding="utf-8")
    for _ in range(2):
        process = inside("completion", "install")
        assert process.returncode == 0, process.stderr
        assert str(home / ".bashrc") in process.stdout
    assert (home / ".bashrc").read_text(encoding="utf-8") == f'export A=1\n. "{home}/.ctx1-complete.bash"\n'
    script = f". {home}/.bashrc; COMP_WORDS=({CTX1} sear) COMP_CWORD=1; _ctx1; echo $COMPREPLY"
    completion = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert completion.stdout.strip() == "search"


def test_a_start_up_file_of_another_encoding_gets_the_line_once(inside, home):
    (home / ".bashrc").write_bytes(b"# caf\xe9\n")
    for _ in range(2):
        assert inside("completion", "install", "--shell", "bash").returncode == 0
    assert (home / ".bashrc").read_bytes() == b"# caf\xe9\n" + f'. "{home}/.ctx1-complete.bash"\n'.encode()


def test_completion_for_zsh_and_fish_goes_where_they_look(inside, home):
    assert inside("completion", "install", "--shell", "zsh").returncode == 0
    assert (home / ".zshrc").read_text(encoding="utf-8").endswith(f'. "{home}/.ctx1-complete.zsh"\n')
    process = inside("completion", "install", "--shell", "fish", "--json")
    file = home / ".config" / "fish" / "completions" / "ctx1.fish"
    assert json.loads(process.stdout) == {"shell": "fish", "script": str(file), "startup": None}
    assert "ctx1" in file.read_text(encoding="utf-8")
    assert not (home / ".bashrc").exists()


def test_completion_can_be_printed(inside, home):
    assert "complete -F _ctx1 ctx1" in inside("completion", "--shell", "bash").stdout
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("shell", "message"), [("/bin/sh", "for the shell 'sh'. Pass --shell"), ("", "Pass --shell")])
def test_an_unknown_shell_names_the_option(inside, home, monkeypatch, shell, message):
    monkeypatch.setenv("SHELL", shell)
    process = inside("completion", "install")
    assert process.returncode == 2
    assert message in process.stderr
