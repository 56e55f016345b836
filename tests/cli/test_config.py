"""`ctx1 config`: the settings of a command, and where each one comes from."""

import json

import pytest


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
