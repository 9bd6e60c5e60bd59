"""Runs linters on the chart, the rendered objects, the Dockerfile and the compose file."""

import json
import os
import re
import subprocess

import pytest
import yaml

import chart

BIN = chart.TOOLS / "venv/bin"
# Tables have long rows. Rendered objects have Helm's indentation.
TABLES = "{extends: tests/helm/yamllint.yaml, rules: {line-length: disable}}"
RENDERED = "{extends: tests/helm/yamllint.yaml, rules: {line-length: disable, indentation: {indent-sequences: whatever}}}"
DIGEST = "sha256:" + "0" * 64


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=chart.ROOT, **more)


@pytest.mark.parametrize("name", [None, *chart.SETS], ids=lambda name: name or "default")
def test_helm_lint_passes(name):
    done = run(chart.HELM, "lint", "--strict", chart.CHART, *(["--values", chart.SETS[name]] if name else []))
    assert done.returncode == 0 and "0 chart(s) failed" in done.stdout, done.stdout
    assert "WARNING" not in done.stdout and "ERROR" not in done.stdout


def test_package_contains_only_the_chart(tmp_path):
    done = run(chart.HELM, "package", chart.CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    packed = run("tar", "-tzf", next(tmp_path.glob("*.tgz"))).stdout.split()
    assert {"assay/Chart.yaml", "assay/values.schema.json", "assay/files/alerts.yaml", "assay/files/dashboard.json"} <= set(packed)
    assert not [name for name in packed if re.match(r"assay/(tests|examples|image|values-dev)", name)]


def test_yamllint_passes():
    files = [*(chart.CHART / part for part in ("Chart.yaml", "values.yaml")), *chart.SETS.values(), chart.CHART / "image/compose.yaml"]
    done = run(BIN / "yamllint", "--strict", "--config-file", "tests/helm/yamllint.yaml", "tests/helm/yamllint.yaml", *files)
    assert done.returncode == 0, done.stdout
    done = run(BIN / "yamllint", "--strict", "--config-data", TABLES, *(f"tests/helm/{name}.yaml" for name in ("expectations", "refusals")))
    assert done.returncode == 0, done.stdout


def test_yamllint_passes_on_rendered_objects():
    every = "".join(chart.text(name) for name in [None, *chart.SETS])
    done = run(BIN / "yamllint", "--strict", "--config-data", RENDERED, "-", input=every)
    assert done.returncode == 0, done.stdout[:2000]


def test_checkov_reports_only_missing_cpu_limit(tmp_path):
    """Uses the default values with digests, which are known only after a release."""
    made = chart.template(values={"image": {"digest": DIGEST}, "tests": {"image": {"digest": DIGEST}}})
    (tmp_path / "rendered.yaml").write_text(made.stdout)
    command = ["--skip-download", "--framework", "kubernetes", "--output", "json", "--file", tmp_path / "rendered.yaml"]
    done = run(chart.TOOLS / "checkov/bin/checkov", *command, env={**os.environ, "LOG_LEVEL": "ERROR"})
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 300 and report["summary"]["parsing_errors"] == 0
    assert {check["check_id"] for check in report["results"]["failed_checks"]} == {"CKV_K8S_11"}, done.stdout
    # An annotation on helm test's pod skips the checks for probes, with the reason.
    assert {check["check_id"] for check in report["results"]["skipped_checks"]} == {"CKV_K8S_8", "CKV_K8S_9"}


def test_hadolint_passes():
    done = run(BIN / "hadolint", "--failure-threshold", "style", chart.CHART / "image/Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_dockerfile_matches_build_context():
    """The Dockerfile copies all workspace members. Each copied path exists, and .dockerignore includes it."""
    dockerfile = (chart.CHART / "image/Dockerfile").read_text()
    ignore = (chart.ROOT / ".dockerignore").read_text().split()
    copied = {part for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.M) for part in line.split()}
    assert ignore[ignore.index("*") :] and copied == {line[1:] for line in ignore if line.startswith("!")}
    assert all((chart.ROOT / part).exists() for part in copied)
    members = re.search(r"^members = \[(.*)\]", (chart.ROOT / "Cargo.toml").read_text(), re.M).group(1)
    assert set(re.findall(r'"(\w+)"', members)) <= copied
    version = re.search(r'^version = "(.+)"', (chart.ROOT / "Cargo.toml").read_text(), re.M).group(1)
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == version and f"ARG VERSION={version}\n" in dockerfile
    rust = re.search(r'^channel = "(\d+\.\d+)', (chart.ROOT / "rust-toolchain.toml").read_text(), re.M).group(1)
    assert f"ARG BUILDER=rust:{rust}-bookworm\n" in dockerfile


def test_compose_file_is_valid(tmp_path):
    file = chart.CHART / "image/compose.yaml"
    done = run(chart.TOOLS / "bin/compose", file)
    assert (done.returncode, done.stdout.split()) == (0, ["api", "engine", "migrate", "operate", "postgres", "redis", "roles", "worker"]), done.stderr
    (tmp_path / "wrong.yaml").write_text(file.read_text().replace("depends_on:", "dependson:"))
    done = run(chart.TOOLS / "bin/compose", tmp_path / "wrong.yaml")
    assert done.returncode == 1 and "additional properties 'dependson' not allowed" in done.stderr


def test_compose_sets_only_known_settings():
    names, secrets = chart.settings()
    services = yaml.safe_load((chart.CHART / "image/compose.yaml").read_text())["services"]
    for name in ("api", "worker", "engine", "migrate", "operate"):
        assert services[name]["environment"].keys() <= names
    # The engine refuses to start with a password.
    assert not services["engine"]["environment"].keys() & secrets
    assert services["engine"]["volumes"] == ["artifacts:/var/lib/assay/artifacts:ro"] and services["engine"]["networks"] == ["engine"]
    # The API's role can neither migrate nor read answers.
    urls = [services[name]["environment"]["ASSAY_DATABASE_URL"] for name in ("api", "worker", "migrate")]
    # The role that reads drafts reads no jobs.
    urls.append(services["worker"]["environment"]["ASSAY_CHECKER_DATABASE_URL"])
    assert len(set(urls)) == 4
