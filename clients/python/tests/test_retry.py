"""The retry decisions, against the specification's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay
from assay_client._core import Core, Reply, Request, Send, Sleep, TransportError
from assay_client._retry import Failure, RateLimit, RetryPolicy
from assay_client._tables import OPERATIONS, RETRIES

from .conftest import PACKAGE_FOLDER

CLASSES = ("repeatable", "keyed", "other", "creating")

# The operation classes that are sent again, by error.
SPECIFIED = {
    "rate_limited": ("repeatable", "keyed", "other", "creating"),
    "unavailable": ("repeatable", "keyed", "other"),
    "internal": ("repeatable", "keyed"),
    "connection_broken": ("repeatable", "keyed"),
    "timeout": ("repeatable", "keyed"),
    "quota_exceeded": (),
    "invalid_request": (),
    "validation_failed": (),
    "payload_too_large": (),
    "unauthenticated": (),
    "invalid_token": (),
    "key_revoked": (),
    "forbidden": (),
    "session_required": (),
    "org_required": (),
    "not_found": (),
    "conflict": (),
    "invalid_state": (),
}


@pytest.mark.parametrize("error", SPECIFIED)
@pytest.mark.parametrize("operation_class", CLASSES)
def test_error_and_class_decide_retry(error: str, operation_class: str) -> None:
    delay = RetryPolicy().delay(Failure(error, retry_after=1), operation_class, 0)
    assert (delay is not None) == (operation_class in SPECIFIED[error])


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("getJob", "repeatable"),
        ("putUploadPart", "repeatable"),
        ("deleteUpload", "repeatable"),
        ("completeUpload", "repeatable"),
        ("cancelJob", "repeatable"),
        ("createUpload", "other"),
        ("createComparison", "other"),
        ("createKey", "creating"),
        ("createOrg", "creating"),
        ("createInvite", "creating"),
    ],
)
def test_operation_has_class(operation: str, expected: str) -> None:
    assert RetryPolicy().class_of(operation, has_key=False) == expected


def test_create_eval_without_key_is_other() -> None:
    assert RetryPolicy().class_of("createEval", has_key=True) == "keyed"
    assert RetryPolicy().class_of("createEval", has_key=False) == "other"


def test_table_names_known_operations() -> None:
    named = {*RETRIES["operations"], *RETRIES["timeouts"]["long_operations"]}
    assert named <= set(OPERATIONS)


def test_package_table_equals_shared_table() -> None:
    shared = PACKAGE_FOLDER.parent / "retries.json"
    path = shared if shared.exists() else PACKAGE_FOLDER / "retries.json"
    table = json.loads(Path(path).read_text())
    assert {k: v for k, v in table.items() if k not in ("description", "classes")} == RETRIES


def test_backoff_doubles_to_maximum() -> None:
    policy = RetryPolicy(max_retries=10, randomness=lambda: 0.0)
    delays = [policy.delay(Failure("internal"), "keyed", retries) for retries in range(6)]
    assert delays == [0.5, 1, 2, 4, 8, 8]
    shortest = RetryPolicy(randomness=lambda: 1.0)
    assert shortest.delay(Failure("internal"), "keyed", 0) == 0.25


def test_retry_after_precedes_backoff() -> None:
    policy = RetryPolicy()
    assert policy.delay(Failure("unavailable", retry_after=7), "other", 0) == 7
    assert policy.delay(Failure("rate_limited", retry_after=61), "creating", 3) == 61


def test_limits_end_retries() -> None:
    policy = RetryPolicy(max_retries=4, max_wait=120)
    assert policy.delay(Failure("internal"), "keyed", 4) is None
    assert policy.delay(Failure("rate_limited", retry_after=121), "keyed", 0) is None


def test_concurrent_jobs_retry_only_if_waiting() -> None:
    policy = RetryPolicy()
    failure = Failure("quota_exceeded", retry_after=2, limit="concurrent_jobs")
    assert policy.delay(failure, "keyed", 0) is None
    assert policy.delay(failure, "keyed", 99, waits_for_slot=True) == 2
    other = Failure("quota_exceeded", retry_after=2, limit="eval_items_per_month")
    assert policy.delay(other, "keyed", 0, waits_for_slot=True) is None


def reply(status: int, body: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, json.dumps(body).encode())


def error_reply(status: int, code: str, details: Any = None, **headers: str) -> Reply:
    error = {"code": code, "message": "text", "request_id": "req_1", "details": details or {}}
    return reply(status, {"error": error}, **headers)


def post(key: str | None = "k") -> Request:
    headers = {"Idempotency-Key": key} if key else {}
    return Request("createEval", "POST", "/v1/evals", headers=headers)


def test_retry_sends_same_request() -> None:
    core = Core()
    steps = core.send(post())
    first = next(steps)
    assert isinstance(first, Send)
    slept = steps.throw(TransportError("connection_broken", "cut"))
    assert isinstance(slept, Sleep)
    assert steps.send(None) == first
    with pytest.raises(StopIteration) as stop:
        steps.send(reply(202, {}))
    assert stop.value.value.status == 202


def test_error_has_fields_and_key() -> None:
    steps = Core().send(post())
    next(steps)
    details = {
        "limit": "eval_items_per_month",
        "max": 3,
        "resets_at": "2026-12-01T00:00:00.000000Z",
    }
    with pytest.raises(assay.QuotaExceeded) as raised:
        steps.send(error_reply(429, "quota_exceeded", details, retry_after="500"))
    error = raised.value
    assert (error.limit, error.max, error.retry_after) == ("eval_items_per_month", 3, 500)
    assert error.resets_at is not None
    assert error.resets_at.month == 12
    assert error.idempotency_key == "k"
    assert str(error) == "quota_exceeded: text (request req_1)"


def test_connection_failed_has_key() -> None:
    steps = Core(policy=RetryPolicy(max_retries=0)).send(post())
    next(steps)
    with pytest.raises(assay.ConnectionFailed) as raised:
        steps.throw(TransportError("timeout", "no response"))
    assert raised.value.idempotency_key == "k"


def test_empty_rate_limit_delays_next_request() -> None:
    core = Core()
    steps = core.send(Request("getMe", "GET", "/v1/me"))
    next(steps)
    headers = {
        "x_ratelimit_limit": "60",
        "x_ratelimit_remaining": "0",
        "x_ratelimit_reset": "1000000030",
        "date": "Sun, 09 Sep 2001 01:46:40 GMT",
    }
    with pytest.raises(StopIteration):
        steps.send(reply(200, {}, **headers))
    delay = next(core.send(Request("getMe", "GET", "/v1/me")))
    assert isinstance(delay, Sleep)
    assert 29 < delay.seconds <= 30


def test_rate_limit_delay_is_at_most_one_window() -> None:
    limit = RateLimit()
    limit.observe(60, 0, 10_000)
    assert 59 < limit.take_delay() <= 60
    assert limit.take_delay() == 0


def test_terms_error_has_url() -> None:
    steps = Core().send(post())
    next(steps)
    details = {"reason": "terms_not_accepted", "version": "1", "url": "https://example.org/terms"}
    with pytest.raises(assay.TermsNotAccepted) as raised:
        steps.send(error_reply(403, "forbidden", details))
    assert raised.value.url == "https://example.org/terms"


def test_response_of_proxy_is_unavailable() -> None:
    steps = Core(policy=RetryPolicy(max_retries=0)).send(post())
    next(steps)
    with pytest.raises(assay.Unavailable):
        steps.send(Reply(502, {}, b"<html>Bad Gateway</html>"))


def test_slot_wait_is_reported() -> None:
    messages: list[str] = []
    steps = Core(on_wait=messages.append).send(post(), waits_for_slot=True)
    next(steps)
    details = {"limit": "concurrent_jobs", "max": 2, "active": 2}
    assert steps.send(error_reply(429, "quota_exceeded", details, retry_after="3")) == Sleep(3)
    assert messages == ["all concurrent jobs are in use, retrying in 3 s"]
