"""What the demo of a language model learns from: documents, questions, an index, and demonstrations by the oracle.

OUT/data/            an invented world, unless a folder of documents and questions is given
OUT/index/           the index of the documents
OUT/lessons/WINDOW/  the oracle's episodes in that window, as `ctx1 synth trajectories` leaves them
OUT/material.json    the settings of all this; written last

The folder is laid out as `ctx1 synth split` and `ctx1 synth world` write it: corpus.jsonl.gz (or corpus.jsonl) and
queries.<split>.jsonl. The split `test` is held out. Without one, `dev` is, and no question is asked during training.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent._support.journal import replace_file
from context_agent._support.question_files import Question, load_questions
from context_agent.errors import ConfigError
from context_agent.harness.profile import profile as named_profile
from context_agent.policies.tokens import VocabularyCounter, templated
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.loaders import load
from context_agent.synth_data import world as worlds
from context_agent.synth_data.demonstrations.experts import OracleSettings, oracle_expert
from context_agent.synth_data.demonstrations.runs import DemonstrationSettings, make_demonstrations
from context_agent.synth_data.sets.folder import CORPUS, queries_path
from context_agent.synth_data.task import load_tasks
from context_agent.tokens import TokenCounter
from context_agent.train.config import DataConfig, Notify, OnUpdate
from context_agent.train.data import open_corpus

ABOUT = "material.json"
HOPS = (2, 3)
QUESTIONS_PER_ENTITY = 4
"""Questions about the invented world; a tenth of them are held out."""
ORACLE = OracleSettings(pace=2, prune_at=1.0, batch=2, hedge=1, names_only=True)
"""Searches for the question, then for names, two at a time; prunes what is not gold from half of the window on; ranks
what is gold: the profile `lean` fills the rest of a ranking with what else was seen.
"""
ONE_SHOT_DEPTH = 5
"""Documents of a one-shot search."""


@dataclass(frozen=True, slots=True)
class DemoMaterial:
    """The material of a demo in the folder `out`. Equal settings give equal lessons.

    `source` is the folder of documents and questions, None for an invented world. The oracle plays the first `tasks`
    train questions in each of the `windows`, counted by the vocabulary of `model`. The invented world has so many
    `entities`.
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
        """The folder of documents and questions."""
        return self.source or self.out / "data"

    @property
    def index(self) -> Path:
        """The folder of the index."""
        return self.out / "index"

    @property
    def lessons(self) -> tuple[Path, ...]:
        """The folder of lessons of each window."""
        return tuple(self.out / "lessons" / str(window) for window in self.windows)

    def data(self) -> dict[str, Any]:
        """The table `[data]` of both runs."""
        has_test = self.source is None or queries_path(self.folder, "test").is_file()
        return {
            "questions": [str(queries_path(self.folder, "train"))],
            "dev": [str(queries_path(self.folder, "dev"))] if has_test else [],
            "path": str(self.index),
            "trajectories": [str(folder) for folder in self.lessons],
            "missing_gold": "drop",
        }

    def held_out(self) -> list[Question]:
        """The questions with gold that select nothing."""
        test = queries_path(self.folder, "test")
        questions = load_questions(test if test.is_file() else queries_path(self.folder, "dev"))
        return [question for question in questions if question.gold]

    def is_made(self) -> bool:
        """Whether `out` holds all of it. Raises `ConfigError` if it holds other material or the source is invalid."""
        settings = self._settings()
        about = self.out / ABOUT
        if about.is_file() and json.loads(about.read_text(encoding="utf-8")) != settings:
            raise ConfigError(
                f"{self.out} holds lessons that were made with other settings: give the same options as then, or name "
                "another folder with --out"
            )
        return about.is_file()

    def make(self, note: Notify, advance: OnUpdate) -> None:
        """Makes all of it; an interrupted call resumes.

        Raises `ConfigError` for a folder without documents or a model that is not installed, and `MissingExtraError`.
        """
        counter = VocabularyCounter(templated(self.model))
        if self.source is None and not self.folder.is_dir():
            tasks = QUESTIONS_PER_ENTITY * self.entities
            worlds.write(worlds.make(entities=self.entities, tasks=tasks, hops=HOPS), self.folder)
        report = index_documents(load(self._corpus_file()), self.index)
        note(f"{report.chunks:,} chunks indexed from {self.folder}")
        with open_corpus(DataConfig(path=str(self.index))) as corpus:
            for number, window in enumerate(self.windows):
                advance(number, len(self.windows))
                self._play(corpus, window, counter, note)
        replace_file(self.out / ABOUT, json.dumps(self._settings(), indent=1) + "\n")

    def _play(self, corpus: Corpus, window: int, counter: TokenCounter, note: Notify) -> None:
        profile = named_profile(self.profile)
        settings = DemonstrationSettings(
            profile=profile, budget=profile.budget(window), expert=f"{ORACLE.description} tokenizer={self.model}"
        )
        tasks = load_tasks(queries_path(self.folder, "train"))[: self.tasks]
        expert = oracle_expert(settings=ORACLE, profile=profile, counter=counter)
        folder = self.out / "lessons" / str(window)
        report = asyncio.run(make_demonstrations(tasks, corpus, expert, folder, settings))
        note(f"{sum(report.kept.values()):,} of {report.tasks:,} lessons kept in a window of {window:,} tokens")

    def _corpus_file(self) -> Path:
        for name in (CORPUS, CORPUS.removesuffix(".gz")):
            if (self.folder / name).is_file():
                return self.folder / name
        raise ConfigError(f"{self.folder} has no {CORPUS}: name a folder of `ctx1 synth split` with --data")

    def _settings(self) -> dict[str, Any]:
        missing = [name for name in ("train", "dev") if self.source and not queries_path(self.source, name).is_file()]
        if missing:
            raise ConfigError(
                f"{self.source} has no queries.{missing[0]}.jsonl: name a folder of `ctx1 synth split` with --data"
            )
        return {
            "source": str(self.source.resolve()) if self.source else None,
            "entities": None if self.source else self.entities,
            "model": self.model,
            "profile": self.profile,
            "oracle": ORACLE.description,
            "windows": list(self.windows),
            "tasks": self.tasks,
        }


def one_shot_recalls(corpus: Corpus, questions: Sequence[Question]) -> list[float]:
    """The share of each question's gold among the first documents of one search with the question itself."""
    recalls = []
    for question in questions:
        hits = corpus.search(question.question, limit=ONE_SHOT_DEPTH * 10)
        ranked = list(dict.fromkeys(hit.chunk.document_id for hit in hits))[:ONE_SHOT_DEPTH]
        recalls.append(len(set(question.gold).intersection(ranked)) / len(set(question.gold)))
    return recalls
