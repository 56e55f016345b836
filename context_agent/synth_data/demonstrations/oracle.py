"""The oracle: an expert that knows the gold.

The oracle makes the searches of another policy, called the explorer. It uses its knowledge of the gold to prune, to
stop and to rank. A policy that reads well could do the same.

The oracle prunes in batches, and prunes only chunks in view. It names only ids that were shown. It searches for a gold
document's title only if the question or a shown text contains that title. Two facts do not come from its view: which
chunks matter, and whether it has seen all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from context_agent.budget import Tier
from context_agent.errors import ConfigError
from context_agent.eval.gold import Gold
from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import Profile
from context_agent.harness.tools import EDITS
from context_agent.pruning.view import Block, View
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.stages import off_loop
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId, ToolCall

SEARCH, PRUNE, RESTORE = "search_corpus", "prune_chunks", "restore_chunks"


SHORTEST_TITLE = 4
"""The length of the shortest title for which texts are searched, in characters.

Shorter titles occur by coincidence.
"""


@dataclass(frozen=True, slots=True)
class OracleSettings:
    """The choices of the oracle.

    Attributes:
        pace: The number of the explorer's searches that the oracle makes per turn. The other searches follow in the
            next turns, which makes episodes longer. If None, the oracle makes all searches at once.
        prune_at: The smallest share of the soft threshold, in tokens in view, at which the oracle prunes.
        batch: The smallest number of chunks to prune at once while there is room.
        keep: The smallest number of chunks that a prune leaves in view: gold first, then the chunks that were shown
            first. A model that learns from the episodes then prunes only chunks that it can distinguish from gold.
        streak: The largest number of consecutive turns with a prune while there is room. The published reward punishes
            longer streaks.
        hedge: The number of the explorer's candidates at the end of a ranking that lacks gold.
        length: The length of a filled ranking. If a ranking is shorter, the explorer's candidates fill it up to this
            number of entries.
        noise: The probability, for each chunk in a prune, that the oracle errs. It then keeps waste or prunes gold.
            Pruned gold is restored before the end.
        search_titles: True if the oracle searches for titles of gold documents that shown text mentions.
        names_only: True if the oracle searches for the question first, and then only for names. Names are words of the
            question or of text in view that are not titles in view. Titles of gold documents come first. A turn has at
            most `pace` of these searches. A small model cannot learn the explorer's other searches, which join names or
            repeat the question.
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
                "prune_at must be from 0 to 1, and noise must be at least 0 and below 1; got prune_at = "
                f"{self.prune_at}, noise = {self.noise}"
            )
        if min(self.batch, self.streak) < 1 or min(self.keep, self.hedge, self.length) < 0:
            raise ConfigError(
                "batch and streak must be at least 1, and keep, hedge and length must be at least 0; got batch = "
                f"{self.batch}, streak = {self.streak}, keep = {self.keep}, hedge = {self.hedge}, length = "
                f"{self.length}"
            )
        if self.pace is not None and self.pace < 1:
            raise ConfigError(f"pace must be at least 1; got {self.pace}")


