"""The context of the stages: the corpus, the model and the domain, and the explorer that reads the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.budget import WINDOW
from context_agent.errors import PolicyError
from context_agent.harness.episode import Limits
from context_agent.harness.profile import default
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.synth_data.llm_stages.model import Check, FormT, StructuredModel
from context_agent.synth_data.llm_stages.templates import DATA_RULE, PromptPart, fence
from context_agent.synth_data.stages import DropRow
from context_agent.types import RankedDocument

PROMPT_HINTS = {"explore": "explore", "bridge": "extend", "write": "write", "extend": "extend", "verify": "verify"}
"""For each prompt, the step for which the domain gives the hint."""


EXPLORER_TURNS = 16
"""The largest number of turns of the explorer's episode."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """The corpus, model and domain of the stages.

    Attributes:
        corpus: The corpus that the tasks are about.
        model: The model that writes and checks.
        domain: The kind of corpus.
        window: The size of the explorer's context window, in tokens.
        turns: The largest number of turns of the explorer's episode.
    """

    corpus: Corpus
    model: StructuredModel
    domain: Domain
    window: int = WINDOW
    turns: int = EXPLORER_TURNS

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a run must share with the journal of the run that it resumes."""
        explorer = {"window": self.window, "turns": self.turns}
        return {"corpus": self.corpus.name, "domain": self.domain.name, **explorer, **self.model.settings}

    @property
    def truth_types(self) -> str:
        """The domain's answer types, one per line."""
        return "\n".join(f"  {kind.name}: {kind.description}" for kind in self.domain.truth_types)

    def truth_type(self, name: str) -> TruthType | None:
        """Return the answer type of that name, ignoring case. If the domain has no such type, return None."""
        return next((kind for kind in self.domain.truth_types if kind.name.lower() == name.strip().lower()), None)

    async def ask(
        self,
        prompt: str,
        parts: Sequence[PromptPart],
        form: type[FormT],
        check: Check[FormT] | None = None,
        **values: object,
    ) -> FormT:
        """Ask the model with the domain's hint. The arguments are those of `StructuredModel.ask`."""
        return await self.model.ask(prompt, parts, form, check, hint=self._hint(prompt), **values)

    async def explore(self, prompt: str, parts: Sequence[PromptPart], count: int) -> tuple[RankedDocument, ...]:
        """Return the documents that the explorer ranks, best first.

        Each document's justification states the fact that it adds. The explorer is a search agent with this prompt in
        place of the profile's.

        Args:
            prompt: The name of the prompt.
            parts: The data of the prompt.
            count: The number of documents to find.

        Raises:
            DropRow: If the explorer ranks nothing.
            PolicyError: If the model fails.
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
            raise DropRow(
                "the explorer named nothing",
                f"the explorer stopped with {result.stop_reason} after {result.turns} turns",
            )
        return result.documents

    def _hint(self, prompt: str) -> str:
        return self.domain.hints.get(PROMPT_HINTS.get(prompt, prompt), "")
