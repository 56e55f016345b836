"""The turns of an episode as text.

`TurnLog` shows them while the episode runs, and `show` reads them from trajectory files. Each turn has a line for each
call, and then a bar for the context. On a terminal, a running turn and its bar move. When the turn is over, they are
printed, so the log scrolls like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from context_agent.agent import Progress
from context_agent.budget import Budget, Tier
from context_agent.cli.output import one_line
from context_agent.harness.episode import StopReason
from context_agent.harness.tools import SPAWN
from context_agent.pruning.view import (
    Block,
    Editable,
    EditApplied,
    EpisodeEnded,
    Event,
    SubAgentRecord,
    Summary,
    ToolResult,
    TurnClosed,
    View,
)
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.web.viewer.model import TrajectoryRow, ViewData
    from context_agent.web.viewer.schema import (
        BlockData,
        DelegatedData,
        EditData,
        ResultData,
        TrajectoryDetail,
        TurnData,
    )

LIVE_CELLS, CELLS = 24, 48
"""Width of the bar for the window, in characters: live, and in recorded trajectories."""
HEAD = 10
"""Width of the first column."""
LIVE_TEXT, MAX_TEXT = 48, 72
"""Maximum length of an argument: live, and in recorded trajectories."""
MAX_REPLY = 240
"""Maximum length of a model's last reply, if it had no valid ranking."""
MAX_LANE_CELLS = 200
"""Maximum number of steps of a sub-agent that its lane shows. A trajectory can state any number."""
MAX_TITLES = 4
"""Maximum number of titles after a call."""
NOTHING = "nothing new"
MAX_EMPTY_CALLS = 2
"""Maximum number of calls without a new passage that a live turn lists. The others are counted."""
TIER_COLORS = {Tier.OPEN: "green", Tier.SOFT: "yellow", Tier.HARD: "red"}
VERBS = {"search_corpus": "search", "grep_corpus": "grep", "read_document": "read", SPAWN: "spawn"}
THRESHOLD_MARKS = {"soft": "┆", "hard": "│"}


