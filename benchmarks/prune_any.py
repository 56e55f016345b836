"""Measure how much evidence pruning keeps in agents' conversations. Every strategy gets the same share of tokens.

    python benchmarks/prune_any.py --data FOLDER [--sets 2wiki,hotpotqa,musique,newsfacts,code,logs,json] [--split dev]
        [--limit 60] [--styles dump,run,mixed] [--strategies thorough,careful,fast,bm25,embedding,age,random,drop,
        oracle,clear,headroom,careful@headroom,claw,careful@claw]
        [--tokens 8000,32000] [--shares 0.25] [--seed 0] [--rows FILE.jsonl] [--json FILE] [--plot FILE.svg]

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`) and `queries.SPLIT.jsonl` (`id`, `question`, `gold`:
document ids), as for `multihop.py`. An agent is simulated on each question in one of three styles:

- `dump`: one search for the question, with many hits;
- `run`: a search for the question, then a search for each document that is needed, by its title;
- `mixed`: like `run`, with unrelated calls in between (code, logs, JSON).

Results are numbered text, JSON or tagged documents. If a search misses its gold documents, they are added to its hits.
Searches for other questions fill the conversation up to `--tokens`. A short unrelated call ends it, because the last
turn always stays.

The sets `code`, `logs` and `json` need no data. They are the source of this package without its docstrings, and
invented logs and support tickets. Their questions are about meaning: what a function does in the words of its
docstring, what happened, who complains. They contain no id, and few words of the text that answers them. The reader was
not trained on these domains. The table `unseen` pools them.

Evidence kept is the share of the sentences of the gold documents (or lines, or records) that are still in the
conversation, with a bootstrap 95% interval over questions. A record counts in another format too, if its values are on
one line. The columns of the tables:

- `tokens`: the share of the tool results' tokens that remains, stubs included;
- `lost`: the tokens of results after the first change;
- `valid`: the share of results that still answer their call, and are JSON if they were JSON before;
- `exact`: the share of conversations in which everything that was removed can be restored byte for byte;
- `ms`: the median CPU time of one prune, with the counting of tokens.

The baselines are `age` (keep the latest), `random`, `bm25`, `embedding`, `drop` (remove everything that may be removed)
and `oracle` (knows the gold). The other pruners of `prune_rivals.py` are `clear`, `headroom` and `claw`, if they are
installed. The last two choose their size themselves. So `careful@headroom` is `careful` with as many tokens as headroom
left. The last lines of each table are margins, paired by question: of `careful` over the best of age, random and BM25,
and of such a strategy over the other pruner.

`--rows` appends each measurement to a file, and reuses the measurements in it. So you can measure in several runs, by
set or strategy, and continue an interrupted run. Delete the file when the measured code changes. `--plot` draws
evidence kept against tokens kept, for all sets together and for the unseen domains. Pass several `--shares` for it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prune_conversations import (
    COUNTER,
    INVENTED,
    InventedSet,
    Message,
    PlayedConversation,
    QuestionSet,
    log_conversation,
)
from prune_rivals import RIVALS, results_of, says, tokens_left, validity

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.passages import Passage

SETS = ("2wiki", "hotpotqa", "musique", "newsfacts", *INVENTED)
STYLES = ("dump", "run", "mixed")
BASELINES = ("age", "random", "bm25")
STRATEGIES = ("thorough", "careful", "fast", "bm25", "embedding", "age", "random", "drop", "oracle", *RIVALS)
ALWAYS = Prices(cached=1.0)
"""Prices with which every prune pays, so that the strategies are compared at the same size."""


@dataclass(frozen=True, slots=True)
class Question:
    """A task for a strategy: a conversation, and the share of its tokens that may remain."""

    set: str
    number: int
    style: str
    size: int
    seed: int
    share: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of a strategy on one conversation.

    Attributes:
        question: The conversation and the share of its tokens that may remain.
        strategy: The name of the strategy.
        evidence: The share of the evidence that is kept.
        tokens: The share of the tokens that remains.
        lost: The cached tokens after the first change.
        seconds: The CPU time.
        valid: The share of results that still answer their call, and are JSON if they were JSON before.
        is_exact: Whether everything that was removed was restored byte for byte. For other pruners it is None, because
            their way to restore is not tried.
    """

    question: Question
    strategy: str
    evidence: float
    tokens: float
    lost: int
    seconds: float
    valid: float = 1.0
    is_exact: bool | None = None


