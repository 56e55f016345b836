"""Checkpoints of a run on disk. This module does not import torch.

A checkpoint is a folder `step-00000040`. It is written as `.step-00000040.partial`. When every file is synced,
`manifest.json` records the files' sizes and checksums, and the run's settings. One rename then makes the checkpoint
visible. If the process is killed, the earlier checkpoints stay intact, and at most one partial folder is left. The next
save or resume removes that folder. Only the newest `keep` checkpoints are kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from context_agent._support.atomic_files import sync_path
from context_agent._support.small_files import read_json
from context_agent._support.suggest import differing_settings, flat_settings
from context_agent.errors import ConfigError

CHECKPOINTS_FOLDER = "checkpoints"
"""The folder of the checkpoints in the folder of a run."""


MANIFEST = "manifest.json"
"""The file that records the sizes and checksums of a checkpoint's files, and the settings of its run."""


CHECKSUM_BLOCK = 1 << 20
"""Number of bytes of a file that are in memory at a time."""


CHECKPOINT_FORMAT = 1
"""Version of the checkpoint format."""


CHANGEABLE = (
    "out",
    "minutes",
    "threads",
    "model.revision",
    "model.gradient_checkpointing",
    "loss.pass_tokens",
    "checkpoints.",
    "evaluation.",
    "logging.",
    "expected.",
    "engine.base_url",
    "engine.adapters",
    "engine.timeout",
    "engine.batch",
    "data.dev",
    *(
        f"judge.{name}"
        for name in (
            "base_url",
            "api_key_env",
            "timeout",
            "retries",
            "concurrency",
            "price_",
            "max_calls",
            "max_tokens_total",
            "max_cost",
            "max_failed_steps",
            "calibration",
            "uncalibrated",
        )
    ),
)
"""Settings that may differ between a checkpoint and the run that resumes from it. All others affect what is learned.

Some of them decide the memory that a run needs. They change results only by rounding. `model.revision` may name the
commit of the hub that the checkpoint itself records.
"""


LOCATIONS = (
    "model.name",
    "model.adapter",
    "data.questions",
    "data.path",
    "data.documents",
    "data.trajectories",
    "episodes.searchers",
)
"""Settings that may name files or folders, which a user may have moved."""


EXTENDABLE = ("rollouts.steps", "sft.epochs")
"""Settings that a resumed run may raise in order to train longer."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: The folder.
        step: The number of updates.
        kind: The kind of training, `sft` or `rl`.
        settings: The settings of the checkpoint's run (`RunConfig.plain`).
        data: The digest of each kind of data that the run learned from. Checkpoints of an older version have none.
    """

    path: Path
    step: int
    kind: str
    settings: Mapping[str, Any]
    data: Mapping[str, str] = field(default_factory=dict)

    def check(self, kind: str, settings: Mapping[str, Any]) -> None:
        """Check that a run may resume from this checkpoint.

        A resumed run may train longer. It may not change any other setting that affects the result.

        Args:
            kind: The kind of training of the run.
            settings: The settings of the run.

        Raises:
            ConfigError: If the kind or a binding setting differs. The message lists the differences.
        """
        if self.kind != kind:
            raise ConfigError(
                f"{self.path} is a checkpoint of `ctx1 train {self.kind}`, not of `ctx1 train {kind}`. Name another "
                "folder with --out."
            )
        before, now = (binding_settings(each) for each in (self.settings, settings))
        longer = {key for key in EXTENDABLE if key in before and key in now and now[key] > before[key]}
        differences = differing_settings({**before, **{key: now[key] for key in longer}}, now)
        if differences:
            moved = any(before.get(key) != now.get(key) for key in LOCATIONS)
            link = " If a file or folder was moved, put a link to it at its old path." if moved else ""
            listed = "; ".join(differences[:4]) + (f"; {len(differences) - 4} more" if len(differences) > 4 else "")
            raise ConfigError(
                f"{self.path} was written with other settings ({listed}). Resume with those settings, of which only "
                f"{' and '.join(EXTENDABLE)} can be raised.{link} Or name another folder with --out."
            )


