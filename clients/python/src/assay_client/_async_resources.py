"""The operations of the API, grouped by resource, for the async client."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, TypeVar

from . import _models as models
from ._arguments import integer_of, label_of, list_of, metadata_of, optional_list
from ._async_objects import (
    AsyncConnection,
    AsyncJob,
    AsyncOutput,
    AsyncPages,
    AsyncSuite,
    item_scores,
)
from ._core import Pager, new_key, without_none
from ._errors import AssayError
from ._items import Items, load_items
from ._upload import send_part

T = TypeVar("T")

Time = datetime | str
"""A time with a time zone, or an RFC 3339 string."""
Day = date | str
SequenceLike = models.Sequence | Mapping[str, Any]
"""A sequence, or a dict of the same form."""


class AsyncResource:
    """The resources' base class."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def _pages(
        self,
        operation: str,
        field: str,
        decode: Callable[[Mapping[str, Any]], T],
        *,
        token: str | None = None,
        follows: bool = False,
        query: Mapping[str, Any] | None = None,
        **path: str,
    ) -> AsyncPages[T]:
        core = self._connection.core
        return AsyncPages(
            self._connection,
            lambda: Pager(
                core,
                operation,
                field,
                decode,
                path=path,
                query=query,
                token=token,
                follows=follows,
            ),
        )


class AsyncSuites(AsyncResource):
    """Suites."""

    def list(
        self, *, owner: str | None = None, page_size: int | None = None
    ) -> AsyncPages[AsyncSuite]:
        """Lists the suites that you see, or those of an `owner`: a handle, or `me`."""
        query = without_none(owner=owner, limit=page_size)
        suite = self._connection.suite
        return self._pages("listSuites", "suites", suite, token="cursor", query=query)

    async def get(self, suite_id: str) -> AsyncSuite:
        """Returns a suite. Raises `NotFound` if it does not exist."""
        return await self._connection.call(self._connection.suite, "getSuite", suite_id=suite_id)

    async def items(self, suite_id: str) -> Items:
        """Returns the items of a suite's current version."""
        connection = self._connection
        return await connection.run(load_items(connection.core, connection.cache, suite_id, None))


