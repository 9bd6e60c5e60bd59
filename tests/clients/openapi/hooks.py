"""What a schema cannot say, for schemathesis: which organizations, suites, jobs, uploads and cursors there are, and which
domains may be claimed. Only what was meant to be right is mended; what was made wrong on purpose is sent as it is."""

import json
import os
import random
import re
import uuid

import schemathesis

ORG = os.environ["ASSAY_ORG"]
# By the name of the parameter or field, things that there are.
KNOWN = json.loads(os.environ["ASSAY_KNOWN"])
# What an operation would take away from the others, and what it is asked for instead.
TAKEN_AWAY = {"deleteUpload": ("upload_id", "upl_0"), "releaseDomain": ("domain", "unclaimed.example")}
# An id of another kind gets there when an answer's id is taken for that of its organization.
AN_ORG = re.compile(r"org_[0-9A-Za-z]{1,40}|[a-z]{3}_[0-9A-Za-z]{22}")

# Calls come in pairs of several kinds; taking turns would give each kind its own.
chance = random.Random(1)


def spoiled(case):
    """The parts of a request that were made not to fit their schema."""
    components = case.meta.components.items() if case.meta else ()
    return {str(getattr(part, "value", part)) for part, info in components if not info.mode.is_positive}

# Operations whose pages go on at a cursor.
PAGES = {"listKeys", "listInvites", "listMembers", "listDomains"}


@schemathesis.hook
def before_call(context, case, kwargs):
    wrong = spoiled(case)
    operation = case.operation.definition.raw.get("operationId")
    headers, query, path = case.headers or {}, case.query or {}, case.path_parameters or {}
    # Somebody else's organization does not exist, and hides whatever else is wrong.
    if "X-Org-Id" in headers and (AN_ORG.fullmatch(str(headers["X-Org-Id"])) or wrong - {"header"}):
        headers["X-Org-Id"] = ORG
    # A key stands for one submission for good: with another it is refused.
    if "Idempotency-Key" in headers and "header" not in wrong:
        headers["Idempotency-Key"] = f"{uuid.uuid4().hex}-{headers['Idempotency-Key']}"[:128].rstrip()
    # Any word may be a cursor to look at; only those that a page has given are.
    if "query" not in wrong and (case.operation.path.endswith("/items") or operation in PAGES):
        query.pop("cursor", None)
    if "path" not in wrong:
        path.update(existing(operation, path))
    if "body" not in wrong and operation in BODIES:
        case.body = BODIES[operation](case.body)


def existing(operation, path):
    """What was made up is hardly ever there: half of the calls ask for what is."""
    if operation == "completeUpload":
        # Whether its parts are whole, and predictions, is for no schema to say.
        return {"upload_id": KNOWN["upload_id"]}
    if operation == "deleteSession":
        # The id of the caller's own session is in the list of sessions, and ends all further calls.
        return {"session_id": KNOWN["session_id"]}
    if operation in TAKEN_AWAY:
        name, other = TAKEN_AWAY[operation]
        return {name: other} if path[name] == KNOWN[name] else {}
    if chance.random() < 0.5:
        return {}
    found = {name: KNOWN[name] for name in path if name in KNOWN}
    return {**found, "upload_id": KNOWN["open_upload_id"]} if operation == "putUploadPart" else found


def submission(body):
    """The same for a suite that there is, by an upload that is ready or with one prediction for an item."""
    body = {**body, "suite_id": KNOWN["suite_id"]}
    if body.get("input_ref"):
        return {**body, "input_ref": KNOWN["input_ref"]}
    # Nor which form the suite's metric takes.
    takes = lambda one: len(one["item_id"].encode()) <= 512 and isinstance(one["prediction"], (str, list))
    predictions = {one["item_id"]: one for one in body["predictions"] if takes(one)}
    return {**body, "predictions": list(predictions.values()) or [{"item_id": "person-00/day-0", "prediction": ["ramen"]}]}


def claim(body):
    """The same below a suffix at which nobody offers anything to everybody."""
    *labels, last = body["domain"].split(".")
    return {**body, "domain": ".".join([*(labels or [last]), "example"])[-238:].lstrip(".-")}


def terms(body):
    """Half of the time the version that holds."""
    return body if chance.random() < 0.5 else {**body, "version": KNOWN["version"]}


def link(body):
    """Once, a link that holds."""
    return {**body, "token": KNOWN.pop("token", body["token"])}


def comparison(body):
    """Of a job that has succeeded."""
    return body if chance.random() < 0.3 else {**body, "job_a": KNOWN["job_a"], "job_b": KNOWN["job_b"]}


BODIES = {"createEval": submission, "createComparison": comparison, "claimDomain": claim, "acceptTerms": terms, "signIn": link}
