"""Bodies of requests whose conversation is pruned. Only the texts that changed differ from the client's body."""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

from context_agent._support.bound_thinking import DROP_THINKING_BETA, fields_to_drop_thinking
from context_agent._support.http_body import Allowance, ResponseTooLarge
from context_agent._support.json_text import differences, with_values
from context_agent.integrations.conversation_pruners import (
    DAY,
    HOUR,
    MAX_CONVERSATIONS,
    MINUTE,
    ConversationPruners,
    PrefixCaching,
)
from context_agent.integrations.server.compressed_bodies import UndecodableBody, decoded_body
from context_agent.integrations.server.conversation_paths import COHERE_HISTORY
from context_agent.integrations.server.logs import log
from context_agent.integrations.server.savings import PrunedRequest
from context_agent.pruning.bundles import Bundle, cohere_request
from context_agent.pruning.messages import Transcript
from context_agent.pruning.report import PruneReport

_TTL = re.compile(r"(\d{1,3})([mh])")
"""The lifetime of cache entries in a request to OpenAI's API, such as `30m`."""
SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction", "preamble")
"""Fields outside the conversation that contain the system text."""
SHOWN_WARNINGS, WARNING_LENGTH = 3, 200
"""Warnings in the header, and characters of each."""
NOT_PRUNED = (
    "the model binds its thinking to the conversation, so nothing is pruned. With --drop-thinking, the API drops "
    "thinking instead."
)

STORED_CONVERSATIONS = ("previous_response_id", "conversation", "previous_interaction_id", "thread")
"""Fields that name a conversation which the model server keeps. Then the request has only what is new."""
KEPT_BY_SERVER = (
    "the server keeps the conversation that {!r} names, and the request has results without their calls, which stay "
    "whole. Send the whole conversation to have it pruned."
)


@dataclass(frozen=True, slots=True)
class PrunedBody:
    """A body for the upstream, and the report on it. The counts may be logged. The warnings may quote the body.

    Attributes:
        body: The body.
        counts: The numbers of the report.
        warnings: The warnings of the report.
        request: What counts in the report of the savings.
        drops_thinking: True if the body was given the permission to drop thinking.
        betas: The features of Anthropic's API that the header has to name for it.
    """

    body: bytes
    counts: Mapping[str, Any]
    warnings: Sequence[str] = ()
    request: PrunedRequest | None = None
    drops_thinking: bool = False
    betas: str = ""

    @classmethod
    def of(cls, body: bytes, report: PruneReport, request: PrunedRequest) -> PrunedBody:
        """Return the body with its report. The texts of removed passages are left out of the report."""
        names = ("tokens_before", "tokens_after", "limit", "freed", "cached_lost")
        counts = {name: getattr(report, name) for name in names}
        passages = {"removed": len(report.removed), "restored": len(report.restored)}
        shown = {"outcome": report.outcome, **passages, **counts}
        return cls(body, shown, report.warnings, request)

    @property
    def notes(self) -> dict[str, Any]:
        """What the log says. The texts of the warnings may quote the body, so only their number counts."""
        return {**self.counts, **({"warnings": n} if (n := len(self.warnings)) else {})}

    @property
    def header(self) -> bytes:
        """The report as JSON in ASCII."""
        warnings = [warning[:WARNING_LENGTH] for warning in self.warnings[:SHOWN_WARNINGS]]
        report = {**self.counts, **({"warnings": warnings} if warnings else {})}
        return json.dumps(report, separators=(",", ":")).encode()


