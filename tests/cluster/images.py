"""Container images without a builder and without a registry: Open Container Initiative archives with one layer, which
containerd imports. The same files give the same archive."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import subprocess
import tarfile

import packages
from control_plane import program

# A name that no registry can have, so that a node which lacks an image fails instead of pulling another one.
REGISTRY = "registry.invalid"
KIND = "application/vnd.oci.image"
USER = 65532
BINARIES = ["assay-api", "assay-worker"]
# Two platform releases with the same binaries.
TAGS = ["test-1", "test-2"]
# Files in packages that programs do not read.
_UNUSED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/perl",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/include",
    "boot",
)


class Layer:
    """The tree of an image's files, with their owners."""

    def __init__(self):
        self.entries = {}

    def _add(self, name, kind, mode=0o755, content=None, link="", owner=0):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.uid, entry.gid = kind, mode, link, owner, owner
        if content is not None:
            entry.size = os.path.getsize(content) if isinstance(content, pathlib.Path) else len(content)
        self.entries[name] = (entry, content)

    def folder(self, name, mode=0o755, owner=0):
        self._add(name, tarfile.DIRTYPE, mode, owner=owner)

    def file(self, name, content, mode=0o644):
        """Adds a file whose content is bytes, or another file's content."""
        self._add(name, tarfile.REGTYPE, mode, content)

    def link(self, name, target):
        self._add(name, tarfile.SYMTYPE, 0o777, link=target)

    def tree(self, root):
        """Adds the unpacked packages' files, and what installing such packages would create."""
        for folder, names, files in os.walk(root):
            for name in names + files:
                path = pathlib.Path(folder, name)
                inner = str(path.relative_to(root))
                if inner.startswith(_UNUSED):
                    continue
                if path.is_symlink():
                    self.link(inner, os.readlink(path))
                elif path.is_dir():
                    self.folder(inner, path.stat().st_mode & 0o7777)
                else:
                    self.file(inner, path, path.stat().st_mode & 0o7777)
        for name in ["bin", "sbin", "lib", "lib64"]:
            self.link(name, f"usr/{name}")
        authorities = sorted((root / "usr/share/ca-certificates").glob("**/*.crt"))
        self.file("etc/ssl/certs/ca-certificates.crt", b"".join(path.read_bytes() for path in authorities))
        users = f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin\n"
        self.file("etc/passwd", users.encode())
        self.file("etc/group", f"root:x:0:\nnonroot:x:{USER}:\n".encode())
        self.file("etc/nsswitch.conf", b"hosts: files dns\n")
        self.folder("home/nonroot", 0o700, USER)
        self.folder("tmp", 0o1777)

    def write(self, target):
        with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
            for _, (entry, content) in sorted(self.entries.items()):
                if isinstance(content, pathlib.Path):
                    with content.open("rb") as file:
                        archive.addfile(entry, file)
                else:
                    archive.addfile(entry, io.BytesIO(content or b""))


def write(target, repository, tags, layer, command=()):
    """Writes an archive with a one-layer image for each tag, and returns the digests by tag."""
    tree = target.with_suffix(".layer")
    layer.write(tree)
    with tree.open("rb") as file:
        whole_layer = _described("layer.v1.tar", hashlib.file_digest(file, "sha256").hexdigest(), tree.stat().st_size)
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Cmd": list(command),
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [whole_layer["digest"]]},
    }
    digests = _write_tagged(target, repository, tags, config, [(whole_layer, tree)])
    tree.unlink()
    return digests


