"""Ctrl-C ends a call at once, although user functions still run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from assay_client._core import Call, Parallel, Steps
from assay_client._sync_runner import SyncRunner
from assay_client._transport import SyncTransport

N_CALLS = 2


@pytest.fixture(autouse=True)
def _signal() -> Iterator[None]:
    # A process in a script's background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(function: Any, started: threading.Semaphore) -> None:
    """Runs a function in several threads, and interrupts the main one once all calls have begun."""

    def steps() -> Steps[None]:
        yield Call(function, None)

    def parallel() -> Steps[None]:
        yield Parallel((steps() for _ in range(N_CALLS)), N_CALLS)

    def interrupt() -> None:
        for _ in range(N_CALLS):
            assert started.acquire(timeout=60)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    runner = SyncRunner(cast("SyncTransport", None))
    with pytest.raises(KeyboardInterrupt):
        runner.run(parallel())


def test_interrupt_waits_for_no_function() -> None:
    started, release = threading.Semaphore(0), threading.Event()
    finished: list[bool] = []

    def function(_: None) -> None:
        started.release()
        finished.append(release.wait(60))

    interrupted(function, started)
    assert finished == []
    release.set()


def test_interrupt_cancels_async_functions() -> None:
    started, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    async def function(_: None) -> None:
        started.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.release()
            raise

    interrupted(function, started)
    for _ in range(N_CALLS):
        assert cancelled.acquire(timeout=60)
