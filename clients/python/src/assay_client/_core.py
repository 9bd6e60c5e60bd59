"""The client's core, without input or output.

The core consists of generators, called steps. A step yields *effects*: send a request, sleep, run
a blocking function, run several steps at once. A runner (`_sync_runner.py`, `_async_runner.py`)
performs the effects, and sends the result or the exception back into the generator. So all
decisions exist once, and the sync and the async client only differ in their runner.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from ._arguments import header_of, kind_of, reason_of, text_of
from ._errors import (
    ApiError,
    AssayError,
    AssayWarning,
    ConnectionFailed,
    QuotaExceeded,
    error_of_response,
)
from ._record import Record, format_time
from ._retry import Failure, RateLimit, RetryPolicy, timeout_of
from ._tables import OPERATIONS, RETRIES

T = TypeVar("T")
R = TypeVar("R", bound=Record)

Steps = Generator["Effect", Any, T]
Json = dict[str, Any]

logger = logging.getLogger("assay_client")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, relative to the installation's address and without credential."""

    operation: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes | None = None
    timeout: float = 75.0
    """The read timeout in seconds."""
    is_stream: bool = False
    """`True` if the body of the response is read with the effect `Read`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response with its whole body. The header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    stream: Any = None
    """The body of the response to a request with `is_stream`, for the effect `Read`."""

    def json(self) -> Any:
        """Returns the decoded body. Raises `AssayError` if it is not JSON."""
        try:
            return json.loads(self.content.decode())
        except (ValueError, RecursionError):
            pass
        raise AssayError(f"{self._name()} is not JSON.")

    def decode(self, decode: Callable[[Any], T]) -> T:
        """Returns what `decode` makes from the decoded body.

        Raises `AssayError` if the response does not have the form that it expects. The error's
        message and cause have no response values, which can be credentials.
        """
        body = self.json()
        try:
            return decode(body)
        except AssayError as error:
            reason = str(error)
        except KeyError as error:
            reason = f"It lacks {error}."
        except Exception as error:
            reason = f"Reading it ends with {kind_of(error)}."
        raise AssayError(f"{self._name()} does not have the form of the API. {reason}")

    def _name(self) -> str:
        request_id = self.headers.get("x-request-id")
        suffix = f", request {request_id}" if request_id else ""
        return f"The response (status {self.status}{suffix})"


class TransportError(Exception):
    """The transport received no response. `kind` is a `Failure`'s `error`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send a request. The result is a `Reply`, or a `TransportError` is raised."""

    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    """Effect: read a stream's next bytes. The result is empty at its end."""

    stream: Any


@dataclass(frozen=True, slots=True)
class Sleep:
    """Effect: wait for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Block:
    """Effect: call a function that blocks, such as one that reads a file. The result is its own."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Effect: call a user's sync or async function. The result is the function's."""

    function: Callable[..., Any]
    argument: Any


@dataclass(frozen=True, slots=True)
class Parallel:
    """Effect: run steps, at most `limit` at once. The iterable is consumed as they start.

    After the first exception no further step starts; the exception is raised when those that have
    started are finished, or at once after Ctrl-C.
    """

    steps: Iterable[Steps[Any]]
    limit: int


Effect = Send | Read | Sleep | Block | Call | Parallel


