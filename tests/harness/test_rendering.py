"""The text in which a policy sees chunks."""

from __future__ import annotations

from dataclasses import replace

from context_agent import Document, MemoryCorpus
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import HarmonyCounter

LIGHT = Document("light", "Orm Skerry Light was lit in 1868.", title="A light")
CHUNK = MemoryCorpus([LIGHT], embedder=HashEmbedder()).read("light")[0]


def test_a_chunk_is_rendered_again_if_its_document_changed() -> None:
    renderer = Renderer(default(), HarmonyCounter())
    renderer.chunk(CHUNK)
    changed = replace(
        CHUNK,
        text="The keeper says that it was 1869.",
        tokens=HarmonyCounter().count("The keeper says that it was 1869."),
    )
    assert renderer.chunk(changed).body == changed.text
    assert renderer.chunk(changed) == Renderer(default(), HarmonyCounter()).chunk(changed)
    assert renderer.chunk(replace(CHUNK, title="A tower")) == Renderer(default(), HarmonyCounter()).chunk(
        replace(CHUNK, title="A tower")
    )
    assert renderer.chunk(CHUNK).body == CHUNK.text


def test_an_equal_chunk_is_rendered_once() -> None:
    renderer = Renderer(default(), HarmonyCounter())
    assert renderer.chunk(CHUNK) is renderer.chunk(replace(CHUNK))
