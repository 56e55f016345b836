"""ChatPolicy: any language model behind `/v1/chat/completions` decides.

    policy = ChatPolicy("openai/gpt-oss-20b", base_url="http://localhost:8000/v1")
    SearchAgent(corpus, policy).search("Which award did the director of Rope receive?")

Messages are built from the view alone (`policies.messages`). What a server or a model does wrong ends an episode at
worst, with a stated reason and the best ranking that the view defends. docs/chat.md says what was run against what.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from context_agent._support.http import API_KEY_ENV, BASE_URL, Endpoint, Refusal, policy_address
from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.profile import Profile, parse_ranking
from context_agent.harness.tools import schemas
from context_agent.policies.chat.messages import Message, ToolFormat, assistant, messages, opening_text
from context_agent.policies.chat.replies import (
    MAX_COMPLETION_TOKENS,
    REASONING_FIELDS,
    Reply,
    context_message,
    field_to_leave_out,
    is_context_overflow,
    is_unknown_model,
    listed_models,
    read_reply,
    rejected_key_message,
    unknown_model_message,
)
from context_agent.policies.chat.text_tools import CALL_TAG, LONGEST_REPLY, parse_calls
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action

LEAST_ROOM = 256
"""Tokens of output asked for at least, where the budget allows them, however full the server's own count says it is."""
OWN_FIELDS = frozenset({"messages", "model", "stream", "tools"})

NUDGE = (
    "Your reply had neither a tool call nor a list of documents. Call a tool, or finish with the list, best first:\n"
    "<Document id=ID><Justification>why it is needed</Justification></Document>"
)
TOO_LONG = f"Your reply was longer than {LONGEST_REPLY:,} characters, so no tool call in it was read. Be brief."


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is sampled. None leaves it to the server, which knows the model's own defaults."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens must be positive; got {self.max_tokens}")
        if refused := OWN_FIELDS & set(self.extra):
            raise ConfigError(f"extra_body may not set {', '.join(sorted(refused))}: the policy does")

    def body(self, room: int) -> dict[str, Any]:
        """The request's fields; `room` is how many tokens the reply may have."""
        asked = {"temperature": self.temperature, "top_p": self.top_p, "reasoning_effort": self.reasoning_effort}
        given = {name: value for name, value in asked.items() if value is not None}
        return {"max_tokens": max(1, min(room, self.max_tokens or room)), **given, **self.extra}


class ChatPolicy:
    """A language model on an OpenAI-compatible server. Safe to share between threads, event loops and episodes."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = BASE_URL,
        api_key_env: str | None = API_KEY_ENV,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        reasoning_effort: str | None = None,
        reasoning: Literal["keep", "drop"] = "keep",
        tools: ToolFormat = "native",
        stream: bool = False,
        seeded: bool = True,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
        deadline: float | None = 900.0,
        retries: int = 6,
        backoff: float = 0.5,
        concurrency: int = 32,
        counter: TokenCounter | None = None,
    ) -> None:
        """See docs/chat.md for each option. Times are in seconds; nothing is sent yet. Raises `ConfigError`.

        `deadline` bounds one action with all its retries and waits. `counter` is the model's tokenizer where you have
        it; without one tokens are counted as o200k_harmony.
        """
        if not model.strip():
            raise ConfigError("name the model, as the server's /models lists it")
        if tools not in ("native", "text") or reasoning not in ("keep", "drop"):
            raise ConfigError(f"tools is native or text, reasoning keep or drop; got {tools!r} and {reasoning!r}")
        if deadline is not None and deadline <= 0:
            raise ConfigError(f"deadline must be positive; got {deadline}")
        self.model = model
        self.endpoint = Endpoint(
            policy_address(base_url),
            api_key_env=api_key_env,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            concurrency=concurrency,
        )
        self.sampling = Sampling(temperature, top_p, max_tokens, reasoning_effort, dict(extra_body or {}))
        self.tool_format: ToolFormat = tools
        self.keeps_reasoning = reasoning == "keep"
        self.deadline = deadline
        self._stream = stream
        self._seeded = seeded
        self._counter = counter
        self._left_out: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"ChatPolicy({self.model!r}, base_url={self.endpoint.base_url!r}, tools={self.tool_format!r})"

    @property
    def name(self) -> str:
        """`chat@<model>`."""
        return f"chat@{self.model}"

    @property
    def counter(self) -> TokenCounter | None:
        """The counter given."""
        return self._counter

    def instructions(self, profile: Profile) -> str:
        """The prompt and the declared tools: what the server is sent ahead of the question.

        The few tokens that its chat template adds around them are not known; `ChatActor` learns them from `usage`.
        """
        return opening_text(profile, self.tool_format)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ChatActor:
        """An actor for one episode; the seed is sent along."""
        return ChatActor(self, profile, seed)

    async def aclose(self) -> None:
        """Closes the running event loop's connections now; otherwise they close when that loop ends."""
        await self.endpoint.aclose()

    def messages(self, view: View, profile: Profile) -> list[Message]:
        """The view as this policy sends it."""
        fields = [name for name in REASONING_FIELDS if name not in self._left_out]
        return messages(view, profile, tool_format=self.tool_format, fields=fields)

    async def ask(
        self,
        asked: Sequence[Message],
        view: View,
        profile: Profile,
        *,
        room: int,
        seed: int,
        until: float = math.inf,
    ) -> tuple[Reply, tuple[str, ...]]:
        """One reply, and the fields left out for it because this server refuses them. Raises `PolicyError`."""
        while True:
            body = self._body(asked, profile, room, seed)
            try:
                reply = await self.endpoint.post(
                    "/chat/completions", body, partial(read_reply, request=body), until=until
                )
            except Refusal as refusal:
                unwanted = field_to_leave_out(refusal, self._left_out)
                if unwanted is None:
                    raise await self._explained(refusal, view.budget.window, until) from None
                self._left_out |= {unwanted}
                asked = [{key: value for key, value in item.items() if key != unwanted} for item in asked]
            else:
                return reply, tuple(sorted(self._left_out))

    def _body(self, asked: Sequence[Message], profile: Profile, room: int, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(asked), **self.sampling.body(room)}
        if self.tool_format == "native":
            body["tools"] = [{"type": "function", "function": tool} for tool in schemas(profile)]
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._seeded:
            body.setdefault("seed", seed)
        if "max_tokens" in self._left_out:
            body[MAX_COMPLETION_TOKENS] = body.pop("max_tokens")
        return {key: value for key, value in body.items() if key not in self._left_out}

    async def _explained(self, refusal: Refusal, window: int, until: float) -> PolicyError:
        where = self.endpoint.base_url
        if is_context_overflow(refusal):
            return PolicyError(f"{where}: {context_message(refusal, window)}")
        if refusal.status in (401, 403) and not is_unknown_model(refusal):
            return PolicyError(f"{where}: {rejected_key_message(refusal, self.endpoint.api_key_env)}")
        if is_unknown_model(refusal):
            return await self._without_model(refusal, until)
        return refusal

    async def _without_model(self, refusal: Refusal, until: float) -> PolicyError:
        where = self.endpoint.base_url
        try:
            known = list(listed_models(await self.endpoint.get("/models", until=until)))
        except PolicyError:
            return PolicyError(f"{refusal}. Nor does {where}/models answer: is that the API's address?")
        return PolicyError(f"{where}: {unknown_model_message(self.model, known)}. The server said: {refusal.message}")


