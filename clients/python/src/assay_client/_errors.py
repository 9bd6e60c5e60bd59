"""The client's exceptions. All of them are an `AssayError`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from ._models import Job
    from ._results import Comparison


class AssayError(Exception):
    """The base class for all client exceptions."""

    idempotency_key: str | None = None
    """The `Idempotency-Key` of the failed request, if it had one."""


class AssayWarning(UserWarning):
    """A likely mistake, or a setting that deserves attention. The call continues."""


class OutOfRange(AssayError, IndexError):
    """A listing has no entry at the index."""


class ApiError(AssayError):
    """An error response of the API."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        request_id: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Creates the exception. `retry_after` is in seconds."""
        suffix = f" (request {request_id})" if request_id else ""
        super().__init__(f"{code}: {message}{suffix}")
        self.code = code
        """The error code, such as `not_found`."""
        self.message = message
        """The description of the error, for people."""
        self.status = status
        """The HTTP status."""
        self.request_id = request_id
        """The id to quote in support requests."""
        self.details: Mapping[str, Any] = details or {}
        """The details, which depend on the code."""
        self.retry_after = retry_after
        """The number of seconds after which a retry can succeed, or None."""


class FieldError(NamedTuple):
    """One field error of a `ValidationFailed`."""

    field: str
    """The position of the error: a path such as `predictions[3].item_id`."""
    reason: str
    """The kind of the error, such as `required`, `type` or `duplicate`."""
    message: str
    """A description for people."""


class InvalidRequest(ApiError):
    """The request is malformed (400 and other statuses)."""


class ValidationFailed(ApiError):
    """A field is missing, of the wrong type, out of range or unknown (422)."""

    @property
    def fields(self) -> tuple[FieldError, ...]:
        """The field errors."""
        found = self.details.get("fields")
        if not isinstance(found, list):
            return ()
        listed: list[Any] = found  # pyright: ignore[reportUnknownVariableType]
        return tuple(
            FieldError(_text(f.get("field")), _text(f.get("reason")), _text(f.get("message")))
            for f in map(_object, listed)
        )


class PayloadTooLarge(ApiError):
    """The request body or the upload is too large (413)."""


class AuthenticationError(ApiError):
    """The credential is missing or not valid (401)."""


class Unauthenticated(AuthenticationError):
    """The request has no credential (401)."""


class InvalidToken(AuthenticationError):
    """The API key or the session token is unknown, or the session has ended (401)."""


class KeyRevoked(AuthenticationError):
    """The API key was revoked or has expired (401)."""


class Forbidden(ApiError):
    """The credential does not permit the operation (403). `details["reason"]` says why."""


class TermsNotAccepted(Forbidden):
    """An owner of the organization must accept the terms first (403)."""

    @property
    def url(self) -> str:
        """The URL of the terms."""
        return str(self.details.get("url", ""))


class SessionRequired(ApiError):
    """The operation needs a session token instead of an API key (403)."""


class OrgRequired(ApiError):
    """The credential resolves to no organization (403)."""


class NotFound(ApiError):
    """The organization has no such resource (404)."""


class Conflict(ApiError):
    """The resource exists already, or the version is not the current one (409)."""


class InvalidState(ApiError):
    """The resource's state does not permit the operation (409)."""


class QuotaExceeded(ApiError):
    """A plan or suite limit is reached (429)."""

    @property
    def limit(self) -> str:
        """The limit's name, such as `eval_items_per_month`."""
        return str(self.details.get("limit", ""))

    @property
    def max(self) -> int:
        """The limit's value."""
        found = self.details.get("max")
        return found if isinstance(found, int) else 0

    @property
    def resets_at(self) -> datetime | None:
        """The latest time at which there is room again."""
        from ._record import parse_time

        try:
            return parse_time(self.details["resets_at"])
        except Exception:
            # A proxy can change the details. The limit is reached nevertheless.
            return None


class RateLimited(ApiError):
    """Too many requests in a minute, or too many failed authentications (429)."""


class Internal(ApiError):
    """The server failed (500)."""


class Unavailable(ApiError):
    """The server or one of its dependencies is unavailable or overloaded (503)."""


class ConnectionFailed(AssayError):
    """The client received no response: no connection, a broken connection or a timeout."""


class JobFailed(AssayError):
    """The job has the status `failed`."""

    def __init__(self, job: Job) -> None:
        reason = f"{job.error.code}: {job.error.message}" if job.error else "unknown reason"
        super().__init__(f"{job.id} failed: {reason}")
        self.job = job
        """The failed job."""


class JobCancelled(AssayError):
    """The job has the status `cancelled`."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{job.id} was cancelled.")
        self.job = job
        """The cancelled job."""


class WaitTimedOut(AssayError):
    """The job has not finished within the timeout. It continues on the server."""

    def __init__(self, job: Job, timeout: float) -> None:
        """Creates the exception for a job that is still `queued` or `running`."""
        super().__init__(f"{job.id} is still {job.status} after {timeout:g} s. It continues.")
        self.job = job
        """The job as last read."""


class Regression(AssayError):
    """The new job is worse than the baseline, see `Comparison.raise_if_worse`."""

    def __init__(self, comparison: Comparison, margin: float) -> None:
        super().__init__(f"worse than the baseline by more than {margin:g}: {comparison}")
        self.comparison = comparison
        """The comparison."""


ERRORS: dict[str, type[ApiError]] = {
    "invalid_request": InvalidRequest,
    "validation_failed": ValidationFailed,
    "payload_too_large": PayloadTooLarge,
    "unauthenticated": Unauthenticated,
    "invalid_token": InvalidToken,
    "key_revoked": KeyRevoked,
    "forbidden": Forbidden,
    "session_required": SessionRequired,
    "org_required": OrgRequired,
    "not_found": NotFound,
    "conflict": Conflict,
    "invalid_state": InvalidState,
    "quota_exceeded": QuotaExceeded,
    "rate_limited": RateLimited,
    "internal": Internal,
    "unavailable": Unavailable,
}
"""The exception class of each error code."""

# A proxy in front of the server can respond without the error body of the API.
_CODES_OF_STATUS = {
    401: "invalid_token",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "payload_too_large",
    422: "validation_failed",
    429: "rate_limited",
    500: "internal",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    # Half characters of a response would make the message impossible to print.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def error_of_response(
    status: int, body: Any, request_id: str | None, retry_after: float | None
) -> ApiError:
    """Returns the exception for an error response. `body` is the decoded JSON, or None."""
    error = _object(_object(body).get("error"))
    fallback = _CODES_OF_STATUS.get(status, "internal" if status >= 500 else "invalid_request")
    code = _text(error.get("code")) or fallback
    details = _object(error.get("details"))
    kind = ERRORS.get(code, ApiError)
    if code == "forbidden" and details.get("reason") == "terms_not_accepted":
        kind = TermsNotAccepted
    return kind(
        code,
        _text(error.get("message")) or f"The server responded with status {status}.",
        status=status,
        request_id=_text(error.get("request_id")) or request_id,
        details=details,
        retry_after=retry_after,
    )
