"""A folder of selected trajectories in the form that `ctx1 train sft` reads."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replacing
from context_agent._support.small_files import files_in, parse_json, require_files
from context_agent.errors import ConfigError
from context_agent.synth_data.demonstrations.runs import DROPPED, EPISODES, INDEX, KEPT, REPORT
from context_agent.synth_data.json_files import write_json, write_rows


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """A trajectory file with its row in the list of kept or dropped files."""

    path: Path
    row: dict[str, Any]


def write_selection(
    folder: Path, selected: Sequence[ReplayRow], dropped: Sequence[ReplayRow], report: dict[str, Any]
) -> None:
    """Copy the selected files to a folder that `ctx1 train sft` reads. Write both lists and a report.

    If an earlier call selected a file and this call does not, the file is deleted.

    Args:
        folder: The folder to write.
        selected: The files to copy, with their rows.
        dropped: The other files, with their rows.
        report: The content of the report.

    Raises:
        ConfigError: If `ctx1 synth trajectories` wrote the folder, or if two files have the same name.
        DataError: If the folder contains a link.
    """
    require_files(files_in(folder), links=False)
    if (folder / EPISODES).exists():
        raise ConfigError(
            f"{folder} contains the episodes of `ctx1 synth trajectories`, which would be mixed with the "
            "selected ones. Name another folder for the selection."
        )
    names = Counter(row.path.name for row in selected)
    if (twice := next((name for name, count in names.items() if count > 1), None)) is not None:
        raise ConfigError(f"{names[twice]} files have the name {twice}. Check their folders one at a time.")
    target = folder / KEPT
    target.mkdir(parents=True, exist_ok=True)
    for row in selected:
        with row.path.open("rb") as source, replacing(target / row.path.name) as copy:
            shutil.copyfileobj(source, copy)
    for name in _indexed_names(folder / INDEX) - set(names):
        (target / name).unlink(missing_ok=True)
    write_rows(folder / INDEX, ({"file": row.path.name, **row.row} for row in selected))
    write_rows(folder / DROPPED, ({"file": row.path.name, **row.row} for row in dropped))
    write_json(folder / REPORT, report)


def _indexed_names(index: Path) -> set[str]:
    """Return the file names in the list of an earlier call. That call copied only these files."""
    names = set()
    for line in index.read_text(encoding="utf-8").split("\n") if index.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            names.add(str(parse_json(line)["file"]))
    return {name for name in names if Path(name).name == name}
