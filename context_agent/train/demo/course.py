"""The course of the demo: demonstrations, an evaluation, reinforcement learning, and evaluations in the full window and
in half of it.

OUT/material.json     the settings of a language model's documents, questions and lessons
OUT/sft, OUT/rl       the two runs, as `ctx1 train sft` and `ctx1 train rl` leave them
OUT/evaluations/      a score for each held-out question, by model, window and temperature
OUT/trajectories/     some of the episodes; with OUT/questions.jsonl and its gold, `ctx1 view` shows them
OUT/report.json, report.html, plot.svg, plot.png

An interrupted demo resumes in the phase in which it stopped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent._support.small_files import files_in, read_json, require_files
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, MissingExtraError, reason_of
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.retrieval.corpus import Corpus
from context_agent.train import reinforcement, sft
from context_agent.train.agents import build_agent
from context_agent.train.checkpoints import settings_digest
from context_agent.train.config import EpisodeConfig, Notify, OnUpdate, RunConfig
from context_agent.train.data import open_corpus, open_data
from context_agent.train.demo.material import MATERIAL_FILE
from context_agent.train.demo.plan import DEMONSTRATIONS, LESSONS, DemoPlan
from context_agent.train.demo.report import DemoReport, write_report
from context_agent.train.demo.scores import DemoScore, load_scores, save_scores, score_episode
from context_agent.train.models import load_model
from context_agent.train.rl.episode_table import episode_file
from context_agent.train.rl.evaluation import temperature_name
from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
from context_agent.train.rl.samplers import open_sampler
from context_agent.train.training_run import TrainingResult
from context_agent.types import Question

try:
    from transformers.utils import logging as transformers_logging
except ImportError:
    raise MissingExtraError("transformers", "train") from None

SAVED_EPISODES = 24
"""Number of episodes of an evaluation that are saved for `ctx1 view`."""
ONE_SHOT_DEPTH = 5
"""Number of documents that a one-shot search returns."""


@dataclass(frozen=True, slots=True)
class DemoEvaluation:
    """One evaluation of a model.

    Attributes:
        name: The name of the evaluation.
        model: The folder of the model.
        trained: Digest of the settings of the run that trained the model.
        episodes: The harness settings.
        prunes: False if the model's prunes are not carried out.
    """

    name: str
    model: Path
    trained: str
    episodes: EpisodeConfig
    prunes: bool = True


DemoScores = dict[str, list[DemoScore]]
"""Scores by the name of their temperature, such as `greedy` or `t1`."""


class DemoEvaluator:
    """An evaluator that plays the same questions with the same seeds each time.

    If scores are stored, it reads them instead.
    """

    def __init__(self, plan: DemoPlan, note: Notify) -> None:
        self._plan, self._note = plan, note
        self._questions = plan.test_questions()

    def read(self, evaluation: DemoEvaluation) -> DemoScores | None:
        """Return the stored scores of every temperature. If any temperature was not evaluated yet, return None."""
        scores = self._known(evaluation)
        return scores if len(scores) == len(self._plan.temperatures) else None

    def evaluate(self, evaluation: DemoEvaluation, advance: OnUpdate) -> DemoScores:
        """Return the scores of every temperature. If scores are not stored, play the episodes and store the scores.

        Raises:
            DataError: If an episode was aborted.
        """
        scores = self._known(evaluation)
        missing = [
            temperature for temperature in self._plan.temperatures if temperature_name(temperature) not in scores
        ]
        if missing:
            with self._agents(evaluation, missing) as agents:
                for index, (temperature, agent) in enumerate(zip(missing, agents, strict=True)):
                    advance(index, len(missing))
                    scores[temperature_name(temperature)] = self._ask(evaluation, temperature, agent)
        return scores

    def _known(self, evaluation: DemoEvaluation) -> DemoScores:
        read = {
            temperature_name(temperature): load_scores(
                self._file(evaluation, temperature), self._about(evaluation, temperature)
            )
            for temperature in self._plan.temperatures
        }
        return {name: scores for name, scores in read.items() if scores is not None}

    def _ask(self, evaluation: DemoEvaluation, temperature: float, agent: SearchAgent) -> list[DemoScore]:
        name = f"{evaluation.name}-{temperature_name(temperature)}"
        seed = self._plan.rl.seed * len(self._questions)
        asks = [RolloutRequest(item, seed + index, f"{name}-{item.id}") for index, item in enumerate(self._questions)]
        ended = asyncio.run(play_episodes(agent, asks, self._plan.rl.rollouts.concurrency))
        done = [item for item in ended if is_complete(item)]
        if len(done) < len(asks):
            why = next(str(item) for item in ended if not is_complete(item))[:200]
            raise DataError(
                f"{len(asks) - len(done)} of {len(asks)} episodes of {name} were aborted ({why}). Resume the demo "
                "with --resume."
            )
        pairs = zip(done, self._questions, strict=True)
        scores = [score_episode(item, question, agent.corpus, self._plan.judged) for item, question in pairs]
        save_episodes(self._plan.out / "trajectories" / name, done)
        save_scores(self._file(evaluation, temperature), scores, self._about(evaluation, temperature))
        return scores

    def _file(self, evaluation: DemoEvaluation, temperature: float) -> Path:
        return self._plan.out / "evaluations" / f"{evaluation.name}-{temperature_name(temperature)}.jsonl"

    def _about(self, evaluation: DemoEvaluation, temperature: float) -> dict[str, object]:
        """Return the settings that determine the scores."""
        return {
            "trained": evaluation.trained,
            "questions": len(self._questions),
            "temperature": temperature,
            "episodes": asdict(evaluation.episodes),
            "prunes": evaluation.prunes,
            "seed": self._plan.rl.seed,
        }

    @contextmanager
    def _agents(self, evaluation: DemoEvaluation, temperatures: Sequence[float]) -> Iterator[list[SearchAgent]]:
        """Yield one agent for each temperature. All of them use one model."""
        rl = self._plan.rl
        run = replace(rl, model=self._plan.trained_model(evaluation.model), episodes=evaluation.episodes)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        loaded = load_model(run)
        with ExitStack() as stack:
            material = stack.enter_context(open_data(run.data, self._note))
            engine, _ = stack.enter_context(open_sampler(run, loaded))
            agents = (
                build_agent(
                    run, material.corpus, engine, loaded.renderer, temperature=temperature, prunes=evaluation.prunes
                )
                for temperature in temperatures
            )
            yield [stack.enter_context(item) for item in agents]


ProgressBar = Callable[[str, str], AbstractContextManager[OnUpdate]]
"""A function from a title and a unit to a progress bar. The bar receives the finished and the total number."""


class DemoCourse:
    """A demo and its output folder, from the first phase to the report."""

    def __init__(self, plan: DemoPlan, *, resume: bool, note: Notify, bar: ProgressBar) -> None:
        self._plan, self._resume, self._note, self._bar = plan, resume, note, bar
        self._seconds = plan.out / "seconds.json"

    def run(self) -> DemoReport:
        """Run all remaining phases and write the report.

        Raises:
            ConfigError: If the folder contains another demo, or a started demo that should not be resumed.
        """
        plan = self._plan
        # The demo writes to files with these names. If one were a link, the demo would write outside the folder.
        require_files(files_in(plan.out), links=False)
        self._prepare()
        self._learn(DEMONSTRATIONS, plan.sft, sft.train)
        evaluator = DemoEvaluator(plan, self._note)
        _write_questions(plan.out / "questions.jsonl", plan.test_questions())
        before = self._evaluate(evaluator, self._evaluation("before", plan.sft))
        self._learn(f"rewards{plan.suffix}", plan.rl, reinforcement.train)
        full = self._evaluation(f"after{plan.suffix}", plan.rl)
        after = self._evaluate(evaluator, full)
        half = plan.half([score.placed for score in after[temperature_name(plan.targets.temperature)]])
        pruning, unpruned = (
            self._evaluate(
                evaluator, DemoEvaluation(f"half-{name}{plan.suffix}", full.model, full.trained, half, prunes)
            )
            for name, prunes in (("pruning", True), ("unpruned", False))
        )
        scores = {"before": before, "after": after, "half": pruning, "half_unpruned": unpruned}
        mine = {name: phase for name, phase in self._spent().items() if plan.has(name)}
        return write_report(plan, scores, half, mine, self._one_shot())

    def _prepare(self) -> None:
        """Make the documents, questions and lessons of a language model."""
        material = self._plan.material
        if material is None:
            return
        if not self._resume and (self._plan.out / MATERIAL_FILE).is_file():
            raise ConfigError(
                f"{self._plan.out} already has a demo. Resume it with --resume, or name another folder with --out."
            )
        if material.is_made():
            self._keep_time(LESSONS)
            return
        resumes = material.index.is_dir()
        with self._timed(LESSONS, complete=not resumes), self._bar(LESSONS, "windows") as advance:
            material.make(self._note, advance)

    def _one_shot(self) -> list[float]:
        """Return the recall of a single search for each held-out question. It is a reference for a language model."""
        if self._plan.material is None:
            return []
        with open_corpus(self._plan.rl.data) as corpus:
            return one_shot_recalls(corpus, self._plan.test_questions())

    def _learn(self, name: str, run: RunConfig, train: Callable[..., TrainingResult]) -> None:
        """Train a model. If the final model exists, do nothing."""
        if self._resume and is_trained(run):
            self._note(f"{name}: trained by an earlier run ({run.out})")
            self._keep_time(name)
            return
        resumes = self._resume and (Path(run.out) / "checkpoints").is_dir()
        self._note(f"{name}: training in {run.out}")
        with self._timed(name, complete=not resumes), self._bar(name, "updates") as advance:
            result = train(run, resume=resumes, note=lambda text: self._note(f"{name}: {text}"), advance=advance)
        self._note(f"{name}: {result.updates:,} updates, {self._spent()[name]['seconds']:,.0f} s")

    def _evaluate(self, evaluator: DemoEvaluator, evaluation: DemoEvaluation) -> DemoScores:
        name = f"asking {evaluation.name}"
        if (scores := evaluator.read(evaluation)) is not None:
            self._keep_time(name)
            return scores
        with self._timed(name), self._bar(name, "evaluations") as advance:
            measured = evaluator.evaluate(evaluation, advance)
        recalls = "; ".join(
            f"{key} {sum(s.recall for s in scores) / len(scores):.3f}" for key, scores in measured.items()
        )
        self._note(f"{name}: output recall {recalls}, {self._spent()[name]['seconds']:,.0f} s")
        return measured

    def _evaluation(self, name: str, run: RunConfig) -> DemoEvaluation:
        return DemoEvaluation(name, Path(run.out) / "final", settings_digest(run.plain()), self._plan.rl.episodes)

    @contextmanager
    def _timed(self, name: str, *, complete: bool = True) -> Iterator[None]:
        """Record the time of the phase. If an earlier process did a part of the phase, `complete` is False."""
        began = time.perf_counter()
        yield
        self._record_time(name, time.perf_counter() - began, complete=complete)

    def _keep_time(self, name: str) -> None:
        """Keep the time of a phase that an earlier process finished. If it is unknown, the phase took 0 s and more."""
        if name not in self._spent():
            self._record_time(name, 0.0, complete=False)

    def _record_time(self, name: str, seconds: float, *, complete: bool) -> None:
        spent = self._spent() | {name: {"seconds": seconds, "whole": complete}}
        replace_file(self._seconds, json.dumps(spent, indent=1) + "\n")

    def _spent(self) -> dict[str, Any]:
        """Return the times of the finished phases. If their file is damaged, tell the user and return no times."""
        if not self._seconds.is_file():
            return {}
        try:
            spent = dict(read_json(self._seconds))
            return {name: {"seconds": float(it["seconds"]), "whole": bool(it["whole"])} for name, it in spent.items()}
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._note(
                f"{self._seconds} is damaged ({reason_of(error)}), so the report has no times of the phases that "
                "were finished before"
            )
            self._seconds.unlink()
            return {}


def save_episodes(folder: Path, episodes: Sequence[Trajectory]) -> None:
    """Save the first episodes of an evaluation."""
    for episode in episodes[:SAVED_EPISODES]:
        write(episode, folder / episode_file(episode.header.id))


def _write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write the questions with their gold, as `ctx1 view --gold` reads them."""
    lines = ({"id": question.id, "question": question.question, "gold": list(question.gold)} for question in questions)
    replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))


def is_trained(run: RunConfig) -> bool:
    """Return True if the run's folder contains its final model. Raise `ConfigError` if the folder belongs to another
    run.
    """
    out = Path(run.out)
    if not (out / "final").is_dir():
        return False
    try:
        digest = read_json(out / "run.json")["digest"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{out / 'run.json'} is missing or damaged ({reason_of(error)}), so it is not known how {out / 'final'} "
            f"was trained. Delete {out} to train again, or name another folder with --out."
        ) from None
    if digest != settings_digest(run.plain()):
        raise ConfigError(
            f"{out} has a model that was trained with other options, or by another version of context-agent. Pass the "
            "same options, or name another folder with --out."
        )
    return True


def one_shot_recalls(corpus: Corpus, questions: Sequence[Question]) -> list[float]:
    """Search once with the text of each question. Return the share of its gold among the first documents."""
    recalls = []
    for question in questions:
        hits = corpus.search(question.question, k=ONE_SHOT_DEPTH * 10)
        ranked = list(dict.fromkeys(hit.chunk.document_id for hit in hits))[:ONE_SHOT_DEPTH]
        recalls.append(len(set(question.gold).intersection(ranked)) / len(set(question.gold)))
    return recalls
