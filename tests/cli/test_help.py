"""The help of every command: whole summaries, help for every option, and shell completion."""

import re
import subprocess

import click
import pytest

from context_agent.cli.app import cli, run
from tests.support.ctx1_process import CTX1

LINE = 80


def walk(group, path):
    """Every command and group below the group, with its path."""
    context = click.Context(group)
    yield path, group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from walk(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(walk(cli, "ctx1"))


def help_of(command, path):
    context = click.Context(command, info_name=path, terminal_width=LINE)
    context.help_option_names = ["-h", "--help"]
    return command.get_help(context)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_whole_at_80_columns(path):
    assert max(map(len, help_of(COMMANDS[path], path).splitlines())) <= LINE


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_help(path):
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not (option.help or "").rstrip(".").strip()] == []


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != "ctx1"])
def test_a_summary_is_one_whole_line_of_the_list(path):
    group, _, name = path.rpartition(" ")
    lines = [line.strip() for line in help_of(COMMANDS[group], group).splitlines()]
    summary = COMMANDS[path].get_short_help_str(limit=1_000)
    assert summary.endswith(".")
    assert not summary.endswith("...")
    assert [line for line in lines if line.startswith(f"{name} ") and line.endswith(f"  {summary}")]


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)])
def test_every_command_takes_json_config_and_debug(path):
    flags = {flag for option in COMMANDS[path].params for flag in option.opts}
    assert {"--json", "--config", "--debug"} <= flags


@pytest.mark.parametrize(
    "line", ["synth world --entities 60", "train rl", "synth tasks", "feedback x", "train bridge a b"]
)
def test_a_required_option_is_asked_for(line, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    assert "Missing option" in capsys.readouterr().err


def described_options(text):
    """The options that a help page describes: the first flag of each row."""
    return [line.split()[0] for line in text.partition("\nMore options")[0].splitlines() if line.startswith("  -")]


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)])
def test_a_help_describes_at_most_twelve_options_and_names_all(path):
    command = COMMANDS[path]
    text = help_of(command, path)
    names = set(re.findall(r"--[a-z][a-z-]*", text))
    assert len(described_options(text)) <= 12
    flags = {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}
    assert {flag for flag in flags if flag.startswith("--")} - names <= {"--k", "--top-k", "--index", "--benchmark"}
    assert {option.name for option in command.params} >= set(command.essential)


def test_the_whole_help_describes_every_option_under_headings(inside):
    process = inside("search", "--help-all")
    assert process.returncode == 0
    assert len(described_options(process.stdout)) == len(COMMANDS["ctx1 search"].params)
    text = process.stdout
    assert "More options" not in text
    for heading in ("Options:", "Many questions:", "Policy:", "Limits:", "Language model:", "Retrieval:", "Index:"):
        assert f"\n{heading}\n" in text


COMPLETE = """
eval "$(_CTX1_COMPLETE=bash_source {ctx1})"
COMP_WORDS=({ctx1} {words}) COMP_CWORD={position}
_ctx1_completion {ctx1}
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["sea"], ["search"]),
        (["synth", "t"], ["tasks", "trajectories"]),
        (["search", "--rero"], []),
        (["search", "--rerank"], ["--reranker"]),
        (["search", "--policy", ""], ["bridge", "hybrid", "chat", "anthropic", "tokens"]),
    ],
)
def test_the_completion_script_completes_for_bash(words, completions, tmp_path):
    quoted = " ".join(f"'{word}'" for word in words)
    script = COMPLETE.format(ctx1=CTX1, words=quoted, position=len(words))
    process = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == completions


def test_completion_shows_whole_summaries():
    items = cli.shell_complete(click.Context(cli, info_name="ctx1"), "")
    assert {item.value for item in items} >= {"index", "search", "eval"}
    assert [item.help for item in items if (item.help or "").endswith("...")] == []
