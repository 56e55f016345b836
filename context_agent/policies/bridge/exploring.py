"""The embedded policy as a stochastic one: what a training by reward samples its episodes with.

Every decision is a race. Options are drawn one after another, each with probability proportional to
exp(logit / temperature) among those still open (Plackett, 1975; Luce, 1959), by adding Gumbel noise to the logits and
sorting once. Three kinds are run: which names are followed, with stopping as an option whose logit is that of
`Effort.promise`; what stays in view when room is made; and the ranking, for which what was pruned comes back first.
At temperature 0 the best option wins every draw: that is `BridgePolicy`, to the byte, and nothing is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError
from context_agent.harness.profile import Profile
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.expansion import Lookup
from context_agent.policies.bridge.passage import Floats, Passage
from context_agent.policies.bridge.policy import REMEMBERED, BridgePolicy
from context_agent.policies.bridge.scorer import Scorer
from context_agent.policies.bridge.settings import Effort
from context_agent.pruning.view import View
from context_agent.retrieval.protocol import Corpus
from context_agent.types import RankedId, ToolCall

Doubles = NDArray[np.float64]
Places = NDArray[np.int64]
Open = NDArray[np.bool_]


class Kind(StrEnum):
    """What a race decides."""

    FOLLOW = "follow"
    """Which names are looked up in a turn, and whether to stop instead."""
    KEEP = "keep"
    """Which blocks stay when room is made, best first; the others are pruned."""
    RANK = "rank"
    """The ranking, and with it what is brought back into view."""


NETWORK: Mapping[Kind, str] = {Kind.FOLLOW: "expansion", Kind.KEEP: "second", Kind.RANK: "second"}
"""The network whose logits each kind of race is run by. The first one gives features alone and is not drawn from."""


@dataclass(frozen=True, slots=True)
class Race:
    """Draws without replacement, with what it takes to give them another probability under other weights.

    `rows` are the options' features, shape (n, F); `fixed` are logits of further options behind them that no network
    gives. `picks` are the options drawn, shape (K,), `open` those that each draw chose from, shape (K, n + len(fixed)),
    and `drawn` the log-probability of each draw when it was made, shape (K,).
    """

    kind: Kind
    rows: Floats
    picks: Places
    open: Open
    drawn: Doubles
    temperature: float
    fixed: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.picks)

    def log_probabilities(self, logits: Floats | Doubles) -> Doubles:
        """Of each draw, shape (K,), under other logits of the rows, shape (n,)."""
        return log_probabilities(np.append(logits, self.fixed), self.picks, self.open, self.temperature)

    def shares(self, logits: Floats | Doubles) -> Doubles:
        """The probability of every option at each draw, shape (K, n + len(fixed)); 0 for what was not open."""
        return _shares(np.append(logits, self.fixed), self.open, self.temperature)


def log_probabilities(logits: Floats | Doubles, picks: Places, left: Open, temperature: float) -> Doubles:
    """Of drawing the picks, shape (K,), each from the options that `left`, shape (K, options), has open for it."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    masked = np.where(left, scaled, -np.inf)
    top = masked.max(axis=1)
    found: Doubles = scaled[picks] - top - np.log(np.exp(masked - top[:, None]).sum(axis=1))
    return found


def _shares(logits: Floats | Doubles, left: Open, temperature: float) -> Doubles:
    masked = np.where(left, np.asarray(logits, dtype=np.float64) / temperature, -np.inf)
    power = np.exp(masked - masked.max(axis=1, keepdims=True))
    found: Doubles = power / power.sum(axis=1, keepdims=True)
    return found


