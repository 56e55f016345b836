"""Conversations in the formats of agent frameworks and of agents that send results as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.conversations import Call, Turn, rendered

Renderer = Callable[[Sequence[Turn]], list[Any]]


def _turns(
    user: Callable[[str], Any],
    agent: Callable[[str, Sequence[Call]], list[Any]],
    results: Callable[[Sequence[Call]], list[Any]],
) -> Renderer:
    """Return a renderer from the messages of the user, of the agent and of the tools."""

    def render(turns: Sequence[Turn]) -> list[Any]:
        messages: list[Any] = []
        for turn in turns:
            messages += [user(turn.user)] if turn.user else []
            messages += agent(turn.agent, turn.calls) if turn.agent or turn.calls else []
            messages += results(turn.calls) if turn.calls else []
        return messages

    return render


def _value(call: Call) -> Any:
    """Return the output of a tool: a text, or a JSON object if the call has several texts."""
    return call.texts[0] if len(call.texts) == 1 else {"texts": [*call.texts], "total": 2.5}


def _said(text: str, part: dict[str, Any]) -> list[Any]:
    return [part] if text else []


def _vercel_output(call: Call) -> dict[str, Any]:
    if call.is_error:
        return {"type": "error-text", "value": call.texts[0]}
    if call.is_plain:
        return {"type": "content", "value": [{"type": "text", "text": text} for text in call.texts]}
    value = _value(call)
    return {"type": "text" if isinstance(value, str) else "json", "value": value}


def _vercel(outputs: Callable[[Call], dict[str, Any]], arguments: str) -> Renderer:
    return _turns(
        lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
        lambda text, calls: [
            {
                "role": "assistant",
                "content": [
                    *_said(text, {"type": "text", "text": text}),
                    *(
                        {"type": "tool-call", "toolCallId": c.id, "toolName": "search", arguments: c.arguments}
                        for c in calls
                    ),
                ],
            }
        ],
        lambda calls: [
            {
                "role": "tool",
                "content": [
                    {"type": "tool-result", "toolCallId": c.id, "toolName": "search", **outputs(c)} for c in calls
                ],
            }
        ],
    )


def _ui_tool(call: Call) -> dict[str, Any]:
    ended = {"state": "output-error", "errorText": call.texts[0]} if call.is_error else {"state": "output-available"}
    output = {} if call.is_error else {"output": _value(call)}
    named = {"type": "tool-search"} if call.is_plain else {"type": "dynamic-tool", "toolName": "search"}
    return {**named, "toolCallId": call.id, "input": call.arguments, **ended, **output}


def _vercel_ui(turns: Sequence[Turn]) -> list[Any]:
    render = _turns(
        lambda text: {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]},
        lambda text, calls: [
            {
                "id": "a",
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    *map(_ui_tool, calls),
                    *_said(text, {"type": "text", "text": text, "state": "done"}),
                ],
            }
        ],
        lambda calls: [],
    )
    return render(turns)


_pydantic_ai = _turns(
    lambda text: {
        "kind": "request",
        "parts": [{"part_kind": "user-prompt", "content": text}],
        "timestamp": "2026-01-01T00:00:00Z",
        "instructions": None,
    },
    lambda text, calls: [
        {
            "kind": "response",
            "parts": [
                *_said(text, {"part_kind": "text", "content": text}),
                *(
                    {"part_kind": "tool-call", "tool_name": "search", "tool_call_id": c.id, "args": c.arguments}
                    for c in calls
                ),
            ],
        }
    ],
    lambda calls: [
        {
            "kind": "request",
            "parts": [
                {"part_kind": "tool-return", "tool_name": "search", "tool_call_id": c.id, "content": _value(c)}
                for c in calls
            ],
            "timestamp": None,
            "instructions": "Answer in one sentence.",
        }
    ],
)


def _function(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": "search", "arguments": json.dumps(call.arguments)},
    }


def _cohere_content(call: Call) -> Any:
    if call.is_plain and len(call.texts) == 1:
        return call.texts[0]
    return [{"type": "document", "document": {"id": str(n), "data": {"text": t}}} for n, t in enumerate(call.texts)]


_cohere = _turns(
    lambda text: {"role": "user", "content": text},
    lambda text, calls: [
        {"role": "assistant", "tool_plan": text, "tool_calls": [*map(_function, calls)]}
        if calls
        else {"role": "assistant", "content": [{"type": "text", "text": text}]}
    ],
    lambda calls: [{"role": "tool", "tool_call_id": c.id, "content": _cohere_content(c)} for c in calls],
)
_cohere_history = _turns(
    lambda text: {"role": "USER", "message": text},
    lambda text, calls: [
        {
            "role": "CHATBOT",
            "message": text,
            "tool_calls": [{"name": "search", "parameters": c.arguments} for c in calls],
        }
    ],
    lambda calls: [
        {
            "role": "TOOL",
            "tool_results": [
                {
                    "call": {"name": "search", "parameters": c.arguments},
                    "outputs": [{"text": text} for text in c.texts],
                }
                for c in calls
            ],
        }
    ],
)
_opentelemetry = _turns(
    lambda text: {"role": "user", "parts": [{"type": "text", "content": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "parts": [
                *_said(text, {"type": "text", "content": text}),
                *({"type": "tool_call", "id": c.id, "name": "search", "arguments": c.arguments} for c in calls),
            ],
        }
    ],
    lambda calls: [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": c.id, "response": _value(c)}]} for c in calls
    ],
)
_llamaindex = _turns(
    lambda text: {"role": "user", "blocks": [{"block_type": "text", "text": text}], "additional_kwargs": {}},
    lambda text, calls: [
        {
            "role": "assistant",
            "additional_kwargs": {},
            "blocks": [
                *_said(text, {"block_type": "text", "text": text}),
                *(
                    {
                        "block_type": "tool_call",
                        "tool_call_id": c.id,
                        "tool_name": "search",
                        "tool_kwargs": c.arguments,
                    }
                    for c in calls
                ),
            ],
        }
    ],
    lambda calls: [
        {
            "role": "tool",
            "blocks": [{"block_type": "text", "text": text} for text in c.texts],
            "additional_kwargs": {"tool_call_id": c.id},
        }
        for c in calls
    ],
)
_autogen = _turns(
    lambda text: {"type": "UserMessage", "source": "user", "content": text},
    lambda text, calls: [
        {
            "type": "AssistantMessage",
            "source": "agent",
            "thought": text or None,
            "content": [{"id": c.id, "name": "search", "arguments": json.dumps(c.arguments)} for c in calls] or text,
        }
    ],
    lambda calls: [
        {
            "type": "FunctionExecutionResultMessage",
            "content": [
                {"call_id": c.id, "name": "search", "content": c.texts[0], "is_error": c.is_error} for c in calls
            ],
        }
    ],
)
_autogen_task = _turns(
    lambda text: {"type": "TextMessage", "source": "user", "content": text, "models_usage": None},
    lambda text, calls: [
        *_said(text, {"type": "ThoughtEvent" if calls else "TextMessage", "source": "agent", "content": text}),
        *(
            [
                {
                    "type": "ToolCallRequestEvent",
                    "source": "agent",
                    "content": [{"id": c.id, "name": "search", "arguments": json.dumps(c.arguments)} for c in calls],
                }
            ]
            if calls
            else []
        ),
    ],
    lambda calls: [
        {
            "type": "ToolCallExecutionEvent",
            "source": "agent",
            "content": [
                {"call_id": c.id, "name": "search", "content": c.texts[0], "is_error": c.is_error} for c in calls
            ],
        },
        {"type": "ToolCallSummaryMessage", "source": "agent", "content": "\n".join(c.texts[0] for c in calls)},
    ],
)
_claude_ai = _turns(
    lambda text: {"uuid": "m", "sender": "human", "text": text, "content": [{"type": "text", "text": text}]},
    lambda text, calls: [
        {
            "uuid": "m",
            "sender": "assistant",
            "text": text,
            "content": [
                *_said(text, {"type": "text", "text": text, "citations": []}),
                *(
                    part
                    for c in calls
                    for part in (
                        {"type": "tool_use", "id": c.id, "name": "search", "input": c.arguments},
                        {
                            "type": "tool_result",
                            "tool_use_id": c.id,
                            "name": "search",
                            "content": [{"type": "text", "text": text} for text in c.texts],
                            "is_error": c.is_error,
                        },
                    )
                ),
            ],
            "attachments": [],
        }
    ],
    lambda calls: [],
)
_semantic_kernel = _turns(
    lambda text: {"role": "user", "items": [{"content_type": "text", "text": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "items": [
                *_said(text, {"content_type": "text", "text": text}),
                *(
                    {
                        "content_type": "function_call",
                        "id": c.id,
                        "name": "search",
                        "arguments": json.dumps(c.arguments),
                    }
                    for c in calls
                ),
            ],
        }
    ],
    lambda calls: [
        {
            "role": "tool",
            "items": [
                {"content_type": "function_result", "id": c.id, "name": "search", "result": c.texts[0]} for c in calls
            ],
        }
    ],
)


def _haystack_call(call: Call) -> dict[str, Any]:
    return {"tool_name": "search", "arguments": call.arguments, "id": call.id, "extra": None}


_haystack = _turns(
    lambda text: {"role": "user", "meta": {}, "name": None, "content": [{"text": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "meta": {},
            "name": None,
            "content": [*_said(text, {"text": text}), *({"tool_call": _haystack_call(c)} for c in calls)],
        }
    ],
    lambda calls: [
        {
            "role": "tool",
            "meta": {},
            "name": None,
            "content": [{"tool_call_result": {"result": c.texts[0], "origin": _haystack_call(c), "error": c.is_error}}],
        }
        for c in calls
    ],
)
_harmony = _turns(
    lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
    lambda text, calls: [
        *_said(text, {"role": "assistant", "channel": "analysis", "content": [{"type": "text", "text": text}]}),
        *(
            {
                "role": "assistant",
                "channel": "commentary",
                "recipient": "functions.search",
                "content": [{"type": "text", "text": json.dumps(c.arguments)}],
            }
            for c in calls
        ),
    ],
    lambda calls: [
        {
            "role": "tool",
            "name": "functions.search",
            "channel": "commentary",
            "content": [{"type": "text", "text": text} for text in c.texts],
        }
        for c in calls
    ],
)
_events = _turns(
    lambda text: {"author": "user", "content": {"role": "user", "parts": [{"text": text}]}},
    lambda text, calls: [
        {
            "author": "agent",
            "content": {
                "role": "model",
                "parts": [
                    *_said(text, {"text": text}),
                    *({"functionCall": {"id": c.id, "name": "search", "args": c.arguments}} for c in calls),
                ],
            },
        }
    ],
    lambda calls: [
        {
            "author": "agent",
            "content": {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": c.id, "name": "search", "response": {"result": _value(c)}}}
                    for c in calls
                ],
            },
        }
    ],
)


def _saved(name: str, content: str, **fields: Any) -> dict[str, Any]:
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": content, **fields}}


_saved_langchain = _turns(
    lambda text: _saved("HumanMessage", text),
    lambda text, calls: [
        _saved(
            "AIMessage",
            text,
            tool_calls=[{"name": "search", "args": c.arguments, "id": c.id} for c in calls],
            type="ai",
        )
    ],
    lambda calls: [_saved("ToolMessage", c.texts[0], tool_call_id=c.id) for c in calls],
)
_smolagents = _turns(
    lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
    lambda text, calls: [
        *_said(text, {"role": "assistant", "content": [{"type": "text", "text": text}]}),
        *([{"role": "tool-call", "content": [{"type": "text", "text": "Calling tools:\n[]"}]}] if calls else []),
    ],
    lambda calls: [
        {
            "role": "tool-response",
            "content": [{"type": "text", "text": "Observation:\n" + "\n\n".join(t for c in calls for t in c.texts)}],
        }
    ],
)


def _written(call: Call) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'search', 'arguments': call.arguments})}\n</tool_call>"


def _text_protocol(results: Callable[[Sequence[Call]], list[Any]]) -> Renderer:
    return _turns(
        lambda text: {"role": "user", "content": text},
        lambda text, calls: [{"role": "assistant", "content": "\n".join([text, *map(_written, calls)])}],
        results,
    )


_hermes = _text_protocol(
    lambda calls: [
        {
            "role": "user",
            "content": "\n".join(f"<tool_response>\n{c.texts[0]}\n</tool_response>" for c in calls),
        }
    ]
)
_hermes_tools = _text_protocol(
    lambda calls: [{"role": "tool", "content": f"<tool_response>\n{c.texts[0]}\n</tool_response>"} for c in calls]
)
_shell = _text_protocol(
    lambda calls: [
        {"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{c.texts[0]}\n</output>"} for c in calls
    ]
)
_cline = _text_protocol(
    lambda calls: [
        {
            "role": "user",
            "content": [
                *(
                    {"type": "text", "text": text}
                    for c in calls
                    for text in ("[read_file for 'notes.md'] Result:", c.texts[0])
                ),
                {"type": "text", "text": "<environment_details>\n# Time\n</environment_details>"},
            ],
        }
    ]
)

_mistral = _turns(
    lambda text: {"object": "entry", "type": "message.input", "role": "user", "content": text},
    lambda text, calls: [
        *_said(
            text,
            {
                "object": "entry",
                "type": "message.output",
                "role": "assistant",
                "content": [{"type": "text", "text": text}, {"type": "tool_file", "file_id": "f"}],
            },
        ),
        *(
            {
                "object": "entry",
                "type": "function.call",
                "tool_call_id": c.id,
                "name": "search",
                "arguments": json.dumps(c.arguments) if c.is_plain else c.arguments,
            }
            for c in calls
        ),
        {"object": "entry", "type": "tool.execution", "name": "web_search", "arguments": "{}", "info": {}},
    ],
    lambda calls: [
        {"object": "entry", "type": "function.result", "tool_call_id": c.id, "result": c.texts[0]} for c in calls
    ],
)


def _codex(turns: Sequence[Turn]) -> list[Any]:
    """Return the lines of a session: the items of the Responses API, and records that the model does not get."""
    lines: list[Any] = [{"type": "session_meta", "payload": {"id": "s", "cwd": "/home"}}]
    for item in rendered("responses", turns):
        is_user = item.get("role") == "user"
        said = {"type": "message", "content": [{"type": "input_text", "text": item["content"]}]} if is_user else {}
        line = {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {**item, **said}}
        lines.append(line)
        lines.append({"type": "event_msg", "payload": {"type": "token_count"}})
    return lines


def _opencode_state(call: Call) -> dict[str, Any]:
    state: dict[str, Any] = {"input": call.arguments, "metadata": {}, "time": {"start": 1, "end": 2}}
    if call.is_error:
        return {"status": "error", "error": call.texts[0], **state}
    return {"status": "completed", "output": call.texts[0], "title": "search", **state}


_opencode = _turns(
    lambda text: {
        "info": {"id": "m", "role": "user"},
        "parts": [
            {"type": "text", "text": text},
            {"type": "text", "text": "Called the Read tool with the following input: {}", "synthetic": True},
        ],
    },
    lambda text, calls: [
        {
            "info": {"id": "m", "role": "assistant"},
            "parts": [
                {"type": "step-start"},
                *_said(text, {"type": "text", "text": text}),
                *({"type": "tool", "callID": c.id, "tool": "search", "state": _opencode_state(c)} for c in calls),
                {"type": "step-finish", "reason": "tool-calls"},
            ],
        }
    ],
    lambda calls: [],
)


def _gemini_cli(turns: Sequence[Turn]) -> list[Any]:
    """Return the lines of a session: messages, and changes of what describes the session."""
    messages = _gemini_cli_messages(turns)
    start = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00Z", "kind": "main"}
    note = {"id": "i", "timestamp": "2026-01-01T00:00:00Z", "type": "info", "content": "Request cancelled."}
    return [start, *(line for message in messages for line in (message, {"$set": {"lastUpdated": "x"}})), note]


_gemini_cli_messages = _turns(
    lambda text: {"id": "m", "timestamp": "2026-01-01T00:00:00Z", "type": "user", "content": [{"text": text}]},
    lambda text, calls: [
        {
            "id": "m",
            "timestamp": "2026-01-01T00:00:00Z",
            "type": "gemini",
            "content": text,
            "toolCalls": [
                {
                    "id": c.id,
                    "name": "search",
                    "args": c.arguments,
                    "result": [{"functionResponse": {"id": c.id, "name": "search", "response": {"output": _value(c)}}}],
                    "status": "error" if c.is_error else "success",
                    "resultDisplay": "searched",
                }
                for c in calls
            ],
        }
    ],
    lambda calls: [],
)
_goose = _turns(
    lambda text: {"role": "user", "created": 1, "content": [{"type": "text", "text": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "created": 1,
            "content": [
                {"type": "systemNotification", "notificationType": "inlineMessage", "msg": "Working."},
                *_said(text, {"type": "text", "text": text}),
                *(
                    {
                        "type": "toolRequest",
                        "id": c.id,
                        "toolCall": {"status": "success", "value": {"name": "search", "arguments": c.arguments}},
                    }
                    for c in calls
                ),
            ],
        }
    ],
    lambda calls: [
        {
            "role": "user",
            "created": 1,
            "content": [{"type": "toolResponse", "id": c.id, "toolResult": _goose_result(c)} for c in calls],
        }
    ],
)


def _goose_result(call: Call) -> dict[str, Any]:
    if call.is_error:
        return {"status": "error", "error": call.texts[0]}
    parts = [{"type": "text", "text": text} for text in call.texts]
    return {"status": "success", "value": {"content": parts, "isError": False} if call.is_plain else parts}


def _agui_result(call: Call) -> dict[str, Any]:
    error = {"error": call.texts[0]} if call.is_error else {}
    return {"id": f"r-{call.id}", "role": "tool", "toolCallId": call.id, "content": "\n".join(call.texts), **error}


_agui = _turns(
    lambda text: {"id": "u", "role": "user", "content": text},
    lambda text, calls: [
        {"id": "p", "role": "activity", "activityType": "PLAN", "content": {"steps": []}},
        {"id": "t", "role": "reasoning", "content": "Let me see.", "encryptedValue": "0a1b"},
        {
            "id": "a",
            "role": "assistant",
            "content": text,
            "toolCalls": [
                {"id": c.id, "type": "function", "function": {"name": "search", "arguments": json.dumps(c.arguments)}}
                for c in calls
            ],
        },
    ],
    lambda calls: [_agui_result(call) for call in calls],
)
_sharegpt = _turns(
    lambda text: {"from": "human", "value": text},
    lambda text, calls: [*_said(text, {"from": "gpt", "value": text})],
    lambda calls: [
        message
        for call in calls
        for message in (
            {"from": "function_call", "value": json.dumps({"name": "search", "arguments": call.arguments})},
            {"from": "observation", "value": "\n".join(call.texts)},
        )
    ],
)
_interaction_turns = _turns(
    lambda text: {"role": "user", "content": text},
    lambda text, calls: [
        {
            "role": "model",
            "content": [
                {"type": "thought", "signature": "0a1b"},
                *_said(text, {"type": "text", "text": text}),
                *({"type": "function_call", "id": c.id, "name": "search", "arguments": c.arguments} for c in calls),
            ],
        }
    ],
    lambda calls: [
        {
            "role": "user",
            "content": [
                {
                    "type": "function_result",
                    "call_id": c.id,
                    "name": "search",
                    "result": _value(c),
                    "is_error": c.is_error,
                }
                for c in calls
            ],
        }
    ],
)
_openhands = _turns(
    lambda text: {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": text}},
    lambda text, calls: [
        *_said(
            text, {"kind": "MessageEvent", "source": "agent", "llm_message": {"role": "assistant", "content": text}}
        ),
        *(
            {
                "kind": "ActionEvent",
                "source": "agent",
                "thought": [{"type": "text", "text": "Let me see."}],
                "action": {**c.arguments, "kind": "SearchAction"},
                "tool_name": "search",
                "tool_call_id": c.id,
                "tool_call": {"id": c.id, "name": "search", "arguments": json.dumps(c.arguments)},
            }
            for c in calls
        ),
    ],
    lambda calls: [
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "tool_name": "search",
            "tool_call_id": c.id,
            "observation": {
                "kind": "SearchObservation",
                "content": [{"type": "text", "text": text} for text in c.texts],
                "is_error": c.is_error,
            },
        }
        for c in calls
    ],
)


def _saved_openhands(turns: Sequence[Turn]) -> list[Any]:
    events: list[Any] = []
    for turn in turns:
        if turn.user:
            events.append({"source": "user", "action": "message", "args": {"content": turn.user}})
        if turn.agent:
            events.append({"source": "agent", "action": "message", "args": {"content": turn.agent}})
        for c in turn.calls:
            first = len(events)
            events += [
                {"source": "agent", "action": "run", "args": {**c.arguments, "thought": ""}},
                {
                    "source": "agent",
                    "observation": "error" if c.is_error else "run",
                    "content": "\n".join(c.texts),
                    "extras": {},
                    "cause": first,
                },
            ]
    return [{"id": number, **event} for number, event in enumerate(events)]


_copilot_cli = _turns(
    lambda text: {"type": "user.message", "data": {"content": text}, "id": "u"},
    lambda text, calls: [
        {"type": "assistant.turn_start", "data": {"turnId": "0"}, "id": "t"},
        {
            "type": "assistant.message",
            "data": {
                "content": text,
                "toolRequests": [{"toolCallId": c.id, "name": "search", "arguments": c.arguments} for c in calls],
            },
            "id": "a",
        },
    ],
    lambda calls: [
        {
            "type": "tool.execution_complete",
            "data": {
                "toolCallId": c.id,
                "success": not c.is_error,
                **(
                    {"error": {"message": "\n".join(c.texts)}}
                    if c.is_error
                    else {"result": {"content": "\n".join(c.texts), "detailedContent": ""}}
                ),
            },
            "id": "r",
        }
        for c in calls
    ],
)
_pi = _turns(
    lambda text: {"type": "message", "id": "u", "message": {"role": "user", "content": text}},
    lambda text, calls: [
        {"type": "model_change", "id": "m", "modelId": "large"},
        {
            "type": "message",
            "id": "a",
            "message": {
                "role": "assistant",
                "content": [
                    *_said(text, {"type": "text", "text": text}),
                    *({"type": "toolCall", "id": c.id, "name": "search", "arguments": c.arguments} for c in calls),
                ],
            },
        },
    ],
    lambda calls: [
        {
            "type": "message",
            "id": "r",
            "message": {
                "role": "toolResult",
                "toolCallId": c.id,
                "toolName": "search",
                "content": [{"type": "text", "text": text} for text in c.texts],
                "isError": c.is_error,
            },
        }
        for c in calls
    ],
)
_gemini_live = _turns(
    lambda text: {"clientContent": {"turns": [{"role": "user", "parts": [{"text": text}]}], "turnComplete": True}},
    lambda text, calls: [
        *_said(text, {"serverContent": {"modelTurn": {"parts": [{"text": text}]}}}),
        *_said(
            "calls" if calls else "",
            {"toolCall": {"functionCalls": [{"id": c.id, "name": "search", "args": c.arguments} for c in calls]}},
        ),
    ],
    lambda calls: [
        {
            "toolResponse": {
                "functionResponses": [
                    {
                        "id": c.id,
                        "name": "search",
                        "response": {"error" if c.is_error else "output": _value(c)},
                    }
                    for c in calls
                ]
            }
        }
    ],
)


def _trajectory(turns: Sequence[Turn]) -> list[Any]:
    steps: list[Any] = []
    for turn in turns:
        steps += [{"source": "user", "message": turn.user}] if turn.user else []
        if turn.agent or turn.calls:
            steps.append(
                {
                    "source": "agent",
                    "message": turn.agent,
                    "tool_calls": [
                        {"tool_call_id": c.id, "function_name": "search", "arguments": c.arguments} for c in turn.calls
                    ],
                    "observation": {
                        "results": [{"source_call_id": c.id, "content": "\n".join(c.texts)} for c in turn.calls]
                    },
                }
            )
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _letta_calls(text: str, calls: Sequence[Call]) -> list[Any]:
    made = [{"name": "search", "arguments": json.dumps(c.arguments), "tool_call_id": c.id} for c in calls]
    said = _said(text, {"message_type": "reasoning_message", "reasoning": text, "source": "reasoner_model"})
    return [*said, {"message_type": "tool_call_message", "tool_call": made[0], "tool_calls": made}] if made else said


def _letta_returns(calls: Sequence[Call]) -> list[Any]:
    """The message of the results. The first result is also in the fields of older clients."""
    returns = [
        {"status": "error" if c.is_error else "success", "tool_return": "\n".join(c.texts), "tool_call_id": c.id}
        for c in calls
    ]
    first = {"message_type": "tool_return_message", "name": "search", **returns[0]}
    return [first if len(calls) == 1 and calls[0].is_plain else {**first, "tool_returns": returns}]


_letta = _turns(lambda text: {"message_type": "user_message", "content": text}, _letta_calls, _letta_returns)


_codex_exec = _turns(
    lambda text: {"type": "item.completed", "item": {"id": "u", "type": "user_message", "text": text}},
    lambda text, _: [
        {"type": "turn.started"},
        *_said(text, {"type": "item.completed", "item": {"id": "a", "type": "agent_message", "text": text}}),
    ],
    lambda calls: [
        {"type": event, "item": {"id": c.id, "type": "mcp_tool_call", "server": "web", "tool": "search", **item}}
        for c in calls
        for event, item in (
            ("item.started", {"arguments": {}, "status": "in_progress"}),
            (
                "item.completed",
                {
                    "arguments": c.arguments,
                    "result": {"content": [{"type": "text", "text": text} for text in c.texts]},
                    "error": None,
                    "status": "failed" if c.is_error else "completed",
                },
            ),
        )
    ],
)


_amp = _turns(
    lambda text: {"role": "user", "content": [{"type": "text", "text": text}], "messageId": 0},
    lambda text, calls: [
        {
            "role": "assistant",
            "content": [
                *_said(text, {"type": "text", "text": text}),
                *({"type": "tool_use", "id": c.id, "name": "search", "input": c.arguments} for c in calls),
            ],
            "messageId": 1,
        }
    ],
    lambda calls: [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "toolUseID": c.id,
                    "run": {"status": "error" if c.is_error else "done", "result": _value(c)},
                }
                for c in calls
            ],
            "messageId": 2,
        }
    ],
)


def _kiro(turns: Sequence[Turn]) -> list[Any]:
    """Each entry has an input and the response. The results of the last calls are the input of the next entry."""
    entries: list[Any] = []
    inputs: list[Any] = []
    for turn in turns:
        inputs += [{"Prompt": {"prompt": turn.user}}] if turn.user else []
        uses = [{"id": c.id, "name": "search", "args": c.arguments} for c in turn.calls]
        said = {"message_id": "m", "content": turn.agent}
        response = {"ToolUse": {**said, "tool_uses": uses}} if uses else {"Response": said}
        entries += [{"user": {"content": held}, "assistant": None} for held in inputs[:-1]]
        held = inputs[-1] if inputs else {"ToolUseResults": {"tool_use_results": []}}
        entries.append({"user": {"content": held}, "assistant": response})
        results = [
            {
                "tool_use_id": c.id,
                "content": [{"Text": text} for text in c.texts] if c.is_plain else [{"Json": _value(c)}],
                "status": "Error" if c.is_error else "Success",
            }
            for c in turn.calls
        ]
        inputs = [{"ToolUseResults": {"tool_use_results": results}}] if results else []
    return [*entries, *({"user": {"content": held}, "assistant": None} for held in inputs)]


_kiro_session = _turns(
    lambda text: {"version": "v1", "kind": "Prompt", "data": {"content": [{"kind": "text", "data": text}]}},
    lambda text, calls: [
        {
            "version": "v1",
            "kind": "AssistantMessage",
            "data": {
                "content": [
                    {"kind": "text", "data": text},
                    *(
                        {"kind": "toolUse", "data": {"toolUseId": c.id, "name": "search", "input": c.arguments}}
                        for c in calls
                    ),
                ]
            },
        }
    ],
    lambda calls: [
        {
            "version": "v1",
            "kind": "ToolResults",
            "data": {
                "content": [
                    {
                        "kind": "toolResult",
                        "data": {
                            "toolUseId": c.id,
                            "content": [{"kind": "text", "data": text} for text in c.texts]
                            if c.is_plain
                            else [{"kind": "json", "data": _value(c)}],
                            "status": "error" if c.is_error else "success",
                        },
                    }
                    for c in calls
                ]
            },
        }
    ],
)


_agent_framework = _turns(
    lambda text: {"type": "message", "role": "user", "contents": [{"type": "text", "text": text}]},
    lambda text, calls: [
        {
            "type": "message",
            "role": "assistant",
            "contents": [
                {"type": "text_reasoning", "text": "Let me see.", "protected_data": "0a1b"},
                *_said(text, {"type": "text", "text": text}),
                *(
                    {"type": "function_call", "call_id": c.id, "name": "search", "arguments": json.dumps(c.arguments)}
                    for c in calls
                ),
                {"type": "usage", "usage_details": {"input_token_count": 9}},
            ],
        }
    ],
    lambda calls: [
        {
            "type": "message",
            "role": "tool",
            "contents": [
                {
                    "type": "function_result",
                    "call_id": c.id,
                    "result": c.texts[0],
                    "items": [{"type": "text", "text": c.texts[0]}],
                    **({"exception": "hidden"} if c.is_error else {}),
                }
                for c in calls
            ],
        }
    ],
)
_extensions_ai = _turns(
    lambda text: {"role": "user", "contents": [{"$type": "text", "text": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "contents": [
                *_said(text, {"$type": "text", "text": text}),
                *({"$type": "functionCall", "callId": c.id, "name": "search", "arguments": c.arguments} for c in calls),
            ],
        }
    ],
    lambda calls: [
        {
            "role": "tool",
            "contents": [{"$type": "functionResult", "callId": c.id, "result": _value(c)} for c in calls],
        }
    ],
)


def _cursor_result(call: Call) -> dict[str, Any]:
    if call.is_error:
        return {"error": {"errorMessage": call.texts[0]}}
    if call.is_plain:
        return {"success": {"content": "\n".join(call.texts), "totalLines": 9}}
    return {"success": {"stdout": call.texts[0], "stderr": call.texts[-1], "exitCode": 0}}


_cursor_cli = _turns(
    lambda text: {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}},
    lambda text, calls: [
        *_said(
            text, {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}
        ),
        *(
            {
                "type": "tool_call",
                "subtype": subtype,
                "call_id": c.id,
                "tool_call": {"searchToolCall": {"args": c.arguments, **result}, "toolCallId": c.id},
            }
            for c in calls
            for subtype, result in (("started", {}), ("completed", {"result": _cursor_result(c)}))
        ),
    ],
    lambda calls: [],
)


def _vscode(turns: Sequence[Turn]) -> list[Any]:
    """Each request has what the user said, and the rounds of the agent until the user speaks again."""
    requests: list[Any] = []
    for turn in turns:
        if turn.user or not requests:
            requests.append(
                {
                    "requestId": f"request_{len(requests)}",
                    "message": {"text": turn.user, "parts": [{"kind": "text", "text": turn.user}]},
                    "response": [{"value": "shown"}],
                    "result": {"metadata": {"toolCallRounds": [], "toolCallResults": {}}},
                }
            )
        metadata = requests[-1]["result"]["metadata"]
        calls = [{"name": "search", "arguments": json.dumps(c.arguments), "id": c.id} for c in turn.calls]
        metadata["toolCallRounds"].append({"response": turn.agent, "toolCalls": calls})
        for c in turn.calls:
            leaves = [{"type": 2, "text": text} for text in c.texts]
            tree = {"node": {"type": 1, "children": [{"type": 1, "children": leaves}, {"type": 2, "text": "\n"}]}}
            parts = [{"$mid": 21, "value": text} for text in c.texts] if c.is_plain else [{"$mid": 23, "value": tree}]
            metadata["toolCallResults"][c.id] = {"$mid": 20, "content": parts}
    return requests


def _zed_result(call: Call) -> dict[str, Any]:
    content = [{"Text": text} for text in call.texts] if call.is_plain else {"Text": call.texts[0]}
    own = {"tool_use_id": call.id, "tool_name": "search", "is_error": call.is_error}
    return {**own, "content": content, "output": None}


_zed = _turns(
    lambda text: {
        "User": {"id": "u", "content": [{"Text": text}, {"Mention": {"uri": "file:///a", "content": "file"}}]}
    },
    lambda text, calls: [
        {
            "Agent": {
                "content": [
                    {"Thinking": {"text": "So.", "signature": "c2ln"}},
                    *_said(text, {"Text": text}),
                    *(
                        {
                            "ToolUse": {
                                "id": c.id,
                                "name": "search",
                                "raw_input": json.dumps(c.arguments),
                                "input": {"type": "json", "value": c.arguments} if c.is_plain else c.arguments,
                                "is_input_complete": True,
                                "thought_signature": None,
                            }
                        }
                        for c in calls
                    ),
                ],
                "tool_results": {c.id: _zed_result(c) for c in calls},
                "reasoning_details": None,
            }
        }
    ],
    lambda calls: ["Resume"],
)


def _older_zed(*, is_next: bool) -> Renderer:
    """Return a renderer of older threads, which have the results with the calls or in the next message."""

    def message(role: str, text: str, uses: Sequence[Call] = (), answered: Sequence[Call] = ()) -> dict[str, Any]:
        return {
            "id": 0,
            "role": role,
            "segments": _said(text, {"type": "text", "text": text}),
            "tool_uses": [{"id": c.id, "name": "search", "input": c.arguments} for c in uses],
            "tool_results": [
                {"tool_use_id": c.id, "is_error": c.is_error, "content": c.texts[0], "output": None} for c in answered
            ],
            "context": "",
        }

    return _turns(
        lambda text: message("user", text),
        lambda text, calls: [message("assistant", text, calls, () if is_next else calls)],
        lambda calls: [message("user", "", (), calls)] if is_next else [],
    )


_FINISHED = {"type": "finish", "reason": "stop", "time": 1}
_crush = _turns(
    lambda text: {"id": "u", "role": "user", "created": "", "parts": [{"type": "text", "text": text}, _FINISHED]},
    lambda text, calls: [
        {
            "id": "a",
            "role": "assistant",
            "created": "",
            "model": "m",
            "parts": [
                {"type": "reasoning", "thinking": "So.", "started_at": 1, "finished_at": 2},
                *_said(text, {"type": "text", "text": text}),
                *(
                    {"type": "tool_call", "tool_call_id": c.id, "name": "view", "input": json.dumps(c.arguments)}
                    for c in calls
                ),
                _FINISHED,
            ],
        }
    ],
    lambda calls: [
        {
            "id": "t",
            "role": "tool",
            "created": "",
            "parts": [
                *(
                    {
                        "type": "tool_result",
                        "tool_call_id": c.id,
                        "name": "view",
                        "content": c.texts[0],
                        **({"is_error": True} if c.is_error else {}),
                    }
                    for c in calls
                ),
                _FINISHED,
            ],
        }
    ],
)
_dashscope = _turns(
    lambda text: {"role": "user", "content": [{"image": "https://a.example/b.png"}, {"text": text}]},
    lambda text, calls: [
        {
            "role": "assistant",
            "content": [{"text": text}],
            **({"tool_calls": [_function(c) for c in calls]} if calls else {}),
        }
    ],
    lambda calls: [
        {"role": "tool", "tool_call_id": c.id, "content": [{"text": text} for text in c.texts]} for c in calls
    ],
)

_environment = _text_protocol(
    lambda calls: [{"role": "environment", "content": "\n\n".join(text for c in calls for text in c.texts)}]
)
_langgraph = _turns(
    lambda text: {"__start__": {"messages": [{"type": "human", "content": text}]}},
    lambda text, calls: [
        {"trim.before_model": None},
        {
            "agent": {
                "messages": [
                    {
                        "type": "ai",
                        "content": text,
                        "tool_calls": [{"name": "search", "args": c.arguments, "id": c.id} for c in calls],
                    }
                ]
            }
        },
    ],
    lambda calls: [
        {"tools": {"messages": [{"type": "tool", "content": _content(c), "tool_call_id": c.id} for c in calls]}}
    ],
)


def _content(call: Call) -> Any:
    """Return a text, or objects without a type."""
    return call.texts[0] if call.is_plain else [{"title": f"Part {n}", "body": it} for n, it in enumerate(call.texts)]


_semantic_kernel_csharp = _turns(
    lambda text: {"Role": {"Label": "user"}, "Items": [{"$type": "TextContent", "Text": text}]},
    lambda text, calls: [
        {
            "Role": {"Label": "assistant"},
            "Items": [
                *_said(text, {"$type": "TextContent", "Text": text}),
                *(
                    {"$type": "FunctionCallContent", "Id": c.id, "FunctionName": "search", "Arguments": c.arguments}
                    for c in calls
                ),
            ],
        }
    ],
    lambda calls: [
        {
            "Role": {"Label": "tool"},
            "Items": [
                {"$type": "FunctionResultContent", "CallId": c.id, "FunctionName": "search", "Result": _value(c)}
                for c in calls
            ],
        }
    ],
)


def _realtime(new: str) -> Renderer:
    """Return a renderer of a log of the Realtime API, whose event `new` announces each item."""

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "event_id": "e", **fields}

    def done(text: str, calls: Sequence[Call]) -> list[Any]:
        spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": text}]}
        output = [
            *_said(text, spoken),
            *(
                {"type": "function_call", "call_id": c.id, "name": "search", "arguments": json.dumps(c.arguments)}
                for c in calls
            ),
        ]
        started = {"content": [], "arguments": "", "status": "in_progress"}
        return [
            event("response.created", response={}),
            *(event(new, item={name: started.get(name, item[name]) for name in item}) for item in output),
            *(event("response.output_item.done", item=item) for item in output),
            event("response.done", response={"status": "completed", "output": output}),
        ]

    return _turns(
        lambda text: event(
            new, item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        ),
        done,
        lambda calls: [
            event(new, item={"type": "function_call_output", "call_id": c.id, "output": c.texts[0]}) for c in calls
        ],
    )


def _code_step(text: str, calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "step_number": 1,
        "tool_calls": [_function(c) | {"function": {"name": "search", "arguments": c.arguments}} for c in calls],
        "error": None,
        "model_output_message": {"role": "assistant", "content": text},
        "model_output": text,
        "observations": "\n\n".join(it for c in calls for it in c.texts) if calls else None,
        "action_output": None,
    }


_smolagents_steps = _turns(
    lambda text: {"task": text, "task_images": None},
    lambda text, calls: [_code_step(text, calls)],
    lambda calls: [],
)


def _dspy(turns: Sequence[Turn]) -> list[Any]:
    """Return the messages of a `dspy.History`. All steps of an agent are in the message of the user's question."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if turn.user or not messages:
            messages.append({"question": turn.user, "trajectory": {}, "answer": ""})
        steps = messages[-1]["trajectory"]
        for call in turn.calls or (Call("", {}, ("Completed.",)),):
            number = len(steps) // 4
            steps[f"thought_{number}"] = turn.agent
            steps[f"tool_name_{number}"] = "search" if call.id else "finish"
            steps[f"tool_args_{number}"] = call.arguments
            failed = f"Execution error in search: {call.texts[0]}"
            steps[f"observation_{number}"] = failed if call.is_error else _value(call)
    return messages


