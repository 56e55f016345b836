"""How an episode's prompt is built, token by token.

A prompt is a list of pieces: the opening, the question, then for each turn the reply as it was sampled, and around each
result's content the framing of its message. Contents are encoded once. A view that only adds to the last one adds
pieces. An edit removes pieces, and everything from the first removed piece on is built again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH, flatten_calls
from context_agent.policies.tokens.recorded_calls import TokenCall
from context_agent.pruning.view import Role, Segment, Text, View
from context_agent.types import Action, ToolCall

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """The prompt of a first turn around its question.

    Attributes:
        before: The ids before the question.
        after: The ids from the question to the model's reply.
        text: The text of `before`, for people and for the view.
    """

    before: Ids
    after: Ids
    text: str

    @property
    def tokens(self) -> int:
        """The number of tokens of the prompt except the question."""
        return len(self.before) + len(self.after)


class TokenRenderer(Protocol):
    """A renderer that writes prompts and reads replies for one kind of model.

    It has no state of an episode, so concurrent episodes share it.
    """

    @property
    def name(self) -> str:
        """The name that trajectories store, such as `harmony`."""

    @property
    def counter_name(self) -> str:
        """The name of the vocabulary, as a `TokenCounter` has it."""

    @property
    def stop(self) -> Ids:
        """The tokens that end a reply."""

    @property
    def parallel(self) -> bool:
        """True if one reply may hold several calls. Otherwise `multi_tool_use` wraps them."""

    def encode(self, text: str) -> Ids:
        """Return content as token ids. They contain no special token, whatever the text spells."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the ids as text for people, with special tokens spelled out. The method raises no error."""

    def opening(self, profile: Profile) -> Opening:
        """Return the system and developer messages with the profile's instructions and tools."""

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """Return the tokens before, between and after the results of a reply's calls.

        There is one part more than there are calls. If sampling left the reply open, the first part closes it. The last
        part begins the next reply.
        """

    def reply(self, action: Action) -> Ids:
        """Return an action as the model would have sampled it. An expert's action is trained in this form."""

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the action of a sampled reply.

        The method raises no error. A mistake becomes a call that the episode answers.
        """


Key = tuple[str, int, int]
Piece = tuple[Key, Ids]


@dataclass(frozen=True, slots=True)
class Turn:
    """An action of the view in the form that the prompt has.

    Attributes:
        index: The number of the turn.
        action: The action.
        reply: The ids of the reply.
        frame: The ids before, between and after the results.
        owner: For each unwrapped call, the index of the call in the reply that contains it.
    """

    index: int
    action: Action
    reply: Ids
    frame: tuple[Ids, ...]
    owner: tuple[int, ...]

    def message(self, call: int) -> int:
        """Return the result message that a segment of that call belongs to.

        The usage line belongs to no call and ends the last message.
        """
        return self.owner[call] if 0 <= call < len(self.owner) else len(self.action.calls) - 1


class Prompt:
    """The ids of one episode's current prompt. Call `show` with each view in turn."""

    def __init__(self, renderer: TokenRenderer, profile: Profile, opening: Opening | None = None) -> None:
        self._renderer = renderer
        self._profile = profile
        self._opening = opening or renderer.opening(profile)
        self._contents: dict[int, Ids] = {}
        self._turns: dict[int, Turn] = {}
        self._keys: list[Key] = []
        self._ends: list[int] = []
        self.ids: list[int] = []
        self.reused = 0
        """How many ids the last `show` reused of the previous prompt and reply."""

    def show(self, view: View) -> list[int]:
        """Return the prompt for the view. The next call changes this list, so copy the list to keep it."""
        pieces = list(self._pieces(view))
        same = 0
        while same < min(len(self._keys), len(pieces)) and self._keys[same] == pieces[same][0]:
            same += 1
        self.reused = self._ends[same - 1] if same else 0
        del self.ids[self.reused :], self._keys[same:], self._ends[same:]
        for key, ids in pieces[same:]:
            self._add(key, ids)
        return self.ids

    def sampled(self, view: View, reply: Sequence[int]) -> None:
        """Append what was sampled on the view. The next prompt continues from it."""
        self._add(("reply", view.turn, 0), tuple(reply))

    def reply_for(self, action: Action) -> Ids:
        """Return the reply that would make another policy's action."""
        return self._renderer.reply(self._writable(action))

    def framing(self, reply: Sequence[int], action: Action) -> int:
        """Return the number of tokens that the messages of the action's results take in addition to their content."""
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
        for turn, contents in self._split_turns(view):
            yield ("reply", turn.index, 0), turn.reply
            for message, part in enumerate(turn.frame):
                yield ("frame", turn.index, message), part
                for index in contents.get(message, ()):
                    yield self._content(index, view.segments[index])

    def _split_turns(self, view: View) -> Iterator[tuple[Turn, dict[int, list[int]]]]:
        """Yield the view's turns, each with the indices of the visible segments of its result messages."""
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
        if segment.turn not in self._turns:
            action = segment.action or Action(text=segment.text)
            record = TokenCall.from_extra(action.extra)
            action = action if record else self._writable(action)
            reply = record.output if record else self._renderer.reply(action)
            frame = self._renderer.frame(reply, [call.name for call in action.calls])
            owner = (
                number for number, call in enumerate(action.calls) for _ in flatten_calls([call], self._profile.tools)
            )
            self._turns[segment.turn] = Turn(segment.turn, action, reply, frame, tuple(owner))
        return self._turns[segment.turn]

    def _content(self, index: int, segment: Segment) -> Piece:
        if index not in self._contents:
            self._contents[index] = self._renderer.encode(segment.text)
        return ("content", index, 0), self._contents[index]

    def _writable(self, action: Action) -> Action:
        """Return the action. If the renderer's replies hold only one call, several calls are wrapped in one."""
        if len(action.calls) < 2 or self._renderer.parallel or BATCH not in self._profile.tools:
            return action
        flat = flatten_calls(action.calls, self._profile.tools)
        inner = [{"tool_name": call.name, "parameters": call.arguments} for call in flat]
        return replace(action, calls=(ToolCall(BATCH, {"tool_calls": inner}),))
