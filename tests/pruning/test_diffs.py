"""What remains of a diff says which file and which lines it changes."""

from __future__ import annotations

import pytest

from context_agent.pruning import ContextPruner
from context_agent.pruning.diffs import diffs
from context_agent.pruning.gaps import without
from context_agent.pruning.passages import Passage, cut
from tests.support.conversations import rendered
from tests.support.growth import seconds
from tests.support.long_conversation import ALWAYS, conversation


def hunk(first: int, lines: int) -> str:
    """A hunk with one line that is replaced, between blank and other lines."""
    context = "\n".join(
        " " if number % 4 == 3 else f" value_{number} = {number}" for number in range(first, first + lines)
    )
    numbers = f"{first},{lines + 1}"
    return f"@@ -{numbers} +{numbers} @@ def part_{first}():\n-old_{first} = 1\n+new_{first} = 2\n{context}"


def file_diff(name: str, *hunks: str) -> str:
    header = f"diff --git a/{name} b/{name}\nindex 92baa625..ac394c3d 100644\n--- a/{name}\n+++ b/{name}"
    return "\n".join((header, *hunks))


SMALL = file_diff("small.py", hunk(1, 6))
MIDDLE = file_diff("middle.py", hunk(10, 20), hunk(80, 20))
LARGE = file_diff("large.py", hunk(5, 120))
COMMIT = "commit 9c1f7be2aa03cd54\nAuthor: Ana\n\n    It rained in most of the weeks, and ships stayed in port.\n"
LOG = f"{COMMIT}\n{SMALL}\n{MIDDLE}\n{LARGE}\n"


def rest(text: str, kept: list[Passage]) -> str:
    passages = cut(text)
    return without(text, passages, [row for row, it in enumerate(passages) if it not in kept], lambda run: "[stub]")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_remaining_line_has_the_header_of_its_hunk_and_of_its_file(line_end: str) -> None:
    text = LOG.replace("\n", line_end)
    passages = cut(text)
    for name, start in (("small.py", 1), ("middle.py", 10), ("middle.py", 80), ("large.py", 5)):
        (changed,) = [passage for passage in passages if f"+new_{start} = 2" in passage.text]
        assert changed.label == f"It rained in most of the weeks, and ships stayed in port. {name}"
        lines = rest(text, [changed]).split(line_end)
        changed_line = lines.index(f"+new_{start} = 2")
        headers = [line for line in lines[:changed_line] if line.startswith("@@ ")]
        files = [line for line in lines[:changed_line] if line.startswith("+++ ")]
        assert headers[-1].startswith(f"@@ -{start},")
        assert files[-1] == f"+++ b/{name}"


def test_a_small_file_and_a_hunk_are_passages() -> None:
    texts = [passage.text for passage in cut(LOG)]
    assert SMALL in texts
    assert hunk(10, 20) in texts
    assert hunk(80, 20) in texts
    assert hunk(5, 120) not in texts


def test_removed_files_share_a_stub() -> None:
    text = "\n".join(file_diff(f"{name}.py", hunk(1, 6)) for name in "abc")
    assert rest(text, []) == "[stub]"


def test_the_headers_of_a_file_and_of_a_hunk_are_removed_with_the_last_of_their_lines() -> None:
    text = f"{SMALL}\n{MIDDLE}\n{LARGE}\n{SMALL}"
    assert rest(text, []) == "[stub]"
    (line,) = [passage for passage in cut(text) if "+new_5 = 2" in passage.text]
    assert rest(text, [line]).count("diff --git") == 1


def test_a_diff_whose_headers_do_not_fit_keeps_the_hunk_that_the_task_asks_for() -> None:
    text = "\n".join(file_diff(f"part_{number}/handlers.py", hunk(number + 3, 50)) for number in range(60))
    messages = rendered("openai", conversation(text, "done", user="What replaced old_44?"))
    pruned = ContextPruner("5%", strategy="bm25", prices=ALWAYS).prune(messages).messages
    (content,) = [message["content"] for message in pruned if "pruned" in str(message["content"])]
    assert "+++ b/part_41/handlers.py" in content
    assert "+new_44 = 2" in content


def test_the_lines_of_a_hunk_are_counted() -> None:
    removed = "--- a/a.sql\n+++ b/a.sql\n@@ -1,2 +1 @@\n--- a comment of SQL\n-++ b\n+x\n\\ No newline at end of file"
    ((file,),) = diffs(f"{removed}\n--- that is all")
    assert file.name == "a.sql"
    assert file.end == len(removed)


def test_a_removed_file_has_its_old_name_and_a_cut_diff_is_read_to_its_end() -> None:
    text = "--- a/old.py\t2026-01-01\n+++ /dev/null\n@@ -1,9 +0,0 @@\n-a\n-b"
    ((file,),) = diffs(text)
    assert (file.name, file.end) == ("old.py", len(text))


def test_other_text_between_files_ends_a_diff() -> None:
    assert [[file.name for file in files] for files in diffs(f"{SMALL}\nNext:\n{SMALL}\n{SMALL}")] == [
        ["small.py"],
        ["small.py", "small.py"],
    ]


def test_a_header_without_lines_is_text() -> None:
    assert [*diffs("--- a\n+++ b\n@@ -1 +1 @@\nnone\n")] == []


@pytest.mark.parametrize(
    "unit", ["--- a\n+++ b\n@@ -1 +1 @@\n", "diff --git a b\nx\n", f"{SMALL}\n", "@@ -1 +1 @@\n", "--- a\n+++ b\n"]
)
def test_reading_is_linear(unit: str) -> None:
    assert seconds(lambda text: [*diffs(text)], unit * (400_000 // len(unit))) < 2
