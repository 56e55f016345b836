"""What pruning keeps of the evidence in agents' conversations: every strategy at the same share of tokens.

    python benchmarks/prune_any.py --data FOLDER [--sets 2wiki,hotpotqa,musique,newsfacts] [--split dev] [--limit 60]
        [--styles dump,run,mixed] [--strategies careful,fast,bm25,embedding,age,random,drop,oracle,clear]
        [--tokens 8000,32000] [--share 0.25] [--seed 0] [--json FILE]

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`) and `queries.SPLIT.jsonl` (`id`, `question`, `gold`:
document ids), as for `multihop.py`. An agent is played on each question in one of three styles: `dump` (the question
is searched once, with many hits), `run` (a search for the question, then for each document that is needed, by its
title), `mixed` (the same with unrelated calls between: searches for other questions, code, logs, JSON). Results are
numbered text, JSON or tagged documents. Gold documents that a search misses are put among its hits. Searches for other
questions fill the conversation up to `--tokens`. A short unrelated call ends it, because the last turn always stays.

The sets `code`, `logs` and `json` need no data: the source of this package, and invented logs and records, with a
question about one function, one request, one order. Their domains are far from what the reader was trained on.

Evidence kept is the share of the sentences of the gold documents (or lines) that are still in the conversation, with a
bootstrap 95 % interval over questions. `tokens` is the share of the tool results' tokens that remains, stubs included.
`lost` are the cached tokens that the prune costs, `ms` the median time of one prune, which includes the counting of
tokens. Baselines: `age` (keep the latest), `random`, `bm25`, `embedding`, `drop` (removes all it may), `oracle` (knows
the gold), and `clear`, LangChain's own `ClearToolUsesEdit`, with the largest number of results that fits the share (if
the package `langchain` is installed). The last line of each table is the margin of `careful` over the best of age,
random and BM25, paired by question.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import context_agent
from context_agent._support.question_files import load_questions
from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.passages import Passage
from context_agent.retrieval.bm25 import Bm25Entry, Bm25Index
from context_agent.tokens import HarmonyCounter

SETS = ("2wiki", "hotpotqa", "musique", "newsfacts", "code", "logs", "json")
STYLES = ("dump", "run", "mixed")
BASELINES = ("age", "random", "bm25")
STRATEGIES = ("careful", "fast", "bm25", "embedding", "age", "random", "drop", "oracle", "clear")
HITS, DUMP = 8, 40
"""Hits of a search of a long run, and of a dump."""
ALWAYS = Prices(cached=1.0)
"""Every prune pays: the strategies are compared at the same size."""
COUNTER = HarmonyCounter()
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hit:
    """A document as a search returns it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class PlayedConversation:
    """Messages in OpenAI's chat format, and the sentences that the task needs."""

    messages: list[Message]
    evidence: tuple[str, ...]


@dataclass
class Scores:
    """Per question: evidence kept, tokens kept, cached tokens lost, seconds."""

    evidence: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, evidence: float, tokens: float, lost: float, seconds: float) -> None:
        """Adds the values of one question."""
        self.extend(Scores([evidence], [tokens], [lost], [seconds]))

    def extend(self, others: Scores) -> None:
        """Adds the values of other questions."""
        self.evidence += others.evidence
        self.tokens += others.tokens
        self.lost += others.lost
        self.seconds += others.seconds


class Player:
    """Writes the messages of one agent."""

    def __init__(self, question: str, draw: random.Random) -> None:
        self.messages: list[Message] = [
            {"role": "system", "content": "You are a careful agent. Use the tools, then answer."},
            {"role": "user", "content": question},
        ]
        self.tokens = 0
        self._draw, self._numbers = draw, count()

    def call(self, name: str, arguments: dict[str, Any], result: str) -> None:
        """One call and its result."""
        call_id = f"call_{next(self._numbers)}_{self._draw.randrange(1 << 30):x}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        self.messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]
        self.tokens += COUNTER.count(result)

    def search(self, query: str, hits: Sequence[Hit]) -> None:
        """A search whose result has one of three formats."""
        self.call("search", {"query": query}, self._draw.choice((numbered, as_json, tagged))(hits))


