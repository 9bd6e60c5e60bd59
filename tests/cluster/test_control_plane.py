"""Tests that a control plane leaves nothing behind, and shows why a program has ended."""

import pathlib
import signal
import subprocess
import sys

import pytest

import control_plane

# A control plane with a program instead of its own, which are slow to start.
CODE = """
import signal
import control_plane
# A program in the background ignores interrupts, and so do those that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
plane = control_plane.ControlPlane()
print(plane.folder, plane.processes.start("sleep", "sleep", "1000").pid, flush=True)
{then}
"""


def start(then):
    command = [sys.executable, "-c", CODE.format(then=then)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent)
    folder, pid = process.stdout.readline().split()
    process.stdout.close()
    return process, pathlib.Path(folder), pathlib.Path("/proc", pid)


@pytest.mark.parametrize("cause", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_test_leaves_nothing(cause):
    process, folder, program = start("while True: pass")
    assert folder.exists() and program.exists()
    process.send_signal(cause)
    process.wait()
    control_plane.wait_for(lambda: not folder.exists() and not program.exists(), 20, f"{folder} or {program} remains")


def test_stopped_control_plane_leaves_nothing():
    process, folder, program = start("plane.stop()")
    assert process.wait() == 0
    assert not folder.exists() and not program.exists()


def test_end_of_log_is_shown(tmp_path):
    processes = control_plane.Processes(tmp_path)
    processes.start("program", "sh", "-c", "echo the reason; exit 3")
    with pytest.raises(AssertionError, match="program has ended with 3\nthe reason"):
        processes.ready("program", lambda: False)


def test_reserved_port_can_be_shared_only():
    ports = control_plane.Ports()
    port = ports.reserve("127.0.0.1")
    with control_plane.socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
    ports.release()
