"""Compares `assay.score` with SciPy, scikit-learn and scoringrules, metric by metric: CPU time.

    python -m venv target/peers/venv && target/peers/venv/bin/pip install -r tests/peers/requirements.txt
    target/peers/venv/bin/pip install ./clients/python ./clients/scorer
    target/peers/venv/bin/python clients/scorer/benches/metrics.py [--items 100000] [--rounds 3] [--only tvd,wis]

Each program reads the same two JSON line files: answers and predictions. The peer parses each line with `json`, builds the arrays
that its function takes, and calls the function that docs/metrics.md names. The last column is the function alone, on arrays that are
in memory already, which no submission is. Functions of one pair of distributions are called for each item; the others get all items at
once. Assay computes the figures of the family, their standard errors and intervals in the same pass, which the peers do not.

Each measurement is its own process. Imports and a run on a few items are not counted. Prints the smallest of the rounds, which other
load on the machine disturbed least. The program fails if two values differ by more than 1e-9.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys

from compare import ROOT, WARM_UP_ITEMS, Clock, read_lines

TOLERANCE = 1e-9
LABELS = ["never", "rarely", "often", "always"]
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
IDS = [f"dish-{number:02}" for number in range(40)]


def shares(rng, hint=None):
    weights = [rng.random() + 0.05 + 1.5 * (label == hint) for label in LABELS]
    return {label: round(weight / sum(weights), 8) for label, weight in zip(LABELS, weights)}


def scaled(found):
    """Returns shares that sum to 1, but for the last digits."""
    rest = 1 - math.fsum(list(found.values())[1:])
    return found | {LABELS[0]: round(rest, 8)}


def numbers(rng):
    answer = round(rng.gauss(50, 10), 3)
    return answer, round(0.8 * answer + rng.gauss(10, 6), 3)


def labels(rng):
    answer = rng.choices(LABELS, [50, 30, 15, 5])[0]
    return answer, answer if rng.random() < 0.6 else rng.choice(LABELS)


def probabilities(rng):
    answer = rng.choices(LABELS, [50, 30, 15, 5])[0]
    return answer, scaled(shares(rng, answer))


def distributions(rng):
    return scaled(shares(rng)), scaled(shares(rng))


def sets(rng):
    answer = rng.sample(IDS, rng.randint(1, 4))
    return answer, rng.sample(answer, 1) + rng.sample(IDS, 2)


def quantiles(rng):
    answer = rng.gauss(50, 10)
    middle = answer + rng.gauss(0, 8)
    ends = [middle + 8 * z for z in (-1.645, -0.674, 0, 0.674, 1.645)]
    return round(answer, 3), {str(level): round(end, 3) for level, end in zip(LEVELS, ends)}


def columns(answers, predictions):
    """Returns the values in the order of the answers."""
    return list(answers.values()), [predictions[item] for item in answers]


def number_arrays(answers, predictions):
    import numpy

    return [numpy.array(column, dtype=float) for column in columns(answers, predictions)]


def label_arrays(answers, predictions):
    import numpy

    return [numpy.array(column) for column in columns(answers, predictions)]


def share_rows(column):
    import numpy

    return numpy.array([[shares.get(label, 0.0) for label in LABELS] for shares in column])


def label_and_share_arrays(answers, predictions):
    import numpy

    right, shown = columns(answers, predictions)
    return numpy.array([LABELS.index(label) for label in right]), share_rows(shown)


def share_arrays(answers, predictions):
    return [share_rows(column) for column in columns(answers, predictions)]


def set_arrays(answers, predictions):
    from sklearn.preprocessing import MultiLabelBinarizer

    binarizer = MultiLabelBinarizer(classes=IDS)
    return [binarizer.fit_transform(column) for column in columns(answers, predictions)]


def quantile_arrays(answers, predictions):
    import numpy

    right, shown = columns(answers, predictions)
    names = [str(level) for level in LEVELS]
    return numpy.array(right), numpy.array([[one[name] for name in names] for one in shown])


def ccc(x, y):
    import numpy

    covariance = numpy.mean((x - x.mean()) * (y - y.mean()))
    return 2 * covariance / (x.var() + y.var() + (x.mean() - y.mean()) ** 2)


def pinball(right, shown):
    from sklearn.metrics import mean_pinball_loss

    losses = [mean_pinball_loss(right, shown[:, at], alpha=level) for at, level in enumerate(LEVELS)]
    return sum(losses) / len(losses)


def wis(right, shown):
    import numpy
    import scoringrules

    return 2 * numpy.mean(scoringrules.quantile_score(right[:, None], shown, numpy.array(LEVELS)[None, :]))


def by_item(distance):
    """Returns the mean over the items of a function of one pair."""
    return lambda p, q: sum(map(distance, p, q)) / len(p)


def wasserstein(p, q):
    from scipy.stats import wasserstein_distance

    places = range(len(p))
    return wasserstein_distance(places, places, p, q) / (len(p) - 1)


def cityblock(p, q):
    from scipy.spatial.distance import cityblock

    return cityblock(p, q) / 2


def jensenshannon(p, q):
    from scipy.spatial.distance import jensenshannon

    return (jensenshannon(p, q, 2, axis=1) ** 2).mean()


def hellinger(p, q):
    import numpy

    return numpy.sqrt(numpy.maximum(0, 1 - numpy.sqrt(p * q).sum(axis=1))).mean()


def entropy(p, q):
    from scipy.stats import entropy

    return entropy(p, q, axis=1).mean()


def top(right, shown):
    from sklearn.metrics import top_k_accuracy_score

    return top_k_accuracy_score(right, shown, k=2, labels=range(len(LABELS)))


def rps(right, shown):
    import scoringrules

    return scoringrules.rps_score(right + 1, shown).mean() / (len(LABELS) - 1)


def from_library(module, name, **options):
    """Returns a function that imports another one when it is called."""

    def call(*arrays):
        found = getattr(__import__(module, fromlist=[name]), name)(*arrays, **options)
        return getattr(found, "statistic", found)

    return call


SKLEARN = "sklearn.metrics"
# The items, the arrays and the function of each metric.
METRICS = {
    "pearson": (numbers, number_arrays, from_library("scipy.stats", "pearsonr")),
    "kendall": (numbers, number_arrays, from_library("scipy.stats", "kendalltau")),
    "ccc": (numbers, number_arrays, ccc),
    "r2": (numbers, number_arrays, from_library(SKLEARN, "r2_score")),
    "balanced_accuracy": (labels, label_arrays, from_library(SKLEARN, "balanced_accuracy_score")),
    "mcc": (labels, label_arrays, from_library(SKLEARN, "matthews_corrcoef")),
    "kappa": (labels, label_arrays, from_library(SKLEARN, "cohen_kappa_score")),
    "kappa_quadratic": (labels, label_arrays, from_library(SKLEARN, "cohen_kappa_score", labels=LABELS, weights="quadratic")),
    "auc_ovr": (probabilities, label_and_share_arrays, from_library(SKLEARN, "roc_auc_score", multi_class="ovr", labels=range(4))),
    "jaccard": (sets, set_arrays, from_library(SKLEARN, "jaccard_score", average="samples")),
    "f1_set": (sets, set_arrays, from_library(SKLEARN, "f1_score", average="samples")),
    "kl": (distributions, share_arrays, entropy),
    "tvd": (distributions, share_arrays, by_item(cityblock)),
    "jsd": (distributions, share_arrays, jensenshannon),
    "hellinger": (distributions, share_arrays, hellinger),
    "wasserstein": (distributions, share_arrays, by_item(wasserstein)),
    "rps": (probabilities, label_and_share_arrays, rps),
    "top@2": (probabilities, label_and_share_arrays, top),
    "pinball": (quantiles, quantile_arrays, pinball),
    "wis": (quantiles, quantile_arrays, wis),
}


def folder_of(parent, draw, items):
    """Returns the folder with a suite and a submission, and writes it if there is none."""
    folder = parent / f"metrics-{draw.__name__}-{items}"
    if (folder / "predictions.ndjson").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    with open(folder / "answers.ndjson", "w") as answers, open(folder / "predictions.ndjson", "w") as file:
        for at in range(items):
            answer, prediction = draw(rng)
            line = lambda column, value: json.dumps({"item_id": f"q{at:09}", column: value}, separators=(",", ":")) + "\n"
            answers.write(line("answer", answer))
            file.write(line("prediction", prediction))
    return folder


def suite_of(folder, metric):
    """Returns a folder of the suite with this metric: its options need one."""
    suite = folder / metric.replace("@", "-")
    if not (suite / "suite.toml").exists():
        suite.mkdir(exist_ok=True)
        (suite / "answers.ndjson").symlink_to(folder / "answers.ndjson")
        keys = f'suite_id = "suite:peers"\nversion = "1"\nmetric = "{metric}"\n'
        if metric in ("pinball", "wis"):
            keys += f"quantiles = {LEVELS}\n"
        elif metric in ("kappa_quadratic", "rps", "wasserstein"):
            keys += f"labels = {json.dumps(LABELS)}\n"
        (suite / "suite.toml").write_text(keys)
    return suite


def assay_seconds(folder, metric):
    import assay_client

    suite = suite_of(folder, metric)
    clock = Clock()
    found = clock.run("files", lambda: assay_client.score(folder / "predictions.ndjson", suite))
    return {"files": clock.spent["files"][0]}, found.value


def peer_seconds(folder, metric):
    _, to_arrays, function = METRICS[metric]
    clock = Clock()
    lines = lambda: [read_lines(folder / f"{column}s.ndjson", column) for column in ("answer", "prediction")]
    arrays = clock.run("read", lambda: to_arrays(*lines()))
    value = clock.run("arrays", lambda: function(*arrays))
    spent = {step: seconds for step, (seconds, _) in clock.spent.items()}
    return {"files": spent["read"] + spent["arrays"], "arrays": spent["arrays"]}, float(value)


PROGRAMS = {"assay": assay_seconds, "peer": peer_seconds}


def measure_here(program, folder, metric, items):
    """The child: warms a program up, measures it, and prints its times and its value as JSON."""
    PROGRAMS[program](folder_of(folder, METRICS[metric][0], WARM_UP_ITEMS), metric)
    print(json.dumps(PROGRAMS[program](folder_of(folder, METRICS[metric][0], items), metric)))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--items", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=",".join(METRICS))
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "peers")
    options.add_argument("--child", nargs=2)
    options = options.parse_args()
    if options.child:
        measure_here(options.child[0], options.folder, options.child[1], options.items)
        return
    print(f"{options.items:,} items, the smallest of {options.rounds} rounds, CPU time for each item")
    print("| metric | Assay | peer, from the files | ratio | the function alone |\n|---|---|---|---|---|")
    for metric in options.only.split(","):
        folder_of(options.folder, METRICS[metric][0], options.items)
        rounds = {name: [] for name in PROGRAMS}
        for _ in range(options.rounds):
            # In turn, so that other load on the machine affects both programs alike.
            for name, found in rounds.items():
                command = [sys.executable, __file__, "--folder", str(options.folder), "--items", str(options.items)]
                done = subprocess.run([*command, "--child", name, metric], check=True, stdout=subprocess.PIPE)
                found.append(json.loads(done.stdout.splitlines()[-1]))
        smallest = lambda name, source: min(times[source] for times, _ in rounds[name]) / options.items * 1e6
        assay, peer = smallest("assay", "files"), smallest("peer", "files")
        print(f"| `{metric}` | {assay:.2f} µs | {peer:.2f} µs | {assay / peer:.2f} | {smallest('peer', 'arrays'):.2f} µs |", flush=True)
        values = [found[-1][1] for found in rounds.values()]
        if abs(values[0] - values[1]) > TOLERANCE:
            sys.exit(f"the values of {metric} differ: {values}")


if __name__ == "__main__":
    main()
