"""The transport: the only module that uses httpx2."""

from __future__ import annotations

import logging
import os
import platform
import re
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ._arguments import header_of, reason_of
from ._core import Reply, Request, TransportError, logger
from ._errors import AssayError
from ._settings import Settings
from ._tables import RETRIES

if TYPE_CHECKING:
    import asyncio

    import httpx2

__version__ = "0.1.0"

# The server closes idle connections after 75 s.
_KEEPALIVE_SECONDS = 60
_CHUNK_BYTES = 256 * 1024
_SECRET_CHARACTERS_MIN = 8
_HIDDEN = "…"
_USER_OF_URL = re.compile(r"//[^/@\s]+@")

_transports: weakref.WeakSet[SyncTransport | AsyncTransport] = weakref.WeakSet()
# A parent process's clients. Closing them in a child could end the parent's TLS connections.
_abandoned: list[object] = []


class _Common:
    """What both transports share: addresses, headers and exception conversion."""

    def __init__(self, settings: Settings, org_id: str | None) -> None:
        self._base_url = settings.base_url
        self._secrets = [settings.api_key]
        self._headers = {
            "User-Agent": f"assay-python/{__version__} python/{platform.python_version()}",
            "Accept": "application/json",
        }
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"
        if org_id is not None and header_of("org_id", org_id):
            self._headers["X-Org-Id"] = org_id

    def arguments(self, request: Request) -> dict[str, Any]:
        """Returns httpx2's arguments for a request, without its content."""
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

    def options(self) -> dict[str, Any]:
        """Returns an httpx2 client's options.

        Raises `AssayError` if the environment names a proxy or certificates that cannot be used.
        """
        import httpx2

        from ._proxy import proxy_for

        proxy = proxy_for(self._base_url)
        if proxy is not None:
            self._secrets += proxy.secrets
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            if (place := os.environ.get(name)) and not os.path.exists(place):
                raise AssayError(f"{name} names a place that does not exist: {place}")
        return {
            "limits": httpx2.Limits(keepalive_expiry=_KEEPALIVE_SECONDS),
            "proxy": None if proxy is None else proxy.url,
            # Its own rules for proxies know fewer NO_PROXY forms. It finds certificates alike.
            "trust_env": False,
            "verify": httpx2.create_ssl_context(trust_env=True),
        }

    def reply(
        self, request: Request, response: httpx2.Response, started: float, stream: Any = None
    ) -> Reply:
        """Returns a response. Errors do not repeat the credential that the request had."""
        headers = {name.lower(): self._redact(value) for name, value in response.headers.items()}
        milliseconds = (time.monotonic() - started) * 1000
        logger.debug(
            "%s %s %d %.0f ms %s",
            request.method,
            request.path,
            response.status_code,
            milliseconds,
            headers.get("x-request-id", "-"),
        )
        content = self.hide(response.content) if stream is None else b""
        return Reply(response.status_code, headers, content, stream)

    def failure(self, request: Request, error: Exception) -> TransportError:
        """Returns the error for a request without a response.

        It replaces the original exception, whose text can have addresses with a password.
        """
        import httpx2

        if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)):
            kind, what = "connection_not_established", "cannot connect"
        elif isinstance(error, httpx2.TimeoutException):
            kind, what = "timeout", f"no response within {request.timeout:g} s"
        elif isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
            kind, what = "invalid_address", "invalid address"
        elif isinstance(error, httpx2.LocalProtocolError):
            kind, what = "invalid_request", "the request cannot be sent"
        elif isinstance(error, httpx2.HTTPError):
            kind, what = "connection_broken", "the connection ended before the response"
        else:
            kind, what = "client_error", "the HTTP client failed"
        logger.debug("%s %s %s", request.method, request.path, kind)
        return TransportError(kind, f"{what} ({self._redact(reason_of(error))})")

    def hide(self, content: bytes) -> bytes:
        """Returns a content without this client's credential, which a server can repeat."""
        for secret in self._secrets:
            if len(secret) >= _SECRET_CHARACTERS_MIN:
                content = content.replace(secret.encode(), _HIDDEN.encode())
        return content

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            # A short secret occurs in ordinary words.
            if len(secret) >= _SECRET_CHARACTERS_MIN:
                text = text.replace(secret, _HIDDEN)
        return _USER_OF_URL.sub(f"//{_HIDDEN}@", text)


def _chunks(content: bytes) -> Iterator[bytes]:
    # One large chunk would be copied as a whole by each layer below.
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


async def _async_chunks(content: bytes) -> AsyncIterator[bytes]:
    for chunk in _chunks(content):
        yield chunk


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

        content = request.content
        started = time.monotonic()
        try:
            client = self._client
            if client is None:
                client = self._client = httpx2.Client(**self.options())
            prepared = client.build_request(
                **self.arguments(request), content=None if content is None else _chunks(content)
            )
            response = client.send(prepared, stream=request.is_stream)
            if request.is_stream and response.is_success:
                return self.reply(request, response, started, response.iter_bytes())
            response.read()
            return self.reply(request, response, started)
        except AssayError:
            raise
        except Exception as error:
            failure = self.failure(request, error)
        raise failure

    def read(self, stream: Iterator[bytes]) -> bytes:
        """Returns a response's next bytes, or none at its end."""
        try:
            return self.hide(next(stream, b""))
        except Exception as error:
            reason = self._redact(reason_of(error))
        raise TransportError("connection_broken", reason)

    def close(self) -> None:
        """Closes the connections, unless the caller has given the HTTP client."""
        if self._client is not None and self._given is None:
            self._client.close()
            self._client = None

    def after_fork(self) -> None:
        """Forgets the parent process's connections."""
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
        content = request.content
        started = time.monotonic()
        try:
            client = self._current_client()
            prepared = client.build_request(
                **self.arguments(request),
                content=None if content is None else _async_chunks(content),
            )
            response = await client.send(prepared, stream=request.is_stream)
            if request.is_stream and response.is_success:
                return self.reply(request, response, started, response.aiter_bytes())
            await response.aread()
            return self.reply(request, response, started)
        except AssayError:
            raise
        except Exception as error:
            failure = self.failure(request, error)
        raise failure

    async def read(self, stream: AsyncIterator[bytes]) -> bytes:
        """Returns a response's next bytes, or none at its end."""
        try:
            async for chunk in stream:
                return self.hide(chunk)
            return b""
        except Exception as error:
            reason = self._redact(reason_of(error))
        raise TransportError("connection_broken", reason)

    def _current_client(self) -> httpx2.AsyncClient:
        import asyncio

        import httpx2

        loop = asyncio.get_running_loop()
        # Connections belong to the event loop that opened them.
        if self._client is None or (self._given is None and self._loop is not loop):
            self._client = httpx2.AsyncClient(**self.options())
            self._loop = loop
        return self._client

    async def close(self) -> None:
        """Closes the connections, unless the caller has given the HTTP client."""
        if self._client is not None and self._given is None:
            await self._client.aclose()
            self._client = None

    def after_fork(self) -> None:
        """Forgets the parent process's connections."""
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
