"""What the stages that use a model share: the corpus, the model, the domain, and the prompts with its hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from context_agent.agent import SearchAgent
from context_agent.errors import PolicyError
from context_agent.harness.episode import Limits
from context_agent.harness.profile import default
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.synth_data.instructions import DATA_RULE, Part, fenced
from context_agent.synth_data.model import Check, Model
from context_agent.synth_data.stages import Unfit
from context_agent.types import RankedDocument

Form = TypeVar("Form", bound=BaseModel)
HINTS = {"explore": "explore", "bridge": "extend", "write": "write", "extend": "extend", "verify": "verify"}
"""The domain's hint that each prompt gets."""
WINDOW = 32_768
TURNS = 16
"""Of an explorer's episode."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where tasks are made. `window` and `turns` bound an explorer's episode."""

    corpus: Corpus
    model: Model
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
        self, prompt: str, parts: Sequence[Part], form: type[Form], check: Check[Form] | None = None, **values: object
    ) -> Form:
        """`Model.ask` with the domain's hint."""
        return await self.model.ask(prompt, parts, form, check, hint=self._hint(prompt), **values)

    async def explore(self, prompt: str, parts: Sequence[Part], count: int) -> tuple[RankedDocument, ...]:
        """The documents that an explorer names, best first, each with its fact as the justification.

        It works in the same harness as any search, with the prompt in the place of the profile's. Raises `Unfit` where
        it named none, `PolicyError` where the model failed.
        """
        mark, data = fenced(parts)
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
            raise Unfit("explorer named nothing", f"it ended by {result.stop_reason} after {result.turns} turns")
        return result.documents

    def _hint(self, prompt: str) -> str:
        return self.domain.hints.get(HINTS.get(prompt, prompt), "")
