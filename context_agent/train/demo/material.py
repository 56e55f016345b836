"""The material from which the demo's language model learns: documents, questions, an index, and demonstrations.

OUT/data/            an invented world, unless a folder of documents and questions is given
OUT/index/           the index of the documents
OUT/lessons/WINDOW/  the oracle's episodes in that window, as `ctx1 synth trajectories` leaves them
OUT/material.json    the settings of all this, and whether it is complete

The folder of documents has the layout of `ctx1 synth split` and `ctx1 synth world`: corpus.jsonl.gz (or corpus.jsonl)
and queries.<split>.jsonl. The split `test` is held out. If there is none, `dev` is held out, and training does not
evaluate.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent._support.question_files import load_questions
from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, reason_of
from context_agent.harness.profile import named_profile
from context_agent.policies.tokens import VocabularyCounter, templated
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.embedders import STATIC
from context_agent.retrieval.loaders import load
from context_agent.synth_data.demonstrations.experts import oracle_expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.oracle import OracleSettings
from context_agent.synth_data.demonstrations.player import DemonstrationSettings
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.sets.folder import CORPUS, queries_path
from context_agent.synth_data.task import load_tasks
from context_agent.synth_data.world.closed_world import make_world
from context_agent.synth_data.world.files import write_world
from context_agent.tokens import TokenCounter
from context_agent.train.config import DataConfig, Notify, OnUpdate
from context_agent.train.data import open_corpus
from context_agent.types import Question

MATERIAL_FILE = "material.json"
"""The file that records the settings, and whether the material is complete."""


HOPS = (2, 3)
"""Smallest and largest number of hops of a question about the invented world."""


QUESTIONS_PER_ENTITY = 4
"""Questions per entity of the invented world. A tenth of them are held out."""


ORACLE = OracleSettings(pace=1, prune_at=1.0, batch=2, keep=3, hedge=1, names_only=True)
"""Settings of the oracle that plays the demonstrations.

