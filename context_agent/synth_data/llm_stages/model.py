"""A chat model that replies with JSON objects of a given form.

If a reply is invalid, the model gets a description of the problem and replies again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from context_agent._support.http_body import Events
from context_agent._support.http_client import Refusal
from context_agent._support.validation import explain
from context_agent._support.worker_pool import CallParent
from context_agent.errors import ConfigError, PolicyError, ServerError
from context_agent.policies import load_policy
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.refusals import MAX_COMPLETION_TOKENS, field_to_omit
from context_agent.policies.chat.replies import Reply, read_reply
from context_agent.synth_data.llm_stages.json_reply import read_object
from context_agent.synth_data.llm_stages.ledger import CostLedger, SpendingCap, TokenPrices
from context_agent.synth_data.llm_stages.reply_cache import CachedEndpoint, RemoteEndpoint, ReplyCache
from context_agent.synth_data.llm_stages.templates import PROMPTS, PromptPart, PromptTemplates
from context_agent.synth_data.stages import DropRow

FormT = TypeVar("FormT", bound=BaseModel)


Message = dict[str, Any]


ATTEMPTS = 3
"""The number of replies that the model may give for one object. The value comes from the published pipeline."""


REPLY_TOKENS = 4_096
"""The default limit of a reply, in tokens. Reasoning models need this many."""


_REPEATED_CHARACTERS = 4_000
"""The number of characters of an invalid reply that the model is shown again."""


RETRY_MESSAGE = "That cannot be used: {problem}. Reply with the corrected JSON object alone."


class InvalidReply(Exception):
    """An error that a check raises for an unusable reply.

    Attributes:
        reason: A short, stable reason. Reports count the replies with each reason.
        problem: A description of the problem, which the model gets.
    """

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(reason, problem)
        self.reason = reason
        self.problem = problem


Check = Callable[[FormT], None]
"""A function that checks an object. If the object is invalid, it raises `InvalidReply`."""


@dataclass(frozen=True, slots=True)
class StructuredModelOptions:
    """The model, its prices, the spending cap and the prompts.

    Attributes:
        chat_options: Options of the chat policy by name, such as `model`, `base_url` or `temperature`. Environment
            variables set the missing options.
        prices: The prices of a million tokens.
        cap: The spending cap.
        prompts: A folder with files that replace the shipped prompts.
        backoff: Seconds before the first retry.
    """

    chat_options: dict[str, Any] = field(default_factory=dict)
    prices: TokenPrices = field(default_factory=TokenPrices)
    cap: SpendingCap = field(default_factory=SpendingCap)
    prompts: Path | None = None
    backoff: float = 0.5


class StructuredModel:
    """A chat model with a reply cache and a spending cap. It is a context manager, and is used in one event loop."""

    def __init__(
        self,
        options: StructuredModelOptions,
        replies: Path | CallParent,
        *,
        concurrency: int = 8,
        seed: int = 0,
        placeholders: Mapping[str, frozenset[str]] = PROMPTS,
    ) -> None:
        """Open the reply cache. No request is sent yet.

        Args:
            options: The model, its prices, the spending cap and the prompts.
            replies: The file of the reply cache. In a worker process, a function that sends requests to the process
                that has the cache.
            concurrency: The largest number of requests at once.
            seed: The seed of the model's sampling.
            placeholders: The prompts by name, with the placeholders that each may use.

        Raises:
            ConfigError: If an option is invalid.
            DataError: If the reply cache is damaged or in use.
        """
        chat_options = {"max_tokens": REPLY_TOKENS, **{k: v for k, v in options.chat_options.items() if v is not None}}
        policy = load_policy("chat", **chat_options)
        if not isinstance(policy, ChatPolicy):
            raise ConfigError(f"the stages need a chat model; got the policy {policy.name}. Pass --model.")
        self.prompts = PromptTemplates(options.prompts, placeholders)
        self.ledger = CostLedger(options.prices, options.cap)
        self.seed = seed
        self._replies: ReplyCache | None = None
        self.policy = policy
        """The policy of explorers. Its calls are cached, counted and capped like all others."""
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
        self._omitted: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._replies is not None:
            self._replies.close()

    def answer(self, request: tuple[str, Mapping[str, Any]]) -> Future[Events]:
        """Return the reply to a request of a worker process, as `CachedEndpoint.answer` does."""
        assert isinstance(self.policy.endpoint, CachedEndpoint)
        return self.policy.endpoint.answer(request)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a run must share with the journal of the run that it resumes."""
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
        """Return the model's reply as an object that has the form and passes the check.

        After an invalid reply, the model gets a description of the problem and replies again. Errors of
        `CachedEndpoint.post` pass through.

        Args:
            prompt: The name of the prompt.
            parts: The data of the prompt.
            form: The form of the reply.
            check: A further check of the reply.
            values: The values of the prompt's placeholders.

        Raises:
            DropRow: If the last reply is also invalid.
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
        """Return one reply.

        If the server refuses a field that the user did not set, omit that field from then on.
        """
        while True:
            # Another row may omit a field while this request is on its way.
            omitted = self._omitted
            try:
                reply: Reply = await self.policy.endpoint.post(
                    "/chat/completions", self._body(messages, number, omitted), read_reply
                )
            except Refusal as refusal:
                refused = field_to_omit(refusal, omitted)
                if refused not in ("max_tokens", "seed"):
                    raise PolicyError(str(refusal)) from None
                self._omitted |= {refused}
            except ServerError as error:
                raise PolicyError(str(error)) from None
            else:
                return reply

    def _body(self, messages: Sequence[Message], number: int, omitted: frozenset[str]) -> dict[str, Any]:
        sampling = self.policy.sampling
        room = sampling.max_tokens or REPLY_TOKENS
        body = {"model": self.policy.model, "messages": list(messages), **sampling.body(room)}
        if "seed" not in omitted:
            body.setdefault("seed", self.seed + number)
        if "max_tokens" in omitted:
            body[MAX_COMPLETION_TOKENS] = body.pop("max_tokens")
        return body


def _parse_reply(reply: Reply, form: type[FormT], check: Check[FormT] | None) -> FormT:
    """Return the object in the reply.

    Raises:
        InvalidReply: If the reply has no valid object, or if the object fails the check.
    """
    if reply.finish == "length":
        raise InvalidReply("the reply was cut off", "the reply was longer than allowed and was cut off. Be brief.")
    try:
        value = form.model_validate(read_object(reply.text))
    except ValidationError as error:
        raise InvalidReply("the reply has wrong fields", explain(error, limit=5)) from None
    except ValueError as error:
        raise InvalidReply("the reply has no JSON", str(error)) from None
    if check is not None:
        check(value)
    return value
