"""Measure pruning in long sessions of coding agents: facts that are needed later, tokens, cached tokens and cost.

    python benchmarks/prune_sessions.py [--sessions 20] [--turns 300] [--budget 12000] [--effort fast]
        [--shares 0.25,0.1] [--parts question,week] [--seed 0]

A session is generated from a seed. An agent reads files, searches code, runs tests, and reads logs, diffs, listings and
settings. It works in one of four styles, each with its own tools and formats. Early results contain facts, such as
`listen_port = 47113` in the section `staging` of a settings file. Settings of other services have the same names.

The part `question` ends a session with a question about three early facts, and prunes it once. It prints the share of
these facts that are still there, with a bootstrap 95% interval over sessions.

The part `week` prunes each session before each of its requests. Some steps need a fact of an earlier result, and the
step before announces it. If the fact is not in the request, the agent asks for what was removed from that result, as
the stub says. For each strategy the program prints, over all sessions:

- `sent`: the tokens of all requests, relative to no pruning
- `lost`: the cached tokens that were read again because an earlier message had changed, relative to all tokens sent
- `cost`: the price of all requests in fresh input tokens by `Prices()`, relative to no pruning. `worst` is the cost of
  the worst session
- `breaks`: the mean number of requests in a session that changed what was sent before
- `restores`: the number of facts that the agent had to ask for, out of all that it needed
- `missing`: the number of facts that it did not get
- `unaffected`: the share of prunes that removed nothing which a later step used
- `ms`: the mean CPU time of a request

`clear` is LangChain's `ClearToolUsesEdit` with the same budget, if the package `langchain` is installed. What it clears
cannot be restored.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prune_conversations import COUNTER, NAMES, Message, Player, log_lines, source_functions
from prune_rivals import clear_tool_uses, results_of

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.stubs import id_ranges

SERVICES = "ledger,gateway,catalog,courier,beacon,harvest,mosaic,quarry,sentinel,tally".split(",")
STAGES = ("development", "staging", "production")
KEYS: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "listen_port": (
        "On which port does {service} listen in {stage}?",
        lambda draw: str(draw.randrange(10_000, 65_000)),
    ),
    "request_timeout_ms": (
        "After how many milliseconds does {service} give up a request in {stage}?",
        lambda draw: str(draw.randrange(101, 9_999)),
    ),
    "database_host": (
        "On which host is the database of {service} in {stage}?",
        lambda draw: f"pg-{draw.randrange(1_000, 9_999)}.internal",
    ),
    "upload_bucket": (
        "In which bucket does {service} put uploads in {stage}?",
        lambda draw: f"up-{draw.randrange(1 << 24):06x}",
    ),
    "max_retries": ("How many retries does {service} make in {stage}?", lambda draw: str(draw.randrange(11, 99))),
    "oncall_owner": ("Who is on call for {service} in {stage}?", lambda draw: draw.choice(NAMES)),
    "signing_key_id": (
        "Which key signs the tokens of {service} in {stage}?",
        lambda draw: f"kid-{draw.randrange(1 << 32):08x}",
    ),
}
"""The name of each setting, with a question about it and a function that draws its value."""
FILLER = ("log_level = info", "color = auto", "workers = 4", "gzip = on", "trace_sample = 0.01", "region = eu-west-1")
AMBIGUOUS = ("max_retries", "oncall_owner")
"""Settings whose values may also appear elsewhere."""
FACTS, USES, ASKED = 9, 10, 3
"""The number of facts in a session, of steps that need one, and of facts in the last question."""
KEPT_RESULTS = 10
"""The number of results that `clear` keeps."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of a settings file."""

    service: str
    stage: str
    key: str
    value: str

    @property
    def question(self) -> str:
        """The question about this setting."""
        return KEYS[self.key][0].format(service=self.service, stage=self.stage)


