"""The clients against a real installation."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay

from .conftest import WAIT_TIMEOUT, habit

pytestmark = pytest.mark.e2e

PAIRS = {"person-00/day-0": ["ramen", "curry"], "person-00/day-1": ["tacos"]}


def test_server_accepts_version_and_metadata(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    metadata = {"commit": "9f1c2e", "branch": "main"}
    job = suite.submit(PAIRS, label=label, metadata=metadata).wait(timeout=WAIT_TIMEOUT)
    assert job.to_dict()["metadata"] == metadata
    assert client.jobs.get(job.id).to_dict()["metadata"] == metadata


def test_stale_version_is_conflict(client: assay.Assay) -> None:
    with pytest.raises(assay.Conflict) as raised:
        client.evals.create(
            "suite:lunch",
            predictions=[{"item_id": "person-00/day-0", "prediction": ["ramen"]}],
            suite_version="an-older-version",
        )
    assert raised.value.details["suite_version"] == "an-older-version"
    assert raised.value.details["current_version"]


def test_same_submission_is_same_job(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    first = suite.submit(PAIRS, label=label).wait(timeout=WAIT_TIMEOUT)
    charged = client.usage.get().totals.eval_items
    assert suite.submit(list(PAIRS.items()), label=label).id == first.id
    assert client.usage.get().totals.eval_items == charged
    fresh = suite.submit(PAIRS, label=label, fresh=True)
    assert fresh.id != first.id
    fresh.wait(timeout=WAIT_TIMEOUT)


def test_cancelled_job_is_submitted_again(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    for attempt in range(20):
        predictions = {f"unknown-{attempt}-{number}": ["ramen"] for number in range(50_000)}
        job = suite.submit(predictions, label=label)
        try:
            job.cancel()
            break
        except assay.InvalidState:
            # A worker can be faster, however large the job is.
            assert job.wait(timeout=WAIT_TIMEOUT).status == "succeeded"
    else:
        pytest.fail("every job finished before it was cancelled")
    with pytest.raises(assay.JobCancelled):
        job.wait()
    again = suite.submit(predictions, label=label)
    assert again.id != job.id
    assert again.wait(timeout=WAIT_TIMEOUT).status == "succeeded"


def test_items_are_cached(client: assay.Assay) -> None:
    suite = client.suites.get("suite:lunch")
    items = suite.items()
    assert len(items) == suite.n_items == len(list(items))
    assert items[3].id == list(items)[3].item_id
    assert [item.id for item in items[1:6:2]] == [list(items)[n].id for n in (1, 3, 5)]
    remaining = client.raw("GET", "/v1/me").rate_limit.remaining
    suite.items()
    assert client.raw("GET", "/v1/me").rate_limit.remaining >= remaining - 1
    for frame in (items.to_polars(), items.to_pandas(), items.to_arrow()):
        assert len(frame) == 400
    assert len(client.suites.items("suite:lunch")) == 400


def test_listing_pages_on_demand(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    jobs = [
        suite.submit({"person-00/day-0": [str(n)]}, label=label).wait(timeout=WAIT_TIMEOUT)
        for n in range(5)
    ]
    listing = client.jobs.list(label=label, page_size=2)
    assert [job.id for job in listing] == [job.id for job in reversed(jobs)]
    first = listing.first()
    assert first is not None
    assert first.id == jobs[-1].id
    assert [job.id for job in listing[1:4]] == [jobs[3].id, jobs[2].id, jobs[1].id]
    assert listing[4].id == jobs[0].id
    assert len(listing.to_polars()) == len(listing.to_pandas()) == len(listing.to_arrow()) == 5
    assert client.jobs.list(label="no-such-label").first() is None
    with pytest.raises(IndexError):
        _ = listing[-1]


def test_validation_errors_name_fields(client: assay.Assay) -> None:
    suite = client.suites.get("suite:lunch")
    with pytest.raises(assay.ValidationFailed) as raised:
        suite.submit([("person-00/day-0", "x"), ("person-00/day-0", "y")])
    (error,) = raised.value.fields
    assert (error.field, error.reason) == ("predictions[1].item_id", "duplicate")
    assert raised.value.request_id
    assert raised.value.idempotency_key


def test_feedback_and_unknown_ids_raise(client: assay.Assay, label: str) -> None:
    job = client.suites.get("suite:lunch").submit(PAIRS, label=label).wait(timeout=WAIT_TIMEOUT)
    with pytest.raises(assay.Forbidden):
        job.items().first()
    with pytest.raises(assay.NotFound):
        client.jobs.get("job_0000000000000000000000")
    with pytest.raises(assay.SessionRequired):
        client.keys.list().first()
    with pytest.raises(assay.InvalidToken):
        assay.Assay("svc_live_wrong", str(client._settings.base_url)).me()


def test_watch_ends_with_final_state(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    predictions = {f"unknown-{number}": ["ramen"] for number in range(20_000)}
    job = suite.submit(predictions, label=label)
    states = list(job.watch())
    assert states[-1].status == "succeeded"
    assert {state.id for state in states} == {job.id}
    assert [state.status for state in states[-1].watch()] == ["succeeded"]


def test_wait_times_out(client: assay.Assay, label: str) -> None:
    job = client.suites.get("suite:lunch").submit(PAIRS, label=label, fresh=True)
    if job.status == "queued":
        with pytest.raises(assay.WaitTimedOut) as raised:
            job.wait(timeout=0)
        assert raised.value.job.id == job.id
    job.wait(timeout=WAIT_TIMEOUT)


def test_comparison_of_jobs(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    items = suite.items()
    good = suite.submit({i.id: habit(i.input) for i in items}, label=label).wait(60)
    bad = suite.submit({i.id: i.input["options"] for i in items}, label=label).wait(60)
    comparison = client.compare(bad, good.id)
    assert comparison.difference < 0
    with pytest.raises(assay.Regression):
        comparison.raise_if_worse(margin=0.01)
    assert client.compare(good, bad).not_worse(0.02)


def test_resources_of_owner(owner: assay.Assay, label: str) -> None:
    assert owner.me().principal == "session"
    expires_at = datetime.now(timezone.utc) + timedelta(days=400)
    key = owner.keys.create(label, scopes=["jobs:read", "suites:read"], expires_at=expires_at)
    assert key.key.startswith(key.prefix)
    key_client = assay.Assay(key.key, owner._settings.base_url, cache=False)
    assert key_client.suites.list().first() is not None
    with pytest.raises(assay.Forbidden) as raised:
        key_client.usage.get()
    assert raised.value.details == {"reason": "scope", "required": "usage:read"}
    assert owner.keys.update(key.id, scopes=["jobs:read"]).scopes == ("jobs:read",)
    rotated = owner.keys.rotate(key.id, overlap_hours=0)
    assert rotated.replaces == key.id
    with pytest.raises(assay.KeyRevoked):
        key_client.me()
    assert owner.keys.revoke(rotated.id).revoked_at is not None
    entry = owner.audit.list(type="key.created").first()
    assert entry is not None
    assert entry.actor.type in ("session", "operator")
    assert owner.members.list().first() is not None
    invite = owner.invites.create(f"{label}@example.org", role="viewer")
    assert owner.invites.revoke(invite.id).revoked_at is not None
    claim = owner.domains.claim(f"{label}.example.org")
    assert claim.record.type == "TXT"
    assert owner.domains.list().all() is not None
    assert owner.sessions.list().first() is not None
    org = owner.orgs.update(owner.me().org_id, name="Demo")
    assert org.name == "Demo"
    with pytest.raises(assay.NotFound):
        owner.terms.get()


def test_webhooks_of_owner(owner: assay.Assay) -> None:
    webhook = owner.webhooks.create("https://example.com/hooks", ["job.succeeded"])
    try:
        assert webhook.secret.startswith("whsec_")
        assert owner.webhooks.get(webhook.id).url == "https://example.com/hooks"
        assert owner.webhooks.update(webhook.id, description="d").description == "d"
        assert owner.webhooks.rotate(webhook.id).secret != webhook.secret
        delivery = owner.webhooks.test(webhook.id)
        assert owner.webhooks.deliveries(webhook.id).first() is not None
        assert owner.webhooks.retry(webhook.id, delivery.id).webhook_id == webhook.id
        since = datetime.now(timezone.utc) - timedelta(hours=1)
        assert owner.webhooks.recover(webhook.id, since).id == webhook.id
        assert webhook.id in [found.id for found in owner.webhooks.list()]
    finally:
        owner.webhooks.delete(webhook.id)


def test_events_continue_from_position(client: assay.Assay, label: str) -> None:
    job = client.suites.get("suite:lunch").submit(PAIRS, label=label).wait(timeout=WAIT_TIMEOUT)
    # The feed shows an event when all earlier transactions have ended, also other tests'.
    deadline = time.monotonic() + WAIT_TIMEOUT
    while True:
        events = client.events.list(type="job.succeeded")
        seen = list(events)
        if job.id in [event.data["id"] for event in seen]:
            break
        if time.monotonic() > deadline:
            pytest.fail("the feed does not show the event")
        time.sleep(0.1)
    assert events.position
    later = client.events.list(cursor=events.position, type="job.succeeded")
    assert not {event.id for event in later} & {event.id for event in seen}


def test_device_login_is_pending(up: dict[str, Any]) -> None:
    anyone = assay.Assay("", up["rest"], cache=False)
    assert anyone.health().git_sha
    login = anyone.auth.create_device_login("pytest")
    assert anyone.auth.poll_device_login(login.device_code).status == "pending"
    with pytest.raises(assay.Unauthenticated):
        anyone.me()


def test_model_operations(client: assay.Assay, up: dict[str, Any]) -> None:
    model_id = up["model_id"]
    assert model_id, "the installation needs a model"
    assert model_id in [model.id for model in client.models.list()]
    assert client.models.get(model_id).context_length > 0
    sequences = [{"sequence_id": "p", "events": [{"item_id": "song-017"}]}]
    assert len(client.models.predict(model_id, sequences, top_k=3).data[0].prediction) == 3
    generated = client.models.generate(model_id, sequences, n_events=2, mode="sample", seed="7")
    assert len(generated.data[0].continuations[0].events) == 2
    embedded = client.models.embed(model_id, sequences)
    assert len(embedded.data[0].embedding) == embedded.dim
    job = client.predictions.create(model_id, suite_id=up["model_suite_id"], evaluate=True)
    assert job.eval_job_id
    assert client.jobs.get(job.eval_job_id).wait(timeout=WAIT_TIMEOUT).status == "succeeded"
    assert next(iter(job.output()))["prediction"]


def test_uploads_by_hand(client: assay.Assay, label: str) -> None:
    upload = client.uploads.create(content_type="application/x-ndjson")
    content = b'{"item_id": "person-00/day-0", "prediction": ["ramen"]}\n'
    client.uploads.put_part(upload.id, 1, content)
    assert [part.bytes for part in client.uploads.get(upload.id).parts] == [len(content)]
    ready = client.uploads.complete(upload.id)
    assert (ready.status, ready.n_items) == ("ready", 1)
    job = client.evals.create("suite:lunch", input_ref=ready.input_ref, label=label)
    assert job.wait(timeout=WAIT_TIMEOUT).status == "succeeded"
    assert upload.id in [found.id for found in client.uploads.list(status="ready")]
    client.uploads.delete(upload.id)


def test_log_has_no_secrets(
    client: assay.Assay, up: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="assay_client"):
        client.me()
    assert "GET /v1/me 200" in caplog.text
    assert up["api_key"][9:] not in caplog.text


def test_expiring_key_warns(owner: assay.Assay, label: str) -> None:
    soon = datetime.now(timezone.utc) + timedelta(days=3)
    key = owner.keys.create(label, expires_at=soon)
    client = assay.Assay(key.key, owner._settings.base_url, cache=False)
    with pytest.warns(UserWarning, match="The API key expires at"):
        client.me()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.me()
    owner.keys.revoke(key.id)


def test_sync_client_works_in_running_loop(client: assay.Assay, label: str) -> None:
    async def predict(question: Any) -> Any:
        await asyncio.sleep(0)
        return habit(question)

    async def cell() -> float:
        return client.evaluate("suite:lunch", predict, label=label, progress=False).value

    assert asyncio.run(cell()) > 0.3


def test_async_client_works_in_each_loop(up: dict[str, Any], tmp_path: Path) -> None:
    client = assay.AsyncAssay(up["api_key"], up["rest"], cache=tmp_path)

    async def read() -> list[str]:
        jobs = [job.id async for job in client.jobs.list(page_size=2)][:3]
        assert jobs == [job.id for job in await client.jobs.list()[:3]]
        return jobs

    assert asyncio.run(read()) == asyncio.run(read())


def test_async_client_submits(up: dict[str, Any], label: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with assay.AsyncAssay(up["api_key"], up["rest"], cache=tmp_path) as client:
            suite = await client.suites.get("suite:lunch")
            items = await suite.items()
            predictions = {item.id: habit(item.input) for item in items}
            assert (await suite.check(predictions)).ok
            job = await (await suite.submit(predictions, label=label)).wait(timeout=WAIT_TIMEOUT)
            async with suite.upload(label=f"{label}-stream") as up_stream:
                for item in items:
                    await up_stream.add(item.id, habit(item.input))
            other = await up_stream.job.wait(timeout=WAIT_TIMEOUT)
            assert (await client.compare(job, other)).difference == 0

    asyncio.run(main())


FORK = """
import os, sys, assay_client as assay
client = assay.Assay(cache=False)
before = client.me().org_id
async def predict(question):
    return question["options"]
