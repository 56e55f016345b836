"""Options for worker processes on this machine or on a Ray cluster, and the pool that they open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli.parameters import COUNT

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent, Machines, WorkerPool, WorkerSetup


ProcessesOption = Annotated[
    int | None,
    COUNT,
    Parameter(help="Number of worker processes.", show_default="1; with --ray one per core of its machines"),
]
RayOption = Annotated[
    tuple[str, ...] | None,
    Parameter(
        help="Run the processes on the machines of a Ray cluster, by default that of RAY_ADDRESS or of this machine.",
        metavar="[ADDRESS]",
        consume_multiple=(0, 1),
    ),
]


@contextmanager
def worker_machines(ray: tuple[str, ...] | None) -> Iterator[Machines]:
    """Yield this machine, or the machines of the Ray cluster at the address, which may be left out.

    The cluster stays connected until the block ends.
    """
    from context_agent._support.worker_pool import ThisMachine

    if ray is None:
        yield ThisMachine()
        return
    from context_agent._support.ray_machines import RayMachines

    machines = RayMachines(*ray or ("auto",))
    try:
        yield machines
    finally:
        machines.close()


@contextmanager
def worker_pool(
    setup: WorkerSetup[Any, Any],
    processes: int | None,
    ray: tuple[str, ...] | None,
    *,
    concurrency: int,
    answer: CallParent | None = None,
) -> Iterator[WorkerPool[Any, Any] | None]:
    """Yield the worker pool that the two options ask for. If this process should do the work itself, yield None."""
    from context_agent._support.worker_pool import WorkerPool

    if ray is None and (processes or 1) == 1:
        yield None
        return
    with worker_machines(ray) as machines:
        count = processes or machines.cores
        with WorkerPool(setup, machines, processes=count, concurrency=max(count, concurrency), answer=answer) as pool:
            yield pool
