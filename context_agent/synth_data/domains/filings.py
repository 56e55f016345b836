"""Company filings: EDGAR's full submission text files, and single forms as HTML or text.

A full submission has a header between `<SEC-HEADER>` tags and a `<DOCUMENT>` for each part. The header's fields become
metadata: `company`, `cik`, `form`, `period`, `filed`, `accession`. Readable parts are kept. Graphics, XBRL data,
archives and spreadsheets are not. A form is split into one document per item, because a whole annual report is too long
to be read at once. If a form has no header fields, they are read from its inline XBRL.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html import unescape

from context_agent.errors import DataError
from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.html_text import declared_charset, page_text
from context_agent.retrieval.loaders.reader_choice import READERS
from context_agent.retrieval.loaders.reading import Reading, decoded, identifier, storable
from context_agent.retrieval.loaders.unpacking import LARGEST_FILE
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.types import Document, MetadataValue

_HEADER_FIELDS = {
    "accession": "ACCESSION NUMBER",
    "form": "CONFORMED SUBMISSION TYPE",
    "period": "CONFORMED PERIOD OF REPORT",
    "filed": "FILED AS OF DATE",
    "company": "COMPANY CONFORMED NAME",
    "cik": "CENTRAL INDEX KEY",
    "industry": "STANDARD INDUSTRIAL CLASSIFICATION",
}
_INLINE_FIELDS = {
    "company": "EntityRegistrantName",
    "cik": "EntityCentralIndexKey",
    "form": "DocumentType",
    "period": "DocumentPeriodEndDate",
}
_PART = re.compile(r"^<DOCUMENT>[ \t]*$", re.M | re.I)
_BODY = re.compile(r"<TEXT>\n?(.*?)(?:</TEXT>|\Z)", re.S | re.I)
_UNREADABLE = re.compile(r"GRAPHIC|ZIP|EXCEL|XML|JSON|PDF|COVER|EX-10[14]\b|EX-101", re.I)
_HTML = re.compile(r"<(?:html|body|div|p|table|font)\b", re.I)
_HIDDEN = re.compile(r"<ix:header\b.*?(?:</ix:header>|\Z)", re.S | re.I)
_ITEM = re.compile(
    r"^(?:#|[^\S\n])*+(?:PART\s+(?P<with>I{1,3}|IV)\b[\s.,:–—-]*)?ITEM\s+(?P<item>\d{1,2}(?:\.\d{2}|[A-C])?)\b[\s.:–—-]*(?P<title>.*)$",
    re.I | re.M,
)
_PARTS = re.compile(r"^(?:#|[^\S\n])*+PART\s+(?P<part>I{1,3}|IV)\b[^a-z]{0,40}$", re.I | re.M)


@dataclass(frozen=True, slots=True)
class FormSection:
    """A section of a form: its item, its heading, and its text.

    The section before the first item has an empty `item`.
    """

    item: str
    title: str
    text: str


def read_filing(reading: Reading) -> Iterator[Document]:
    """Yield the documents of a submission, or of a single form.

    Raises:
        DataError: If the file has no text.
    """
    data = reading.stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise DataError(f"the file is larger than {LARGEST_FILE // 2**20} MB. Split it.")
    text = unix_lines(decoded(reading, data, declared_charset(data)).text)
    if not text.strip():
        raise DataError("the file has no text")
    starts = [match.end() for match in _PART.finditer(text)]
    if not starts:
        yield from _form(reading, text, _inline_fields(text), "")
        return
    fields = _header_fields(text[: starts[0]])
    if "</SEC-DOCUMENT>" not in text[-2000:] and "-----END PRIVACY" not in text[-2000:]:
        reading.note_once("the submission has no end, so it may be truncated")
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield from _part(reading, text[start:end], fields)


def _part(reading: Reading, part: str, fields: Mapping[str, str]) -> Iterator[Document]:
    """Yield the documents of one `<DOCUMENT>`. Each tag has a line of its own, and the text follows the tags."""
    kind, sequence = _tagged(part, "TYPE"), _tagged(part, "SEQUENCE")
    body = _BODY.search(part)
    if body is None or _UNREADABLE.match(kind) or body[1].lstrip().startswith(("begin 6", "<PDF>", "<ZIP>")):
        return
    part_fields = {**_inline_fields(body[1]), **fields}
    main = kind.upper() == fields.get("form", "").upper() or sequence == "1"
    yield from _form(reading, body[1], part_fields, "" if main else kind, split=main)


def _form(
    reading: Reading, raw: str, fields: Mapping[str, str], exhibit: str, *, split: bool = True
) -> Iterator[Document]:
    title, text = page_text(_HIDDEN.sub("", raw)) if _HTML.search(raw) else ("", _plain_text(raw))
    if not text.strip():
        reading.note_once(f"{exhibit or fields.get('form') or 'a document'} contains no text")
        return
    stem = fields.get("accession") or identifier(reading.path)
    name = " ".join(filter(None, (fields.get("company"), fields.get("form"), fields.get("period")))) or title or stem
    for section in split_items(text) if split else [FormSection("", "", text)]:
        about = exhibit or _item_label(section.item)
        part = re.sub(r"[^\w.]+", "-", about.lower())
        heading = ": ".join(filter(None, (about, section.title)))
        metadata: dict[str, MetadataValue] = {**fields, "item": section.item, "exhibit": exhibit}
        yield Document(
            f"{stem}/{part}" if part else stem,
            storable(section.text),
            storable(f"{name}, {heading}" if heading else name),
            {"path": storable(reading.path), **{key: value for key, value in metadata.items() if value}},
        )


def _item_label(item: str) -> str:
    """Return a label such as `Item 7`. If the number is ambiguous, add the part, as in `Part II, Item 1`."""
    part, _, number = item.rpartition("-")
    return ", ".join(filter(None, (part and f"Part {part}", number and f"Item {number}")))


def split_items(text: str) -> list[FormSection]:
    """Split the text at its items, and return all of it as sections.

    Headings repeat in a table of contents and in references. Of these, the heading with the most text counts. Items of
    different parts with the same number, as in form 10-Q, are labeled like `II-1`. The text before the first item is a
    section without an item.
    """
    chosen: dict[str, re.Match[str]] = {}
    matches = list(_ITEM.finditer(text))
    if not matches:
        return [FormSection("", "", text.strip())]
    parts = [(match.start(), match["part"].upper()) for match in _PARTS.finditer(text)]
    ends = [*(match.start() for match in matches[1:]), len(text)]
    lengths = {match.start(): end - match.end() for match, end in zip(matches, ends, strict=True)}
    names = _item_names(matches, parts)
    for match, item in zip(matches, names, strict=True):
        if item not in chosen or lengths[match.start()] > lengths[chosen[item].start()]:
            chosen[item] = match
    heads = sorted(((match.start(), item, match["title"]) for item, match in chosen.items()), key=lambda head: head[0])
    stops = [*(start for start, _, _ in heads[1:]), len(text)]
    split = [
        FormSection(item, title.strip(" .|\t"), text[start:stop].strip())
        for (start, item, title), stop in zip(heads, stops, strict=True)
    ]
    cover = text[: heads[0][0]].strip()
    return [FormSection("", "", cover), *split] if cover else split


def _item_names(matches: list[re.Match[str]], parts: list[tuple[int, str]]) -> list[str]:
    """Return the item of each heading. If two parts use the same number, the item includes the part."""
    starts = [start for start, _ in parts]
    items = []
    of_item: dict[str, set[str]] = {}
    for match in matches:
        before = bisect_right(starts, match.start())
        part = (match["with"] or (parts[before - 1][1] if before else "")).upper()
        items.append((part, match["item"].upper()))
        of_item.setdefault(match["item"].upper(), set()).add(part)
    return [f"{part}-{item}" if part and {"I", "II"} <= of_item[item] else item for part, item in items]


def _plain_text(raw: str) -> str:
    """Return a text form without its page marks and table tags."""
    return unescape(re.sub(r"^</?(?:PAGE|TABLE|CAPTION|S|C|FN|F\d+)>.*$|</?(?:TABLE|CAPTION)>", "", raw, flags=re.M))


def _header_fields(head: str) -> dict[str, str]:
    matches = {name: re.search(rf"^[ \t]*{label}:[ \t]*(.+)$", head, re.M) for name, label in _HEADER_FIELDS.items()}
    return {name: _value(name, match[1]) for name, match in matches.items() if match}


def _inline_fields(page: str) -> dict[str, str]:
    """Return the fields of a form in inline XBRL, from its `dei:` elements."""
    fields = {}
    for name, label in _INLINE_FIELDS.items():
        if match := re.search(
            rf'<ix:non\w+\b[^<>]*\bname="dei:{label}"[^<>]*>(.{{0,2000}}?)</ix:non', page, re.S | re.I
        ):
            fields[name] = _value(name, page_text(match[1])[1])
    return {name: value for name, value in fields.items() if value}


def _value(name: str, raw: str) -> str:
    text = " ".join(raw.split())
    if name not in ("period", "filed"):
        return text
    for form in ("%Y%m%d", "%B %d, %Y"):
        with suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC).date().isoformat()
    return text


def _tagged(part: str, tag: str) -> str:
    match = re.search(rf"^<{tag}>(.*)$", part[:4000], re.M | re.I)
    return match[1].strip() if match else ""


FILINGS = Domain(
    name="filings",
    description="Company filings with the Securities and Exchange Commission.",
    load=partial(load, readers={**READERS, **dict.fromkeys((".txt", ".htm", ".html", ".xhtml", ".sgml"), read_filing)}),
    truth_types=(
        TruthType("amount", "an amount of money, with its unit and period"),
        TruthType("percentage", "a rate, margin, share or change in percent"),
        TruthType("count", "a number of employees, stores, shares or the like"),
        TruthType("date", "a date, fiscal year or maturity"),
        TruthType("person", "an officer, director or auditor"),
        TruthType("organization", "a subsidiary, customer, supplier or counterparty"),
        TruthType("place", "a place of business, incorporation or property"),
        TruthType("product", "a product, segment or brand"),
        TruthType("risk", "a named risk, proceeding or contingency"),
        TruthType("agreement", "a contract, plan or facility by its name"),
    ),
    hints={
        "explore": "Read the items that a question of an analyst would need: business, risks, discussion, notes.",
        "write": "Describe the company by what it does; give neither its name nor its ticker. State the period.",
        "verify": "The same figure may stand in several items and periods: quote it with its period and unit.",
        "distract": "The same item of another year or of a company of the same trade is the hardest to tell apart.",
    },
    max_hops=3,
    positives="fact",
)
