"""The prompt of an episode, token by token, kept from turn to turn.

A prompt is a list of pieces: the opening, the question, then for each turn the reply as it was sampled, and around
each result's content the framing of its message. Contents are encoded once. A view that only adds to the last one
adds pieces; an edit takes pieces out, and everything from the first of them on is put together anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH, flatten
from context_agent.policies.renderers.protocol import Ids, Opening, TokenRenderer
from context_agent.policies.token_calls import TokenCall
from context_agent.pruning.view import Role, Segment, Text, View
from context_agent.types import Action, ToolCall

Key = tuple[str, int, int]
Piece = tuple[Key, Ids]


@dataclass(frozen=True, slots=True)
class Turn:
    """An action of the view as its prompt spells it. `owner` says which of its calls each flattened call came from."""

    index: int
    action: Action
    reply: Ids
    frame: tuple[Ids, ...]
    owner: tuple[int, ...]

    def message(self, call: int) -> int:
        """Which result message a segment of that call belongs to; the usage line, of no call, closes the last one."""
        return self.owner[call] if 0 <= call < len(self.owner) else len(self.action.calls) - 1


class Prompt:
    """The ids of an episode's current prompt. Single use; `show` it each view in turn."""

    def __init__(self, renderer: TokenRenderer, profile: Profile, opening: Opening | None = None) -> None:
        self._renderer = renderer
        self._profile = profile
        self._opening = opening or renderer.opening(profile)
        self._contents: dict[int, Ids] = {}
        self._turns_made: dict[int, Turn] = {}
        self._keys: list[Key] = []
        self._ends: list[int] = []
        self.ids: list[int] = []
        self.kept = 0
        """How many ids the last `show` kept of the ids before it."""

    def show(self, view: View) -> list[int]:
        """The prompt for the view. The list is this object's own: copy what is to be kept."""
        pieces = list(self._pieces(view))
        same = 0
        while same < min(len(self._keys), len(pieces)) and self._keys[same] == pieces[same][0]:
            same += 1
        self.kept = self._ends[same - 1] if same else 0
        del self.ids[self.kept :], self._keys[same:], self._ends[same:]
        for key, ids in pieces[same:]:
            self._add(key, ids)
        return self.ids

    def sampled(self, view: View, reply: Sequence[int]) -> None:
        """Takes note of what was sampled on the view; the next prompt goes on from it."""
        self._add(("reply", view.turn, 0), tuple(reply))

    def taught(self, action: Action) -> Ids:
        """The reply that makes an action which another policy chose."""
        return self._renderer.reply(self._writable(action))

    def framing(self, reply: Sequence[int], action: Action) -> int:
        """Tokens that the messages of the action's results will cost beside their content."""
        if not action.calls:
            return 0
        return sum(map(len, self._renderer.frame(reply, [call.name for call in action.calls])))

    def _add(self, key: Key, ids: Ids) -> None:
        self.ids += ids
        self._keys.append(key)
        self._ends.append(len(self.ids))

    def _pieces(self, view: View) -> Iterator[Piece]:
        yield ("before", 0, 0), self._opening.before
        for index, segment in enumerate(view.segments):
            if isinstance(segment, Text) and segment.role is Role.QUESTION:
                yield self._content(index, segment)
        yield ("after", 0, 0), self._opening.after
        for turn, contents in self._turns(view):
            yield ("reply", turn.index, 0), turn.reply
            for message, part in enumerate(turn.frame):
                yield ("frame", turn.index, message), part
                for index in contents.get(message, ()):
                    yield self._content(index, view.segments[index])

    def _turns(self, view: View) -> Iterator[tuple[Turn, dict[int, list[int]]]]:
        """The view's turns, each with the indices of the visible segments of its result messages."""
        turn: Turn | None = None
        contents: dict[int, list[int]] = {}
        for index, segment in enumerate(view.segments):
            if isinstance(segment, Text) and segment.role is Role.ACTION:
                if turn is not None:
                    yield turn, contents
                turn, contents = self._turn(segment), {}
            elif turn is not None and (isinstance(segment, Text) or segment.key not in view.hidden):
                contents.setdefault(turn.message(segment.call), []).append(index)
        if turn is not None:
            yield turn, contents

    def _turn(self, segment: Text) -> Turn:
        if (known := self._turns_made.get(segment.turn)) is not None:
            return known
        action = segment.action or Action(text=segment.text)
        record = TokenCall.from_extra(action.extra)
        action = action if record else self._writable(action)
        reply = record.output if record else self._renderer.reply(action)
        frame = self._renderer.frame(reply, [call.name for call in action.calls])
        owner = (number for number, call in enumerate(action.calls) for _ in flatten([call], self._profile.tools))
        made = self._turns_made[segment.turn] = Turn(segment.turn, action, reply, frame, tuple(owner))
        return made

    def _content(self, index: int, segment: Segment) -> Piece:
        if index not in self._contents:
            self._contents[index] = self._renderer.encode(segment.text)
        return ("content", index, 0), self._contents[index]

    def _writable(self, action: Action) -> Action:
        """The action with its calls wrapped, where the renderer's replies hold one call and the action has more."""
        if len(action.calls) < 2 or self._renderer.parallel or BATCH not in self._profile.tools:
            return action
        flat = flatten(action.calls, self._profile.tools)
        inner = [{"tool_name": call.name, "parameters": call.arguments} for call in flat]
        return replace(action, calls=(ToolCall(BATCH, {"tool_calls": inner}),))
