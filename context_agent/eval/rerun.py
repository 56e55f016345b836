"""Does the harness still show what it showed? A recorded episode's actions, played anew on today's corpus.

Rows for training are made of recorded views. Where the corpus has changed since, or the harness has, those are views
that no policy will be shown again. `rerun` plays the actions that were recorded into a new `Episode` under the recorded
profile, budget, limits and filter, and compares event by event what each of them brought into the view. The first
difference ends the comparison, since all that comes after stands on another view.

Compared is what a policy reads: texts, their order and their sizes in tokens. Scores behind the blocks are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import zip_longest

from context_agent.errors import BudgetError, ConfigError, TrajectoryError
from context_agent.harness.episode import Episode, Limits, StopReason
from context_agent.harness.profile import Profile
from context_agent.harness.profile import profile as named_profile
from context_agent.harness.tools import EDITS
from context_agent.harness.trajectory import (
    ActionTaken,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    ToolResult,
    Trajectory,
    TurnClosed,
)
from context_agent.pruning.view import Block, Role, Text
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import TokenCounter, counter_named

WORLDLY = frozenset(
    {StopReason.TIME, StopReason.CANCELLED, StopReason.POLICY_ERROR, StopReason.CORPUS_ERROR},
)
"""Ends that no action brought about: the last turn may be half recorded, and the end is not played again."""
_SHOWN = 60
"""Characters of a text that a difference quotes."""


class Cause(StrEnum):
    """Why a recorded episode is not shown again as it was."""

    TORN = "torn"
    """The record has no end: a process was killed while it was written."""
    UNSOUND = "unsound"
    """The record contradicts itself: it does not replay to its own views."""
    CORPUS = "other corpus"
    """The record is of a corpus of another name."""
    PROFILE = "profile"
    """The profile of that name is worded otherwise today."""
    COUNTER = "counter"
    """A text of the same words takes another number of tokens, or nothing here counts as the record did."""
    GONE = "chunk gone"
    """The record shows a chunk that the corpus does not have."""
    TEXT = "text changed"
    """A chunk of the record has other words or another title."""
    NEW = "new chunk"
    """A result shows a chunk that the record shows nowhere. Whether it was in the corpus then is not recorded."""
    RANKS = "ranks changed"
    """A result has its chunks in another order, or others of those that the record knows."""
    HARNESS = "harness"
    """The same chunks, shown or answered in another way: the code of the harness has changed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference. `turn` is where it is, -1 for what comes before the first one; `detail` says what."""

    cause: Cause
    turn: int
    detail: str


async def rerun(
    trajectory: Trajectory,
    corpus: Corpus,
    *,
    counter: TokenCounter | None = None,
    profile: Profile | None = None,
    recorded_profile: bool = False,
    any_corpus: bool = False,
) -> Difference | None:
    """The first difference between the record and the same actions today; None where every view is the same.

    `counter` stands in for a model's own, where the record was counted by one. `profile` is what is served today,
    by default the one that ships under the recorded name; with `recorded_profile` its wording is not compared. A
    corpus of another name (its revision aside) is not played on unless `any_corpus`. Raises `CorpusError` for a
    corpus that cannot be used.
    """
    header = trajectory.header
    if (found := _unfit(trajectory)) is not None:
        return found
    if not any_corpus and source_of(header.corpus) != source_of(corpus.name):
        return Difference(Cause.CORPUS, -1, f"recorded on {header.corpus}, and this is {corpus.name}")
    recorded = Profile.from_json(header.profile)
    if not recorded_profile and (found := _reworded(recorded, profile)) is not None:
        return found
    counting = counter_named(header.counter) if counter is None or counter.name != header.counter else counter
    if counting is None:
        return Difference(Cause.COUNTER, -1, f"counted by {header.counter}, which is not at hand: give its tokenizer")
    return await _Rerun(trajectory, corpus).play(recorded, counting)


def source_of(name: str) -> str:
    """A corpus' name without what changes with its content: `chroma:notes` of `chroma:notes@7`, `memory` of any."""
    return "memory" if name.startswith("memory:") else name.rpartition("@")[0] or name


