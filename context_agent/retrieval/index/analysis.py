"""The analysis of text into terms by tantivy, for each language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from context_agent.text.languages import ENGLISH, STEMMED, WITHOUT_STOP_WORDS

if TYPE_CHECKING:
    from tantivy import Filter, TextAnalyzer, Tokenizer

MAX_WORD_BYTES = 80
"""The maximum length of a word. Longer words are encoded data, and are not indexed."""
TOKENIZER_NAME = "context_agent_terms"
"""The name under which every index stores its tokenizer.

The tokenizer splits text that is already analyzed into terms.
"""


@cache
def analyzer(language: str) -> TextAnalyzer:
    """Return the analyzer that turns a text of this language into terms."""
    from tantivy import Tokenizer

    return _chain(Tokenizer.simple(), *_word_filters(), *_folding(language), *_stopping(language), *_ending(language))


@cache
def word_splitter() -> TextAnalyzer:
    """Return the analyzer that splits a text of any language into words."""
    from tantivy import Tokenizer

    return _chain(Tokenizer.simple(), *_word_filters())


@cache
def term_splitter() -> TextAnalyzer:
    """Return the analyzer that splits an analyzed text into its terms."""
    from tantivy import Tokenizer

    return _chain(Tokenizer.whitespace())


@cache
def _form_analyzers(language: str) -> tuple[TextAnalyzer, TextAnalyzer, TextAnalyzer]:
    """Return the three steps that follow `word_splitter` in `analyzer`. The second step drops words."""
    from tantivy import Tokenizer

    steps = (_folding(language), _stopping(language), _ending(language))
    first, second, third = (_chain(Tokenizer.whitespace(), *step) for step in steps)
    return first, second, third


def word_forms(language: str, words: Sequence[str]) -> list[str]:
    """Return the term of each word in a language. The term of a stop word is empty."""
    fold, stop, end = _form_analyzers(language)
    folded = fold.analyze(" ".join(words))
    content = set(stop.analyze(" ".join(folded)))
    terms = end.analyze(" ".join(folded))
    return [term if word in content else "" for word, term in zip(folded, terms, strict=True)]


def _word_filters() -> list[Filter]:
    from tantivy import Filter

    return [Filter.remove_long(MAX_WORD_BYTES), Filter.lowercase()]


def _folding(language: str) -> list[Filter]:
    """Return the filters that run before stop words are dropped.

    The stop words of languages other than English have accents, so accents are folded here only for English.
    """
    from tantivy import Filter

    return [Filter.ascii_fold()] if language == ENGLISH else []


def _stopping(language: str) -> list[Filter]:
    from tantivy import Filter

    has_list = language in STEMMED and language not in WITHOUT_STOP_WORDS
    return [Filter.stopword(STEMMED[language])] if has_list else []


def _ending(language: str) -> list[Filter]:
    from tantivy import Filter

    filters = [Filter.stemmer(STEMMED[language])] if language in STEMMED else []
    return filters if language == ENGLISH else [*filters, Filter.ascii_fold()]


def _chain(tokenizer: Tokenizer, *filters: Filter) -> TextAnalyzer:
    from tantivy import TextAnalyzerBuilder

    builder = TextAnalyzerBuilder(tokenizer)
    for step in filters:
        builder = builder.filter(step)
    return builder.build()
