"""The transport: the only module that uses httpx2."""

from __future__ import annotations

import logging
import os
import platform
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ._core import Reply, Request, TransportError, logger
from ._settings import Settings
from ._tables import RETRIES

if TYPE_CHECKING:
    import asyncio

    import httpx2

__version__ = "0.1.0"

# The server closes idle connections after 75 s.
_KEEPALIVE_SECONDS = 60
_CHUNK_BYTES = 256 * 1024

_transports: weakref.WeakSet[SyncTransport | AsyncTransport] = weakref.WeakSet()
# Clients of a parent process. Closing them in a child could end the parent's TLS connections.
_abandoned: list[object] = []


class _Common:
    """What both transports share: addresses, headers and the conversion of exceptions."""

    def __init__(self, settings: Settings, org_id: str | None) -> None:
        self._base_url = settings.base_url
        self._headers = {
            "User-Agent": f"assay-python/{__version__} python/{platform.python_version()}",
            "Accept": "application/json",
        }
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"
        if org_id:
            self._headers["X-Org-Id"] = org_id

    def arguments(self, request: Request) -> dict[str, Any]:
        """Returns the arguments of httpx2 for a request, without its content."""
        import httpx2

        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {**self._headers, **request.headers}
        if request.content is not None:
            headers["Content-Length"] = str(len(request.content))
        timeouts = RETRIES["timeouts"]
        return {
            "method": request.method,
            "url": f"{self._base_url}{request.path}{query}",
            "headers": headers,
            "timeout": httpx2.Timeout(
                request.timeout, connect=timeouts["connect_seconds"], pool=None
            ),
        }


def _chunks(content: bytes) -> Iterator[bytes]:
    # One large chunk would be copied as a whole by each layer below.
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


async def _async_chunks(content: bytes) -> AsyncIterator[bytes]:
    for chunk in _chunks(content):
        yield chunk


def _reply(
    request: Request, response: httpx2.Response, started: float, stream: Any = None
) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    milliseconds = (time.monotonic() - started) * 1000
    logger.debug(
        "%s %s %d %.0f ms %s",
        request.method,
        request.path,
        response.status_code,
        milliseconds,
        headers.get("x-request-id", "-"),
    )
    content = response.content if stream is None else b""
    return Reply(response.status_code, headers, content, stream)


def _transport_error(request: Request, error: Exception) -> TransportError:
    import httpx2

    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        kind, what = "connection_not_established", "cannot connect"
    elif isinstance(error, httpx2.TimeoutException):
        kind, what = "timeout", f"no response within {request.timeout:g} s"
    elif isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        kind, what = "invalid_address", "invalid address"
    else:
        kind, what = "connection_broken", "the connection ended before the response"
    logger.debug("%s %s %s", request.method, request.path, kind)
    return TransportError(kind, f"{what} ({type(error).__name__}: {error})")


class SyncTransport(_Common):
    """Sends requests with one connection pool per process. Threads can share it."""

    def __init__(
        self, settings: Settings, org_id: str | None, http_client: httpx2.Client | None
    ) -> None:
        super().__init__(settings, org_id)
        self._given = http_client
        self._client = http_client
        _transports.add(self)

    def send(self, request: Request) -> Reply:
        """Returns the response. Raises `TransportError` if there is none."""
        import httpx2

        client = self._client
        if client is None:
            limits = httpx2.Limits(keepalive_expiry=_KEEPALIVE_SECONDS)
            client = self._client = httpx2.Client(limits=limits)
        content = request.content
        started = time.monotonic()
        try:
            prepared = client.build_request(
                **self.arguments(request), content=None if content is None else _chunks(content)
            )
            response = client.send(prepared, stream=request.is_stream)
            if request.is_stream and response.is_success:
                return _reply(request, response, started, response.iter_bytes())
            response.read()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _transport_error(request, error) from error
        return _reply(request, response, started)

    def read(self, stream: Iterator[bytes]) -> bytes:
        """Returns the next bytes of a response, or none at its end."""
        import httpx2

        try:
            return next(stream, b"")
        except httpx2.HTTPError as error:
            raise TransportError("connection_broken", str(error)) from error

    def close(self) -> None:
        """Closes the connections, unless the caller has given the HTTP client."""
        if self._client is not None and self._given is None:
            self._client.close()
            self._client = None

    def after_fork(self) -> None:
        """Forgets the connections of the parent process."""
        if self._given is None and self._client is not None:
            _abandoned.append(self._client)
            self._client = None


class AsyncTransport(_Common):
    """Sends requests with one connection pool per process and event loop."""

    def __init__(
        self, settings: Settings, org_id: str | None, http_client: httpx2.AsyncClient | None
    ) -> None:
        super().__init__(settings, org_id)
        self._given = http_client
        self._client = http_client
        self._loop: asyncio.AbstractEventLoop | None = None
        _transports.add(self)

    async def send(self, request: Request) -> Reply:
        """Returns the response. Raises `TransportError` if there is none."""
        import httpx2

        client = self._current_client()
        content = request.content
        started = time.monotonic()
        try:
            prepared = client.build_request(
                **self.arguments(request),
                content=None if content is None else _async_chunks(content),
            )
            response = await client.send(prepared, stream=request.is_stream)
            if request.is_stream and response.is_success:
                return _reply(request, response, started, response.aiter_bytes())
            await response.aread()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _transport_error(request, error) from error
        return _reply(request, response, started)

    async def read(self, stream: AsyncIterator[bytes]) -> bytes:
        """Returns the next bytes of a response, or none at its end."""
        import httpx2

        try:
            async for chunk in stream:
                return chunk
        except httpx2.HTTPError as error:
            raise TransportError("connection_broken", str(error)) from error
        return b""

    def _current_client(self) -> httpx2.AsyncClient:
        import asyncio

        import httpx2

        loop = asyncio.get_running_loop()
        # Connections belong to the event loop that opened them.
        if self._client is None or (self._given is None and self._loop is not loop):
            limits = httpx2.Limits(keepalive_expiry=_KEEPALIVE_SECONDS)
            self._client = httpx2.AsyncClient(limits=limits)
            self._loop = loop
        return self._client

    async def close(self) -> None:
        """Closes the connections, unless the caller has given the HTTP client."""
        if self._client is not None and self._given is None:
            await self._client.aclose()
            self._client = None

    def after_fork(self) -> None:
        """Forgets the connections of the parent process."""
        if self._given is None and self._client is not None:
            _abandoned.append(self._client)
            self._client = None


def _after_fork_in_child() -> None:
    for transport in list(_transports):
        transport.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def enable_debug_log() -> None:
    """Writes one line per request to stderr if `ASSAY_DEBUG` is 1."""
    if os.environ.get("ASSAY_DEBUG") != "1" or logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s assay %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
