"""Pairing of tool results with the calls that they answer.

A unique id decides which call a result answers. Some adapters number the calls of each turn anew, use the name of the
tool as the id, or send no id. In these cases the latest turn, the name, and the position in the turn decide.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from context_agent.pruning.contents import OWN_RESULT, Call, MessageContent
from context_agent.pruning.formats.marks import CALL_MARKS, asked_in_text


@dataclass(eq=False, slots=True)
class _OpenCall:
    call: Call
    number: int
    message: int
    turn: int
    answered: bool = False


class _WaitingCalls:
    """The calls of a turn that wait for their results, in order and by name."""

    def __init__(self) -> None:
        self._all: deque[_OpenCall] = deque()
        self._by_name: defaultdict[str, deque[_OpenCall]] = defaultdict(deque)

    def add(self, made: _OpenCall) -> None:
        self._all.append(made)
        self._by_name[made.call.name].append(made)

    def first(self) -> _OpenCall | None:
        return _first_waiting(self._all)

    def first_named(self, *names: str) -> _OpenCall | None:
        """Return the first call that waits and has one of the names. An empty name means calls without a name."""
        waiting = (_first_waiting(self._by_name[name]) for name in names if name in self._by_name)
        return min((made for made in waiting if made is not None), key=lambda made: made.number, default=None)


def _first_waiting(calls: deque[_OpenCall]) -> _OpenCall | None:
    while calls and calls[0].answered:
        calls.popleft()
    return calls[0] if calls else None


class _LatestTurn:
    """The calls of the latest turn with calls. A result that has an id can only answer a call without one."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self._calls, self._calls_without_id = _WaitingCalls(), _WaitingCalls()

    def add(self, made: _OpenCall) -> None:
        self._calls.add(made)
        if not made.call.id:
            self._calls_without_id.add(made)

    def fitting(self, answer: Call) -> _OpenCall | None:
        """Return the first unanswered call that fits a result, by the tool's name or else by position."""
        waiting = self._calls_without_id if answer.id else self._calls
        if (named := waiting.first_named(*filter(None, (answer.name, answer.id)))) is not None:
            return named
        is_named_otherwise = answer.name and waiting.first_named("") is None
        return None if is_named_otherwise else waiting.first()


@dataclass
class Pairing:
    """The result of pairing.

    Attributes:
        contents: The contents, with only the results that answer a call.
        faults: A sentence for each fault of the conversation.
    """

    contents: tuple[MessageContent, ...]
    faults: tuple[str, ...]


def paired(contents: Sequence[MessageContent], last_turn: int, origins: Sequence[int]) -> Pairing:
    """Pair results with calls, and return the contents without the results that answer no call.

    Args:
        contents: The contents of the messages.
        last_turn: The index of the first content of the last turn. Its calls may still have no result.
        origins: The index of the message of each content.

    Returns:
        The contents, and a sentence for each fault. A fault is a result without a call, a second result for a call, or
        a call without a result. The contents have no arguments of calls of the last turn that wait for their results.
    """
    calls: list[_OpenCall] = []
    by_id: dict[str, list[deque[_OpenCall]]] = {}
    ids = frozenset(call.id for content in contents for call in content.calls)
    latest = _LatestTurn(0)
    faults: list[str] = []
    paired_contents: list[MessageContent] = []
    turn, was_agent, writes_calls = 0, False, False
    waiting: list[str] = []
    for index, content in enumerate(contents):
        is_agent = content.role == "assistant"
        if is_agent and not was_agent:
            turn += 1
            writes_calls = False
        was_agent = is_agent
        writes_calls = writes_calls or not content.written_calls.isdisjoint(CALL_MARKS)
        asked_by_answer: dict[int, str] = {}
        asked_by_own: list[str] = []
        for number, answer in enumerate(content.answers):
            if writes_calls and not answer.id and latest.turn != turn:
                asked_by_answer[number] = waiting.pop(0) if waiting else ""
            elif (call := _answered(answer, origins[index], by_id, latest, ids=ids, faults=faults)) is not None:
                asked_by_answer[number] = call.asked
        if OWN_RESULT in content.result_owner and not is_agent:
            count = content.result_owner.count(OWN_RESULT)
            asked_by_own, waiting = waiting[:count], waiting[count:]
        paired_contents.append(_with_sound_results(content, asked_by_answer, asked_by_own))
        if is_agent:
            waiting = _asked_by_results(content.text, _results_of_written_calls(contents, index + 1))
        for call in content.calls:
            if latest.turn != turn:
                latest = _LatestTurn(turn)
            made = _OpenCall(call, len(calls), index, turn)
            latest.add(made)
            calls.append(made)
            if call.id:
                turns = by_id.setdefault(call.id, [])
                if not turns or turns[-1][-1].turn != turn:
                    turns.append(deque())
                turns[-1].append(made)
    waiting_calls = [made for made in calls if not made.answered and made.message >= last_turn]
    faults += [
        f"message {origins[made.message]} has a call without a result: {made.call.id or made.call.name!r}"
        for made in calls
        if not made.answered and made.message < last_turn
    ]
    return Pairing(_without_waiting(paired_contents, waiting_calls), tuple(faults))