class Checkpoints:
    """The checkpoints in the folder of a run, and the methods to write and delete them."""

    def __init__(self, folder: Path, *, kind: str, settings: Mapping[str, Any], keep: int = 2) -> None:
        """Prepare to read and write checkpoints.

        Args:
            folder: The folder of the checkpoints.
            kind: The kind of training, `sft` or `rl`.
            settings: The settings of the run.
            keep: Number of newest checkpoints that are kept.

        Raises:
            ConfigError: If `keep` is below 2.
        """
        if keep < 2:
            raise ConfigError(f"keep must be at least 2, since the newest checkpoint may be damaged; got {keep}")
        self.folder = folder
        self.data: dict[str, str] = {}
        """The digest of each kind of data that the run learns from. Checkpoints record them."""
        self._kind = kind
        self._settings = dict(settings)
        self._keep = keep

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first."""
        checkpoints = (_read(path) for path in sorted(self.folder.glob("step-*")))
        return [checkpoint for checkpoint in checkpoints if checkpoint is not None]

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint whose files are as they were written. If there is none, return None.

        Raises:
            ConfigError: If the checkpoint belongs to another run.
        """
        newest = next((checkpoint for checkpoint in reversed(self.all()) if _is_unchanged(checkpoint.path)), None)
        if newest is not None:
            newest.check(self._kind, self._settings)
        return newest

    def newer(self, checkpoint: Checkpoint | None) -> list[Path]:
        """Return the folders of checkpoints after this one. For None, return all."""
        return [path for path in sorted(self.folder.glob("step-*")) if checkpoint is None or path > checkpoint.path]

    def open(self, step: int) -> Path:
        """Return an empty folder for the checkpoint of a step. `commit` later makes the checkpoint complete."""
        self.sweep()
        partial = self.partial_path(step)
        partial.mkdir(parents=True)
        return partial

    def partial_path(self, step: int) -> Path:
        """Return the folder in which the checkpoint of a step is written before `commit`."""
        return self.folder / f".{_name(step)}.partial"

    def commit(self, step: int) -> Path:
        """Make the written checkpoint durable and visible.

        If there are more than `keep` checkpoints, delete the oldest. Delete later checkpoints too, because a run that
        is at this step left them out as damaged.

        Args:
            step: The step of the checkpoint.

        Returns:
            The folder of the checkpoint.

        Raises:
            OSError: If a file cannot be synced or renamed.
        """
        partial, final = self.partial_path(step), self.folder / _name(step)
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        sizes = {path.relative_to(partial).as_posix(): path.stat().st_size for path in files}
        for path in files:
            sync_path(path)
        manifest = {
            "form": CHECKPOINT_FORMAT,
            "step": step,
            "kind": self._kind,
            "files": sizes,
            "checksums": {name: _checksum(partial / name) for name in sizes},
            "settings": self._settings,
            "data": self.data,
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        for path in (partial / MANIFEST, *(path for path in partial.rglob("*") if path.is_dir()), partial):
            sync_path(path)
        if final.exists():
            self._drop(final)
        partial.rename(final)
        sync_path(self.folder)
        older = [checkpoint for checkpoint in self.all() if checkpoint.step < step]
        later = [checkpoint for checkpoint in self.all() if checkpoint.step > step]
        for checkpoint in (*older[: 1 - self._keep], *later):
            self._drop(checkpoint.path)
        return final

    def discard(self, step: int) -> None:
        """Delete the files of a failed checkpoint."""
        shutil.rmtree(self.partial_path(step), ignore_errors=True)

    def sweep(self) -> None:
        """Delete folders that a killed process left half-written or half-deleted."""
        for pattern in (".step-*.partial", ".step-*.old"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)

    def _drop(self, path: Path) -> None:
        """Rename the folder and then delete it. A killed process then leaves no folder that looks like a complete
        checkpoint.
        """
        aside = self.folder / f".{path.name}.old"
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def has_checkpoint(out: str | Path) -> bool:
    """Return True if the folder of a run has a complete checkpoint."""
    return any(_read(path) is not None for path in Path(out, CHECKPOINTS_FOLDER).glob("step-*"))


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of all settings that must stay the same when the run resumes."""
    text = "\n".join(f"{key}={value!r}" for key, value in sorted(binding_settings(settings).items()))
    return sha256(text.encode()).hexdigest()[:16]


def binding_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, by dotted key, that must stay the same when the run resumes.

    If a run has no judge, none of the judge's settings are included.
    """
    unused = () if settings.get("judge", {}).get("model") else ("judge.", "rewards.judge")
    return {key: value for key, value in flat_settings(settings) if not key.startswith((*CHANGEABLE, *unused))}


def binding_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between the binding settings of two runs."""
    return differing_settings(binding_settings(before), binding_settings(now))


def _read(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder. If a file is missing or has another size, return None."""
    try:
        data = read_json(path / MANIFEST)
        complete = all((path / name).stat().st_size == size for name, size in data["files"].items())
        learned = {str(kind): str(digest) for kind, digest in dict(data.get("data", {})).items()}
        checkpoint = Checkpoint(path, int(data["step"]), str(data["kind"]), dict(data["settings"]), learned)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    return checkpoint if complete and data.get("form") == CHECKPOINT_FORMAT else None


def _is_unchanged(folder: Path) -> bool:
    """Return True if the files of a complete checkpoint have the checksums of its manifest.

    The manifest of an older version has no checksums.
    """
    try:
        checksums = read_json(folder / MANIFEST).get("checksums", {})
        # The names in a stranger's manifest may lead out of the folder.
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        return all(_checksum(path) == checksums[name] for name, path in files.items() if name in checksums)
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file. It detects accidents, and costs less than reading the file."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(CHECKSUM_BLOCK):
            checksum = crc32(block, checksum)
    return checksum


def _name(step: int) -> str:
    return f"step-{step:08d}"
