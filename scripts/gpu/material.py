"""What a bare machine is given: folders of at most 60 MB, each with a manifest of its files' digests.

scripts/gpu-material writes OUT/1, OUT/2, ...; scripts/gpu-check reads all that have arrived. The folders hold

    wheels/              packages that a machine with torch, transformers and peft lacks
    checkout/            weight files of the checkout, by their path in it
    questions.tar.gz     documents, questions and lessons
    smollm2.gguf.1-of-2  SmolLM2's weights, cut into pieces

Only the standard library is used here: nothing else is there yet.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
FOLDER_BYTES = 60_000_000
"""Maximum size of a folder, in bytes."""
PIECE = re.compile(r"(?P<name>.+)\.(?P<number>\d+)-of-(?P<count>\d+)")


class MaterialError(Exception):
    """The material is damaged or incomplete. The message names the file, and says how to make it again."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to pack, and its path in a folder of the material."""

    path: Path
    name: str


def pack(files: Iterable[SourceFile], out: Path) -> list[Path]:
    """Copy files into folders of at most `FOLDER_BYTES` below `out`. A file that is too large is cut into pieces.

    Returns:
        The folders, numbered from 1.
    """
    shutil.rmtree(out, ignore_errors=True)
    folders: list[tuple[Path, dict[str, str]]] = []
    room = 0
    for name, data in _pieces(files):
        if len(data) > room or not folders:
            folders.append((out / str(len(folders) + 1), {}))
            room = FOLDER_BYTES
        folder, digests = folders[-1]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
        room -= len(data)
    for folder, digests in folders:
        (folder / MANIFEST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return [folder for folder, _ in folders]


def _pieces(files: Iterable[SourceFile]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        data = file.path.read_bytes()
        if len(data) <= FOLDER_BYTES:
            yield file.name, data
            continue
        count = -(-len(data) // FOLDER_BYTES)
        size = -(-len(data) // count)
        for number in range(count):
            yield f"{file.name}.{number + 1}-of-{count}", data[number * size : (number + 1) * size]


def unpack(source: Path, target: Path) -> None:
    """Check the folders of the material, copy their files to `target`, and join the pieces.

    Raises:
        MaterialError: If a file or a piece is missing, or differs from its digest.
    """
    folders = sorted(path.parent for path in source.glob(f"*/{MANIFEST}"))
    if not folders:
        raise MaterialError(f"{source} holds no folder with a {MANIFEST}: make it with scripts/gpu-material")
    pieces: dict[tuple[str, int], dict[int, Path]] = {}
    for folder in folders:
        for name, digest in json.loads((folder / MANIFEST).read_text(encoding="utf-8")).items():
            path = folder / name
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise MaterialError(f"{path} is missing or damaged: copy {folder} again")
            if piece := PIECE.fullmatch(name):
                pieces.setdefault((piece["name"], int(piece["count"])), {})[int(piece["number"])] = path
            else:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / name)
    for (name, count), paths in pieces.items():
        if len(paths) < count:
            raise MaterialError(f"{len(paths)} of {count} pieces of {name} are below {source}: copy all folders")
        with (target / name).open("wb") as whole:
            for number in sorted(paths):
                whole.write(paths[number].read_bytes())


def restore_checkout(material: Path, checkout: Path) -> None:
    """Copy the weight files that the checkout lacks to their places."""
    weights = material / "checkout"
    for path in sorted(weights.rglob("*")):
        place = checkout / path.relative_to(weights)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def install_missing(wheels: Path, site: Path) -> list[str]:
    """Install wheels into the folder `site`.

    A wheel is installed if its package cannot be imported here, or is older.

    Returns:
        The names of the installed wheels.

    Raises:
        MaterialError: If pip fails.
    """
    chosen = [wheel for wheel in sorted(wheels.glob("*.whl")) if not _is_present(wheel)]
    if not chosen:
        return []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--upgrade", "--target", str(site), *map(str, chosen)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise MaterialError(f"the wheels in {wheels} cannot be installed: {finished.stderr.strip()[-400:]}")
    return [wheel.name for wheel in chosen]


def _is_present(wheel: Path) -> bool:
    """Return True if the wheel's modules are installed here, in its version or a later one."""
    name, version = wheel.name.split("-")[:2]
    try:
        installed = importlib.metadata.version(name)
        found = all(importlib.util.find_spec(module) is not None for module in _modules(wheel))
    except (importlib.metadata.PackageNotFoundError, ImportError):
        return False
    return found and _numbers(installed) >= _numbers(version)


def _modules(wheel: Path) -> set[str]:
    """Return the names of the top-level modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [Path(name) for name in archive.namelist()]
    names = {path.parts[0] for path in paths if len(path.parts) > 1 and path.name == "__init__.py"}
    names |= {path.stem for path in paths if len(path.parts) == 1 and path.suffix == ".py"}
    return {name for name in names if name.isidentifier()}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


def environment(site: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that finds the packages in `site` first."""
    path = [str(site), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": ":".join(path)}
