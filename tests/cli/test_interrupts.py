"""Ctrl-C ends asynchronous work at once, also while it does not wait for anything."""

import asyncio
import signal
import threading

import pytest

from context_agent.cli.interrupts import run_interruptible


def test_an_interrupt_ends_work_that_does_not_wait():
    done = []

    async def work():
        try:
            for step in range(1_000):
                done.append(step)
                if step == 3:
                    signal.raise_signal(signal.SIGINT)
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_interruptible(work())
        assert done[:4] == [0, 1, 2, 3]
        assert len(done) < 10
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_work_returns_its_result_in_any_thread():
    async def work():
        return 7

    results = [run_interruptible(work())]
    thread = threading.Thread(target=lambda: results.append(run_interruptible(work())))
    thread.start()
    thread.join()
    assert results == [7, 7]
