"""Web pages from saved HTML: the main text without menus and footers, with address, date and links.

Elements that are not part of the text are left out. They are recognized by name (nav, aside, form and others), role,
class or id. Lists of links outside the main text are left out, too. If a `<main>` or `<article>` has enough of the
text, it counts as the page. If nothing remains, the whole page is kept, so that a wrong guess does not lose a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import urldefrag, urljoin, urlsplit

from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.html_tags import Tag, tags
from context_agent.retrieval.loaders.html_text import declared_charset, page_text
from context_agent.retrieval.loaders.reader_choice import READERS
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.types import Document, MetadataValue

MAX_PAGE_LINKS = 100
"""The largest number of links in a page's metadata, which is stored with every chunk."""
MAIN_SHARE = 0.25
"""The share of the page's text that a main element must have to count as the page."""
CANDIDATES = 50
"""The number of main elements of a page that are compared."""
LONGEST_MENU = 20_000
"""The largest length of a list that is examined as a menu, in characters of HTML."""
MENU_BUDGET = 10
"""The number of characters that are examined for menus, for each character of the page. Lists may be nested."""
LINKED_SHARE = 0.7
"""The smallest share of link text for which a list counts as a menu."""
_BOILERPLATE = frozenset("nav aside footer form button dialog select menu".split())
_ROLES = frozenset("navigation banner contentinfo search complementary dialog menu menubar".split())
_BOILERPLATE_NAMES = re.compile(
    r"(?:^|[\s_-])(?:nav(?:bar|igation)?|menu|side-?bar|foot(?:er)?|cookies?|consent|banner|breadcrumbs?|share|sharing"
    r"|social|related|promo(?:tion)?|advert(?:isement)?s?|ads?|newsletter|subscribe|pagination|skip-?link|toolbar|popup"
    r"|comments?)(?:$|[\s_-])",
    re.I,
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_SAVED_FROM = re.compile(r"<!--\s*saved from url=\(\d+\)(\S+)\s*-->", re.I)
_DATES = (
    "article:published_time",
    "datepublished",
    "date",
    "dc.date",
    "dc.date.issued",
    "dcterms.created",
    "pubdate",
    "article:modified_time",
)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def read_page(reading: Reading) -> Iterator[Document]:
    """Yield the page's main text.

    If the page has them, the metadata contains `url`, `date` and `links` (a JSON list of addresses).
    """
    data = content(reading)
    page = unix_lines(decoded(reading, data, declared_charset(data)).text)
    page_tags = list(tags(page))
    main = _main(page, page_tags)
    whole_title, whole_text = page_text(page)
    text = page_text(main)[1] or whole_text
    url = _url(page, page_tags)
    day = _date(page_tags)
    links = json.dumps(_links(tags(main), url)[:MAX_PAGE_LINKS])
    metadata: dict[str, MetadataValue] = {"url": url, "date": day, "links": "" if links == "[]" else links}
    title = _meta(page_tags, ("og:title", "twitter:title")) or whole_title
    yield document(reading, text, title, {key: value for key, value in metadata.items() if value})


def _main(page: str, page_tags: list[Tag]) -> str:
    """Return the HTML of the page without the parts that are not text."""
    main_elements = [span for span in _elements(page_tags) if _is_main(span[0])][:CANDIDATES]
    size = len(page_text(page)[1])
    best = max(main_elements, key=lambda span: len(page_text(page[span[0].start : span[1]])[1]), default=None)
    start, end = 0, len(page)
    if best is not None and len(page_text(page[best[0].start : best[1]])[1]) >= MAIN_SHARE * size:
        start, end = best[0].start, best[1]
    inside = best is not None and (start, end) != (0, len(page))
    dropped: list[tuple[int, int]] = []
    room, dropped_until = MENU_BUDGET * len(page), 0
    for tag, after in _elements(page_tags):
        if tag.start < start or after > end or after <= dropped_until:
            continue
        is_dropped = _is_boilerplate(tag)
        if not (is_dropped or inside) and tag.name in ("ul", "ol") and after - tag.start <= min(LONGEST_MENU, room):
            room -= after - tag.start
            is_dropped = _is_menu(page[tag.start : after])
        if is_dropped:
            dropped.append((tag.start - start, after - start))
            dropped_until = max(dropped_until, after)
    return _cut_spans(page[start:end], dropped)


def _elements(page_tags: list[Tag]) -> list[tuple[Tag, int]]:
    """Return each closed element with the position after its end tag, ordered by start.

    Elements that are never closed are left out.
    """
    open_: dict[str, list[Tag]] = {}
    closed = []
    for tag in page_tags:
        if tag.closing:
            if same := open_.get(tag.name):
                closed.append((same.pop(), tag.end))
        elif tag.name and tag.name not in _VOID and not tag.attributes.endswith("/"):
            open_.setdefault(tag.name, []).append(tag)
    return sorted(closed, key=lambda span: span[0].start)


def _is_main(tag: Tag) -> bool:
    return tag.name in ("main", "article") or tag.get("role").lower() == "main"


def _is_boilerplate(tag: Tag) -> bool:
    if tag.name in _BOILERPLATE or tag.get("role").lower() in _ROLES or tag.get("aria-hidden") == "true":
        return True
    if tag.name in ("html", "body", "main", "article"):
        return False
    return bool(_BOILERPLATE_NAMES.search(f"{tag.get('class')} {tag.get('id')}"))


def _is_menu(inside: str) -> bool:
    """Return True if the HTML of a list consists mostly of links."""
    linked: list[int] = []
    position = 0
    for a, after in _elements(list(tags(inside))):
        if a.name == "a" and a.start >= position:  # Browsers allow no link inside a link.
            linked.append(len(page_text(inside[a.start : after])[1]))
            position = after
    return len(linked) >= 3 and sum(linked) >= LINKED_SHARE * len(page_text(inside)[1])


def _cut_spans(page: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the page without these spans, which may be nested. A paragraph break replaces each span."""
    parts, position = [], 0
    for start, end in sorted(spans):
        if start >= position:
            parts += [page[position:start], "<hr>"]
        position = max(position, end)
    return "".join((*parts, page[position:]))


def _url(page: str, page_tags: Iterable[Tag]) -> str:
    """Return the page's address.

    The address is the canonical link. If there is none, it is `og:url`, or the address from which a browser saved the
    page.
    """
    tagged = list(page_tags)
    canonical = (tag.get("href") for tag in tagged if tag.name == "link" and "canonical" in tag.get("rel").lower())
    saved = _SAVED_FROM.search(page[:4096])
    candidates = (*canonical, _meta(tagged, ("og:url",)), saved[1] if saved else "")
    return next((address for address in candidates if _scheme(address) in ("http", "https")), "")


def _scheme(address: str) -> str:
    """Return the scheme of an address. If the address is broken, as with half of an IPv6 address, return ""."""
    try:
        return urlsplit(address).scheme
    except ValueError:
        return ""


def _meta(page_tags: Iterable[Tag], names: Iterable[str]) -> str:
    """Return the content of the first of these names that the page uses in a `<meta>` element.

    A name may be the value of the attribute `name`, `property` or `itemprop`.
    """
    contents: dict[str, str] = {}
    for tag in page_tags:
        if tag.name == "meta" and not tag.closing:
            for key in ("property", "name", "itemprop"):
                contents.setdefault(tag.get(key).lower(), tag.get("content"))
    return next((contents[name] for name in names if contents.get(name)), "")


def _date(page_tags: list[Tag]) -> str:
    """Return the day of publication in ISO 8601. If the page does not give it in a known form, return nothing."""
    times = (tag.get("datetime") for tag in page_tags if tag.name == "time" and not tag.closing)
    for stamp in (*(_meta(page_tags, (name,)) for name in _DATES), *times):
        if day := _DAY.search(stamp):
            return day[0]
    return ""


def _links(page_tags: Iterable[Tag], url: str) -> list[str]:
    """Return the absolute addresses that the main text links to, each once. The page itself is left out."""
    links: dict[str, None] = {}
    for tag in page_tags:
        target = tag.get("href") if tag.name == "a" and not tag.closing else ""
        if not target or target.startswith("#"):
            continue
        try:
            address = urldefrag(urljoin(url, target)).url
            scheme = urlsplit(address).scheme
        except ValueError:  # such as a broken IPv6 address
            continue
        if scheme in ("http", "https") and address != url:
            links[address] = None
    return list(links)


WEB = Domain(
    name="web",
    description="Web pages, saved as HTML.",
    load=partial(load, readers={**READERS, ".html": read_page, ".htm": read_page, ".xhtml": read_page}),
    truth_types=(
        TruthType("person", "the name of a person"),
        TruthType("organization", "the name of a company, institution, team or band"),
        TruthType("place", "the name of a city, country, region or landmark"),
        TruthType("building", "the name of a building, bridge or monument"),
        TruthType("date", "a full date"),
        TruthType("year", "a year"),
        TruthType("duration", "a length of time"),
        TruthType("count", "a number of things"),
        TruthType("measure", "a length, weight, speed or other quantity with its unit"),
        TruthType("money", "an amount of money"),
        TruthType("percentage", "a percentage or share"),
        TruthType("work", "the title of a book, film, song, game or artwork"),
        TruthType("event", "the name of an event, competition or conflict"),
        TruthType("product", "the name of a product, vehicle, ship or program"),
        TruthType("species", "the name of an animal, plant or other living thing"),
        TruthType("award", "the name of a prize or title"),
        TruthType("term", "a technical term, material, method or language"),
    ),
    hints={
        "explore": "Follow the links and the rare names of a page to pages that say something else of the same thing.",
        "write": "Hint at people, places and works by what is said of them; name none of the pages' titles.",
        "distract": "Pages of the same kind and time with other names are the hardest to tell apart.",
    },
    max_hops=4,
)
