"""Checks that only an API server makes: its schemas, custom resources' rules, admission, quotas and immutable fields. There
are no nodes, so nothing runs."""

import concurrent.futures
import copy
import functools
import json
import os
import re
import subprocess
import sys

import pytest

import control_plane

sys.path.append(str(control_plane.ROOT / "tests/helm"))
import chart  # noqa: E402

BASE = os.environ.get("CHART_BASE")
NAMESPACE = "assay"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ["enforce", "warn", "audit"]}
# Those that admission needs. Others would start pods, which cannot run.
CONTROLLERS = [
    "namespace-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
]
# A cluster with IPv4 and IPv6 accepts Services in both families.
SERVICES = "10.92.0.0/16,fd00:92::/112"
SETS = [None, *chart.SETS]
every = pytest.mark.parametrize("name", SETS, ids=lambda name: name or "default")


@pytest.fixture(name="plane", scope="session")
def running_plane():
    with control_plane.ControlPlane(controllers=",".join(CONTROLLERS), services=SERVICES) as plane:
        definitions = sorted((control_plane.TOOLS / "crds").glob("*.yaml"))
        assert len(definitions) == 7
        succeed(plane.kubectl("apply", "--server-side", *(f"--filename={path}" for path in definitions)))
        succeed(plane.kubectl("wait", "customresourcedefinition", "--all", "--for=condition=Established", "--timeout=60s"))
        create_namespaces(plane, NAMESPACE)
        # The server describes all kinds at the first request for them. On a busy machine that takes longer than Helm waits.
        client = plane.client()
        control_plane.wait_for(lambda: client.exists("/openapi/v2"), control_plane.START_TIMEOUT, "the description of all kinds")
        yield plane
        plane.processes.check()


def succeed(made):
    """Fails if a command failed or warned."""
    assert (made.returncode, made.stderr) == (0, ""), made.stderr
    return made.stdout


def create_namespaces(plane, *names):
    kind = {"apiVersion": "v1", "kind": "Namespace"}
    apply(plane, [{**kind, "metadata": {"name": name, "labels": RESTRICTED}} for name in names])
    for name in names:
        plane.wait_for_service_account(name)


def as_text(documents):
    """Returns the objects as a stream: a list would be validated as a whole, by kubectl instead of the server."""
    return "\n---\n".join(map(json.dumps, documents))


def placed(documents, namespace):
    """Copies objects into a namespace."""
    return [{**document, "metadata": {**document["metadata"], "namespace": namespace}} for document in documents]


def apply(plane, documents):
    """Creates or changes objects, and fails if the server refuses one or warns."""
    succeed(plane.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", given=as_text(documents)))


def complaints(plane, documents, namespace=NAMESPACE):
    """Returns what the server says against objects, without creating them: errors and warnings."""
    documents = placed(documents, namespace) if namespace else documents
    options = ["--server-side", "--dry-run=server", "--validate=strict", "--filename=-"]
    made = plane.kubectl("apply", *options, given=as_text(documents))
    lines = (made.stdout + made.stderr).splitlines()
    found = [line for line in lines if not line.endswith(" (server dry run)")]
    assert bool(made.returncode) <= bool(found), made
    # Every object is mentioned, either way.
    assert len(lines) >= len(documents), lines
    return found


def install(plane, *arguments, given=None):
    """Lets Helm render the chart against the server, without an installation. Returns the finished process."""
    options = ["--namespace", NAMESPACE, "--dry-run=server", "--output=json", *arguments]
    return plane.helm("install", "assay", chart.CHART, *options, given=given)


def objects_of(installation):
    """Returns an installation's objects, with its hooks' objects."""
    release = json.loads(succeed(installation))
    parts = [release["manifest"], *(hook["manifest"] for hook in release.get("hooks", []))]
    return chart.read("\n---\n".join(parts))


@pytest.fixture(name="examine", scope="session")
def examination(plane, request):
    """Returns a function from a value set's name to its objects and what the server says against them.

    The commands of several sets run at the same time, because each waits for the server.
    """

    def examine(name):
        made = objects_of(install(plane, *(["--values", chart.SETS[name]] if name else [])))
        return made, complaints(plane, made)

    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count())) as pool:
        selected = [item.callspec.params["name"] for item in request.session.items if "examine" in item.fixturenames]
        futures = {name: pool.submit(examine, name) for name in selected}
        yield lambda name: futures[name].result()
        pool.shutdown(cancel_futures=True)


@every
def test_server_accepts_objects(examine, name):
    made, found = examine(name)
    assert not found, "\n".join(found)
    # Helm against a server renders what the other chart tests examine.
    assert sorted(map(identity, made)) == sorted(map(identity, chart.objects(name)))


def identity(document):
    return document["kind"], document["metadata"]["name"]


def first(kind, name="production"):
    return copy.deepcopy(next(document for document in chart.objects(name) if document["kind"] == kind))


def test_helm_reports_unknown_kind(plane):
    unknown = {"apiVersion": "example.org/v1", "kind": "Unknown", "metadata": {"name": "unknown"}}
    made = install(plane, "--values=-", given=json.dumps({"extraObjects": [unknown]}))
    assert made.returncode == 1 and 'no matches for kind "Unknown"' in made.stderr, made.stderr


