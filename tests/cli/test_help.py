"""The help of every command: whole summaries, help for every option, and shell completion."""

import re
import subprocess
from functools import cache
from io import StringIO

import pytest
from rich.console import Console

from context_agent.cli.app import cli, run
from context_agent.cli.help import TwoColumns, commands_of
from tests.support import ctx1_process

LINE = 80


def walk(group, path):
    """Every command and group below the group, with its path."""
    yield path, group
    for name, command in commands_of(group).items():
        yield from walk(command, f"{path} {name}")


GROUPS_AND_COMMANDS = dict(walk(cli, "ctx1"))
COMMANDS = {path: command for path, command in GROUPS_AND_COMMANDS.items() if command.default_command}


@cache
def help_of(path, *, whole=False, width=LINE):
    """The help of a command. Several tests read it, and each call takes a twentieth of a second."""
    console = Console(file=StringIO(), width=width)
    cli.help_formatter = TwoColumns(cli, whole=whole)
    cli.help_print(path.split()[1:], console=console)
    return console.file.getvalue()


@cache
def arguments_of(path):
    """The arguments of a command, which no test changes."""
    return COMMANDS[path].assemble_argument_collection(parse_docstring=True)


def options_of(path):
    return [option for option in arguments_of(path) if option.show and option.index is None]


@pytest.mark.parametrize("path", GROUPS_AND_COMMANDS)
@pytest.mark.parametrize("whole", [False, True])
def test_help_is_whole_at_80_columns(path, whole):
    text = help_of(path, whole=whole)
    assert text.startswith(f"Usage: {path}")
    assert max(map(len, text.splitlines())) <= LINE
    assert "…" not in text.replace(",…", "")


@pytest.mark.parametrize("path", COMMANDS)
def test_the_usage_names_every_argument(path):
    usage = help_of(path).partition("\n\n")[0]
    named = [argument.name.upper() for argument in arguments_of(path) if argument.show and argument.index is not None]
    assert [name for name in named if name not in usage.replace("...", "").replace("[", "").replace("]", "")] == []


@pytest.mark.parametrize("width", [1, 20, 34])
def test_help_is_printed_on_a_narrow_terminal(width):
    text = " ".join(help_of("ctx1 search", whole=True, width=width).split())
    assert "Maximum number of turns of an episode." in text


@pytest.mark.parametrize("path", COMMANDS)
def test_every_argument_and_option_has_help(path):
    shown = [argument for argument in arguments_of(path) if argument.show]
    assert [argument.name for argument in shown if not (argument.parameter.help or "").rstrip(".").strip()] == []


@pytest.mark.parametrize("path", [path for path in GROUPS_AND_COMMANDS if path != "ctx1"])
def test_a_summary_is_one_whole_line_of_the_list(path):
    group, _, name = path.rpartition(" ")
    lines = [line.strip() for line in help_of(group).splitlines()]
    summary = GROUPS_AND_COMMANDS[path].help.strip().partition("\n")[0]
    assert summary.endswith(".")
    assert [line for line in lines if line.startswith(f"{name} ") and line.endswith(f"  {summary}")]


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_takes_json_config_and_debug(path):
    assert {"--json", "--config", "--debug"} <= {option.name for option in options_of(path)}


@pytest.mark.parametrize(
    "line", ["synth world --entities 60", "train rl", "synth tasks", "feedback x", "train bridge a b"]
)
def test_a_required_option_is_asked_for(line, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    assert re.search(r": --\S+ is missing\.", capsys.readouterr().err)


def described_options(text):
    """The options that a help page describes: the first flag of each row."""
    return [line.split()[0] for line in text.partition("\nMore options")[0].splitlines() if line.startswith("  -")]


@pytest.mark.parametrize("path", COMMANDS)
def test_a_help_describes_at_most_twelve_options_and_names_all(path):
    text = help_of(path)
    assert len(described_options(text)) <= 12
    assert {option.name for option in options_of(path)} <= set(re.findall(r"--[a-z][a-z-]*", text))
    fields = {option.field_info.name for option in options_of(path)}
    assert fields >= set(getattr(COMMANDS[path].default_command, "essential", ()))


def test_a_default_without_a_fraction_is_printed_as_a_whole_number():
    assert "[default: 10]" in help_of("ctx1 serve", whole=True).split("--check SECONDS")[1].split("--")[0]


@pytest.mark.parametrize("stage", ["tasks", "explore", "write", "verify", "distract", "extend"])
def test_making_tasks_offers_no_option_of_the_token_policy(stage):
    assert not {"tokenizer", "adapter"} & {option.field_info.name for option in options_of(f"ctx1 synth {stage}")}


def test_the_whole_help_describes_every_option_under_headings(inside):
    process = inside("search", "--help-all")
    assert process.returncode == 0
    assert len(described_options(process.stdout)) == len(options_of("ctx1 search"))
    text = process.stdout
    assert "More options" not in text
    for heading in ("Options:", "Many questions:", "Policy:", "Limits:", "Language model:", "Retrieval:", "Index:"):
        assert f"\n{heading}\n" in text


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    """The script that `ctx1 completion show` prints for bash."""
    folder = tmp_path_factory.mktemp("completion")
    process = ctx1_process.run("completion", "show", "--shell", "bash", cwd=folder)
    assert process.returncode == 0, process.stderr
    (folder / "ctx1.bash").write_text(process.stdout, encoding="utf-8")
    return folder / "ctx1.bash"


COMPLETE = """
. '{script}'
COMP_WORDS=({ctx1} {words}) COMP_CWORD={position}
_ctx1
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
def test_the_completion_script_completes_for_bash(words, completions, completion, tmp_path):
    quoted = " ".join(f"'{word}'" for word in words)
    lines = COMPLETE.format(script=completion, ctx1=ctx1_process.CTX1, words=quoted, position=len(words))
    process = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert process.returncode == 0, process.stderr
    assert sorted(process.stdout.split()) == sorted(completions)
