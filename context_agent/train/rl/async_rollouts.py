"""Episodes that a thread of its own plays while the trainer does something else."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypeVar

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.policies.engines.protocol import Engine
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.policies.token_calls import calls
from context_agent.questions import Question
from context_agent.train.config import RolloutSettings, Run, Sampler
from context_agent.train.data import Material
from context_agent.train.models import Loaded
from context_agent.train.rl.rollout_log import Consumed, Journal, Record, finished, parked
from context_agent.train.rl.rollout_process import Apart
from context_agent.train.rl.rollout_workers import Here, Player, Running, Turnstile
from context_agent.train.rl.rollouts import Ask, Ended, Rollouts, Step, age, group_of, update_number, whole
from context_agent.train.rl.weight_sync import BetweenTurns, Copied, Together, Weights
from context_agent.train.rows import Weighted
from context_agent.train.training_run import Session
from context_agent.trajectory import Trajectory

T = TypeVar("T")
LOOK = 1.0
"""Seconds after which a trainer that waits looks whether the thread is alive."""


class Background:
    """Plays what it is offered, in that order, at most `concurrency` episodes at a time.

    An episode has ended when its trajectory is in the journal; what the journal holds already is not played again.
    `offer`, `wait`, `take` and `between_turns` are for the trainer's thread.
    """

    def __init__(
        self,
        player: Player,
        journal: Journal,
        concurrency: int,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """The `player` is this thread's alone."""
        self._player, self._journal = player, journal
        self._concurrency, self._note = concurrency, note
        self._waiting: deque[Ask] = deque()
        self._running: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: dict[str, tuple[Ended, int | None]] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._records: list[tuple[Record, asyncio.Future[None] | None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._idle = _Idle()
        self.parked = 0
        """Episodes that were unfinished when weights changed, counted each time."""
        self.mixed = 0
        """Episodes that more than one version sampled."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="ctx1-sample", daemon=True)

    @property
    def idle_seconds(self) -> float:
        """Seconds for which no episode was at work, since the beginning."""
        return self._idle.seconds

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops at the next turn: what is unfinished is parked in the journal. Safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def offer(self, asks: Sequence[Ask]) -> None:
        """Has them played after those that were offered before."""
        self._loop.call_soon_threadsafe(self._take_up, asks)

    def wait(self, ready: Callable[[], T | None]) -> T:
        """Blocks until `ready`, asked anew whenever an episode ends, is not None. Raises what ended the thread."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if (found := ready()) is not None:
                    return found
                self._changed.wait(LOOK)
                if not self._thread.is_alive() and self._failure is None:
                    raise PolicyError("the thread that samples has ended")

    def over(self, episode: str) -> bool:
        """Whether it has ended."""
        return episode in self._ended

    def oldest(self, episode: str) -> int | None:
        """The oldest version that sampled any of it, None where nothing is sampled or no version has a number."""
        if (ended := self._ended.get(episode)) is not None:
            return ended[1]
        running = self._running.get(episode)
        return running.oldest if running is not None else None

    def take(self, episode: str) -> Ended:
        """How an episode ended, once."""
        with self._changed:
            return self._ended.pop(episode)[0]

    @contextmanager
    def between_turns(self, *, drain: bool) -> Iterator[None]:
        """New weights come in its block: what is unfinished is parked. With `drain` no call is at work in it."""
        self._call(self._park(drain=drain))
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._player.open)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                asked.result(LOOK)
                return
            except TimeoutError:
                if asked.done():
                    raise
                if not self._thread.is_alive():
                    raise PolicyError("the thread that samples has ended") from None

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._player.open()
        self._park_all()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _take_up(self, asks: Sequence[Ask]) -> None:
        with self._changed:
            for ask in asks:
                if (known := self._journal.done.pop(ask.episode, None)) is not None:
                    self._ended[ask.episode] = known, _oldest(known)
                else:
                    self._waiting.append(ask)
            self._changed.notify_all()
        self._pump()

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stop.is_set():
            ask = self._waiting.popleft()
            self._running[ask.episode] = Running(self._journal.parked.pop(ask.episode, ()))
            task = self._loop.create_task(self._work(ask))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._idle.set(idle=not self._running)

    async def _work(self, ask: Ask) -> None:
        try:
            ended = await self._play(ask)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to the trainer's thread, whatever it is
            self._fail(error)
            return
        running = self._running[ask.episode]
        self.mixed += len({call.sample.version for call in running.calls}) > 1
        with self._changed:
            self._ended[ask.episode] = ended, running.oldest
            del self._running[ask.episode]
            self._changed.notify_all()
        self._pump()

    async def _play(self, ask: Ask) -> Ended:
        ended = await self._player.play(ask, self._running[ask.episode])
        if self._running[ask.episode].diverged:
            self._note(
                f"episode {ask.episode} was parked, and its record no longer gives the same prompts: the corpus or the "
                "harness has changed. It begins anew"
            )
            self._running[ask.episode] = Running()
            ended = await self._player.play(ask, self._running[ask.episode])
        self._running[ask.episode].ended = True
        if whole(ended):
            await self._keep(finished(ended))
        return ended

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    async def _park(self, *, drain: bool) -> None:
        """Has the journal keep what is unfinished; the trainer does not wait for the disk."""
        if drain:
            await self._player.shut()
        self._park_all()

    def _park_all(self) -> None:
        for episode, running in self._running.items():
            if running.ended or not running.calls:
                continue
            self.parked += 1
            if fresh := running.calls[running.kept :]:
                self._write(parked(episode, running.kept, fresh))
                running.kept += len(fresh)

    async def _keep(self, record: Record) -> None:
        """Returns when the record is on disk."""
        written = self._loop.create_future()
        self._write(record, written)
        await written

    def _write(self, record: Record, written: asyncio.Future[None] | None = None) -> None:
        self._records.append((record, written))
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        """Writes what has come up, several records with one sync."""
        while self._records:
            batch, self._records = self._records, []
            try:
                await asyncio.to_thread(self._journal.write, [record for record, _ in batch])
            except DataError as error:
                self._fail(error)
                return
            for _, written in batch:
                if written is not None and not written.done():
                    written.set_result(None)


class _Idle:
    """Seconds of idleness; it begins idle."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._since: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        since = self._since
        return self._sum + (time.perf_counter() - since if since is not None else 0.0)

    def set(self, *, idle: bool) -> None:
        now = time.perf_counter()
        if self._since is not None:
            self._sum += now - self._since
        self._since = now if idle else None


def _oldest(trajectory: Trajectory) -> int | None:
    known = [made for call in calls(trajectory) if (made := update_number(call.version)) is not None]
    return min(known, default=None)


Heard = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True, slots=True)
class Lead:
    """How far sampling may go before training: steps `ahead`, the `quota` of its groups that a step waits for, and
    the most updates that a row may be old.
    """

    ahead: int
    quota: float
    bound: int


class Overlapped(Rollouts):
    """The rows of each optimiser step, sampled in the background. A `Source` for the trainer, as `Rollouts` is."""

    def __init__(
        self,
        agent: SearchAgent,
        questions: Sequence[Question],
        settings: RolloutSettings,
        *,
        background: Background,
        journal: Journal,
        lead: Lead,
        heard: Heard = lambda _: None,
        held: Callable[[], float] = lambda: 0.0,
        behind: Callable[[], int | None] = lambda: None,
        note: Callable[[str], None] = lambda _: None,
        **how: Any,
    ) -> None:
        """`heard` gets the metrics of each update, `held` says how many seconds handing weights over has taken.

        `behind` names the oldest update that a run may go back to. `how` is as for `Rollouts`.
        """
        super().__init__(agent, questions, settings, **how)
        self._background, self._journal, self._lead = background, journal, lead
        self._heard, self._held, self._behind, self._note = heard, held, behind, note
        self._groups: dict[str, list[Ask]] = {}
        self._offered = journal.first
        self._told: dict[str, float] = {}
        for number in sorted(set(map(_step, journal.left))):
            self._offer(ask for ask in self.asks(number) if group_of(ask.episode) in journal.left)

    def rows(self, step: int) -> Sequence[Weighted]:
        """The rows of an optimiser step. Blocks until there are enough; meanwhile and after, later ones are sampled."""
        last = min(step // self.settings.substeps + self._lead.ahead, self.settings.steps - 1)
        while self._offered <= last:
            self._offer(self.asks(self._offered))
            self._offered += 1
        items = super().rows(step)
        ages = [age(item.row, step) for item in items]
        measured = {f"staleness/{old}": float(count) for old, count in sorted(Counter(map(_bounded, ages)).items())}
        if ages:
            measured |= {"staleness/mean": fmean(map(_bounded, ages)), "staleness/max": float(_bounded(max(ages)))}
        self._heard(measured | {"episodes_parked": self._since("parked", self._background.parked)})
        return items

    def play(self, number: int) -> Step:
        """Takes the episodes of a step. Raises `PolicyError` where not one of them could be rewarded."""
        started = time.perf_counter()
        taken = self._background.wait(lambda: self._takeable(number))
        waited = time.perf_counter() - started
        left = tuple(group for group in self._due(number) if group not in taken)
        self._journal.consume(Consumed(number, tuple(taken), left))
        asks = [ask for group in taken for ask in self._groups.pop(group)]
        made = [self._background.take(ask.episode) for ask in asks]
        more = {
            "trainer_waited_seconds": waited + self._since("held", self._held()),
            "sampler_waited_seconds": self._since("idle", self._background.idle_seconds),
            "episodes_mixed": self._since("mixed", self._background.mixed),
            "groups_left": float(len(left)),
        }
        return self.reckoned(number, asks, made, waited, more)

    def save(self, folder: Path, step: int) -> None:
        """As `Rollouts`; and the journal loses what no checkpoint needs. Where that fails, it stays as it is."""
        super().save(folder, step)
        if (behind := self._behind()) is not None:
            try:
                self._journal.compact(behind)
            except DataError as error:
                self._note(f"the buffer was not made smaller: {error}")

    def _offer(self, asks: Iterable[Ask]) -> None:
        offered = list(asks)
        for ask in offered:
            self._groups.setdefault(group_of(ask.episode), []).append(ask)
        self._background.offer(offered)

    def _due(self, number: int) -> list[str]:
        return [group for group in self._groups if _step(group) <= number]

    def _takeable(self, number: int) -> list[str] | None:
        """The groups that the step takes, None while it has to wait."""
        due = self._due(number)
        over = [group for group in due if all(self._background.over(ask.episode) for ask in self._groups[group])]
        late = set(due).difference(over)
        if not late:
            return over
        if number == self.settings.steps - 1 or len(over) < math.ceil(self._lead.quota * len(due)):
            return None
        return None if any(self._too_old_after(group, number) for group in late) else over

    def _too_old_after(self, group: str, number: int) -> bool:
        """Whether the group's rows would pass the bound in the last update of the step after this one."""
        known = [self._background.oldest(ask.episode) for ask in self._groups[group]]
        oldest = min((one for one in known if one is not None), default=None)
        return oldest is not None and (number + 2) * self.settings.substeps - 1 - oldest > self._lead.bound

    def _since(self, name: str, value: float) -> float:
        """How much a sum has grown since it was asked for last."""
        before, self._told[name] = self._told.get(name, 0.0), float(value)
        return float(value) - before


def _step(group: str) -> int:
    return int(group.partition("-")[0])


def _bounded(old: int) -> int:
    """An age as it is shown: weights that a kill took back were newer than those now trained."""
    return max(0, old)


OpenAgent = Callable[[Engine], AbstractContextManager[SearchAgent]]


@contextmanager
def overlapped(
    run: Run,
    session: Session,
    *,
    material: Material,
    loaded: Loaded,
    sampled: tuple[Engine, Weights],
    open_agent: OpenAgent,
    resume: bool,
    heard: Heard,
    **how: Any,
) -> Iterator[tuple[Overlapped, Weights]]:
    """The source of rows, and how new weights reach what samples.

    `sampled` is the engine of the synchronous loop with its weights; evaluation goes on using it.
    Raises `ConfigError` and `DataError` for a buffer that the run cannot go on from.
    """
    assert run.overlap is not None
    path = session.out / f"buffer-{session.rank}.jsonl"
    if path.exists() and not resume:
        raise ConfigError(
            f"{path} holds episodes of a run that was ended before its first checkpoint: go on with --resume, or name "
            "another folder with --out"
        )
    settings = run.drawing
    lead = Lead(run.overlap.ahead, run.overlap.quota, run.loss.staleness)
    with ExitStack() as stack:
        journal = stack.enter_context(
            Journal(
                path,
                settings=run.plain(),
                substeps=settings.substeps,
                update=session.begun,
                rank=session.rank,
                ranks=session.ranks,
                note=session.note,
            )
        )
        player, weights = stack.enter_context(_player(run, loaded, open_agent, *sampled))
        background = stack.enter_context(Background(player, journal, settings.concurrency, session.note))
        handed = BetweenTurns(weights, background, drain=run.engine.kind != "transformers")
        rollouts = Overlapped(
            stack.enter_context(open_agent(sampled[0])),
            material.questions,
            settings,
            background=background,
            journal=journal,
            lead=lead,
            heard=heard,
            held=lambda: handed.seconds,
            behind=lambda: next((one.step for one in session.checkpoints.all()), None),
            note=session.note,
            **how,
        )
        every = [sampled[1], handed] if weights is not sampled[1] else [handed]
        yield rollouts, Together(every)


@contextmanager
def _player(
    run: Run, loaded: Loaded, open_agent: OpenAgent, engine: Engine, weights: Weights
) -> Iterator[tuple[Player, Weights]]:
    """Who plays beside the trainer: with a server this process, and else a copy of the model, in a process or here."""
    assert run.overlap is not None
    if run.engine.kind == "transformers" and (run.overlap.sampler or _usual()) is Sampler.PROCESS:
        with closing(Apart(run)) as apart:
            yield apart, Copied(apart)
        return
    with ExitStack() as stack:
        if run.engine.kind == "transformers":
            name = run.model.name or "tiny"
            engine = TransformersEngine(loaded.model, name=name, most=run.engine.batch, version="0")
            stack.callback(engine.close)
            weights = Copied(engine)
        turnstile = Turnstile(engine)
        yield Here(stack.enter_context(open_agent(turnstile)), turnstile), weights


def _usual() -> Sampler:
    import torch

    return Sampler.THREAD if torch.cuda.is_available() else Sampler.PROCESS
