"""What the stages that use a model share: the corpus, the model, the domain, and the prompts with its hints."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from context_agent.agent import SearchAgent
from context_agent.episode import Limits
from context_agent.errors import PolicyError
from context_agent.profiles import default
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.synth_data.llm_stages.model import DATA_RULE, Check, PromptPart, StructuredModel, fence
from context_agent.synth_data.stages import DropRow
from context_agent.types import Chunk, RankedDocument

Form = TypeVar("Form", bound=BaseModel)
PROMPT_HINTS = {"explore": "explore", "bridge": "extend", "write": "write", "extend": "extend", "verify": "verify"}
"""The domain's hint that each prompt gets."""
WINDOW = 32_768
TURNS = 16
"""Of an explorer's episode."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """Where tasks are made. `window` and `turns` bound an explorer's episode."""

    corpus: Corpus
    model: StructuredModel
    domain: Domain
    window: int = WINDOW
    turns: int = TURNS

    @property
    def settings(self) -> dict[str, Any]:
        """What a stage's journal must agree on."""
        explorer = {"window": self.window, "turns": self.turns}
        return {"corpus": self.corpus.name, "domain": self.domain.name, **explorer, **self.model.settings}

    @property
    def truth_types(self) -> str:
        """The domain's kinds of answers, one a line."""
        return "\n".join(f"  {kind.name}: {kind.description}" for kind in self.domain.truth_types)

    def truth_type(self, name: str) -> TruthType | None:
        """The kind of that name, however it is cased."""
        return next((kind for kind in self.domain.truth_types if kind.name.lower() == name.strip().lower()), None)

    async def ask(
        self,
        prompt: str,
        parts: Sequence[PromptPart],
        form: type[Form],
        check: Check[Form] | None = None,
        **values: object,
    ) -> Form:
        """`Model.ask` with the domain's hint."""
        return await self.model.ask(prompt, parts, form, check, hint=self._hint(prompt), **values)

    async def explore(self, prompt: str, parts: Sequence[PromptPart], count: int) -> tuple[RankedDocument, ...]:
        """The documents that an explorer names, best first, each with its fact as the justification.

        It works in the same harness as any search, with the prompt in the place of the profile's. Raises `Unfit` where
        it named none, `PolicyError` where the model failed.
        """
        mark, data = fence(parts)
        told = self.model.prompts.instructions(prompt, count=count, hint=self._hint(prompt))
        profile = replace(default(), name=prompt, prompt=f"{told}\n", question="{question}\n", max_ranking=2 * count)
        limits = Limits(turns=self.turns)
        with SearchAgent(
            self.corpus,
            self.model.policy,
            profile=profile,
            budget=self.window,
            limits=limits,
            seed=self.model.seed,
            workers=2,
        ) as agent:
            result = await agent.asearch(f"{DATA_RULE.format(mark=mark)}\n\n{data}", k=2 * count)
        if result.error:
            raise PolicyError(result.error)
        if result.stop_reason != "finished":
            raise DropRow("explorer named nothing", f"it ended by {result.stop_reason} after {result.turns} turns")
        return result.documents

    def _hint(self, prompt: str) -> str:
        return self.domain.hints.get(PROMPT_HINTS.get(prompt, prompt), "")


T = TypeVar("T")
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
"""Ways in which a document addresses a model instead of a reader."""
EXCERPT_CHUNKS = 4
"""Chunks of a document that a model is shown, about 2,000 tokens."""


@dataclass(frozen=True, slots=True)
class DocumentExcerpt:
    """A document, or the part of it that a task is about."""

    id: str
    title: str
    chunks: tuple[Chunk, ...]

    @property
    def text(self) -> str:
        """Title and chunks, a line between each two."""
        return "\n".join([*([self.title] if self.title else []), *(chunk.text for chunk in self.chunks)])

    def part(self, name: str) -> PromptPart:
        """The item as data for a prompt."""
        return PromptPart(name, self.text)


async def off_loop(corpus: Corpus, call: Callable[[], T]) -> T:
    """The call's value; where the corpus waits for disk or network, the event loop does not."""
    return await asyncio.to_thread(call) if corpus.blocking else call()


async def read_excerpt(corpus: Corpus, document: str, chunk_ids: Sequence[str] = ()) -> DocumentExcerpt:
    """The document's part that these chunks are, else its beginning.

    Raises `Unfit` where the corpus lacks it, and where it gives orders to a model. The fences and the checks hold
    against those anyhow; a document that tries is no material for a task.
    """
    chunks = await document_chunks(corpus, document)
    named = [chunk for chunk in chunks if chunk.id in set(chunk_ids)]
    shown = DocumentExcerpt(document, chunks[0].title, tuple((named or chunks)[:EXCERPT_CHUNKS]))
    if order := _MODEL_INSTRUCTIONS.search(shown.text):
        raise DropRow("document with instructions", f"{document}: {order[0].strip()[:100]!r}")
    return shown


async def document_chunks(corpus: Corpus, document: str) -> list[Chunk]:
    """All chunks of a document. Raises `Unfit` where the corpus lacks it."""
    chunks = await off_loop(corpus, lambda: corpus.read(document))
    if not chunks:
        raise DropRow("document missing", f"the corpus has no document {document!r}")
    return chunks
