"""Waiting for jobs, and reading their output."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from . import _models as models
from ._arguments import number_of
from ._core import Core, Json, Read, Reply, Steps, TransportError, decode_error, logger
from ._errors import (
    AssayError,
    ConnectionFailed,
    JobCancelled,
    JobFailed,
    WaitTimedOut,
)
from ._progress import write_line
from ._results import warn_of_counts

J = TypeVar("J", bound=models.Job)

_WAIT_SECONDS = 30
_OUTPUT_BYTES = 4 * 1024 * 1024
_ACTIVE = ("queued", "running")


def is_finished(job: models.Job) -> bool:
    """Returns whether the job is in a terminal state."""
    return job.status not in _ACTIVE


def wait_for_job(
    core: Core,
    job: J,
    decode: Callable[[Mapping[str, Any]], J],
    timeout: float | None,
    on_update: Callable[[J], object] | None = None,
) -> Steps[J]:
    """Waits until a job has succeeded, and returns it.

    Raises `JobFailed`, `JobCancelled`, or `WaitTimedOut` after `timeout` seconds. If the wait is
    interrupted, the job continues, and its id is printed.
    """
    deadline = None if timeout is None else time.monotonic() + number_of("timeout", timeout)
    try:
        while not is_finished(job):
            left = _WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimedOut(job, timeout or 0)
            seconds = math.ceil(min(left, _WAIT_SECONDS))
            reply = yield from core.call("getJob", path={"job_id": job.id}, query={"wait": seconds})
            changed = reply.decode(decode)
            if on_update is not None and changed != job:
                on_update(changed)
            job = changed
    except KeyboardInterrupt:
        write_line(f"{job.id} continues. Read it with client.jobs.get({job.id!r}).")
        raise
    job = succeeded(job)
    if job.id not in core.checked_jobs:
        warn_of_counts(job)
    return job


def succeeded(job: J) -> J:
    """Returns a succeeded job. Raises `JobFailed` or `JobCancelled` for others."""
    if job.status == "failed":
        raise JobFailed(job)
    if job.status == "cancelled":
        raise JobCancelled(job)
    return job


class JobWatcher(Generic[J]):
    """The state when following a job by server-sent events."""

    def __init__(self, core: Core, job_id: str, decode: Callable[[Mapping[str, Any]], J]) -> None:
        self._core = core
        self._job_id = job_id
        self._decode = decode
        self._stream: Any = None
        self._rest = b""
        self._failures = 0
        self.has_more = True

    def next_page(self) -> Steps[list[J]]:
        """Returns the job states that have arrived next.

        A broken stream is opened again. It begins with the current state, so nothing is lost.
        """
        if self._stream is None:
            reply = yield from self._core.call(
                "watchJob",
                path={"job_id": self._job_id},
                headers={"Accept": "text/event-stream"},
                is_stream=True,
            )
            self._stream, self._rest = reply.stream, b""
        try:
            chunk: bytes = yield Read(self._stream)
        except TransportError as error:
            chunk = b""
            logger.debug("the stream of %s ended: %s", self._job_id, error)
        if not chunk:
            self._stream = None
            self._failures += 1
            if self._failures > self._core.policy.max_retries:
                raise ConnectionFailed(f"The stream of {self._job_id} ends again and again.")
            return []
        *events, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        found = (Reply(200, {}, data) for data in map(_data_of, events) if data)
        jobs = [event.decode(self._decode) for event in found]
        if jobs:
            self._failures = 0
            self.has_more = not is_finished(jobs[-1])
        if not self.has_more:
            # The server ends the stream; reading its end frees the connection.
            with suppress(TransportError):
                yield Read(self._stream)
        return jobs


def _data_of(event: bytes) -> bytes:
    """Returns the data of a server-sent event. Raises `Internal` for the event `error`."""
    fields = [line.partition(b":") for line in event.split(b"\n")]
    data = b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")
    if any(name == b"event" and value.strip() == b"error" for name, _, value in fields):
        raise decode_error(Reply(500, {}, data))
    return data


class OutputReader:
    """The state when reading a prediction job's output, range by range.

    Ranges can be requested again, so a broken connection loses nothing.
    """

    def __init__(self, core: Core, job_id: str) -> None:
        self._core = core
        self._job_id = job_id
        self._position = 0
        self._rest = b""
        self.has_more = True

    def next_page(self) -> Steps[list[Json]]:
        """Returns the next range's lines, decoded."""
        end = self._position + _OUTPUT_BYTES - 1
        reply = yield from self._core.call(
            "getJobOutput",
            path={"job_id": self._job_id},
            headers={"Range": f"bytes={self._position}-{end}", "Accept": "application/x-ndjson"},
        )
        self._position += len(reply.content)
        found = re.fullmatch(r"bytes .*/([0-9]{1,18})", reply.headers.get("content-range", ""))
        length = int(found[1]) if found else 0
        self.has_more = reply.status == 206 and self._position < length
        if self.has_more and not reply.content:
            raise AssayError(f"The output of {self._job_id} ends before its length.")
        return list(self._lines(reply.content))

    def _lines(self, content: bytes) -> Iterator[Json]:
        lines = (self._rest + content).split(b"\n")
        # A range's last line can continue in the next one.
        self._rest = lines.pop() if self.has_more else b""
        return (Reply(200, {}, line).json() for line in lines if line.strip())
