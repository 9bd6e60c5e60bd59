"""What both Python clients share: what they are told, and when they stop waiting."""

import json
import os
import time

LABEL = "clients"
NO_JOB = "job_0000000000000000000000"
ENDED = ("succeeded", "failed", "cancelled")
PATIENCE = 60
PAUSE = 0.05

REST = os.environ["ASSAY_REST"]
GRPC = os.environ["ASSAY_GRPC"]
API_KEY = os.environ["ASSAY_API_KEY"]
SESSION = os.environ["ASSAY_SESSION"]
SUITE = os.environ["ASSAY_SUITE"]
PROTO = os.environ["ASSAY_PROTO"]
# An item of both suites; the workers hold the jobs of the second one.
ITEM = os.environ.get("ASSAY_ITEM")
HELD_SUITE = os.environ.get("ASSAY_HELD_SUITE")


def predictions():
    with open(os.environ["ASSAY_PREDICTIONS"], encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def ended(get):
    """Calls `get` until the job that it returns has ended."""
    began = time.monotonic()
    while (job := get())["status"] not in ENDED:
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"the job did not end: {job}")
        time.sleep(PAUSE)
    return job