def measure(question: Question, played: PlayedConversation, strategy: str) -> Measurement | None:
    """Prune the conversation, and return the measurement. If the strategy cannot run here, return None."""
    before = played.messages
    total = sum(map(COUNTER.count, results_of(before)))
    budget, (strategy_run, _, rival) = max(1, int(question.share * total)), strategy.partition("@")
    if rival:
        left = tokens_left(rival, before, budget)
        if left is None:
            return None
        budget = left
    is_exact = None
    started = time.process_time()
    if strategy_run in RIVALS:
        messages = RIVALS[strategy_run](before, budget)
        if messages is None:
            return None
        seconds = time.process_time() - started
    else:
        pruner = pruner_of(strategy_run, budget, played.evidence)
        started = time.process_time()
        pruned = pruner.prune(before)
        messages, seconds = pruned.messages, time.process_time() - started
        is_exact = pruner.restore(messages, [item.id for item in pruned.report.removed]) == before
    texts = results_of(messages)
    remaining = "\n".join(texts)
    is_kept = [says(remaining, part) for part in played.evidence]
    tokens = sum(map(COUNTER.count, texts)) / total
    lost, valid = _cached_lost(before, messages), validity(before, messages)
    return Measurement(question, strategy, statistics.mean(is_kept), tokens, lost, seconds, valid, is_exact)


