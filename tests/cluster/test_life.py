"""The life of an installation on two nodes, in these tests' order: installation by the operator's guide, first organization,
upgrade, rollback and drain under load, and removal. inside.py runs it."""

import os
import re
import secrets
import time
import urllib.request

import pytest

import guide
import images
import inside
from control_plane import wait_for
from load import Load
from stores import DATABASE, REDIS

if inside.FOLDER not in os.environ:
    pytest.skip("runs in namespaces of its own, by inside.py", allow_module_level=True)

import cluster as parts  # noqa: E402

SUITE = "suite:parity"
ITEMS = 40


@pytest.fixture(name="cluster", scope="session")
def running_cluster():
    running = parts.Cluster()
    yield running
    running.keep_logs()


@pytest.fixture(autouse=True)
def everything_runs(cluster):
    yield
    cluster.processes.check()


def test_operator_creates_database_and_secrets(cluster):
    passwords = [secrets.token_hex(12) for _ in range(6)]
    # Managed databases give their customers no superuser.
    cluster.stores.psql("create role installer login createrole createdb")
    cluster.stores.psql(guide.fill(guide.block("Install", "sql"), *passwords), user="installer")
    roles = ["assay_owner", "assay_api_1", "assay_worker_1", "assay_checker_1", "assay_delivery_1", "assay_log_1"]
    owner, api, worker, checker, deliverer, receipt_log = [
        f"postgres://{role}:{password}@{DATABASE}/assay" for role, password in zip(roles, passwords)
    ]
    files = {
        "database-owner.url": owner,
        "database-api.url": api,
        "database-worker.url": worker,
        "database-checker.url": checker,
        "database-deliverer.url": deliverer,
        "database-receipt-log.url": receipt_log,
        "redis.url": f"redis://:{cluster.redis_password}@{REDIS}",
        "smtp.url": "smtp://mail.test",
        "id": "id",
        "secret": "secret",
    }
    for name, content in files.items():
        (cluster.desk / name).write_text(content)
    cluster.shell(guide.block("Install", "sh", "create namespace"))
    for contained in ["secret generic assay-webhooks", "secret generic assay-database-deliverer"]:
        cluster.shell(guide.block("Deliver webhooks", "sh", contained))
    for contained in ["receipt-key generate", "secret generic assay-database-receipt-log"]:
        cluster.shell(guide.block("The receipt log", "sh", contained))
    cluster.shell(guide.block("Suites of organizations", "sh", "secret generic assay-database-checker"))
    cluster.shell("kubectl --namespace assay create configmap assay-ca --from-file ca.crt")
    # The guide says that the pods meet this standard.
    cluster.shell(
        "kubectl label namespace assay pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted"
    )
    cluster.plane.wait_for_service_account("assay")


def expect_spread(cluster):
    """Both nodes have a ready pod for each component."""
    for component in parts.COMPONENTS:
        pods = cluster.pods(component)
        assert len(pods) == 2 and all(map(parts.is_ready, pods)), pods
        assert {pod["spec"]["nodeName"] for pod in pods} == set(inside.NODES), f"both pods of {component} are on one node"


def test_install_by_guide_is_ready(cluster):
    cluster.write_values()
    said = cluster.install()
    assert "STATUS: deployed" in said
    assert "Warning" not in said
    expect_spread(cluster)


RESTRICTED = {
    "Uid": "\t".join([str(images.USER)] * 4),
    "CapEff": "0" * 16,
    "NoNewPrivs": "1",
    # A system call filter.
    "Seccomp": "2",
    "root": "ro",
}


def lacking(found):
    """Returns the restrictions that these containers lack."""
    return {name for restrictions in found.values() for name in RESTRICTED if restrictions[name] != RESTRICTED[name]}


def unrestricted(cluster):
    """Returns the restrictions that a platform container lacks."""
    found = cluster.restrictions([pod for component in parts.COMPONENTS for pod in cluster.pods(component)])
    assert len(found) == 2 * len(parts.COMPONENTS), found
    return lacking(found)


def test_kernel_restricts_every_container(cluster):
    assert unrestricted(cluster) == set()