class BodyPruner:
    """A pruner of request bodies. Threads may share it."""

    def __init__(self, pruners: ConversationPruners, max_bytes: int, *, drop_thinking: bool = False) -> None:
        """Make a pruner of bodies.

        If a body would take more than eight times `max_bytes` of memory when decoded, it is not decoded. With
        `drop_thinking`, a conversation is pruned even if the server must then drop thinking.
        """
        self._pruners, self._max_bytes, self.drop_thinking = pruners, max_bytes, drop_thinking
        self._refused: OrderedDict[int, None] = OrderedDict()

    def prune(
        self,
        body: bytes,
        name: str,
        caller: bytes,
        *,
        encodings: str = "",
        hint: str = "",
        api: str = "",
        bedrock: str = "",
    ) -> PrunedBody:
        """Return the body with its conversation pruned.

        Args:
            body: The body that the client sent.
            name: The field that holds the conversation, with dots between the fields that lead to it.
            caller: Bytes that identify the caller, so that no caller influences the conversation of another.
            encodings: The value of `Content-Encoding`. A pruned body is returned without an encoding.
            hint: The information that the agent is looking for.
            api: `anthropic` or `openai`, if the prefix cache is that of one of these APIs.
            bedrock: The operation of Bedrock, if the request is for Bedrock.

        Returns:
            The pruned body. Only the texts that changed differ from the client's body. If nothing is removed, or
            if there is no conversation, the result has the client's body itself.
        """
        try:
            return self._pruned(body, name, caller, encodings, hint, api=api, bedrock=bedrock)
        except Exception as error:  # noqa: BLE001 (a proxy that cannot prune must still relay)
            log("unpruned", logging.ERROR, error=error)
            return PrunedBody(body, {"outcome": "failed"})

    def note_refusal(self, conversation: int) -> None:
        """Note that the model server refused thinking in a conversation, because a prune changed what came before.

        The server may drop this thinking in all later requests. Without `drop_thinking`, nothing more is pruned, so it
        drops only what the model thought after earlier prunes.
        """
        self._refused[conversation] = None
        if len(self._refused) > MAX_CONVERSATIONS:
            self._refused.popitem(last=False)
        if not self.drop_thinking:
            self._pruners.stop(conversation, NOT_PRUNED)

    def _pruned(
        self, body: bytes, name: str, caller: bytes, encodings: str, hint: str, *, api: str, bedrock: str
    ) -> PrunedBody:
        try:
            plain = decoded_body(body, encodings, self._max_bytes)
        except UndecodableBody as error:
            return PrunedBody(body, {"outcome": "no conversation"}, (str(error),))
        request = self._decoded(plain)
        bundle = None if request is None else _conversation(request, name)
        if request is None or bundle is None:
            return PrunedBody(body, {"outcome": "no conversation"})
        holder: Any = reduce(lambda value, key: value[key], bundle.path[:-1], cast("Any", request))
        system = Transcript([_system_message(holder.get(field)) for field in SYSTEM_FIELDS]).contents
        scope = "\0".join(content.text for content in system).encode(errors="surrogatepass")
        caching = PrefixCaching.of_anthropic(_cache_ttl(plain)) if api == "anthropic" else _openai_caching(request, api)
        pruned = self._pruners.prune(bundle.messages, hint=hint, caching=caching, scope=caller + b"\0" + scope)
        pruned = replace(pruned, report=_with_stored_conversation(pruned.report, request, bundle.messages))
        record = PrunedRequest.of(pruned.conversation, request.get("model"), pruned.report)
        record = replace(record, is_bound=NOT_PRUNED in pruned.report.warnings)
        is_refused = pruned.conversation in self._refused
        permission = fields_to_drop_thinking(request, bedrock=bedrock) if is_refused else {}
        changes = dict(differences(request, bundle.with_messages(pruned.messages)))
        if not changes and not permission:
            return PrunedBody.of(body, pruned.report, record)
        encoding = json.detect_encoding(plain)
        text = plain.decode(encoding, "surrogatepass")
        for field, value in permission.items():
            if field in request:
                changes[field,] = value
            else:
                text = text.replace("{", f"{{{json.dumps(field)}: {json.dumps(value)}, ", 1)
        changed = PrunedBody.of(with_values(text, changes).encode(encoding, "surrogatepass"), pruned.report, record)
        betas = DROP_THINKING_BETA if permission and not bedrock else ""
        return replace(changed, drops_thinking=bool(permission), betas=betas)

    def _decoded(self, body: bytes) -> dict[str, Any] | None:
        """Return the body's JSON object. If it is not an object, or is too costly to decode, return None."""
        try:
            Allowance(self._max_bytes).parse(body)
            value = json.loads(body)
        except (ResponseTooLarge, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def _conversation(request: dict[str, Any], name: str) -> Bundle | None:
    """Return the conversation in a request. If the field `name` has none, return None."""
    if name == COHERE_HISTORY:
        return cohere_request(request)
    path = tuple(name.split("."))
    messages: Any = request
    for key in path:
        messages = messages.get(key) if isinstance(messages, dict) else None
    return Bundle(request, path, messages) if isinstance(messages, list) else None


def _with_stored_conversation(report: PruneReport, request: Mapping[str, Any], messages: Sequence[Any]) -> PruneReport:
    """Return the report with one reason for all results whose calls are in a conversation that the server keeps."""
    name = next((name for name in STORED_CONVERSATIONS if request.get(name)), "")
    faults = Transcript(messages).faults if name else ()
    if not faults:
        return report
    warnings = (KEPT_BY_SERVER.format(name), *(warning for warning in report.warnings if warning not in faults))
    outcome = report.outcome if report.tokens_original else "passed through"
    return replace(report, outcome=outcome, warnings=warnings)


def _cache_ttl(body: bytes) -> str:
    """Return the lifetime of cache entries that the body's `cache_control` asks for.

    If there is none, return an empty string. Inside a JSON string the quotes would be escaped, so no text can imitate a
    `cache_control`.
    """
    if not re.search(rb'"cache_control"\s*:\s*\{', body):
        return ""
    return "1h" if re.search(rb'"ttl"\s*:\s*"1h"', body) else "5m"


def _openai_caching(request: dict[str, Any], api: str) -> PrefixCaching | None:
    """Return the caching of a request whose fields are those of OpenAI's API.

    If nothing says how long an unused entry of the cache lives, return None. Otherwise, return the longest lifetime.
    `prompt_cache_options.ttl` is the shortest time that the server keeps an entry, and `prompt_cache_retention` is the
    longest. OpenAI itself keeps an entry for up to 24 hours, unless the request asks for less. No lifetime is longer,
    because the proxy remembers the conversation for that time.
    """
    options = request.get("prompt_cache_options")
    ttl = _TTL.fullmatch(str(options.get("ttl"))) if isinstance(options, dict) else None
    least = int(ttl[1]) * (HOUR if ttl[2] == "h" else MINUTE) if ttl else 0.0
    retention = request.get("prompt_cache_retention") or ("24h" if api == "openai" else None)
    longest = min(DAY, max(least, DAY if retention == "24h" else 0.0))
    return PrefixCaching(longest) if longest else None


def _system_message(value: Any) -> dict[str, Any]:
    """Return the system text of a request as a message. In a request to Gemini, it is a content with parts."""
    if isinstance(value, dict) and isinstance(value.get("parts"), list):
        return {"role": "system", "parts": value["parts"]}
    return {"role": "system", "content": value}
