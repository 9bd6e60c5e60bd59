"""Builds the platform's image from its Dockerfile, as it is in the last commit. The base images are made on this machine, so no image
is pulled.

    python image_build.py [--twice]

Debian's buildah is unpacked, not installed, and runs in private namespaces with its own storage, which is removed. So root is
needed. --twice builds two times from nothing, and fails unless both images are equal.
"""

import json
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

import images
import inside
import packages
from control_plane import ROOT

FOLDER = ROOT / "target/image"
TARGET = FOLDER / "assay.tar"
PREFIX = "build-"
BUILDAH = ["buildah"]
# What a Rust project with parts in C needs from the image `rust`: a compiler, make, and what shell scripts call.
BUILDER = ["gcc", "g++", "libc6-dev", "binutils", "make", "dash", "coreutils", "diffutils", "findutils", "grep", "mawk", "sed"]
BUILDER += ["base-files", "ca-certificates"]
# The links that installing these packages would create.
ALTERNATIVES = {"cc": "gcc", "c++": "g++", "awk": "mawk"}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The image `rust`'s environment.
RUST = {"RUSTUP_HOME": "/usr/local/rustup", "CARGO_HOME": "/usr/local/cargo", "PATH": f"/usr/local/cargo/bin:{SYSTEM_PATH}"}
# The distroless images' environment.
RUNTIME = {"PATH": SYSTEM_PATH, "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
# The label would name buildah's version, which is no image property.
REPRODUCIBLE = ["--identity-label=false"]


def output(*command):
    return inside.run(*command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()


def toolchain():
    """Returns the Rust version that the project names, and its folder on this machine."""
    version = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    found = output("rustc", "--version").split()[1]
    if found != version:
        sys.exit(f"rust-toolchain.toml names Rust {version}, but this machine has {found}")
    return version, pathlib.Path(output("rustc", "--print", "sysroot"))


class Build:
    """A build in a folder, which must be in the private namespaces."""

    def __init__(self, folder):
        self.folder = folder
        (folder / ".config/containers").mkdir(parents=True)
        (folder / ".config/containers/policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        storage = {"driver": "overlay", "graphroot": str(folder / "storage"), "runroot": str(folder / "run")}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in storage.items()]
        (folder / "storage.conf").write_text("[storage]\n" + "".join(lines))
        # The Dockerfile's RUN step has caches that are in the folder for temporary files.
        (folder / "tmp").mkdir()
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder / "tmp"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def buildah(self, command, *arguments, stdout=subprocess.PIPE):
        """Runs a buildah command, and returns what it prints."""
        made = inside.run("buildah", command, *arguments, env=self.environment, stdout=stdout, text=True)
        return made.stdout and made.stdout.strip()

    def base(self, name, fill, *settings, **environment):
        """Makes an image whose files the function `fill` writes into a folder."""
        container = self.buildah("from", "scratch")
        fill(pathlib.Path(self.buildah("mount", container)))
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        self.buildah("config", *variables, *settings, container)
        self.buildah("commit", "--quiet", "--rm", *REPRODUCIBLE, "--timestamp=0", container, f"localhost/{name}")
        return f"localhost/{name}"

    def _fill_runtime(self, root):
        archive = self.folder / "runtime.tar"
        images.runtime_layer().write(archive)
        inside.run("tar", "--extract", "--preserve-permissions", "--numeric-owner", "--file", archive, "--directory", root)

    def image(self, context, commit, timestamp, target):
        """Writes a commit's image, whose files are in the folder `context`, into an archive."""
        version, rust = toolchain()
        installed = f"{RUST['RUSTUP_HOME']}/toolchains/{version}-{platform.machine()}-unknown-linux-gnu"
        builder = self.base("builder", lambda root: fill_builder(root, installed), **RUST, RUST_VERSION=version)
        user = f"--user={images.USER}"
        runtime = self.base("runtime", self._fill_runtime, user, "--workingdir=/home/nonroot", **RUNTIME)
        arguments = {"BUILDER": builder, "RUNTIME": runtime, "ASSAY_GIT_SHA": commit, "SOURCE_DATE_EPOCH": timestamp}
        self.buildah(
            "build",
            *["--isolation=chroot", "--network=host", "--pull-never"],
            *[*REPRODUCIBLE, f"--timestamp={timestamp}", "--disable-compression=false"],
            *[f"--volume={rust}:{installed}:ro", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"],
            *[f"--build-arg={name}={value}" for name, value in arguments.items()],
            *[f"--file={context}/helm/image/Dockerfile", f"--tag=oci-archive:{target}", context],
            stdout=sys.stderr,
        )


def fill_builder(root, installed):
    inside.run("cp", "--archive", f"{builder_root()}/.", root)
    for name in ["bin", "sbin", "lib", "lib64"]:
        (root / name).symlink_to(f"usr/{name}")
    for name, program in ALTERNATIVES.items():
        (root / "usr/bin" / name).symlink_to(program)
    programs = root / RUST["CARGO_HOME"].removeprefix("/") / "bin"
    programs.mkdir(parents=True)
    for name in ["cargo", "rustc"]:
        (programs / name).symlink_to(f"{installed}/bin/{name}")


def builder_root():
    return packages.fetch("builder", BUILDER, complete=True)


def buildah_programs():
    return packages.fetch("buildah", BUILDAH)


def build_inside(folder, commit, timestamp):
    """Builds the image in the namespaces that `build` has made."""
    inside.mount("overlay", "overlay", "/usr", f"lowerdir={buildah_programs()}/usr:/usr")
    # Locks and a cache are in fixed places.
    for place in ["/run", "/var/lib"]:
        inside.mount_layer(place, folder / "changes" / place.strip("/"))
    Build(folder).image(folder / "context", commit, timestamp, folder / "assay.tar")


def cpu_time():
    """Returns all finished child processes' CPU time, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def work_folder():
    # A process that is still ending may write to it. The next build removes the rest.
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=FOLDER, ignore_cleanup_errors=True)


def build(commit, timestamp):
    """Builds a commit's image into the archive, and prints how long it took."""
    start, cpu_start = time.monotonic(), cpu_time()
    with work_folder() as folder:
        # Files that are not in the commit must not be in the image.
        inside.run("git", "archive", f"--output={folder}/context.tar", commit, cwd=ROOT)
        os.mkdir(f"{folder}/context")
        inside.run("tar", "--extract", f"--file={folder}/context.tar", f"--directory={folder}/context")
        if inside.run_isolated([sys.executable, __file__, "--inside", folder, commit, timestamp]) != 0:
            sys.exit("the image could not be built")
        os.replace(f"{folder}/assay.tar", TARGET)
    print(f"built in {time.monotonic() - start:.0f} s with {cpu_time() - cpu_start:.0f} s of CPU time", flush=True)


def report():
    """Prints the image's sizes, and returns its digest."""
    with images.Archive(TARGET) as image:
        print(f"digest: {image.digest}")
        compressed, unpacked = image.sizes()
        print(f"size of the layers: {compressed / 1e6:.1f} MB compressed, {unpacked / 1e6:.1f} MB unpacked")
        with work_folder() as folder:
            for binary in image.binaries(pathlib.Path(folder)):
                print(f"{binary.name}: {binary.stat().st_size / 1e6:.1f} MB")
        return image.digest


def remove_old():
    """Removes killed builds' folders."""
    for folder in FOLDER.glob(f"{PREFIX}*"):
        if not pathlib.Path("/proc", re.match(rf"{PREFIX}(\d*)", folder.name).group(1)).exists():
            shutil.rmtree(folder)


def main(builds):
    if os.geteuid() != 0:
        sys.exit("root is needed to create namespaces and mounts")
    # A termination must remove the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    FOLDER.mkdir(parents=True, exist_ok=True)
    remove_old()
    for fetch in [buildah_programs, builder_root, packages.runtime_root]:
        fetch()
    commit, timestamp = output("git", "log", "-1", "--format=%H %ct").split()
    digests = []
    for _ in range(builds):
        build(commit, timestamp)
        digests.append(report())
    if len(set(digests)) > 1:
        sys.exit("the builds of one commit differ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        try:
            build_inside(pathlib.Path(sys.argv[2]), *sys.argv[3:])
        except subprocess.CalledProcessError as error:
            sys.exit(str(error))
    elif sys.argv[1:] in ([], ["--twice"]):
        try:
            main(builds=len(sys.argv))
        except packages.Unavailable as error:
            sys.exit(str(error))
    else:
        sys.exit("usage: image_build.py [--twice]")
