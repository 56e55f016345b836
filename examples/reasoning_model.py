"""A reasoning model answers a question with the agent as its tool, and its citations are checked.

    python examples/reasoning_model.py --base-url http://localhost:8000/v1 --model NAME ["QUESTION"]

Any server that speaks OpenAI's chat completions with tools will do. The key is read from OPENAI_API_KEY, where one is
needed. The documents are four lines below; use `ChromaCorpus.open(path)` for your own.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from openai import OpenAI

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.functions import Conversation, SearchTool

DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
    Document("comets", "Comets are bodies of ice that grow a tail near the sun.", "Comets"),
]
QUESTION = "Which award did the director of Rope receive?"
PROMPT = "Answer from the documents only. Search first, and cite every statement by the passage's number, like [1]."
ROUNDS = 8
"""Requests after which the model must have answered."""


def answered(client: OpenAI, model: str, tool: SearchTool, conversation: Conversation, question: str) -> str:
    """Return the model's answer. Before it answers, the model may call the tool."""
    messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    tools: list[Any] = [tool.definition("openai")]
    for _ in range(ROUNDS):
        reply = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        messages.append(reply.model_dump(exclude_none=True))
        for call in reply.tool_calls:
            if call.type == "function":
                found = conversation.run(call.function.arguments)
                print(f"searched: {call.function.arguments}", file=sys.stderr)
                messages.append(found.message("openai", call.id))
    return f"(no answer after {ROUNDS} requests)"


def main() -> int:
    """Print the answer and what it cites. Return 1 if a citation names no passage, or if nothing is cited."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--base-url", default="http://localhost:8000/v1")
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    client = OpenAI(base_url=options.base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        tool = SearchTool(agent, k=3)
        conversation = tool.conversation()
        answer = answered(client, options.model, tool, conversation, options.question)
    print(answer)
    cited = conversation.cited(answer)
    for passage in cited.passages:
        print(f"  cites {passage.id}: {passage.text}")
    for number in cited.unknown:
        print(f"  [{number}] stands for nothing that was shown")
    return 1 if cited.unknown or not cited.passages else 0


if __name__ == "__main__":
    sys.exit(main())
