"""`profiles.py`'s models for Triton's Python backend, which runs one process for each."""

import json
import os
import sys
import time

import triton_python_backend_utils as triton

# Triton ignores PYTHONPATH and PYTHONDONTWRITEBYTECODE.
sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["ENGINE_SOURCES"])
from profiles import Model

POLL_INTERVAL = 0.02


class TritonPythonModel:
    def initialize(self, args):
        self.model = Model(args["model_name"])

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        response_time = time.monotonic() + self.model.delay(inputs)
        # Triton does not end or skip a call whose caller has gone, so a model that hangs would block all later calls.
        while not (is_cancelled := request.is_cancelled()) and time.monotonic() < response_time:
            time.sleep(POLL_INTERVAL)
        try:
            if is_cancelled:
                raise RuntimeError("the caller has cancelled the call, or its deadline is over")
            outputs = self.model.infer(inputs, json.loads(request.parameters()), request.requested_output_names())
        except Exception as error:
            return triton.InferenceResponse(error=triton.TritonError(str(error)))
        return triton.InferenceResponse([triton.Tensor(name, values) for name, values in outputs.items()])
