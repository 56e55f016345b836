"""What holds for every command: help, errors in one line, exit codes, config files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from context_agent.cli.app import cli
from context_agent.cli.index_options import OpenOptions
from tests.support.ctx1_process import CTX1

COMMANDS = ["index", "search", "demo", "train bridge", "doctor"]
TRACE = "Traceback"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_config(inside, command):
    process = inside(*command.split(), "--help")
    assert process.returncode == 0
    for flag in ("--json", "--config"):
        assert flag in process.stdout


def test_help_lists_the_commands(ctx1):
    process = ctx1("--help", ctx1=CTX1)
    assert process.returncode == 0
    for command in COMMANDS:
        assert command.split()[0] in process.stdout


def test_version(ctx1):
    assert ctx1("--version", ctx1=CTX1).stdout.startswith("ctx1 ")


def test_python_runs_the_package_as_the_command():
    process = subprocess.run(
        [sys.executable, "-m", "context_agent", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert process.stdout.startswith("ctx1 ")


def test_a_folder_before_the_question_is_taken_for_the_index(inside, tmp_path):
    (tmp_path / "notes").mkdir()
    process = inside("search", "notes", "who taught the founder?")
    assert process.returncode == 2
    assert "To search the index in notes, pass --path notes." in process.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("serch x", 'Did you mean "search"?'),
        ("search x --kk 3", "Did you mean --k?"),
        ("search --kk x", "Did you mean --k?"),
        ("search x y", "Put text with spaces in quotes"),
        ("search", "QUESTION"),
        ("ask", "QUESTION is missing"),
        ("search x --path", "--path needs a value"),
        ("train judge-check nowhere --run r.toml", 'TRAJECTORIES: "nowhere" does not exist'),
        ("search x --questions y.jsonl", "--questions"),
        ("search x --k 0", "--k"),
        ("search x --path a --url http://localhost:1", "--path and --url name two indexes"),
        ("index", "SOURCE"),
        ("train brige", 'Did you mean "bridge"?'),
        ("search x --k 1.5", 'unable to convert "1.5" into int'),
        ("search x --max-turns=2.0", 'unable to convert "2.0" into int'),
        ("--json search x", "--json must come after the name of a command"),
        ("search --founder", "unknown option --founder"),
        ("prune - --turns inf", "--turns. Must be <= 1000000000000"),
        ("search who --questions q.jsonl", "QUESTION and --questions both name what to search"),
        ("feedback a --trajectories . --file q.jsonl", "TRAJECTORY and --file both name what to judge"),
        ("search who --ray", "--ray is for many questions. Remove it"),
        ("search who --concurrency 2", "--concurrency is for many questions"),
        (
            "serve --path . --allow-host https://a.org",
            "a name without scheme and port, such as example.org; got 'https",
        ),
        ("proxy --upstream http://localhost:1 --allow-host a.org:80", "a name without scheme and port"),
        ("mcp --path . --http --port 0 --allow-host a/b", "a name without scheme and port"),
        ("mcp --path . --http --port 0 --allow-host [::1]:80", "a name without scheme and port"),
        ("serve --path . --port 70000", "Must be <= 65535"),
        ("serve --path . --port=-1", "Must be >= 0"),
        ("serve --path . --port http", 'unable to convert "http" into int'),
        ("mcp --path . --port 80", "--port is for a server over HTTP. Pass --http too"),
        ("mcp --path . --no-token", "--no-token is for a server over HTTP"),
        ("index q.jsonl --path i --collection a!", "'a!' is not a valid name of a Chroma collection"),
        ("train bridge nowhere q.jsonl --out w", "nowhere does not exist. Pass existing files and folders."),
    ],
)
def test_a_wrong_call_is_told_in_one_line_and_exits_2(inside, tmp_path, line, told):
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "text": "Ada."}\n')
    process = inside(*line.split())
    assert process.returncode == 2
    assert told in process.stderr
    assert len(process.stderr.splitlines()) == 1
    assert process.stdout == ""


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ('colection = "x"', "unknown key 'colection'. Did you mean 'collection'?"),
        ("[serch]\nk = 3", "unknown table [serch]. Did you mean 'search'?"),
        ("[search]\nkk = 3", "unknown key 'kk' in [search]. Did you mean 'k'?"),
        ("[index]\ncolection = 'x'", "unknown key 'colection' in [index]"),
        ("[search]\nk = true", "k must be a whole number; got true"),
        ("[search]\nordered = 1", "true or false"),
        ("[search]\nk = [1, 2]", "one value"),
        ("[search]\nk = 'many'", "c.toml: k must be a whole number; got 'many'"),
        ("[search]\nk = '5'", "k must be a whole number; got '5'"),
        ("[search]\nk = 1.5", "k must be a whole number; got 1.5"),
        ("[search]\nk = 0", "--k provided by c.toml. Must be >= 1"),
        ("[search]\ntime-limit = '2'", "time-limit must be a number; got '2'"),
        ("path = 3", 'path must be a text in quotes; got 3. To pass it as text, write path = "3".'),
        ("collection = 2024-01-01", "collection must be a text in quotes; got 2024-01-01"),
        ("[search]\neffort = true", "effort must be a text in quotes; got true"),
        ("[search]\nwhere = 3", "where must be a text in quotes; got 3"),
        ("no-json = true", "unknown key 'no-json'"),
        ("[search]\nxyzzy = 3", "unknown key 'xyzzy' in [search]. Choose from adapter, "),
        ("[xyzzy]\nk = 3", "unknown table [xyzzy]. Choose from ask, "),
        (
            "[synth]\nhops = '3'",
            "[synth] is for a group of commands, and has no key 'hops'. Put the key into the table of",
        ),
        ("[search]\nwhere = {year = 2}", "search.where must be one value, not a table. Write the value of the option"),
        ("where = {year = 2}", "where must be one value, not a table"),
        ("[search.xyzzy]\nk = 3", "unknown table [search.xyzzy]. Remove it."),
        ("[eval]\nbenchmarks = [['a']]", "benchmarks must be a text in quotes; got ['a']"),
        ("k = ", "not valid TOML"),
        (None, "cannot read the config file"),
    ],
)
def test_a_config_file_that_does_not_fit_is_refused(inside, tmp_path, config, told):
    if config is not None:
        (tmp_path / "c.toml").write_text(config, encoding="utf-8")
    command = ("eval",) if config and "[eval]" in config else ("search", "x")
    process = inside(*command, "--config", "c.toml")
    assert process.returncode == 2
    assert told in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_tilde_in_a_config_file_or_behind_an_equals_sign_is_the_home_folder(inside, tmp_path, monkeypatch):
    """A shell replaces neither. A folder with the name ~ would be a trap."""
    home = tmp_path / "home"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "weir.md").write_text("# Weir\n\nThe weir was built by Lena Ortiz.\n", encoding="utf-8")
    (home / "c.toml").write_text('path = "~/index"\n[search]\nsave = "~/searches"\n', encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    assert inside("index", home / "notes", "--config=~/c.toml", "--embedder", "static").returncode == 0
    search = inside("search", "Who built the weir?", "--config=~/c.toml", "--quiet")
    assert (search.returncode, search.stdout) == (0, "weir.md\n"), search.stderr
    assert inside("view", home / "searches", "--out=~/view.html").returncode == 0
    assert {path.name for path in home.iterdir()} == {"notes", "c.toml", "index", "searches", "view.html"}
    assert not (tmp_path / "~").exists()


def test_a_command_in_an_error_message_can_be_copied(inside, tmp_path):
    (tmp_path / "my notes").mkdir()
    assert inside("search", "x", "--path", "no index").stderr.endswith("ctx1 index SOURCE --path 'no index'\n")
    assert "pass --path 'my notes'." in inside("search", "my notes", "x").stderr


def test_a_config_file_sets_a_number_where_a_number_or_a_text_is_meant(inside, tmp_path):
    for budget, shown in (("3200", 3200), ('"3200"', 3200), ('"25%"', "25%")):
        (tmp_path / "c.toml").write_text(f"[prune]\nbudget = {budget}\nturns = 3\n", encoding="utf-8")
        process = inside("config", "prune", "--config", "c.toml", "--json")
        assert process.returncode == 0, process.stderr
        settings = {row["name"]: row["value"] for row in json.loads(process.stdout)["settings"]}
        assert (settings["--budget"], settings["--turns"]) == (shown, 3)


def test_a_missing_index_is_told_with_the_remedy(inside, tmp_path):
    process = inside("search", "who?", "--path", tmp_path / "none")
    assert process.returncode == 1
    assert str(tmp_path / "none") in process.stderr
    assert "ctx1 index" in process.stderr
    assert TRACE not in process.stderr
    assert not (tmp_path / "none").exists()


def test_debug_shows_where_an_error_came_from(ctx1, tmp_path):
    assert TRACE in ctx1("search", "who?", "--path", tmp_path / "none", "--debug").stderr
    assert TRACE in ctx1("search", "who?", "--path", tmp_path / "none", CTX1_DEBUG="1").stderr


def test_a_bare_ctx1_prints_a_short_page_to_start_from(inside):
    process = inside()
    assert (process.returncode, process.stderr) == (0, "")
    assert "ctx1 index notes/" in process.stdout
    assert "ctx1 --help" in process.stdout
    assert len(process.stdout.splitlines()) <= 12


@pytest.mark.parametrize("group", ["synth", "train"])
def test_a_bare_group_prints_its_help(inside, group):
    process = inside(group)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith(f"Usage: ctx1 {group}")


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("Are you sure it is running?. To make one: x", "Are you sure it is running? To make one: x"),
        ("It failed.. Pass --k", "It failed. Pass --k"),
        ("done!.", "done!"),
        ("and so on... Then", "and so on... Then"),
        ("notes/a?.md is empty", "notes/a?.md is empty"),
    ],
)
def test_a_sentence_ends_once(capsys, message, printed):
    from context_agent.cli.output import note

    note(message)
    assert capsys.readouterr().err == f"ctx1: {printed}\n"


def test_a_server_that_does_not_answer_is_reported_with_what_to_check(inside):
    process = inside("search", "who?", "--url", "http://127.0.0.1:9")
    assert process.returncode == 1
    assert "?." not in process.stderr
    assert ".." not in process.stderr
    assert process.stderr.count("Check that") == 1
    assert "ctx1 index" not in process.stderr, "without a server, no index can be made"


@pytest.mark.parametrize(
    ("line", "group", "field", "value"),
    [
        ("search x --ray", "batch", "ray", ()),
        ("search x --ray host:1", "batch", "ray", ("host:1",)),
        ("search x --questions -", "batch", "questions", Path("-")),
        ("search x --concurrency 2 --concurrency 3", "batch", "concurrency", 3),
        ("search x --embedder none", "index", "opening", OpenOptions(embedder="none")),
        ("eval --benchmarks a --benchmark b", "data", "benchmarks", ("a", "b")),
    ],
)
def test_options_have_the_values_that_the_line_says(line, group, field, value):
    _, bound, _ = cli.parse_args(line.split())
    assert getattr(bound.arguments[group], field) == value


def test_a_text_may_start_with_a_dash():
    _, bound, _ = cli.parse_args(["feedback", "id", "--trajectories", ".", "--comment", "- too old"])
    assert bound.arguments["comment"] == "- too old"
    _, bound, _ = cli.parse_args(["ask", "- what is a list item?"])
    assert bound.args[0] == "- what is a list item?"


def test_a_word_behind_two_dashes_is_a_text(inside, tmp_path):
    process = inside("search", "--path", "none", "--", "--founder")
    assert "nknown option" not in process.stderr
    assert "does not exist" in process.stderr


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("--help >&-", 0, ""),
        ("--help 2>&-", 0, ""),
        ("prune - <&-", 1, "standard input is not valid JSON"),
        ("--help >/dev/full", 1, "ctx1: No space left on device. Free some space"),
    ],
)
def test_a_closed_or_full_stream_causes_no_traceback(tmp_path, line, code, told):
    shell = ["bash", "-c", f"'{CTX1}' {line}"]
    process = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert process.returncode == code
    assert told in process.stderr
    assert TRACE not in process.stderr


def test_an_interrupt_during_imports_prints_no_traceback():
    code = """
import builtins
from context_agent.cli import main
def interrupt(*_, **__):
    raise KeyboardInterrupt
builtins.__import__ = interrupt
main()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (130, "")
