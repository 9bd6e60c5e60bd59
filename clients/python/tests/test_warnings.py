"""Warnings about likely mistakes in submissions, each with its cause."""

from __future__ import annotations

import json
import warnings
from typing import Any

import httpx2
import pytest

import assay_client as assay

ITEMS = {f"person-{n:02}": {"options": ["Ramen", "curry", "crème"]} for n in range(6)}


def client_of(openapi: dict[str, Any], tmp_path: Any, **result: Any) -> assay.Assay:
    """Returns a client for a platform with one suite, whose jobs succeed at once."""
    paths = openapi["paths"]
    suite = example(paths["/v1/suites/{suite_id}"]["get"])
    suite = {**suite, "suite_id": "suite:lunch", "version": "1", "metric": "log_loss"}
    suite["sequence"] = {"events": "past", "options": "options"}
    item = example(paths["/v1/suites/{suite_id}/items"]["get"])["items"][0]
    items = [{**item, "item_id": key, "input": question} for key, question in ITEMS.items()]
    page = {"suite_version": "1", "items": items, "next_cursor": None}
    job = example(paths["/v1/jobs/{job_id}"]["get"])
    counts = {"n": 6, "n_submitted": 6, "n_unmatched": 0, "n_missing": 0, **result}
    job = {**job, "status": "succeeded", "error": None, "result": {**job["result"], **counts}}

    def respond(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        body = suite if path.endswith("lunch") else page if path.endswith("items") else job
        return httpx2.Response(200, content=json.dumps(body))

    http_client = httpx2.Client(transport=httpx2.MockTransport(respond))
    return assay.Assay("key", "https://x", cache=tmp_path / "cache", http_client=http_client)


def example(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation["responses"]["200"]["content"]["application/json"]
    return content.get("example") or next(iter(content["examples"].values()))["value"]


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (
            {item_id.upper(): {"curry": 1} for item_id in ITEMS},
            "6 of 6 predictions are for items that the suite does not have: 'PERSON-00' differs "
            "from 'person-00' in case, white space or Unicode form only",
        ),
        ({"person-00": {"curry": 1}}, "5 of 6 items have no prediction, and count as the worst"),
        (
            {item_id: {"ramen": 1} for item_id in ITEMS},
            "6 of 6 predictions have labels that are no options: 'ramen' differs from 'Ramen' in "
            "case, white space or Unicode form only",
        ),
        (
            {item_id: {"cre\u0300me": 1} for item_id in ITEMS},
            "differs from 'crème' in case, white space or Unicode form only",
        ),
        (
            {item_id: {"0": 0.5, "1": 0.5} for item_id in ITEMS},
            "have labels that are no options, such as '0' instead of 'Ramen'",
        ),
        ({item_id: {" curry": 1} for item_id in ITEMS}, "white space around an id or a label"),
    ],
)
def test_submit_warns_of_likely_mistakes(
    openapi: dict[str, Any], tmp_path: Any, predictions: dict[str, Any], message: str
) -> None:
    suite = client_of(openapi, tmp_path).suites.get("suite:lunch")
    suite.items()
    with pytest.warns(assay.AssayWarning) as warned:
        job = suite.submit(predictions)
    # The scorer writes other quotation marks.
    texts = [str(warning.message).replace('"', "'") for warning in warned]
    assert any(message in text for text in texts), texts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job.wait()  # The mistake has been named.


def test_good_submission_has_no_warning(openapi: dict[str, Any], tmp_path: Any) -> None:
    client = client_of(openapi, tmp_path)
    client.suites.items("suite:lunch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        suite = client.suites.get("suite:lunch")
        suite.submit({item_id: {"curry": 0.5, "Ramen": 0.5} for item_id in ITEMS}).wait()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"n_unmatched": 4}, "4 of 6 predictions were for items that the suite does not have"),
        ({"n_missing": 4}, "4 of 6 items had no prediction"),
        ({"n_missing": 3, "n_unmatched": 3}, None),
    ],
)
def test_wait_warns_if_submit_did_not_know_the_items(
    openapi: dict[str, Any], tmp_path: Any, counts: dict[str, int], message: str | None
) -> None:
    suite = client_of(openapi, tmp_path, **counts).suites.get("suite:lunch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = suite.submit({"other": {"curry": 1}})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        job.wait()
    assert [message in str(warning.message) for warning in warned] == [True] * (message is not None)
