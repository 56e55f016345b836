"""An `Embedder` for any endpoint with OpenAI's `/v1/embeddings`: a hosted service, vLLM, llama.cpp or Ollama."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from context_agent._support.credentials import rejected_key_hint
from context_agent._support.http_client import Endpoint, Events, Refusal
from context_agent.errors import EmbedderError, ServerError
from context_agent.retrieval.embedders import Vectors, embed_filled, unit_rows

DEFAULT_BASE_URL = "https://api.openai.com/v1"
LONGEST_RETRY_AFTER = 60.0
"""The longest wait that is accepted, in seconds. If a server requests a longer wait, the call fails."""


class OpenAIEmbedder:
    """An `Embedder` over HTTP. Transient failures are retried after the time that the server requests."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        api_key_env: str | None = None,
        dimension: int | None = None,
        request_dimension: bool = False,
        batch_size: int = 64,
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
        query_prompt: str = "",
        document_prompt: str = "",
    ) -> None:
        """Prepare the endpoint. Nothing is sent yet.

        Args:
            model: The model's name on the server.
            base_url: The address. It may end in a query, as Azure's does.
            api_key_env: The environment variable that holds the key. Without it, `OPENAI_API_KEY` is sent to
                https://api.openai.com, and no key to any other address.
            dimension: The length of a vector, checked in every answer. Without it, the first answer sets it.
            request_dimension: Whether to ask the server to shorten its vectors to `dimension`.
            batch_size: The number of texts in one request.
            timeout: The time limit of one request, in seconds.
            retries: The number of times that a transient failure is retried.
            backoff: The wait before the first retry, in seconds.
            query_prompt: The text before each query, for models that need it.
            document_prompt: The text before each document.

        Raises:
            ConfigError: If the address cannot be used.
        """
        self._model, self._batch_size = model, batch_size
        self._dimension, self._request_dimension = dimension, request_dimension
        self._prompts = (query_prompt, document_prompt)
        self._endpoint = Endpoint(
            base_url,
            api_key_env=api_key_env,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            longest_retry_after=LONGEST_RETRY_AFTER,
        )

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._model!r}, base_url={self._endpoint.base_url!r})"

    @property
    def name(self) -> str:
        """The name, `openai:MODEL@HOST`. A shortened dimension and prompts change the vectors, so they are added."""
        marks = [f"{self._dimension}" if self._request_dimension else "", *self._prompts]
        label = f"openai:{self._model}@{self._endpoint.host}"
        return label + (f"+{'|'.join(marks)}" if any(marks) else "")

    @property
    def dimension(self) -> int:
        """The length of the vectors. If it was not passed, reading it asks the server once."""
        if self._dimension is None:
            self._request(["dimension"])
        assert self._dimension is not None
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, shape (n, d). Blank texts are not sent, because most servers refuse them."""
        return self._embed(texts, self._prompts[1])

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of the query, shape (d,)."""
        vector: Vectors = self._embed([text], self._prompts[0])[0]
        return vector

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._endpoint.close()

    def _embed(self, texts: Sequence[str], prompt: str) -> Vectors:
        def request(batch: list[str]) -> Vectors:
            return self._request([prompt + text for text in batch])

        return unit_rows(embed_filled(texts, request, lambda: self.dimension, batch_size=self._batch_size))

    def _request(self, texts: list[str]) -> Vectors:
        body: dict[str, object] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._request_dimension and self._dimension is not None:
            body["dimensions"] = self._dimension
        try:
            events = self._endpoint.post_sync("/embeddings", body, lambda events: events)
        except Refusal as refusal:
            raise self._failure(f"{refusal}{self._hint(refusal.status)}") from None
        except ServerError as error:
            raise self._failure(str(error)) from None
        return self._vectors(events, len(texts))

    def _vectors(self, events: Events, count: int) -> Vectors:
        """Return the vectors in an answer, in the order of the texts, shape (count, d)."""
        rows = self._rows(events[0].get("data"), count)
        sizes = {len(row) for row in rows}
        expected = self._dimension or len(rows[0])
        if sizes != {expected} or not expected:
            raise self._failure(
                f"each vector must have {expected or 'at least 1'} values; got vectors of {sorted(sizes)} values"
            )
        try:
            with np.errstate(over="ignore"):  # a value past float32 becomes infinite, and is refused
                vectors = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise self._failure(f"a vector must have numbers as values; got {reprlib.repr(rows[0])}") from None
        if vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise self._failure("a vector must have finite numbers as values")
        self._dimension = expected
        return vectors

    def _rows(self, data: object, count: int) -> list[list[float]]:
        """Return the embeddings in the order of the texts."""
        if not isinstance(data, list):
            raise self._failure(f"the answer must be a list of embeddings; got {reprlib.repr(data)}")
        items = [item for item in data if isinstance(item, dict) and type(item.get("index")) is int]
        rows: dict[int, Any] = {item["index"]: item.get("embedding") for item in items}
        if len(data) != count:
            raise self._failure(f"the answer must have one embedding for each of {count} texts; got {len(data)}")
        if set(rows) != set(range(count)):
            raise self._failure(
                f"the indexes of the embeddings must be the numbers below {count}, each once; got "
                f"{reprlib.repr([item['index'] for item in items])}"
            )
        if not all(isinstance(row, list) for row in rows.values()):
            raise self._failure(f"the answer must be a list of embeddings; got {reprlib.repr(data)}")
        return [rows[index] for index in range(count)]

    def _failure(self, reason: str) -> EmbedderError:
        return EmbedderError(f"embeddings of {self._model!r} from {self._endpoint.base_url} failed: {reason}")

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            return f". {rejected_key_hint(self._endpoint.api_key_env)}"
        if status == 404:
            return ". Check that the base URL ends in /v1, and that the server knows this model."
        return ""
