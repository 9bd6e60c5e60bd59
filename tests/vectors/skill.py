"""Generates skill.json: SimBench's score, and the skills of random suites.

    pip install statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6 pandas==3.1.1 scikit-learn==1.9.1
    python skill.py > skill.json

`simbench`: each case has `groups` (data sets), `losses` and `baseline` by item, the total variation distances of a model and of the
uniform distribution, and `score`: that of SimBench's `calculate_simbench_score.py` (tsor13/SimBench_release), by its steps in pandas.

`suites`: each case has `metric`, `clip` (or null), `baseline`, `clusters`, `groups` (null: independent items, one group), `answers` and
`predictions` (null: no prediction) by item; `scores`: the baseline's score of each item; `skill`: value, stderr, ci95 and method.

- The scores are those of scikit-learn, SciPy and numpy, item by item. The baseline is scored as a prediction.
- A skill is a function of the items' weights. An item's influence is n times the derivative by its weight, which a complex step
  computes to the last digits, without any formula for the influence of a ratio. The standard error is that of
  `OLS(x, 1).fit(cov_type="cluster")` in statsmodels; each independent item is its own cluster.
"""

import json
import math
import random
from collections import Counter

import numpy
import pandas
from scipy.stats import entropy, t
from sklearn.metrics import accuracy_score, f1_score, jaccard_score, mean_absolute_error, ndcg_score

import clusters as clustered

METRICS = ["log_loss", "brier", "mae", "exact_match", "accuracy", "hit_rate@3", "ndcg@3", "recall@3", "jaccard", "f1_set"]
Z = 1.959963984540054
LOSS_MAX = -math.log(1e-15)


class Probabilities:
    baselines = ["uniform", "marginal"]

    def __init__(self, rng, metric, n):
        self.metric, self.classes = metric, ["a", "b", "c", "d"][: rng.choice([2, 3, 4])]
        self.answers = self.classes + [rng.choice(self.classes + ["a"]) for _ in range(n - len(self.classes))]

    def draw(self, rng, answer):
        weights = [max(0.02, rng.random() + 1.5 * (label == answer)) for label in self.classes]
        counts = [int(64 * weight / sum(weights)) for weight in weights]
        counts[0] += 64 - sum(counts)
        return {label: count / 64 for label, count in zip(self.classes, counts)}

    def baseline(self, name):
        counts = Counter(self.answers)
        return {label: 1 / len(self.classes) if name == "uniform" else counts[label] / len(self.answers) for label in self.classes}

    def score(self, answer, shares):
        right = numpy.array([float(label == answer) for label in self.classes])
        if self.metric == "log_loss":
            return LOSS_MAX if shares is None else min(float(entropy(right, [shares[label] for label in self.classes])), LOSS_MAX)
        half = 1 if len(self.classes) > 2 else 0.5
        return 2 * half if shares is None else half * float(((numpy.array([shares[label] for label in self.classes]) - right) ** 2).sum())


class Numbers:
    baselines = ["marginal"]

    def __init__(self, rng, metric, n):
        self.answers = [round(rng.gauss(5, 3), 2) for _ in range(n)]

    def draw(self, rng, answer):
        return round(answer + rng.gauss(0.2, 2), 2)

    def baseline(self, name):
        return math.fsum(self.answers) / len(self.answers)

    def score(self, answer, number):
        return max(self.answers) - min(self.answers) if number is None else float(mean_absolute_error([answer], [number]))


class Labels:
    baselines = ["uniform", "marginal"]

    def __init__(self, rng, metric, n):
        self.classes, several = ["x", "y", "z", "w"][: rng.choice([2, 3, 4])], rng.random() < 0.5
        draw = lambda: rng.sample(self.classes, rng.randint(1, len(self.classes) - 1)) if several and rng.random() < 0.4 else rng.choice(self.classes)
        self.answers = self.classes + [draw() for _ in range(n - len(self.classes))]

    def draw(self, rng, answer):
        return rng.choice([*self.classes, "other", *([answer] if isinstance(answer, str) else answer) * 3])

    def baseline(self, name):
        if name == "uniform":
            return None
        counts = Counter(one for answer in self.answers for one in ([answer] if isinstance(answer, str) else answer))
        return min(counts, key=lambda one: (-counts[one], one))

    def score(self, answer, label):
        right = [answer] if isinstance(answer, str) else answer
        return float(label is not None and any(accuracy_score([one], [label]) for one in right))

    def uniform_score(self, answer):
        return math.fsum(self.score(answer, label) for label in self.classes) / len(self.classes)


class Rankings:
    baselines = ["marginal"]

    def __init__(self, rng, metric, n):
        self.metric, self.ids, self.n_common = metric, list("abcdef"), 2 if metric != "accuracy" else 1
        several = lambda: rng.sample(self.ids, rng.randint(2, 3))
        self.answers = [several() if rng.random() < 0.4 else rng.choice(self.ids + ["a"] * 2) for _ in range(n)]

    def draw(self, rng, answer):
        return sorted(self.ids, key=lambda one: rng.random() - 0.6 * (one in answer))[: rng.randint(1, 4)]

    def baseline(self, name):
        counts = Counter(one for answer in self.answers for one in answer)
        ids = sorted(counts, key=lambda one: (-counts[one], one))
        if self.metric not in ("jaccard", "f1_set"):
            return ids
        means = [math.fsum(self.score(answer, ids[:size]) for answer in self.answers) for size in range(1, len(ids) + 1)]
        return ids[: 1 + means.index(max(means))]

    def score(self, answer, ranking):
        ranking = ranking or []
        if self.metric in ("jaccard", "f1_set"):
            rows = [[[int(one in ids) for one in self.ids]] for ids in (answer, ranking)]
            function = jaccard_score if self.metric == "jaccard" else f1_score
            return float(function(*map(numpy.array, rows), average="samples", zero_division=0))
        hits = [one in answer for one in ranking[:3]]
        if self.metric == "ndcg@3":
            # The other ids come after the ranking, and no relevant one of them is within the first three.
            gains = [float(one in answer) for one in ranking] + [0.0] * 3 + [float(one in answer) for one in self.ids if one not in ranking]
            return float(ndcg_score([gains], [[-float(at) for at in range(len(gains))]], k=3))
        if self.metric == "accuracy":
            return float(bool(hits) and hits[0])
        return sum(hits) / len(answer) if self.metric == "recall@3" else float(any(hits))


