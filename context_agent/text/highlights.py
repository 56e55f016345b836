"""The sentence of each ranked document that matters most for the question.

A sentence matters if it has words of the question or names another ranked document. A question in several steps is
answered by following such names from one document to the next. Rare words count more than frequent ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from context_agent.text.identifiers import asked_identifiers, identifiers
from context_agent.text.respelling import respelled
from context_agent.text.sentences import terminated, unwrapped_spans
from context_agent.text.words import STOP_WORDS, key, related_words, without_brackets, without_inflection, words
from context_agent.types import RankedChunk, RankedDocument

_HEADING = re.compile(r"\s*#{1,6}\s|\W*\Z|[^\n]{0,200}\(\d{4}-\d\d-\d\d[^\s()]{0,40}\):\s*\Z")
"""A heading in Markdown, a line without a word, such as a rule, or a speaker with the time of a message."""
_FIELD = re.compile(
    r"(?P<name>[^\W\d_][\w-]{0,40}):(?![^\n]*?(?: [a-z]{2,20}\b[^ \n]*+){3})(?:[ \t]++[^\n]*+)?(?:\n|\Z)"
)
"""A line with a name and a value. A value with several plain words in a row is a sentence."""
_LINKS = re.compile(
    r"!?\[[^\[\]\n]{0,300}+\](?:\([^()\s]{0,300}+\)|\[[^\[\]\n]{0,100}+\]|:[ \t]++\S{1,300}+)"
    r"|\|[^|\n]{1,80}+\|(?=[\s|]|\Z)|https?://\S{1,300}+|<[^<>\n]{1,300}+>"
    r"|\A\.\.[ \t]++[^\n]{1,300}+|\A:[a-z-]{1,20}+:(?:[ \t][^\n]{0,300}+|\Z)"
)
"""Links, images, badges, tags, and directives of reStructuredText."""
_LETTER = re.compile(r"[^\W\d_]")
_LISTED = re.compile(
    r"[^\n]{0,300}?(?:\.{4}| \.(?: \.|\Z))|(?:copyright\b|©|\(c\)|spdx-|all rights reserved\b)", re.IGNORECASE
)
"""A line of a table of contents, or of a notice of copyright."""
FURNITURE_WORTH, FURNITURE_WORDS = 0.5, 2
"""The factor on the worth of a line that is no sentence, and the fewest words of the question that it must have."""
LONGEST_LINE = 1_000
"""The number of characters before and after a line that may be the first one of a table."""
_QUESTION = re.compile(r"[?？؟][\"'”’»)\]*_]{0,4}\Z")
"""The end of a question."""
_CAPITALS = re.compile(r"[^\W\d_]++(?:[ ,&'’-]{1,3}[^\W\d_]++){1,12}\Z")
"""Words alone. In capital letters they are a heading."""


@dataclass(frozen=True, slots=True)
class BestSentence:
    """A sentence of a ranked passage: `chunk.text[start:end]`."""

    chunk: RankedChunk
    start: int
    end: int

    @property
    def text(self) -> str:
        """The sentence as written."""
        return self.chunk.text[self.start : self.end]


def best_sentences(question: str, documents: Sequence[RankedDocument]) -> list[BestSentence | None]:
    """Return the best sentence of each document.

    If several sentences are equally good, the first one is returned. A heading, or the line of a chat that names the
    speaker, is returned only if the document has nothing else. Links, fields such as `Version: 2`, tables of contents
    and copyright notices are returned if they fit the question much better than all sentences do, and a field also if
    the question names it. A question, such as that of an FAQ, is returned together with the sentence after it.

    Args:
        question: The question that the documents answer.
        documents: The documents of a search result.

    Returns:
        A sentence for each document. If a document has no text, its entry is None.

    Example:
        >>> from context_agent.types import RankedChunk
        >>> chunk = RankedChunk("light_0", "It stands on a rock. Ketil Varga designed it.", 0.9)
        >>> (sentence,) = best_sentences("Who designed it?", [RankedDocument("light", "Light", 0.9, (chunk,))])
        >>> sentence.text
        'Ketil Varga designed it.'
    """
    titles = [_keys(without_brackets(document.title)) for document in documents]
    sentences = [
        _without_headings(
            [BestSentence(chunk, *span) for chunk in document.chunks for span in unwrapped_spans(chunk.text)], title
        )
        for document, title in zip(documents, titles, strict=True)
    ]
    keys = [[_keys(sentence.text).union(identifiers(sentence.text)) for sentence in own] for own in sentences]
    frequency = Counter(item for own in keys for sentence_keys in own for item in sentence_keys)
    total = sum(map(len, keys))
    rarity = {item: math.log(1 + total / number) for item, number in frequency.items()}
    question = respelled(question, lambda word: not frequency.keys().isdisjoint(_keys(word)))
    question_keys = {_key(item) for word in _content(question) for item in (word, *related_words(word))}
    question_keys.update(*(asked.spellings for asked in asked_identifiers(question)))
    best: list[BestSentence | None] = []
    for number, own in enumerate(sentences):
        other_titles = [title for title in titles if title and not title <= titles[number]]
        worth = [_worth(item, question_keys, titles[number], other_titles, rarity) for item in keys[number]]
        ranked: list[tuple[float, bool, float]] = []
        for sentence, item, value in zip(own, keys[number], worth, strict=True):
            is_sentence = not _is_furniture(sentence, question_keys)
            fits = len(item & question_keys - titles[number]) >= FURNITURE_WORDS
            ranked.append((value if is_sentence else FURNITURE_WORTH * value * fits, is_sentence, value))
        best.append(_with_answer(own, ranked.index(max(ranked))) if own else None)
    return best


def _with_answer(sentences: Sequence[BestSentence], place: int) -> BestSentence:
    """Return the sentence at this place. If it is a question, the sentence after it, which answers it, is included."""
    sentence = sentences[place]
    following = sentences[place + 1] if place + 1 < len(sentences) else sentence
    if not _QUESTION.search(sentence.text) or _QUESTION.search(following.text) or following.chunk is not sentence.chunk:
        return sentence
    return BestSentence(sentence.chunk, sentence.start, following.end)


def _worth(
    sentence: frozenset[str],
    question_keys: set[str],
    title: frozenset[str],
    other_titles: Iterable[frozenset[str]],
    rarity: Mapping[str, float],
) -> float:
    """Return the summed rarity of a sentence's words that are in the question or in another document's title.

    Words of the document's own title do not count, because a reader has seen the title.
    """
    mentioned = (other for other in other_titles if other <= sentence)
    return sum(rarity[item] for item in (sentence & question_keys).union(*mentioned) - title)


def _without_headings(sentences: list[BestSentence], title: frozenset[str]) -> list[BestSentence]:
    return [sentence for sentence in sentences if not _is_heading(sentence.text, title)] or sentences


def _is_heading(text: str, title: frozenset[str]) -> bool:
    """Return True if a line is a heading, or if it only repeats words of the title, which a reader has seen."""
    if _HEADING.match(text) or (text.isupper() and _CAPITALS.match(text)):
        return True
    return not terminated(text, 0, len(text)) and bool(own := _keys(text)) and own <= title


def _is_furniture(sentence: BestSentence, question_keys: set[str]) -> bool:
    """Return True if a line is not a sentence, such as a link, a field of a header or an entry of a table of contents.

    The names of the columns of a table, below a line without cells, are not a sentence either. A line is a field if
    there are several lines of this kind, and if the question does not have all words of its name.
    """
    words, text = sentence.text, sentence.chunk.text
    if _LISTED.match(words) or not _LETTER.search(_LINKS.sub("", words)):
        return True
    is_line = text[sentence.start - 1 : sentence.start] in ("", "\n") and text[sentence.end : sentence.end + 1] in (
        "",
        "\n",
    )
    if is_line and (bars := words.count("|")) and _names_columns(text, sentence.start, sentence.end, bars):
        return True
    field = _FIELD.fullmatch(words) if is_line else None
    if not field or ((names := _keys(field["name"])) and names <= question_keys):
        return False
    above = text.rfind("\n", 0, max(0, sentence.start - 1)) + 1
    return bool(_FIELD.match(text, above, sentence.start) or _FIELD.match(text, sentence.end + 1))


def _names_columns(text: str, start: int, end: int, bars: int) -> bool:
    """Return True if a line with bars is the first one of a table: a line above has none, and one below as many."""
    above = text[max(0, start - LONGEST_LINE) : start].rstrip().rpartition("\n")[2]
    below = text[end + 1 : end + LONGEST_LINE].partition("\n")[0]
    return bool(above) and "|" not in above and below.count("|") == bars


def _content(text: str) -> list[str]:
    return [word for word in words(text) if word not in STOP_WORDS]


def _keys(text: str) -> frozenset[str]:
    return frozenset(map(_key, _content(text)))


def _key(word: str) -> str:
    return key(without_inflection(word))