@dataclass
class Core:
    """One client's settings and state that decisions depend on."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    org_id: str | None = None
    """The organization that a session acts for."""
    on_wait: Callable[[str], None] = logger.info
    """Receives a message when the client waits for a slot of `concurrent_jobs`."""
    rate_limit: RateLimit = field(default_factory=RateLimit)
    warned_expiry: str | None = None
    checked_jobs: set[str] = field(default_factory=set[str])
    """The jobs whose predictions were compared with the items when they were submitted."""

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Json | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        waits_for_slot: bool = False,
        is_stream: bool = False,
    ) -> Steps[Reply]:
        """Sends an operation's request, with retries.

        A byte `body` is JSON already. Raises `ApiError`, `ConnectionFailed`, and `AssayError`
        for arguments that cannot be sent.
        """
        method, template = OPERATIONS[operation]
        content = body if isinstance(body, bytes) or body is None else encode_body(body)
        all_headers = dict(headers or {})
        if content is not None:
            all_headers.setdefault("Content-Type", "application/json")
        if idempotency_key is not None:
            all_headers["Idempotency-Key"] = header_of("idempotency_key", idempotency_key)
        request = Request(
            operation=operation,
            method=method,
            path=template.format_map({k: _path_part(k, v) for k, v in (path or {}).items()}),
            query=encode_query(query or {}),
            headers=all_headers,
            content=content,
            timeout=timeout_of(operation),
            is_stream=is_stream,
        )
        return (yield from self.send(request, waits_for_slot=waits_for_slot))

    def send(self, request: Request, *, waits_for_slot: bool = False) -> Steps[Reply]:
        """Sends a request, with the table's retries."""
        key = next((v for k, v in request.headers.items() if k.lower() == "idempotency-key"), None)
        operation_class = self.policy.class_of(request.operation, key is not None)
        retries = 0
        slept = 0.0
        while True:
            if delay := self.rate_limit.take_delay():
                logger.debug("rate limit reached, waiting %.1f s", delay)
                yield Sleep(delay)
            error: AssayError
            try:
                reply: Reply = yield Send(request)
            except TransportError as failed:
                failure = Failure(failed.kind)
                error = ConnectionFailed(f"{request.method} {request.path}: {failed}")
            else:
                self._observe(reply)
                if 200 <= reply.status < 300:
                    return reply
                if reply.status < 400:
                    raise _unusable(request, reply)
                error = decode_error(reply)
                limit = error.limit if isinstance(error, QuotaExceeded) else None
                failure = Failure(error.code, error.retry_after, limit)
            error.idempotency_key = key
            wait = self.policy.delay(failure, operation_class, retries, waits_for_slot)
            is_slot = failure.limit == "concurrent_jobs"
            if wait is None or (is_slot and slept > RETRIES["limits"]["slot_wait_seconds"]):
                raise error
            if is_slot:
                self.on_wait(f"all concurrent jobs are in use, retrying in {wait:g} s")
                slept += wait
            else:
                retries += 1
                logger.debug("%s, retry %d in %.1f s", failure.error, retries, wait)
            yield Sleep(wait)

    def _observe(self, reply: Reply) -> None:
        headers = reply.headers
        # Without a valid credential, the headers describe the network address's limit.
        if reply.status != 401 and "x-ratelimit-remaining" in headers:
            # A proxy may repeat or change the headers. A hint that is no number is ignored.
            with suppress(ValueError, OverflowError):
                self.rate_limit.observe(
                    int(headers.get("x-ratelimit-limit", 0)),
                    int(headers["x-ratelimit-remaining"]),
                    _seconds_to_reset(headers),
                )
        expires_at = headers.get("x-key-expires-at")
        if expires_at and expires_at != self.warned_expiry:
            self.warned_expiry = expires_at
            import warnings

            warnings.warn(f"The API key expires at {expires_at}.", AssayWarning, stacklevel=2)


def _seconds_to_reset(headers: Mapping[str, str]) -> float:
    """Returns the time until `X-RateLimit-Reset`, independent of this machine's clock."""
    try:
        now = parsedate_to_datetime(headers["date"]).timestamp()
    except Exception:
        # The standard library's parser has no closed set of exceptions.
        import time

        now = time.time()
    seconds = float(headers.get("x-ratelimit-reset", 0)) - now
    if not math.isfinite(seconds):
        raise ValueError("this is no time")
    return seconds


def decode_error(reply: Reply) -> ApiError:
    """Returns the exception for an error response."""
    try:
        body = json.loads(reply.content.decode())
    except (ValueError, RecursionError):
        body = None
    retry_after: float | None
    try:
        retry_after = float(reply.headers["retry-after"])
    except (KeyError, ValueError):
        retry_after = None
    # A hint that is no time is ignored.
    if retry_after is not None and not 0 <= retry_after < math.inf:
        retry_after = None
    return error_of_response(reply.status, body, reply.headers.get("x-request-id"), retry_after)


def _unusable(request: Request, reply: Reply) -> AssayError:
    """Returns the error for a response that is neither a result nor an API error."""
    text = f"{request.method} {request.path}: the server responded with status {reply.status}"
    try:
        target = urlsplit(reply.headers["location"])
        place = f" to {target.scheme}://{target.hostname}" if target.hostname else ""
    except (KeyError, ValueError):
        place = ""
    if reply.status < 300:
        return AssayError(f"{text}, which is no response of the API.")
    return AssayError(
        f"{text}, a redirect{place}. Set `base_url` to the address of the installation."
    )


