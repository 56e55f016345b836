"""A framework that is missing, or of another version, is named together with its extra."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from context_agent._support.extras import extra
from context_agent.errors import MissingExtraError

FRAMEWORKS = {"langchain": "langchain_core", "llamaindex": "llama_index", "haystack": "haystack", "dspy": "dspy"}
PACKAGES = {
    "langchain": "langchain-core",
    "llamaindex": "llama-index-core",
    "haystack": "haystack-ai",
    "dspy": "dspy",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_missing_framework_names_its_extra(name: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{FRAMEWORKS[name]!r}] = None\n"
        "from context_agent.errors import MissingExtraError\n"
        f"try: import context_agent.integrations.{name}\n"
        "except MissingExtraError as error: print(error)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f'pip install "context-agent[{name}]"' in process.stdout


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_another_version_is_refused_before_anything_is_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "0.0.1")
    message = (
        rf"{PACKAGES[name]} 0\.0\.1 is installed, but .*>=.* is needed\. Run `pip install \"context-agent\[{name}\]\"`"
    )
    with pytest.raises(MissingExtraError, match=message), extra(name):
        pytest.fail("the block runs")


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(MissingExtraError, match="dspy is not installed"), extra("dspy"):
        pytest.fail("the block runs")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_installed_versions_are_within_the_ranges(name: str) -> None:
    with extra(name):
        pass


def test_faces_stay_thin() -> None:
    from importlib.util import find_spec
    from pathlib import Path

    for name in FRAMEWORKS:
        spec = find_spec(f"context_agent.integrations.{name}")
        assert spec is not None
        assert spec.origin is not None
        assert len(Path(spec.origin).read_text(encoding="utf-8").splitlines()) < 200, name