def test_first_organization_by_guide(cluster):
    code = guide.block("Create the first organization", "sh")
    functions, first, rest = re.fullmatch(r"(.*\n)(operate org create[^\n]*\n)(.*)", code, re.S).groups()
    organization = parts.objects(cluster.shell(functions + first))[-1]
    said = cluster.shell(functions + guide.fill(rest, organization["org_id"].removeprefix("org_")))
    cluster.key = next(one["key"] for one in parts.objects(said) if "key" in one)


def test_eval_through_service_succeeds(cluster):
    cluster.publish_suite(SUITE, ITEMS)
    cluster.operate("plan", "set", "team", "--requests-per-minute", "100000", "--eval-items-per-month", "100000000")
    job = cluster.evaluate(SUITE, ITEMS)
    assert (job["attempts"], job["result"]["value"]) == (1, 1.0), job


def test_upload_through_service_succeeds(cluster):
    # The parts arrive at both API pods, and a worker on either node reads them.
    job = cluster.evaluate_upload(SUITE, ITEMS, parts=8)
    assert (job["attempts"], job["result"]["value"]) == (1, 1.0), job


def test_dashboard_through_service_shows_sign_in(cluster):
    with urllib.request.urlopen(f"http://{cluster.address()}/", timeout=60) as response:
        assert response.url.endswith("/sign-in") and "text/html" in response.headers["Content-Type"], response.url


def test_helm_test_by_guide_succeeds(cluster):
    said = cluster.shell(guide.line("Install", "sh", "test assay") + " --logs")
    assert "Succeeded" in said and "grpc-status: 0" in said, said


def test_upgrade_by_guide_fails_no_request(cluster):
    cluster.load = Load(cluster.address(), 80, cluster.key, SUITE, parts.predictions(ITEMS))
    digest = cluster.digests[images.TAGS[1]]
    command = guide.fill(guide.line("Upgrade", "sh", "helm upgrade assay"), images.TAGS[1], digest.removeprefix("sha256:"))
    with cluster.under_load():
        cluster.shell(command)
    cluster.expect_image(f"@{digest}")
    expect_spread(cluster)


def test_rollback_fails_no_request(cluster):
    with cluster.under_load():
        cluster.shell("helm --namespace assay rollback assay --wait --timeout 20m")
    cluster.expect_image(f":{images.TAGS[0]}")
    expect_spread(cluster)


def test_drain_of_node_fails_no_request(cluster):
    with cluster.under_load():
        cluster.shell("kubectl drain node-b --ignore-daemonsets --delete-emptydir-data --timeout=5m")
        nodes = {pod["spec"]["nodeName"] for component in parts.COMPONENTS for pod in cluster.pods(component)}
        assert nodes == {"node-a"}, nodes
    cluster.shell("kubectl uncordon node-b")


def test_second_eviction_at_once_is_refused(cluster):
    def evict(pod):
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "assay"}}
        return cluster.client.call("POST", f"/api/v1/namespaces/assay/pods/{name}/eviction", eviction)

    with cluster.under_load():
        for component in parts.COMPONENTS:
            first, second = [evict(pod) for pod in cluster.pods(component)]
            assert first[0] == 201, (component, first)
            assert second[0] == 429 and "disruption budget" in second[1]["message"], (component, second)


