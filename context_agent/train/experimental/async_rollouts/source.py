"""The source of a step's episodes in an asynchronous run. They are sampled while earlier steps are trained."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from statistics import fmean

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError
from context_agent.policies.tokens.engines import Engine, Score
from context_agent.train.batches import WeightedRow, row_age
from context_agent.train.config import Notify, RolloutConfig, RolloutLocation, RunConfig
from context_agent.train.experimental.async_rollouts.background import BackgroundRollouts
from context_agent.train.experimental.async_rollouts.pausable_engine import LocalWorker, PausableEngine, RolloutWorker
from context_agent.train.experimental.async_rollouts.rollout_log import ConsumedGroups, RolloutLog
from context_agent.train.experimental.async_rollouts.rollout_process import RolloutProcess
from context_agent.train.experimental.async_rollouts.weight_sync import CombinedSync, CopySync, PausingSync
from context_agent.train.models import LoadedModel
from context_agent.train.rl.rollouts import PlayedEpisodes, RolloutRequest, RolloutSource, group_of
from context_agent.train.rl.samplers import local_engine
from context_agent.train.rl.weight_sync import WeightSync
from context_agent.train.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class AsyncLimits:
    """Limits on how far sampling may run ahead of training.

    Attributes:
        max_steps_ahead: Largest number of steps that are sampled in advance.
        quota: Share of its groups that a step waits for.
        staleness: Largest age of a row when it is trained, in updates.
    """

    max_steps_ahead: int
    quota: float
    staleness: int


class AsyncRollouts:
    """A `RolloutSource` whose episodes are played in the background while earlier steps are trained.

    While step n is trained, the episodes of up to `max_steps_ahead` later steps are sampled. A step trains on the
    groups that it requested. If `quota` is below 1, the step does not wait for the slowest groups. They continue under
    newer weights, and a later step trains on them. If a group's rows would then be older than `staleness`, the step
    waits for the group.
    """

    def __init__(
        self,
        rollouts: RolloutSource,
        config: RolloutConfig,
        *,
        background: BackgroundRollouts,
        log: RolloutLog,
        limits: AsyncLimits,
        sync_seconds: Callable[[], float] = lambda: 0.0,
        oldest_checkpoint: Callable[[], int | None] = lambda: None,
        note: Notify = lambda _: None,
    ) -> None:
        """Set up the source.

        Args:
            rollouts: The rollouts, which draw the requests of a step.
            config: The rollout settings.
            background: The thread that plays the episodes.
            log: The log that stores the episodes.
            limits: The limits on how far sampling may run ahead.
            sync_seconds: A function that returns the time that weight syncs have taken so far.
            oldest_checkpoint: A function that returns the oldest update from which the run may resume.
            note: A function that receives messages for the user.
        """
        self._rollouts, self._config = rollouts, config
        self._background, self._log, self._limits = background, log, limits
        self._sync_seconds, self._oldest_checkpoint, self._note = sync_seconds, oldest_checkpoint, note
        self._groups: dict[str, list[RolloutRequest]] = {}
        self._next_step = log.next_step
        self._totals: dict[str, float] = {}
        self._left = log.left

    def score(self, ids: Sequence[int]) -> Future[Score]:
        """Request the background sampler's score of the ids, and return at once."""
        return self._background.score(ids)

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Return no requests. The questions of later steps are already being sampled."""
        return []

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return the requests of the step, and start those of later steps in the background.

        The first call also starts the groups that an interrupted run did not finish. Before this call, the sampler has
        no model.
        """
        left, self._left = self._left, ()
        for earlier in sorted(set(map(_step_of, left))):
            self._offer(request for request in self._rollouts.draw(earlier) if group_of(request.episode) in left)
        last = min(step + self._limits.max_steps_ahead, self._config.steps - 1)
        while self._next_step <= last:
            self._offer(self._rollouts.draw(self._next_step))
            self._next_step += 1
        return self._rollouts.draw(step)

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Return the finished groups of this step and of earlier ones. Wait until there are enough of them."""
        started = time.perf_counter()
        ready = self._background.wait(lambda: self._ready_groups(step))
        waited = time.perf_counter() - started
        deferred = tuple(group for group in self._due(step) if group not in ready)
        self._log.consume(ConsumedGroups(step, tuple(ready), deferred))
        requests_taken = [request for group in ready for request in self._groups.pop(group)]
        results = [self._background.take(request.episode) for request in requests_taken]
        metrics = {
            "trainer_waited_seconds": waited + self._increase("sync", self._sync_seconds()),
            "sampler_waited_seconds": self._increase("idle", self._background.idle_seconds),
            "episodes_mixed": self._increase("mixed", self._background.mixed),
            "groups_left": float(len(deferred)),
        }
        lost = self._log.lost.intersection(request.episode for request in requests_taken)
        return PlayedEpisodes(requests_taken, results, waited, metrics, lost)

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return the number of sampled rows by age, and the number of episodes that were paused for new weights."""
        # An interrupted run may have sampled with newer weights, which it then lost. Such a row counts as fresh.
        ages = [max(0, row_age(item.row, update)) for item in rows if not item.demonstrated]
        metrics = {f"staleness/{age}": float(count) for age, count in sorted(Counter(ages).items())}
        if ages:
            metrics |= {"staleness/mean": fmean(ages), "staleness/max": float(max(ages))}
        return metrics | {"episodes_paused": self._increase("paused", self._background.paused)}

    def checkpointed(self) -> None:
        """Compact the log. If compaction fails, report the error and leave the log as it is."""
        oldest = self._oldest_checkpoint()
        if oldest is None:
            return
        try:
            self._log.compact(oldest)
        except DataError as error:
            self._note(f"the rollout log was not compacted ({error}). Training continues.")

    def _offer(self, requests: Iterable[RolloutRequest]) -> None:
        offered = list(requests)
        for request in offered:
            self._groups.setdefault(group_of(request.episode), []).append(request)
        self._background.offer(offered)

    def _due(self, step: int) -> list[str]:
        return [group for group in self._groups if _step_of(group) <= step]

    def _ready_groups(self, step: int) -> list[str] | None:
        """Return the groups that the step trains on. If it must wait, return None."""
        due = self._due(step)
        ready = [group for group in due if all(self._background.has_ended(r.episode) for r in self._groups[group])]
        late = set(due).difference(ready)
        if not late:
            return ready
        if step == self._config.steps - 1 or len(ready) < math.ceil(self._limits.quota * len(due)):
            return None
        return None if any(self._is_stale_after(group, step) for group in late) else ready

    def _is_stale_after(self, group: str, step: int) -> bool:
        """Return True if the group's rows would be too old in the last update of the next step."""
        versions = [self._background.oldest_version(request.episode) for request in self._groups[group]]
        oldest = min((version for version in versions if version is not None), default=None)
        last_update = (step + 2) * self._config.substeps - 1
        return oldest is not None and last_update - oldest > self._limits.staleness

    def _increase(self, name: str, total: float) -> float:
        """Return the increase of a total since the last call with the same name."""
        before, self._totals[name] = self._totals.get(name, 0.0), float(total)
        return float(total) - before


