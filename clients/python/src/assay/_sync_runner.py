"""The runner of the sync client: it performs the effects of the core."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from typing import Any, TypeVar, cast

from ._core import Block, Call, Effect, Parallel, Read, Send, Sleep, Steps
from ._transport import SyncTransport

T = TypeVar("T")


class SyncRunner:
    """Performs effects in the calling thread. Parallel steps run in threads."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport
        self._loop_thread: _LoopThread | None = None
        self._lock = threading.Lock()

    def run(self, steps: Steps[T]) -> T:
        """Returns the result of the steps."""
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as finished:
                return cast("T", finished.value)
            try:
                result, error = self._perform(effect), None
            except BaseException as raised:
                # The steps decide what an exception means, KeyboardInterrupt included.
                result, error = None, raised

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return self._transport.send(effect.request)
        if isinstance(effect, Read):
            return self._transport.read(effect.stream)
        if isinstance(effect, Sleep):
            return time.sleep(effect.seconds)
        if isinstance(effect, Block):
            return effect.function()
        if isinstance(effect, Call):
            return self._call(effect)
        return self._parallel(effect)

    def _parallel(self, effect: Parallel) -> None:
        if effect.limit == 1:
            # The calling thread: functions of the user may not work in another one.
            for steps in effect.steps:
                self.run(steps)
            return
        pool = self.pool(effect.limit)
        try:
            for steps in effect.steps:
                pool.submit(steps)
        except BaseException:
            pool.cancel()
            raise
        pool.join()

    def _call(self, effect: Call) -> Any:
        result = effect.function(effect.argument)
        if not inspect.isawaitable(result):
            return result
        with self._lock:
            # Threads of the parent process do not exist in a forked child.
            if self._loop_thread is None or not self._loop_thread.is_alive():
                self._loop_thread = _LoopThread()
        return self._loop_thread.result(result)

    def pool(self, limit: int) -> SyncPool:
        """Returns a pool that runs at most `limit` steps at once."""
        return SyncPool(self, limit)

    def close(self) -> None:
        """Stops the event loop of async functions, and closes the connections."""
        if self._loop_thread is not None and self._loop_thread.is_alive():
            self._loop_thread.stop()
        self._loop_thread = None
        self._transport.close()


class SyncPool:
    """Runs steps in threads, at most `limit` at once."""

    def __init__(self, runner: SyncRunner, limit: int) -> None:
        self._runner = runner
        self._limit = limit
        self._executor = ThreadPoolExecutor(limit, thread_name_prefix="assay")
        self._pending: set[Future[Any]] = set()

    def submit(self, steps: Steps[Any]) -> None:
        """Starts steps once there is room for them. Raises what earlier steps raised."""
        while len(self._pending) >= self._limit:
            self._collect()
        self._pending.add(self._executor.submit(self._runner.run, steps))

    def _collect(self) -> None:
        done, self._pending = wait_for_futures(self._pending, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()

    def join(self) -> None:
        """Waits until all steps are finished."""
        try:
            while self._pending:
                self._collect()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Waits for the steps that have started, and starts no others."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class _LoopThread:
    """An event loop in a thread of its own, so that async functions work in a running loop."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def result(self, awaitable: Awaitable[Any]) -> Any:
        """Returns the result of an awaitable."""

        import asyncio

        async def wait() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()

    def is_alive(self) -> bool:
        """Returns whether the thread runs in this process."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stops the loop and waits for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
