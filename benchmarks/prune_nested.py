"""Measure whether pruning keeps what is asked about one record of a list of nested records in JSON.

    python benchmarks/prune_nested.py [--efforts fast,careful,thorough] [--shares 0.25,0.1] [--lists 4] [--seed 0]

The records are invented: issues of a tracker with short and long texts, and pods of a cluster with 1, 4 and 12
containers. Each is larger than a passage. A list is written in one line and with indents. A question asks for the mail
address of an issue's assignee, or for the node of a pod. For each effort and share of the tokens, the program prints:

- the share of the questions whose record is still there with its name and its answer, with a bootstrap 95% interval;
- the share of the results that are still JSON;
- the tokens that remain, relative to those that may remain.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prune_any import ALWAYS

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner

WORDS = (
    "login payment export import cache timeout worker queue mail sender index token session database upload invoice "
    "report user admin"
).split()
PEOPLE = ("Ana Berg", "Ben Ode", "Cleo Marsh", "Dov Lind")
QUESTIONS_OF_A_LIST = 2


def issue(draw: random.Random, number: int, words: int, comments: int) -> dict[str, Any]:
    """Return an issue of a tracker."""
    base, person = "https://tracker.example/rest/api/2", draw.choice(PEOPLE)
    said = [
        {"author": {"name": "ana", "displayName": "Ana Berg"}, "body": text(draw, 25), "created": "2026-01-03"}
        for _ in range(comments)
    ]
    fields = {
        "summary": " ".join(draw.sample(WORDS, 5)),
        "status": {"self": f"{base}/status/3", "name": draw.choice(["Open", "Done"]), "category": {"key": "new"}},
        "assignee": {
            "name": person.split()[0].lower(),
            "emailAddress": f"{draw.choice(WORDS)}{draw.randrange(99)}@example.com",
            "displayName": person,
            "active": True,
            "timeZone": "Europe/Oslo",
        },
        "priority": {"name": "High", "id": "2", "iconUrl": "https://tracker.example/images/high.svg"},
        "labels": draw.sample(WORDS, 3),
        "created": "2026-01-02T10:00:00.000+0000",
        "components": [{"id": "1", "name": draw.choice(WORDS), "self": f"{base}/component/1"}],
        "description": text(draw, words),
        "comment": {"total": comments, "comments": said},
    }
    return {"id": str(10_000 + number), "key": f"OPS-{number}", "self": f"{base}/issue/{number}", "fields": fields}


def pod(draw: random.Random, number: int, containers: int) -> dict[str, Any]:
    """Return a pod of a cluster."""
    parts = [
        {
            "name": f"part-{part}",
            "image": f"registry.example/{draw.choice(WORDS)}:{draw.randrange(9)}.{draw.randrange(9)}",
            "ports": [{"containerPort": draw.randrange(1_024, 9_999), "protocol": "TCP"}],
            "env": [{"name": draw.choice(WORDS).upper(), "value": str(draw.randrange(9_999))} for _ in range(6)],
            "resources": {"limits": {"cpu": "500m", "memory": f"{draw.randrange(128, 999)}Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": True}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8_080}, "initialDelaySeconds": 5},
        }
        for part in range(containers)
    ]
    return {
        "metadata": {"name": f"web-{number}", "namespace": draw.choice(WORDS), "uid": f"{draw.getrandbits(64):x}"},
        "spec": {"containers": parts, "nodeName": f"node-{draw.randrange(99)}"},
        "status": {
            "phase": draw.choice(["Running", "Pending"]),
            "podIP": f"10.0.0.{number}",
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "Initialized", "PodScheduled")],
        },
    }


def text(draw: random.Random, words: int) -> str:
    """Return a text of so many words."""
    return " ".join(draw.choices(WORDS, k=words))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record, and what is asked about it."""

    count: int
    make: Callable[[random.Random, int], dict[str, Any]]
    named: str
    question: str
    answered: str


MAIL = ("key", "What is the e-mail address of the assignee of {}?", "emailAddress")
NODE = ("name", "On which node does {} run?", "nodeName")
KINDS = {
    "short issues": Kind(16, lambda draw, number: issue(draw, number, 60, 2), *MAIL),
    "long issues": Kind(10, lambda draw, number: issue(draw, number, 300, 4), *MAIL),
    "very long issues": Kind(6, lambda draw, number: issue(draw, number, 1_200, 8), *MAIL),
    "issues of many comments": Kind(8, lambda draw, number: issue(draw, number, 60, 20), *MAIL),
    "small pods": Kind(20, lambda draw, number: pod(draw, number, 1), *NODE),
    "pods": Kind(10, lambda draw, number: pod(draw, number, 4), *NODE),
    "large pods": Kind(6, lambda draw, number: pod(draw, number, 12), *NODE),
}


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Yield the values of all members with this name, at any depth."""
    if isinstance(value, Mapping):
        yield from (own for name, own in value.items() if name == key)
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from values_of(inner, key)


@dataclass(frozen=True, slots=True)
class Result:
    """What a prune left of one list."""

    kept: bool
    valid: bool
    used: float


def measure(kind: Kind, draw: random.Random, indent: int | None, effort: str, share: float) -> Iterator[Result]:
    """Yield the results of some questions about a list."""
    records = [kind.make(draw, number) for number in range(kind.count)]
    listed = json.dumps({"total": len(records), "items": records}, indent=indent)
    for record in draw.sample(records, QUESTIONS_OF_A_LIST):
        name = next(it for it in values_of(record, kind.named) if str(it).startswith(("OPS-", "web-")))
        answer = next(values_of(record, kind.answered))
        messages: list[dict[str, Any]] = [{"role": "user", "content": kind.question.format(name)}]
        for number, content in enumerate((listed, "done")):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "get", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        pruned = ContextPruner(share, effort=effort, prices=ALWAYS).prune(messages)  # type: ignore[arg-type]
        try:
            left = json.loads(pruned.messages[2]["content"])["items"]
        except (ValueError, TypeError):
            yield Result(False, False, 0.0)
            continue
        kept = any(name in values_of(item, kind.named) and answer in values_of(item, kind.answered) for item in left)
        yield Result(kept, True, pruned.report.tokens_after / (share * pruned.report.tokens_before))


def main() -> None:
    """Print a table for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--efforts", default="fast,careful,thorough")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--lists", type=int, default=4, help="lists of each kind and form")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for share in map(float, options.shares.split(",")):
        print(f"\n{share:.0%} of the tokens\n{'':12}{'evidence kept':22}{'valid':>7}{'used':>7}{'n':>6}")
        for effort in options.efforts.split(","):
            results = [
                result
                for kind in KINDS.values()
                for number in range(options.lists)
                for indent in (None, 2)
                for result in measure(kind, random.Random(f"{options.seed}:{number}"), indent, effort, share)
            ]
            kept = Figure.of([float(result.kept) for result in results])
            valid = sum(result.valid for result in results) / len(results)
            used = sum(result.used for result in results) / len(results)
            print(f"{effort:12}{kept!s:22}{valid:7.3f}{used:7.2f}{len(results):6}", flush=True)


if __name__ == "__main__":
    main()
