"""A small `assay-seq-1` network with one code level, in numpy.

Every sequence is computed alone, so a call's row has the same result in every call.
"""

import json
from pathlib import Path

import numpy as np

PACKAGES = Path(__file__).parent / "packages"


def read_tensors(path):
    """Returns a safetensors file's tensors by name. They must be F32."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: tensor {name} is {entry['dtype']}; write it as F32")
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(content[start + first:start + last], "<f4").reshape(entry["shape"])
    return tensors


def write_tensors(path, tensors):
    """Writes float32 tensors as a safetensors file."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.astype("<f4").tobytes() for tensor in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def random_tensors(seed, codes, dim, layers, context_length):
    """Returns an untrained network's tensors. The embeddings are large, so that scores differ clearly."""
    # RandomState's values never change between numpy versions.
    rng = np.random.RandomState(seed)

    def normal(scale, *shape):
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    tensors = {
        "item_embedding.0": normal(1, codes, dim),
        "position_embedding": normal(0.5, context_length, dim),
        "start": normal(1, dim),
    }

    def linear(name, outputs, inputs):
        tensors[f"{name}.weight"] = normal(inputs ** -0.5, outputs, inputs)
        tensors[f"{name}.bias"] = normal(0.1, outputs)

    def norm(name):
        tensors[f"{name}.weight"] = 1 + normal(0.1, dim)
        tensors[f"{name}.bias"] = normal(0.1, dim)

    for block in range(layers):
        norm(f"blocks.{block}.norm1")
        norm(f"blocks.{block}.norm2")
        for part in ("query", "key", "value", "output"):
            linear(f"blocks.{block}.attention.{part}", dim, dim)
        linear(f"blocks.{block}.up", 4 * dim, dim)
        linear(f"blocks.{block}.down", dim, 4 * dim)
    norm("norm")
    tensors["heads.0.weight"] = normal(dim ** -0.5, codes, dim)
    linear("mixers.0", dim, dim)
    return tensors


class Network:
    """The network with its settings in `model.json`."""

    def __init__(self, tensors, serving):
        if serving["activation"] != "relu":
            raise ValueError(f"activation {serving['activation']} is unknown; use relu")
        self.tensors = tensors
        self.layers, self.heads, self.epsilon = serving["layers"], serving["heads"], serving["norm_eps"]
        self.context_length = len(tensors["position_embedding"])
        self.n_codes, self.dim = tensors["item_embedding.0"].shape

    @classmethod
    def load(cls, package):
        """Loads the network from an embedded engine's package."""
        serving = json.loads((package / "model.json").read_text())["serving"]
        return cls(read_tensors(package / "weights.safetensors"), serving)

    def linear(self, name, x):
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self.epsilon))
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def attention(self, name, x):
        def split(part):
            return self.linear(f"{name}.{part}", x).reshape(len(x), self.heads, -1).swapaxes(0, 1)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.swapaxes(1, 2) * np.float32((self.dim / self.heads) ** -0.5)
        is_future = np.triu(np.ones((len(x), len(x)), bool), 1)
        scores = np.where(is_future, np.float32(-np.inf), scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.linear(f"{name}.output", (weights @ value).swapaxes(0, 1).reshape(x.shape))

    def states(self, codes):
        """Returns all positions' states. The first is the start vector's."""
        if len(codes) > self.context_length:
            raise ValueError(f"there are {len(codes)} events; send at most {self.context_length}")
        if not all(0 <= code < self.n_codes for code in codes):
            raise ValueError(f"a code is not between 0 and {self.n_codes - 1}")
        events = self.tensors["item_embedding.0"][list(codes)] + self.tensors["position_embedding"][:len(codes)]
        x = np.concatenate([self.tensors["start"][None], events])
        for block in range(self.layers):
            name = f"blocks.{block}"
            x = x + self.attention(f"{name}.attention", self.norm(f"{name}.norm1", x))
            hidden = np.maximum(self.linear(f"{name}.up", self.norm(f"{name}.norm2", x)), 0)
            x = x + self.linear(f"{name}.down", hidden)
        return self.norm("norm", x)

    def logits(self, state):
        """Returns all codes' scores after a state, before the softmax."""
        mixed = state + np.maximum(self.linear("mixers.0", state), 0)
        return self.tensors["heads.0.weight"] @ mixed


def log_softmax(logits):
    """Returns natural-log probabilities."""
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
