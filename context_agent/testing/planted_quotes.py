"""Quotes from the demo's passages, each with a text in which `find_quote` should or should not find it.

There are 500 cases: verbatim quotes, quotes that differ from the text in spaces, links or punctuation, and paraphrases.
Paraphrases should not be found, and they are hard. One number, name or word differs, a negation is added, the end is
invented, or the words are rearranged, replaced or dropped.
"""

import json
import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

COUNTS = {"exact": 90, "folded": 90, "punctuation": 90, "link": 90, "paraphrase": 140}


@dataclass(frozen=True, slots=True)
class Planted:
    """A quote and a text.

    Attributes:
        kind: The kind of the case, a key of `COUNTS`.
        quote: The quote to look for.
        text: The text to search.
        stands: True if the text contains the quote.
    """

    kind: str
    quote: str
    text: str
    stands: bool


def planted(seed: int = 0) -> list[Planted]:
    """Return 500 cases, which are the same for the same seed."""
    draw = random.Random(seed)
    texts = passages()
    return [MAKERS[kind](draw, draw.choice(texts), texts) for kind, count in COUNTS.items() for _ in range(count)]


def passages() -> list[str]:
    """Return the demo's passages that have more than 30 words."""
    lines = (files("context_agent.cli") / "demo_data" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [text for text in (json.loads(line)["text"] for line in lines) if len(text.split()) > 30]


def _span(draw: random.Random, text: str, least: int = 4, most: int = 18) -> tuple[int, int]:
    """Return the start and end of a random run of whole words, without punctuation at the end."""
    words = list(re.finditer(r"\S+", text))
    length = draw.randint(least, min(most, len(words)))
    first = draw.randrange(len(words) - length + 1)
    return words[first].start(), words[first + length - 1].start() + len(words[first + length - 1][0].rstrip(".,;:"))


def _exact(draw: random.Random, text: str, _: list[str]) -> Planted:
    start, end = _span(draw, text, least=1)
    return Planted("exact", text[start:end], text, True)


def _folded(draw: random.Random, text: str, _: list[str]) -> Planted:
    start, end = _span(draw, text)
    spaces = ("\n", "  ", "\n    ", "\u00a0", "\r\n", "\t", "\u2009")
    respaced = re.sub(" ", lambda match: draw.choice(spaces) if draw.random() < 0.4 else " ", text[start:end])
    if draw.random() < 0.5:
        return Planted("folded", respaced, text, True)
    return Planted("folded", text[start:end], text[:start] + respaced + text[end:], True)


MARKS: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(", ", " – ").replace("-", "\u2011"),
    lambda text: text.replace("'", "’").replace(",", ""),
    lambda text: f"“{text}”…",
    lambda text: f"...{text} [...]",
    lambda text: text[0].swapcase() + text[1:] + ".",
    lambda text: unicodedata.normalize("NFD", text) + "!",
    lambda text: "\u00ad".join([text[:5], text[5:]]).replace(" ", " \u200b", 1),
    lambda text: text.upper(),
    lambda text: text.replace("fi", "\ufb01").replace("ff", "\ufb00") + ";",
)


def _punctuation(draw: random.Random, text: str, _: list[str]) -> Planted:
    start, end = _span(draw, text)
    change = draw.choice(MARKS)
    if draw.random() < 0.5:
        return Planted("punctuation", change(text[start:end]), text, True)
    return Planted("punctuation", text[start:end], f"{text[:start]}{change(text[start:end])}{text[end:]}", True)


LINKS: tuple[Callable[[str], str], ...] = (
    lambda words: f"[{words}](https://example.org/a_(b)?c=d#e)",
    lambda words: f'[{words}](page.html "a title")',
    lambda words: f'<a href="/wiki/Page" title="x">{words}</a>',
    lambda words: f"[[Some page|{words}]]",
    lambda words: f"[[{words}]]",
    lambda words: f"[{words}][ref]",
    lambda words: f"{words}[12]",
    lambda words: f"<b>{words}</b><!-- note -->",
    lambda words: f"[**{words}**](#part)",
)


def _link(draw: random.Random, text: str, _: list[str]) -> Planted:
    start, end = _span(draw, text)
    quote = text[start:end]
    words = quote.split(" ")
    first = draw.randrange(len(words))
    last = draw.randint(first + 1, len(words))
    link = draw.choice(LINKS)(" ".join(words[first:last]))
    with_link = " ".join([*words[:first], link, *words[last:]])
    if draw.random() < 0.3:
        return Planted("link", with_link, text, True)
    return Planted("link", quote, text[:start] + with_link + text[end:], True)


NAMES = ("Ruben", "Maldive", "Corsham", "Ilse", "Quentin", "Vesper")
OTHER_WORDS = "orchard silver lantern quarrel marble winter harvest thunder velvet copper meadow pilgrim".split()


def _paraphrase(draw: random.Random, text: str, texts: list[str]) -> Planted:
    """Return a changed quote that keeps most of the words. If the change had no effect, draw again."""
    while True:
        start, end = _span(draw, text, least=9)
        quote = text[start:end]
        paraphrase = draw.choice(CHANGES)(draw, quote)
        if _bare(paraphrase) not in _bare(text):
            return Planted("paraphrase", paraphrase, text, False)


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _other_number(draw: random.Random, quote: str) -> str:
    return re.sub(r"\d+", lambda match: str(int(match[0]) + draw.randint(1, 9)), quote)


def _other_name(draw: random.Random, quote: str) -> str:
    names = re.findall(r"(?<= )[A-Z]\w+", quote)
    return quote.replace(draw.choice(names), draw.choice(NAMES)) if names else quote


def _negated(draw: random.Random, quote: str) -> str:
    return re.sub(r"\b(was|is|are|were|has|had|could)\b", r"\1 not", quote, count=1)


def _other_end(draw: random.Random, quote: str) -> str:
    words = quote.split()
    keep = max(6, len(words) * 2 // 3)
    return " ".join([*words[:keep], "and", *draw.sample(OTHER_WORDS, 3)])


def _one_word(draw: random.Random, quote: str) -> str:
    long_words = [word for word in quote.split() if len(word) > 4 and word.isalpha()]
    return quote.replace(draw.choice(long_words), draw.choice(OTHER_WORDS), 1) if long_words else quote


def _every_third(draw: random.Random, quote: str) -> str:
    return " ".join(draw.choice(OTHER_WORDS) if index % 3 == 2 else word for index, word in enumerate(quote.split()))


def _rearranged(draw: random.Random, quote: str) -> str:
    words = quote.split()
    middle = len(words) // 2
    return " ".join([*words[middle:], *words[:middle]])


def _thinned(draw: random.Random, quote: str) -> str:
    """Return the quote without every other long word. The result reads like a summary in the same order."""
    long_indices = [index for index, word in enumerate(quote.split()) if len(word) > 3]
    return " ".join(word for index, word in enumerate(quote.split()) if index not in long_indices[1::2])


CHANGES = (_other_number, _other_name, _negated, _other_end, _one_word, _every_third, _rearranged, _thinned)
MAKERS = {
    "exact": _exact,
    "folded": _folded,
    "punctuation": _punctuation,
    "link": _link,
    "paraphrase": _paraphrase,
}
