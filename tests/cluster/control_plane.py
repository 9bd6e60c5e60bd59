"""A separate Kubernetes control plane: etcd, the API server, the controller manager and, if wanted, the scheduler, with keys that
are made for it. It needs no privileges, and nothing outlives the process that started it."""

import contextlib
import http.client
import ipaddress
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
TOOLS = ROOT / "target/tools/cluster"
HELM = os.environ.get("HELM", str(ROOT / "target/tools/helm/bin/helm"))
# How long a program may take to start. It is seconds on an idle machine.
START_TIMEOUT = 180


def program(name):
    """Returns a Kubernetes program's path."""
    return TOOLS / "bin" / name


def wait_for(condition, seconds, what):
    """Returns the condition's first true value. Fails with a description after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.05)


class Processes:
    """Programs with a log each, which end with the thread that started them, even if it is killed."""

    def __init__(self, logs):
        self.running = {}
        self.logs = logs
        self.logs.mkdir(parents=True, exist_ok=True)

    def start(self, name, *command, **options):
        # The kernel kills the program when its parent ends. If the parent has ended before the kernel knows that, the shell does
        # not start the program. Its own session keeps the program from a terminal's signals, so that an interrupted test's end
        # can still use it.
        alive = '[ "$PPID" = "$0" ] && exec "$@"'
        command = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", alive, os.getpid(), *command]
        with (self.logs / f"{name}.log").open("ab") as log:
            words = [str(word) for word in command]
            self.running[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
            )
        return self.running[name]

    def ready(self, name, condition, seconds=START_TIMEOUT):
        """Waits until the condition holds, and fails with the log's end if the program ends before."""

        def check():
            assert self.running[name].poll() is None, f"{name} has ended with {self.running[name].returncode}\n{self.tail(name)}"
            return condition()

        return wait_for(check, seconds, lambda: f"{name} is ready\n{self.tail(name)}")

    def tail(self, name):
        return (self.logs / f"{name}.log").read_text(errors="replace")[-6000:]

    def check(self):
        """Fails if a program has ended."""
        for name in self.running:
            self.ready(name, lambda: True)

    def end(self, name):
        """Kills a program, if it runs."""
        process = self.running.pop(name, None)
        if process:
            process.kill()
            process.wait()

    def stop(self):
        """Kills the programs: nothing that they have in memory is needed again."""
        for name in reversed(list(self.running)):
            self.end(name)


class Client:
    """A client for the Kubernetes API as one thread, which keeps its connection: a kubectl for each call costs much more."""

    def __init__(self, host, port, authority, certificate, key):
        self.context = ssl.create_default_context(cafile=authority)
        self.context.load_cert_chain(certificate, key)
        self.address = (host, port)
        self.connection = None

    def call(self, method, path, body=None):
        """Returns a response's status, and its object or text."""
        content = None if body is None else json.dumps(body)
        for attempt in range(2):
            self.connection = self.connection or http.client.HTTPSConnection(*self.address, context=self.context, timeout=30)
            try:
                self.connection.request(method, path, content, {"Content-Type": "application/json", "Accept": "application/json"})
                response = self.connection.getresponse()
                received = response.read()
                is_json = response.headers.get_content_type() == "application/json"
                return response.status, json.loads(received) if is_json else received.decode()
            except (OSError, http.client.HTTPException):
                # The server may have closed the kept connection.
                self.connection.close()
                self.connection = None
                if attempt:
                    raise
        raise AssertionError

    def items(self, path):
        status, value = self.call("GET", path)
        assert status == 200, value
        return value["items"]

    def exists(self, path):
        """Returns whether the server runs and has the object."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            return self.call("GET", path)[0] == 200
        return False


class Authority:
    """A certificate authority with its keys in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.certificate, self.key = folder / "ca.crt", folder / "ca.key"
        subject = ["-subj", "/CN=cluster", "-days", "2"]
        self._openssl("req", "-x509", *self._new_key(self.key), "-out", self.certificate, *subject)

    @staticmethod
    def _openssl(*arguments):
        made = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr

    @staticmethod
    def _new_key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]

    def signing_key(self, name):
        """Returns a file with a private key that has no certificate."""
        path = self.folder / f"{name}.key"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path

    def issue(self, user, groups=(), names=()):
        """Returns the files with a certificate and its key. Names are like `IP:127.0.0.1` and `DNS:kubernetes`."""
        base = self.folder / user.replace(":", "-")
        key, request, extensions, certificate = (base.with_name(f"{base.name}.{kind}") for kind in ["key", "csr", "ext", "crt"])
        if not certificate.exists():
            subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
            extensions.write_text(
                "extendedKeyUsage=clientAuth,serverAuth\n" + (f"subjectAltName={','.join(names)}\n" if names else "")
            )
            self._openssl("req", *self._new_key(key), "-out", request, "-subj", subject)
            signer = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2"]
            self._openssl("x509", "-req", "-in", request, "-out", certificate, "-extfile", extensions, *signer)
        return certificate, key


class Ports:
    """Free ports, which stay reserved: other programs get no port that is bound, but those that share it may listen on it."""

    def __init__(self):
        self.bound = []

    def reserve(self, host):
        self.bound.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self.bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.bound[-1].bind((host, 0))
        return self.bound[-1].getsockname()[1]

    def release(self):
        for bound in self.bound:
            bound.close()


