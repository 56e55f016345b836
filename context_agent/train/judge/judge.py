"""Asks a model how good a ranking is, by a rubric. Every answer is kept: the same ranking is never paid for twice.

A verdict can be absent: the server is down, the model writes prose, the cap is reached. That is a value, and not an
error: the episode keeps its other terms, and what was absent is counted and told.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import BaseModel, Field, model_validator

from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.answers import judgeable
from context_agent.questions import Question
from context_agent.synth_data.instructions import Part
from context_agent.synth_data.ledger import CapReached
from context_agent.synth_data.model import Model, ModelOptions, Wrong
from context_agent.synth_data.stages import Halted, Unfit
from context_agent.train.config import SHARED, JudgeSettings
from context_agent.train.judge.rubric import Rubric, load
from context_agent.trajectory import Trajectory
from context_agent.types import RankedDocument

PROMPT = "judge"
PROMPTS = {PROMPT: frozenset({"criteria", "example"})}
CAPPED, FAILED = "cap reached", "judge failed"
"""Reasons for an absent verdict, beside those for a reply that could not be read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`score` is from 0 to 1, None where it is absent; `absent` then says why in short, stable words.

    A ranking of nothing scores 0, and nobody is `asked`.
    """

    score: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    absent: str = ""
    detail: str = ""
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Ranking:
    """What is judged: a question, what was handed back for it, and the reference answer where one is known."""

    question: str
    documents: tuple[RankedDocument, ...]
    answer: str = ""


class Judging(Protocol):
    """What a trainer needs of a judge."""

    settings: JudgeSettings

    def verdicts(self, rankings: Sequence[Ranking]) -> list[Verdict]:
        """A verdict on each, in order. Blocks; not to be called inside an event loop."""

    def metrics(self) -> dict[str, float]:
        """What all calls so far came to, by name."""


class Scores(BaseModel):
    """A judge's reply. The scores may stand in `scores` or at the top."""

    scores: dict[str, float]
    why: str = Field(default="", max_length=20_000)

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        found = data["scores"] if "scores" in data else {key: value for key, value in data.items() if key != "why"}
        named = {str(key).strip().lower(): value for key, value in found.items()} if isinstance(found, dict) else found
        return {"scores": named, "why": str(data.get("why") or "")[:2_000]}


class Judge:
    """A chat model with a rubric, behind a file of its replies and a cap. Use it with `with`.

    It has an event loop of its own, so `verdicts` can be called again and again, from one thread at a time.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        replies: Path,
        *,
        rubric: Rubric | None = None,
        ranks: int = 1,
        backoff: float = 0.5,
    ) -> None:
        """`replies` is this rank's own file. Nothing is sent yet. Raises `ConfigError`, `DataError`."""
        self.settings = settings
        self.rubric = rubric or load(settings.rubric)
        options = ModelOptions(
            asked={
                "model": settings.model,
                "base_url": settings.base_url,
                "api_key_env": settings.api_key_env,
                "temperature": settings.temperature,
                "max_tokens": settings.max_tokens,
                "reasoning_effort": settings.reasoning_effort,
                "timeout": settings.timeout,
                "retries": settings.retries,
            },
            prices=settings.prices,
            cap=settings.cap(ranks),
            backoff=backoff,
        )
        self._model = Model(options, replies, concurrency=settings.concurrency, known=PROMPTS)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the event loop and closes the file."""
        self._runner.close()
        self._model.__exit__(None, None, None)

    @property
    def identity(self) -> dict[str, Any]:
        """What its verdicts depend on: a calibration of another identity is one of another judge."""
        return identity(self.settings, self.rubric, self._model.prompts.digest)

    def verdicts(self, rankings: Sequence[Ranking]) -> list[Verdict]:
        """A verdict on each, in order; as many at once as the settings allow. Not to be called in an event loop."""
        return self._runner.run(self._verdicts(rankings))

    def metrics(self) -> dict[str, float]:
        """`judge/calls`, `judge/tokens` and, where there are prices, `judge/cost`: of this run and those it resumes."""
        told = self._model.ledger.to_json()
        found = {"judge/calls": told["calls"], "judge/tokens": told["prompt_tokens"] + told["completion_tokens"]}
        found |= {"judge/cost": told["cost"]} if "cost" in told else {}
        return {name: float(value) for name, value in found.items()}

    async def _verdicts(self, rankings: Sequence[Ranking]) -> list[Verdict]:
        return list(await asyncio.gather(*(self._verdict(one) for one in rankings)))

    async def _verdict(self, ranking: Ranking) -> Verdict:
        parts = self._parts(ranking)
        if parts is None:
            return Verdict(0.0, asked=False)
        example = {"scores": {one.name: one.low for one in self.rubric.criteria}, "why": "..."}
        try:
            given = await self._model.ask(
                PROMPT, parts, Scores, self._check, criteria=self.rubric.words(), example=json.dumps(example)
            )
        except Unfit as unfit:
            return Verdict(None, absent=unfit.dropped.reason, detail=unfit.dropped.detail)
        except CapReached as reached:
            return Verdict(None, absent=CAPPED, detail=str(reached))
        except (Halted, PolicyError) as error:
            return Verdict(None, absent=FAILED, detail=str(error))
        scores = self._named(given)
        return Verdict(self.rubric.score(scores), scores, given.why)

    def _check(self, given: Scores) -> None:
        if (found := self.rubric.problem(self._named(given))) is not None:
            raise Wrong(*found)

    def _named(self, given: Scores) -> dict[str, float]:
        """The scores under the names that the rubric has, however the judge cased them."""
        return {
            one.name: given.scores[one.name.lower()] for one in self.rubric.criteria if one.name.lower() in given.scores
        }

    def _parts(self, ranking: Ranking) -> list[Part] | None:
        """What the judge reads; None where nothing was handed back."""
        chosen = self.settings
        chunks = [(document.title, chunk) for document in ranking.documents for chunk in document.chunks]
        if not chunks:
            return None
        parts = [Part("question", ranking.question)]
        for place, (title, chunk) in enumerate(chunks[: chosen.passages], start=1):
            text = chunk.text[: chosen.characters]
            parts.append(Part(f"passage {place}", f"{title}\n{text}" if title else text))
        if chosen.reference and ranking.answer:
            parts.append(Part("reference answer", ranking.answer))
        return parts


def identity(settings: JudgeSettings, rubric: Rubric, prompts: str) -> dict[str, Any]:
    """What verdicts depend on: the model, what it reads and by what it judges."""
    return {**{name: getattr(settings, name) for name in SHARED}, "rubric": rubric.digest, "prompt": prompts}


def reasons(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Why verdicts are absent, with counts."""
    return dict(sorted(Counter(one.absent for one in verdicts if one.score is None).items()))


