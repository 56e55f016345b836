"""Languages that texts are analyzed in, and the terms of scripts without spaces.

Words of most languages stand between spaces. A run of Chinese, Japanese, Korean or Thai is cut into
overlapping pairs of characters instead, as in Lucene's `CJKAnalyzer` (Korean has spaces, but joins particles to its
words). A Chinese character is also a term alone (Nie, Gao, Zhang and Zhou, "On the use of words and n-grams for Chinese
information retrieval", IRAL 2000). A change of script ends a run: Japanese changes it where a word meets its particle.
A Thai letter with its vowel signs counts as one character (Theeramunkong et al., "Character cluster based Thai
information retrieval", IRAL 2000).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from context_agent._support.normalization import normal_form
from context_agent.errors import ConfigError
from context_agent.tokens import well_formed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ENGLISH, UNIDENTIFIED = "en", "none"
STEMMED = {
    "ar": "arabic", "da": "danish", "nl": "dutch", "en": "english", "fi": "finnish", "fr": "french", "de": "german",
    "el": "greek", "hu": "hungarian", "it": "italian", "no": "norwegian", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "es": "spanish", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""Languages with a stemmer, by ISO 639-1 code; the names are tantivy's."""
SEGMENTED = {"ja": "japanese", "zh": "chinese", "ko": "korean", "th": "thai"}
"""Languages that are cut into pairs of characters."""
LANGUAGES = {**STEMMED, **SEGMENTED, UNIDENTIFIED: "not identified"}
"""Every language of an index, by code."""
WITHOUT_STOP_WORDS = frozenset({"ar", "el", "ro", "ta", "tr"})
"""Languages of which tantivy has a stemmer, but no stop words: a user has to name them."""

_HAN = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = r"\u3041-\u3096\u309d\u309e"
_KATAKANA = r"\u30a1-\u30fa\u30fc-\u30fe\u31f0-\u31ff"
_HANGUL = r"\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
_THAI = r"\u0e01-\u0e3a\u0e40-\u0e4e"
_RUN = re.compile(f"([{_HAN}]+)|([{_HIRAGANA}]+|[{_KATAKANA}]+|[{_HANGUL}]+)|([{_THAI}]+)")
_UNSPACED = rf"{_HAN}{_HIRAGANA}{_KATAKANA}{_HANGUL}{_THAI}\uff66-\uffdc"
UNSPACED, SPACED = re.compile(f"[{_UNSPACED}]"), re.compile(f"[^{_UNSPACED}]+")
"""A character of a script without spaces, half-width ones included; and what stands between such characters."""
_THAI_CHARACTER = re.compile(r"[\u0e40-\u0e44]?[\u0e01-\u0e2f][\u0e30-\u0e3a\u0e45]*|.")
"""A consonant with the vowel signs around it."""
_TONES = re.compile(r"[\u0e47-\u0e4e]+")
"""Thai tone marks and silencers, left out like accents."""
_WIDE = re.compile(r"[\uff01-\uff5e\uff65-\uffdc]+")
"""Full-width Latin characters, half-width kana and Hangul."""
_CHANGED = re.compile(rf"[{_UNSPACED}\uff01-\uff5e]")
_SCRIPTS = {"ja": f"[{_HIRAGANA}{_KATAKANA}]", "ko": f"[{_HANGUL}]", "th": f"[{_THAI}]", "zh": f"[{_HAN}]"}

ENGLISH_EMBEDDERS = ("static-minilm", "minilm-", "chroma-default")
"""How the names of embedders with the vocabulary of all-MiniLM-L6-v2 start."""
MULTILINGUAL = "sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2"
"""An embedder of 50 languages, of the same size (Apache License 2.0)."""
LEAST_LETTERS = 3.0
"""Mean letters of a word piece below which an embedder does not fit."""
_UNKNOWN = "[UNK]"
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ]\w*")
MISFIT_CHARACTERS = 1_000
"""Characters of each text that are judged."""