def settings_of(draw: random.Random, service: str) -> list[Setting]:
    """Return the settings of one service in all stages."""
    return [Setting(service, stage, key, value(draw)) for stage in STAGES for key, (_, value) in KEYS.items()]


def as_ini(settings: Sequence[Setting], draw: random.Random) -> str:
    """Return settings in sections, as in an INI or TOML file."""
    lines: list[str] = []
    for stage in STAGES:
        own = [f"{it.key} = {it.value}" for it in settings if it.stage == stage]
        lines += [f"[{stage}]", *draw.sample([*own, *FILLER], len(own) + len(FILLER)), ""]
    return "\n".join(lines)


def as_yaml(settings: Sequence[Setting], draw: random.Random) -> str:
    """Return settings as YAML."""
    return re.sub(r"^\[(\w+)\]$", r"\1:", as_ini(settings, draw).replace(" = ", ": "), flags=re.M).replace("\n", "\n  ")


def as_env(settings: Sequence[Setting], draw: random.Random) -> str:
    """Return settings as environment variables."""
    lines = [f"{it.service}_{it.stage}_{it.key}".upper() + f"={it.value}" for it in settings]
    return "\n".join(draw.sample(lines, len(lines)))


def as_json(settings: Sequence[Setting], draw: random.Random) -> str:
    """Return settings as JSON."""
    stages = {stage: {it.key: it.value for it in settings if it.stage == stage} for stage in STAGES}
    return json.dumps({"service": settings[0].service, "stages": stages}, indent=2)


def source_file(draw: random.Random) -> str:
    """Return a part of a source file with line numbers."""
    functions = draw.sample(source_functions(), 5)
    lines = [line for function in functions for line in (*function.lines, "")]
    return "\n".join(f"{number:5}\t{line}" for number, line in enumerate(lines, draw.randrange(1, 400)))


def code_matches(draw: random.Random) -> str:
    """Return the lines that a search in source files found."""
    return "\n".join(
        f"{function.file}:{draw.randrange(1, 400)}:{draw.choice(function.lines)}"
        for function in draw.sample(source_functions(), 18)
    )


def test_run(draw: random.Random) -> str:
    """Return the output of a test run."""
    names = [
        function.summary.split(" ")[0].lower() + f"_{draw.randrange(99)}"
        for function in draw.sample(source_functions(), 24)
    ]
    lines = [
        f"tests/test_{draw.choice(SERVICES)}.py::test_{name} {draw.choice(('PASSED',) * 9 + ('FAILED',))}"
        for name in names
    ]
    failed = sum(line.endswith("FAILED") for line in lines)
    return "\n".join(
        ["collected 24 items", "", *lines, "", f"{failed} failed, {24 - failed} passed in {draw.random():.2f}s"]
    )


def diff(draw: random.Random) -> str:
    """Return a diff."""
    parts = []
    for function in draw.sample(source_functions(), 3):
        first, *rest = function.lines
        parts += [f"--- a/{function.file}", f"+++ b/{function.file}", "@@ -10,8 +10,9 @@", f" {first}"]
        parts += [f"{draw.choice('  -+')}{line}" for line in rest]
    return "\n".join(parts)


def listing(draw: random.Random) -> str:
    """Return a listing of files."""
    return "\n".join(
        f"{draw.randrange(200, 90_000):>8} {function.file}" for function in draw.sample(source_functions(), 30)
    )


def logs(draw: random.Random) -> str:
    """Return lines of a log."""
    return "\n".join(log_lines(draw, 16))


Form = Callable[[Sequence[Setting], random.Random], str]


@dataclass(frozen=True, slots=True)
class Hand:
    """A style of work.

    Attributes:
        tools: The tools that the agent calls, each with a function that writes its results and its relative frequency.
        says: The text before a call.
        settings: The format of settings.
    """

    tools: dict[str, tuple[Callable[[random.Random], str], int]]
    says: str
    settings: Form


