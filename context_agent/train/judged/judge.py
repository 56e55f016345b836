"""Asks a model how good a ranking is, by a rubric. Every answer is kept: the same ranking is never paid for twice.

A verdict can be absent: the server is down, the model writes prose, the cap is reached. That is a value, and not an
error: the episode keeps its other terms, and what was absent is counted and told.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import BaseModel, Field, model_validator

from context_agent.errors import PolicyError
from context_agent.synth_data.llm_stages.cached_model import CapReached
from context_agent.synth_data.llm_stages.model import InvalidReply as Wrong
from context_agent.synth_data.llm_stages.model import PromptPart as Part
from context_agent.synth_data.llm_stages.model import StructuredModel as Model
from context_agent.synth_data.llm_stages.model import StructuredModelOptions as ModelOptions
from context_agent.synth_data.stages import DropRow as Unfit
from context_agent.synth_data.stages import StageHalted as Halted
from context_agent.train.judged.rubric import Rubric, load
from context_agent.train.judged.settings import SHARED, JudgeSettings
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
        self._model = Model(options, replies, concurrency=settings.concurrency, placeholders=PROMPTS)
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
