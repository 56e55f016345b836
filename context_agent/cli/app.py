"""The commands of `ctx1`, and the handling of their errors.

Exit code 0 means that the work is done, and 1 that it failed for some or all questions. Exit code 2 means wrong usage,
such as an unknown option or an invalid config file. Exit code 130 means that the user interrupted the command.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from context_agent.cli import output
from context_agent.cli.command import CommandGroup
from context_agent.errors import ConfigError, ContextAgentError, EmbedderError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

START = """ctx1 searches your own documents in several steps.

  ctx1 index notes/                      makes an index of a folder in .ctx1
  ctx1 search "who taught the founder?"  ranks the documents, with the best sentence of each
  ctx1 ask "who taught the founder?"     has a language model answer, and checks its citations
  ctx1 ui notes/                         indexes a folder and opens a page to ask in your browser
  ctx1 demo                              three questions about 62 bundled passages

ctx1 --help lists all commands, ctx1 COMMAND --help the options of one."""

HELP = """Multi-step search over your own documents: index them, ask questions, get ranked documents.

\b
  ctx1 index notes/                      creates an index in .ctx1
  ctx1 search "who taught the founder?"  searches it

Every command takes --json (data on stdout, everything else on stderr) and --config FILE.toml (options from a file).
"""

synth = CommandGroup(
    "synth",
    {
        "From an index": {
            "tasks": "context_agent.cli.synth_tasks:tasks",
            "from-feedback": "context_agent.cli.synth_demonstrations:from_feedback",
        },
        "From an invented world": {"world": "context_agent.cli.synth_tasks:world"},
        "Stages of a language model": {
            "explore": "context_agent.cli.synth_tasks:explore",
            "write": "context_agent.cli.synth_tasks:write",
            "verify": "context_agent.cli.synth_tasks:verify",
            "distract": "context_agent.cli.synth_tasks:distract",
            "extend": "context_agent.cli.synth_tasks:extend",
        },
        "Quality": {
            "filter": "context_agent.cli.synth_quality:filter_tasks",
            "review": "context_agent.cli.synth_quality:review",
        },
        "Sets": {
            "split": "context_agent.cli.synth_quality:split",
            "check": "context_agent.cli.synth_quality:check",
            "card": "context_agent.cli.synth_quality:card",
            "export": "context_agent.cli.synth_quality:export",
        },
        "Demonstrations": {
            "trajectories": "context_agent.cli.synth_demonstrations:trajectories",
            "replay-check": "context_agent.cli.synth_demonstrations:replay_check",
        },
    },
    """Make tasks: questions with answers and gold documents.

`ctx1 train` learns from tasks, and `ctx1 eval` measures systems on them. The shortest way is `ctx1 synth tasks`, then
`ctx1 synth split`.
""",
)

train = CommandGroup(
    "train",
    {
        "Bridge policy": {"bridge": "context_agent.cli.train:bridge"},
        "Language models": {
            "sft": "context_agent.cli.train:sft",
            "rl": "context_agent.cli.train:rl",
            "merge": "context_agent.cli.trained:merge",
            "export": "context_agent.cli.trained:export",
            "judge-check": "context_agent.cli.train:judge_check",
            "verl": "context_agent.cli.train:verl",
        },
        "Pruning": {"pruner": "context_agent.cli.train:pruner"},
        "Try it": {"demo": "context_agent.cli.train:demo"},
    },
    "Train a policy on your own questions.",
)

cli = CommandGroup(
    "ctx1",
    {
        "Search": {
            "ui": "context_agent.cli.serve:ui",
            "index": "context_agent.cli.index:index",
            "sources": "context_agent.cli.sources:sources",
            "search": "context_agent.cli.search:search",
            "ask": "context_agent.cli.search:ask",
            "prune": "context_agent.cli.prune:prune",
            "view": "context_agent.cli.view:view",
        },
        "Serve": {
            "serve": "context_agent.cli.serve:serve",
            "mcp": "context_agent.cli.serve:mcp",
            "proxy": "context_agent.cli.prune:proxy",
            "wrap": "context_agent.cli.wrap:wrap",
            "unwrap": "context_agent.cli.wrap:unwrap",
            "feedback": "context_agent.cli.view:feedback",
        },
        "Measure": {"eval": "context_agent.cli.eval:evaluate"},
        "Make data and train": {"synth": f"{__name__}:synth", "train": f"{__name__}:train"},
        "Try and check": {
            "demo": "context_agent.cli.demo:demo",
            "proof": "context_agent.cli.proof:proof",
            "doctor": "context_agent.cli.doctor:doctor",
            "config": "context_agent.cli.doctor:config",
            "completion": "context_agent.cli.doctor:completion",
        },
    },
    HELP,
    start_page=START,
)
cli.context_settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
click.version_option(package_name="context-agent", prog_name="ctx1", message="%(prog)s %(version)s")(cli)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code. Each error is one line on stderr."""
    debug = "--debug" in (sys.argv if arguments is None else arguments)
    return run_guarded(lambda: cli.main(arguments, prog_name="ctx1", standalone_mode=False), debug=debug)


def run_guarded(work: Callable[[], object], *, debug: bool) -> int:
    """Run a command's work, and return the exit code. If the work returns an integer, it is the exit code.

    Each error is printed as one line on stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    # After Ctrl-C, asyncio would log every task that the interrupt ended.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        code = work()
    except click.ClickException as error:
        _print_usage_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        # click raises `Abort` from the interrupt, whose message may say what the command has stored.
        details = str(error.__cause__ or error)
        output.note(f"interrupted: {details}" if details else "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`ctx1 search ... | head`). Python would report that again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 (a user gets a line, not a stack trace)
        return _print_error(error, debug=debug or bool(os.environ.get("CTX1_DEBUG")))
    return code if isinstance(code, int) else 0


def _print_usage_error(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "ctx1"
    message = error.format_message().rstrip()
    if "unexpected extra argument" in message:
        message += ": put text with spaces in quotes"
    if isinstance(error, click.NoSuchOption) and path.endswith("wrap"):
        message += " Options of the agent go behind --, as in: ctx1 wrap codex -- --model NAME"
    hint = f" ({path} --help)" if isinstance(error, click.UsageError) else ""
    output.echo(f"{path}: {message}{hint}", err=True)


def _print_error(error: Exception, *, debug: bool) -> int:
    """Print the error, and return the exit code. With `debug`, also print the traceback."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ContextAgentError):
        hint = " --embedder none searches by words alone" if isinstance(error, EmbedderError) else ""
        output.note(f"{error}.{hint}" if hint else str(error))
    elif isinstance(error, OSError) and error.strerror:
        file = f" {error.filename}" if error.filename else ""
        output.note(f"{error.strerror}:{file}")
    else:
        hint = "" if debug else "; --debug shows the traceback"
        output.note(f"unexpected {type(error).__name__}: {error}{hint}")
    return MISUSED if isinstance(error, ConfigError) else FAILED
