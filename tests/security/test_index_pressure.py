"""An index while its writer is killed, runs out of memory, or fills the disk: readers still answer."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ContextAgentError, CorpusEmptyError, CorpusError, CorpusNotFoundError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from tests.support.bounded import bounded

BEFORE, AFTER = 40, 60
STEPS = ((os, "fsync"), (os, "link"), (Path, "rename"), (Path, "replace"))
"""What a writer calls to make a state durable and visible."""


def index(folder: Path, count: int) -> int:
    return index_documents(people(count), folder, embedder=HashEmbedder()).chunks


def ask(folder: Path) -> int:
    """The number of chunks of the state that a reader finds. All of them must be found."""
    with ChromaCorpus.open(folder, embedder=HashEmbedder()) as corpus:
        assert corpus.search(people(1, 7)[0].text)[0].chunk.id == "person-7_0"
        assert corpus.grep("Person 8 was")
        assert len(list(corpus.walk())) == corpus.count()
        return corpus.count()


def index_until(folder: Path, step: int) -> int:
    """Index, and end the process before this step; return how many steps there are."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os._exit(9)
            return function(*arguments, **options)

        return call

    for owner, name in STEPS:
        setattr(owner, name, counted(getattr(owner, name)))
    index(folder, AFTER)
    return calls


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "index"
    index(folder, BEFORE)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "index"))


def test_a_writer_that_is_killed_at_any_step_loses_nothing(template: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(template, tmp_path / "whole"))
    steps = bounded(index_until, first, 0).value
    assert steps > 10
    found = []
    for step in (*range(1, steps, 4), steps):
        folder = Path(shutil.copytree(template, tmp_path / str(step)))
        with pytest.raises(AssertionError, match="the process died: 9"):
            bounded(index_until, folder, step)
        found.append(bounded(ask, folder).require().value)
        assert bounded(index, folder, AFTER).require().value == AFTER
        assert bounded(ask, folder).require().value == AFTER
    assert found == sorted(found), "what a reader has seen does not go back"
    assert set(found) == {BEFORE, AFTER}


def index_within(folder: Path, megabytes: int) -> int:
    """Index with this much address space beyond what the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return index(folder, AFTER)


@pytest.mark.parametrize("megabytes", [8, 64, 256])
def test_a_writer_without_memory_loses_nothing(folder: Path, megabytes: int) -> None:
    with ChromaCorpus.open(folder, embedder=HashEmbedder()) as reader:
        try:
            outcome = bounded(index_within, folder, megabytes, seconds=3.0)
            assert outcome.value == AFTER or outcome.error is not None
        except AssertionError as ended:
            # A library without memory ends the process, or waits for a thread that it could not start and is killed.
            if "the process died" not in str(ended) and "no end after" not in str(ended):
                raise
        assert reader.count() == BEFORE
        assert reader.search(people(1, 7)[0].text)[0].chunk.id == "person-7_0"
    assert bounded(ask, folder).require().value in (BEFORE, AFTER)
    assert bounded(index, folder, AFTER).require().value == AFTER


def ask_within(folder: Path, megabytes: int) -> int:
    """Read with this much address space beyond what the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return ask(folder)


@pytest.mark.parametrize("megabytes", [1, 32])
def test_a_reader_without_memory_changes_nothing(folder: Path, megabytes: int) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    try:
        outcome = bounded(ask_within, folder, megabytes)
        assert outcome.value == BEFORE or outcome.error is not None
    except AssertionError as died:
        if "the process died" not in str(died):
            raise
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    assert bounded(ask, folder).require().value == BEFORE


@pytest.fixture
def small_disk(template: Path, tmp_path: Path) -> Iterator[Path]:
    """An index on a file system of a few megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield Path(shutil.copytree(template, disk / "index"))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("free", [0, 100_000, 600_000])
def test_a_full_disk_loses_nothing(small_disk: Path, free: int) -> None:
    filler = small_disk.parent / "filler"
    filler.write_bytes(b"x" * max(0, shutil.disk_usage(small_disk).free - free - 4_096))
    with ChromaCorpus.open(small_disk, embedder=HashEmbedder()) as reader:
        error = bounded(index, small_disk, 2_000).error
        assert isinstance(error, CorpusError), repr(error)
        assert "disk is full" in str(error)
        assert reader.search(people(1, 7)[0].text)[0].chunk.id == "person-7_0"
    assert bounded(ask, small_disk).require().value == BEFORE
    filler.unlink()
    assert bounded(index, small_disk, AFTER).require().value == AFTER
    assert bounded(ask, small_disk).require().value == AFTER


def index_with_small_files(folder: Path, kilobytes: int) -> int:
    """Index while no file may become larger than this."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1_024, kilobytes * 1_024))
    return index(folder, AFTER)


@pytest.mark.parametrize("kilobytes", [0, 4, 16, 40, 100, 200])
def test_an_index_whose_first_run_finds_a_full_disk_is_made_by_the_next(tmp_path: Path, kilobytes: int) -> None:
    folder = tmp_path / "index"
    error = bounded(index_with_small_files, folder, kilobytes).error
    assert isinstance(error, CorpusError), repr(error)
    assert "disk is full" in str(error)
    if (folder / "chroma.sqlite3").exists():
        with pytest.raises((CorpusNotFoundError, CorpusEmptyError), match="To resume it, run"):
            ChromaCorpus.open(folder, embedder=HashEmbedder())
    assert bounded(index, folder, AFTER).require().value == AFTER
    assert bounded(ask, folder).require().value == AFTER


def test_a_writer_on_a_read_only_file_system_says_so(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk.parent], check=True)
    error = bounded(index, small_disk, AFTER).error
    assert isinstance(error, ContextAgentError), repr(error)
    assert "read-only" in str(error).lower()
    cache = small_disk.parents[1] / "cache"
    with ChromaCorpus.open(small_disk, embedder=HashEmbedder(), cache=cache) as corpus:
        assert corpus.count() == BEFORE


def open_with_cache(folder: Path, cache: Path) -> None:
    ChromaCorpus.open(folder, embedder=HashEmbedder(), cache=cache).close()


def test_a_cache_on_a_full_disk_is_named_and_nothing_is_left_in_it(template: Path, small_disk: Path) -> None:
    cache = small_disk.parent / "cache"
    filler = small_disk.parent / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 24_576))
    error = bounded(open_with_cache, template, cache).error
    assert isinstance(error, CorpusError), repr(error)
    assert re.search(f"copied to {cache}.*disk there is full.*cache=", str(error))
    assert [child.name for child in cache.glob("*/*")] == ["snapshot.lock"]
    filler.unlink()
    bounded(open_with_cache, template, cache).require()
