"""The report in a real Chromium: no request, no script, nothing cut off, with hostile and long names and errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from context_agent.eval.aggregate import summarize
from context_agent.eval.records import EvalRecord
from context_agent.web.report.content import render
from tests.support.sample_records import made_records

if TYPE_CHECKING:
    from tests.support.browser import Browser

ATTACKS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror='window.hit=1'>",
    '"><svg onload=window.hit=1>',
    "</style></title><script src=//evil.example/x.js></script>",
    "\u202etxt.exe\u0000$\\frac{1}{",
)
SYSTEMS = {"agent": "agent-oldest-with-a-long-name", "agent-unpruned": "agent-unpruned@4", "bm25": "hybrid+reranker"}


def with_attacks(record: EvalRecord) -> EvalRecord:
    attack = "".join(ATTACKS)
    return replace(
        record,
        benchmark=attack + record.benchmark,
        system=attack + record.system,
        question=attack + record.question,
        type=attack + record.type,
        error=attack if record.error else None,
        broken=(attack,),
    )


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run in which every name is an attack."""
    records = [with_attacks(record) for record in made_records(12)]
    summary = summarize(
        records,
        settings={attack: attack for attack in ATTACKS},
        expected=[("".join(ATTACKS), "".join(ATTACKS), 1024, 0, "".join(ATTACKS))],
        problems=ATTACKS,
    )
    return write_page(tmp_path_factory.mktemp("evil") / "report.html", render(summary, title="".join(ATTACKS)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one benchmark, whose systems have long names."""
    records = [
        replace(record, system=SYSTEMS[record.system] + suffix)
        for record in made_records(12)
        if record.benchmark == "musique"
        for suffix in ("", "-2")
    ]
    return write_page(tmp_path_factory.mktemp("plain") / "report.html", render(summarize(records)))


def write_page(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(params=[(1400, False), (420, True)], ids=["wide", "narrow-dark"])
def opened(browser: Browser, plain: Path, request: pytest.FixtureRequest) -> Iterator[Browser]:
    width, dark = request.param
    with browser.looking(width=width, dark=dark):
        browser.open(plain, ready="document.readyState === 'complete'")
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        yield browser


def test_nothing_that_a_run_holds_runs_or_asks_for_anything(browser: Browser, evil: Path) -> None:
    browser.open(evil, ready="document.readyState === 'complete'")
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.run("return window.hit === undefined")
    assert browser.requests() == []
    assert browser.complaints() == []
    assert browser.run("return document.querySelectorAll('script, img, iframe, [onload], [onerror]').length") == 0
    # All of it is shown as text, with invisible characters spelled out.
    for selector in ("h1", "h2", "tbody th", "#problems li", "#failures + div td", "#settings + div td"):
        assert any(ATTACKS[0] in text for text in browser.texts(selector)), selector
    assert browser.run("return document.body.innerText.includes('\\u202e')") is False


def test_the_page_does_not_scroll_sideways_and_no_column_of_prose_is_squeezed(opened: Browser) -> None:
    assert opened.run("return document.documentElement.scrollWidth <= window.innerWidth")
    widths = opened.run(
        "return [...document.querySelectorAll('#metrics + div td:nth-child(2)')].map(e => e.clientWidth)"
    )
    assert min(widths) >= 150


def test_no_text_of_a_plot_is_cut_off_and_no_two_touch(opened: Browser) -> None:
    assert opened.run("return document.querySelectorAll('figure svg').length") >= 5
    problems = opened.run(
        """
        const found = [];
        for (const plot of document.querySelectorAll('figure svg')) {
          const frame = plot.getBoundingClientRect();
          const texts = [...plot.querySelectorAll('text')].filter(one => one.textContent.trim());
          const boxes = texts.map(one => [one.textContent, one.getBoundingClientRect()]);
          boxes.forEach(([text, box], at) => {
            if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(`cut off: ${text}`);
            for (const [other, beside] of boxes.slice(at + 1)) {
              const across = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
              const down = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
              if (across > 1 && down > 3) found.push(`touch: ${text} and ${other}`);
            }
          });
        }
        return found;
        """
    )
    assert problems == []


def test_plots_take_the_colour_of_the_text_around_them(opened: Browser) -> None:
    colors = opened.run(
        """
        const text = document.querySelector('figure svg text');
        return [getComputedStyle(text).fill, getComputedStyle(document.body).color];
        """
    )
    assert colors[0] == colors[1]