class ControlPlane:
    """A control plane's programs. `with` starts and stops them.

    `flags` are more flags for the programs, by their names. Of a flag that is given twice, the last one counts. Without a
    `folder`, the files are in a temporary one, which is removed. `controllers` selects the controller manager's controllers.
    """

    def __init__(
        self, folder=None, host="127.0.0.1", port=None, services="10.92.0.0/16", controllers="*", scheduler=False, flags=None
    ):
        self.made = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="assay-control-plane-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.remover = self._start_remover() if self.made else None
        self.home = self.folder / "home"
        self.home.mkdir()
        self.processes = Processes(self.folder / "logs")
        self.ports = Ports()
        self.host, self.port = host, port or self.ports.reserve(host)
        self.services, self.controllers, self.scheduler = services, controllers, scheduler
        self.flags = flags or {}
        self.authority = Authority(self.folder)
        self.admin = self.kubeconfig("admin", "system:masters")

    def _start_remover(self):
        """Starts a process that removes the folder when this process has ended, whatever ended it."""
        # The end of its input is this process's end. Killed programs may write for an instant longer.
        code = 'trap "" HUP INT TERM; cat; while [ -e "$1" ]; do rm -rf "$1" || sleep 0.1; done'
        return subprocess.Popen(
            ["sh", "-c", code, "remover", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def kubeconfig(self, user, *groups):
        """Returns a file with the API server's address and a certificate for the user."""
        certificate, key = self.authority.issue(user, groups)
        server = {"server": f"https://{self.host}:{self.port}", "certificate-authority": str(self.authority.certificate)}
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": user}}],
            "clusters": [{"name": "cluster", "cluster": server}],
            "users": [{"name": user, "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        }
        path.write_text(json.dumps(config))
        return path

    def client(self):
        return Client(self.host, self.port, self.authority.certificate, *self.authority.issue("admin", ["system:masters"]))

    def start(self):
        """Starts the programs, and waits until objects can be created."""
        certificate, key = self.authority.issue("kube-apiserver", (), self._server_names())
        kubelet_certificate, kubelet_key = self.authority.issue("kube-apiserver-kubelet-client", ["system:masters"])
        tokens = self.authority.signing_key("service-accounts")
        store = f"http://127.0.0.1:{self.ports.reserve('127.0.0.1')}"
        self._start(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            # It has no peers, but it listens for them.
            f"--listen-peer-urls=http://127.0.0.1:{self.ports.reserve('127.0.0.1')}",
            "--socket-reuse-port",
            # Nothing has to survive the machine.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start(
            "kube-apiserver",
            f"--etcd-servers={store}",
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.port}",
            "--permit-port-sharing",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--kubelet-client-certificate={kubelet_certificate}",
            f"--kubelet-client-key={kubelet_key}",
            f"--service-account-key-file={tokens}",
            f"--service-account-signing-key-file={tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self.services}",
            "--authorization-mode=Node,RBAC",
            # The Service `kubernetes` has endpoints that cannot be loopback addresses.
            *(["--endpoint-reconciler-type=none"] if ipaddress.ip_address(self.host).is_loopback else []),
        )
        client = self.client()
        # The controllers wait only ten seconds for the checks of the server's health.
        checks = ["/healthz", "/readyz", "/api/v1/namespaces/default"]
        self.processes.ready("kube-apiserver", lambda: all(map(client.exists, checks)))
        # Port 0: it serves nothing, so that it needs no port.
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.admin}",
            f"--controllers={self.controllers}",
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={tokens}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        )
        if self.scheduler:
            self._start("kube-scheduler", f"--kubeconfig={self.admin}", "--leader-elect=false", "--secure-port=0")
        self.wait_for_service_account("default")

    def _server_names(self):
        first = ipaddress.ip_network(self.services.split(",")[0])[1]
        addresses = {self.host, "127.0.0.1", str(first)}
        return [*(f"IP:{address}" for address in sorted(addresses)), "DNS:kubernetes.default.svc", "DNS:localhost"]

    def _start(self, name, *flags):
        self.processes.start(name, program(name), *flags, *self.flags.get(name, []))

    def wait_for_service_account(self, namespace):
        """Waits for the ServiceAccount `default`: a namespace's first pods are refused as long as there is none."""
        client = self.client()
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        self.processes.ready("kube-controller-manager", lambda: client.exists(path))

    def environment(self):
        """Returns the environment for an operator's programs, without the settings that belong to the user who runs the tests."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE", "XDG_"))}
        # A command ends before collecting its garbage is worth the time.
        return {**kept, "KUBECONFIG": str(self.admin), "HOME": str(self.home), "GOGC": "400"}

    def _run(self, *command, given=None):
        return subprocess.run(
            [str(word) for word in command],
            env=self.environment(),
            input=given or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def kubectl(self, *arguments, given=None):
        """Runs kubectl with `given` as its standard input, and returns the finished process."""
        return self._run(program("kubectl"), *arguments, given=given)

    def helm(self, *arguments, given=None):
        """Runs Helm with `given` as its standard input, and returns the finished process."""
        return self._run(HELM, *arguments, given=given)

    def stop(self):
        """Ends the programs and removes the folder, if it was made here."""
        self.processes.stop()
        self.ports.release()
        if self.made:
            shutil.rmtree(self.folder)
            self.remover.stdin.close()
            self.remover.wait()
