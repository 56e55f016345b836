"""`ctx1 synth tasks` and `ctx1 synth world`: multi-hop tasks from an index, or from an invented world."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import click

from context_agent.cli import options, output
from context_agent.cli.command import COUNT, COUNT_OR_ZERO, FILE, FOLDER, Json, Option, command
from context_agent.cli.synth_stages import StageOptions, WriterOptions, make_with_model
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.links import LinkTaskSettings
    from context_agent.synth_data.task import Task

Hops = tuple[int, int]
"""The first and the last number of a range."""

DEFAULT_SEEDS = 100
"""Documents from which a language model starts by default."""
DEFAULT_HOPS = (2, 4)
"""Hops of the tasks by default."""
WORLD_HOPS = (1, 4)
"""Hops of the questions about a world by default."""


def hop_range(text: Any) -> Hops:
    """`3` or `2-4` as the first and the last number of hops. Raises `click.BadParameter`."""
    if isinstance(text, tuple):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", str(text))
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise click.BadParameter(f"{text!r} is not a range of hops: write one number, or two as in 2-4")
    return first, last


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Tasks from links; what else they need are options of all tasks."""

    SECTION: ClassVar[str] = "Tasks from links"

    types: Annotated[str, Option("Types of questions, separated by commas.", metavar="LIST")] = (
        "bridge,comparison,intersection"
    )
    name: Annotated[str, Option("Prefix of the ids.", metavar="NAME")] = "links"
    report: Annotated[Path | None, Option("File for the counts of kept and dropped drafts.", FILE, "FILE.json")] = None


@command
def tasks(
    *,
    out: Annotated[Path, Option("File for the tasks, one per line; replaced once all are made.", FILE, "FILE.jsonl")],
    count: Annotated[
        int | None,
        Option(
            "Maximum number of tasks; with --model, the number of documents to start from.",
            COUNT,
            default=f"all that pass; with --model {DEFAULT_SEEDS}",
        ),
    ] = None,
    hops: Annotated[
        Hops | None,
        Option(
            "Number of documents that a question needs, or a range.",
            hop_range,
            "RANGE",
            default="2-4, or up to the domain's maximum",
        ),
    ] = None,
    distractors: Annotated[int, Option("Maximum number of distractors of a task.", COUNT_OR_ZERO)] = 10,
    seed: options.SeedOption = 0,
    links: LinkOptions,
    writer: WriterOptions,
    language_model: options.ModelOptions,
    index: options.CorpusOptions,
    as_json: Json,
) -> int:
    """Make multi-hop tasks from an index.

    Tasks come from links, or with --model from a language model. A document that names another document links to it; a
    question describes the other document instead of naming it, so both must be found. Every task is checked: its quotes
    are in its documents, and its answer is in the last one and in no distractor. The same index and options give the
    same tasks. To resume an interrupted run, run the same command again.
    """
    if language_model.model is None and language_model.base_url is not None:
        raise ConfigError(
            "--base-url needs --model, the model that writes the tasks; omit both to make tasks from links"
        )
    stage = StageOptions(writer, language_model, index, out, None, seed, as_json)
    if language_model.model is None:
        return _link_tasks(stage, links, count, hops or DEFAULT_HOPS, distractors)
    if links.report is not None:
        raise ConfigError("--report counts drafts from links and excludes --model: use --json, which counts stages")
    return _model_tasks(stage, count or DEFAULT_SEEDS, hops, distractors)


