"""The README's Python runs, and what it says about the command line is true."""

import re
from pathlib import Path

import click
import pytest

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "brasko.md").write_text("# Brasko\n\nThe Lume flows past Brasko.\n", encoding="utf-8")
    exec(compile(BLOCKS[number], f"README.md, block {number + 1}", "exec"), {"__name__": "__readme__"})


def test_there_are_python_blocks():
    assert len(BLOCKS) >= 3


def test_every_command_is_in_the_table():
    from context_agent.cli.app import cli

    commands = (README.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in cli.list_commands(click.Context(cli)):
        assert f"`ctx1 {command}" in commands


def test_the_readme_is_one_page():
    assert len(TEXT) <= 8_000


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if not target.startswith("http"):
            assert (README.parent / target).exists(), target
