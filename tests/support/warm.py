"""Loads, when it is imported, what almost every program of the package loads first. Forks then have it.

This takes 0.7 seconds of the processor: a vocabulary of tokens and a model of languages.
"""

from context_agent.text.identification import language_of
from context_agent.text.languages import ENGLISH
from context_agent.tokens import HarmonyCounter

HarmonyCounter().count("a word")
language_of("Alfred Hitchcock directed Rope, a film of 1948.", ENGLISH)