YES = 0.5
"""From this score on a judge says yes."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The term of each episode of a step, None for none; and its metrics."""

    scores: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    why: str = ""
    """Why verdicts are absent, with the first detail; empty where none is."""


@dataclass(slots=True)
class Bench:
    """The judge of a run, with what it has failed at. `note` is told of absent verdicts, once a step."""

    judge: Judging
    note: Callable[[str], None] = print
    barren: int = 0
    """Steps in a row in which verdicts were asked for, and not one came."""

    def judged(self, episodes: Sequence[tuple[Question, Trajectory]]) -> Judged:
        """The term of each whole episode.

        Raises `PolicyError` when the judge has given no verdict for as many steps as the run has patience.
        """
        wanted = [has_term(self.judge.settings, question) for question, _ in episodes]
        asked = [ranking(*episode) for episode, wants in zip(episodes, wanted, strict=True) if wants]
        given = iter(self.judge.verdicts(asked) if asked else [])
        verdicts = [next(given) if wants else None for wants in wanted]
        why = self._told([one for one in verdicts if one is not None])
        scores = together([question.id for question, _ in episodes], verdicts)
        return Judged(tuple(scores), self._metrics([one for one in verdicts if one is not None]), why)

    def _told(self, verdicts: Sequence[Verdict]) -> str:
        absent = [one for one in verdicts if one.score is None]
        answered = any(one.score is not None and one.asked for one in verdicts)
        if not absent:
            self.barren = 0 if answered else self.barren
            return ""
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons(absent).items())
        why = f"{len(absent)} of {len(verdicts)} episodes have no verdict of the judge: {counts} ({absent[0].detail})"
        self.note(f"{why}. They keep their other terms")
        # Past the cap no judge is missed: that is as it was ordered.
        capped = all(one.absent == CAPPED for one in absent)
        self.barren = 0 if answered or capped else self.barren + 1
        if self.barren >= self.judge.settings.patience:
            raise PolicyError(f"no verdict of the judge in {self.barren} steps in a row. The last of them: {why}")
        return why

    def _metrics(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        scores = [one.score for one in verdicts if one.score is not None]
        asked = [one.score for one in verdicts if one.score is not None and one.asked]
        found = {"judge/wanted": float(len(verdicts)), "judge/absent": float(len(verdicts) - len(scores))}
        found |= {"judge/score": fmean(scores)} if scores else {}
        found |= {"judge/yes": fmean(float(one >= YES) for one in asked)} if asked else {}
        return found | self.judge.metrics()


def has_term(settings: JudgeSettings, question: Question) -> bool:
    """Whether episodes of the question are judged."""
    return settings.questions == "all" or not golden(question)


def golden(question: Question) -> bool:
    """Whether there is gold to measure by."""
    return bool(question.gold or question.facts)


def ranking(question: Question, trajectory: Trajectory) -> Ranking:
    """What the judge is shown of an episode: nothing, where it did not end by a ranking of its own."""
    end = trajectory.end
    own = end is not None and end.stop_reason == "finished"
    return Ranking(question.question, end.documents if own and end is not None else (), question.answer)


def together(groups: Sequence[str], verdicts: Sequence[Verdict | None]) -> list[float | None]:
    """The scores, but for groups in which one is absent: there, none counts."""
    lacking = {group for group, one in zip(groups, verdicts, strict=True) if one is not None and one.score is None}
    return [None if one is None or group in lacking else one.score for group, one in zip(groups, verdicts, strict=True)]


def refuse_alone(settings: JudgeSettings, questions: Iterable[Question]) -> None:
    """Raises `ConfigError` where nothing but the judge could reward any of the questions, unless that is allowed."""
    asked = list(questions)
    if settings.alone or any(golden(one) or judgeable(one.answer) for one in asked):
        return
    raise ConfigError(
        f"none of {len(asked)} questions has gold or an answer, so the judge would be all that is learned from: add "
        "questions with gold, or set judge.alone = true"
    )
