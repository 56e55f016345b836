"""Conversations of agents that have no tool messages, written after the templates of these agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextForm:
    """How an agent writes a call, and the text before and after a result."""

    call: str
    before: str
    after: str = ""
    needs_call: bool = True


FORMS = {
    "swe-agent": TextForm("I look.\n\n```\ncat a.txt\n```", "OBSERVATION:\n"),
    "mini-swe-agent": TextForm(
        "I look.\n\n```mswea_bash_command\ncat a.txt\n```",
        "<exception>The command '<cat>' timed out</exception>\n<returncode>-1</returncode>\n<output>\n",
        "\n</output>",
        needs_call=False,
    ),
    "openhands": TextForm(
        "I look.\n<function=execute_bash>\n<parameter=command>cat a.txt</parameter>\n</function>",
        "EXECUTION RESULT of [execute_bash]:\n",
        "\n[The command completed with exit code 0.]\n[Current working directory: /work]\n"
        "[Command finished with exit code 0]",
    ),
    "cline": TextForm(
        "I look.\n<read_file>\n<path>a.txt</path>\n</read_file>",
        "[read_file for 'a.txt'] Result:\n\n",
        "\n<environment_details>\n</environment_details>",
    ),
    "ag2": TextForm(
        "I look.\n```python\nprint(open('a.txt').read())\n```", "exitcode: 0 (execution succeeded)\nCode output: "
    ),
    "open-interpreter": TextForm(
        "I look.\n```shell\ncat a.txt\n```",
        "Code output: ",
        "\n\nWhat does this output mean / what's next (if anything, or are we done)?",
        needs_call=False,
    ),
    "continue": TextForm(
        "I look.\n```tool\nTOOL_NAME: read_file\nBEGIN_ARG: filepath\na.txt\nEND_ARG\n```",
        "Tool output for read_file tool call:\n\n",
    ),
    "langchain-json": TextForm(
        'I look.\n```json\n{"action": "read", "action_input": "a.txt"}\n```',
        "TOOL RESPONSE: \n---------------------\n",
        "\n\nUSER'S INPUT\n--------------------\n\nOkay, so what is the response to my last comment?",
    ),
    "terminus": TextForm(
        '{"analysis": "I look.", "commands": [{"keystrokes": "cat a.txt\\n", "duration": 0.1}]}',
        "Previous response had warnings:\nWARNINGS: - Extra text\n\nNew Terminal Output:\n\n",
    ),
    "aider": TextForm("Ok.", "I ran this command:\n\ncat a.txt\n\nAnd got this output:\n\n", needs_call=False),
    "claude-code": TextForm("Ok.", "<bash-stdout>", "</bash-stdout><bash-stderr></bash-stderr>", needs_call=False),
    "llamaindex": TextForm('Thought: I look.\nAction: read\nAction Input: {"file": "a.txt"}', "Observation: "),
}

Render = Callable[[str, str], Any]
CARRIERS: dict[str, Render] = {
    "chat": lambda role, text: {"role": role, "content": text},
    "parts": lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]},
    "responses": lambda role, text: {
        "type": "message",
        "role": role,
        "content": [{"type": "input_text" if role == "user" else "output_text", "text": text}],
    },
    "gemini": lambda role, text: {"role": "user" if role == "user" else "model", "parts": [{"text": text}]},
    "bedrock": lambda role, text: {"role": role, "content": [{"text": text}]},
    "llamaindex": lambda role, text: {"role": role, "blocks": [{"block_type": "text", "text": text}]},
}
"""The formats in which such texts travel. The chat format and its parts are also those of Anthropic."""


def text_conversation(form: TextForm, task: str, results: Sequence[str], carrier: str = "chat") -> list[Any]:
    """Return a task, and then a call and its result for each text."""
    render = CARRIERS[carrier]
    messages = [render("user", task)]
    for result in results:
        messages += [render("assistant", form.call), render("user", f"{form.before}{result}{form.after}")]
    return messages


def react_prompt(task: str, results: Sequence[str]) -> str:
    """Return the message of LangChain's ReAct agent after these results."""
    steps = "".join(
        f" I look.\nAction: read\nAction Input: a{number}.txt\nObservation: {result}\nThought:"
        for number, result in enumerate(results)
    )
    form = "Thought: you should think\nAction: the action\nAction Input: its input\nObservation: its result\n"
    return f"Answer.\n\n{form}Thought: I know\nFinal Answer: the answer\n\nBegin!\n\nQuestion: {task}\nThought:{steps} "


