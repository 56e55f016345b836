"""The command `ctx1 synth tasks`, which makes multi-hop tasks from an index, by links or with a language model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from context_agent._support.atomic_files import replace_file
from context_agent.cli import output
from context_agent.cli.agent_options import ChatModelOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import COUNT, COUNT_OR_ZERO, OUTPUT_FILE, CommonOptions, SeedOption, options_in
from context_agent.cli.synth_stages import StageOptions, WriterOptions, make_with_model
from context_agent.errors import ConfigError
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.links.tasks import LinkTaskSettings
    from context_agent.synth_data.task import Task


Hops = tuple[int, int]
"""The first and the last number of a range."""

DEFAULT_SEEDS = 100
"""The default number of documents from which a language model starts."""
MODEL_OPTIONS = [
    option.name for kind in (ChatModelOptions, WriterOptions) for option in fields(kind) if option.name != "domain"
]
"""The parameters that only a language model uses."""
DEFAULT_HOPS = (2, 4)
"""The default hops of the tasks."""


def hop_range(_: Any, tokens: Sequence[Token]) -> Hops:
    """Return the first and the last number of hops from a text such as `3` or `2-4`.

    Raises:
        ValueError: If the text does not have this form.
    """
    text = tokens[0].value
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(f"--hops must be a number or a range, such as 3 or 2-4; got {text!r}")
    return first, last


@options_in("Tasks from links")
@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options that only tasks from links have."""

    types: Annotated[str, Parameter(metavar="LIST")] = "bridge,comparison,intersection"
    """Types of questions, separated by commas."""
    name: Annotated[str, Parameter(metavar="NAME")] = "links"
    """Prefix of the ids."""
    report: Annotated[Path | None, OUTPUT_FILE, Parameter(metavar="FILE.json")] = None
    """File for the counts of kept and dropped drafts."""


def tasks(
    *,
    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="FILE.jsonl")],
    count: Annotated[int | None, COUNT, Parameter(show_default=f"all that pass; with --model {DEFAULT_SEEDS}")] = None,
    hops: Annotated[
        Hops | None,
        Parameter(converter=hop_range, n_tokens=1, metavar="RANGE", show_default="2-4, or up to the domain's maximum"),
    ] = None,
    distractors: Annotated[int, COUNT_OR_ZERO] = 10,
    seed: SeedOption = 0,
    links: LinkOptions = LinkOptions(),
    writer: WriterOptions = WriterOptions(),
    language_model: ChatModelOptions = ChatModelOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Make multi-hop tasks from an index.

    Tasks come from links, or with --model from a language model. A document that names another document links to it. A
    question describes the other document instead of naming it, so both must be found. The command checks that the
    quotes of a task are in its documents, and that its answer is in the last document and in no distractor. The same
    index and options give the same tasks. To resume an interrupted run, run the same command again.

    Args:
        out: File for the tasks, one per line; replaced once all are made.
        count: Maximum number of tasks; with --model, the number of documents to start from.
        hops: Number of documents that a question needs, or a range.
        distractors: Maximum number of distractors of a task.
    """
    if language_model.model is None and (given := given_flags(*MODEL_OPTIONS)):
        raise ConfigError(
            f"{given[0]} needs --model, the model that writes the tasks. To make tasks from links, remove {given[0]}."
        )
    stage = StageOptions(out, writer, language_model, index, None, seed, common)
    if language_model.model is None:
        return _link_tasks(stage, links, count, hops or DEFAULT_HOPS, distractors)
    if links.report is not None:
        raise ConfigError(
            "--report counts drafts from links and cannot be combined with --model. Use --json, which counts stages."
        )
    return _model_tasks(stage, count or DEFAULT_SEEDS, hops, distractors)


def _model_tasks(stage: StageOptions, count: int, hops: Hops | None, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.distractors import DistractorSettings
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan

    longest = min(DEFAULT_HOPS[1], load_domain(stage.writer.domain).max_hops)
    hops = hops or (min(DEFAULT_HOPS[0], longest), longest)
    settings = DistractorSettings(distractors, min(1, distractors))
    plan = PipelinePlan(count, hops, settings, stage.writer.concurrency)
    with stage.index.open() as corpus:
        return make_with_model(corpus, plan, stage)


def _link_tasks(stage: StageOptions, links: LinkOptions, count: int | None, hops: Hops, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.links.tasks import LinkTaskSettings

    settings = LinkTaskSettings(
        count=count,
        types=tuple(name.strip() for name in links.types.split(",") if name.strip()),
        hops=hops,
        seed=stage.seed,
        distractors=distractors,
        name=links.name,
        domain=load_domain(stage.writer.domain).name,
    )
    settings.check()
    with stage.index.open() as corpus:
        tally, shortcomings = _write_link_tasks(corpus, settings, stage.out)
    if links.report is not None:
        replace_file(links.report, json.dumps(tally, indent=2) + "\n")
    output.result({"out": str(stage.out), **tally}, _tally_text(tally, stage.out), as_json=stage.common.json)
    if not tally["tasks"]:
        _note_shortcomings(shortcomings)
    return 0 if tally["tasks"] else 1


def _note_shortcomings(shortcomings: Sequence[str]) -> None:
    output.note(
        "no task was made, because a question needs a document that another one names, and a fact about it. What was "
        "found:"
    )
    for line in shortcomings:
        output.note(f"  {line}")
    output.note("Add such sentences to the documents. To let a language model write the questions, pass --model.")


def _write_link_tasks(corpus: Corpus, settings: LinkTaskSettings, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Write the tasks from the links of a corpus. If there are none, write nothing.

    Return the counts of drafts, and the reasons why drafts did not become tasks.
    """
    from context_agent.synth_data.links.tasks import LinkTasks
    from context_agent.synth_data.task import write_tasks

    with output.progress("Reading", "documents") as advance:
        link_tasks = LinkTasks(corpus.walk(), settings, advance)
    with output.progress("Building", "tasks") as advance:

        def counted(tasks: Iterable[Task]) -> Iterator[Task]:
            for number, task in enumerate(tasks, 1):
                advance(number, settings.count)
                yield task

        made = counted(link_tasks.tasks())
        # If no task can be made, the tasks of an earlier run stay.
        if (first := next(made, None)) is not None:
            write_tasks(out, chain([first], made))
    tally = link_tasks.counts.to_json()
    return tally, [] if tally["tasks"] else link_tasks.shortcomings()


def _tally_text(tally: dict[str, Any], out: Path) -> str:
    first = (
        f"{counted(tally['tasks'], 'task')} from {counted(tally['links'], 'link')} between "
        f"{counted(tally['documents'], 'document')}{f' in {out}' if tally['tasks'] else ''}"
    )
    drafts = [
        f"  {title} {number:6}  {reason}" for title in ("kept", "dropped") for reason, number in tally[title].items()
    ]
    return "\n".join([first, *drafts])
