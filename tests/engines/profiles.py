"""The models that this folder's servers offer, and the tensors in their two profiles.

- `codes` is the bare network. It offers `logits`, and `items` with `scores` for packages that declare `topk`.
- `ids` has an item table and the API's parameters.
- `codes-FAULT` and `ids-FAULT` are the same models with a fault. It occurs in calls that contain the item `trigger`.
  Other calls succeed, so these models can be published.
"""

import json
import math
import os
from typing import NamedTuple

import numpy as np

from network import PACKAGES, Network, log_softmax

PROFILES = ("codes", "ids")
FAULTS = {
    "wrong-shape": "scores, logits and embeddings have one column too few",
    "nan": "the first score, logit or number of the embedding is NaN",
    "missing-row": "the last row is missing",
    "slow": "the response takes SLOW_SECONDS",
    "hanging": "there is no response; the call ends when its caller has gone",
    "error": "the model raises an exception",
}
NAMES = [*PROFILES, *(f"{profile}-{fault}" for profile in PROFILES for fault in FAULTS)]
VERSION = "1"
MAX_ROWS = 64
TRIGGER = "trigger"


class Tensor(NamedTuple):
    """A tensor's metadata. Its shape has no batch dimension; -1 is any size."""

    name: str
    datatype: str
    shape: list
    is_optional: bool = False


def read_items():
    """Returns the item codes."""
    lines = (PACKAGES / "embedded" / "items.ndjson").read_text(encoding="utf-8").splitlines()
    return {item["item_id"]: int(item["code"]) for item in map(json.loads, lines)}


