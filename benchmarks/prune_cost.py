"""Measure the CPU time of one prune, for conversations of 8,000 and 32,000 tokens and for one result of 200,000.

    python benchmarks/prune_cost.py [--repeats 3] [--giant 200000]

A quarter of the tokens may remain. Of the giant result, 8,000 tokens may remain. The time includes the counting of
tokens. It is CPU time, so other work on the machine hardly matters. The table has the fastest repeat for each kind of
tool result, and the mean over the kinds. Caches are emptied before each prune, so no passage is known.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence

import prune_records
from prune_conversations import INVENTED, InventedSet, Message, Player, as_tickets, code_search, log_lines, tickets

from context_agent._support.token_table import load_weights
from context_agent.pruning import ContextPruner, Prices, features, relevance, word_pieces, words

SIZES = (8_000, 32_000)
ALWAYS = Prices(cached=1.0)
CHARACTERS_A_TOKEN = 4


def giant(kind: str, tokens: int) -> str:
    """Return a result of about `tokens` tokens."""
    draw, characters = random.Random(0), CHARACTERS_A_TOKEN * tokens
    if kind == "logs":
        lines = log_lines(draw, characters // 100)
        return "\n".join(lines)
    if kind == "json":
        return as_tickets(tickets(draw, characters // 210))
    if kind == "csv":
        records = [prune_records.host(draw) for _ in range(characters // 40)]
        return prune_records.FORMATS["csv"][1]([*map(prune_records.FORMATS["csv"][0], records)], records)
    parts: list[str] = []
    while sum(map(len, parts)) < characters:
        parts.append(code_search(draw)[1])
    return "\n\n".join(parts)


def measured(messages: Sequence[Message], budget: int, effort: str, repeats: int) -> tuple[float, int]:
    """Return the milliseconds of the fastest of several prunes, and the number of tokens before it."""
    seconds = []
    for _ in range(repeats):
        for cache in (words.TERM_IDS, word_pieces.PIECES, features.TEMPLATES, relevance.EMBEDDINGS, relevance.ODDS):
            cache.clear()
        load_weights()._words.clear()  # noqa: SLF001
        started = time.process_time()
        report = ContextPruner(budget, effort=effort, prices=ALWAYS).prune(messages).report
        seconds.append(time.process_time() - started)
    return 1e3 * min(seconds), report.tokens_before


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--giant", type=int, default=200_000, help="tokens of the giant result")
    options = parser.parse_args()
    ContextPruner(1, prices=ALWAYS).prune(INVENTED["logs"](random.Random(0), 500).messages)  # loads the models
    conversations: dict[str, Callable[[str], Sequence[Message]]] = {
        f"{size:,} tokens": lambda kind, size=size: InventedSet(INVENTED[kind]).conversation(0, "run", size, 0).messages
        for size in SIZES
    }

    def one_result(kind: str) -> Sequence[Message]:
        player = Player("Which host in Graz wrote no space left on device, and who owns it?", random.Random(0))
        player.call("fetch", {}, giant(kind, options.giant))
        player.call("note", {}, "saved")
        return player.messages

    for name, make in conversations.items():
        show(name, [*INVENTED], make, None, options.repeats)
    show("giant result", [*INVENTED, "csv"], one_result, 8_000, 1)


def show(
    name: str, kinds: Sequence[str], make: Callable[[str], Sequence[Message]], budget: int | None, repeats: int
) -> None:
    """Print the times of conversations of one size."""
    for effort in ("fast", "careful", "thorough"):
        times, parts = [], []
        for kind in kinds:
            messages = make(kind)
            tokens = sum(prune_records.COUNTER.count(it["content"]) for it in messages if it["role"] == "tool")
            milliseconds, before = measured(messages, budget or tokens // 4, effort, repeats)
            times.append(milliseconds)
            parts.append(f"{kind} {milliseconds:,.0f} ({before:,} tokens)")
        print(f"{name}, {effort}: mean {statistics.mean(times):,.0f} ms; {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
