"""A language model that is asked for an object of a known form, and told what was wrong until it gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from context_agent._support.http import Refusal
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies import refusals
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.factory import load_policy
from context_agent.policies.replies import Reply, read_reply
from context_agent.synth_data.instructions import PROMPTS, Part, Prompts
from context_agent.synth_data.ledger import Cap, Ledger, Prices
from context_agent.synth_data.paid import PaidEndpoint, ReplyFile
from context_agent.synth_data.stages import Unfit
from context_agent.synth_data.structured import read_object

Form = TypeVar("Form", bound=BaseModel)
Message = dict[str, Any]

TRIES = 3
"""Replies that are asked for one object (the published pipeline's value)."""
REPLY_TOKENS = 4_096
"""Tokens of a reply unless the options say otherwise; a model that thinks first needs them."""
_SHOWN = 4_000
"""Characters of a reply that was no good which are shown to the model again."""

AGAIN = "That cannot be used: {problem}. Reply with the corrected JSON object alone."


class Wrong(Exception):
    """Raised by a check: what is wrong with an object, for the model to mend; `reason` is what reports count."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(reason, problem)
        self.reason = reason
        self.problem = problem


Check = Callable[[Form], None]
"""Passes, or raises `Wrong`."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model writes, what it costs, and how patiently it is asked.

    `asked` are options of the chat policy by name (`model`, `base_url`, `temperature` ...); the environment's stand in
    for those not given. Prices are for a million tokens. `prompts` is a folder whose files go before those that ship.
    """

    asked: dict[str, Any] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)
    cap: Cap = field(default_factory=Cap)
    prompts: Path | None = None
    backoff: float = 0.5


class Model:
    """A chat model behind a cache and a cap. Use it with `with`, in one event loop."""

    def __init__(
        self,
        options: ModelOptions,
        replies: Path,
        *,
        concurrency: int = 8,
        seed: int = 0,
        known: Mapping[str, frozenset[str]] = PROMPTS,
    ) -> None:
        """`replies` is the file that keeps all answers, `known` are the prompts with their placeholders.

        Nothing is sent yet. Raises `ConfigError`, `DataError`.
        """
        given = {"max_tokens": REPLY_TOKENS, **{k: v for k, v in options.asked.items() if v is not None}}
        policy = load_policy("chat", **given)
        if not isinstance(policy, ChatPolicy):
            raise ConfigError(f"a chat model is needed; got {policy!r}")
        self.prompts = Prompts(options.prompts, known)
        self.ledger = Ledger(options.prices, options.cap)
        self.seed = seed
        self._replies = ReplyFile(replies)
        self.policy = policy
        """Decides in the harness's episodes; its calls are kept, counted and capped as all others."""
        # A call may wait long for room under the cap: the time that an action takes bounds nothing here.
        policy.deadline = None
        policy.endpoint = PaidEndpoint(
            policy.endpoint.base_url,
            ledger=self.ledger,
            replies=self._replies,
            api_key_env=policy.endpoint.api_key_env,
            timeout=policy.endpoint.timeout,
            retries=policy.endpoint.retries,
            backoff=options.backoff,
            concurrency=concurrency,
        )
        self._renamed = self._unseeded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replies.close()

    @property
    def settings(self) -> dict[str, Any]:
        """What a stage's journal must agree on."""
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
        parts: Sequence[Part],
        form: type[Form],
        check: Check[Form] | None = None,
        **values: object,
    ) -> Form:
        """The object that the model gives for a prompt and its data, once it has the form and passes the check.

        Each further try tells the model what was wrong with the last reply. Raises `Unfit` after the last one, and
        what `PaidEndpoint.post` raises.
        """
        opening: list[Message] = list(self.prompts.messages(prompt, parts, **values))
        asked, wrong = opening, Wrong("no reply", "")
        for number in range(TRIES):
            reply = await self._reply(asked, number)
            try:
                return _read(reply, form, check)
            except Wrong as found:
                wrong = found
            spoken = {"role": "assistant", "content": reply.text[:_SHOWN] or "(no reply)"}
            asked = [*opening, spoken, {"role": "user", "content": AGAIN.format(problem=wrong.problem)}]
        raise Unfit(wrong.reason, f"{wrong.problem} ({TRIES} tries)")

    async def _reply(self, messages: Sequence[Message], number: int) -> Reply:
        """One reply; a field that this server refuses and nobody asked for is left out from then on."""
        while True:
            try:
                reply: Reply = await self.policy.endpoint.post(
                    "/chat/completions", self._body(messages, number), read_reply
                )
            except Refusal as refusal:
                if not self._yields(refusal):
                    raise PolicyError(str(refusal)) from None
            else:
                return reply

    def _body(self, messages: Sequence[Message], number: int) -> dict[str, Any]:
        sampling = self.policy.sampling
        room = sampling.max_tokens or REPLY_TOKENS
        body = {"model": self.policy.model, "messages": list(messages), **sampling.body(room)}
        if not self._unseeded:
            body.setdefault("seed", self.seed + number)
        if self._renamed:
            body[refusals.RENAMED] = body.pop("max_tokens")
        return body

    def _yields(self, refusal: Refusal) -> bool:
        """Whether the request can be mended by what the server refused in it."""
        left_out = {name for name, out in (("max_tokens", self._renamed), ("seed", self._unseeded)) if out}
        unwanted = refusals.to_leave_out(refusal, frozenset(left_out))
        self._renamed |= unwanted == "max_tokens"
        self._unseeded |= unwanted == "seed"
        return unwanted in ("max_tokens", "seed")


def _read(reply: Reply, form: type[Form], check: Check[Form] | None) -> Form:
    """The reply's object. Raises `Wrong`."""
    if reply.finish == "length":
        raise Wrong("reply cut off", "the reply was longer than allowed and was cut off; be brief")
    try:
        made = form.model_validate(read_object(reply.text))
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        raise Wrong("reply of another form", said) from None
    except ValueError as error:
        raise Wrong("reply without JSON", str(error)) from None
    if check is not None:
        check(made)
    return made