FRAMEWORKS: dict[str, Renderer] = {
    "environment": _environment,
    "langgraph updates": _langgraph,
    "semantic-kernel c#": _semantic_kernel_csharp,
    "realtime": _realtime("conversation.item.created"),
    "realtime 2": _realtime("conversation.item.added"),
    "smolagents steps": _smolagents_steps,
    "dspy": _dspy,
    "crush": _crush,
    "dashscope": _dashscope,
    "vercel": _vercel(lambda call: {"output": _vercel_output(call)}, "input"),
    "vercel 4": _vercel(lambda call: {"result": _value(call), "isError": call.is_error}, "args"),
    "vercel ui": _vercel_ui,
    "pydantic-ai": _pydantic_ai,
    "cohere": _cohere,
    "cohere 1": _cohere_history,
    "opentelemetry": _opentelemetry,
    "llamaindex": _llamaindex,
    "autogen": _autogen,
    "autogen task": _autogen_task,
    "claude.ai": _claude_ai,
    "semantic-kernel": _semantic_kernel,
    "haystack": _haystack,
    "harmony": _harmony,
    "google adk": _events,
    "saved langchain": _saved_langchain,
    "smolagents": _smolagents,
    "hermes": _hermes,
    "hermes with tool messages": _hermes_tools,
    "mini-swe-agent": _shell,
    "cline": _cline,
    "mistral": _mistral,
    "codex": _codex,
    "opencode": _opencode,
    "gemini cli": _gemini_cli,
    "goose": _goose,
    "ag-ui": _agui,
    "sharegpt": _sharegpt,
    "interaction turns": _interaction_turns,
    "openhands": _openhands,
    "saved openhands": _saved_openhands,
    "copilot cli": _copilot_cli,
    "pi": _pi,
    "gemini live": _gemini_live,
    "trajectory": _trajectory,
    "codex exec": _codex_exec,
    "amp": _amp,
    "agent framework": _agent_framework,
    "extensions ai": _extensions_ai,
    "vs code": _vscode,
    "cursor cli": _cursor_cli,
    "kiro": _kiro,
    "kiro session": _kiro_session,
    "letta": _letta,
    "zed": _zed,
    "zed 0.2": _older_zed(is_next=False),
    "zed 0.1": _older_zed(is_next=True),
    "amazon q": lambda turns: [[entry["user"], entry["assistant"]] for entry in _kiro(turns)],
}
"""The formats of frameworks, and of agents whose results are text between marks."""
