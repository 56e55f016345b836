"""The README's Python runs, and what it says about the command line is true."""

import html
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\d+\.\d+ s, ")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "brasko.md").write_text("# Brasko\n\nThe Lume flows past Brasko.\n", encoding="utf-8")
    exec(compile(BLOCKS[number], f"README.md, block {number + 1}", "exec"), {"__name__": "__readme__"})


def test_there_are_python_blocks():
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_every_figure_of_the_results_is_in_the_benchmarks(page):
    benchmarks = (README.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\|$", (README.parent / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    figures = [figure for row in rows for figure in re.findall(r"(?<![\d\w])\.\d{3}\b", row)]
    assert len(figures) >= 12
    assert [figure for figure in figures if figure not in benchmarks] == []


def test_the_picture_shows_what_the_demo_prints(tmp_path, monkeypatch, capsys):
    """The script that makes the picture cuts the lines to its width. Only the time of a search varies."""
    from context_agent.cli.app import run

    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    words = TIME.sub("", " ".join(capsys.readouterr().out.split()))
    svg = (README.parent / "docs" / "terminal.svg").read_text(encoding="utf-8")
    texts = [
        html.unescape(text).replace("\xa0", " ").strip() for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    ]
    shown = [text.removesuffix("…") for text in texts if len(text) > 4 and not text.startswith(("$ ctx1", "ctx1 demo"))]
    assert len(shown) > 25
    assert [text for text in shown if TIME.sub("", " ".join(text.split())) not in words] == []


def test_the_first_result_comes_within_two_screens():
    before = TEXT[: TEXT.index("## Results")].splitlines()
    assert len(before) <= 80


def test_every_command_is_in_the_table():
    from context_agent.cli.app import cli
    from context_agent.cli.help import commands_of

    commands = (README.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in commands_of(cli):
        assert f"`ctx1 {command}" in commands


def test_the_readme_is_one_page():
    assert len(TEXT) <= 8_000


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if not target.startswith("http"):
            assert (README.parent / target).exists(), target
