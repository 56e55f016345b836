"""Make the material that scripts/gpu-check needs on a bare machine. scripts/gpu-material installs what this needs.

    python scripts/gpu_material.py OUT --data FOLDER [--python 3.12] [--lessons 300] [--rewarded 120] [--questions 100]

OUT/1, OUT/2, ... are folders of at most 60 MB, each with the digests of its files. Copy them to the machine, together
or one after another. Then run `scripts/gpu-check --minutes 9 --material OUT` there. The checkout on that machine needs
no weight files, because OUT contains those that are used.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu.lessons import SETS, write_material
from gpu.material import SourceFile, pack
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from context_agent.policies.tokens.packaged import MODELS, weights_file

ROOT = Path(__file__).resolve().parents[1]
CARRIED = (
    "trl",
    "datasets",
    "pydantic",
    "tenacity",
    "tantivy",
    "google-re2",
    "oss-harmony",
    "gguf",
    "cyclopts",
    "rich",
    "httpx",
)
"""The packages that training imports, except torch, transformers and peft."""
PRESENT = ("torch", "transformers", "peft", "accelerate", "numpy", "pandas", "pyarrow", "aiohttp", "setuptools")
"""The packages that a machine for training already has, with their dependencies. Their wheels would take the most
space.
"""
WEIGHTS = ("context_agent/retrieval/embedders/weights/static-minilm.safetensors",)
"""The weight files of the checkout that are used there. The default embedder needs this one."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def wheel_versions() -> dict[str, str]:
    """Return the names and installed versions of all packages that are copied as wheels."""
    present = _with_dependencies(PRESENT) - _with_dependencies(("pydantic",))
    return {name: importlib.metadata.version(name) for name in sorted(_with_dependencies(CARRIED) - present)}


def _with_dependencies(names: Iterable[str]) -> set[str]:
    """Return the names and all their dependencies that are installed here."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        needed = (Requirement(line) for line in requires)
        waiting += [
            canonicalize_name(requirement.name)
            for requirement in needed
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return found


def download(versions: dict[str, str], python: str, folder: Path) -> Iterator[SourceFile]:
    """Download the wheels for this version of Python on Linux, and yield them."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    pins = [f"{name}=={version}" for name, version in versions.items()]
    subprocess.run([*command, "--dest", str(folder), *pins], check=True)
    for wheel in sorted(folder.glob("*.whl")):
        yield SourceFile(wheel, f"wheels/{wheel.name}")


def archived(folder: Path, archive: Path) -> SourceFile:
    """Pack documents, questions and the kept lessons into one archive, and return it."""
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.rglob("*.jsonl")):
            inside = path.relative_to(folder)
            if inside.parts[0] != "lessons" or "kept" in inside.parts:
                tar.add(path, arcname=str(inside))
    return SourceFile(archive, archive.name)


def main() -> None:
    """Write the folders and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the question sets")
    parser.add_argument("--python", default="3.12", help="Python of the machine with the GPU")
    parser.add_argument("--lessons", type=int, default=300, help="train questions of a set that become lessons")
    parser.add_argument("--rewarded", type=int, default=120, help="further train questions of a set, for rewards")
    parser.add_argument("--questions", type=int, default=100, help="held-out questions of a set")
    options = parser.parse_args()
    if not re.fullmatch(r"3\.\d+", options.python):
        parser.error(f"--python takes a version such as 3.12; got {options.python}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "wheels").mkdir()
        files = list(download(wheel_versions(), options.python, folder / "wheels"))
        files += [SourceFile(ROOT / name, f"checkout/{name}") for name in WEIGHTS]
        write_material(
            {name: options.data / name for name in SETS},
            folder / "questions",
            "smollm2",
            taught=options.lessons,
            rewarded=options.rewarded,
            held_out=options.questions,
        )
        files.append(archived(folder / "questions", folder / "questions.tar.gz"))
        files.append(SourceFile(weights_file(MODELS["smollm2"]), "smollm2.gguf"))
        for packed in pack(files, options.out):
            size = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
            print(f"{packed}: {size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
