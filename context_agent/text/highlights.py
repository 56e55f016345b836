"""The sentence of each ranked document that matters most for the question.

A sentence matters if it has words of the question or names another ranked document. A question in several steps is
answered by following such names from one document to the next. Rare words count more than frequent ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from context_agent.text.dates import days, days_of
from context_agent.text.identifiers import asked_identifiers, identifiers
from context_agent.text.respelling import respelled
from context_agent.text.sentences import capitalize, terminated, unwrapped_spans
from context_agent.text.words import (
    STOP_WORDS,
    hyphenated,
    key,
    related_words,
    without_brackets,
    without_inflection,
    words,
)
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
"""The factor on the worth of a line that is not a sentence, and the minimum number of words of the question in it."""
TITLE_WORTH = 0.1
"""The factor on the worth of words that the document's own title has."""
LONGEST_LINE = 1_000
"""The number of characters before and after a line that may be the first one of a table."""
_QUESTION = re.compile(r"[?？؟][\"'”’»)\]*_]{0,4}\Z")
"""The end of a question."""
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*+\n")
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
    names = [without_brackets(document.title) for document in documents]
    titles = [_keys(name) for name in names]
    sections = [
        _sections(
            [BestSentence(chunk, *span) for chunk in document.chunks for span in unwrapped_spans(chunk.text)], title
        )
        for document, title in zip(documents, titles, strict=True)
    ]
    sentences = [[sentence for sentence, _ in own] for own in sections]
    keys = [
        [
            _keys(text := f"{heading}\n{sentence.text}").union(
                named := identifiers(sentence.text), days_of(named), _joined_keys(text)
            )
            for sentence, heading in own
        ]
        for own in sections
    ]
    frequency = Counter(item for own in keys for sentence_keys in own for item in sentence_keys)
    total = sum(map(len, keys))
    rarity = {item: math.log(1 + total / number) for item, number in frequency.items()}
    question = respelled(question, lambda word: not frequency.keys().isdisjoint(_keys(word)))
    question_keys = {_key(item) for word in _content(question) for item in (word, *related_words(word))}
    question_keys |= _joined_keys(question)
    asked = {spelling for one in asked_identifiers(question) for spelling in one.spellings}
    asked.update(day for _, day in days(question))
    question_keys |= asked
    best: list[BestSentence | None] = []
    for number, own in enumerate(sentences):
        others = [
            (title, name) for title, name in zip(titles, names, strict=True) if title and not title <= titles[number]
        ]
        worth = [
            _worth(item, question_keys, titles[number], _named(others, sentence.text, item), rarity)
            for sentence, item in zip(own, keys[number], strict=True)
        ]
        ranked: list[tuple[float, bool, float]] = []
        for sentence, item, value in zip(own, keys[number], worth, strict=True):
            is_sentence = not _is_furniture(sentence, question_keys)
            fits = len(item & question_keys - titles[number]) >= FURNITURE_WORDS or not item.isdisjoint(asked)
            ranked.append((value if is_sentence else FURNITURE_WORTH * value * fits, is_sentence, value))
        best.append(_with_answer(own, ranked.index(max(ranked))) if own else None)
    return best


def with_following(best: BestSentence, longest: int) -> list[str]:
    """Return the best sentence and those after it in its paragraph, as far as they fit into `longest` characters.

    The answer is often beside the words of the question, as in "I need a crown. It costs 780 pounds." A line that is
    not a sentence, such as a salutation, goes on in the next paragraph. A heading ends the text.
    """
    text, texts, end = best.chunk.text, [best.text], best.end
    for start, stop in unwrapped_spans(text):
        if start < end:
            continue
        ends_paragraph = terminated(text, best.start, end) and _PARAGRAPH_END.search(text, end, start)
        if ends_paragraph or stop - best.start > longest or _is_heading(text[start:stop], frozenset()):
            break
        texts.append(text[start:stop])
        end = stop
    return texts


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
    named: Iterable[frozenset[str]],
    rarity: Mapping[str, float],
) -> float:
    """Return the summed rarity of a sentence's words that are in the question or in another document's title.

    Words of the document's own title count little, because a reader has seen the title.
    """
    asked = sentence & question_keys
    worth = sum(rarity[item] for item in asked.union(*named) - title)
    return worth + TITLE_WORTH * sum(rarity[item] for item in asked & title)


def _named(
    others: Iterable[tuple[frozenset[str], str]], text: str, sentence: frozenset[str]
) -> Iterator[frozenset[str]]:
    """Yield the keys of the other titles that a sentence has. A title of one word must be written alike.

    The name of a file is often in lower case, so the sentence may capitalize a title.
    """
    return (
        title
        for title, name in others
        if title <= sentence and (len(title) > 1 or name in text or capitalize(name) in text)
    )


def _sections(sentences: list[BestSentence], title: frozenset[str]) -> list[tuple[BestSentence, str]]:
    """Return the sentences that are not headings. The first one below a heading comes with it, and others with "".

    If there are only headings, return them.
    """
    sections, heading = [], ""
    for sentence in sentences:
        if _is_heading(sentence.text, title):
            heading = sentence.text
        else:
            sections.append((sentence, heading))
            heading = ""
    return sections or [(sentence, "") for sentence in sentences]


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


def _joined_keys(text: str) -> frozenset[str]:
    """Return the keys of the hyphenated words, without their hyphens."""
    return frozenset(_key(joined) for joined, _ in hyphenated(text))


def _key(word: str) -> str:
    return key(without_inflection(word))
