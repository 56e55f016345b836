"""The comparison of adapters keeps its answers, so that an interrupted run asks no question twice."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from context_agent import Action, Document, MemoryCorpus, RankedId, ScriptedPolicy, SearchAgent, ToolCall
from context_agent._support.journal import AppendLog
from context_agent.types import Question

PROGRAMS = Path(__file__).parents[2] / "benchmarks"
if not (PROGRAMS / "smollm2.py").is_file():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)


@pytest.fixture(scope="module")
def smollm2() -> Any:
    """The program. It is imported here, because the libraries of training take seconds to import."""
    for module in ("trl", "peft"):
        pytest.importorskip(module)
    sys.path.insert(0, str(PROGRAMS))
    try:
        return importlib.import_module("smollm2")
    finally:
        sys.path.remove(str(PROGRAMS))


def answers(program: Any, file: Path, policy: ScriptedPolicy, settings: str) -> Any:
    corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868."), Document("mill", "A mill.")])
    questions = [Question("q", "When was Orm Skerry Light lit?", gold=("light",))]
    with AppendLog(file) as log, SearchAgent(corpus, policy) as agent:
        kept = program.AnswerFile(log)
        return asyncio.run(program.ask(agent, questions, at_once=2, kept=kept, settings=settings))


def test_an_answer_in_the_file_is_not_asked_again_unless_a_setting_differs(smollm2: Any, tmp_path: Path) -> None:
    wrong = ToolCall("search_corpus", {"query": "light"}), ToolCall("no_such_tool", {})
    right = ScriptedPolicy([Action(calls=wrong), Action(ranking=(RankedId("light"),))])
    first = answers(smollm2, tmp_path / "answers.jsonl", right, "a 1024")
    assert first.recalls == {"model": [1.0]}
    assert first.mistakes.total() == 1
    idle = ScriptedPolicy([Action(ranking=())])
    again = answers(smollm2, tmp_path / "answers.jsonl", idle, "a 1024")
    assert (again.recalls, again.scores, again.mistakes) == (first.recalls, first.scores, first.mistakes)
    assert answers(smollm2, tmp_path / "answers.jsonl", idle, "b 1024").recalls == {"model": [0.0]}
