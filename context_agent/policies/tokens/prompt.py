"""Prompts token by token: vocabularies, how an episode's prompt is built, and the record of each call.

A prompt is a list of pieces: the opening, the question, then for each turn the reply as it was sampled, and around each
result's content the framing of its message. Contents are encoded once. A view that only adds to the last one adds
pieces. An edit removes pieces, and everything from the first removed piece on is built again.

A prompt mostly repeats the previous prompt and reply. The record of a call therefore has the number of ids that were
kept, and the new ids. `expand` restores the whole prompts.

A document may spell `<|call|>`. A vocabulary encodes those characters, never the id of the special token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from context_agent.errors import ConfigError, TrajectoryError
from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH, flatten_calls
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.routed_experts import Experts, unpack, unrecorded
from context_agent.pruning.view import ActionTaken, Role, Segment, Text, View
from context_agent.tokens import harmony_encoding
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


KEY = "sampled"
"""The key of the record in `Action.extra`. The value is None if the window had no room and nothing was sampled."""
SAMPLE_AGAIN = "Sample the episode again."
"""The remedy for a damaged record."""


@dataclass(frozen=True, slots=True)
class TokenCall:
    """The record of a call.

    The prompt has the first `reused` ids of the previous call's prompt and output, and then the ids in `new`.

    Attributes:
        reused: The number of ids that the prompt repeats.
        new: The further ids of the prompt.
        output: The sampled ids.
        logprobs: A natural logarithm of a probability for each sampled id, by the model's own distribution before
            temperature and top-p.
        version: The version of the weights.
        finish: `stop` or `length`.
        cached: The number of prompt ids from the server's prefix cache. None if the server does not report it.
        experts: The packed experts, if the routing of a mixture of experts is recorded. They begin at the last reused
            id, which the previous call may not have read. They end before the last sampled id.
    """

    reused: int
    new: tuple[int, ...]
    output: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str = ""
    finish: str = "stop"
    cached: int | None = None
    experts: str = ""

    @property
    def experts_from(self) -> int:
        """The position at which `experts` begin."""
        return first_recorded(self.reused)

    def to_extra(self) -> dict[str, Any]:
        """Return the record as plain data for `Action.extra`."""
        data = {
            "kept": self.reused,
            "new": list(self.new),
            "output": list(self.output),
            "logprobs": list(self.logprobs),
            "version": self.version,
            "finish": self.finish,
            "cached": self.cached,
        }
        return {KEY: {**data, "experts": self.experts} if self.experts else data}

    @staticmethod
    def from_extra(extra: Mapping[str, Any]) -> TokenCall | None:
        """Return the record of an action. If another policy took the action, return None.

        Raise `TrajectoryError` if the record is not valid.
        """
        data = extra.get(KEY)
        if data is None:
            return None
        try:
            numbers = {name: tuple(data[name]) for name in ("new", "output", "logprobs")}
            fields = {name: value for name, value in data.items() if name != "kept"}
            call = TokenCall(**{**fields, **numbers, "reused": data["kept"]})
        except (KeyError, TypeError) as error:
            raise TrajectoryError(
                f"cannot read an action's record of sampled tokens ({error!r}). {SAMPLE_AGAIN}"
            ) from None
        if len(call.output) != len(call.logprobs):
            raise TrajectoryError(
                f"an action's record has {len(call.output)} sampled tokens and {len(call.logprobs)} "
                f"log-probabilities, which differ. {SAMPLE_AGAIN}"
            )
        return call


def first_recorded(reused: int) -> int:
    """Return the position at which the experts of a call begin if the call reuses `reused` ids."""
    return max(0, reused - 1)


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call with its whole prompt.

    Attributes:
        prompt: The ids of the whole prompt.
        call: The record of the call.
        extends: True if the prompt continues the previous call's output.
        experts: The experts of the prompt and of the output except its last id. An id keeps the experts that it was
            first read with. None if no experts were recorded.
    """

    prompt: tuple[int, ...]
    call: TokenCall
    extends: bool
    experts: Experts | None = field(default=None, compare=False)


