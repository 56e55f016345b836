"""The files for coding agents and platforms: short, valid, and true about the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from context_agent.version import __version__

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills/context-agent/SKILL.md"


def test_the_guide_for_coding_agents_is_short_and_names_what_exists() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    paths = re.findall(r"`((?:scripts|context_agent|tests|benchmarks)/[\w./-]+)`", text)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["llms.txt", "AGENTS.md"])
def test_links_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_skill_has_a_name_and_says_when_to_use_it() -> None:
    _, front, body = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(front)
    assert fields["name"] == SKILL.parent.name
    assert "Use it" in fields["description"]
    assert len(fields["description"]) < 1_024
    assert "ctx1 index" in body


def test_the_workflow_runs_the_suite_on_every_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert "scripts/test" in [step.get("run") for step in job["steps"]]


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, "Apache-2.0")
