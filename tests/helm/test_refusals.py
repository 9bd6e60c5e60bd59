"""Values that contradict themselves are refused when the chart is rendered, with a sentence that helps."""

import subprocess

import pytest
import yaml

import chart

REFUSALS = yaml.safe_load((chart.ROOT / "tests/helm/refusals.yaml").read_text())


def test_there_are_enough_of_them():
    assert len(REFUSALS) >= 25 and len({row["why"] for row in REFUSALS}) == len(REFUSALS)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["why"])
def test_refused(row):
    made = chart.template(values=row["values"])
    assert made.returncode != 0, "it was rendered"
    assert row["in"] in made.stderr, made.stderr


def test_an_older_kubernetes_is_refused():
    made = chart.template(kube="1.29")
    assert made.returncode != 0 and "chart requires kubeVersion: >=1.30.0-0" in made.stderr


@pytest.mark.parametrize("part, file", [("prometheusRule", "alerts.yaml"), ("grafanaDashboard", "dashboard.json")])
def test_a_chart_without_its_files_says_so(part, file, tmp_path):
    command = [chart.HELM, "package", str(chart.CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["tar", "-xzf", next(tmp_path.glob("*.tgz")), "-C", str(tmp_path)], check=True)
    (tmp_path / "assay/files" / file).unlink()
    command = [chart.HELM, "template", "assay", str(tmp_path / "assay"), "--kube-version", "1.30.0", "--set", f"{part}.enabled=true"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{part}.enabled: this chart was packed without files/{file}" in made.stderr
