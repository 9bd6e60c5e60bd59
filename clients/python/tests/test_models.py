"""Decoding responses."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import datetime, timezone
from typing import Any

import pytest

import assay_client as assay
from assay_client import _models as models

JOB: dict[str, Any] = {
    "id": "job_1",
    "org_id": "org_1",
    "type": "eval",
    "status": "succeeded",
    "request_id": "req_1",
    "label": None,
    "metadata": {},
    "versions": {"hfm_sha": "abc", "suite_id": "suite:lunch", "suite_version": "3"},
    "attempts": 1,
    "progress": None,
    "created_at": "2026-01-31T23:59:59.000001Z",
    "started_at": "2026-01-31T23:59:59.100000Z",
    "finished_at": None,
    "final": False,
    "result": {
        "hfm_sha": "abc",
        "metric": "accuracy",
        "n": 500,
        "n_submitted": 500,
        "n_unmatched": 0,
        "n_missing": 0,
        "suite_id": "suite:lunch",
        "suite_version": "3",
        "value": 0.412,
        "stderr": 0.022,
        "ci95": [0.369, 0.455],
        "ci_method": "wilson",
        "metrics": {"ndcg@10": 0.5},
        "release": "exact",
        "slices": [
            {
                "field": "age_group",
                "groups": [
                    {
                        "group": "<18>",
                        "n": 200,
                        "n_missing": 0,
                        "value": 0.3,
                        "stderr": None,
                        "ci95": None,
                    },
                    {
                        "group": "65+",
                        "n": 300,
                        "n_missing": 0,
                        "value": 0.5,
                        "stderr": None,
                        "ci95": None,
                    },
                ],
                "worst": "<18>",
            }
        ],
    },
}


def test_unknown_fields_are_ignored() -> None:
    job = models.Job.from_dict({**JOB, "new_field": {"a": 1}, "status": "new_status"})
    assert job.status == "new_status"
    assert not hasattr(job, "new_field")


def test_values_are_converted() -> None:
    job = models.Job.from_dict(JOB)
    assert job.created_at == datetime(2026, 1, 31, 23, 59, 59, 1, tzinfo=timezone.utc)
    assert job.finished_at is None
    assert isinstance(job.result, models.EvalResult)
    assert job.result.ci95 == (0.369, 0.455)
    assert job.versions.suite_version == "3"


def test_union_chooses_model_by_fields() -> None:
    result = {
        "model_id": "m",
        "model_version": "1",
        "operation": "predict",
        "engine": "default",
        "hfm_sha": "abc",
        "n": 3,
        "n_failed": 0,
        "n_truncated": 0,
        "n_unknown": 0,
        "n_cold": 0,
        "usage": {"predict_items": 3},
        "output_ref": "upl_1",
        "output_bytes": 10,
        "output_sha256": "0",
        "expires_at": "2026-01-31T23:59:59.000001Z",
    }
    job = models.Job.from_dict({**JOB, "type": "predict", "result": result})
    assert isinstance(job.result, models.PredictResult)


def test_missing_field_raises() -> None:
    with pytest.raises(assay.AssayError, match="`id` of Job"):
        models.Job.from_dict({name: value for name, value in JOB.items() if name != "id"})


def test_models_are_frozen_and_slotted() -> None:
    job = models.Job.from_dict(JOB)
    assert dataclasses.is_dataclass(job)
    assert not hasattr(job, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.id = "job_2"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del job.id


def test_models_compare_copy_and_pickle() -> None:
    job = models.Job.from_dict(JOB)
    assert job == models.Job.from_dict(JOB)
    assert job != dataclasses.replace(job, id="job_2")
    assert pickle.loads(pickle.dumps(job)) == job
    assert repr(job).startswith("Job(id='job_1', org_id='org_1'")
    versions = job.versions
    assert hash(versions) == hash(models.Versions.from_dict(JOB["versions"]))


def test_credentials_are_not_shown() -> None:
    login = models.DeviceLogin(
        device_code="secret-1",
        user_code="ABCD",
        verification_url="https://x",
        verification_url_complete="https://x?code=ABCD",
        interval=5,
        expires_at=datetime(2026, 1, 31, tzinfo=timezone.utc),
    )
    signed_in = models.SignedIn(token="secret-2", expires_at=login.expires_at, user_id="usr_1")
    assert "secret" not in repr(login) + repr(signed_in)
    assert "user_id='usr_1'" in repr(signed_in)
    assert signed_in.token == "secret-2"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 5),
        ("attempts", "1"),
        ("attempts", True),
        ("final", "no"),
        ("progress", 10**400),
        ("created_at", 5),
        ("created_at", "secret"),
        ("result", []),
        ("result", {**JOB["result"], "ci95": [1]}),
        ("result", {**JOB["result"], "metrics": {"a": "b"}}),
        ("versions", "secret"),
    ],
)
def test_field_of_another_type_is_an_error_without_its_value(field: str, value: Any) -> None:
    with pytest.raises(assay.AssayError, match=r"A response (has|lacks)") as raised:
        models.Job.from_dict({**JOB, field: value})
    assert "secret" not in str(raised.value)


def test_unknown_argument_raises() -> None:
    with pytest.raises(TypeError, match="has no field 'x'"):
        models.Health(git_sha="a", hfm_sha="b", env="c", x=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs the argument 'env'"):
        models.Health(git_sha="a", hfm_sha="b")  # type: ignore[call-arg]