def calls(trajectory: Trajectory) -> Iterator[TokenCall]:
    """Yield the calls of an episode in order. Raise `TrajectoryError` if an action is from another policy."""
    for event in trajectory.events:
        if not isinstance(event, ActionTaken):
            continue
        if (call := TokenCall.from_extra(event.action.extra)) is not None:
            yield call
        elif KEY not in event.action.extra:
            raise TrajectoryError(
                f"turn {event.turn} of {trajectory.header.id} was not played by a token policy. Use episodes of "
                "TokenPolicy."
            )


def expand(token_calls: Iterable[TokenCall]) -> Iterator[WholeCall]:
    """Yield the calls with their whole prompts.

    Raise `TrajectoryError` for a record that reuses more ids than there were.
    """
    before: tuple[int, ...] = ()
    experts: Experts | None = None
    for call in token_calls:
        if not 0 <= call.reused <= len(before):
            raise TrajectoryError(
                f"the record is incomplete, because a prompt reuses {call.reused} of only {len(before)} ids. "
                f"{SAMPLE_AGAIN}"
            )
        prompt = before[: call.reused] + call.new
        experts = _continued(experts, call, len(prompt) + len(call.output) - 1)
        yield WholeCall(prompt, call, bool(before) and call.reused == len(before), experts)
        before = prompt + call.output


def _continued(before: Experts | None, call: TokenCall, positions: int) -> Experts | None:
    """Return the experts up to a call's last position but one.

    `before` has the experts up to the same position of the previous call.
    """
    if not call.experts:
        return None if before is None else _resized(before[: call.reused], positions)
    fresh = unpack(call.experts)
    if len(fresh) != positions - call.experts_from or (before is not None and before.shape[1:] != fresh.shape[1:]):
        raise TrajectoryError(
            f"the record is damaged, because the recorded experts of a call of {positions - call.experts_from} "
            f"positions have the shape {fresh.shape}. {SAMPLE_AGAIN}"
        )
    earlier = unrecorded(0, like=fresh) if before is None else before[: call.reused]
    known = _resized(earlier, max(len(earlier), call.experts_from))
    return np.concatenate([known, fresh[len(known) - call.experts_from :]])


def _resized(experts: Experts, positions: int) -> Experts:
    """Return the experts, with unrecorded positions added at the end."""
    return np.concatenate([experts, unrecorded(positions - len(experts), like=experts)])


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


REPLACEMENT = "\ufffd"
LONG_RUN = 2_000
"""A run of characters without a blank or digit, or of blanks alone, is cut at this length.

oss-harmony's byte-pair merge is quadratic in such a run, and takes half a minute for 200,000 letters.
"""

