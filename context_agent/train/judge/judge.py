"""A language model that judges rankings by a rubric, and its verdicts as a term of the reward.

Every reply is stored, so the same ranking is never paid for twice. A verdict can be absent: the server is down, the
model writes prose, the cap is reached. An absent verdict is a value, not an error: the episode keeps its other terms,
and absent verdicts are counted and reported. If one episode of a question has no verdict, the term counts for none of
them: an advantage compares the episodes of a question, and must not compare one that was judged with one that was not.

A custom rubric is a TOML file:

    [[criteria]]
    name = "coverage"
    asks = "Do the passages hold all that is needed to answer the question?"
    high = 4
    weight = 2
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, Field, model_validator

from context_agent._support.small_files import read_toml
from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import judgeable
from context_agent.harness.trajectory import Trajectory
from context_agent.synth_data.llm_stages.cached_model import CapReached, SpendingCap, TokenPrices
from context_agent.synth_data.llm_stages.model import InvalidReply, PromptPart, StructuredModel, StructuredModelOptions
from context_agent.synth_data.stages import DropRow, StageHalted
from context_agent.types import Question, RankedDocument


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing to judge, by a whole number from `low` to `high`."""

    name: str
    asks: str
    low: int = 0
    high: int = 3
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.name or not self.asks or self.high <= self.low or not (isfinite(self.weight) and self.weight > 0):
            raise ConfigError(
                "a criterion has a name, asks something, has a high above its low, and a positive weight; got "
                f"{self.name!r}, {self.asks!r}, {self.low} to {self.high}, {self.weight}"
            )


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria. `score` is their weighted mean, each on a scale from its low (0) to its high (1)."""

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        names = [criterion.name.lower() for criterion in self.criteria]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a rubric has criteria of different names; got {', '.join(names) or 'none'}")

    def score(self, scores: Mapping[str, float]) -> float:
        """From 0 to 1. `scores` has a number in its range for each criterion; check with `problem`."""
        shares = [
            criterion.weight * (scores[criterion.name] - criterion.low) / (criterion.high - criterion.low)
            for criterion in self.criteria
        ]
        return sum(shares) / sum(criterion.weight for criterion in self.criteria)

    def problem(self, scores: Mapping[str, float]) -> tuple[str, str] | None:
        """Return what is wrong with a judge's scores: a short reason and a message to the judge. None if they are
        valid.
        """
        for criterion in self.criteria:
            score = scores.get(criterion.name)
            if score is None:
                return "score missing", f"there is no score for {criterion.name!r}"
            if not criterion.low <= score <= criterion.high:
                return (
                    "score out of range",
                    f"{criterion.name!r} goes from {criterion.low} to {criterion.high}; got {score}",
                )
        return None

    def words(self) -> str:
        """Return the criteria as a judge reads them."""
        return "\n".join(
            f"- {criterion.name} ({criterion.low} to {criterion.high}): {criterion.asks}" for criterion in self.criteria
        )

    @property
    def digest(self) -> str:
        """Changes with any word or number of it."""
        return blake2b(repr(self.criteria).encode(), digest_size=8).hexdigest()


DEFAULT_RUBRIC = Rubric(
    (
        Criterion("coverage", "Do the passages together hold what is needed to answer the question?", weight=2.0),
        Criterion("focus", "How many of the passages help to answer it, rather than stand beside it?"),
    )
)
"""The rubric that ships."""


def load_rubric(path: str | Path | None) -> Rubric:
    """Return the rubric of a TOML file, the one that ships for None. Raises `ConfigError` naming the file."""
    if path is None:
        return DEFAULT_RUBRIC
    try:
        rows = read_toml(path).get("criteria", [])
        return Rubric(tuple(_criterion(row) for row in rows))
    except OSError as error:
        raise ConfigError(f"cannot read the rubric {path}: {error.strerror}") from error
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"the rubric {path}: {error}") from error


def _criterion(row: Mapping[str, Any]) -> Criterion:
    names = [field.name for field in fields(Criterion)]
    if unknown := [key for key in row if key not in names]:
        raise ConfigError(f"unknown key {unknown[0]!r}; a criterion takes {', '.join(names)}")
    for name in ("low", "high"):
        if not isinstance(row.get(name, 0), int):
            raise ConfigError(f"{name} is a whole number; got {row[name]!r}")
    return Criterion(**row)


CALIBRATED_SETTINGS = ("model", "reference", "passages", "characters", "temperature", "max_tokens", "reasoning_effort")
"""Settings that a calibration and its judge must share, besides the rubric."""


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A judge. Without a model there is none.

    - `model`: name of the model on the server.
    - `base_url`: address of the server.
    - `api_key_env`: environment variable with the key.
    - `questions`: whether only questions without gold are judged, or all.
    - `rubric`: a TOML file with criteria; by default the rubric that ships.
    - `reference`: whether the judge reads the question's answer.
    - `passages`: passages of a ranking that the judge reads.
    - `characters`: characters of each passage.
    - `temperature`: sampling temperature.
    - `max_tokens`: longest reply, in tokens.
    - `reasoning_effort`: reasoning effort, for models that take one.
    - `timeout`: timeout for one reply, in seconds.
    - `retries`: retries of a failed call.
    - `concurrency`: calls at the same time.
    - `price_in`: price of a million prompt tokens.
    - `price_out`: price of a million completion tokens.
    - `max_calls`: most calls of the whole run, resumed or not; one of the three caps is required.
    - `max_tokens_total`: most tokens of the whole run.
    - `max_cost`: highest cost of the whole run.
    - `max_failed_steps`: steps in a row without any verdict after which the run stops.
    - `calibration`: report of `ctx1 train judge-check` on this judge.
    - `uncalibrated`: allow a judge without a calibration.
    - `alone`: allow the judge to be the only gain.
    """

    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    questions: Literal["without_gold", "all"] = "without_gold"
    rubric: str | None = None
    reference: bool = True
    passages: int = 8
    characters: int = 1_500
    temperature: float = 0.0
    max_tokens: int = 1_024
    reasoning_effort: str | None = None
    timeout: float = 120.0
    retries: int = 2
    concurrency: int = 8
    price_in: float = 0.0
    price_out: float = 0.0
    max_calls: int | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_failed_steps: int = 3
    calibration: str | None = None
    uncalibrated: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        for name in ("passages", "characters", "max_tokens", "concurrency", "max_failed_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"judge.{name} must be at least 1; got {getattr(self, name)}")
        if self.temperature < 0:
            raise ConfigError(f"judge.temperature must not be negative; got {self.temperature}")
        if self.model and self.max_calls is None and self.max_tokens_total is None and self.max_cost is None:
            raise ConfigError(
                "the judge has no cap: set judge.max_calls, judge.max_tokens_total, or judge.max_cost with prices"
            )

    @property
    def prices(self) -> TokenPrices:
        """What a million tokens cost."""
        return TokenPrices(self.price_in, self.price_out)

    def cap(self, ranks: int = 1) -> SpendingCap:
        """Return the cap of one of so many ranks: an equal share, and at least one call or token."""
        tokens, calls = (
            None if limit is None else max(1, limit // ranks) for limit in (self.max_tokens_total, self.max_calls)
        )
        return SpendingCap(None if self.max_cost is None else self.max_cost / ranks, tokens, calls)


PROMPT = "judge"
PROMPTS = {PROMPT: frozenset({"criteria", "example"})}
CAPPED, FAILED = "cap reached", "judge failed"
"""Reasons for an absent verdict, besides those for an invalid reply."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
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
class JudgedRanking:
    """The judge's input: a question, the ranked documents, and the reference answer if there is one."""

    question: str
    documents: tuple[RankedDocument, ...]
    answer: str = ""


class JudgeProtocol(Protocol):
    """What a trainer needs of a judge."""

    settings: JudgeConfig

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        """Return a verdict on each, in order. Blocks; not to be called inside an event loop."""

    def metrics(self) -> dict[str, float]:
        """Return what all calls so far came to, by name."""


class JudgeReply(BaseModel):
    """A judge's reply. The scores may be in `scores` or at the top level."""

    scores: dict[str, float]
    why: str = Field(default="", max_length=20_000)

    @model_validator(mode="before")
    @classmethod
    def _gather_scores(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        scores = data["scores"] if "scores" in data else {key: value for key, value in data.items() if key != "why"}
        names = (
            {str(key).strip().lower(): value for key, value in scores.items()} if isinstance(scores, dict) else scores
        )
        return {"scores": names, "why": str(data.get("why") or "")[:2_000]}


class RankingJudge:
    """A chat model with a rubric, behind a file of its replies and a cap. Use it with `with`.

    It has an event loop of its own, so `verdicts` can be called again and again, from one thread at a time.
    """

    def __init__(
        self,
        settings: JudgeConfig,
        replies: Path,
        *,
        ranks: int = 1,
        backoff: float = 0.5,
    ) -> None:
        """`replies` is this rank's own file. Nothing is sent yet. Raises `ConfigError`, `DataError`."""
        self.settings = settings
        self.rubric = load_rubric(settings.rubric)
        options = StructuredModelOptions(
            chat_options={
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
        self._model = StructuredModel(options, replies, concurrency=settings.concurrency, placeholders=PROMPTS)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the event loop and closes the file."""
        self._runner.close()
        self._model.__exit__(None, None, None)

    @property
    def identity(self) -> dict[str, Any]:
        """What its verdicts depend on: a calibration of another identity is one of another judge."""
        return judge_identity(self.settings, self.rubric, self._model.prompts.digest)

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        """Return a verdict on each, in order; as many at once as the settings allow. Not to be called in an event
        loop.
        """
        return self._runner.run(self._verdicts(rankings))

    def metrics(self) -> dict[str, float]:
        """`judge/calls`, `judge/tokens` and, where there are prices, `judge/cost`: of this run and those it resumes."""
        ledger = self._model.ledger.to_json()
        metrics = {
            "judge/calls": ledger["calls"],
            "judge/tokens": ledger["prompt_tokens"] + ledger["completion_tokens"],
        }
        metrics |= {"judge/cost": ledger["cost"]} if "cost" in ledger else {}
        return {name: float(value) for name, value in metrics.items()}

    async def _verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        return list(await asyncio.gather(*(self._verdict(ranking) for ranking in rankings)))

    async def _verdict(self, ranking: JudgedRanking) -> JudgeVerdict:
        parts = self._parts(ranking)
        if parts is None:
            return JudgeVerdict(0.0, asked=False)
        example = {"scores": {criterion.name: criterion.low for criterion in self.rubric.criteria}, "why": "..."}
        try:
            reply = await self._model.ask(
                PROMPT, parts, JudgeReply, self._check, criteria=self.rubric.words(), example=json.dumps(example)
            )
        except DropRow as unfit:
            return JudgeVerdict(None, absent=unfit.dropped.reason, detail=unfit.dropped.detail)
        except CapReached as reached:
            return JudgeVerdict(None, absent=CAPPED, detail=str(reached))
        except (StageHalted, PolicyError) as error:
            return JudgeVerdict(None, absent=FAILED, detail=str(error))
        scores = self._named(reply)
        return JudgeVerdict(self.rubric.score(scores), scores, reply.why)

    def _check(self, reply: JudgeReply) -> None:
        if (problem := self.rubric.problem(self._named(reply))) is not None:
            raise InvalidReply(*problem)

    def _named(self, reply: JudgeReply) -> dict[str, float]:
        """Return the scores under the names that the rubric has, however the judge cased them."""
        return {
            criterion.name: reply.scores[criterion.name.lower()]
            for criterion in self.rubric.criteria
            if criterion.name.lower() in reply.scores
        }

    def _parts(self, ranking: JudgedRanking) -> list[PromptPart] | None:
        """Return what the judge reads; None for an empty ranking."""
        chosen = self.settings
        chunks = [(document.title, chunk) for document in ranking.documents for chunk in document.chunks]
        if not chunks:
            return None
        parts = [PromptPart("question", ranking.question)]
        for index, (title, chunk) in enumerate(chunks[: chosen.passages], start=1):
            text = chunk.text[: chosen.characters]
            parts.append(PromptPart(f"passage {index}", f"{title}\n{text}" if title else text))
        if chosen.reference and ranking.answer:
            parts.append(PromptPart("reference answer", ranking.answer))
        return parts


def judge_identity(settings: JudgeConfig, rubric: Rubric, prompts: str) -> dict[str, Any]:
    """Return what verdicts depend on: the model, what it reads and by what it judges."""
    return {
        **{name: getattr(settings, name) for name in CALIBRATED_SETTINGS},
        "rubric": rubric.digest,
        "prompt": prompts,
    }


def absence_reasons(verdicts: Sequence[JudgeVerdict]) -> dict[str, int]:
    """Why verdicts are absent, with counts."""
    return dict(sorted(Counter(verdict.absent for verdict in verdicts if verdict.score is None).items()))


YES_SCORE = 0.5
"""From this score on a judge says yes."""


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """The term of each episode of a step, None for none; and its metrics."""

    scores: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    why: str = ""
    """Why verdicts are absent, with the first detail; empty where none is."""


@dataclass(slots=True)
class JudgePool:
    """The judge of a run, with its failed steps. `note` receives a message about absent verdicts, once a step."""

    judge: JudgeProtocol
    note: Callable[[str], None] = print
    barren: int = 0
    """Consecutive steps in which the judge was asked and gave no verdict."""

    def judged(self, episodes: Sequence[tuple[Question, Trajectory]]) -> JudgeTerms:
        """Return the term of each whole episode.

        Raises `PolicyError` if the judge gave no verdict in `max_failed_steps` steps in a row.
        """
        needs_verdict = [is_judged(self.judge.settings, question) for question, _ in episodes]
        rankings = [final_ranking(*episode) for episode, needed in zip(episodes, needs_verdict, strict=True) if needed]
        replies = iter(self.judge.verdicts(rankings) if rankings else [])
        verdicts = [next(replies) if needed else None for needed in needs_verdict]
        why = self._report_absent([verdict for verdict in verdicts if verdict is not None])
        scores = scores_by_group([question.id for question, _ in episodes], verdicts)
        return JudgeTerms(tuple(scores), self._metrics([verdict for verdict in verdicts if verdict is not None]), why)

    def _report_absent(self, verdicts: Sequence[JudgeVerdict]) -> str:
        absent = [verdict for verdict in verdicts if verdict.score is None]
        answered = any(verdict.score is not None and verdict.asked for verdict in verdicts)
        if not absent:
            self.barren = 0 if answered else self.barren
            return ""
        counts = ", ".join(f"{count} {reason}" for reason, count in absence_reasons(absent).items())
        why = f"{len(absent)} of {len(verdicts)} episodes have no verdict of the judge: {counts} ({absent[0].detail})"
        self.note(f"{why}. They keep their other terms")
        # Reaching the cap is expected and does not count as a failure of the judge.
        capped = all(verdict.absent == CAPPED for verdict in absent)
        self.barren = 0 if answered or capped else self.barren + 1
        if self.barren >= self.judge.settings.max_failed_steps:
            raise PolicyError(f"no verdict of the judge in {self.barren} steps in a row. The last of them: {why}")
        return why

    def _metrics(self, verdicts: Sequence[JudgeVerdict]) -> dict[str, float]:
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        asked_scores = [verdict.score for verdict in verdicts if verdict.score is not None and verdict.asked]
        metrics = {"judge/wanted": float(len(verdicts)), "judge/absent": float(len(verdicts) - len(scores))}
        metrics |= {"judge/score": fmean(scores)} if scores else {}
        metrics |= {"judge/yes": fmean(float(item >= YES_SCORE) for item in asked_scores)} if asked_scores else {}
        return metrics | self.judge.metrics()


def is_judged(settings: JudgeConfig, question: Question) -> bool:
    """Return whether episodes of the question are judged."""
    return settings.questions == "all" or not has_gold(question)


def has_gold(question: Question) -> bool:
    """Return whether there is gold to measure by."""
    return bool(question.gold or question.facts)


def final_ranking(question: Question, trajectory: Trajectory) -> JudgedRanking:
    """Return the ranking that an episode ended with; empty if a limit or an invalid ranking ended it."""
    end = trajectory.end
    documents = end.documents if end is not None and end.stop_reason == "finished" else ()
    return JudgedRanking(question.question, documents, question.answer)


def scores_by_group(groups: Sequence[str], verdicts: Sequence[JudgeVerdict | None]) -> list[float | None]:
    """Return the scores; None for every episode of a group in which one is absent."""
    lacking = {
        group for group, verdict in zip(groups, verdicts, strict=True) if verdict is not None and verdict.score is None
    }
    return [
        None if verdict is None or group in lacking else verdict.score
        for group, verdict in zip(groups, verdicts, strict=True)
    ]


def refuse_judge_alone(settings: JudgeConfig, questions: Iterable[Question]) -> None:
    """Raises `ConfigError` if only the judge could reward the questions, unless `judge.alone` allows it."""
    questions = list(questions)
    if settings.alone or any(has_gold(question) or judgeable(question.answer) for question in questions):
        return
    raise ConfigError(
        f"none of {len(questions)} questions has gold or an answer, so the judge would be the only reward: add "
        "questions with gold, or set judge.alone = true"
    )
