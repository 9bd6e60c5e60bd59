"""Two nodes: container runtimes, kubelets, the Service proxy and a name server, in the namespaces that inside.py made."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import images
import inside
from control_plane import program

FOLDER = pathlib.Path(os.environ.get(inside.FOLDER, "/nonexistent"))
PODS = {"node-a": "10.91.1.0/24", "node-b": "10.91.2.0/24"}
ALL_PODS = "10.91.0.0/16"
SERVICES = "10.92.0.0/16"
# The name server, and the servers outside the cluster, such as databases.
OUTSIDE = inside.NODES["node-a"]
DOMAIN = "cluster.local"


def is_ready(thing):
    """Whether a node or a pod is ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in thing.get("status", {}).get("conditions", []))


def is_ending(pod):
    """Whether a pod is about to end."""
    return "deletionTimestamp" in pod["metadata"]


def restrictions(process):
    """Returns what the kernel enforces on a process: user (real, effective, saved, of files), capabilities, no new privileges, system
    call filter, and how the root filesystem is mounted."""
    folder = pathlib.Path("/proc", str(process))
    status = dict(line.split(":\t") for line in (folder / "status").read_text().splitlines())
    mounts = [line.split() for line in (folder / "mountinfo").read_text().splitlines()]
    (root,) = [options.split(",")[0] for _, _, _, _, point, options, *_ in mounts if point == "/"]
    return {name: status[name] for name in ["Uid", "CapEff", "NoNewPrivs", "Seccomp"]} | {"root": root}


