"""`AnthropicPolicy`: a Claude model behind Anthropic's Messages API makes the decisions.

    policy = AnthropicPolicy("claude-sonnet-5", reasoning_effort="low")
    SearchAgent(corpus, policy).search("Which award did the director of Rope receive?")

The conversation, the reading of replies, the retries and the limits are those of `ChatPolicy`. `anthropic_requests`
translates a chat request into a Messages request, and `anthropic_replies` translates a message into a chat completion.

Sources: the types of the official client (`anthropic` 2.12), and Anthropic's documentation of tool use, extended
thinking and prompt caching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_agent._support.bound_thinking import (
    DROP_THINKING_BETA,
    REFUSED_THINKING,
    binds_thinking,
    fields_to_drop_thinking,
)
from context_agent._support.credentials import ANTHROPIC
from context_agent._support.http_client import Events, Refusal
from context_agent.harness.profile import Profile
from context_agent.policies.chat.anthropic_replies import chat_completion, kept_blocks, whole_message
from context_agent.policies.chat.anthropic_requests import prompt_fields, sampling_fields
from context_agent.policies.chat.messages import Message
from context_agent.policies.chat.policy import ChatPolicy, refused_to_continue
from context_agent.policies.chat.replies import LONGEST_LABEL, Reply, read_reply
from context_agent.pruning.view import Text, View
from context_agent.tokens import TokenCounter

BASE_URL = "https://api.anthropic.com/v1"


class AnthropicPolicy(ChatPolicy):
    """A policy that asks a model through Anthropic's Messages API. Threads, event loops and episodes may share it.

    The options are those of `ChatPolicy`. docs/chat.md says how the API reads them. `reasoning_effort` turns on
    adaptive thinking. For models with another kind of thinking, use `extra_body={"thinking": ...}`. The newest models
    refuse `temperature` and `top_p`. The policy sends them only if you set them. If a model binds its thinking to the
    conversation, the API may drop the thinking after an edit of the context. Another server than Anthropic's gets this
    permission, and the header that it needs, only after it refused such thinking.
    """

    kind = "anthropic"
    path = "/messages"
    vendor = ANTHROPIC
    reasoning_fields = ("blocks",)

    def __init__(
        self,
        model: str,
        *,
        base_url: str = BASE_URL,
        api_key_env: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        reasoning_effort: str | None = None,
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
        deadline: float | None = 900.0,
        retries: int = 6,
        backoff: float = 0.5,
        concurrency: int = 32,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key_env=api_key_env,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            reasoning_effort=reasoning_effort,
            stream=stream,
            extra_body=extra_body,
            timeout=timeout,
            deadline=deadline,
            retries=retries,
            backoff=backoff,
            concurrency=concurrency,
            counter=counter,
        )
        self._drops_thinking = False
        if self.endpoint.host.encode() == ANTHROPIC.host and binds_thinking({"model": model}):
            self._drop_thinking()

    def _drop_thinking(self) -> None:
        """Let the API drop thinking from now on."""
        self._drops_thinking = True
        self.endpoint.add_header("anthropic-beta", DROP_THINKING_BETA)

    def _adapt(self, refusal: Refusal, body: Mapping[str, Any]) -> bool:
        """Let another server drop thinking after it refused thinking that is bound to a different conversation."""
        permission = fields_to_drop_thinking(body)
        # Of several episodes, each may have sent a request before the first refusal.
        if REFUSED_THINKING not in refusal.message or all(body.get(name) == permission[name] for name in permission):
            return False
        self._drop_thinking()
        return True

    def messages(self, view: View, profile: Profile) -> list[Message]:
        """Return the view as chat messages. In a message that ends a prefix for the cache, `cache` is true."""
        conversation = super().messages(view, profile)
        ends = list(_prefix_ends(conversation))
        # The cache has the prefix that the latest edit left intact, and the previous request.
        for end in {ends[_intact_turns(view, len(ends))], ends[max(0, len(ends) - 2)]}:
            conversation[end]["cache"] = True
        return conversation

    def _body(
        self,
        conversation: Sequence[Message],
        profile: Profile | None,
        room: int,
        seed: int,
        omitted: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        body = {
            "model": self.model,
            **prompt_fields(conversation, profile),
            **sampling_fields(self.sampling.body(room)),
            **({"stream": True} if self._stream else {}),
        }
        return {**body, **fields_to_drop_thinking(body)} if self._drops_thinking else body

    def _read(self, events: Events, request: Mapping[str, Any]) -> Reply:
        message = whole_message(events)
        if message.get("stop_reason") == "refusal":
            details = message.get("stop_details")
            reason = str(details.get("explanation") or "")[:LONGEST_LABEL] if isinstance(details, dict) else ""
            raise refused_to_continue(reason)
        reply = read_reply([chat_completion(message)], request)
        return replace(reply, blocks=kept_blocks(message["content"]))


def _prefix_ends(conversation: Sequence[Message]) -> Iterator[int]:
    """Yield the positions at which the question and each turn end.

    A position is the index of the last message before a reply of the model.
    """
    for index, message in enumerate(conversation):
        following = conversation[index + 1 : index + 2]
        if message["role"] != "assistant" and (not following or following[0]["role"] == "assistant"):
            yield index


def _intact_turns(view: View, ends: int) -> int:
    """Return how many turns precede the first change of the latest edit.

    If there was no edit, return the number of all turns.
    """
    changed = (s.turn for s in view.segments if not isinstance(s, Text) and s.key in view.changed)
    return min(changed, default=ends - 1)
