"""SmolLM2 learns to search: evaluation, lessons, evaluation, rewards until the time is nearly up, evaluation.

The lessons are part of the material that scripts/gpu-material makes. Documents are searched in memory. Held-out
questions are those of the dev splits; nothing is chosen by them here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent import MemoryCorpus, SearchAgent
from context_agent._support.question_files import load_questions
from context_agent.eval.statistics import Figure
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.policies.tokens.lines import LinesRenderer
from context_agent.policies.tokens.packaged import MODELS, convert_weights, export_adapter
from context_agent.retrieval.loaders import load
from context_agent.train.config import RunConfig
from context_agent.train.demo.scores import DemoScore, score_episode, summarize
from context_agent.train.metrics_log import read_metrics
from context_agent.train.rewards import RewardConfig
from context_agent.train.run_file import read_run
from context_agent.types import Question
from gpu.lessons import DOCUMENTS, WINDOW, held_out_files, write_invented, write_material
from gpu.part import MISSED, OK, SKIPPED, Clock, Row, Scale, trained_updates

ROOT = Path(__file__).resolve().parents[2]
TURNS = 8
AT_ONCE = 64
"""Number of episodes that sample together."""
CUTOFF = 5
ENDING_SECONDS = 20.0
"""Seconds for loading and saving after the rewards, without the last evaluation."""


def smollm2(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Train SmolLM2 and measure it before lessons, after lessons and after rewards."""
    material = folder.parent / "material"
    if not scale.gpu:
        sets = write_invented(folder / "sets", entities=scale.entities, tasks=4 * scale.entities)
        write_material(sets, material, _model(scale, folder, material), taught=4, rewarded=4, held_out=scale.questions)
    if not (material / DOCUMENTS).is_file():
        yield Row("", "", f"{material} holds no {DOCUMENTS}: pass the folder of scripts/gpu-material", "", SKIPPED)
        return
    base = _model(scale, folder, material)
    course = Course(scale, folder, material, base, _corpus(material), _questions(material, scale.questions))
    yield from course.one_shot()
    # A model that has learned nothing plays every episode to its limits, so few of the questions are enough.
    before = yield from replace(course, questions=course.questions[::4]).evaluation("before lessons", None)
    yield from course.lessons()
    start = time.monotonic()
    taught = yield from course.evaluation("after lessons", folder / "sft" / "final")
    seconds = time.monotonic() - start
    yield _gain("lessons over none", taught[::4], before)
    yield from course.rewards(max(1.0, clock.left - 1.3 * seconds - ENDING_SECONDS))
    # The model of the self-test earns nothing, so that no update trains it.
    trained = folder / ("rl" if scale.gpu else "sft") / "final"
    rewarded = yield from course.evaluation("after rewards", trained)
    yield _gain("rewards over lessons", rewarded, taught, "+.05, low end above 0")
    export_adapter(trained, folder / "adapter", base=MODELS["smollm2"].label)


def _model(scale: Scale, folder: Path, material: Path) -> str:
    """Return the folder of SmolLM2's weights, or of the model that replaces it."""
    target = folder / "model"
    if target.is_dir():
        return str(target)
    if scale.gpu:
        convert_weights(material / "smollm2.gguf", target)
        return str(target)
    from context_agent.train.tiny_model import tiny_llama

    return str(tiny_llama(target))


def _corpus(material: Path) -> MemoryCorpus:
    return MemoryCorpus(load([material / DOCUMENTS]), embedder="static")


