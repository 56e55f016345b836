"""The oracle: an expert that knows the gold.

The oracle explores as another policy does, and edits, stops and ranks with hindsight. A policy that reads well could do
the same. The oracle prunes only what is in view, in batches, and names no id that was not shown. It searches for a gold
document's title only if that title is in the question or in text that was shown. What it knows beyond its view is which
of the chunks matter, and when it has seen all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from context_agent.errors import ConfigError
from context_agent.eval.gold import Gold
from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import Profile
from context_agent.harness.tools import EDITS
from context_agent.pruning.budget import Tier
from context_agent.pruning.view import Block, View
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.stages import off_loop
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId, ToolCall


def _queries(calls: Iterable[ToolCall]) -> list[str]:
    return [str(call.arguments["query"]) for call in calls if call.name == SEARCH and isinstance(call.arguments, dict)]


def _plain(title: str) -> str:
    """Return a title without what stands in brackets behind it."""
    return title.split(" (", maxsplit=1)[0].strip()


SEARCH, PRUNE, RESTORE = "search_corpus", "prune_chunks", "restore_chunks"


SHORTEST_TITLE = 4
"""Characters from which a title is searched for in texts: shorter ones occur by coincidence."""


@dataclass(frozen=True, slots=True)
class OracleSettings:
    """The choices of the oracle.

    - `pace`: how many of the explorer's searches it makes in a turn; the others follow in the next turns, which makes
      episodes longer. None: all at once.
    - `prune_at`: the share of the soft threshold from which it prunes.
    - `batch`: the fewest chunks of a prune while there is room.
    - `keep`: the fewest chunks that a prune leaves in view: gold, then those that were shown first. A model that learns
      from it then prunes only what it can tell from gold.
    - `streak`: the most turns in a row with a prune while there is room; the published reward punishes longer ones.
    - `hedge`: how many of the explorer's candidates end a ranking that lacks gold.
    - `length`: entries up to which the explorer's candidates fill any ranking.
    - `noise`: the probability, for each chunk in a prune, that waste stays or gold is pruned. Pruned gold is restored
      before the end.
    - `search_titles`: whether it searches for titles of gold documents that were mentioned in shown text.
    - `names_only`: whether it searches for the question alone first and then only for names: words of the question or
      of text in view that are no title in view, titles of gold documents first; at most `pace` in a turn. The
      explorer's other searches, which join names or repeat the question, are more than a small model learns.
    """

    pace: int | None = None
    prune_at: float = 0.5
    batch: int = 3
    keep: int = 0
    streak: int = 3
    hedge: int = 3
    length: int = 0
    noise: float = 0.0
    search_titles: bool = True
    names_only: bool = False

    @property
    def description(self) -> str:
        """All settings as text, for the journal of a run."""
        return (
            f"pace={self.pace}, prune_at={self.prune_at}, batch={self.batch}, keep={self.keep}, streak={self.streak}, "
            f"hedge={self.hedge}, length={self.length}, noise={self.noise}, named={self.search_titles}, "
            f"names_only={self.names_only}"
        )

    def __post_init__(self) -> None:
        if not 0 <= self.prune_at <= 1 or not 0 <= self.noise < 1:
            raise ConfigError(
                f"prune_at must be in 0..1 and noise at least 0 and below 1; got {self.prune_at} and {self.noise}"
            )
        if min(self.batch, self.streak) < 1 or min(self.keep, self.hedge, self.length) < 0:
            raise ConfigError(
                "batch and streak must be at least 1, keep, hedge and length at least 0; "
                f"got {self.batch}, {self.streak}, {self.keep}, {self.hedge} and {self.length}"
            )
        if self.pace is not None and self.pace < 1:
            raise ConfigError(f"pace must be at least 1; got {self.pace}")


class OraclePolicy:
    """The explorer with the gold as its judge; for one task and any number of episodes."""

    def __init__(
        self,
        explorer: Policy,
        gold: Gold,
        *,
        settings: OracleSettings | None = None,
        extended: bool = True,
        counter: TokenCounter | None = None,
    ) -> None:
        """`extended` says whether the profile has the arguments `limit` and `all_but`; if not, they are not used."""
        self.name = f"oracle+{explorer.name}"
        self._explorer = explorer
        self._gold = gold
        self._settings = settings or OracleSettings()
        self._extended = extended
        self._counter = counter

    @property
    def counter(self) -> TokenCounter | None:
        """Its own token counter, or the explorer's."""
        return self._counter or self._explorer.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the profile's prompt, since a policy that imitates the episode will have it in view."""
        return profile.instructions()

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> OracleActor:
        """Return an actor for one episode; `seed` determines the noise."""
        explorer = self._explorer.open(question, corpus, profile=profile, seed=seed)
        return OracleActor(question, corpus, explorer, self._gold, self._settings, seed=seed, extended=self._extended)


