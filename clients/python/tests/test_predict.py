"""What `evaluate` accepts from a function, and what it keeps, without an installation."""

from __future__ import annotations

from typing import Any

import pytest

import assay_client as assay
from assay_client._core import Reply, decode_error
from assay_client._evaluate import _check, _listed  # pyright: ignore[reportPrivateUsage]
from assay_client._settings import load_settings


@pytest.mark.parametrize("outputs", [{"a": 1}, {"a"}, "abc", b"abc", frozenset("ab")])
def test_batches_are_lists(outputs: Any) -> None:
    with pytest.raises(assay.AssayError, match=f"returned a {type(outputs).__name__} for a batch"):
        _listed(outputs)
    assert _listed(iter([1, 2])) == _listed((1, 2)) == [1, 2]


def test_frames_are_no_batches() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(assay.AssayError, match="returned a DataFrame for a batch"):
        _listed(pandas.DataFrame({"prediction": [1]}))


@pytest.mark.parametrize(
    ("prediction", "metric"),
    [
        ("a", "rmse"),
        (1.0, "exact_match"),
        ({"a": 0.4}, "log_loss"),
        ([1, 2], "ndcg@10"),
        (True, "mae"),
    ],
)
def test_predictions_of_another_form_name_item_and_metric(prediction: Any, metric: str) -> None:
    with pytest.raises(assay.AssayError, match=f"item i7, which the metric {metric}"):
        _check("i7", prediction, metric)


def test_keys_are_trimmed_and_never_shown() -> None:
    assert load_settings(" svc_key \n", "https://x/v1/").api_key == "svc_key"
    assert load_settings("svc_key", "https://x/v1/").base_url == "https://x"
    for broken in ("svc\nkey", "svc key", "svc\u00e9key", "svc\0key"):
        with pytest.raises(assay.AssayError) as error:
            load_settings(broken, "https://x")
        assert broken not in str(error.value)
        assert "key" not in str(error.value).replace("API key", "").replace("keys", "")


@pytest.mark.parametrize("hint", ["-5", "soon", "nan", "inf", "1, 2", ""])
def test_hints_that_are_no_times_are_ignored(hint: str) -> None:
    reply = Reply(503, {"retry-after": hint}, b"{}", None)
    assert decode_error(reply).retry_after is None


def test_keys_without_tls_are_noticed() -> None:
    with pytest.warns(UserWarning, match="has no TLS"):
        load_settings("svc_key", "http://assay.example")