def test_autoscaler_turned_on_fails_no_request(cluster):
    """The guide says that the pod count falls to 1 until the autoscaler acts."""
    cluster.write_values(api={"autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 3}})
    with cluster.under_load():
        cluster.install()
    cluster.write_values()
    with cluster.under_load():
        cluster.install()


def test_callers_start(cluster):
    for namespace, labels in CALLERS.items():
        cluster.start_caller(namespace, labels, user=0 if namespace == "strangers" else images.USER)
    # The control: these containers request no restrictions.
    for namespace in CALLERS:
        pods = cluster.client.items(f"/api/v1/namespaces/{namespace}/pods")
        of_user = {"Uid", "CapEff"} if namespace == "strangers" else set()
        assert lacking(cluster.restrictions(pods)) == {"NoNewPrivs", "Seccomp", "root"} | of_user, namespace


CALLERS = {"gateways": {}, "monitoring": {"app": "prometheus"}, "strangers": {}}
EVERYBODY = set(CALLERS)
NAME = "kubernetes.io/metadata.name"
POLICY = {
    "httpFrom": [{"namespaceSelector": {"matchLabels": {NAME: "gateways"}}}],
    "metricsFrom": [
        {"namespaceSelector": {"matchLabels": {NAME: "monitoring"}}, "podSelector": {"matchLabels": {"app": "prometheus"}}}
    ],
}
PORTS = [("api", 8080), ("engine", 9500), *((component, 9090) for component in parts.COMPONENTS)]
ALLOWED = {port: {"monitoring"} if port[1] == 9090 else set() for port in PORTS} | {("api", 8080): {"gateways"}}


def reached(cluster):
    """Returns the callers that reach each component port."""
    targets = {f"{cluster.pods(component)[0]['status']['podIP']}:{port}": (component, port) for component, port in PORTS}
    found = {port: set() for port in PORTS}
    for caller in CALLERS:
        for target in cluster.connects(caller, targets):
            found[targets[target]].add(caller)
    return found


def test_policies_refuse_strangers(cluster):
    # The control: policies that nobody enforces refuse nobody.
    assert reached(cluster) == {port: EVERYBODY for port in PORTS}
    with cluster.policies_enforced():
        # Without `httpFrom`, everybody may call the API. Nobody may read the metrics.
        assert reached(cluster) == {port: set() for port in PORTS} | {("api", 8080): EVERYBODY}
        cluster.write_values(networkPolicy=POLICY)
        cluster.install()
        cluster.enforcer.settle()
        assert reached(cluster) == ALLOWED
        assert cluster.status("gateways", f"http://{cluster.address()}/health") == "200"
        assert cluster.status("monitoring", f"http://{cluster.pods('worker')[0]['status']['podIP']}:9090/metrics") == "200"


def test_platform_works_under_policies(cluster):
    with cluster.policies_enforced():
        # New pods must reach the databases, and each other.
        cluster.shell("kubectl --namespace assay rollout restart deployment")
        cluster.wait_until_ready()
        assert cluster.evaluate(SUITE, ITEMS)["attempts"] == 1
        cluster.shell(guide.line("Install", "sh", "test assay"))
        expect_webhook(cluster)
        expect_receipt(cluster)
    cluster.load.check()


def expect_webhook(cluster):
    """A receiver outside the cluster, with a private authority's certificate, gets a job's event."""
    session = cluster.operate("session", "create", "--email", "owner@example.org")["token"]
    webhook = {"url": f"https://{parts.RECEIVER}/", "events": ["job.succeeded"]}
    created = cluster.request("POST", "/v1/webhooks", webhook, session)
    job = cluster.evaluate(SUITE, ITEMS)["id"]
    wait_for(lambda: any(event["data"]["id"] == job for event in cluster.receiver.events), 60, cluster.state)
    cluster.send("DELETE", f"/v1/webhooks/{created['id']}", token=session)


def expect_receipt(cluster):
    """The receipt log signs a job's receipt, and publishes its entry."""
    job = cluster.evaluate(SUITE, ITEMS)["id"]
    wait_for(lambda: cluster.request("GET", f"/v1/jobs/{job}/receipt")["log"], 60, cluster.state)
    with urllib.request.urlopen(f"http://{cluster.address()}/log/checkpoint", timeout=60) as response:
        assert response.read().decode().splitlines()[0] == parts.ORIGIN


def test_every_job_under_load_had_one_attempt(cluster):
    jobs = cluster.load.stop()
    cluster.load.check()
    unexpected = [job for job in jobs if (job["status"], job["attempts"]) != ("succeeded", 1)]
    assert not unexpected, unexpected
    seconds = time.monotonic() - cluster.load.began
    print(f"{cluster.load.requests} requests and {len(jobs)} jobs in {seconds:.0f} s, the slowest in {cluster.load.slowest:.2f} s")
    # A load that hardly ran would prove nothing.
    assert cluster.load.requests >= 5000
    assert len(jobs) >= 100, len(jobs)


ROLES = ["owner", "api", "worker", "checker", "deliverer", "receipt-log"]
SECRETS = [*(f"database-{role}" for role in ROLES), "redis", "smtp", "s3", "webhooks", "receipt-keys", "log-key"]


def test_uninstall_leaves_what_guide_says(cluster):
    cluster.shell(guide.inline("Upgrade", "uninstall assay"))
    # The command has waited for the pods.
    running = [
        pod["metadata"]["name"]
        for pod in cluster.client.items("/api/v1/namespaces/assay/pods")
        if pod["status"]["phase"] == "Running"
    ]
    assert not running, running
    kinds = "deployments,pods,jobs,services,serviceaccounts,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers"
    kinds += ",persistentvolumeclaims,configmaps,secrets"
    left = set(cluster.shell(f"kubectl --namespace assay get {kinds} --output name").split())
    assert left == {
        "serviceaccount/default",
        "configmap/kube-root-ca.crt",
        "configmap/assay-ca",
        *(f"secret/assay-{name}" for name in SECRETS),
        "persistentvolumeclaim/assay-artifacts",
        "pod/assay-test-health",
        "serviceaccount/assay-migration",
        "networkpolicy.networking.k8s.io/assay-migration",
    }
    cluster.shell(guide.line("Upgrade", "sh", "delete job,pod,serviceaccount,networkpolicy"))
    left = set(cluster.shell(f"kubectl --namespace assay get {kinds} --output name").split())
    assert not [name for name in left if "migrat" in name or "test" in name], left


def test_no_unexpected_warning(cluster):
    found = sorted(parts.unexpected_warnings(cluster.client.items("/api/v1/events")))
    assert not found, "\n".join(found)


def test_second_installation_finds_data_of_first(cluster):
    cluster.write_values(networkPolicy=POLICY)
    assert "STATUS: deployed" in cluster.install()
    assert cluster.request("GET", f"/v1/jobs/{cluster.load.jobs[0]['id']}")["status"] == "succeeded"
    assert cluster.evaluate(SUITE, ITEMS)["attempts"] == 1


def test_migration_as_ordinary_job_by_guide(cluster):
    cluster.shell(guide.line("Upgrade", "sh", "delete job,pod,serviceaccount,networkpolicy"))
    cluster.write_values(networkPolicy=POLICY, migration={"mode": "job"})
    cluster.install()
    assert cluster.evaluate(SUITE, ITEMS)["attempts"] == 1
    of_migration = "--selector app.kubernetes.io/component=migration"
    cluster.shell(f"kubectl --namespace assay wait job {of_migration} --for condition=Complete --timeout 60s")


# Each error in the chart below must fail an assertion above.


def test_missing_rule_is_noticed(cluster):
    with cluster.broken_chart("networkpolicy.yaml", "{{- with $policy.metricsFrom }}", "{{- with false }}"):
        cluster.install()
        with cluster.policies_enforced():
            assert {port for port, callers in reached(cluster).items() if callers != ALLOWED[port]} == {
                ("api", 9090),
                ("worker", 9090),
            }


def test_wrong_label_is_noticed(cluster):
    cluster.write_values()
    with cluster.broken_chart(
        "service.yaml", '{{- include "assay.selectorLabels" $id | nindent 4 }}', "app.kubernetes.io/component: apis"
    ):
        cluster.install()
        load = Load(cluster.address(), 80, cluster.key, SUITE, parts.predictions(ITEMS))
        assert load.fails_within(30)
        load.stop()


def test_probe_of_wrong_port_is_noticed(cluster):
    ready = "path: /readyz\n    port: "
    with (
        cluster.broken_chart("_helpers.tpl", f"{ready}admin", f"{ready}9191"),
        pytest.raises(AssertionError, match="timed out|deadline"),
    ):
        cluster.shell("helm upgrade assay ./helm --namespace assay --values my.yaml --wait --timeout 20s")


def test_short_pre_stop_and_writable_root_are_noticed(cluster):
    cluster.write_values(securityContext={"readOnlyRootFilesystem": False})
    with cluster.broken_chart("deployment-api.yaml", "seconds: {{ .Values.api.preStopSleepSeconds }}", "seconds: 0"):
        cluster.install()
        assert unrestricted(cluster) == {"root"}
        load = Load(cluster.address(), 80, cluster.key, SUITE, parts.predictions(ITEMS))
        for _ in range(3):
            # Late, as in a large cluster, but within the right chart's sleep.
            with cluster.nodes.proxy_paused():
                cluster.shell("kubectl --namespace assay rollout restart deployment/assay-api")
                wait_for(lambda: any(map(parts.is_ending, cluster.pods("api"))), 120, "a pod ends")
                load.fails_within(8)
            if load.failures:
                break
            cluster.shell("kubectl --namespace assay rollout status deployment/assay-api --timeout 120s")
        load.stop()
        assert load.failures
