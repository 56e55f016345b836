"""Menus, banners and links to other pages are left out of the text of an HTML page, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.html_text import page_text
from tests.support.growth import seconds

TEXT = "<h1>The weir</h1><p>It holds the water of the mill back.</p>"
LINKS = "<ul><li><a href=/>Home</a></li><li><a href=/mills/>Mills</a></li></ul>"
WORDS = "# The weir\n\nIt holds the water of the mill back."


def without_navigation(page: str) -> str:
    return page_text(page, navigation=False)[1]


@pytest.mark.parametrize(
    "page",
    [
        f"<nav>{LINKS}</nav>{TEXT}",
        f"<div role=navigation><h3>Navigation</h3>{LINKS}</div>{TEXT}",
        f"<div class='page'><div class='top nav'><div>{LINKS}</div></div>{TEXT}</div>",
        f"<ol class=breadcrumb><li><a href=/>Home</a></li><li>Weirs</li></ol>{TEXT}<nav>{LINKS}</nav>",
        f"<div class=t-navbar><b>{LINKS}</b></div>{TEXT}<table class=navbox><tr><td>{LINKS}</table>",
        f"<div role=search><label>Search</label><button>Go</button></div>{TEXT}",
        f"<search><form><select><option>Mills<option>Weirs</select></form></search>{TEXT}",
        f"{TEXT}<footer>{LINKS}</footer>",
        f"{TEXT}<div role=contentinfo><a href=/imprint>Imprint</a></div>",
        f"<main>{TEXT}</main><div class=navfooter><table><tr><td><a href=a>Prev</a><td>The mill</table></div>",
        f"<div id=cookie-banner><p>We bake cookies.</p><button>Accept</button></div>{TEXT}",
        f"<dialog aria-label='Cookie consent'>We bake. <button>OK</button></dialog>{TEXT}",
        f"<a class=sr href='#main'>Skip to content</a><a href='#search'>Skip to search</a>{TEXT}",
        "<h1>The weir<a class=headerlink href='#weir'>¶</a></h1><p>It holds the water of the mill back.</p>",
        "<h1><a href='#weir'>#</a> The weir</h1><p>It holds the water of the mill back.</p>",
    ],
)
def test_what_leads_to_other_pages_is_left_out(tmp_path: Path, page: str) -> None:
    (tmp_path / "weir.html").write_text(page, encoding="utf-8")
    assert [document.text for document in load(tmp_path)] == [WORDS]
    assert len(page_text(page)[1]) > len(WORDS)


@pytest.mark.parametrize(
    "page",
    [
        f"<nav>{TEXT}{LINKS}</nav><p>End.</p>",
        "<nav><p>The weir holds the water of the mill back, as <a href=/>all</a> do.</p></nav><p>End.</p>",
        f"<nav>{LINKS}<p>The nav is never closed.</p>",
        f"<nav>{LINKS}</nav>",
        f"<h2>Contents</h2><nav>{LINKS * 20}</nav>",
        f"<div class='menu-card'>{LINKS}</div>{TEXT}",
        f"<div class='lunch-menu'><h2>Menu</h2><ul><li>Soup<li>Trout</ul></div>{TEXT}",
        f"<div class='menu'><h2>Menu</h2><ul><li>Soup<li>Trout</ul></div>{TEXT}",
        f"{TEXT}<footer>Ask Nora Pell, Mill Lane 4, phone 5550, or <a href=/>write</a>.</footer>",
        "<article><p>A weir.</p><blockquote>It holds.<footer><a href=/>Nora Pell</a></footer></blockquote></article>",
        "<div class=cookie-recipe><h2>Cookies</h2><p>Bake them.</p><button>Print</button></div><p>End.</p>",
        "<div id=cookie-notice><p>A notice without a button.</p></div><p>End.</p>",
        "<ul><li><a href='#a'>Alder</a><li><a href='#b'>Beech</a></ul><p>End.</p>",
        "<h1><a href='#weir'>The weir</a></h1><p>End.</p>",
        "<p>The operator <a href='#op'>#</a> counts, and <a href='#plus'>+</a> adds.</p>",
    ],
)
def test_other_uses_of_such_elements_stay(page: str) -> None:
    assert without_navigation(page) == page_text(page)[1]


@pytest.mark.parametrize(
    "heading",
    [
        '<h2>Diet<span class="mw-editsection">[<a href=e>edit</a>]</span></h2>',
        '<h2>Diet</h2><span class="mw-editsection"><span>[</span><a href=e>edit</a><span>]</span></span>',
    ],
)
def test_the_links_by_which_readers_edit_a_section_are_left_out(heading: str) -> None:
    assert without_navigation(f"{TEXT}{heading}<p>Fish.</p>") == f"{WORDS}\n\n## Diet\n\nFish."


def test_navigation_inside_a_part_that_stays_is_left_out() -> None:
    page = f"{TEXT}<footer><p>Ask Nora Pell, who keeps the keys of the mill.</p><nav>{LINKS}</nav></footer>"
    assert without_navigation(page) == f"{WORDS}\n\nAsk Nora Pell, who keeps the keys of the mill."


def test_named_anchors_and_options_that_are_never_closed_are_no_links() -> None:
    page = f"<nav><a name=top><p>The weir holds the water.</p></nav>{TEXT}"
    assert without_navigation(page) == page_text(page)[1]


@pytest.mark.parametrize(
    "piece", ["<nav>", "<nav><a href=#>x", "<div class=nav>x</p>", "<a href='#x'>x</a>", "<x{}>", "<footer><section>"]
)
def test_hostile_pages_take_linear_time(piece: str) -> None:
    page = "".join(piece.format(number) for number in range(1_000_000 // len(piece)))
    assert seconds(without_navigation, page) < 10