def _path_part(name: str, value: Any) -> str:
    part = text_of(name, value)
    # An empty part or dots would be another operation's path.
    if part.strip(".") == "":
        raise AssayError(f"`{name}` must not be {part!r}.")
    return quote(part, safe=":")


def encode_body(body: Json) -> bytes:
    """Returns a request body. Raises `AssayError` with the field name that is not JSON."""
    try:
        return encode_json(body)
    except Exception:
        pass
    for name, value in body.items():
        try:
            encode_json(value)
        except Exception as error:
            reason = _reason_of_encoding(error)
        else:
            continue
        raise AssayError(f"`{name}` cannot be sent as JSON: {reason}.")
    raise AssayError("The request body cannot be sent as JSON.")


def _reason_of_encoding(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has half of a character, a surrogate"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return reason_of(error)


def encode_json(value: Any) -> bytes:
    """Returns compact JSON. Models become objects, and timestamps RFC 3339 strings."""
    return _encoder.encode(value).encode()


def _json_default(value: Any) -> Any:
    if isinstance(value, Record):
        return {name: item for name, item in value.to_dict().items() if item is not None}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    if hasattr(value, "isoformat"):
        return format_time(value)
    if type(value).__name__ == "Decimal":
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def encode_query(query: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns query parameters as strings, without those that are None.

    Raises `AssayError` with a parameter name that cannot be sent.
    """
    return tuple(
        (text_of("a name of query", name), text_of(name, _query_value(name, value)))
        for name, value in query.items()
        if value is not None
    )


def _query_value(name: str, value: Any) -> str:
    try:
        return format_time(value) if hasattr(value, "isoformat") else str(value)
    except Exception as error:
        reason = reason_of(error)
    raise AssayError(f"`{name}` cannot be sent: {reason}.")


def without_none(**values: Any) -> Json:
    """Returns the arguments that are not None, for a request body."""
    return {name: value for name, value in values.items() if value is not None}


def new_key() -> str:
    """Returns a random idempotency key, for operations whose content is not hashed."""
    return secrets.token_hex(16)


def is_async_function(function: Any) -> bool:
    """Returns whether a user's function, or an object with `__call__`, is async."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


# json.dumps would create an encoder for each prediction.
_encoder = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_json_default
)


class Pager(Generic[T]):
    """One listing's state: which page is next."""

    def __init__(
        self,
        core: Core,
        operation: str,
        field: str,
        decode: Callable[[Mapping[str, Any]], T],
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        token: str | None = None,
        follows: bool = False,
    ) -> None:
        """Creates a listing. `field` is a page's array.

        `token` is the query parameter's name for the next page, or None for a listing
        without pages. With `follows`, the listing never ends: it waits for new entries.
        """
        self._core = core
        self._operation = operation
        self._field = field
        self._decode = decode
        self._path = path
        self._query = dict(query or {})
        self._token = token
        self._follows = follows
        self._read: str | None = None
        self.has_more = True

    @property
    def position(self) -> str | None:
        """The next page's token."""
        return self._query.get(self._token) if self._token else None

    def next_page(self) -> Steps[list[T]]:
        """Reads the next page."""
        reply = yield from self._core.call(self._operation, path=self._path, query=self._query)
        entries, following = reply.decode(self._entries)
        # The event cursor is never null; an empty page is the last one.
        is_last = following is None or (self._operation == "listEvents" and not entries)
        # A token that does not change would never come to an end.
        if not is_last and not self._follows and following == self._read:
            raise AssayError(f"{self._operation}: the next page has the token of this one.")
        if following is not None and self._token:
            self._query[self._token] = self._read = following
        self.has_more = self._follows or not is_last
        return entries

    def _entries(self, page: Json) -> tuple[list[T], str | None]:
        following = page.get(f"next_{self._token}") if self._token else None
        if not isinstance(following, (str, type(None))):
            raise AssayError(f"`next_{self._token}` must be a string.")
        return [self._decode(entry) for entry in page[self._field]], following
