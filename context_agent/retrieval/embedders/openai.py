"""Embeddings from any endpoint that speaks OpenAI's `/v1/embeddings`: a hosted service, vLLM, llama.cpp, Ollama."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
import numpy as np
from pydantic import BaseModel, ValidationError

from context_agent.errors import EmbedderError
from context_agent.retrieval.embedders.protocol import Vectors, has_content, unit_rows, well_formed

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_QUOTED = 300
"""Characters of a server's answer quoted in an error."""


class _Item(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Item]


class OpenAIEmbedder:
    """An `Embedder` over HTTP. Transient failures are tried again, at most `retries` times, waiting as the server asks.

    The key is read from the environment variable `key_variable` at each request and kept nowhere; where it is unset,
    none is sent. `dimension` is checked against every answer; without it, the first answer sets it. Set
    `request_dimension` to have the server shorten its vectors to it. `timeout_s` is for one request. `query_prompt`
    and `document_prompt` are put before the texts, for models that want that.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        key_variable: str = DEFAULT_KEY_VARIABLE,
        dimension: int | None = None,
        request_dimension: bool = False,
        batch_size: int = 64,
        timeout_s: float = 60.0,
        retries: int = 5,
        query_prompt: str = "",
        document_prompt: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model, self._url = model, _checked_url(base_url)
        self._call_url = self._url.copy_with(path=f"{self._url.path}/embeddings".replace("//", "/"))
        self._key_variable, self._batch_size, self._retries = key_variable, batch_size, retries
        self._dimension, self._request_dimension = dimension, request_dimension
        self._prompts = (query_prompt, document_prompt)
        self._timeout_s, self._sleep = timeout_s, sleep
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._model!r}, base_url={self._shown_url!r})"

    @property
    def name(self) -> str:
        """`openai:MODEL@HOST`, with what else changes the vectors: a shortened dimension, prompts."""
        marks = [f"{self._dimension}" if self._request_dimension else "", *self._prompts]
        label = f"openai:{self._model}@{self._url.host}"
        return label + (f"+{'|'.join(marks)}" if any(marks) else "")

    @property
    def dimension(self) -> int:
        """Length of each vector; where none was given, asks the server once."""
        if self._dimension is None:
            self._request(["dimension"])
        assert self._dimension is not None
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (n, d). Blank texts are not sent: most servers refuse them."""
        return self._embed(texts, self._prompts[1])

    def embed_query(self, text: str) -> Vectors:
        """Vector of the query, shape (d,)."""
        vector: Vectors = self._embed([text], self._prompts[0])[0]
        return vector

    def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
        with self._lock:
            client, self._http = self._http, None
        if client is not None:
            client.close()

    @property
    def _shown_url(self) -> str:
        """The address without what may be secret in it: a user, a password, a query."""
        return str(self._url.copy_with(username=None, password=None, query=None))

    def _embed(self, texts: Sequence[str], prompt: str) -> Vectors:
        filled = [i for i, text in enumerate(texts) if has_content(text)]
        batches = [filled[start : start + self._batch_size] for start in range(0, len(filled), self._batch_size)]
        found = [self._request([prompt + well_formed(texts[i]) for i in rows]) for rows in batches]
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for rows, part in zip(batches, found, strict=True):
            vectors[rows] = part
        return unit_rows(vectors)

    def _request(self, texts: list[str]) -> Vectors:
        body: dict[str, object] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._request_dimension and self._dimension is not None:
            body["dimensions"] = self._dimension
        return self._vectors(self._post(body), len(texts))

    def _post(self, body: dict[str, object]) -> httpx.Response:
        """The server's answer of status 200. Waits and asks again after what may pass by itself."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            asked: float | None = None
            try:
                response = self._client().post(self._call_url, json=body, headers=self._headers())
            except httpx.TransportError as error:
                if last:
                    raise self._failure(f"{type(error).__name__}: {error}", attempt) from error
            else:
                if response.status_code == httpx.codes.OK:
                    return response
                asked = _retry_after_s(response)
                # A server that asks for an hour has an empty quota: waiting is the caller's decision.
                if last or response.status_code not in _RETRIED or (asked or 0) > _LONGEST_WAIT_S:
                    raise self._failure(_quoted(response, asked), attempt)
            self._sleep(_wait_s(attempt, asked))
        raise AssertionError("the last attempt returns or raises")

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._key_variable, "").strip()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                self._http = httpx.Client(timeout=self._timeout_s)
            return self._http

    def _vectors(self, response: httpx.Response, count: int) -> Vectors:
        """The answer's vectors in the order asked, shape (count, d)."""
        try:
            items = _Answer.model_validate_json(response.content).data
        except ValidationError as error:
            raise self._failure(f"the answer is not a list of embeddings: {_excerpt(response)}", 0) from error
        if sorted(item.index for item in items) != list(range(count)):
            raise self._failure(f"{len(items)} embeddings came back for {count} texts", 0)
        rows = [item.embedding for item in sorted(items, key=lambda item: item.index)]
        sizes = {len(row) for row in rows}
        expected = self._dimension or len(rows[0])
        if sizes != {expected} or not expected:
            raise self._failure(f"vectors of {sorted(sizes)} values came back where {expected} were expected", 0)
        vectors = np.asarray(rows, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise self._failure("a vector holds values that are not finite", 0)
        self._dimension = expected
        return vectors

    def _failure(self, what: str, retried: int) -> EmbedderError:
        tries = f" after {retried + 1} attempts" if retried else ""
        return EmbedderError(
            f"embeddings of {self._model!r} from {self._shown_url} failed{tries}: {what}{self._hint(what)}"
        )

    def _hint(self, what: str) -> str:
        if what.startswith(("status 401", "status 403")):
            state = "is set" if os.environ.get(self._key_variable) else "is not set"
            return f" (the key is read from the environment variable {self._key_variable}, which {state})"
        if what.startswith("status 404"):
            return " (does the base URL end in /v1, and does the server know this model?)"
        return ""


def _checked_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise EmbedderError(f"the base URL of an embeddings endpoint is not valid: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise EmbedderError("the base URL of an embeddings endpoint looks like http://localhost:8000/v1")
    # An address may end in a query, as Azure's does; the path of the call comes before it.
    return url.copy_with(path=url.path.rstrip("/"))


def _wait_s(attempt: int, asked: float | None) -> float:
    """Seconds to wait: what the server asked for, else doubling. Jittered: clients shall not return all at once."""
    if asked is not None:
        return asked + random.uniform(0, 0.1 * asked)
    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
    return random.uniform(longest / 2, longest)


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds by the Retry-After header, given in seconds or as a date; None where it says nothing."""
    value = response.headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _quoted(response: httpx.Response, asked: float | None) -> str:
    waiting = f" (asks to wait {asked:.0f} s)" if asked is not None else ""
    return f"status {response.status_code}{waiting}: {_excerpt(response)}"


def _excerpt(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return repr(text[:_QUOTED] + ("..." if len(text) > _QUOTED else ""))
