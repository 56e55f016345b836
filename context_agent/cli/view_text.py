"""Trajectories as text: a header, a line for each call, a bar for the context after each turn, the final ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from context_agent.cli.console import printable
from context_agent.cli.live import COLOURS, NOTHING, VERBS
from context_agent.pruning.budget import Budget

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.eval.view.model import TrajectoryRow, ViewData
    from context_agent.eval.view.schema import (
        BlockData,
        DelegatedData,
        EditData,
        ResultData,
        TrajectoryDetail,
        TurnData,
    )

CELLS = 48
"""Width of the bar for the window, in characters."""
HEAD = 10
"""Width of the first column."""
MAX_TEXT = 72
"""Characters shown of an argument, a title or a name."""
MAX_TITLES = 4
"""Titles listed after a call."""
MARKS = {"soft": "┆", "hard": "│"}


def show(console: Console, view: ViewData) -> None:
    """Prints all trajectories, with an empty line between them. Long lines are cut on a terminal, not in a pipe."""
    for number, (row, detail) in enumerate(zip(view.rows, view.details, strict=True)):
        if number:
            console.print()
        for line in lines(row, detail):
            if console.is_terminal:
                console.print(line, no_wrap=True, overflow="ellipsis")
            else:
                console.print(line, soft_wrap=True)


def lines(row: TrajectoryRow, detail: TrajectoryDetail) -> list[Text]:
    """The lines of one trajectory, without terminal control characters."""
    blocks = {block["key"]: block for block in detail["blocks"]}
    budget = Budget(**detail["header"]["budget"])
    return [
        *_heading(row, detail),
        *(line for turn in detail["turns"] for line in _turn(turn, blocks, budget)),
        *_ranking(detail),
    ]


def _heading(row: TrajectoryRow, detail: TrajectoryDetail) -> list[Text]:
    header = detail["header"]
    budget = header["budget"]
    facts = (
        f"{header['policy']} · profile {header['profile']} · seed {row.seed} · window {budget['window']:,} "
        f"({MARKS['soft']} soft {budget['soft']:,}, {MARKS['hard']} hard {budget['hard']:,}) · {row.run}"
    )
    lines = [Text(_line(row.question), style="bold"), Text(_line(facts), style="dim"), Text(_outcome(row))]
    if gold := detail["gold"]:
        answer = f"; answer: {_line(gold['answer'])}" if gold["answer"] else ""
        needs = gold["needs"]
        lines.append(Text(f"★ gold: {gold['seen']} of {needs} seen, {gold['ranked']} of {needs} ranked{answer}"))
    if detail["end"] is None:
        lines.append(Text("no end: the file was cut or is still being written", style="yellow"))
    problems = (("does not replay", row.problem), ("error", detail["end"] and detail["end"]["error"]))
    return [*lines, *(Text(f"{name}: {_line(why)}", style="red") for name, why in problems if why)]


def _outcome(row: TrajectoryRow) -> str:
    took = "" if row.seconds is None else f", {row.seconds:.2f} s"
    pruned = f", {row.pruned} pruned, {row.restored} restored" if row.pruned else ""
    pruned += f", {row.summarized} summarised" if row.summarized else ""
    mistakes = f", {_count(row.mistakes, 'mistake')}" if row.mistakes else ""
    return (
        f"{_line(row.stop.replace('_', ' '))} after {_count(row.turns, 'turn')}, {_count(row.calls, 'call')}, "
        f"{_count(row.tokens, 'token')}, {_count(row.critical_steps, 'critical step')}"
        f"{pruned}{mistakes}{took}"
    )


def _turn(turn: TurnData, blocks: dict[int, BlockData], budget: Budget) -> list[Text]:
    lines = _edit(turn["edit"], blocks) if turn["edit"] else []
    for result in turn["results"]:
        if result["mistake"] or result["name"] in VERBS:
            lines += [_call(result, blocks), *_lanes(result["delegated"])]
    if turn["usage"]:
        lines.append(bar(turn["usage"]["total"], budget))
    heads = [f"turn {turn['turn'] + 1}", *[""] * len(lines)]
    return [Text.assemble((f"{head:<{HEAD}}", "bold"), line) for head, line in zip(heads, lines, strict=False)]


def bar(tokens: int, budget: Budget) -> Text:
    """A bar that shows how much of the window the view fills, with marks at the two thresholds."""
    filled = min(CELLS, -(-tokens * CELLS // budget.window))
    marks = {budget.soft * CELLS // budget.window: MARKS["soft"], budget.hard * CELLS // budget.window: MARKS["hard"]}
    line = Text.assemble(("context ", "dim"))
    for cell in range(CELLS):
        mark = marks.get(cell)
        line.append(
            mark or ("█" if cell < filled else "░"), style=COLOURS[budget.tier(tokens)] if cell < filled else "dim"
        )
    return line.append(f" {tokens:,} of {budget.window:,} tokens", style="dim")


def _call(result: ResultData, blocks: dict[int, BlockData]) -> Text:
    line = Text.assemble((f"{VERBS.get(result['name'], _short(result['name'])):<8}", "cyan"))
    if result["delegated"]:
        line.append(_count(len(result["delegated"]), "searcher"))
    else:
        line.append(_short(" ".join(value for name, value in result["arguments"] if name != "limit")))
    if result["mistake"]:
        return line.append(f"  {_line(result['mistake'].replace('_', ' '))}", style="red")
    new = [blocks[part] for part in result["segments"] if isinstance(part, int)]
    if not new:
        return line.append(f"  {NOTHING}", style="dim")
    return line.append(f"  {len(new)} new: {_titles(new)}", style="dim")


def _lanes(searchers: list[DelegatedData]) -> list[Text]:
    """A lane for each sub-agent that a call started: a bar as long as its number of steps."""
    longest = max((searcher["steps"] for searcher in searchers), default=0)
    return [_lane(searcher, longest) for searcher in searchers]


def _lane(searcher: DelegatedData, longest: int) -> Text:
    bar = "━" * searcher["steps"] + "·" * (longest - searcher["steps"])
    line = Text.assemble(("  └ ", "dim"), (bar, "cyan"), f" {_short(searcher['task'])}")
    facts = [_count(searcher["documents"], "document"), _count(searcher["steps"], "step")]
    facts += [_count(searcher["tokens"], "token"), _line(searcher["stop_reason"].replace("_", " "))]
    line.append(f"  {', '.join(facts)}", style="dim")
    return line.append(f"  {_line(searcher['error'])}", style="red") if searcher["error"] else line


def _edit(edit: EditData, blocks: dict[int, BlockData]) -> list[Text]:
    lines = []
    for verb, keys in (("prune", edit["pruned"]), ("summary", edit["replaced"]), ("restore", edit["restored"])):
        if keys:
            titles = _titles([blocks[key] for key in keys if key in blocks])
            lines.append(Text.assemble((f"{verb:<8}", "magenta"), _count(len(keys), "passage"), (f"  {titles}", "dim")))
    summaries = (blocks[key] for key in edit["summaries"] if key in blocks)
    lines += [
        Text(f"        {_line(block['chunk'])}, {_count(block['tokens'], 'token')}", style="dim") for block in summaries
    ]
    cost = f"        {edit['freed']:,} tokens freed; {edit['recomputed']:,} behind them lose their cached prefix"
    return [*lines, Text(cost, style="dim")]


def _ranking(detail: TrajectoryDetail) -> list[Text]:
    end = detail["end"]
    if end is None:
        return []
    lines = []
    for rank, document in enumerate(end["documents"], start=1):
        line = Text(f"{rank:>2}. {'★ ' if document['gold'] else ''}{_line(document['title'] or document['id'])}")
        line.append(f"  {_line(document['id'])}", style="dim")
        if document["justification"]:
            line.append(f"  {_line(document['justification'])}", style="dim")
        lines.append(line)
    dropped = ", ".join(f"{count} {_line(why)}" for why, count in end["dropped"].items())
    return [*lines, Text(f"ids dropped: {dropped}", style="yellow")] if dropped else lines


def _titles(blocks: list[BlockData]) -> str:
    """The titles of blocks without repeats, gold first, at most `MAX_TITLES`."""
    names = list(dict.fromkeys(map(_title, sorted(blocks, key=lambda block: not block["gold"]))))
    more = f", and {len(names) - MAX_TITLES} more" if len(names) > MAX_TITLES else ""
    return ", ".join(names[:MAX_TITLES]) + more


def _title(block: BlockData) -> str:
    return f"{'★ ' if block['gold'] else ''}{_short(block['title'] or block['document'])}"


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(text: str) -> str:
    return printable(" ".join(text.split()))