_RUN = re.compile(r"[^\s\d]+|\s+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Vocabulary(Protocol):
    """A vocabulary, which turns text into token ids and back."""

    @property
    def name(self) -> str:
        """The name, as a `TokenCounter` has it, such as `o200k_harmony`."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text as ordinary text, never of special tokens. The method raises no error."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, with special tokens spelled.

        Invalid UTF-8 and unknown ids become U+FFFD. The method raises no error.
        """

    def special(self, spelling: str) -> int:
        """Return the id of a special token. Raise `ConfigError` if the vocabulary lacks it."""


class HarmonyVocabulary:
    """o200k_harmony, the vocabulary of gpt-oss and Context-1, which oss-harmony contains."""

    name = "o200k_harmony"
    size = 201_089
    """One more than the greatest id."""

    def encode(self, text: str) -> list[int]:
        """Return the ids as oss-harmony encodes the text, but cut runs of over 2,000 characters without a blank."""
        encoding = harmony_encoding()
        if len(text) < LONG_RUN:
            return list(encoding.encode(text, disallowed_special=()))
        return [token for piece in _pieces(text) for token in encoding.encode(piece, disallowed_special=())]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids. Unknown ids become U+FFFD."""
        tokens = list(ids)
        encoding = harmony_encoding()
        if all(0 <= token < self.size for token in tokens):
            return str(encoding.decode(tokens))
        return "".join(encoding.decode([token]) if 0 <= token < self.size else REPLACEMENT for token in tokens)

    def special(self, spelling: str) -> int:
        """Return the id of a special token. Raise `ConfigError` if harmony has no such token."""
        encoding = harmony_encoding()
        if spelling not in encoding.special_tokens_set:
            raise ConfigError(f"harmony has no special token {spelling!r}. Check the spelling.")
        (token,) = encoding.encode(spelling, allowed_special={spelling}, disallowed_special=())
        return int(token)


class TokenizerVocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`, or of a transformers tokenizer built on one.

    A copy without any added tokens encodes content, because some added tokens steer a model without being flagged as
    special, such as `<tool_call>`. Raise `ConfigError` for a tokenizer that is not built on `tokenizers`.
    """

    def __init__(self, tokenizer: Any, name: str = "") -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, Tokenizer):
            raise ConfigError(
                f"{type(tokenizer).__name__} is not built on the tokenizers library. Use a fast tokenizer."
            )
        self.name = name or f"tokenizer/{backend.get_vocab_size()}"
        self._whole = backend
        added = backend.get_added_tokens_decoder()
        self._reserved = frozenset(added)
        self._size = max([*backend.get_vocab(with_added_tokens=True).values()], default=-1) + 1
        self._content = Tokenizer.from_str(json.dumps({**json.loads(backend.to_str()), "added_tokens": []}))
        spelled = sorted((re.escape(token.content) for token in added.values()), key=len, reverse=True)
        self._spelled = re.compile("|".join(spelled)) if spelled else None

    def encode(self, text: str) -> list[int]:
        """Return ordinary ids only."""
        text = _SURROGATES.sub(REPLACEMENT, text)
        ids: list[int] = self._content.encode(text, add_special_tokens=False).ids
        if self._reserved.isdisjoint(ids):
            return ids
        pieces = (self._content.encode(piece, add_special_tokens=False).ids for piece in self._broken(text))
        return [token for piece in pieces for token in piece if token not in self._reserved]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids. Ids outside the vocabulary become U+FFFD."""
        runs = [(valid, list(run)) for valid, run in groupby(ids, key=lambda token: 0 <= token < self._size)]
        return "".join(self._text(run) if valid else REPLACEMENT * len(run) for valid, run in runs)

    def special(self, spelling: str) -> int:
        """Return the id of an added token. Raise `ConfigError` if the tokenizer does not have it."""
        token = self._whole.token_to_id(spelling)
        if token is None or token not in self._reserved:
            raise ConfigError(
                f"the tokenizer {self.name} has no special token {spelling!r}. Use the tokenizer of the model."
            )
        return int(token)

    def reserves(self, token: int) -> bool:
        """Return True if the id belongs to an added token, which content never has."""
        return token in self._reserved

    def spelled(self, text: str) -> list[int]:
        """Return the ids of a template's own text, special tokens included. Never use it for content."""
        ids: list[int] = self._whole.encode(text, add_special_tokens=False).ids
        return ids

    def _text(self, ids: list[int]) -> str:
        return str(self._whole.decode(ids, skip_special_tokens=False))

    def _broken(self, text: str) -> Iterator[str]:
        """Yield the text, cut after the first character of each spelled token, so that no piece contains one."""
        start = 0
        for match in self._spelled.finditer(text) if self._spelled else ():
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]


class VocabularyRenderer:
    """The part of a renderer that its vocabulary determines: how content is encoded, decoded and counted."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.counter_name = vocabulary.name

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ordinary ids only."""
        return tuple(self.vocabulary.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, with special tokens spelled out."""
        return self.vocabulary.decode(ids)


def _pieces(text: str) -> Iterator[str]:
    """Yield the text with its overlong runs cut."""
    start = 0
    for match in _RUN.finditer(text):
        first, last = match.span()
        if last - first < LONG_RUN:
            continue
        for cut in range(first + LONG_RUN, last, LONG_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]
