"""Embedders: what turns texts into vectors, and the names by which a command line or a config file asks for one.

| spec | what it is | needs |
|---|---|---|
| `static`, `static:FOLDER` | the token table that ships with the package | nothing |
| `sentence-transformers:NAME_OR_PATH` | a transformer on this machine | the extra `embed` |
| `openai:MODEL[@BASE_URL]` | any endpoint that speaks OpenAI's `/v1/embeddings` | a server |
| `chroma-default` | Chroma's own default, an ONNX model | a download at first use |

An index can select only the first without a folder, and the last where it was downloaded before: see `stored`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from context_agent.errors import ConfigError
from context_agent.retrieval.embedders.protocol import Embedder

__all__ = ["Embedder", "load_embedder"]


def load_embedder(spec: str) -> Embedder:
    """The embedder a spec names, e.g. `static` or `openai:bge-m3@http://localhost:8000/v1`.

    Raises `ConfigError` for a spec that cannot be, `MissingExtraError` for a library that is not installed.
    """
    kind, _, rest = spec.strip().partition(":")
    if kind not in _LOADERS:
        near = difflib.get_close_matches(kind, _LOADERS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(_LOADERS)
        raise ConfigError(f"no embedder is called {spec!r}; {hint}")
    return _LOADERS[kind](rest)


def _static(folder: str) -> Embedder:
    from context_agent.retrieval.embedders.static import StaticEmbedder

    return StaticEmbedder(Path(folder).expanduser() if folder else None)


def _sentence_transformers(model: str) -> Embedder:
    from context_agent.retrieval.embedders.sentence_transformers import SentenceTransformerEmbedder

    if not model:
        raise ConfigError("sentence-transformers needs a model: sentence-transformers:NAME_OR_PATH")
    return SentenceTransformerEmbedder(model)


def _openai(rest: str) -> Embedder:
    from context_agent.retrieval.embedders.openai import DEFAULT_BASE_URL, OpenAIEmbedder

    # A model's name may hold an @, an address may not start without its scheme.
    model, at, address = rest.partition("@http")
    if not model:
        raise ConfigError("openai needs a model: openai:MODEL or openai:MODEL@BASE_URL")
    return OpenAIEmbedder(model, base_url=f"http{address}" if at else DEFAULT_BASE_URL)


def _chroma_default(rest: str) -> Embedder:
    from context_agent.retrieval.embedders.chroma import ChromaEmbedder

    if rest:
        raise ConfigError(f"chroma-default takes nothing after it, got {rest!r}")
    return ChromaEmbedder.default()


_LOADERS: dict[str, Callable[[str], Embedder]] = {
    "static": _static,
    "sentence-transformers": _sentence_transformers,
    "openai": _openai,
    "chroma-default": _chroma_default,
}
