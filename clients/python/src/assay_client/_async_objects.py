"""Objects of the async client that send requests: listings, jobs, suites and evaluations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import _frames as frames
from . import _models as models
from ._arguments import integer_of, slice_of
from ._async_runner import AsyncPool, AsyncRunner
from ._cache import Cache
from ._core import Core, Json, Pager, Steps, encode_json, without_none
from ._errors import AssayError, OutOfRange
from ._frames import Predictions, open_predictions
from ._items import Items, cached_items, load_items
from ._jobs import JobWatcher, OutputReader, wait_for_job
from ._progress import OnProgress
from ._record import Record
from ._results import (
    Check,
    EvaluationFigures,
    check_predictions,
    describe_job,
    job_html,
    score_of,
)
from ._upload import (
    CONCURRENT_PARTS,
    PartWriter,
    Submission,
    complete,
    create_job,
    create_upload,
    delete_upload,
    send_part,
    submit,
)

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class AsyncConnection:
    """A client's connection, which its objects share."""

    def __init__(self, core: Core, runner: AsyncRunner, cache: Cache, base_url: str) -> None:
        self.core = core
        self.cache = cache
        self.base_url = base_url
        self.runner = runner

    async def run(self, steps: Steps[T]) -> T:
        """Runs the core's steps."""
        return await self.runner.run(steps)

    async def call(
        self, decode: Callable[[Json], T], operation: str, *, body: Json | None = None, **path: str
    ) -> T:
        """Calls an operation and returns its decoded response."""
        reply = await self.run(self.core.call(operation, path=path, body=body))
        return reply.decode(decode)

    async def query(
        self,
        decode: Callable[[Json], T],
        operation: str,
        query: Mapping[str, Any],
        **path: str,
    ) -> T:
        """Calls an operation with query parameters and returns its decoded response."""
        reply = await self.run(self.core.call(operation, path=path, query=query))
        return reply.decode(decode)

    async def call_with_key(
        self, decode: Callable[[Json], T], operation: str, body: Json, key: str, **path: str
    ) -> T:
        """Calls an operation with an `Idempotency-Key` and returns its decoded response."""
        steps = self.core.call(operation, path=path, body=body, idempotency_key=key)
        return (await self.run(steps)).decode(decode)

    async def discard(self, operation: str, **path: str) -> None:
        """Calls an operation whose response has no body."""
        await self.run(self.core.call(operation, path=path))

    def job(self, data: Mapping[str, Any]) -> AsyncJob:
        """Returns a response's job."""
        job = AsyncJob.from_dict(data)
        object.__setattr__(job, "_connection", self)
        return job

    def suite(self, data: Mapping[str, Any]) -> AsyncSuite:
        """Returns a response's suite."""
        suite = AsyncSuite.from_dict(data)
        object.__setattr__(suite, "_connection", self)
        object.__setattr__(suite, "_items", None)
        return suite


