"""The embedder that an index may select. It runs on this machine and never opens a connection.

A folder or a server may come from a stranger. So the embedder named in a manifest or a collection is only data. It can
select an embedder that ships with this package, with Chroma, or with an extra that the user installed. It cannot select
an embedder that needs a network, an environment variable, a model folder or code. The user must pass such an embedder.

Chroma itself creates any stored function, with the credentials that its settings name. It does so when a program reads
`Collection.configuration` or `Collection.schema`, adds records, or passes text to a search. This package does none of
these with a collection that was not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from context_agent.errors import ConfigError, UnknownEmbedderError
from context_agent.retrieval.embedders import CHROMA_DEFAULT, MINILM, MULTILINGUAL, STATIC, WORDS_ALONE, load_embedder

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder
    from context_agent.retrieval.index.manifest import Manifest


CHROMA_LOCAL = frozenset({"default", "onnx_mini_lm_l6_v2"})
"""Chroma's names for its default embedding function, which runs on this machine."""

LONGEST_JSON = 1_000_000
"""The maximum length of a stored configuration, in characters."""

_LONGEST_QUOTE = 200

_EQUIVALENTS = {
    **dict.fromkeys(CHROMA_LOCAL, CHROMA_DEFAULT),
    "openai": "openai:{model_name}@{api_base}",
    "ollama": "openai:{model_name}@{url}/v1",
    "sentence_transformer": "sentence-transformers:{model_name}",
}
"""The specs for `load_embedder` that correspond to Chroma's embedding functions, with the settings to fill in."""

_ALTERNATIVE = f"To search by words alone, pass --embedder {WORDS_ALONE}"

_SAFE_SPEC = re.compile(r"[\w.:/@+-]{1,200}", re.ASCII)

_FUNCTION_PATHS = (("float_list", "vector_index"), ("sparse_vector", "sparse_vector_index"))


def stored_embedder(
    collection: str,
    manifest: Manifest | None,
    configuration: object = None,
    schema: object = None,
    *,
    dimension: int | None = None,
) -> Embedder:
    """Return the embedder that a collection's stored data selects.

    A collection may select the embedders that ship with this package, `multilingual` if its extra is installed, and
    Chroma's default if its model files are on this machine.

    Args:
        collection: The name of the collection, for error messages.
        manifest: The manifest. If there is one, it decides.
        configuration: Parsed JSON of any shape, as in `Collection.configuration_json` or in Chroma's column
            `config_json_str`.
        schema: Parsed JSON of any shape, as in Chroma's column `schema_str`.
        dimension: The length of the stored vectors, for an error message.

    Raises:
        ConfigError: If the manifest names any other embedder. The message names this embedder and the option to pass.
        MissingExtraError: If the manifest names `multilingual`, and its extra is not installed.
        UnknownEmbedderError: If there is no manifest, and the collection names no embedder or any other one.
    """
    if manifest is not None:
        return _by_manifest(collection, manifest)
    try:
        return _by_function(collection, configuration, schema, dimension)
    except ConfigError as error:
        raise UnknownEmbedderError(str(error)) from error


def _by_function(collection: str, configuration: object, schema: object, dimension: int | None) -> Embedder:
    function = _dense_function(configuration, schema)
    if function is None:
        length = f" ({dimension} numbers each)" if dimension else ""
        raise ConfigError(
            f"collection {_quoted(collection)} does not say which embedder made its vectors{length}. Pass --embedder "
            f"SPEC (in Python: embedder=, also a function). {_ALTERNATIVE}."
        )
    if function.get("name") in CHROMA_LOCAL:
        return _chroma_default(collection)
    raise _refusal(collection, f"Chroma's embedding function {_described(function)}", _equivalent(function))


def check_writable(collection: str, configuration: object, schema: object) -> None:
    """Raise `ConfigError` if Chroma would create or call a stored embedding function when records are added."""
    for function in _functions(configuration, schema):
        if function.get("name") not in CHROMA_LOCAL:
            raise ConfigError(
                f"collection {_quoted(collection)} stores Chroma's embedding function {_described(function)}. To add "
                "records, Chroma would create it with the credentials that it names. To index into another "
                "collection, pass --collection NAME."
            )


def sparse_functions(schema: object) -> dict[str, Mapping[str, Any]]:
    """Return the stored sparse embedding function of each metadata key with an enabled sparse index, ordered by key.

    If no function is stored, the mapping for the key is empty. `schema` is parsed JSON of any shape.
    """
    indexes = {key: _at(types, *_FUNCTION_PATHS[1]) for key, types in sorted(_at(schema, "keys").items())}
    enabled = {key: index for key, index in indexes.items() if index and index.get("enabled", True) is True}
    return {key: _at(index, "config", "embedding_function") for key, index in enabled.items()}


