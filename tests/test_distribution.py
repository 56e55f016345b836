"""What a user installs: the built wheel and sdist hold the package's data, and nothing else of the checkout."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "context_agent"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return folder


def test_the_wheel_holds_every_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert expected <= names
    assert "context_agent/py.typed" in names
    assert {name.split("/")[0] for name in names - expected} == {
        name.split("/")[0] for name in names if ".dist-info" in name
    }


def test_the_wheel_with_its_models_stays_below_60_mb(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < 60e6


def test_the_license_and_the_notice_travel_along(built):
    (wheel,) = built.glob("*.whl")
    names = [Path(name).name for name in zipfile.ZipFile(wheel).namelist()]
    assert {"LICENSE", "NOTICE"} <= set(names)


@pytest.mark.parametrize("version", ["1.5.0", "1.5.1", "1.5.2"])
def test_no_version_of_chroma_that_reports_its_use_is_allowed(version: str) -> None:
    requirements = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    (chroma,) = (requirement for requirement in requirements if requirement.name == "chromadb")
    assert not chroma.specifier.contains(version)


def test_the_sdist_is_lean(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"context_agent", "pyproject.toml", "LICENSE"} <= tops
    assert not tops & {".git", ".venv", "shared", "benchmarks", "docs", "examples", ".ctx1"}
    assert sdist.stat().st_size < 60e6
