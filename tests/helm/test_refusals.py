"""Checks that values which contradict each other do not render, and that the error says what to change."""

import subprocess

import pytest
import yaml

import chart

REFUSALS = yaml.safe_load((chart.ROOT / "tests/helm/refusals.yaml").read_text())


def test_refusals_are_unique_and_not_too_few():
    assert len(REFUSALS) >= 25 and len({row["why"] for row in REFUSALS}) == len(REFUSALS)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["why"])
def test_invalid_values_fail(row):
    made = chart.template(values=row["values"])
    assert made.returncode != 0, "the chart rendered"
    assert row["in"] in made.stderr, made.stderr


def test_older_kubernetes_fails():
    made = chart.template(kube="1.29")
    assert made.returncode != 0 and "chart requires kubeVersion: >=1.30.0-0" in made.stderr


@pytest.mark.parametrize("part, file", [("prometheusRule", "alerts.yaml"), ("grafanaDashboard", "dashboard.json")])
def test_chart_without_files_fails(part, file, tmp_path):
    command = [chart.HELM, "package", str(chart.CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["tar", "-xzf", next(tmp_path.glob("*.tgz")), "-C", str(tmp_path)], check=True)
    (tmp_path / "assay/files" / file).unlink()
    command = [chart.HELM, "template", "assay", str(tmp_path / "assay"), "--kube-version", "1.30.0", "--set", f"{part}.enabled=true"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{part}.enabled: this chart was packed without files/{file}" in made.stderr