def dspy_message(task: str, results: Sequence[str]) -> str:
    """Return the message of DSPy's ReAct agent after these results."""
    steps = "\n\n".join(
        f"[[ ## thought_{number} ## ]]\nI look.\n\n[[ ## tool_name_{number} ## ]]\nread\n\n"
        f'[[ ## tool_args_{number} ## ]]\n{{"file": "a.txt"}}\n\n[[ ## observation_{number} ## ]]\n{result}'
        for number, result in enumerate(results)
    )
    return (
        f"[[ ## question ## ]]\n{task}\n\n[[ ## trajectory ## ]]\n{steps}\n\n\n"
        "Respond with the corresponding output fields, starting with the field `[[ ## next_thought ## ]]`."
    )


def dspy_elements(task: str, results: Sequence[str]) -> str:
    """Return the message of DSPy's ReAct agent with the XML adapter."""
    steps = "\n\n".join(
        f"<thought_{number}>\nI look.\n</thought_{number}>\n\n<tool_name_{number}>\nread\n</tool_name_{number}>\n\n"
        f'<tool_args_{number}>\n{{"file": "a.txt"}}\n</tool_args_{number}>\n\n'
        f"<observation_{number}>\n{result}\n</observation_{number}>"
        for number, result in enumerate(results)
    )
    return (
        f"<question>\n{task}\n</question>\n\n<trajectory>\n{steps}\n</trajectory>\n\n"
        "Respond with the corresponding output fields wrapped in XML tags `<next_thought>`, then `<next_tool_name>`."
    )


SCRATCHPADS = {"langchain": react_prompt, "dspy": dspy_message, "dspy in XML": dspy_elements}


def crewai_messages(task: str, results: Sequence[str]) -> list[Any]:
    """Return the messages of CrewAI, which adds each result to the message of its call."""
    return [
        {"role": "user", "content": task},
        *(
            {
                "role": "assistant",
                "content": f"Thought: I look.\nAction: read\nAction Input: {{}}\nObservation: {result}",
            }
            for result in results
        ),
    ]


MARKS = (
    "Thought:", "Thought: I look.", "Action: read", "Action Input: x", "Observation:", "Observation: x", "Begin!",
    "Final Answer: x", "Action: Finish[x]", "[[ ## thought_0 ## ]]", "[[ ## tool_name_0 ## ]]",
    "[[ ## tool_name_1 ## ]]", "[[ ## observation_0 ## ]]", "[[ ## observation_1 ## ]]",
    "[[ ## trajectory ## ]]", "<trajectory>", "</trajectory>", "<tool_name_0>", "<observation_0>", "</observation_0>",
    "<thought_1>", "</output>", "<output>",
    "<output_head>", "</output_head>", "<output_tail>", "</output_tail>", "<returncode>0</returncode>", "OBSERVATION:",
    "EXECUTION RESULT of [a]:", "[The command completed with exit code 0.]", "[Current working directory: /]",
    "[read_file for 'a'] Result:", "<environment_details>", "</environment_details>", '<file_content path="a">',
    "</file_content>", "<feedback>", "exitcode: 0 (execution succeeded)", "Code output: x", "New task:", "Error:",
    "\nWhat does this output mean / what's next", "Tool output for a tool call:", "TOOL RESPONSE: ", "------",
    "\nUSER'S INPUT", "New Terminal Output:", "I ran this command:\n\nls\n\nAnd got this output:\n", "<bash-stdout>",
    "</bash-stdout>", "<tool_result>", "</tool_result>", "```",
    "Now let's retry: take care not to repeat previous errors!",
    "\nRespond with ", "[2 passages pruned, 40 tokens; restore: p1-p2]", "[p1 pruned]", "restore: p1-p9",
)  # fmt: skip
"""Lines that are marks in one of the forms, or that imitate them."""