def json_value(text: str | None) -> object:
    """Return the value of a JSON text from Chroma's database. If the text is None, return None.

    Raises:
        ValueError: If the JSON is invalid, nested too deeply, or longer than `LONGEST_JSON` characters.
    """
    import pydantic_core

    if text is None:
        return None
    if len(text) > LONGEST_JSON:
        raise ValueError(f"the text must have at most {LONGEST_JSON:,} characters; got {len(text):,}")
    return pydantic_core.from_json(text)


def _by_manifest(collection: str, manifest: Manifest) -> Embedder:
    if manifest.embedder == CHROMA_DEFAULT:
        return _chroma_default(collection)
    for spec in (STATIC, MINILM, MULTILINGUAL):
        # The name says which weights made the vectors.
        if manifest.spec in ("", spec) and manifest.embedder.startswith(f"{spec}-"):
            embedder = load_embedder(spec)
            if embedder.name == manifest.embedder:
                return embedder
    stored = f"the embedder {_quoted(manifest.embedder)}"
    if manifest.spec and manifest.spec != manifest.embedder:
        stored += f" (spec {_quoted(manifest.spec)})"
    raise _refusal(collection, stored, manifest.spec or manifest.embedder)


def _chroma_default(collection: str) -> Embedder:
    from context_agent.retrieval.embedders.chroma import ChromaEmbedder

    try:
        return ChromaEmbedder.downloaded()
    except ConfigError as error:
        message = f"collection {_quoted(collection)} needs Chroma's default embedder. {error}. {_ALTERNATIVE}."
        raise ConfigError(message) from error


def _dense_function(configuration: object, schema: object) -> Mapping[str, Any] | None:
    """Return the function that made the vectors. If none is stored, return None.

    The order is that of Chroma: the configuration, the schema of the vectors, the defaults of the schema.
    """
    path = (*_FUNCTION_PATHS[0], "config", "embedding_function")
    candidates = (
        _at(configuration, "embedding_function"),
        _at(schema, "keys", "#embedding", *path),
        _at(schema, "defaults", *path),
    )
    return next((function for function in candidates if _is_function(function)), None)


def _functions(configuration: object, schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield every function that Chroma would create."""
    types_by_key = [_at(schema, "defaults"), *_at(schema, "keys").values()]
    stored = [_at(types, *path, "config", "embedding_function") for types in types_by_key for path in _FUNCTION_PATHS]
    yield from filter(_is_function, [_at(configuration, "embedding_function"), *stored])


def _is_function(function: Mapping[str, Any]) -> bool:
    """Return True if Chroma treats this as a function. The type `legacy` means that there is none."""
    return "name" in function and function.get("type") != "legacy"


def _at(value: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys. If there is none, return an empty mapping."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _refusal(collection: str, stored: str, spec: str) -> ConfigError:
    option = f"--embedder {spec}" if _SAFE_SPEC.fullmatch(spec) and _redacted(spec) == spec else "--embedder SPEC"
    return ConfigError(
        f"collection {_quoted(collection)} names {stored}. This package opens no connection, reads no "
        f"key and loads no model only because a collection names it. If you trust this embedder, pass {option}. In "
        f"Python, pass an embedder or a function as embedder=. {_ALTERNATIVE}."
    )


def _equivalent(function: Mapping[str, Any]) -> str:
    """Return the spec of this package's equivalent embedder. If there is none, return ""."""
    config = _at(function, "config")
    pattern = _EQUIVALENTS.get(str(function.get("name")), "")
    if not config.get("api_base"):
        pattern = pattern.removesuffix("@{api_base}")
    settings = {key: str(config.get(key) or "").rstrip("/") for key in re.findall(r"{(\w+)}", pattern)}
    return pattern.format_map(settings) if pattern and all(settings.values()) else ""


def _described(function: Mapping[str, Any]) -> str:
    """Return the name of a stored function, and the settings that name its model and server. They hold no secret."""
    config = _at(function, "config")
    safe_keys = [key for key in ("model_name", "model", "url", "api_base", "api_key_env_var") if config.get(key)]
    settings = ", ".join(f"{key}={_quoted(config[key])}" for key in safe_keys)
    return _quoted(function.get("name")) + (f" ({settings})" if settings else "")


def _quoted(value: object) -> str:
    """Return a stored value for an error message, escaped and truncated. Credentials and URL queries are removed."""
    text = _redacted(value if isinstance(value, str) else type(value).__name__)
    return ascii(text[:_LONGEST_QUOTE] + "..." * (len(text) > _LONGEST_QUOTE))


def _redacted(text: str) -> str:
    return re.sub(r"\?\S*", "?...", re.sub(r"//[^/\s]*@", "//...@", text[: 2 * _LONGEST_QUOTE]))
