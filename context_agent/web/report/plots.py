"""The plots of a summary.

Each plot is SVG text with a panel per benchmark. The functions need matplotlib, which the extra `plots` installs. If it
is missing, they raise `MissingExtraError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from context_agent.eval.metrics import Metric, find_metric, leading_metric
from context_agent.eval.summary import Cell, CurvePoint, EvalSummary
from context_agent.web.drawing import DASHES, INK, PALETTE, PLOT_MARKERS, canvas, plain, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_PER_ROW = 3
"""The number of panels per row."""

LEGEND_COLUMNS = 4
LEGEND_SHARE = 0.95
"""The share of the figure's width that a legend may fill. The browser's font may be wider than the measured one."""
LEGEND_ROW = 0.2
"""The height that a row of the legend adds to the figure, in inches."""
HORIZONTAL = (0, (1, 1.5))
"""The line style of horizontal lines: dashes of 1 and gaps of 1.5 line widths."""
LOG_FACTOR = 20
"""The ratio of the largest to the smallest cost above which the cost axis is logarithmic."""

Draw = Callable[["Axes", str], None]
"""A function of a panel and a benchmark that draws the benchmark's data in the panel."""


class Style(NamedTuple):
    """The look of a system in all plots.

    Attributes:
        color: The color, as `#rrggbb`.
        dash: The line style. Empty for a system without a context.
        mark: The marker. Empty for a system without a context.
    """

    color: str
    dash: str
    mark: str


def cost_metric(summary: EvalSummary) -> str:
    """Return the metric that measures cost. If the run had prices, it is `money`. If not, it is `tokens`."""
    return "money" if any("money" in cell.metrics for cell in summary.cells) else "tokens"


def windows(summary: EvalSummary) -> list[int]:
    """Return the windows of the systems that have a context, in tokens and ascending."""
    return sorted({cell.window for cell in summary.cells if cell.window})


def budget_curve(summary: EvalSummary, measure: str | None = None, *, standalone: bool = True) -> str:
    """Plot recall against the window. A system without a context is a horizontal line.

    Args:
        summary: The summary of the run.
        measure: The metric on the vertical axis. Defaults to the leading metric.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    measure = measure or leading_metric(summary.metrics)
    styles = _styles(summary)
    at = windows(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for system in summary.systems:
            cells = [cell for cell in _cells(summary, benchmark, system) if measure in cell.metrics]
            _horizontal_lines(panel, [cell for cell in cells if not cell.window], measure, styles)
            _window_line(panel, [cell for cell in cells if cell.window], measure, styles)
        if at:
            panel.set_xscale("log", base=2)
            panel.set_xticks(at, [_thousands(window) for window in at])
            panel.minorticks_off()

    label, share = _axis_label(find_metric(measure)), not find_metric(measure).unit
    return _plot(summary, draw, "budget", "window in tokens", label, standalone=standalone, share=share)


def systems_compared(summary: EvalSummary, *, standalone: bool = True) -> str:
    """Plot the leading metric of each system with its 95% interval, for runs with at most one window.

    Args:
        summary: The summary of the run.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    measure = leading_metric(summary.metrics)
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for cell in _cells(summary, benchmark):
            if value := cell.metrics.get(measure):
                color, _, mark = styles[cell.system]
                error = [[max(0.0, value.mean - value.low)], [max(0.0, value.high - value.mean)]]
                panel.errorbar(
                    summary.systems.index(cell.system), value.mean, error, color=color, marker=mark or "o", capsize=4
                )
        names = [plain(system) for system in summary.systems]
        panel.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        panel.set_xlim(-0.5, len(names) - 0.5)

    label, share = _axis_label(find_metric(measure)), not find_metric(measure).unit
    return _plot(summary, draw, "systems", "system", label, standalone=standalone, share=share)


def recall_by_turn(summary: EvalSummary, window: int, *, standalone: bool = True) -> str:
    """Plot recall after each turn: of all evidence seen so far (solid), and of the evidence in view (dashed).

    Args:
        summary: The summary of the run.
        window: The window of the systems to plot, in tokens.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    draw = _states(summary, window, lambda cell: cell.turns)
    return _plot(summary, draw, f"turns-{window}", "turns", "recall", standalone=standalone)


def recall_by_tokens(summary: EvalSummary, window: int, *, standalone: bool = True) -> str:
    """Plot recall against tokens placed: of all evidence seen so far (solid), and of the evidence in view (dashed).

    Args:
        summary: The summary of the run.
        window: The window of the systems to plot, in tokens.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    draw = _states(summary, window, lambda cell: cell.tokens, log=True)
    return _plot(summary, draw, f"tokens-{window}", "tokens placed in the context", "recall", standalone=standalone)


