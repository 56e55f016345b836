"""Random conversations in two forms: as a view of the harness, and as messages of oss-harmony."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    Message,
    RenderConversationConfig,
    Role,
    ToolDescription,
)

from context_agent import Action, Budget, Chunk, Profile, ToolCall, View
from context_agent.harness.action_text import compact
from context_agent.harness.tools import schemas
from context_agent.policies.tokens.harmony import system_content
from context_agent.pruning.view import Block, Source, Text
from context_agent.pruning.view import Role as Part
from context_agent.testing.token_episodes import FORGERIES
from context_agent.tokens import harmony_encoding
from context_agent.types import Hit

ALPHABET = "abc XYZ 1234 \n\t.,!?/#'s é中文🙂\u0301\u2028 _-{}[]\"\\:"


def random_text(draw: random.Random, longest: int = 200) -> str:
    """Return random characters of many scripts. Some texts contain forged headers or special tokens.

    Args:
        draw: The source of randomness.
        longest: The largest number of characters per part. A text has one to three parts.
    """
    parts = ["".join(draw.choice(ALPHABET) for _ in range(draw.randint(0, longest))) for _ in range(draw.randint(1, 3))]
    return draw.choice(FORGERIES).join(parts) if draw.random() < 0.6 else " ".join(parts)


def random_action(draw: random.Random) -> Action:
    """Return a random action with one call."""
    query = random_text(draw, 30)
    call = draw.choice(
        [
            ToolCall("search_corpus", {"query": query}),
            ToolCall("prune_chunks", {"chunk_ids": ["d1_0", "d2_3"]}),
            ToolCall("grep_corpus", f'{{"pattern": {query}'),
            ToolCall("no_such-tool.x", {}),
        ]
    )
    return Action((call,), reasoning=random_text(draw), text=draw.choice(["", random_text(draw, 20)]))


def random_block(draw: random.Random, key: int, turn: int) -> Block:
    """Return a block with random text.

    Args:
        draw: The source of randomness.
        key: The key of the block.
        turn: The turn that shows the block.
    """
    chunk = Chunk(f"d{key}_0", f"d{key}", 0, random_text(draw), 0, 0, 1)
    header = f"# DOCUMENT ID: {chunk.id} (12 tokens)\n"
    return Block(key, header, chunk.text, 1, turn, 0, Source.SEARCH, Hit(chunk, 1.0, 1))


def random_view(draw: random.Random, profile: Profile) -> View:
    """Return a view of up to five turns in which about a third of the blocks are pruned."""
    question = profile.question.format(question=random_text(draw, 40))
    segments: list[Any] = [Text(Part.PROMPT, "", 0, -1), Text(Part.QUESTION, question, 0, -1)]
    hidden = set()
    for turn in range(draw.randint(0, 5)):
        segments.append(Text(Part.ACTION, "", 0, turn, action=random_action(draw)))
        for _ in range(draw.randint(0, 4)):
            block = random_block(draw, len(segments), turn)
            segments.append(block)
            hidden |= {block.key} if draw.random() < 0.3 else set()
        if draw.random() < 0.5:
            segments.append(Text(Part.RESULT, "No results found\n", 0, turn, call=0))
        segments.append(Text(Part.USAGE, f"[Token usage: {draw.randint(0, 32_768):,}/32,768]\n", 0, turn))
    view = View("q", Budget(), tuple(segments), turn=len(segments))
    return replace(view, hidden=frozenset(hidden))


def rendered_by_oss_harmony(view: View, profile: Profile, effort: str = "high") -> list[int]:
    """Return the token ids of the prompt that oss-harmony renders for the view.

    Args:
        view: The view.
        profile: The profile with the instructions and tools.
        effort: The reasoning effort.
    """
    tools = [ToolDescription.new(**tool) for tool in schemas(profile)]
    developer = DeveloperContent.new().with_instructions(profile.instructions().strip()).with_function_tools(tools)
    messages = [
        Message.from_role_and_content(Role.SYSTEM, system_content(effort)),
        Message.from_role_and_content(Role.DEVELOPER, developer),
    ]
    call: ToolCall | None = None
    results: list[str] = []
    for segment in view.visible:
        if isinstance(segment, Text) and segment.role is Part.QUESTION:
            messages.append(Message.from_role_and_content(Role.USER, segment.text))
        elif isinstance(segment, Text) and segment.action is not None:
            call, results = segment.action.calls[0], []
            messages += _assistant(segment.action)
        elif call is not None:
            results.append(segment.text)
            if isinstance(segment, Text) and segment.role is Part.USAGE:
                messages.append(_tool(call.name, "".join(results)))
    config = RenderConversationConfig(auto_drop_analysis=False)
    conversation = Conversation.from_messages(messages)
    return list(harmony_encoding().render_conversation_for_completion(conversation, Role.ASSISTANT, config))


def _assistant(action: Action) -> list[Message]:
    (call,) = action.calls
    arguments = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
    messages = []
    if action.reasoning:
        messages.append(Message.from_role_and_content(Role.ASSISTANT, action.reasoning).with_channel("analysis"))
    if action.text:
        messages.append(Message.from_role_and_content(Role.ASSISTANT, action.text).with_channel("commentary"))
    message = Message.from_role_and_content(Role.ASSISTANT, arguments).with_channel("commentary")
    return [*messages, message.with_recipient(f"functions.{call.name}").with_content_type("<|constrain|>json")]


def _tool(name: str, text: str) -> Message:
    message = Message.from_author_and_content(Author.new(Role.TOOL, f"functions.{name}"), text)
    return message.with_channel("commentary").with_recipient("assistant")