class OraclePolicy:
    """The explorer's searches, guided by the gold. One policy plays any number of episodes of one task."""

    def __init__(
        self,
        explorer: Policy,
        gold: Gold,
        *,
        settings: OracleSettings | None = None,
        extended: bool = True,
        counter: TokenCounter | None = None,
        instructions: Instructions | None = None,
    ) -> None:
        """Create the policy of one task.

        Args:
            explorer: The policy that chooses the searches of the oracle.
            gold: The gold of the task.
            settings: The choices of the oracle.
            extended: True if the profile has the arguments `limit` and `all_but`. If not, the oracle does not use them.
            counter: The token counter. Defaults to the explorer's counter.
            instructions: The instructions of the model that will learn, with their size in its prompt. Defaults to the
                profile's prompt.
        """
        self.name = f"oracle+{explorer.name}"
        self._explorer = explorer
        self._gold = gold
        self._settings = settings or OracleSettings()
        self._extended = extended
        self._counter = counter
        self._instructions = instructions

    @property
    def counter(self) -> TokenCounter | None:
        """The oracle's token counter. If it was not set, this is the explorer's counter."""
        return self._counter or self._explorer.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the instructions of the model that will learn, or the profile's prompt.

        A policy trained on the episode sees the same prompt.
        """
        return self._instructions or profile.instructions()

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> OracleActor:
        """Return an actor for one episode. `seed` determines the noise."""
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
        """Titles of gold documents that were not searched for yet, each with the needs that it meets."""
        self._waiting: tuple[ToolCall, ...] = ()
        """Searches of the explorer that `pace` has deferred."""
        self._searched: set[str] = set()
        """The names that `names_only` has searched for, in lower case."""
        self._pruned_in_a_row = 0
        self._ending = False

    async def act(self, view: View) -> Action:
        """Return the explorer's next searches with the oracle's edits.

        If no gold is missing, or no search is left, return the ranking instead.
        """
        if not self._ending:
            searches, pressed = await self._searches(view)
            if searches:
                edit = self._prune(view, pressed)
                self._pruned_in_a_row = self._pruned_in_a_row + 1 if edit else 0
                # The oracle's edit takes the place of the explorer's, because the explorer knows its calls by index.
                calls = (*edit, *searches) if pressed else (*searches, *edit)
                return Action(calls=calls)
            self._ending = True
            if edits := self._last_edits(view):
                return Action(calls=edits)
        return Action(ranking=self._ranking(view))

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the ranking for this view, for an episode that a limit ends."""
        return self._ranking(view)

    async def _searches(self, view: View) -> tuple[tuple[ToolCall, ...], bool]:
        """Return the next searches, and True if the explorer pruned to make room for its own.

        If all gold was seen, return no searches.
        """
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
        # A name replaces the explorer's least promising search, because it needs that search's room.
        explored = searches[: max(0, len(searches) - len(titles))]
        pace = max(1, len(explored) if self._settings.pace is None else self._settings.pace - len(titles))
        self._waiting = explored[pace:]
        calls = (*explored[:pace], *(ToolCall(SEARCH, {"query": title, "limit": 4}) for title in titles))
        return tuple(self._declared(call) for call in calls), pressed

    async def _names(self, view: View, searches: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """Return searches for names: titles of missing gold first, then the explorer's names.

        If nothing was searched for yet, search for the question.
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
        """Return True if one of the searches looks for the title.

        If there is a pace, only a query that equals the title counts. A query with further words may wait for several
        turns.
        """
        queries = [query.casefold() for query in _queries(searches)]
        title = title.casefold()
        return title in queries if self._settings.pace else any(title in query for query in queries)

    def _declared(self, call: ToolCall) -> ToolCall:
        if self._extended or not isinstance(call.arguments, dict):
            return call
        return ToolCall(call.name, {key: value for key, value in call.arguments.items() if key != "limit"}, call.id)

    async def _named(self, view: View) -> list[str]:
        """Return the titles of missing gold documents that are in the question or in view.

        No title is returned twice.
        """
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
        """Return the titles of gold documents without brackets, each with the needs that its documents meet."""
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
        """If a prune is due, return a prune of the waste in view. If not, return nothing."""
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
        """Return True if the oracle prunes the block.

        The oracle prunes waste and keeps gold. With noise, it sometimes keeps waste, or prunes gold that it can
        restore.
        """
        wrong = self._draw.random() < self._settings.noise
        return (wrong and RESTORE in view.tools) if self._meets(block) else not wrong

    def _last_edits(self, view: View) -> tuple[ToolCall, ...]:
        """Return edits that restore the gold that noise pruned, and that prune waste to make room."""
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


def _queries(calls: Iterable[ToolCall]) -> list[str]:
    return [str(call.arguments["query"]) for call in calls if call.name == SEARCH and isinstance(call.arguments, dict)]


def _plain(title: str) -> str:
    """Return a title without the brackets at its end."""
    return title.split(" (", maxsplit=1)[0].strip()
