"""The report in its forms: it has every figure, external text does no harm, and equal summaries give equal bytes."""

from __future__ import annotations

import builtins
import io
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from context_agent.errors import MissingExtraError
from context_agent.eval.aggregate import summarize
from context_agent.eval.metrics import METRICS
from context_agent.eval.records import EvalRecord
from context_agent.eval.summary import EvalSummary, MetricValue, verdict
from context_agent.eval.summary_table import format_interval, format_value, show
from context_agent.types import Question
from context_agent.web.drawing import MAX_NAME
from context_agent.web.report import plots
from context_agent.web.report.content import render
from tests.support.sample_records import ORDER, WINDOWS, made_records

RECORDS = made_records(questions=12)
SUMMARY = summarize(
    RECORDS,
    order=ORDER,
    settings={"policy": "bridge", "ks": [5, 10]},
    problems=["queries.jsonl:7: the line is not valid JSON"],
    expected=[("musique", "agent", 2048, 9, "q001")],
)
EVIL = "<script>alert(1)</script>\"'&$\\frac{"
PLOTS = {
    "budget": plots.budget_curve,
    "systems": plots.systems_compared,
    "cost": plots.cost_against_recall,
    "turns": lambda summary: plots.recall_by_turn(summary, WINDOWS[0]),
    "tokens": lambda summary: plots.recall_by_tokens(summary, WINDOWS[0]),
    "pruning": lambda summary: plots.prune_accuracy(summary, WINDOWS[0]),
}


