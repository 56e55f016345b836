"""vLLM over `/v1/completions`: token-id prompts in, token ids and log-probabilities out.

    vllm serve chromadb/context-1 --enable-prefix-caching --enable-prompt-tokens-details

What is asked of the server, by name: `return_token_ids`, `logprobs`, `stop_token_ids`, `seed`. Log-probabilities are
the model's own only under vLLM's default `--logprobs-mode raw_logprobs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from context_agent.errors import PolicyError
from context_agent.policies.engines.protocol import Finish, Sample
from context_agent.policies.http import API_KEY_ENV, Broken, Endpoint, Events


class VllmEngine:
    """A model behind a vLLM server. Retries, timeouts and the limit on requests are `Endpoint`'s.

    Every rollout of a question begins with the same ids, so the server's prefix cache serves them; for the same
    reason no salt is sent unless `cache_salt` asks for it. `version` names the weights; whoever exchanges them on the
    server sets it.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str | None = API_KEY_ENV,
        version: str | None = None,
        cache_salt: str | None = None,
        seeded: bool = True,
        timeout: float = 600.0,
        retries: int = 6,
        concurrency: int = 128,
    ) -> None:
        """`seeded=False` leaves the seed out: sampling is then a little faster, and not repeatable.

        Raises `ConfigError` for an address that is none.
        """
        self.endpoint = Endpoint(
            base_url, api_key_env=api_key_env, timeout=timeout, retries=retries, concurrency=concurrency
        )
        self.model = model
        self.version = version or model
        self._cache_salt = cache_salt
        self._seeded = seeded

    @property
    def name(self) -> str:
        """Server kind and model."""
        return f"vllm:{self.model}"

    async def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        stop: Sequence[int],
        temperature: float,
        top_p: float,
        seed: int | None,
        extra: Mapping[str, Any] | None = None,
    ) -> Sample:
        """One completion; `extra` are further fields of the request.

        Raises `PolicyError` for a server that is down, refuses, or returns no token ids.
        """
        version = self.version
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "stop_token_ids": list(stop),
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        if self._seeded and seed is not None:
            body["seed"] = seed
        if self._cache_salt is not None:
            body["cache_salt"] = self._cache_salt
        body.update(extra or {})
        return await self.endpoint.post("/completions", body, lambda events: _sample(events, body["prompt"], version))


def _sample(events: Events, prompt: list[int], version: str) -> Sample:
    """The sample in an answer. Raises `Broken` for one to ask again, `PolicyError` for one that no retry mends."""
    answer = events[0]
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Broken("the answer has no choices")
    choice: Mapping[str, Any] = choices[0]
    ids, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
    if not isinstance(ids, list) or not isinstance(logprobs, list):
        raise PolicyError(
            "the server returned no token ids or no log-probabilities: the token policy needs vLLM's return_token_ids "
            "and logprobs on /v1/completions; other servers are for the chat policy"
        )
    if (sent := choice.get("prompt_token_ids")) is not None and sent != prompt:
        raise PolicyError("the server did not run the prompt that it was sent: its prompt_token_ids differ")
    if choice.get("finish_reason") not in ("stop", "length"):
        raise Broken(f"the server ended the reply early ({choice.get('finish_reason')})")
    numbers = tuple(-math.inf if value is None else float(value) for value in logprobs)
    return Sample(tuple(map(int, ids)), numbers, Finish(choice["finish_reason"]), _cached(answer), version)


def _cached(answer: Mapping[str, Any]) -> int | None:
    """Prompt ids from the prefix cache, where the server was started with `--enable-prompt-tokens-details`."""
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return cached if isinstance(cached, int) else None