def prune_accuracy(summary: EvalSummary, window: int, *, standalone: bool = True) -> str:
    """For each turn, plot the share of all chunks pruned until then that are not gold.

    Args:
        summary: The summary of the run.
        window: The window of the systems to plot, in tokens.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for system in summary.systems:
            for cell in _cells(summary, benchmark, system, window):
                points = [(point.at, point.prune_accuracy) for point in cell.turns if point.prune_accuracy is not None]
                if points:
                    style = styles[system]
                    look: dict[str, Any] = {"color": style.color, "ls": style.dash, "marker": style.mark, "ms": 4}
                    panel.plot(*zip(*points, strict=True), label=system, **look)

    return _plot(summary, draw, f"pruning-{window}", "turns", "prune accuracy", standalone=standalone)


def cost_against_recall(summary: EvalSummary, *, standalone: bool = True) -> str:
    """Plot recall against cost, with a point for each system and window.

    Points on the Pareto front are circled, connected and labeled with their windows.

    Args:
        summary: The summary of the run.
        standalone: True if the drawing has its own text colors, as in `drawing.svg`.
    """
    measure, cost = leading_metric(summary.metrics), cost_metric(summary)
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        cells = [cell for cell in _cells(summary, benchmark) if measure in cell.metrics]
        priced = [cell for cell in cells if cost in cell.metrics]
        _horizontal_lines(panel, [cell for cell in cells if cost not in cell.metrics], measure, styles)
        for cell in priced:
            style = styles[cell.system]
            panel.plot(*_point(cell, cost, measure), color=style.color, marker=style.mark, ls="none", label=cell.system)
        front = pareto_front(priced, cost, measure)
        points = list(zip(*(_point(cell, cost, measure) for cell in front), strict=True)) or [(), ()]
        panel.plot(*points, color=INK, lw=0.8, alpha=0.6, zorder=1)
        panel.plot(*points, color=INK, ls="none", marker="o", ms=11, mfc="none", mew=1)
        for cell in front:
            label, point = _thousands(cell.window), _point(cell, cost, measure)
            annotation = panel.annotate(label, point, (5, -13), textcoords="offset points", fontsize=8)
            annotation.set_in_layout(False)
        _format_cost_axis(panel, [cell.metrics[cost].mean for cell in priced])

    unit = str(summary.settings.get("currency", "money")) if cost == "money" else "tokens placed"
    label, share = _axis_label(find_metric(measure)), not find_metric(measure).unit
    return _plot(summary, draw, "cost", f"{unit}, mean", label, standalone=standalone, share=share)


def pareto_front(cells: Iterable[Cell], cost: str, measure: str) -> list[Cell]:
    """Return the cells on the Pareto front, the cheapest first.

    A cell is on the front if no other is both at most as expensive and at least as good.

    Args:
        cells: The cells to compare.
        cost: The name of the cost metric.
        measure: The name of the quality metric.
    """
    front: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: (cell.metrics[cost].mean, -cell.metrics[measure].mean)):
        if not front or cell.metrics[measure].mean > front[-1].metrics[measure].mean:
            front.append(cell)
    return front


def _states(
    summary: EvalSummary, window: int, points: Callable[[Cell], Sequence[CurvePoint]], *, log: bool = False
) -> Draw:
    styles = _styles(summary)

    def draw(panel: Axes, benchmark: str) -> None:
        for cell in _cells(summary, benchmark, window=window):
            at = [point.at for point in points(cell)]
            color, _, mark = styles[cell.system]
            look: dict[str, Any] = {"marker": mark, "ms": 4, "markevery": max(1, len(at) // 12), "label": cell.system}
            panel.plot(at, [point.seen for point in points(cell)], color=color, **look)
            panel.plot(at, [point.held for point in points(cell)], color=color, ls="--", lw=1.2)
        if log and any(points(cell) for cell in _cells(summary, benchmark, window=window)):
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter(lambda value, _: _thousands(value))

    return draw


def _window_line(panel: Axes, cells: Sequence[Cell], measure: str, styles: dict[str, Style]) -> None:
    """Draw a system's line over the windows, with its confidence interval as a band."""
    if not cells:
        return
    at, style = [cell.window for cell in cells], styles[cells[0].system]
    values = [cell.metrics[measure] for cell in cells]
    look: dict[str, Any] = {"color": style.color, "ls": style.dash, "marker": style.mark, "label": cells[0].system}
    panel.plot(at, [value.mean for value in values], **look)
    low, high = [value.low for value in values], [value.high for value in values]
    panel.fill_between(at, low, high, color=style.color, alpha=0.12, lw=0)


