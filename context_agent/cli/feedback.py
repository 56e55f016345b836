"""`ctx1 feedback`: judgements on searches whose trajectories were saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from context_agent.cli import output
from context_agent.cli.command import EXISTING_FOLDER, INPUT, Argument, IntegerRange, Json, Option, command
from context_agent.errors import DataError

if TYPE_CHECKING:
    from context_agent.integrations.feedback import FeedbackLog


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
        str | None, Option("Id of the judgement.", metavar="ID", flag="--id", default="a hash of its content")
    ] = None,
    file: Annotated[
        Path | None,
        Option("File with a judgement per line, with the fields of feedback.jsonl (- for stdin).", INPUT, "FILE.jsonl"),
    ] = None,
    as_json: Json,
) -> int:
    """Judge the result of a search.

      ctx1 feedback 5f0c --trajectories runs --relevant d7 --rating 4
      ctx1 feedback --file judgements.jsonl --trajectories runs

    TRAJECTORY is the id of a trajectory, or of the request to `ctx1 serve`. Judgements are appended to
    FOLDER/feedback.jsonl, each only once. `ctx1 synth from-feedback` turns them into training tasks. The exit code is 1
    if a row of --file was refused.
    """
    from context_agent.integrations.feedback import FeedbackLog, judgement

    log = FeedbackLog(trajectories)
    if (trajectory is None) == (file is None):
        raise click.UsageError("give one TRAJECTORY, or a file of judgements with --file")
    if file is not None:
        return _add_file(log, file, as_json=as_json)
    verdict = judgement(
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
        f"judgement {verdict.id} {'written' if created else 'was already written'}",
        as_json=as_json,
    )
    return 0


def _add_file(log: FeedbackLog, file: Path, *, as_json: bool) -> int:
    from context_agent.integrations.feedback import load_judgements

    problems: list[str] = []
    numbers = {"written": 0, "known": 0}
    for verdict in load_judgements(str(file), problems=problems):
        try:
            numbers["written" if log.add(verdict) else "known"] += 1
        except DataError as error:
            problems.append(f"judgement {verdict.id!r}: {error}")
    output.note_problems(problems)
    text = (
        f"{numbers['written']:,} judgements written, {numbers['known']:,} were already written, "
        f"{len(problems):,} refused"
    )
    output.result({**numbers, "refused": len(problems)}, text, as_json=as_json)
    return 1 if problems else 0
