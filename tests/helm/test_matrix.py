"""Checks that hold for the rendered chart with any values."""

import functools
import ipaddress
import json
import subprocess

import kubernetes_validate
import pytest
from kubernetes_validate import utils

import chart

# The validator would read its schema files for each object.
utils.schema_contents = functools.cache(utils.schema_contents)
utils.all_versions = functools.cache(utils.all_versions)

SETS = [None, *chart.SETS]
# Kinds that Kubernetes does not define, with the program that checks them.
FOREIGN = {
    "GRPCRoute": "strict", "HTTPRoute": "strict", "PodMonitor": "strict", "PrometheusRule": "strict", "ServiceMonitor": "strict",
    "ScaledObject": "keda", "TriggerAuthentication": "keda",
}
RECOMMENDED = ["name", "instance", "version", "component", "part-of", "managed-by"]
every = pytest.mark.parametrize("name", SETS, ids=lambda name: name or "default")


def test_sets_cover_all_kinds():
    assert len(SETS) >= 21
    made = {document["kind"] for name in SETS for document in chart.objects(name)}
    assert made >= {
        "ConfigMap", "Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "Job", "NetworkPolicy",
        "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ScaledObject", "Service",
        "ServiceAccount", "ServiceMonitor", "TriggerAuthentication",
    }  # fmt: skip


@every
@pytest.mark.parametrize("version", [chart.OLDEST, chart.NEWEST])
def test_objects_match_kubernetes_schemas(name, version):
    checked = 0
    for document in chart.objects(name):
        if document["kind"] not in FOREIGN:
            assert kubernetes_validate.validate(document, version, strict=True) == version
            checked += 1
    assert checked > 5


def test_validator_rejects_unknown_field():
    service = next(document for document in chart.objects() if document["kind"] == "Service")
    wrong = {**service, "spec": {**service["spec"], "typo": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, chart.OLDEST, strict=True)


def strict(text):
    return subprocess.run([chart.TOOLS / "bin/strict"], input=text, capture_output=True, text=True, check=False)


@every
def test_custom_resources_match_their_types(name):
    wanted = sum(FOREIGN.get(document["kind"]) == "strict" for document in chart.objects(name))
    decoded = strict(chart.text(name))
    assert (decoded.returncode, decoded.stdout.strip(), decoded.stderr) == (0, str(wanted), "")


def test_strict_reader_rejects_unknown_field():
    refused = strict(chart.text("production").replace("parentRefs:", "parents:"))
    assert refused.returncode == 1 and refused.stderr.count("unknown field \"parents\"") == 2, refused.stderr


def test_keda_objects_match_their_schemas():
    all_of_them = [d for name in SETS for d in chart.objects(name) if FOREIGN.get(d["kind"]) == "keda"]
    assert len(all_of_them) >= 4
    wrong = {**all_of_them[0], "spec": {**all_of_them[0]["spec"], "maxReplicaCount": "many"}}
    command = ["node", chart.ROOT / "tests/helm/keda.mjs"]
    for given, expected in [(all_of_them, 0), ([wrong], 1)]:
        done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
        assert done.returncode == expected, done.stderr


@every
def test_rendering_is_deterministic(name):
    given = ["--values", str(chart.SETS[name])] if name else []
    assert chart.template(*given).stdout == chart.text(name)


@every
def test_objects_are_labelled_and_unique(name):
    seen = set()
    for document in chart.objects(name):
        metadata = document["metadata"]
        labels = metadata["labels"]
        for label in RECOMMENDED:
            assert labels[f"app.kubernetes.io/{label}"], document
        assert labels["helm.sh/chart"] and len(metadata["name"]) <= 63
        key = (document["kind"], metadata["name"])
        assert key not in seen
        seen.add(key)
        if document["kind"] != "ConfigMap" or "more" not in labels["app.kubernetes.io/component"]:
            assert metadata["namespace"] == "assay"


@every
def test_selectors_match_one_component(name):
    documents = chart.objects(name)
    templates = [d["spec"]["template"]["metadata"]["labels"] for d in documents if "template" in d.get("spec", {})]
    templates += [d["metadata"]["labels"] for d in documents if d["kind"] == "Pod"]
    for document in documents:
        selector = document.get("spec", {}).get("selector") if document["kind"] in ("Service", "Deployment", "PodDisruptionBudget") else None
        selector = document["spec"]["podSelector"] if document["kind"] == "NetworkPolicy" else selector
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector).items()
        found = [labels for labels in templates if wanted <= labels.items()]
        assert len(found) == 1, (document["kind"], document["metadata"]["name"])
        assert document["metadata"]["labels"]["app.kubernetes.io/component"] == found[0]["app.kubernetes.io/component"]


