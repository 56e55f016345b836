"""Measure whether pruning keeps what is asked about one of several nested records in JSON, YAML or XML.

    python benchmarks/prune_nested.py [--efforts fast,careful,thorough] [--shares 0.25,0.1] [--lists 4] [--seed 0]

The records are invented: issues of a tracker with short and long texts, pods of a cluster with 1, 4 and 12 containers,
and three services of each of seven configurations. Most are larger than a passage. They are written as a list and as a
mapping of names, in one line or with indents. A question asks for the mail address of an issue's assignee, for the node
of a pod, or for the memory of a service. For each effort, form and share of the tokens, the program prints:

- the share of the questions whose record is still there with its name and its answer, with a bootstrap 95% interval;
- the share of the results that still parse;
- the tokens that remain, relative to those that may remain.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import yaml
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


def service(draw: random.Random, number: int) -> dict[str, Any]:
    """Return a service of a configuration."""
    pairs = [f"{first}_{second}".upper() for first in draw.sample(WORDS, 4) for second in draw.sample(WORDS, 2)]
    return {
        "name": f"web-{number}",
        "image": f"registry.example/base:{draw.randrange(9)}.{draw.randrange(99)}",
        "ports": [f"{draw.randrange(1_024, 9_999)}:80"],
        "environment": {pair: str(draw.randrange(9_999)) for pair in pairs},
        "healthcheck": {"test": ["CMD", "curl", "-f", "http://localhost/health"], "interval": "30s"},
        "deploy": {"replicas": draw.randrange(1, 9), "limits": {"memory": f"{draw.randrange(1_000, 9_999)}Mi"}},
        "volumes": [f"./{draw.choice(WORDS)}:/data/{part}" for part in range(4)],
    }


def text(draw: random.Random, words: int) -> str:
    """Return a text of so many words."""
    return " ".join(draw.choices(WORDS, k=words))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record, and what is asked about it.

    Attributes:
        count: The number of records in a result.
        make: Makes a record from random choices and a number.
        holder: The member that has the name of a record, or None if the record has it itself.
        named: The key of the name.
        question: The question about a name.
        answered: The key of the answer.
        results: The number of results with such records.
    """

    count: int
    make: Callable[[random.Random, int], dict[str, Any]]
    holder: str | None
    named: str
    question: str
    answered: str
    results: int = 1

    def name(self, record: Mapping[str, Any]) -> str:
        """Return the name of a record."""
        return str((record if self.holder is None else record[self.holder])[self.named])

    def without_name(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a record without its name."""
        copy: dict[str, Any] = json.loads(json.dumps(record))
        del (copy if self.holder is None else copy[self.holder])[self.named]
        copy.pop("self", None)
        return copy


MAIL = (None, "key", "What is the e-mail address of the assignee of {}?", "emailAddress")
NODE = ("metadata", "name", "On which node does {} run?", "nodeName")
MEMORY = (None, "name", "How much memory may {} use?", "memory")
KINDS = {
    "short issues": Kind(16, lambda draw, number: issue(draw, number, 60, 2), *MAIL),
    "long issues": Kind(10, lambda draw, number: issue(draw, number, 300, 4), *MAIL),
    "very long issues": Kind(6, lambda draw, number: issue(draw, number, 1_200, 8), *MAIL),
    "issues of many comments": Kind(8, lambda draw, number: issue(draw, number, 60, 20), *MAIL),
    "small pods": Kind(20, lambda draw, number: pod(draw, number, 1), *NODE),
    "pods": Kind(10, lambda draw, number: pod(draw, number, 4), *NODE),
    "large pods": Kind(6, lambda draw, number: pod(draw, number, 12), *NODE),
    "services": Kind(3, service, *MEMORY, results=7),
}


def listed(records: Sequence[dict[str, Any]], kind: Kind) -> dict[str, Any]:
    """Return the records as a list."""
    return {"total": len(records), "items": [*records]}


def mapped(records: Sequence[dict[str, Any]], kind: Kind) -> dict[str, Any]:
    """Return the records as a mapping of names."""
    return {"total": len(records), "items": {kind.name(record): kind.without_name(record) for record in records}}


def xml(value: Any, tag: str = "result") -> ET.Element:
    """Return a value as an element. The items of a list are elements with the singular of its name."""
    element = ET.Element(tag)
    if isinstance(value, Mapping):
        element.extend(xml(inner, name) for name, inner in value.items())
    elif isinstance(value, list):
        element.extend(xml(inner, tag.removesuffix("s") if tag.endswith("s") else "item") for inner in value)
    else:
        element.text = str(value)
    return element


def indented_xml(value: Any) -> str:
    """Return a value as XML with indents."""
    element = xml(value)
    ET.indent(element)
    return ET.tostring(element, encoding="unicode")


Form = tuple[Callable[..., dict[str, Any]], Callable[[Any], str], Callable[[str], Any]]
FORMS: dict[str, Form] = {
    "JSON list, one line": (listed, json.dumps, json.loads),
    "JSON list, indents": (listed, partial(json.dumps, indent=2), json.loads),
    "JSON mapping, one line": (mapped, json.dumps, json.loads),
    "JSON mapping, indents": (mapped, partial(json.dumps, indent=2), json.loads),
    "YAML list": (listed, partial(yaml.safe_dump, sort_keys=False), yaml.safe_load),
    "YAML mapping": (mapped, partial(yaml.safe_dump, sort_keys=False), yaml.safe_load),
    "XML": (listed, indented_xml, ET.fromstring),
}
"""How the records are arranged, written and parsed."""


def answer_of(value: Any, key: str) -> Any:
    """Return the value of the first member with this name, at any depth, or None."""
    if isinstance(value, Mapping) and key in value:
        return value[key]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((found for it in inner if (found := answer_of(it, key)) is not None), None)


def states(left: str, name: str, answer: str, names: Sequence[str]) -> bool:
    """Return True if the answer stands after the name, with no other record's name between them."""
    named = [*re.finditer(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", left)]
    for found in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", left):
        before = [match[0] for match in named if match.start() < found.start()]
        if before and before[-1] == name:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Result:
    """What a prune left of one result."""

    kept: bool
    parses: bool
    used: float


def measure(kind: Kind, draw: random.Random, form: Form, effort: str, share: float) -> Iterator[Result]:
    """Yield the results of some questions about the records of one result."""
    arrange, write, parse = form
    groups = [[kind.make(draw, 100 * group + row) for row in range(kind.count)] for group in range(kind.results)]
    asked = draw.randrange(len(groups))
    contents = [*(write(arrange(group, kind)) for group in groups), "done"]
    for record in draw.sample(groups[asked], QUESTIONS_OF_A_LIST):
        messages: list[dict[str, Any]] = [{"role": "user", "content": kind.question.format(kind.name(record))}]
        for number, content in enumerate(contents):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "get", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        pruned = ContextPruner(share, effort=effort, prices=ALWAYS).prune(messages)  # type: ignore[arg-type]
        left = pruned.messages[2 + 2 * asked]["content"]
        try:
            parse(left)
            parses = True
        except (ValueError, yaml.YAMLError, ET.ParseError):
            parses = False
        answer = str(answer_of(record, kind.answered))
        kept = states(left, kind.name(record), answer, [kind.name(it) for it in groups[asked]])
        yield Result(kept, parses, pruned.report.tokens_after / (share * pruned.report.tokens_before))


def main() -> None:
    """Print a table for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--efforts", default="fast,careful,thorough")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--lists", type=int, default=4, help="results of each kind and form")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for share in map(float, options.shares.split(",")):
        print(f"\n{share:.0%} of the tokens\n{'':34}{'evidence kept':22}{'parses':>7}{'used':>7}{'n':>6}")
        for effort in options.efforts.split(","):
            results: list[Result] = []
            for name, form in FORMS.items():
                own = [
                    result
                    for kind in KINDS.values()
                    for number in range(options.lists)
                    for result in measure(kind, random.Random(f"{options.seed}:{number}"), form, effort, share)
                ]
                report(effort, name, own)
                results += own
            report(effort, "all", results)


def report(effort: str, name: str, results: Sequence[Result]) -> None:
    """Print a row of a table."""
    kept = Figure.of([float(result.kept) for result in results])
    parses = sum(result.parses for result in results) / len(results)
    used = sum(result.used for result in results) / len(results)
    print(f"{effort:10}{name:24}{kept!s:22}{parses:7.3f}{used:7.2f}{len(results):6}", flush=True)


if __name__ == "__main__":
    main()
