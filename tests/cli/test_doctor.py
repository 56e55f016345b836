"""`ctx1 doctor`: finds what is broken and says how to fix it."""

import importlib.metadata
import json
import shutil

from context_agent.policies.chat.scripted_server import ScriptedServer, says
from tests.support.ctx1_process import CTX1


def read_checks(process):
    report = json.loads(process.stdout)
    return report["healthy"], {check["name"]: check for check in report["checks"]}


def test_a_fresh_installation_is_healthy(ctx1):
    process = ctx1("doctor", "--json", ctx1=CTX1)
    healthy, checks = read_checks(process)
    assert (process.returncode, healthy) == (0, True), checks
    assert {"python", "packages", "extras", "weights", "round trip", "index"} <= set(checks)
    assert checks["index"]["status"] == "note"


def test_the_version_of_a_package_is_read_once(inside, monkeypatch):
    from context_agent.cli import doctor

    read = []

    def version(name):
        read.append(name)
        raise importlib.metadata.PackageNotFoundError

    doctor._version.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", version)
    try:
        inside("doctor", "--json")
    finally:
        doctor._version.cache_clear()
    assert len(read) == len(set(read)) > 20


def test_an_index_is_opened_and_searched(inside, index):
    process = inside("doctor", "--path", index)
    assert process.returncode == 0, process.stdout
    assert "chunks" in process.stdout
    assert "\x1b" not in process.stdout


def test_a_damaged_index_is_a_problem(inside, index, tmp_path):
    shutil.copytree(index, tmp_path / "broken")
    (tmp_path / "broken" / "chroma.sqlite3").write_bytes(b"no database")
    process = inside("doctor", "--path", "broken", "--json")
    assert process.returncode == 1
    assert read_checks(process)[1]["index"]["status"] == "problem"
    assert "Traceback" not in process.stderr


def test_a_missing_index_is_a_problem_when_it_was_named(inside, tmp_path):
    process = inside("doctor", "--path", "nowhere", "--json")
    assert process.returncode == 1
    assert "ctx1 index" in read_checks(process)[1]["index"]["detail"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_looks_at_a_server(inside):
    with ScriptedServer(
        [says(calls=[("search_corpus", {"query": "Orm Skerry Light", "limit": 2})])], model_length=40_960
    ) as server:
        process = inside("doctor", "--base-url", server.url, "--model", "scripted", "--json")
    assert process.returncode == 0, process.stdout
    checks = {check["name"]: check for check in json.loads(process.stdout)["checks"]}
    assert [checks[name]["status"] for name in ("server", "model", "tools", "context")] == ["ok"] * 4


def test_doctor_says_what_is_wrong_with_a_server(ctx1):
    with ScriptedServer([says("no tools here")], model_length=8192) as server:
        process = ctx1("doctor", "--token-ids", CTX1_BASE_URL=server.url, CTX1_MODEL="scripted")
    assert process.returncode == 1
    assert "--window 8192" in process.stdout
    assert "--tools text" in process.stdout
    assert "token ids" in process.stdout


def test_doctor_without_a_server_asks_none(inside):
    process = inside("doctor", "--json")
    assert "server" not in {check["name"] for check in json.loads(process.stdout)["checks"]}
