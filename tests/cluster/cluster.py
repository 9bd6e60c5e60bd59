"""A two-node cluster with databases beside it, and the desk of its operator."""

import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import threading
import urllib.error
import urllib.request

import guide
import images
import inside
import netpol
import node
from control_plane import HELM, ROOT, TOOLS, ControlPlane, program, wait_for
from node import FOLDER, is_ending, is_ready
from receiver import Receiver
from stores import DATABASE, REDIS, Stores

# Where the last run's logs are.
LOGS = TOOLS / "logs"
BINARIES = pathlib.Path(os.environ.get("CLUSTER_BINARIES", ROOT / "target/debug"))
# The archive with the platform's image that .ci/image has built, instead of an image with these binaries.
IMAGE = os.environ.get("CLUSTER_IMAGE")
COMPONENTS = ["api", "worker", "engine", "deliverer", "receipt-log", "checker"]
RECEIVER = "receiver.test"
# The transparency log's name in the operator's guide.
ORIGIN = "assay.example.org/log"
# Events that say nothing about the chart.
KNOWN_WARNINGS = [
    "^CgroupV1: ",
    # A kubelet looks for a Secret as soon as it hears of a pod, and tries again.
    "^FailedMount: .*failed to sync (secret|configmap) cache",
    # The API server learns a little later than the kubelet which pods a node has, and refuses their Secrets until then.
    "^FailedMount: .*no relationship found between node 'node-[ab]' and this object",
    # Here, no server has pod metrics. The autoscaler says so if it is on when its next round comes.
    "^FailedGetResourceMetric: .*get pods.metrics.k8s.io",
    "^FailedComputeMetricsReplicas: .*get pods.metrics.k8s.io",
]


