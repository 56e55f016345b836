"""The titles, levels and pages of the bookmarks of a PDF file."""

from __future__ import annotations

import io

import pytest

from context_agent.retrieval.loaders import pdf_bookmarks
from context_agent.retrieval.loaders.pdf_bookmarks import DEEPEST_BOOKMARK, LONGEST_TITLE, bookmarks
from context_agent.testing.hostile_files import pdf, stream

pypdf = pytest.importorskip("pypdf")


def read(*marks: bytes, catalog: bytes = b"") -> list[tuple[int, int, str]]:
    """Return the bookmarks of a file with two pages. The first mark is object 6. The pages are objects 3 and 4."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>"
    tree = b"<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>"
    root = b"<</Type/Catalog/Pages 2 0 R/Outlines<</First 6 0 R>>%b>>" % catalog
    data = pdf([root, tree, page, page, stream(b""), *marks])
    return [tuple(mark) for mark in bookmarks(pypdf.PdfReader(io.BytesIO(data)))]


def test_parts_follow_their_bookmark() -> None:
    assert read(
        b"<</Title(A)/Dest[3 0 R/Fit]/First 7 0 R/Next 8 0 R>>",
        b"<</Title(A1)/Dest[4 0 R/XYZ 0 0 0]>>",
        b"<</Title(B)/Dest[4 0 R]>>",
    ) == [(0, 1, "A"), (1, 2, "A1"), (1, 1, "B")]


@pytest.mark.parametrize(
    ("place", "catalog"),
    [
        (b"/A<</S/GoTo/D[4 0 R/Fit]>>", b""),
        (b"/Dest(n)", b"/Names<</Dests<</Names[(m)[3 0 R/Fit](n)[4 0 R/Fit]]>>>>"),
        (b"/Dest(n)", b"/Names<</Dests<</Kids[<</Names[(m)<</D[3 0 R]>>]>><</Names[(n)<</D[4 0 R]>>]>>]>>>>"),
        (b"/A<</S/GoTo/D(n)>>", b"/Names<</Dests<</Names[(n)[4 0 R/Fit]]>>>>"),
        (b"/Dest/n", b"/Dests<</m[3 0 R/Fit]/n<</D[4 0 R/Fit]>>>>"),
    ],
)
def test_each_way_to_state_the_page_is_read(place: bytes, catalog: bytes) -> None:
    assert read(b"<</Title(A)%b>>" % place, catalog=catalog) == [(1, 1, "A")]


@pytest.mark.parametrize(
    "mark",
    [
        b"<</Title(A)>>",
        b"<</Title(A)/Dest[9 0 R/Fit]>>",
        b"<</Title(A)/Dest[]>>",
        b"<</Title(A)/Dest(nowhere)>>",
        b"<</Title(A)/A<</S/URI/D[3 0 R/Fit]>>>>",
        b"<</Title[3]/Dest[3 0 R/Fit]>>",
        b"<</Dest[3 0 R/Fit]>>",
        b"[(A)]",
        b"(A)",
        b"null",
    ],
)
def test_a_bookmark_without_a_title_or_a_page_is_left_out(mark: bytes) -> None:
    assert read(mark) == []
    first = b"<</Title(B)/Dest[3 0 R/Fit]/Next 7 0 R>>"
    assert read(first, mark) == [(0, 1, "B")]


def test_bookmarks_that_contain_each_other_are_read_once() -> None:
    assert read(b"<</Title(A)/Dest[3 0 R/Fit]/First 6 0 R/Next 6 0 R>>") == [(0, 1, "A")]


def test_titles_levels_and_names_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(title) for *_, title in read(b"<</Title(%b)/Dest[3 0 R]>>" % (b"a" * 9_000))] == [LONGEST_TITLE]
    deep = [b"<</Title(A)/Dest[3 0 R]/First %d 0 R>>" % number for number in range(7, 7 + 2 * DEEPEST_BOOKMARK)]
    assert [level for _, level, _ in read(*deep)] == [*range(1, DEEPEST_BOOKMARK + 1)]
    monkeypatch.setattr(pdf_bookmarks, "MOST_NAMES", 1)
    names = b"/Names<</Dests<</Kids[<</Names[(n)[3 0 R]]>>]>>>>"
    assert read(b"<</Title(A)/Dest(n)>>", catalog=names) == []
