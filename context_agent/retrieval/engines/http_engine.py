"""Engines behind a server, as search functions: an HTTP endpoint, and the search tool of an MCP server.

    HttpEngine("http://localhost:9000/search")                              # POST {"query": ..., "limit": ...}
    HttpEngine("http://localhost:8983/solr/wiki/select?q={query}&rows={limit}")                      # GET
    HttpEngine("http://localhost:9200/wiki/_search", body={"size": "{limit}", "query": {"match": {"text": "{query}"}}})
    McpEngine("http://localhost:8000/mcp", "search_wiki")

`McpEngine` needs the extra `mcp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from context_agent._support.credentials import checked_address
from context_agent._support.http import Endpoint
from context_agent.errors import ConfigError, CorpusError, PolicyError

QUERY, LIMIT = "{query}", "{limit}"
BODY: Mapping[str, Any] = {"query": QUERY, "limit": LIMIT}
"""The body of a request by default."""
RETRIES = 2
TIMEOUT = 25.0
"""Seconds for one try, below those that `EngineCorpus` allows for all of them."""


class HttpEngine:
    """A search function over an endpoint. An address with `{query}` is requested with GET, any other with POST."""

    def __init__(
        self,
        url: str,
        *,
        body: Mapping[str, Any] | None = None,
        api_key_env: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
    ) -> None:
        """In the strings of `body`, `{query}` and `{limit}` stand for the query and the number of passages; a string
        that is only `{limit}` becomes a number. `api_key_env` names the variable whose key is sent as a bearer token.
        Raises `ConfigError` for an address or a body that cannot work.
        """
        if QUERY in url and body is not None:
            raise ConfigError(f"the address has {QUERY}, so the request has no body: remove the body, or {QUERY}")
        if body is not None and QUERY not in str(body):
            raise ConfigError(f"the body of a request has no {QUERY}: write it where the engine expects the query")
        self._body = None if QUERY in url else dict(BODY if body is None else body)
        checked_address(url)
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}" if self._body is None else url
        self._path = url.removeprefix(base)
        self._endpoint = Endpoint(base, api_key_env=api_key_env, timeout=timeout, retries=retries)
        self.__name__ = f"{parts.hostname or ''}{parts.path}"

    def __call__(self, query: str, limit: int) -> Any:
        """Return the response's JSON. Raises `CorpusError` if the endpoint fails."""
        path = self._path.replace(QUERY, quote(query, safe="")).replace(LIMIT, str(limit))
        body = None if self._body is None else _filled(self._body, query, limit)
        try:
            return self._endpoint.json_sync(path, body)
        except PolicyError as error:
            raise CorpusError(f"the engine failed: {error}") from error

    def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
        self._endpoint.close()


def _filled(value: Any, query: str, limit: int) -> Any:
    """Return the body with the query and the limit in it."""
    if isinstance(value, Mapping):
        return {name: _filled(entry, query, limit) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(entry, query, limit) for entry in value]
    if value == LIMIT:
        return limit
    # The query comes last: what a user asks is never read as a placeholder.
    return value.replace(LIMIT, str(limit)).replace(QUERY, query) if isinstance(value, str) else value