class AsyncPages(Generic[T]):
    """A listing that loads its pages on demand. Each iteration starts at the first page."""

    def __init__(self, connection: AsyncConnection, start: Callable[[], Pager[T]]) -> None:
        self._connection = connection
        self._start = start
        self._pager: Pager[T] | None = None

    async def __aiter__(self) -> AsyncIterator[T]:
        pager = self._pager = self._start()
        while pager.has_more:
            for entry in await self._connection.run(pager.next_page()):
                yield entry

    @property
    def position(self) -> str | None:
        """The cursor after the page that was read last. An event listing continues from it."""
        return self._pager.position if self._pager else None

    async def first(self) -> T | None:
        """Returns the first entry, or None if there is none."""
        async for entry in self:
            return entry
        return None

    @overload
    def __getitem__(self, index: int) -> Awaitable[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Awaitable[list[T]]: ...
    def __getitem__(self, index: int | slice) -> Awaitable[T] | Awaitable[list[T]]:
        """Returns an entry or a slice such as `[:20]`. Indexes count from the start only."""
        if isinstance(index, slice):
            return self._slice(index)
        return self._entry(integer_of("index", index, 0))

    async def _entry(self, index: int) -> T:
        found = await self._slice(slice(index, index + 1))
        if not found:
            raise OutOfRange(f"The listing has no entry {index}.")
        return found[0]

    async def _slice(self, part: slice) -> list[T]:
        start, stop, step = slice_of(part)
        found: list[T] = []
        if stop == 0:
            return found
        async for entry in self:
            found.append(entry)
            # Later pages are not loaded.
            if len(found) == stop:
                break
        return found[start:stop:step]

    async def all(self) -> list[T]:
        """Returns all entries."""
        return await self._slice(slice(None))

    async def to_polars(self) -> Any:
        """Returns all entries as a polars DataFrame."""
        return frames.to_polars(await self._rows())

    async def to_pandas(self) -> Any:
        """Returns all entries as a pandas DataFrame."""
        return frames.to_pandas(await self._rows())

    async def to_arrow(self) -> Any:
        """Returns all entries as a pyarrow Table."""
        return frames.to_arrow(await self._rows())

    async def _rows(self) -> list[Json]:
        entries = await self.all()
        return [entry.to_dict() if isinstance(entry, Record) else entry for entry in entries]  # type: ignore[misc]


class AsyncOutput:
    """A prediction job's output: one dict for each line. It is read range by range."""

    def __init__(self, connection: AsyncConnection, job_id: str) -> None:
        self._connection = connection
        self._job_id = job_id

    async def __aiter__(self) -> AsyncIterator[Json]:
        reader = OutputReader(self._connection.core, self._job_id)
        while reader.has_more:
            for line in await self._connection.run(reader.next_page()):
                yield line


class AsyncJob(models.Job):
    """A job, with the operations on it."""

    __slots__ = ("_connection",)
    _connection: AsyncConnection

    @property
    def score(self) -> models.EvalResult:
        """A succeeded eval's figures. Raises `AssayError` for other jobs."""
        return score_of(self)

    async def wait(
        self,
        timeout: float | None = None,
        on_update: Callable[[AsyncJob], object] | None = None,
    ) -> AsyncJob:
        """Waits until the job has succeeded, and returns it with its result.

        `timeout` is in seconds; without it, the client waits as long as the job takes. `on_update`
        receives the job after each change that the client sees. Ctrl-C leaves the job running.

        Raises `JobFailed`, `JobCancelled` or `WaitTimedOut`.
        """
        connection = self._connection
        steps = wait_for_job(connection.core, self, connection.job, timeout, on_update)
        return await connection.run(steps)

    async def watch(self) -> AsyncIterator[AsyncJob]:
        """Follows the job by server-sent events: its state now, and after each change."""
        watcher = JobWatcher(self._connection.core, self.id, self._connection.job)
        while watcher.has_more:
            for job in await self._connection.run(watcher.next_page()):
                yield job

    async def refresh(self) -> AsyncJob:
        """Returns the job's current state."""
        return await self._connection.call(self._connection.job, "getJob", job_id=self.id)

    async def cancel(self) -> AsyncJob:
        """Cancels the job. Raises `InvalidState` if it is finished."""
        return await self._connection.call(self._connection.job, "cancelJob", job_id=self.id)

    async def finalize(self) -> AsyncJob:
        """Marks the job as final, for its suite's sealed items. A mark cannot be removed."""
        return await self._connection.call(self._connection.job, "finalizeJob", job_id=self.id)

    async def trace(self) -> models.TraceDocument:
        """Returns the trace as OTLP/JSON. Raises `NotFound` until the job is finished."""
        return await self._connection.call(dict, "getJobTrace", job_id=self.id)

    def items(self, *, page_size: int | None = None) -> AsyncPages[models.ItemScore]:
        """Lists each item's score. Raises `Forbidden` unless the suite gives feedback."""
        return item_scores(self._connection, self.id, page_size)

    def output(self) -> AsyncOutput:
        """Reads a prediction job's output."""
        return AsyncOutput(self._connection, self.id)

    def __str__(self) -> str:
        return describe_job(self)

    def _repr_html_(self) -> str:
        return job_html(self, self._connection.base_url)


def item_scores(
    connection: AsyncConnection, job_id: str, page_size: int | None
) -> AsyncPages[models.ItemScore]:
    """Lists a job's item scores."""
    return AsyncPages(
        connection,
        lambda: Pager(
            connection.core,
            "listJobItems",
            "items",
            models.ItemScore.from_dict,
            path={"job_id": job_id},
            query={"limit": page_size},
            token="cursor",
        ),
    )


class AsyncSuite(models.Suite):
    """A suite, with its items and the submissions to it."""

    __slots__ = ("_connection", "_items")
    _connection: AsyncConnection
    _items: Items | None

    async def items(self) -> Items:
        """Returns the items. They are read once for each version, and cached on disk.

        This object's submissions are pinned to these items' version.
        """
        connection = self._connection
        steps = load_items(connection.core, connection.cache, self.suite_id, self.version)
        items = await connection.run(steps)
        object.__setattr__(self, "_items", items)
        return items

    async def check(
        self, predictions: Predictions, rankings: Any = None, *, labels: Any = None
    ) -> Check:
        """Checks predictions without sending them, with the platform's verdict.

        Accepts what `submit` accepts, and names each error's place. Reads the items, unless
        they are in the cache.
        """
        source = open_predictions(predictions, rankings, self.metric, labels)
        return check_predictions(source, (await self.items()).ids(), self.metric, self.quantiles)

    async def submit(
        self,
        predictions: Predictions,
        rankings: Any = None,
        *,
        labels: Any = None,
        label: str | None = None,
        metadata: Mapping[str, str] | None = None,
        fresh: bool = False,
        wait_for_slot: bool = False,
        progress: bool | OnProgress | None = None,
    ) -> AsyncJob:
        """Submits predictions, and returns the job that scores them.

        `predictions` is one of

        - a DataFrame of pandas, polars or pyarrow with the columns `item_id` and `prediction`, or,
          for probabilities, with one column for each label; `labels` can name these columns. An
          index of pandas can have the ids instead of the column `item_id`;
        - a Series of pandas whose index has the ids;
        - a file's path: NDJSON, a JSON array or CSV, also with gzip or zstd; or Parquet;
        - a dict, or an iterable of (item_id, prediction);
        - ids, with `rankings`: for each id a label, a number or a ranking (shape `(n,)` or
          `(n, k)`), or, with `labels`, its probabilities (shape `(n, len(labels))`). The columns of
          a DataFrame are labels.

        Values can come from numpy, pandas, polars and pyarrow. A null is an error with its item's
        id, except that a null probability is absent.

        More than 5 MiB are sent as an upload, which continues after an interruption if the same
        call is repeated.

        The same submission returns the same job and is charged once, unless that job was cancelled
        or the platform failed. With `fresh`, it is a new job. With `wait_for_slot`, the client
        waits while all concurrent jobs are in use. `progress` is `True` for a line on stderr, or a
        function that receives an `UploadProgress`.

        Raises `Conflict` if a newer version of the suite exists, `ValidationFailed`,
        `QuotaExceeded`, and other client exceptions.
        """
        connection = self._connection
        source = open_predictions(predictions, rankings, self.metric, labels)
        submission = self._submission(label, metadata, fresh, wait_for_slot)
        steps = submit(connection.core, connection.cache, source, submission, progress)
        return connection.job(await connection.run(steps))

    def upload(
        self,
        *,
        label: str | None = None,
        metadata: Mapping[str, str] | None = None,
        fresh: bool = False,
        wait_for_slot: bool = False,
    ) -> AsyncUploadStream:
        """Returns a context that sends predictions as they are made, see `UploadStream.add`."""
        submission = self._submission(label, metadata, fresh, wait_for_slot)
        return AsyncUploadStream(self._connection, submission)

    async def submissions_left_today(self) -> int | None:
        """Returns how many submissions are left until midnight UTC. None: no limit."""
        if self.max_submissions_per_day is None:
            return None
        usage = await self._connection.call(models.Usage.from_dict, "getUsage")
        used = [entry for entry in usage.suites if entry.suite_id == self.suite_id]
        submitted = used[0].submissions_today if used else 0
        return max(self.max_submissions_per_day - submitted, 0)

    def _submission(
        self,
        label: str | None,
        metadata: Mapping[str, str] | None,
        fresh: bool,
        wait_for_slot: bool,
    ) -> Submission:
        items = self._items or cached_items(self._connection.cache, self.suite_id, self.version)
        version = items.version if items else self.version
        return Submission(
            self.suite_id, version, label, metadata, fresh, wait_for_slot, self, items
        )


class AsyncUploadStream:
    """A context that sends predictions as they are made. After it, `job` is the submitted job.

    If the block raises an exception, the upload is deleted and nothing is submitted.
    """

    def __init__(self, connection: AsyncConnection, submission: Submission) -> None:
        self._connection = connection
        self._submission = submission
        self._writer = PartWriter()
        self._n_parts = 0
        self._pool: AsyncPool | None = None
        self._upload_id = ""
        self._job: AsyncJob | None = None

    @property
    def job(self) -> AsyncJob:
        """The submitted job. Raises `AssayError` inside the block."""
        if self._job is None:
            raise AssayError("The job exists after the `with` block.")
        return self._job

    async def __aenter__(self) -> Self:
        body = without_none(kind="predictions", content_encoding="gzip")
        connection = self._connection
        self._upload_id = await connection.run(create_upload(connection.core, body))
        self._pool = connection.runner.pool(CONCURRENT_PARTS)
        return self

    async def add(self, item_id: str, prediction: Any) -> None:
        """Adds one prediction. Waits while four 16 MiB parts are being sent."""
        for part in self._writer.add_row(item_id, prediction):
            await self._send(part)

    async def _send(self, part: bytes) -> None:
        if self._pool is None:
            raise AssayError("Use the upload in a `with` block.")
        self._n_parts += 1
        steps = send_part(self._connection.core, self._upload_id, self._n_parts, part)
        await self._pool.submit(steps)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        core, run = self._connection.core, self._connection.run
        assert self._pool is not None
        if error is not None:
            await self._pool.cancel()
            await run(delete_upload(core, self._upload_id))
            return
        for part in self._writer.finish():
            await self._send(part)
        await self._pool.join()
        await run(complete(core, self._upload_id))
        reference = (b',"input_ref":', encode_json(self._upload_id))
        digest = self._writer.digest.hexdigest()
        job = await run(create_job(core, self._submission, digest, reference))
        self._job = self._connection.job(job)


@dataclass(frozen=True)
class AsyncEvaluation(EvaluationFigures):
    """The `evaluate` result."""

    job: AsyncJob
    """The succeeded job."""

    def _repr_html_(self) -> str:
        return self.job._repr_html_()  # pyright: ignore[reportPrivateUsage]
