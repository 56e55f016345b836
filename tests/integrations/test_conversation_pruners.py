"""Pruners by conversation: how they are distinguished, shared and forgotten."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from context_agent._support.cancellation import check_cancelled
from context_agent._support.event_loops import run_cancellable
from context_agent.errors import ConfigError
from context_agent.integrations.conversation_pruners import DAY, ConversationPruners, PrefixCaching
from context_agent.pruning.passages import Passage
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruner import ContextPruner


def conversation(question: str = "When is high tide in Orm?", system: str = "Be brief.") -> list[dict[str, Any]]:
    """Three searches, one of which is about the question, and an answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    for number, topic in enumerate(("violins", "high tide in Orm", "weather")):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": topic}}
        text = "\n\n".join(f"Entry {entry} on {topic}: " + f"{topic} again. " * 20 for entry in range(3))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return [*messages, {"role": "assistant", "content": "At six."}]


def open_pruner() -> ContextPruner:
    return ContextPruner(300, strategy="bm25", prices=Prices(cached=1.0))


def test_the_same_beginning_and_scope_share_a_pruner() -> None:
    pruners = ConversationPruners(open_pruner)
    first = pruners.prune(conversation())
    longer = pruners.prune([*conversation(), {"role": "user", "content": "And low tide?"}])
    assert longer.messages[:-1] == first.messages
    assert len(pruners) == 1
    for messages, scope in [
        (conversation("Other?"), b""),
        (conversation(system="Be long."), b""),
        (conversation(), b"b"),
    ]:
        pruners.prune(messages, scope=scope)
    assert len(pruners) == 4


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pruners: pickle.loads(pickle.dumps(pruners))])
def test_a_copy_has_the_settings_and_no_conversations(
    copied: Callable[[ConversationPruners], ConversationPruners],
) -> None:
    """Frameworks copy agents with their filters, and send them to other processes."""
    pruners = ConversationPruners.of(300, strategy="bm25", prices=Prices(cached=1.0))
    pruned = pruners.prune(conversation())
    twin = copied(pruners)
    assert len(twin) == 0
    assert twin.prune(conversation()).messages == pruned.messages != conversation()
    assert len(pruners) == 1


def test_the_first_message_of_codex_does_not_make_two_conversations_one() -> None:
    pruners = ConversationPruners(open_pruner)
    environment = {"role": "user", "content": "<environment_context>\n<cwd>/home</cwd>\n</environment_context>"}
    for question in ("When is high tide?", "Who built the pier?"):
        system, _, *turns = conversation(question)
        asked = {"role": "user", "content": question}
        pruners.prune([system, environment, asked])
        pruners.prune([system, environment, asked, *turns])
    assert len(pruners) == 2
    for steps in (2, 3):
        pruners.prune([{"role": "system", "content": "Go."}, environment, *conversation()[2:][:steps]])
    assert len(pruners) == 3


def test_a_conversation_is_restored_by_its_own_pruner() -> None:
    pruners = ConversationPruners(open_pruner)
    pruned = pruners.prune(conversation())
    ids = [passage.id for passage in pruned.report.removed]
    assert ids
    assert pruners.restore(pruned.messages, ids) == conversation()
    passage = pruned.report.removed[0]
    assert passage.preview in str(pruners.prune(conversation()).messages[passage.message])


def test_nothing_is_restored_in_an_unknown_conversation_and_none_begins() -> None:
    pruners = ConversationPruners(open_pruner)
    with pytest.raises(ConfigError, match="No passage of it is pruned"):
        pruners.restore(conversation(), ["p1"])
    assert len(pruners) == 0


def test_the_least_recently_used_are_forgotten_first() -> None:
    pruners = ConversationPruners(open_pruner, limit=2)
    pruned = {question: pruners.prune(conversation(question)) for question in ("One?", "Two?")}
    pruners.prune(conversation("One?"))
    pruners.prune(conversation("Three?"))
    assert len(pruners) == 2
    ids = {question: [passage.id for passage in result.report.removed] for question, result in pruned.items()}
    assert pruners.restore(pruned["One?"].messages, ids["One?"]) == conversation("One?")
    with pytest.raises(ConfigError, match="No passage of it is pruned"):
        pruners.restore(pruned["Two?"].messages, ids["Two?"])


def test_a_restore_counts_as_use() -> None:
    pruners = ConversationPruners(open_pruner, limit=2)
    pruned = {question: pruners.prune(conversation(question)) for question in ("One?", "Two?")}
    first, second = (pruned[question].report.removed[0].id for question in ("One?", "Two?"))
    pruners.restore(pruned["One?"].messages, [first])
    pruners.prune(conversation("Three?"))
    assert pruners.restore(pruned["One?"].messages, [first])
    with pytest.raises(ConfigError, match="No passage of it is pruned"):
        pruners.restore(pruned["Two?"].messages, [second])


def test_what_the_pruners_remember_is_bounded() -> None:
    unbounded = ConversationPruners(open_pruner)
    unbounded.prune(conversation("One?"))
    pruners = ConversationPruners(open_pruner, memory=5 * unbounded.memory // 2)
    for question in ("One?", "Two?", "Three?"):
        pruners.prune(conversation(question))
    assert len(pruners) == 2
    small = ConversationPruners(open_pruner, memory=unbounded.memory // 2)
    small.prune(conversation("One?"))
    assert len(small) == 0


def test_an_idle_conversation_is_forgotten() -> None:
    pruners = ConversationPruners(open_pruner, idle=0.0)
    for question in ("One?", "Two?"):
        pruners.prune(conversation(question))
    assert len(pruners) == 0


def test_a_conversation_is_remembered_while_its_prefix_may_be_cached() -> None:
    pruners = ConversationPruners(open_pruner, idle=0.0)
    pruned = pruners.prune(conversation("One?"), caching=PrefixCaching(DAY))
    pruners.prune(conversation("Two?"))
    assert len(pruners) == 1
    ids = [passage.id for passage in pruned.report.removed]
    assert pruners.restore(pruned.messages, ids) == conversation("One?")
    pruners.prune(conversation("One?"), caching=PrefixCaching(0.0))
    assert len(pruners) == 0


def test_messages_without_a_user_are_a_conversation_too() -> None:
    pruners = ConversationPruners(open_pruner)
    assert pruners.prune([]).messages == []
    assert pruners.prune([{"role": "system", "content": "Be brief."}]).report.outcome == "within budget"


async def test_a_prune_that_nobody_waits_for_is_counted_and_changes_nothing() -> None:
    started, ended = threading.Event(), threading.Event()
    is_slow = True

    def longest_first(passages: Sequence[Passage], task: str) -> list[float]:
        started.set()
        while is_slow:
            check_cancelled()
        return [len(passage.text) for passage in passages]

    def pruners() -> ConversationPruners:
        return ConversationPruners(lambda: ContextPruner(300, strategy=longest_first, prices=Prices(cached=1.0)))

    abandoned = pruners()

    def prune() -> None:
        try:
            abandoned.prune(conversation())
        finally:
            ended.set()

    task = asyncio.create_task(run_cancellable(prune))
    assert await asyncio.to_thread(started.wait, 60)
    task.cancel()
    assert await asyncio.to_thread(ended.wait, 60)
    is_slow = False
    assert abandoned.memory > sum(len(message["content"] or "") for message in conversation())
    again = abandoned.prune(conversation())
    assert again.messages == pruners().prune(conversation()).messages != conversation()
