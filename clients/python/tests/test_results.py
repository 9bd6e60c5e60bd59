"""Results' text, HTML and decisions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import assay_client as assay
from assay_client import _models as models
from assay_client._frames import open_predictions
from assay_client._results import check_predictions, describe_result, job_html

from .test_models import JOB

COMPARISON: dict[str, Any] = {
    "job_a": "job_1",
    "job_b": "job_2",
    "suite_id": "suite:lunch",
    "suite_version": "3",
    "metric": "accuracy",
    "n": 500,
    "value_a": 0.4,
    "value_b": 0.413,
    "difference": -0.013,
    "stderr": 0.009,
    "ci95": [-0.031, 0.004],
    "ci_method": "bonett_price",
    "p_value": 0.14,
    "p_method": "mcnemar",
    "n_differ": 41,
    "point": 0.01,
    "n_needed": 2900,
    "lower_is_better": False,
    "better": "b",
    "is_significant": False,
}


def comparison(**changes: Any) -> assay.Comparison:
    return assay.Comparison.from_dict({**COMPARISON, **changes})


def test_comparison_has_text() -> None:
    assert str(comparison()) == (
        "No clear difference: 0.013 in favour of B (accuracy, larger is better). "
        "Difference −0.013 (95 % interval −0.031 to +0.004), p = 0.14 (mcnemar), "
        "41 items differ; 2,900 items needed to detect one point"
    )


@pytest.mark.parametrize(
    ("metric", "lower_is_better", "difference", "better", "p_value", "text"),
    [
        ("accuracy", False, 0.035, "a", 0.01, "A is better by 0.035 (accuracy, larger is better)."),
        ("auc", False, -0.035, "b", 0.01, "B is better by 0.035 (auc, larger is better)."),
        ("brier", True, -0.0755, "a", 1e-5, "A is better by 0.0755 (brier, smaller is better)."),
        ("rmse", True, 12.5, "b", 0.04, "B is better by 12.5 (rmse, smaller is better)."),
        (
            *("mae", True, 0.0041, "b", 0.05),
            "No clear difference: 0.0041 in favour of B (mae, smaller is better).",
        ),
        ("mae", True, 0.0, None, 1.0, "Both jobs have the same value."),
    ],
)
def test_verdict_names_the_better_job(
    metric: str,
    lower_is_better: bool,
    difference: float,
    better: str | None,
    p_value: float,
    text: str,
) -> None:
    found = comparison(
        metric=metric,
        lower_is_better=lower_is_better,
        difference=difference,
        better=better,
        p_value=p_value,
        is_significant=p_value < 0.05,
    )
    assert found.verdict == text
    assert str(found).startswith(f"{text} Difference ")
    assert text in found._repr_html_()


def test_interval_below_margin_raises() -> None:
    comparison().raise_if_worse()
    worse = comparison(ci95=[-0.05, -0.03])
    worse.raise_if_worse(margin=0.03)
    with pytest.raises(assay.Regression) as raised:
        worse.raise_if_worse(margin=0.02)
    assert raised.value.comparison is worse
    assert not comparison().not_worse(0.02)
    assert comparison().not_worse(0.032)


def test_smaller_is_better_reverses_signs() -> None:
    worse = comparison(metric="rmse", lower_is_better=True, ci95=[0.03, 0.05])
    with pytest.raises(assay.Regression):
        worse.raise_if_worse(margin=0.02)
    assert comparison(metric="rmse", lower_is_better=True, ci95=[-0.05, 0.01]).not_worse(0.02)


def test_comparison_without_interval_raises() -> None:
    with pytest.raises(assay.AssayError, match="has no interval"):
        comparison(ci95=None).not_worse(0.1)


def test_result_has_text() -> None:
    result = models.Job.from_dict(JOB).result
    assert isinstance(result, models.EvalResult)
    assert describe_result(result) == (
        "accuracy 0.412 ± 0.022 (95 % interval 0.369 to 0.455, wilson), n = 500, "
        "suite:lunch version 3"
    )
    ladder = dataclasses.replace(result, release="ladder(0.01)", stderr=None, ci95=None)
    assert describe_result(ladder).startswith("best score of your organization so far: accuracy")


def test_html_is_static_and_escaped() -> None:
    job = models.Job.from_dict({**JOB, "label": "<script>alert(1)</script>"})
    html = job_html(dataclasses.replace(job, trace_url="javascript:alert(1)"), "https://x")
    assert "<script" not in html
    assert "javascript:" not in html
    assert "<svg" in html
    assert "age_group &lt;18&gt;" in html
    assert "<script" not in comparison(metric="<script>")._repr_html_()


def test_slices_are_a_frame() -> None:
    import pandas

    result = models.Job.from_dict(JOB).result
    assert isinstance(result, models.EvalResult)
    frame = pandas.DataFrame(result.slices[0].groups)
    assert list(frame["group"]) == ["<18>", "65+"]
    assert frame["value"].min() == 0.3


def test_check_names_every_error() -> None:
    rows = [("a", "x"), ("a", "y"), ("z", "x"), ("b", 3)]
    check = check_predictions(open_predictions(rows), ["a", "b", "c"], "accuracy")
    first, *errors = str(check).splitlines()
    assert first == "3 items, 1 missing ('c'), 1 unknown ('z')"
    assert [error.split(": ")[0] for error in errors] == ["predictions[1]", "predictions[3]"]
    assert not check.ok
    good = check_predictions(open_predictions({"a": "x"}), ["a"], "accuracy")
    assert good.ok
    assert str(good) == "1 items, 0 missing, 0 unknown"
