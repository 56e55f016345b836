"""A question's scores from the result of a search. Every system is scored here, and by the same function.

The metrics and how several rollouts make one value stand in `definitions`. What does not apply is None, never a guess:
gold metrics of a row without gold, the answer of a row without one or with yes or no for it, everything about the
context of a system that has none. A question that failed scores 0 on quality.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from context_agent.agent import SearchResult
from context_agent.episode import StopReason
from context_agent.errors import ConfigError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, holds, judgeable
from context_agent.eval.metrics import BETAS, KS, Kind, table
from context_agent.eval.records import Turn
from context_agent.eval.replay import Replay, curve
from context_agent.questions import Question
from context_agent.types import RankedDocument

_FAILURES = {StopReason.POLICY_ERROR, StopReason.CORPUS_ERROR, StopReason.CANCELLED}
_OF_CONTEXT = {"trajectory_recall", "held_recall"}


def failure(result: SearchResult | None, error: str | None = None) -> str | None:
    """Why the question failed; None where it did not.

    It failed where there is no result, an `error` is given, or every rollout was ended by an error of its policy or
    corpus, whatever ranking was then made up from the view. A limit that struck is no failure: its ranking counts.
    """
    if error is not None or result is None:
        return error or "no result"
    ends = [trajectory.end for trajectory in result.trajectories]
    if ends and all(end is None or end.stop_reason in _FAILURES for end in ends):
        return result.error or f"the episode ended by {result.stop_reason}"
    return result.error if not ends else None


def broken(result: SearchResult) -> tuple[str, ...]:
    """Why rollouts were ended by an error where others were not: the question is scored with what those had by then."""
    ends = [trajectory.end for trajectory in result.trajectories]
    if failure(result) is not None:
        return ()
    return tuple(
        (one.error or f"ended by {one.stop_reason}") if one is not None else "ended without an end"
        for one in ends
        if one is None or one.stop_reason in _FAILURES
    )


def score(
    question: Question,
    result: SearchResult | None,
    *,
    error: str | None = None,
    gold: Gold | None = None,
    ks: Iterable[int] = KS,
    betas: Iterable[float] = BETAS,
    price: Price | None = None,
    context: bool = True,
) -> tuple[dict[str, float | None], tuple[Turn, ...]]:
    """The value of each metric of `definitions.table(ks, betas)` but `seconds`, and the state after each turn.

    `gold` is the question's in its corpus (`gold_of`), by default taken from the row as it stands. `context=False`
    says that the system keeps none (one-shot retrieval), which a failed one cannot show by itself. Raises
    `TrajectoryError` for a trajectory that does not replay.
    """
    gold = gold_of(question) if gold is None else gold
    ks, betas = tuple(ks), tuple(betas)
    replays = [Replay(trajectory, gold) for trajectory in result.trajectories] if result is not None else []
    searchers = [Replay(trajectory, gold) for trajectory in result.searchers] if result is not None else []
    scores: dict[str, float | None] = {one.name: None for one in table(ks, betas) if one.name != "seconds"}
    if result is not None:
        scores |= _costs(result, [*replays, *searchers], price)
    if result is not None and gold:
        scores |= _ranking(result.documents, gold, ks, betas) | _context(replays, searchers, gold)
    if judgeable(question.answer):
        scores["answer_found"] = _answered(result, question.answer)
    if failure(result, error) is not None:
        scores |= dict.fromkeys(_failing(question, gold, ks, betas, bool(replays) or (context and result is None)), 0.0)
    return scores, curve(replays, gold.needs)


def _ranking(
    documents: Sequence[RankedDocument], gold: Gold, ks: Iterable[int], betas: Iterable[float]
) -> dict[str, float | None]:
    found = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in documents]
    recall, precision = metrics.recall_of(found, gold.needs), metrics.precision_of(found)
    values: dict[str, float | None] = {"recall": recall, "precision": precision}
    for beta in (1.0, *betas):
        values[f"f{beta:g}"] = metrics.f_beta(precision, recall, beta)
    for k in ks:
        values[f"recall@{k}"] = metrics.recall_of(found[:k], gold.needs)
        values[f"ndcg@{k}"] = metrics.ndcg_of(found, gold.needs, k)
        values[f"all_gold@{k}"] = metrics.all_of(found[:k], gold.needs)
    return values


def _context(replays: Sequence[Replay], searchers: Sequence[Replay], gold: Gold) -> dict[str, float | None]:
    """What was encountered, by sub-agents too, and what was held and pruned. A chunk that two rollouts saw is two."""
    if not replays:
        return {}
    own = list(enumerate(replays))
    golden = {(number, one) for number, replay in own for one in replay.gold}
    return {
        "trajectory_recall": metrics.recall_of([replay.seen for replay in (*replays, *searchers)], gold.needs),
        "held_recall": metrics.recall_of([replay.held for replay in replays], gold.needs),
        "prune_accuracy": metrics.prune_accuracy(((n, one) for n, replay in own for one in replay.pruned), golden),
        "prune_recall": metrics.prune_recall(
            ((n, one) for n, replay in own for one in replay.shown),
            {(n, one) for n, replay in own for one in replay.kept},
            golden,
        ),
    }


def _answered(result: SearchResult | None, answer: str) -> float:
    documents = result.documents if result is not None else ()
    texts = (text for one in documents for text in (one.title, *(chunk.text for chunk in one.chunks)))
    return float(holds(texts, answer))


def _costs(result: SearchResult, replays: Sequence[Replay], price: Price | None) -> dict[str, float | None]:
    """What the episodes spent, sub-agents' too. One-shot retrieval has no context: it places what it returned."""
    if not replays:
        return {"tokens": float(result.tokens)} if result.tokens else {}
    spent = [replay.spent for replay in replays]
    turns, calls = sum(one.turns for one in spent), sum(one.calls for one in spent)
    prompt, cached, sampled = (sum(getattr(one, name) for one in spent) for name in ("prompt", "cached", "sampled"))
    counts: dict[str, float] = {
        "turns": turns,
        "calls": calls,
        "critical_steps": result.critical_steps,
        "tokens": sum(one.placed for one in spent),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "sampled_tokens": sampled,
        "lost_tokens": sum(one.lost for one in spent),
        "freed_tokens": sum(one.freed for one in spent),
        "context_end": max(one.end for one in spent),
        "context_peak": max(one.peak for one in spent),
        "mistakes": sum(one.mistakes for one in spent),
        "dropped_ids": sum(one.dropped for one in spent),
    }
    return {
        **{name: float(count) for name, count in counts.items()},
        "calls_per_turn": calls / turns if turns else None,
        "money": None if price is None else price.of(prompt=prompt, cached=cached, sampled=sampled),
    }