def _cached_lost(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the tokens of results after the first change. Those of the last turn do not count, as they were never
    sent.
    """
    changed = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    return sum(map(COUNTER.count, results_of(after[changed[0] : -2]))) if changed else 0


def pruner_of(strategy: str, budget: int, evidence: Sequence[str]) -> ContextPruner:
    """Return the pruner of a strategy."""
    if strategy in ("fast", "careful", "thorough"):
        return ContextPruner(budget, effort=strategy, prices=ALWAYS)
    if strategy == "drop":
        return ContextPruner(1, strategy="random", prices=ALWAYS)
    if strategy == "oracle":
        return ContextPruner(budget, strategy=oracle(evidence), prices=ALWAYS)
    return ContextPruner(budget, strategy=strategy, prices=ALWAYS)


def oracle(evidence: Sequence[str]) -> Callable[[Sequence[Passage], str], Iterator[float]]:
    """Return a judge that knows the gold."""

    def judge(passages: Sequence[Passage], task: str) -> Iterator[float]:
        for passage in passages:
            covered = sum(len(part) for part in evidence if part in passage.text or passage.text in part)
            yield covered / max(1, len(passage.text))

    return judge


class Rows:
    """The measurements of this run and of earlier ones. Without a file, they are only in memory."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._rows: dict[tuple[Question, str], Measurement] = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file and file.exists() else ():
            values = json.loads(line)
            self._store(Measurement(**{**values, "question": Question(**values["question"])}))

    def get(self, question: Question, strategy: str) -> Measurement | None:
        """Return an earlier measurement. If there is none, return None."""
        return self._rows.get((question, strategy))

    def add(self, row: Measurement) -> None:
        """Add a measurement."""
        self._store(row)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")

    def _store(self, row: Measurement) -> None:
        self._rows[row.question, row.strategy] = row


def questions(name: str, number: int, options: argparse.Namespace) -> Iterator[Question]:
    """Yield the first questions of a set. Styles and sizes alternate."""
    styles, sizes = options.styles.split(","), [int(size) for size in options.tokens.split(",")]
    for index in range(min(options.limit, number)):
        style, size = styles[index % len(styles)], sizes[index // len(styles) % len(sizes)]
        for share in options.shares.split(","):
            yield Question(name, index, style, size, options.seed, float(share))


def measured(name: str, rows: Rows, options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the measurements of a set. Missing ones are made first."""
    invented = INVENTED.get(name)
    source = InventedSet(invented) if invented else QuestionSet(options.data / name, options.split)
    for question in questions(name, len(source.questions), options):
        strategies = options.strategies.split(",")
        missing = [strategy for strategy in strategies if rows.get(question, strategy) is None]
        if missing:
            played = source.conversation(question.number, question.style, question.size, question.seed)
            for strategy in missing:
                if (row := measure(question, played, strategy)) is not None:
                    rows.add(row)
        yield from filter(None, (rows.get(question, strategy) for strategy in strategies))


def by_strategy(rows: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Return the measurements of each strategy."""
    table: dict[str, list[Measurement]] = {}
    for row in rows:
        table.setdefault(row.strategy, []).append(row)
    return table


def figure_of(rows: Iterable[Measurement]) -> Figure:
    """Return the mean of the evidence kept, with its interval."""
    return Figure.of([row.evidence for row in rows])


def show(name: str, share: float, measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Print the table of a set for one share, and return it as data."""
    members = [row for row in measurements if row.question.share == share]
    table = by_strategy(members)
    print(f"\n{name}, {share:.0%} of the tokens: {len({row.question for row in members})} conversations")
    print(f"{'':16} {'evidence kept':24} {'tokens':>7} {'lost':>8} {'valid':>7} {'exact':>7} {'ms':>7} {'n':>5}")
    data: dict[str, Any] = {}
    for strategy, rows in table.items():
        figure, tokens = figure_of(rows), statistics.mean(row.tokens for row in rows)
        lost, milliseconds = statistics.mean(row.lost for row in rows), 1e3 * statistics.median(r.seconds for r in rows)
        valid, restored = statistics.mean(r.valid for r in rows), [r.is_exact for r in rows if r.is_exact is not None]
        exact = statistics.mean(restored) if restored else None
        shown = f"{'-':>7}" if exact is None else f"{exact:7.3f}"
        sizes = f"{tokens:7.3f} {lost:8,.0f} {valid:7.3f} {shown} {milliseconds:7.0f}"
        print(f"{strategy:16} {figure!s:24} {sizes} {len(rows):5}")
        data[strategy] = {"evidence": asdict(figure), "tokens": tokens, "lost": lost, "milliseconds": milliseconds}
        data[strategy] |= {"valid": valid, "exact": exact}
    print_margins(table)
    return data


def print_margins(table: dict[str, list[Measurement]]) -> None:
    """Print how much more evidence a strategy keeps than another one in the same conversations.

    `careful` is compared with the best of age, random and BM25. A strategy with the tokens of another pruner is
    compared with this pruner.
    """
    best = max((name for name in BASELINES if name in table), key=lambda name: figure_of(table[name]).mean, default="")
    for strategy, other in [("careful", best), *((name, name.partition("@")[2]) for name in table)]:
        own = {row.question: row.evidence for row in table.get(strategy, ())}
        gains = [own[row.question] - row.evidence for row in table.get(other, ()) if row.question in own]
        if gains:
            print(f"{strategy} less {other}: {Figure.of(gains)}")


def draw_plot(file: Path, panels: dict[str, list[Measurement]]) -> None:
    """Draw evidence kept against tokens kept. Each pool of sets has a panel, and each strategy a curve."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    mpl.rcParams |= {"svg.hashsalt": "prune", "svg.fonttype": "none"}
    canvas = Canvas(figsize=(9, 3.8), layout="constrained")
    for axes, (title, rows) in zip(
        canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        for strategy, measurements in by_strategy(rows).items():
            shares = sorted({row.question.share for row in measurements})
            points = [[row for row in measurements if row.question.share == share] for share in shares]
            x = [statistics.mean(row.tokens for row in point) for point in points]
            figures = [figure_of(point) for point in points]
            errors = [[f.mean - f.low for f in figures], [f.high - f.mean for f in figures]]
            width = 2.0 if strategy in ("thorough", "careful", "fast") else 1.0
            axes.errorbar(x, [f.mean for f in figures], errors, marker="o", ms=3, lw=width, capsize=2, label=strategy)
        axes.set(title=title, xlabel="share of tool-result tokens kept", xlim=(0, 0.6), ylim=(0, 1.03))
        axes.grid(alpha=0.3)
    canvas.axes[0].set_ylabel("share of evidence kept")
    canvas.axes[-1].legend(fontsize=8, loc="lower right", ncols=2)
    canvas.savefig(file, metadata={"Date": None})


def main() -> None:
    """Print a table for each set, one for the sets of unseen domains, and one for all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the sets that are not invented")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int, default=60, help="questions of a set")
    parser.add_argument("--styles", default=",".join(STYLES))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--tokens", default="8000,32000", help="sizes of the conversations")
    parser.add_argument("--shares", default="0.25", help="shares of the tokens that may remain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, help="file of measurements, to go on with")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--plot", type=Path, help="file for the plot")
    options = parser.parse_args()
    if options.data is None and (stored := [name for name in options.sets.split(",") if name not in INVENTED]):
        parser.error(f"--data is missing: {', '.join(stored)} are folders in it. Invented sets need no data.")
    ContextPruner(1, prices=ALWAYS).prune(log_conversation(random.Random(0), 500).messages)  # loads the models
    rows, shares = Rows(options.rows), [float(share) for share in options.shares.split(",")]
    pools: dict[str, list[Measurement]] = {}
    data: dict[str, Any] = {}
    for name in options.sets.split(","):
        measurements = [*measured(name, rows, options)]
        data[name] = {share: show(name, share, measurements) for share in shares}
        for pool in ("all", "unseen") if name in INVENTED else ("all",):
            pools.setdefault(pool, []).extend(measurements)
    data |= {pool: {share: show(pool, share, members) for share in shares} for pool, members in pools.items()}
    if options.json:
        options.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        titles = {"all": "all sets", "unseen": "domains that the reader never saw"}
        draw_plot(options.plot, {titles[pool]: members for pool, members in pools.items()})


if __name__ == "__main__":
    main()