class AsyncEvals(AsyncResource):
    """Submissions. `Suite.submit` is the usual way to create one."""

    async def create(
        self,
        suite_id: str,
        *,
        predictions: Iterable[models.Prediction | Mapping[str, Any]] | None = None,
        input_ref: str | None = None,
        suite_version: str | None = None,
        label: str | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncJob:
        """Submits `predictions`, or the upload or output that `input_ref` names.

        Without an `idempotency_key`, each call creates a new job.
        """
        body = without_none(
            suite_id=suite_id,
            suite_version=suite_version,
            label=label_of(label),
            metadata=metadata_of(metadata),
            predictions=optional_list("predictions", predictions),
            input_ref=input_ref,
        )
        key = new_key() if idempotency_key is None else idempotency_key
        return await self._connection.call_with_key(self._connection.job, "createEval", body, key)


class AsyncJobs(AsyncResource):
    """Jobs."""

    def list(
        self,
        *,
        suite: str | None = None,
        label: str | None = None,
        status: models.JobStatus | None = None,
        type: models.JobType | None = None,
        before: Time | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[AsyncJob]:
        """Lists jobs, the newest first. `suite` is an id; `label` matches exactly."""
        query = {
            "suite_id": suite,
            "label": label,
            "status": status,
            "type": type,
            "before": before,
            "limit": page_size,
        }
        return self._pages("listJobs", "jobs", self._connection.job, token="before", query=query)

    async def get(self, job_id: str, *, wait: int | None = None) -> AsyncJob:
        """Returns a job. `wait` (0 to 30 seconds) delays the response until the job is finished."""
        core = self._connection.core
        steps = core.call("getJob", path={"job_id": job_id}, query={"wait": wait})
        return (await self._connection.run(steps)).decode(self._connection.job)

    async def cancel(self, job_id: str) -> AsyncJob:
        """Cancels a job. Raises `InvalidState` if it is finished."""
        return await self._connection.call(self._connection.job, "cancelJob", job_id=job_id)

    async def finalize(self, job_id: str) -> AsyncJob:
        """Marks a job as final, for its suite's sealed items, for good."""
        return await self._connection.call(self._connection.job, "finalizeJob", job_id=job_id)

    def items(self, job_id: str, *, page_size: int | None = None) -> AsyncPages[models.ItemScore]:
        """Lists each item's score. Raises `Forbidden` unless the suite gives feedback."""
        return item_scores(self._connection, job_id, page_size)

    def output(self, job_id: str) -> AsyncOutput:
        """Reads a prediction job's output, one dict for each line."""
        return AsyncOutput(self._connection, job_id)

    async def trace(self, job_id: str) -> models.TraceDocument:
        """Returns the trace as OTLP/JSON. Raises `NotFound` until the job is finished."""
        return await self._connection.call(dict, "getJobTrace", job_id=job_id)


class AsyncUploads(AsyncResource):
    """Uploads. `Suite.submit` uses them for large submissions."""

    def list(
        self,
        *,
        status: models.UploadStatus | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.UploadSummary]:
        """Lists uploads, the newest first. `before` is an upload's id."""
        return self._pages(
            "listUploads",
            "uploads",
            models.UploadSummary.from_dict,
            token="before",
            query={"status": status, "before": before, "limit": page_size},
        )

    async def create(
        self,
        kind: models.UploadKind = "predictions",
        *,
        content_type: models.ContentType | None = None,
        content_encoding: models.ContentEncoding | None = None,
        bytes: int | None = None,
        sha256: str | None = None,
    ) -> models.Upload:
        """Creates an upload. `bytes` and `sha256` are those of the content as it is sent."""
        body = without_none(
            kind=kind,
            content_type=content_type,
            content_encoding=content_encoding,
            bytes=bytes,
            sha256=sha256,
        )
        return await self._connection.call(models.Upload.from_dict, "createUpload", body=body)

    async def get(self, upload_id: str) -> models.Upload:
        """Returns an upload with the parts that the server has received."""
        return await self._connection.call(
            models.Upload.from_dict, "getUpload", upload_id=upload_id
        )

    async def put_part(self, upload_id: str, number: int, content: bytes) -> None:
        """Sends one part (1 to 10,000, at most 64 MiB), and checks its SHA-256."""
        core = self._connection.core
        number = integer_of("number", number, 1)
        await self._connection.run(send_part(core, upload_id, number, content))

    async def complete(self, upload_id: str) -> models.Upload:
        """Completes an upload: the server reads and validates it."""
        return await self._connection.call(
            models.Upload.from_dict, "completeUpload", upload_id=upload_id
        )

    async def delete(self, upload_id: str) -> None:
        """Deletes an upload."""
        await self._connection.discard("deleteUpload", upload_id=upload_id)


class AsyncModels(AsyncResource):
    """The catalog of models, and their operations on sequences of events."""

    def list(self) -> AsyncPages[models.Model]:
        """Lists the catalog's models."""
        return self._pages("listModels", "models", models.Model.from_dict)

    async def get(self, model_id: str) -> models.ModelCard:
        """Returns a model's card."""
        return await self._connection.call(
            models.ModelCard.from_dict, "getModel", model_id=model_id
        )

    async def predict(
        self,
        model_id: str,
        sequences: Iterable[SequenceLike],
        *,
        top_k: int | None = None,
        exclude_seen: bool | None = None,
        model_version: str | None = None,
        on_long: models.OnLong | None = None,
        on_unknown: models.OnUnknown | None = None,
    ) -> models.Predictions:
        """Predicts the next item of each of 1 to 64 sequences."""
        body = without_none(
            sequences=list_of("sequences", sequences),
            top_k=top_k,
            exclude_seen=exclude_seen,
            model_version=model_version,
            on_long=on_long,
            on_unknown=on_unknown,
        )
        return await self._connection.call_with_key(
            models.Predictions.from_dict, "predict", body, new_key(), model_id=model_id
        )

    async def generate(
        self,
        model_id: str,
        sequences: Iterable[SequenceLike],
        *,
        n_events: int | None = None,
        n_continuations: int | None = None,
        mode: models.GenerateMode | None = None,
        temperature: float | None = None,
        seed: str | None = None,
        exclude_seen: bool | None = None,
        model_version: str | None = None,
        on_long: models.OnLong | None = None,
        on_unknown: models.OnUnknown | None = None,
    ) -> models.Generations:
        """Continues each of 1 to 64 sequences. The same `seed` gives the same ones."""
        body = without_none(
            sequences=list_of("sequences", sequences),
            n_events=n_events,
            n_continuations=n_continuations,
            mode=mode,
            temperature=temperature,
            seed=seed,
            exclude_seen=exclude_seen,
            model_version=model_version,
            on_long=on_long,
            on_unknown=on_unknown,
        )
        return await self._connection.call_with_key(
            models.Generations.from_dict, "generate", body, new_key(), model_id=model_id
        )

    async def embed(
        self,
        model_id: str,
        sequences: Iterable[SequenceLike],
        *,
        pooling: models.Pooling | None = None,
        normalize: bool | None = None,
        encoding_format: models.EncodingFormat | None = None,
        model_version: str | None = None,
        on_long: models.OnLong | None = None,
        on_unknown: models.OnUnknown | None = None,
    ) -> models.Embeddings:
        """Returns a vector for each of 1 to 64 sequences. They are personal data."""
        body = without_none(
            sequences=list_of("sequences", sequences),
            pooling=pooling,
            normalize=normalize,
            encoding_format=encoding_format,
            model_version=model_version,
            on_long=on_long,
            on_unknown=on_unknown,
        )
        return await self._connection.call_with_key(
            models.Embeddings.from_dict, "embed", body, new_key(), model_id=model_id
        )


class AsyncPredictions(AsyncResource):
    """Prediction jobs: a model predicts many sequences, or a suite."""

    async def create(
        self,
        model_id: str,
        *,
        suite_id: str | None = None,
        sequences: Iterable[SequenceLike] | None = None,
        input_ref: str | None = None,
        evaluate: bool | None = None,
        parameters: Mapping[str, Any] | None = None,
        label: str | None = None,
        model_version: str | None = None,
        operation: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncJob:
        """Creates a prediction job for a suite, sequences or an upload of them.

        With `evaluate`, the output is scored as well, by the job `eval_job_id`.
        `parameters` can have `top_k`, `exclude_seen`, `on_long` and `on_unknown`.
        """
        body = without_none(
            model_id=model_id,
            suite_id=suite_id,
            sequences=optional_list("sequences", sequences),
            input_ref=input_ref,
            evaluate=evaluate,
            parameters=parameters,
            label=label_of(label),
            model_version=model_version,
            operation=operation,
        )
        return await self._connection.call_with_key(
            self._connection.job,
            "createPrediction",
            body,
            new_key() if idempotency_key is None else idempotency_key,
        )


class AsyncBoards(AsyncResource):
    """Leaderboards, and the entries of the organization."""

    async def get(
        self, suite_id: str, *, version: str | None = None, page_size: int | None = None
    ) -> models.Board:
        """Returns a suite's board, with all entries from one computation."""
        entries: list[models.BoardRow] = []
        cursor: str | None = None
        while True:
            board = await self._connection.query(
                models.Board.from_dict,
                "getBoard",
                {"version": version, "limit": page_size, "cursor": cursor},
                suite_id=suite_id,
            )
            entries += board.entries
            if board.next_cursor is not None and board.next_cursor == cursor:
                raise AssayError(f"{suite_id}: the next page of the board has the cursor of this.")
            cursor = board.next_cursor
            if cursor is None:
                return dataclasses.replace(board, entries=tuple(entries))

    async def enter(self, job_id: str, name: str, *, url: str | None = None) -> models.Entry:
        """Puts a succeeded job on its suite's board.

        This publishes the name, the URL, the name of the organization, the figures of the job and
        the number of submissions. At most three jobs can enter, also if entries are withdrawn.
        """
        return await self._connection.call(
            models.Entry.from_dict,
            "createEntry",
            body=without_none(name=name, url=url),
            job_id=job_id,
        )

    async def withdraw(self, entry_id: str) -> models.Entry:
        """Withdraws an entry. After the board's close, its figures stay without its name."""
        return await self._connection.call(models.Entry.from_dict, "deleteEntry", entry_id=entry_id)

    def entries(
        self,
        *,
        suite: str | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.Entry]:
        """Lists the organization's entries, the newest first."""
        return self._pages(
            "listEntries",
            "entries",
            models.Entry.from_dict,
            token="before",
            query={"suite_id": suite, "before": before, "limit": page_size},
        )


class AsyncReceipts(AsyncResource):
    """Signed statements about figures of jobs, for `assay verify`."""

    async def of_job(self, job_id: str, *, figures: str | None = None) -> models.Receipt:
        """Returns the receipt of a succeeded eval. Its `log` is None in the first seconds.

        `figures` is `all`, `open`, `sealed` or `board`. Raises `InvalidState` if the job has not
        succeeded, or if its sealed figures are not disclosed yet.
        """
        return await self._connection.query(
            models.Receipt.from_dict, "getJobReceipt", {"figures": figures}, job_id=job_id
        )

    async def get(self, receipt_id: str) -> models.Receipt:
        """Returns an own receipt, or one that a board shows."""
        return await self._connection.call(
            models.Receipt.from_dict, "getReceipt", receipt_id=receipt_id
        )

    async def salt(self, job_id: str) -> models.ReceiptOpening:
        """Returns the salt that names the organization in the receipt, for owners."""
        return await self._connection.call(
            models.ReceiptOpening.from_dict, "getReceiptOpening", job_id=job_id
        )

    async def commitment(self, suite_id: str, *, version: str | None = None) -> models.Commitment:
        """Returns the commitment of a suite to its items and answers.

        After the version has retired, `opening` has the salt and names the files.
        """
        return await self._connection.query(
            models.Commitment.from_dict,
            "getSuiteCommitment",
            {"version": version},
            suite_id=suite_id,
        )

    async def opened_file(self, suite_id: str, file: str, *, version: str | None = None) -> bytes:
        """Returns `items.ndjson` or `answers.ndjson` of a retired version, byte for byte."""
        reply = await self._connection.run(
            self._connection.core.call(
                "getSuiteOpening",
                path={"suite_id": suite_id, "file": file},
                query={"version": version},
                headers={"Accept": "application/x-ndjson"},
            )
        )
        return reply.content


class AsyncQueueResource(AsyncResource):
    """The queue of jobs."""

    async def get(self) -> models.Queue:
        """Returns the totals of the queue over all organizations, measured once a second."""
        return await self._connection.call(models.Queue.from_dict, "getQueue")


class AsyncUsageResource(AsyncResource):
    """The organization's usage."""

    async def get(self) -> models.Usage:
        """Returns the current month's usage, and the limits of the plan."""
        return await self._connection.call(models.Usage.from_dict, "getUsage")

    async def days(
        self, *, first: Day | None = None, last: Day | None = None
    ) -> tuple[models.UsageDay, ...]:
        """Returns each day's usage, UTC: at most 92 days, by default the last 30."""
        query = {"from": first, "to": last}
        usage = await self._connection.query(models.UsageDays.from_dict, "listUsageDays", query)
        return usage.days


class AsyncKeys(AsyncResource):
    """API keys. Needs a session token."""

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.ApiKey]:
        """Lists the organization's keys, with revoked ones."""
        return self._pages(
            "listKeys", "keys", models.ApiKey.from_dict, token="cursor", query={"limit": page_size}
        )

    async def create(
        self,
        name: str,
        *,
        scopes: Iterable[models.Scope] | None = None,
        expires_at: Time | None = None,
    ) -> models.ApiKeyCreated:
        """Creates a key. Its secret, `key`, is in this response only."""
        body = without_none(
            name=name,
            scopes=optional_list("scopes", scopes),
            expires_at=expires_at,
        )
        return await self._connection.call(models.ApiKeyCreated.from_dict, "createKey", body=body)

    async def update(
        self,
        key_id: str,
        *,
        name: str | None = None,
        scopes: Iterable[models.Scope] | None = None,
        expires_at: Time | None = None,
    ) -> models.ApiKey:
        """Renames a key, removes some of its scopes, or brings its expiry forward."""
        body = without_none(
            name=name,
            scopes=optional_list("scopes", scopes),
            expires_at=expires_at,
        )
        return await self._connection.call(
            models.ApiKey.from_dict, "updateKey", body=body, key_id=key_id
        )

    async def rotate(
        self, key_id: str, *, overlap_hours: int | None = None
    ) -> models.ApiKeyCreated:
        """Replaces a key. The old one works for `overlap_hours` (0 to 720, by default 24)."""
        return await self._connection.call(
            models.ApiKeyCreated.from_dict,
            "rotateKey",
            body=without_none(overlap_hours=overlap_hours),
            key_id=key_id,
        )

    async def revoke(self, key_id: str) -> models.ApiKey:
        """Revokes a key at once."""
        return await self._connection.call(models.ApiKey.from_dict, "revokeKey", key_id=key_id)


class AsyncMembers(AsyncResource):
    """Members of the organization. Needs a session token; changes need the role `owner`."""

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Member]:
        """Lists the members."""
        return self._pages(
            "listMembers",
            "members",
            models.Member.from_dict,
            token="cursor",
            query={"limit": page_size},
        )

    async def update(self, user_id: str, role: models.Role) -> models.Member:
        """Changes a member's role. Raises `InvalidState` for the last owner."""
        return await self._connection.call(
            models.Member.from_dict, "updateMember", body={"role": role}, user_id=user_id
        )

    async def remove(self, user_id: str) -> None:
        """Removes a member. Raises `InvalidState` for the last owner."""
        await self._connection.discard("removeMember", user_id=user_id)


class AsyncInvites(AsyncResource):
    """Invites. Needs an owner's session token."""

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Invite]:
        """Lists the organization's invites."""
        return self._pages(
            "listInvites",
            "invites",
            models.Invite.from_dict,
            token="cursor",
            query={"limit": page_size},
        )

    async def create(self, email: str, *, role: models.Role | None = None) -> models.Invite:
        """Invites a user by email. The default role is `member`; an invite is valid for 14 days."""
        return await self._connection.call(
            models.Invite.from_dict, "createInvite", body=without_none(email=email, role=role)
        )

    async def revoke(self, invite_id: str) -> models.Invite:
        """Revokes an invite."""
        return await self._connection.call(
            models.Invite.from_dict, "revokeInvite", invite_id=invite_id
        )


