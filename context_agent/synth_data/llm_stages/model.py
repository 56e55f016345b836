"""A chat model that replies with JSON objects of a given form.

If a reply is invalid, the model gets the problem in words and replies again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from context_agent._support.http import Refusal
from context_agent._support.http_body import Events
from context_agent._support.validation import explain
from context_agent._support.worker_pool import CallParent
from context_agent.errors import ConfigError, PolicyError, ServerError
from context_agent.policies import load_policy
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.replies import MAX_COMPLETION_TOKENS, Reply, field_to_omit, read_reply
from context_agent.synth_data.llm_stages.json_reply import read_object
from context_agent.synth_data.llm_stages.ledger import CostLedger, SpendingCap, TokenPrices
from context_agent.synth_data.llm_stages.reply_cache import CachedEndpoint, RemoteEndpoint, ReplyCache
from context_agent.synth_data.llm_stages.templates import PROMPTS, PromptPart, PromptTemplates
from context_agent.synth_data.stages import DropRow

FormT = TypeVar("FormT", bound=BaseModel)


Message = dict[str, Any]


ATTEMPTS = 3
"""Replies that the model may give for one object (the value of the published pipeline)."""


REPLY_TOKENS = 4_096
"""Default for the tokens of a reply; reasoning models need this many."""


_REPEATED_CHARACTERS = 4_000
"""Characters of an invalid reply that the model is shown again."""


RETRY_MESSAGE = "That cannot be used: {problem}. Reply with the corrected JSON object alone."


class InvalidReply(Exception):
    """Raised by a check: `problem` tells the model what to correct, `reason` is what reports count."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(reason, problem)
        self.reason = reason
        self.problem = problem


Check = Callable[[FormT], None]
"""Returns for a valid object, raises `InvalidReply` otherwise."""


@dataclass(frozen=True, slots=True)
class StructuredModelOptions:
    """The model, its prices, the spending cap and the prompts.

    `chat_options` are options of the chat policy by name (`model`, `base_url`, `temperature` ...); environment
    variables set the missing ones. Prices are for a million tokens. Files in the folder `prompts` replace the shipped
    ones. `backoff` is the wait before the first retry, in seconds.
    """

    chat_options: dict[str, Any] = field(default_factory=dict)
    prices: TokenPrices = field(default_factory=TokenPrices)
    cap: SpendingCap = field(default_factory=SpendingCap)
    prompts: Path | None = None
    backoff: float = 0.5


