"""A folder is read as it is allowed to be read, whatever is in it and whatever happens to it meanwhile."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent import index_documents
from context_agent.errors import MissingExtraError
from context_agent.retrieval.document_checks import check_document
from context_agent.retrieval.loaders import READERS, LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.folders import LINK_TO_FOLDER, MAX_DEPTH, FolderWalk
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.report import MAX_LISTED_NOTICES
from context_agent.testing import HashEmbedder
from context_agent.types import Document


def read(folder: Path) -> tuple[dict[str, str], LoadReport]:
    """The texts by the path of their files, and the report."""
    report = LoadReport()
    return {str(document.metadata["path"]): document.text for document in load(folder, report=report)}, report


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of files and folders that cannot be opened. A test adds to them."""
    names: set[str] = set()
    open_file = os.open

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if Path(path).name in names:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_file(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", opened)
    return names


def test_an_index_keeps_the_documents_of_files_that_cannot_be_read(tmp_path: Path, locked: set[str]) -> None:
    texts = {
        "a/b.md": "Bridge.",
        "a/c d.md": "Crane.",
        "a.md": "Anchor.",
        "b/gone.md": "Gate.",
        "r/a.csv": "text\nRope.",
    }
    folder, index = write(tmp_path / "notes", **texts), tmp_path / "index"

    def update() -> tuple[int, int]:
        report = LoadReport()
        documents = load(folder, report=report)
        run = index_documents(documents, index, embedder=HashEmbedder(), remove_missing=True, keep=report.may_hold)
        return run.removed, run.missing

    assert update() == (0, 0)
    (folder / "b/gone.md").unlink()
    locked |= {"a"}
    assert update() == (1, 2)
    locked.symmetric_difference_update({"a", "c d.md"})
    assert update() == (0, 1)
    (folder / "a/b.md").unlink()
    locked |= {"a.csv"}  # whose rows could be any of the documents
    assert update() == (0, 3)
    locked.clear()
    assert update() == (1, 0)
    locked.add("notes")
    assert update() == (0, 3)


def test_the_documents_of_files_whose_package_is_missing_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("pypdf", reason="needs the extra docs")
    folder = write(tmp_path / "notes", **{"a.md": "Anchor.", "b.pdf": "%PDF-1.7", "c.PARQUET": "PAR1"})

    def without_package(_: Reading) -> Iterator[Document]:
        raise MissingExtraError("pypdf", "docs")

    def kept(*names: str) -> list[bool]:
        report = LoadReport()
        readers = {**READERS, **dict.fromkeys(names, without_package)}
        assert [document.id for document in load(folder / "a.md", report=report, readers=readers)] == ["a.md"]
        list(load(folder, report=report, readers=readers))
        return [report.may_hold(document) for document in ("a.md", "b.pdf", "gone.pdf", "a row")]

    assert kept() == [False] * 4
    assert kept(".pdf") == [False, True, False, False]
    assert kept(".parquet") == [True] * 4, "a row may be any of the documents"


def test_a_file_that_disappears_or_becomes_a_link_keeps_no_document() -> None:
    report = LoadReport()
    for number in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
        report.miss("a.md", OSError(number, "gone"))
    report.miss("a.md", gzip.BadGzipFile("damaged"))
    assert not report.may_hold("a.md")
    report.miss("a.md", OSError(errno.EIO, "broken"))
    held = ["a.md", "a.md~2", "a.md#1", "a.md/b", "a.mdx", "b/a.md", "a"]
    assert [report.may_hold(document) for document in held] == [True] * 4 + [False] * 3
    for number in range(MAX_LISTED_NOTICES):
        report.miss(str(number), OSError(errno.EIO, "broken"))
    assert (report.may_hold("anything"), report.unreadable) == (True, [""])


def test_what_a_browser_saved_with_a_page_is_left_out(tmp_path: Path) -> None:
    for name in (
        "Weir.html",
        "Weir_files/ads.html",
        "Mill.htm",
        "Mill_files/a.js",
        "sources_files/a.txt",
        "_files/b.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("The mill stood.")
    report = LoadReport()
    read = [document.id for document in load(tmp_path, report=report)]
    assert read == ["Mill.htm", "Weir.html", "_files/b.txt", "sources_files/a.txt"]
    assert report.ignored == {"*_files": 2}
    assert len(list(load(tmp_path, options=LoadOptions(no_ignore=True)))) == 6


def test_files_of_the_same_name_are_titled_by_their_paths(tmp_path: Path) -> None:
    """Otherwise no passage says which `values.yaml` it is from."""
    files = {
        "prod/values.yaml": "port: 1",
        "test/Dockerfile": "FROM a",
        "test/a.json": '{"a": 1}',
        "x/b.xml": "<b>c</b>",
    }
    titles = [document.title for document in load(write(tmp_path, **files))]
    assert titles == list(files)


# Rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        "[z-a]x\nsecret.txt\n",
        "".join(f"rule-{n}*\n" for n in range(2_000)) + "secret.txt\n",
        "[[:none:]]\n[\nsecret.txt\\\nsecret.*\n",
        "a\0b\n\\\nsecret.txt \r\n",
    ],
)
def test_a_rule_that_git_passes_over_leaves_the_others(tmp_path: Path, rules: str) -> None:
    write(tmp_path, **{".gitignore": rules, "secret.txt": "secret", "a.txt": "text"})
    texts, report = read(tmp_path)
    assert texts == {"a.txt": "text"}
    assert (report.skipped, report.ignored) == (0, {".gitignore": 1})


