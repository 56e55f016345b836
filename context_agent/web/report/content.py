"""The HTML report: one self-contained page with tables, plots and the definition of each metric.

Names, questions and errors are external text. All of it goes through `page.escape`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from context_agent.errors import MissingExtraError
from context_agent.eval.metrics import Metric, find_metric, leading_metric
from context_agent.eval.summary import (
    MIN_VERDICT_QUESTIONS,
    Cell,
    EvalSummary,
    FailedQuestion,
    GroupSummary,
    MetricValue,
    MetricValues,
    PooledCell,
    WorstQuestion,
    verdict,
)
from context_agent.eval.summary_table import METRIC_COLUMNS, format_interval, format_value, format_window
from context_agent.text.counts import counted
from context_agent.types import Question
from context_agent.web.page import escape, page
from context_agent.web.report import plots

FINDINGS = 4
"""The number of systems per benchmark that the findings describe."""
MAX_LISTED = 200
"""The largest number of failures, problems or gaps that one list on the page shows. The JSON has all failures."""
SHOWN_CHARACTERS = 400
"""The largest number of characters of a question, and of its gold, that one row shows."""


def render(
    summary: EvalSummary,
    *,
    title: str = "Evaluation",
    links: Mapping[str, str] | None = None,
    questions: Mapping[str, Question] | None = None,
) -> str:
    """Return the report as HTML.

    If matplotlib is missing, the report has no plots and names the extra to install.

    Args:
        summary: The summary of the run.
        title: The title of the page.
        links: The address of each trajectory by its path in the run's folder. Failed and worst questions link to them.
        questions: The questions by `BENCHMARK/ID`. Failed and worst questions show their texts and gold.
    """
    listed = _ListedQuestions(links or {}, questions or {})
    parts = [
        f"<h1>{escape(title)}</h1>",
        _introduction(summary),
        _findings(summary),
        _problems(summary),
        _pools(summary),
        *(_benchmark(summary, name) for name in summary.benchmarks),
        _plots(summary),
        _failures(summary, listed),
        _worst(summary, listed),
        f'<div class="columns"><section>{_legend(summary)}</section><section>{_settings(summary)}</section></div>',
    ]
    style = (files("context_agent.web.report") / "report.css").read_text(encoding="utf-8")
    return page(title, "\n".join(part for part in parts if part), styles=(style,))


def _introduction(summary: EvalSummary) -> str:
    questions = sum(
        max(cell.questions for cell in summary.cells if cell.benchmark == name) for name in summary.benchmarks
    )
    failed = sum(cell.failed for cell in summary.cells)
    sizes = (counted(len(summary.systems), "system"), counted(questions, "question"))
    sentences = [
        f"{' on '.join(sizes)} of {counted(len(summary.benchmarks), 'benchmark')}.",
        "Means over questions with bootstrap 95&nbsp;% intervals in brackets; seeds are averaged per question first.",
        f"{counted(failed, 'failed episode')}: each counts as 0 on quality metrics, none is left out.",
    ]
    if summary.reference is not None and len(summary.systems) > 1:
        sentences.append(
            f"Δ is the paired difference from <b>{escape(summary.reference)}</b> on the same questions, "
            '<span class="good">better</span> or <span class="bad">worse</span> if its interval excludes 0 '
            f"and there are at least {MIN_VERDICT_QUESTIONS} questions."
        )
    return f"<p>{' '.join(sentences)}</p>"


def _findings(summary: EvalSummary) -> str:
    """Return a list that describes the best systems of each benchmark, one sentence per system."""
    lead = find_metric(leading_metric(summary.metrics))
    lines: list[str] = []
    for name in summary.benchmarks:
        cells = [cell for cell in summary.cells if cell.benchmark == name and lead.name in cell.metrics]
        best = sorted(cells, key=lambda cell: -cell.metrics[lead.name].mean)[:FINDINGS]
        lines += [f"{escape(name)}: {_finding(cell, lead, summary.reference)}" for cell in best]
    return f'<div id="findings">{_list(lines)}</div>' if lines else ""


def _finding(cell: Cell, lead: Metric, reference: str | None) -> str:
    """Describe the quality of a system, its difference from the reference, and the cost of a question."""
    value, window = cell.metrics[lead.name], f" with a window of {cell.window:,} tokens" if cell.window else ""
    depth = lead.name.partition("@")[2]
    found = f"finds {_percent(value.mean)} [{_percent(value.low)}, {_percent(value.high)}] of the gold"
    found += f" among its first {depth} documents" if depth else " in its ranking"
    sentences = [f"<b>{escape(cell.system)}</b>{window} {found}"]
    if (difference := cell.differences.get(lead.name)) is not None:
        sentences.append(f"{_comparison(difference, lead)} <b>{escape(reference or '')}</b>")
    if "turns" in cell.metrics and "tokens" in cell.metrics:
        turns, tokens = find_metric("turns"), find_metric("tokens")
        costs = (format_value(cell.metrics[metric.name].mean, metric) for metric in (turns, tokens))
        sentences.append("a question takes {} turns and {} tokens on average".format(*costs))
    if cell.failed:
        sentences.append(f"{counted(cell.failed, 'episode')} of {cell.records:,} failed")
    return f"{'; '.join(sentences)}."


def _comparison(difference: MetricValue, lead: Metric) -> str:
    points = f"{abs(difference.mean) * 100:.1f} points"
    word = {"better": "more than", "worse": "less than"}.get(verdict(difference, lead))
    return f"{points} {word}" if word else "no clear difference from"


def _percent(share: float) -> str:
    return f"{share * 100:.1f}&nbsp;%"


def _problems(summary: EvalSummary) -> str:
    """Return the box at the top of the page that lists missing records and problems with the inputs."""
    lines = [
        f"{escape(gap.benchmark)}, {escape(gap.system)}, window {format_window(gap.window)}, seed {gap.seed}: "
        f"{counted(gap.count, 'record')} missing, of {escape(', '.join(gap.first))}"
        + (" …" if gap.count > len(gap.first) else "")
        for gap in summary.missing
    ]
    lines += [escape(problem) for problem in summary.problems]
    if not lines:
        return ""
    return f'<div class="problems" id="problems"><b>What is missing or wrong</b>{_list(lines)}</div>'


def _pools(summary: EvalSummary) -> str:
    if not summary.pools:
        return ""
    text = "<p>The mean over benchmarks with equal weights; intervals are resampled within benchmarks.</p>"
    table = _table(summary.pools, _headlines(summary), {leading_metric(summary.metrics)})
    return f"<h2>All benchmarks</h2>{text}{table}"


def _benchmark(summary: EvalSummary, name: str) -> str:
    cells = [cell for cell in summary.cells if cell.benchmark == name]
    headlines = _table(cells, _headlines(summary), {leading_metric(summary.metrics)})
    all_metrics = _table(cells, summary.definitions, set(summary.metrics))
    return (
        f"<h2>{escape(name)}</h2>{headlines}"
        f"<details><summary>All metrics</summary>{all_metrics}</details>"
        f"<details><summary>By type, hops and seed</summary>{_breakdowns(summary, cells)}</details>"
    )


def _table(rows: Sequence[Cell | PooledCell], metrics: Sequence[Metric], compared: set[str]) -> str:
    """Return a table with a row per system and window. The metrics in `compared` are followed by their differences."""
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


def _row(row: Cell | PooledCell, metrics: Sequence[Metric], with_difference: set[str]) -> str:
    cells = [f"<th>{escape(row.system)}</th>", _right(format_window(row.window)), _right(f"{row.questions:,}")]
    for metric in metrics:
        cells.append(_value(row.metrics.get(metric.name), metric))
        if metric.name in with_difference:
            cells.append(_difference(row.differences, metric))
    cells.append(_right(f"{row.failed:,}", "bad" if row.failed else "muted"))
    return f"<tr>{''.join(cells)}</tr>"


def _value(value: MetricValue | None, metric: Metric) -> str:
    if value is None:
        return _right("–", "muted")
    left_out = f"<small>{value.left_out:,} left out</small>" if value.left_out else ""
    return _right(f"{format_value(value.mean, metric)} <small>{format_interval(value, metric)}</small>{left_out}")


def _difference(differences: MetricValues, metric: Metric) -> str:
    value = differences.get(metric.name)
    if value is None:
        return _right("")
    mean, interval = format_value(value.mean, metric, sign=True), format_interval(value, metric, sign=True)
    return _right(
        f"{mean} <small>{interval}</small>", {"better": "good", "worse": "bad"}.get(verdict(value, metric), "muted")
    )


def _breakdowns(summary: EvalSummary, cells: Sequence[Cell]) -> str:
    """Return a table for each breakdown of the leading metric, with systems as rows and groups as columns."""
    metric = find_metric(leading_metric(summary.metrics))
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
    return "".join(parts) or "<p>All questions have the same type, number of hops and seed.</p>"


def _groups(cell: Cell, by: str, labels: Iterable[str], metric: Metric) -> str:
    groups = [_group(cell.breakdown[by].get(label), metric) for label in labels]
    return f"<tr><th>{escape(cell.system)}</th>{_right(format_window(cell.window))}{''.join(groups)}</tr>"


def _group(group: GroupSummary | None, metric: Metric) -> str:
    value = group.metrics.get(metric.name) if group is not None else None
    if group is None or value is None:
        return _right("–", "muted")
    failed = f", {group.failed:,} failed" if group.failed else ""
    return _right(
        f"{format_value(value.mean, metric)} <small>{format_interval(value, metric)}</small>"
        f"<small>{group.questions:,} questions{failed}</small>"
    )


def _plots(summary: EvalSummary) -> str:
    """Return the plots. If there is only one system, return nothing, because the plots compare systems."""
    if len(summary.systems) < 2:
        return ""
    try:
        curves = _curves(summary)
    except MissingExtraError as error:
        curves = f'<p class="muted">No plots: {escape(str(error))}</p>'
    return f"<h2>Plots</h2>{curves}"


def _curves(summary: EvalSummary) -> str:
    lead, cost, sizes = escape(leading_metric(summary.metrics)), plots.cost_metric(summary), plots.windows(summary)
    figures = []
    if len(sizes) > 1:
        text = f"{lead} against the window, with 95% intervals. Horizontal lines: systems without a context."
        figures.append(_figure(plots.budget_curve(summary, standalone=False), text))
    else:
        text = f"{lead} of each system, with 95% intervals."
        figures.append(_figure(plots.systems_compared(summary, standalone=False), text))
    priced = [cell.benchmark for cell in summary.cells if cost in cell.metrics]
    if len(priced) > len(set(priced)):
        text = (
            f"Cost against {lead}. Points on the Pareto front are circled, connected and labeled with their windows; "
            "no other point is better in one measure without being worse in the other. Horizontal lines: systems "
            f"without a known value of {cost}."
        )
        figures.append(_figure(plots.cost_against_recall(summary, standalone=False), text))
    parts = [f'<div class="figures">{"".join(figures)}</div>']
    for size in reversed(sizes):
        cells = [cell for cell in summary.cells if cell.window == size and len(cell.turns) > 1]
        is_open = " open" if size == sizes[-1] and len({cell.system for cell in cells}) > 1 else ""
        drawn = [
            _figure(draw(summary, size, standalone=False), text)
            for draw, text in _STATES
            if draw is not plots.prune_accuracy or any(p.prune_accuracy is not None for c in cells for p in c.turns)
        ]
        if cells:
            title = f"<summary>Window of {size:,} tokens, turn by turn</summary>"
            parts.append(f'<details{is_open}>{title}<div class="figures">{"".join(drawn)}</div></details>')
    return "".join(parts)


_STATES: tuple[tuple[Callable[..., str], str], ...] = (
    (
        plots.recall_by_tokens,
        "Recall against tokens placed: seen (solid) and still in view (dashed). An ended episode keeps its last state.",
    ),
    (plots.recall_by_turn, "Recall against turns: seen (solid) and still in view (dashed)."),
    (
        plots.prune_accuracy,
        "Prune accuracy over the episode: of all chunks pruned by a turn, the share that is not gold.",
    ),
)


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


@dataclass(frozen=True, slots=True)
class _ListedQuestions:
    """The data about failed and worst questions: the addresses of trajectories by path, and the questions by id."""

    links: Mapping[str, str]
    questions: Mapping[str, Question]

    def cells(self, row: FailedQuestion | WorstQuestion) -> str:
        """Return the cells that identify a question. Its id links to the trajectories that have an address."""
        addresses = [self.links[path] for path in row.trajectories if path in self.links]
        more = "".join(f' <a href="{escape(address)}">{at}</a>' for at, address in enumerate(addresses[1:], start=2))
        name = escape(row.question)
        if addresses:
            name = f'<a href="{escape(addresses[0])}">{name}</a>{more}'
        question = self.questions.get(f"{row.benchmark}/{row.question}")
        text = f"<br>{escape(_shortened(question.question))}" if question else ""
        gold = escape(_shortened(", ".join(question.gold))) if question else ""
        return (
            f"<td>{escape(row.benchmark)}</td><td>{escape(row.system)}</td>{_right(format_window(row.window))}"
            f"{_right(str(row.seed))}<td>{name}{text}</td><td>{gold}</td>"
        )


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _failures(summary: EvalSummary, listed: _ListedQuestions) -> str:
    if not summary.failures:
        return ""
    failures = summary.failures[:MAX_LISTED]
    rows = "".join(f"<tr>{listed.cells(row)}<td>{escape(row.error)}</td></tr>" for row in failures)
    rest = len(summary.failures) - MAX_LISTED
    more = f"<p>and {rest:,} more, listed in the JSON</p>" if rest > 0 else ""
    return (
        f'<h2 id="failures">Failed episodes ({len(summary.failures):,})</h2><div class="scroll"><table><thead><tr>'
        f"{_QUESTION_HEAD}<th>error</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )


def _worst(summary: EvalSummary, listed: _ListedQuestions) -> str:
    """Return the questions that agents answered worst. A reader looks at these first."""
    if not summary.worst:
        return ""
    metric = find_metric(leading_metric(summary.metrics))
    rows = "".join(f"<tr>{listed.cells(row)}{_right(format_value(row.value, metric))}</tr>" for row in summary.worst)
    return (
        f'<details id="worst"><summary>Worst questions</summary><div class="scroll"><table><thead><tr>{_QUESTION_HEAD}'
        f'<th class="number">{_name(metric)}</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


_QUESTION_HEAD = (
    '<th>benchmark</th><th>system</th><th class="number">window</th><th class="number">seed</th><th>question</th>'
    "<th>gold</th>"
)


def _legend(summary: EvalSummary) -> str:
    rows = "".join(
        f"<tr><th>{_name(metric)}</th><td>{escape(metric.what)}</td><td>{metric.better}</td>"
        f"<td>{escape(metric.unit or 'share')}</td><td>{escape(metric.rollouts)}</td></tr>"
        for metric in summary.definitions
    )
    if not rows:
        return ""
    return (
        '<h2 id="metrics">Metrics</h2><div class="scroll"><table><thead><tr><th>metric</th><th>definition</th>'
        f"<th>better</th><th>unit</th><th>several rollouts</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _settings(summary: EvalSummary) -> str:
    pairs = [(escape(str(key)), escape(_plain(value))) for key, value in summary.settings.items()]
    rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in pairs)
    table = f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'
    return f'<h2 id="settings">Settings</h2>{table}' if rows else ""


def _headlines(summary: EvalSummary) -> list[Metric]:
    """Return the metrics of the short tables, with the leading metric first."""
    names = (leading_metric(summary.metrics), "recall", *METRIC_COLUMNS)
    return [metric for name in dict.fromkeys(names) for metric in summary.definitions if metric.name == name]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _name(metric: Metric) -> str:
    return escape(metric.name.replace("_", " "))


def _right(content: str, kind: str = "") -> str:
    return f'<td class="{f"number {kind}".strip()}">{content}</td>'


def _list(lines: Sequence[str]) -> str:
    rest = len(lines) - MAX_LISTED
    more = f"<li>and {rest:,} more</li>" if rest > 0 else ""
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines[:MAX_LISTED])}{more}</ul>"