def numbered(hits: Sequence[Hit]) -> str:
    """Hits as numbered text."""
    return "\n\n".join(f"{number}. {hit.title}\n\n{hit.text}" for number, hit in enumerate(hits, 1))


def as_json(hits: Sequence[Hit]) -> str:
    """Hits as JSON."""
    return json.dumps({"results": [{"title": hit.title, "text": hit.text} for hit in hits]}, ensure_ascii=False)


def tagged(hits: Sequence[Hit]) -> str:
    """Hits as tagged documents."""
    return "\n".join(f"<document>\n<title>{hit.title}</title>\n{hit.text}\n</document>" for hit in hits)


class QuestionSet:
    """A corpus that is searched by BM25, and its questions."""

    def __init__(self, folder: Path, split: str) -> None:
        with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        self.hits = {row["id"]: Hit(row["title"], row["text"]) for row in rows}
        self.questions = [q for q in load_questions(folder / f"queries.{split}.jsonl") if q.gold]
        self._index = Bm25Index.of(Bm25Entry(row["id"], row["title"], row["text"]) for row in rows)

    def conversation(self, number: int, style: str, tokens: int, seed: int) -> PlayedConversation:
        """The conversation of one question."""
        question, draw = self.questions[number], random.Random(f"{seed}:{number}:{style}:{tokens}")
        player = Player(question.question, draw)
        gold = [document for document in question.gold if document in self.hits]
        if style == "dump":
            player.search(question.question, self._found(question.question, DUMP, gold, draw))
        else:
            player.search(question.question, self._found(question.question, HITS, gold[:1], draw))
        while player.tokens < tokens // 2:
            self._elsewhere(player, style, draw)
        if style != "dump":
            for document in gold:
                query = self.hits[document].title
                player.search(query, self._found(query, HITS, [document], draw))
        while player.tokens < tokens:
            self._elsewhere(player, style, draw)
        player.call("note", {"text": "Next I will write the answer."}, "saved")
        texts = [self.hits[document].text for document in gold]
        return PlayedConversation(player.messages, tuple(part for text in texts for part in sentences(text)))

    def _found(self, query: str, k: int, gold: Sequence[str], draw: random.Random) -> list[Hit]:
        ids = [document for document, _ in self._index.search(query, k)]
        missing = [document for document in gold if document not in ids]
        ids = ids[: k - len(missing)]
        for document in missing:
            ids.insert(draw.randrange(len(ids) + 1), document)
        return [self.hits[document] for document in ids]

    def _elsewhere(self, player: Player, style: str, draw: random.Random) -> None:
        """A call that the question does not need."""
        if style == "mixed" and draw.random() < 0.5:
            name, result = draw.choice((code_search, log_query, record_query))(draw)
            player.call(name, {"filter": f"id < {draw.randrange(10_000)}"}, result)
        else:
            query = draw.choice(self.questions).question
            player.search(query, self._found(query, DUMP if style == "dump" else HITS, [], draw))


class InventedSet:
    """Questions about code, logs or records, which are made by a function."""

    def __init__(self, make: Callable[[random.Random, int], PlayedConversation], questions: int = 200) -> None:
        self.questions = range(questions)
        self._make = make

    def conversation(self, number: int, style: str, tokens: int, seed: int) -> PlayedConversation:
        """The conversation of one question; all styles are alike."""
        return self._make(random.Random(f"{seed}:{number}:{tokens}"), tokens)


def source_functions() -> list[tuple[Path, str, str, str]]:
    """(file, name, first line of the docstring, source) of the documented functions of this package."""
    root = Path(context_agent.__file__).parent
    rows = []
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)) and len(doc.split("\n")[0]) > 40:
                source = ast.get_source_segment(text, node) or ""
                rows.append((file.relative_to(root.parent), node.name, doc.split("\n")[0], source))
    return rows


FUNCTIONS: list[tuple[Path, str, str, str]] = []