def evaluate(label):
    return client.evaluate("suite:lunch", predict, label=label, progress=False).value
value = evaluate("fork-parent")
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        assert client.me().org_id == before
        assert client.jobs.list(page_size=1)[:2] is not None
        assert evaluate("fork-child") == value
        os._exit(0)
    children.append(pid)
    assert client.me().org_id == before
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
"""


def test_client_works_after_fork(up: dict[str, Any]) -> None:
    env = {**os.environ, "ASSAY_API_KEY": up["api_key"], "ASSAY_BASE_URL": up["rest"]}
    subprocess.run([sys.executable, "-c", FORK], check=True, env=env, timeout=WAIT_TIMEOUT)


INTERRUPT = """
import os, signal, threading, assay_client as assay
from assay_client._core import Core
from assay_client._jobs import wait_for_job
client = assay.Assay(cache=False)
job = client.suites.get("suite:lunch").submit({"person-00/day-0": ["ramen"]}, fresh=True)
steps = wait_for_job(client._connection.core, job, client._connection.job, None)
next(steps)
try:
    steps.throw(KeyboardInterrupt())
except KeyboardInterrupt:
    print(job.id)
"""


def test_interrupted_wait_prints_id(up: dict[str, Any]) -> None:
    env = {**os.environ, "ASSAY_API_KEY": up["api_key"], "ASSAY_BASE_URL": up["rest"]}
    command = [sys.executable, "-c", INTERRUPT]
    done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
    assert f"{done.stdout.strip()} continues." in done.stderr


def test_suite_without_board(client: assay.Assay, label: str) -> None:
    with pytest.raises(assay.NotFound):
        client.boards.get("suite:lunch")
    suite = client.suites.get("suite:lunch")
    job = suite.submit({"nowhere": ["ramen"]}, label=label)
    job.wait()
    with pytest.raises(assay.InvalidState) as refused:
        client.boards.enter(job.id, "mine", url="https://lab.example/")
    assert refused.value.details == {"reason": "no_board"}
    with pytest.raises(assay.NotFound):
        client.boards.withdraw("ent_0")
    assert client.boards.entries(suite="suite:lunch").all() == []
