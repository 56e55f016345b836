"""The folder that verl is started with: questions in curriculum order, verl's settings, and the agent loop.

FOLDER/train.parquet    the questions of all steps, one per row, in curriculum order
FOLDER/dev.parquet      the questions of the evaluation
FOLDER/settings.yaml    verl's settings for the run (`verl_settings`)
FOLDER/agent_loop.yaml  the loop's class and the run, for every worker

Every machine must see the folder, and the index that the run names, under the same path. This module needs pyarrow, but
not verl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file, replacing
from context_agent._support.question_files import question_of
from context_agent._support.small_files import parse_json
from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.eval.gold import has_gold, questions_with_gold
from context_agent.train.config import Notify, RunConfig
from context_agent.train.data import open_data
from context_agent.train.experimental.verl.settings import (
    AGENT,
    DEV_FILE,
    LOOP_FILE,
    SETTINGS_FILE,
    TRAIN_FILE,
    VerlTrainer,
    verl_settings,
)
from context_agent.train.rl.rollouts import step_questions
from context_agent.train.row_files import chunked
from context_agent.types import Question

LOOP_CLASS = "context_agent.train.experimental.verl.loop.SearchLoop"
"""Import path of the agent loop."""


CHUNK = 4_096
"""Number of rows that are written at a time."""


@dataclass(frozen=True, slots=True)
class VerlQuestion:
    """A question as a row of the file.

    Attributes:
        question: The question.
        index: Its position in the file.
        dev: True if it is for evaluation.
    """

    question: Question
    index: int
    dev: bool

    @staticmethod
    def of(row: Mapping[str, Any]) -> VerlQuestion:
        """Read a row as verl passes it to the loop.

        Args:
            row: The row, with the fields that verl adds.

        Returns:
            The question.

        Raises:
            DataError: If `prepare` did not write the row.
        """
        try:
            extra = row["extra_info"]
            decoded, index = parse_json(extra["question"]), int(extra["index"])
            return VerlQuestion(question_of(decoded, index, f"row {index}"), index, extra["split"] == "dev")
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"a row of verl's training data has no question of this package in extra_info ({error!r}). Write the "
                "file with `ctx1 train verl`."
            ) from None


@dataclass(frozen=True, slots=True)
class PreparedFolder:
    """The result of `prepare`.

    Attributes:
        folder: The folder.
        questions: Number of questions that steps draw from.
        rows: Number of rows over all steps.
        dev: Number of dev questions.
    """

    folder: str
    questions: int
    rows: int
    dev: int

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data, with keys in a fixed order."""
        return asdict(self)


def prepare(
    run: RunConfig, folder: str | Path, *, trainer: VerlTrainer = VerlTrainer.FSDP, note: Notify = print
) -> PreparedFolder:
    """Write the folder that verl is started with.

    Args:
        run: The run.
        folder: The folder.
        trainer: verl's training backend.
        note: A function that receives messages about skipped questions.

    Returns:
        The folder, with the numbers of questions and rows in it.

    Raises:
        ConfigError: If verl cannot carry out the run, or a question has no gold.
        DataError: If gold is not in the index.
    """
    location, run = Path(folder), with_absolute_paths(run)
    verl_settings(run, location, dev=0, trainer=trainer)
    location.mkdir(parents=True, exist_ok=True)
    with open_data(run.data, note) as material:
        lacking = [question.id for question in material.questions if not has_gold(question)]
        if lacking or not material.questions:
            raise ConfigError(
                f"{len(lacking)} of {len(material.questions)} questions have no gold, for example {lacking[:3]}. Add "
                "gold to data.questions."
            )
        rows = _write(location / TRAIN_FILE, _training(run, material.questions))
        chosen = questions_with_gold(material.dev)[: run.evaluation.questions] if run.evaluation.every else ()
        dev = _write(location / DEV_FILE, (_row(question, index, dev=True) for index, question in enumerate(chosen)))
        settings = verl_settings(run, location, dev=dev, trainer=trainer)
        loop = [{"name": AGENT, "_target_": LOOP_CLASS, "run": run.plain()}]
        # JSON is valid YAML.
        replace_file(location / LOOP_FILE, json.dumps(loop, indent=1) + "\n")
        replace_file(location / SETTINGS_FILE, f"# @package _global_\n{json.dumps(settings, indent=1)}\n")
        return PreparedFolder(str(location), len(material.questions), rows, dev)


def with_absolute_paths(run: RunConfig) -> RunConfig:
    """Return the run with absolute paths, because Ray starts its workers in other folders."""
    data, model = run.data, run.model
    if data.path is not None:
        data = replace(data, path=str(Path(data.path).resolve()))
    data = replace(data, documents=tuple(str(Path(name).resolve()) for name in data.documents))
    if Path(model.name).is_dir():
        model = replace(model, name=str(Path(model.name).resolve()))
    if model.adapter is not None:
        model = replace(model, adapter=str(Path(model.adapter).resolve()))
    return replace(run, out=str(Path(run.out).resolve()), data=data, model=model)


def _training(run: RunConfig, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """Yield the rows of every step's questions, in order."""
    index = 0
    for number in range(run.rollouts.steps):
        for question in step_questions(number, questions, run.curriculum, run.drawing):
            yield _row(question, index, dev=False)
            index += 1


def _row(question: Question, index: int, *, dev: bool) -> dict[str, Any]:
    split = "dev" if dev else "train"
    return {
        "data_source": f"{AGENT}/{split}",
        "agent_name": AGENT,
        "prompt": [{"role": "user", "content": question.question}],
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {"index": index, "split": split, "question": json.dumps(asdict(question), ensure_ascii=False)},
    }


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a parquet file, completely or not at all, and return its number of rows. If there are none, write no
    file.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "verl") from None
    path.unlink(missing_ok=True)
    chunks = chunked(rows, CHUNK)
    if not (first := next(chunks, None)):
        return 0
    count = len(first)
    table = pa.Table.from_pylist(first)
    with replacing(path) as file, parquet.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table)
        for chunk in chunks:
            writer.write_table(pa.Table.from_pylist(chunk, table.schema))
            count += len(chunk)
    return count
