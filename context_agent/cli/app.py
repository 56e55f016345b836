"""The commands of `ctx1`, and the handling of their errors.

Exit code 0 means that the work is done, and 1 that it failed for some or all questions. Exit code 2 means wrong usage,
such as an unknown option, an invalid config file, or an input file that does not exist. Exit code 130 means that the
user interrupted the command.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.argument import Argument
from cyclopts.exceptions import (
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from context_agent.cli import INTERRUPTED, output
from context_agent.cli.config_file import apply_config_file
from context_agent.cli.help import TwoColumns
from context_agent.cli.invocation import record_invocation, set_invocation, set_texts
from context_agent.cli.parameters import OWN, expand_home, refuse_empty_paths, refuse_fractions, refuse_shared_files
from context_agent.errors import ConfigError, ContextAgentError, EmbedderError
from context_agent.version import __version__

FAILED, MISUSED = 1, 2
_OS_REMEDIES = {
    errno.ENOTDIR: "A part of the path is a file. Pass another path.",
    errno.EISDIR: "The path is a folder. Pass the path of a file.",
    errno.EACCES: "Allow this user to use the path, or pass another one.",
    errno.EPERM: "Allow this user to use the path, or pass another one.",
    errno.EROFS: "Pass a path that can be written.",
    errno.ENOSPC: "Free some space on the disk, or pass a path on another one.",
    errno.EDQUOT: "Free some space on the disk, or pass a path on another one.",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f), or pass a path on another disk.",
    errno.EIO: "Check the disk, or pass a path on another one.",
    errno.EEXIST: "Delete it, or pass another path.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}
"""What to do about an error of the operating system that no command explains."""

START = """ctx1 searches your own documents in several steps.

  ctx1 index notes/                      makes an index of a folder in .ctx1
  ctx1 search "who taught the founder?"  ranks the documents, with the best sentence of each
  ctx1 ask "who taught the founder?"     lets a language model answer, and checks its citations
  ctx1 ui notes/                         indexes a folder and opens a page to ask in your browser
  ctx1 demo                              answers three questions about 62 bundled passages

ctx1 --help lists all commands. ctx1 COMMAND --help describes the options of a command."""

HELP = """Search your own documents in several steps, and prune the context of agents.

  ctx1 index notes/                      makes an index of a folder in .ctx1
  ctx1 search "who taught the founder?"  ranks the documents of the index

Every command takes --json, which prints data on stdout and everything else on stderr. With --config FILE.toml, a
command reads options from a file.
"""


def _add_commands(group: App, headings: Mapping[str, Mapping[str, str]]) -> None:
    """Add commands to a group under headings, each as `module:function`.

    A module is imported when its command is named or listed.
    """
    for number, (heading, commands) in enumerate(headings.items()):
        listed_under = Group(heading, sort_key=number)
        for place, (name, location) in enumerate(commands.items()):
            group.command(location, name=name, group=listed_under, sort_key=place)


def _default_text(value: Any) -> str:
    """Return a default for the help, or an empty text if there is nothing to say."""
    if value is None or value is False or value in ((), ""):
        return ""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


synth = App(
    "synth",
    help="""Make tasks: questions with answers and gold documents.