def pod(**security):
    """Returns a pod that meets the standard if it is run as the chart's pods are."""
    spec = next(spec for _, spec in chart.pods([first("Pod", None)]))
    container = {"name": "main", "image": "example.org/image:1", **security}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {**spec, "containers": [container]}}


def test_plain_pod_is_refused(plane):
    standard = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert complaints(plane, [pod(securityContext=standard)]) == []
    found = complaints(plane, [pod()])
    assert len(found) == 1 and 'violates PodSecurity "restricted:latest"' in found[0], found


def test_warning_is_reported(plane):
    deployment = first("Deployment")
    del deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]
    found = complaints(plane, [deployment])
    assert len(found) == 1 and found[0].startswith("Warning: would violate PodSecurity"), found


def route_with_repeated_parent():
    """A rule in CEL: two references to one parent must name different sections."""
    route = first("HTTPRoute")
    route["spec"]["parentRefs"] *= 2
    return route, "sectionName must be unique when parentRefs includes 2 or more references to the same parent"


def route_with_wrong_method():
    route = first("GRPCRoute")
    route["spec"]["rules"][0]["matches"] = [{"method": {"type": "Exact"}}]
    return route, "One or both of 'service' or 'method' must be specified"


def scaler_without_triggers():
    scaler = first("ScaledObject")
    del scaler["spec"]["triggers"]
    return scaler, "spec.triggers: Required value"


def scaler_with_text_for_number():
    scaler = first("ScaledObject")
    scaler["spec"]["maxReplicaCount"] = "many"
    return scaler, ".spec.maxReplicaCount"


def service_with_unknown_field():
    service = first("Service")
    service["spec"]["typo"] = 1
    return service, ".spec.typo: field not declared in schema"


def monitor_with_unknown_field():
    monitor = first("PodMonitor", "monitoring")
    monitor["spec"]["podMetricsEndpoints"][0]["typo"] = 1
    return monitor, ".spec.podMetricsEndpoints[0].typo: field not declared in schema"


def rule_with_wrong_duration():
    rule = first("PrometheusRule")
    rule["spec"]["groups"][0]["interval"] = "often"
    return rule, "spec.groups[0].interval: Invalid value"


def deployment_of_other_pods():
    """No schema says that the selector must match the pod labels."""
    deployment = first("Deployment")
    deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "other"
    return deployment, "`selector` does not match template `labels`"


INVALID_OBJECTS = [
    route_with_repeated_parent,
    route_with_wrong_method,
    scaler_without_triggers,
    scaler_with_text_for_number,
    service_with_unknown_field,
    monitor_with_unknown_field,
    rule_with_wrong_duration,
    deployment_of_other_pods,
]


@pytest.fixture(name="found", scope="session")
def found_problems(plane):
    """Returns what the server says against all invalid objects."""
    documents = []
    for make in INVALID_OBJECTS:
        document = make()[0]
        document["metadata"]["name"] = make.__name__.replace("_", "-")
        documents.append(document)
    return complaints(plane, documents)


@pytest.mark.parametrize("make", INVALID_OBJECTS)
def test_invalid_object_is_reported(found, make):
    _, expected = make()
    assert any(make.__name__.replace("_", "-") in line and expected in line for line in found), "\n".join(found)


# A quota that counts processor limits, as shared clusters' administrators set it.
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "quota"},
    "spec": {"hard": {"limits.cpu": "16", "limits.memory": "32Gi", "requests.cpu": "8", "requests.memory": "16Gi", "pods": "30"}},
}
LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "limits"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
}
COMPONENTS = ["api", "checker", "deliverer", "engine", "migration", "receiptLog", "tests", "worker"]


def limited(cpu):
    """Returns values with a processor limit for every component."""
    return {component: {"resources": {"limits": {"cpu": cpu}}} for component in COMPONENTS}


@functools.cache
def with_limits(cpu=None):
    """Returns the objects in a chart with all components."""
    sets = [f"--values={chart.SETS[name]}" for name in ("checker", "deliverer", "receipt-log")]
    made = chart.template(*sets, values=limited(cpu) if cpu else {})
    assert made.returncode == 0, made.stderr
    return chart.read(made.stdout)


def created_pods(documents):
    """Returns the pods that controllers would create."""
    kind = {"apiVersion": "v1", "kind": "Pod"}
    return [{**kind, "metadata": {"name": f"pod-{number}"}, "spec": spec} for number, (_, spec) in enumerate(chart.pods(documents))]


def create_with_quota(plane, namespace, *others):
    """Creates a namespace with the quota and the chart pods' ServiceAccounts."""
    create_namespaces(plane, namespace)
    accounts = [document for document in with_limits() if document["kind"] == "ServiceAccount"]
    apply(plane, placed([QUOTA, *others, *accounts], namespace))
    client = plane.client()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/quota"
    # Until the controller has counted, the server refuses every pod.
    control_plane.wait_for(lambda: "hard" in client.call("GET", path)[1].get("status", {}), 60, "the quota is counted")