class AsyncDomains(AsyncResource):
    """Domains of the organization. Needs a session token; changes need the role `owner`."""

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.ClaimedDomain]:
        """Lists the verified domain claims."""
        return self._pages(
            "listDomains",
            "domains",
            models.ClaimedDomain.from_dict,
            token="cursor",
            query={"limit": page_size},
        )

    async def claim(self, domain: str) -> models.DomainClaim:
        """Claims a domain. The response has the TXT record to publish within 7 days."""
        return await self._connection.call(
            models.DomainClaim.from_dict, "claimDomain", body={"domain": domain}
        )

    async def verify(self, domain: str) -> models.DomainVerification:
        """Looks up the TXT record. Without it, `verified` is `False`."""
        return await self._connection.call(
            models.DomainVerification.from_dict, "verifyDomain", domain=domain
        )

    async def update(self, domain: str, *, auto_join: bool) -> models.ClaimedDomain:
        """Changes whether users with an address of the domain become members at sign-in."""
        return await self._connection.call(
            models.ClaimedDomain.from_dict,
            "updateDomain",
            body={"auto_join": auto_join},
            domain=domain,
        )

    async def release(self, domain: str) -> None:
        """Releases a domain claim."""
        await self._connection.discard("releaseDomain", domain=domain)


class AsyncOrgs(AsyncResource):
    """Organizations. Needs a session token."""

    async def create(self, name: str) -> models.Org:
        """Creates an organization on the plan `free`, with the caller as its owner."""
        return await self._connection.call(models.Org.from_dict, "createOrg", body={"name": name})

    async def update(
        self,
        org_id: str,
        *,
        name: str | None = None,
        data_use: models.DataUse | None = None,
        handle: str | None = None,
    ) -> models.Org:
        """Changes the name, handle or use of submissions. Needs the role `owner`."""
        return await self._connection.call(
            models.Org.from_dict,
            "updateOrg",
            body=without_none(name=name, data_use=data_use, handle=handle),
            org_id=org_id,
        )


