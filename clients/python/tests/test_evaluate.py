"""`evaluate` and large submissions against a real installation."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay
from assay_client import _upload

from .conftest import WAIT_TIMEOUT, habit

pytestmark = pytest.mark.e2e


class CrashError(Exception):
    pass


# The state of the model's environment, which does not belong to the model.
OUTSIDE: dict[str, int | None] = {}


class CountingPredict:
    """Predicts by habit, and raises an exception after some calls."""

    def __init__(self, limit: int | None = None) -> None:
        OUTSIDE.update(calls=0, limit=limit)

    @property
    def calls(self) -> int:
        return OUTSIDE["calls"] or 0

    def __call__(self, question: dict[str, Any]) -> list[str]:
        OUTSIDE["calls"] = self.calls + 1
        limit = OUTSIDE["limit"]
        if limit is not None and self.calls > limit:
            raise CrashError
        return habit(question)


def test_crash_resumes_from_cache(client: assay.Assay, label: str) -> None:
    crashing = CountingPredict(limit=360)
    with pytest.raises(CrashError):
        client.evaluate("suite:lunch", crashing, label=label)
    resumed = CountingPredict()
    result = client.evaluate("suite:lunch", resumed, label=label)
    assert resumed.calls == 40
    assert result.n_missing == 0
    # The cache is deleted after success, and the same predictions are the same job.
    again = CountingPredict()
    assert client.evaluate("suite:lunch", again, label=label).job.id == result.job.id
    assert again.calls == 400


def test_trial_submits_nothing_and_is_reused(client: assay.Assay, label: str) -> None:
    before = client.usage.get().totals.eval_items
    tried = CountingPredict()
    trial = client.evaluate("suite:lunch", tried, label=label, limit=20)
    first = client.suites.items("suite:lunch")[:20]
    assert trial.predictions == {item.id: habit(item.input) for item in first}
    assert (tried.calls, trial.n_items, trial.n_skipped) == (20, 400, 0)
    assert str(trial) == "20 of 400 items predicted, nothing submitted"
    assert client.usage.get().totals.eval_items == before
    whole = CountingPredict()
    assert client.evaluate("suite:lunch", whole, label=label).n_missing == 0
    assert whole.calls == 380
    with pytest.raises(assay.AssayError, match="`limit` must be at least 1"):
        client.evaluate("suite:lunch", whole, label=label, limit=0)


def test_uncached_run_predicts_everything(client: assay.Assay, label: str) -> None:
    with pytest.raises(CrashError):
        client.evaluate("suite:lunch", CountingPredict(limit=10), label=label, cache=False)
    predict = CountingPredict()
    client.evaluate("suite:lunch", predict, label=label)
    assert predict.calls == 400


def test_skipped_items_are_counted(client: assay.Assay, label: str) -> None:
    def predict(question: dict[str, Any]) -> list[str]:
        if question["person"] == "person-07":
            raise ValueError("no prediction")
        return habit(question)

    result = client.evaluate("suite:lunch", predict, label=label, on_error="skip")
    assert result.n_skipped == result.n_missing == 10
    assert "10 skipped" in str(result)


def test_batches_run_concurrently(client: assay.Assay, label: str) -> None:
    sizes: list[int] = []

    def predict(questions: list[dict[str, Any]]) -> list[list[str]]:
        sizes.append(len(questions))
        return [habit(question) for question in questions]

    result = client.evaluate("suite:lunch", predict, label=label, batch_size=64, max_concurrency=4)
    assert sorted(sizes) == [16, 64, 64, 64, 64, 64, 64]
    assert result.value > 0.3
    assert "<svg" in result._repr_html_()
    assert "<script" not in result._repr_html_()


def write_predictions(path: Path, n_items: int) -> None:
    """Writes incompressible predictions for unknown items, with one item's."""
    with path.open("w") as file:
        file.write('{"item_id":"person-00/day-0","prediction":["ramen"]}\n')
        for number in range(n_items):
            digest = hashlib.sha256(str(number).encode()).hexdigest()
            file.write(f'{{"item_id":"{number}","prediction":["{digest}"]}}\n')