class Cluster:
    def __init__(self):
        flags = {"kube-apiserver": ["--kubelet-preferred-address-types=InternalIP"]}
        self.plane = ControlPlane(FOLDER / "plane", node.OUTSIDE, 6443, node.SERVICES, scheduler=True, flags=flags)
        self.processes = self.plane.processes
        self.nodes = node.Nodes(self.plane)
        self.redis_password = secrets.token_hex(12)
        self.load = self.key = None
        loading = threading.Thread(target=self._load_images)
        self.nodes.start_runtimes()
        loading.start()
        self.plane.start()
        self.client = self.plane.client()
        servers = dict.fromkeys([DATABASE, REDIS, RECEIVER], node.OUTSIDE)
        self.names = node.Names(self.processes, self.plane.client(), servers)
        self.receiver = Receiver(node.OUTSIDE, *self.plane.authority.issue(RECEIVER, names=[f"DNS:{RECEIVER}"]))
        self.nodes.start_kubelets()
        self.nodes.start_proxy()
        self.stores = Stores(self.processes, self.redis_password)
        self._make_desk()
        self._make_volume()
        self.processes.ready("kubelet-node-a", lambda: self.nodes.are_ready(self.client), 120)
        loading.join()
        assert self.digests, "the images could not be loaded"

    def _load_images(self):
        self.digests = None
        digests = images.make(FOLDER / "images", BINARIES, IMAGE and ROOT / IMAGE)
        for name in ["pause", "assay", "curl"]:
            self.nodes.load(FOLDER / "images" / f"{name}.tar")
            (FOLDER / "images" / f"{name}.tar").unlink()
        self.digests = digests

    def _make_desk(self):
        """Makes the folder in which the operator works: files with secrets, the chart, and programs."""
        self.desk = FOLDER / "desk"
        (self.desk / "bin").mkdir(parents=True)
        (self.desk / "helm").symlink_to(ROOT / "helm")
        (self.desk / "ca.crt").symlink_to(self.plane.authority.certificate)
        for name, path in {"helm": HELM, "kubectl": program("kubectl")}.items():
            (self.desk / "bin" / name).symlink_to(path)
        (self.desk / "bin/assay-api").symlink_to(FOLDER / "images/binaries/assay-api")
        self.environment = {**self.plane.environment(), "PATH": f"{self.desk}/bin:{os.environ['PATH']}"}

    def _make_volume(self):
        """Makes a volume that all pods can write to. Both nodes have one filesystem, so a folder is one."""
        folder = FOLDER / "volume"
        folder.mkdir()
        os.chown(folder, images.USER, images.USER)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "shared"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "shared",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
        status, said = self.client.call("POST", "/api/v1/persistentvolumes", volume)
        assert status == 201, said

    def shell(self, code):
        """Runs commands at the operator's desk, and returns what they print."""
        command = ["bash", "-euo", "pipefail", "-c", code]
        made = subprocess.run(
            command, cwd=self.desk, env=self.environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert made.returncode == 0, f"{code}\n{made.stdout}\n{made.stderr}\n{self.state()}"
        return made.stdout + made.stderr

    def state(self):
        """Returns what an operator would look at after a failure."""
        events = "kubectl get events -A --sort-by=.lastTimestamp | tail -30"
        made = subprocess.run(
            ["bash", "-c", f"kubectl get pods -A -o wide; {events}; kubectl -n assay describe pods | tail -60"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return made.stdout + made.stderr

    def keep_logs(self):
        shutil.rmtree(LOGS, ignore_errors=True)
        shutil.copytree(self.processes.logs, LOGS)
        for name in inside.NODES:
            shutil.copytree(FOLDER / name / "pod-logs", LOGS / f"pods-{name}", ignore_dangling_symlinks=True)
        (LOGS / "state").write_text(self.state())

    def write_values(self, **more):
        """Writes my.yaml, with the values that a small cluster needs. JSON is YAML."""
        small = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        image = {"registry": images.REGISTRY, "pullPolicy": "IfNotPresent"}
        values = {
            "image": {**image, "repository": "assay", "tag": images.TAGS[0]},
            "tests": {"image": {**image, "repository": "curl", "tag": "test"}},
            "artifacts": {"folder": {"storageClassName": "shared", "size": "1Gi"}},
            # The machine's other programs may need the processors meanwhile.
            "config": {"poolWaitMs": 5000},
            "ca": {"configMap": "assay-ca"},
            "webhooks": {"existingSecret": "assay-webhooks", "networks": [f"{node.OUTSIDE}/32"]},
            "api": {"resources": small},
            "worker": {"resources": small},
            # The name server does not cache, so a removed engine's clients learn it at once.
            "engine": {"resources": small, "preStopSleepSeconds": 5},
            "deliverer": {"enabled": True, "resources": small},
            "receiptLog": {"enabled": True, "origin": ORIGIN, "resources": small},
            # A pod on each node, as of the others.
            "checker": {"enabled": True, "replicas": 2, "resources": small},
        }
        values |= {name: {**values.get(name, {}), **value} for name, value in more.items()}
        (self.desk / "my.yaml").write_text(json.dumps(values))

    @contextlib.contextmanager
    def broken_chart(self, file, right, wrong):
        """Replaces a text's first occurrence in a template during the block."""
        chart = self.desk / "helm"
        chart.unlink()
        shutil.copytree(ROOT / "helm", chart)
        template = chart / "templates" / file
        text = template.read_text()
        assert right in text, f"{file} does not contain {right!r}"
        template.write_text(text.replace(right, wrong, 1))
        try:
            yield
        finally:
            shutil.rmtree(chart)
            chart.symlink_to(ROOT / "helm")

    def install(self):
        """Installs or upgrades with the present values, as the guide says."""
        said = self.shell(guide.line("Install", "sh", "helm upgrade --install"))
        self.wait_until_ready()
        return said

    def pods(self, component):
        return self.client.items(f"/api/v1/namespaces/assay/pods?labelSelector=app.kubernetes.io/component={component}")

    def restrictions(self, pods):
        """Returns what the kernel enforces on each container in the pods."""
        return {
            f"{pod['metadata']['name']}/{container['name']}": node.restrictions(
                self.nodes.process(pod["spec"]["nodeName"], container["containerID"].removeprefix("containerd://"))
            )
            for pod in pods
            for container in pod["status"]["containerStatuses"]
        }

    def operate(self, *arguments):
        """Runs one of the operator's commands at the desk."""
        environment = {**self.environment, "ASSAY_DATABASE_URL_FILE": "database-owner.url"}
        made = subprocess.run(
            ["assay-api", *arguments], cwd=self.desk, env=environment, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout)

    def publish_suite(self, suite, items):
        folder = self.desk / "suite"
        folder.mkdir()
        (folder / "suite.toml").write_text(f'suite_id = "{suite}"\nversion = "1"\nmetric = "accuracy"\n')
        lines = {"items": [{"item_id": f"item-{n}", "input": {"number": n}} for n in range(items)]}
        lines["answers"] = [{"item_id": f"item-{n}", "answer": answer(n)} for n in range(items)]
        for name, objects in lines.items():
            (folder / f"{name}.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in objects))
        self.operate("suite", "publish", str(folder))

    def address(self):
        """Returns the platform Service's address."""
        status, service = self.client.call("GET", "/api/v1/namespaces/assay/services/assay")
        assert status == 200, service
        return service["spec"]["clusterIP"]

    def wait_until_ready(self):
        """Waits until every Deployment has all its pods, and no other pods are left."""

        def settled():
            for component in COMPONENTS:
                pods = self.pods(component)
                if len(pods) != 2 or not all(map(is_ready, pods)) or any(map(is_ending, pods)):
                    return False
            return True

        wait_for(settled, 240, self.state)

    @contextlib.contextmanager
    def under_load(self):
        """Fails if a request fails during the block or until the last replaced pod has gone."""
        before = self.load.mark()
        yield
        self.wait_until_ready()
        self.load.check()
        assert self.load.mark() > before

    def expect_image(self, name):
        for component in COMPONENTS:
            for pod in self.pods(component):
                assert pod["spec"]["containers"][0]["image"].endswith(name), pod["spec"]

    def start_caller(self, namespace, labels, user):
        """Starts a pod with curl, as this user, in its own namespace."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "caller", "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"runAsUser": user},
                "containers": [{"name": "caller", "image": f"{images.REGISTRY}/curl:test", "command": ["sleep", "100000"]}],
            },
        }
        self.shell(f"kubectl create namespace {namespace}")
        self.plane.wait_for_service_account(namespace)
        status, said = self.client.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        assert status == 201, said
        self.shell(f"kubectl --namespace {namespace} wait pod/caller --for condition=Ready --timeout 60s")

    def call(self, caller, script):
        """Runs a script in a caller's pod, and returns what it prints."""
        command = ["kubectl", "--namespace", caller, "exec", "caller", "--", "sh", "-c", script]
        made = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return made.stdout

    def connects(self, caller, targets):
        """Returns the targets that are like `address:port`, to which a caller can open a connection."""
        curl = "curl --silent --output /dev/null --max-time 10 --http2-prior-knowledge"
        said = self.call(caller, f"for target in {' '.join(targets)}; do {curl} http://$target/; echo $target $?; done")
        # 7: the connection is refused. 28: there is no response.
        return {target for target, status in map(str.split, said.splitlines()) if status not in ("7", "28")}

    def status(self, caller, url):
        return self.call(caller, f"curl --silent --output /dev/null --max-time 10 --write-out '%{{http_code}}' {url}")

    @contextlib.contextmanager
    def policies_enforced(self):
        """Enforces network policies during the block."""
        # The name server is a program outside the cluster. To the policies it is the pod that most clusters have.
        server = {
            "metadata": {"name": "dnsmasq", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
            "spec": {"containers": []},
            "status": {"podIP": node.OUTSIDE, "phase": "Running"},
        }
        self.enforcer = netpol.Enforcer(self.plane.client(), [server])
        try:
            yield
        finally:
            self.enforcer.stop()

    def evaluate(self, suite, items):
        """Submits right predictions, and returns the finished job."""
        return self._finished({"suite_id": suite, "predictions": predictions(items)})

    def evaluate_upload(self, suite, items, parts):
        """Uploads right predictions in parts, submits them, and returns the finished job."""
        upload = self.request("POST", "/v1/uploads", {"kind": "predictions"})
        path = f"/v1/uploads/{upload['id']}"
        for number in range(parts):
            lines = [f"{json.dumps(one)}\n" for one in predictions(items)[number::parts]]
            self.send("PUT", f"{path}/parts/{number + 1}", "".join(lines).encode())
        self.request("POST", f"{path}/complete")
        return self._finished({"suite_id": suite, "input_ref": upload["input_ref"]})

    def _finished(self, submission):
        job = self.request("POST", "/v1/evals", submission)
        while job["status"] in ("queued", "running"):
            job = self.request("GET", f"/v1/jobs/{job['id']}?wait=30")
        assert job["status"] == "succeeded", job
        return job

    def request(self, method, path, body=None, token=None):
        """Calls the API, and returns the response's JSON."""
        return json.loads(self.send(method, path, None if body is None else json.dumps(body).encode(), token))

    def send(self, method, path, content=None, token=None):
        """Calls the API, on its own connection, and returns the response's content."""
        headers = {"Authorization": f"Bearer {token or self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address()}{path}", method=method, data=content, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error


def unexpected_warnings(events):
    """Returns the warnings that an operator would have to understand."""
    stopped = {}
    for event in events:
        if event.get("reason") == "Killing":
            stopped.setdefault(event["involvedObject"]["uid"], event["firstTimestamp"])
    for event in events:
        text = f"{event.get('reason')}: {event.get('message')}"
        # The kubelet probes a pod until it has ended.
        ends = event.get("reason") == "Unhealthy" and event["lastTimestamp"] >= stopped.get(event["involvedObject"].get("uid"), "~")
        if event["type"] == "Warning" and not ends and not any(re.search(known, text) for known in KNOWN_WARNINGS):
            yield f"{event['involvedObject']}: {text}"


def answer(number):
    return "even" if number % 2 == 0 else "odd"


def predictions(items):
    """Returns the right predictions for a suite with this size."""
    return [{"item_id": f"item-{n}", "prediction": answer(n)} for n in range(items)]


def objects(text):
    """Returns the JSON objects among a text's lines."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
