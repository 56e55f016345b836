"""vLLM over `/v1/completions`: token-id prompts in, token ids and log-probabilities out.

    vllm serve chromadb/context-1 --enable-prefix-caching --enable-prompt-tokens-details

Requests use `return_token_ids`, `logprobs`, `stop_token_ids` and `seed`. Log-probabilities are the model's own only
with vLLM's default `--logprobs-mode raw_logprobs`.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from context_agent._support.http_client import API_KEY_ENV, Endpoint, Events, MalformedResponse, policy_address
from context_agent.errors import PolicyError, ServerError
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest, Score
from context_agent.policies.tokens.routed_experts import Experts, pack

T = TypeVar("T")

LARGEST_ID = 2**31
ROUNDING = 1e-3
"""How far above 0 a log-probability may be, because low precision rounds."""


class VllmEngine:
    """A model behind a vLLM server. `Endpoint` handles retries, timeouts and the limit on requests.

    Args:
        base_url: The address of the server.
        model: The name of the model on the server.
        api_key_env: The environment variable with the key.
        version: The version of the weights. A program that changes the weights on the server must also set the
            attribute `version`. Defaults to the name of the model.
        cache_salt: The salt of the server's prefix cache. By default no salt is sent, so all rollouts of a question
            share the cached ids of their common beginning.
        seeded: True to send a seed. Without a seed, sampling is slightly faster but cannot be repeated.
        timeout: The seconds that a response may take.
        retries: The number of times that a failed request is repeated.
        concurrency: Maximum number of requests at a time.

    Raises:
        ConfigError: If the address is not valid.
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
        self.endpoint = Endpoint(
            policy_address(base_url),
            api_key_env=api_key_env,
            timeout=timeout,
            retries=retries,
            concurrency=concurrency,
        )
        self.model = model
        self.version = version or model
        self._cache_salt = cache_salt
        self._seeded = seeded

    @property
    def name(self) -> str:
        """The kind of server and the model."""
        return f"vllm:{self.model}"

    async def generate(self, request: SampleRequest, *, extra: Mapping[str, Any] | None = None) -> Sample:
        """Return one completion. `extra` are further fields of the HTTP request.

        Raise `PolicyError` if the server is down, refuses the request, or returns no token ids.
        """
        version = self.version
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_token_ids": list(request.stop),
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        if self._seeded and request.seed is not None:
            body["seed"] = request.seed
        if self._cache_salt is not None:
            body["cache_salt"] = self._cache_salt
        body.update(extra or {})

        def read(events: Events) -> Sample:
            sample = _sample(events, body["prompt"], version)
            if request.experts_from is None:
                return sample
            positions = len(body["prompt"]) + len(sample.ids) - 1
            experts = _experts(events[0]["choices"][0].get("routed_experts"), positions)
            return replace(sample, experts=pack(experts[request.experts_from :]))

        return await self._post(body, read)

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the server's `prompt_logprobs` of the ids, which it computes without its prefix cache.

        Raise `PolicyError` if the server is down, refuses the request, or returns none.
        """
        version = self.version
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 1,
            "add_special_tokens": False,
        }
        return await self._post(body, lambda events: _score(events, body["prompt"], version))

    async def _post(self, body: Mapping[str, Any], read: Callable[[Events], T]) -> T:
        try:
            return await self.endpoint.post("/completions", body, read)
        except ServerError as error:
            raise PolicyError(str(error)) from None


def _score(events: Events, ids: list[int], version: str) -> Score:
    """Return the scores in a response, which has an object of log-probabilities by id for each id after the first."""
    choices = events[0].get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MalformedResponse("the answer has no choices")
    entries = choices[0].get("prompt_logprobs")
    if not isinstance(entries, list) or len(entries) != len(ids):
        raise PolicyError(
            "the server returned no log-probabilities of the prompt, which show the trainer whether the server has "
            "the newest weights. Use a server with vLLM's prompt_logprobs on /v1/completions."
        )
    values = [_prompt_logprob(entry, token) for token, entry in zip(ids[1:], entries[1:], strict=True)]
    if not all(_is_logprob(value) for value in values):
        raise PolicyError(
            "the log-probabilities of the prompt must be numbers up to 0. Check the server's --logprobs-mode."
        )
    return Score(tuple(-math.inf if value is None else float(value) for value in values), version)


def _prompt_logprob(entry: object, token: int) -> Any:
    """Return the unchecked log-probability in an entry of `prompt_logprobs`. If there is none, return an empty text."""
    found = entry.get(str(token)) if isinstance(entry, dict) else None
    return found.get("logprob", "") if isinstance(found, dict) else ""


def _sample(events: Events, prompt: list[int], version: str) -> Sample:
    """Return the sample in a response.

    If it is invalid and a retry may help, raise `MalformedResponse`. If it is invalid otherwise, raise `PolicyError`.
    """
    answer = events[0]
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MalformedResponse("the answer has no choices")
    choice: Mapping[str, Any] = choices[0]
    details = choice.get("logprobs")
    ids, logprobs = choice.get("token_ids"), details.get("token_logprobs") if isinstance(details, dict) else None
    if not isinstance(ids, list) or not isinstance(logprobs, list):
        raise PolicyError(
            "the server returned no token ids or no log-probabilities. The token policy needs vLLM's return_token_ids "
            "and logprobs on /v1/completions. For other servers, pass --policy chat."
        )
    if (sent := choice.get("prompt_token_ids")) is not None and sent != prompt:
        raise PolicyError(
            "the server's prompt_token_ids differ from the ids that were sent, so it changed the prompt. Check that "
            "the server runs the model that this tokenizer belongs to."
        )
    if choice.get("finish_reason") not in ("stop", "length"):
        raise MalformedResponse(
            f"the server ended the reply early ({choice.get('finish_reason')}). See the server's log."
        )
    if not all(type(token) is int and 0 <= token < LARGEST_ID for token in ids):
        raise PolicyError("the server must return token ids that are integers from 0 to 2**31. The reply is discarded.")
    if not all(_is_logprob(value) for value in logprobs):
        raise PolicyError("the server must return log-probabilities that are numbers up to 0. The reply is discarded.")
    numbers = tuple(-math.inf if value is None else float(value) for value in logprobs)
    return Sample(tuple(ids), numbers, Finish(choice["finish_reason"]), _cached(answer, len(prompt)), version)


def _experts(value: object, positions: int) -> Experts:
    """Return the experts in a response, shape (positions, layers, top k). The response has numpy's format in base64."""
    if not isinstance(value, str):
        raise PolicyError(
            "the server returned no routed_experts, which loss.router_replay = true needs. If the model is a mixture "
            "of experts, start vLLM 0.22 or newer with --enable-return-routed-experts. Otherwise, leave out "
            "loss.router_replay."
        )
    try:
        raw = base64.b64decode(value, validate=True)
        file = io.BytesIO(raw)
        np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        # The header may claim more than was sent, so it does not decide how much is allocated.
        experts = np.frombuffer(raw, dtype, offset=file.tell()).reshape(shape)
    except (ValueError, TypeError) as error:
        raise PolicyError(
            f"the server returned routed_experts that cannot be read ({error}). Use vLLM 0.22 or newer."
        ) from None
    least, most = experts.min(initial=0), experts.max(initial=0)
    if (
        fortran
        or dtype.kind not in "iu"
        or experts.ndim != 3
        or len(experts) != positions
        or least < 0
        or most > 65_534
    ):
        raise PolicyError(
            f"routed_experts must be numbers of experts for {positions} positions, layers and choices; got the shape "
            f"{shape} and type {dtype} from {least} to {most}"
        )
    return experts.astype(np.int32)


def _is_logprob(value: object) -> bool:
    """Return True if a value is a log-probability. vLLM sends null for minus infinity."""
    return value is None or (type(value) in (int, float) and value <= ROUNDING)  # type: ignore[operator]


def _cached(answer: Mapping[str, Any], prompt: int) -> int | None:
    """Return the number of prompt ids that came from the prefix cache.

    If the server was not started with `--enable-prompt-tokens-details`, return None. If a prompt of `prompt` ids cannot
    have this number, return None too.
    """
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if type(cached) is int and 0 <= cached <= prompt else None