FAMILIES = [Probabilities, Probabilities, Numbers, Labels] + [Rankings] * 6


def suite(number):
    rng = random.Random(f"skill {number}")
    metric, kind = METRICS[number % 10], ["none", "equal", "unequal", "large", "few"][number // 10 % 5]
    sizes = {"equal": [4] * 13, "unequal": [rng.randint(1, 7) for _ in range(14)], "large": [3] * 11 + [20], "few": [6] * 8, "none": [1] * 45}[kind]
    groups = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(groups)
    n = len(groups)
    family = FAMILIES[number % 10](rng, metric, n)
    missing = rng.choice([0, 0, 0.1])
    predictions = [None if rng.random() < missing else family.draw(rng, answer) for answer in family.answers]
    baseline = rng.choice(family.baselines)
    n_groups = rng.choice([1, 2, 3])
    within = [rng.randrange(n_groups) for _ in range(n)]
    clip = rng.choice([None, None, [0.25, 2.5]]) if metric in ("log_loss", "mae") else None
    cut = (lambda score: min(max(score, clip[0]), clip[1])) if clip else lambda score: score
    # An item without a prediction has the largest loss of the suite.
    scores = [clip[1] if clip and one is None else cut(family.score(answer, one)) for answer, one in zip(family.answers, predictions)]
    if metric == "exact_match" and baseline == "uniform":
        of_baseline = [family.uniform_score(answer) for answer in family.answers]
    else:
        constant = family.baseline(baseline)
        of_baseline = [cut(family.score(answer, constant)) for answer in family.answers]
    is_loss = metric in ("log_loss", "brier", "mae")
    best = (clip[0] if clip else 0.0) if is_loss else 1.0
    away, of_baseline_away = numpy.array(scores) - best, numpy.array(of_baseline) - best
    is_in = [numpy.array([float(one == group) for one in within]) for group in sorted(set(within))]
    if any((group * of_baseline_away == 0).all() for group in is_in):
        return suite(number + 1000)  # Such a suite is rejected. The next one has the same metric and clusters.

    def figure(weights):
        of = lambda group: (weights * group).sum() * (1 - (weights * group * away).sum() / (weights * group * of_baseline_away).sum())
        return sum(of(group) for group in is_in) / weights.sum()

    value = float(figure(numpy.ones(n)).real)
    contributions = value + clustered.influences(figure, n)
    by = numpy.arange(n) if kind == "none" else numpy.array(groups)
    skill = {"value": value, "stderr": None, "ci95": None, "method": None}
    if kind != "few":
        stderr = clustered.stderr_of(contributions, by)
        q = Z if kind == "none" else float(t.ppf(0.975, clustered.degrees(by)))
        skill |= {"stderr": stderr, "ci95": [value - q * stderr, min(1.0, value + q * stderr)], "method": "delta" if kind == "none" else "cluster_t"}
    return {
        "name": f"{metric} {number}, {baseline}, {kind}", "metric": metric, "clip": clip, "baseline": baseline, "clusters": None if kind == "none" else groups,
        "groups": within if n_groups > 1 else None, "answers": family.answers, "predictions": predictions, "scores": of_baseline, "skill": skill,
    }


def simbench(number):
    rng = random.Random(f"simbench {number}")
    n, n_sets = rng.randint(4, 12), rng.randint(1, 4)
    frame = pandas.DataFrame({"dataset_name": [rng.randrange(n_sets) for _ in range(n)], "Model": "m"})
    distances = []
    for _ in range(n):
        options = rng.randint(2, 6)
        human, model = [numpy.array([rng.random() + 0.01 for _ in range(options)]) for _ in range(2)]
        human, model = human / human.sum(), model / model.sum()
        distances.append([round(0.5 * float(abs(human - other).sum()), 5) for other in (model, numpy.full(options, 1 / options))])
    frame[["Total_Variation", "TV_Uniform"]] = distances
    norms = frame.groupby("dataset_name")["TV_Uniform"].mean()
    frame["SimBench_Score"] = frame.apply(lambda row: 100 * (1 - row["Total_Variation"] / norms[row["dataset_name"]]), axis=1)
    score = float(frame.groupby("Model")["SimBench_Score"].mean()["m"])
    return {"groups": frame["dataset_name"].tolist(), "losses": [one for one, _ in distances], "baseline": [one for _, one in distances], "score": score}


if __name__ == "__main__":
    lines = lambda cases: ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print(f'{{"simbench":[\n{lines(map(simbench, range(1000)))}\n],\n"suites":[\n{lines(map(suite, range(150)))}\n]}}')