@pytest.mark.parametrize("kind", ["large", "long", "link", "pipe", "folder"])
def test_a_folder_whose_rules_are_unknown_is_not_read(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, **{"a.txt": "text", "sub/b.txt": "secret", "sub/below/c.txt": "secret", "z/d.txt": "last"})
    rules = tmp_path / "sub/.gitignore"
    match kind:
        case "large":
            rules.write_text("*a*b*c\n" * 2**17)
        case "long":
            rules.write_text("a" * 2_000 + "\nb.txt\n")
        case "link":
            rules.symlink_to(tmp_path / "a.txt")
        case "pipe":
            os.mkfifo(rules)
        case _:
            rules.mkdir()
    texts, report = read(tmp_path)
    assert texts == {"a.txt": "text", "z/d.txt": "last"}
    (notice,) = report.notices
    assert (notice.source, notice.lost) == (str(rules), True)
    assert (
        "Its folder is not read, because what the file excludes is unknown. To read the folder, pass --no-ignore."
        in notice.reason
    )
    assert capfd.readouterr() == ("", "")


def test_unknown_rules_above_the_source_leave_it_out(tmp_path: Path) -> None:
    write(tmp_path, **{".git/HEAD": "x", ".gitignore": "a" * 2_000, "sub/notes/a.txt": "text"})
    texts, report = read(tmp_path / "sub/notes")
    assert texts == {}
    assert [notice.source for notice in report.notices] == [str(tmp_path / ".gitignore")]


def test_a_source_in_an_excluded_folder_is_excluded(tmp_path: Path) -> None:
    write(tmp_path, **{".git/HEAD": "x", ".gitignore": "/sub/\n!a.txt\n", "sub/notes/a.txt": "text"})
    texts, report = read(tmp_path / "sub/notes")
    assert (texts, report.ignored) == ({}, {".gitignore": 1})


def test_the_rules_of_the_real_folder_hold_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "repo", **{".git/HEAD": "x", ".gitignore": "/notes/b.txt\n", "notes/a.txt": "a", "notes/b.txt": "b"}
    )
    (tmp_path / "repo/other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo/notes")
    monkeypatch.chdir(tmp_path / "repo/other")
    assert read(Path("../notes"))[0] == {"a.txt": "a"}
    assert read(tmp_path / "link")[0] == {"a.txt": "a"}


def test_the_rules_of_many_nested_folders_together_are_bounded(tmp_path: Path) -> None:
    folder = tmp_path
    for depth in range(12):
        write(folder, **{".gitignore": f"x{depth}\n" * 8_000, "a.txt": f"text {depth}"})
        folder /= "d"
    texts, report = read(tmp_path)
    assert 3 < len(texts) < 12
    assert "those of the folders above have more than 262,144 bytes" in report.notices[-1].reason


# Folders that change ----------------------------------------------------------------------------------------------


def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside", **{"secret.txt": "secret"})
    folder = write(tmp_path / "n", **{"a.txt": "first", "sub/secret.txt": "harmless", "z/b.txt": "last"})
    report = LoadReport()
    documents = load(folder, report=report)
    assert next(documents).text == "first"
    (folder / "sub").rename(tmp_path / "moved")
    (folder / "sub").symlink_to(tmp_path / "outside")
    assert [document.text for document in documents] == ["last"]
    assert [notice.source for notice in report.notices] == [str(folder / "sub")]


def test_an_open_folder_that_is_exchanged_is_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path / "outside", **{"b.txt": "secret"})
    folder = write(tmp_path / "n", **{"sub/a.txt": "first", "sub/b.txt": "harmless"})
    documents = load(folder)
    assert next(documents).text == "first"
    (folder / "sub").rename(tmp_path / "moved")
    (folder / "sub").symlink_to(tmp_path / "outside")
    assert [document.text for document in documents] == ["harmless"]


