"""The hybrid policy: a single hybrid search without an agent, for comparison with other policies.

The question is the only query. The documents have the order of their best passages in the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from context_agent.harness.profile import Profile
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import Action, RankedId, ToolCall

RANKED = 10
"""Documents of a ranking, unless the caller asks for more."""
PAGES = 5
"""Maximum number of pages of hits that are shown. Several hits may belong to one document."""


@dataclass(frozen=True, slots=True)
class HybridPolicy:
    """A policy that searches once and ranks the documents that the search returned.

    The policy is deterministic, and episodes may share it.
    """

    documents: int = RANKED
    name = "hybrid"
    counter = None

    def with_ranking(self, documents: int) -> HybridPolicy:
        """Return a copy of this policy with longer rankings. See `AdjustableRanking`."""
        return replace(self, documents=max(self.documents, documents))

    def instructions(self, profile: Profile) -> str:
        """Return an empty prompt, because the policy reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> HybridActor:
        """Return an actor for one episode. The `seed` has no effect."""
        return HybridActor(question, self.documents)


@dataclass(slots=True)
class HybridActor:
    """An actor that shows the hits of one query page by page.

    It stops when there are enough documents, no more hits, or no more room.
    """

    question: str
    documents: int
    pages: int = 0
    shown: int = -1
    """How many passages were in view before the latest page."""

    async def act(self, view: View) -> Action:
        """Return the call for the next page of hits, or the ranking."""
        found = dict.fromkeys(block.document_id for block in view.blocks)
        largest_page = view.tokens / max(1, self.pages)
        full = self.pages > 0 and view.tokens + largest_page > view.budget.soft
        if len(found) >= self.documents or len(view.blocks) == self.shown or self.pages == PAGES or full:
            return Action(ranking=tuple(map(RankedId, list(found)[: self.documents])))
        self.pages, self.shown = self.pages + 1, len(view.blocks)
        return Action(calls=(ToolCall("search_corpus", {"query": self.question}),))
