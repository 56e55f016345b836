"""Excerpts of documents that a model is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.llm_stages.templates import PromptPart
from context_agent.synth_data.stages import DropRow, off_loop
from context_agent.types import Chunk

EXCERPT_CHUNKS = 4
"""The number of chunks of a document that the model is shown, about 2,000 tokens."""


_MODEL_INSTRUCTIONS = re.compile(
    r"(?:ignore|disregard|forget|override)\s++(?:(?:all|any|the|your)\s++)*+"
    r"(?:(?:previous|prior|earlier|above|preceding|other)\s*+)?(?:instructions|prompts?|rules|directions)"
    r"|^[^\S\n]*+(?:system|assistant|developer)\s*+(?:(?:prompt|message)\s*+)?:"
    r"|(?:new|updated|hidden)\s++(?:system\s++)?instructions\s*+(?:for|to)?[^.\n]{0,40}:"
    r"|<\|[^|\n]{1,40}\|>|\[/?INST\]|<<SYS>>"
    r"|(?:write|ask|generate|output|reply\s++with|respond\s++with)\s++(?:only\s++)?(?:the|this|exactly|following)[^.\n]{0,40}"
    r"(?:question|answer|json)[^.\n]{0,20}:",
    re.I | re.M,
)
"""A pattern for text in a document that addresses a model instead of a reader."""


@dataclass(frozen=True, slots=True)
class DocumentExcerpt:
    """A document, or the part of it that a task is about."""

    id: str
    title: str
    chunks: tuple[Chunk, ...]

    @property
    def text(self) -> str:
        """The title and the chunks, separated by line breaks."""
        return "\n".join([*([self.title] if self.title else []), *(chunk.text for chunk in self.chunks)])

    def part(self, name: str) -> PromptPart:
        """Return the excerpt as data for a prompt."""
        return PromptPart(name, self.text)


async def read_excerpt(corpus: Corpus, document: str, chunk_ids: Sequence[str] = ()) -> DocumentExcerpt:
    """Return the chunks with these ids. If there are no such chunks, return the beginning of the document.

    The fences and checks of the prompts withstand text with instructions, but such text does not make a good task.

    Raises:
        DropRow: If the corpus does not have the document, or if the excerpt has instructions for a model.
    """
    chunks = await document_chunks(corpus, document)
    selected = [chunk for chunk in chunks if chunk.id in set(chunk_ids)]
    excerpt = DocumentExcerpt(document, chunks[0].title, tuple((selected or chunks)[:EXCERPT_CHUNKS]))
    if instruction := _MODEL_INSTRUCTIONS.search(excerpt.text):
        raise DropRow("a document has instructions", f"{document}: {instruction[0].strip()[:100]!r}")
    return excerpt


async def document_chunks(corpus: Corpus, document: str) -> list[Chunk]:
    """Return all chunks of a document.

    Raises:
        DropRow: If the corpus does not have the document.
    """
    chunks = await off_loop(corpus, lambda: corpus.read(document))
    if not chunks:
        raise DropRow("a document is missing", f"the corpus has no document {document!r}")
    return chunks
