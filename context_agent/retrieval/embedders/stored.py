"""What an index may choose by itself: an embedder on this machine, named by plain data, and never a connection.

A folder or a server may come from somebody else. What it says of its embedder is data: it can select an embedder that
ships with this package or with Chroma, and nothing that needs a network, an environment variable, a model folder or
code. Chroma itself builds whatever is stored, credentials included, when `Collection.configuration` or
`Collection.schema` is read, a record is added or a text is searched for; so nothing here asks it to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.retrieval.embedders.protocol import Embedder
    from context_agent.retrieval.manifest import Manifest


def stored_embedder(
    collection: str, manifest: Manifest | None, configuration: object = None, schema: object = None
) -> Embedder:
    """The embedder that a collection's stored data selects.

    `manifest` decides where there is one. Otherwise the embedding function in `configuration` or `schema` does: parsed
    JSON of any shape, as in `Collection.configuration_json` or in Chroma's columns `config_json_str` and `schema_str`.

    Allowed are the static embedder that ships with this package, and Chroma's default where its model files are on
    this machine. Raises `ConfigError` for anything else, with what is stored and the option that allows it.
    """
    raise ConfigError(f"{collection!r} {manifest} {configuration} {schema}")
