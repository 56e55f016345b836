"""The command `ctx1 feedback`, which adds judgments on searches with saved trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from context_agent.cli import output
from context_agent.cli.parameters import DASH_VALUE, EXISTING_FOLDER, INPUT_FILE_VALUE, TEXT, CommonOptions
from context_agent.errors import ConfigError, DataError

if TYPE_CHECKING:
    from context_agent.integrations.feedback import FeedbackLog


def feedback(
    trajectory: str | None = None,
    /,
    *,
    trajectories: Annotated[Path, EXISTING_FOLDER],
    relevant: Annotated[tuple[str, ...], Parameter(metavar="ID")] = (),
    irrelevant: Annotated[tuple[str, ...], Parameter(metavar="ID")] = (),
    rating: Annotated[int | None, Parameter(validator=Number(gte=1, lte=5), metavar="N")] = None,
    comment: Annotated[str, TEXT, DASH_VALUE] = "",
    user: Annotated[str, Parameter(metavar="NAME")] = "",
    identifier: Annotated[
        str | None, Parameter(name="--id", metavar="ID", show_default="a hash of its content")
    ] = None,
    file: Annotated[Path | None, INPUT_FILE_VALUE, Parameter(metavar="FILE.jsonl")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Judge the result of a search.

      ctx1 feedback TRAJECTORY --trajectories runs --relevant d7 --rating 4
      ctx1 feedback --file judgments.jsonl --trajectories runs

    Judgments are appended to FOLDER/feedback.jsonl, each only once. `ctx1 synth from-feedback` turns them into training
    tasks. The exit code is 1 if a row of --file was refused.

    Args:
        trajectory: Id of a trajectory, which is the name of its file without .jsonl, or of the request to `ctx1 serve`.
        trajectories: Folder of the trajectories.
        relevant: Document or passage that answers the question; repeatable.
        irrelevant: Document or passage that does not answer it; repeatable.
        rating: Quality of the answer, from 1 (worst) to 5 (best).
        comment: Comment in your own words.
        user: Name of the judge.
        identifier: Id of the judgment.
        file: File with a judgment per line, with the fields of feedback.jsonl (- for stdin).
    """
    from context_agent.integrations.feedback import FeedbackLog, judgment

    log = FeedbackLog(trajectories)
    if trajectory is None and file is None:
        raise ConfigError("there is no judgment. Pass one TRAJECTORY, or a file of judgments with --file.")
    if trajectory is not None and file is not None:
        raise ConfigError("TRAJECTORY and --file both name what to judge. Remove one of them.")
    if file is not None:
        return _add_file(log, file, as_json=common.json)
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
        as_json=common.json,
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