def test_a_folder_or_file_that_disappears_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path, **{"a.txt": "first", "b.txt": "gone", "sub/c.txt": "gone", "z/d.txt": "last"})
    report = LoadReport()
    documents = load(folder, report=report)
    assert next(documents).text == "first"
    (folder / "b.txt").unlink()
    (folder / "sub/c.txt").unlink()
    (folder / "sub").rmdir()
    assert [document.text for document in documents] == ["last"]
    assert {notice.reason for notice in report.notices} == {
        "the file cannot be read (No such file or directory)",
        "the folder cannot be read (No such file or directory)",
    }


def test_a_file_that_grows_while_it_is_read_comes_to_an_end(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"id": {n}, "text": "row {n}"}}\n' for n in range(100)))
    seen = 0
    for _ in load(tmp_path):
        seen += 1
        with file.open("a") as stream:
            stream.write(f'{{"id": "new {seen}", "text": "{"x" * 2_000}"}}\n' * 10)
        assert seen <= 100
    assert seen == 100


# Odd folders ------------------------------------------------------------------------------------------------------


def test_deep_folders_are_read_to_a_bound_without_recursion(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1_200):
            here = below(here, "d")
        texts, report = read(tmp_path)
    finally:
        os.close(here)
        _remove_deep(tmp_path)
    assert len(texts) == MAX_DEPTH + 1
    assert [notice.reason for notice in report.notices] == [
        "the folder is more than 200 levels deep. To read it, name it as a source."
    ]


def below(here: int, name: str) -> int:
    """Write a file to an open folder, and go on to a new folder in it."""
    file = os.open("a.txt", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, b"text")
    os.close(file)
    os.mkdir(name, dir_fd=here)
    folder = os.open(name, os.O_RDONLY, dir_fd=here)
    os.close(here)
    return folder


def _remove_deep(folder: Path) -> None:
    """Move the folder below the deepest ones up, again and again, since a path to them would be too long."""
    while (folder / "d").exists():
        (folder / "d/a.txt").unlink(missing_ok=True)
        if (folder / "d/d").exists():
            (folder / "d/d").rename(folder / "e")
        (folder / "d").rmdir()
        if (folder / "e").exists():
            (folder / "e").rename(folder / "d")


def test_a_path_that_is_too_long_for_an_id_is_reported(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    name = "\udcff" * 255
    for _ in range(17):
        here = below(here, name)
    os.close(here)
    report = LoadReport()
    documents = list(load(tmp_path, report=report))
    for document in documents:
        check_document(document)
    assert len(documents) == 16
    assert [notice.reason for notice in report.notices] == ["the path has more than 4,096 bytes below the source"]


@pytest.mark.parametrize("name", ["a\nb.txt", "\x1b[31m.txt", "\udc80\udcff.txt", "é" * 125 + ".txt", " .txt", "-.txt"])
def test_a_file_of_any_name_is_read(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name: "text", ".gitignore": "*.log\n[!a-z]*.md\n"})
    (document,) = load(tmp_path)
    check_document(document)
    assert document.text == "text"


def test_links_in_a_circle_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("b.txt")
    (tmp_path / "b.txt").symlink_to("a.txt")
    (tmp_path / "up").symlink_to("..")
    texts, report = read(tmp_path)
    assert texts == {}
    assert {notice.reason.partition(" (")[0] for notice in report.notices} == {
        "the file cannot be read",
        LINK_TO_FOLDER,
    }


def test_a_walk_that_is_left_leaves_no_open_folder(tmp_path: Path) -> None:
    write(tmp_path, **{f"{n}/a.txt": "text" for n in range(5)})
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("the system does not list open files")
    before = len(list(descriptors.iterdir()))
    files = FolderWalk(tmp_path, lambda *_: None, None).files()
    next(files)
    files.close()  # type: ignore[attr-defined]
    assert len(list(descriptors.iterdir())) == before


def test_what_the_repository_itself_excludes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".git/info").mkdir(parents=True)
    (tmp_path / ".git/info/exclude").write_text("secret.txt\nkept.txt\n")
    (tmp_path / ".gitignore").write_text("!kept.txt\n")
    (tmp_path / "notes").mkdir()
    for name in ("secret.txt", "notes/secret.txt", "notes/kept.txt"):
        (tmp_path / name).write_text("text")
    assert [document.id for document in load(tmp_path)] == ["notes/kept.txt"]
    assert [document.id for document in load(tmp_path / "notes")] == ["kept.txt"]
