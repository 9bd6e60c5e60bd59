"""Compares the engine with PyTorch and onnxruntime on the same weights: CPU milliseconds per sequence, one thread.

    python -m venv target/peers/engine-venv && target/peers/engine-venv/bin/pip install -r tests/peers/engine-requirements.txt
    cargo build --release -p assay-engine --example measure
    target/peers/engine-venv/bin/python tests/peers/engine.py [--dim 64] [--layers 2] [--events 50] [--activation relu] [--rounds 5]

PyTorch installs 5.5 GB. The models have random weights and 10,000 items: r has three levels with 256 codes, s has one level
with 10,000. "encode + head" is the transformer and the first level's logits. "top 10" is all of `predict`.

Each peer computes the network in two ways: all positions, as the reference in worker/engine/tests/golden does, and only what
the last position needs, with one product for queries, keys and values. The peers get codes as tensors; the engine gets item
ids. Programs alternate, so that other load on the machine affects all alike. The figures are the minimum and the median over
the rounds, each round with 100 sequences. The script fails if the programs compute different logits.
"""

import argparse
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import time

# Before the libraries are loaded: their thread pools spin while they wait, which counts as CPU time.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "worker/engine/tests/golden"))
try:
    import numpy
    import onnxruntime
    import torch
    from safetensors.torch import save_file
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"{error.name} is not installed. See the commands at the beginning of {pathlib.Path(__file__).name}.")

from reference import ACTIVATIONS, AssaySeq

N_ITEMS, N_HISTORIES = 10_000, 100
CODEBOOKS = {
    "r": {"levels": 3, "resolution": "uniform", "base_size": 256},
    "s": {"levels": 1, "resolution": "uniform", "base_size": N_ITEMS},
}