HANDS = (
    Hand(
        {"read_file": (source_file, 5), "grep": (code_matches, 3), "run_tests": (test_run, 2)},
        "Let me look at {}.",
        as_ini,
    ),
    Hand({"bash": (test_run, 3), "cat": (source_file, 3), "git_diff": (diff, 2), "ls": (listing, 2)}, "", as_env),
    Hand({"Read": (source_file, 4), "Grep": (code_matches, 4), "Logs": (logs, 2)}, "Next: {}.", as_yaml),
    Hand(
        {"query_logs": (logs, 4), "view": (source_file, 3), "diff": (diff, 2), "tests": (test_run, 1)},
        "I check {}.",
        as_json,
    ),
)


@dataclass(slots=True)
class Session:
    """A session.

    Attributes:
        messages: The messages.
        facts: The facts, and the index of the message that contains each.
        uses: The index of each message whose step needs a fact, and the fact.
    """

    messages: list[Message]
    facts: dict[Setting, int] = field(default_factory=dict)
    uses: dict[int, Setting] = field(default_factory=dict)


def session(seed: int, turns: int) -> Session:
    """Return a session of `turns` calls."""
    draw = random.Random(f"session {seed}")
    hand = HANDS[seed % len(HANDS)]
    services = draw.sample(SERVICES, len(SERVICES))
    player = Player(f"Make the release of {services[0]} pass its tests and bring it to all stages.", draw)
    made = Session(player.messages)
    early = sorted(draw.sample(range(2, turns // 6), FACTS))
    later = sorted(draw.sample(range(turns // 4, turns - 2), USES))
    for turn in range(turns):
        if turn in early or draw.random() < 0.03:
            service = services[early.index(turn) % 4] if turn in early else draw.choice(services[4:])
            settings = settings_of(draw, service)
            name, arguments = draw.choice([*hand.tools]), {"path": f"deploy/{service}-{draw.randrange(99)}.conf"}
            _call(player, hand, name, arguments, hand.settings(settings, draw))
            if turn in early:
                made.facts[draw.choice([it for it in settings if it.key not in AMBIGUOUS])] = len(player.messages) - 1
            continue
        if turn in later:
            fact = draw.choice([*made.facts])
            player.call("note", {"text": "looking for: " * (draw.random() < 0.5) + fact.question}, "noted")
            made.uses[len(player.messages)] = fact
            arguments = {"path": "deploy/release.sh", "line": f"export {fact.key.upper()}={fact.value}"}
            player.call("edit", arguments, "edited")
            continue
        name = draw.choices([*hand.tools], [share for _, share in hand.tools.values()])[0]
        _call(
            player, hand, name, {"target": f"{draw.choice(services)}/{draw.randrange(99)}"}, hand.tools[name][0](draw)
        )
    return made


def _call(player: Player, hand: Hand, name: str, arguments: dict[str, Any], result: str) -> None:
    player.call(name, arguments, result)
    if hand.says:
        player.messages[-2]["content"] = hand.says.format(next(iter(arguments.values())))


def last_question(options: argparse.Namespace, share: float) -> list[float]:
    """Return the share of the asked facts that a prune keeps, for each session. A question about the facts ends the
    session.
    """
    kept = []
    for seed in range(options.seed, options.seed + options.sessions):
        played, draw = session(seed, options.turns), random.Random(seed)
        asked = draw.sample([*played.facts], ASKED)
        question = {"role": "user", "content": " ".join(fact.question for fact in asked)}
        # An edit repeats the value of a fact. Here only what the results say counts.
        messages = [message for message in played.messages if "release.sh" not in str(message.get("tool_calls", ""))]
        messages = [*_without_orphans(messages), question]
        total = sum(COUNTER.count(message["content"]) for message in messages if message["role"] == "tool")
        pruner = ContextPruner(int(share * total), effort=options.effort, prices=Prices(cached=1.0))
        text = "\n".join(results_of(pruner.prune(messages).messages))
        kept.append(statistics.mean(fact.value in text for fact in asked))
    return kept


def _without_orphans(messages: Sequence[Message]) -> list[Message]:
    calls = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    return [message for message in messages if message["role"] != "tool" or message["tool_call_id"] in calls]


@dataclass(slots=True)
class Bill:
    """The cost of the requests of a session."""

    prices: Prices = field(default_factory=Prices)
    sent: int = 0
    lost: int = 0
    cost: float = 0.0
    breaks: int = 0
    _last: list[Message] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)

    def add(self, messages: Sequence[Message]) -> None:
        """Add a request. The messages that it shares with the start of the request before are cached."""
        shared = 0
        for before, after in zip(self._last, messages, strict=False):
            if before is not after and before != after:
                break
            shared += 1
        lost = sum(self._sizes[shared:])
        self._sizes = self._sizes[:shared] + [
            COUNTER.count(json.dumps(it, ensure_ascii=False)) for it in messages[shared:]
        ]
        self._last = [*messages]
        cached, total = sum(self._sizes[:shared]), sum(self._sizes)
        self.sent += total
        self.lost += lost
        self.breaks += lost > 0
        self.cost += (cached * self.prices.cached + (total - cached) * self.prices.fresh) / self.prices.fresh


@dataclass(slots=True)
class Week:
    """The result of a strategy in one session."""

    bill: Bill = field(default_factory=Bill)
    needed: int = 0
    restores: int = 0
    missing: int = 0
    prunes: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


Prune = Callable[[Sequence[Message]], Sequence[Message]]


def play(played: Session, prune: Prune, *, can_restore: bool) -> Week:
    """Prune each request of the session, and return the result."""
    week = Week()
    sent: list[Message] = []
    added = 0
    before: frozenset[Setting] = frozenset()
    messages: list[Message] = []
    for index, message in enumerate(played.messages):
        if message["role"] == "assistant":
            started = time.process_time()
            pruned = prune(messages)
            week.seconds.append(time.process_time() - started)
            week.bill.add(pruned)
            text = "\n".join(results_of(pruned))
            visible = frozenset(fact for fact in played.facts if fact.value in text)
            if any(a is not b and a != b for a, b in zip(sent, pruned, strict=False)):
                later = {fact for at, fact in played.uses.items() if at >= index}
                week.prunes.append(not (before - visible) & later)
            sent, before = [*pruned], visible
            if index in played.uses:
                week.needed += 1
                fact = played.uses[index]
                if fact not in visible and can_restore:
                    week.restores += 1
                    # The messages that ask for a restore come after the facts, which keep their numbers.
                    wanted = _ids_at(pruned, played.facts[fact])
                    name = f"restore_{added}"
                    added += 1
                    function = {"name": "note", "arguments": json.dumps({"text": f"restore: {wanted}"})}
                    messages += [
                        {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [{"id": name, "type": "function", "function": function}],
                        },
                        {"role": "tool", "tool_call_id": name, "content": "noted"},
                    ]
                    sent = [*prune(messages)]
                    week.bill.add(sent)
                    before = frozenset(fact for fact in played.facts if fact.value in "\n".join(results_of(sent)))
                week.missing += fact not in before
        messages.append(message)
    return week


def _ids_at(messages: Sequence[Message], index: int) -> str:
    """Return the ids of what was removed from a result, as its stubs name them.

    If several consecutive results are removed, the stub of the first one names the ids of all of them, and each other
    result has only its own ids.
    """
    numbers = _named(messages[index])
    if "results pruned" in messages[index]["content"]:
        shared = {number for it in messages[index + 1 :] if it["role"] == "tool" for number in _named(it)}
        numbers = [number for number in numbers if number not in shared]
    return id_ranges([f"p{number}" for number in numbers])


def _named(message: Message) -> list[int]:
    """Return the numbers of the passages that the stubs of a result name."""
    content = message["content"].strip('"')  # the stub of a JSON result is a JSON string
    stubs = [content] if re.fullmatch(r"[p\d, -]+", content) else re.findall(r"\[[^\[\]]*\bp\d[^\[\]]*\]", content)
    ranges = (match for stub in stubs for match in re.findall(r"\bp(\d+)(?:-p(\d+))?", stub))
    return [number for first, last in ranges for number in range(int(first), int(last or first) + 1)]


def pruning(options: argparse.Namespace) -> Prune:
    """Return a pruner for one conversation."""
    pruner = ContextPruner(options.budget, effort=options.effort)
    return lambda messages: pruner.prune(messages).messages


def clearing(options: argparse.Namespace) -> Prune:
    """Return LangChain's edit. If there are more tokens than the budget, it keeps `KEPT_RESULTS` results."""

    def clear(messages: Sequence[Message]) -> Sequence[Message]:
        if sum(map(COUNTER.count, results_of(messages))) <= options.budget:
            return messages
        return clear_tool_uses(messages, options.budget, keep=KEPT_RESULTS) or messages

    return clear


def weeks(options: argparse.Namespace) -> Iterator[tuple[str, list[Week]]]:
    """Yield the name of each strategy, and its result in each session."""
    sessions = [session(seed, options.turns) for seed in range(options.seed, options.seed + options.sessions)]
    yield "none", [play(one, lambda messages: messages, can_restore=False) for one in sessions]
    yield options.effort, [play(one, pruning(options), can_restore=True) for one in sessions]
    if clear_tool_uses([], 1, keep=1) is None:
        print("clear: the package langchain is not installed")
    else:
        yield "clear", [play(one, clearing(options), can_restore=False) for one in sessions]


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--budget", type=int, default=12_000, help="tokens of tool results in a request")
    parser.add_argument("--effort", default="fast")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that the last question leaves")
    parser.add_argument("--parts", default="question,week")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = options.parts.split(",")
    for share in options.shares.split(",") if "question" in parts else ():
        kept, tokens = last_question(options, float(share)), f"{float(share):.0%} of the tokens"
        print(f"last question, {options.effort}, {tokens}, {len(kept)} sessions: {Figure.of(kept)}")
    if "week" not in parts:
        return
    print(f"\n{options.sessions} sessions of {options.turns} calls, budget {options.budget:,}, prices {Prices()}")
    print(
        f"{'':8}{'sent':>7}{'lost':>7}{'cost':>7}{'worst':>7}{'breaks':>8}{'restores':>10}{'missing':>9}{'unaffected':>12}{'ms':>7}"
    )
    nothing: list[Week] = []
    for name, rows in weeks(options):
        nothing = nothing or rows
        sent = sum(row.bill.sent for row in rows) / sum(row.bill.sent for row in nothing)
        lost = sum(row.bill.lost for row in rows) / sum(row.bill.sent for row in rows)
        cost = sum(row.bill.cost for row in rows) / sum(row.bill.cost for row in nothing)
        worst = max(row.bill.cost / plain.bill.cost for row, plain in zip(rows, nothing, strict=True))
        breaks = statistics.mean(row.bill.breaks for row in rows)
        needed = sum(row.needed for row in rows)
        restores, missing = (
            f"{sum(counts)}/{needed}" for counts in ([r.restores for r in rows], [r.missing for r in rows])
        )
        prunes = [sound for row in rows for sound in row.prunes]
        sound = f"{statistics.mean(prunes):.3f}" if prunes else "-"
        milliseconds = 1e3 * statistics.mean(second for row in rows for second in row.seconds)
        print(
            f"{name:8}{sent:7.3f}{lost:7.3f}{cost:7.3f}{worst:7.3f}{breaks:8.1f}{restores:>10}{missing:>9}{sound:>12}"
            f"{milliseconds:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
