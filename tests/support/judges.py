"""Judges of several characters behind the product's scripted server, in a process of their own."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, fails, says
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.judge import RankingJudge
from tests.support.forked_workers import start_fork

USAGE = {"prompt_tokens": 100, "completion_tokens": 10}
MARK = re.compile(r"SENTINEL-\d{4}")


def read(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the question and the passages of a request."""
    data = str(body["messages"][1]["content"])
    parts = re.findall(r"^<<< \w+ ([^\n]+)\n(.*?)\n\w+ >>>$", data, re.S | re.M)
    question = next(text for name, text in parts if name == "question")
    return question, "\n".join(text for name, text in parts if name.startswith("passage"))


def honest(body: Mapping[str, Any]) -> ScriptedAnswer:
    """Score by the share of the question's marks that the passages contain."""
    question, passages = read(body)
    marks = MARK.findall(question)
    return scored(round(3 * sum(mark in passages for mark in marks) / len(marks)))


def scored(value: float, **options: Any) -> ScriptedAnswer:
    """Return a reply that gives every criterion this number."""
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
    """Run a judge in another process and yield its address."""
    here, there = Pipe()
    process = start_fork(_serve, character, there)
    there.close()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _serve(character: str, pipe: Connection) -> None:
    with ScriptedServer(list(itertools.repeat(CHARACTERS[character], 100_000))) as server, suppress(EOFError):
        pipe.send(server.url)
        pipe.recv()


def judge(url: str, folder: Any, **settings: Any) -> RankingJudge:
    """Return a judge client for that address, without retries."""
    options = {"model": "scripted", "max_calls": 10_000, "timeout": 60.0, "retries": 0, **settings}
    return RankingJudge(JudgeConfig(base_url=url, **options), folder / "replies.jsonl", backoff=0.001)
