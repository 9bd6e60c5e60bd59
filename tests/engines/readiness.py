"""Waits until an engine's gRPC server is ready."""

import json
import time

import grpc

from profiles import NAMES, VERSION

START_TIMEOUT = 120
CALL_TIMEOUT = 5
POLL_INTERVAL = 0.05


def is_ready(channel, method, request):
    # Of each response only field 1 is read, a boolean.
    call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}", None, None)
    try:
        return call(request, timeout=CALL_TIMEOUT) == b"\x08\x01"
    except grpc.RpcError:
        return False


def model_request(name):
    """Returns an encoded ModelReadyRequest: name 1, version 2."""
    fields = [(0x0A, name.encode()), (0x12, VERSION.encode())]
    return b"".join(bytes([tag, len(text)]) + text for tag, text in fields)


def report_ready(port, output, is_running):
    """Writes {"ready": true, "grpc": port} when all models are ready. Raises if the server stops or takes too long."""
    started = time.monotonic()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        while not (
            is_ready(channel, "ServerReady", b"")
            and all(is_ready(channel, "ModelReady", model_request(name)) for name in NAMES)
        ):
            if not is_running():
                raise RuntimeError("the server stopped before it was ready; its log is above")
            if time.monotonic() - started > START_TIMEOUT:
                raise RuntimeError(f"the server was not ready within {START_TIMEOUT} s; its log is above")
            time.sleep(POLL_INTERVAL)
    print(json.dumps({"ready": True, "grpc": port}), file=output, flush=True)
