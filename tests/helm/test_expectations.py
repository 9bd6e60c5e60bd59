"""Checks the rendered objects against expectations.yaml's rows."""

import re

import pytest
import yaml

import chart

ROWS = yaml.safe_load((chart.ROOT / "tests/helm/expectations.yaml").read_text())
EACH = [(row["set"], target, path, wanted) for row in ROWS for target, paths in row.items() if target != "set" for path, wanted in (paths or {None: None}).items()]


def at(value, path):
    """Returns the value at a path such as `spec.ports[http].port`, or None."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\"[^\"]+\"|[^\]]+)\]", path):
        if value is None:
            return None
        if name:
            value = value.get(name)
        elif index.startswith('"'):
            value = value.get(index.strip('"'))
        elif index.isdigit():
            value = value[int(index)] if int(index) < len(value) else None
        else:
            found = [item for item in value if index in (item.get("name"), item.get("type"), item.get("key"))]
            value = found[0] if found else None
    return value


def test_expectations_are_not_too_few():
    assert len(EACH) >= 150


@pytest.mark.parametrize("name, target, path, wanted", EACH, ids=lambda part: str(part)[:80])
def test_object_has_expected_value(name, target, path, wanted):
    kind, called = target.split("/")
    found = [d for d in chart.objects(name) if (d["kind"], d["metadata"]["name"]) == (kind, called)]
    if path is None:
        assert found == []
    else:
        assert len(found) == 1, f"no object {target}"
        assert at(found[0], path) == wanted


def test_job_name_depends_on_image():
    def name(**image):
        made = chart.template(values={"migration": {"mode": "job"}, "image": image})
        return next(d["metadata"]["name"] for d in chart.read(made.stdout) if d["kind"] == "Job")

    assert name(tag="1") == name(tag="1") != name(tag="2")
    assert re.fullmatch(r"assay-migrate-[0-9a-f]{8}", name(tag="1"))


def test_names_start_with_release():
    def names(release):
        return {d["metadata"]["name"] for d in chart.read(chart.template(release=release).stdout)}

    assert "my-assay-api" in names("my-assay")
    assert "blue-assay-api" in names("blue")
    assert all(len(name) <= 63 for name in names("a" * 53))


def test_rules_equal_file_with_absolute_urls():
    rule = next(d for d in chart.objects("monitoring") if d["kind"] == "PrometheusRule")
    file = yaml.safe_load((chart.CHART / "files/alerts.yaml").read_text())
    base = "https://git.example.org/platform/assay/blob/main/docs/runbooks/"
    for group in file["groups"]:
        for each in group["rules"]:
            if "runbook_url" in each.get("annotations", {}):
                each["annotations"]["runbook_url"] = each["annotations"]["runbook_url"].replace("docs/runbooks/", base)
    assert rule["spec"] == file


def test_dashboard_equals_file_with_runbook_url():
    found = next(d for d in chart.objects("monitoring") if d["kind"] == "ConfigMap")
    file = (chart.CHART / "files/dashboard.json").read_text()
    assert file.count('"docs/runbooks"') > 1
    expected = file.replace('"docs/runbooks"', '"https://git.example.org/platform/assay/blob/main/docs/runbooks"')
    assert found["data"] == {"assay.json": expected.strip()}


def notes(values):
    """Returns the rendered NOTES.txt. An extra object contains it, because `helm template` does not print it."""
    wrapper = '{kind: Notes, metadata: {name: notes}, text: {{ include "assay/templates/NOTES.txt" . | quote }}}'
    made = chart.template(values={**values, "extraObjects": [wrapper]})
    return next(d["text"] for d in chart.read(made.stdout) if d["kind"] == "Notes")


def test_notes_contain_first_commands_and_warnings():
    text = notes({})
    assert "curl http://127.0.0.1:8080/health" in text and "helm --namespace assay test assay" in text
    assert "users cannot sign in by email" in text and "set image.digest in production" in text
    text = notes(yaml.safe_load(chart.SETS["production"].read_text()))
    assert "curl https://assay.example.org/health" in text and "WARNING" not in text
    assert "The chart does not migrate" in notes({"migration": {"mode": "none"}})
    assert "deployment/assay-worker deployment/assay-engine\n" in notes({})
    text = notes({"engine": {"enabled": False}})
    assert "No model is served" in text and "deployment/assay-engine" not in text
    assert "No score receipt is signed" in notes({}) and "Organizations cannot publish suites" in notes({})
    text = notes({"checker": {"enabled": True}})
    assert "Organizations cannot publish" not in text and "deployment/assay-engine deployment/assay-checker\n" in text
    text = notes({"receiptLog": {"enabled": True, "origin": "a.example/log"}})
    assert "No score receipt is signed" not in text and "deployment/assay-engine deployment/assay-receipt-log\n" in text
    text = notes({"webhooks": {"existingSecret": "w"}})
    assert "the API delivers webhooks itself" in text and "deployment/assay-deliverer" not in text
    text = notes({"webhooks": {"existingSecret": "w"}, "deliverer": {"enabled": True}})
    assert "the API delivers webhooks itself" not in text and "deployment/assay-engine deployment/assay-deliverer\n" in text
