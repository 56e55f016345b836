"""Words of a question in the spelling that the texts have: `Mueller` for `Müller`, and `filename` for `file name`.

Many keyboards have no umlauts, and without its accent `Müller` is `Muller`. Code writes several words as one, as in
`PodDisruptionBudget`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from context_agent.text.normalization import normal_form
from context_agent.text.words import STOP_WORDS

_PLAIN = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Ø": "Oe"}
_PLAIN |= {"Å": "Aa"}
_UMLAUTS = {"ae": "ä", "oe": "ö", "ue": "ü", "aa": "å", "Ae": "Ä", "Oe": "Ö", "Ue": "Ü", "Aa": "Å"}
_UMLAUTS |= {"AE": "Ä", "OE": "Ö", "UE": "Ü", "AA": "Å"}
_UMLAUT, _DIGRAPH = re.compile("[äöüßøåÄÖÜØÅ]"), re.compile("[AOUaou]e|[Aa]a|[AOU]E|AA")
_WORD = re.compile(r"[^\W\d_]{4,40}+")
"""A word that may have another spelling. Short ones would become other words."""
MOST_RESPELLED = 64
"""Maximum number of different words of a text that are looked up."""
_JOINABLE = re.compile(r"[^\W\d_]{1,40}+(?:[ -][^\W\d_]{1,40}+)++")
"""Words with nothing but a space or a hyphen between them."""
_NOT_JOINED = STOP_WORDS - {"name"}
"""Stop words are not joined, because `in come` is not `income`. `file name` and `user name` are often one word."""
MOST_JOINED_WORDS, MOST_LOOKUPS = 4, 64
"""Maximum number of neighboring words that become one, and of such words that are looked up."""


def respelled(text: str, is_known: Callable[[str], bool]) -> str:
    """Return the question with its unknown words in another spelling, with or without umlauts, that a text has.

    Args:
        text: A question.
        is_known: A function that returns True if a text has a word. It is called with words that have another spelling.
    """
    spellings: dict[str, str] = {}

    def spelled(found: re.Match[str]) -> str:
        word = found[0]
        other = _other_spelling(word)
        if other != word and word not in spellings and len(spellings) < MOST_RESPELLED:
            spellings[word] = word if is_known(word) or not is_known(other) else other
        return spellings.get(word, word)

    return _WORD.sub(spelled, normal_form("NFC", text))


def joined_words(text: str, is_known: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Return the words of a text that join neighboring words of a question, each as one word and as asked.

    Stop words and single letters are not joined.

    Args:
        text: A question.
        is_known: A function that returns True if a text has a word.
    """
    found: dict[str, str] = {}
    for asked in islice(_neighbors(text), MOST_LOOKUPS):
        joined = re.sub("[ -]", "", asked)
        if joined not in found and is_known(joined):
            found[joined] = asked
    return list(found.items())


def _neighbors(text: str) -> Iterator[str]:
    """Yield each sequence of neighboring content words, as written."""
    for run in _JOINABLE.finditer(text):
        spans = [word.span() for word in re.finditer(r"[^ -]++", run[0])]
        for first, (start, _) in enumerate(spans):
            for last in range(first, min(first + MOST_JOINED_WORDS, len(spans))):
                begin, end = spans[last]
                if end - begin < 2 or run[0][begin:end].lower() in _NOT_JOINED:
                    break
                if last > first:
                    yield run[0][start:end]


def spellings(text: str) -> list[tuple[str, str]]:
    """Return each word that may have another spelling, as written and in the other spelling."""
    found = dict.fromkeys(_WORD.findall(normal_form("NFC", text)))
    pairs = ((word, _other_spelling(word)) for word in found)
    return [(word, other) for word, other in pairs if other != word][:MOST_RESPELLED]


def _other_spelling(word: str) -> str:
    """Return the word without umlauts. If it has none, return it with umlauts."""
    plain = _UMLAUT.sub(lambda letter: _PLAIN[letter[0]], word)
    return _DIGRAPH.sub(lambda letters: _UMLAUTS[letters[0]], word) if plain == word else plain