class ChatActor:
    """The decisions of one episode. Keeps no messages: they are built from each view anew."""

    def __init__(self, policy: ChatPolicy, profile: Profile, seed: int) -> None:
        self._policy = policy
        self._profile = profile
        self._seed = seed
        self._nudged = False
        self._measured = (1, 0)
        """Tokens of the last view, as counted here, and of its prompt, as the server counted it."""

    async def act(self, view: View) -> Action:
        """The model's next action. Raises `PolicyError` when the server cannot be made to answer in time."""
        deadline = self._policy.deadline
        try:
            async with asyncio.timeout(deadline) as scope:
                return await self._act(view, scope.when() or math.inf)
        except TimeoutError:
            where = self._policy.endpoint.base_url
            raise PolicyError(f"{where}: no action within the deadline of {deadline:g} s") from None

    async def _act(self, view: View, until: float) -> Action:
        asked = self._policy.messages(view, self._profile)
        room = self._room(view)
        action = await self._ask(asked, view, room, until)
        left = room - (action.tokens or 0)
        if self._nudged or not _aimless(action) or left < min(LEAST_ROOM, room):
            return action
        self._nudged = True
        spoken = assistant(action, [], action.text or "(no reply)")
        words = TOO_LONG if len(action.text) > LONGEST_REPLY else NUDGE
        again = await self._ask([*asked, spoken, {"role": "user", "content": words}], view, left, until)
        discarded = {"text": action.text, "reasoning": action.reasoning, "usage": action.extra["usage"]}
        return replace(again, extra={**again.extra, "nudged": discarded})

    async def _ask(self, asked: Sequence[Message], view: View, room: int, until: float) -> Action:
        reply, left_out = await self._policy.ask(asked, view, self._profile, room=room, seed=self._seed, until=until)
        if prompt := reply.usage.get("prompt_tokens"):
            self._measured = (max(1, view.tokens), prompt)
        return self._action(reply, left_out)

    def _room(self, view: View) -> int:
        """Tokens that the reply may have: what the budget says, less what the server counts beyond the view.

        Its chat template adds tokens, and its tokenizer may cut finer; both are estimated from the last prompt.
        """
        counted, prompted = self._measured
        expected = max(view.tokens + prompted - counted, view.tokens * prompted // counted)
        beyond = max(0, expected - view.tokens)
        return max(view.max_output - beyond, min(LEAST_ROOM, view.max_output))

    def _action(self, reply: Reply, left_out: tuple[str, ...]) -> Action:
        text, calls = reply.text, reply.calls
        # Some servers parse calls that no tools were declared for, and some leave declared ones in the text.
        if not calls and (self._policy.tool_format == "text" or CALL_TAG in text):
            text, calls = parse_calls(reply.text)
        # A server's reasoning parser may take a reply without think tags for nothing but thoughts.
        misplaced = not calls and not text and reply.finish == "stop"
        ranking = (parse_ranking(reply.reasoning) or None) if misplaced else None
        tokens = reply.usage.get("completion_tokens") or None
        extra: dict[str, Any] = {"usage": dict(reply.usage), "model": reply.model, "finish_reason": reply.finish}
        if reply.reasoning_field:
            extra["reasoning_field"] = reply.reasoning_field
        if left_out:
            extra["left_out"] = list(left_out)
        reasoning = reply.reasoning
        if reasoning and not self._policy.keeps_reasoning:
            # What is not sent back takes no room in the view; the trace still has it.
            extra["reasoning"], reasoning = reasoning, ""
            thought = reply.usage.get("reasoning_tokens")
            tokens = tokens - thought if tokens and thought and thought < tokens else None
        return Action(calls=calls, ranking=ranking, text=text, reasoning=reasoning, tokens=tokens, extra=extra)


def _aimless(action: Action) -> bool:
    """Whether an action neither calls a tool nor names a document."""
    return not action.calls and not action.ranking and not parse_ranking(action.text)
