"""Enforces the cluster's NetworkPolicies with a packet filter, as a network plugin does.

Connections between pods pass the hook `forward`; those from pods to servers outside the cluster end on this machine, so they pass
`input`. Connections from this machine to pods are never filtered, because the kubelet's probes must work.
"""

import http.client
import subprocess
import threading
import time

TABLE = "inet policies"


def matches(selector, labels):
    """Whether a label selector selects these labels. An empty selector selects all."""
    tests = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, _: value is not None,
        "DoesNotExist": lambda value, _: value is None,
    }
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        tests[one["operator"]](labels.get(one["key"]), one.get("values")) for one in selector.get("matchExpressions") or []
    )


class Pod:
    def __init__(self, pod):
        self.name = pod["metadata"]["name"]
        self.namespace = pod["metadata"]["namespace"]
        self.labels = pod["metadata"].get("labels", {})
        self.address = pod["status"]["podIP"]
        containers = pod["spec"]["containers"]
        self.ports = {port["name"]: port["containerPort"] for one in containers for port in one.get("ports", []) if "name" in port}


class Rules:
    """The packet filter's rules for a cluster state."""

    def __init__(self, pods, namespaces, policies):
        ended = ("Succeeded", "Failed")
        self.pods = [Pod(pod) for pod in pods if pod["status"].get("podIP") and pod["status"].get("phase") not in ended]
        self.namespaces = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
        self.policies = policies

    def text(self):
        chains = {"ingress": [], "egress": []}
        bodies = []
        for direction, own in [("ingress", "daddr"), ("egress", "saddr")]:
            for number, pod in enumerate(self.pods):
                lists = [policy["spec"].get(direction) or [] for policy in self._policies_of(pod, direction)]
                if not lists:
                    continue
                allowed = [f"{line} return" for rules in lists for rule in rules for line in self._allowed(rule, direction, pod)]
                # A rejection shows a test at once what a dropped packet would show after a timeout.
                lines = [*allowed, "meta l4proto tcp reject with tcp reset", "reject"]
                bodies.append(f"chain {direction}-{number} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n")
                chains[direction].append(f"ip {own} {pod.address} jump {direction}-{number}")
        hooks = "".join(
            f"chain {hook} {{\n  type filter hook {hook} priority 10\n  ct state established,related accept\n"
            + "".join(f"  jump check-{direction}\n" for direction in directions)
            + "}\n"
            for hook, directions in [("forward", ["egress", "ingress"]), ("input", ["egress"])]
        )
        jumps = "".join(
            f"chain check-{name} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n" for name, lines in chains.items()
        )
        # One transaction: at no time are there no rules.
        return f"table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n" + "".join(bodies) + jumps + hooks + "}\n"

    def _policies_of(self, pod, direction):
        for policy in self.policies:
            spec = policy["spec"]
            kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
            if (
                policy["metadata"]["namespace"] == pod.namespace
                and direction.capitalize() in kinds
                and matches(spec["podSelector"], pod.labels)
            ):
                yield policy

    def _allowed(self, rule, direction, pod):
        """Yields expressions for the connections that a rule allows."""
        peers = rule.get("from" if direction == "ingress" else "to")
        side = "saddr" if direction == "ingress" else "daddr"
        for port in rule.get("ports") or [None]:
            if direction == "egress" and port and isinstance(port.get("port"), str):
                # A name means the other pod's port, which differs between pods.
                for other in self._pods_of(peers, pod.namespace):
                    if port["port"] in other.ports:
                        yield f"ip daddr {other.address} {self._port(port, other)}"
                continue
            expression = self._port(port, pod)
            if expression is None:
                continue
            if not peers:
                yield f"meta nfproto ipv4 {expression}"
                continue
            for other in self._pods_of(peers, pod.namespace):
                yield f"ip {side} {other.address} {expression}"
            for block in [peer["ipBlock"] for peer in peers if "ipBlock" in peer]:
                family = "ip6" if ":" in block["cidr"] else "ip"
                excepted = f" {family} {side} != {{ {', '.join(block['except'])} }}" if block.get("except") else ""
                yield f"{family} {side} {block['cidr']}{excepted} {expression}"

    @staticmethod
    def _port(port, pod):
        """Returns an expression for a port of a pod, or None if the pod has no port with this name."""
        if port is None:
            return ""
        protocol = port.get("protocol", "TCP").lower()
        if "port" not in port:
            return f"meta l4proto {protocol}"
        number = pod.ports.get(port["port"]) if isinstance(port["port"], str) else port["port"]
        if number is None:
            return None
        return f"{protocol} dport {number}-{port['endPort']}" if "endPort" in port else f"{protocol} dport {number}"

    def _pods_of(self, peers, namespace):
        for pod in self.pods:
            for peer in peers or []:
                if "ipBlock" in peer:
                    continue
                elsewhere = peer.get("namespaceSelector")
                if elsewhere is None:
                    near = pod.namespace == namespace
                else:
                    near = matches(elsewhere, self.namespaces.get(pod.namespace, {}))
                if near and matches(peer.get("podSelector") or {}, pod.labels):
                    yield pod
                    break


class Enforcer:
    """Follows the cluster and applies its policies, until it is stopped. `more` are pods that the cluster does not know."""

    def __init__(self, client, more=()):
        self.client = client
        self.more = list(more)
        self.error = self.applied = None
        self.rounds = 0
        self.stopping = threading.Event()
        self._apply()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def settle(self):
        """Waits until the rules follow from the cluster's present state."""
        before = self.rounds
        while self.rounds < before + 2:
            assert self.error is None, self.error
            time.sleep(0.1)

    def _apply(self):
        items = self.client.items
        rules = Rules(
            items("/api/v1/pods") + self.more, items("/api/v1/namespaces"), items("/apis/networking.k8s.io/v1/networkpolicies")
        )
        text = rules.text()
        if text != self.applied:
            made = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
            assert made.returncode == 0, f"{made.stderr}\n{text}"
            self.applied = text

    def _follow(self):
        while not self.stopping.wait(0.3):
            try:
                self._apply()
                self.rounds += 1
            except (OSError, http.client.HTTPException):
                continue
            except AssertionError as error:
                self.error = error
                return

    def stop(self):
        self.stopping.set()
        self.thread.join()
        subprocess.run(["nft", "delete", "table", *TABLE.split()], check=True)
        assert self.error is None, self.error
