"""The files of a world in a folder: corpus.jsonl.gz, queries.<split>.jsonl, world.json and README.md."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError
from context_agent.synth_data.json_files import write_json, write_rows
from context_agent.synth_data.sets.folder import CARD, CORPUS, queries_path, write_corpus
from context_agent.synth_data.stages import ProgressCallback
from context_agent.synth_data.world.closed_world import ClosedWorld
from context_agent.synth_data.world.graph import SPLITS

ABOUT = "world.json"


WORLD_LICENSE = "CC0-1.0: invented by a program, no rights reserved; any likeness to real names is chance"


def write_world(
    world: ClosedWorld, folder: Path, *, force: bool = False, report: ProgressCallback | None = None
) -> dict[str, Any]:
    """Write the world to a folder, and return the content of `world.json`.

    The files are written next to the folder, and moved into it when they are complete. So a killed run leaves no
    incomplete files in the folder.

    Args:
        world: The world.
        folder: The folder to write.
        force: True to replace a world's files in a folder that is not empty. Other files in it stay.
        report: A function that is called with the number of tasks written and the total.

    Raises:
        ConfigError: If the folder is a file, or if it is not empty and `force` is False.
    """
    _check_folder(folder, force)
    target = folder.resolve()
    partial = target.with_name(f".{target.name}.partial")
    if partial.is_symlink():
        partial.unlink()  # the folder that it leads to is someone else's
    shutil.rmtree(partial, ignore_errors=True)
    try:
        about = _write_files(world, partial, report)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ABOUT).unlink(missing_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == ABOUT):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return about


def _write_files(world: ClosedWorld, folder: Path, report: ProgressCallback | None) -> dict[str, Any]:
    counted = {split: Counter[str]() for split in SPLITS}
    write_corpus(folder / CORPUS, world.documents)
    for split in SPLITS:
        write_rows(queries_path(folder, split), _rows(world, split, counted, report))
    about = _world_info(world, counted)
    (folder / CARD).write_text(_card_text(about), encoding="utf-8", newline="\n")
    write_json(folder / ABOUT, about)
    return about


def _check_folder(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Pass a folder for the world.")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty. Use another folder, or replace the world in it with --force.")


def _rows(
    world: ClosedWorld, split: str, counted: Mapping[str, Counter[str]], report: ProgressCallback | None
) -> Iterator[dict[str, Any]]:
    """Yield a split's tasks as rows, and count them by type and hops."""
    for task in world.stream(split):
        counted[split][f"{task.type}, {task.hops}"] += 1
        if report is not None:
            report(sum(counts.total() for counts in counted.values()), world.settings.tasks)
        yield task.to_json()


def _world_info(world: ClosedWorld, counted: dict[str, Counter[str]]) -> dict[str, Any]:
    tasks = {split: dict(sorted(counts.items())) for split, counts in counted.items()}
    return {
        "name": world.name,
        **world.describe(),
        "documents": len(world.entity_documents),
        "tasks": {split: {"all": sum(counts.values()), **counts} for split, counts in tasks.items()},
        "split": "by document: no relation leads from an entity of one split to one of another",
        "license": WORLD_LICENSE,
    }


def _card_text(about: dict[str, Any]) -> str:
    settings = about["settings"]
    rows = "\n".join(f"| {split} | {counts['all']} |" for split, counts in about["tasks"].items())
    command = (
        f"ctx1 synth world --entities {settings['entities']} --seed {settings['seed']} --out FOLDER"
        f"{'' if settings['tasks'] is None else ' --tasks ' + str(settings['tasks'])}"
        f" --hops {settings['hops'][0]}-{settings['hops'][1]} --distractors {settings['distractors']}"
        f" --vocabulary {settings['vocabulary']}"
    )
    return f"""# {about["name"]}

An invented world: {about["documents"]} documents, each about one person, town, work, institution, region or prize
that does not exist, and questions about them whose answers follow from the documents alone.

| split | tasks |
|---|---|
{rows}

`{CORPUS}` has an `id`, a `title` and a `text` on each line. `queries.*.jsonl` has one task per line, with `question`,
`answer`, `gold` in hop order, `type`, `hops`, supporting quotes and distractors. Split {about["split"]}.

Made by `{command}`; the same command gives the same bytes.

License: {about["license"]}.
"""
