"""The command `ctx1 synth world`, which makes tasks about an invented world."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import COUNT_OR_ZERO, OUTPUT_FOLDER, CommonOptions, SeedOption
from context_agent.cli.synth_tasks import Hops, hop_range

WORLD_HOPS = (1, 4)
"""The default hops of the questions about a world."""


def world(
    *,
    entities: Annotated[int, Parameter(metavar="N")],
    out: Annotated[Path, OUTPUT_FOLDER],
    tasks: Annotated[int | None, Parameter(metavar="N", show_default="two for each entity")] = None,
    hops: Annotated[Hops, Parameter(converter=hop_range, n_tokens=1, metavar="RANGE", show_default="1-4")] = WORLD_HOPS,
    distractors: Annotated[int, COUNT_OR_ZERO] = 5,
    vocabulary: Literal["full", "small"] = "full",
    force: bool = False,
    seed: SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Invent a corpus and questions about it.

    The answers to the questions, of 1 to 4 hops, follow from the documents alone. FOLDER gets corpus.jsonl.gz (for
    `ctx1 index`), queries.train.jsonl, queries.dev.jsonl and queries.test.jsonl, which share no documents, world.json
    with settings and counts, and a data card.

    Args:
        entities: Number of entities and documents, from 50 to a million.
        out: Folder for the corpus and the questions.
        tasks: Number of questions in all splits.
        hops: Number of documents that a question needs, or a range.
        distractors: Maximum number of distractors of a task.
        vocabulary: small: about 240 words and documents of one sentence, for tiny models; up to about 800 entities.
        force: Replace the world in FOLDER.
    """
    from context_agent.synth_data.world.closed_world import make_world
    from context_agent.synth_data.world.files import write_world

    invented = make_world(
        entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=distractors, vocabulary=vocabulary
    )
    with output.progress("Inventing", "tasks") as advance:
        about = write_world(invented, out, force=force, report=advance)
    splits = ", ".join(f"{numbers['all']} {split}" for split, numbers in about["tasks"].items())
    corpus = shlex.quote(str(out / "corpus.jsonl.gz"))
    text = f"{about['documents']} documents and {splits} tasks in {out}\nNext: ctx1 index {corpus}"
    output.result({"folder": str(out), **about}, text, as_json=common.json)
    return 0
