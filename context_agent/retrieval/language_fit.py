"""Checks whether an embedder knows the language of the texts and queries that it embeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from context_agent.text.language_identification import language_of, languages_shown
from context_agent.text.languages import ENGLISH
from context_agent.text.normalization import well_formed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ENGLISH_EMBEDDERS = ("static-minilm", "minilm-", "chroma-default")
"""The prefixes of the names of embedders with the vocabulary of all-MiniLM-L6-v2."""
LARGER_EMBEDDER = "sentence-transformers:paraphrase-multilingual-MiniLM-L12-v2"
"""An embedder that supports more languages than `multilingual`. It needs torch and a download (Apache License 2.0)."""
LEAST_LETTERS = 3.0
"""If word pieces have at least this many letters on average, the embedder fits."""
MOST_WHOLE_WORDS = 0.75
"""If at least this share of the word pieces are whole words, the embedder fits."""
FEWEST_LETTERS = 20
"""Minimum number of letters by which an embedder is judged. In a few words, a rare one decides."""
_UNKNOWN_PIECE = "[UNK]"
_WORD = re.compile(r"[^\W\d_]+")
_CAPITALIZED_WORD = re.compile(r"\b[A-ZÀ-ÖØ-Þ]\w*")
MISFIT_CHARACTERS = 1_000
"""The number of characters of each text that are checked."""


def knows_language(embedder: str, most_texts: str, query: str) -> bool:
    """Return False if the embedder of this name knows English only, and the query is in another language.

    If the query shows no language, it counts as in the language of most texts.
    """
    if not embedder.startswith(ENGLISH_EMBEDDERS) or (most_texts == ENGLISH and _is_plain_english(query)):
        return True
    return language_of(query, most_texts) == ENGLISH


def _is_plain_english(query: str) -> bool:
    """Return True if the English vocabulary has the words of a query. For a query with names, this may be False.

    Identifying the language of a short query loads a model, which takes half a second. Of 6,407 English dev and train
    questions, half need the model, and a seventh with this check. It returns True for none of 538 questions in eleven
    other languages.
    """
    words = _WORD.findall(query.lower())
    tokenizer = _english_tokenizer()
    whole = sum(tokenizer.token_to_id(word) is not None for word in words)
    if whole < max(1, MOST_WHOLE_WORDS * len(words)):
        return False
    return whole == len(words) or languages_shown(query) == {ENGLISH}


def language_warning(embedder: str, texts: Sequence[str]) -> str:
    """Return a warning if the embedder of this name does not know the language of the texts. Otherwise, return "".

    Only models that share the English vocabulary of MiniLM are checked. They split an unknown word into pieces. In
    English, the pieces have 3.5 (code) to 4.8 letters on average. In other languages in Latin script they have 2.0 to
    2.6 letters, and in other scripts 1. Two kinds of words are left out. Words with a capital are mostly names, which
    are split in every language. Latin words of more than 100 letters are not split at all.

    Short English words lower the mean, too, but they stay whole. So the embedder also fits if three quarters of
    the pieces are whole words. The share is 75% (code) to 100% in English, and at most 50% in sentences of other
    languages.
    """
    if not embedder.startswith(ENGLISH_EMBEDDERS):
        return ""
    sample = [well_formed(text[:MISFIT_CHARACTERS]) for text in texts]
    encodings = _english_tokenizer().encode_batch(sample, add_special_tokens=False)
    lengths, whole_words, judged = [], 0, 0
    for text, encoding in zip(sample, encodings, strict=True):
        named = {place for name in _CAPITALIZED_WORD.finditer(text) for place in range(*name.span())}
        for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            spelling = text[start:end]
            letters = sum(map(str.isalpha, spelling))
            too_long = piece == _UNKNOWN_PIECE and spelling.isascii()
            if letters and start not in named and not too_long:
                known = piece != _UNKNOWN_PIECE
                judged += letters
                lengths.append(letters if known else 0)
                whole_words += known and not (text[start - 1 : start].isalpha() or text[end : end + 1].isalpha())
    if judged < FEWEST_LETTERS:
        return ""
    mean = sum(lengths) / len(lengths)
    if mean >= LEAST_LETTERS or whole_words >= MOST_WHOLE_WORDS * len(lengths):
        return ""
    return (
        f"the embedder {embedder} knows English only. It splits these texts into pieces of {mean:.1f} letters, and "
        "English into pieces of 4, so dense search will find little. Index into a new --path with --embedder "
        f"multilingual, which supports 16 languages, or with --embedder {LARGER_EMBEDDER}, which supports 50."
    )


def _english_tokenizer() -> Tokenizer:
    # Help does without the token table.
    from context_agent._support.token_table import load_weights

    return load_weights().tokenizer
