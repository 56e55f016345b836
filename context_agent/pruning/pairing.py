"""Pairing of tool results with the calls that they answer.

A unique id decides which call a result answers. Some adapters number the calls of each turn anew, use the name of the
tool as the id, or send no id. In these cases the latest turn, the name, and the position in the turn decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from context_agent.pruning.contents import OWN_RESULT, Call, MessageContent


@dataclass(eq=False, slots=True)
class _OpenCall:
    call: Call
    message: int
    turn: int
    answered: bool = False


@dataclass
class Pairing:
    """The result of pairing.

    Attributes:
        contents: The contents, with only the results that answer a call.
        faults: A sentence for each fault of the conversation.
    """

    contents: tuple[MessageContent, ...]
    faults: tuple[str, ...] = field(default=())


def paired(contents: Sequence[MessageContent], last_turn: int) -> Pairing:
    """Pair results with calls, and return the contents without the results that answer no call.

    Args:
        contents: The contents of the messages.
        last_turn: The index of the first message of the last turn. Its calls may still have no result.

    Returns:
        The contents, and a sentence for each fault. A fault is a result without a call, a second result for a call, or
        a call without a result.
    """
    calls: list[_OpenCall] = []
    by_id: dict[str, list[_OpenCall]] = {}
    latest: list[_OpenCall] = []
    faults: list[str] = []
    paired_contents: list[MessageContent] = []
    turn, was_agent = 0, False
    for index, content in enumerate(contents):
        is_agent = content.role == "assistant"
        if is_agent and not was_agent:
            turn += 1
        was_agent = is_agent
        sound = {
            number for number, answer in enumerate(content.answers) if _answer(answer, index, by_id, latest, faults)
        }
        paired_contents.append(content if len(sound) == len(content.answers) else _without_broken(content, sound))
        for call in content.calls:
            if latest and latest[0].turn != turn:
                latest = []
            made = _OpenCall(call, index, turn)
            latest.append(made)
            calls.append(made)
            if call.id:
                by_id.setdefault(call.id, []).append(made)
    faults += [
        f"message {made.message} has a call without a result: {made.call.id or made.call.name!r}"
        for made in calls
        if not made.answered and made.message < last_turn
    ]
    return Pairing(tuple(paired_contents), tuple(faults))


def _answer(
    answer: Call, index: int, by_id: dict[str, list[_OpenCall]], latest: Sequence[_OpenCall], faults: list[str]
) -> bool:
    """Find the call that a result answers, and mark it as answered. Return True if there is one."""
    named = by_id.get(answer.id, []) if answer.id else []
    # If several calls have the same id, those of the latest turn come first, in their order.
    match = None
    for made in reversed(named):
        if match is not None and made.turn != match.turn:
            break
        if not made.answered:
            match = made
    if match is None and not named:
        match = _by_position(answer, latest)
    if match is None:
        what = "a second result of the call" if named else "a result without a call:"
        faults.append(f"message {index} has {what} {answer.id or answer.name!r}; it stays as it is")
        return False
    match.answered = True
    return True


def _by_position(answer: Call, latest: Sequence[_OpenCall]) -> _OpenCall | None:
    """Return the first unanswered call of the latest turn that fits, by the tool's name or else by position."""
    waiting = [made for made in latest if not made.answered and not (made.call.id and answer.id)]
    names = [made for made in waiting if made.call.name and made.call.name in (answer.name, answer.id)]
    if names or not waiting:
        return names[0] if names else None
    named_otherwise = answer.name and all(made.call.name for made in waiting)
    return None if named_otherwise else waiting[0]


def _without_broken(content: MessageContent, sound: set[int]) -> MessageContent:
    sound = {*sound, OWN_RESULT}
    kept = [number for number, owner in enumerate(content.result_owner) if owner in sound]
    return replace(
        content,
        results=tuple(content.results[number] for number in kept),
        result_owner=tuple(content.result_owner[number] for number in kept),
        left=tuple(
            result for result, owner in zip(content.results, content.result_owner, strict=True) if owner not in sound
        ),
    )
