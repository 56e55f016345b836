"""An agent on Anthropic's Messages API that searches with a tool and reads a pruned conversation.

    python examples/prune_anthropic_agent.py                 plays a script, offline
    python examples/prune_anthropic_agent.py --model NAME    asks Claude; the key is read from ANTHROPIC_API_KEY

This script needs Anthropic's client (`pip install "anthropic>=2,<3"`).
"""

from __future__ import annotations

import argparse
from typing import Any

from anthropic import Anthropic

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.functions import SearchTool
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.pruning import ContextPruner

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]
MAX_REQUESTS = 8


def answer(client: Anthropic, model: str, tool: SearchTool, question: str) -> str:
    """Return the model's answer. Before each request, tool results beyond 1,000 tokens are pruned."""
    conversation, pruner = tool.conversation(), ContextPruner(budget=1_000)
    messages: list[Any] = [{"role": "user", "content": question}]
    tools: list[Any] = [tool.definition("anthropic")]
    for _ in range(MAX_REQUESTS):
        pruned = pruner.prune(messages)
        print(f"request with {len(messages)} messages: {pruned.report.outcome}")
        reply = client.messages.create(model=model, max_tokens=1_000, tools=tools, messages=pruned.messages)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        results = [conversation.run(call.input).message("anthropic", call.id) for call in calls]
        messages.append({"role": "user", "content": results})
    return "no answer"


def main() -> None:
    """Print the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of Anthropic; by default a script is played")
    model = parser.parse_args().model
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        tool = SearchTool(agent, k=3)
        if model:
            print(answer(Anthropic(), model, tool, QUESTION))
            return
        search = says(calls=[(tool.definition("anthropic")["name"], {"question": QUESTION})])
        with ScriptedServer([search, says("The AFI Life Achievement Award [2].")]) as server:
            client = Anthropic(base_url=server.url.removesuffix("/v1"), api_key="none")
            print(answer(client, "scripted", tool, QUESTION))


if __name__ == "__main__":
    main()
