"""The languages in which texts can be analyzed, by their ISO 639-1 codes."""

from __future__ import annotations

from context_agent.errors import ConfigError

ENGLISH, UNIDENTIFIED = "en", "none"
STEMMED = {
    "ar": "arabic", "da": "danish", "nl": "dutch", "en": "english", "fi": "finnish", "fr": "french", "de": "german",
    "el": "greek", "hu": "hungarian", "it": "italian", "no": "norwegian", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "es": "spanish", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""Languages with a stemmer. The names are tantivy's."""
SEGMENTED = {"ja": "japanese", "zh": "chinese", "ko": "korean", "th": "thai"}
"""Languages that are cut into pairs of characters."""
LANGUAGES = {**STEMMED, **SEGMENTED, UNIDENTIFIED: "not identified"}
"""Every language of an index, by code."""
WITHOUT_STOP_WORDS = frozenset({"ar", "el", "ro", "ta", "tr"})
"""Languages for which tantivy has a stemmer but no stop words. They are used only if a user names them."""


def require_language(code: str) -> None:
    """Raise `ConfigError` if the code is not one of `LANGUAGES`."""
    if code not in LANGUAGES:
        raise ConfigError(
            f"there is no analyzer for language {code!r}. Pass --language with one of {', '.join(LANGUAGES)}, or leave "
            "it out to identify the language of a new index."
        )
