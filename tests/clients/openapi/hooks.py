"""Hooks for schemathesis, with facts that a schema cannot state: which organizations, suites, jobs, uploads and cursors exist,
and which domains can be claimed. They change only the request parts that are meant to be valid. Parts that are invalid on
purpose are sent as they are."""

import datetime
import json
import os
import random
import re
import uuid

import schemathesis

ORG = os.environ["ASSAY_ORG"]
# Existing resources, by the parameter or field name.
KNOWN = json.loads(os.environ["ASSAY_KNOWN"])
# Operations that would remove a resource which other operations need: the parameter, and the value to send instead.
REMOVALS = {
    "deleteUpload": ("upload_id", "upl_0"),
    "releaseDomain": ("domain", "unclaimed.example"),
    "deleteWebhook": ("webhook_id", "whk_0"),
}
# schemathesis sometimes sends an id of another kind, because it takes a response's id for that of its organization.
ORG_ID = re.compile(r"org_[0-9A-Za-z]{1,40}|[a-z]{3}_[0-9A-Za-z]{22}")

# Random, not alternating: calls come in several kinds of pairs, and alternation would treat each kind in only one way.
chance = random.Random(1)


def invalid_parts(case):
    """Names the request parts that violate their schema on purpose."""
    components = case.meta.components.items() if case.meta else ()
    return {str(getattr(part, "value", part)) for part, info in components if not info.mode.is_positive}

# Listings with cursors.
PAGED = {"listKeys", "listInvites", "listMembers", "listDomains", "listEvents", "getBoard"}


@schemathesis.hook
def before_call(context, case, kwargs):
    wrong = invalid_parts(case)
    operation = case.operation.definition.raw.get("operationId")
    headers, query, path = case.headers or {}, case.query or {}, case.path_parameters or {}
    # Somebody else's organization is 404, which hides every other error.
    if "X-Org-Id" in headers and (ORG_ID.fullmatch(str(headers["X-Org-Id"])) or wrong - {"header"}):
        headers["X-Org-Id"] = ORG
    # A key belongs to one submission permanently; another submission with it is rejected.
    if "Idempotency-Key" in headers and "header" not in wrong:
        headers["Idempotency-Key"] = f"{uuid.uuid4().hex}-{headers['Idempotency-Key']}"[:128].rstrip()
    # A cursor's schema matches any word, but only a previous page's cursors are valid.
    if "query" not in wrong and (case.operation.path.endswith("/items") or operation in PAGED):
        query.pop("cursor", None)
    # A valid request may wait half a minute for an event.
    if "query" not in wrong and "wait" in query and operation == "listEvents":
        query["wait"] = min(int(query["wait"]), 1)
    # Only the organization's uploads can be the one before a page.
    if "query" not in wrong and "before" in query and operation == "listUploads":
        query["before"] = KNOWN["upload_id"]
    # No schema can state that a range's first day is at most 91 days before the last one.
    if "query" not in wrong and "from" in query and operation == "listUsageDays":
        query["from"] = query["to"] = query.get("to") or datetime.date.today().isoformat()
    if "path" not in wrong:
        path.update(existing(operation, path))
    if "body" not in wrong and operation in BODIES:
        case.body = BODIES[operation](case.body)


def existing(operation, path):
    """Returns path parameters of existing resources, for half the calls. Generated ids hardly ever exist."""
    if operation == "completeUpload":
        # No schema can state that an upload's parts are complete and contain predictions.
        return {"upload_id": KNOWN["upload_id"]}
    if operation == "deleteSession":
        # The list of sessions contains the caller's session. Ending it would make all further calls fail.
        return {"session_id": KNOWN["session_id"]}
    if operation in REMOVALS:
        name, other = REMOVALS[operation]
        return {name: other} if path[name] == KNOWN[name] else {}
    if chance.random() < 0.5:
        return {}
    found = {name: KNOWN[name] for name in path if name in KNOWN}
    if operation == "getJobOutput":
        # Only a prediction job has an output.
        return {"job_id": KNOWN["prediction_id"]}
    return {**found, "upload_id": KNOWN["open_upload_id"]} if operation == "putUploadPart" else found


def submission(body):
    """Returns the submission for an existing suite, with a ready upload or at most one prediction per item."""
    body = {**body, "suite_id": KNOWN["suite_id"]}
    if body.get("input_ref"):
        return {**body, "input_ref": KNOWN["input_ref"]}
    # The schema does not state which kind of prediction the suite's metric accepts.
    is_valid = lambda one: len(one["item_id"].encode()) <= 512 and isinstance(one["prediction"], (str, list))
    predictions = {one["item_id"]: one for one in body["predictions"] if is_valid(one)}
    return {**body, "predictions": list(predictions.values()) or [{"item_id": "person-00/day-0", "prediction": ["ramen"]}]}


def serving(body):
    """Returns the request with the model's current version and valid sequences. `refuse` depends on the model, so it is not sent.
    A seed has at most 20 digits, but not every number with 20 digits has 64 bits."""
    body = {**body, "sequences": sequences(body["sequences"])}
    if body.get("seed"):
        body["seed"] = str(int(body["seed"]) % 2**64)
    return with_rules({name: value for name, value in body.items() if name != "model_version"})


