"""The savings by pruning, for each conversation and in total: tokens, cached tokens that were lost, and money.

Tokens are tokens of tool results, counted as in the prune's report. The money is a cautious estimate. A token that was
not sent counts at the price of a cached token. A lost cached token counts at the price of writing it to the cache
again. If the cache is cold, more is saved.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent.integrations.server.price_table import ModelPrice, PriceTable
from context_agent.pruning.report import PruneReport
from context_agent.text.counts import counted
from context_agent.text.normalization import well_formed
from context_agent.web.page import escape, page

MAX_CONVERSATIONS = 1_000
"""Conversations that a report lists. The others, which were used less recently, count in the sum alone."""
MODEL_CHARACTERS = 100
"""Characters of a model's name that count."""
MAX_MODELS = 3
"""Models without a price that a line names."""
_MODEL = re.compile(r"[\w.:/@+-]+", re.ASCII)
_MODEL_IN_PATH = re.compile(r"/(?:models?|deployments)/([^/:]+)")


@dataclass(frozen=True, slots=True)
class PrunedRequest:
    """A request with a conversation that went through a pruner.

    Attributes:
        conversation: The number of the conversation.
        model: The name of the model. If the request has none, it is empty.
        sent: The tokens of tool results that were sent.
        withheld: The tokens of tool results that were not sent, including those that earlier requests removed.
        cached_lost: The cached tokens after the first change.
        restored: The number of passages that were restored because a message requested them.
        is_bound: True if the conversation is not pruned, because the model binds its thinking to it.
    """

    conversation: int
    model: str
    sent: int
    withheld: int
    cached_lost: int
    restored: int
    is_bound: bool = False

    @classmethod
    def of(cls, conversation: int, model: Any, report: PruneReport) -> PrunedRequest:
        """Return the request with the numbers from a prune's report."""
        return cls(
            conversation,
            well_formed(model[:MODEL_CHARACTERS]) if isinstance(model, str) else "",
            report.tokens_after,
            max(0, report.tokens_original - report.tokens_after),
            0 if report.outcome in ("does not pay", "declined") and not report.restored else report.cached_lost,
            len(report.restored),
        )


def model_in_path(path: str) -> str:
    """Return the model that a path of Gemini or Bedrock names. For any other path, return an empty string."""
    match = _MODEL_IN_PATH.search(path)
    return match[1][:MODEL_CHARACTERS] if match else ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(slots=True)