class Model:
    """A model with this name. Servers call `delay`, wait for that time and then call `infer`."""

    def __init__(self, name):
        if name not in NAMES:
            raise ValueError(f"there is no model {name}; use one of {', '.join(NAMES)}")
        self.profile, _, self.fault = name.partition("-")
        self.network = Network.load(PACKAGES / "embedded")
        self.codes = read_items()
        self.inputs, self.outputs = (self.codes_tensors if self.profile == "codes" else self.ids_tensors)()

    def codes_tensors(self):
        inputs = [Tensor("codes", "INT64", [-1, 1]), Tensor("lengths", "INT64", [1])]
        outputs = [
            Tensor("logits", "FP32", [self.network.n_codes]),
            Tensor("embedding", "FP32", [self.network.dim]),
            Tensor("items", "INT64", [len(self.codes)]),
            Tensor("scores", "FP32", [len(self.codes)]),
        ]
        return inputs, outputs

    def ids_tensors(self):
        inputs = [
            Tensor("item_ids", "BYTES", [-1]),
            Tensor("lengths", "INT64", [1]),
            Tensor("types", "BYTES", [-1], True),
            Tensor("options", "BYTES", [-1], True),
            Tensor("option_counts", "INT64", [1], True),
        ]
        outputs = [Tensor("item_ids", "BYTES", [-1]), Tensor("scores", "FP32", [-1]), Tensor("embedding", "FP32", [-1])]
        counts = ("counts", "n_scored", "n_used", "n_unknown", "refusals")
        return inputs, outputs + [Tensor(name, "INT64", [1]) for name in counts]

    def is_faulty(self, inputs):
        if not self.fault:
            return False
        if self.profile == "codes":
            lengths = inputs["lengths"].ravel()
            return any(self.codes[TRIGGER] in row[:length].ravel() for row, length in zip(inputs["codes"], lengths))
        return TRIGGER.encode() in inputs["item_ids"].ravel()

    def delay(self, inputs):
        """Returns the seconds before the response; infinity if there is none."""
        if not self.is_faulty(inputs):
            return 0
        return {"slow": float(os.environ.get("SLOW_SECONDS", "10")), "hanging": math.inf}.get(self.fault, 0)

    def infer(self, inputs, parameters, wanted=()):
        """Returns the output tensors; only the wanted ones if any are named. BYTES tensors contain bytes."""
        is_faulty = self.is_faulty(inputs)
        if is_faulty and self.fault == "error":
            raise RuntimeError("the model failed on purpose")
        if self.profile == "codes":
            outputs = self.infer_codes(inputs)
        else:
            outputs = self.infer_ids(inputs, parameters)
        if is_faulty:
            outputs = {name: self.distort(values) for name, values in outputs.items()}
        return {name: values for name, values in outputs.items() if not wanted or name in wanted}

    def distort(self, values):
        if self.fault == "missing-row":
            return values[:-1]
        if values.dtype == np.float32 and self.fault == "wrong-shape":
            return values[:, :-1]
        if values.dtype == np.float32 and self.fault == "nan":
            values[0, 0] = np.nan
        return values

    def infer_codes(self, inputs):
        codes, lengths = inputs["codes"], inputs["lengths"].ravel()
        states = [self.network.states(row[:length, 0])[-1] for row, length in zip(codes, lengths, strict=True)]
        logits = np.stack([self.network.logits(state) for state in states])
        scores = np.stack([log_softmax(row) for row in logits])[:, list(self.codes.values())]
        items = np.argsort(-scores, axis=1, kind="stable")
        scores = np.take_along_axis(scores, items, axis=1)
        return {"logits": logits, "embedding": np.stack(states), "items": items, "scores": scores}

    def infer_ids(self, inputs, parameters):
        operation = parameters.get("operation")
        if operation not in ("predict", "embed"):
            raise ValueError(f"operation is {operation}; this model offers predict and embed")
        row_of = self.predict_row if operation == "predict" else self.embed_row
        counts = inputs.get("option_counts", np.full(len(inputs["lengths"]), -1)).ravel()
        rows = []
        for row, (length, count) in enumerate(zip(inputs["lengths"].ravel(), counts, strict=True)):
            ids = inputs["item_ids"][row][:length].tolist()
            options = None if count < 0 else inputs["options"][row][:count].tolist()
            rows.append(self.refused(ids, parameters) or row_of(ids, options, parameters))
        # Columns in refused and short rows are filled with zeros and empty strings, also if all rows are refused.
        longest = max(1, *(len(row.get("item_ids", ())) for row in rows))
        widths = {"item_ids": longest, "scores": longest, "embedding": self.network.dim}
        absent = ("embedding",) if operation == "predict" else ("item_ids", "scores", "counts", "n_scored")
        outputs = {}
        for tensor in self.outputs:
            if tensor.name in absent:
                continue
            kind = {"INT64": np.int64, "FP32": np.float32, "BYTES": object}[tensor.datatype]
            values = np.full((len(rows), widths.get(tensor.name, 1)), b"" if kind is object else 0, kind)
            for at, row in enumerate(rows):
                some = row.get(tensor.name, ())
                values[at, :len(some)] = some
            outputs[tensor.name] = values
        return outputs

    def known(self, ids):
        return [self.codes[item] for item in map(bytes.decode, ids) if item in self.codes]

    def refused(self, ids, parameters):
        """Returns a refused sequence's row, or None."""
        for number, item in enumerate(ids, 1):
            if parameters.get("on_unknown") == "refuse" and item.decode() not in self.codes:
                return {"refusals": [number]}
        if parameters.get("on_long") == "refuse" and len(self.known(ids)) > self.network.context_length:
            return {"refusals": [-1]}
        return None

    def encode(self, ids):
        """Returns a sequence's states, and its counts."""
        known = self.known(ids)
        used = known[-self.network.context_length:]
        counts = {"n_used": [len(used)], "n_unknown": [len(ids) - len(known)], "refusals": [0]}
        return self.network.states(used), counts

    def predict_row(self, ids, options, parameters):
        states, counts = self.encode(ids)
        scores = log_softmax(self.network.logits(states[-1]))
        seen = set(ids) if parameters.get("exclude_seen") else set()
        candidates = [item.encode() for item in self.codes] if options is None else options
        candidates = [item for item in candidates if item not in seen]
        code_of = {item: self.codes.get(item.decode()) for item in candidates}
        scored = [item for item in candidates if code_of[item] is not None]
        scored.sort(key=lambda item: (-scores[code_of[item]], code_of[item]))
        unknown = [item for item in candidates if code_of[item] is None]
        # top_k is at least 1; without it all options come back.
        top_k = parameters.get("top_k") or (10 if options is None else len(options))
        ranking = (scored + unknown)[:top_k]
        n_scored = min(len(scored), top_k)
        counts |= {"counts": [len(ranking)], "n_scored": [n_scored]}
        return counts | {"item_ids": ranking, "scores": [scores[code_of[item]] for item in ranking[:n_scored]]}

    def embed_row(self, ids, _options, parameters):
        states, counts = self.encode(ids)
        vector = states.mean(0) if parameters.get("pooling") == "mean" else states[-1]
        if parameters.get("normalize", True):
            vector = vector / np.linalg.norm(vector)
        return counts | {"embedding": vector}