class StructuredModel:
    """A chat model with a reply cache and a spending cap. A context manager, for use in one event loop."""

    def __init__(
        self,
        options: StructuredModelOptions,
        replies: Path | CallParent,
        *,
        concurrency: int = 8,
        seed: int = 0,
        placeholders: Mapping[str, frozenset[str]] = PROMPTS,
    ) -> None:
        """`replies` is the file of the reply cache or, in a worker process, sends requests to the process that has it.

        `placeholders` are those of `PromptTemplates`. Sends nothing.

        Raises `ConfigError` for invalid options, `DataError` for a cache that is damaged or in use.
        """
        chat_options = {"max_tokens": REPLY_TOKENS, **{k: v for k, v in options.chat_options.items() if v is not None}}
        policy = load_policy("chat", **chat_options)
        if not isinstance(policy, ChatPolicy):
            raise ConfigError(f"the stages need a chat model; got {policy!r}")
        self.prompts = PromptTemplates(options.prompts, placeholders)
        self.ledger = CostLedger(options.prices, options.cap)
        self.seed = seed
        self._replies: ReplyCache | None = None
        self.policy = policy
        """The policy of explorers; its calls are cached, counted and capped as all others."""
        # A call may wait long for room under the cap, so actions have no deadline.
        policy.deadline = None
        rules: dict[str, Any] = {
            "api_key_env": policy.endpoint.api_key_env,
            "timeout": policy.endpoint.timeout,
            "retries": policy.endpoint.retries,
            "backoff": options.backoff,
            "concurrency": concurrency,
        }
        url = policy.endpoint.base_url
        if isinstance(replies, Path):
            self._replies = ReplyCache(replies)
            policy.endpoint = CachedEndpoint(url, ledger=self.ledger, replies=self._replies, **rules)
        else:
            policy.endpoint = RemoteEndpoint(url, call=replies, **rules)
        self._renamed = self._unseeded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._replies is not None:
            self._replies.close()

    def answer(self, request: tuple[str, Mapping[str, Any]]) -> Future[Events]:
        """Return the reply to a request of a worker process; see `CachedEndpoint.answer`."""
        assert isinstance(self.policy.endpoint, CachedEndpoint)
        return self.policy.endpoint.answer(request)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a stage's journal must share."""
        sampling = self.policy.sampling
        return {
            "model": self.policy.model,
            "seed": self.seed,
            "prompts": self.prompts.digest,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "reasoning_effort": sampling.reasoning_effort,
        }

    async def ask(
        self,
        prompt: str,
        parts: Sequence[PromptPart],
        form: type[FormT],
        check: Check[FormT] | None = None,
        **values: object,
    ) -> FormT:
        """Return the object that the model replies with, once it has the form and passes the check.

        After an invalid reply the model is told the problem and asked again. Raises `DropRow` after the last attempt,
        and what `CachedEndpoint.post` raises.
        """
        opening: list[Message] = list(self.prompts.messages(prompt, parts, **values))
        messages, invalid = opening, InvalidReply("no reply", "")
        for number in range(ATTEMPTS):
            reply = await self._reply(messages, number)
            try:
                return _parse_reply(reply, form, check)
            except InvalidReply as error:
                invalid = error
            spoken = {"role": "assistant", "content": reply.text[:_REPEATED_CHARACTERS] or "(no reply)"}
            messages = [*opening, spoken, {"role": "user", "content": RETRY_MESSAGE.format(problem=invalid.problem)}]
        raise DropRow(invalid.reason, f"{invalid.problem} ({ATTEMPTS} attempts)")

    async def _reply(self, messages: Sequence[Message], number: int) -> Reply:
        """Return one reply. If the server refuses a field that the user did not set, omit that field from then on."""
        while True:
            try:
                reply: Reply = await self.policy.endpoint.post(
                    "/chat/completions", self._body(messages, number), read_reply
                )
            except Refusal as refusal:
                if not self._omit_refused(refusal):
                    raise PolicyError(str(refusal)) from None
            except ServerError as error:
                raise PolicyError(str(error)) from None
            else:
                return reply

    def _body(self, messages: Sequence[Message], number: int) -> dict[str, Any]:
        sampling = self.policy.sampling
        room = sampling.max_tokens or REPLY_TOKENS
        body = {"model": self.policy.model, "messages": list(messages), **sampling.body(room)}
        if not self._unseeded:
            body.setdefault("seed", self.seed + number)
        if self._renamed:
            body[MAX_COMPLETION_TOKENS] = body.pop("max_tokens")
        return body

    def _omit_refused(self, refusal: Refusal) -> bool:
        """Omit or rename the field that the server refused. Return False if the refusal has another cause."""
        left_out = {name for name, out in (("max_tokens", self._renamed), ("seed", self._unseeded)) if out}
        unwanted = field_to_omit(refusal, frozenset(left_out))
        self._renamed |= unwanted == "max_tokens"
        self._unseeded |= unwanted == "seed"
        return unwanted in ("max_tokens", "seed")


def _parse_reply(reply: Reply, form: type[FormT], check: Check[FormT] | None) -> FormT:
    """Return the reply's object. Raises `InvalidReply`."""
    if reply.finish == "length":
        raise InvalidReply("reply cut off", "the reply was longer than allowed and was cut off; be brief")
    try:
        value = form.model_validate(read_object(reply.text))
    except ValidationError as error:
        raise InvalidReply("reply with wrong fields", explain(error, limit=5)) from None
    except ValueError as error:
        raise InvalidReply("reply without JSON", str(error)) from None
    if check is not None:
        check(value)
    return value