def require_language(code: str) -> None:
    """Raises `ConfigError` if the code is not one of `LANGUAGES`."""
    if code not in LANGUAGES:
        raise ConfigError(
            f"no analyser for language {code!r}: pass --language with one of {', '.join(LANGUAGES)}, or leave it out: "
            "the language of a new index is identified"
        )


def unspaced(text: str) -> bool:
    """Return whether the text has characters of a script that is written without spaces."""
    return not text.isascii() and UNSPACED.search(text) is not None


def segmented(text: str) -> str:
    """Return the text with each run of a script without spaces replaced by its terms, between blanks.

    Composed (NFC), with wide and half-width characters as ordinary ones. The terms overlap and are in the order of the
    text: 青石水库 becomes 青 青石 石 石水 水 水库 库. Other text stays as it is.
    """
    if text.isascii():
        return text
    text = normal_form("NFC", text)
    if _CHANGED.search(text) is None:
        return text
    return _RUN.sub(_terms, _WIDE.sub(lambda run: normal_form("NFKC", run[0]), text))


def _terms(run: re.Match[str]) -> str:
    han, syllables, thai = run.groups()
    if han:
        pairs = (f"{first} {first}{second}" for first, second in pairwise(han))
        return f" {' '.join((*pairs, han[-1]))} "
    characters = syllables or _THAI_CHARACTER.findall(_TONES.sub("", thai))
    pairs = (f"{first}{second}" for first, second in pairwise(characters))
    return f" {' '.join(pairs) or ''.join(characters)} "


def script_language(sample: str) -> str:
    """Return the language of the text's script, if half of its letters are of one without spaces; else empty."""
    if not unspaced(sample):
        return ""
    letters = max(1, sum(map(str.isalpha, sample)))
    counts = {language: len(re.findall(script, sample)) for language, script in _SCRIPTS.items()}
    if sum(counts.values()) * 2 < letters:
        return ""
    # Japanese mixes kana with Chinese characters; no other language uses kana.
    if counts["ja"] > counts["zh"] / 10:
        counts["ja"] += counts["zh"]
    return max(counts, key=lambda language: counts[language])


def misfit(embedder: str, texts: Sequence[str]) -> str:
    """Return a warning if the embedder of this name was trained on another language than the texts', else empty.

    Only models that share the English vocabulary of MiniLM are checked. It splits a word that it does not know into
    pieces: those of English have 3.5 letters (code) to 4.8, of other languages in Latin script 2.0 to 2.6, of others 1.
    Words with a capital are left out, since names are split in every language, and so are Latin words of more than 100
    letters, which it does not split at all.
    """
    if not embedder.startswith(ENGLISH_EMBEDDERS):
        return ""
    sample = [well_formed(text[:MISFIT_CHARACTERS]) for text in texts]
    encodings = _english_tokenizer().encode_batch(sample, add_special_tokens=False)
    lengths = []
    for text, encoding in zip(sample, encodings, strict=True):
        named = {place for name in _NAME.finditer(text) for place in range(*name.span())}
        for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            spelling = text[start:end]
            letters = sum(map(str.isalpha, spelling))
            too_long = piece == _UNKNOWN and spelling.isascii()
            if letters and start not in named and not too_long:
                lengths.append(0 if piece == _UNKNOWN else letters)
    mean = sum(lengths) / len(lengths) if lengths else LEAST_LETTERS
    if mean >= LEAST_LETTERS:
        return ""
    return (
        f"the embedder {embedder} knows English only: it splits these texts into pieces of {mean:.1f} letters, "
        f"English into 4. Dense search will find little. Index into a new --path with --embedder {MULTILINGUAL}"
    )


@cache
def _english_tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer

    from context_agent._support.token_table import SHIPPED, TOKENIZER_FILE

    return Tokenizer.from_file(str(SHIPPED / TOKENIZER_FILE))
