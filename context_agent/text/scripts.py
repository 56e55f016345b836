"""Scripts that are written without spaces, and the search terms of text in them.

In most languages, spaces separate the words. A run of Chinese, Japanese, Korean or Thai is cut into overlapping pairs
of characters instead, as in Lucene's `CJKAnalyzer`. Korean has spaces, but joins particles to its words. A Chinese
character is also a term alone (Nie, Gao, Zhang and Zhou, "On the use of words and n-grams for Chinese information
retrieval", IRAL 2000). A change of script ends a run: in Japanese, the script changes between a word and its particle.
A Thai letter with its vowel signs counts as one character (Theeramunkong et al., "Character cluster based Thai
information retrieval", IRAL 2000).
"""

from __future__ import annotations

import re
from itertools import pairwise

from context_agent.text.normalization import normal_form, without_silent

_HAN = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = r"\u3041-\u3096\u309d\u309e"
_KATAKANA = r"\u30a1-\u30fa\u30fc-\u30fe\u31f0-\u31ff"
_HANGUL = r"\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
_THAI = r"\u0e01-\u0e3a\u0e40-\u0e4e"
_RUN = re.compile(f"([{_HAN}]+)|([{_HIRAGANA}]+|[{_KATAKANA}]+|[{_HANGUL}]+)|([{_THAI}]+)")
_UNSPACED = rf"{_HAN}{_HIRAGANA}{_KATAKANA}{_HANGUL}{_THAI}\uff66-\uffdc"
UNSPACED, SPACED = re.compile(f"[{_UNSPACED}]"), re.compile(f"[^{_UNSPACED}]+")
"""A character of a script without spaces, half-width characters included, and a stretch of other text."""
_THAI_CHARACTER = re.compile(r"[\u0e40-\u0e44]?[\u0e01-\u0e2f][\u0e30-\u0e3a\u0e45]*|.")
"""A consonant with the vowel signs around it."""
_TONES = re.compile(r"[\u0e47-\u0e4e]+")
"""Thai tone marks and silencers, which are left out like accents."""
_COMPATIBLE = re.compile(r"[^\x00-\x7f\u0e00-\u0eff]+")
"""Characters that may have a compatible form. A vowel sign of Thai and one of Lao would be divided."""
_SCRIPTS = {"ja": f"[{_HIRAGANA}{_KATAKANA}]", "ko": f"[{_HANGUL}]", "th": f"[{_THAI}]", "zh": f"[{_HAN}]"}


def unspaced(text: str) -> bool:
    """Return True if the text has characters of a script that is written without spaces."""
    return not text.isascii() and UNSPACED.search(text) is not None


def segmented(text: str) -> str:
    """Return the text with each run of a script without spaces replaced by its terms, between blanks.

    Other text is only normalized: it is in composed form (NFKC), in which ordinary characters replace full-width ones
    and ligatures, and has no characters that writers may leave out. The terms overlap and are in the order of the text.
    For example, 青石水库 becomes 青 青石 石 石水 水 水库 库.
    """
    if text.isascii():
        return text
    text = without_silent(text)
    compatible = _COMPATIBLE.sub(lambda run: normal_form("NFKC", run[0]), text)
    # Letters in these forms, such as those of Arabic in a PDF, may have marks and variants, too.
    return _RUN.sub(_terms, compatible if compatible == text else without_silent(compatible))


def _terms(run: re.Match[str]) -> str:
    han, syllables, thai = run.groups()
    if han:
        pairs = (f"{first} {first}{second}" for first, second in pairwise(han))
        return f" {' '.join((*pairs, han[-1]))} "
    characters = syllables or _THAI_CHARACTER.findall(_TONES.sub("", thai))
    pairs = (f"{first}{second}" for first, second in pairwise(characters))
    return f" {' '.join(pairs) or ''.join(characters)} "


def script_language(sample: str) -> str:
    """Return the language of the text's script.

    If fewer than half of its letters belong to a script without spaces, return an empty string.
    """
    if not unspaced(sample):
        return ""
    letters = max(1, sum(map(str.isalpha, sample)))
    counts = {language: len(re.findall(script, sample)) for language, script in _SCRIPTS.items()}
    if sum(counts.values()) * 2 < letters:
        return ""
    # Japanese mixes kana with Chinese characters. No other language uses kana.
    if counts["ja"] > counts["zh"] / 10:
        counts["ja"] += counts["zh"]
    return max(counts, key=lambda language: counts[language])
