"""The command `ctx1 view`, which shows trajectories as a page in the browser or as text on the terminal."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import EXISTING_FILE, EXISTING_PATH, OUTPUT_FILE_VALUE, REQUIRED, CommonOptions
from context_agent.cli.prune_options import PruneOptions
from context_agent.cli.saved_conversation import read_conversation
from context_agent.errors import ConfigError, DataError, joined_reasons
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.pruning import ContextPruner
    from context_agent.web.viewer.model import ViewData


PAGE_NAME = "view.html"
"""Name of the page for a folder or for several paths."""
MAX_NAMES = 4
"""Maximum number of paths in the page's title."""


def view(
    *paths: Annotated[Path, EXISTING_PATH, REQUIRED],
    out: Annotated[
        Path | None,
        OUTPUT_FILE_VALUE,
        Parameter(metavar="FILE.html", show_default=f"FILE.html for FILE.jsonl, {PAGE_NAME} in a folder"),
    ] = None,
    open_browser: Annotated[bool, Parameter(name="--open")] = False,
    gold: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.jsonl")] = None,
    text: bool = False,
    pruning: PruneOptions = PruneOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show trajectories, or what pruning removes from a conversation.

    The page shows the context turn by turn, every call and the ranking. It is a single file that works offline. --json
    prints a line of JSON for each trajectory and writes a page only with --out. If a file cannot be shown, the
    others are shown, and the exit code is 1.

    For a conversation, the page shows what is removed before each call of the model, why, and what this saves and
    costs. The options under Pruning apply. --json prints a report for each call. If there are more than 100 calls, the
    latest 100 are shown.

    Args:
        paths: Trajectory files, folders with trajectory files, or one FILE.json with a conversation as for
            ctx1 prune.
        out: Write the page to this file (- for stdout).
        open_browser: Open the page in the browser.
        gold: Question file; the page marks its gold documents and facts.
        text: Print the trajectories on the terminal instead of writing a page.
    """
    if text and (out or open_browser or common.json):
        raise ConfigError(
            "--text prints on the terminal, so it cannot be combined with --out, --open or --json. Remove one of them."
        )
    if str(out) == "-" and (common.json or open_browser):
        raise ConfigError(
            "--out - writes the page to stdout, so it cannot be combined with --json or --open. Remove one of them."
        )
    if len(paths) == 1 and paths[0].suffix == ".json":
        if gold or text:
            raise ConfigError(
                "--gold and --text are for trajectories. To show a conversation as text, use `ctx1 prune`."
            )
        return _view_conversation(paths[0], pruning.open(), out, open_browser=open_browser, as_json=common.json)
    data = _load(paths, gold)
    for problem in data.problems:
        output.note(problem)
    if data.ignored:
        output.note(f"ignored {counted(data.ignored, 'other file')}")
    if text:
        from context_agent.cli.turns import show

        show(output.stdout(), data)
    if common.json:
        for row in data.rows:
            output.print_json(asdict(row))
    if not text and (out or open_browser or not common.json):
        from context_agent.web.viewer import build_page

        number = len(data.rows)
        contents = f"{number:,} {'trajectory' if number == 1 else 'trajectories'}"
        _write(build_page(data, title=_title(paths)), out or _default_path(paths), contents, open_browser)
    return 1 if data.problems else 0


def _view_conversation(
    file: Path, pruner: ContextPruner, out: Path | None, *, open_browser: bool, as_json: bool
) -> int:
    from context_agent.web.conversation import conversation_page, model_calls

    messages = read_conversation(file).bundle.messages
    calls = model_calls(messages, pruner)
    for call in calls if as_json else ():
        output.print_json({"messages": call.messages, **call.report.to_json()})
    if out or open_browser or not as_json:
        html = conversation_page(messages, calls, f"Pruning: {file.name}")
        _write(html, out or file.with_suffix(".html"), counted(len(calls), "model call"), open_browser)
    return 1 if any(call.report.outcome == "passed through" for call in calls) else 0


def _load(paths: tuple[Path, ...], gold: Path | None) -> ViewData:
    from context_agent._support.question_files import load_questions
    from context_agent.harness.trajectory_folder import read_all
    from context_agent.web.viewer.model import GoldQuestions, view_data

    problems: list[str] = []
    questions = None if gold is None else GoldQuestions(load_questions(gold, problems=problems))
    with output.progress("Reading", "files") as advance:
        files = read_all(paths, advance)
    data = view_data(files, questions, problems=problems)
    if not data.rows:
        reasons, remedy = joined_reasons(data.problems[:3], "Record some with `ctx1 search --save FOLDER`.")
        raise DataError(f"no trajectory could be shown ({reasons}). {remedy}")
    return data


def _default_path(paths: tuple[Path, ...]) -> Path:
    if len(paths) > 1:
        return Path(PAGE_NAME)
    return paths[0] / PAGE_NAME if paths[0].is_dir() else paths[0].with_suffix(".html")


def _title(paths: tuple[Path, ...]) -> str:
    names = [path.resolve().name for path in paths]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"Trajectories: {', '.join(names[:MAX_NAMES])}{more}"


def _write(page: str, out: Path, contents: str, open_browser: bool) -> None:
    """Write the page atomically and print its path."""
    from context_agent._support.atomic_files import replace_file

    if str(out) == "-":
        # A page is always UTF-8, whatever the encoding of the terminal.
        sys.stdout.buffer.write(page.encode())
        sys.stdout.flush()
        return
    replace_file(out, page)
    output.echo(f"{out}: {contents}, {len(page) / 1e6:.1f} MB", err=True)
    if open_browser and not webbrowser.open(out.resolve().as_uri()):
        output.note(f"no browser can be opened. Open this file: {out.resolve()}")