@every
def test_variables_are_known_and_unique(name):
    names, secrets = chart.settings()
    for pod, spec in chart.ours(chart.objects(name)):
        variables = [variable["name"] for variable in spec["containers"][0]["env"]]
        assert len(variables) == len(set(variables)), pod
        for variable in variables:
            if variable.startswith("ASSAY_"):
                plain = variable.removesuffix("_FILE") if variable.removesuffix("_FILE") in secrets else variable
                assert plain in names, variable
                # A secret is given as a mounted file.
                assert (plain in secrets) == variable.endswith("_FILE"), variable
        for variable in spec["containers"][0]["env"]:
            assert isinstance(variable.get("value", ""), str)


@every
def test_files_of_variables_are_mounted(name):
    for pod, spec in chart.ours(chart.objects(name)):
        container = spec["containers"][0]
        # The engine has no volumes if the artifact store is a bucket.
        mounted, named = container.get("volumeMounts", []), spec.get("volumes", [])
        volumes = {volume["name"]: volume for volume in named}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in mounted}
        assert len(mounts) == len(mounted) and len(volumes) == len(named)
        for variable in container["env"]:
            value = variable.get("value", "")
            if value.startswith("/etc/assay/secrets/"):
                paths = [s["secret"]["items"][0]["path"] for s in mounts["/etc/assay/secrets"]["projected"]["sources"]]
                assert value.rsplit("/", 1)[1] in paths, (pod, value)
            elif value.startswith("/etc/assay/ca"):
                assert "/etc/assay/ca" in mounts, (pod, value)
            elif value.startswith("/var/lib/assay"):
                assert value in mounts, (pod, value)


@every
def test_pods_meet_restricted_standard(name):
    for pod, spec in chart.pods(chart.objects(name)):
        assert spec["enableServiceLinks"] is False, pod
        assert "automountServiceAccountToken" in spec
        around = spec["securityContext"]
        assert around["runAsNonRoot"] is True and around["runAsUser"] == 65532
        assert around["seccompProfile"] == {"type": "RuntimeDefault"}
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert key not in spec
        for container in spec["containers"]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False and rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]} and rights["privileged"] is False
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
            assert "cpu" not in container["resources"]["limits"]


@every
def test_pods_mount_only_own_database_secret(name):
    """The API never gets the worker's or the owner's address, and vice versa."""
    seen = {}
    for pod, spec in chart.ours(chart.objects(name)):
        if pod.endswith("-engine"):
            continue
        sources = next(v for v in spec["volumes"] if v["name"] == "secrets")["projected"]["sources"]
        for source in sources:
            item = source["secret"]["items"][0]
            if item["path"] == "database-url":
                seen[pod] = (source["secret"]["name"], item["key"])
        assert len(sources) == len({s["secret"]["items"][0]["path"] for s in sources})
    assert len(set(seen.values())) == len(seen) >= 2


@every
def test_engine_has_no_credential_but_that_of_the_bucket(name):
    """The process refuses to start with a password for PostgreSQL, Redis or the mail server."""
    documents = chart.objects(name)
    engines = [spec for pod, spec in chart.ours(documents) if pod.endswith("-engine")]
    named = [variable["value"] for _, spec in chart.ours(documents) for variable in spec["containers"][0]["env"] if variable["name"] == "ASSAY_ENGINES"]
    assert len(engines) == any("default=http://" in value and "-engine." in value for value in named)
    _, secrets = chart.settings()
    for spec in engines:
        container = spec["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        assert not names & (secrets | {f"{secret}_FILE" for secret in secrets})
        assert not [name for name in names if name.startswith("PG") or "REDIS" in name or "DATABASE" in name]
        secret = {variable["name"] for variable in container["env"] if "secretKeyRef" in variable.get("valueFrom", {})}
        assert secret <= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        assert "secrets" not in {volume["name"] for volume in spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            assert mount["readOnly"] is True, mount
        assert spec["automountServiceAccountToken"] is False


@every
def test_engine_connects_only_to_the_artifact_store(name):
    documents = chart.objects(name)
    policies = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in documents if d["kind"] == "NetworkPolicy"}
    if "engine" not in policies:
        return
    egress = policies["engine"]["egress"]
    folders = [volume for pod, spec in chart.ours(documents) if pod.endswith("-engine") for volume in spec.get("volumes", []) if volume["name"] == "artifacts"]
    # The name server and the bucket, where the API finds them; with a folder nothing.
    assert len(egress) == (0 if folders else 2)
    assert all(rule in policies["api"]["egress"] for rule in egress)
    assert not {port["port"] for rule in egress for port in rule["ports"]} & {5432, 6379, 6380}
    peers = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in policies["engine"]["ingress"][0]["from"]]
    assert peers == ["api", "worker", "operate"]
    for client in ("api", "worker"):
        to = [rule["to"] for rule in policies[client]["egress"] if rule["ports"] == [{"port": 9500, "protocol": "TCP"}]]
        assert [[peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers] for peers in to] == [["engine"]]
    for other in policies.keys() - {"api", "worker", "engine"}:
        assert not [rule for rule in policies[other]["egress"] if {"port": 9500, "protocol": "TCP"} in rule["ports"]]


