"""Retry decisions by error code and operation, from the table `clients/retries.json`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._arguments import integer_of, number_of
from ._tables import OPERATIONS, RETRIES


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known about a failed request."""

    error: str
    """The error code, or `connection_not_established`, `connection_broken` or `timeout`."""
    retry_after: float | None = None
    """The number of seconds in the header `Retry-After`, if present."""
    limit: str | None = None
    """The name of the limit of a `quota_exceeded`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry table with one client's limits."""

    max_retries: int = RETRIES["limits"]["max_retries"]
    max_wait: float = RETRIES["limits"]["max_wait_seconds"]
    """The longest delay before a retry, in seconds."""
    randomness: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        integer_of("max_retries", self.max_retries, 0)
        number_of("max_wait", self.max_wait, 0)

    def class_of(self, operation: str, has_key: bool) -> str:
        """Returns an operation's class. Without a key, a keyed operation is an ordinary POST.

        An operation id that the table does not know, such as a raw request's, is the HTTP
        method.
        """
        method = OPERATIONS[operation][0] if operation in OPERATIONS else operation
        default = RETRIES["methods"].get(method, RETRIES["class_without_key"])
        found: str = RETRIES["operations"].get(operation, default)
        if found == "keyed" and not has_key:
            return str(RETRIES["class_without_key"])
        return "keyed" if has_key and found == "other" else found

    def delay(
        self,
        failure: Failure,
        operation_class: str,
        retries: int,
        waits_for_slot: bool = False,
    ) -> float | None:
        """Returns the seconds before the next retry, or None for no retry.

        `retries` is the retry count so far. Waiting for a `concurrent_jobs` slot is not
        limited by `max_retries`.
        """
        rule = self._rule(failure, operation_class, waits_for_slot)
        if rule is None:
            return None
        is_slot = rule.get("only_if_waiting_for_slot", False)
        if retries >= self.max_retries and not is_slot:
            return None
        seconds = self._seconds(rule["delay"], failure, retries)
        return seconds if seconds <= self.max_wait else None

    def _rule(
        self, failure: Failure, operation_class: str, waits_for_slot: bool
    ) -> dict[str, Any] | None:
        for rule in RETRIES["rules"]:
            if rule["error"] != failure.error or operation_class not in rule["retry"]:
                continue
            if "limit" in rule and rule["limit"] != failure.limit:
                continue
            if rule.get("only_if_waiting_for_slot") and not waits_for_slot:
                continue
            found: dict[str, Any] = rule
            return found
        return None

    def _seconds(self, kind: str, failure: Failure, retries: int) -> float:
        if failure.retry_after is not None and kind != "backoff":
            return failure.retry_after
        backoff = RETRIES["backoff"]
        longest = min(
            backoff["initial_seconds"] * backoff["multiplier"] ** retries, backoff["max_seconds"]
        )
        # Jitter spreads the retries from clients that failed at the same time.
        return float(longest * (1 - backoff["jitter"] * self.randomness()))


class RateLimit:
    """The rate limit as of the last response."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.remaining: int | None = None
        self._full_until = 0.0

    def observe(self, limit: int, remaining: int, seconds_to_reset: float) -> None:
        """Records a response's headers. `seconds_to_reset` is by the server's clock."""
        self.limit = limit
        self.remaining = remaining
        if remaining == 0:
            window = RETRIES["rate_limit"]["window_seconds"]
            self._full_until = time.monotonic() + min(max(seconds_to_reset, 0.0), window)

    def take_delay(self) -> float:
        """Returns how many seconds to wait before the next request, and forgets them."""
        if self.remaining != 0:
            return 0.0
        self.remaining = None
        return max(self._full_until - time.monotonic(), 0.0)


def timeout_of(operation: str) -> float:
    """Returns an operation's read timeout in seconds."""
    timeouts = RETRIES["timeouts"]
    is_long = operation in timeouts["long_operations"]
    return float(timeouts["long_request_seconds" if is_long else "request_seconds"])
