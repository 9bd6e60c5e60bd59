"""What a schema cannot say, for schemathesis: which suites, cursors and organizations there are. Only what was meant to
be right is mended; what was made wrong on purpose is sent as it is."""

import itertools
import os

import schemathesis

SUITE = os.environ["ASSAY_SUITE"]
ORG = os.environ["ASSAY_ORG"]

numbers = itertools.count()


def meant_well(case, place):
    """Whether this part of a request was made to fit its schema."""
    if case.meta is None:
        return True
    part = {str(getattr(place, "value", place)): info for place, info in case.meta.components.items()}.get(place)
    return part is None or part.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    headers, query = case.headers or {}, case.query or {}
    if meant_well(case, "header"):
        # Somebody else's organization does not exist.
        if "X-Org-Id" in headers:
            headers["X-Org-Id"] = ORG
        # A key stands for one submission for good, so that the same key for another is refused.
        if "Idempotency-Key" in headers:
            headers["Idempotency-Key"] = f"{next(numbers)}-{headers['Idempotency-Key']}"[:128].rstrip()
    # Any word may be a cursor to look at; only those that a page has given are.
    if meant_well(case, "query") and "cursor" in query and case.operation.path.endswith("/items"):
        del query["cursor"]
    if case.operation.definition.raw.get("operationId") == "createEval" and meant_well(case, "body"):
        case.body = submission(case.body)


def submission(body):
    """The same for a suite that there is, inline, and with one prediction for an item."""
    if not isinstance(body, dict):
        return body
    predictions = {one["item_id"]: one for one in body.get("predictions") or [] if len(one["item_id"].encode()) <= 512}
    return {
        **{name: value for name, value in body.items() if name != "input_ref"},
        "suite_id": SUITE,
        "predictions": list(predictions.values()) or [{"item_id": "person-00/day-0", "prediction": ["ramen"]}],
    }
