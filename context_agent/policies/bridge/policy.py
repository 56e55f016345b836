"""The embedded policy: its weights, its effort, and the actors that share them."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from context_agent._support.arguments import require_members, require_type, whole_number
from context_agent._support.onnx import PairModel
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import ConfigError
from context_agent.harness.policy import SwarmRoles
from context_agent.harness.profile import Profile
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.candidates import AnalyzedPassage
from context_agent.policies.bridge.effort import EFFORTS, Effort
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.bridge.swarm_roles import LeadPolicy, SearcherPolicy
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter

CACHED_PASSAGES = 4096
"""Analyzed passages that a policy caches, because analyzing a text takes longer than scoring it."""


class BridgePolicy:
    """The embedded policy. It searches by following names, and a learned scorer ranks the passages.

    The policy is deterministic, and episodes may share it.

    Args:
        scorer: The weights. Defaults to those that ship with the package.
        effort: The bounds of the search, or the name of an effort, `careful` or `fast`.
        reader: The cross-encoder that reads the best candidates. Defaults to the one that ships with the package.
        untrained: If true, a rule of thumb scores the candidates instead of weights.
        remembered: The number of analyzed passages to keep in memory. If it is None, all are kept.

    Raises:
        ConfigError: If there is no effort with that name, if the weights were trained with another reader, or if
            another argument cannot be used.

    Example:
        >>> policy = BridgePolicy(effort="fast")
        >>> policy.efforts
        ('fast', 'careful')
        >>> policy.name.startswith("bridge@")
        True
    """

    def __init__(
        self,
        scorer: Scorer | None = None,
        *,
        effort: Effort | str | None = None,
        reader: PairModel | None = None,
        untrained: bool = False,
        remembered: int | None = CACHED_PASSAGES,
    ) -> None:
        require_type(scorer, "scorer", (Scorer, type(None)), "a Scorer, such as Scorer.load(file)")
        if reader is not None:
            require_members(reader, "reader", ("width", "encode_pairs"), "a model of pairs of texts")
        if remembered is not None:
            remembered = whole_number(remembered, "remembered", least=0)
        self.passages = lru_cache(maxsize=remembered)(AnalyzedPassage)
        """Analyzes a title and a text."""
        self.scorer = None if untrained else scorer or _shipped()
        self.effort = effort if isinstance(effort, Effort) else Effort() if effort is None else Effort.named(effort)
        self.reader = reader or shipped_reader()
        if self.scorer is not None and (scorer is not None or reader is not None):
            _check_width(self.scorer, self.reader)
        self.counter: TokenCounter | None = None
        """None, because the policy has no tokenizer of its own."""

    @classmethod
    def load(cls, path: str | Path, *, effort: Effort | str | None = None) -> BridgePolicy:
        """Return the policy with the weights in a file that `ctx1 train bridge` wrote.

        Args:
            path: The file.
            effort: The bounds of the search, or the name of an effort.

        Raises:
            ConfigError: If the file is not valid, or there is no effort with that name.
        """
        return cls(Scorer.load(path), effort=effort)

    @property
    def name(self) -> str:
        """The policy's name: `bridge@` and the digest of the weights."""
        return f"bridge@{self.scorer.digest if self.scorer else 'untrained'}"

    @property
    def efforts(self) -> tuple[str, ...]:
        """The names of all efforts. The effort of this policy comes first."""
        return tuple(sorted(EFFORTS, key=lambda name: Effort.named(name) != self.effort))

    def with_effort(self, name: str) -> BridgePolicy:
        """Return a copy of this policy with another effort. Both share the weights and the analyzed passages.

        Args:
            name: The name of the effort, one of `efforts`.

        Raises:
            ConfigError: If there is no effort with this name.
        """
        return self._with(Effort.named(name))

    def with_ranking(self, documents: int) -> BridgePolicy:
        """Return a copy of this policy that ranks at least `documents` documents. See `AdjustableRanking`."""
        return self if documents <= self.effort.ranking else self._with(replace(self.effort, ranking=documents))

    def without_pruning(self) -> BridgePolicy:
        """Return a copy of this policy that never edits the view, and plans its searches accordingly."""
        return self._with(replace(self.effort, prune=False))

    def _with(self, effort: Effort) -> BridgePolicy:
        policy = copy.copy(self)
        policy.effort = effort
        return policy

    def swarm_roles(self, breadth: int) -> SwarmRoles:
        """Return one policy for the orchestrator and one for its sub-agents."""
        lead = LeadPolicy(self, breadth)
        return SwarmRoles(lead, SearcherPolicy(self, lead))

    def instructions(self, profile: Profile) -> str:
        """Return an empty prompt, because the policy reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> BridgeActor:
        """Return an actor for one episode. The `seed` has no effect."""
        return BridgeActor(self, question, corpus)


def _check_width(scorer: Scorer, reader: PairModel) -> None:
    """Raise `ConfigError` if the correction of the reader in the weights does not fit the reader."""
    if scorer.head is not None and scorer.head.shape != (reader.width + 1,):
        raise ConfigError(
            f"the weights correct a reader with rows of another length (shape {scorer.head.shape}, not "
            f"({reader.width + 1},)). Train them again with this reader."
        )


@cache
def _shipped() -> Scorer:
    return Scorer.shipped()