def _write_tagged(target, repository, tags, config, layers):
    """Writes an archive with an image for each tag, which differ by a label only, and returns the digests by tag. The images can
    be named by tag and by digest. Each layer is its descriptor and its content."""
    whole = Layer()
    whole.file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    for described, content in layers:
        whole.file(_blob(described), content)

    def add(media, value):
        content = json.dumps(value).encode()
        described = _described(media, hashlib.sha256(content).hexdigest(), len(content))
        whole.file(_blob(described), content)
        return described

    digests, manifests = {}, []
    for tag in tags:
        settings = config["config"]
        labels = {**settings.get("Labels", {}), "org.opencontainers.image.version": tag}
        described = add("config.v1+json", {**config, "config": {**settings, "Labels": labels}})
        media = "manifest.v1+json"
        manifest = add(
            media,
            {
                "schemaVersion": 2,
                "mediaType": f"{KIND}.{media}",
                "config": described,
                "layers": [layer for layer, _ in layers],
            },
        )
        digests[tag] = manifest["digest"]
        for name in [f"{repository}:{tag}", f"{repository}@{manifest['digest']}"]:
            manifests.append({**manifest, "annotations": {"io.containerd.image.name": f"{REGISTRY}/{name}"}})
    whole.file("index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
    whole.write(target)
    return digests


class Archive:
    """The image in an archive that a builder has written."""

    def __init__(self, path):
        self.tar = tarfile.open(path)
        (manifest,) = json.loads(self._read("index.json"))["manifests"]
        self.digest = manifest["digest"]
        manifest = json.loads(self._read(_blob(manifest)))
        self.layers = manifest["layers"]
        self.config = json.loads(self._read(_blob(manifest["config"])))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tar.close()

    def _read(self, name):
        return self.tar.extractfile(name).read()

    def sizes(self):
        """Returns all layers' bytes, as they are in the archive and as tar files."""
        unpacked = sum(len(gzip.decompress(self._read(_blob(layer)))) for layer in self.layers)
        return sum(layer["size"] for layer in self.layers), unpacked

    def binaries(self, folder):
        """Writes the platform's binaries into a folder, and returns their paths."""
        for layer in self.layers:
            with tarfile.open(fileobj=self.tar.extractfile(_blob(layer))) as tree:
                for entry in tree:
                    if entry.isfile() and entry.name.removeprefix("./") in [f"usr/local/bin/{name}" for name in BINARIES]:
                        path = folder / pathlib.Path(entry.name).name
                        path.write_bytes(tree.extractfile(entry).read())
                        path.chmod(entry.mode)
        return [folder / name for name in BINARIES]

    def write_tagged(self, target, repository, tags):
        """Writes an archive with this image under each tag, and returns the digests by tag."""
        layers = [(layer, self._read(_blob(layer))) for layer in self.layers]
        return _write_tagged(target, repository, tags, self.config, layers)


def _described(media, digest, size):
    return {"mediaType": f"{KIND}.{media}", "digest": f"sha256:{digest}", "size": size}


def _blob(described):
    return f"blobs/{described['digest'].replace(':', '/')}"


def runtime_layer():
    """Returns the tree for the image that the platform's image is based on, without a shell, as in distroless."""
    layer = Layer()
    layer.tree(packages.runtime_root())
    return layer


def platform_layer(binaries):
    """Returns the platform image's tree with a folder's binaries, as the Dockerfile makes it."""
    layer = runtime_layer()
    for name in ["usr/local", "usr/local/bin"]:
        layer.folder(name)
    for name in BINARIES:
        layer.file(f"usr/local/bin/{name}", binaries / name, 0o755)
    for name in ["assay", "assay/artifacts", "assay/mail"]:
        layer.folder(f"var/lib/{name}", owner=USER)
    return layer


def curl_layer():
    """Returns the tree for an image with curl and a shell, for the chart's test."""
    layer = Layer()
    layer.tree(packages.curl_root())
    return layer


def pause_layer(program):
    layer = Layer()
    layer.file("pause", program, 0o755)
    return layer


def pause_program():
    """Returns the program that keeps a pod's namespaces, built when it is needed first."""
    source, target = pathlib.Path(__file__).parent / "pause/main.go", program("pause")
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "0"}
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, source]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise packages.Unavailable(f"the program {target.name} cannot be built: {made.stderr}")
    return target


def make(folder, binaries, archive=None):
    """Writes all images into a folder, and returns the platform image's digests by tag. It contains the binaries in the folder
    `binaries`, or it is an archive's image. The folder also gets the binaries."""
    own = folder / "binaries"
    own.mkdir(parents=True, exist_ok=True)
    write(folder / "pause.tar", "pause", ["test"], pause_layer(pause_program()), ["/pause"])
    write(folder / "curl.tar", "curl", ["test"], curl_layer(), ["curl"])
    if archive:
        with Archive(archive) as image:
            image.binaries(own)
            return image.write_tagged(folder / "assay.tar", "assay", TAGS)
    for name in BINARIES:
        # The symbols are most of a debug build.
        subprocess.run(["strip", "-o", own / name, binaries / name], check=True)
    return write(folder / "assay.tar", "assay", TAGS, platform_layer(own), ["assay-api", "serve"])
