"""`ctx1 doctor`: finds what is broken and says how to fix it.

`ctx1 config` and `ctx1 completion`.
"""

import importlib.metadata
import json
import shutil
import subprocess

import pytest

from tests.support.ctx1_process import CTX1


def read_checks(process):
    report = json.loads(process.stdout)
    return report["healthy"], {check["name"]: check for check in report["checks"]}


def test_a_fresh_installation_is_healthy(ctx1):
    process = ctx1("doctor", "--json")
    healthy, checks = read_checks(process)
    assert (process.returncode, healthy) == (0, True), checks
    assert {"python", "packages", "extras", "weights", "round trip", "index"} <= set(checks)
    assert checks["index"]["status"] == "note"


def test_the_version_of_a_package_is_read_once(inside, monkeypatch):
    from context_agent.cli import doctor

    read = []

    def version(name):
        read.append(name)
        raise importlib.metadata.PackageNotFoundError

    doctor._version.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", version)
    try:
        inside("doctor", "--json")
    finally:
        doctor._version.cache_clear()
    assert len(read) == len(set(read)) > 20


def test_an_index_is_opened_and_searched(inside, index):
    process = inside("doctor", "--path", index)
    assert process.returncode == 0, process.stdout
    assert "chunks" in process.stdout
    assert "\x1b" not in process.stdout


def test_a_damaged_index_is_a_problem(inside, index, tmp_path):
    shutil.copytree(index, tmp_path / "broken")
    (tmp_path / "broken" / "chroma.sqlite3").write_bytes(b"no database")
    process = inside("doctor", "--path", "broken", "--json")
    assert process.returncode == 1
    assert read_checks(process)[1]["index"]["status"] == "problem"
    assert "Traceback" not in process.stderr


def test_a_missing_index_is_a_problem_when_it_was_named(inside, tmp_path):
    process = inside("doctor", "--path", "nowhere", "--json")
    assert process.returncode == 1
    assert "ctx1 index" in read_checks(process)[1]["index"]["detail"]
    assert list(tmp_path.iterdir()) == []


def read_settings(process):
    assert process.returncode == 0, process.stderr
    return {row["name"]: (row["value"], row["source"]) for row in json.loads(process.stdout)["settings"]}


def test_each_setting_says_where_it_comes_from(inside, tmp_path, monkeypatch):
    (tmp_path / "c.toml").write_text('collection = "notes"\n[search]\nk = 7\ntime-limit = 2.5\n', encoding="utf-8")
    monkeypatch.setenv("CTX1_MODEL", "from-environment")
    monkeypatch.setenv("CTX1_DATA", str(tmp_path))
    settings = read_settings(inside("config", "--json", "search", "-k", 3, "--config", "c.toml"))
    assert settings["--k"] == (3, "option")
    assert settings["--collection"] == ("notes", "file c.toml")
    assert settings["--time-limit"] == (2.5, "file c.toml")
    assert settings["--model"] == ("from-environment", "environment variable CTX1_MODEL")
    assert settings["--path"] == (".ctx1", "default")
    assert settings["--url"] == (None, "default")
    options_first = read_settings(inside("config", "--json", "--config", "c.toml", "search", "-k", 3))
    assert options_first == settings
    assert read_settings(inside("config", "--json", "eval"))["--data"] == (
        str(tmp_path),
        "environment variable CTX1_DATA",
    )


def test_settings_are_readable_and_need_no_sources(inside):
    process = inside("config", "index", "--chunk-size", 64)
    assert process.returncode == 0
    assert process.stdout.startswith("ctx1 index\n")
    assert ["--chunk-size", "64", "option"] in [line.split() for line in process.stdout.splitlines()]
    assert "not set: " in process.stdout
    assert inside("config").stdout.startswith("ctx1 search\n")


def test_an_address_is_shown_without_its_password(inside):
    assert (
        read_settings(inside("config", "--json", "search", "--url", "http://me:secret@host"))["--url"][0]
        == "http://…@host"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("config serch", 'Did you mean "search"?'),
        ("config synth", "ctx1 synth needs a subcommand. Choose from tasks"),
        ("config search --k none", "--k"),
        ("config search --kk 3", "--kk"),
        ("config search --k", "--k needs a value"),
        ("config search --config none.toml", "cannot read the config file none.toml"),
    ],
)
def test_a_line_that_could_not_run_is_refused(inside, line, message):
    process = inside(*line.split())
    assert message in process.stderr + process.stdout
    assert process.returncode == 2


def test_without_a_command_the_settings_of_search_are_shown_as_json(inside):
    process = inside("config", "--json")
    assert process.returncode == 0
    assert json.loads(process.stdout)["command"] == "ctx1 search"


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
