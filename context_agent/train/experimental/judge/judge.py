"""A language model that judges rankings by a rubric.

Every reply is stored, so the same ranking is never paid for twice. A verdict can be absent: the server is down, the
model writes prose, the cap is reached. An absent verdict is a value, not an error.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel, Field, model_validator

from context_agent.errors import PolicyError
from context_agent.synth_data.llm_stages.ledger import CapReached, SpendingCap, TokenPrices
from context_agent.synth_data.llm_stages.model import InvalidReply, StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.templates import PromptPart
from context_agent.synth_data.stages import DropRow, StageHalted
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.rubric import Rubric, load_rubric
from context_agent.types import RankedDocument

CALIBRATED_SETTINGS = ("model", "reference", "passages", "characters", "temperature", "max_tokens", "reasoning_effort")
"""Settings that a calibration and its judge must share, besides the rubric."""


PROMPT = "judge"


PROMPTS = {PROMPT: frozenset({"criteria", "example"})}


CAPPED, FAILED = "cap reached", "judge failed"
"""Reasons for an absent verdict, besides those for an invalid reply."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """The judge's verdict on a ranking.

    Attributes:
        score: From 0 to 1; None if the verdict is absent.
        scores: The score of each criterion.
        why: The judge's reasons.
        absent: Why the verdict is absent, in short, stable words.
        detail: The error behind an absent verdict.
        asked: False if no request was sent. An empty ranking scores 0 without a request to the judge.
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
            prices=TokenPrices(settings.price_in, settings.price_out),
            cap=spending_cap(settings, ranks),
            backoff=backoff,
        )
        self._model = StructuredModel(options, replies, concurrency=settings.concurrency, placeholders=PROMPTS)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the event loop and close the file."""
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


def spending_cap(settings: JudgeConfig, ranks: int = 1) -> SpendingCap:
    """Return the cap of one of so many ranks: an equal share, and at least one call or token."""
    tokens, calls = (
        None if limit is None else max(1, limit // ranks) for limit in (settings.max_tokens_total, settings.max_calls)
    )
    return SpendingCap(None if settings.max_cost is None else settings.max_cost / ranks, tokens, calls)


def judge_identity(settings: JudgeConfig, rubric: Rubric, prompts: str) -> dict[str, Any]:
    """Return what verdicts depend on: the model, what it reads and by what it judges."""
    return {
        **{name: getattr(settings, name) for name in CALIBRATED_SETTINGS},
        "rubric": rubric.digest,
        "prompt": prompts,
    }


def absence_reasons(verdicts: Sequence[JudgeVerdict]) -> dict[str, int]:
    """Return how many verdicts are absent, by reason."""
    return dict(sorted(Counter(verdict.absent for verdict in verdicts if verdict.score is None).items()))


YES_SCORE = 0.5
"""From this score on a judge says yes."""
