"""Prompts token by token: what a renderer provides, how an episode's prompt is built, and the record of each call.

A prompt is a list of pieces: the opening, the question, then for each turn the reply as it was sampled, and around
each result's content the framing of its message. Contents are encoded once. A view that only adds to the last one
adds pieces. An edit removes pieces, and everything from the first removed piece on is built again.

A prompt mostly repeats the previous prompt and reply. The record of a call therefore holds how many ids were kept, and
the new ids; `expand` restores the whole prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from context_agent.errors import TrajectoryError
from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH, flatten
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import ActionTaken, Role, Segment, Text, View
from context_agent.types import Action, ToolCall

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """The prompt of a first turn without its question: `before`, the question's ids, then `after`.

    `after` ends where the model's reply begins. `text` is `before` as text, for people and for the view.
    """

    before: Ids
    after: Ids
    text: str

    @property
    def tokens(self) -> int:
        """Tokens of the prompt except the question."""
        return len(self.before) + len(self.after)


class TokenRenderer(Protocol):
    """Spells prompts and reads replies for one kind of model. Knows no episodes; shared by concurrent ones."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `harmony`."""

    @property
    def counter_name(self) -> str:
        """The vocabulary's name, as a `TokenCounter` has it."""

    @property
    def stop(self) -> Ids:
        """The tokens that end a reply."""

    @property
    def parallel(self) -> bool:
        """Whether one reply may hold several calls; otherwise `multi_tool_use` wraps them."""

    def encode(self, text: str) -> Ids:
        """Content as token ids. They contain no special token, whatever the text spells."""

    def decode(self, ids: Sequence[int]) -> str:
        """The ids as text for people, special tokens spelled out. Never raises."""

    def opening(self, profile: Profile) -> Opening:
        """System and developer messages with the profile's instructions and tools."""

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """The tokens around the results of a reply's calls: one part more than there are calls.

        The first part closes the reply if sampling left it open; the last one begins the next reply.
        """

    def reply(self, action: Action) -> Ids:
        """An action as the model would have sampled it: how an expert's action is trained."""

    def parse(self, ids: Sequence[int]) -> Action:
        """The action of a sampled reply. Never raises: a mistake becomes a call that the episode answers."""


KEY = "sampled"
"""Key of the record in `Action.extra`. Its value is None if the window had no room and nothing was sampled."""


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One call. The prompt is the first `reused` ids of the previous call's prompt and output, then `new`.

    `logprobs` has one natural logarithm for each id of `output`, of the model's own distribution before temperature
    and top-p. `version` names the weights; `finish` is `stop` or `length`; `cached` counts the prompt ids from the
    server's prefix cache, None if it does not report them.
    """

    reused: int
    new: tuple[int, ...]
    output: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str = ""
    finish: str = "stop"
    cached: int | None = None

    def to_extra(self) -> dict[str, Any]:
        """As `Action.extra` holds it: plain data."""
        return {
            KEY: {
                "kept": self.reused,
                "new": list(self.new),
                "output": list(self.output),
                "logprobs": list(self.logprobs),
                "version": self.version,
                "finish": self.finish,
                "cached": self.cached,
            }
        }

    @staticmethod
    def from_extra(extra: Mapping[str, Any]) -> TokenCall | None:
        """The record of an action, None for another policy's. Raises `TrajectoryError` for an invalid record."""
        data = extra.get(KEY)
        if data is None:
            return None
        try:
            numbers = {name: tuple(data[name]) for name in ("new", "output", "logprobs")}
            fields = {name: value for name, value in data.items() if name != "kept"}
            call = TokenCall(**{**fields, **numbers, "reused": data["kept"]})
        except (KeyError, TypeError) as error:
            raise TrajectoryError(f"cannot read an action's record of sampled tokens ({error!r})") from None
        if len(call.output) != len(call.logprobs):
            raise TrajectoryError(f"{len(call.output)} sampled tokens, but {len(call.logprobs)} log-probabilities")
        return call


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call with its whole prompt. `extends`: the prompt continues the previous call's output."""

    prompt: tuple[int, ...]
    call: TokenCall
    extends: bool


def calls(trajectory: Trajectory) -> Iterator[TokenCall]:
    """The calls of an episode in order. Raises `TrajectoryError` if an action is another policy's."""
    for event in trajectory.events:
        if not isinstance(event, ActionTaken):
            continue
        if (call := TokenCall.from_extra(event.action.extra)) is not None:
            yield call
        elif KEY not in event.action.extra:
            raise TrajectoryError(f"turn {event.turn} of {trajectory.header.id} was not played by a token policy")


def expand(token_calls: Iterable[TokenCall]) -> Iterator[WholeCall]:
    """Whole prompts. Raises `TrajectoryError` for a record that reuses more ids than there were."""
    before: tuple[int, ...] = ()
    for call in token_calls:
        if not 0 <= call.reused <= len(before):
            raise TrajectoryError(f"the record is incomplete: a prompt reuses {call.reused} ids of {len(before)}")
        prompt = before[: call.reused] + call.new
        yield WholeCall(prompt, call, extends=bool(before) and call.reused == len(before))
        before = prompt + call.output


Key = tuple[str, int, int]
Piece = tuple[Key, Ids]


@dataclass(frozen=True, slots=True)
class Turn:
    """An action of the view as its prompt spells it. `owner` maps each flattened call to the call that holds it."""

    index: int
    action: Action
    reply: Ids
    frame: tuple[Ids, ...]
    owner: tuple[int, ...]

    def message(self, call: int) -> int:
        """The result message that a segment of that call belongs to; the usage line, of no call, ends the last one."""
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
        """The prompt for the view. The list changes with the next call: copy it to keep it."""
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
        """Appends what was sampled on the view; the next prompt continues from it."""
        self._add(("reply", view.turn, 0), tuple(reply))

    def reply_for(self, action: Action) -> Ids:
        """The reply that would make another policy's action."""
        return self._renderer.reply(self._writable(action))

    def framing(self, reply: Sequence[int], action: Action) -> int:
        """Tokens of the messages of the action's results, without their content."""
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
        if segment.turn not in self._turns:
            action = segment.action or Action(text=segment.text)
            record = TokenCall.from_extra(action.extra)
            action = action if record else self._writable(action)
            reply = record.output if record else self._renderer.reply(action)
            frame = self._renderer.frame(reply, [call.name for call in action.calls])
            owner = (number for number, call in enumerate(action.calls) for _ in flatten([call], self._profile.tools))
            self._turns[segment.turn] = Turn(segment.turn, action, reply, frame, tuple(owner))
        return self._turns[segment.turn]

    def _content(self, index: int, segment: Segment) -> Piece:
        if index not in self._contents:
            self._contents[index] = self._renderer.encode(segment.text)
        return ("content", index, 0), self._contents[index]

    def _writable(self, action: Action) -> Action:
        """The action with its calls wrapped in one if the renderer's replies hold only one."""
        if len(action.calls) < 2 or self._renderer.parallel or BATCH not in self._profile.tools:
            return action
        flat = flatten(action.calls, self._profile.tools)
        inner = [{"tool_name": call.name, "parameters": call.arguments} for call in flat]
        return replace(action, calls=(ToolCall(BATCH, {"tool_calls": inner}),))
