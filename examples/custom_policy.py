"""A policy of your own: it greps for the names in the question, reads one step further, prunes, and ranks.

    python examples/custom_policy.py

A policy is any object with these members. The harness runs its calls, keeps the record and enforces the budget, so the
same policy can be evaluated with `ctx1 eval` and its trajectories replayed.
"""

from __future__ import annotations

import re
from typing import Any

from context_agent import Action, Document, MemoryCorpus, RankedId, SearchAgent, ToolCall, View

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("rope-making", "Rope is made by twisting strands of hemp. Rope Walk is a street.", "Making of rope"),
]


class NamePolicy:
    """Follows names: those of the question first, then those in the passages that were found."""

    name = "names"
    counter = None

    def instructions(self, profile: Any) -> str:
        """Return no prompt, because no model reads one."""
        return ""

    def open(self, question: str, corpus: Any, *, profile: Any, seed: int = 0) -> NamePolicy:
        """Return the actor of one episode. This policy keeps no state, so it is its own actor."""
        return self

    async def act(self, view: View) -> Action:
        """Search twice, prune passages without a name of two words, then rank what is left."""
        text = view.question if view.turn == 0 else " ".join(block.text for block in view.blocks)
        names = re.findall(r"[A-Z]\w+(?: [A-Z]\w+)*", text.removeprefix("Which "))
        if view.turn < 2:
            return Action(calls=(ToolCall("grep_corpus", {"pattern": "|".join(map(re.escape, names)) or "."}),))
        aside = [block.id for block in view.blocks if not re.search(r"[A-Z]\w+ Hitchcock", block.text)]
        if view.turn == 2 and aside:
            return Action(calls=(ToolCall("prune_chunks", {"chunk_ids": aside}),))
        return Action(ranking=tuple(RankedId(block.document_id) for block in view.blocks))


def main() -> None:
    """Print the ranking and what was pruned."""
    result = SearchAgent(MemoryCorpus(DOCUMENTS), NamePolicy()).search(QUESTION)
    print("ranked:", ", ".join(document.title for document in result.documents))
    last = list(result.trajectories[0].views())[-1]
    print("pruned:", ", ".join(block.document_id for block in last.pruned))


if __name__ == "__main__":
    main()