def _failing(question: Question, gold: Gold, ks: Iterable[int], betas: Iterable[float], context: bool) -> Iterable[str]:
    """The quality metrics that apply to the question, which are those that a failure makes 0."""
    for metric in table(ks, betas):
        applies = judgeable(question.answer) if metric.name == "answer_found" else bool(gold)
        if metric.kind is Kind.QUALITY and applies and (context or metric.name not in _OF_CONTEXT):
            yield metric.name


MILLION = 1_000_000
ANY = "*"
"""The row of a table that holds for every model without one of its own."""


class Price(BaseModel):
    """Prices per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt: float = Field(ge=0)
    sampled: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)

    def of(self, *, prompt: int, cached: int, sampled: int) -> float:
        """The money for an episode; `cached` is the part of `prompt` that the server need not read again."""
        at_cached = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * at_cached + sampled * self.sampled) / MILLION


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    currency: str = "USD"
    models: dict[str, Price]


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model, in one currency."""

    models: dict[str, Price]
    currency: str = "USD"

    def of(self, model: str) -> Price | None:
        """The model's price, else that of `*`, else None: money is then unknown, which is not the same as nothing."""
        return self.models.get(model) or self.models.get(ANY)


def load_prices(path: str | Path) -> Prices:
    """The table in a TOML file. Raises `ConfigError` that says what is wrong with it, and where."""
    try:
        table = _Table.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read the prices in {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ConfigError(
            f"{path}: {wrong}. A table has currency and [models.NAME] with prompt, sampled and, if it differs, cached, "
            "each per million tokens"
        ) from error
    return Prices(table.models, table.currency)