def _unfit(trajectory: Trajectory) -> Difference | None:
    """What is wrong with the record by itself."""
    if trajectory.end is None:
        turn = max((one.turn for one in trajectory.events if isinstance(one, ActionTaken)), default=-1)
        return Difference(Cause.TORN, turn, "the record has no end")
    try:
        trajectory.verify()
    except (TrajectoryError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Difference(Cause.UNSOUND, -1, str(error))
    return None


def _reworded(recorded: Profile, given: Profile | None) -> Difference | None:
    """How the profile of the recorded name reads otherwise today; None where no profile of that name is known."""
    try:
        today = given or named_profile(recorded.name)
    except ConfigError:
        return None
    other = [one.name for one in fields(Profile) if getattr(recorded, one.name) != getattr(today, one.name)]
    if not other:
        return None
    return Difference(Cause.PROFILE, -1, f"profile {recorded.name!r} has another {', '.join(other)} today")


class _Rerun:
    """One record played anew, in step with itself."""

    def __init__(self, trajectory: Trajectory, corpus: Corpus) -> None:
        self._header = trajectory.header
        self._corpus = corpus
        self._turns = list(_by_action(trajectory.events))
        self._end = trajectory.end
        self._blocks = {block.id for event in trajectory.events for block in _blocks(event)}

    async def play(self, profile: Profile, counter: TokenCounter) -> Difference | None:
        opening, *turns = self._turns
        worldly = self._end is not None and self._end.stop_reason in WORLDLY
        try:
            episode = self._open(opening, profile, counter)
        except (BudgetError, ConfigError) as error:
            return Difference(Cause.HARNESS, -1, f"it cannot be begun today: {error}")
        episode.open()
        if (found := self._compared(opening, episode.trajectory.events, whole=True)) is not None:
            return found
        for number, events in enumerate(turns):
            acted = events[0]
            assert isinstance(acted, ActionTaken)
            if episode.done:
                return Difference(
                    Cause.HARNESS, acted.turn, f"it ends here by {episode.stop_reason}; the record goes on"
                )
            before = len(episode.trajectory.events)
            await episode.step(acted.action)
            whole = not (worldly and number == len(turns) - 1)
            if (found := self._compared(events, episode.trajectory.events[before:], whole=whole)) is not None:
                return found
        return None if worldly else self._ended(episode)

    def _open(self, opening: Sequence[Event], profile: Profile, counter: TokenCounter) -> Episode:
        header = self._header
        known = {one.name for one in fields(Limits)}
        limits = Limits(**{name: value for name, value in header.limits.items() if name in known})
        prompt = next((one for event in opening for one in _texts(event) if one.role is Role.PROMPT), None)
        return Episode(
            header.question,
            self._corpus,
            profile=profile,
            budget=header.budget,
            # Time is not played again: what it ended is told by the record.
            limits=replace(limits, seconds=None),
            counter=counter if prompt is None else _Opening(counter, prompt),
            instructions="" if prompt is None else prompt.text,
            where=header.where,
            seed=header.seed,
        )

    def _ended(self, episode: Episode) -> Difference | None:
        assert self._end is not None
        if episode.stop_reason == self._end.stop_reason:
            return None
        said = f"it ended by {self._end.stop_reason}, and today by {episode.stop_reason or 'nothing: it would go on'}"
        return Difference(Cause.HARNESS, self._end.turns, said)

    def _compared(self, recorded: Sequence[Event], today: Sequence[Event], *, whole: bool) -> Difference | None:
        """The first difference of a turn; a turn that is not `whole` is compared as far as it was recorded."""
        news = [event for event in today if not isinstance(event, EpisodeEnded)]
        for old, new in zip_longest(recorded, news if whole else news[: len(recorded)]):
            event = old or new
            found = self._difference(old, new)
            if found is not None:
                return Difference(found[0], getattr(event, "turn", -1), found[1])
        return None

    def _difference(self, old: Event | None, new: Event | None) -> tuple[Cause, str] | None:
        match old, new:
            case ToolResult(), ToolResult():
                return self._result(old, new)
            case PromptShown(), PromptShown():
                return _wording(old.segments, new.segments, "the opening")
            case ActionTaken(), ActionTaken():
                return _sized(old.text, old.tokens, new.text, new.tokens, "the action") or _otherwise(
                    old.shown == new.shown, "the action's place in the window"
                )
            case EditApplied(), EditApplied():
                return _otherwise((old.edit, old.cost) == (new.edit, new.cost), "the edit or its bill")
            case TurnClosed(), TurnClosed():
                return _wording((old.segment,), (new.segment,), "the usage line")
        names = [type(one).__name__.lower() if one is not None else "nothing" for one in (old, new)]
        return Cause.HARNESS, f"the record has {names[0]} where today there is {names[1]}"

    def _result(self, old: ToolResult, new: ToolResult) -> tuple[Cause, str] | None:
        """How the results of one call differ: by the chunks first, then by how they are shown, then by the rest."""
        call = f"{old.name} {str(next(iter(old.arguments.values()), ''))[:_SHOWN]!r}"
        if (old.call, old.name) != (new.call, new.name):
            return Cause.HARNESS, f"call {old.call} was {old.name}, and is {new.name}"
        before, now = _blocks(old), _blocks(new)
        found = self._chunks(before, now)
        if found is None:
            found = next((one for pair in zip(before, now, strict=True) if (one := _shown(*pair)) is not None), None)
        if found is None:
            found = _wording(_texts(old), _texts(new), "what was said beside the chunks")
            if found is not None and found[0] is Cause.HARNESS and old.name not in EDITS:
                found = Cause.RANKS, found[1]
        return None if found is None else (found[0], f"{call}: {found[1]}")

    def _chunks(self, before: Sequence[Block], now: Sequence[Block]) -> tuple[Cause, str] | None:
        """Which chunks came, went, changed or moved."""
        old, new = [one.id for one in before], [one.id for one in now]
        today = {one.id: one.hit.chunk for one in now}
        today |= {one.id: one for one in self._corpus.get([one for one in old if one not in today])}
        for block in before:
            chunk = today.get(block.id)
            if chunk is None:
                return Cause.GONE, f"{block.id} is not in the corpus"
            if (chunk.text, chunk.title) != (block.hit.chunk.text, block.hit.chunk.title):
                return Cause.TEXT, f"{block.id} has another {'text' if chunk.text != block.hit.chunk.text else 'title'}"
        fresh = next((one for one in new if one not in self._blocks), None)
        if fresh is not None:
            return Cause.NEW, f"{fresh} is shown now"
        if old != new:
            return Cause.RANKS, f"it showed {', '.join(old) or 'nothing'}, and now {', '.join(new) or 'nothing'}"
        return None


class _Opening:
    """A counter to which the recorded opening is as long as it was: a policy's own framing, not a text to be split."""

    def __init__(self, counter: TokenCounter, prompt: Text) -> None:
        self._counter = counter
        self._prompt = prompt
        self.name = counter.name

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return self._prompt.tokens if text == self._prompt.text else self._counter.count(text)


def _by_action(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The opening, then each action with what it brought about; the end left out."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, ActionTaken):
            yield found
            found = []
        if not isinstance(event, EpisodeEnded):
            found.append(event)
    yield found


def _blocks(event: Event) -> list[Block]:
    segments = event.segments if isinstance(event, ToolResult) else ()
    return [one for one in segments if isinstance(one, Block)]


def _texts(event: Event) -> list[Text]:
    segments = event.segments if isinstance(event, ToolResult | PromptShown) else ()
    return [one for one in segments if isinstance(one, Text)]


def _shown(old: Block, new: Block) -> tuple[Cause, str] | None:
    """How one chunk, the same then and now, is shown otherwise. A header names the chunk's size, so size goes first."""
    if old.tokens != new.tokens and old.whole and old.body == new.body:
        return Cause.COUNTER, f"{old.id} took {old.tokens} tokens, and takes {new.tokens}"
    return _otherwise((old.text, old.whole) == (new.text, new.whole), f"how {old.id} is shown")


def _wording(old: Sequence[Text], new: Sequence[Text], what: str) -> tuple[Cause, str] | None:
    for one, other in zip_longest(old, new):
        said, says = (segment.text if segment is not None else "" for segment in (one, other))
        took, takes = (segment.tokens if segment is not None else 0 for segment in (one, other))
        if (found := _sized(said, took, says, takes, what)) is not None:
            return found
    return None


def _sized(said: str, took: int, says: str, takes: int, what: str) -> tuple[Cause, str] | None:
    """How a text differs: in its words, or in the tokens that they take."""
    if said != says:
        return Cause.HARNESS, f"{what} was {said[:_SHOWN]!r}, and is {says[:_SHOWN]!r}"
    if took != takes:
        return Cause.COUNTER, f"{what} took {took} tokens, and takes {takes}"
    return None


def _otherwise(same: bool, what: str) -> tuple[Cause, str] | None:
    return None if same else (Cause.HARNESS, f"{what} is not as it was")
