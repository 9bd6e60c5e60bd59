"""Tests that the private machine ends without a trace, and that a trace would be found."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import control_plane
import inside

if os.geteuid() != 0 or inside.FOLDER in os.environ:
    pytest.skip("needs root, and no namespaces around it", allow_module_level=True)

PROGRAM = [sys.executable, inside.__file__]


def processes(word):
    """Returns the processes whose arguments contain a word."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                found.append(process.name)
        except OSError:
            pass
    return found


@pytest.mark.parametrize("status", [0, 3])
def test_status_of_command_is_returned(status):
    made = subprocess.run([*PROGRAM, "sh", "-c", f"sleep 1000 & exit {status}"], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (status, "")


@pytest.mark.parametrize("cause", [signal.SIGKILL, signal.SIGTERM])
def test_killed_program_leaves_no_process(cause):
    word = f"{time.time():.6f}"
    with subprocess.Popen([*PROGRAM, "sh", "-c", f"sleep 1000; : {word}"]) as program:
        control_plane.wait_for(lambda: len(processes(word)) >= 3, control_plane.START_TIMEOUT, "three processes")
        program.send_signal(cause)
        program.wait()
    if cause == signal.SIGTERM:
        assert not list(pathlib.Path(tempfile.gettempdir()).glob(f"{inside.PREFIX}{program.pid}"))
        assert not list(inside.GROUPS.glob(f"**/{inside.PREFIX}{program.pid}"))
    control_plane.wait_for(lambda: not processes(word), control_plane.START_TIMEOUT, lambda: processes(word))


def test_traces_are_found(tmp_path):
    before = inside.interfaces()
    assert inside.remains(tmp_path, before) == []
    (tmp_path / "file").touch()
    environment = {**os.environ, inside.FOLDER: str(tmp_path)}
    with subprocess.Popen(["unshare", "--mount", "sleep", "1000"], env=environment) as process:
        found = "\n".join(inside.remains(tmp_path, before - {"lo"}))
        process.kill()
    for kind in ["interface lo", f"process {process.pid}", "files in"]:
        assert kind in found, found