def _model_tasks(stage: StageOptions, count: int, hops: Hops | None, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.checking import DistractorSettings
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan

    longest = min(DEFAULT_HOPS[1], load_domain(stage.writer.domain).max_hops)
    hops = hops or (min(DEFAULT_HOPS[0], longest), longest)
    settings = DistractorSettings(distractors, min(1, distractors))
    plan = PipelinePlan(count, hops, settings, stage.writer.concurrency)
    with stage.index.open() as corpus:
        return make_with_model(corpus, plan, stage)


def _link_tasks(stage: StageOptions, links: LinkOptions, count: int | None, hops: Hops, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.links import LinkTaskSettings

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
        links.report.parent.mkdir(parents=True, exist_ok=True)
        links.report.write_text(json.dumps(tally, indent=2) + "\n", encoding="utf-8")
    output.result({"out": str(stage.out), **tally}, _tally_text(tally, stage.out), as_json=stage.as_json)
    if not tally["tasks"]:
        _note_shortcomings(shortcomings)
    return 0 if tally["tasks"] else 1


def _note_shortcomings(shortcomings: Sequence[str]) -> None:
    output.note("no task: a question describes a document that another one names, and asks for a fact of it. Of these")
    for line in shortcomings:
        output.note(f"  {line}")
    output.note("add such sentences to the documents, or let a language model write the questions: pass --model")


def _write_link_tasks(corpus: Corpus, settings: LinkTaskSettings, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Writes the tasks from the links of a corpus; returns the counts of drafts, and what no task was made of."""
    from context_agent.synth_data.links import LinkTasks
    from context_agent.synth_data.task import write_tasks

    with output.progress("Reading", "documents") as advance:
        link_tasks = LinkTasks(corpus.walk(), settings, advance)
    with output.progress("Building", "tasks") as advance:

        def counted(tasks: Iterable[Task]) -> Iterator[Task]:
            for number, task in enumerate(tasks, 1):
                advance(number, settings.count)
                yield task

        write_tasks(out, counted(link_tasks.tasks()))
    tally = link_tasks.counts.to_json()
    return tally, [] if tally["tasks"] else link_tasks.shortcomings()


def _tally_text(tally: dict[str, Any], out: Path) -> str:
    first = f"{tally['tasks']} tasks from {tally['links']} links between {tally['documents']} documents in {out}"
    drafts = [
        f"  {title} {number:6}  {reason}" for title in ("kept", "dropped") for reason, number in tally[title].items()
    ]
    return "\n".join([first, *drafts])


@command
def world(
    *,
    entities: Annotated[int, Option("Number of entities and documents, at least 50.")],
    out: Annotated[Path, Option("Folder for the corpus and the questions.", FOLDER)],
    tasks: Annotated[int | None, Option("Number of questions in all splits.", default="two for each entity")] = None,
    hops: Annotated[
        Hops, Option("Number of documents that a question needs, or a range.", hop_range, "RANGE", default="1-4")
    ] = WORLD_HOPS,
    distractors: Annotated[int, Option("Maximum number of distractors of a task.", COUNT_OR_ZERO)] = 5,
    vocabulary: Annotated[
        Literal["full", "small"],
        Option("small: about 240 words and documents of one sentence, for tiny models; up to about 800 entities."),
    ] = "full",
    force: Annotated[bool, Option("Replace the world in FOLDER.")],
    seed: options.SeedOption = 0,
    as_json: Json,
) -> int:
    """Invent a corpus and questions about it.

    The answers to the questions, of 1 to 4 hops, follow from the documents alone. FOLDER gets corpus.jsonl.gz (for
    `ctx1 index`), queries.train.jsonl, queries.dev.jsonl and queries.test.jsonl, which share no documents, world.json
    with settings and counts, and a data card.
    """
    from context_agent.synth_data import world as worlds

    invented = worlds.make(
        entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=distractors, vocabulary=vocabulary
    )
    with output.progress("Inventing", "tasks") as advance:
        about = worlds.write(invented, out, force=force, report=advance)
    splits = ", ".join(f"{numbers['all']} {split}" for split, numbers in about["tasks"].items())
    text = f"{about['documents']} documents and {splits} tasks in {out}\nNext: ctx1 index {out / 'corpus.jsonl.gz'}"
    output.result({"folder": str(out), **about}, text, as_json=as_json)
    return 0
