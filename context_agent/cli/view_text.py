"""Trajectories as text: the header, a line for each call, a bar for the context after each turn, the final ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from context_agent.cli.console import printable
from context_agent.cli.live import COLOURS, NOTHING, VERBS
from context_agent.pruning.budget import Budget

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.eval.view.model import Exhibit, Row
    from context_agent.eval.view.schema import BlockData, DelegatedData, Detail, EditData, ResultData, TurnData

CELLS = 48
"""Width of the bar that stands for the window."""
HEAD = 10
"""Width of the column in front of the lines."""
LONGEST = 72
"""Characters shown of an argument, a title or a name."""
NAMED = 4
"""Titles named after a call."""
MARKS = {"soft": "┆", "hard": "│"}


def show(console: Console, shown: Exhibit) -> None:
    """Prints every trajectory, an empty line between two. A terminal cuts long lines, a pipe gets them whole."""
    for number, (row, detail) in enumerate(zip(shown.rows, shown.details, strict=True)):
        if number:
            console.print()
        for line in lines(row, detail):
            if console.is_terminal:
                console.print(line, no_wrap=True, overflow="ellipsis")
            else:
                console.print(line, soft_wrap=True)


def lines(row: Row, detail: Detail) -> list[Text]:
    """One trajectory, line by line. Nothing in it can steer a terminal."""
    blocks = {block["key"]: block for block in detail["blocks"]}
    budget = Budget(**detail["header"]["budget"])
    return [
        *_heading(row, detail),
        *(line for turn in detail["turns"] for line in _turn(turn, blocks, budget)),
        *_ranking(detail),
    ]


def _heading(row: Row, detail: Detail) -> list[Text]:
    header = detail["header"]
    budget = header["budget"]
    facts = (
        f"{header['policy']} · profile {header['profile']} · seed {row.seed} · window {budget['window']:,} "
        f"({MARKS['soft']} soft {budget['soft']:,}, {MARKS['hard']} hard {budget['hard']:,}) · {row.run}"
    )
    found = [Text(_line(row.question), style="bold"), Text(_line(facts), style="dim"), Text(_outcome(row))]
    if gold := detail["gold"]:
        answer = f"; answer: {_line(gold['answer'])}" if gold["answer"] else ""
        needs = gold["needs"]
        found.append(Text(f"★ gold: {gold['seen']} of {needs} seen, {gold['ranked']} of {needs} ranked{answer}"))
    if detail["end"] is None:
        found.append(Text("cut, or still being written: there is no end", style="yellow"))
    troubles = (("does not replay", row.problem), ("error", detail["end"] and detail["end"]["error"]))
    return [*found, *(Text(f"{name}: {_line(why)}", style="red") for name, why in troubles if why)]


def _outcome(row: Row) -> str:
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
    found = _edit(turn["edit"], blocks) if turn["edit"] else []
    for result in turn["results"]:
        if result["mistake"] or result["name"] in VERBS:
            found += [_call(result, blocks), *_lanes(result["delegated"])]
    if turn["usage"]:
        found.append(bar(turn["usage"]["total"], budget))
    heads = [f"turn {turn['turn'] + 1}", *[""] * len(found)]
    return [Text.assemble((f"{head:<{HEAD}}", "bold"), line) for head, line in zip(heads, found, strict=False)]


def bar(tokens: int, budget: Budget) -> Text:
    """How much of the window a view of that size fills, with the two thresholds where they lie."""
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
    brought = [blocks[part] for part in result["segments"] if isinstance(part, int)]
    if not brought:
        return line.append(f"  {NOTHING}", style="dim")
    return line.append(f"  {len(brought)} new: {_titles(brought)}", style="dim")


def _lanes(searchers: list[DelegatedData]) -> list[Text]:
    """A lane for each sub-agent that a call started: as long as its steps, those that all waited for in full."""
    longest = max((one["steps"] for one in searchers), default=0)
    found = []
    for one in searchers:
        lane = "━" * one["steps"] + "·" * (longest - one["steps"])
        line = Text.assemble(("  └ ", "dim"), (lane, "cyan"), f" {_short(one['task'])}")
        facts = (
            f"{_count(one['documents'], 'document')}, {_count(one['steps'], 'step')}, {_count(one['tokens'], 'token')}"
        )
        line.append(f"  {facts}, {_line(one['stop_reason'].replace('_', ' '))}", style="dim")
        found.append(line.append(f"  {_line(one['error'])}", style="red") if one["error"] else line)
    return found


def _edit(edit: EditData, blocks: dict[int, BlockData]) -> list[Text]:
    found = []
    for verb, keys in (("prune", edit["pruned"]), ("summary", edit["replaced"]), ("restore", edit["restored"])):
        if keys:
            titles = _titles([blocks[key] for key in keys if key in blocks])
            found.append(Text.assemble((f"{verb:<8}", "magenta"), _count(len(keys), "passage"), (f"  {titles}", "dim")))
    made = (blocks[key] for key in edit["summaries"] if key in blocks)
    found += [Text(f"        {_line(one['chunk'])}, {_count(one['tokens'], 'token')}", style="dim") for one in made]
    bill = f"        {edit['freed']:,} tokens freed; {edit['recomputed']:,} behind them lose their cached prefix"
    return [*found, Text(bill, style="dim")]


def _ranking(detail: Detail) -> list[Text]:
    end = detail["end"]
    if end is None:
        return []
    found = []
    for place, document in enumerate(end["documents"], start=1):
        line = Text(f"{place:>2}. {'★ ' if document['gold'] else ''}{_line(document['title'] or document['id'])}")
        line.append(f"  {_line(document['id'])}", style="dim")
        if document["justification"]:
            line.append(f"  {_line(document['justification'])}", style="dim")
        found.append(line)
    dropped = ", ".join(f"{count} {_line(why)}" for why, count in end["dropped"].items())
    return [*found, Text(f"ids dropped: {dropped}", style="yellow")] if dropped else found


def _titles(blocks: list[BlockData]) -> str:
    """The titles of blocks, gold ones first, as many as fit."""
    marked = {_title(block): None for block in sorted(blocks, key=lambda block: not block["gold"])}
    names = list(marked)
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _title(block: BlockData) -> str:
    return f"{'★ ' if block['gold'] else ''}{_short(block['title'] or block['document'])}"


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(text: str) -> str:
    return printable(" ".join(text.split()))
