"""What the model stages share: corpus, model and domain, an exploring agent, and the documents shown to the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.errors import PolicyError
from context_agent.harness.episode import Limits
from context_agent.harness.profile import default
from context_agent.pruning.budget import WINDOW
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.synth_data.llm_stages.model import DATA_RULE, Check, FormT, PromptPart, StructuredModel, fence
from context_agent.synth_data.stages import DropRow, off_loop
from context_agent.types import Chunk, RankedDocument

PROMPT_HINTS = {"explore": "explore", "bridge": "extend", "write": "write", "extend": "extend", "verify": "verify"}
"""The domain hint that each prompt gets."""
TURNS = 16
"""Most turns of the explorer's episode."""
EXCERPT_CHUNKS = 4
"""Chunks of a document that the model is shown, about 2,000 tokens."""
_MODEL_INSTRUCTIONS = re.compile(
    r"(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+)*(?:previous|prior|earlier|above|preceding|other)?"
    r"\s*(?:instructions|prompts?|rules|directions)"
    r"|^\s*(?:system|assistant|developer)\s*(?:prompt|message)?\s*:"
    r"|(?:new|updated|hidden)\s+(?:system\s+)?instructions\s*(?:for|to)?[^.\n]{0,40}:"
    r"|<\|[^|\n]{1,40}\|>|\[/?INST\]|<<SYS>>"
    r"|(?:write|ask|generate|output|reply\s+with|respond\s+with)\s+(?:only\s+)?(?:the|this|exactly|following)[^.\n]{0,40}"
    r"(?:question|answer|json)[^.\n]{0,20}:",
    re.I | re.M,
)
"""Text in a document that is addressed to a model instead of a reader."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """Corpus, model and domain of the stages. `window` and `turns` limit an explorer's episode."""

    corpus: Corpus
    model: StructuredModel
    domain: Domain
    window: int = WINDOW
    turns: int = TURNS

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a stage's journal must share."""
        explorer = {"window": self.window, "turns": self.turns}
        return {"corpus": self.corpus.name, "domain": self.domain.name, **explorer, **self.model.settings}

    @property
    def truth_types(self) -> str:
        """The domain's answer types, one per line."""
        return "\n".join(f"  {kind.name}: {kind.description}" for kind in self.domain.truth_types)

    def truth_type(self, name: str) -> TruthType | None:
        """The answer type of that name, ignoring case; None if the domain has no such type."""
        return next((kind for kind in self.domain.truth_types if kind.name.lower() == name.strip().lower()), None)

    async def ask(
        self,
        prompt: str,
        parts: Sequence[PromptPart],
        form: type[FormT],
        check: Check[FormT] | None = None,
        **values: object,
    ) -> FormT:
        """`StructuredModel.ask` with the domain's hint."""
        return await self.model.ask(prompt, parts, form, check, hint=self._hint(prompt), **values)

    async def explore(self, prompt: str, parts: Sequence[PromptPart], count: int) -> tuple[RankedDocument, ...]:
        """The documents that the explorer ranks, best first; the justification of each is the fact it adds.

        The explorer is a search agent with this prompt instead of the profile's. Raises `DropRow` if it ranks nothing,
        `PolicyError` if the model fails.
        """
        mark, data = fence(parts)
        instructions = self.model.prompts.instructions(prompt, count=count, hint=self._hint(prompt))
        profile = replace(
            default(), name=prompt, prompt=f"{instructions}\n", question="{question}\n", max_ranking=2 * count
        )
        with SearchAgent(
            self.corpus,
            self.model.policy,
            profile=profile,
            budget=self.window,
            limits=Limits(turns=self.turns),
            seed=self.model.seed,
            workers=2,
        ) as agent:
            result = await agent.asearch(f"{DATA_RULE.format(mark=mark)}\n\n{data}", k=2 * count)
        if result.error:
            raise PolicyError(result.error)
        if result.stop_reason != "finished":
            raise DropRow("explorer named nothing", f"it stopped with {result.stop_reason} after {result.turns} turns")
        return result.documents

    def _hint(self, prompt: str) -> str:
        return self.domain.hints.get(PROMPT_HINTS.get(prompt, prompt), "")


@dataclass(frozen=True, slots=True)
class DocumentExcerpt:
    """A document, or the part of it that a task is about."""

    id: str
    title: str
    chunks: tuple[Chunk, ...]

    @property
    def text(self) -> str:
        """Title and chunks, separated by line breaks."""
        return "\n".join([*([self.title] if self.title else []), *(chunk.text for chunk in self.chunks)])

    def part(self, name: str) -> PromptPart:
        """The excerpt as data for a prompt."""
        return PromptPart(name, self.text)


async def read_excerpt(corpus: Corpus, document: str, chunk_ids: Sequence[str] = ()) -> DocumentExcerpt:
    """The chunks with these ids, or else the beginning of the document.

    Raises `DropRow` if the corpus lacks the document, or if the excerpt has instructions for a model. The fences and
    checks of the prompts withstand such text, but it makes no good task.
    """
    chunks = await document_chunks(corpus, document)
    selected = [chunk for chunk in chunks if chunk.id in set(chunk_ids)]
    excerpt = DocumentExcerpt(document, chunks[0].title, tuple((selected or chunks)[:EXCERPT_CHUNKS]))
    if instruction := _MODEL_INSTRUCTIONS.search(excerpt.text):
        raise DropRow("document with instructions", f"{document}: {instruction[0].strip()[:100]!r}")
    return excerpt


async def document_chunks(corpus: Corpus, document: str) -> list[Chunk]:
    """All chunks of a document. Raises `DropRow` if the corpus lacks it."""
    chunks = await off_loop(corpus, lambda: corpus.read(document))
    if not chunks:
        raise DropRow("document missing", f"the corpus has no document {document!r}")
    return chunks
