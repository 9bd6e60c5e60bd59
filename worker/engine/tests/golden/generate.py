"""Generates five small packages with random weights, each with golden.json: PyTorch's figures in double precision.

    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0
    python generate.py

`golden.json` is {"cases": [..]}. Each case has these fields:

- `events`: [{"item_id", "type"?}], oldest first; some are unknown
- `used`, `n_unknown`: the number of events that enter the model, and of those left out because they are unknown
- `embedding_last`, `embedding_mean`: the final norm at the last position, and its mean over all positions; not normalized
- `logits`: the logits of level 0 at the last position
- `options`, in some cases: the items to rank; some are unknown
- `scores`: {item_id: log-probability} for the known options, or without options for all catalog items
- `top`: [[item_id, score], ..], the ten best catalog items; absent from the package without an item table

The weights are used exactly as stored, so rounding to f16 or bf16 causes no differences. The script fails if two
scores are too close to give a reliable order, or if single precision is too far from double precision for the figures to be
a fair test.
"""

import json
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file

from reference import AssaySeq, Package, level_sizes

HERE = Path(__file__).parent
# Scores closer than this may have another order in single precision.
LEAST_GAP = 1e-4
# The largest difference between single and double precision, with PyTorch on both sides.
LARGEST_ROUNDING = 4e-6

ARCHITECTURES = {
    "one-level": {
        "seed": 1,
        "dtype": torch.float32,
        "n_items": 150,
        "context_length": 12,
        "codebook": {"levels": 1, "resolution": "uniform", "base_size": 160},
        "serving": {"dim": 16, "layers": 2, "heads": 2, "norm_eps": 1e-5, "activation": "relu"},
    },
    "three-levels": {
        "seed": 2,
        "dtype": torch.float32,
        "n_items": 120,
        "context_length": 10,
        "codebook": {"levels": 3, "resolution": "uniform", "base_size": 16},
        "serving": {"dim": 24, "layers": 1, "heads": 3, "norm_eps": 1e-12, "activation": "gelu"},
    },
    "multi-resolution": {
        "seed": 3,
        "dtype": torch.float32,
        "n_items": 90,
        "context_length": 16,
        "codebook": {"levels": 4, "resolution": "multi", "base_size": 32},
        "serving": {"dim": 20, "layers": 3, "heads": 4, "norm_eps": 1e-3, "activation": "gelu_tanh"},
    },
    "event-types": {
        "seed": 4,
        "dtype": torch.float16,
        "n_items": 100,
        "context_length": 12,
        "codebook": {"levels": 2, "resolution": "uniform", "base_size": 32},
        "serving": {
            "dim": 32,
            "layers": 2,
            "heads": 2,
            "norm_eps": 1e-5,
            "activation": "silu",
            "event_types": ["view", "buy", "wish"],
        },
    },
    "codes-as-ids": {
        "seed": 5,
        "dtype": torch.bfloat16,
        "n_items": None,
        "context_length": 6,
        "codebook": {"levels": 3, "resolution": "uniform", "base_size": 12},
        "serving": {"dim": 24, "layers": 2, "heads": 1, "norm_eps": 1e-6, "activation": "relu"},
    },
}
# Item ids that are no codes with three levels and 12 codes, each for another reason.
NO_CODES = ["12-0-0", "3-4", "3-4-5-6", "03-4-5", "3-4-x", "3--5", "+3-4-5", "-3-4-5", " 3-4-5", "3-4-5 ", "3-4-٥", "ramen"]


def random_weights(rng, model):
    """Returns weights that make attention selective and the items' log-probabilities different."""
    dim = model["serving"]["dim"]
    weights = {}
    for name, parameter in AssaySeq(model).state_dict().items():
        normal = rng.standard_normal(tuple(parameter.shape))
        if "norm" in name:
            # Layer norms: weights around 1, biases around 0.
            drawn = normal * 0.3 + name.endswith("weight")
        elif name.endswith("bias"):
            drawn = normal * 0.3
        elif name.startswith("item_embedding"):
            drawn = normal * 0.8
        elif name.startswith(("position_embedding", "type_embedding", "start")):
            drawn = normal * 0.6
        elif name.startswith("heads"):
            drawn = normal * 1.2 / dim**0.5
        else:
            drawn = normal * (1.3 if "query" in name or "key" in name else 0.9) / parameter.shape[1] ** 0.5
        weights[name] = torch.tensor(drawn)
    return weights


