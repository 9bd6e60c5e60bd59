"""The async client's runner: it performs the core's effects in an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ._core import Block, Call, Effect, Parallel, Read, Send, Sleep, Steps, is_async_function
from ._transport import AsyncTransport

T = TypeVar("T")


class AsyncRunner:
    """Performs effects in the running event loop. Blocking functions run in threads."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def run(self, steps: Steps[T]) -> T:
        """Returns the step result."""
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as finished:
                return cast("T", finished.value)
            try:
                result, error = await self._perform(effect), None
            except BaseException as raised:
                result, error = None, raised

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return await self._transport.send(effect.request)
        if isinstance(effect, Read):
            return await self._transport.read(effect.stream)
        if isinstance(effect, Sleep):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Block):
            return await asyncio.to_thread(effect.function)
        if isinstance(effect, Call):
            return await _call_async(effect.function, effect.argument)
        return await self._parallel(effect)

    async def _parallel(self, effect: Parallel) -> None:
        pool = self.pool(effect.limit)
        iterator = iter(effect.steps)
        try:
            # The iterator can read files, so it runs in a thread.
            while (steps := await asyncio.to_thread(next, iterator, None)) is not None:
                await pool.submit(steps)
        except BaseException:
            await pool.cancel()
            raise
        await pool.join()

    def pool(self, limit: int) -> AsyncPool:
        """Returns a pool that runs at most `limit` steps at once."""
        return AsyncPool(self, limit)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()


class AsyncPool:
    """Runs steps as tasks, at most `limit` at once."""

    def __init__(self, runner: AsyncRunner, limit: int) -> None:
        self._runner = runner
        self._limit = limit
        self._pending: set[asyncio.Task[Any]] = set()

    async def submit(self, steps: Steps[Any]) -> None:
        """Starts steps once there is room for them. Raises what earlier steps raised."""
        while len(self._pending) >= self._limit:
            await self._collect()
        self._pending.add(asyncio.create_task(self._runner.run(steps)))

    async def _collect(self) -> None:
        done, self._pending = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def join(self) -> None:
        """Waits until all steps are finished."""
        try:
            while self._pending:
                await self._collect()
        finally:
            await self.cancel()

    async def cancel(self) -> None:
        """Cancels the steps that have not finished, and waits until they have ended."""
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)


async def _call_async(function: Callable[..., Any], argument: Any) -> Any:
    if is_async_function(function):
        return await function(argument)
    # A sync function would block the event loop.
    result = await asyncio.to_thread(function, argument)
    return await result if inspect.isawaitable(result) else result