def _horizontal_lines(panel: Axes, cells: Sequence[Cell], measure: str, styles: dict[str, Style]) -> None:
    """Draw a horizontal line for each cell that has no value on the other axis."""
    for cell in cells:
        color = styles[cell.system].color
        panel.axhline(cell.metrics[measure].mean, color=color, ls=HORIZONTAL, lw=1.4, label=cell.system)


def _plot(
    summary: EvalSummary, draw: Draw, name: str, across: str, up: str, *, standalone: bool, share: bool = True
) -> str:
    """Draw a panel per benchmark with a legend of the drawn systems below, and return the SVG text.

    If `share` is True, the vertical axis ends at 1.
    """
    with canvas() as figure_type:
        names = summary.benchmarks or ("",)
        columns = min(PANELS_PER_ROW, len(names))
        rows = -(-len(names) // columns)
        figure = figure_type(figsize=(max(5.2, 3.6 * columns), 3.0 * rows + 0.5))
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
        for panel, benchmark in zip(panels, names, strict=False):
            panel.set_title(plain(benchmark), loc="left")
            draw(panel, benchmark)
            # The axis starts at 0, and for shares it ends at 1. A truncated axis makes a small difference look large.
            panel.set_ylim(0, 1.04 if share else None)
            panel.set_xlabel(across)
        for panel in list(panels)[len(names) :]:
            panel.remove()
        figure.supylabel(up, fontsize=10)
        _legend(figure, summary, {line.get_label() for panel in figure.axes for line in panel.get_lines()})
        return svg(figure, name, f"{up} against {across}", standalone=standalone)


def _legend(figure: Any, summary: EvalSummary, drawn: set[Any]) -> None:
    from matplotlib.lines import Line2D

    styles = _styles(summary)
    handles = []
    for system in (name for name in summary.systems if name in drawn):
        color, dash, mark = styles[system]
        # matplotlib ignores labels that start with an underscore, so an invisible character comes first.
        label = f"\u2060{plain(system)}"
        handles.append(Line2D([], [], color=color, ls=dash or HORIZONTAL, marker=mark, ms=4, label=label))
    if handles:
        _fit_legend(figure, handles)


def _fit_legend(figure: Any, handles: Sequence[Any]) -> None:
    """Add the legend in as many columns as fit the figure. Make the figure higher by the legend's rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas_agg: Any = FigureCanvasAgg(figure)  # matplotlib has no annotations for it
    for columns in range(min(LEGEND_COLUMNS, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9)
        if (
            columns == 1
            or legend.get_window_extent(canvas_agg.get_renderer()).width <= LEGEND_SHARE * figure.bbox.width
        ):
            figure.set_figheight(figure.get_figheight() + LEGEND_ROW * -(-len(handles) // columns))
            return
        legend.remove()


def _format_cost_axis(panel: Axes, costs: Sequence[float]) -> None:
    """Label the cost axis, and make it logarithmic if the costs differ by more than `LOG_FACTOR`.

    A logarithmic axis has labels only at powers of ten.
    """
    panel.margins(x=0.18, y=0.12)
    if costs and min(costs) > 0 and max(costs) > LOG_FACTOR * min(costs):
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(lambda value, _: "")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}")


def _styles(summary: EvalSummary) -> dict[str, Style]:
    """Return the style of each system.

    Systems without a context are dotted and have no mark. Their colors are counted separately.
    """
    with_context = {cell.system for cell in summary.cells if cell.window}
    styles: dict[str, Style] = {}
    for number, system in enumerate(name for name in summary.systems if name in with_context):
        dash = DASHES[number // len(PALETTE) % len(DASHES)]
        styles[system] = Style(PALETTE[number % len(PALETTE)], dash, PLOT_MARKERS[number % len(PLOT_MARKERS)])
    for number, system in enumerate(name for name in summary.systems if name not in with_context):
        styles[system] = Style(PALETTE[number % len(PALETTE)], "", "")
    return styles


def _cells(summary: EvalSummary, benchmark: str, system: str | None = None, window: int | None = None) -> list[Cell]:
    return [
        cell
        for cell in summary.cells
        if cell.benchmark == benchmark and system in (None, cell.system) and window in (None, cell.window)
    ]


def _point(cell: Cell, cost: str, measure: str) -> tuple[float, float]:
    return cell.metrics[cost].mean, cell.metrics[measure].mean


def _axis_label(measure: Metric) -> str:
    return measure.name.replace("_", " ")


def _thousands(value: float) -> str:
    return f"{value / 1024:.3g}k" if value >= 1024 else f"{value:.0f}"