class Nodes:
    """A control plane's nodes, which they need for their keys."""

    def __init__(self, plane):
        self.plane = plane
        self.processes = plane.processes

    def runtime_socket(self, node):
        return FOLDER / node / "containerd.sock"

    def start_runtimes(self):
        for node in inside.NODES:
            self._start_runtime(node)
        for node in inside.NODES:
            self.processes.ready(f"containerd-{node}", lambda node=node: self.ctr(node, "version", check=False).returncode == 0)

    def _start_runtime(self, node):
        folder = FOLDER / node
        (folder / "cni").mkdir(parents=True)
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                # Pods are connected by routes, not by a bridge, so that every packet passes this namespace's filters.
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(folder / "addresses"),
                        "ranges": [[{"subnet": PODS[node]}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (folder / "cni/pods.conflist").write_text(json.dumps(network))
        # `restrict_oom_score_adj`: a container may lack the capability to protect processes from the kernel's out-of-memory killer.
        (folder / "containerd.toml").write_text(
            f"""
            version = 2
            root = "{folder}/root"
            state = "{folder}/state"
            disabled_plugins = [
                "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
                "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
            ]
            [grpc]
              address = "{self.runtime_socket(node)}"
            [plugins."io.containerd.internal.v1.opt"]
              path = "{folder}/opt"
            [plugins."io.containerd.grpc.v1.cri"]
              sandbox_image = "{images.REGISTRY}/pause:test"
              restrict_oom_score_adj = true
              disable_apparmor = true
              [plugins."io.containerd.grpc.v1.cri".cni]
                bin_dir = "/usr/lib/cni"
                conf_dir = "{folder}/cni"
              [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
                runtime_type = "io.containerd.runc.v2"
                [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
                  SystemdCgroup = false
            """
        )
        self.processes.start(f"containerd-{node}", "containerd", "--config", folder / "containerd.toml")

    def ctr(self, node, *arguments, check=True):
        command = ["ctr", "--address", self.runtime_socket(node), "--namespace", "k8s.io", *arguments]
        made = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert made.returncode == 0 or not check, made.stderr
        return made

    def process(self, node, container):
        """Returns the id of a running container's first process."""
        for line in self.ctr(node, "tasks", "list").stdout.splitlines():
            name, process, state = line.split()
            if name == container and state == "RUNNING":
                return int(process)
        raise AssertionError(f"the container {container} does not run on {node}")

    def load(self, archive):
        for node in inside.NODES:
            self.ctr(node, "images", "import", archive)

    def start_kubelets(self):
        for node, address in inside.NODES.items():
            folder = FOLDER / node
            settings = {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": address,
                "readOnlyPort": 0,
                "healthzPort": 0,
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": False},
                    "x509": {"clientCAFile": str(self.plane.authority.certificate)},
                },
                "authorization": {"mode": "AlwaysAllow"},
                "containerRuntimeEndpoint": f"unix://{self.runtime_socket(node)}",
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{os.environ[inside.GROUP]}/{node}",
                "failCgroupV1": False,
                "failSwapOn": False,
                "enforceNodeAllocatable": ["none"],
                "localStorageCapacityIsolation": False,
                # A full disk on the machine must not evict pods.
                "evictionHard": {
                    "memory.available": "0%",
                    "nodefs.available": "0%",
                    "nodefs.inodesFree": "0%",
                    "imagefs.available": "0%",
                },
                "imageGCHighThresholdPercent": 100,
                "makeIPTablesUtilChains": False,
                "oomScoreAdj": 0,
                "podLogsDir": str(folder / "pod-logs"),
                "clusterDNS": [OUTSIDE],
                "clusterDomain": DOMAIN,
                "resolvConf": str(FOLDER / "resolv.conf"),
            }
            (folder / "kubelet.json").write_text(json.dumps(settings))
            self.processes.start(
                f"kubelet-{node}",
                program("kubelet"),
                f"--config={folder}/kubelet.json",
                f"--kubeconfig={self.plane.kubeconfig(f'system:node:{node}', 'system:nodes')}",
                f"--root-dir={folder}/kubelet",
                f"--cert-dir={folder}/kubelet-keys",
                f"--hostname-override={node}",
                f"--node-ip={address}",
            )

    def start_proxy(self):
        """Starts the Service proxy. One is enough, because both nodes have one network."""
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": ALL_PODS,
            "detectLocalMode": "ClusterCIDR",
            "hostnameOverride": "node-a",
            "clientConnection": {"kubeconfig": str(self.plane.kubeconfig("system:kube-proxy"))},
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "oomScoreAdj": 0,
            # These limits hold for the whole machine.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        file = FOLDER / "kube-proxy.json"
        file.write_text(json.dumps(settings))
        self.processes.start("kube-proxy", program("kube-proxy"), f"--config={file}")

    @contextlib.contextmanager
    def proxy_paused(self):
        """The proxy does not change the rules, as if it learned of changes only at the block's end."""
        proxy = self.processes.running["kube-proxy"]
        proxy.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            proxy.send_signal(signal.SIGCONT)

    def are_ready(self, client):
        found = {node["metadata"]["name"] for node in client.items("/api/v1/nodes") if is_ready(node)}
        return found == set(inside.NODES)


class Names:
    """The cluster's name server: dnsmasq with the addresses of Services, and servers outside the cluster."""

    def __init__(self, processes, client, outside):
        self.file = FOLDER / "names"
        self.file.write_text("")
        self.client = client
        self.outside = outside
        # Names that it does not know do not exist. A refusal would end the C library's search.
        unknown = [f"--local=/{zone}/" for zone in [DOMAIN, "svc"]] + ["--address=/#/"]
        self.process = processes.start(
            "dnsmasq",
            *["dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file=", "--user=root"],
            *["--no-resolv", "--no-hosts", f"--addn-hosts={self.file}", "--cache-size=0", "--local-ttl=0"],
            *[f"--listen-address={OUTSIDE}", "--bind-interfaces", *unknown],
        )
        (FOLDER / "resolv.conf").write_text(f"nameserver {OUTSIDE}\n")
        # Also for the operator's programs, which run on this machine. The file may be a link into a folder that is hidden.
        own = pathlib.Path(os.path.realpath("/etc/resolv.conf"))
        own.parent.mkdir(parents=True, exist_ok=True)
        own.touch()
        inside.run("mount", "--bind", FOLDER / "resolv.conf", own)
        # A signal to a program that starts would end it.
        processes.ready("dnsmasq", self._listens)
        threading.Thread(target=self._follow, daemon=True).start()

    @staticmethod
    def _listens():
        try:
            socket.create_connection((OUTSIDE, 53), timeout=1).close()
        except OSError:
            return False
        return True

    def _follow(self):
        written = None
        while True:
            try:
                lines = sorted(self._lines())
            except (OSError, AssertionError, http.client.HTTPException):
                lines = written or []
            if lines != written:
                written = lines
                self.file.write_text("".join(f"{line}\n" for line in lines))
                # 1 is SIGHUP, which makes it read the file again.
                self.process.send_signal(1)
            time.sleep(0.3)

    def _lines(self):
        for name, address in self.outside.items():
            yield f"{address} {name}"
        headless = set()
        for service in self.client.items("/api/v1/services"):
            name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.{DOMAIN}"
            if service["spec"].get("clusterIP") == "None":
                headless.add((service["metadata"]["namespace"], service["metadata"]["name"]))
            else:
                yield f"{service['spec']['clusterIP']} {name}"
        for piece in self.client.items("/apis/discovery.k8s.io/v1/endpointslices"):
            key = (piece["metadata"]["namespace"], piece["metadata"].get("labels", {}).get("kubernetes.io/service-name"))
            for endpoint in piece.get("endpoints") or [] if key in headless else []:
                if endpoint.get("conditions", {}).get("ready", True):
                    yield from (f"{address} {key[1]}.{key[0]}.svc.{DOMAIN}" for address in endpoint["addresses"])
