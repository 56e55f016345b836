"""Judges of several characters behind the product's scripted server, in a process of their own."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, fails, says
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.judge import RankingJudge

USAGE = {"prompt_tokens": 100, "completion_tokens": 10}
MARK = re.compile(r"SENTINEL-\d{4}")


def read(body: Mapping[str, Any]) -> tuple[str, str]:
    """The question and the passages of a request."""
    data = str(body["messages"][1]["content"])
    parts = re.findall(r"^<<< \w+ ([^\n]+)\n(.*?)\n\w+ >>>$", data, re.S | re.M)
    question = next(text for name, text in parts if name == "question")
    return question, "\n".join(text for name, text in parts if name.startswith("passage"))


def honest(body: Mapping[str, Any]) -> ScriptedAnswer:
    """Scores by the share of the question's marks that the passages contain."""
    question, passages = read(body)
    marks = MARK.findall(question)
    return scored(round(3 * sum(mark in passages for mark in marks) / len(marks)))


def scored(value: float, **options: Any) -> ScriptedAnswer:
    """Every criterion gets this number."""
    return says(json.dumps({"scores": {"coverage": value, "focus": value}, "why": "so"}), usage=USAGE, **options)


CHARACTERS = {
    "honest": honest,
    "yes": lambda body: scored(3),
    "prose": lambda body: says("These passages are lovely.", usage=USAGE),
    "down": lambda body: fails(503, "overloaded"),
    "beyond": lambda body: scored(7),
    "slow": lambda body: scored(3, delay=5.0),
    "huge": lambda body: says("{" * 3_000_000 + "no end", usage=USAGE),
    "keyless": lambda body: fails(401, "no key"),
}


@contextmanager
def serving(character: str) -> Iterator[str]:
    """Runs a judge in another process and yields its address."""
    command = [sys.executable, "-m", "tests.support.judges", character]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate("", timeout=60)


def judge(url: str, folder: Any, **settings: Any) -> RankingJudge:
    """A judge client for that address, without retries."""
    options = {"model": "scripted", "max_calls": 10_000, "timeout": 60.0, "retries": 0, **settings}
    return RankingJudge(JudgeConfig(base_url=url, **options), folder / "replies.jsonl", backoff=0.001)


def main(character: str) -> None:
    """Serves until standard input ends."""
    with ScriptedServer(list(itertools.repeat(CHARACTERS[character], 100_000))) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
