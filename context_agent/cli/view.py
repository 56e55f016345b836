"""The commands `ctx1 view` and `ctx1 feedback`.

`ctx1 view` shows trajectories as one page that opens in any browser, or as text on the terminal. `ctx1 feedback` adds
judgments on searches with saved trajectories.
"""

from __future__ import annotations

import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from context_agent.cli import output
from context_agent.cli.command import EXISTING_FOLDER, FILE, INPUT, Argument, IntegerRange, Json, Option, command
from context_agent.cli.options import PruneOptions
from context_agent.cli.prune import read_conversation
from context_agent.errors import DataError

if TYPE_CHECKING:
    from context_agent.integrations.feedback import FeedbackLog
    from context_agent.pruning import ContextPruner
    from context_agent.web.viewer.model import ViewData


PAGE_NAME = "view.html"
"""Name of the page for a folder or for several paths."""
MAX_NAMES = 4
"""Maximum number of paths in the page's title."""
OUTPUT = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@command
def view(
    paths: Annotated[tuple[Path, ...], Argument("PATH...", click.Path(path_type=Path))],
    *,
    out: Annotated[
        Path | None,
        Option(
            "Write the page to this file (- for stdout).",
            OUTPUT,
            "FILE.html",
            default=f"FILE.html for FILE.jsonl, {PAGE_NAME} in a folder",
        ),
    ] = None,
    open_browser: Annotated[bool, Option("Open the page in the browser.", flag="--open")],
    gold: Annotated[
        Path | None, Option("Question file; the page marks its gold documents and facts.", FILE, "FILE.jsonl")
    ] = None,
    text: Annotated[bool, Option("Print the trajectories on the terminal instead of writing a page.")],
    pruning: PruneOptions,
    as_json: Json,
) -> int:
    """Show trajectories, or what pruning removes from a conversation.

    PATH is a trajectory file or a folder with trajectory files. The page shows the context turn by turn, every call and
    the ranking. It is a single file that works offline. --json prints a line of JSON for each trajectory and writes a
    page only with --out. The exit code is 1 if a file could not be shown. The others are shown.

    PATH may also be one FILE.json with the conversation of any agent, as for ctx1 prune. The page shows what is removed
    before each call of the model, why, and what this saves and costs. The options under Pruning apply. --json prints a
    report for each call. Of a long conversation, the latest 100 calls are shown.
    """
    if text and (out or open_browser or as_json):
        raise click.UsageError(
            "--text prints on the terminal and cannot be combined with --out, --open or --json: remove one of them"
        )
    if str(out) == "-" and (as_json or open_browser):
        raise click.UsageError(
            "--out - writes the page to stdout and cannot be combined with --json or --open: remove one of them"
        )
    if len(paths) == 1 and paths[0].suffix == ".json":
        if gold or text:
            raise click.UsageError("--gold and --text are for trajectories; for a conversation as text use ctx1 prune")
        return _view_conversation(paths[0], pruning.open(), out, open_browser=open_browser, as_json=as_json)
    data = _load(paths, gold)
    for problem in data.problems:
        output.note(problem)
    if data.ignored:
        output.note(f"ignored {output.count(data.ignored, 'other file')}")
    if text:
        from context_agent.cli.turns import show

        show(output.stdout(), data)
    if as_json:
        for row in data.rows:
            output.print_json(asdict(row))
    if not text and (out or open_browser or not as_json):
        from context_agent.web.viewer import build_page

        number = len(data.rows)
        contents = f"{number:,} {'trajectory' if number == 1 else 'trajectories'}"
        _write(build_page(data, title=_title(paths)), out or _default_path(paths), contents, open_browser)
    return 1 if data.problems else 0


