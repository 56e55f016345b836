"""Loads, when it is imported, what almost every program of the package loads first. Forks then have it.

This takes a second of the processor: a vocabulary of tokens, a model of languages, and the models that read passages.
"""

from context_agent._support.shipped_models import shipped_minilm, shipped_reader
from context_agent._support.token_table import load_weights
from context_agent.policies.bridge.policy import BridgePolicy
from context_agent.text.language_identification import language_of
from context_agent.text.languages import ENGLISH
from context_agent.tokens import HarmonyCounter

HarmonyCounter().count("a word")
language_of("Alfred Hitchcock directed Rope, a film of 1948.", ENGLISH)
BridgePolicy()
load_weights()
# Opening a model starts no thread, as encoding a text would.
for model in (shipped_minilm(), shipped_reader()):
    assert model.width