`ctx1 train` learns from tasks, and `ctx1 eval` measures systems on them. The shortest way is `ctx1 synth tasks`, then
`ctx1 synth split`.
""",
)
_add_commands(
    synth,
    {
        "From an index": {
            "tasks": "context_agent.cli.synth_tasks:tasks",
            "from-feedback": "context_agent.cli.synth_feedback:from_feedback",
        },
        "From an invented world": {"world": "context_agent.cli.synth_world:world"},
        "Stages of a language model": {
            "explore": "context_agent.cli.synth_stages:explore",
            "write": "context_agent.cli.synth_stages:write",
            "verify": "context_agent.cli.synth_stages:verify",
            "distract": "context_agent.cli.synth_stages:distract",
            "extend": "context_agent.cli.synth_stages:extend",
        },
        "Quality": {
            "filter": "context_agent.cli.synth_filter:filter_tasks",
            "review": "context_agent.cli.synth_review:review",
        },
        "Sets": {
            "split": "context_agent.cli.synth_sets:split",
            "check": "context_agent.cli.synth_sets:check",
            "card": "context_agent.cli.synth_sets:card",
            "export": "context_agent.cli.synth_sets:export",
        },
        "Demonstrations": {
            "trajectories": "context_agent.cli.synth_trajectories:trajectories",
            "replay-check": "context_agent.cli.synth_replay:replay_check",
        },
    },
)

train = App("train", help="Train a policy on your own questions.")
_add_commands(
    train,
    {
        "Bridge policy": {"bridge": "context_agent.cli.train_bridge:bridge"},
        "Language models": {
            "sft": "context_agent.cli.train:sft",
            "rl": "context_agent.cli.train:rl",
            "merge": "context_agent.cli.train_export:merge",
            "export": "context_agent.cli.train_export:export",
            "judge-check": "context_agent.cli.train_judge:judge_check",
            "verl": "context_agent.cli.train_verl:verl",
        },
        "Pruning": {"pruner": "context_agent.cli.train_pruner:pruner"},
        "Try it": {"demo": "context_agent.cli.train_demo:demo"},
    },
)

cli = App(
    "ctx1",
    help=HELP,
    version=f"ctx1 {__version__}",
    config=(
        record_invocation,
        apply_config_file,
        expand_home,
        refuse_fractions,
        refuse_empty_paths,
        refuse_shared_files,
    ),
    group_parameters=OWN,
    group_commands=Group(OWN.name, sort_key=9),
    default_parameter=Parameter(negative=(), allow_repeating=True, show_default=_default_text),
    help_format="plaintext",
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
_add_commands(
    cli,
    {
        "Search": {
            "ui": "context_agent.cli.ui:ui",
            "index": "context_agent.cli.index:index",
            "sources": "context_agent.cli.sources:sources",
            "search": "context_agent.cli.search:search",
            "ask": "context_agent.cli.ask:ask",
            "view": "context_agent.cli.view:view",
        },
        "Prune": {
            "prune": "context_agent.cli.prune:prune",
            "proxy": "context_agent.cli.proxy:proxy",
            "wrap": "context_agent.cli.wrap:wrap",
            "unwrap": "context_agent.cli.wrap:unwrap",
        },
        "Serve": {
            "serve": "context_agent.cli.serve:serve",
            "mcp": "context_agent.cli.mcp:mcp",
            "feedback": "context_agent.cli.feedback:feedback",
        },
        "Measure": {"eval": "context_agent.cli.eval:evaluate"},
        "Make data and train": {"synth": f"{__name__}:synth", "train": f"{__name__}:train"},
        "Try and check": {
            "demo": "context_agent.cli.demo:demo",
            "proof": "context_agent.cli.proof:proof",
            "doctor": "context_agent.cli.doctor:doctor",
            "config": "context_agent.cli.config:config",
            "completion": "context_agent.cli.completion:completion",
        },
    },
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code. Each error is one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_guarded(lambda: _dispatch(words), debug="--debug" in _split_texts(words)[0])


def _split_texts(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line at `--`. The words after it are not options of the command."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end:]


def _dispatch(words: list[str]) -> Any:
    if not words:
        output.echo(START)
        return None
    options, texts = _split_texts(words)
    cli.help_formatter = TwoColumns(cli, whole="--help-all" in options)
    set_texts(texts[1:])
    try:
        return cli(["--help" if word == "--help-all" else word for word in options] + texts)
    finally:
        set_invocation(None)


def run_guarded(work: Callable[[], object], *, debug: bool) -> int:
    """Run a command's work, and return the exit code. If the work returns an integer, it is the exit code.

    Each error is printed as one line on stderr.
    """
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    # After Ctrl-C, asyncio would log every task that the interrupt ended.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        code = work()
    except CycloptsError as error:
        _print_usage_error(error)
        return MISUSED
    except KeyboardInterrupt as error:
        # The message may say what the command has stored.
        details = str(error)
        output.note(f"interrupted: {details}" if details else "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`ctx1 search ... | head`). Python would report that again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 (a user gets a line, not a stack trace)
        return _print_error(error, debug=debug or bool(os.environ.get("CTX1_DEBUG")))
    return code if isinstance(code, int) else 0


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller closed, as with `>&-`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (it stays open to the end)


def _print_usage_error(error: CycloptsError) -> None:
    path = " ".join(["ctx1", *(error.command_chain or ())])
    message = _usage_message(error)
    if isinstance(error, UnknownOptionError) and path.endswith("wrap"):
        message += f" Options of the agent go behind --, as in `{path} codex -- --model NAME`."
    output.echo(" ".join(f"{path}: {message} ({path} --help)".split()), err=True)


def _usage_message(error: CycloptsError) -> str:
    """Return the message of cyclopts, or a shorter one that says what to do."""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]) if word.startswith("-"):
            return f"The option {word} must come after the name of a command."
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            index = _likely_index(error)
            remedy = (
                f"To search the index in {index}, pass --path {shlex.quote(index)}."
                if index
                else "Put text with spaces in quotes."
            )
            return f"Unexpected argument {word!r}. {remedy}"
        case MissingArgumentError(keyword=str(option)):
            return f"{option} needs a value."
        case MissingArgumentError(argument=Argument(name=name)):
            return f"{name} is missing."
        case ValidationError(argument=Argument(name=name, value=tuple()), exception_message=reason):
            return f"Invalid value for {name}: {reason}"
    return str(error)


def _likely_index(error: UnusedCliTokensError) -> str | None:
    """Return the folder that stands where the question of a search belongs."""
    command, *words = error.root_input_tokens or [""]
    return next((word for word in words if Path(word).is_dir()), None) if command in {"search", "ask"} else None


def _print_error(error: Exception, *, debug: bool) -> int:
    """Print the error, and return the exit code. With `debug`, also print the traceback."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ContextAgentError):
        hint = " To search by words alone, pass --embedder none." if isinstance(error, EmbedderError) else ""
        output.note(" ".join(f"{error}.{hint}".split()) if hint else " ".join(str(error).split()))
    elif isinstance(error, OSError) and error.strerror:
        if error.errno == errno.ENOENT and not error.filename and not _working_folder_exists():
            output.note("the working folder was deleted. Change to an existing folder, and run the command again.")
        else:
            place = f": {error.filename}" if error.filename else ""
            output.note(f"{error.strerror}{place}. {_OS_REMEDIES.get(error.errno or 0, 'Check the path.')}")
    else:
        hint = "" if debug else ". To see the traceback, pass --debug."
        output.note(f"unexpected {type(error).__name__}: {error}{hint}")
    return MISUSED if isinstance(error, ConfigError) else FAILED


def _working_folder_exists() -> bool:
    try:
        return Path.cwd().exists()
    except OSError:
        return False