def _questions(material: Path, count: int) -> list[Question]:
    return [question for _, path in held_out_files(material) for question in load_questions(path)[:count]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The measures of an episode, and recall of the first five documents of its ranking."""

    score: DemoScore
    recall: float


@dataclass(frozen=True, slots=True)
class Course:
    """The runs and evaluations of one model on one corpus."""

    scale: Scale
    folder: Path
    material: Path
    base: str
    corpus: MemoryCorpus
    questions: Sequence[Question]

    def one_shot(self) -> Iterator[Row]:
        """Measure one search with the question alone, by words and by both retrievers."""
        owner = {chunk.id: chunk.document_id for chunk in self.corpus.chunks}
        bm25 = next(retriever for retriever in self.corpus.retrievers if retriever.name == "bm25")
        words = [[owner[name] for name, _ in bm25.search(q.question, 50)] for q in self.questions]
        both = [[hit.chunk.document_id for hit in self.corpus.search(q.question)] for q in self.questions]
        for name, rankings in (("BM25", words), ("hybrid search", both)):
            recalls = [recall(ranking, q) for ranking, q in zip(rankings, self.questions, strict=True)]
            yield Row("", f"recall@5, {name}", f"{Figure.of(recalls)} of {len(recalls)} questions")

    def evaluation(self, name: str, adapter: Path | None) -> Iterator[Row]:
        """Measure the model with an adapter on the held-out questions, greedily. Return the answers."""
        import torch
        import transformers
        from peft import PeftModel

        model = transformers.AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        engine = TransformersEngine(model.eval().to(self.scale.device), name=name, max_batch=AT_ONCE)
        renderer = LinesRenderer(transformers.AutoTokenizer.from_pretrained(self.base), name=self.base)
        policy = TokenPolicy(engine, renderer, temperature=0.0, top_p=1.0, max_tokens=self.scale.reply)
        start = time.monotonic()
        try:
            answers = asyncio.run(self._ask(policy))
        finally:
            engine.close()
        summary = summarize([answer.score for answer in answers])
        accuracy = summary["prune_accuracy"]
        yield Row(
            "",
            f"recall@5, {name}",
            f"{Figure.of([answer.recall for answer in answers])}; {summary['searches']['mean']:.1f} searches, "
            f"prune accuracy {'-' if accuracy is None else f'{accuracy:.3f}'}, "
            f"finished {summary['finished']:.3f}; {time.monotonic() - start:.0f} s",
            verdict=OK if not summary["violations"] else MISSED,
        )
        return answers

    async def _ask(self, policy: TokenPolicy) -> list[Answer]:
        free = asyncio.Semaphore(AT_ONCE)

        async def answer(question: Question) -> Answer:
            async with free:
                result = await agent.asearch(question.question, question_id=question.id)
            score = score_episode(result.trajectories[0], question, self.corpus, RewardConfig())
            return Answer(score, recall([document.id for document in result.documents], question))

        with SearchAgent(self.corpus, policy, profile="lean", budget=WINDOW) as agent:
            return list(await asyncio.gather(*map(answer, self.questions)))

    def lessons(self) -> Iterator[Row]:
        """Train on the lessons, and yield the rows of the table."""
        from context_agent.train import sft

        trajectories = [str(self.material / "lessons" / name) for name in ("wide", "half")]
        start = time.monotonic()
        result = sft.train(
            self._run("smollm2.toml", "sft", {"data.trajectories": trajectories, "sft.rows_per_pass": 4}), note=print
        )
        losses = [line["loss"] for line in read_metrics(Path(result.out) / "metrics.jsonl") if "loss" in line]
        tenth = max(1, len(losses) // 10)
        first, last = fmean(losses[:tenth]), fmean(losses[-tenth:])
        yield Row(
            "",
            "lessons",
            f"{len(losses)} updates in {time.monotonic() - start:.0f} s; loss {first:.2f} to {last:.2f}",
            "loss falls",
            OK if last < first or not self.scale.gpu else MISSED,
        )

    def rewards(self, seconds: float) -> Iterator[Row]:
        """Train by rewards for this number of seconds."""
        from context_agent.train import reinforcement

        changes: dict[str, Any] = {
            "minutes": seconds / 60,
            "model.adapter": str(self.folder / "sft" / "final"),
            "data.questions": [str(self.material / "rewarded.jsonl")],
            "data.documents": [str(self.material / DOCUMENTS)],
            "data.trajectories": [str(self.material / "lessons" / "rewarded")],
            "data.path": None,
            "data.missing_gold": "drop",
            "episodes.window": WINDOW,
            "episodes.turns": TURNS,
            "engine.batch": self.scale.episodes,
            "engine.max_tokens": self.scale.reply,
            "rollouts.steps": 200 if self.scale.gpu else self.scale.updates,
            "rollouts.groups": max(1, self.scale.episodes // 4),
            "rollouts.concurrency": self.scale.episodes,
            "loss.pass_tokens": 8 * WINDOW,
        }
        start = time.monotonic()
        run = self._run("smollm2-rl.toml", "rl", changes)
        updates = trained_updates(self.scale, lambda: reinforcement.train(run, note=print).updates, self.scale.updates)
        seconds_each = (time.monotonic() - start) / updates
        lines = [line for line in read_metrics(Path(run.out) / "metrics.jsonl") if "reward" in line]
        aborted = sum(line.get("episodes_aborted", 0) for line in lines)
        tenth = max(1, len(lines) // 10)
        first, last = (fmean(line["reward"] for line in part) for part in (lines[:tenth], lines[-tenth:]))
        yield Row(
            "",
            "updates of rewards",
            f"{updates} of {self.scale.episodes} episodes, {seconds_each:.1f} s each; {aborted:.0f} episodes aborted",
            "0 aborted",
            OK if not aborted else MISSED,
        )
        yield Row("", "reward, first and last tenth", f"{first:.3f}, {last:.3f}")

    def _run(self, file: str, kind: str, changes: dict[str, Any]) -> RunConfig:
        """Return the run of a file of configs/ with these changes. A model this small trains in 32 bits."""
        common: dict[str, Any] = {
            "out": str(self.folder / kind),
            "threads": 0,
            "model.name": self.base,
            "model.dtype": "float32",
            "checkpoints.every": 1_000,
        }
        if not self.scale.gpu:
            common["model.lora"] = {"rank": 4, "modules": ["q_proj", "v_proj"]}
        return read_run(ROOT / "configs" / file, {**common, **changes})


def recall(ranking: Sequence[str], question: Question) -> float:
    """Return the share of the question's gold among the first five different documents."""
    first = list(dict.fromkeys(ranking))[:CUTOFF]
    return len(set(first) & set(question.gold)) / len(set(question.gold))


def _gain(name: str, answers: Sequence[Answer], reference: Sequence[Answer], target: str = "") -> Row:
    """Return the paired difference of recall@5."""
    gain = Figure.of([a.recall - b.recall for a, b in zip(answers, reference, strict=True)])
    return Row("", f"recall@5, {name}", f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]", target)
