"""Runs MLServer with `profiles.py`'s models on 127.0.0.1.

    python mlserver_engine.py GRPC_PORT

Prints {"ready": true, "grpc": GRPC_PORT} when the models can be called. Ends on SIGTERM.
"""

import asyncio
import json
import math
import os
import sys
import threading
import traceback

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters
from mlserver.types import InferenceResponse, MetadataTensor, ResponseOutput

from profiles import NAMES, VERSION, Model
from readiness import report_ready

TYPES = {"INT64": np.int64, "FP32": np.float32, "BYTES": object}


class Runtime(MLModel):
    async def load(self):
        self.model = Model(self.name)

        def metadata(tensors):
            # MLServer's metadata includes the batch dimension.
            return [MetadataTensor(name=t.name, datatype=t.datatype, shape=[-1, *t.shape]) for t in tensors]

        self.inputs, self.outputs = metadata(self.model.inputs), metadata(self.model.outputs)
        return True

    async def predict(self, payload):
        inputs = {
            tensor.name: np.array(list(tensor.data), TYPES[tensor.datatype]).reshape(tensor.shape)
            for tensor in payload.inputs
        }
        delay = self.model.delay(inputs)
        await (asyncio.Event().wait() if delay == math.inf else asyncio.sleep(delay))
        parameters = payload.parameters.model_dump() if payload.parameters else {}
        # The requested outputs are ignored, as MLServer's own runtimes do. Clients select outputs by name.
        outputs = self.model.infer(inputs, parameters)
        datatypes = {tensor.name: tensor.datatype for tensor in self.model.outputs}
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                ResponseOutput(name=name, shape=values.shape, datatype=datatypes[name], data=values.ravel().tolist())
                for name, values in outputs.items()
            ],
        )


def report_or_exit(port, output):
    try:
        report_ready(port, output, lambda: True)
    except BaseException:
        traceback.print_exc()
        # An exception in this thread would not stop the server.
        os._exit(1)


async def main(port, output):
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        grpc_port=port,
        # The REST server cannot be disabled. It listens on any free port.
        http_port=0,
        metrics_endpoint=None,
        # Models run in this process. Worker processes could outlive it.
        parallel_workers=0,
    )
    server = MLServer(settings)
    models = [
        ModelSettings(name=name, implementation=Runtime, parameters=ModelParameters(version=VERSION)) for name in NAMES
    ]
    # The calls need their own thread, as the event loop serves them.
    threading.Thread(target=report_or_exit, args=(port, output), daemon=True).start()
    await server.start(models)


if __name__ == "__main__":
    # MLServer logs to standard output, which is for report_ready's line only.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(main(int(sys.argv[1]), output))
