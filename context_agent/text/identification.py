"""Which language a text is written in: of each passage of an index, and of most of them.

Frequent words that no other language has decide most prose: three of them are clear, and looking them up costs a few
microseconds. A script without spaces names its language. What is left is short, a table, a log, code or another
language. py3langid judges that (Lui and Baldwin, "langid.py: An off-the-shelf language identification tool", ACL 2012;
the model of 139 languages is in its package). It is loaded when the first such text comes.

A text that shows no language clearly is taken to be in the language of most texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from context_agent.text.languages import ENGLISH, LANGUAGES, UNIDENTIFIED
from context_agent.text.normalization import well_formed
from context_agent.text.scripts import script_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SAMPLE, SAMPLE_CHARACTERS = 64, 1_000
"""Texts that show the language of most, spread evenly, and characters of each."""
READ_CHARACTERS, JUDGED_CHARACTERS = 600, 200
"""Characters of a passage in which markers are looked for, and those of its words that the library gets."""
FEWEST_LETTERS = 20
"""A text with fewer letters shows no language."""
LEAST_WORDS = 100
"""A sample of fewer words shows no language: it counts as English."""
CLEAR_MARKERS, EXPECTED_MARKERS = 3, 2
"""Different markers that decide for a language, and for that of most texts."""
LEAST_PROBABILITY = 0.9
"""Probability that the library must give a language."""
LEAST_UNMARKED = 0.98
"""The same without any marker of the language: a list of Spanish names is no Spanish text."""
LEAST_TOGETHER = 0.5
"""The same for a whole sample, in which names are of many kinds."""
MAJORITY = 2
"""How many times as many texts as the next language the language of most texts has."""

_MARKERS = {
    "ar": "في على إلى التي هذا هذه أن الذي",
    "da": "af blev bliver efter hvad havde nogle uden",
    "de": "und ist nicht auf eine wird für auch sich werden wurde dem",
    "el": "και το της για την του να είναι",
    "en": "the and that with from which were this their not you by his she been but who also first",
    "es": "y el los las fue pero más muy está según",
    "fi": "ei että oli ovat mutta joka kanssa sekä myös hän",
    "fr": "les est dans qui pour avec cette sont ces aux",
    "hu": "az és egy hogy volt vagy csak ezt mint",
    "it": "il che è della nel gli sono anche più",
    "nl": "het een niet zijn voor wordt naar ook werd deze",
    "no": "ble blir etter hva hadde noen seg uten",
    "pt": "uma em não são foi pela pelo seu sua também",
    "ro": "și în este pentru sunt prin că după",
    "ru": "что это его был были они если чтобы также",
    "sv": "och att är för från inte också hade vid eller",
    "tr": "bir bu için ile olarak daha olan gibi çok",
}
"""Frequent words of a language that are not words of the others."""
_LANGUAGE_OF_MARKER = {marker: code for code, markers in _MARKERS.items() for marker in markers.split()}
_OTHERS = "bg bn ca cs et eu fa gl gu he hi hr id ka lt lv mr ms pa pl sk sl sr sw te tl uk ur vi zxx"
"""Languages without an analyzer that the library tells apart from those with one; `zxx` is text in no language.

The library also knows languages that English tables and logs are mistaken for, such as Nigerian Pidgin.
"""
_WORD = re.compile(r"[^\W\d_]+")


def identify(texts: Sequence[str]) -> str:
    """Return the code of the language that most of the texts are written in, `UNIDENTIFIED` without such a language.

    A sample is read. Too few words count as English.
    """
    step = max(1, len(texts) // SAMPLE)
    sample = [text[:SAMPLE_CHARACTERS] for text in islice(texts[::step], SAMPLE)]
    votes = Counter(_shown(text) for text in sample)
    # Texts that are unclear one by one, such as lines of code, are clear together.
    unclear = votes.pop("", 0)
    together = " ".join(sample)
    votes[_shown(together, judged=len(together), least=LEAST_TOGETHER)] += unclear
    (first, most), (_, next_most) = [*votes.most_common(2), ("", 0), ("", 0)][:2]
    if most < MAJORITY * next_most:
        return UNIDENTIFIED
    if first:
        return first
    return ENGLISH if len(_WORD.findall(together)) < LEAST_WORDS else UNIDENTIFIED


def language_of(text: str, majority: str) -> str:
    """Return the code of the language of a text; `majority` if the text shows none."""
    return _shown(text[:READ_CHARACTERS], majority, judged=JUDGED_CHARACTERS) or majority


def languages_shown(text: str) -> frozenset[str]:
    """Return the codes of all languages of which a text has a marker."""
    return frozenset(_LANGUAGE_OF_MARKER[word] for word in _LANGUAGE_OF_MARKER.keys() & _WORD.findall(text.lower()))


def _shown(text: str, majority: str = "", *, judged: int = READ_CHARACTERS, least: float = LEAST_UNMARKED) -> str:
    """Return the language that a text clearly shows; empty without one.

    The library gets the first `judged` characters. It decides with at least the probability `least`.
    """
    if not text.isascii() and (language := script_language(text)):
        return language
    words = _WORD.findall(text.lower())
    markers = Counter(_LANGUAGE_OF_MARKER[word] for word in _LANGUAGE_OF_MARKER.keys() & words)
    (first, most), (_, next_most) = [*markers.most_common(2), ("", 0), ("", 0)][:2]
    if most >= max(EXPECTED_MARKERS if first == majority else CLEAR_MARKERS, MAJORITY * next_most):
        return first
    if sum(map(len, words)) < FEWEST_LETTERS:
        return ""
    code, probability = _library().classify(well_formed(" ".join(words)[:judged]))
    needed = min(least, LEAST_PROBABILITY) if markers[code] else least
    # English text about a German film has a German title.
    if probability < needed or code == "zxx" or markers[majority] > markers[code]:
        return ""
    return code if code in LANGUAGES else UNIDENTIFIED


@cache
def _library() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    library.set_languages([code for code in LANGUAGES if code != UNIDENTIFIED] + _OTHERS.split())
    return library
