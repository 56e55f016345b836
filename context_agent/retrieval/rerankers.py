"""Rerankers, which score how well each text answers a query.

A reranker is a model in this process, or a `/rerank` endpoint.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError, MissingExtraError, RerankerError, ServerError, reason_of
from context_agent.retrieval.late_interaction import late_interaction

if TYPE_CHECKING:
    from context_agent._support.http_body import Events

LONGEST_RETRY_AFTER = 30.0
"""The longest wait that is accepted, in seconds. If a server requests a longer wait, the call fails."""
ORDER_WEIGHT, ORDER_RANKS = 1.5, 2
"""How much the order of a search counts beside late interaction, and what is added to each rank from 0.

With these values, recall@5 falls by more than .001 on none of 48 sets of questions (`docs/experiments.md`).
"""
LEAST_SPREAD = 0.04
"""The standard deviation of cosines below which late interaction counts less. It is as low for one query in twenty."""


@runtime_checkable
class Reranker(Protocol):
    """A component that scores texts for a query. Higher is better. It is safe to call from several threads."""

    @property
    def name(self) -> str:
        """The model or endpoint, as reports show it."""

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of each text, shape (n,). If the model or the endpoint fails, raise `RerankerError`."""


@runtime_checkable
class HitReranker(Reranker, Protocol):
    """A reranker that scores the hits of a search by their texts and by their order."""

    def score_hits(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of each text, shape (n,). The texts are in the order of the search, the best first."""


def checked_scores(reranker: Reranker, scores: object, count: int) -> NDArray[np.float32]:
    """Return what a reranker returned for `count` texts, shape (count,).

    Raises:
        RerankerError: If it is not one finite number for each text.
    """
    name = getattr(reranker, "name", type(reranker).__name__)
    try:
        with np.errstate(over="ignore"):  # A number past float32 becomes infinite, and is refused.
            checked = np.asarray(scores, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise RerankerError(f"the reranker {name} must return numbers; got {reprlib.repr(scores)}") from error
    if checked.shape != (count,):
        raise RerankerError(
            f"the reranker {name} must return one score for each of {count} texts; got an array of shape "
            f"{checked.shape}. Check that its model gives one number for a pair of texts."
        )
    if not np.isfinite(checked).all():
        raise RerankerError(f"the reranker {name} must return finite scores; got {reprlib.repr(checked.tolist())}")
    return checked


def load_reranker(spec: str | None) -> Reranker | None:
    """Return the reranker that a spec names.

    Args:
        spec: `none` or None, `late-interaction`, `cross-encoder:MODEL`, or an http(s) URL with the model after `#`,
            such as `https://host/rerank#m`. A key is sent only if the URL names the variable that holds it:
            `https://host/rerank?api_key_env=NAME#m`.

    Returns:
        The reranker. For `none` and None, it is None.

    Raises:
        ConfigError: If the spec is anything else.
    """
    if spec is None or spec == "none":
        return None
    if spec == LateInteractionReranker.name:
        return LateInteractionReranker()
    kind, _, rest = spec.partition(":")
    if kind == "cross-encoder" and rest:
        return CrossEncoderReranker(rest)
    if kind in ("http", "https"):
        from context_agent._support.credentials import split_key_variable

        address, _, model = spec.partition("#")
        url, variable = split_key_variable(address)
        return HttpReranker(url, model=model or None, api_key_env=variable)
    raise ConfigError(
        f"unknown reranker {spec!r}. Pass none, late-interaction, cross-encoder:MODEL or an http(s) URL of a /rerank "
        "endpoint."
    )


class LateInteractionReranker:
    """A reranker that ships with the package and works offline. See `retrieval.late_interaction`.

    Its model was trained on English and not for this comparison, so the order of a search also counts (`score_hits`).

    Example:
        >>> rerank = LateInteractionReranker()
        >>> scores = rerank.score("Who built the bridge?", ["Ada Berg built it in 1931.", "Ferries run daily."])
        >>> bool(scores[0] > scores[1])
        True
    """

    name = "late-interaction"

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the mean largest cosine of the query's word pieces with each text, shape (n,)."""
        return late_interaction(query, texts)

    def score_hits(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `HitReranker`. The texts exchange their scores, so each score is that of one of the texts."""
        scores = self.score(query, texts)
        order = np.argsort(-_with_order(scores), kind="stable")
        exchanged = np.empty_like(scores)
        exchanged[order] = np.sort(scores)[::-1]
        return exchanged


def _with_order(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the standard scores plus those of the reciprocal ranks, for texts in the order of a search. Shape (n,)."""
    places = np.float32(1) / (ORDER_RANKS + np.arange(len(scores), dtype=np.float32))
    return _standard(scores, LEAST_SPREAD) + ORDER_WEIGHT * _standard(places)


def _standard(values: NDArray[np.float32], least: float = 1e-6) -> NDArray[np.float32]:
    """Return how many standard deviations, each of at least `least`, a value is above the mean. Shape (n,)."""
    return np.asarray((values - values.mean()) / max(float(values.std()), least)) if len(values) else values


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder, which is loaded at first use (extra `embed`).

    Args:
        model: A name on the hub of sentence-transformers, or a folder.
        batch_size: The number of pairs of query and text that are scored at once.
        device: torch's device, such as `cpu` or `cuda:0`. By default, the library chooses it.
    """

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
            raise RerankerError(
                f"{self.name} failed on {len(texts)} texts ({error}). Check the model, or pass another --reranker."
            ) from error
        return checked_scores(self, np.squeeze(scores, -1) if np.shape(scores)[1:] == (1,) else scores, len(texts))

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import CrossEncoder
            except ImportError as error:
                raise MissingExtraError("sentence-transformers", "embed") from error
            try:
                self._model = CrossEncoder(self._model_name, device=self._device, trust_remote_code=False)
            except (OSError, ValueError, RuntimeError) as error:
                raise RerankerError(
                    f"the model of {self.name} cannot be loaded ({reason_of(error)}). Check its name, or pass a folder."
                ) from error
        return self._model


class HttpReranker:
    """A `/rerank` endpoint of Cohere, Jina, vLLM or text-embeddings-inference.

    It sends `documents`, and for text-embeddings-inference the same list as `texts`. It reads `results` or a bare list,
    whose items have `index` and `relevance_score` or `score`. A transient failure is retried after the time that the
    server requests.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key_env: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        """Prepare the endpoint. Nothing is sent yet.

        Args:
            url: The full address of the endpoint.
            model: The name of the model, if the endpoint has several.
            api_key_env: The environment variable that holds the key. Without it, no key is sent.
            timeout: The time limit of one request, in seconds.
            retries: The number of times that a transient failure is retried.
            backoff: The wait before the first retry, in seconds.

        Raises:
            ConfigError: If the address cannot be used.
        """
        # The HTTP client takes a tenth of a second to import, and a search without this reranker does without it.
        from context_agent._support.http_client import Endpoint

        self._endpoint = Endpoint(
            url,
            api_key_env=api_key_env,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            longest_retry_after=LONGEST_RETRY_AFTER,
        )
        self._model = model
        self.name = f"{self._endpoint.base_url}#{model}" if model else self._endpoint.base_url

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Reranker`."""
        if not texts:
            return np.zeros(0, dtype=np.float32)
        return self._read(self._post(self._body(query, texts)), len(texts))

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._endpoint.close()

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"query": query}
        if self._model:
            # Endpoints with models are strict about unknown fields; TEI, which expects `texts`, has no models.
            return body | {"model": self._model, "documents": list(texts), "top_n": len(texts)}
        return body | {"texts": list(texts), "documents": list(texts)}

    def _post(self, body: Mapping[str, Any]) -> Events:
        from context_agent._support.credentials import rejected_key_hint
        from context_agent._support.http_client import Refusal

        try:
            return self._endpoint.post_sync("", body, lambda events: events)
        except Refusal as refusal:
            rejected = refusal.status in (401, 403)
            hint = f". {rejected_key_hint(self._endpoint.api_key_env)}" if rejected else ""
            raise RerankerError(f"the reranker failed: {refusal}{hint}") from None
        except ServerError as error:
            raise RerankerError(f"the reranker failed: {error}") from None

    def _read(self, events: Events, count: int) -> NDArray[np.float32]:
        """Return the scores in the order of the texts, shape (count,)."""
        items: Any = events[0].get("results", events)
        scores = np.full(count, np.nan)
        try:
            for item in items:
                scores[_index(item["index"], count)] = float(item.get("relevance_score", item.get("score")))
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError) as error:
            raise RerankerError(
                f"the reranker {self.name} must return a list of scores with indexes; got {reprlib.repr(items)}"
            ) from error
        missing = int(np.isnan(scores).sum())
        if missing:
            raise RerankerError(f"the reranker {self.name} must score all {count} texts; got {count - missing}")
        if not (np.abs(scores) <= np.finfo(np.float32).max).all():
            raise RerankerError(f"the reranker {self.name} must return finite scores")
        return scores.astype(np.float32)


def _index(value: object, count: int) -> int:
    """Return the index of a text. If the value is not an integer from 0 to `count - 1`, raise `ValueError`."""
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"the index must be one of {count} texts; got {value!r:.20}")
    return value
