"""The pruner's reader is adapted to a record of restores if that helps on tasks that were held out."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from context_agent._support.onnx import Rows
from context_agent._support.shipped_models import shipped_reader
from context_agent.cli.app import run
from context_agent.errors import ConfigError, DataError
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.adapted_reader import AdaptedReader
from context_agent.pruning.blocks import Passage
from context_agent.train.pruner import (
    MAX_PAIRS,
    MIN_PASSAGES,
    LabeledPassage,
    _at_most,
    _with_others,
    adapt,
    read_record,
)
from tests.support.growth import MOST_GROWTH, growth

PREFIX = "the row of"


class TopicReader:
    """A reader that sees whether the passage is about the task and in German, but whose odds say nothing."""

    width = 3
    name = "topic"

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> Rows:
        draw = random.Random(0)
        rows = [
            [draw.gauss(0, 1), float(task.split()[-1] in text.split()), float("und" in text.split())]
            for task, text in pairs
        ]
        return np.array(rows, dtype=np.float32)


def record(tasks: int = 30, each: int = 3, *, is_learnable: bool = True) -> list[LabeledPassage]:
    draw = random.Random(1)
    found = []
    for task in range(tasks):
        for number in range(each):
            for is_needed in (True, False):
                topic = f"t{task}" if is_needed or not is_learnable else "nothing"
                text = f"{PREFIX} {topic} {draw.randrange(10**6)} {number}"
                found.append(LabeledPassage(f"find t{task}", Passage(text, 0, len(text)), is_needed))
    return found


def lines(examples: Sequence[LabeledPassage]) -> str:
    rows = ({"task": it.task, "text": it.passage.text, "needed": it.is_needed, "tokens": 9} for it in examples)
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_the_passages_of_other_tasks_are_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.train.pruner.MAX_TRIES", 100)

    def record(size: int) -> list[LabeledPassage]:
        # Almost all passages are of one task.
        texts = [f"{number}" for number in range(size)]
        return [LabeledPassage(f"t{min(n, 12)}", Passage(text, 0, len(text)), True) for n, text in enumerate(texts)]

    assert growth(_with_others, record, 1_000) < MOST_GROWTH


def test_passages_of_other_tasks_are_found_in_records_of_any_size() -> None:
    # Each step of 7,919 passages comes back to the same one.
    for size in (7_919, 30_000):
        texts = [f"{number}" for number in range(size)]
        found = [
            LabeledPassage(f"t{n % 40 // 30 * n}", Passage(text, 0, len(text)), True) for n, text in enumerate(texts)
        ]
        examples = _with_others(_at_most(found))
        assert len(examples) <= MAX_PAIRS
        assert sum(not example.is_needed for example in examples) > len(examples) // 5


def test_the_adapted_reader_orders_held_out_passages_better() -> None:
    result = adapt(record(), TopicReader())
    assert result.reader is not None
    assert result.adapted > 0.95 > result.shipped
    assert result.gain.low > 0
    odds = result.reader.encode_pairs([("find t99", f"{PREFIX} t99"), ("find t99", f"{PREFIX} nothing")])[:, 0]
    assert odds[0] > odds[1] + 1


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_long_record_keeps_passages_of_both_kinds_from_its_whole_length(
    monkeypatch: pytest.MonkeyPatch, is_needed: bool
) -> None:
    monkeypatch.setattr("context_agent.train.pruner.MAX_PAIRS", 900)
    found = sorted(record(60, 8), key=lambda it: it.is_needed is is_needed)
    reports: list[tuple[int, int]] = []
    result = adapt(found, TopicReader(), lambda done, total: reports.append((done, total)))
    assert result.reader is not None
    assert (result.tasks, result.needed, result.left_out) == (60, 90, 960 - 90 - 450)
    assert reports == [(256, 900), (512, 900), (768, 900), (900, 900)]


class BlindReader(TopicReader):
    """A reader whose rows say nothing about the passage."""

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> Rows:
        return np.random.default_rng(0).normal(size=(len(pairs), 3)).astype(np.float32)


def test_a_reader_that_is_no_better_is_not_returned() -> None:
    result = adapt(record(is_learnable=False), BlindReader())
    assert result.reader is None
    assert result.held_out > 0


@pytest.mark.parametrize(("tasks", "each"), [(5, 20), (13, 1)])
def test_a_small_record_is_refused(tasks: int, each: int) -> None:
    with pytest.raises(DataError, match=str(MIN_PASSAGES)):
        adapt(record(tasks, each), TopicReader())


@pytest.mark.parametrize(
    "line", ['{"task": "a"}', "[1]", '{"task": "a", "text": 3}', "{", '{"task": "a", "text": "b", "needed": 1}']
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text(lines(record(1, 1)) + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"record\.jsonl:3"):
        read_record([file])


def test_a_pruner_reads_with_the_file_and_refuses_others(tmp_path: Path) -> None:
    reader = shipped_reader()
    file = tmp_path / "pruner.safetensors"
    flipped = np.zeros(reader.width + 1, dtype=np.float32)
    flipped[0] = -2.0
    file.write_bytes(AdaptedReader(flipped, reader).to_bytes())
    pairs = [("Where was Ana born?", "Ana was born in Bergen."), ("Where was Ana born?", "The price of oil rose.")]
    rows, adapted = reader.encode_pairs(pairs), AdaptedReader.load(file).encode_pairs(pairs)
    assert adapted[:, 0] == pytest.approx(-rows[:, 0], abs=1e-5)
    assert (adapted[:, 1:] == rows[:, 1:]).all()
    ContextPruner(100, adapted=file, prices=Prices(cached=1.0))
    with pytest.raises(ConfigError, match="careful"):
        ContextPruner(100, adapted=file, effort="fast")
    damaged = AdaptedReader(flipped[1:], reader).to_bytes()
    foreign = AdaptedReader(flipped, TopicReader()).to_bytes()
    for content in (b"", b"{}" * 60_000, damaged, foreign):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="ctx1 train pruner"):
            ContextPruner(100, adapted=file)
    with pytest.raises(ConfigError, match="ctx1 train pruner"):
        ContextPruner(100, adapted=tmp_path / "missing")


def test_the_command_writes_a_file_only_if_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "restores.jsonl", tmp_path / "pruner.safetensors"
    source.write_text(lines(record()), encoding="utf-8")
    for reader, code in ((BlindReader, 1), (TopicReader, 0)):
        monkeypatch.setattr("context_agent.train.pruner.shipped_reader", reader)
        assert run(["train", "pruner", str(source), "--out", str(out), "--json"]) == code
        figures = json.loads(capsys.readouterr().out)
        assert out.exists() == (code == 0) == (figures["written"] is not None)
        assert figures["tasks"] == 30
