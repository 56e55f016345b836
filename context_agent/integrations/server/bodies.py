"""Conversations in the bodies of requests, pruned: of requests to a model server, and of requests to prune."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from context_agent._support.http_body import Allowance, ResponseTooLarge
from context_agent.integrations.pruning import ConversationPruners
from context_agent.integrations.server.observability import log
from context_agent.integrations.server.responses import encode
from context_agent.integrations.server.schema import PruneAnswer, PruneRequest
from context_agent.pruning.messages import Transcript
from context_agent.pruning.pruner import ContextPruner, PruneReport
from context_agent.pruning.selection import Prices

SHOWN_WARNINGS, WARNING_LENGTH = 3, 200
"""Warnings in a header, and characters of each."""
_OPTIONS = frozenset(("budget", "strategy", "effort", "turns", "cached_price"))
"""The fields of a request to prune that make the pruner."""
_COUNTS = ("tokens_before", "tokens_after", "freed", "cached_lost")
_SYSTEM = ("system", "instructions")
"""Fields beside the messages that hold the system text."""


@dataclass(frozen=True, slots=True)
class PrunedBody:
    """A body for the upstream, and the report: counts, which may be logged, and warnings, which may quote the body."""

    body: bytes
    counts: Mapping[str, Any]
    warnings: Sequence[str] = ()

    @classmethod
    def of(cls, body: bytes, report: PruneReport) -> PrunedBody:
        """The body with its report, without the texts of removed passages."""
        counts = {name: getattr(report, name) for name in _COUNTS}
        passages = {"removed": len(report.removed), "restored": len(report.restored)}
        return cls(body, {"outcome": report.outcome, **passages, **counts}, report.warnings)

    @property
    def header(self) -> bytes:
        """The report as JSON in ASCII."""
        warnings = [warning[:WARNING_LENGTH] for warning in self.warnings[:SHOWN_WARNINGS]]
        report = {**self.counts, **({"warnings": warnings} if warnings else {})}
        return json.dumps(report, separators=(",", ":")).encode()


class BodyPruner:
    """Prunes bodies. Safe for threads."""

    def __init__(self, pruners: ConversationPruners, max_bytes: int) -> None:
        """A body that takes more than eight times `max_bytes` of memory when it is decoded is not decoded."""
        self._pruners, self._max_bytes = pruners, max_bytes

    def prune(self, body: bytes, name: str, caller: bytes) -> PrunedBody:
        """The body with its conversation, the field `name`, pruned; the same body if nothing goes, or none is there.

        `caller` tells callers apart, so that none influences the conversation of another.
        """
        try:
            return self._pruned(body, name, caller)
        except Exception as error:  # noqa: BLE001 (a proxy that cannot prune must still relay)
            log("unpruned", logging.ERROR, error=error)
            return PrunedBody(body, {"outcome": "failed"})

    def _pruned(self, body: bytes, name: str, caller: bytes) -> PrunedBody:
        request = self._decoded(body)
        messages = None if request is None else request.get(name)
        if request is None or not isinstance(messages, list):
            return PrunedBody(body, {"outcome": "no conversation"})
        system = Transcript([{"role": "system", "content": request.get(field)} for field in _SYSTEM]).contents
        scope = "\0".join(content.text for content in system).encode(errors="surrogatepass")
        pruned = self._pruners.prune(messages, scope=caller + b"\0" + scope)
        if pruned.messages == messages:
            return PrunedBody.of(body, pruned.report)
        changed = json.dumps({**request, name: pruned.messages}, allow_nan=False, separators=(",", ":"))
        return PrunedBody.of(changed.encode(), pruned.report)

    def _decoded(self, body: bytes) -> dict[str, Any] | None:
        """The body's JSON object; None if it is none, or too costly to decode."""
        try:
            Allowance(self._max_bytes).parse(body)
            value = json.loads(body)
        except (ResponseTooLarge, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def prune_conversation(pruners: ConversationPruners, request: PruneRequest) -> PruneAnswer:
    """The pruned or restored conversation of a request. Raises `ConfigError` for an unknown id."""
    options = request.model_dump(include=set(_OPTIONS))
    scope = encode(options)
    if request.restore:
        return PruneAnswer(messages=pruners.restore(request.messages, request.restore, scope=scope), report=None)
    prices = Prices(turns=options.pop("turns"), cached=options.pop("cached_price"))
    open_pruner = partial(ContextPruner, **options, prices=prices)
    pruned = pruners.prune(request.messages, request.task, scope=scope, open_pruner=open_pruner)
    return PruneAnswer(messages=pruned.messages, report=pruned.report.to_json())
