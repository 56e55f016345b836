"""Options that name an index and say how to read it, and the filter on what is searched."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from context_agent._support.small_files import parse_json
from context_agent.cli import output
from context_agent.cli.invocation import is_shared
from context_agent.cli.parameters import FOLDER, options_in
from context_agent.errors import ConfigError, CorpusNotFoundError, UnknownEmbedderError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.corpus import ChromaCorpus


EMBEDDERS = (
    "static, minilm, multilingual, sentence-transformers:NAME, openai:MODEL[@URL] or chroma-default. A URL gets an API "
    "key only if it ends in ?api_key_env=VARIABLE."
)
DEFAULT_EMBEDDER = "minilm for up to 600,000 characters of English, otherwise static"
"""The choice of `default_embedder`, in words."""
NO_VECTORS = "none"
"""The embedder that searches by words alone."""
DEFAULT_TENANT, DEFAULT_DATABASE = "default_tenant", "default_database"
"""Chroma's names. Importing them from Chroma takes more than a second."""
INDEX_FOLDER = Path(".ctx1")
"""The default folder of an index."""


def _metadata_filter(_: Any, tokens: Sequence[Token]) -> Any:
    """Return the filter as a dictionary.

    A VALUE that is a number, `true` or `false` matches values of that type, and the same text, because the cells of a
    CSV file are text. In quotes it matches text alone.

    Raises:
        ValueError: If the text is neither KEY=VALUE nor JSON, or if no index could use the filter.
    """
    from context_agent.retrieval.filters import compile_where

    text = tokens[0].value
    try:
        where = _json_filter(text) if text.lstrip().startswith("{") else _equality(text)
        compile_where(where)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return where


def _json_filter(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigError(
            f'the filter is not valid JSON ({error}). Write it like {{"year": {{"$gte": 2020}}}}.'
        ) from None


def _equality(text: str) -> Any:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'a filter must be KEY=VALUE, or JSON like {{"year": {{"$gte": 2020}}}}; got {text!r}')
    key, value = key.strip(), value.strip()
    if name := {">": "$gte", "<": "$lte", "!": "$ne"}.get(key[-1]):
        example = json.dumps({key[:-1].strip(): {name: 2020}})
        raise ConfigError(f"KEY=VALUE compares for equality alone. Write other comparisons as JSON, like {example}.")
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = value
    if isinstance(parsed, str):
        return {key: parsed}
    return {"$or": [{key: parsed}, {key: value}]} if isinstance(parsed, int | float) else {key: value}


WhereOption = Annotated[
    Any,
    Parameter(
        help='Search only chunks whose metadata match: lang=en, or JSON like {"year": {"$gte": 2020}}.',
        converter=_metadata_filter,
        metavar="FILTER",
    ),
]


@options_in("Index")
@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The index to use: a folder or a server, and the collection in it.

    If neither is set, the folder is `INDEX_FOLDER`.
    """

    path: Annotated[Path | None, FOLDER, Parameter(name=("--path", "--index"), show_default=str(INDEX_FOLDER))] = None
    """Folder of the index."""
    url: Annotated[str | None, Parameter(metavar="URL")] = None
    """Chroma server to use instead of a folder, e.g. http://localhost:8000."""
    collection: Annotated[
        str | None,
        Parameter(
            metavar="NAME", show_default=f"{DEFAULT_COLLECTION}; if it is missing, a search reads the only other one"
        ),
    ] = None
    """Collection in the folder or on the server."""
    tenant: Annotated[str | None, Parameter(metavar="NAME", show_default=DEFAULT_TENANT)] = None
    """With --url: Chroma's tenant on the server."""
    database: Annotated[str | None, Parameter(metavar="NAME", show_default=DEFAULT_DATABASE)] = None
    """With --url: Chroma's database on the server."""

    def __post_init__(self) -> None:
        if self.path is not None and self.url is not None:
            raise ConfigError("--path and --url name two indexes. Remove one of them.")
        for name in ("tenant", "database") if self.url is None else ():
            if getattr(self, name) is not None:
                raise ConfigError(f"--{name} is for a Chroma server. Pass --url too, or remove --{name}.")
        if self.path is None and self.url is None:
            object.__setattr__(self, "path", INDEX_FOLDER)

    @property
    def named(self) -> bool:
        """True if an option names the index."""
        return self.url is not None or self.path != INDEX_FOLDER

    @property
    def place(self) -> str:
        """The folder, or the server's address without its secrets."""
        if self.url is None:
            return str(self.path)
        import httpx

        from context_agent._support.credentials import shown_address

        return shown_address(httpx.URL(self.url))

    @property
    def remedy(self) -> str:
        """The advice for a user whose index does not exist."""
        values = {name: getattr(self, name) for name in ("url", "path", "collection", "tenant", "database")}
        options = [word for name, value in values.items() if value for word in (f"--{name}", str(value))]
        return f"To make this index: ctx1 index SOURCE {shlex.join(options)}"


