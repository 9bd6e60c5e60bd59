"""Computes figures.json and the golden.json of playlist-1 from the package, in double precision.

    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0
    python figures.py

`figures.json` has the figures for the model and the baselines on suite:playlist and for 1,000 other listeners, who were
not in the training either. The model predicts the ten most probable songs. The baselines:

- `popularity`, `last_song`: counted over the suite's public `past` lists, as tests/src/playlist_suite.rs does
- `popularity_of_training`, `last_song_of_training`: counted over the listeners that the model was trained with

`p_values` are from paired sign-flip tests over the model's reciprocal ranks, two-sided, 100,000 rounds.
"""

import hashlib
import json
import math
import sys
from pathlib import Path

import numpy

import world

HERE = Path(__file__).parent
FOLDER = HERE / "playlist-1"
sys.path.append(str(HERE / "../../worker/engine/tests/golden"))
from reference import Package  # noqa: E402

ROUNDS = 100_000
# Golden requests whose scores are closer than this could have another order on another CPU type.
LEAST_GAP = 1e-3


def events(songs):
    return [{"item_id": world.song_id(song)} for song in songs]


def reciprocal_ranks(rankings, listeners):
    """Returns 1 / rank of each listener's last song, and 0 if it is not in the ranking."""
    ranks = (ranking.index(songs[-1]) + 1 if songs[-1] in ranking else math.inf for ranking, songs in zip(rankings, listeners))
    return numpy.array([1 / rank for rank in ranks])


def summary(reciprocal):
    means = {"hr@1": (reciprocal == 1).mean(), "hr@10": (reciprocal > 0).mean(), "mrr@10": reciprocal.mean()}
    return {name: round(float(mean), 9) for name, mean in means.items()}


def sign_flip_p(rng, differences):
    """Returns the two-sided p-value for a mean difference, by flipping their signs at random."""
    signs = lambda: rng.choice([-1, 1], (1000, len(differences)))
    means = numpy.concatenate([signs() @ differences for _ in range(ROUNDS // 1000)])
    as_extreme = (abs(means) >= abs(differences.sum()) - 1e-9).sum()
    return (1 + int(as_extreme)) / (1 + ROUNDS)


def compare(package, public, training, listeners):
    """Returns the figures for the model and the baselines on these listeners' last songs."""
    pasts = [songs[:-1] for songs in listeners]
    number = {world.song_id(song): song for song in range(world.SONGS)}
    states = [package.states(events(past))[0][-1] for past in pasts]
    rankings = {
        "model": [[number[item_id] for item_id, _ in package.rank(h, package.catalog)[:10]] for h in states],
        "popularity": map(public.by_popularity, pasts),
        "last_song": map(public.by_last_song, pasts),
        "popularity_of_training": map(training.by_popularity, pasts),
        "last_song_of_training": map(training.by_last_song, pasts),
    }
    reciprocal = {name: reciprocal_ranks(ranking, listeners) for name, ranking in rankings.items()}
    rng = numpy.random.default_rng(0)
    return {
        "n": len(listeners),
        **{name: summary(ranks) for name, ranks in reciprocal.items()},
        "p_values": {name: sign_flip_p(rng, reciprocal["model"] - ranks) for name, ranks in reciprocal.items() if name != "model"},
    }


def row(package, sequence, **result):
    """Returns an element of `data`."""
    used, n_unknown = package.used_events(sequence["events"])
    counts = {"n_events": len(sequence["events"]), "n_used": len(used), "n_unknown": n_unknown, "cold": not used}
    return {"sequence_id": sequence["sequence_id"], **result, **counts}


def predict(package, sequence):
    h = package.states(sequence["events"])[0][-1]
    options = sequence.get("options")
    if options is None:
        ranked = package.rank(h, package.catalog)[:10]
    else:
        ranked = package.rank(h, [one for one in options if package.code_of(one)])
        ranked += [[one, None] for one in options if not package.code_of(one)]
    scores = [score for _, score in ranked if score is not None]
    assert all(before - after > LEAST_GAP for before, after in zip(scores, scores[1:]))
    return row(package, sequence, prediction=[item_id for item_id, _ in ranked], scores=[score for _, score in ranked])


def generate(package, sequence, n_events, n_continuations):
    # One more shows that the last one is clearly better.
    found = package.generate_beam(sequence["events"], n_events, n_continuations + 1)
    assert all(before[1] - after[1] > LEAST_GAP for before, after in zip(found, found[1:]))
    continuations = [
        {"events": [{"item_id": item_id} for item_id in item_ids], "score": score} for item_ids, score in found[:n_continuations]
    ]
    return row(package, sequence, continuations=continuations)


def embed(package, sequence):
    h = package.states(sequence["events"])[0][-1]
    return row(package, sequence, embedding=(h / h.norm()).tolist())


def rounded(value):
    """Returns the value with nine decimals, which is far below a publication's tolerance."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


def golden(package, listeners):
    """Returns the publication's three requests and their responses."""
    long = next(songs for songs in listeners if len(songs) == package.context_length + 1)
    histories = [long[:-1], *(songs[:-1] for songs in listeners[:3])]
    first, second, third, fourth = (
        {"sequence_id": f"listener-{at}", "events": events(past)} for at, past in enumerate(histories, 1)
    )
    second["events"].insert(5, {"item_id": "unreleased-song"})
    second["options"] = ["song-001", "unreleased-song", "song-002", "song-003", world.song_id(listeners[0][-1])]
    continuing = {"n_events": 3, "n_continuations": 2}
    calls = [
        ("predict", {"sequences": [first, second]}, [predict(package, one) for one in (first, second)]),
        ("generate", {"sequences": [third], **continuing}, [generate(package, third, **continuing)]),
        ("embed", {"sequences": [fourth]}, [embed(package, fourth)]),
    ]
    return {
        "requests": [
            {"operation": operation, "request": request, "response": {"data": rounded(data)}} for operation, request, data in calls
        ]
    }


def main():
    package, invented = Package(FOLDER), world.World()
    suite = invented.listeners(world.SUITE_SEED, world.SUITE_LISTENERS)
    others = invented.listeners(world.VALIDATION_SEED, world.VALIDATION_LISTENERS)
    training = world.Counts(invented.listeners(world.TRAINING_SEED, world.TRAINING_LISTENERS))
    sums = [hashlib.sha256(contents.encode()).hexdigest() for contents in world.suite_files(suite)]
    counts = [world.Counts([songs[:-1] for songs in listeners]) for listeners in (suite, others)]
    figures = {
        "items_sha256": sums[0],
        "answers_sha256": sums[1],
        "suite": compare(package, counts[0], training, suite),
        "other_listeners": compare(package, counts[1], training, others),
    }
    (HERE / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    (FOLDER / "golden.json").write_text(json.dumps(golden(package, others), indent=1) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