class Reader(HTMLParser):
    """The elements of a page and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def with_evil_names(record: EvalRecord) -> EvalRecord:
    return replace(
        record,
        benchmark=EVIL + record.benchmark,
        system=EVIL + record.system,
        question=EVIL + record.question,
        type=EVIL + record.type,
        error=EVIL if record.error else None,
    )


def terminal_text(summary: EvalSummary, width: int, **options: object) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False), summary, **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.fixture(scope="module")
def page() -> Reader:
    return Reader(render(SUMMARY, title="A run"))


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """Each plot of the summary."""
    return {name: plot(SUMMARY) for name, plot in PLOTS.items()}


@pytest.fixture(scope="module")
def reversed_summary() -> EvalSummary:
    return summarize(RECORDS[::-1], order=ORDER)


def test_the_page_holds_every_figure(page: Reader) -> None:
    count = 0
    for cell in SUMMARY.cells:
        assert cell.system in page.text
        for name, value in cell.metrics.items():
            assert f"{format_value(value.mean, METRICS[name])} {format_interval(value, METRICS[name])}" in page.text
            count += 1
        for name, value in cell.differences.items():
            figures = (
                format_value(value.mean, METRICS[name], sign=True),
                format_interval(value, METRICS[name], sign=True),
            )
            assert " ".join(figures) in page.text
    for pool in SUMMARY.pools:
        value, metric = pool.metrics["recall@5"], METRICS["recall@5"]
        assert f"{format_value(value.mean, metric)} {format_interval(value, metric)}" in page.text
    assert count > 100


def test_the_page_says_what_failed_is_missing_and_was_wrong(page: Reader) -> None:
    assert "queries.jsonl:7: the line is not valid JSON" in page.text
    assert "1 record missing, of q001" in page.text
    assert f"Failed episodes ({len(SUMMARY.failures)})" in page.text
    assert page.text.count("the server is down") == len(SUMMARY.failures) > 0
    assert "left out" in page.text


def test_the_page_defines_each_metric_and_names_its_settings(page: Reader) -> None:
    for metric in SUMMARY.definitions:
        assert metric.what in page.text
    assert "policybridge" in page.text


def test_the_page_has_every_plot_and_asks_the_network_for_nothing(page: Reader) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    assert page.tags.count("figure") == 2 + 3 * len(WINDOWS)
    assert page.tags.count("svg") == page.tags.count("figure")
    assert "script" not in page.tags
    links = [value for name, value in page.attributes if name in ("href", "src", "xlink:href", "data")]
    assert all((value or "").startswith("#") for value in links)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "the plots share no id"
    assert set(links) <= {f"#{anchor}" for anchor in ids}
    assert not [value for name, value in page.attributes if name == "style"], "the page's policy forbids inline styles"


def test_one_system_gets_a_table_and_a_sentence_and_no_plots() -> None:
    one_system = summarize([record for record in RECORDS if record.system == "agent"], order=ORDER)
    page = Reader(render(one_system))
    assert "figure" not in page.tags
    assert "hotpotqa: agent with a window of" in page.text
    assert "of the gold among its first 5 documents" in page.text
    assert "turns and" in page.text


def test_the_page_says_first_what_was_compared_and_how_it_came_out(page: Reader) -> None:
    assert f"points more than {SUMMARY.reference}" in page.text
    assert page.text.index("points more than") < page.text.index("All metrics")


def test_a_plot_of_shares_goes_from_0_to_1(drawn: dict[str, str]) -> None:
    for svg in drawn.values():
        ticks = re.findall(r">([01]\.\d)</text>", svg)
        assert {"0.0", "1.0"} <= set(ticks)


def test_two_systems_with_one_window_have_no_plot_of_one_point() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    size = WINDOWS[0]
    records = [
        record for record in RECORDS if (record.window == size and record.system == "agent") or not record.window
    ]
    page = render(summarize(records, order=ORDER))
    assert "against the window" not in page
    assert "Cost against" not in page
    assert "turn by turn" in page


def test_listed_questions_show_their_text_and_their_gold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.web.report.content._plots", lambda summary: "")
    failed, worst = SUMMARY.failures[0], SUMMARY.worst[0]
    questions = {
        f"{failed.benchmark}/{failed.question}": Question(
            "q", "Who built the weir? " * 100, gold=("weir.md", "lena.md")
        ),
        f"{worst.benchmark}/{worst.question}": Question("q", f"Who raised the mill? {EVIL}", gold=(f"mill.md{EVIL}",)),
    }
    page = Reader(render(SUMMARY, questions=questions))
    assert "Who built the weir?" in page.text
    assert page.text.count("Who built the weir?") < 100
    assert "weir.md, lena.md" in page.text
    assert f"Who raised the mill? {EVIL}" in page.text
    assert f"mill.md{EVIL}" in page.text
    assert "script" not in page.tags


def test_external_text_is_escaped_everywhere() -> None:
    summary = summarize(
        [with_evil_names(record) for record in RECORDS],
        settings={EVIL: EVIL},
        problems=[EVIL],
        reference=EVIL + "agent",
    )
    html = render(summary, title=EVIL)
    page = Reader(html)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") > 20
    # The page has every plot except that of a run with one window.
    svgs = [*re.findall(r"<svg.*?</svg>", html, re.DOTALL), plots.systems_compared(summary)]
    assert len(svgs) == 2 + 3 * len(WINDOWS) + 1
    for svg in svgs:
        root = ET.fromstring(svg)
        assert not [element for element in root.iter() if element.tag.endswith("script")]
        assert "<script" not in svg
        assert f"{(EVIL + 'agent')[:20]}" in "".join(root.itertext())
    assert "\x1b" not in terminal_text(summarize([replace(record, system="\x1b[31m[red]x") for record in RECORDS]), 200)


@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_real_text_on_no_ground_and_come_out_the_same(
    name: str, drawn: dict[str, str], reversed_summary: EvalSummary
) -> None:
    svg = drawn[name]
    root = ET.fromstring(svg)
    words = ["".join(element.itertext()).strip("\u2060") for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"hotpotqa", "musique"} <= set(words)
    assert any(word.startswith("agent") for word in words)
    assert "prefers-color-scheme:dark" in svg
    assert "currentColor" in svg
    assert "#ffffff" not in svg
    assert not re.search(r"\d{4}-\d{2}-\d{2}|matplotlib", svg)
    svgs: list[str] = []
    thread = threading.Thread(target=lambda: svgs.append(PLOTS[name](reversed_summary)))
    thread.start()
    thread.join()
    assert svgs == [svg]


def test_a_plot_shows_the_points_of_the_summary(drawn: dict[str, str]) -> None:
    cell = SUMMARY.cells[0]
    assert cell.system == "bm25"
    without_unpruned = summarize([record for record in RECORDS if record.system != "agent-unpruned"], order=ORDER)
    assert "agent-unpruned" in drawn["budget"]
    assert "agent-unpruned" not in plots.budget_curve(without_unpruned)
    assert "bm25" not in drawn["turns"], "it has no turns"
    assert "agent-unpruned" not in drawn["pruning"], "it never prunes"
    assert "recall@10" in plots.budget_curve(SUMMARY, "recall@10")


def test_a_run_with_one_window_and_one_turn_has_a_plot_of_its_systems() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    records = [
        EvalRecord("b", name, window, 0, "q", scores={"recall": recall})
        for name, window, recall in (("bm25", 0, 0.5), ("agent", 2048, 1.0))
    ]
    (drawing,) = re.findall(r"<svg.*?</svg>", render(summarize(records)), re.DOTALL)
    assert "bm25" in drawing
    assert "agent" in drawing


def test_the_pareto_front_has_the_cells_that_no_other_beats() -> None:
    points = {"cheap": (1, 0.2), "worse": (2, 0.1), "good": (3, 0.6), "same": (4, 0.6), "best": (9, 0.7)}
    records = [
        EvalRecord("b", name, 1, 0, "q", scores={"recall": recall, "tokens": float(cost)})
        for name, (cost, recall) in points.items()
    ]
    cells = summarize(records).cells
    assert [cell.system for cell in plots.pareto_front(cells, "tokens", "recall")] == ["cheap", "good", "best"]


@pytest.mark.parametrize("records", [[], RECORDS[:1], [record for record in RECORDS if record.system == "bm25"]])
def test_little_makes_a_report_too(records: list[EvalRecord]) -> None:
    summary = summarize(records, problems=["nothing to evaluate"])
    assert "nothing to evaluate" in Reader(render(summary)).text
    assert "nothing to evaluate" in terminal_text(summary, 100)
    assert ET.fromstring(plots.budget_curve(summary)) is not None
    assert ET.fromstring(plots.cost_against_recall(summary)) is not None


def test_questions_without_gold_make_a_report_of_costs() -> None:
    record = EvalRecord("b", "agent", 2048, 0, "q", scores={"recall": None, "recall@5": None, "turns": 3.0})
    summary = summarize([record])
    page = Reader(render(summary))
    assert "3.00 [3.00, 3.00]" in page.text
    assert "3.00" in terminal_text(summary, 100)


def test_without_matplotlib_the_page_says_which_extra_brings_the_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = builtins.__import__

    def import_without_matplotlib(name: str, *args: object, **options: object) -> object:
        if name.split(".", maxsplit=1)[0] == "matplotlib":
            raise ImportError(name)
        return import_module(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", import_without_matplotlib)
    page = Reader(render(SUMMARY))
    assert "svg" not in page.tags
    assert "context-agent[plots]" in page.text
    assert "the server is down" in page.text
    with pytest.raises(MissingExtraError, match="plots"):
        plots.budget_curve(SUMMARY)


def test_the_terminal_table_fits_and_holds_the_leading_figures() -> None:
    for width in (100, 140):
        text = terminal_text(SUMMARY, width)
        assert max(map(len, text.splitlines()[:20])) <= width
        for cell in SUMMARY.cells:
            value = cell.metrics["recall@5"]
            figures = " [".join(f"{number:.3f}" for number in (value.mean, value.low)) + f",{value.high:.3f}]"
            assert re.sub(r"\b0\.", ".", figures) in text
    assert "tokens" in terminal_text(SUMMARY, 140)
    assert "tokens" not in terminal_text(SUMMARY, 140, columns=["turns"])
    assert "failed: hotpotqa, agent, window 2,048, seed 0 q005: the server is down" in terminal_text(SUMMARY, 140)
    assert "missing: musique, agent, window 2,048, seed 9: 1 records" in terminal_text(SUMMARY, 140)


def test_the_table_has_a_column_of_questions_if_their_numbers_differ() -> None:
    assert " n " not in terminal_text(SUMMARY, 120).splitlines()[1]
    assert " n " in terminal_text(summarize(RECORDS[5:], order=ORDER), 120).splitlines()[1]


def test_a_difference_is_better_or_worse_only_where_its_interval_says_so() -> None:
    values = [MetricValue(0.1, 0.05, 0.2, 9), MetricValue(-0.1, -0.2, -0.05, 9), MetricValue(0.1, -0.1, 0.2, 9)]
    assert [verdict(value, METRICS["recall"]) for value in values] == ["better", "worse", ""]
    assert [verdict(value, METRICS["tokens"]) for value in values] == ["worse", "better", ""]
    assert verdict(values[0], METRICS["calls_per_turn"]) == ""


def test_long_names_are_cut_in_plots() -> None:
    summary = summarize([replace(record, system=record.system + "x" * 200) for record in RECORDS])
    assert "x" * MAX_NAME not in plots.budget_curve(summary)


def test_fewer_than_six_questions_decide_nothing() -> None:
    """Equal systems differ in the same direction on all of 5 questions in 6% of the cases."""
    decided = [verdict(MetricValue(1.0, 1.0, 1.0, n), METRICS["recall"]) for n in (1, 5, 6)]
    assert decided == ["", "", "better"]