class AllPositions(torch.nn.Module):
    """All positions' states, and the last one's logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, codes):
        return self.network.level_logits(self.network(codes)[:, -1], None, 0)


class LastPosition(torch.nn.Module):
    """The same logits. Only the last position passes the last block after its keys and values."""

    def __init__(self, network, activation):
        super().__init__()
        self.network, self.activation = network, ACTIVATIONS[activation]
        for at, block in enumerate(network.blocks):
            parts = [block.attention.query, block.attention.key, block.attention.value]
            self.register_buffer(f"weight{at}", torch.cat([part.weight for part in parts]))
            self.register_buffer(f"bias{at}", torch.cat([part.bias for part in parts]))

    def forward(self, codes):
        network = self.network
        events = network.embed_codes(codes, codes.shape[-1]) + network.position_embedding[: codes.shape[1]]
        x = torch.cat([network.start.expand(len(codes), 1, -1), events], dim=1)
        for at, block in enumerate(network.blocks):
            split = lambda y: y.unflatten(-1, (block.attention.heads, -1)).transpose(1, 2)
            projected = F.linear(block.norm1(x), getattr(self, f"weight{at}"), getattr(self, f"bias{at}"))
            query, key, value = map(split, projected.chunk(3, dim=-1))
            is_last = at + 1 == len(network.blocks)
            if is_last:
                x, query = x[:, -1:], query[:, :, -1:]
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=not is_last)
            x = x + block.attention.output(attended.transpose(1, 2).flatten(-2))
            x = x + block.down(self.activation(block.up(block.norm2(x))))
        return network.level_logits(network.norm(x)[:, -1], None, 0)


def write(folder, model, options):
    """Writes a package with random weights, and histories. Returns the network and the histories as codes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = numpy.random.default_rng(7)
    network = AssaySeq(model)
    weights = {}
    for name, parameter in network.state_dict().items():
        drawn = rng.standard_normal(tuple(parameter.shape)) / parameter.shape[-1] ** 0.5
        is_norm = "norm" in name and name.endswith("weight")
        weights[name] = torch.tensor(drawn + is_norm, dtype=torch.float32)
    network.load_state_dict(weights)
    save_file(weights, folder / "weights.safetensors")
    (folder / "model.json").write_text(json.dumps(model))
    levels, size = model["codebook"]["levels"], model["codebook"]["base_size"]
    numbers = rng.choice(size**levels, N_ITEMS, replace=False)
    codes = [[int(number) // size**level % size for level in range(levels)] for number in numbers]
    rows = [{"item_id": f"item-{at}", "code": "-".join(map(str, code))} for at, code in enumerate(codes)]
    (folder / "items.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    histories = [[int(at) for at in rng.integers(N_ITEMS, size=options.events)] for _ in range(N_HISTORIES)]
    (folder / "histories.json").write_text(json.dumps([[f"item-{at}" for at in history] for history in histories]))
    return network.eval(), [torch.tensor([[codes[at] for at in history]]) for history in histories]


def exported(folder, name, module, codes):
    """Returns a session of onnxruntime with one thread for a module's ONNX export."""
    path = folder / f"{name}.onnx"
    torch.onnx.export(module, (codes,), str(path), input_names=["codes"], output_names=["logits"], dynamo=True, verbose=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda codes: session.run(None, {"codes": codes})[0]


def timed(compute, inputs):
    """Returns the CPU milliseconds per input, and the first result."""
    start = time.process_time()
    results = [compute(one) for one in inputs]
    return (time.process_time() - start) * 1000 / len(inputs), numpy.asarray(results[0]).ravel()


def engine(folder, operation, rounds):
    """Returns the CPU milliseconds per sequence in each round, and the first result."""
    command = [ROOT / "target/release/examples/measure", folder, operation, str(rounds)]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return printed["ms"], printed["first"]


@torch.inference_mode()
def compare(name, options):
    """Measures one model and prints its table."""
    folder = ROOT / f"target/peers/engine-{name}{options.dim}"
    model = {
        "id": name, "task": "next-event", "status": "beta", "version": "1", "context_length": options.events,
        "requires_tokenizer": True, "endpoints": ["predict"], "embedding_dim": options.dim, "codebook": CODEBOOKS[name],
        "serving": {
            "engine": "default", "architecture": "assay-seq-1", "dim": options.dim, "layers": options.layers,
            "heads": options.heads, "norm_eps": 1e-5, "activation": options.activation,
        },
    }  # fmt: skip
    network, histories = write(folder, model, options)
    modules = {"all positions": AllPositions(network), "last position": LastPosition(network, options.activation)}
    peers = {f"PyTorch, {form}": (module.eval(), histories) for form, module in modules.items()}
    arrays = [codes.numpy() for codes in histories]
    for form, module in modules.items():
        peers[f"onnxruntime, {form}"] = (exported(folder, form.split()[0], module, histories[0]), arrays)
    found = {"engine, encode + head": [], "engine, top 10": []} | {peer: [] for peer in peers}
    for _ in range(options.rounds):
        times, logits = engine(folder, "logits", 20)
        found["engine, encode + head"] += times
        found["engine, top 10"] += engine(folder, "predict", 20)[0]
        for peer, (compute, inputs) in peers.items():
            for _ in range(10):
                spent, result = timed(compute, inputs)
                found[peer].append(spent)
            difference = numpy.abs(result - numpy.array(logits)).max()
            if difference > 1e-4:
                sys.exit(f"{peer} differs from the engine by {difference}")
    least = {program: min(times) for program, times in found.items()}
    fastest = {kind: min(ms for program, ms in least.items() if program.startswith(kind)) for kind in ("PyTorch", "onnxruntime")}
    codebook = model["codebook"]
    print(f"\n{name}{options.dim}: {codebook['levels']} × {codebook['base_size']} codes, {options.layers} layers, {options.events} events, {options.activation}")
    for program, times in found.items():
        line = f"{program:28} {least[program]:8.3f} ms, median {statistics.median(times):8.3f}"
        if program.startswith("engine"):
            line += "".join(f"   {least[program] / ms:.2f} × {kind}" for kind, ms in fastest.items())
        print(line)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--dim", type=int, default=64)
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--heads", type=int, default=2)
    options.add_argument("--events", type=int, default=50)
    options.add_argument("--activation", choices=list(ACTIVATIONS), default="relu")
    options.add_argument("--rounds", type=int, default=5)
    options = options.parse_args()
    torch.set_num_threads(1)
    # The exporter reports every optional package that is not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    print(f"PyTorch {torch.__version__}, onnxruntime {onnxruntime.__version__}; ratios of minima, against the faster form of each peer")
    for name in CODEBOOKS:
        compare(name, options)


main()