class AsyncTermsResource(AsyncResource):
    """The operator's terms."""

    async def get(self) -> models.Terms:
        """Returns the current terms. Raises `NotFound` if the operator has none."""
        return await self._connection.call(models.Terms.from_dict, "getTerms")

    async def accept(self, version: str) -> models.Terms:
        """Accepts the terms. Needs an owner's session. Raises `Conflict` for another version."""
        return await self._connection.call(
            models.Terms.from_dict, "acceptTerms", body={"version": version}
        )


class AsyncEvents(AsyncResource):
    """Events of the last 30 days."""

    def list(
        self,
        *,
        type: models.EventType | None = None,
        cursor: str | None = None,
        follow: bool = False,
        wait: int | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.Event]:
        """Lists events, the oldest first. `position` of the listing is the cursor to continue from.

        With `follow`, the listing never ends: it waits for new events. `wait` (at most 30 seconds)
        is how long one request waits.
        """
        query = {
            "type": type,
            "cursor": cursor,
            "wait": 30 if follow and wait is None else wait,
            "limit": page_size,
        }
        return self._pages(
            "listEvents",
            "events",
            models.Event.from_dict,
            token="cursor",
            follows=follow,
            query=query,
        )


class AsyncAudit(AsyncResource):
    """The audit log. Needs an owner's session token."""

    def list(
        self,
        *,
        type: models.AuditType | None = None,
        actor_id: str | None = None,
        target_id: str | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.AuditEntry]:
        """Lists the organization's changes, the newest first."""
        query = {
            "type": type,
            "actor_id": actor_id,
            "target_id": target_id,
            "before": before,
            "limit": page_size,
        }
        return self._pages(
            "listAuditEntries",
            "entries",
            models.AuditEntry.from_dict,
            token="before",
            query=query,
        )