@pytest.fixture(name="quota", scope="session")
def namespace_with_quota(plane):
    create_with_quota(plane, "quota")
    return "quota"


def test_quota_refuses_pods_without_limit(plane, quota):
    """The server accepts these pods' controllers, so an installation waits until its timeout."""
    controllers = [document for document in with_limits() if document["kind"] in ("Deployment", "Job")]
    assert len(controllers) == 7
    found = complaints(plane, controllers + created_pods(with_limits()), quota)
    assert len(found) == len(COMPONENTS)
    for line in found:
        assert re.search(r'pods "pod-\d" is forbidden: failed quota: quota: must specify limits.cpu for: ', line), line


def test_quota_accepts_pods_with_limit(plane, quota):
    assert complaints(plane, created_pods(with_limits("1")), quota) == []


def test_quota_refuses_pods_beyond_it(plane, quota):
    found = complaints(plane, created_pods(with_limits("17")), quota)
    assert len(found) == len(COMPONENTS) and all("exceeded quota: quota, requested: limits.cpu=17" in line for line in found), found


def test_default_limit_satisfies_quota(plane):
    create_with_quota(plane, "limits", LIMITS)
    assert complaints(plane, created_pods(with_limits()), "limits") == []


class Upgrade:
    """The previous release's objects, which are created, and this one's, for every value set that both have."""

    def __init__(self, plane, folder):
        folder.mkdir()
        command = ["git", "archive", BASE, "helm", "tests/helm"]
        archive = subprocess.run(command, cwd=chart.ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        # A release has its own version, which must not be in an immutable field.
        file = folder / "helm/Chart.yaml"
        file.write_text(re.sub(r"^(version|appVersion): .*", r"\1: 0.0.1", file.read_text(), flags=re.M))
        self.plane = plane
        # The values as they were: an operator changes the version, not the values.
        files = {name: folder / path.relative_to(chart.ROOT) for name, path in chart.SETS.items()}
        self.sets = {None: None, **{name: path for name, path in files.items() if path.exists()}}
        with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count())) as pool:
            before = pool.map(functools.partial(self._render, folder / "helm"), self.sets)
            after = pool.map(functools.partial(self._render, chart.CHART), self.sets)
            self.before, self.after = sum(before, []), sum(after, [])
        kind = {"apiVersion": "v1", "kind": "Namespace"}
        namespaces = [{**kind, "metadata": {"name": self.namespace(name), "labels": RESTRICTED}} for name in self.sets]
        apply(plane, namespaces + self.before)

    @staticmethod
    def namespace(name):
        return f"upgrade-{name or 'default'}"

    def _render(self, folder, name):
        namespace = self.namespace(name)
        values = ["--values", self.sets[name]] if name else []
        made = self.plane.helm("template", "assay", folder, "--namespace", namespace, *values)
        return placed(lasting(chart.read(succeed(made))), namespace)


# Kinds without an immutable field. They are more than half the objects.
MUTABLE = {"NetworkPolicy", "PodDisruptionBudget", "ServiceAccount"}
HOOKS = {"helm.sh/hook", "argocd.argoproj.io/hook"}


def lasting(documents):
    """Returns the objects that an upgrade changes, and perhaps cannot: hooks' objects are deleted and created again."""
    for document in documents:
        if document["kind"] not in MUTABLE and not HOOKS & document["metadata"].get("annotations", {}).keys():
            yield document


@pytest.fixture(name="upgrade", scope="session")
def previous_release(plane):
    if not BASE:
        pytest.skip("there is no previous version of the chart")
    return Upgrade(plane, plane.folder / "base")


def test_upgrade_changes_no_immutable_field(plane, upgrade):
    assert len(upgrade.sets) >= 20
    found = complaints(plane, upgrade.after, None)
    assert not found, "\n".join(found)


def changed(upgrade, kind, name, change):
    """Returns an object from the default values with a change."""
    namespace = upgrade.namespace(None)
    document = copy.deepcopy(
        next(one for one in upgrade.after if identity(one) == (kind, name) and one["metadata"]["namespace"] == namespace)
    )
    change(document["spec"])
    return document


def test_change_of_immutable_field_is_reported(plane, upgrade):
    def rename(spec):
        for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
            labels["app.kubernetes.io/name"] = "renamed"

    changes = [
        changed(upgrade, "Deployment", "assay-api", rename),
        changed(upgrade, "PersistentVolumeClaim", "assay-artifacts", lambda spec: spec.update(accessModes=["ReadWriteOnce"])),
        changed(upgrade, "Service", "assay-engine", lambda spec: spec.update(clusterIP="10.92.0.77")),
    ]
    found = [line for line in complaints(plane, changes, None) if line.startswith("Error")]
    assert len(found) == 3, found
    assert 'Deployment.apps "assay-api" is invalid: spec.selector' in found[0] and "field is immutable" in found[0]
    assert 'PersistentVolumeClaim "assay-artifacts" is invalid: spec' in found[1] and "is immutable after creation" in found[1]
    assert 'Service "assay-engine" is invalid: spec.clusterIPs' in found[2] and "may not change once set" in found[2]