class TurnLog:
    """A log of one search on the terminal. Use it in a `with` statement, and call `show` with each event."""

    def __init__(self, console: Console, *, rollouts: int = 1) -> None:
        self._console = console
        self._numbered = rollouts > 1
        self._pending: defaultdict[int, list[Text]] = defaultdict(list)
        self._bars: dict[int, Text] = {}
        self._live = Live(console=console, transient=True, refresh_per_second=12) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Add an event to the turns on the terminal."""
        view = progress.view
        lines = self._pending[progress.rollout]
        lines += _event_lines(progress.event, view)
        context_bar = window_bar(view.tokens, view.budget, LIVE_CELLS, marks=False)
        self._bars[progress.rollout] = context_bar
        if isinstance(progress.event, TurnClosed):
            self._print(progress, f"turn {progress.event.turn + 1}", [*_shortened(lines), context_bar])
        elif isinstance(progress.event, EpisodeEnded):
            self._print(progress, "end", _shortened(lines))
        if self._live is not None:
            moving = [line for pending in self._pending.values() for line in pending]
            self._live.update(Group(*moving, *self._bars.values()))

    def _print(self, progress: Progress, title: str, lines: list[Text]) -> None:
        self._pending[progress.rollout] = []
        for line in _headed(f"#{progress.rollout + 1} {title}" if self._numbered else title, lines):
            self._console.print(line, no_wrap=True, overflow="ellipsis")


def show(console: Console, view: ViewData) -> None:
    """Print all trajectories, with an empty line between them. Long lines are cut on a terminal, not in a pipe."""
    for number, (row, detail) in enumerate(zip(view.rows, view.details, strict=True)):
        if number:
            console.print()
        for line in trajectory_lines(row, detail):
            if console.is_terminal:
                console.print(line, no_wrap=True, overflow="ellipsis")
            else:
                console.print(line, soft_wrap=True)


def trajectory_lines(row: TrajectoryRow, detail: TrajectoryDetail) -> list[Text]:
    """Return the lines of one trajectory, without terminal control characters."""
    blocks = {block["key"]: block for block in detail["blocks"]}
    budget = Budget(**detail["header"]["budget"])
    return [
        *_heading(row, detail),
        *(line for turn in detail["turns"] for line in _turn(turn, blocks, budget)),
        *_ranking(detail),
    ]


def window_bar(tokens: int, budget: Budget, cells: int = CELLS, *, marks: bool = True) -> Text:
    """Return a bar that shows how much of the window the view fills. `marks` are at the soft and the hard threshold."""
    filled = min(cells, -(-tokens * cells // budget.window))
    thresholds = {budget.soft * cells // budget.window: "soft", budget.hard * cells // budget.window: "hard"}
    line = Text.assemble(("context ", "dim"))
    for cell in range(cells):
        plain = "█" if cell < filled else "░"
        mark = THRESHOLD_MARKS[thresholds[cell]] if marks and cell in thresholds else plain
        line.append(mark, style=TIER_COLORS[budget.tier(tokens)] if cell < filled else "dim")
    return line.append(f" {tokens:,} of {budget.window:,} tokens", style="dim")


def _headed(title: str, lines: Sequence[Text]) -> list[Text]:
    """Return the lines, with a title before the first line."""
    return [
        Text.assemble((f"{title if number == 0 else '':<{HEAD}}", "bold"), line) for number, line in enumerate(lines)
    ]


def _call_line(name: str, argument: str, mistake: str | None, titles: Sequence[str]) -> Text:
    line = Text.assemble((f"{VERBS.get(name) or _short(name):<8}", "cyan"), argument)
    if mistake:
        return line.append(f"  {one_line(mistake.replace('_', ' '))}", style="red")
    brought = f"{len(titles)} new: {_listed(titles)}" if titles else NOTHING
    return line.append(f"  {brought}", style="dim")


def _edit_lines(changes: Iterable[tuple[str, Sequence[str]]]) -> list[Text]:
    """Return a line for each verb with the titles of its passages."""
    return [
        Text.assemble((f"{verb:<8}", "magenta"), counted(len(titles), "passage"), (f"  {_listed(titles)}", "dim"))
        for verb, titles in changes
        if titles
    ]


def _cost_line(freed: int, recomputed: int) -> Text:
    change = f"{freed:,} tokens freed" if freed >= 0 else f"{-freed:,} tokens added"
    return Text(f"        {change}; {recomputed:,} behind them lose their cached prefix", style="dim")


def _listed(titles: Sequence[str]) -> str:
    """Return the titles without repeats, at most `MAX_TITLES`."""
    names = list(dict.fromkeys(titles))
    more = f", and {len(names) - MAX_TITLES} more" if len(names) > MAX_TITLES else ""
    return ", ".join(names[:MAX_TITLES]) + more


def _short(text: str, width: int = MAX_TEXT) -> str:
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def _event_lines(event: Event, view: View) -> list[Text]:
    match event:
        case ToolResult() if event.mistake or event.name in VERBS:
            return [_call(event), *map(_sub_agent, event.delegated)]
        case EditApplied():
            return _edits(event, view)
        case EpisodeEnded():
            style = "bold" if event.stop_reason == "finished" else "yellow"
            reason = f"{event.stop_reason.replace('_', ' ')}: "
            return [Text.assemble((reason, style), f"{counted(len(event.documents), 'document')} ranked")]
    return []


def _shortened(lines: list[Text]) -> list[Text]:
    """Return the lines of a turn.

    Of the calls that found nothing new, only the first few have a line. One more line counts the others.
    """
    # By number, because the lines of repeated calls are equal.
    empty = [number for number, line in enumerate(lines) if line.plain.endswith(NOTHING)][MAX_EMPTY_CALLS:]
    if not empty:
        return lines
    more = Text.assemble((f"        and {counted(len(empty), 'more call')} that brought nothing new", "dim"))
    return [*(line for number, line in enumerate(lines) if number not in empty), more]


def _call(event: ToolResult) -> Text:
    titles = [_passage_title(segment) for segment in event.segments if isinstance(segment, Block)]
    return _call_line(event.name, _argument(event.arguments), event.mistake, titles)


def _argument(arguments: dict[str, Any]) -> str:
    """Return the first argument that is text. For a call with tasks, return the number of tasks."""
    values = [value for value in arguments.values() if isinstance(value, str)]
    values += [counted(len(value), "task") for value in arguments.values() if isinstance(value, list)]
    return _short(values[0], LIVE_TEXT) if values else ""


def _sub_agent(record: SubAgentRecord) -> Text:
    """Return a line for a sub-agent, with its task and its outcome."""
    outcome = f"  {counted(record.documents, 'document')}, {counted(record.steps, 'step')}"
    line = Text.assemble(("  └ ", "dim"), _short(record.task, LIVE_TEXT), (outcome, "dim"))
    failure = record.error or (record.stop_reason.replace("_", " ") if not record.documents else "")
    return line.append(f"  {one_line(failure)}", style="red") if failure else line


def _edits(event: EditApplied, view: View) -> list[Text]:
    by_key, edit = view.by_key(), event.edit
    changes = (("prune", edit.pruned), ("summary", edit.replaced), ("restore", edit.restored))
    lines = _edit_lines((verb, [_passage_title(by_key[key]) for key in keys]) for verb, keys in changes)
    return [*lines, _cost_line(event.cost.freed, event.cost.recomputed)]


def _passage_title(passage: Editable) -> str:
    return one_line(passage.id if isinstance(passage, Summary) else passage.hit.chunk.title or passage.document_id)


def _heading(row: TrajectoryRow, detail: TrajectoryDetail) -> list[Text]:
    header = detail["header"]
    budget = header["budget"]
    facts = (
        f"{header['policy']} · profile {header['profile']} · seed {row.seed} · window {budget['window']:,} "
        f"({THRESHOLD_MARKS['soft']} soft {budget['soft']:,}, {THRESHOLD_MARKS['hard']} hard {budget['hard']:,}) · "
        f"{row.run}"
    )
    lines = [Text(one_line(row.question), style="bold"), Text(one_line(facts), style="dim"), Text(_outcome(row))]
    if gold := detail["gold"]:
        answer = f"; answer: {one_line(gold['answer'])}" if gold["answer"] else ""
        needs = gold["needs"]
        lines.append(Text(f"★ gold: {gold['seen']} of {needs} seen, {gold['ranked']} of {needs} ranked{answer}"))
    if detail["end"] is None:
        lines.append(Text("no end: the file was cut or is still being written", style="yellow"))
    problems = (("does not replay", row.problem), ("error", detail["end"] and detail["end"]["error"]))
    return [*lines, *(Text(f"{name}: {one_line(why)}", style="red") for name, why in problems if why)]


def _outcome(row: TrajectoryRow) -> str:
    facts = [counted(row.turns, "turn"), counted(row.calls, "call"), counted(row.tokens, "token")]
    facts.append(counted(row.critical_steps, "critical step"))
    if row.pruned:
        facts += [f"{row.pruned} pruned", f"{row.restored} restored"]
    if row.summarized:
        facts.append(f"{row.summarized} summarized")
    if row.mistakes:
        facts.append(counted(row.mistakes, "mistake"))
    if row.seconds is not None:
        facts.append(f"{row.seconds:.2f} s")
    return f"{one_line(row.stop.replace('_', ' '))} after {', '.join(facts)}"


def _turn(turn: TurnData, blocks: dict[int, BlockData], budget: Budget) -> list[Text]:
    lines = _recorded_edit(turn["edit"], blocks) if turn["edit"] else []
    for result in turn["results"]:
        if result["mistake"] or result["name"] in VERBS:
            lines += [_recorded_call(result, blocks), *_lanes(result["delegated"])]
    if turn["usage"]:
        lines.append(window_bar(turn["usage"]["total"], budget))
    return _headed(f"turn {turn['turn'] + 1}", lines)


def _recorded_call(result: ResultData, blocks: dict[int, BlockData]) -> Text:
    if result["delegated"]:
        argument = counted(len(result["delegated"]), "sub-agent")
    else:
        argument = _short(" ".join(value for name, value in result["arguments"] if name != "limit"))
    new = [blocks[part] for part in result["segments"] if isinstance(part, int)]
    return _call_line(result["name"], argument, result["mistake"], _titles(new))


def _lanes(sub_agents: list[DelegatedData]) -> list[Text]:
    """Return a lane for each sub-agent that a call started. A lane is a bar with the length of its number of steps."""
    longest = max((record["steps"] for record in sub_agents), default=0)
    return [_lane(record, longest) for record in sub_agents]


def _lane(record: DelegatedData, longest: int) -> Text:
    length, done = min(longest, MAX_LANE_CELLS), min(record["steps"], MAX_LANE_CELLS)
    steps = "━" * done + "·" * (length - done)
    facts = [counted(record["documents"], "document"), counted(record["steps"], "step")]
    facts += [counted(record["tokens"], "token"), one_line(record["stop_reason"].replace("_", " "))]
    line = Text.assemble(("  └ ", "dim"), (steps, "cyan"), f" {_short(record['task'])}")
    line.append(f"  {', '.join(facts)}", style="dim")
    return line.append(f"  {one_line(record['error'])}", style="red") if record["error"] else line


def _recorded_edit(edit: EditData, blocks: dict[int, BlockData]) -> list[Text]:
    changes = (("prune", edit["pruned"]), ("summary", edit["replaced"]), ("restore", edit["restored"]))
    lines = _edit_lines((verb, _titles([blocks[key] for key in keys if key in blocks])) for verb, keys in changes)
    for block in (blocks[key] for key in edit["summaries"] if key in blocks):
        lines.append(Text(f"        {one_line(block['chunk'])}, {counted(block['tokens'], 'token')}", style="dim"))
    return [*lines, _cost_line(edit["freed"], edit["recomputed"])]


def _ranking(detail: TrajectoryDetail) -> list[Text]:
    end = detail["end"]
    if end is None:
        return []
    lines = []
    if end["stop_reason"] == StopReason.NO_RANKING and detail["turns"]:
        lines.append(Text(f"last reply: {_short(detail['turns'][-1]['text'], MAX_REPLY) or 'empty'}", style="yellow"))
    for rank, document in enumerate(end["documents"], start=1):
        star = "★ " if document["gold"] else ""
        line = Text(f"{rank:>2}. {star}{one_line(document['title'] or document['id'])}")
        line.append(f"  {one_line(document['id'])}", style="dim")
        if document["justification"]:
            line.append(f"  {one_line(document['justification'])}", style="dim")
        lines.append(line)
    if end["confidence"] is not None:
        lines.append(Text(f"confidence {end['confidence']:.2f}", style="dim"))
    dropped = ", ".join(f"{number} {one_line(why)}" for why, number in end["dropped"].items())
    return [*lines, Text(f"ids dropped: {dropped}", style="yellow")] if dropped else lines


def _titles(blocks: Iterable[BlockData]) -> list[str]:
    """Return the titles of blocks, gold first."""
    gold_first = sorted(blocks, key=lambda block: not block["gold"])
    return [f"{'★ ' if block['gold'] else ''}{_short(block['title'] or block['document'])}" for block in gold_first]