class AsyncWebhooks(AsyncResource):
    """Webhooks. Needs an owner's session token."""

    def list(self) -> AsyncPages[models.Webhook]:
        """Lists the webhooks, the oldest first."""
        return self._pages("listWebhooks", "webhooks", models.Webhook.from_dict)

    async def create(
        self, url: str, events: Iterable[models.EventType], *, description: str | None = None
    ) -> models.WebhookWithSecret:
        """Creates a webhook. Its `secret` is in this response only."""
        body = without_none(url=url, events=list_of("events", events), description=description)
        return await self._connection.call(
            models.WebhookWithSecret.from_dict, "createWebhook", body=body
        )

    async def get(self, webhook_id: str) -> models.Webhook:
        """Returns a webhook."""
        return await self._connection.call(
            models.Webhook.from_dict, "getWebhook", webhook_id=webhook_id
        )

    async def update(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Iterable[models.EventType] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
    ) -> models.Webhook:
        """Changes a webhook. An empty description removes it."""
        body = without_none(
            url=url,
            events=optional_list("events", events),
            description=description,
            enabled=enabled,
        )
        return await self._connection.call(
            models.Webhook.from_dict, "updateWebhook", body=body, webhook_id=webhook_id
        )

    async def delete(self, webhook_id: str) -> None:
        """Deletes a webhook."""
        await self._connection.discard("deleteWebhook", webhook_id=webhook_id)

    async def rotate(
        self, webhook_id: str, *, overlap_hours: int | None = None
    ) -> models.WebhookWithSecret:
        """Returns a new secret. Both sign for `overlap_hours` (0 to 720, by default 24)."""
        return await self._connection.call(
            models.WebhookWithSecret.from_dict,
            "rotateWebhook",
            body=without_none(overlap_hours=overlap_hours),
            webhook_id=webhook_id,
        )

    async def test(
        self, webhook_id: str, *, type: models.EventType | None = None
    ) -> models.Delivery:
        """Sends one event to the webhook, by default a `ping`."""
        return await self._connection.call(
            models.Delivery.from_dict,
            "testWebhook",
            body=without_none(type=type),
            webhook_id=webhook_id,
        )

    def deliveries(
        self,
        webhook_id: str,
        *,
        status: models.DeliveryStatus | None = None,
        before: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.Delivery]:
        """Lists the deliveries of the last 30 days, the newest first."""
        return self._pages(
            "listDeliveries",
            "deliveries",
            models.Delivery.from_dict,
            token="before",
            query={"status": status, "before": before, "limit": page_size},
            webhook_id=webhook_id,
        )

    async def retry(self, webhook_id: str, delivery_id: str) -> models.Delivery:
        """Sends one event again at once."""
        return await self._connection.call(
            models.Delivery.from_dict,
            "retryDelivery",
            webhook_id=webhook_id,
            delivery_id=delivery_id,
        )

    async def recover(self, webhook_id: str, since: Time) -> models.Webhook:
        """Sends the events since a time, at most 30 days ago, that were not delivered."""
        return await self._connection.call(
            models.Webhook.from_dict,
            "recoverWebhook",
            body={"since": since},
            webhook_id=webhook_id,
        )


