"""Private copies from the distribution's packages, without installation. The system's package tools fetch them, with the
system's sources and keys, but with separate lists and a separate cache."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from control_plane import TOOLS

FOLDER = TOOLS / "debian"

# A node's programs: the container runtime, the plugins that connect pods, packet filters, and a name server for Services.
NODE = ["containerd", "runc", "containernetworking-plugins", "nftables", "dnsmasq-base", "iproute2"]
# The platform image's base: what distroless images contain.
RUNTIME = ["libc6", "libgcc-s1", "libssl3", "ca-certificates", "tzdata", "netbase", "base-files"]
# The chart test's programs, and a shell for them.
CURL = ["curl", "dash", "coreutils", "grep", "ca-certificates", "base-files", "netbase"]


class Unavailable(Exception):
    """The packages cannot be fetched."""


def stores():
    """Returns the packages for the database servers that this machine does not have."""
    missing = []
    if not postgres_programs(pathlib.Path("/usr")):
        missing.append("postgresql-15")
    if not shutil.which("redis-server"):
        missing.append("redis-server")
    return missing


def postgres_programs(usr):
    """Returns the newest PostgreSQL's program folder below `usr`, or None."""
    found = [path.parent for path in usr.glob("lib/postgresql/*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


def fetch(name, wanted, complete=False):
    """Unpacks packages with their dependencies into a folder with this name, once for each list of packages, and returns it.

    `complete` also fetches dependencies that this machine has, for an image's root; otherwise the machine's C library must
    be used, because it must match its loader.
    """
    folder, stamp = FOLDER / name, FOLDER / f"{name}.stamp"
    release = pathlib.Path("/etc/os-release").read_text()
    key = f"{release}{os.uname().machine}\n{complete}\n{' '.join(wanted)}\n"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == key:
            return folder
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="fetch-") as work:
            for archive in _download(pathlib.Path(work), wanted, complete):
                folder.mkdir(exist_ok=True)
                _run("dpkg-deb", "--extract", archive, folder)
        _merge_usr(folder)
        stamp.write_text(key)
    return folder


def _download(work, wanted, complete):
    """Returns the package files, which must be unpacked before `work` is removed."""
    lists = work.parent / "lists"
    for path in [lists / "partial", work / "state", work / "cache/archives/partial"]:
        path.mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": work / "state",
        "Dir::State::Lists": lists,
        "Dir::Cache": work / "cache",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    if complete:
        # To the tool, nothing is installed.
        (work / "state/empty").touch()
        options["Dir::State::Status"] = work / "state/empty"
    apt = ["apt-get", *(f"--option={name}={value}" for name, value in options.items())]
    install = [
        *apt,
        "install",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        "--reinstall",
        "--allow-change-held-packages",
    ]
    # Lists that are some hours old may name packages that no longer exist.
    for attempt in range(2):
        if attempt or not list(lists.glob("*_Packages*")):
            # The tool fails if any source is broken, which is harmless; so the next command decides.
            _run(*apt, "update", check=False)
        made = _run(*install, *wanted, check=False)
        archives = sorted((work / "cache/archives").glob("*.deb"))
        if made.returncode == 0 and archives:
            return [path for path in archives if complete or not path.name.startswith(("libc6_", "libc-bin_"))]
    raise Unavailable(f"the packages {' '.join(wanted)} cannot be fetched: {made.stderr.strip()[-2000:]}")


def _run(*command, check=True):
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        made = subprocess.run(
            [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be started: {error}") from error
    if check and made.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {made.stderr.strip()[-2000:]}")
    return made


def _merge_usr(folder):
    """Moves old packages' folders to where today's distributions have them: /bin is a link to /usr/bin."""
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]:
        old = folder / name
        if old.is_dir() and not old.is_symlink():
            (folder / "usr").mkdir(exist_ok=True)
            _run("cp", "--archive", "--no-target-directory", old, folder / "usr" / name)
            shutil.rmtree(old)


def node_programs():
    return fetch("node", NODE + stores())


def runtime_root():
    return fetch("runtime", RUNTIME, complete=True)


def curl_root():
    return fetch("curl", CURL, complete=True)


def fetch_all():
    """Fetches everything, which must happen before a network without a way out is entered."""
    return [node_programs(), runtime_root(), curl_root()]


if __name__ == "__main__":
    try:
        print(*fetch_all(), sep="\n")
    except Unavailable as error:
        sys.exit(str(error))
