"""What a call asks for says what its result is about."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.formats.fields import LONGEST_ASKED, MOST_READ, asked
from context_agent.pruning.formats.marks import asked_in_text
from context_agent.pruning.messages import Transcript

NAMES = [f"{environment}/{service}" for environment in ("staging", "canary", "legacy") for service in ("mail", "queue")]
WORDS = "rain wind ship crane harbor winter cargo anchor lantern rope pilot storm tide sailor barrel".split()
TASK = "What is the port of the queue in canary?"


def result(port: int) -> str:
    """Return settings among comments."""
    draw = random.Random(port)
    notes = "".join(f"# {' '.join(draw.choices(WORDS, k=12))}\n" for _ in range(8))
    more = "".join(f"# {' '.join(draw.choices(WORDS, k=12))}\n" for _ in range(12))
    others = "".join(f"{word}_{draw.choice(WORDS)} = {draw.choice(WORDS)}\n" for word in draw.sample(WORDS, 8))
    return f"{notes}\nport = {port}\n{others}\n{more}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "deploy/canary/queue.toml", "offset": 1, "all": True}, "deploy/canary/queue.toml"),
        ('{"command": ["show", "--env", "canary"], "options": {"service": "queue"}}', "show --env canary queue"),
        ({"query": "port of the queue", "Question": "which?", "path": "canary"}, "canary"),
        ({"path": "a.py", "content": "x = 1\n" * 200}, "a.py"),
        ({"path": f"{'deep/' * 40}queue.toml"}, f"{'deep/' * 40}queue.toml"[-LONGEST_ASKED:]),
        (json.dumps({"path": "a.py", "content": "x" * MOST_READ}), ""),
        ("show the queue", ""),
        ('{"path": "a.p', ""),
        ("[" * 9_000, ""),
        (None, ""),
        (7, ""),
    ],
)
def test_the_short_texts_of_the_arguments_say_what_a_call_asks(arguments: Any, said: str) -> None:
    assert asked(arguments) == said


def test_arguments_that_contain_themselves_or_are_many_end() -> None:
    endless: dict[str, Any] = {"path": "a.py"}
    endless["again"] = [endless, endless]
    assert asked(endless).startswith("a.py")
    assert asked({str(number): number for number in range(100_000)}) == ""


def chat(name: str) -> list[dict[str, Any]]:
    arguments = json.dumps({"path": f"deploy/{name}.toml"})
    call = {"id": name, "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": name}]


def anthropic(name: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": name, "name": "read_file", "input": {"path": f"deploy/{name}.toml"}}
    result = {"type": "tool_result", "tool_use_id": name}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def gemini(name: str) -> list[dict[str, Any]]:
    call = {"functionCall": {"name": "read_file", "args": {"path": f"deploy/{name}.toml"}}}
    result = {"functionResponse": {"name": "read_file", "response": {}}}
    return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]


@pytest.mark.parametrize("effort", ["fast", "careful"])
@pytest.mark.parametrize("form", [chat, anthropic, gemini])
def test_the_result_of_the_file_that_the_task_names_stays(form: Any, effort: str) -> None:
    user = {"role": "user", "parts": [{"text": TASK}]} if form is gemini else {"role": "user", "content": TASK}
    messages: list[dict[str, Any]] = [user]
    for port, name in enumerate([*NAMES, "last"], 4710):
        call, answer = form(name)
        if form is chat:
            answer["content"] = result(port)
        elif form is anthropic:
            answer["content"][0]["content"] = result(port)
        else:
            answer["parts"][0]["functionResponse"]["response"]["output"] = result(port)
        messages += [call, answer]
    keeper = ContextPruner(0.25, effort=effort, prices=Prices(cached=1.0))
    pruned = keeper.prune(messages)
    ports = [port for port in range(4710, 4710 + len(NAMES)) if f"port = {port}" in json.dumps(pruned.messages)]
    assert 4710 + NAMES.index("canary/queue") in ports
    assert len(ports) < len(NAMES) - 1
    assert keeper.restore(pruned.messages, [item.id for item in pruned.report.removed]) == messages


def test_a_result_inside_the_message_of_its_call_and_the_written_text_have_what_the_call_asks() -> None:
    call, answer = chat("canary/queue")
    transcript = Transcript([{"role": "user", "content": TASK}, call, answer | {"content": "done"}])
    assert [text.asked for text in transcript.texts] == ["deploy/canary/queue.toml"] * 2


PATH = "deploy/canary/queue.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Thought: I read it.\nAction: read_file[{PATH}]", PATH),
        (f"Action: read_file\nAction Input: {PATH}\n", PATH),
        (f'Action: read_file\nAction Input: "{PATH}"', PATH),
        (f'Action: read_file\nAction Input: {{"path": "{PATH}"}}', PATH),
        (f'Action:\n{{"name": "read_file", "arguments": {{"path": "{PATH}"}}}}', PATH),
        (f'<tool_call>\n{{"name": "read_file", "arguments": {{"path": "{PATH}"}}}}\n</tool_call>', PATH),
        (f"<function=read_file>\n<parameter=path>{PATH}</parameter>\n</function>", PATH),
        (f"<thinking>So be it.</thinking>\n<read_file>\n<path>{PATH}</path>\n</read_file>", PATH),
        (f"I look.\n```bash\ncat {PATH}\n```\n", f"cat {PATH}"),
        (f"Action: a[b.py]\nObservation: no\nAction: read_file[{PATH}]", PATH),
        ("Action: Search[port of the queue]", ""),
        ("Action: web_search\nAction Input: port of the queue", ""),
        ('<tool_call>{"name": "grep", "arguments": {"query": "port"}}</tool_call>', ""),
        ("Action: read_file[", ""),
        ('Action: read_file\nAction Input: {"path": ', ""),
        ("<tool_call>" + "[{" * 4_000, ""),
        ("```\na\n```\n```\nb\n```", ""),
        ("The port is 4711.", ""),
    ],
)
def test_the_last_call_in_a_text_says_what_it_asks(text: str, said: str) -> None:
    assert ["", *asked_in_text(text)][-1] == said


def test_a_result_in_text_has_what_the_call_before_it_asks() -> None:
    def user(text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    def agent(text: str) -> dict[str, str]:
        return {"role": "assistant", "content": text}

    apart = Transcript(
        [user(TASK), agent(f"Action: read_file[{PATH}]"), user("Observation: port = 4711"), agent("Action: ls[docs]"),
         user("Observation: a b")]
    )  # fmt: skip
    assert [text.asked for text in apart.texts] == [PATH, "docs"]
    steps = f"Question: {TASK}\nThought: a\nAction: read_file[{PATH}]\nObservation: port = 4711\nThought: b\n"
    together = Transcript([user(f"{steps}Action: ls[docs]\nObservation: a b\nThought:")])
    assert [text.asked for text in together.texts] == [PATH, "docs"]
    call = json.dumps({"name": "cat", "arguments": {"path": PATH}})
    native = Transcript([user(TASK), agent(f"<tool_call>{call}"), {"role": "tool", "content": "port = 4711"}])
    assert [text.asked for text in native.texts] == [PATH]


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>\n{{"name": "read_file", "arguments": {{"path": "{}"}}}}\n</tool_call>\n',
        "<tool_call>\n<function=read_file>\n<parameter=path>{}</parameter>\n</function>\n</tool_call>\n",
        "<function=read_file>\n<parameter=path>{}</parameter>\n</function>\n",
    ],
)
def test_each_result_has_what_its_own_written_call_asks(call: str) -> None:
    paths = [PATH, "docs/ports.md", "README.md"]
    agent = {"role": "assistant", "content": "I look.\n" + "".join(map(call.format, paths))}
    user = {"role": "user", "content": TASK}
    answers = [f"<tool_response>\nresult {path}\n</tool_response>" for path in paths]
    in_one = Transcript([user, agent, {"role": "user", "content": "\n".join(answers)}])
    apart = Transcript([user, agent, *({"role": "user", "content": answer} for answer in answers)])
    as_tools = Transcript([user, agent, *({"role": "tool", "content": f"result {path}"} for path in paths)])
    for transcript in (in_one, apart, as_tools):
        assert [text.asked for text in transcript.texts] == paths
    fewer = Transcript([user, agent, {"role": "user", "content": answers[-1]}])
    assert [text.asked for text in fewer.texts] == paths[-1:]


@pytest.mark.parametrize(("start", "end"), [("[[ ## {} ## ]]\n", ""), ("<{}>\n", "\n</{}>")])
def test_a_result_in_a_trajectory_of_dspy_has_what_its_call_asks(start: str, end: str) -> None:
    def field(name: str, text: str) -> str:
        return f"{start.format(name)}{text}{end.format(name)}\n\n"

    steps = "".join(
        field(f"thought_{number}", "I look.")
        + field(f"tool_name_{number}", "read")
        + field(f"tool_args_{number}", f'{{"path": "{path}"}}')
        + field(f"observation_{number}", f"result {path}")
        for number, path in enumerate([PATH, "docs/ports.md"])
    )
    text = f"{field('question', TASK)}{field('trajectory', steps)}Respond with the fields."
    transcript = Transcript([{"role": "user", "content": text}])
    assert [text.asked for text in transcript.texts] == [PATH, "docs/ports.md"]
