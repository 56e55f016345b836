"""`ctx1 synth tasks` and `ctx1 synth world`: multi-hop tasks from an index, or from an invented world."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.cli.ranges import HOPS
from context_agent.cli.synth import seed_option
from context_agent.cli.synth_stages import WriterOptions, make_with_model, writer_options
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.links import LinkTaskSettings
    from context_agent.synth_data.task import Task


DEFAULT_SEEDS = 100
"""Documents from which a language model starts by default."""
DEFAULT_HOPS = (2, 4)
"""Hops of the tasks by default."""


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.jsonl",
    help="File for the tasks, one a line; replaced when all are made.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Most tasks.  [default: all that pass]")
@click.option(
    "--types",
    default="bridge,comparison,intersection",
    show_default=True,
    metavar="LIST",
    help="Types of questions from links, comma-separated.",
)
@click.option(
    "--hops",
    type=HOPS,
    metavar="RANGE",
    help="Documents that a question needs; with a model, its hops.  [default: 2-4, or up to the domain's maximum]",
)
@seed_option
@click.option(
    "--distractors",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Most distractors of a task.",
)
@click.option("--name", default="links", show_default=True, help="Prefix of the ids of tasks from links.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="File for the counts of kept and dropped drafts.",
)
@writer_options
@options.model
@options.index
@options.opening
@options.common
def tasks(
    *,
    out: Path,
    count: int | None,
    types: str,
    hops: tuple[int, int] | None,
    seed: int,
    distractors: int,
    name: str,
    report: Path | None,
    writer: WriterOptions,
    language_model: options.ModelOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
    as_json: bool,
) -> int:
    """Make multi-hop tasks from an index: from its links, or with --model by a language model.

    A document that names another document links to it. A question describes the other document instead of naming it, so
    both must be found. Every task is checked: its quotes stand in its documents, its answer stands in the last one and
    in no distractor. The same index and options give the same bytes, so an interrupted run is simply run again.
    """
    from context_agent.synth_data.domains import load_domain

    if language_model.model is None and language_model.base_url is not None:
        raise ConfigError(
            "--base-url needs --model, the model that writes the tasks; omit both to build tasks from links"
        )
    if language_model.model is not None:
        if report is not None:
            raise ConfigError(
                "--report counts drafts from links and cannot be used with --model; --json reports each stage"
            )
        from context_agent.synth_data.llm_stages.checking import DistractorSettings
        from context_agent.synth_data.llm_stages.pipeline import PipelinePlan

        longest = min(DEFAULT_HOPS[1], load_domain(writer.domain).max_hops)
        reach = hops or (min(DEFAULT_HOPS[0], longest), longest)
        plan = PipelinePlan(
            count or DEFAULT_SEEDS, reach, DistractorSettings(distractors, min(1, distractors)), writer.concurrency
        )
        with options.open_corpus(index, opening) as corpus:
            return make_with_model(
                corpus, plan, out, writer=writer, language_model=language_model, seed=seed, as_json=as_json
            )
    from context_agent.synth_data.links import LinkTaskSettings

    settings = LinkTaskSettings(
        count=count,
        types=tuple(name.strip() for name in types.split(",") if name.strip()),
        hops=hops or DEFAULT_HOPS,
        seed=seed,
        distractors=distractors,
        name=name,
        domain=load_domain(writer.domain).name,
    )
    settings.check()
    with options.open_corpus(index, opening) as corpus:
        counts = link_tasks(corpus, settings, out)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    _show_tally(counts, out, as_json=as_json)
    return 0 if counts["tasks"] else 1


def link_tasks(corpus: Corpus, settings: LinkTaskSettings, out: Path) -> dict[str, Any]:
    """Writes the tasks from a corpus' links and returns the counts of kept and dropped drafts."""
    from context_agent.synth_data.links import LinkTasks
    from context_agent.synth_data.task import write_tasks

    with console.progress("Reading", "documents") as advance:
        link_tasks_ = LinkTasks(corpus.walk(), settings, advance)
    with console.progress("Building", "tasks") as advance:

        def counted(tasks: Iterable[Task]) -> Iterator[Task]:
            for number, task in enumerate(tasks, 1):
                advance(number, settings.count)
                yield task

        write_tasks(out, counted(link_tasks_.tasks()))
    return link_tasks_.counts.to_json()


def _show_tally(counts: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        console.print_json({"out": str(out), **counts})
        return
    click.echo(f"{counts['tasks']} tasks from {counts['links']} links between {counts['documents']} documents in {out}")
    for title in ("kept", "dropped"):
        for what, number in counts[title].items():
            click.echo(f"  {title} {number:6}  {what}")
    if not counts["tasks"]:
        console.note("ctx1 synth tasks: no draft passed the checks; see the reasons above")


@click.command()
@click.option("--entities", type=int, required=True, metavar="N", help="Number of entities and documents, 50 or more.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Folder for corpus and questions."
)
@seed_option
@click.option(
    "--tasks", type=int, metavar="M", help="Questions of all splits together.  [default: two for each entity]"
)
@click.option("--hops", type=HOPS, default="1-4", show_default=True, help="Documents that a question needs.")
@click.option("--distractors", type=click.IntRange(0), default=5, show_default=True, help="Distractors of a task.")
@click.option(
    "--vocabulary",
    type=click.Choice(["full", "small"]),
    default="full",
    show_default=True,
    help="small: about 240 words and documents of one sentence, for tiny models; up to about 800 entities.",
)
@click.option("--force", is_flag=True, help="Replace the world that FOLDER holds.")
@options.common
def world(
    *,
    entities: int,
    out: Path,
    seed: int,
    tasks: int | None,
    hops: tuple[int, int],
    distractors: int,
    vocabulary: str,
    force: bool,
    as_json: bool,
) -> int:
    """Invent a world: documents, and questions of 1 to 4 hops whose answers follow from them alone.

    FOLDER gets corpus.jsonl.gz (for `ctx1 index`), queries.train.jsonl, queries.dev.jsonl and queries.test.jsonl, split
    so that no test document is a training document, world.json with settings and counts, and a data card.
    """
    from context_agent.synth_data import world as worlds

    invented = worlds.make(
        entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=distractors, vocabulary=vocabulary
    )
    with console.progress("Inventing", "tasks") as advance:
        about = worlds.write(invented, out, force=force, report=advance)
    if as_json:
        console.print_json({"folder": str(out), **about})
        return 0
    counts = ", ".join(f"{counted['all']} {split}" for split, counted in about["tasks"].items())
    click.echo(f"{about['documents']} documents and {counts} tasks in {out}")
    click.echo(f"Next: ctx1 index {out / 'corpus.jsonl.gz'}")
    return 0
