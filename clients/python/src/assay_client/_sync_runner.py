"""The sync client's runner: it performs the core's effects."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for_futures
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from ._core import Block, Call, Effect, Parallel, Read, Send, Sleep, Steps
from ._transport import SyncTransport

T = TypeVar("T")

SIGNAL_CHECK_SECONDS = 0.5


def wait_for_first(futures: set[Future[T]]) -> tuple[set[Future[T]], set[Future[T]]]:
    """Returns the futures that are done, at least one, and the others."""
    # A wait without an end misses a Ctrl-C that comes just before it begins.
    while True:
        done, pending = wait_for_futures(futures, SIGNAL_CHECK_SECONDS, FIRST_COMPLETED)
        if done:
            return done, pending


class SyncRunner:
    """Performs effects in the calling thread. Parallel steps run in threads."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport
        self._loop_thread: _LoopThread | None = None
        self._lock = threading.Lock()

    def run(self, steps: Steps[T]) -> T:
        """Returns the step result."""
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
            # The calling thread: users' functions may not work in another one.
            for steps in effect.steps:
                self.run(steps)
            return
        pool = self.pool(effect.limit)
        try:
            for steps in effect.steps:
                pool.submit(steps)
        except BaseException as error:
            pool.cancel(error)
            raise
        pool.join()

    def _call(self, effect: Call) -> Any:
        result = effect.function(effect.argument)
        if not inspect.isawaitable(result):
            return result
        with self._lock:
            # The parent process's threads do not exist in a forked child.
            if self._loop_thread is None or not self._loop_thread.is_alive():
                self._loop_thread = _LoopThread()
        return self._loop_thread.result(result)

    def pool(self, limit: int) -> SyncPool:
        """Returns a pool that runs at most `limit` steps at once."""
        return SyncPool(self, limit)

    def cancel_calls(self) -> None:
        """Cancels the async functions that run."""
        if self._loop_thread is not None:
            self._loop_thread.cancel()

    def close(self) -> None:
        """Stops the async functions' event loop, and closes the connections."""
        if self._loop_thread is not None and self._loop_thread.is_alive():
            self._loop_thread.stop()
        self._loop_thread = None
        self._transport.close()


class SyncPool:
    """Runs steps in threads, at most `limit` at once.

    Its threads do not keep the process alive: after Ctrl-C, nobody waits for a user function.
    """

    def __init__(self, runner: SyncRunner, limit: int) -> None:
        self._runner = runner
        self._limit = limit
        self._waiting: SimpleQueue[tuple[Future[Any], Steps[Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending: set[Future[Any]] = set()

    def submit(self, steps: Steps[Any]) -> None:
        """Starts steps once there is room for them. Raises what earlier steps raised."""
        while len(self._pending) >= self._limit:
            self._collect()
        if len(self._threads) < self._limit:
            thread = threading.Thread(target=self._run, name="assay", daemon=True)
            self._threads.append(thread)
            thread.start()
        future: Future[Any] = Future()
        self._pending.add(future)
        self._waiting.put((future, steps))

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            future, steps = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._runner.run(steps))
            except BaseException as raised:
                future.set_exception(raised)

    def _collect(self) -> None:
        done, self._pending = wait_for_first(self._pending)
        for future in done:
            future.result()

    def join(self) -> None:
        """Waits until all steps are finished."""
        try:
            while self._pending:
                self._collect()
        except BaseException as error:
            self.cancel(error)
            raise
        self.cancel()

    def cancel(self, error: BaseException | None = None) -> None:
        """Starts no other steps, and waits for those that have started.

        If the error is no `Exception`, such as Ctrl-C's, it cancels async functions and waits
        for nothing.
        """
        for future in self._pending:
            future.cancel()
        for _ in self._threads:
            self._waiting.put(None)
        if error is None or isinstance(error, Exception):
            for thread in self._threads:
                thread.join()
        else:
            self._runner.cancel_calls()


class _LoopThread:
    """An event loop in its own thread, so that async functions work in a running loop."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def result(self, awaitable: Awaitable[Any]) -> Any:
        """Returns an awaitable's result."""

        import asyncio

        async def wait() -> Any:
            return await awaitable

        try:
            future = asyncio.run_coroutine_threadsafe(wait(), self._loop)
            wait_for_first({future})
            return future.result()
        except Exception:
            raise
        except BaseException:
            # Ctrl-C interrupts the thread that waits, and not the function.
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancels the functions that run."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        # The loop itself knows its tasks: a list in another thread could lack one that has begun.
        import asyncio

        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def is_alive(self) -> bool:
        """Returns whether the thread runs in this process."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stops the loop and waits for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