def _view_conversation(
    file: Path, pruner: ContextPruner, out: Path | None, *, open_browser: bool, as_json: bool
) -> int:
    from context_agent.web.conversation import conversation_page, model_calls

    _, _, messages = read_conversation(file)
    calls = model_calls(messages, pruner)
    for call in calls if as_json else ():
        output.print_json({"messages": call.messages, **call.report.to_json()})
    if out or open_browser or not as_json:
        html = conversation_page(messages, calls, f"Pruning: {file.name}")
        _write(html, out or file.with_suffix(".html"), output.count(len(calls), "model call"), open_browser)
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
        raise DataError(f"no trajectory could be shown: {'; '.join(data.problems[:3])}")
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
        click.echo(page, nl=False)
        return
    replace_file(out, page)
    output.echo(f"{out}: {contents}, {len(page) / 1e6:.1f} MB", err=True)
    if open_browser and not webbrowser.open(out.resolve().as_uri()):
        output.note(f"cannot open a browser; open this file: {out.resolve()}")


@command
def feedback(
    trajectory: Annotated[str | None, Argument("[TRAJECTORY]")] = None,
    *,
    trajectories: Annotated[Path, Option("Folder of the trajectories.", EXISTING_FOLDER)],
    relevant: Annotated[
        tuple[str, ...], Option("Document or passage that answers the question; repeatable.", metavar="ID")
    ] = (),
    irrelevant: Annotated[tuple[str, ...], Option("Document or passage that does not; repeatable.", metavar="ID")] = (),
    rating: Annotated[int | None, Option("Quality of the answer, 5 is best.", IntegerRange(1, 5))] = None,
    comment: Annotated[str, Option("Comment in your own words.")] = "",
    user: Annotated[str, Option("Name of the judge.", metavar="NAME")] = "",
    identifier: Annotated[
        str | None, Option("Id of the judgment.", metavar="ID", flag="--id", default="a hash of its content")
    ] = None,
    file: Annotated[
        Path | None,
        Option("File with a judgment per line, with the fields of feedback.jsonl (- for stdin).", INPUT, "FILE.jsonl"),
    ] = None,
    as_json: Json,
) -> int:
    """Judge the result of a search.

      ctx1 feedback 5f0c --trajectories runs --relevant d7 --rating 4
      ctx1 feedback --file judgments.jsonl --trajectories runs

    TRAJECTORY is the id of a trajectory, or of the request to `ctx1 serve`. Judgments are appended to
    FOLDER/feedback.jsonl, each only once. `ctx1 synth from-feedback` turns them into training tasks. The exit code is 1
    if a row of --file was refused.
    """
    from context_agent.integrations.feedback import FeedbackLog, judgment

    log = FeedbackLog(trajectories)
    if (trajectory is None) == (file is None):
        raise click.UsageError("give one TRAJECTORY, or a file of judgments with --file")
    if file is not None:
        return _add_file(log, file, as_json=as_json)
    verdict = judgment(
        trajectory=log.resolve(trajectory or ""),
        relevant=relevant,
        irrelevant=irrelevant,
        rating=rating,
        comment=comment,
        user=user,
        id=identifier,
    )
    created = log.add(verdict)
    output.result(
        {"id": verdict.id, "trajectory": verdict.trajectory, "created": created},
        f"judgment {verdict.id} {'written' if created else 'was already written'}",
        as_json=as_json,
    )
    return 0


def _add_file(log: FeedbackLog, file: Path, *, as_json: bool) -> int:
    from context_agent.integrations.feedback import load_judgments

    problems: list[str] = []
    numbers = {"written": 0, "known": 0}
    for verdict in load_judgments(str(file), problems=problems):
        try:
            numbers["written" if log.add(verdict) else "known"] += 1
        except DataError as error:
            problems.append(f"judgment {verdict.id!r}: {error}")
    output.note_problems(problems)
    text = (
        f"{numbers['written']:,} judgments written, {numbers['known']:,} were already written, "
        f"{len(problems):,} refused"
    )
    output.result({**numbers, "refused": len(problems)}, text, as_json=as_json)
    return 1 if problems else 0
