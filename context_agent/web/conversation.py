"""The page of a pruned conversation.

The page shows the passages that pruning removes before each model call, the reason, and the cost. For this, the
conversation is played again. Before each of the agent's turns, the pruner gets the messages so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from context_agent.pruning.messages import Transcript
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.report import PruneReport, RemovedPassage
from context_agent.web.page import escape, page

STYLE = """
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { text-align: left; }
.pruned td { background: var(--raised); font-weight: 600; }
article { border-left: 3px solid var(--line); margin: 0.8rem 0; padding: 0 0.8rem; }
article.tool { border-color: var(--accent); }
article h3 { margin: 0; font-size: 0.85rem; color: var(--muted); }
.removed { margin: 0.3rem 0; padding: 0; list-style: none; font-size: 0.9em; }
.removed li { border-left: 3px solid var(--bad); padding-left: 0.6rem; color: var(--muted); }
.removed q { text-decoration: line-through; quotes: none; }
"""
TABLE_HEADINGS = ("call", "messages", "tokens", "after", "", "freed", "cached lost", "saves", "costs", "outcome")


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of the model, and the prune that came before it.

    Attributes:
        messages: The number of messages that the pruner got.
        report: The pruner's report.
    """

    messages: int
    report: PruneReport


SHOWN_CALLS = 100
"""The number of calls of one conversation that the page shows. The latest calls are shown.

The limit bounds the work, because each prune reads all messages before it.
"""


def model_calls(messages: Sequence[Any], pruner: ContextPruner, task: str | None = None) -> list[ModelCall]:
    """Prune the conversation before each of the agent's turns, and before the turn that comes next.

    If there are more than `SHOWN_CALLS` turns, only the latest are returned.

    Args:
        messages: The conversation.
        pruner: The pruner, which should be new. From one call to the next, it remembers the passages that it removed.
        task: The task of the agent. Defaults to the last user message.

    Returns:
        The model calls in the order of the conversation.
    """
    roles = [contents[0].role for contents in Transcript(messages).by_message]
    starts = [n for n, role in enumerate(roles) if role == "assistant" and n and roles[n - 1] != "assistant"]
    ends = [*starts, *([len(roles)] if roles and roles[-1] != "assistant" else [])]
    return [ModelCall(end, pruner.prune(messages[:end], task).report) for end in ends[-SHOWN_CALLS:]]


def conversation_page(messages: Sequence[Any], calls: Sequence[ModelCall], title: str) -> str:
    """Return the page of a pruned conversation as HTML.

    Args:
        messages: The conversation.
        calls: The result of `model_calls` for the same messages.
        title: The title of the page, as plain text.
    """
    body = [f"<h1>{escape(title)}</h1>", *_summary(calls), *_table(calls), "<h2>Messages</h2>"]
    return page(title, "\n".join([*body, *_messages(messages, calls)]), styles=[STYLE])


def _summary(calls: Sequence[ModelCall]) -> Iterator[str]:
    reports = [call.report for call in calls]
    prunes = sum(report.outcome == "pruned" for report in reports)
    # The tokens that a prune frees are missing from every later call, too.
    freed = sum(report.freed * (len(reports) - row) for row, report in enumerate(reports) if report.outcome == "pruned")
    lost = sum(report.cached_lost for report in reports if report.outcome == "pruned" or report.restored)
    yield (
        f"<p>{len(calls)} calls of the model, {prunes} of them pruned. Together they read {freed:,} tokens less; "
        f"{lost:,} cached tokens were read afresh.</p>"
    )
    for warning in dict.fromkeys(warning for report in reports for warning in report.warnings):
        yield f"<p>Warning: {escape(warning)}</p>"


def _table(calls: Sequence[ModelCall]) -> Iterator[str]:
    """Yield the table of calls as HTML, with a row for each call.

    A bar shows the tokens that remain. Its full length is the largest number of tokens before any call.
    """
    most = max((call.report.tokens_before for call in calls), default=0)
    yield f"<div class=scroll><table><tr>{''.join(f'<th>{name}</th>' for name in TABLE_HEADINGS)}</tr>"
    for number, call in enumerate(calls, 1):
        report = call.report
        bar = f'<meter max="{max(1, most)}" value="{report.tokens_after}"></meter>'
        sizes = (number, call.messages, f"{report.tokens_before:,}", f"{report.tokens_after:,}", bar)
        sides = (f"{value:,.0f}" for value in (report.freed, report.cached_lost, report.savings, report.loss))
        restored = f"; restored {', '.join(report.restored)}" if report.restored else ""
        cells = (*sizes, *sides, f"{report.outcome}{restored}")
        state = ' class="pruned"' if report.outcome == "pruned" else ""
        yield f"<tr{state}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    units = "Sizes are tokens of tool results; saves and costs are fresh input tokens over the turns to come."
    yield f"</table></div><p>{units}</p>"


def _messages(messages: Sequence[Any], calls: Sequence[ModelCall]) -> Iterator[str]:
    """Yield each message as HTML, with its texts and the passages that were removed from it.

    The passages appear in the order of their removal.
    """
    removed: dict[int, list[tuple[int, RemovedPassage]]] = {}
    back: dict[str, list[int]] = {}
    for number, call in enumerate(calls, 1):
        for name in call.report.restored:
            back.setdefault(name, []).append(number)
        for passage in call.report.removed:
            removed.setdefault(passage.message, []).append((number, passage))
    for index, contents in enumerate(Transcript(messages).by_message):
        role = escape(contents[0].role)
        texts = [
            text
            for content in contents
            for text in (content.text, *(result.text for result in (*content.results, *content.left)))
            if text
        ]
        body = "".join(f"<pre>{escape(text)}</pre>" for text in texts)
        yield f'<article id="m{index}" class="{role}"><h3>{index} {role}</h3>'
        if passages := removed.get(index, []):
            yield f"<ul class=removed>{''.join(_passages(passages, back))}</ul><details><summary>whole result</summary>"
        yield f"{body}{'</details>' if passages else ''}</article>"


def _passages(passages: Iterable[tuple[int, RemovedPassage]], back: dict[str, list[int]]) -> Iterator[str]:
    for number, passage in passages:
        # A passage can be removed again after it was restored.
        later = next((restored for restored in back.get(passage.id, ()) if restored > number), None)
        until = f", restored before call {later}" if later is not None else ""
        facts = f"{passage.id} before call {number}{until}: {passage.tokens:,} tokens, score {passage.score:g}"
        yield f'<li data-id="{passage.id}">{facts}, {escape(passage.reason)}<br><q>{escape(passage.preview)}</q></li>'
