"""A check whether a recorded episode would still look the same today. It repeats the actions on today's corpus and
harness.

Training rows are made of recorded views. After a change of the corpus or the harness, no policy will see those views
again. `rerun` repeats the recorded actions in a new `Episode` with the recorded profile, budget, limits and filter. It
compares, event by event, what each action brought into the view. It stops at the first difference, because everything
after it depends on another view.

The comparison covers what a policy reads: the texts, their order and their sizes in tokens. It ignores the scores of
the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import zip_longest

from context_agent.errors import BudgetError, ConfigError, TrajectoryError
from context_agent.harness.episode import Episode, EpisodeRequest, Limits, StopReason
from context_agent.harness.policy import Instructions
from context_agent.harness.profile import Profile, named_profile
from context_agent.harness.tools import EDITS
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    Role,
    Text,
    ToolResult,
    TurnClosed,
)
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter, counter_named

EXTERNAL_STOPS = frozenset(
    {StopReason.TIME, StopReason.CANCELLED, StopReason.POLICY_ERROR, StopReason.CORPUS_ERROR},
)
"""The stop reasons that no action causes.

After such a stop, the last turn may be incomplete, so the end is not compared.
"""
_QUOTED = 60
"""The maximum number of characters of a text that a difference quotes."""


class Cause(StrEnum):
    """The reason why a recorded episode looks different today."""

    TORN = "torn"
    """The record has no end, because its process was killed while writing it."""
    UNSOUND = "unsound"
    """The record does not replay to the views that it contains."""
    CORPUS = "other corpus"
    """The record was made on a corpus with another name."""
    PROFILE = "profile"
    """The wording of the profile with that name has changed."""
    COUNTER = "counter"
    """The same text has another number of tokens, or the record's token counter is not available."""
    GONE = "chunk gone"
    """The record shows a chunk that the corpus does not have."""
    TEXT = "text changed"
    """The text or title of a recorded chunk has changed."""
    NEW = "new chunk"
    """A result shows a chunk that the record never shows. Whether the corpus had it then is not recorded."""
    RANKS = "ranks changed"
    """A result shows its chunks in another order, or shows other chunks that the record knows."""
    HARNESS = "harness"
    """The harness shows the same chunks differently, or answers the same call differently, so its code has changed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a record and its rerun.

    Attributes:
        cause: The reason for the difference.
        turn: The turn in which it occurs, or -1 before the first turn.
        detail: A description of the difference.
    """

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
    """Repeat the actions of a recorded episode, and return the first difference from the record.

    Args:
        trajectory: The recorded episode.
        corpus: The corpus to repeat it on.
        counter: A token counter to use if it has the recorded name. Otherwise the counter of that name is looked up.
        profile: The profile in use today. Defaults to the profile that ships under the recorded name.
        recorded_profile: If True, changes in the profile's wording are not a difference.
        any_corpus: If True, the corpus may have another name. A difference in the revision alone is always accepted.

    Returns:
        The first difference, or None if every view is the same.

    Raises:
        CorpusError: If the corpus cannot be used.
    """
    header = trajectory.header
    if (difference := _unusable(trajectory)) is not None:
        return difference
    if not any_corpus and source_of(header.corpus) != source_of(corpus.name):
        return Difference(Cause.CORPUS, -1, f"the record is of {header.corpus}, and this corpus is {corpus.name}")
    recorded = header.profile
    if not recorded_profile and (difference := _profile_difference(recorded, profile)) is not None:
        return difference
    recorded_counter = counter_named(header.counter) if counter is None or counter.name != header.counter else counter
    if recorded_counter is None:
        detail = f"the record was counted by {header.counter}, which is not available: pass its tokenizer"
        return Difference(Cause.COUNTER, -1, detail)
    return await _Rerun(trajectory, corpus).play(recorded, recorded_counter)


def source_of(name: str) -> str:
    """Return a corpus name without the part that changes with its content.

    For example, `chroma:notes@7` gives `chroma:notes`.
    """
    return "memory" if name.startswith("memory:") else name.rpartition("@")[0] or name


