"""`ChatPolicy`: any language model behind `/v1/chat/completions` makes the decisions.

    policy = ChatPolicy("openai/gpt-oss-20b", base_url="http://localhost:8000/v1")
    SearchAgent(corpus, policy).search("Which award did the director of Rope receive?")

Messages are built from the view alone (`chat.messages`). If a server or a model fails, the episode ends with the reason
and the best ranking that the view supports. docs/chat.md lists the servers that were tested.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from context_agent._support.arguments import real_number, require_type, whole_number
from context_agent._support.credentials import OPENAI
from context_agent._support.http_client import API_KEY_ENV, BASE_URL, Endpoint, Events, Refusal, policy_address
from context_agent.errors import ConfigError, PolicyError, ServerError
from context_agent.harness.action_text import parse_ranking
from context_agent.harness.profile import Profile
from context_agent.harness.tools import schemas
from context_agent.policies.chat.messages import Message, ToolFormat, assistant, messages, opening_text
from context_agent.policies.chat.refusals import (
    MAX_COMPLETION_TOKENS,
    SERVE_TOOLS,
    context_message,
    exceeds_rate,
    field_to_omit,
    is_context_overflow,
    is_unknown_model,
    output_limit,
    refuses_tools,
    rejected_key_message,
    unknown_model_message,
)
from context_agent.policies.chat.replies import LENGTH_FIELDS, REASONING_FIELDS, Reply, listed_models, read_reply
from context_agent.policies.chat.text_calls import CALL_TAG, LONGEST_REPLY, parse_calls
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action

LEAST_ROOM = 256
"""Minimum number of tokens of output that are requested if the budget allows them, however full the view is by the
server's count.
"""
RESERVED_FIELDS = frozenset({"messages", "model", "stream", "system", "tools"})

NUDGE = (
    "Your reply had neither a tool call nor a list of documents. Call a tool, or finish with the list, best first:\n"
    "<Document id=ID><Justification>why it is needed</Justification></Document>"
)
TOO_LONG = f"Your reply was longer than {LONGEST_REPLY:,} characters, so no tool call in it was read. Be brief."


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings for sampling a reply. If a field is None, the server uses the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            whole_number(self.max_tokens, "max_tokens", least=1)
        for name in ("temperature", "top_p"):
            if (value := getattr(self, name)) is not None and not math.isfinite(real_number(value, name)):
                raise ConfigError(f"{name} must be finite; got {value}")
        require_type(self.reasoning_effort, "reasoning_effort", (str, type(None)), "text, such as 'low'")
        if refused := RESERVED_FIELDS & set(self.extra):
            raise ConfigError(
                f"extra_body must not set {', '.join(sorted(refused))}, because the policy sets them. Remove them."
            )

    @property
    def limits_replies(self) -> bool:
        """True if the user limited the tokens of a reply."""
        return self.max_tokens is not None or not self.extra.keys().isdisjoint(LENGTH_FIELDS)

    def body(self, room: int) -> dict[str, Any]:
        """Return the fields of the request. `room` is the maximum number of tokens that the reply may have."""
        fields = {"temperature": self.temperature, "top_p": self.top_p, "reasoning_effort": self.reasoning_effort}
        fields = {name: value for name, value in fields.items() if value is not None}
        return {"max_tokens": max(1, min(room, self.max_tokens or room)), **fields, **self.extra}


class ChatPolicy:
    """A policy that asks a language model on an OpenAI-compatible server.

    Threads, event loops and episodes may share it.

    The policy sends no request before the first episode. docs/chat.md explains each option. Times are in seconds.

    Args:
        model: The name of the model, as the server's `/models` lists it.
        base_url: The address of the server.
        deadline: The time limit for one action, including all retries and waits.
        counter: The token counter of the model's tokenizer. By default, tokens are counted in o200k_harmony.

    Raises:
        ConfigError: If an option is not valid.

    Example:
        >>> from context_agent import Document, MemoryCorpus, SearchAgent
        >>> from context_agent.policies.chat.scripted_server import ScriptedServer, rank_seen, says
        >>> steps = [says(calls=[("search_corpus", {"query": "light"})]), rank_seen]
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> with ScriptedServer(steps) as server:
        ...     agent = SearchAgent(corpus, ChatPolicy("scripted", base_url=server.url))
        ...     documents = agent.search("When was Orm Skerry Light lit?").documents
        >>> [document.id for document in documents]
        ['light']
    """

    kind = "chat"
    path = "/chat/completions"
    vendor = OPENAI
    reasoning_fields: tuple[str, ...] = REASONING_FIELDS
    """The fields of reasoning that may be sent back."""

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
        require_type(model, "model", str, "the name of a model")
        if not model.strip():
            raise ConfigError("the model's name is empty. Pass a name that the server's /models lists.")
        if tools not in ("native", "text") or reasoning not in ("keep", "drop"):
            raise ConfigError(
                f"tools must be 'native' or 'text', and reasoning must be 'keep' or 'drop'; got tools = {tools!r}, "
                f"reasoning = {reasoning!r}"
            )
        if deadline is not None and real_number(deadline, "deadline") <= 0:
            raise ConfigError(f"deadline must be positive; got {deadline}")
        self.model = model
        self.endpoint = Endpoint(
            policy_address(base_url),
            api_key_env=api_key_env,
            vendor=self.vendor,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            concurrency=concurrency,
        )
        require_type(extra_body, "extra_body", (Mapping, type(None)), "a dictionary of fields")
        self.sampling = Sampling(temperature, top_p, max_tokens, reasoning_effort, dict(extra_body or {}))
        self.tool_format: ToolFormat = tools
        self.keeps_reasoning = reasoning == "keep"
        self.deadline = deadline
        self._stream = stream
        self._seeded = seeded
        self.counter = counter
        self._omitted: frozenset[str] = frozenset()
        self._longest_reply: int | None = None
        """Tokens of the longest reply that the server allows, learned from a refusal."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.endpoint.base_url!r}, tools={self.tool_format!r})"

    @property
    def name(self) -> str:
        """The policy's name: `chat@` and the name of the model."""
        return f"{self.kind}@{self.model}"

    def instructions(self, profile: Profile) -> str:
        """Return the prompt and the declared tools. The server receives them before the question.

        `ChatActor` learns from `usage` how many tokens the chat template adds.
        """
        return opening_text(profile, self.tool_format)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ChatActor:
        """Return an actor for one episode. Each request carries the seed."""
        return ChatActor(self, profile, seed)

    async def aclose(self) -> None:
        """Close the connections of the running event loop now. Without this call, they close when the loop ends."""
        await self.endpoint.aclose()

    def messages(self, view: View, profile: Profile) -> list[Message]:
        """Return the view as the messages that this policy sends."""
        fields = [name for name in self.reasoning_fields if name not in self._omitted]
        return messages(view, profile, tool_format=self.tool_format, fields=fields)

    async def ask(
        self,
        conversation: Sequence[Message],
        profile: Profile | None = None,
        *,
        window: int | None = None,
        room: int,
        seed: int,
        until: float = math.inf,
        show: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> tuple[Reply, tuple[str, ...]]:
        """Ask the server for one reply.

        Return the reply, and the fields that are omitted because the server refuses them.

        Args:
            profile: The profile that declares the tools. If it is None, the model has no tools.
            show: A function that receives each event of a streamed reply as it arrives.
            window: The window of the budget. The error about a context that is too short states it.

        Raises:
            PolicyError: If the server gives no valid reply.
        """
        while True:
            # Another episode may omit a field while this request is on its way.
            omitted = self._omitted
            conversation = [{key: value for key, value in item.items() if key not in omitted} for item in conversation]
            room = min(room, self._longest_reply or room)
            body = self._body(conversation, profile, room, seed, omitted)
            try:
                read = partial(self._read, request=body)
                reply = await self.endpoint.post(self.path, body, read, until=until, show=show)
            except Refusal as refusal:
                if self._adapt(refusal, body):
                    continue
                refused = field_to_omit(refusal, omitted | (self.sampling.extra.keys() - {"max_tokens"}))
                if limit := None if self.sampling.limits_replies else output_limit(refusal, room):
                    self._longest_reply = limit
                elif refused is None:
                    tools = profile is not None and self.tool_format == "native"
                    raise await self._explained(refusal, window, until, tools=tools) from None
                else:
                    self._omitted |= {refused}
            except ServerError as error:
                raise PolicyError(str(error)) from None
            else:
                return reply, tuple(sorted(omitted))

    def _adapt(self, refusal: Refusal, body: Mapping[str, Any]) -> bool:
        """Change what the policy sends after this body was refused. Return False if the refusal is final."""
        return False

    def _body(
        self,
        conversation: Sequence[Message],
        profile: Profile | None,
        room: int,
        seed: int,
        omitted: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(conversation), **self.sampling.body(room)}
        if profile is not None and self.tool_format == "native":
            body["tools"] = [{"type": "function", "function": tool} for tool in schemas(profile)]
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._seeded:
            body.setdefault("seed", seed)
        if "max_tokens" in omitted:
            body.setdefault(MAX_COMPLETION_TOKENS, body.pop("max_tokens"))
        return {key: value for key, value in body.items() if key not in omitted}

    def _read(self, events: Events, request: Mapping[str, Any]) -> Reply:
        """Return the reply in a response to the request.

        If the response is not valid and another attempt may help, raise `MalformedResponse`.
        """
        reply = read_reply(events, request)
        if not reply.text and not reply.calls and (reply.refusal or reply.finish == "content_filter"):
            raise refused_to_continue(reply.refusal or "the server's content filter withheld the reply")
        return reply

    async def _explained(self, refusal: Refusal, window: int | None, until: float, *, tools: bool) -> PolicyError:
        url = self.endpoint.base_url
        if tools and refuses_tools(refusal):
            return PolicyError(f"{url} refused a request with tools: {refusal.message}. To fix this, {SERVE_TOOLS}.")
        if exceeds_rate(refusal):
            return PolicyError(
                f"{url}: the request may use more tokens than the account has per minute. Pass a smaller --max-tokens, "
                f"or a smaller --window. The server said: {refusal.message}"
            )
        if is_context_overflow(refusal):
            return PolicyError(f"{url}: {context_message(refusal, window)}")
        if refusal.status in (401, 403) and not is_unknown_model(refusal):
            return PolicyError(f"{url}: {rejected_key_message(refusal, self.endpoint.api_key_env)}")
        if is_unknown_model(refusal):
            return await self._without_model(refusal, until)
        return PolicyError(str(refusal))

    async def _without_model(self, refusal: Refusal, until: float) -> PolicyError:
        url = self.endpoint.base_url
        try:
            models = list(listed_models(await self.endpoint.get("/models", until=until)))
        except ServerError:
            return PolicyError(f"{refusal}. {url}/models does not answer either. Check the API's address.")
        return PolicyError(f"{url}: {unknown_model_message(self.model, models)}. The server said: {refusal.message}.")


def refused_to_continue(reason: str) -> PolicyError:
    """Return the error for a reply in which the model gives nothing but a reason not to answer, or not even that."""
    return PolicyError(
        f"the model refused to continue{f' ({reason})' if reason else ''}. Ask in other words, or use another model."
    )


class ChatActor:
    """The decisions of one episode. The actor stores no messages, because it builds them from each view."""

    def __init__(self, policy: ChatPolicy, profile: Profile, seed: int) -> None:
        self._policy = policy
        self._profile = profile
        self._seed = seed
        self._nudged = False
        self._measured = (1, 0)
        """Tokens of the last view by the own count, and of its prompt by the count of the server."""

    async def act(self, view: View) -> Action:
        """Return the model's next action. If the server gives no valid reply in time, raise `PolicyError`."""
        deadline = self._policy.deadline
        try:
            async with asyncio.timeout(deadline) as scope:
                return await self._act(view, scope.when() or math.inf)
        except TimeoutError:
            url = self._policy.endpoint.base_url
            raise PolicyError(
                f"{url} returned no action within the deadline of {deadline:g} s. Check the server, or raise the "
                "deadline."
            ) from None

    async def _act(self, view: View, until: float) -> Action:
        conversation = self._policy.messages(view, self._profile)
        room = self._room(view)
        action = await self._ask(conversation, view, room, until)
        room_left = room - (action.tokens or 0)
        if self._nudged or not _has_no_effect(action) or room_left < min(LEAST_ROOM, room):
            return action
        self._nudged = True
        discarded_reply = assistant(action, [], action.text or "(no reply)", self._policy.reasoning_fields)
        nudge = {"role": "user", "content": TOO_LONG if len(action.text) > LONGEST_REPLY else NUDGE}
        retry = await self._ask([*conversation, discarded_reply, nudge], view, room_left, until)
        discarded = {"text": action.text, "reasoning": action.reasoning, "usage": action.extra["usage"]}
        return replace(retry, extra={**retry.extra, "nudged": discarded})

    async def _ask(self, conversation: Sequence[Message], view: View, room: int, until: float) -> Action:
        reply, omitted = await self._policy.ask(
            conversation, self._profile, window=view.budget.window, room=room, seed=self._seed, until=until
        )
        if prompt := reply.usage.get("prompt_tokens"):
            self._measured = (max(1, view.tokens), prompt)
        return self._action(reply, omitted)

    def _room(self, view: View) -> int:
        """Return the maximum number of tokens that the reply may have.

        It is the number that the budget allows, minus the tokens that the server counts beyond the view.

        The server's chat template adds tokens, and its tokenizer may need more. Both numbers are estimated from the
        last prompt.
        """
        view_tokens, prompt_tokens = self._measured
        expected = max(view.tokens + prompt_tokens - view_tokens, view.tokens * prompt_tokens // view_tokens)
        excess = max(0, expected - view.tokens)
        return max(view.max_output - excess, min(LEAST_ROOM, view.max_output))

    def _action(self, reply: Reply, omitted: tuple[str, ...]) -> Action:
        text, calls = reply.text, reply.calls
        # Some servers parse calls without declared tools, and some leave calls of declared tools in the text.
        if not calls and (self._policy.tool_format == "text" or CALL_TAG in text):
            text, calls = parse_calls(reply.text)
        # A server's reasoning parser may treat a whole reply without think tags as reasoning.
        misplaced = not calls and not text and reply.finish == "stop"
        ranking = (parse_ranking(reply.reasoning) or None) if misplaced else None
        tokens = reply.usage.get("completion_tokens") or None
        extra: dict[str, Any] = {"usage": dict(reply.usage), "model": reply.model, "finish_reason": reply.finish}
        if reply.reasoning_field:
            extra["reasoning_field"] = reply.reasoning_field
        if reply.call_extras:
            extra["call_extras"] = dict(reply.call_extras)
        if reply.blocks:
            extra["blocks"] = [dict(block) for block in reply.blocks]
        if omitted:
            extra["left_out"] = list(omitted)
        reasoning, hidden = reply.reasoning, reply.usage.get("reasoning_tokens", 0)
        if reasoning and not self._policy.keeps_reasoning:
            # The trajectory still has it.
            extra["reasoning"], reasoning = reasoning, ""
            tokens = tokens if hidden else None
        if tokens and hidden and not (reasoning or reply.blocks):
            # Reasoning that is not sent back takes no room in the view. Some hosts count it and never show it.
            tokens = tokens - hidden if hidden < tokens else None
        return Action(calls=calls, ranking=ranking, text=text, reasoning=reasoning, tokens=tokens, extra=extra)


def _has_no_effect(action: Action) -> bool:
    """Return True if an action calls no tool and names no document."""
    return not action.calls and not action.ranking and not parse_ranking(action.text)
