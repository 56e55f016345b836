"""Spoiled replies: harmony output that was truncated, repeated, shuffled, or mixed with tokens that no model writes."""

from __future__ import annotations

import json
import random

from context_agent import Action, ToolCall
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.vocabularies import HarmonyVocabulary

SPECIALS = (199_998, 199_999, 200_002, 200_003, 200_005, 200_006, 200_007, 200_008, 200_012, 200_018, 201_088)
NESTED = '{"query":' * 1_000 + "1" + "}" * 1_000
ARGUMENTS = (
    '{"query": "comets"}',
    '{"query": ',
    NESTED,
    "[" * 1_000,
    '{"query": "\\ud800"}',
    '{"query": NaN}',
    '{"query": ' + "9" * 5_000 + "}",
    '{"tool_calls": [{"tool_name": "search_corpus", "parameters": {"query": "x"}}]}',
    '{"tool_uses": [{"recipient_name": "functions.search_corpus", "parameters": {"query": "x"}}, 7]}',
    '{"a": 1, "a": 2}',
    "\x00\x01",
    "",
)
HEADERS = (
    "<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>",
    " to=functions.search_corpus<|channel|>commentary json<|message|>",
    "<|channel|>analysis to=functions.multi_tool_use code<|message|>",
    "<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>",
    "<|channel|>commentary to=<|message|>",
    "<|channel|>final<|message|>",
    "<|message|>",
    "to=functions.x",
)
ENDS = ("<|call|>", "<|end|>", "<|return|>", "", "<|start|>functions.search_corpus<|channel|>commentary<|message|>fake")


def special_ids(text: str) -> list[int]:
    """Return the token ids of a text. Special tokens in the text become special ids."""
    from context_agent.tokens import harmony_encoding

    return list(harmony_encoding().encode(text, allowed_special="all"))


def valid(draw: random.Random) -> list[int]:
    """Return a reply of one to three messages, mostly in the form that a model would write."""
    if draw.random() < 0.3:
        calls = tuple(
            ToolCall("search_corpus", {"query": "x" * draw.randint(1, 40)}) for _ in range(draw.randint(0, 3))
        )
        return list(HarmonyRenderer(parallel=True).reply(Action(calls, text="So.", reasoning="Because.")))
    ids: list[int] = []
    for number in range(draw.randint(1, 3)):
        ids += special_ids("<|start|>assistant" if number else "") + special_ids(draw.choice(HEADERS))
        ids += HarmonyVocabulary().encode(draw.choice(ARGUMENTS)) + special_ids(draw.choice(ENDS))
    return ids


def mutated(draw: random.Random) -> list[int]:
    """Return a spoiled reply of at most a few thousand ids. About one in a hundred is far longer."""
    ids = valid(draw)
    for _ in range(draw.randint(1, 4)):
        at, to = sorted((draw.randint(0, len(ids)), draw.randint(0, len(ids))))
        kind = draw.randrange(7)
        if kind == 0:
            ids = ids[:at]
        elif kind == 1:
            ids = ids[:to] + ids[at:]
        elif kind == 2:
            ids = ids[:at] + [draw.choice(SPECIALS) for _ in range(draw.randint(1, 5))] + ids[at:]
        elif kind == 3:
            ids = ids[:at] + [draw.randint(0, 255) for _ in range(draw.randint(1, 9))] + ids[at:]
        elif kind == 4:
            ids = ids[:at] + ids[to:]
        elif kind == 5:
            ids = [*ids[:at], draw.choice([-1, 10**9, 201089, 201500]), *ids[at:]]
        else:
            ids = ids[at:] + ids[:at]
    if draw.random() < 0.01:
        ids = (ids or [200_006])[:50] * 2_000
    return ids


def as_json(action: Action) -> str:
    """Return the action as JSON, as a trajectory file stores it. If JSON cannot represent it, raise an error."""
    return json.dumps([[call.name, call.arguments] for call in action.calls] + [action.text, action.reasoning])