def random_items(rng, n_items, sizes):
    """Returns (item_id, code) with distinct codes that often share a prefix, in no order."""
    codes = set()
    while len(codes) < n_items:
        code = tuple(int(rng.integers(size)) for size in sizes)
        # Few first codes, so that the trie has branches with several items and codes without any item.
        codes.add((code[0] % max(1, sizes[0] // 2), *code[1:]) if len(sizes) > 1 else code)
    codes = [tuple(code) for code in rng.permutation(sorted(codes)).tolist()]
    return [(f"item-{at:03}", code) for at, code in enumerate(codes)]


def random_cases(rng, model, known, unknown):
    """Returns the cases' events and options, given known and unknown item ids."""
    context, types = model["context_length"], model["serving"].get("event_types")
    take = lambda ids, number: [str(one) for one in rng.choice(ids, number, replace=False)]
    mixed = take(known, 5) + take(unknown, 3)
    repeated = take(known, 3)
    histories = [
        [],
        take(known, 1),
        [str(one) for one in rng.permutation(mixed)],
        take(unknown, 4),
        [str(one) for one in rng.permutation(take(known, 2 * context) + take(unknown, 2))],
        [repeated[at] for at in (0, 0, 1, 0, 2, 2)],
        take(known, context),
        take(known, context - 1),
    ]
    cases = [{"events": [{"item_id": item_id} for item_id in history]} for history in histories]
    for case in cases if types else []:
        for event in case["events"]:
            kind = rng.choice([*types, "return", None])
            if kind is not None:
                event["type"] = str(kind)
    for case in cases if unknown is NO_CODES else cases[2:5]:
        case["options"] = [str(one) for one in rng.permutation(take(known, 24) + take(unknown, 2))]
    return cases


def figures(package, case):
    """Returns a case's figures."""
    states, used, n_unknown = package.states(case["events"])
    h = states[-1]
    ids = [one for one in case["options"] if package.code_of(one)] if "options" in case else package.catalog
    found = {
        "used": used,
        "n_unknown": n_unknown,
        "embedding_last": h.tolist(),
        "embedding_mean": states.mean(dim=0).tolist(),
        "logits": package.network.level_logits(h, None, 0).tolist(),
        "scores": package.scores(h, ids),
    }
    if package.table is not None:
        best = package.rank(h, package.catalog)[:11]
        found |= {"top": best[:10]}
        gaps = [before[1] - after[1] for before, after in zip(best, best[1:])]
        assert min(gaps) > LEAST_GAP, f"choose another seed: two scores differ by {min(gaps)}"
    return found


def largest_difference(one, other):
    """Returns the largest difference between the numbers in two figures with the same form."""
    if isinstance(one, dict):
        return max(largest_difference(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return max(map(largest_difference, one, other), default=0.0)
    if isinstance(one, str):
        return 0.0 if one == other else float("inf")
    return abs(one - other)


def rounded(figure):
    """Returns the figure with nine decimals, which is far below any test's tolerance."""
    if isinstance(figure, dict):
        return {key: rounded(value) for key, value in figure.items()}
    if isinstance(figure, list):
        return [rounded(value) for value in figure]
    return round(figure, 9) if isinstance(figure, float) else figure


def lines(rows):
    """Returns one JSON line for each row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@torch.no_grad()
def write(name, architecture):
    """Writes an architecture's package."""
    rng = numpy.random.default_rng(architecture["seed"])
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model = {
        "id": name,
        "task": "next-event",
        "status": "beta",
        "version": "1",
        "context_length": architecture["context_length"],
        "requires_tokenizer": True,
        "endpoints": ["predict", "generate", "embed"],
        "embedding_dim": architecture["serving"]["dim"],
        "codebook": architecture["codebook"],
        "pretrain_domains": ["random"],
        "serving": {"engine": "default", "architecture": "assay-seq-1", **architecture["serving"]},
    }
    (folder / "model.json").write_text(json.dumps(model, indent=2) + "\n")
    weights = {key: tensor.to(architecture["dtype"]) for key, tensor in random_weights(rng, model).items()}
    save_file(weights, folder / "weights.safetensors")
    sizes = level_sizes(model["codebook"])
    if architecture["n_items"] is None:
        known = ["-".join(str(rng.integers(size)) for size in sizes) for _ in range(200)]
        known, unknown = sorted(set(known)), NO_CODES
    else:
        items = random_items(rng, architecture["n_items"], sizes)
        rows = [{"item_id": item_id, "code": "-".join(map(str, code))} for item_id, code in items]
        (folder / "items.ndjson").write_text(lines(rows))
        known = [item_id for item_id, _ in items]
        # A code is no item id in a package with an item table.
        unknown = ["item-999", "ITEM-001", "item-001 ", "ünknown", rows[0]["code"]]
    cases, rounding = [], 0.0
    for case in random_cases(rng, model, known, unknown):
        exact = figures(Package(folder), case)
        rounding = max(rounding, largest_difference(exact, figures(Package(folder, torch.float32), case)))
        cases.append(case | rounded(exact))
    body = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (folder / "golden.json").write_text(f'{{"cases": [\n{body}\n]}}\n')
    size = sum(file.stat().st_size for file in folder.iterdir())
    spread = [max(case["logits"]) - min(case["logits"]) for case in cases]
    print(
        f"{name}: {size / 1024:.0f} KiB, single precision within {rounding:.1e}, "
        f"range of logits {min(spread):.1f} to {max(spread):.1f}"
    )
    assert rounding < LARGEST_ROUNDING, "single precision is too far from double precision"


if __name__ == "__main__":
    for name, architecture in ARCHITECTURES.items():
        write(name, architecture)