def functions() -> list[tuple[Path, str, str, str]]:
    """`source_functions`, read once."""
    if not FUNCTIONS:
        FUNCTIONS.extend(source_functions())
    return FUNCTIONS


def matches(chosen: Sequence[tuple[Path, str, str, str]]) -> str:
    """Functions as a code search shows them."""
    return "\n\n".join(
        "\n".join(f"{file}:{number}: {line}" for number, line in enumerate(source.split("\n")[:14], 10))
        for file, _, _, source in chosen
    )


def code_search(draw: random.Random) -> tuple[str, str]:
    """A code search."""
    return "code_search", matches(draw.sample(functions(), 8))


def code_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """A question about what one function does, whose name the question does not tell."""
    target = draw.choice(functions())
    player = Player(f"Which function does this, and how is it implemented: {target[2]}", draw)
    chosen = [*draw.sample(functions(), 7), target]
    draw.shuffle(chosen)
    calls = [lambda: player.call("code_search", {"pattern": target[2].split()[0]}, matches(chosen))]
    _fill(player, calls, code_search, draw, tokens)
    lines = [line for line in matches([target]).split("\n") if len(line) > 40]
    return PlayedConversation(player.messages, tuple(lines))


SERVICES = ("gateway", "billing", "search", "mailer", "inventory", "login")
EVENTS = (
    "request accepted in {n} ms", "cache miss for key user:{n}", "retrying upstream, attempt {n}", "query took {n} ms",
    "connection pool has {n} idle connections", "job {n} scheduled", "session {n} refreshed",
)  # fmt: skip
CAUSES = (
    "certificate of upstream expired", "disk quota exceeded on volume data", "deadlock, transaction rolled back",
    "schema version mismatch", "rate limit of the payment provider reached", "clock skew beyond tolerance",
)  # fmt: skip


def log_line(draw: random.Random, request: str, text: str, level: str = "INFO") -> str:
    """One line of a log."""
    clock = f"2026-03-{draw.randrange(1, 29):02d} {draw.randrange(24):02d}:{draw.randrange(60):02d}:01"
    return f"{clock} {level} {draw.choice(SERVICES)} request={request} {text}"


def log_lines(draw: random.Random, number: int) -> list[str]:
    """Lines of other requests, one of thirty an error."""
    lines = []
    for _ in range(number):
        failed = draw.random() < 1 / 30
        text = draw.choice(CAUSES) if failed else draw.choice(EVENTS).format(n=draw.randrange(9_000))
        lines.append(log_line(draw, f"{draw.randrange(1 << 40):010x}", text, "ERROR" if failed else "INFO"))
    return lines


def log_query(draw: random.Random) -> tuple[str, str]:
    """A query of logs."""
    return "query_logs", "\n".join(log_lines(draw, 40))


def log_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """A question about one request, whose lines are spread over two results."""
    request = f"{draw.randrange(1 << 40):010x}"
    player = Player(f"Why did the request {request} fail, and which services did it pass before?", draw)
    lines = [
        log_line(draw, request, draw.choice(EVENTS).format(n=draw.randrange(9_000))),
        log_line(draw, request, draw.choice(CAUSES), "ERROR"),
    ]

    def among(line: str) -> str:
        others = log_lines(draw, 40)
        others.insert(draw.randrange(40), line)
        return "\n".join(others)

    calls = [lambda line=line: player.call("query_logs", {"since": "today"}, among(line)) for line in lines]
    _fill(player, calls, log_query, draw, tokens)
    return PlayedConversation(player.messages, tuple(lines))


NAMES = "Ana Berg,Jon Dahl,Mia Holm,Leo Stern,Ida Lund,Max Kern,Eva Blau,Tom Rohde,Lea Winter,Nils Aas".split(",")
CITIES = "Tromsø,Graz,Porto,Turku,Bergen,Ghent,Basel,Kiel,Lyon,Brno".split(",")