def _unusable(trajectory: Trajectory) -> Difference | None:
    """Return a difference if the record is incomplete or does not replay."""
    if trajectory.end is None:
        turn = max((event.turn for event in trajectory.events if isinstance(event, ActionTaken)), default=-1)
        return Difference(Cause.TORN, turn, "the record has no end")
    try:
        trajectory.verify()
    except (TrajectoryError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Difference(Cause.UNSOUND, -1, str(error))
    return None


def _profile_difference(recorded: Profile, current: Profile | None) -> Difference | None:
    """Return how the wording of the recorded profile has changed. If no profile has that name today, return None."""
    try:
        current = current or named_profile(recorded.name)
    except ConfigError:
        return None
    changed = [field.name for field in fields(Profile) if getattr(recorded, field.name) != getattr(current, field.name)]
    if not changed:
        return None
    return Difference(Cause.PROFILE, -1, f"the profile {recorded.name!r} has another {', '.join(changed)} today")


class _Rerun:
    """A new episode that repeats the actions of one record and is compared with it event by event."""

    def __init__(self, trajectory: Trajectory, corpus: Corpus) -> None:
        self._header = trajectory.header
        self._corpus = corpus
        self._turns = list(_by_action(trajectory.events))
        self._end = trajectory.end
        self._recorded_ids = {block.id for event in trajectory.events for block in _blocks(event)}

    async def play(self, profile: Profile, counter: TokenCounter) -> Difference | None:
        opening, *turns = self._turns
        external_stop = self._end is not None and self._end.stop_reason in EXTERNAL_STOPS
        try:
            episode = self._open(opening, profile, counter)
        except (BudgetError, ConfigError) as error:
            return Difference(Cause.HARNESS, -1, f"the episode cannot start today: {error}")
        episode.open()
        if (difference := self._compare(opening, episode.trajectory.events, complete=True)) is not None:
            return difference
        for number, events in enumerate(turns):
            acted = events[0]
            assert isinstance(acted, ActionTaken)
            if episode.done:
                detail = f"the episode ends here by {episode.stop_reason}; the record continues"
                return Difference(Cause.HARNESS, acted.turn, detail)
            before = len(episode.trajectory.events)
            await episode.step(acted.action)
            complete = not (external_stop and number == len(turns) - 1)
            difference = self._compare(events, episode.trajectory.events[before:], complete=complete)
            if difference is not None:
                return difference
        return None if external_stop else self._compare_end(episode)

    def _open(self, opening: Sequence[Event], profile: Profile, counter: TokenCounter) -> Episode:
        header = self._header
        names = {field.name for field in fields(Limits)}
        limits = Limits(**{name: value for name, value in header.limits.items() if name in names})
        texts = (text for event in opening for text in _texts(event))
        prompt = next((text for text in texts if text.role is Role.PROMPT), None)
        return Episode(
            EpisodeRequest(header.question, where=header.where, seed=header.seed, budget=header.budget),
            self._corpus,
            profile=profile,
            # The record shows whether time ran out. A faster machine must not change that.
            limits=replace(limits, seconds=None),
            counter=counter,
            instructions="" if prompt is None else Instructions(prompt.text, prompt.tokens),
        )

    def _compare_end(self, episode: Episode) -> Difference | None:
        assert self._end is not None
        if episode.stop_reason == self._end.stop_reason:
            return None
        today = f"ends by {episode.stop_reason}" if episode.stop_reason else "continues"
        detail = f"the recorded episode ended by {self._end.stop_reason}; today it {today}"
        return Difference(Cause.HARNESS, self._end.turns, detail)

    def _compare(self, recorded: Sequence[Event], today: Sequence[Event], *, complete: bool) -> Difference | None:
        """Return the first difference between the events of a turn.

        If the recorded turn is incomplete, only the events that were recorded are compared.
        """
        played = [event for event in today if not isinstance(event, EpisodeEnded)]
        for old, new in zip_longest(recorded, played if complete else played[: len(recorded)]):
            event = old or new
            difference = self._event_difference(old, new)
            if difference is not None:
                return Difference(difference[0], getattr(event, "turn", -1), difference[1])
        return None

    def _event_difference(self, old: Event | None, new: Event | None) -> tuple[Cause, str] | None:
        match old, new:
            case ToolResult(), ToolResult():
                return self._result_difference(old, new)
            case PromptShown(), PromptShown():
                return _texts_difference(old.segments, new.segments, "the prompt")
            case ActionTaken(), ActionTaken():
                return _text_difference(
                    (old.text, old.tokens), (new.text, new.tokens), "the action"
                ) or _harness_difference(old.fits == new.fits, "whether the view shows the action")
            case EditApplied(), EditApplied():
                return _harness_difference((old.edit, old.cost) == (new.edit, new.cost), "the edit or its cost")
            case TurnClosed(), TurnClosed():
                return _texts_difference((old.segment,), (new.segment,), "the usage line")
        names = [type(event).__name__.lower() if event is not None else "nothing" for event in (old, new)]
        return Cause.HARNESS, f"the record has {names[0]} and today there is {names[1]}"

    def _result_difference(self, old: ToolResult, new: ToolResult) -> tuple[Cause, str] | None:
        """Return how the results of one call differ.

        They can differ in their chunks, in how the chunks are shown, or in the text beside them.
        """
        call = f"{old.name} {str(next(iter(old.arguments.values()), ''))[:_QUOTED]!r}"
        if (old.call, old.name) != (new.call, new.name):
            return Cause.HARNESS, f"call {old.call} was {old.name} and is {new.name}"
        before, now = _blocks(old), _blocks(new)
        difference = self._chunk_difference(before, now)
        if difference is None:
            blocks = (_block_difference(*pair) for pair in zip(before, now, strict=True))
            difference = next((block for block in blocks if block is not None), None)
        if difference is None:
            difference = _texts_difference(_texts(old), _texts(new), "the text beside the chunks")
            if difference is not None and difference[0] is Cause.HARNESS and old.name not in EDITS:
                difference = Cause.RANKS, difference[1]
        return None if difference is None else (difference[0], f"{call}: {difference[1]}")

    def _chunk_difference(self, before: Sequence[Block], now: Sequence[Block]) -> tuple[Cause, str] | None:
        """Return the first chunk that is missing, new, changed or moved."""
        old, new = [block.id for block in before], [block.id for block in now]
        today = {block.id: block.hit.chunk for block in now}
        today |= {chunk.id: chunk for chunk in self._corpus.get([old_id for old_id in old if old_id not in today])}
        for block in before:
            chunk, recorded = today.get(block.id), block.hit.chunk
            if chunk is None:
                return Cause.GONE, f"{block.id} is not in the corpus"
            if (chunk.text, chunk.title) != (recorded.text, recorded.title):
                return Cause.TEXT, f"{block.id} has another {'text' if chunk.text != recorded.text else 'title'}"
        new_id = next((block_id for block_id in new if block_id not in self._recorded_ids), None)
        if new_id is not None:
            return Cause.NEW, f"{new_id} is shown now"
        if old != new:
            return Cause.RANKS, f"it showed {', '.join(old) or 'nothing'} and now shows {', '.join(new) or 'nothing'}"
        return None


def _by_action(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events before the first action, and then each action with the events that follow it.

    The event that ends the episode is left out.
    """
    group: list[Event] = []
    for event in events:
        if isinstance(event, ActionTaken):
            yield group
            group = []
        if not isinstance(event, EpisodeEnded):
            group.append(event)
    yield group


def _blocks(event: Event) -> list[Block]:
    segments = event.segments if isinstance(event, ToolResult) else ()
    return [segment for segment in segments if isinstance(segment, Block)]


def _texts(event: Event) -> list[Text]:
    segments = event.segments if isinstance(event, ToolResult | PromptShown) else ()
    return [segment for segment in segments if isinstance(segment, Text)]


def _block_difference(old: Block, new: Block) -> tuple[Cause, str] | None:
    """Return how the same chunk is shown differently.

    The size is compared first, because the header of a block contains the chunk's size.
    """
    if old.tokens != new.tokens and old.complete and old.body == new.body:
        return Cause.COUNTER, f"{old.id} had {old.tokens} tokens and has {new.tokens}"
    return _harness_difference((old.text, old.complete) == (new.text, new.complete), f"how {old.id} is shown")


def _texts_difference(old: Sequence[Text], new: Sequence[Text], what: str) -> tuple[Cause, str] | None:
    for pair in zip_longest(old, new):
        before, now = ((text.text, text.tokens) if text is not None else ("", 0) for text in pair)
        if (difference := _text_difference(before, now, what)) is not None:
            return difference
    return None


def _text_difference(old: tuple[str, int], new: tuple[str, int], what: str) -> tuple[Cause, str] | None:
    """Return how two texts or their numbers of tokens differ."""
    if old[0] != new[0]:
        return Cause.HARNESS, f"{what} was {old[0][:_QUOTED]!r} and is {new[0][:_QUOTED]!r}"
    if old[1] != new[1]:
        return Cause.COUNTER, f"{what} had {old[1]} tokens and has {new[1]}"
    return None


def _harness_difference(same: bool, what: str) -> tuple[Cause, str] | None:
    return None if same else (Cause.HARNESS, f"{what} has changed")
