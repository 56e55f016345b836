"""`ctx1 serve` as a process: OpenAI's client, signals, replicas on one Chroma server, and options that cannot work."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chromadb
import httpx
import openai
import pytest

from context_agent import Document, index_documents
from tests.support.ctx1_process import PATIENCE
from tests.support.ctx1_server import serving

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


def test_the_official_client_and_a_judgment(index, ctx1, tmp_path):
    options = ("--path", index, "--save", "kept", "--served-as", "notes", "--effort", "fast")
    with serving(*options, cwd=tmp_path, token="s3") as server:
        assert httpx.get(f"{server.url}/health").json() == {"live": True, "ready": True, "draining": False}
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="s3", max_retries=0)
        assert [model.id for model in client.models.list()] == ["notes"]
        request = {"model": "notes", "messages": [{"role": "user", "content": QUESTION}]}
        completion = client.chat.completions.create(**request)
        stream = client.chat.completions.create(**request, stream=True)
        streamed_text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert streamed_text == completion.choices[0].message.content
        assert streamed_text.startswith("[1] ")
        result = server.ask(QUESTION, k=4).json()
        assert result["stop_reason"] == "finished"
        judgment = {"request_id": result["request_id"], "relevant": [result["documents"][0]["id"]], "rating": 5}
        assert server.client.post("/v1/feedback", json=judgment).status_code == 201
        code, log = server.end()
    assert code == 0
    requests = [entry for entry in log if entry["event"] == "request"]
    assert [entry["status"] for entry in requests].count(401) == 1
    assert "s3" not in str(log)
    assert QUESTION not in str(log)
    process = ctx1("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--path", index,
                   "--out", "tasks.jsonl", "--json")  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert '"tasks": 1' in process.stdout
    assert QUESTION in (tmp_path / "tasks.jsonl").read_text()


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_lets_what_runs_be_answered(index, tmp_path, sign, code):
    with serving("--path", index, "--concurrency", "1", cwd=tmp_path) as server, ThreadPoolExecutor(3) as pool:
        requests = [pool.submit(server.ask, QUESTION) for _ in range(3)]
        while "ctx1_searches_running 1" not in server.client.get("/metrics").text:
            time.sleep(0.005)
        exit_code, log = server.end(sign)
        answers = [request.result() for request in requests]
    assert exit_code == code
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert answers[0].status_code == 200
    assert all(answer.json()["stop_reason"] == "finished" for answer in answers if answer.status_code == 200)
    assert any(entry["event"] == "draining" for entry in log)


def test_a_changed_folder_is_read_anew(tmp_path):
    folder = tmp_path / "index"
    index_documents([Document("a", "A comet is made of ice.")], path=folder)
    with serving("--path", folder, "--check", "0.2", cwd=tmp_path) as server:
        assert [document["id"] for document in server.ask("zeppelin?").json()["documents"]] == ["a"]
        index_documents([Document("b", "A zeppelin is filled with hydrogen.")], path=folder)
        assert wait_for_document(server, "zeppelin?", "b")
        assert "ctx1_index_chunks 2" in server.client.get("/metrics").text


def test_a_note_about_a_collection_comes_once_however_often_it_is_read(tmp_path):
    client = chromadb.PersistentClient(str(tmp_path / "index"))
    collection = client.create_collection("notes", embedding_function=None)
    collection.add(ids=["a"], documents=["A comet is made of ice."], embeddings=[[1.0]])
    with serving("--path", "index", "--check", "0.2", cwd=tmp_path) as server:
        collection.add(ids=["b"], documents=["A zeppelin is filled with hydrogen."], embeddings=[[0.0]])
        assert wait_for_document(server, "zeppelin?", "b")
        server.process.terminate()
        _, stderr = server.process.communicate(timeout=PATIENCE)
    assert stderr.count("holds only the collection 'notes'") == 1
    assert stderr.count("without its vectors") == 1


@pytest.fixture
def chroma(tmp_path):
    """The URL of a Chroma server that only this test uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = str(Path(sys.executable).with_name("chroma"))
    command = [program, "run", "--path", str(tmp_path / "chroma"), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        try:
            while not answers_heartbeat(url):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield url
        finally:
            server.terminate()


def answers_heartbeat(url):
    try:
        httpx.get(f"{url}/api/v2/heartbeat").raise_for_status()
    except httpx.TransportError:
        return False
    return True


def wait_for_document(server, question, document_id):
    """Whether a search finds the document in time. Every response on the way must succeed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = server.ask(question, effort="fast")
        assert answer.status_code == 200, answer.text
        if document_id in [document["id"] for document in answer.json()["documents"]]:
            return True
        time.sleep(0.05)
    return False


def test_replicas_on_one_chroma_server_follow_its_changes(chroma, tmp_path):
    location = {"url": chroma, "collection": "shared", "cache": tmp_path / "writer"}
    index_documents([Document(f"d{n}", f"Entry {n} tells of comets.") for n in range(40)], **location)
    options = ("--url", chroma, "--collection", "shared", "--check", "0.2", "--cache")
    with serving(*options, "one", cwd=tmp_path) as first, serving(*options, "two", cwd=tmp_path) as second:
        replicas = (first, second)
        for replica in replicas:
            assert "new" not in [document["id"] for document in replica.ask("zeppelin?").json()["documents"]]
        # Both replicas are queried throughout: no request may fail because of the change.
        with ThreadPoolExecutor(2) as pool:
            waits = [pool.submit(wait_for_document, replica, "Who built the zeppelin?", "new") for replica in replicas]
            index_documents([Document("new", "The zeppelin was built by Ferdinand.")], **location)
            assert [wait.result() for wait in waits] == [True, True]
        for replica in replicas:
            metrics = replica.client.get("/metrics").text
            assert 'ctx1_index_reloads_total{outcome="done"} 1' in metrics
            assert 'ctx1_index{corpus="chroma:shared@2"} 1' in metrics
            assert "ctx1_index_stale 0" in metrics
    for cache in ("one", "two"):
        assert list((tmp_path / cache).glob("*/snapshot-2-*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "--token-env"),
        (["--token-env", "CTX1_ABSENT"], "CTX1_ABSENT of --token-env is empty"),
        (["--token-env", "HOME", "--no-token"], "cannot be combined"),
        (["--host", "no.such.host.invalid", "--no-token"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_options_that_cannot_work(ctx1, index, arguments, said):
    process = ctx1("serve", "--path", index, *arguments)
    assert process.returncode == 2
    assert said in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_port_that_is_taken_and_a_collection_that_is_not_there(ctx1, index):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        process = ctx1("serve", "--path", index, "--port", listener.getsockname()[1])
    assert (process.returncode, "Choose another --port" in process.stderr) == (2, True)
    process = ctx1("serve", "--path", index, "--collection", "absent")
    assert process.returncode == 1
    assert "no collection 'absent'" in process.stderr


def test_a_framework_of_another_version_is_named_with_its_extra(index, tmp_path):
    # A distribution of the same name comes first on the path, so the installed version is out of range.
    fake = tmp_path / "fake" / "starlette-0.1.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: starlette\nVersion: 0.1\n")
    process = subprocess.run(
        [sys.executable, "-m", "context_agent.cli", "serve", "--path", str(index)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(fake.parent)},
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 1
    assert "starlette 0.1 is installed" in process.stderr
    assert 'pip install "context-agent[serve]"' in process.stderr


def test_the_tenant_and_the_database_of_a_chroma_server(chroma, ctx1, tmp_path):
    httpx.post(f"{chroma}/api/v2/tenants", json={"name": "acme"}).raise_for_status()
    httpx.post(f"{chroma}/api/v2/tenants/acme/databases", json={"name": "films"}).raise_for_status()
    (tmp_path / "rope.md").write_text("# Rope\n\nRope was directed by Alfred Hitchcock.\n")
    place = ("--url", chroma, "--tenant", "acme", "--database", "films")
    assert ctx1("index", "rope.md", *place).returncode == 0
    found = ctx1("search", "Who directed Rope?", *place, "--json")
    assert found.returncode == 0, found.stderr
    assert "Alfred Hitchcock" in found.stdout
    missing = ctx1(
        "search", "Who directed Rope?", "--url", chroma, "--tenant", "acme", "--database", "films", "--collection", "a"
    )
    assert "--collection a --tenant acme --database films" in missing.stderr
    assert "there is no collection" in ctx1("search", "Who directed Rope?", "--url", chroma).stderr
    unused = ctx1("search", "Who directed Rope?", "--tenant", "acme")
    assert unused.returncode == 2
    assert "--tenant is for a Chroma server. Pass --url too, or remove --tenant." in unused.stderr
