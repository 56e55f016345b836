"""The same promises over a real Chroma server, started as `chroma run`."""

import errno
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import chromadb
import httpx
import pytest
from chromadb.api.models.Collection import Collection

from context_agent.errors import ConfigError, CorpusError, CorpusNotFoundError
from context_agent.retrieval.chroma.client import chroma_errors
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.location import Location
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Document
from tests.support.http_server import Response as HttpResponse
from tests.support.http_server import http_server, serving


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    program = Path(sys.executable).with_name("chroma")
    command = [str(program), "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _when_up(f"http://127.0.0.1:{port}", server)
    finally:
        server.terminate()
        server.wait(10)


def _when_up(url: str, server: "subprocess.Popen[bytes]") -> str:
    for _ in range(300):
        assert server.poll() is None, "the server ended"
        try:
            if httpx.get(f"{url}/api/v2/heartbeat").is_success:
                return url
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not come up within 30 s")


def test_index_and_search(url: str, tmp_path: Path) -> None:
    embedder, counter = HashEmbedder(), CharCounter()
    settings = {"url": url, "collection": "people", "cache": tmp_path}
    report = index_documents(people(300), embedder=embedder, counter=counter, **settings)  # type: ignore[arg-type]
    assert report.chunks == 300
    with ChromaCorpus.open(embedder=embedder, **settings) as corpus:  # type: ignore[arg-type]
        assert corpus.search("the ledger of Person 42")[0].chunk.id == "person-42_0"
        assert corpus.grep("Person 7 was")[0].chunk.id == "person-7_0"
        first_ids = {hit.chunk.id for hit in corpus.search("printer")}
        assert not first_ids & {hit.chunk.id for hit in corpus.search("printer", exclude=first_ids)}
        assert len(corpus.search("printer", where={"century": 17})) > 0
        assert corpus.similarity("x y", ["person-1_0"]).shape == (1,)
        index_documents([Document("new", "A zeppelin.")], embedder=embedder, counter=counter, **settings)  # type: ignore[arg-type]
        corpus.refresh()
        assert corpus.count() == 301
        assert corpus.search("zeppelin")[0].chunk.id == "new_0"


def test_another_machine_builds_its_own_bm25_and_follows_changes(url: str, tmp_path: Path) -> None:
    embedder = HashEmbedder()
    this_machine, other_machine = tmp_path / "here", tmp_path / "there"
    settings = {"url": url, "collection": "shared", "embedder": embedder}
    index_documents(people(100), cache=this_machine, **settings)  # type: ignore[arg-type]
    with ChromaCorpus.open(cache=other_machine, **settings) as corpus:  # type: ignore[arg-type]
        assert [hit.chunk.id for hit in corpus.grep("Person 7 was")] == ["person-7_0"]
        index_documents([Document("person-7", "Person 7 is a diver.")], cache=this_machine, **settings)  # type: ignore[arg-type]
        corpus.refresh()
        assert corpus.grep("Person 7 was") == []
        assert [hit.chunk.id for hit in corpus.grep("diver")] == ["person-7_0"]
    assert len(list(other_machine.glob("*/snapshot-*"))) >= 1


def test_a_collection_of_someone_else(url: str, tmp_path: Path) -> None:
    client, embedder = chromadb.HttpClient("127.0.0.1", int(url.rpartition(":")[2])), HashEmbedder()
    collection = client.create_collection("his", embedding_function=None)

    def add(start: int, count: int) -> None:
        documents = people(count, start)
        collection.add(
            ids=[f"row {document.id}" for document in documents],
            documents=[document.text for document in documents],
            embeddings=embedder.embed_documents([document.text for document in documents]),  # type: ignore[arg-type]
        )

    add(0, 90)
    with ChromaCorpus.open(url=url, collection="his", embedder=embedder, cache=tmp_path) as corpus:
        assert corpus.search("Person 33 of the guild")[0].chunk.id == "row person-33"
        add(90, 10)
        collection.delete(ids=["row person-33"])
        corpus.refresh()
        assert corpus.count() == 99
        assert corpus.grep("Person 95 was")[0].chunk.id == "row person-95"
        assert corpus.grep("Person 33 was") == []


def test_no_request_asks_for_more_records_than_chroma_cloud_returns(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, documents = HashEmbedder(), people(700)
    texts = [document.text for document in documents]
    owners = chromadb.HttpClient(port=int(url.rpartition(":")[2])).create_collection("cloud", embedding_function=None)
    owners.add(
        ids=[document.id for document in documents],
        documents=texts,
        embeddings=embedder.embed_documents(texts),  # type: ignore[arg-type]
        metadatas=[{"kind": "person"}] * 700,
    )
    get, asked = Collection.get, []

    def recorded(collection: Collection, ids: list[str] | None = None, **options: Any) -> Any:
        asked.append(options.get("limit") if ids is None else len(ids))
        return get(collection, ids, **options)

    monkeypatch.setattr(Collection, "get", recorded)
    with ChromaCorpus.open(url=url, collection="cloud", embedder=embedder, cache=tmp_path) as corpus:
        assert corpus.count() == 700
        assert len(corpus.grep("Person", limit=700, where={"kind": "person"})) == 700
        assert len(list(corpus.walk())) == 700
    assert asked
    assert all(number is not None and number <= 300 for number in asked)


def test_what_is_not_there(url: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusNotFoundError, match=r"no collection 'absent'.*Choose from"):
        ChromaCorpus.open(url=url, collection="absent", cache=tmp_path)
    with pytest.raises(CorpusNotFoundError, match="does not answer"):
        ChromaCorpus.open(url="http://127.0.0.1:9", cache=tmp_path)
    for address in ("ftp://host", "http://host:99999", "http://[", "http://"):
        with pytest.raises(ConfigError, match="http://localhost:8000"):
            ChromaCorpus.open(url=address, cache=tmp_path)


def test_a_web_page_is_not_a_chroma_server(tmp_path: Path) -> None:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

    with serving(Pages) as port, pytest.raises(CorpusNotFoundError) as raised:
        ChromaCorpus.open(url=f"http://127.0.0.1:{port}", cache=tmp_path)
    assert f"127.0.0.1:{port} is not a Chroma server" in str(raised.value)
    assert "<" not in str(raised.value)


@pytest.mark.parametrize(("prefix", "path"), [("", ""), ("/stores/chroma", "/stores/chroma"), ("/api/v2", "")])
@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_is_asked_below_its_path_and_the_error_says_how_to_send_a_token(
    prefix: str, path: str, status: int, tmp_path: Path
) -> None:
    with http_server(HttpResponse(b"", status)) as server, pytest.raises(CorpusError) as raised:
        ChromaCorpus.open(url=f"{server.url()}{prefix}/", cache=tmp_path)
    assert server.requests[0]["path"] == f"{path}/api/v2/auth/identity"
    assert f"refused the request (HTTP {status}). If it requires a token, pass headers=" in str(raised.value)


def test_an_empty_answer_names_its_status(tmp_path: Path) -> None:
    with http_server(HttpResponse(b"", 502)) as server, pytest.raises(CorpusNotFoundError, match=r"\(HTTP 502\)"):
        ChromaCorpus.open(url=server.url(), cache=tmp_path)


@pytest.mark.parametrize("address", ["http://me:secret@127.0.0.1:9", "127.0.0.1:9?token=secret"])
def test_an_address_of_a_server_holds_no_secret(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without a user, a password or a query; got '127") as raised:
        ChromaCorpus.open(url=address, cache=tmp_path)
    assert "secret" not in str(raised.value)


def test_a_collection_that_its_owner_holds_open(url: str, tmp_path: Path) -> None:
    host, port = url.removeprefix("http://").split(":")
    collection = chromadb.HttpClient(host, int(port)).create_collection("held", embedding_function=None)
    documents = people(40)
    vectors = HashEmbedder().embed_documents([document.text for document in documents])
    collection.add(
        ids=[document.id for document in documents],
        documents=[document.text for document in documents],
        embeddings=vectors,  # type: ignore[arg-type]
    )
    with ChromaCorpus.open(collection=collection, embedder=HashEmbedder(), cache=tmp_path) as corpus:
        assert corpus.grep("Person 7 was")[0].chunk.id == "person-7"
        assert corpus.search(documents[11].text)[0].chunk.id == "person-11"
    assert list(tmp_path.iterdir()), "its BM25 index is in the cache named"
    assert collection.count() == 40


def test_a_cache_that_may_not_be_used_is_named_and_not_the_server() -> None:
    refused = pytest.raises(CorpusError, match=r"local files.*cannot be used.*'/cache'.*cache=")
    with refused, chroma_errors(Location(url="http://127.0.0.1:8000")):
        raise PermissionError(errno.EACCES, "Permission denied", "/cache")
