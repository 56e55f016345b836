"""A language model that judges rankings by a rubric.

Every reply is stored, so the same ranking is never paid for twice. A verdict can be absent, for example because the
server is down or the spending cap is reached. An absent verdict does not raise an error.
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
"""Settings that a calibration and its judge must share. They must also share the rubric and the prompt."""


PROMPT = "judge"


PROMPTS = {PROMPT: frozenset({"criteria", "example"})}


CAPPED, FAILED = "cap reached", "judge failed"
"""Reasons for an absent verdict other than an invalid reply."""


YES_SCORE = 0.5
"""Smallest score with which a judge accepts a ranking."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """The judge's verdict on a ranking.

    Attributes:
        score: The score, from 0 to 1. None if the verdict is absent.
        scores: The score of each criterion.
        why: The judge's reasons.
        absent: The reason for an absent verdict, as one of a few fixed phrases.
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
    """A ranking as the judge reads it.

    Attributes:
        question: The question.
        documents: The ranked documents.
        answer: The reference answer. Empty if there is none.
    """

    question: str
    documents: tuple[RankedDocument, ...]
    answer: str = ""


class JudgeProtocol(Protocol):
    """The interface of a judge that a trainer uses."""

    settings: JudgeConfig

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        """Return a verdict on each ranking, in order. This blocks, so do not call it inside an event loop."""

    def metrics(self) -> dict[str, float]:
        """Return totals over all calls so far, by name."""


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
    """A chat model with a rubric, a file of its replies and a spending cap. Use it in a `with` statement.

    It has its own event loop. `verdicts` can be called repeatedly, but from one thread at a time.
    """

    def __init__(
        self,
        settings: JudgeConfig,
        replies: Path,
        *,
        ranks: int = 1,
        backoff: float = 0.5,
    ) -> None:
        """Set up the judge. No request is sent yet.

        Args:
            settings: The settings of the judge.
            replies: The file of replies. Each rank has its own.
            ranks: The number of ranks, which share the spending cap.
            backoff: Seconds before the first retry.

        Raises:
            ConfigError: If the rubric or a setting is invalid.
            DataError: If the file of replies is damaged.
        """
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
        """Close the event loop and the file of replies."""
        self._runner.close()
        self._model.__exit__(None, None, None)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that verdicts depend on. If a calibration has other settings, it belongs to another judge."""
        return judge_identity(self.settings, self.rubric, self._model.prompts.digest)

    def verdicts(self, rankings: Sequence[JudgedRanking]) -> list[JudgeVerdict]:
        """Return a verdict on each ranking, in order. As many calls run concurrently as the settings allow.

        Do not call this inside an event loop.
        """
        return self._runner.run(self._verdicts(rankings))

    def metrics(self) -> dict[str, float]:
        """Return the totals of this run and of the runs that it resumes.

        Returns:
            `judge/calls`, `judge/tokens` and, if there are prices, `judge/cost`.
        """
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
        """Return the scores under the rubric's names. The judge may write the names in any case."""
        return {
            criterion.name: reply.scores[criterion.name.lower()]
            for criterion in self.rubric.criteria
            if criterion.name.lower() in reply.scores
        }

    def _parts(self, ranking: JudgedRanking) -> list[PromptPart] | None:
        """Return the texts that the judge reads. If the ranking is empty, return None."""
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
    """Return the spending cap of one rank. It is an equal share of the run's cap, and at least one call or token."""
    tokens, calls = (
        None if limit is None else max(1, limit // ranks) for limit in (settings.max_tokens_total, settings.max_calls)
    )
    return SpendingCap(None if settings.max_cost is None else settings.max_cost / ranks, tokens, calls)


def judge_identity(settings: JudgeConfig, rubric: Rubric, prompts: str) -> dict[str, Any]:
    """Return the settings that verdicts depend on: the model, its input, the rubric and the prompt."""
    return {
        **{name: getattr(settings, name) for name in CALIBRATED_SETTINGS},
        "rubric": rubric.digest,
        "prompt": prompts,
    }


def absence_reasons(verdicts: Sequence[JudgeVerdict]) -> dict[str, int]:
    """Return the number of absent verdicts by reason."""
    return dict(sorted(Counter(verdict.absent for verdict in verdicts if verdict.score is None).items()))