network = functools.cache(ipaddress.ip_network)


def reaches(policy, address):
    """Returns whether a policy rule for all TCP ports allows the address."""
    blocks = [peer["ipBlock"] for rule in policy["egress"] if rule["ports"] == [{"protocol": "TCP"}] for peer in rule["to"]]
    found = ipaddress.ip_address(address)
    return any(found in network(block["cidr"]) and not any(found in network(part) for part in block.get("except", [])) for block in blocks)


@every
def test_deliverer_has_only_its_own_credentials(name):
    """The process refuses to start with a password for Redis or the mail server, or with a role that can read more."""
    documents = chart.objects(name)
    _, secrets = chart.settings()
    for pod, spec in chart.ours(documents):
        if not pod.endswith("-deliverer"):
            continue
        container = spec["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        assert names & {f"{secret}_FILE" for secret in secrets} == {"ASSAY_DATABASE_URL_FILE", "ASSAY_WEBHOOK_KEY_FILE"}
        assert not [name for name in names if "REDIS" in name or "SMTP" in name or name == "ASSAY_ARTIFACTS"]
        assert not [v for v in container["env"] if "secretKeyRef" in v.get("valueFrom", {})]
        sources = next(v for v in spec["volumes"] if v["name"] == "secrets")["projected"]["sources"]
        assert [source["secret"]["items"][0]["path"] for source in sources] == ["database-url", "webhook-key"]
        assert not [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
        assert [port["name"] for port in container["ports"]] == ["admin"]
        assert spec["automountServiceAccountToken"] is False


@every
def test_one_component_delivers_webhooks(name):
    """The API delivers exactly if there is a key and no deliverer."""
    pods = {pod.rsplit("-", 1)[1]: spec["containers"][0] for pod, spec in chart.ours(chart.objects(name))}
    api = {variable["name"]: variable.get("value") for variable in pods["api"]["env"]}
    with_key = "ASSAY_WEBHOOK_KEY_FILE" in api
    assert api.get("ASSAY_WEBHOOK_DELIVERY") == (str("deliverer" not in pods).lower() if with_key else None)
    assert with_key or "deliverer" not in pods


@every
def test_only_the_receipt_log_has_the_keys(name):
    """Nobody who breaks into a pod with a public port can sign a receipt."""
    documents = chart.objects(name)
    _, secrets = chart.settings()
    pods = {pod: spec for pod, spec in chart.ours(documents) if not pod.endswith("-engine")}
    signing = [pod for pod in pods if pod.endswith("-receipt-log")]
    paths = {}
    for pod, spec in pods.items():
        names = {variable["name"] for variable in spec["containers"][0]["env"]}
        assert bool(names & {"ASSAY_RECEIPT_KEYS_FILE", "ASSAY_LOG_KEY_FILE", "ASSAY_LOG_ORIGIN"}) == (pod in signing), pod
        sources = next(v for v in spec["volumes"] if v["name"] == "secrets")["projected"]["sources"]
        paths[pod] = [source["secret"]["items"][0]["path"] for source in sources]
        assert bool({"receipt-keys", "log-key"} & set(paths[pod])) == (pod in signing), pod
        own = [v["value"] for v in spec["containers"][0]["env"] if v["name"] == "ASSAY_RECEIPT_LOG"]
        assert own == (["false"] if pod.endswith("-api") and signing else []), pod
    for pod in signing:
        container = pods[pod]["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        own = {"ASSAY_DATABASE_URL_FILE", "ASSAY_RECEIPT_KEYS_FILE", "ASSAY_LOG_KEY_FILE"}
        assert names & {f"{secret}_FILE" for secret in secrets} == own and paths[pod] == ["database-url", "receipt-keys", "log-key"]
        assert [port["name"] for port in container["ports"]] == ["admin"]
        assert pods[pod]["automountServiceAccountToken"] is False


@every
def test_receipt_log_connects_only_to_database_and_artifact_store(name):
    documents = chart.objects(name)
    policies = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in documents if d["kind"] == "NetworkPolicy"}
    if "receipt-log" not in policies:
        return
    spec = next(spec for pod, spec in chart.ours(documents) if pod.endswith("-receipt-log"))
    folders = [volume for volume in spec["volumes"] if volume["name"] == "artifacts"]
    assert [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "artifacts" and "readOnly" not in mount] == [
        {"name": "artifacts", "mountPath": "/var/lib/assay/artifacts"} for _ in folders
    ]
    # The name server, PostgreSQL and the bucket, where the API finds them, and the additional rules.
    egress = policies["receipt-log"]["egress"]
    own = 2 if folders else 3
    assert all(rule in policies["api"]["egress"] for rule in egress[:own])
    assert len(egress) == own + (name == "receipt-log")
    assert not {port["port"] for rule in egress for port in rule["ports"]} & {6379, 6380, 465, 4317, 9500}
    assert [rule["ports"] for rule in policies["receipt-log"]["ingress"]] in ([], [[{"port": "admin", "protocol": "TCP"}]])


@every
def test_checker_has_only_its_own_role_and_connects_only_to_database(name):
    """The process refuses to start with another secret. Nobody who breaks its parsers finds a way out."""
    documents = chart.objects(name)
    _, secrets = chart.settings()
    policies = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in documents if d["kind"] == "NetworkPolicy"}
    for pod, spec in chart.ours(documents):
        container = spec["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        assert ("ASSAY_CHECKER_DATABASE_URL_FILE" in names) == pod.endswith("-checker"), pod
        if not pod.endswith("-checker"):
            continue
        assert names & {f"{secret}_FILE" for secret in secrets} == {"ASSAY_CHECKER_DATABASE_URL_FILE"}
        assert "ASSAY_ARTIFACTS" not in names and not [v for v in container["env"] if "secretKeyRef" in v.get("valueFrom", {})]
        sources = next(v for v in spec["volumes"] if v["name"] == "secrets")["projected"]["sources"]
        assert [source["secret"]["items"][0]["path"] for source in sources] == ["database-url"]
        assert not [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
        assert [port["name"] for port in container["ports"]] == ["admin"]
        assert spec["automountServiceAccountToken"] is False
    if "checker" in policies:
        # The name server and PostgreSQL, where the API finds them.
        egress = policies["checker"]["egress"]
        assert len(egress) == 2 and all(rule in policies["api"]["egress"] for rule in egress)
        assert [rule["ports"] for rule in policies["checker"]["ingress"]] in ([], [[{"port": "admin", "protocol": "TCP"}]])


@every
def test_only_the_deliverer_reaches_receivers(name):
    documents = chart.objects(name)
    policies = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in documents if d["kind"] == "NetworkPolicy"}
    delivers = {
        pod.rsplit("-", 1)[1] for pod, spec in chart.ours(documents)
        if spec["containers"][0]["args"] == ["deliver"]
        or {"name": "ASSAY_WEBHOOK_DELIVERY", "value": "true"} in spec["containers"][0]["env"]
    }  # fmt: skip
    for component, policy in policies.items():
        # No rule without peers allows all ports.
        assert all(rule.get("to") or all("port" in port for port in rule["ports"]) for rule in policy["egress"])
        assert not reaches(policy, "1.1.1.1") or component in delivers
        for private in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.0.1", "100.100.100.200", "224.0.0.1",
                        "0.0.0.0", "255.255.255.255", "::1", "fe80::1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::a00:1"):  # fmt: skip
            assert not reaches(policy, private), (component, private)
    if "deliverer" in policies:
        ports = [port.get("port") for rule in policies["deliverer"]["egress"] for port in rule["ports"]]
        assert not {6379, 6380, 443, 9000, 9500} & set(ports)
        assert [rule["ports"] for rule in policies["deliverer"]["ingress"]] in ([], [[{"port": "admin", "protocol": "TCP"}]])


def test_default_receivers_are_the_public_internet():
    delivering = [name for name in SETS if any(pod.endswith("-deliverer") for pod, _ in chart.ours(chart.objects(name)))]
    assert "production" in delivering and len(delivering) >= 6
    policy = next(d["spec"] for d in chart.objects("production") if (d["kind"], d["metadata"]["name"]) == ("NetworkPolicy", "assay-deliverer"))
    # A sample from all networks, with all first octets that contain both private and public ones.
    for first in range(256):
        for second in range(256) if first in (100, 168, 169, 172, 192, 198, 203) else (0, 63, 255):
            for third in (0, 2, 88, 99, 100, 113, 129):
                address = ipaddress.ip_address(f"{first}.{second}.{third}.16")
                # Python counts 6to4 relays as global, older versions also 192.0.0.0/24. One cloud's metadata server has a
                # public address.
                special = ("192.0.0.16", "192.88.99.16", "168.63.129.16")
                public = address.is_global and not address.is_multicast and str(address) not in special
                assert reaches(policy, address) == public, address
    for address in ("2606:4700::1111", "2a00::1", "2400::1"):
        assert reaches(policy, address), address
    for address in ("::", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::1", "3fff::1", "5f00::1", "fc00::1", "fdff::1", "febf::1", "ff02::1"):
        assert not reaches(policy, address), address


@every
def test_rendering_is_equal_for_newer_kubernetes(name):
    assert chart.text(name, chart.NEWEST) == chart.text(name)
