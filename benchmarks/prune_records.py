"""Measure the evidence kept for records in each text format that tools write, and whether the rest still parses.

An agent lists hosts or orders, or searches for orders. Each conversation has several results of up to 40 records. The
records are the same in each format, and the question is about two or three of them. Evidence kept is the share of these
records that remain unchanged. `parses` is the share of the pruned results that a parser of the format can read.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import json
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from prune_conversations import CITIES, COUNTER, NAMES, SERVICES, Player

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner, Prices

Record = dict[str, Any]
Format = tuple[Callable[[Record], str], Callable[[Sequence[str], Sequence[Record]], str], Callable[[str], object]]
STATES = ("running", "stopped", "degraded", "draining")
GOODS = ("lamp", "kettle", "bicycle", "desk", "tent", "camera", "drill", "violin", "anchor", "blanket")
EFFORTS = ("thorough", "careful", "fast")
ALWAYS = Prices(cached=1.0)


def host(draw: random.Random) -> Record:
    """Return a host of an inventory."""
    service, city = draw.choice(SERVICES), draw.choice(CITIES)
    return {
        "host": f"{service}-{draw.randrange(100, 999)}", "city": city, "state": draw.choice(STATES),
        "listen_port": draw.randrange(1_024, 65_000), "memory_mb": 2 ** draw.randrange(9, 16),
        "owner": draw.choice(NAMES),
    }  # fmt: skip


def order(draw: random.Random) -> Record:
    """Return an order of a shop."""
    return {
        "order_id": f"A-{draw.randrange(10**6):06d}", "customer": draw.choice(NAMES), "item": draw.choice(GOODS),
        "quantity": draw.randrange(1, 90), "ships_to": draw.choice(CITIES), "price": round(draw.uniform(5, 900), 2),
    }  # fmt: skip


QUESTIONS: dict[str, tuple[Callable[[random.Random], Record], str, str]] = {
    "list_hosts": (host, "Which port does {host} listen on, and who owns it?", "host"),
    "list_orders": (order, "What is the price of order {order_id}, and where was it shipped?", "order_id"),
    "find_orders": (
        order,
        "How many of the {item} did {customer} order to {ships_to}?",
        "customer item ships_to",
    ),
}


def _row(record: Record) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(record.values())
    return line.getvalue()


def _table_row(record: Record) -> str:
    return "| " + " | ".join(map(str, record.values())) + " |"


def _element(record: Record) -> str:
    return "<record>" + "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in record.items()) + "</record>"


def _pretty(record: Record) -> str:
    return json.dumps(record, indent=2).replace("\n", "\n  ")


def _same_width(text: str) -> None:
    if len({len(row) for row in csv.reader(io.StringIO(text))}) != 1:
        raise ValueError("rows differ")


def _table(text: str) -> None:
    if len({line.count("|") for line in text.split("\n") if line.strip()}) != 1:
        raise ValueError("rows differ")


FORMATS: dict[str, Format] = {
    "pretty": (_pretty, lambda items, _: "[\n  " + ",\n  ".join(items) + "\n]", json.loads),
    "after a line": (
        json.dumps, lambda items, _: f"Found {len(items)} records:\n[{', '.join(items)}]",
        lambda text: json.loads(text.split("\n", 1)[1]),
    ),
    "fence": (
        _pretty, lambda items, _: "Here they are:\n\n```json\n[\n  " + ",\n  ".join(items) + "\n]\n```\n",
        lambda text: json.loads(text.split("```json\n")[1].split("```")[0]),
    ),
    "jsonl": (
        json.dumps, lambda items, _: "\n".join(items), lambda text: [json.loads(line) for line in text.split("\n")],
    ),
    "xml": (_element, lambda items, _: "<records>\n" + "\n".join(items) + "\n</records>", ET.fromstring),
    "csv": (_row, lambda items, rows: "\n".join([",".join(rows[0]), *items]), _same_width),
    "table": (
        _table_row,
        lambda items, rows: "\n".join([_table_row({k: k for k in rows[0]}), "|" + "---|" * len(rows[0]), *items]),
        _table,
    ),
    "repr": (repr, lambda items, _: "[" + ", ".join(items) + "]", ast.literal_eval),
}  # fmt: skip


def conversation(form: str, seed: int, results: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the messages, and the records that are asked for."""
    draw = random.Random(seed)
    name, (make, question, keys) = draw.choice([*QUESTIONS.items()])
    sets = [[make(draw) for _ in range(draw.randrange(8, 41))] for _ in range(results)]
    wanted = [draw.choice(rows) for rows in draw.sample(sets, draw.randrange(2, 4))]
    marks = [tuple(record[key] for key in keys.split()) for record in wanted]
    for rows in sets:
        rows[:] = [row for row in rows if row in wanted or tuple(row[key] for key in keys.split()) not in marks]
    player = Player(" ".join(question.format(**record) for record in wanted), draw)
    item, frame, _ = FORMATS[form]
    for rows in sets:
        player.call(name, {"page": draw.randrange(100)}, frame([item(row) for row in rows], rows))
    player.call("note", {"text": "Next I will write the answer."}, "saved")
    return player.messages, [item(record) for record in wanted]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=20, help="conversations of a format")
    parser.add_argument("--results", type=int, default=6, help="results of a conversation")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--efforts", default=",".join(EFFORTS))
    options = parser.parse_args()
    for share in map(float, options.shares.split(",")):
        for effort in options.efforts.split(","):
            print(f"\n{effort}, {share:.0%} of the tokens\n{'':14}{'evidence kept':24}{'tokens':>8}{'parses':>8}")
            for form, (_, _, parse) in FORMATS.items():
                kept, sizes, parsed = [], [], []
                for seed in range(options.limit):
                    messages, evidence = conversation(form, seed, options.results)
                    before = sum(COUNTER.count(m["content"]) for m in messages if m["role"] == "tool")
                    pruned = ContextPruner(int(share * before), effort=effort, prices=ALWAYS).prune(messages).messages
                    texts = [message["content"] for message in pruned if message["role"] == "tool"]
                    kept.append(statistics.mean(part in "\n".join(texts) for part in evidence))
                    sizes.append(sum(map(COUNTER.count, texts)) / before)
                    parsed += [_parses(parse, text) for text in texts[:-1]]
                figures = f"{Figure.of(kept)!s:24}{statistics.mean(sizes):8.3f}{statistics.mean(parsed):8.3f}"
                print(f"{form:14}{figures}", flush=True)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, SyntaxError, IndexError):
        # A result that is gone whole is a single stub.
        return text.startswith(("p", '"p', "[", '"[')) and "\n" not in text
    return True


if __name__ == "__main__":
    main()
