"""Cut connections: no duplicate jobs, no lost uploads, no double charges.

`ASSAY_TEST_CUTS` is the cut count for each kind, by default 10.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay
from assay_client import _upload

from .conftest import WAIT_TIMEOUT
from .proxy import Cut, CuttingProxy, Exchange

pytestmark = pytest.mark.e2e

N_CUTS = int(os.environ.get("ASSAY_TEST_CUTS", "10"))
CONCURRENCY = 4
PARTS = 5


def charged(client: assay.Assay) -> int:
    return client.usage.get().totals.eval_items


class CutOnce:
    """Cuts each matching request's first attempt. Threads can share it."""

    def __init__(self, cut: Cut, method: str, ending: str) -> None:
        self._cut, self._method, self._ending = cut, method, ending
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def __call__(self, exchange: Exchange) -> Cut | None:
        if exchange.method != self._method or not exchange.path.endswith(self._ending):
            return None
        # A request without a key, such as an upload's creation, is cut every other time.
        request = (exchange.path, exchange.headers.get("idempotency-key", ""))
        with self._lock:
            if request in self._seen:
                self._seen.remove(request)
                return None
            self._seen.add(request)
            return self._cut


@pytest.mark.parametrize("cut", ["before_body", "after_request", "after_headers"])
def test_cut_submission_creates_one_job(
    up: dict[str, Any], client: assay.Assay, label: str, cut: Cut, tmp_path: Path
) -> None:
    before = charged(client)
    with CuttingProxy(up["rest"], CutOnce(cut, "POST", "/v1/evals")) as proxy:
        cutter = assay.Assay(up["api_key"], proxy.url, cache=tmp_path / "cut")
        suite = cutter.suites.get("suite:lunch")

        def submit(number: int) -> str:
            predictions = {"person-00/day-0": ["ramen"], "person-01/day-1": ["curry"]}
            job = suite.submit(predictions, label=f"{label}-{number}", wait_for_slot=True)
            return job.wait(timeout=WAIT_TIMEOUT).id

        with ThreadPoolExecutor(CONCURRENCY) as pool:
            job_ids = list(pool.map(submit, range(N_CUTS)))
    assert len(proxy.cuts) == N_CUTS
    assert len(set(job_ids)) == N_CUTS
    for number, job_id in enumerate(job_ids):
        (job,) = client.jobs.list(label=f"{label}-{number}")
        assert job.id == job_id
    assert charged(client) - before == 2 * N_CUTS


@pytest.mark.parametrize(
    ("cut", "method", "ending"),
    [
        ("after_request", "POST", "/v1/uploads"),
        ("after_headers", "POST", "/v1/uploads"),
        ("before_body", "PUT", "/parts/1"),
        ("before_body", "PUT", "/parts/3"),
        ("after_request", "PUT", "/parts/2"),
        ("after_headers", "PUT", "/parts/5"),
        ("after_request", "POST", "/complete"),
        ("after_headers", "POST", "/complete"),
        ("after_request", "POST", "/v1/evals"),
    ],
)
def test_cut_upload_loses_nothing(
    up: dict[str, Any],
    client: assay.Assay,
    label: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut: Cut,
    method: str,
    ending: str,
) -> None:
    # Small parts, so that many uploads are tested in short time.
    part_bytes = 400
    monkeypatch.setattr(_upload, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(_upload, "_INLINE_BYTES_MAX", 0)
    before = charged(client)
    n_uploads = max(N_CUTS // 9, 3)
    with CuttingProxy(up["rest"], CutOnce(cut, method, ending)) as proxy:
        cutter = assay.Assay(up["api_key"], proxy.url, cache=tmp_path / "cut")
        suite = cutter.suites.get("suite:lunch")

        def submit(number: int) -> assay.Job:
            path = tmp_path / f"{number}.ndjson"
            rows = [
                f'{{"item_id":"{label}-{number}-{n:04}","prediction":"x"}}\n' for n in range(34)
            ]
            path.write_text("".join(rows))
            assert -(-path.stat().st_size // part_bytes) >= PARTS
            name = f"{label}-{number}"
            return suite.submit(path, label=name, wait_for_slot=True).wait(timeout=WAIT_TIMEOUT)

        with ThreadPoolExecutor(2) as pool:
            jobs = list(pool.map(submit, range(n_uploads)))
    assert proxy.cuts
    for number, job in enumerate(jobs):
        assert [found.id for found in client.jobs.list(label=f"{label}-{number}")] == [job.id]
        assert job.result is not None
        assert job.result.n == 400
    # Predictions for unknown items are charged, too.
    assert charged(client) - before == 34 * n_uploads


def test_cut_read_is_repeated(up: dict[str, Any], tmp_path: Path) -> None:
    for cut in ("after_request", "after_headers"):
        with CuttingProxy(up["rest"], CutOnce(cut, "GET", "/v1/me")) as proxy:
            client = assay.Assay(up["api_key"], proxy.url, cache=False)
            for _ in range(N_CUTS):
                client.me()
            assert len(proxy.cuts) == N_CUTS


def test_cut_creation_is_not_repeated(up: dict[str, Any], label: str) -> None:
    with CuttingProxy(up["rest"], CutOnce("after_request", "POST", "/v1/keys")) as proxy:
        owner = assay.Assay(up["owner_session"], proxy.url, cache=False)
        with pytest.raises(assay.ConnectionFailed):
            owner.keys.create(label)
        made = [key for key in owner.keys.list() if key.name == label]
        assert len(made) == 1
        owner.keys.revoke(made[0].id)
    assert len(proxy.cuts) == 1
