"""Trains playlist-1 and writes its model.json, weights.safetensors and items.ndjson.

    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0
    python train.py && python figures.py

It takes about two minutes on one core. All draws are seeded, and one thread computes everything. Another CPU type gives
other weights with nearly the same figures.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from world import SONGS, TRAINING_LISTENERS, TRAINING_SEED, World, song_id

HERE = Path(__file__).parent
FOLDER = HERE / "playlist-1"
sys.path.append(str(HERE / "../../worker/engine/tests/golden"))
from reference import AssaySeq  # noqa: E402

MODEL = {
    "id": "playlist-1",
    "task": "next-event",
    "status": "beta",
    "version": "1",
    "context_length": 50,
    "requires_tokenizer": True,
    "endpoints": ["predict", "generate", "embed"],
    "embedding_dim": 48,
    "codebook": {"levels": 3, "resolution": "uniform", "base_size": 32},
    "pretrain_domains": ["invented playlists"],
    "serving": {
        "engine": "default",
        "architecture": "assay-seq-1",
        "dim": 48,
        "layers": 2,
        "heads": 2,
        "norm_eps": 1e-5,
        "activation": "gelu",
    },
}
SEED, STEPS, BATCH, LEARNING_RATE, WARM_UP = 7, 2500, 64, 4e-3, 100


def principal_parts(counts, number):
    """Returns the `number` strongest song components in a count matrix, relative to chance, scaled to unit spread."""
    chance = counts.sum(1, keepdims=True) @ counts.sum(0, keepdims=True) / counts.sum()
    left, strength, _ = numpy.linalg.svd(numpy.log((counts + 1) / (chance + 1)))
    parts = (left * strength)[:, :number]
    return parts / parts.std()


def song_features(listeners):
    """Returns what the songs are like: which songs the same listeners play, and which songs are played next."""
    together, following = numpy.zeros((2, SONGS, SONGS))
    for songs in listeners:
        for at, song in enumerate(songs[:-1]):
            following[song, songs[at + 1]] += 1
            # Near songs are left out: they follow each other for every listener.
            for other in songs[at + 4 :]:
                together[song, other] += 1
                together[other, song] += 1
    return numpy.hstack([principal_parts(together, 8), 0.7 * principal_parts(following, 24)])


def k_means(rng, points, number):
    """Returns each point's cluster, and the centres."""
    centres = points[rng.choice(len(points), number, replace=False)]
    for _ in range(50):
        clusters = distances(points, centres).argmin(1)
        for at in set(clusters.tolist()):
            centres[at] = points[clusters == at].mean(0)
    return distances(points, centres).argmin(1), centres


def distances(points, centres):
    return ((points[:, None] - centres[None]) ** 2).sum(-1)


def fit_codes(listeners):
    """Returns a code for each song by residual k-means. The last level takes the nearest centre that is free."""
    rng = numpy.random.default_rng(SEED)
    levels, size = MODEL["codebook"]["levels"], MODEL["codebook"]["base_size"]
    residuals, prefixes = song_features(listeners), [()] * SONGS
    for _ in range(levels - 1):
        clusters, centres = k_means(rng, residuals, size)
        prefixes = [(*prefix, int(cluster)) for prefix, cluster in zip(prefixes, clusters)]
        residuals = residuals - centres[clusters]
    _, centres = k_means(rng, residuals, size)
    codes = []
    for prefix, near in zip(prefixes, distances(residuals, centres).argsort(1)):
        codes.append(next((*prefix, int(last)) for last in near if (*prefix, int(last)) not in codes))
    return codes


def train(listeners, codes):
    """Returns the network after `STEPS` batches with whole histories. Every event is predicted."""
    torch.manual_seed(SEED)
    codes = torch.tensor(codes)
    network = AssaySeq(MODEL).train()
    histories = torch.full((len(listeners), max(map(len, listeners))), -1)
    for row, songs in zip(histories, listeners):
        row[: len(songs)] = torch.tensor(songs)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = lambda step: min(1, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    started, losses = time.time(), []
    for step in range(1, STEPS + 1):
        batch = histories[torch.randint(len(histories), (BATCH,))]
        batch_codes, is_event = codes[batch.clamp(min=0)], batch >= 0
        # The state before an event predicts it. The histories are padded on the right, where causal attention never looks.
        states, targets = network(batch_codes[:, :-1])[is_event], batch_codes[is_event]
        levels = range(targets.shape[-1])
        loss = sum(F.cross_entropy(network.level_logits(states, targets, level), targets[:, level]) for level in levels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 250 == 0:
            print(f"step {step}: loss {sum(losses[-250:]) / 250:.3f}, {time.time() - started:.0f} s", flush=True)
    return network


def main():
    listeners = World().listeners(TRAINING_SEED, TRAINING_LISTENERS)
    codes = fit_codes(listeners)
    network = train(listeners, codes)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "model.json").write_text(json.dumps(MODEL, indent=2) + "\n")
    save_file({name: tensor.half() for name, tensor in network.state_dict().items()}, FOLDER / "weights.safetensors")
    rows = [{"item_id": song_id(song), "code": "-".join(map(str, code))} for song, code in enumerate(codes)]
    (FOLDER / "items.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
