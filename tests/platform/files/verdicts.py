"""Prints the Python client's verdicts on files, by file and way: `accepted`, or the error."""

import json
import sys

import assay_client as assay
from assay_client import _results
from assay_client._frames import open_predictions


def verdict(call):
    try:
        found = call()
    except assay.AssayError as error:
        return str(error)
    if isinstance(found, _results.Check):
        return "accepted" if found.ok else found.errors[0]
    return "accepted"


def without_scorer(call):
    found, _results.find_scorer = _results.find_scorer, lambda: None
    try:
        return call()
    finally:
        _results.find_scorer = found


with open("cases.json") as file:
    cases = json.load(file)
verdicts = {}
with assay.Assay() as client:
    suites = {suite: client.suites.get(f"suite:{suite}") for _, suite in cases}
    items = {name: suite.items().ids() for name, suite in suites.items()}
    for name, suite in cases:
        metric = suites[suite].metric

        def check():
            source = open_predictions(name, None, metric)
            return _results.check_predictions(source, items[suite], metric)

        verdicts[name] = {
            "Python with the scorer": verdict(check),
            "Python without the scorer": without_scorer(lambda: verdict(check)),
            "Python submit": verdict(lambda: suites[suite].submit(name).wait()),
            "Python score": verdict(lambda: assay.score(name, f"{suite}/answers.ndjson", metric)),
        }
json.dump(verdicts, sys.stdout)
