"""The settings that the Python clients share, and job polling."""

import json
import os
import time

LABEL = "clients"
NO_JOB = "job_0000000000000000000000"
FINAL_STATES = ("succeeded", "failed", "cancelled")
WAIT_TIMEOUT = float(os.environ.get("ASSAY_TEST_WAIT_SECONDS", "180"))
POLL_INTERVAL = 0.05

REST = os.environ["ASSAY_REST"]
GRPC = os.environ["ASSAY_GRPC"]
API_KEY = os.environ["ASSAY_API_KEY"]
SESSION = os.environ["ASSAY_SESSION"]
SUITE = os.environ["ASSAY_SUITE"]
PROTO = os.environ["ASSAY_PROTO"]
# An item in both suites. The second suite's jobs run until they are cancelled.
ITEM = os.environ.get("ASSAY_ITEM")
HELD_SUITE = os.environ.get("ASSAY_HELD_SUITE")


def predictions():
    with open(os.environ["ASSAY_PREDICTIONS"], encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def wait_until_finished(get):
    """Calls `get` until the job that it returns is in a final state, and returns the job."""
    started = time.monotonic()
    while (job := get())["status"] not in FINAL_STATES:
        if time.monotonic() - started > WAIT_TIMEOUT:
            raise SystemExit(f"the job did not finish: {job}")
        time.sleep(POLL_INTERVAL)
    return job