def record(draw: random.Random) -> dict[str, Any]:
    """An order."""
    return {
        "order": f"A-{draw.randrange(10**6):06d}",
        "customer": {"name": draw.choice(NAMES), "city": draw.choice(CITIES)},
        "items": [{"sku": f"S{draw.randrange(10**5)}", "quantity": draw.randrange(1, 9)} for _ in range(3)],
        "status": draw.choice(("packed", "shipped", "held at customs", "returned", "delivered")),
        "total": draw.randrange(100, 90_000) / 100,
    }


def record_query(draw: random.Random) -> tuple[str, str]:
    """A query of orders."""
    return "list_orders", json.dumps({"orders": [record(draw) for _ in range(20)]}, ensure_ascii=False)


def record_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """A question about one order, by its number."""
    target = record(draw)
    player = Player(f"What is the status of order {target['order']}, and where does it go?", draw)
    orders = [record(draw) for _ in range(19)]
    orders.insert(draw.randrange(20), target)
    result = json.dumps({"orders": orders}, ensure_ascii=False)
    calls = [lambda: player.call("list_orders", {"page": 1}, result)]
    _fill(player, calls, record_query, draw, tokens)
    return PlayedConversation(player.messages, (json.dumps(target, ensure_ascii=False),))


def _fill(
    player: Player,
    calls: Sequence[Callable[[], None]],
    other: Callable[[random.Random], tuple[str, str]],
    draw: random.Random,
    tokens: int,
) -> None:
    """Makes the calls at random times among others, up to the size, and then a last one."""
    turns = sorted(draw.randrange(tokens) for _ in calls)
    pending = [*zip(turns, calls, strict=True)]
    while player.tokens < tokens or pending:
        if pending and player.tokens >= pending[0][0]:
            pending.pop(0)[1]()
        else:
            name, result = other(draw)
            player.call(name, {"page": draw.randrange(100)}, result)
    player.call("note", {"text": "Next I will write the answer."}, "saved")


def sentences(text: str) -> list[str]:
    """The sentences of a document that are long enough to be told apart."""
    return [part for part in text.replace("! ", ". ").replace("? ", ". ").split(". ") if len(part) >= 20] or [text]


def results_of(messages: Sequence[Message]) -> list[str]:
    """The texts of the tool results."""
    return [message["content"] for message in messages if message["role"] == "tool"]


def measure(played: PlayedConversation, strategy: str, share: float) -> tuple[float, float, int, float] | None:
    """(evidence kept, share of tokens kept, cached tokens lost, seconds); None if the strategy cannot run here."""
    total = sum(map(COUNTER.count, results_of(played.messages)))
    budget, lost, started = max(1, int(share * total)), 0, time.perf_counter()
    if strategy == "clear":
        cleared = clear_tool_uses(played.messages, budget)
        if cleared is None:
            return None
        messages = cleared
    else:
        pruner = pruner_of(strategy, budget, played.evidence)
        started = time.perf_counter()
        pruned = pruner.prune(played.messages)
        messages, lost = pruned.messages, pruned.report.cached_lost
    seconds = time.perf_counter() - started
    texts = results_of(messages)
    remaining = "\n".join(texts)
    escaped = [json.dumps(part, ensure_ascii=False)[1:-1] for part in played.evidence]
    is_kept = [a in remaining or b in remaining for a, b in zip(played.evidence, escaped, strict=True)]
    return statistics.mean(is_kept), sum(map(COUNTER.count, texts)) / total, lost, seconds


def pruner_of(strategy: str, budget: int, evidence: Sequence[str]) -> ContextPruner:
    """The pruner of that strategy."""
    if strategy in ("careful", "fast"):
        return ContextPruner(budget, effort=strategy, prices=ALWAYS)
    if strategy == "drop":
        return ContextPruner(1, strategy="random", prices=ALWAYS)
    if strategy == "oracle":
        return ContextPruner(budget, strategy=oracle(evidence), prices=ALWAYS)
    return ContextPruner(budget, strategy=strategy, prices=ALWAYS)


