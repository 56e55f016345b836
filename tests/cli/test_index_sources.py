"""`ctx1 index` on folders of users: messages about files that are not read, and an index that stays current."""

import errno
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from context_agent.cli import source_changes
from context_agent.errors import DataError
from tests.support.ctx1_process import PATIENCE
from tests.support.forked_ctx1 import forked_ctx1

SENTENCE = "The observatory on the hill keeps a log of every storm that passes over the harbour in winter."


def write_files(folder: Path, **files: str) -> Path:
    """Write the files to the folder and return the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


PICTURE = "\0picture"
"""What a binary file of these tests holds."""


def other_notes(text):
    """The notes of a command besides the one about the embedder of a new index."""
    return [line for line in text.splitlines() if not line.startswith("ctx1 index: embedder: ")]


def test_binary_files_of_a_kind_take_one_line(inside, tmp_path):
    pictures = {f"pictures/{n}.PNG": PICTURE for n in range(30)}
    folder = write_files(tmp_path / "n", **{"a.md": SENTENCE, "b.zip": PICTURE, "core": PICTURE, **pictures})
    process = inside("index", folder, "--path", "i")
    assert process.returncode == 0, process.stderr
    assert other_notes(process.stderr) == [
        "ctx1 index: 30 .png files: not text but binary",
        "ctx1 index: 1 .zip file: not text but binary",
        "ctx1 index: 1 extensionless file: not text but binary",
    ]
    assert process.stdout.splitlines()[-1] == (
        "Files read: 1 (1 .md). Left out: 32 (30 .png, 1 .zip, 1 extensionless)."
    )
    first_line = inside("index", folder, "--path", "i", "--verbose").stderr.splitlines()[0]
    assert first_line == (
        "ctx1 index: 30 .png files: not text but binary "
        f"({', '.join(f'{folder}/pictures/{n}.PNG' for n in (0, 1, 10))} ...)"
    )
    report = json.loads(inside("index", folder, "--path", "i", "--json").stdout)
    reason = "not text but binary"
    assert report["kinds"] == {"extensionless": {reason: 1}, ".png": {reason: 30}, ".zip": {reason: 1}}
    assert (report["skipped"], len(report["notices"])) == (32, 32)


def test_a_named_file_of_any_name_is_read_as_text(inside, tmp_path):
    write_files(tmp_path, **{"a.xyz": "Text."})
    process = inside("index", "a.xyz", "--path", "i")
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "Files read: 1 (1 .xyz). None was left out."


def test_sources_shows_what_an_index_would_hold_and_stores_nothing(inside, tmp_path):
    files = {"a.md": SENTENCE, "Makefile": "all:\n\techo done\n", "x.png": PICTURE, "app.min.js": "a=1;" * 500}
    write_files(tmp_path / "n", **files)
    process = inside("sources", "n")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert [line.split() for line in lines[:2]] == [["1", ".md"], ["1", "extensionless"]]
    assert "  1 .js file: the file is minified. To read it, name it as a source." in lines
    assert "  1 .png file: not text but binary" in lines
    assert lines[-1].endswith("Files read: 2 (1 .md, 1 extensionless). Left out: 2 (1 .js, 1 .png).")
    assert [path.name for path in tmp_path.iterdir() if path.name != "n" and path.suffix != ".toml"] == []
    report = json.loads(inside("sources", "n", "--json").stdout)
    assert (report["documents"], report["files_read"]) == (2, {".md": 1, "extensionless": 1})
    assert inside("index", "n", "--path", "i").stdout.splitlines()[-1] == lines[-1].partition(". ")[2]


def test_the_two_lines_of_the_summary_count_each_loss_once_and_losses_are_listed_first(inside, tmp_path):
    tables = {f"a{number:02}.csv": "name\n\u00fcber\n" for number in range(20)}
    for name, text in tables.items():
        (tmp_path / name).write_text(text, "latin-1")
    write_files(tmp_path, **{"b.jsonl": '{"text": "The mill."}\n{"te\n', "c.png": PICTURE})
    process = inside("index", ".", "--path", "i")
    first, second = process.stdout.splitlines()
    assert "1 rows or folders left out" in first
    assert second.endswith("Left out: 1 (1 .png).")
    assert "b.jsonl:2" in process.stderr.splitlines()[0]


def test_an_index_in_a_source_folder_is_not_read(inside, tmp_path):
    write_files(tmp_path, **{"a.md": SENTENCE})
    for _ in range(2):
        process = inside("index", ".", "--path", "here", "--no-ignore")
        assert process.stdout.splitlines()[-1] == "Files read: 1 (1 .md). None was left out."


def test_gitignore_and_the_folders_of_tools_are_respected_and_said(inside, tmp_path):
    tools = {f"{name}/x.md": "Tool." for name in ("node_modules", "venv", "__pycache__", "sub/build", ".git")}
    rules = {".gitignore": "*.log.md\n!keep.log.md\n/private/\n", "sub/.gitignore": "draft*\n"}
    notes = {"a.md": SENTENCE, "b.log.md": "B.", "keep.log.md": "K.", "private/c.md": "C.", "sub/draft.md": "D."}
    folder = write_files(tmp_path / "n", **tools, **rules, **notes, **{"sub/private/e.md": "E."})
    process = inside("index", folder, "--path", "i", "--json")
    assert json.loads(process.stdout)["documents"] == 3
    assert other_notes(process.stderr) == [
        (
            "ctx1 index: not read: folders named __pycache__, build, node_modules, venv and 3 entries that .gitignore "
            "excludes. To read them, pass --no-ignore."
        )
    ]
    process = inside("index", folder, "--path", "i", "--json", "--no-ignore")
    assert (json.loads(process.stdout)["documents"], process.stderr) == (10, "")


def test_the_rules_of_a_repository_hold_in_its_folders(inside, tmp_path):
    write_files(
        tmp_path / "repo",
        **{".git/HEAD": "x", ".gitignore": "secret.md\n", "notes/secret.md": "S.", "notes/a.md": "A."},
    )
    assert json.loads(inside("index", "repo/notes", "--path", "i", "--json").stdout)["documents"] == 1


def test_a_url_is_refused_with_what_to_do(inside, tmp_path):
    process = inside("index", "https://example.com/page", "--path", "i")
    assert process.returncode == 1
    assert process.stderr == (
        "ctx1: https://example.com/page is a URL, but a source must be a file or a folder. Download it, for example "
        "with `curl -O`, and name the file.\n"
    )
    assert not (tmp_path / "i").exists()


def test_a_missing_source_beside_a_good_one_ends_the_run_before_it_begins(inside, tmp_path):
    write_files(tmp_path / "n", **{"a.md": "Text."})
    process = inside("index", "n", "nots", "--path", "i")
    assert process.returncode == 1
    assert process.stderr == "ctx1: nots does not exist, so nothing was read. Check the path.\n"
    assert not (tmp_path / "i").exists()


def test_deleted_files_are_noticed_and_removed_on_request(inside, tmp_path):
    folder = write_files(tmp_path / "n", **{f"{n}.md": f"Note {n}." for n in range(6)})
    inside("index", folder, "--path", "i")
    for number in range(5):
        (folder / f"{number}.md").unlink()
    process = inside("index", folder, "--path", "i")
    assert "1 unchanged, 5 missing" in process.stdout
    assert process.stderr == (
        "ctx1 index: 5 documents of the index, not among these sources: 0.md, 1.md, 2.md and 2 more. If the files are "
        "deleted, --remove-missing removes the documents\n"
    )
    process = inside("index", folder, "--path", "i", "--remove-missing", "--json")
    report = json.loads(process.stdout)
    assert (report["removed"], report["missing"], report["chunks"], process.stderr) == (5, 0, 1, "")
    (folder / "5.md").unlink()
    process = inside("index", folder, "--path", "i")
    assert process.returncode == 1
    assert "nothing to index" in process.stderr
    assert "--remove-missing" in process.stderr
    process = inside("index", folder, "--path", "i", "--remove-missing", "--json")
    report = json.loads(process.stdout)
    assert (report["removed"], report["chunks"], process.returncode) == (1, 0, 0)
    process = inside("search", "Which note?", "--path", "i")
    assert "Nothing relevant found" in process.stdout + process.stderr
    assert "is empty" in inside("doctor", "--path", "i").stdout


def test_documents_of_files_that_cannot_be_read_are_kept_until_the_files_are_deleted(inside, tmp_path, monkeypatch):
    folder = write_files(tmp_path / "n", **{"a.md": "First.", "b.md": "Second."})
    inside("index", folder, "--path", "i")
    open_file = os.open

    def opened(path, flags, *rest, **options):
        if path == "b.md":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_file(path, flags, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        process = inside("index", folder, "--path", "i", "--remove-missing")
    assert "1 unchanged, 1 missing" in process.stdout
    assert "kept because files or folders that may hold them cannot be read: b.md. Make these files" in process.stderr
    (folder / "b.md").unlink()
    assert "1 removed" in inside("index", folder, "--path", "i", "--remove-missing").stdout


def test_watch_adds_changes_and_removes_documents_and_leaves_those_of_other_sources(inside, tmp_path, monkeypatch):
    folder = write_files(tmp_path / "n", **{"a.md": "First.", "b.md": "Second."})
    write_files(tmp_path / "other", **{"o.md": "Other."})
    inside("index", "other", "--path", "i")
    steps = iter(
        [
            lambda: (folder / "c.md").write_text("Third."),
            lambda: (folder / "a.md").write_text("First, changed."),
            (folder / "b.md").unlink,
            lambda: None,
            lambda: [(folder / name).unlink() for name in ("a.md", "c.md")],
        ]
    )

    def changes(*_, **__):
        yield
        for step in steps:
            step()
            yield

    monkeypatch.setattr("context_agent.cli.index.changes", changes)
    process = inside("index", "n", "--watch", "--path", "i", "--json")
    assert process.returncode == 0, process.stderr
    reports = [json.loads(line) for line in process.stdout.splitlines()]
    counts = [(report["added"], report["replaced"], report["removed"], report["chunks"]) for report in reports]
    assert counts == [(2, 0, 0, 3), (1, 0, 0, 4), (0, 1, 0, 4), (0, 0, 1, 3), (0, 0, 2, 1)]


def test_changes_of_sources_are_seen_and_those_of_hidden_files_and_the_index_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(source_changes, "DEBOUNCE", 100)
    monkeypatch.setattr(source_changes, "STEP", 50)
    folder = write_files(tmp_path / "n", **{"a.md": "A.", "sub/b.md": "B.", "index/x": "x", ".hidden/x": "x"})
    batches = source_changes.changes([str(folder)], folder / "index", no_ignore=False)
    next(batches)
    for ignored_path in ("index/x", ".hidden/x"):
        (folder / ignored_path).write_text("changed")
    change_event = threading.Event()
    threading.Thread(target=lambda: (next(batches), change_event.set()), daemon=True).start()
    assert not change_event.wait(0.5)
    (folder / "sub/b.md").write_text("changed")
    assert change_event.wait(120)


def test_what_a_link_leads_to_is_not_watched_and_a_folder_made_anew_is(tmp_path, monkeypatch):
    monkeypatch.setattr(source_changes, "DEBOUNCE", 100)
    monkeypatch.setattr(source_changes, "STEP", 50)
    folder = write_files(tmp_path / "n", **{"a.md": "A.", "sub/b.md": "B."})
    outside = write_files(tmp_path / "outside", **{"c.md": "C."})
    (folder / "sub/link").symlink_to(outside)
    batches = source_changes.changes([str(folder)], None, no_ignore=False)
    next(batches)
    changed = threading.Semaphore(0)

    def count():
        for _ in batches:
            changed.release()

    def is_noticed():
        noticed = changed.acquire(timeout=120)
        while changed.acquire(timeout=0.5):  # the batches of one change may be several
            pass
        return noticed

    threading.Thread(target=count, daemon=True).start()
    (outside / "c.md").write_text("changed")
    assert not changed.acquire(timeout=0.5)
    (folder / "new").mkdir()
    assert is_noticed()
    (folder / "new/d.md").write_text("D.")
    assert is_noticed()
    shutil.rmtree(folder)
    assert is_noticed()
    write_files(folder, **{"sub/b.md": "B."})
    assert is_noticed()
    (folder / "sub/b.md").write_text("changed")
    assert is_noticed()


def test_too_many_folders_to_watch_end_the_run_with_the_remedy(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("OS file watch limit reached")
        yield

    monkeypatch.setattr("watchfiles.watch", refuse)
    with pytest.raises(DataError, match=r"1 folders cannot be watched .OS file watch limit.*max_user_watches"):
        next(source_changes.changes([str(tmp_path)], None, no_ignore=False))


def test_a_watched_folder_is_indexed_again_and_ctrl_c_ends_cleanly(tmp_path):
    write_files(tmp_path / "n", **{"a.md": "First."})
    command = [forked_ctx1(), "index", "n", "--watch", "--path", "i", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["added"] == 1
        (tmp_path / "n" / "b.md").write_text("Second.")
        assert json.loads(child.stdout.readline())["added"] == 1
        child.send_signal(2)
        output, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, output) == (0, "")
    assert other_notes(errors) == ["ctx1 index: watching for changes. To end, press Ctrl-C."]


def test_standard_input_cannot_be_watched(inside):
    process = inside("index", "-", "--watch", "--path", "i", stdin="text")
    assert process.returncode == 2
    assert "--watch needs files or folders" in process.stderr


def test_a_hostile_gitignore_costs_neither_time_nor_the_run(inside, tmp_path):
    folder = write_files(tmp_path / "n", **{".gitignore": "*a" * 12 + "*b\n[z-a]\n", "a" * 200 + ".md": "Text."})
    write_files(tmp_path / "m", **{".gitignore": "*a" * 12 + "*b\n", "a" * 200 + ".md": "Text."})
    start = time.perf_counter()
    process = inside("index", folder, "m", "--path", "i", "--json")
    assert json.loads(process.stdout)["documents"] == 1, "the documents of both folders have one id and text"
    assert other_notes(process.stderr) == []
    assert time.perf_counter() - start < 20
