"""`BridgePolicy`: weights and settings, shared by any number of episodes."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from context_agent.harness.profile import Profile
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.passage import Passage
from context_agent.policies.bridge.scorer import Scorer
from context_agent.policies.bridge.settings import Effort
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter

REMEMBERED = 4096
"""Passages that a policy keeps taken apart: analysing a text costs more than scoring it."""


class BridgePolicy:
    """Searches by following names, and ranks by a learned scorer. Deterministic; safe to share between episodes."""

    def __init__(
        self,
        scorer: Scorer | None = None,
        *,
        effort: Effort | None = None,
        untrained: bool = False,
        remembered: int | None = REMEMBERED,
    ) -> None:
        """`scorer` defaults to the weights that ship. `untrained=True` scores by a rule of thumb instead of weights.

        `remembered` is how many passages stay in memory analysed; None for all.
        """
        self.passages = lru_cache(maxsize=remembered)(Passage)
        """Takes a title and a text apart."""
        self.scorer = None if untrained else scorer or _shipped()
        self.effort = effort or Effort()

    @classmethod
    def load(cls, path: str | Path, *, effort: Effort | None = None) -> BridgePolicy:
        """The policy with the weights of a file that `ctx1 train bridge` wrote. Raises `ConfigError`."""
        return cls(Scorer.load(path), effort=effort)

    @property
    def name(self) -> str:
        """`bridge@<digest of the weights>`."""
        return f"bridge@{self.scorer.digest if self.scorer else 'untrained'}"

    @property
    def counter(self) -> TokenCounter | None:
        """None: it has no tokenizer of its own."""
        return None

    def instructions(self, profile: Profile) -> str:
        """Nothing: it reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> BridgeActor:
        """An actor for one episode; `seed` changes nothing."""
        return BridgeActor(question, corpus, self.scorer, self.effort, self.passages)


@cache
def _shipped() -> Scorer | None:
    return Scorer.shipped()