def oracle(evidence: Sequence[str]) -> Callable[[Sequence[Passage], str], Iterator[float]]:
    """A judge that knows the gold."""

    def judge(passages: Sequence[Passage], task: str) -> Iterator[float]:
        for passage in passages:
            covered = sum(len(part) for part in evidence if part in passage.text or passage.text in part)
            yield covered / max(1, len(passage.text))

    return judge


def clear_tool_uses(messages: Sequence[Message], budget: int) -> list[Message] | None:
    """LangChain's `ClearToolUsesEdit` with the largest number of results that fits; None without the package."""
    try:
        from langchain.agents.middleware.context_editing import ClearToolUsesEdit
        from langchain_core.messages import convert_to_messages, convert_to_openai_messages
    except ImportError:
        return None
    cleared = list(messages)
    for keep in range(1, len(results_of(messages)) + 1):
        edited = convert_to_messages(messages)
        edit = ClearToolUsesEdit(trigger=0, keep=keep)
        edit.apply(edited, count_tokens=lambda items: sum(COUNTER.count(str(item.content)) for item in items))
        candidate = convert_to_openai_messages(edited)
        if sum(map(COUNTER.count, results_of(candidate))) > budget and keep > 1:
            break
        cleared = candidate
    return cleared


def tables(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Scores]]]:
    """The scores of each set, by strategy."""
    invented = {"code": code_conversation, "logs": log_conversation, "json": record_conversation}
    for name in options.sets.split(","):
        source: QuestionSet | InventedSet
        source = InventedSet(invented[name]) if name in invented else QuestionSet(options.data / name, options.split)
        scores = {strategy: Scores() for strategy in options.strategies.split(",")}
        styles, sizes = options.styles.split(","), [int(size) for size in options.tokens.split(",")]
        for number in range(min(options.limit, len(source.questions))):
            style, size = styles[number % len(styles)], sizes[number // len(styles) % len(sizes)]
            played = source.conversation(number, style, size, options.seed)
            for strategy, row in scores.items():
                if (measured := measure(played, strategy, options.share)) is not None:
                    row.add(*measured)
        yield name, {strategy: row for strategy, row in scores.items() if row.evidence}


def show(name: str, scores: dict[str, Scores]) -> dict[str, Any]:
    """Prints the table of a set; returns it as data."""
    print(f"\n{name}: {len(next(iter(scores.values())).evidence)} conversations")
    print(f"{'':10} {'evidence kept':24} {'tokens':>7} {'lost':>8} {'ms':>7}")
    rows: dict[str, Any] = {}
    for strategy, row in scores.items():
        figure = Figure.of(row.evidence)
        tokens, lost, milliseconds = (
            statistics.mean(row.tokens), statistics.mean(row.lost), 1000 * statistics.median(row.seconds),
        )  # fmt: skip
        print(f"{strategy:10} {figure!s:24} {tokens:7.3f} {lost:8,.0f} {milliseconds:7.0f}")
        rows[strategy] = {"evidence": [figure.mean, figure.low, figure.high], "tokens": tokens, "lost": lost}
        rows[strategy]["milliseconds"] = milliseconds
    best = max((b for b in BASELINES if b in scores), key=lambda b: statistics.mean(scores[b].evidence), default=None)
    if best and "careful" in scores:
        pairs = zip(scores["careful"].evidence, scores[best].evidence, strict=True)
        print(f"careful less {best}: {Figure.of([ours - theirs for ours, theirs in pairs])}")
    return rows


def main() -> None:
    """Prints a table for each set, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the sets")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int, default=60, help="questions of a set")
    parser.add_argument("--styles", default=",".join(STYLES))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--tokens", default="8000,32000", help="sizes of the conversations")
    parser.add_argument("--share", type=float, default=0.25, help="share of the tokens that may remain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    ContextPruner(1, prices=ALWAYS).prune(log_conversation(random.Random(0), 500).messages)  # loads the models
    pooled: dict[str, Scores] = {}
    data: dict[str, Any] = {}
    for name, scores in tables(options):
        data[name] = show(name, scores)
        for strategy, row in scores.items():
            pooled.setdefault(strategy, Scores()).extend(row)
    data["all"] = show("all", pooled)
    if options.json:
        options.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
