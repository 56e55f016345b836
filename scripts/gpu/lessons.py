"""Questions and lessons for SmolLM2: an oracle plays train questions over documents in memory.

documents.jsonl              all documents
held-out-SET.jsonl           questions that measure
rewarded.jsonl               train questions that no lesson uses, of one search and of several
lessons/wide, half           demonstrations in the whole window and in half of it
lessons/rewarded             demonstrations of the rewarded questions
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from context_agent import MemoryCorpus
from context_agent.harness.profile import named_profile
from context_agent.policies.tokens import VocabularyCounter, templated
from context_agent.retrieval.loaders import load
from context_agent.synth_data.demonstrations.experts import oracle_expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.oracle import OracleSettings
from context_agent.synth_data.demonstrations.player import DemonstrationSettings
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.sets.folder import CORPUS, queries_path
from context_agent.synth_data.task import Task, load_tasks, write_tasks
from context_agent.synth_data.world.closed_world import make_world
from context_agent.synth_data.world.files import write_world
from context_agent.tokens import TokenCounter

DOCUMENTS = "documents.jsonl"
HELD_OUT = "held-out-"
WINDOW = 2_048
ORACLE = OracleSettings(pace=1, prune_at=1.0, batch=2, keep=3, hedge=1, names_only=True)
"""Settings of the oracle, as in docs/smollm2.md."""
FILTERS = DemonstrationFilters(min_output_recall=0.99, low_rate=0.0)
SETS = ("2wiki", "hotpotqa")


def write_material(
    folders: Mapping[str, Path], out: Path, model: str, *, taught: int, rewarded: int, held_out: int
) -> None:
    """Write documents, questions and lessons.

    Args:
        folders: The folder of each set, with its documents and questions.
        out: The folder to write.
        model: The model whose vocabulary counts tokens.
        taught: The maximum number of train questions of a set that become lessons.
        rewarded: The maximum number of further train questions of a set, for rewards.
        held_out: The maximum number of dev questions of a set.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / DOCUMENTS).open("w", encoding="utf-8") as file:
        for folder in folders.values():
            for document in load([folder / CORPUS]):
                row = {"id": document.id, "title": document.title, "text": document.text}
                file.write(json.dumps(row) + "\n")
    corpus = MemoryCorpus(load([out / DOCUMENTS]), embedder="static")
    lessons: list[Task] = []
    rewards: list[Task] = []
    for name, folder in folders.items():
        train = _shuffled(load_tasks(queries_path(folder, "train")))
        lessons += train[:taught]
        rewards += train[taught : taught + rewarded]
        write_tasks(out / f"{HELD_OUT}{name}.jsonl", load_tasks(queries_path(folder, "dev"))[:held_out])
    write_tasks(out / "rewarded.jsonl", _shuffled(rewards))
    oracle = Oracle(corpus, VocabularyCounter(templated(model)))
    for name, tasks, window in (
        ("wide", lessons, WINDOW),
        ("half", lessons, WINDOW // 2),
        ("rewarded", rewards, WINDOW),
    ):
        # A rewarded question of one search needs its demonstration too.
        filters = FILTERS if name != "rewarded" else replace(FILTERS, short_rate=1.0)
        oracle.play(tasks, out / "lessons" / name, window, filters)


def write_invented(out: Path, *, entities: int, tasks: int) -> Mapping[str, Path]:
    """Write two invented worlds in the form of question sets. Return their folders by name."""
    folders = {name: out / name for name in SETS}
    for seed, folder in enumerate(folders.values()):
        write_world(make_world(entities=entities, tasks=tasks, hops=(1, 2), seed=seed), folder)
    return folders


def held_out_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each set's name with its file of held-out questions."""
    for path in sorted(folder.glob(f"{HELD_OUT}*.jsonl")):
        yield path.stem.removeprefix(HELD_OUT), path


@dataclass(frozen=True, slots=True)
class Oracle:
    """An object that plays tasks over a corpus and keeps its good episodes."""

    corpus: MemoryCorpus
    counter: TokenCounter

    def play(self, tasks: Sequence[Task], folder: Path, window: int, filters: DemonstrationFilters) -> None:
        """Write the episodes as `ctx1 synth trajectories` does."""
        profile = named_profile("lean")
        settings = DemonstrationSettings(
            profile=profile, budget=profile.budget(window), filters=filters, expert=ORACLE.description
        )
        expert = oracle_expert(settings=ORACLE, profile=profile, counter=self.counter)
        report = asyncio.run(make_demonstrations(tasks, self.corpus, expert, folder, settings))
        print(f"{sum(report.kept.values()):,} of {report.tasks:,} lessons kept in {folder.name}", flush=True)


def _shuffled(tasks: Sequence[Task]) -> list[Task]:
    return random.Random(0).sample(list(tasks), len(tasks))
