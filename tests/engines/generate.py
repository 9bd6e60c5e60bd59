"""Writes packages/: the same untrained network as a package for the embedded engine, MLServer and Triton.

    pip install numpy==2.4.6
    python generate.py

The golden responses are computed here, without a server and without the `profiles.py` code.
"""

import json

from network import PACKAGES, Network, log_softmax, random_tensors, write_tensors

SEED = 20
DIM, LAYERS, HEADS, CONTEXT_LENGTH = 16, 2, 2, 12
# Among the item ids are long and non-ASCII ones, and one that looks like a code.
ITEMS = [f"dish-{number:02}" for number in range(27)] + ["拉麺", "crème brûlée", "7", "x" * 512, "trigger"]
# The code order differs from the item order, so that a mix-up changes results.
CODES = {item: (7 * position + 3) % len(ITEMS) for position, item in enumerate(ITEMS)}

CARD = {
    "task": "next-event",
    "status": "beta",
    "version": "1",
    "context_length": CONTEXT_LENGTH,
    "requires_tokenizer": True,
    "endpoints": ["predict", "generate", "embed"],
    "embedding_dim": DIM,
    "codebook": {"levels": 1, "resolution": "uniform", "base_size": len(ITEMS)},
}
EMBEDDED = {
    "engine": "default",
    "architecture": "assay-seq-1",
    "dim": DIM,
    "layers": LAYERS,
    "heads": HEADS,
    "norm_eps": 1e-5,
    "activation": "relu",
}
REQUESTS = [
    {
        "sequences": [
            {"sequence_id": "short", "events": ["dish-03", "拉麺", "dish-11"]},
            {"sequence_id": "long", "events": [f"dish-{number % 9:02}" for number in range(CONTEXT_LENGTH + 5)]},
            {"sequence_id": "cold", "events": []},
        ],
    },
    {
        "sequences": [
            {
                "sequence_id": "options",
                "events": ["dish-00", "crème brûlée"],
                "options": ["dish-00", "haggis", "7", "dish-20", "x" * 512, "stew", "dish-05"],
            },
            {"sequence_id": "catalog", "events": ["7", "dish-26", "7"]},
        ],
        "top_k": 6,
        "exclude_seen": True,
    },
    {
        "sequences": [
            {"sequence_id": "unknown", "events": ["haggis", "stew"]},
            {"sequence_id": "partly unknown", "events": ["haggis", "dish-09", "stew", "dish-10"]},
        ],
        "top_k": 500,
    },
]


def serving(engine, tensors):
    predict = "logits" if tensors == "codes" else "topk"
    operations = {"predict": predict, "embed": "embedding"}
    return {"engine": engine, "name": tensors, "tensors": tensors, "operations": operations}


def predicted(network, request, sequence):
    """Returns one sequence's element in `data`."""
    events = sequence["events"]
    used = [CODES[item] for item in events if item in CODES][-CONTEXT_LENGTH:]
    scores = log_softmax(network.logits(network.states(used)[-1]))
    options = sequence.get("options", ITEMS)
    if request.get("exclude_seen"):
        options = [item for item in options if item not in events]
    pairs = [(item, scores[CODES[item]] if item in CODES else None) for item in options]
    pairs.sort(key=lambda pair: float("inf") if pair[1] is None else -pair[1])
    default = len(pairs) if "options" in sequence else 10
    pairs = pairs[:request.get("top_k", default)]
    return {
        "sequence_id": sequence["sequence_id"],
        "prediction": [item for item, _ in pairs],
        "scores": [None if score is None else round(float(score), 7) for _, score in pairs],
        "n_events": len(events),
        "n_used": len(used),
        "n_unknown": sum(item not in CODES for item in events),
        "cold": not used,
    }


def golden(network, request):
    data = [predicted(network, request, sequence) for sequence in request["sequences"]]
    sequences = [
        sequence | {"events": [{"item_id": item} for item in sequence["events"]]} for sequence in request["sequences"]
    ]
    return {"operation": "predict", "request": request | {"sequences": sequences}, "response": {"data": data}}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    embedded = PACKAGES / "embedded"
    embedded.mkdir(parents=True, exist_ok=True)
    write_tensors(embedded / "weights.safetensors", random_tensors(SEED, len(ITEMS), DIM, LAYERS, CONTEXT_LENGTH))
    packages = {"embedded": EMBEDDED}
    for engine in ("mlserver", "triton"):
        for tensors in ("codes", "ids"):
            packages[f"{engine}-{tensors}"] = serving(engine, tensors)
    for name, settings in packages.items():
        folder = PACKAGES / name
        folder.mkdir(exist_ok=True)
        write_json(folder / "model.json", {"id": name} | CARD | {"serving": settings})
        lines = [json.dumps({"item_id": item, "code": str(code)}, ensure_ascii=False) for item, code in CODES.items()]
        (folder / "items.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    network = Network.load(embedded)
    for name in packages:
        requests = [golden(network, request) for request in REQUESTS]
        lines = ",\n".join(json.dumps(request, ensure_ascii=False) for request in requests)
        (PACKAGES / name / "golden.json").write_text(f'{{"requests": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