def test_interrupted_upload_resumes(
    up: dict[str, Any],
    client: assay.Assay,
    label: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_upload, "_PART_BYTES", 100_000)
    monkeypatch.setattr(_upload, "_INLINE_BYTES_MAX", 1000)
    path = tmp_path / "p.ndjson"
    write_predictions(path, 10_000)
    n_parts = -(-path.stat().st_size // 100_000)
    suite = client.suites.get("suite:lunch")

    def interrupt(progress: assay.UploadProgress) -> None:
        if progress.parts_done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite.submit(path, label=label, progress=interrupt)
    job = suite.submit(path, label=label, progress=True).wait(timeout=WAIT_TIMEOUT)
    output = capsys.readouterr().err
    assert "resuming upl_" in output
    assert f"of {n_parts} parts are already uploaded" in output
    assert f"100 %|██████████| {n_parts}/{n_parts} parts" in output
    assert job.result is not None
    assert job.result.n_submitted == 10_001
    # A third call sends nothing, and returns the same job.
    charged = client.usage.get().totals.eval_items
    sent: list[assay.UploadProgress] = []
    assert suite.submit(path, label=label, progress=sent.append).id == job.id
    assert sent == []
    assert client.usage.get().totals.eval_items == charged


def test_formats_give_same_job(
    client: assay.Assay, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server compares contents: a row upload replays the same rows' upload."""
    monkeypatch.setattr(_upload, "_INLINE_BYTES_MAX", 1000)
    path = tmp_path / "p.ndjson"
    write_predictions(path, 1000)
    packed = tmp_path / "p.ndjson.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    suite = client.suites.get("suite:lunch")
    for source in (path, packed):
        job = suite.submit(source, label=label).wait(timeout=WAIT_TIMEOUT)
        assert job.result is not None
        assert job.result.n_submitted == 1001


def test_invalid_upload_raises(
    client: assay.Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_upload, "_INLINE_BYTES_MAX", 10)
    path = tmp_path / "p.ndjson"
    path.write_text('{"item_id":"a","prediction":["x"]}\nnot json\n')
    suite = client.suites.get("suite:lunch")
    for _ in range(2):
        with pytest.raises(assay.ValidationFailed) as raised:
            suite.submit(path)
        assert raised.value.fields[0].field.startswith("line 2")


def test_failed_stream_submits_nothing(client: assay.Assay, label: str) -> None:
    suite = client.suites.get("suite:lunch")
    pending = {upload.id for upload in client.uploads.list(status="pending")}
    with pytest.raises(CrashError), suite.upload(label=label) as stream:  # noqa: PT012
        stream.add("person-00/day-0", ["ramen"])
        raise CrashError
    assert {upload.id for upload in client.uploads.list(status="pending")} <= pending
    assert client.jobs.list(label=label).first() is None


MEMORY = r"""
import re, sys, assay_client as assay
n = int(sys.argv[1])
client = assay.Assay(cache=sys.argv[2])
suite = client.suites.get("suite:lunch")
rows = ((f"item-{i:08}", ["dish-%d" % (i * 7919 % 100003), "b"]) for i in range(n))
job = suite.submit(rows, label=sys.argv[3], fresh=True)
# A child's ru_maxrss includes its parent's memory before exec.
print(int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def test_memory_of_large_submission_is_small(
    up: dict[str, Any], label: str, tmp_path: Path
) -> None:
    """`ASSAY_TEST_ROWS` is the prediction count, by default 300,000."""
    n_rows = os.environ.get("ASSAY_TEST_ROWS", "300000")
    env = {**os.environ, "ASSAY_API_KEY": up["api_key"], "ASSAY_BASE_URL": up["rest"]}
    command = [sys.executable, "-c", MEMORY, n_rows, str(tmp_path), label]
    done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
    assert int(done.stdout) < 200