def without_options(body):
    """Returns the request without options, which only `predict` ranks."""
    body = serving(body)
    return {**body, "sequences": [{name: value for name, value in one.items() if name != "options"} for one in body["sequences"]]}


def prediction(body):
    """Returns the prediction job for an existing model, with one of the three input kinds, which exists."""
    inputs = {
        "sequences": sequences(body.get("sequences") or []),
        "input_ref": body.get("input_ref") and KNOWN["sequences_ref"],
        "suite_id": KNOWN["predicted_suite_id"],
    }
    kind = next(name for name, value in inputs.items() if value)
    rest = {name: value for name, value in body.items() if name not in (*inputs, "model_version")}
    if kind != "suite_id":
        rest.pop("evaluate", None)
    if rest.get("parameters"):
        rest["parameters"] = with_rules(rest["parameters"])
    return {**rest, "model_id": KNOWN["model_id"], kind: inputs[kind]}


def upload(body):
    """Returns the upload with the only content type that its kind can have."""
    return {**body, "content_type": "application/x-ndjson"} if body.get("kind") == "sequences" else body


def sequences(given):
    """Returns the sequences with distinct ids, distinct options, and either all timestamps or none."""
    is_valid = lambda text: len(text.encode()) <= 512
    valid = {}
    for one in given:
        events = [event for event in one["events"] if is_valid(event["item_id"]) and is_valid(event.get("type") or "")]
        if any(event.get("ts") is None for event in events):
            events = [{name: value for name, value in event.items() if name != "ts"} for event in events]
        options = list(dict.fromkeys(filter(is_valid, one.get("options") or [])))
        valid[one["sequence_id"]] = {**one, "events": events, "options": options or None}
    return list(valid.values())


def with_rules(body):
    """Returns the options with `truncate` and `skip`: a schema cannot state which sequences `refuse` rejects."""
    return {name: None if value == "refuse" else value for name, value in body.items()}


def claim(body):
    """Returns the claim with a domain below `example`, which is no public suffix and has no email provider."""
    *labels, last = body["domain"].split(".")
    return {**body, "domain": ".".join([*(labels or [last]), "example"])[-238:].lstrip(".-")}


def printable(text):
    """Returns the text without control characters, which codes and names do not have."""
    return "".join(filter(str.isprintable, text)) or "x"


def public_name(body, field="name"):
    """Returns the body with a name that has visible letters and digits, if it has one: a schema cannot list all others."""
    if body.get(field) is None:
        return body
    name = "".join(letter for letter in body[field] if letter.isalnum() and letter not in "\u115f\u1160\u3164\uffa0")
    return {**body, field: name or "name"}


def terms(body):
    """Returns the acceptance with the current version, in half the calls."""
    body = {**body, "version": printable(body["version"])}
    return body if chance.random() < 0.5 else {**body, "version": KNOWN["version"]}


def link(body):
    """Returns the sign-in with a valid link's token, in the first call only."""
    return {**body, "token": KNOWN.pop("token", printable(body["token"]))}


def device_login(body):
    """Returns the login with a name that strangers may see."""
    return public_name({"client_name": body["client_name"]}, "client_name")


def device_poll(body):
    """Returns the poll with a login's code, in the first call only."""
    return {**body, "device_code": KNOWN.pop("device_code", printable(body["device_code"]))}


def comparison(body):
    """Returns the comparison with succeeded jobs, in most calls."""
    return body if chance.random() < 0.3 else {**body, "job_a": KNOWN["job_a"], "job_b": KNOWN["job_b"]}


def new_key(body):
    """Returns the key with an expiry in the future."""
    body = public_name(body)
    return {**body, "expires_at": "2100-01-01T00:00:00Z"} if body.get("expires_at") else body


def key_change(body):
    """Returns the change with a name alone: no schema can state which scopes and which expiry the key has."""
    body = public_name(body)
    return {**body, "name": body.get("name") or "renamed", "scopes": None, "expires_at": None}


def webhook(body):
    """Returns the webhook with distinct events and a URL whose host has no address: generated URLs have any scheme."""
    events = body.get("events") and list(dict.fromkeys(body["events"]))
    return {**body, "events": events, "url": body.get("url") and "https://receiver.invalid/"}


def webhook_change(body):
    """Returns the change with at least one field, which no schema can state."""
    return {**webhook(body), "enabled": body.get("enabled") is not False}


def recovery(body):
    """Returns the recovery since now: no schema can state that the time is in the last 30 days."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {**body, "since": now.isoformat()}


def entry(body):
    """Returns the entry with a name that strangers may see, and with https: generated URLs have any scheme."""
    return {**public_name(body), "url": body.get("url") and "https://lab.example/"}


BODIES = {
    "createEntry": entry,
    "createOrg": public_name,
    "updateOrg": public_name,
    "createWebhook": webhook,
    "updateWebhook": webhook_change,
    "recoverWebhook": recovery,
    "createKey": new_key,
    "updateKey": key_change,
    "createEval": submission,
    "createComparison": comparison,
    "createPrediction": prediction,
    "createUpload": upload,
    "predict": serving,
    "generate": without_options,
    "embed": without_options,
    "claimDomain": claim,
    "acceptTerms": terms,
    "signIn": link,
    "createDeviceLogin": device_login,
    "pollDeviceLogin": device_poll,
}
