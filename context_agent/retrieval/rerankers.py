"""Rerankers: score how well each text answers a query. A cross-encoder in process, or any HTTP `/rerank` endpoint."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError, MissingExtraError, RerankerError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "CONTEXT_AGENT_RERANK_API_KEY"
"""Environment variable that holds the key of an HTTP reranker."""
LONGEST_PAUSE = 30.0
"""Seconds: a server that asks for a longer pause counts as down."""


@runtime_checkable
class Reranker(Protocol):
    """Scores texts against a query; higher is better. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """Model or endpoint, for reports."""

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Relevance of each text, shape (n,). Raises `RerankerError`."""


def load_reranker(spec: str | None) -> Reranker | None:
    """`none` (or None), `cross-encoder:MODEL`, or an http(s) URL with the model after `#`, e.g. `https://host/rerank#m`.

    Raises `ConfigError` for anything else.
    """
    if spec is None or spec == "none":
        return None
    kind, _, rest = spec.partition(":")
    if kind == "cross-encoder" and rest:
        return CrossEncoderReranker(rest)
    if kind in ("http", "https"):
        url, _, model = spec.partition("#")
        return HttpReranker(url, model=model or None)
    raise ConfigError(
        f"unknown reranker {spec!r}: use none, cross-encoder:MODEL or an http(s) URL of a /rerank endpoint"
    )


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder, loaded at its first use (extra `embed`)."""

    def __init__(self, model: str, *, batch_size: int = 32, device: str | None = None) -> None:
        self.name = f"cross-encoder:{model}"
        self._model_name, self._batch_size, self._device = model, batch_size, device
        self._model: Any = None

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Reranker`."""
        if not texts:
            return np.zeros(0, dtype=np.float32)
        model = self._loaded()
        try:
            scores = model.predict([(query, text) for text in texts], batch_size=self._batch_size)
        except (RuntimeError, ValueError) as error:
            raise RerankerError(f"{self.name} failed on {len(texts)} texts: {error}") from error
        return np.asarray(scores, dtype=np.float32).reshape(len(texts))

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import CrossEncoder
            except ImportError as error:
                raise MissingExtraError("sentence-transformers", "embed") from error
            try:
                self._model = CrossEncoder(self._model_name, device=self._device, trust_remote_code=False)
            except (OSError, ValueError, RuntimeError) as error:
                raise RerankerError(f"the model of {self.name} cannot be loaded: {error}") from error
        return self._model


class HttpReranker:
    """A `/rerank` endpoint as Cohere, Jina, vLLM and text-embeddings-inference serve it.

    Sends `documents` and, for the last one, the same list as `texts`; reads `results` or a bare list, whose items
    carry `index` and `relevance_score` or `score`. Tries again after 408, 425, 429 and 5xx and after lost connections,
    waiting as long as `Retry-After` asks, else twice as long each time, with jitter.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        client: httpx.Client | None = None,
    ) -> None:
        """`url` is the full address of the endpoint; `api_key` falls back to `CONTEXT_AGENT_RERANK_API_KEY`."""
        self.name = f"{url}#{model}" if model else url
        self._url, self._model, self._api_key = url, model, api_key
        self._timeout, self._retries, self._client = timeout, retries, client

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Reranker`."""
        if not texts:
            return np.zeros(0, dtype=np.float32)
        return self._read(self._post(self._body(query, texts)), len(texts))

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"query": query}
        if self._model:
            # The endpoints that know models are strict about unknown fields, and TEI, which has `texts`, knows none.
            return body | {"model": self._model, "documents": list(texts), "top_n": len(texts)}
        return body | {"texts": list(texts), "documents": list(texts)}

    def _post(self, body: Mapping[str, Any]) -> Any:
        import httpx

        failure = "no attempt was made"
        for attempt in range(self._retries + 1):
            pause = min(LONGEST_PAUSE, 0.5 * 2**attempt) * random.uniform(0.5, 1.0)
            try:
                response = self._http().post(self._url, json=body, headers=self._headers(), timeout=self._timeout)
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return self._json(response)
                failure = f"HTTP {response.status_code}: {response.text[:200]}"
                if response.status_code not in (408, 425, 429) and response.status_code < 500:
                    break
                pause = _asked_pause(response.headers.get("Retry-After"), pause)
            if attempt == self._retries or pause > LONGEST_PAUSE:
                break
            time.sleep(pause)
        raise RerankerError(f"reranker {self._url} failed after {attempt + 1} tries: {failure}")

    def _http(self) -> httpx.Client:
        import httpx

        if self._client is None:
            self._client = httpx.Client()
        return self._client

    def _headers(self) -> dict[str, str]:
        key = self._api_key or os.environ.get(KEY_VARIABLE)
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise RerankerError(f"reranker {self._url} answered no JSON: {response.text[:200]!r}") from error

    def _read(self, answer: Any, count: int) -> NDArray[np.float32]:
        items: Any = answer.get("results") if isinstance(answer, dict) else answer
        scores = np.full(count, np.nan, dtype=np.float32)
        try:
            for item in items:
                place = range(count)[int(item["index"])]
                scores[place] = float(item["relevance_score"] if "relevance_score" in item else item["score"])
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise RerankerError(f"reranker {self._url} answered in an unknown form: {str(answer)[:200]}") from error
        if np.isnan(scores).any():
            raise RerankerError(f"reranker {self._url} scored {count - int(np.isnan(scores).sum())} of {count} texts")
        return scores


def _asked_pause(header: str | None, otherwise: float) -> float:
    """Seconds that a `Retry-After` header asks for; dates, which no reranker sends, are taken for none."""
    try:
        return max(0.0, float(header)) if header else otherwise
    except ValueError:
        return otherwise
