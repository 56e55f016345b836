"""An HTTP endpoint as a search function.

HttpEngine("http://localhost:9000/search")                              # POST {"query": ..., "limit": ...}
HttpEngine("http://localhost:8983/solr/wiki/select?q={query}&rows={limit}")                      # GET
HttpEngine("http://localhost:9200/wiki/_search", body={"size": "{limit}", "query": {"match": {"text": "{query}"}}})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from context_agent._support.credentials import checked_address
from context_agent._support.http_client import Endpoint
from context_agent.errors import ConfigError, CorpusError, ServerError
from context_agent.text.normalization import well_formed

QUERY_PLACEHOLDER, LIMIT_PLACEHOLDER = "{query}", "{limit}"
"""The placeholders for the query and for the number of passages, in an address and in a body."""
DEFAULT_BODY: Mapping[str, Any] = {"query": QUERY_PLACEHOLDER, "limit": LIMIT_PLACEHOLDER}
"""The default body of a request."""
DEFAULT_RETRIES = 2
"""The number of times that a transient failure is retried."""
TRY_SECONDS = 25.0
"""The time limit of one attempt, in seconds. `EngineCorpus` allows more for all attempts together."""


class HttpEngine:
    """A search function that calls an endpoint.

    If the address has `{query}`, the request is a GET. Otherwise, it is a POST.
    """

    def __init__(
        self,
        url: str,
        *,
        body: Mapping[str, Any] | None = None,
        api_key_env: str | None = None,
        timeout: float = TRY_SECONDS,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        """Prepare the endpoint. Nothing is sent yet.

        Args:
            url: The address. `{query}` and `{limit}` in it are replaced by the query and the number of passages.
            body: The body of the request, with the same placeholders in its strings. A string that is only `{limit}`
                becomes a number.
            api_key_env: The environment variable whose key is sent as a bearer token.
            timeout: The time limit of one attempt, in seconds.
            retries: The number of times that a transient failure is retried.

        Raises:
            ConfigError: If the address or the body cannot work.
        """
        if QUERY_PLACEHOLDER in url and body is not None:
            raise ConfigError(
                f"the address has {QUERY_PLACEHOLDER}, so the request has no body. Remove the body, or "
                f"{QUERY_PLACEHOLDER}."
            )
        if body is not None and QUERY_PLACEHOLDER not in str(body):
            raise ConfigError(
                f"the body of a request has no {QUERY_PLACEHOLDER}. Write it where the engine expects the query."
            )
        self._body = None if QUERY_PLACEHOLDER in url else dict(DEFAULT_BODY if body is None else body)
        checked_address(url)
        url = url.strip()
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}" if self._body is None else url
        # `urlsplit` may change the case of the scheme, but not its length.
        self._path = url[len(base) :]
        self._endpoint = Endpoint(base, api_key_env=api_key_env, timeout=timeout, retries=retries)
        self.__name__ = f"{parts.hostname or ''}{parts.path}"

    def __call__(self, query: str, limit: int) -> Any:
        """Return the response's JSON. Raise `CorpusError` if the endpoint fails."""
        quoted = quote(well_formed(query), safe="")
        path = self._path.replace(QUERY_PLACEHOLDER, quoted).replace(LIMIT_PLACEHOLDER, str(limit))
        body = None if self._body is None else _filled(self._body, query, limit)
        try:
            return self._endpoint.json_sync(path, body)
        except ServerError as error:
            raise CorpusError(f"the engine failed: {error}") from error

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._endpoint.close()


def _filled(value: Any, query: str, limit: int) -> Any:
    """Return the body with the placeholders replaced."""
    if isinstance(value, Mapping):
        return {name: _filled(entry, query, limit) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(entry, query, limit) for entry in value]
    if value == LIMIT_PLACEHOLDER:
        return limit
    # The query comes last: what a user asks is never read as a placeholder.
    return (
        value.replace(LIMIT_PLACEHOLDER, str(limit)).replace(QUERY_PLACEHOLDER, query)
        if isinstance(value, str)
        else value
    )
