"""Language identification, for each passage of an index and for the majority of its passages.

Most prose is decided by frequent words that no other language has. Three such words are enough, and looking them up
takes a few microseconds. A script without spaces shows its language. The remaining texts are short, or they are tables,
logs, code or texts in another language. py3langid judges these (Lui and Baldwin, "langid.py: An off-the-shelf language
identification tool", ACL 2012). Its package contains a model of 139 languages, which is loaded for the first such text.

If a text does not show a language clearly, it counts as a text in the language of the majority.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from context_agent.text.languages import ENGLISH, LANGUAGES, UNIDENTIFIED
from context_agent.text.normalization import well_formed
from context_agent.text.scripts import script_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SAMPLE, SAMPLE_CHARACTERS = 64, 1_000
"""The number of texts in a sample, and the number of characters taken from each.

The sample is spread evenly over all texts.
"""
READ_CHARACTERS, JUDGED_CHARACTERS = 600, 200
"""The number of a passage's characters that are searched for markers, and the number that py3langid gets."""
FEWEST_LETTERS = 20
"""A text with fewer letters shows no language."""
LEAST_WORDS = 100
"""A sample with fewer words shows no language. It counts as English."""
CLEAR_MARKERS, EXPECTED_MARKERS = 3, 2
"""The number of different markers that show a language. The language of most texts needs only the second number."""
LEAST_PROBABILITY = 0.9
"""Minimum probability at which a language from py3langid is accepted."""
LEAST_UNMARKED = 0.98
"""Minimum probability for a text without a marker of the language. A list of Spanish names is not a Spanish text."""
LEAST_TOGETHER = 0.5
"""Minimum probability for a whole sample. Its names come from many languages, so they do not mislead."""
MAJORITY = 2
"""The first language must have this many times as many texts as the second."""

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
"""Frequent words of a language that the other languages do not have."""
_LANGUAGE_OF_MARKER = {marker: code for code, markers in _MARKERS.items() for marker in markers.split()}
_OTHERS = "bg bn ca cs et eu fa gl gu he hi hr id ka lt lv mr ms pa pl sk sl sr sw te tl uk ur vi zxx"
"""Languages without an analyzer that py3langid tells apart from those with one. `zxx` is text in no language.

py3langid also knows languages that English tables and logs are mistaken for, such as Nigerian Pidgin.
"""
_WORD = re.compile(r"[^\W\d_]+")


def identify(texts: Sequence[str]) -> str:
    """Return the code of the language in which most of the texts are written.

    A sample is read. If it has too few words, it counts as English. If no language has a majority, return
    `UNIDENTIFIED`.
    """
    step = max(1, len(texts) // SAMPLE)
    sample = [text[:SAMPLE_CHARACTERS] for text in islice(texts[::step], SAMPLE)]
    clear = Counter(filter(None, map(_clear_language, sample)))
    (first, most), (_, next_most) = _first_two(clear)
    # The other texts cannot change this, whatever their languages are. So the model of languages is not loaded.
    if first and most >= MAJORITY * (next_most + len(sample) - clear.total()):
        return first
    votes = Counter(_shown(text) for text in sample)
    # Texts that are unclear one by one, such as lines of code, are clear together.
    unclear = votes.pop("", 0)
    together = " ".join(sample)
    votes[_shown(together, judged=len(together), least=LEAST_TOGETHER)] += unclear
    (first, most), (_, next_most) = _first_two(votes)
    if most < MAJORITY * next_most:
        return UNIDENTIFIED
    if first:
        return first
    return ENGLISH if len(_WORD.findall(together)) < LEAST_WORDS else UNIDENTIFIED


def language_of(text: str, majority: str) -> str:
    """Return the code of the language of a text, or `majority` if the text shows no language."""
    return _shown(text[:READ_CHARACTERS], majority, judged=JUDGED_CHARACTERS) or majority


def code_of_language(text: str) -> str:
    """Return the code of the language of a text, also of a language without an analyzer.

    If the text shows no language clearly, return an empty string.
    """
    words = _WORD.findall(text.lower())
    if sum(map(len, words)) < FEWEST_LETTERS:
        return ""
    code, probability = _identifier().classify(well_formed(" ".join(words)))
    return code if probability >= LEAST_PROBABILITY else ""


def languages_shown(text: str) -> frozenset[str]:
    """Return the codes of the languages whose markers occur in the text."""
    return frozenset(_LANGUAGE_OF_MARKER[word] for word in _LANGUAGE_OF_MARKER.keys() & _WORD.findall(text.lower()))


def _shown(text: str, majority: str = "", *, judged: int = READ_CHARACTERS, least: float = LEAST_UNMARKED) -> str:
    """Return the language that a text clearly shows, or an empty string.

    py3langid gets the first `judged` characters. If the probability of its language is at least `least`, the language
    is accepted.
    """
    if not text.isascii() and (language := script_language(text)):
        return language
    words = _WORD.findall(text.lower())
    markers = _count_markers(words)
    if language := _marked_language(markers, majority):
        return language
    if sum(map(len, words)) < FEWEST_LETTERS:
        return ""
    code, probability = _identifier().classify(well_formed(" ".join(words)[:judged]))
    needed = min(least, LEAST_PROBABILITY) if markers[code] else least
    # English text about a German film has a German title.
    if probability < needed or code == "zxx" or markers[majority] > markers[code]:
        return ""
    return code if code in LANGUAGES else UNIDENTIFIED


def _clear_language(text: str) -> str:
    """Return the language that the script or the markers of a text show, or an empty string."""
    language = "" if text.isascii() else script_language(text)
    return language or _marked_language(_count_markers(_WORD.findall(text.lower())))


def _count_markers(words: Iterable[str]) -> Counter[str]:
    """Return how many different markers of each language are among the words."""
    return Counter(_LANGUAGE_OF_MARKER[word] for word in _LANGUAGE_OF_MARKER.keys() & words)


def _marked_language(markers: Counter[str], majority: str = "") -> str:
    (first, most), (_, next_most) = _first_two(markers)
    needed = max(EXPECTED_MARKERS if first == majority else CLEAR_MARKERS, MAJORITY * next_most)
    return first if most >= needed else ""


def _first_two(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the two languages with the highest counts. The names of missing ones are empty."""
    return [*counts.most_common(2), ("", 0), ("", 0)][:2]


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    try:
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    except OSError as error:
        # py3langid unpacks its model into a temporary file. The error of a failed write names no file.
        error.filename = error.filename or tempfile.gettempdir()
        raise
    identifier.set_languages([code for code in LANGUAGES if code != UNIDENTIFIED] + _OTHERS.split())
    return identifier
