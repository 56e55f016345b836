"""Show what the agent does while it searches: each turn's tool calls and prunes, as they happen.

    python examples/stream_turns.py

`ctx1 search "QUESTION" --steps` shows the same on the command line.
"""

from __future__ import annotations

import asyncio

from context_agent import Document, MemoryCorpus, Progress, SearchAgent
from context_agent.pruning.view import Block, EditApplied, ToolResult

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
    Document("comets", "Comets are bodies of ice that grow a tail near the sun.", "Comets"),
]


async def main() -> None:
    """Print a line for each call and each edit of the context, then the ranking."""
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        async for update in agent.stream(QUESTION, k=2):
            if not isinstance(update, Progress):
                print("ranked:", ", ".join(document.title for document in update.documents))
                continue
            event, view = update.event, update.view
            if isinstance(event, ToolResult):
                found = sum(isinstance(segment, Block) for segment in event.segments)
                print(f"turn {event.turn}: {event.name} {event.arguments}: {found} new passages")
            elif isinstance(event, EditApplied):
                print(f"turn {event.turn}: {len(view.blocks)} passages in view, {event.cost.freed} tokens freed")


if __name__ == "__main__":
    asyncio.run(main())
