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
    r"|^\*?(?:From|Von|De|Da|Van|Från|Fra|Od)[ \xa0]?:[^\n]*\n"
    r"\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado(?: el)?|Fecha|Data|Inviato|Verzonden|Skickat|Sendt|Wysłano)"
    r"[ \xa0]?:[^\n]*\n"
    r"\*?(?:To|Cc|Subject|An|Betreff|À|Objet|Para|Asunto|Assunto|A|Oggetto|Aan|Onderwerp|Till|Ämne|Til|Emne|Do|Temat)"
    r"[ \xa0]?:"
    # Below a line, Outlook writes two fields of a header, and a mailing list its name. Other lines divide a text.
    r"|^[ \t]*+_{10,}+[ \t]*+\n{1,2}(?:[^\W\d_][^\n:]{0,20}:[^\n]++\n{1,2}[^\W\d_][^\n:]{0,20}:"
    r"|[^\n]{1,100} mailing list[ \t]*+$)",
    re.M | re.I,
)
_QUOTED = re.compile(r"^[ \t]*>.*$\n?", re.M)
_FORWARDS = re.compile(r"\s*+(?:fwd?|wg|tr|rv|enc|vb|pd|转发|轉寄|転送)\s*+[:：]", re.I)
_INDENTED = re.compile(r"border\s*+:\s*+(?:none|0)\b", re.I)
"""The style of an element with which mail programs indent a text. Quotes have a line beside them."""


def is_forward(subject: str) -> bool:
    """Return True if the subject says that a message forwards others."""
    return _FORWARDS.match(subject) is not None


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
    """Return an HTML message without its `<blockquote>` elements, which contain quoted replies.

    Those that only indent a text stay.
    """
    parts: list[str] = []
    position = quotes = 0
    opened: list[bool] = []
    """Whether each open element is a quote."""
    for tag in tags(page):
        if tag.name != "blockquote":
            continue
        if not tag.closing:
            opened.append(not _INDENTED.search(tag.get("style")))
            if opened[-1] and not quotes:
                parts.append(page[position : tag.start])
            quotes += opened[-1]
        elif opened and opened.pop():
            quotes -= 1
            position = tag.end if not quotes else position
    return "<p>".join(parts if quotes else [*parts, page[position:]])
