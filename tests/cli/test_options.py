"""Options have the defaults of the settings that they fill, and paths are checked before a command works.

The defaults are written twice because help must not import the modules of the settings.
"""

import json
import os
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from cyclopts import Parameter

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.agent import MAX_ROLLOUTS
from context_agent.cli import config_file
from context_agent.cli.agent_options import LimitOptions, PolicyOptions, unused_options
from context_agent.cli.app import cli, run, run_guarded
from context_agent.cli.help import commands_of
from context_agent.cli.index import ReadOptions
from context_agent.cli.parameters import PathRule
from context_agent.cli.server_options import CapacityOptions
from context_agent.cli.synth_feedback import SelectionOptions
from context_agent.cli.synth_stages import WriterOptions
from context_agent.cli.synth_trajectories import ExpertOptions, FilterOptions
from context_agent.errors import ConfigError
from context_agent.harness.episode import Limits
from context_agent.harness.profile import PROFILE_NAMES
from context_agent.integrations.server.settings import Settings
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.synth_data.demonstrations.feedback_demonstrations import FeedbackFilters
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.oracle import OracleSettings
from context_agent.synth_data.llm_stages.context import EXPLORER_TURNS


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (ReadOptions(), LoadOptions()),
        (CapacityOptions(), Settings()),
        (FilterOptions(), DemonstrationFilters()),
        (ExpertOptions(), OracleSettings()),
    ],
)
def test_defaults_are_those_of_the_settings(options, settings):
    names = {field.name for field in fields(options)} & {field.name for field in fields(settings)}
    assert len(names) >= 4
    assert {name: getattr(options, name) for name in names} == {name: asdict(settings)[name] for name in names}


OUTPUTS = {"--out", "--replies", "--report", "--restores", "--save"}
"""Options whose file a command writes."""
OWN_ERRORS = {"--config", "--corpus"}
"""--config is read before the others are checked. --corpus takes what `ctx1 index` takes, and is read as late."""


def _paths(group=cli, words=()):
    """Yield each parameter that is a path, with the words that name its command."""
    for name, command in commands_of(group).items():
        yield from _paths(command, (*words, name))
        if command.default_command is not None:
            for argument in command.assemble_argument_collection(default_parameter=Parameter(negative=())):
                if Path in {argument.hint, *get_args(argument.hint)}:
                    yield (*words, name, argument.names[0]), argument


def _problem(argument, path):
    """Return what the rule for a parameter's path says about this path."""
    rules = argument.parameter.validator
    rules = rules if isinstance(rules, tuple) else (rules,)
    with pytest.raises(ValueError, match="Pass ") as raised:
        next(rule for rule in rules if isinstance(rule, PathRule))(argument.hint, path)
    return str(raised.value)


def test_a_missing_input_file_is_wrong_usage_in_every_command(tmp_path):
    inputs = {
        name: argument
        for name, argument in _paths()
        if name[-1] not in OUTPUTS | OWN_ERRORS and argument.parameter.metavar != "FOLDER"
    }
    assert {("search", "--questions"), ("eval", "--prices"), ("prune", "FILE"), ("train", "sft", "--run")} <= set(
        inputs
    )
    assert len(inputs) >= 40
    for name, argument in inputs.items():
        assert "does not exist. Pass an existing file" in _problem(argument, tmp_path / "nowhere"), name


def test_no_output_is_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    outputs = [argument for name, argument in _paths() if name[-1] in OUTPUTS | {"--cache"}]
    assert len(outputs) >= 20
    for argument in outputs:
        assert "is a file, so it cannot contain" in _problem(argument, tmp_path / "file" / "a" / "b"), argument.names


def test_no_output_replaces_a_device_or_is_in_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """A command that runs as root would take /dev/null away from all programs."""
    os.mkfifo(tmp_path / "pipe")
    outputs = [argument for name, argument in _paths() if name[-1] in OUTPUTS and not _reads_the_run(name)]
    assert len(outputs) >= 20
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    for argument in outputs:
        told = _problem(argument, tmp_path / "new" / "file")
        assert f'"{tmp_path}" cannot be written. Pass another path' in told, argument.names
        for stream in () if argument.parameter.metavar == "FOLDER" else ("/dev/null", "/dev/stdout", tmp_path / "pipe"):
            assert f'"{stream}" is a device or a pipe' in _problem(argument, Path(stream)), argument.names


def test_an_empty_path_is_wrong_usage_for_every_parameter(inside, tmp_path):
    """A variable of the shell that is not set would mean the working folder."""
    commands = {name: words for (*words, name), _ in _paths()}
    assert len(commands) >= 30
    for name, words in commands.items():
        process = inside(*words, f"{name}=" if name.startswith("-") else "")
        assert process.returncode == 2, (words, name)
        if name != "--config":
            assert "is empty, so it names no path" in process.stderr, (words, name)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--count", "--distractors"])
