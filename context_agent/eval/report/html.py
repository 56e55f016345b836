"""The HTML report: one page that needs no server and no network, with tables, plots and what each metric means.

Names, questions and errors are foreign text; all of it goes through `page.escape`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files

from context_agent.errors import MissingExtraError
from context_agent.eval.metrics import Metric
from context_agent.eval.page import escape, page
from context_agent.eval.report import plots
from context_agent.eval.report.table import COLUMNS, interval, number, verdict, window
from context_agent.eval.summary import Cell, Failure, Group, Pool, Summary, Value, Values, Worst

LISTED = 200
"""Failures, problems and missing runs that the page names; the JSON has all failures."""


def render(summary: Summary, *, title: str = "Evaluation", links: Mapping[str, str] | None = None) -> str:
    """The report as HTML text. Without matplotlib it has no plots, and says which extra brings them.

    `links` are addresses by trajectory: questions that failed or were answered badly lead there.
    """
    parts = [
        f"<h1>{escape(title)}</h1>",
        _lead(summary),
        _trouble(summary),
        _pools(summary),
        *(_benchmark(summary, name) for name in summary.benchmarks),
        _plots(summary),
        _failures(summary, links or {}),
        _worst(summary, links or {}),
        _legend(summary),
        _settings(summary),
    ]
    style = (files("context_agent.eval.report") / "report.css").read_text(encoding="utf-8")
    return page(title, "\n".join(part for part in parts if part), styles=(style,))


def _lead(summary: Summary) -> str:
    questions = sum(max(c.questions for c in summary.cells if c.benchmark == name) for name in summary.benchmarks)
    failed = sum(cell.failed for cell in summary.cells)
    sizes = (_count(len(summary.systems), "system"), _count(questions, "question"))
    said = [
        f"{' on '.join(sizes)} of {_count(len(summary.benchmarks), 'benchmark')}.",
        "Means over questions with bootstrap 95&nbsp;% intervals in brackets; seeds are averaged per question first.",
        f"{_count(failed, 'failed episode')}: each counts as zero on quality, none is dropped.",
    ]
    if summary.reference is not None and len(summary.systems) > 1:
        said.append(
            f"Δ is the paired difference from <b>{escape(summary.reference)}</b> on the same questions, "
            '<span class="good">better</span> or <span class="bad">worse</span> where its interval has no 0 in it.'
        )
    return f"<p>{' '.join(said)}</p>"


def _trouble(summary: Summary) -> str:
    """What is missing and what was wrong with the inputs, where the reader sees it first."""
    lines = [
        f"{escape(one.benchmark)}, {escape(one.system)}, window {window(one.window)}, seed {one.seed}: "
        f"{_count(one.count, 'record')} missing, of {escape(', '.join(one.first))}"
        + (" …" if one.count > len(one.first) else "")
        for one in summary.missing
    ]
    lines += [escape(problem) for problem in summary.problems]
    if not lines:
        return ""
    return f'<div class="problems" id="problems"><b>What is missing or wrong</b>{_list(lines)}</div>'


def _pools(summary: Summary) -> str:
    if not summary.pools:
        return ""
    said = "<p>The mean over benchmarks, each of which counts alike; intervals are resampled within benchmarks.</p>"
    lead = plots.lead(summary)
    return f"<h2>All benchmarks</h2>{said}{_table(summary.pools, _headlines(summary), {lead})}"


def _benchmark(summary: Summary, name: str) -> str:
    cells = [cell for cell in summary.cells if cell.benchmark == name]
    every = _table(cells, summary.defined, set(summary.metrics))
    return (
        f"<h2>{escape(name)}</h2>{_table(cells, _headlines(summary), {plots.lead(summary)})}"
        f"<details><summary>All metrics</summary>{every}</details>"
        f"<details><summary>By type, hops and seed</summary>{_breakdowns(summary, cells)}</details>"
    )


def _table(rows: Sequence[Cell | Pool], metrics: Sequence[Metric], compared: set[str]) -> str:
    """A row a system and window; differences beside the metrics that are to be `compared`."""
    metrics = [metric for metric in metrics if any(metric.name in row.metrics for row in rows)]
    with_difference = compared & {name for row in rows for name in row.differences}
    head = ["<th>system</th>", '<th class="number">window</th>', '<th class="number">n</th>']
    for metric in metrics:
        head.append(f'<th class="number">{_name(metric)}</th>')
        if metric.name in with_difference:
            head.append('<th class="number">Δ</th>')
    head.append('<th class="number">failed</th>')
    body = "".join(_row(row, metrics, with_difference) for row in rows)
    return f'<div class="scroll"><table><thead><tr>{"".join(head)}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(row: Cell | Pool, metrics: Sequence[Metric], with_difference: set[str]) -> str:
    cells = [f"<th>{escape(row.system)}</th>", _right(window(row.window)), _right(f"{row.questions:,}")]
    for metric in metrics:
        cells.append(_value(row.metrics.get(metric.name), metric))
        if metric.name in with_difference:
            cells.append(_difference(row.differences, metric))
    cells.append(_right(f"{row.failed:,}", "bad" if row.failed else "muted"))
    return f"<tr>{''.join(cells)}</tr>"


def _value(value: Value | None, metric: Metric) -> str:
    if value is None:
        return _right("–", "muted")
    out = f"<small>{value.left_out:,} left out</small>" if value.left_out else ""
    return _right(f"{number(value.mean, metric)} <small>{interval(value, metric)}</small>{out}")


def _difference(differences: Values, metric: Metric) -> str:
    value = differences.get(metric.name)
    if value is None:
        return _right("")
    said = f"{number(value.mean, metric, sign=True)} <small>{interval(value, metric, sign=True)}</small>"
    return _right(said, {"better": "good", "worse": "bad"}.get(verdict(value, metric), "muted"))


def _breakdowns(summary: Summary, cells: Sequence[Cell]) -> str:
    """A table for each way to break down: systems down, groups across, in the metric that leads."""
    metric = next(one for one in summary.defined if one.name == plots.lead(summary))
    parts = []
    for by in ("type", "hops", "seed"):
        labels = list(dict.fromkeys(label for cell in cells for label in cell.breakdown.get(by, {})))
        if labels:
            head = "".join(f'<th class="number">{escape(label)}</th>' for label in labels)
            rows = "".join(_groups(cell, by, labels, metric) for cell in cells if by in cell.breakdown)
            parts.append(
                f'<div class="scroll"><table><caption>{_name(metric)} by {by}</caption><thead><tr><th>system</th>'
                f'<th class="number">window</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
            )
    return "".join(parts) or "<p>All questions are of one kind.</p>"


def _groups(cell: Cell, by: str, labels: Iterable[str], metric: Metric) -> str:
    groups = [_group(cell.breakdown[by].get(label), metric) for label in labels]
    return f"<tr><th>{escape(cell.system)}</th>{_right(window(cell.window))}{''.join(groups)}</tr>"


def _group(group: Group | None, metric: Metric) -> str:
    value = group.metrics.get(metric.name) if group is not None else None
    if group is None or value is None:
        return _right("–", "muted")
    failed = f", {group.failed:,} failed" if group.failed else ""
    return _right(
        f"{number(value.mean, metric)} <small>{interval(value, metric)}</small>"
        f"<small>{group.questions:,} questions{failed}</small>"
    )


def _plots(summary: Summary) -> str:
    if not summary.cells:
        return ""
    try:
        return f"<h2>Curves</h2>{_curves(summary)}"
    except MissingExtraError as error:
        return f'<h2>Curves</h2><p class="muted">No plots: {escape(str(error))}</p>'


def _curves(summary: Summary) -> str:
    lead, cost, sizes = escape(plots.lead(summary)), plots.cost_of(summary), plots.windows(summary)
    parts = [
        _figure(
            plots.cost_against_recall(summary, standalone=False),
            f"Cost against {lead}. Ringed, joined and marked with their windows: the Pareto front, which nothing beats "
            f"in one without being worse in the other. Level lines: systems whose {cost} are unknown or none.",
        )
    ]
    if sizes:
        text = f"{lead} against the window, with 95 % intervals. Level lines: systems that keep no context."
        parts.insert(0, _figure(plots.budget_curve(summary, standalone=False), text))
    for size in reversed(sizes):
        opened = " open" if size == sizes[-1] else ""
        parts.append(f"<details{opened}><summary>Within a window of {size:,} tokens</summary>")
        parts += [_figure(draw(summary, size, standalone=False), text) for draw, text in _STATES]
        parts.append("</details>")
    return "".join(parts)


_STATES: tuple[tuple[Callable[..., str], str], ...] = (
    (
        plots.recall_by_tokens,
        "Recall against tokens placed: seen (solid) and still held in view (dashed). An ended episode stays as it was.",
    ),
    (plots.recall_by_turn, "Recall against turns: seen (solid) and held (dashed)."),
    (
        plots.prune_accuracy,
        "Prune accuracy over the episode: of all chunks pruned by that turn, the share that was not gold.",
    ),
)


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def _failures(summary: Summary, links: Mapping[str, str]) -> str:
    if not summary.failures:
        return ""
    rows = "".join(f"<tr>{_asked(one, links)}<td>{escape(one.error)}</td></tr>" for one in summary.failures[:LISTED])
    rest = len(summary.failures) - LISTED
    more = f"<p>and {rest:,} more, which the JSON names</p>" if rest > 0 else ""
    return (
        f'<h2 id="failures">Failed episodes ({len(summary.failures):,})</h2><div class="scroll"><table><thead><tr>'
        f"{_ASKED}<th>error</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )


def _worst(summary: Summary, links: Mapping[str, str]) -> str:
    """The questions that agents answered worst: where to look first."""
    if not summary.worst:
        return ""
    metric = next(one for one in summary.defined if one.name == plots.lead(summary))
    rows = "".join(f"<tr>{_asked(one, links)}{_right(number(one.value, metric))}</tr>" for one in summary.worst)
    return (
        f'<details id="worst"><summary>Questions answered worst</summary><div class="scroll"><table><thead><tr>{_ASKED}'
        f'<th class="number">{_name(metric)}</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


_ASKED = '<th>benchmark</th><th>system</th><th class="number">window</th><th class="number">seed</th><th>question</th>'


def _asked(one: Failure | Worst, links: Mapping[str, str]) -> str:
    """The cells that name a question; it leads to each of its trajectories that has an address."""
    to = [links[path] for path in one.trajectories if path in links]
    more = "".join(f' <a href="{escape(address)}">{at}</a>' for at, address in enumerate(to[1:], start=2))
    question = f'<a href="{escape(to[0])}">{escape(one.question)}</a>{more}' if to else escape(one.question)
    return (
        f"<td>{escape(one.benchmark)}</td><td>{escape(one.system)}</td>{_right(window(one.window))}"
        f"{_right(str(one.seed))}<td>{question}</td>"
    )


def _legend(summary: Summary) -> str:
    rows = "".join(
        f"<tr><th>{_name(metric)}</th><td>{escape(metric.what)}</td><td>{metric.better}</td>"
        f"<td>{escape(metric.unit or 'share')}</td><td>{escape(metric.rollouts)}</td></tr>"
        for metric in summary.defined
    )
    if not rows:
        return ""
    return (
        '<h2 id="metrics">What the metrics mean</h2><div class="scroll"><table><thead><tr><th>metric</th><th>what</th>'
        f"<th>better</th><th>unit</th><th>several rollouts</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _settings(summary: Summary) -> str:
    pairs = [(escape(str(key)), escape(_plain(value))) for key, value in summary.settings.items()]
    rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in pairs)
    return f'<h2 id="settings">Settings</h2><table><tbody>{rows}</tbody></table>' if rows else ""


def _headlines(summary: Summary) -> list[Metric]:
    """The metrics of the short tables, the leading one first."""
    names = (plots.lead(summary), "recall", *COLUMNS)
    return [metric for name in dict.fromkeys(names) for metric in summary.defined if metric.name == name]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _name(metric: Metric) -> str:
    return escape(metric.name.replace("_", " "))


def _right(content: str, kind: str = "") -> str:
    return f'<td class="{f"number {kind}".strip()}">{content}</td>'


def _list(lines: Sequence[str]) -> str:
    rest = len(lines) - LISTED
    more = f"<li>and {rest:,} more</li>" if rest > 0 else ""
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines[:LISTED])}{more}</ul>"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
