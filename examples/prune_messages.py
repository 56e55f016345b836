"""Prune a list of messages in OpenAI's format, and bring one passage back.

    python examples/prune_messages.py

Call `prune` before each request to the model. The caller's list never changes, and nothing is lost: a stub names the
passages that were removed, and `restore` puts them back.
"""

from __future__ import annotations

from typing import Any

from context_agent.pruning import ContextPruner

TASK = "Where was the director of Polar Light born?"
ANSWER = "Polar Light was directed by Mara Lind. Mara Lind was born in Tromso."
FILLER = "{} is a town in the hills. It has a market, a mill and a school, and its fair is held each May. " * 4
TOWNS = ("Brasko", "Tessel", "Corran", "Ness", "Orm", "Varga")


def conversation() -> list[dict[str, Any]]:
    """Return a task and the results of four tool calls, of which one matters."""
    results = [FILLER.format(*[town] * 4) for town in TOWNS[:3]]
    results.insert(1, ANSWER)
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for number, text in enumerate(results):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]
    return messages


def main() -> None:
    """Print the tool results before and after pruning, and after a restore."""
    messages = conversation()
    pruner = ContextPruner(budget=150)  # tokens of tool results to keep; "25%" is a share
    pruned = pruner.prune(messages)
    report = pruned.report
    print(f"{report.outcome}: {report.freed} tokens freed, {len(report.removed)} passages removed")
    for message in pruned.messages:
        if message["role"] == "tool":
            print(f"  {message['content'][:76]}")
    first = report.removed[0].id
    restored = pruner.restore(pruned.messages, [first])
    print(f"restored {first}: {restored[2]['content'][:60]}")


if __name__ == "__main__":
    main()
