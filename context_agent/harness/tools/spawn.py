"""`spawn_searchers`: hand sub-questions to sub-agents, each with a context of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from context_agent.harness.tools.tool import ReadContext, SpawnTool, Strings, ToolArguments, ToolOutput
from context_agent.pruning.view import Source

SPAWN = "spawn_searchers"
"""Name of the tool. Only the profile of an agent with a swarm has it."""


class SpawnArguments(ToolArguments):
    """Start a searcher for each task. They search at the same time, each in a context of its own, and what they find
    comes back merged, best first. A task must be understandable by itself."""

    tasks: Strings = Field(description="sub-questions that can be searched without each other")


async def run(requests: Sequence[SpawnArguments], context: ReadContext, tokens_left: int | None) -> list[ToolOutput]:
    """Return the output of each call of the turn. All calls share one clock."""
    if context.sub_agents is None:
        message = "Error: no searchers can be started here."
        return [ToolOutput(Source.SPAWN, message=message, mistake="no_searchers")] * len(requests)
    started = time.perf_counter()
    outputs = await context.sub_agents.search(
        [request.tasks for request in requests], tokens_left=tokens_left, shown_ids=frozenset(context.shown_ids)
    )
    seconds = time.perf_counter() - started
    return [replace(output, seconds=seconds) for output in outputs]


TOOL = SpawnTool(SPAWN, SpawnArguments, run)