It searches for the question first and then for names, one per turn. Once half of the window is full it prunes, but
keeps three passages. It ranks only gold. The profile `lean` fills the rest of a ranking with other documents that were
seen.
"""


FILTERS = DemonstrationFilters(min_output_recall=0.99, low_rate=0.0, short_rate=0.3)
"""Filters of the demonstrations. They keep episodes that rank all gold, and few with a single search, so that the model
learns to continue.
"""


@dataclass(frozen=True, slots=True)
class DemoMaterial:
    """The material of a demo. Equal settings give equal lessons.

    Attributes:
        out: The folder of the material.
        model: The model whose vocabulary counts tokens.
        windows: Sizes of the window, in tokens, in which the oracle plays.
        tasks: Number of train questions that the oracle plays in each window.
        source: The folder of documents and questions. If it is None, the world is invented.
        profile: The harness profile.
        entities: Number of entities in the invented world.
    """

    out: Path
    model: str
    windows: tuple[int, ...]
    tasks: int
    source: Path | None = None
    profile: str = "lean"
    entities: int = 400

    @property
    def folder(self) -> Path:
        """Folder of the documents and questions."""
        return self.source or self.out / "data"

    @property
    def index(self) -> Path:
        """Folder of the index."""
        return self.out / "index"

    @property
    def lessons(self) -> tuple[Path, ...]:
        """Folders of lessons, one for each window size."""
        return tuple(self.out / "lessons" / str(window) for window in self.windows)

    def data(self) -> dict[str, Any]:
        """Return the table `[data]` of the run files of both runs."""
        has_test = self.source is None or queries_path(self.folder, "test").is_file()
        return {
            "questions": [str(queries_path(self.folder, "train"))],
            "dev": [str(queries_path(self.folder, "dev"))] if has_test else [],
            "path": str(self.index),
            "trajectories": [str(folder) for folder in self.lessons],
            "missing_gold": "drop",
        }

    def held_out(self) -> list[Question]:
        """Return the held-out questions with gold, which training never uses."""
        test = queries_path(self.folder, "test")
        questions = load_questions(test if test.is_file() else queries_path(self.folder, "dev"))
        return [question for question in questions if question.gold]

    def is_made(self) -> bool:
        """Return True if `out` contains all of the material.

        Raises:
            ConfigError: If `out` contains other material, or the source is invalid.
        """
        settings = self._settings()
        about = self.out / MATERIAL_FILE
        if not about.is_file():
            return False
        made = {"digest": settings["digest"], **_stored(about)}  # an older version stored no digest
        complete = bool(made.pop("complete", True))  # an older version wrote the file last
        if made == settings:
            return complete
        if {**made, "digest": settings["digest"]} == settings:
            raise ConfigError(
                f"{self.out} has lessons that were made from other documents or questions, because the files in "
                f"{self.source} have changed. Restore them, or name another folder with --out."
            )
        raise ConfigError(
            f"{self.out} has lessons that were made with other settings. Pass the same options, or name another folder "
            "with --out."
        )

    def make(self, note: Notify, advance: OnUpdate) -> None:
        """Make all of the material. If an earlier call was interrupted, continue it.

        Args:
            note: A function that receives messages for the user.
            advance: A function that receives the number of finished windows and the total number.

        Raises:
            ConfigError: If the folder has no documents, or the model is not installed.
            MissingExtraError: If a required extra is not installed.
        """
        counter = VocabularyCounter(templated(self.model))
        self._write_settings(complete=False)
        if self.source is None and not self.folder.is_dir():
            tasks = QUESTIONS_PER_ENTITY * self.entities
            write_world(make_world(entities=self.entities, tasks=tasks, hops=HOPS), self.folder)
        report = index_documents(load(self._corpus_file()), self.index, embedder=STATIC)
        note(f"{report.chunks:,} chunks indexed from {self.folder}")
        with open_corpus(DataConfig(path=str(self.index))) as corpus:
            for number, window in enumerate(self.windows):
                advance(number, len(self.windows))
                self._play(corpus, window, counter, note)
        self._write_settings(complete=True)

    def _play(self, corpus: Corpus, window: int, counter: TokenCounter, note: Notify) -> None:
        profile = named_profile(self.profile)
        settings = DemonstrationSettings(
            profile=profile,
            budget=profile.budget(window),
            filters=FILTERS,
            expert=f"{ORACLE.description} tokenizer={self.model}",
        )
        tasks = load_tasks(queries_path(self.folder, "train"))[: self.tasks]
        expert = oracle_expert(settings=ORACLE, profile=profile, counter=counter)
        folder = self.out / "lessons" / str(window)
        report = asyncio.run(make_demonstrations(tasks, corpus, expert, folder, settings))
        note(f"{sum(report.kept.values()):,} of {report.tasks:,} lessons kept in a window of {window:,} tokens")

    def _write_settings(self, *, complete: bool) -> None:
        text = json.dumps({**self._settings(), "complete": complete}, indent=1)
        replace_file(self.out / MATERIAL_FILE, f"{text}\n")

    def _corpus_file(self) -> Path:
        for name in (CORPUS, CORPUS.removesuffix(".gz")):
            if (self.folder / name).is_file():
                return self.folder / name
        raise ConfigError(f"{self.folder} has no {CORPUS}. Name a folder of `ctx1 synth split` with --data.")

    def _digest(self) -> str:
        """Return a digest of the documents and questions."""
        state = sha256()
        splits = (queries_path(self.folder, split) for split in ("train", "dev", "test"))
        for path in (self._corpus_file(), *(path for path in splits if path.is_file())):
            with path.open("rb") as file:
                state.update(path.name.encode() + file_digest(file, "sha256").digest())
        return state.hexdigest()[:16]

    def _settings(self) -> dict[str, Any]:
        missing = [name for name in ("train", "dev") if self.source and not queries_path(self.source, name).is_file()]
        if missing:
            raise ConfigError(
                f"{self.source} has no queries.{missing[0]}.jsonl. Name a folder of `ctx1 synth split` with --data."
            )
        return {
            "source": str(self.source.resolve()) if self.source else None,
            "digest": self._digest() if self.source else None,
            "entities": None if self.source else self.entities,
            "model": self.model,
            "profile": self.profile,
            "oracle": ORACLE.description,
            "filters": asdict(FILTERS),
            "windows": list(self.windows),
            "tasks": self.tasks,
        }


def _stored(file: Path) -> dict[str, Any]:
    """Return the settings in a file. Raise `ConfigError` if the file is damaged."""
    try:
        return dict(read_json(file))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{file} is damaged ({reason_of(error)}). Delete it to make the lessons again, or name another folder "
            "with --out."
        ) from None