def test_a_count_of_more_than_64_bits_is_wrong_usage(inside, index, option):
    process = inside("synth", "tasks", "--path", index, "--out", "o.jsonl", option, 10**25)
    assert process.returncode == 2
    assert f"for {option}" in process.stderr
    assert "Must be <= 1000000000000" in process.stderr


@pytest.mark.parametrize("line", ["serve --rollouts", "search q --rollouts", "synth filter f --out o --passes"])
def test_a_question_has_a_bounded_number_of_episodes(inside, tmp_path, line):
    (tmp_path / "f").touch()
    process = inside(*line.split(), 10**8)
    assert process.returncode == 2
    assert f"Must be <= {MAX_ROLLOUTS}" in process.stderr
    with pytest.raises(ConfigError, match="at most 1,000"):
        SearchAgent(MemoryCorpus([Document("a", "A lamp.")]), rollouts=10**8)


@pytest.mark.parametrize("option", ["--systems=agent@", "--systems=agent+swarm", "--seeds=", "--windows="])
def test_a_number_of_thousands_of_digits_is_wrong_usage(inside, tmp_path, option):
    (tmp_path / "q.jsonl").write_text('{"id": "q", "question": "Who?", "answer": "Ada"}\n')
    process = inside("eval", "--questions", "q.jsonl", "--path", ".", "--out", "run", option + "9" * 5_000)
    assert process.returncode == 2
    assert "unexpected" not in process.stderr


def test_a_wrong_value_of_several_lines_is_told_in_one(inside):
    process = inside("prune", "a\n\x1b[2Jb")
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["index notes --path a\udcff", "search q --path a\udcff", "serve --cache a\udcff"])
def test_a_folder_of_an_index_whose_name_is_not_utf_8_is_refused_before_it_is_made(inside, tmp_path, index, line):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("A note.")
    process = inside(*line.split(), *(("--path", index) if "--cache" in line else ()))
    assert process.returncode == 2
    assert "not UTF-8" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    "line",
    [
        "synth tasks --out x --report ./x",
        "synth filter x --out x",
        "synth review x --out link",
        "view x --out x",
        "prune x --out x",
        "proxy --upstream http://127.0.0.1:9 --report x --restores x",
    ],
)
def test_no_output_replaces_another_file_of_the_command(inside, tmp_path, line):
    (tmp_path / "x").write_text("mine")
    (tmp_path / "link").symlink_to("x")
    process = inside(*line.split())
    assert process.returncode == 2
    assert "name the same file" in process.stderr
    assert (tmp_path / "x").read_text() == "mine"


def test_a_world_has_at_most_a_million_entities(inside):
    process = inside("synth", "world", "--entities", 10**30, "--out", "world")
    assert process.returncode == 2
    assert "50 to 1,000,000 entities" in process.stderr


def _reads_the_run(name):
    """Return True for `ctx1 eval --report`, which is the folder of a run."""
    return name[-2:] == ("eval", "--report")


@pytest.mark.parametrize(
    "line",
    [
        "search --questions nope.jsonl",
        "eval --path . --questions nope.jsonl --out o",
        "search x --weights nope.safetensors",
        "view nope.jsonl",
        "prune nope.json",
        "synth filter nope.jsonl --out o.jsonl",
        "train sft --run nope.toml",
        "search x --config nope.toml",
        "search x --save file/below",
        "search x --save file",
    ],
)
def test_a_wrong_path_is_told_with_a_remedy_and_exits_2(inside, tmp_path, line):
    (tmp_path / "file").touch()
    process = inside(*line.split())
    assert process.returncode == 2
    assert "Pass an" in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_options_for_many_questions_may_stand_in_a_config_file(inside, tmp_path):
    (tmp_path / "c.toml").write_text("[search]\nconcurrency = 2\n")
    process = inside("search", "who?", "--config", "c.toml")
    assert process.returncode == 1
    assert "does not exist" in process.stderr, "the index, which comes after the options"


def test_keys_that_a_command_has_are_looked_up_in_no_other_command(inside, tmp_path, monkeypatch):
    listed = []
    options_of = config_file._options_of
    monkeypatch.setattr(config_file, "_options_of", lambda app: listed.append(app.name) or options_of(app))
    for text, looked_up in (("k = 2", {("search",)}), ("k = 2\nwindows = [1024]", {("search",), ("eval",)})):
        (tmp_path / "c.toml").write_text(text)
        assert "does not exist" in inside("search", "who?", "--config", "c.toml").stderr
        assert looked_up <= set(listed)
        assert len(looked_up) > 1 or listed == [("search",)]


def test_an_error_with_several_lines_is_printed_as_one(capsys):
    def fail():
        raise ConfigError("cannot load it (no network.\nSee the page.\n)")

    assert run_guarded(fail, debug=False) == 2
    assert capsys.readouterr().err == "ctx1: cannot load it (no network. See the page. )\n"


