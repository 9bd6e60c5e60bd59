"""Runs Triton Inference Server, from the package nvidia-pytriton, with `profiles.py`'s models on 127.0.0.1.

    python triton_engine.py GRPC_PORT FOLDER
    python triton_engine.py --check

Prints {"ready": true, "grpc": GRPC_PORT} when the models can be called. Ends on SIGTERM. FOLDER is empty, and receives
the model repository. `--check` needs no packages, and fails with the reason if this Python cannot run Triton.
"""

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

# pytriton has programs for newer versions too, but requires numpy < 2, which has no wheels for them.
VERSIONS = [(3, 11), (3, 12)]
EXIT_TIMEOUT = 4
PR_SET_PDEATHSIG = 1


def library_folder():
    """Returns the folder with this Python's shared library. Exits if Triton cannot run with this Python.

    Triton runs models in a program that is linked against libpython3.X. With another Python's library in the same
    minor version, the standard library does not match, and models fail to load.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit("Triton needs Linux on x86-64")
    if sys.version_info[:2] not in VERSIONS:
        sys.exit(f"Triton needs Python 3.11 or 3.12, and {sys.executable} is {platform.python_version()}")
    library = Path(sysconfig.get_config_var("LIBDIR"), f"libpython3.{sys.version_info.minor}.so.1.0")
    if not library.is_file():
        # Debian has it in a package, such as libpython3.11. Other Pythons are built with --enable-shared.
        sys.exit(f"Triton needs a Python with a shared library, and {sys.executable} has no {library}")
    return library.parent


def write_models(repository):
    """Writes a configuration and a module for each model."""
    from profiles import MAX_ROWS, NAMES, VERSION, Model

    def tensors(kind, tensors):
        blocks = []
        for tensor in tensors:
            datatype = tensor.datatype.replace("BYTES", "STRING")
            optional = " optional: true" if tensor.is_optional else ""
            blocks.append(f'{{ name: "{tensor.name}" data_type: TYPE_{datatype} dims: {tensor.shape}{optional} }}')
        return f"{kind} [\n  " + ",\n  ".join(blocks) + "\n]\n"

    for name in NAMES:
        model = Model(name)
        folder = repository / name
        (folder / VERSION).mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("triton_model.py"), folder / VERSION / "model.py")
        (folder / "config.pbtxt").write_text(
            f'backend: "python"\nmax_batch_size: {MAX_ROWS}\n'
            + tensors("input", model.inputs)
            + tensors("output", model.outputs)
            + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        )


def write_backend(backends, installed):
    """Writes a folder with the Python backend and the stub, the program that runs models, for this Python.

    The server looks for the stub next to the backend. The package has one for each version, in other folders.
    """
    backend = backends / "python"
    shutil.copytree(installed / "backends" / "python", backend)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(installed / "python_backend_stubs" / version / "triton_python_backend_stub", backend)


def die_with_parent():
    """Makes the kernel kill the server when this process ends in any way. Its stubs then end by themselves."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(port, folder):
    """Starts the server in its own process group and returns its process."""
    import pytriton

    installed = Path(pytriton.__file__).parent / "tritonserver"
    write_models(folder / "models")
    write_backend(folder / "backends", installed)
    environment = os.environ | {
        # The stub uses the first python3 on PATH, and its packages.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ENGINE_SOURCES": str(Path(__file__).resolve().parent),
        "LD_LIBRARY_PATH": f"{library_folder()}:{installed.parent.parent / 'nvidia_pytriton.libs'}",
    }
    arguments = [
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={folder / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix()}",
        # Without this, each model is started twice.
        "--disable-auto-complete-config",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={port}",
        "--allow-http=false",
        "--allow-metrics=false",
        f"--exit-timeout-secs={EXIT_TIMEOUT}",
    ]
    return subprocess.Popen(
        [installed / "bin" / "tritonserver", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=die_with_parent,
        start_new_session=True,
    )


def shared_memory_prefix():
    return f"assay_triton_{os.getpid()}_"


def stop(server):
    """Stops the server and its stubs, and removes killed ones' shared memory."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.terminate()
    try:
        # The server waits for running calls for its timeout, and unloads models for its timeout.
        server.wait(2 * EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    server.wait()
    for region in Path("/dev/shm").glob(f"{shared_memory_prefix()}*"):
        region.unlink(missing_ok=True)


def main():
    if sys.argv[1:] == ["--check"]:
        library_folder()
        return
    from readiness import report_ready

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    server = start(int(sys.argv[1]), Path(sys.argv[2]))
    try:
        report_ready(int(sys.argv[1]), sys.stdout, lambda: server.poll() is None)
        sys.exit(f"the server ended by itself with status {server.wait()}")
    finally:
        stop(server)


if __name__ == "__main__":
    main()
