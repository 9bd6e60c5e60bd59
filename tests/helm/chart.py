"""The chart as the tests see it: rendered by the real Helm, and read back."""

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
# The oldest that Chart.yaml takes, and the newest whose schemas the validator brings.
OLDEST, NEWEST = "1.30", "1.37"
# Every name by which a file of values is known here.
SETS = {
    path.stem: path
    for path in [CHART / "values-dev.yaml", *sorted(CHART.glob("examples/*.yaml")), *sorted((ROOT / "tests/helm/matrix").glob("*.yaml"))]
}


def template(*arguments, release="assay", kube=OLDEST, values=None):
    """What `helm template` says; values that are no file come on standard input."""
    command = [HELM, "template", release, str(CHART), "--namespace", "assay", "--kube-version", f"{kube}.0", *arguments]
    given = None
    if values is not None:
        command += ["--values", "-"]
        given = yaml.safe_dump(values)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


@functools.cache
def text(name=None, kube=OLDEST):
    """The rendering of a set of values, by its name; without one, of the chart's own."""
    made = template(*(["--values", str(SETS[name])] if name else []), kube=kube)
    assert made.returncode == 0, made.stderr
    return made.stdout


class Unique(yaml.CSafeLoader):
    """A reader that refuses a key that stands twice in one mapping."""


def _mapping(loader, node):
    keys = [key.value for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
    return yaml.CSafeLoader.construct_mapping(loader, node, deep=True)


Unique.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(rendered):
    return [document for document in yaml.load_all(rendered, Loader=Unique) if document]


@functools.cache
def objects(name=None, kube=OLDEST):
    return read(text(name, kube))


def pods(documents):
    """Each pod's name and specification, whatever makes it."""
    for document in documents:
        if document["kind"] == "Pod":
            yield document["metadata"]["name"], document["spec"]
        elif "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def ours(documents):
    """Pods that run the platform's own binaries."""
    for name, spec in pods(documents):
        if spec["containers"][0]["command"][0].startswith("assay-"):
            yield name, spec


@functools.cache
def settings():
    """Names of the settings that the binaries know, and of the secrets among them, from the one table of them."""
    source = (ROOT / "core/src/settings.rs").read_text()
    table = re.search(r"^settings! \{\n(.*?)^\}", source, re.S | re.M).group(1)
    rows = re.findall(r'^ {4}([A-Z_]+)( = ".*?")?(, secret)?; "', table, re.M)
    assert len(rows) >= 26, rows
    names = {f"ASSAY_{row[0]}" for row in rows}
    secrets = {f"ASSAY_{row[0]}" for row in rows if row[2]}
    return names, secrets
