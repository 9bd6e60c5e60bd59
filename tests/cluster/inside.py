"""Runs a command as if on its own machine: in private namespaces, with everything that a Kubernetes node needs.

    python inside.py COMMAND [ARGUMENT]...

All processes end with the command, and all mounts and interfaces end with them. What remains is reported as an error. Root is
needed, because nodes mount filesystems and create control groups.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import packages

PREFIX = "assay-cluster-"
FOLDER, GROUP = "CLUSTER_FOLDER", "CLUSTER_GROUP"
GROUPS = pathlib.Path("/sys/fs/cgroup")
NODES = {"node-a": "10.90.0.1", "node-b": "10.90.0.2"}
# The kubelet sets these for the whole machine if they differ, and runs if they are equal.
WANTED_BY_KUBELET = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def mount(kind, source, target, options=None):
    pathlib.Path(target).mkdir(parents=True, exist_ok=True)
    run("mount", "-t", kind, *(["-o", options] if options else []), source, target)


def mount_layer(place, folder):
    """Mounts a layer over a system folder, so that changes below `place` are made in `folder` instead."""
    upper, work = folder / "upper", folder / "work"
    for path in [upper, work]:
        path.mkdir(parents=True)
    mount("overlay", "overlay", place, f"lowerdir={place},upperdir={upper},workdir={work}")


def hierarchies():
    """Returns each version 1 hierarchy's controllers, and none with version 2 alone."""
    lines = [line.split(":") for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    return [line[1] for line in lines if line[1]]


def mount_groups():
    """Mounts all control groups, because a container may show none or a part of them, and returns the hierarchies' folders."""
    if not hierarchies():
        mount("cgroup2", "cgroup2", GROUPS)
        return [GROUPS]
    mount("tmpfs", "tmpfs", GROUPS, "mode=755")
    for controllers in hierarchies():
        folder = GROUPS / controllers.removeprefix("name=")
        mount("cgroup", "cgroup", folder, f"none,{controllers}" if controllers.startswith("name=") else controllers)
        # Programs look for each controller under its own name.
        for controller in controllers.split(",") if "," in controllers else []:
            (GROUPS / controller).symlink_to(folder.name)
    return [GROUPS / controllers.removeprefix("name=") for controllers in hierarchies()]


def make_groups(name):
    """Creates the nodes' groups, below one group."""
    for folder in mount_groups():
        for group in [folder / name, *(folder / name / node for node in NODES)]:
            group.mkdir()
            if (group / "cpu.shares").exists():
                # The pods as a whole would otherwise get as much processor time as one process outside.
                (group / "cpu.shares").write_text("16384")
            if hierarchies():
                # No process may enter a group without processors and memory.
                for file in ["cpuset.cpus", "cpuset.mems"]:
                    if (group / file).exists():
                        (group / file).write_text((folder / file).read_text())
            else:
                controllers = (group / "cgroup.controllers").read_text().split()
                missing = {"cpu", "cpuset", "memory", "pids"}.difference(controllers)
                if missing:
                    sys.exit(f"the root of the control groups does not pass on these controllers: {', '.join(sorted(missing))}")
                (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


def is_running(named):
    """Whether the run exists to which a folder or a group belongs."""
    return pathlib.Path("/proc", named.name.removeprefix(PREFIX)).exists()


def remove_groups():
    """Removes the groups from runs that have ended, and returns those that cannot be removed."""
    remaining = []
    for folder in mount_groups():
        for group in folder.glob(f"{PREFIX}*"):
            if is_running(group) and group.name != os.environ.get(GROUP):
                continue
            for inner, _, _ in os.walk(group, topdown=False):
                # A group stays busy for some milliseconds after its last process has ended.
                for attempt in range(50):
                    try:
                        os.rmdir(inner)
                        break
                    except OSError:
                        time.sleep(0.1)
                else:
                    remaining.append(inner)
    return remaining


def prepare(folder, group):
    """Prepares the namespaces. Everything changes this mount and network namespace only."""
    mount("sysfs", "sysfs", "/sys")
    make_groups(group)
    # The cluster's files are in memory, so no disk has to be cleaned, and no other test slows the cluster's writes down.
    mount("tmpfs", "tmpfs", folder, "mode=755,size=6g")
    for path in ["/run", "/var/log"]:
        mount("tmpfs", "tmpfs", path, "mode=755")
    mount_layer("/var/lib", folder / "lib")
    programs = packages.node_programs() / "usr"
    mount("overlay", "overlay", "/usr", f"lowerdir={programs}:/usr")
    run("mount", "--bind", "/proc/sys", "/proc/sys")
    run("mount", "-o", "remount,bind,ro", "/proc/sys")
    run("mount", "--bind", "/proc/sys/net", "/proc/sys/net")
    run("mount", "-o", "remount,bind,rw", "/proc/sys/net")
    for name, value in WANTED_BY_KUBELET.items():
        file = folder / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        run("mount", "--bind", file, f"/proc/sys/{name}")
    # Both nodes share one network, so one node's pods reach the other's without tunnels. The default route leads nowhere: it is
    # there because the kernel looks for a route before it replaces a Service's address by a pod's.
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "nodes", "type", "veth", "peer", "name", "nowhere")
    for address in NODES.values():
        run("ip", "address", "add", f"{address}/24", "dev", "nodes")
    for interface in ["nodes", "nowhere"]:
        run("ip", "link", "set", interface, "up")
    run("ip", "route", "add", "default", "via", "10.90.0.254", "dev", "nodes")
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def first_process(command):
    """Prepares the namespaces and runs the command, as the first process, which also reaps orphans. Its exit ends all others."""
    folder = pathlib.Path(os.environ[FOLDER])
    prepare(folder, os.environ[GROUP])
    with subprocess.Popen(command) as child:
        while True:
            pid, status = os.wait()
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                # `os._exit` leaves no chance to wait for the other processes.
                os._exit(child.returncode if child.returncode >= 0 else 1)


def interfaces():
    return set(os.listdir("/sys/class/net"))


def remains(folder, before):
    """Returns what a finished run has left: processes, mounts, interfaces, groups, files."""
    found = [f"interface {name}" for name in interfaces() - before]
    found += [f"group {line}" for line in _grouped("--remove-groups").stdout.splitlines()]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes() and process.name != str(os.getpid()):
                found.append(f"process {process.name}: {(process / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:
            # The process has ended in the meantime.
            pass
    found += [f"mount {line}" for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    if any(folder.iterdir()):
        found.append(f"files in {folder}: {os.listdir(folder)}")
    return found


def _grouped(option):
    """Runs this program in a mount namespace, where it can mount all control groups."""
    return run("unshare", "--mount", sys.executable, __file__, option, stdout=subprocess.PIPE, text=True)


def _die_with_parent():
    # 1 is PR_SET_PDEATHSIG: even if this program is killed, no process in the namespaces survives.
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def run_isolated(command, *namespaces, environment=None):
    """Runs a command in private namespaces, and returns its exit status. All its processes and mounts end with it, and with this
    program. `namespaces` are further ones, as `unshare` options."""
    common = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    with subprocess.Popen(["unshare", *common, *namespaces, *command], env=environment, preexec_fn=_die_with_parent) as child:
        try:
            return child.wait()
        finally:
            child.kill()


def enter(command):
    """Runs the command inside and returns its exit status, which is not 0 if something remains."""
    if os.geteuid() != 0:
        sys.exit("root is needed to create namespaces, mounts and control groups")
    packages.fetch_all()
    # A termination must run the cleanup below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before = interfaces()
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not is_running(folder):
            # It is empty, because its files were in a filesystem that ended with the namespaces.
            folder.rmdir()
    os.environ[GROUP] = f"{PREFIX}{os.getpid()}"
    folder = pathlib.Path(tempfile.gettempdir(), os.environ[GROUP])
    folder.mkdir(mode=0o755)
    environment = {**os.environ, FOLDER: str(folder)}
    try:
        _grouped("--remove-groups")
        status = run_isolated([sys.executable, __file__, "--first-process", *command], "--net", environment=environment)
        found = remains(folder, before)
        for line in found:
            print(f"not removed: {line}", file=sys.stderr)
        return 1 if found else status
    finally:
        _grouped("--remove-groups")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--remove-groups"]:
        for name in remove_groups():
            print(name)
    elif sys.argv[1:2] == ["--first-process"]:
        first_process(sys.argv[2:])
    else:
        sys.exit(enter(sys.argv[1:]))
