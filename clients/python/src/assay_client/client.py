"""The sync client.

Generated from `aio.py` by `scripts/generate_sync.py`. Do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from . import _models as models
from . import _resources as resources
from ._arguments import kind_of
from ._cache import Cache
from ._core import Core
from ._errors import AssayError
from ._evaluate import (
    EvaluateArguments,
    Predict,
    check_options,
    id_of,
    predict_items,
    submit_predicted,
    trial_of,
)
from ._items import load_items
from ._objects import (
    Connection,
    Evaluation,
    Job,
    Output,
    Pages,
    Suite,
    UploadStream,
)
from ._progress import write_line
from ._raw import RawResponse, raw_request
from ._results import Comparison, Trial
from ._retry import RetryPolicy
from ._settings import cache_folder, load_settings
from ._sync_runner import SyncRunner
from ._tables import RETRIES
from ._transport import SyncTransport, enable_debug_log

if TYPE_CHECKING:
    import httpx2
    from typing_extensions import Self, Unpack

__all__ = [
    "Assay",
    "Evaluation",
    "Job",
    "Output",
    "Pages",
    "Suite",
    "UploadStream",
    "evaluate",
]


class Assay:
    """A client of one installation. It can be used as a context, which closes its connections."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        profile: str | None = None,
        org_id: str | None = None,
        cache: bool | str | os.PathLike[str] | None = None,
        max_retries: int = RETRIES["limits"]["max_retries"],
        max_wait: float = RETRIES["limits"]["max_wait_seconds"],
        http_client: httpx2.Client | None = None,
    ) -> None:
        """Creates a client without sending anything.

        `api_key` is an API key or a session token; an empty string sends no credential. Settings
        that are not given come from the environment variables `ASSAY_API_KEY` and
        `ASSAY_BASE_URL`, or else from the profile (`ASSAY_PROFILE`, otherwise `default`) in
        `~/.config/assay/config.toml`. `org_id` is the organization that a session acts for.
        `cache` is a folder, or `False`. `max_wait` is the longest delay before a retry, in
        seconds. `http_client` is a client of httpx2 with settings of yours, such as a proxy.

        Raises `AssayError` if a setting is missing.
        """
        enable_debug_log()
        settings = load_settings(api_key, base_url, profile, cache)
        policy = RetryPolicy(max_retries=max_retries, max_wait=max_wait)
        core = Core(policy=policy, on_wait=write_line)
        runner = SyncRunner(SyncTransport(settings, org_id, http_client))
        store = Cache(settings.cache_folder, settings.base_url)
        self._settings = settings
        self._connection = Connection(core, runner, store, settings.base_url)
        connection = self._connection
        self.suites = resources.Suites(connection)
        self.evals = resources.Evals(connection)
        self.jobs = resources.Jobs(connection)
        self.uploads = resources.Uploads(connection)
        self.models = resources.Models(connection)
        self.predictions = resources.Predictions(connection)
        self.boards = resources.Boards(connection)
        self.receipts = resources.Receipts(connection)
        self.queue = resources.QueueResource(connection)
        self.usage = resources.UsageResource(connection)
        self.keys = resources.Keys(connection)
        self.members = resources.Members(connection)
        self.invites = resources.Invites(connection)
        self.domains = resources.Domains(connection)
        self.orgs = resources.Orgs(connection)
        self.terms = resources.TermsResource(connection)
        self.events = resources.Events(connection)
        self.audit = resources.Audit(connection)
        self.webhooks = resources.Webhooks(connection)
        self.auth = resources.Auth(connection)
        self.sessions = resources.Sessions(connection)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A later request opens new ones."""
        self._connection.runner.close()

    def health(self) -> models.Health:
        """Returns the installation's builds."""
        return self._connection.call(models.Health.from_dict, "getHealth")

    def me(self) -> models.Me:
        """Returns the kind of the credential, its organization, and those of the user."""
        return self._connection.call(models.Me.from_dict, "getMe")

    def compare(
        self,
        first: str | models.Job,
        second: str | models.Job | None = None,
        *,
        baseline: str | None = None,
    ) -> Comparison:
        """Compares two succeeded jobs on the same version of a suite, item by item.

        The arguments are jobs or their ids. `baseline` is the name of a baseline of the suite, and
        takes the place of `second`. `difference` is the value of the first minus that of the second
        or the baseline. Raises `Forbidden` if the suite discloses only a ladder.
        """
        body = {"job_a": id_of("first", first, models.Job)}
        if (second is None) == (baseline is None):
            raise ValueError("compare takes exactly one of second and baseline")
        if second is not None:
            body["job_b"] = id_of("second", second, models.Job)
        if baseline is not None:
            body["baseline"] = baseline
        return self._connection.call(Comparison.from_dict, "createComparison", body=body)

    @overload
    def evaluate(
        self,
        suite: str | models.Suite,
        predict: Predict,
        *,
        limit: None = None,
        **options: Unpack[EvaluateArguments],
    ) -> Evaluation: ...
    @overload
    def evaluate(
        self,
        suite: str | models.Suite,
        predict: Predict,
        *,
        limit: int,
        **options: Unpack[EvaluateArguments],
    ) -> Trial: ...
    def evaluate(
        self,
        suite: str | models.Suite,
        predict: Predict,
        *,
        limit: int | None = None,
        **options: Unpack[EvaluateArguments],
    ) -> Evaluation | Trial:
        """Predicts all items of a suite, submits the predictions, and waits for the score.

        `predict` is a sync or async function. It receives the `input` of one item and returns a
        ranking (ids, best first), a label, a number, or a dict of label to probability. With
        `batch_size`, it receives a list of inputs and returns a list of predictions.

        `max_concurrency` is the number of calls at once: by default 1 for a sync function, which
        then runs in the calling thread, and 8 for an async one.

        Predictions are stored on disk as they are made. After a crash, the same call reads them
        from there. They are stored for this version of the suite, this label and this code of
        `predict`, and deleted once the job has succeeded. `cache` is a folder, or `False`.

        With `limit`, it predicts only the first items, checks the form of their predictions, and
        submits nothing; a later call without `limit` reads them from the disk.

        With `on_error="skip"`, an item whose prediction raises an exception stays without one.
        `timeout` limits the wait for the job, in seconds.
        """
        connection = self._connection
        store = connection.cache
        cache = options.get("cache", True)
        if cache is not True:
            store = Cache(cache_folder(cache), self._settings.base_url)
        suite_id = id_of("suite", suite, models.Suite)
        check_options(options)
        core, run = connection.core, connection.run
        items = run(load_items(core, store, suite_id, None))
        predicted = run(predict_items(core, items, predict, store, options, limit))
        if limit is not None:
            return trial_of(predicted, limit)
        data = run(submit_predicted(core, store, predicted, options))
        job = connection.job(data).wait(options.get("timeout"))
        predicted.log.delete()
        return Evaluation(job, predicted.n_skipped)

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawResponse:
        """Sends any request, with the credential and the retries of the client.

        `path` begins with a slash, such as `/v1/me`. Raises `ApiError` for error responses.
        """
        request = raw_request(method, path, query, json, content, headers)
        return RawResponse(self._connection.run(self._connection.core.send(request)))


@overload
def evaluate(
    suite: str | models.Suite,
    predict: Predict,
    *,
    client: Assay | None = None,
    limit: None = None,
    **options: Unpack[EvaluateArguments],
) -> Evaluation: ...
@overload
def evaluate(
    suite: str | models.Suite,
    predict: Predict,
    *,
    client: Assay | None = None,
    limit: int,
    **options: Unpack[EvaluateArguments],
) -> Trial: ...
def evaluate(
    suite: str | models.Suite,
    predict: Predict,
    *,
    client: Assay | None = None,
    limit: int | None = None,
    **options: Unpack[EvaluateArguments],
) -> Evaluation | Trial:
    """Evaluates a function on a suite, see `Assay.evaluate` for the options.

    Without a `client`, it creates one with the settings of the environment or the profile.
    """
    if not isinstance(client, (Assay, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AssayError(f"`client` must be an Assay, not {kind_of(client)}.")
    own = Assay() if client is None else client
    if limit is None:
        return own.evaluate(suite, predict, **options)
    return own.evaluate(suite, predict, limit=limit, **options)
