"""Measure whether pruning keeps as much evidence if an agent puts tool results into plain text.

    python benchmarks/prune_text_forms.py [--data benchmarks/data/tool-results/train] [--kinds grep,app-log]
        [--limit 2] [--effort fast] [--shares 0.25,0.1] [--forms "exit code,tags"] [--seed 0]

The conversations are those of prune_tools.py, once with tool messages and once in each text form. A form is that of
a family of agents: a user message with marks, or one text with all steps. `evidence` is the share of the labeled lines
that are still in the conversation, with a bootstrap 95% interval. `tokens` is the share of the tool results' tokens
that remains. `difference` is the mean difference of the evidence to tool messages, with its interval.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prune_any import ALWAYS, pruner_of
from prune_conversations import COUNTER, Message
from prune_tools import ToolConversation, conversations, is_kept

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner
from context_agent.pruning.messages import Transcript

DATA = Path(__file__).parent / "data" / "tool-results" / "train"
Step = tuple[str, str, str, str]
"""The agent's own words, the name of the tool, its arguments in JSON, and the result."""


def steps_of(messages: Sequence[Message]) -> list[Step]:
    """Return the steps of a conversation with tool messages, after the system message and the task."""
    steps = []
    for agent, result in zip(messages[2::2], messages[3::2], strict=True):
        function = agent["tool_calls"][0]["function"]
        steps.append((agent["content"] or "", function["name"], function["arguments"], result["content"]))
    return steps


def in_turns(call: str, result: str) -> Callable[[str, list[Step]], list[Message]]:
    """Return a function that writes each call into the agent's message, and each result into one of the user."""

    def messages(task: str, steps: list[Step]) -> list[Message]:
        turns: list[Message] = [{"role": "user", "content": task}]
        for words, name, arguments, text in steps:
            written = call.replace("NAME", name).replace("ARGUMENTS", arguments)
            turns.append({"role": "assistant", "content": f"{words}\n{written}".strip()})
            turns.append({"role": "user", "content": result.replace("NAME", name).replace("{}", text)})
        return turns

    return messages


def in_prompt(task: str, steps: list[Step]) -> list[Message]:
    """Return the prompt of a ReAct agent that has all steps in one message."""
    text = "".join(
        f" {words}\nAction: {name}\nAction Input: {arguments}\nObservation: {result}\nThought:"
        for words, name, arguments, result in steps
    )
    return [{"role": "user", "content": f"Answer with the tools.\n\nBegin!\n\nQuestion: {task}\nThought:{text} "}]


def in_fields(task: str, steps: list[Step]) -> list[Message]:
    """Return the message of an agent whose trajectory has numbered fields."""
    text = "\n\n".join(
        f"[[ ## thought_{number} ## ]]\n{words}\n\n[[ ## tool_name_{number} ## ]]\n{name}\n\n"
        f"[[ ## tool_args_{number} ## ]]\n{arguments}\n\n[[ ## observation_{number} ## ]]\n{result}"
        for number, (words, name, arguments, result) in enumerate(steps)
    )
    head = f"[[ ## question ## ]]\n{task}\n\n[[ ## trajectory ## ]]\n"
    return [{"role": "user", "content": f"{head}{text}\n\n\nRespond with the corresponding output fields."}]


def in_agent(task: str, steps: list[Step]) -> list[Message]:
    """Return messages of the agent that have both the call and its result."""
    return [
        {"role": "user", "content": task},
        *(
            {"role": "assistant", "content": f"{words}\nAction: {name}\nAction Input: {arguments}\nObservation: {text}"}
            for words, name, arguments, text in steps
        ),
    ]


FORMS: dict[str, Callable[[str, list[Step]], list[Message]]] = {
    "observation": in_turns("Action: NAME\nAction Input: ARGUMENTS", "Observation: {}"),
    "tags": in_turns(
        '<tool_call>{"name": "NAME", "arguments": ARGUMENTS}</tool_call>', "<tool_response>\n{}\n</tool_response>"
    ),
    "exit code": in_turns("```bash\nNAME ARGUMENTS\n```", "<returncode>0</returncode>\n<output>\n{}\n</output>"),
    "execution result": in_turns(
        "<function=NAME>\nARGUMENTS\n</function>",
        "EXECUTION RESULT of [NAME]:\n{}\n[Command finished with exit code 0]",
    ),
    "one prompt": in_prompt,
    "numbered fields": in_fields,
    "agent's message": in_agent,
}


def measure(conversation: ToolConversation, messages: list[Message], effort: str, share: float) -> tuple[float, float]:
    """Prune a conversation, and return the shares of the evidence and of the tokens that stayed."""
    total = sum(COUNTER.count(text) for *_, text in steps_of(conversation.messages))
    pruned = pruner_of(effort, max(1, int(share * total)), conversation.labeled.evidence).prune(messages).messages
    left = [result.text for result in Transcript(pruned).results]
    evidence = statistics.mean(is_kept(left[conversation.index], part) for part in conversation.labeled.evidence)
    return evidence, sum(map(COUNTER.count, left)) / total


def main() -> None:
    """Print a table for each share of the tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[DATA], help="folders of labeled results")
    parser.add_argument("--kinds", default="", help="kinds of results; all by default")
    parser.add_argument("--limit", type=int, default=2, help="conversations of a kind")
    parser.add_argument("--effort", default="fast", help="how the strategy reader judges")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--forms", default=",".join(FORMS), help="the text forms")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    composed = [*conversations(options)]
    ContextPruner(1, prices=ALWAYS).prune(composed[0].messages)
    for share in map(float, options.shares.split(",")):
        print(f"\n{share:.0%} of the tokens, effort {options.effort}: {len(composed)} conversations")
        rows: dict[str, list[Any]] = {
            "tool messages": [measure(it, it.messages, options.effort, share) for it in composed]
        }
        for name in options.forms.split(","):
            write = FORMS[name]
            texts = [write(it.labeled.task, steps_of(it.messages)) for it in composed]
            rows[name] = [measure(it, text, options.effort, share) for it, text in zip(composed, texts, strict=True)]
        for name, kept in rows.items():
            reference = [evidence for evidence, _ in rows["tool messages"]]
            difference = Figure.of([row[0] - before for row, before in zip(kept, reference, strict=True)])
            tokens = statistics.mean(row[1] for row in kept)
            evidence = Figure.of([row[0] for row in kept])
            print(f"{name:18}evidence {evidence!s:24} tokens {tokens:.3f}  difference {difference!s}")


if __name__ == "__main__":
    main()
