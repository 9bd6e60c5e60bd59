"""Requests and responses without models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._arguments import header_of, kind_of, pairs_of, shown, text_of
from ._core import Reply, Request, encode_body, encode_query
from ._errors import AssayError
from ._retry import timeout_of
from ._tables import OPERATIONS


@dataclass(frozen=True)
class RateLimitHeaders:
    """The organization's rate limit, as of one response."""

    limit: int
    """The number of requests in any 60 seconds."""
    remaining: int
    """The number of requests that can be sent at once."""
    reset: int
    """The time from which there is room for one more request, in seconds since 1970."""


class RawResponse:
    """A response with its headers."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        """The headers, with names in lower case."""
        self.content = reply.content
        self._reply = reply

    def json(self) -> Any:
        """Returns the decoded body. Raises `AssayError` if it is not JSON."""
        return self._reply.json()

    @property
    def request_id(self) -> str:
        """The id to quote in support requests."""
        return self.headers.get("x-request-id", "")

    @property
    def rate_limit(self) -> RateLimitHeaders:
        """The rate limit as of this response."""
        names = ("limit", "remaining", "reset")
        return RateLimitHeaders(*(_integer(self.headers.get(f"x-ratelimit-{n}")) for n in names))

    def __repr__(self) -> str:
        return f"<RawResponse {self.status} {self.request_id}>"


def _integer(text: str | None) -> int:
    # A proxy may repeat or change the headers.
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else 0


def raw_request(
    method: str,
    path: str,
    query: Mapping[str, Any] | None,
    json: Any,
    content: bytes | None,
    headers: Mapping[str, str] | None,
) -> Request:
    """Returns a request that is retried like the operation with the same method and path.

    Raises `AssayError` for arguments that cannot be sent.
    """
    if not text_of("path", path).startswith("/"):
        # The credential must not be sent to another host.
        raise AssayError("`path` must begin with a slash.")
    if not re.fullmatch(r"[A-Za-z]+", text_of("method", method)):
        raise AssayError("`method` must be a method of HTTP, such as GET.")
    method = method.upper()
    operation = operation_of(method, path.split("?", 1)[0])
    all_headers = {
        header_of("a name of headers", name): header_of(f"headers[{shown(name)}]", value)
        for name, value in pairs_of("headers", {} if headers is None else headers)
    }
    if json is not None:
        content = encode_body({"json": json})[len('{"json":') : -1]
        all_headers.setdefault("Content-Type", "application/json")
    if content is not None and not isinstance(content, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AssayError(f"`content` must be bytes, not {kind_of(content)}.")
    return Request(
        operation=operation,
        method=method,
        path=path,
        query=encode_query(dict(pairs_of("query", {} if query is None else query))),
        headers=all_headers,
        content=content,
        timeout=timeout_of(operation),
    )


def operation_of(method: str, path: str) -> str:
    """Returns a request's operation id, or the method if there is no such operation."""
    for operation, (its_method, template) in OPERATIONS.items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if method == its_method and re.fullmatch(pattern, path):
            return operation
    return method
