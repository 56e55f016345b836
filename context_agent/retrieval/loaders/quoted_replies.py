"""Removal of the earlier messages that an email message quotes."""

from __future__ import annotations

import re

from context_agent.retrieval.loaders.html_tags import tags

_QUOTE_FOLLOWS = re.compile(r"\s*+>")
_ATTRIBUTION = re.compile(
    r"^[ \t]*(?:On\b.{4,200}\bwrote|Am\b.{4,200}\bschrieb\b.{0,80}|Le\b.{4,200}\ba écrit|El\b.{4,200}\bescribió)"
    r"\s{0,9}:[ \t]*+$",
    re.M | re.S | re.I,
)
_ORIGINAL = re.compile(
    r"^[ \t]*-{2,}\s*(?:Original Message|Original-Nachricht|Ursprüngliche Nachricht|Message d'origine)\s*-{2,}[ \t]*$"
    r"|^From:[^\n]*\n(?:Sent|Date):[^\n]*\n(?:To|Cc|Subject):"
    # Below a line, Outlook writes two fields of a header, and a mailing list its name. Other lines divide a text.
    r"|^[ \t]*+_{10,}+[ \t]*+\n{1,2}(?:[^\W\d_][^\n:]{0,20}:[^\n]++\n{1,2}[^\W\d_][^\n:]{0,20}:"
    r"|[^\n]{1,100} mailing list[ \t]*+$)",
    re.M | re.I,
)
_QUOTED = re.compile(r"^[ \t]*>.*$\n?", re.M)


def without_quoted_replies(text: str) -> str:
    """Return the text without quoted lines and the lines that introduce them.

    If nothing else is left, as in a forwarded message without a comment, return the whole text.
    """
    words = text
    if cut := _ORIGINAL.search(words):
        words = words[: cut.start()]
    words = _QUOTED.sub("", _without_attributions(words))
    words = re.sub(r"\n{3,}", "\n\n", words).strip()
    return words or text.strip()


def _without_attributions(text: str) -> str:
    """Return the text without the lines that introduce a quote, if a quote follows them."""
    parts, position = [], 0
    for match in _ATTRIBUTION.finditer(text):
        if match.start() >= position and _QUOTE_FOLLOWS.match(text, match.end()):
            # An earlier sentence may begin with "On". Only the last paragraph of the match introduces the quote.
            start = max(match.start(), text.rfind("\n\n", match.start(), match.end()) + 1)
            parts.append(text[position:start])
            position = match.end()
    return "".join((*parts, text[position:]))


def without_blockquotes(page: str) -> str:
    """Return an HTML message without its `<blockquote>` elements, which contain quoted replies."""
    parts, position, depth = [], 0, 0
    for tag in tags(page):
        if tag.name != "blockquote":
            continue
        if not tag.closing:
            if depth == 0:
                parts.append(page[position : tag.start])
            depth += 1
        elif depth:
            depth -= 1
        position = tag.end if depth == 0 else position
    return "".join(parts) if depth else "".join((*parts, page[position:]))