@options_in("Retrieval")
@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The options for reading an index. The keys name metadata entries of a collection that another program made."""

    embedder: Annotated[
        str | None,
        Parameter(
            help=f"Embedder of the questions: {EMBEDDERS} none searches by words alone.",
            metavar="SPEC",
            show_default="the index's, if it needs no network",
        ),
    ] = None
    reranker: Annotated[str | None, Parameter(metavar="SPEC", show_default="none")] = None
    """Reranker: late-interaction, which works offline, cross-encoder:MODEL, or the URL of a /rerank endpoint, which
    gets an API key only if it ends in ?api_key_env=VARIABLE."""
    text_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the text."""
    title_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the title."""
    document_key: Annotated[str | None, Parameter(metavar="KEY")] = None
    """For a collection of another program: metadata entry with the document id."""
    shared_keys: Annotated[bool, Parameter(parse=False)] = field(
        default_factory=lambda: is_shared("text_key", "title_key", "document_key")
    )
    """True if all these keys are from the top level of a config file. Then an index of this package ignores them."""


@dataclass(frozen=True, slots=True)
class CorpusOptions(IndexOptions):
    """An index to read, and the options for reading it."""

    opening: OpenOptions = OpenOptions()

    def open(self, *, cache: Path | None = None, notes: bool = True) -> ChromaCorpus:
        """Return the corpus. The caller closes it. `cache` stores the data that a server's collection lacks.

        If another program made the collection and its embedder is unknown, the corpus is searched by words alone. If
        `notes` is true, a note says so, and others name the choices that the user did not make.
        """
        from context_agent.retrieval.chroma.database import MissingCollectionError

        try:
            corpus = self._open(self.opening.embedder, cache)
        except UnknownEmbedderError as error:
            corpus = self._open(NO_VECTORS, cache)
            if notes:
                output.note(f"{error}. Until then, searches use words alone, without its vectors.")
        except CorpusNotFoundError as error:
            if self.url is not None and not isinstance(error, MissingCollectionError):
                raise  # The server does not answer, so it cannot make an index either.
            raise CorpusNotFoundError(f"{error}. {self.remedy}") from error
        for notice in corpus.notices if notes else ():
            output.note(f"{notice}.")
        return corpus

    def _open(self, embedder: str | None, cache: Path | None) -> ChromaCorpus:
        from context_agent.retrieval.chroma.corpus import ChromaCorpus, UnusedKeysError
        from context_agent.retrieval.rerankers import load_reranker

        opening = self.opening
        keys: dict[str, Any] = {
            "text_key": opening.text_key,
            "title_key": opening.title_key,
            "document_key": opening.document_key,
        }
        open_with = partial(
            ChromaCorpus.open,
            self.path,
            url=self.url,
            collection=self.collection,
            tenant=self.tenant,
            database=self.database,
            embedder=embedder,
            reranker=load_reranker(opening.reranker),
            cache=cache,
        )
        try:
            return open_with(**keys)
        except UnusedKeysError:
            if not opening.shared_keys:
                raise
            return open_with()