class ExploringActor(BridgeActor):
    """One sampled episode. `races` are the decisions made so far."""

    def __init__(
        self,
        question: str,
        corpus: Corpus,
        scorer: Scorer,
        effort: Effort,
        passages: Callable[[str, str], Passage] = Passage,
        *,
        temperature: float,
        seed: int = 0,
    ) -> None:
        super().__init__(question, corpus, scorer, effort, passages)
        self.races: list[Race] = []
        self._networks = scorer.networks
        self._temperature = temperature
        self._draw = np.random.default_rng(seed)
        self._logits: Floats = np.zeros(0, dtype=np.float32)
        self._offered: Race | None = None

    def _read(self, view: View) -> None:
        """Draws anew who stays and who is ranked, but for the ranking's own last turn: its edits were by that draw."""
        super()._read(view)
        if self._temperature and not self._ending and len(self.notes):
            self._logits = self._networks["second"].logits(self.judgement.rows)
            self._keys = self._noisy(self._logits).astype(np.float32)

    def _noisy(self, logits: Floats | Doubles) -> Doubles:
        """Keys whose descending order is a race's outcome (the Gumbel-max trick)."""
        return np.asarray(logits, dtype=np.float64) / self._temperature + self._draw.gumbel(size=len(logits))

    def _followed(self, lookups: Sequence[Lookup], rows: Floats) -> list[int]:
        if not self._temperature or not lookups:
            return super()._followed(lookups, rows)
        stop = len(lookups)
        logits = np.append(self._networks["expansion"].logits(rows), _log_odds(self._effort.promise))
        _, names = np.unique([lookup.bare for lookup in lookups], return_inverse=True)
        names = np.append(names, -1)
        left, picks, opened = np.ones(stop + 1, dtype=bool), [], []
        for at in np.argsort(-self._noisy(logits), kind="stable").tolist():
            if left[at]:
                picks.append(at)
                opened.append(left)
                left = left & (names != names[at])
            if at == stop:
                break
        self._offered = self._drawn(Kind.FOLLOW, rows, np.array(picks), np.array(opened), logits)
        return picks[:-1]

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """As it decides; of the names offered, those that were looked up count as drawn, and a stop that came next."""
        before = len(self.made)
        calls = super()._next(view)
        offered, self._offered = self._offered, None
        if offered is not None:
            made = len(self.made) - before
            self._record(offered, made + (made == len(offered) - 1))
        return calls

    def _prune(self, view: View, over: float, held: int, kept: Iterable[str] = ()) -> tuple[ToolCall, ...]:
        calls = super()._prune(view, over, held, kept)
        if calls and self._temperature and not self._ending:
            named = calls[0].arguments
            assert isinstance(named, dict)
            stay = len(named["all_but"]) if "all_but" in named else len(view.blocks) - len(named["chunk_ids"])
            rows = np.array([self.notes.rows[block.id] for block in view.blocks])
            order = np.argsort(-self._keys[rows], kind="stable")
            self._run(Kind.KEEP, rows, order[:stay])
        return calls

    def _ranking(self, view: View) -> tuple[RankedId, ...]:
        """As it decides; drawn is everything down to the last line, what had no room to come back among it."""
        lines = super()._ranking(view)
        done = any(race.kind is Kind.RANK for race in self.races)
        if lines and self._temperature and self._ending and not done:
            order = np.argsort(-self._keys, kind="stable")
            last = int(np.flatnonzero(order == self.notes.rows[lines[-1].id])[0])
            self._run(Kind.RANK, np.arange(len(self.notes)), order[: last + 1])
        return lines

    def _run(self, kind: Kind, rows: Places, picks: Places) -> None:
        """Records draws among some candidates, of which each may be drawn once."""
        left = np.ones((len(picks), len(rows)), dtype=bool)
        for draw, at in enumerate(picks[:-1]):
            left[draw + 1 :, at] = False
        race = self._drawn(kind, self.judgement.rows[rows], picks, left, self._logits[rows])
        self._record(race, len(picks))

    def _drawn(self, kind: Kind, rows: Floats, picks: Places, left: Open, logits: Floats | Doubles) -> Race:
        """A race as it was drawn; logits past the rows are fixed ones."""
        drawn = log_probabilities(logits, picks, left, self._temperature)
        return Race(kind, rows, picks, left, drawn, self._temperature, tuple(map(float, logits[len(rows) :])))

    def _record(self, race: Race, draws: int) -> None:
        """Keeps the first draws: the later ones decided nothing. A draw from one option is none."""
        telling = np.flatnonzero(race.open[:draws].sum(axis=1) > 1)
        if len(telling):
            parts = (race.picks[telling], race.open[telling], race.drawn[telling])
            self.races.append(Race(race.kind, race.rows, *parts, race.temperature, race.fixed))


class ExploringPolicy(BridgePolicy):
    """`BridgePolicy` whose episodes are sampled; gives away what each of them decided."""

    def __init__(
        self,
        scorer: Scorer | None = None,
        *,
        temperature: float = 0.5,
        effort: Effort | None = None,
        remembered: int | None = REMEMBERED,
    ) -> None:
        """`scorer` defaults to the weights that ship. Raises `ConfigError` without weights to sample by."""
        super().__init__(scorer, effort=effort, remembered=remembered)
        if self.scorer is None:
            raise ConfigError("there are no weights to explore by; train some with `ctx1 train bridge`")
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"a temperature is a number from 0 on; got {temperature}")
        self.temperature = temperature
        self._opened: dict[int, ExploringActor] = {}

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> ExploringActor:
        """An actor for one episode, whose draws are the seed's."""
        assert self.scorer is not None
        actor = ExploringActor(
            question, corpus, self.scorer, self.effort, self.passages, temperature=self.temperature, seed=seed
        )
        self._opened[seed] = actor
        return actor

    def races(self, seed: int) -> list[Race]:
        """What the last episode opened with this seed decided; each is given away once."""
        return self._opened.pop(seed).races


def _log_odds(probability: float) -> float:
    kept = min(max(probability, 1e-9), 1 - 1e-9)
    return math.log(kept / (1 - kept))