def _step_of(group: str) -> int:
    return int(group.partition("-")[0])


@contextmanager
def open_async_rollouts(
    run: TrainingRun,
    rollouts: RolloutSource,
    loaded: LoadedModel,
    *,
    sampler: tuple[Engine, WeightSync],
    open_agent: Callable[[Engine], AbstractContextManager[SearchAgent]],
    resume: bool,
) -> Iterator[tuple[AsyncRollouts, WeightSync]]:
    """Open the asynchronous rollouts of a run, with the weight sync of their sampler.

    Args:
        run: The run.
        rollouts: The rollouts, which draw the requests of a step.
        loaded: The trainer's model.
        sampler: The engine of the synchronous loop with its weight sync. Evaluations use it.
        open_agent: A function that opens an agent that samples from an engine.
        resume: True if the run resumes.

    Yields:
        The source of episodes, and the weight sync.

    Raises:
        ConfigError: If the log belongs to another run, or to a run that is not resumed.
        DataError: If the log is damaged or does not fit the checkpoint.
    """
    config = run.config
    assert config.async_rollouts is not None
    path = run.out / f"buffer-{run.rank}.jsonl"
    if path.exists() and not resume:
        raise ConfigError(
            f"{path} has episodes of a run that ended before its first checkpoint. Resume it with --resume, or name "
            "another folder with --out."
        )
    with ExitStack() as stack:
        log = stack.enter_context(
            RolloutLog(
                path,
                settings=config.plain(),
                substeps=config.rollouts.substeps,
                update=run.first_update,
                rank=run.rank,
                ranks=run.ranks,
                note=run.note,
            )
        )
        worker, weights = stack.enter_context(_open_worker(config, loaded, open_agent, *sampler))
        background = stack.enter_context(BackgroundRollouts(worker, log, config.rollouts.concurrency, run.note))
        pausing = PausingSync(weights, background, drain=config.engine.kind != "transformers")
        source = AsyncRollouts(
            rollouts,
            config.drawing,
            background=background,
            log=log,
            limits=AsyncLimits(
                config.async_rollouts.max_steps_ahead, config.async_rollouts.quota, config.loss.staleness
            ),
            sync_seconds=lambda: pausing.seconds,
            oldest_checkpoint=lambda: next((checkpoint.step for checkpoint in run.checkpoints.all()), None),
            note=run.note,
        )
        yield source, CombinedSync([sampler[1], pausing] if weights is not sampler[1] else [pausing])


@contextmanager
def _open_worker(
    config: RunConfig,
    loaded: LoadedModel,
    open_agent: Callable[[Engine], AbstractContextManager[SearchAgent]],
    engine: Engine,
    weights: WeightSync,
) -> Iterator[tuple[RolloutWorker, WeightSync]]:
    """Yield the worker with its weight sync.

    With a server, this process plays the episodes. Otherwise a copy of the model does, in its own process or in a
    thread.
    """
    assert config.async_rollouts is not None
    location = config.async_rollouts.sampler or _default_location()
    if config.engine.kind == "transformers" and location is RolloutLocation.PROCESS:
        with closing(RolloutProcess(config)) as process:
            yield process, CopySync(process)
        return
    with ExitStack() as stack:
        if config.engine.kind == "transformers":
            engine = local_engine(config, loaded.model)
            stack.callback(engine.close)
            weights = CopySync(engine)
        pausable = PausableEngine(engine)
        yield LocalWorker(stack.enter_context(open_agent(pausable)), pausable), weights


def _default_location() -> RolloutLocation:
    import torch

    return RolloutLocation.THREAD if torch.cuda.is_available() else RolloutLocation.PROCESS