class Savings:
    """The sums over requests. `money` includes the requests to models with a known price."""

    requests: int = 0
    sent: int = 0
    withheld: int = 0
    cached_lost: int = 0
    restored: int = 0
    money: float = 0.0
    without_price: int = 0

    def add(self, request: PrunedRequest, price: ModelPrice | None, *, accepted: bool) -> None:
        """Add a request. If the model server refused it, its tokens were not paid for."""
        withheld = request.withheld if accepted else 0
        self.requests += accepted
        self.sent += request.sent if accepted else 0
        self.withheld += withheld
        self.cached_lost += request.cached_lost
        self.restored += request.restored
        if price is None:
            self.without_price += accepted
        else:
            self.money += price.saved(withheld, request.cached_lost)

    @property
    def share(self) -> float:
        """The share of the tool results' tokens that was not sent."""
        return self.withheld / max(1, self.sent + self.withheld)

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON values."""
        return {**asdict(self), "money": round(self.money, 6)}


@dataclass(slots=True)
class ConversationSavings(Savings):
    """The sums over the requests of one conversation, with the latest model and the times of the requests."""

    model: str = ""
    first: str = field(default_factory=_now)
    last: str = ""


class SavingsReport:
    """A report of what pruning saved since the start. Threads may share it.

    Args:
        prices: The prices of models. Defaults to the prices of this package.
    """

    def __init__(self, prices: PriceTable | None = None) -> None:
        self.prices = prices or PriceTable.read()
        self.total = Savings()
        self._conversations: OrderedDict[int, ConversationSavings] = OrderedDict()
        self._number = 0
        self._bound: set[str] = set()
        self._lock = threading.Lock()

    def add(self, request: PrunedRequest, *, accepted: bool = True) -> None:
        """Add a request. `accepted` is False if the model server refused it."""
        price = self.prices.price(request.model)
        with self._lock:
            self._number += request.conversation not in self._conversations
            conversation = self._conversations.setdefault(request.conversation, ConversationSavings())
            self._conversations.move_to_end(request.conversation)
            # A name that the server refused may be anything, such as a key in the wrong field.
            conversation.model = (accepted and request.model) or conversation.model
            conversation.last = _now()
            conversation.add(request, price, accepted=accepted)
            self.total.add(request, price, accepted=accepted)
            if request.is_bound and accepted:
                self._bound.add(request.model)
            if len(self._conversations) > MAX_CONVERSATIONS:
                self._conversations.popitem(last=False)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values. It has no text of a conversation, and only names of accepted models."""
        with self._lock:
            listed = [{"conversation": number, **one.to_json()} for number, one in self._conversations.items()]
            total = {"conversations": self._number, **self.total.to_json()}
            bound = sorted(self._bound)
        return {"currency": self.prices.currency, "total": total, "bound_models": bound, "conversations": listed}

    def write(self, file: Path) -> None:
        """Write the report as JSON.

        Raises:
            OSError: If the file cannot be written.
        """
        replace_file(file, json.dumps(self.to_json(), ensure_ascii=False, indent=2) + "\n")

    def lines(self) -> Iterator[str]:
        """Yield the totals as three lines of text. If some models are not pruned, a line before them says why."""
        report = self.to_json()
        total = report["total"]
        if bound := report["bound_models"]:
            yield (
                f"not pruned: the requests to {', '.join(bound[:MAX_MODELS])}, which binds its thinking to the "
                "conversation; --drop-thinking prunes them"
            )
        requests, conversations = counted(total["requests"], "request"), counted(total["conversations"], "conversation")
        yield (
            f"{requests} in {conversations}: {total['sent']:,} tokens of tool results sent, "
            f"{total['withheld']:,} not sent ({self.total.share:.0%})"
        )
        restored = counted(total["restored"], "passage")
        yield f"{total['cached_lost']:,} cached tokens lost; {restored} restored because a message asked for them"
        yield self._money_line(total)

    def _money_line(self, total: Mapping[str, Any]) -> str:
        if total["requests"] and total["without_price"] == total["requests"]:
            return f"money: unknown, because there is no price for {self._models()}; --prices FILE.toml adds prices"
        unpriced = f", {counted(total['without_price'], 'request')} without a price" if total["without_price"] else ""
        verb = "saved" if total["money"] >= 0 else "lost"
        return f"about {abs(total['money']):,.2f} {self.prices.currency} {verb}{unpriced}; prices change"

    def _models(self) -> str:
        """Return the names of the latest models. Names with characters that model names do not have are left out."""
        with self._lock:
            models = {one.model: None for one in reversed(self._conversations.values()) if _MODEL.fullmatch(one.model)}
        return ", ".join(list(models)[:MAX_MODELS]) or "these models"

    def html(self) -> str:
        """Return the report as a page. The page loads nothing and runs no script."""
        rows = "".join(map(_row, reversed(self.to_json()["conversations"])))
        heads = "".join(
            f'<th{" class=number" if number else ""}>{name}</th>'
            for name, number in (
                ("Conversation", False), ("Model", False), ("Requests", True), ("Tokens sent", True),
                ("Not sent", True), ("Cached tokens lost", True), ("Restored", True),
                (f"Saved, {escape(self.prices.currency)}", True), ("Latest request", False),
            )
        )  # fmt: skip
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.lines())
        return page(
            "What pruning saved",
            f"<h1>What pruning saved</h1>{lines}"
            '<p class="muted">Tokens are those of tool results. A restored passage is a sign that its removal was '
            "wrong. Money counts a token that was not sent at the price of a cached one.</p>"
            f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>',
        )


def _row(one: Mapping[str, Any]) -> str:
    numbers = "".join(
        f'<td class="number">{one[name]:,}</td>' for name in ("requests", "sent", "withheld", "cached_lost", "restored")
    )
    money = "unknown" if one["requests"] and one["without_price"] == one["requests"] else f"{one['money']:,.4f}"
    return (
        f"<tr><td>{one['conversation']}</td><td>{escape(one['model'])}</td>{numbers}"
        f'<td class="number">{money}</td><td>{escape(one["last"])}</td></tr>'
    )