def _without_waiting(contents: Sequence[MessageContent], calls: Sequence[_OpenCall]) -> tuple[MessageContent, ...]:
    """Return the contents without the arguments of calls that wait for their results.

    They stay whole, because a client may yet run the calls with the arguments that it gets back.
    """
    waiting: defaultdict[int, set[str]] = defaultdict(set)
    for made in calls:
        waiting[made.message].add(made.call.id or made.call.name)
    return tuple(
        replace(content, arguments=tuple(it for it in content.arguments if it.call_id not in waiting[index]))
        if index in waiting
        else content
        for index, content in enumerate(contents)
    )


def _answered(
    answer: Call,
    index: int,
    by_id: dict[str, list[deque[_OpenCall]]],
    latest: _LatestTurn,
    *,
    ids: frozenset[str],
    faults: list[str],
) -> Call | None:
    """Find the call that a result answers, and mark it as answered.

    Return it if the model sees the result. The result of a program's call goes to the program, which would compute with
    a stub. `ids` are those of all calls of the conversation.
    """
    # If several calls have the same id, those of the latest turn come first, in their order.
    turns = by_id.get(answer.id)
    match = None
    while turns and (match := _first_waiting(turns[-1])) is None:
        turns.pop()
    if turns is None:
        match = latest.fitting(answer)
    if match is None:
        what = "a result without a call:" if turns is None else "a second result of the call"
        remedy = ""
        if turns is None and answer.id and answer.id in ids:
            what, remedy = "a result before its call:", ". Pass the messages with the oldest first."
        faults.append(f"message {index} has {what} {answer.id or answer.name!r}; it stays as it is{remedy}")
        return None
    match.answered = True
    return None if match.call.is_of_program else match.call


def _results_of_written_calls(contents: Sequence[MessageContent], start: int) -> int:
    """Return the number of results before the next message of the agent that a call in its text may have."""
    count = 0
    for content in islice(contents, start, None):
        if content.role == "assistant":
            break
        count += content.result_owner.count(OWN_RESULT) + sum(not answer.id for answer in content.answers)
    return count


def _asked_by_results(text: str, count: int) -> list[str]:
    """Return the requests of the calls in the text of an agent, one for each of its results.

    If there are as many results as calls, they have the same order. Otherwise the results are those of the last call.
    """
    said = asked_in_text(text) if count else []
    return said if len(said) == count else said[-1:] * count


def _with_sound_results(
    content: MessageContent, asked_by_answer: Mapping[int, str], asked_by_own: Sequence[str]
) -> MessageContent:
    """Return the content with the results that answer a call, each with what the call asked for.

    Args:
        content: The content.
        asked_by_answer: What the call of each sound answer asked for, by the index of the answer.
        asked_by_own: What the call of each result in a text asked for.
    """
    if not content.answers and not any(asked_by_own):
        return content
    kept = [
        number for number, owner in enumerate(content.result_owner) if owner in asked_by_answer or owner == OWN_RESULT
    ]
    waiting = iter(asked_by_own)
    owned = [
        (content.results[number], next(waiting, "") if owner == OWN_RESULT else asked_by_answer[owner])
        for number in kept
        for owner in [content.result_owner[number]]
    ]
    return replace(
        content,
        results=tuple(
            replace(result, asked=asked) if asked and not result.asked else result for result, asked in owned
        ),
        result_owner=tuple(content.result_owner[number] for number in kept),
        left=tuple(
            result
            for result, owner in zip(content.results, content.result_owner, strict=True)
            if owner not in asked_by_answer and owner != OWN_RESULT
        ),
    )
