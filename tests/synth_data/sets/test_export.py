"""Exports: `datasets` reads back the same tasks and types, without a network."""

import hashlib
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest

from context_agent.errors import ConfigError
from context_agent.synth_data.sets.export import dataset, export_splits, features
from context_agent.synth_data.task import write_tasks
from tests.support import ctx1_process
from tests.support.http_server import serving
from tests.support.tasks import FULL, task, task_in

datasets = pytest.importorskip("datasets")
BARE = task("bare", supporting=())
SPLITS = {"train": [FULL, task("b", "d1")], "test": [BARE]}


def test_parquet_is_read_back(tmp_path):
    files = export_splits(SPLITS, tmp_path / "out", "parquet")
    assert [file.name for file in files] == ["train.parquet", "test.parquet"]
    loaded = datasets.load_dataset(
        "parquet", data_files={file.stem: str(file) for file in files}, cache_dir=str(tmp_path / "cache")
    )
    assert {name: [task_in(row) for row in part] for name, part in loaded.items()} == SPLITS
    assert loaded["test"].features == features()


def test_a_datasets_folder_is_read_back(tmp_path):
    export_splits(SPLITS, tmp_path / "out", "datasets")
    loaded = datasets.load_from_disk(str(tmp_path / "out"))
    assert {name: [task_in(row) for row in part] for name, part in loaded.items()} == SPLITS


def test_types_stay_where_every_list_is_empty(tmp_path):
    """A table of empty lists gets no types from its data, so splits written separately could not be concatenated."""
    import pyarrow.parquet

    export_splits({"train": [BARE], "test": [FULL]}, tmp_path / "out", "parquet")
    empty_schema, full_schema = (
        pyarrow.parquet.read_schema(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test")
    )
    assert empty_schema.equals(full_schema)
    assert "null" not in str(empty_schema.remove_metadata())
    assert len(datasets.concatenate_datasets([*dataset({"a": [BARE], "b": [FULL]}).values()])) == 2


def test_equal_tasks_give_equal_parquet(tmp_path):
    digests = []
    for name in ("one", "two"):
        files = export_splits(SPLITS, tmp_path / name, "parquet")
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "train.parquet").write_text("old")
    with pytest.raises(ConfigError, match="not empty"):
        export_splits(SPLITS, tmp_path, "parquet")


class Hub(BaseHTTPRequestHandler):
    """A stand-in for the hub: it has no such dataset, records requests, and refuses the token."""

    asked: ClassVar[list[tuple[str, str, str]]] = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.asked.append(("POST", self.path, body))
        self._answer(401, "Invalid user token.")

    def do_GET(self):
        self.asked.append(("GET", self.path, ""))
        self._answer(404, "Repository not found")

    def _answer(self, status, error):
        data = json.dumps({"error": error}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_what_a_kill_left_is_no_obstacle(tmp_path):
    for to in ("parquet", "datasets"):
        out, partial = tmp_path / to, tmp_path / f".{to}.partial"
        partial.mkdir()
        (partial / "other.parquet").write_text("half of a ")
        out.mkdir()
        files = export_splits(SPLITS, out, to)
        assert sorted(files) == sorted(path for path in out.rglob("*") if path.is_file())
        assert out / "other.parquet" not in files
        assert not partial.exists()


@pytest.fixture
def hub():
    Hub.asked.clear()
    with serving(Hub) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("flags", "private"), [([], True), (["--public"], False)])
def test_a_push_asks_for_a_private_set_and_tells_a_refusal_in_one_line(tmp_path, hub, flags, private):
    write_tasks(tmp_path / "tasks.jsonl", [FULL])
    result = ctx1_process.run(
        *("synth", "export", "tasks.jsonl", "--push", "me/set", *flags),
        cwd=tmp_path,
        HF_ENDPOINT=hub,
        HF_TOKEN="hf_secret",
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_OFFLINE="0",
    )
    bodies = [json.loads(body) for _, path, body in Hub.asked if path == "/api/repos/create"]
    assert bodies, Hub.asked
    # Releases of the client differ in how they send the visibility.
    is_private = bodies[0]["private"] if "private" in bodies[0] else bodies[0]["visibility"] == "private"
    assert (bodies[0]["type"], is_private) == ("dataset", private)
    assert result.returncode == 2
    assert "the hub refused me/set (HTTP 401)" in result.stderr
    assert "HF_TOKEN" in result.stderr
    assert "hf_secret" not in result.stderr + result.stdout
    assert result.stderr.count("\n") == 1


def test_nothing_leaves_the_machine_without_push(tmp_path, hub):
    write_tasks(tmp_path / "tasks.jsonl", [FULL])
    result = ctx1_process.run(
        *("synth", "export", "tasks.jsonl", "--out", "out", "--to", "datasets"), cwd=tmp_path, HF_ENDPOINT=hub
    )
    assert result.returncode == 0, result.stderr
    assert Hub.asked == []


def test_a_missing_library_names_the_extra(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", [FULL])
    code = "import sys; sys.modules['datasets'] = None; from context_agent.cli import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", code, "synth", "export", "tasks.jsonl", "--out", "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ,
    )
    assert result.returncode == 1
    assert "context-agent[datasets]" in result.stderr