class AsyncAuth(AsyncResource):
    """Signing in. These operations need no credential: pass `api_key=""` to the client."""

    async def request_sign_in(self, email: str) -> models.SignInRequested:
        """Sends a sign-in link, which is valid once and for 15 minutes."""
        return await self._connection.call(
            models.SignInRequested.from_dict, "requestSignIn", body={"email": email}
        )

    async def sign_in(self, token: str) -> models.SignedIn:
        """Returns a session token for a sign-in link's token."""
        return await self._connection.call(
            models.SignedIn.from_dict, "signIn", body={"token": token}
        )

    async def create_device_login(self, client_name: str) -> models.DeviceLogin:
        """Starts a program's login: a person allows it on a page."""
        return await self._connection.call(
            models.DeviceLogin.from_dict, "createDeviceLogin", body={"client_name": client_name}
        )

    async def poll_device_login(self, device_code: str) -> models.DeviceLoginResult:
        """Returns whether the login is allowed, with the API key. Poll every `interval` seconds."""
        return await self._connection.call(
            models.DeviceLoginResult.from_dict,
            "pollDeviceLogin",
            body={"device_code": device_code},
        )


class AsyncSessions(AsyncResource):
    """Sessions of the user. Needs a session token."""

    def list(self) -> AsyncPages[models.Session]:
        """Lists the live sessions."""
        return self._pages("listSessions", "sessions", models.Session.from_dict)

    async def end(self) -> None:
        """Ends this client's session."""
        await self._connection.discard("endSession")

    async def delete(self, session_id: str) -> None:
        """Ends one session."""
        await self._connection.discard("deleteSession", session_id=session_id)

    async def delete_others(self) -> None:
        """Ends all sessions except the one of this client."""
        await self._connection.discard("deleteOtherSessions")
