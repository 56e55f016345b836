"""Steps of saved runs: of Harbor's coding agents, of smolagents, and of DSPy's ReAct agents.

Harbor saves them in the Agent Trajectory Interchange Format. A step has its calls with their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text, result_texts, text_of, value_texts

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_TOOL_NAME = "tool_name_"
_FAILED_CALL = "Execution error in "
"""What DSPy writes before the error of a tool."""


def is_trajectory_step(message: Any) -> bool:
    """Return True if a message without a role is a numbered step with a source."""
    return get_field(message, "step_id") is not None and text_field(message, "source") in _ROLES


def read_trajectory_step(message: Any, index: int) -> MessageContent:
    """Return the content of a step. A step of the agent has its calls with their results."""
    reading = ContentCollector(index, "openai")
    said = get_field(message, "message")
    reading.words += [said] if isinstance(said, str) else [text_of(part) for part in items(said)]
    for number, call in enumerate(items(get_field(message, "tool_calls"))):
        own = Call(text_field(call, "tool_call_id"), text_field(call, "function_name"))
        reading.add_own_call(own, get_field(call, "arguments"), ("tool_calls", number, "arguments"))
    for number, result in enumerate(items(get_field(get_field(message, "observation"), "results"))):
        path = ("observation", "results", number, "content")
        texts, unknown = result_texts(get_field(result, "content"), path, "openai")
        reading.unknown += unknown
        reading.add_own_results(text_field(result, "source_call_id"), texts, flagged=False)
    return reading.content(_ROLES[text_field(message, "source")])


def is_smolagents_step(message: Any) -> bool:
    """Return True if a message is a step in the memory of smolagents: a task, a plan or an action."""
    pairs = (("observations", "model_output"), ("task", "task_images"), ("plan", "model_output_message"))
    return isinstance(message, Mapping) and any(set(pair) <= message.keys() for pair in pairs)


def read_smolagents_step(message: Any, index: int) -> MessageContent:
    """Return the content of a step. The observation of an action has what all of its calls returned."""
    reading = ContentCollector(index, "openai")
    if "task" in message:
        reading.words.append(text_field(message, "task"))
        return reading.content("user")
    said = get_field(message, "plan" if "plan" in message else "model_output")
    reading.words += [said] if isinstance(said, str) else [text_of(part) for part in items(said)]
    key = ""
    for number, call in enumerate(items(get_field(message, "tool_calls"))):
        body = get_field(call, "function")
        own = Call(text_field(call, "id"), text_field(body, "name"))
        arguments, key = get_field(body, "arguments"), key or own.id
        # The arguments of a code agent are a text of code.
        form = written_form("code", is_text=isinstance(arguments, str))
        reading.add_own_call(own, arguments, ("tool_calls", number, "function", "arguments"), form)
    seen, error = text_field(message, "observations"), text_field(get_field(message, "error"), "message")
    reading.add_own_results(key, [result_text(("observations",), seen)] if seen else [], flagged=False)
    reading.add_own_results(key, [result_text(("error", "message"), error)] if error else [], flagged=True)
    return reading.content("assistant")


def is_dspy_turn(message: Any) -> bool:
    """Return True if a message is a turn of a `dspy.History` with a trajectory, or a trajectory by itself."""
    held = _trajectory(message)[1]
    return isinstance(held, Mapping) and any(str(name).startswith(_TOOL_NAME) for name in held)


def read_dspy_turn(message: Any, index: int) -> MessageContent:
    """Return the content of a turn. The fields before the trajectory are of the user, those after it of the agent.

    Each step is a later content. If the turn is a trajectory by itself, the first content is the first step.
    """
    path, held = _trajectory(message)
    names = list(message) if path else []
    place = names.index("trajectory") if path else 0
    contents = [_dspy_fields("user", message, names[:place], index)] if path else []
    numbers = [name.removeprefix(_TOOL_NAME) for name in held if str(name).startswith(_TOOL_NAME)]
    contents += [_dspy_step(held, path, number, index + len(contents) + row) for row, number in enumerate(numbers)]
    if path:
        contents.append(_dspy_fields("assistant", message, names[place + 1 :], index + len(contents)))
    return replace(contents[0], later=tuple(contents[1:]))


def _dspy_fields(role: str, message: Mapping[str, Any], names: Sequence[str], index: int) -> MessageContent:
    reading = ContentCollector(index, "openai")
    reading.words += [message[name] for name in names if isinstance(message[name], str)]
    return reading.content(role)


def _dspy_step(trajectory: Mapping[str, Any], path: Path, number: str, index: int) -> MessageContent:
    reading = ContentCollector(index, "openai")
    own = Call("", text_field(trajectory, f"{_TOOL_NAME}{number}"))
    reading.words.append(text_field(trajectory, f"thought_{number}"))
    arguments, observation = f"tool_args_{number}", f"observation_{number}"
    reading.add_own_call(own, trajectory.get(arguments), (*path, arguments))
    seen, here = trajectory.get(observation), (*path, observation)
    failed = isinstance(seen, str) and seen.startswith(_FAILED_CALL)
    texts = [result_text(here, seen)] if isinstance(seen, str) else value_texts(here, seen)
    reading.add_own_results(own.name, texts, flagged=failed)
    return reading.content("assistant")


def _trajectory(message: Any) -> tuple[Path, Any]:
    """Return the path to the trajectory in a turn, and the trajectory."""
    held = get_field(message, "trajectory") if isinstance(message, Mapping) else None
    return (("trajectory",), held) if isinstance(held, Mapping) else ((), message)