class OracleActor:
    """The oracle in one episode."""

    def __init__(
        self,
        question: str,
        corpus: Corpus,
        explorer: Actor,
        gold: Gold,
        settings: OracleSettings,
        *,
        seed: int = 0,
        extended: bool = True,
    ) -> None:
        self._question = question
        self._corpus = corpus
        self._explorer = explorer
        self._gold = gold
        self._settings = settings
        self._extended = extended
        self._draw = random.Random(f"{seed}:{question}")
        self._titles: dict[str, frozenset[int]] | None = None
        """Titles of gold documents that were not searched for yet, with the needs that each meets."""
        self._waiting: tuple[ToolCall, ...] = ()
        """Searches of the explorer that `pace` has deferred."""
        self._searched: set[str] = set()
        """What `names_only` has searched for, in lower case."""
        self._pruned_in_a_row = 0
        self._ending = False

    async def act(self, view: View) -> Action:
        """Return the explorer's searches with the oracle's edits; the ranking if no gold is missing or no search is
        left.
        """
        if not self._ending:
            searches, pressed = await self._searches(view)
            if searches:
                edit = self._prune(view, pressed)
                self._pruned_in_a_row = self._pruned_in_a_row + 1 if edit else 0
                # An edit of the explorer's that is replaced keeps its place, so that it knows its calls by their index.
                calls = (*edit, *searches) if pressed else (*searches, *edit)
                return Action(calls=calls)
            self._ending = True
            if edits := self._last_edits(view):
                return Action(calls=edits)
        return Action(ranking=self._ranking(view))

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the ranking for this view if a limit ends the episode."""
        return self._ranking(view)

    async def _searches(self, view: View) -> tuple[tuple[ToolCall, ...], bool]:
        """Return the next searches, none if all gold was seen, and whether the explorer needed room for its own."""
        if len(self._met((*view.blocks, *view.pruned))) == self._gold.needs:
            return (), False
        searches, pressed = self._waiting, False
        if not searches or self._settings.names_only:
            action = await self._explorer.act(view)
            searches = tuple(call for call in action.calls if call.name not in EDITS)
            pressed = len(searches) < len(action.calls)
        if self._settings.names_only:
            return await self._names(view, (*searches, *self._waiting)), pressed
        titles = [title for title in await self._named(view) if not self._covers(searches, title)]
        # A name takes the place of the explorer's least promising search, whose room it needs.
        explored = searches[: max(0, len(searches) - len(titles))]
        pace = max(1, len(explored) if self._settings.pace is None else self._settings.pace - len(titles))
        self._waiting = explored[pace:]
        calls = (*explored[:pace], *(ToolCall(SEARCH, {"query": title, "limit": 4}) for title in titles))
        return tuple(self._declared(call) for call in calls), pressed

    async def _names(self, view: View, searches: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """Return the question if nothing was searched for yet, else names: of missing gold first, then what was
        explored.
        """
        explored = _queries(searches)
        if not self._searched:
            names, later = [self._question], explored
        else:
            read = "\n".join((self._question, *(block.text for block in view.blocks))).casefold()
            excluded = self._searched | {_plain(block.hit.chunk.title).casefold() for block in view.blocks}
            explored = [query for query in explored if query.casefold() in read and query.casefold() not in excluded]
            titles = [title for title in await self._named(view) if title.casefold() not in self._searched]
            queries = list(dict.fromkeys((*titles, *explored)))
            pace = self._settings.pace or len(queries)
            names, later = queries[:pace], queries[pace:]
        self._waiting = tuple(ToolCall(SEARCH, {"query": query}) for query in later)
        self._searched |= {query.casefold() for query in names}
        return tuple(ToolCall(SEARCH, {"query": query}) for query in names)

    def _covers(self, searches: Iterable[ToolCall], title: str) -> bool:
        """Return whether the searches look for the title. With a pace, one that only contains it may be turns away."""
        queries = [query.casefold() for query in _queries(searches)]
        title = title.casefold()
        return title in queries if self._settings.pace else any(title in query for query in queries)

    def _declared(self, call: ToolCall) -> ToolCall:
        if self._extended or not isinstance(call.arguments, dict):
            return call
        return ToolCall(call.name, {key: value for key, value in call.arguments.items() if key != "limit"}, call.id)

    async def _named(self, view: View) -> list[str]:
        """Return the titles of missing gold documents that are in the question or in view, each once."""
        if not self._settings.search_titles:
            return []
        if self._titles is None:
            self._titles = await off_loop(self._corpus, self._look_up)
        met = self._met((*view.blocks, *view.pruned))
        read = "\n".join((self._question, *(block.text for block in view.blocks))).casefold()
        titles = [title for title, needs in self._titles.items() if not needs <= met and title.casefold() in read]
        for title in titles:
            del self._titles[title]
        return titles

    def _look_up(self) -> dict[str, frozenset[int]]:
        """Return titles without brackets, with the needs that documents of each title meet."""
        title_needs = [
            (chunk.title, met)
            for document, met in self._gold.documents.items()
            for chunk in self._corpus.read(document)[:1]
        ]
        chunks = self._corpus.get(list(self._gold.chunks))
        titles: dict[str, frozenset[int]] = {}
        for title, met in (*title_needs, *((chunk.title, self._gold.chunks[chunk.id]) for chunk in chunks)):
            plain = _plain(title)
            if len(plain) >= SHORTEST_TITLE:
                titles[plain] = titles.get(plain, frozenset()) | met
        return titles

    def _prune(self, view: View, pressed: bool) -> tuple[ToolCall, ...]:
        """Return a prune of the waste in view, if one is due."""
        soft, settings = view.budget.soft, self._settings
        pressed = pressed or view.tier is not Tier.OPEN
        waste = [block for block in view.blocks if not self._meets(block)]
        spared = {block.id for block in waste[: max(0, settings.keep - (len(view.blocks) - len(waste)))]}
        waste = [block for block in waste if block.id not in spared]
        due = len(waste) >= settings.batch and view.tokens >= settings.prune_at * soft
        if not pressed and not (due and self._pruned_in_a_row < settings.streak):
            return ()
        dropped = {block.id for block in view.blocks if block.id not in spared and self._goes(block, view)}
        staying = [block.id for block in view.blocks if block.id not in dropped]
        if not dropped:
            return ()
        if self._extended and 0 < len(staying) < len(dropped):
            return (ToolCall(PRUNE, {"all_but": list(dict.fromkeys(staying))}),)
        return (ToolCall(PRUNE, {"chunk_ids": [block.id for block in view.blocks if block.id in dropped]}),)

    def _goes(self, block: Block, view: View) -> bool:
        """Return whether a block is pruned: waste, and by noise sometimes gold, but only if it can be restored."""
        wrong = self._draw.random() < self._settings.noise
        return (wrong and RESTORE in view.tools) if self._meets(block) else not wrong

    def _last_edits(self, view: View) -> tuple[ToolCall, ...]:
        """Restore the gold that noise pruned, in place of waste."""
        hidden = [block for block in view.pruned if self._meets(block) and not view.shows(block.id)]
        if not hidden or RESTORE not in view.tools:
            return ()
        waste = [block.id for block in view.blocks if not self._meets(block)]
        prune = (ToolCall(PRUNE, {"chunk_ids": list(dict.fromkeys(waste))}),) if waste else ()
        return (*prune, ToolCall(RESTORE, {"chunk_ids": list(dict.fromkeys(block.id for block in hidden))}))

    def _ranking(self, view: View) -> tuple[RankedId, ...]:
        """Return a chunk of each gold document in view, in the order of the needs, and candidates for missing gold."""
        best: dict[str, str] = {}
        for block in sorted((b for b in view.blocks if self._meets(b)), key=lambda b: (min(self._meets(b)), b.key)):
            best.setdefault(block.document_id, block.id)
        ranking = [RankedId(ranked) for ranked in best.values()]
        missing = len(self._met(view.blocks)) < self._gold.needs
        others = max(self._settings.hedge if missing else 0, self._settings.length - len(ranking))
        if others > 0 and isinstance(self._explorer, PartialRanker):
            owner = {block.id: block.document_id for block in view.blocks}
            rest = [ranked for ranked in self._explorer.partial(view) if owner.get(ranked.id, ranked.id) not in best]
            ranking += [RankedId(ranked.id) for ranked in rest[:others]]
        return tuple(ranking)

    def _meets(self, block: Block) -> frozenset[int]:
        return self._gold.found_by(block.document_id, (block.id,))

    def _met(self, blocks: Iterable[Block]) -> frozenset[int]:
        return frozenset().union(*(self._meets(block) for block in blocks))
