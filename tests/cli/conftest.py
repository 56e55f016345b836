"""A folder of notes, an index of it, and `ctx1` to run in an empty folder."""

import functools
import io
from subprocess import CompletedProcess

import docstring_parser
import pytest

from context_agent.cli.app import run
from tests.support import ctx1_process
from tests.support.demo_corpus import passages
from tests.support.forked_workers import fork_workers
from tests.support.shared_folders import made_once


@pytest.fixture(scope="session", autouse=True)
def _remembered_docstrings():
    """Let cyclopts parse each docstring once. The help of each command parses those of the options that all share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docstring_parser, "parse_from_object", functools.cache(docstring_parser.parse_from_object))
        yield


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch):
    """Let commands in this process have workers that start as forks."""
    fork_workers(monkeypatch)


@pytest.fixture
def ctx1(tmp_path):
    """Run `ctx1` in the test's own folder."""
    return functools.partial(ctx1_process.run, cwd=tmp_path)


@pytest.fixture
def inside(tmp_path, monkeypatch, capsys):
    """Run `ctx1` in this process. That is faster: a new process would spend most of its time on imports."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return CompletedProcess(arguments, code, *capsys.readouterr())

    return command


@pytest.fixture(scope="session")
def notes(tmp_path_factory):
    """A folder of notes: one Markdown file for each passage. All test processes share it."""

    def write(folder):
        for passage in passages():
            text = f"# {passage['title']}\n\n{passage['text']}\n"
            (folder / f"{passage['id']}.md").write_text(text, encoding="utf-8")

    return made_once(tmp_path_factory, "notes", write)


@pytest.fixture(scope="session")
def index(notes, tmp_path_factory):
    """The notes, indexed by `ctx1 index`. All test processes share the index."""

    def make(folder):
        index_run = ctx1_process.run("index", notes, "--path", folder / "index", cwd=folder)
        assert index_run.returncode == 0, index_run.stderr

    return made_once(tmp_path_factory, "notes-index", make) / "index"
