"""Renders the chart with Helm and parses the result, for the tests."""

import functools
import os
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).parents[2]
CHART = ROOT / "helm"
TOOLS = ROOT / "target/tools/helm"
HELM = os.environ.get("HELM", str(TOOLS / "bin/helm"))
# The oldest Kubernetes version that Chart.yaml supports, and the newest whose schemas the validator contains.
OLDEST, NEWEST = "1.30", "1.37"
# All value files, by name.
SETS = {
    path.stem: path
    for path in [CHART / "values-dev.yaml", *sorted(CHART.glob("examples/*.yaml")), *sorted((ROOT / "tests/helm/matrix").glob("*.yaml"))]
}


def template(*arguments, release="assay", kube=OLDEST, values=None):
    """Runs `helm template`. `values` are passed on standard input."""
    command = [HELM, "template", release, str(CHART), "--namespace", "assay", "--kube-version", f"{kube}.0", *arguments]
    given = None
    if values is not None:
        command += ["--values", "-"]
        given = yaml.safe_dump(values)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


@functools.cache
def text(name=None, kube=OLDEST):
    """Returns the rendered chart for a value set, by name; without a name, for the default values."""
    made = template(*(["--values", str(SETS[name])] if name else []), kube=kube)
    assert made.returncode == 0, made.stderr
    return made.stdout


class Unique(yaml.CSafeLoader):
    """A YAML loader that rejects duplicate keys in a mapping."""


def _mapping(loader, node):
    keys = [key.value for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"duplicate key: {keys}"
    return yaml.CSafeLoader.construct_mapping(loader, node, deep=True)


Unique.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(rendered):
    return [document for document in yaml.load_all(rendered, Loader=Unique) if document]


@functools.cache
def objects(name=None, kube=OLDEST):
    return read(text(name, kube))


def pods(documents):
    """Yields the name and the specification of each pod, including those of controllers."""
    for document in documents:
        if document["kind"] == "Pod":
            yield document["metadata"]["name"], document["spec"]
        elif "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def ours(documents):
    """Yields the pods that run Assay's binaries."""
    for name, spec in pods(documents):
        if spec["containers"][0]["command"][0].startswith("assay-"):
            yield name, spec


@functools.cache
def settings():
    """Returns all settings' names, and the secrets' among them, from the table in the source."""
    source = (ROOT / "core/src/runtime/settings.rs").read_text()
    table = re.search(r"^settings! \{\n(.*?)^\}", source, re.S | re.M).group(1)
    rows = re.findall(r'^ {4}([A-Z_]+)( = ".*?")?(, secret)?; "', table, re.M)
    assert len(rows) >= 26, rows
    names = {f"ASSAY_{row[0]}" for row in rows}
    secrets = {f"ASSAY_{row[0]}" for row in rows if row[2]}
    return names, secrets