def test_a_deleted_working_folder_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (["search", "who?"], ["prune", "x.json"], ["serve"]):
        assert run(words) == 1
        assert "the working folder was deleted. Change to an existing folder" in capsys.readouterr().err


def test_an_error_of_the_system_has_a_remedy(capsys):
    assert run_guarded(partial(open, "/nowhere/at/all"), debug=False) == 1
    assert capsys.readouterr().err == "ctx1: No such file or directory: /nowhere/at/all. Check the path.\n"
    assert run_guarded(partial(open, "/"), debug=False) == 1
    assert capsys.readouterr().err.endswith(": /. The path is a folder. Pass the path of a file.\n")


def test_defaults_under_other_names():
    assert (LimitOptions().max_turns, LimitOptions().time_limit) == (Limits().turns, Limits().seconds)
    assert WriterOptions().max_turns == EXPLORER_TURNS
    selection, filters = SelectionOptions(), FeedbackFilters()
    thresholds = (selection.min_rating, selection.max_bad, selection.per_question)
    assert thresholds == (filters.rating, filters.bad, filters.per_question)
    assert {ExpertOptions().wire_format, PolicyOptions().wire_format.name} <= set(PROFILE_NAMES)


@pytest.mark.parametrize("key", ["model = 'm'", "base-url = 'http://localhost:1'", "tools = 'text'", "adapter = 'a'"])
def test_a_key_of_another_policy_is_ignored_at_the_top_level_and_refused_elsewhere(inside, index, tmp_path, key):
    (tmp_path / "top.toml").write_text(f"{key}\n")
    shared = inside("search", "who?", "--path", index, "--config", "top.toml", "--quiet")
    assert shared.returncode == 0, shared.stderr
    (tmp_path / "own.toml").write_text(f"{key}\n[search]\n{key}\n")
    own = inside("search", "who?", "--path", index, "--config", "own.toml", "--quiet")
    assert own.returncode == 2
    name, _, value = key.partition(" = ")
    flag = inside("search", "who?", "--path", index, f"--{name}", value.strip("'"), "--config", "top.toml", "--quiet")
    assert flag.returncode == 2
    for refused in (own, flag):
        assert f"the bridge policy has no option '{name.replace('-', '_')}'" in refused.stderr


@pytest.mark.parametrize(
    ("policy", "model", "ignored", "kept"),
    [
        ("hybrid", None, {"weights", "effort", "model", "swarm"}, set()),
        (
            "chat",
            "m",
            {"weights", "effort", "adapter", "tokenizer"},
            {"model", "base-url", "tools", "top-p", "timeout"},
        ),
        ("anthropic", "m", {"weights", "tools", "tokenizer"}, {"model", "reasoning-effort"}),
        ("tokens", "m", {"weights", "tools", "adapter"}, {"tokenizer", "base-url"}),
        ("tokens", "smollm2", {"tokenizer", "api-key-env", "timeout"}, {"adapter", "temperature"}),
        (None, None, {"model", "timeout"}, {"weights", "effort", "swarm"}),
    ],
)
def test_every_policy_ignores_the_shared_options_of_the_others(policy, model, ignored, kept):
    unused = unused_options({"policy"}, {"policy": policy, "model": model}.get)
    assert ignored <= unused
    assert not kept & unused


def test_an_adapted_reader_of_the_whole_file_is_ignored_by_another_strategy():
    assert unused_options({"strategy"}, {"strategy": "bm25"}.get) == {"adapted"}
    assert unused_options({"strategy"}, {"effort": "fast"}.get) == {"adapted"}
    assert unused_options({"strategy"}, {}.get) == set()


def test_keys_for_other_programs_are_refused_on_an_index_unless_the_whole_file_shares_them(inside, index, tmp_path):
    for flag in ("--title-key", "--document-key", "--text-key"):
        process = inside("search", "who?", "--path", index, flag, "headline")
        assert process.returncode == 2
        assert f"Remove {flag}" in process.stderr
    (tmp_path / "c.toml").write_text("title-key = 'headline'\n")
    shared = inside("search", "who?", "--path", index, "--config", "c.toml", "--quiet")
    assert (shared.returncode, shared.stderr) == (0, "")
    (tmp_path / "c.toml").write_text("[search]\ntitle-key = 'headline'\n")
    assert inside("search", "who?", "--path", index, "--config", "c.toml", "--quiet").returncode == 2


@pytest.mark.parametrize(("shared", "own"), [("k", "top-k"), ("top_k", "k")])
def test_the_table_of_a_command_overrides_the_top_level_by_the_other_name_of_an_option(
    inside, index, tmp_path, shared, own
):
    (tmp_path / "c.toml").write_text(f"{shared} = 5\n[search]\n{own} = 2\n")
    process = inside("search", "who?", "--path", index, "--config", "c.toml", "--json")
    assert len(json.loads(process.stdout)["documents"]) == 2, process.stderr
