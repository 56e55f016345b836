"""Recorded episodes in the form that the viewer reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from context_agent.errors import (
    DataError,
    TrajectoryError,
)
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_folder import read_all
from context_agent.integrations.feedback import FeedbackLog
from context_agent.pruning.view import ToolResult
from context_agent.web import viewer
from context_agent.web.viewer.model import view_data


def episode_data(log: FeedbackLog, name: str) -> dict[str, Any]:
    """Return a recorded episode and the episodes of its sub-agents in the form that the viewer reads.

    The data contains no path of a file.

    Args:
        log: The log in the folder of the trajectories.
        name: The id of the trajectory.

    Raises:
        DataError: If the trajectory is unknown or cannot be shown.
    """
    log.header(name)
    main = log.folder / f"{name}.jsonl"
    try:
        (loaded,) = read_all([main]).loaded
        shown = view_data(read_all([main, *_sub_agents(log, loaded.trajectory)]))
    except DataError:  # Its message names the path.
        raise DataError(
            f"the trajectory {name!r} cannot be read, because its file is damaged or another version of context-agent "
            "wrote it. Search again."
        ) from None
    if not shown.rows:
        raise DataError(f"the trajectory {name!r} cannot be shown, because it has no complete episode. Search again.")
    rows = tuple(replace(row, file=Path(row.file).name, run="") for row in shown.rows)
    return viewer.page_data(replace(shown, rows=rows, problems=()))


def _sub_agents(log: FeedbackLog, trajectory: Trajectory) -> Iterator[Path]:
    """Yield the existing files of the sub-agents that the trajectory started."""
    for event in trajectory.events:
        for sub_agent in event.delegated if isinstance(event, ToolResult) else ():
            with suppress(TrajectoryError):
                log.header(sub_agent.id)
                yield log.folder / f"{sub_agent.id}.jsonl"
