"""The group of commands, and what becomes of an error.

Exit codes: 0 done; 1 the work failed, wholly or for some questions; 2 the command was called wrongly (an unknown
option, a config file that does not fit); 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

from context_agent.cli import console
from context_agent.cli.group import LazyGroup
from context_agent.errors import ConfigError, ContextAgentError

COMMANDS = {
    "index": "context_agent.cli.index:index",
    "search": "context_agent.cli.search:search",
    "demo": "context_agent.cli.demo:demo",
    "synth": "context_agent.cli.synth:synth",
    "train": "context_agent.cli.train:train",
    "view": "context_agent.cli.view:view",
    "eval": "context_agent.cli.eval:evaluate",
    "serve": "context_agent.cli.serve:serve",
    "feedback": "context_agent.cli.feedback:feedback",
    "mcp": "context_agent.cli.mcp:mcp",
    "doctor": "context_agent.cli.doctor:doctor",
}
"""Where each command lives; its module is imported when the command is named, or listed."""

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


HELP = """Multi-step retrieval over a folder of text: index it, ask questions, get ranked documents.

\b
  ctx1 index notes/                      makes an index in .ctx1
  ctx1 search "who taught the founder?"  searches it

Every command takes --json (data on stdout, all else on stderr) and --config FILE.toml.
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="context-agent", prog_name="ctx1", message="%(prog)s %(version)s")
def cli() -> None:
    """The group; `HELP` is what a user reads."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; errors are told on stderr in one line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    # What asyncio says about tasks that an interrupt ended is of no use to whoever pressed Ctrl-C.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        result = cli.main(arguments, prog_name="ctx1", standalone_mode=False)
    except click.ClickException as error:
        _tell(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("ctx1: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`ctx1 search ... | head`); python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 (a user gets a line, not a stack trace)
        return _failed(error, arguments)
    return result if isinstance(result, int) else 0


def _tell(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "ctx1"
    hint = f" ({path} --help)" if isinstance(error, click.UsageError) else ""
    console.note(f"{path}: {error.format_message().rstrip()}{hint}")


def _failed(error: Exception, arguments: Sequence[str] | None) -> int:
    """Tells what went wrong, and where with --debug or CTX1_DEBUG."""
    debug = "--debug" in (sys.argv if arguments is None else arguments) or bool(os.environ.get("CTX1_DEBUG"))
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ContextAgentError):
        console.note(f"ctx1: {error}")
    elif isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        console.note(f"ctx1: {error.strerror}:{where}")
    else:
        hint = "" if debug else "; --debug shows where"
        console.note(f"ctx1: unexpected {type(error).__name__}: {error}{hint}")
    return MISUSED if isinstance(error, ConfigError) else FAILED
