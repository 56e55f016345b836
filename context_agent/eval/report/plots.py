"""The plots of a summary. Each function gives SVG text, with a panel a benchmark.

They need matplotlib (extra `plots`); without it they raise `MissingExtraError`. Lines and points have an interval of
95 % where the summary has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from context_agent.eval import metrics
from context_agent.eval.metrics import Metric, metric
from context_agent.eval.report.drawing import DASHES, INK, MARKS, PALETTE, canvas, plain, svg
from context_agent.eval.summary import Cell, Point, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
"""Panels beside each other."""

LEGEND_COLUMNS = 4
LEGEND_SHARE = 0.95
"""Of the figure's width, what a legend may fill: the reader's font may be wider than the one it is measured in."""
LEGEND_ROW = 0.2
"""Inches that a row of the legend adds to the figure."""
LEVEL = (0, (1, 1.5))
"""The dashes of a level line: one on, one and a half off."""
SPAN = 20
"""Costs that differ by more than this factor are drawn on a logarithmic axis."""

Draw = Callable[["Axes", str], None]
"""(panel, benchmark): draws what the benchmark has."""


class Style(NamedTuple):
    """How a system is drawn, in every plot alike; without dash and mark where it keeps no context."""

    color: str
    dash: str
    mark: str


def lead(summary: Summary) -> str:
    """The metric that stands for a run."""
    return metrics.lead(summary.metrics)


def cost_of(summary: Summary) -> str:
    """What cost is counted in: money where the run had prices, else tokens."""
    return "money" if any("money" in cell.metrics for cell in summary.cells) else "tokens"


def windows(summary: Summary) -> list[int]:
    """The windows that systems with a context ran under, ascending."""
    return sorted({cell.window for cell in summary.cells if cell.window})


def budget_curve(summary: Summary, measure: str | None = None, *, standalone: bool = True) -> str:
    """Recall against the window. A system without a context is a level line."""
    measure = measure or lead(summary)
    styles = _styles(summary)
    at = windows(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for system in summary.systems:
            cells = [one for one in _cells(summary, benchmark, system) if measure in one.metrics]
            _levels(panel, [one for one in cells if not one.window], measure, styles)
            _windows(panel, [one for one in cells if one.window], measure, styles)
        if at:
            panel.set_xscale("log", base=2)
            panel.set_xticks(at, [_thousands(one) for one in at])
            panel.minorticks_off()

    return _plot(summary, draw, "budget", "window in tokens", _axis(metric(measure)), standalone=standalone)


def recall_by_turn(summary: Summary, window: int, *, standalone: bool = True) -> str:
    """Recall of what was seen (solid) and of what is held in view (dashed) after each turn."""
    draw = _states(summary, window, lambda cell: cell.turns)
    return _plot(summary, draw, f"turns-{window}", "turns", "recall", standalone=standalone)


def recall_by_tokens(summary: Summary, window: int, *, standalone: bool = True) -> str:
    """Recall of what was seen (solid) and of what is held in view (dashed) when so many tokens were placed."""
    draw = _states(summary, window, lambda cell: cell.tokens, log=True)
    return _plot(summary, draw, f"tokens-{window}", "tokens placed in the context", "recall", standalone=standalone)


def prune_accuracy(summary: Summary, window: int, *, standalone: bool = True) -> str:
    """Share of the chunks pruned by each turn that were not gold."""
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for system in summary.systems:
            for cell in _cells(summary, benchmark, system, window):
                points = [(one.at, one.prune_accuracy) for one in cell.turns if one.prune_accuracy is not None]
                if points:
                    style, lowest = styles[system], min(value for _, value in points)
                    look: dict[str, Any] = {"color": style.color, "ls": style.dash, "marker": style.mark, "ms": 4}
                    panel.plot(*zip(*points, strict=True), label=system, **look)
                    panel.set_ylim(min(panel.get_ylim()[0], lowest - 0.05, 0.8), 1.01)

    return _plot(summary, draw, f"pruning-{window}", "turns", "prune accuracy", standalone=standalone)


def cost_against_recall(summary: Summary, measure: str | None = None, *, standalone: bool = True) -> str:
    """Each system and window by cost and recall; the Pareto front is ringed, joined and marked with its windows."""
    measure, cost = measure or lead(summary), cost_of(summary)
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        cells = [one for one in _cells(summary, benchmark) if measure in one.metrics]
        priced = [one for one in cells if cost in one.metrics]
        _levels(panel, [one for one in cells if cost not in one.metrics], measure, styles)
        for one in priced:
            style = styles[one.system]
            panel.plot(*_place(one, cost, measure), color=style.color, marker=style.mark, ls="none", label=one.system)
        best = front(priced, cost, measure)
        panel.plot(*_places(best, cost, measure), color=INK, lw=0.8, alpha=0.6, zorder=1)
        panel.plot(*_places(best, cost, measure), color=INK, ls="none", marker="o", ms=11, mfc="none", mew=1)
        for one in best:
            where = _place(one, cost, measure)
            named = panel.annotate(_thousands(one.window), where, (5, -13), textcoords="offset points", fontsize=8)
            named.set_in_layout(False)
        _cost_axis(panel, [one.metrics[cost].mean for one in priced])

    unit = str(summary.settings.get("currency", "money")) if cost == "money" else "tokens placed"
    return _plot(summary, draw, "cost", f"{unit}, mean", _axis(metric(measure)), standalone=standalone)


def front(cells: Iterable[Cell], cost: str, measure: str) -> list[Cell]:
    """The cells that no other beats in cost without being worse in the measure, cheapest first (Pareto front)."""
    best: list[Cell] = []
    for one in sorted(cells, key=lambda cell: (cell.metrics[cost].mean, -cell.metrics[measure].mean)):
        if not best or one.metrics[measure].mean > best[-1].metrics[measure].mean:
            best.append(one)
    return best


def _states(summary: Summary, window: int, points: Callable[[Cell], Sequence[Point]], *, log: bool = False) -> Draw:
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for cell in _cells(summary, benchmark, window=window):
            at = [one.at for one in points(cell)]
            color, _, mark = styles[cell.system]
            look: dict[str, Any] = {"marker": mark, "ms": 4, "markevery": max(1, len(at) // 12), "label": cell.system}
            panel.plot(at, [one.seen for one in points(cell)], color=color, **look)
            panel.plot(at, [one.held for one in points(cell)], color=color, ls="--", lw=1.2)
        if log and any(points(cell) for cell in _cells(summary, benchmark, window=window)):
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter(lambda value, _: _thousands(value))

    return draw


def _windows(panel: Axes, cells: Sequence[Cell], measure: str, styles: dict[str, Style]) -> None:
    """A line over the windows with its interval as a band."""
    if not cells:
        return
    at, style = [one.window for one in cells], styles[cells[0].system]
    values = [one.metrics[measure] for one in cells]
    look: dict[str, Any] = {"color": style.color, "ls": style.dash, "marker": style.mark, "label": cells[0].system}
    panel.plot(at, [one.mean for one in values], **look)
    low, high = [one.low for one in values], [one.high for one in values]
    panel.fill_between(at, low, high, color=style.color, alpha=0.12, lw=0)


def _levels(panel: Axes, cells: Sequence[Cell], measure: str, styles: dict[str, Style]) -> None:
    """A level line for each cell that has no place on the other axis."""
    for one in cells:
        color = styles[one.system].color
        panel.axhline(one.metrics[measure].mean, color=color, ls=LEVEL, lw=1.4, label=one.system)


def _plot(summary: Summary, draw: Draw, name: str, across: str, up: str, *, standalone: bool) -> str:
    """A panel a benchmark and one legend below, of the systems that were drawn."""
    with canvas() as figure_type:
        names = summary.benchmarks or ("",)
        columns = min(COLUMNS, len(names))
        rows = -(-len(names) // columns)
        figure = figure_type(figsize=(max(5.2, 3.6 * columns), 3.0 * rows + 0.5))
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
        for panel, benchmark in zip(panels, names, strict=False):
            panel.set_title(plain(benchmark), loc="left")
            draw(panel, benchmark)
            panel.set_xlabel(across)
        for panel in list(panels)[len(names) :]:
            panel.remove()
        figure.supylabel(up, fontsize=10)
        _legend(figure, summary, {line.get_label() for panel in figure.axes for line in panel.get_lines()})
        return svg(figure, name, f"{up} against {across}", standalone=standalone)


def _legend(figure: Any, summary: Summary, drawn: set[Any]) -> None:
    from matplotlib.lines import Line2D

    styles = _styles(summary)
    handles = []
    for system in (one for one in summary.systems if one in drawn):
        color, dash, mark = styles[system]
        # A label that begins with an underscore would be left out, so none does.
        label = f"\u2060{plain(system)}"
        handles.append(Line2D([], [], color=color, ls=dash or LEVEL, marker=mark, ms=4, label=label))
    if handles:
        _fitted(figure, handles)


def _fitted(figure: Any, handles: Sequence[Any]) -> None:
    """The legend in as many columns as the figure is wide enough for; one of many rows makes it higher."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn: Any = FigureCanvasAgg(figure)  # matplotlib has no annotations for it
    for columns in range(min(LEGEND_COLUMNS, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9)
        if columns == 1 or legend.get_window_extent(drawn.get_renderer()).width <= LEGEND_SHARE * figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + LEGEND_ROW * -(-len(handles) // columns))
            return
        legend.remove()


def _cost_axis(panel: Axes, costs: Sequence[float]) -> None:
    """Logarithmic where the costs span much; then without labels between the powers of ten."""
    panel.margins(x=0.18, y=0.12)
    if costs and min(costs) > 0 and max(costs) > SPAN * min(costs):
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(lambda value, _: "")
    panel.xaxis.set_major_formatter(lambda value, _: _cost(value))


def _styles(summary: Summary) -> dict[str, Style]:
    """Systems with a context and those without take their colours apart: the latter are dotted and have no mark."""
    with_context = {cell.system for cell in summary.cells if cell.window}
    styles: dict[str, Style] = {}
    for number, system in enumerate(one for one in summary.systems if one in with_context):
        dash = DASHES[number // len(PALETTE) % len(DASHES)]
        styles[system] = Style(PALETTE[number % len(PALETTE)], dash, MARKS[number % len(MARKS)])
    for number, system in enumerate(one for one in summary.systems if one not in with_context):
        styles[system] = Style(PALETTE[number % len(PALETTE)], "", "")
    return styles


def _cells(summary: Summary, benchmark: str, system: str | None = None, window: int | None = None) -> list[Cell]:
    return [
        one
        for one in summary.cells
        if one.benchmark == benchmark and system in (None, one.system) and window in (None, one.window)
    ]


def _place(cell: Cell, cost: str, measure: str) -> tuple[float, float]:
    return cell.metrics[cost].mean, cell.metrics[measure].mean


def _places(cells: Sequence[Cell], cost: str, measure: str) -> tuple[list[float], list[float]]:
    return [_place(one, cost, measure)[0] for one in cells], [_place(one, cost, measure)[1] for one in cells]


def _axis(measure: Metric) -> str:
    return measure.name.replace("_", " ")


def _cost(value: float) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _thousands(value: float) -> str:
    return f"{value / 1024:.3g}k" if value >= 1024 else f"{value:.0f}"
